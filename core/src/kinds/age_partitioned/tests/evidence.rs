//! Claims about posteriors: predicted probabilities equal observed frequencies.

use super::super::build;
use super::raw;
use crate::block::Layout;
use crate::conformance::{Calibration, Harness, hash_of};
use crate::hash::mix;
use crate::inference::{Belief, Distinct, Form, Survival};
use crate::kind::Parameters;

const LAYOUT: Layout = Layout { stripes: 2, block_words: 512 };

/// A filter and a stream of `universe` keys, all equally likely.
struct Case {
    harness: Harness,
    universe: u64,
    generation: u64,
    slices: u64,
    distinct: Distinct,
    /// When each key was last inserted.
    last: Vec<Option<u64>>,
    fed: u64,
}

impl Case {
    fn new((k, l): (u32, u32), generation: u64, universe: u64) -> Self {
        // Slices filled as planned: ln 2 keys a row.
        let words = (f64::from(k) * generation as f64
            / std::f64::consts::LN_2
            / f64::from(64 / 16_u32.max(k + l).next_power_of_two())) as u64;
        let kind = raw(k, l, generation, 16_u32.max(k + l).next_power_of_two(), words);
        Self {
            harness: Harness::new(kind, LAYOUT),
            universe,
            generation,
            slices: u64::from(k + l),
            distinct: Distinct::uniform(universe).expect("keys"),
            last: vec![None; universe as usize],
            fed: 0,
        }
    }

    fn feed(&mut self, until: u64) {
        while self.fed < until {
            let key = mix(self.fed ^ 0xfeed << 40) % self.universe;
            self.harness.insert(hash_of(key), 0);
            self.last[key as usize] = Some(self.fed);
            self.fed += 1;
        }
    }

    /// Returns the errors of the posteriors of windows of all widths and of the ages of each
    /// generation, and the mean ages, predicted and true.
    fn errors(&self) -> (f64, f64, (f64, f64)) {
        let survival = Survival::of_inserts(1.0 / self.universe as f64);
        let belief = Belief {
            probability: 1.0 / self.universe as f64,
            survival,
            distinct: &self.distinct,
            form: Form::Refined,
            width: u64::MAX,
        };
        let (mut windows, mut ages, mut means) =
            (Calibration::default(), Calibration::default(), (0.0, 0.0));
        let open = match self.fed % self.generation {
            0 => self.generation,
            open => open,
        };
        for i in 0..4000_u64 {
            let key = mix(i ^ 0xa5c << 40) % self.universe;
            let age = self.last[key as usize].map(|at| self.fed - 1 - at);
            let (told, history) = self.harness.ages_at(hash_of(key), 0, &belief);
            let width = mix(i ^ 0x51de << 40) % (self.slices * self.generation);
            let within = |width: u64| age.is_some_and(|age| age < width);
            windows.add(told.within(width.min(history)), within(width));
            let mut from = 0;
            for generation in 0..self.slices {
                let to = (open + generation * self.generation).min(history);
                ages.add(told.between(from..to), within(to) && !within(from));
                from = to;
            }
            // A key that was never inserted counts as in a stream without beginning.
            let mean = age.map_or((self.fed + self.universe) as f64, |age| age as f64);
            means = (means.0 + told.expected(), means.1 + mean);
        }
        (windows.error(), ages.error(), means)
    }
}

#[test]
fn posteriors_of_windows_and_ages_are_calibrated_from_the_first_insert_on() {
    for (slices, generation) in [((10, 22), 150), ((4, 12), 300), ((12, 52), 60)] {
        for part in [0.3, 2.0, 10.0] {
            let window = (u64::from(slices.1) * generation) as f64;
            let mut case = Case::new(slices, generation, (part * window) as u64);
            for fed in [0.05, 0.4, 0.97, 2.51] {
                case.feed((fed * window) as u64);
                let (windows, ages, (told, real)) = case.errors();
                println!("{slices:?} {part} {fed}: {windows:.4} {ages:.4} {:.4}", told / real);
                // For 4000 keys, including all certain answers. Repeated keys set the same rows in
                // all slices of a hash function: the fewer functions, the greater the effect.
                let bound = if slices.0 < 10 { 0.03 } else { 0.01 };
                assert!(windows < bound, "{slices:?} {part} {fed}: windows {windows}");
                assert!(ages < 0.01, "{slices:?} {part} {fed}: ages {ages}");
                assert!((told / real - 1.0).abs() < 0.05, "{slices:?}: {told} for {real}");
            }
        }
    }
}

#[test]
fn a_key_that_cannot_be_there_is_not_and_one_that_is_sure_is() {
    let kind = build(&Parameters::new().with("window-items", 1000)).expect("a sound filter");
    let mut harness = Harness::new(kind, LAYOUT);
    (0..3000).for_each(|key| {
        harness.insert(hash_of(key), 0);
    });
    let of = |harness: &Harness, key: u64, p: f64| {
        let survival = Survival::of_inserts(p);
        let belief = Belief {
            probability: p,
            survival,
            distinct: &Distinct::ALL,
            form: Form::Refined,
            width: u64::MAX,
        };
        harness.ages_at(hash_of(key), 0, &belief).0.within(1000)
    };
    // Impossible and certain priors, and some that the cells alone overrule.
    assert_eq!(of(&harness, 2990, 0.0), 0.0);
    for p in [1e-6, 1e-3, 0.5, 1.0] {
        assert!(of(&harness, 2990, p) > 0.9, "{p}: {}", of(&harness, 2990, p));
    }
    let absent = (1 << 40..1 << 40 | 2000).filter(|&key| of(&harness, key, 1e-6) > 0.01).count();
    assert!(absent <= 4, "{absent}");
}
