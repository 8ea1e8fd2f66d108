//! Claims about the posteriors of several kinds: predictions equal observed frequencies.

use super::{Belief, Distinct, Form, Survival};
use crate::block::Layout;
use crate::conformance::{Calibration, Harness, hash_of};
use crate::hash::mix;
use crate::kind::Parameters;
use crate::kinds::registry;

const LAYOUT: Layout = Layout { stripes: 2, block_words: 512 };

/// A filter and a stream of `universe` keys, all equally likely.
struct Case {
    harness: Harness,
    universe: u64,
    distinct: Distinct,
    /// When each key was last inserted.
    last: Vec<Option<u64>>,
    fed: u64,
}

impl Case {
    fn new(kind: &str, parameters: &Parameters, universe: u64) -> Self {
        let kind = registry::build(kind, parameters).expect("a sound filter");
        let (harness, last) = (Harness::new(kind, LAYOUT), vec![None; universe as usize]);
        let distinct = Distinct::uniform(universe).expect("keys");
        Self { harness, universe, distinct, last, fed: 0 }
    }

    fn feed(&mut self, until: u64) {
        while self.fed < until {
            let key = mix(self.fed ^ 0xfeed << 40) % self.universe;
            self.harness.insert(hash_of(key), 0);
            self.last[key as usize] = Some(self.fed);
            self.fed += 1;
        }
    }

    /// Returns the error of the posteriors of windows of all widths up to `most`.
    fn error(&self, most: u64) -> f64 {
        let probability = 1.0 / self.universe as f64;
        let survival = Survival::of_inserts(probability);
        let (distinct, form) = (&self.distinct, Form::Refined);
        let belief = Belief { probability, survival, distinct, form, width: u64::MAX };
        let mut windows = Calibration::default();
        for i in 0..4000_u64 {
            let key = mix(i ^ 0xa5c << 40) % self.universe;
            let age = self.last[key as usize].map(|at| self.fed - 1 - at);
            let (told, history) = self.harness.ages_at(hash_of(key), 0, &belief);
            let width = 1 + mix(i ^ 0x51de << 40) % most;
            windows.add(told.within(width.min(history)), age.is_some_and(|age| age < width));
        }
        windows.error()
    }
}

#[test]
fn posteriors_of_two_buffers_are_calibrated_in_every_generation() {
    for kind in ["two-buffer", "double-buffering"] {
        for (window, fpr, part) in [(2000, 0.1, 2.0), (2000, 0.3, 10.0), (3000, 0.02, 0.5)] {
            let parameters = Parameters::new().with("window-items", window).with("fpr", fpr);
            let mut case = Case::new(kind, &parameters, (part * f64::from(window)) as u64);
            for fed in [0.05, 0.6, 1.0, 1.3, 1.97, 2.5, 4.02] {
                case.feed((fed * f64::from(window)) as u64);
                let error = case.error(3 * u64::from(window as u32));
                println!("{kind} {window} {fpr} {part} {fed}: {error:.4}");
                assert!(error < 0.025, "{kind} {fpr} {part} {fed}: {error}");
            }
        }
    }
}

#[test]
fn posteriors_of_counting_filters_are_calibrated_with_removals() {
    for (capacity, fpr, part) in [(2000, 0.1, 2.0), (2000, 0.3, 10.0), (3000, 0.02, 1.0)] {
        let parameters = Parameters::new().with("capacity", capacity).with("fpr", fpr);
        let mut case = Case::new("counting", &parameters, (part * f64::from(capacity)) as u64);
        for fed in [0.05, 0.6, 1.0, 1.5] {
            case.feed((fed * f64::from(capacity)) as u64);
            let error = case.error(u64::from(capacity as u32) * 2);
            println!("counting {capacity} {fpr} {part} {fed}: {error:.4}");
            assert!(error < 0.025, "{fpr} {part} {fed}: {error}");
        }
        // The older half is removed: what remains is as after half of the inserts.
        let half = case.fed / 2;
        for at in 0..half {
            let key = mix(at ^ 0xfeed << 40) % case.universe;
            assert!(case.harness.remove(hash_of(key), 1), "it was inserted");
        }
        let belongs = |last: &mut Option<u64>| *last = last.filter(|&at| at >= half);
        case.last.iter_mut().for_each(belongs);
        case.fed -= half;
        case.last.iter_mut().flatten().for_each(|at| *at -= half);
        let error = case.error(case.fed);
        println!("counting {capacity} {fpr} {part}, half removed: {error:.4}");
        assert!(error < 0.025, "{fpr} {part}: {error}");
    }
}
