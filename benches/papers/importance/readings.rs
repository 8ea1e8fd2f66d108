//! Other interpretations of the paper's open points, on plain arrays, because our kinds implement
//! one each: whether the least important items are stored at all, and how IBF-H chooses cells. They
//! show how much Table I depends on these points.

use super::contest::{Algorithm, CELLS, Done, K, MAX, P, Score, percent};
use super::seed::seed;
use super::streams::{HIGHEST, Item};
use super::table::Table;
use ebbtide_testkit::random::{Random, mix};

/// The mapping of importance to a value from 0 to [`MAX`].
#[derive(Clone, Copy)]
pub enum Levels {
    /// `⌈7·imp/50⌉`, at least 1: ours.
    Up,
    /// `⌊7·imp/50⌋`: "8 classes" (section III-D), of which the lowest is not stored.
    Down,
    /// `⌊7·imp/50⌋`, at least 1.
    DownToOne,
}

/// A possible interpretation of a filter.
pub struct Reading {
    /// The filter.
    pub algorithm: Algorithm,
    levels: Levels,
    /// The number of cells that IBF-H draws until it accepts one.
    attempts: u32,
    /// Its name in the tables.
    pub says: &'static str,
}

const READINGS: [Reading; 8] = [
    Reading::new(Algorithm::TwoClasses, Levels::Up, 1, "as ours"),
    Reading::new(Algorithm::TwoClasses, Levels::Down, 1, "f rounds down"),
    Reading::new(Algorithm::ManyClasses, Levels::Up, 1, "as ours"),
    Reading::new(Algorithm::ManyClasses, Levels::Down, 1, "f rounds down"),
    Reading::new(Algorithm::Hybrid, Levels::Up, 64, "as ours"),
    Reading::new(Algorithm::Hybrid, Levels::Down, 64, "f rounds down"),
    Reading::new(Algorithm::Hybrid, Levels::Up, 1, "a cell refused is not replaced"),
    Reading::new(Algorithm::Hybrid, Levels::Down, 1, "both"),
];

impl Reading {
    /// Creates an interpretation.
    pub const fn new(
        algorithm: Algorithm,
        levels: Levels,
        attempts: u32,
        says: &'static str,
    ) -> Self {
        Self { algorithm, levels, attempts, says }
    }

    /// Runs streams, each through a new filter.
    pub fn score(&self, streams: &[Vec<Item>]) -> Done<Score> {
        let mut score = Score::new();
        for (number, stream) in (0..).zip(streams) {
            self.take_all(stream, number, &mut score)?;
        }
        Ok(score)
    }

    /// Returns the value to which an item raises its cells.
    fn value(&self, importance: u32) -> u32 {
        let level = match self.levels {
            Levels::Up => (MAX * importance).div_ceil(HIGHEST).max(1),
            Levels::Down => MAX * importance / HIGHEST,
            Levels::DownToOne => (MAX * importance / HIGHEST).max(1),
        };
        match self.algorithm {
            Algorithm::TwoClasses if 2 * level > MAX => MAX,
            Algorithm::TwoClasses => MAX / 2,
            _ => level,
        }
    }

    /// Draws the cell to decrement next, if any.
    fn drawn(&self, cells: &[u32], random: &mut Random) -> Option<usize> {
        (0..self.attempts).find_map(|_| {
            let at = random.below(CELLS) as usize;
            let value = u64::from(cells[at]);
            let accepted = match self.algorithm {
                Algorithm::Hybrid => value > 0 && random.below(value) == 0,
                _ => true,
            };
            accepted.then_some(at)
        })
    }

    /// Runs algorithms 1 and 2 as printed.
    fn take_all(&self, stream: &[Item], number: u64, score: &mut Score) -> Done {
        let mut random = Random::new(mix(seed() + number));
        let mut cells = vec![0_u32; CELLS as usize];
        score.take_all(stream, |item| {
            let mut hashes = Random::new(mix(item.key ^ mix(number)));
            let own: [usize; K as usize] = std::array::from_fn(|_| hashes.below(CELLS) as usize);
            let found = own.iter().all(|&at| cells[at] > 0);
            for _ in 0..P {
                if let Some(at) = self.drawn(&cells, &mut random) {
                    cells[at] = cells[at].saturating_sub(1);
                }
            }
            let value = self.value(item.importance);
            own.iter().for_each(|&at| cells[at] = cells[at].max(value));
            Ok(found)
        })
    }
}

/// Table I by other interpretations, beside the `printed` one, on permutations of the trace; `sets`
/// are the two derived from it.
pub fn table(printed: &[[[f64; 4]; 5]; 2], sets: &[Vec<Vec<Item>>; 2]) -> Done {
    let head = ["filter", "reading", "data 1: FP", "FN", "data 2: FP", "FN"];
    let mut table = Table::new("Table I by other readings, permuted, in %", &head);
    for reading in READINGS {
        let name = reading.algorithm.name();
        if reading.says == READINGS[0].says {
            let paper = printed.map(|set| set[reading.algorithm as usize]);
            let [a, b] = paper.map(|rates| [rates[0], rates[1]].map(percent));
            let [[a, b], [c, d]] = [a, b];
            table.row([name.to_owned(), "(the paper)".to_owned(), a, b, c, d]);
        }
        let mut rates = Vec::new();
        for streams in sets {
            let [positives, negatives, ..] = reading.score(streams)?.aggregates().map(percent);
            rates.extend([positives, negatives]);
        }
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| rates[at].clone());
        table.row([name.to_owned(), reading.says.to_owned(), a, b, c, d]);
    }
    println!("{table}");
    Ok(())
}
