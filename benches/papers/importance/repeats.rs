//! Table I on streams whose repeats are mostly near: most viewers of a video come soon after each
//! other. The trace here repeats farther apart, and so its false negatives are higher than the
//! paper's. These streams show that the difference is the streams' alone.
//!
//! A stream has 10,498 elements. A third of its items repeat: nine of ten of these an item a little
//! before, at a distance that is exponential with a mean of 20 items, and one of ten any earlier
//! item. The share and the distance were chosen with SBF's two rates in view. All other rates
//! follow.

use super::contest::{Algorithm, Contest, Done, percent};
use super::readings::{Levels, Reading};
use super::seed::seed;
use super::streams::{HIGH, HIGHEST, Item};
use super::table::Table;
use ebbtide_testkit::random::{Random, mix};
use std::collections::HashSet;

/// The share of items that repeat an earlier one, in thousandths.
const REPEATING: u64 = 335;
/// Of these, the share of near repeats, in thousandths.
const NEAR: u64 = 900;
/// The mean distance of a near repeat, in items.
const DISTANCE: f64 = 20.0;

/// How important the elements are.
#[derive(Clone, Copy)]
enum Importance {
    /// All importances from 0 to 49 are equally frequent.
    Equal,
    /// Most are low: 50 times the third power of a number from 0 to 1.
    MostlyLow,
}

impl Importance {
    /// Returns the importance of an element, which is a function of its key.
    fn of(self, key: u64) -> u32 {
        let part = (mix(key ^ seed()) >> 11) as f64 / (1_u64 << 53) as f64;
        let part = match self {
            Self::Equal => part,
            Self::MostlyLow => part.powi(3),
        };
        (f64::from(HIGHEST) * part) as u32
    }
}

/// Draws a stream of this number of elements.
fn stream(elements: usize, importance: Importance, random: &mut Random) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut seen = HashSet::new();
    while seen.len() < elements {
        let past = items.len();
        let key = if past == 0 || random.below(1000) >= REPEATING {
            mix(random.below(u64::MAX))
        } else if random.below(1000) < NEAR {
            let part = (random.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
            let distance = (-part.ln() * DISTANCE).ceil().max(1.0) as usize;
            items[past - distance.min(past)].key
        } else {
            items[random.below(past as u64) as usize].key
        };
        seen.insert(key);
        items.push(Item { key, importance: importance.of(key) });
    }
    items
}

/// The other readings of the paper that are tried on these streams.
const READINGS: [Reading; 2] = [
    Reading::new(Algorithm::ManyClasses, Levels::DownToOne, 1, "f rounds down, at least 1"),
    Reading::new(Algorithm::Hybrid, Levels::DownToOne, 8, "the same, 8 draws for a cell"),
];

/// Prints Table I on such streams beside the paper's: its first set beside equally frequent
/// importances, its second one beside mostly low ones.
pub fn table(printed: &[[[f64; 4]; 5]; 2], elements: usize, count: usize) -> Done {
    let head = [
        "filter",
        "reading",
        "data 1: FP, FN",
        "all equal: FP, FN",
        "FN above 35",
        "data 2: FP, FN",
        "mostly low: FP, FN",
        "FN above 35",
    ];
    let title = format!("Table I on {count} streams of near and far repeats, in %");
    let mut table = Table::new(&title, &head);
    let sets = [Importance::Equal, Importance::MostlyLow].map(|importance| {
        let mut random = Random::new(seed());
        (0..count).map(|_| stream(elements, importance, &mut random)).collect::<Vec<_>>()
    });
    let contests = [Contest::run(&sets[0])?, Contest::run(&sets[1])?];
    let pair = |rates: [f64; 4]| format!("{}, {}", percent(rates[0]), percent(rates[1]));
    for algorithm in Algorithm::ALL {
        let [first, second] = contests.each_ref().map(|contest| contest.of(algorithm));
        table.row([
            algorithm.name().to_owned(),
            "as ours".to_owned(),
            pair(printed[0][algorithm as usize]),
            pair(first.aggregates()),
            percent(first.false_negatives(HIGH)),
            pair(printed[1][algorithm as usize]),
            pair(second.aggregates()),
            percent(second.false_negatives(HIGH)),
        ]);
    }
    for reading in READINGS {
        let [first, second] = [reading.score(&sets[0])?, reading.score(&sets[1])?];
        table.row([
            reading.algorithm.name().to_owned(),
            reading.says.to_owned(),
            pair(printed[0][reading.algorithm as usize]),
            pair(first.aggregates()),
            percent(first.false_negatives(HIGH)),
            pair(printed[1][reading.algorithm as usize]),
            pair(second.aggregates()),
            percent(second.false_negatives(HIGH)),
        ]);
    }
    println!("{table}");
    Ok(())
}
