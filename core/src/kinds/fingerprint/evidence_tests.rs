//! Claims about posteriors of windows of time: they equal the shares that are counted.

use super::*;
use crate::block::Layout;
use crate::conformance::{Harness, hash_of};
use crate::inference::{Belief, Distinct, Form, Survival};

const SECOND: Micros = 1_000_000;
const WINDOW: Micros = 600 * SECOND;
const START: Micros = 1_700_000_000 * SECOND;

/// The keys of each generation that are asked for, and the keys that were never inserted: the prior
/// is their ratio.
const OF_GENERATION: u64 = 100;
const ABSENT: u64 = 100_000;

/// A filter, and its keys: the first of each generation, which do not come again.
struct Stream {
    harness: Harness,
    pace: Micros,
    now: Micros,
    keys: u64,
    first: Vec<(u64, u64)>,
}

impl Stream {
    fn new(fpr: f64) -> Self {
        let parameters = Parameters::new().with("window", WINDOW).with("fpr", fpr);
        let kind = build(&parameters).expect("a filter");
        let generations: u64 = kind.parameters().required("generations", "").expect("completed");
        let pace = WINDOW.div_ceil(generations);
        let layout = Layout { stripes: 2, block_words: kind.default_block_words() };
        let now = START.next_multiple_of(pace);
        Self { harness: Harness::new(kind, layout), pace, now, keys: 0, first: Vec::new() }
    }

    /// Inserts new keys, evenly over a time.
    fn inserts(&mut self, count: u64, span: Micros) {
        let start = self.now;
        for i in 0..count {
            let now = start + i * span / count;
            let generation = now / self.pace;
            if self.first.last().is_none_or(|&(last, _)| last < generation) {
                self.first.push((generation, self.keys));
            }
            self.harness.insert(hash_of(self.keys), now);
            self.keys += 1;
        }
        self.now = start + span;
        self.harness.advance(self.now);
    }

    /// Asks for some keys of each generation and for many that were never inserted. Of those that
    /// seem to be of `generations`, returns the mean posterior, the share that were inserted, and
    /// its standard error.
    fn told_and_counted(&self, generations: std::ops::RangeInclusive<u64>) -> (f64, f64, f64) {
        let ratio = OF_GENERATION as f64 / ABSENT as f64;
        let survival = Survival::of_rate(ratio / self.pace as f64);
        let belief = Belief {
            probability: 0.0,
            survival,
            distinct: &Distinct::ALL,
            form: Form::Refined,
            width: u64::MAX,
        };
        // A generation has just begun: the oldest one is within the window, but for its first key.
        let oldest = (self.now - WINDOW) / self.pace;
        let of_window = self.first.iter().filter(|(generation, _)| *generation >= oldest);
        let inserted = of_window.flat_map(|&(_, first)| (first + 1..).take(OF_GENERATION as usize));
        let never = (1 << 40)..(1 << 40) + ABSENT;
        let (mut told, mut inside, mut present) = (0.0, 0_u64, 0_u64);
        for key in inserted.chain(never) {
            let hash = hash_of(key);
            let Some(age) = self.harness.age_at(hash, self.now) else { continue };
            if !generations.contains(&((self.now - age.width()) / self.pace - 1)) {
                continue;
            }
            let (ages, _) = self.harness.ages_at(hash, self.now, &belief);
            told += ages.within(WINDOW);
            inside += u64::from(key < self.keys);
            present += 1;
        }
        // The false positives are random: their standard error is that of a Poisson variable.
        let [inside, present] = [inside, present].map(|number| number as f64);
        let error = inside * (present - inside).sqrt() / (present * present);
        (told / present, inside / present, error)
    }
}

#[test]
fn posteriors_are_the_shares_that_are_counted_at_a_steady_rate_and_after_a_burst() {
    for fpr in [0.05, 0.001] {
        for (name, burst, after) in [
            ("steady", 2000, 4),
            ("burst", 200_000, 0),
            ("burst, some generations ago", 200_000, 4),
            ("small burst", 30_000, 4),
        ] {
            let mut stream = Stream::new(fpr);
            let (pace, calm) = (stream.pace, 2000);
            for _ in 0..40 {
                stream.inserts(calm, pace);
            }
            let in_burst = stream.now / pace;
            stream.inserts(burst, pace / 10);
            stream.inserts(calm, pace - pace / 10);
            for _ in 0..after {
                stream.inserts(calm, pace);
            }
            for generations in [in_burst..=in_burst, 0..=in_burst - 1] {
                let (told, counted, error) = stream.told_and_counted(generations);
                println!("{fpr}, {name}: posterior {told:.4}, counted {counted:.4} ± {error:.4}");
                // The slots of a generation are counted in a sample.
                let tolerance = 4.0 * error + 0.1 * counted.min(1.0 - counted);
                assert!((told - counted).abs() < tolerance, "{told} against {counted}");
            }
        }
    }
}
