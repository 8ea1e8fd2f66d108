//! Claims about the number of distinct keys, of every kind that knows it, against an exact model.

use crate::conformance::hash_of;
use crate::hash::mix;
use crate::kind::parameters::Parameters;
use crate::kind::{Cardinality, Micros, Within};
use crate::kinds::registry;
use crate::machine::{Machine, MachineOptions};
use crate::test_effort::scaled;
use crate::time::OperationTime;
use std::collections::HashMap;

/// How the keys of a stream repeat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Repeats {
    /// No key repeats.
    None,
    /// A power law of exponent 1 over as many keys as four windows have inserts.
    Zipf,
    /// Each second key is one of the last window.
    Half,
    /// The keys are a tenth of the window.
    Few,
}

pub(super) const ALL_REPEATS: [Repeats; 4] =
    [Repeats::None, Repeats::Zipf, Repeats::Half, Repeats::Few];

impl Repeats {
    /// Returns key number `at` of a stream.
    pub(super) fn key(self, seed: u64, at: u64, window: u64) -> u64 {
        let random = mix(seed << 40 ^ at);
        let below = |most: u64| ((u128::from(random) * u128::from(most)) >> 64) as u64;
        match self {
            Self::Half if at > window && random & 1 == 1 => {
                self.key(seed, at - 1 - mix(random) % window, window)
            }
            Self::None | Self::Half => at,
            // The inverse of the logarithm that approximates the sum of 1/rank.
            Self::Zipf => {
                let most = (4 * window) as f64;
                most.powf(below(1 << 52) as f64 / (1_u64 << 52) as f64) as u64
            }
            Self::Few => below(window / 10 + 1),
        }
    }
}

/// A filter in memory, and when each of its keys came last.
pub(super) struct Watched {
    pub(super) machine: Machine,
    seed: u64,
    /// Number and time of each key's last insert.
    last: HashMap<u64, (u64, Micros)>,
    inserts: u64,
    now: Micros,
}

impl Watched {
    pub(super) fn new(kind: &str, parameters: Parameters, seed: u64) -> Self {
        let kind = registry::build(kind, &parameters).expect("a filter");
        let machine = Machine::create(kind, &MachineOptions::new(), 4711, 1).expect("memory");
        Self { machine, seed, last: HashMap::new(), inserts: 0, now: 1 << 40 }
    }

    /// Inserts a key at a time.
    pub(super) fn insert(&mut self, key: u64, time: Micros) {
        let hash = hash_of(self.seed << 48 ^ key);
        let stamp = OperationTime { time, stream: true };
        assert!(self.machine.insert(hash, stamp, &mut |_| {}).expect("a key"));
        self.last.insert(key, (self.inserts, time));
        self.inserts += 1;
        self.now = time;
    }

    /// Returns the answer, and the true number of keys within its reach.
    pub(super) fn ask(&self, within: Option<Within>) -> (Cardinality, f64) {
        self.ask_at(self.now, within)
    }

    /// As [`Watched::ask`], at a later time than that of the last insert.
    pub(super) fn ask_at(&self, now: Micros, within: Option<Within>) -> (Cardinality, f64) {
        let answer = self.machine.distinct(now, within, u64::MAX).expect("a kind that knows it");
        let is_in = |&&(number, time): &&(u64, Micros)| match answer.reach {
            Within::Items(items) => self.inserts - number <= items,
            Within::Time(_) => now - time <= answer.reach.width(),
        };
        (answer, self.last.values().filter(is_in).count() as f64)
    }
}

/// Returns how many standard errors an answer is off.
pub(super) fn off((answer, truth): (Cardinality, f64)) -> f64 {
    (answer.keys - truth) / answer.standard_error.max(0.5)
}

/// The mean and the spread of errors, in standard errors, and the share of those above 4.
#[derive(Debug, Default)]
pub(super) struct Errors {
    all: Vec<f64>,
}

impl Errors {
    pub(super) fn add(&mut self, answer: (Cardinality, f64)) {
        self.all.push(off(answer));
    }

    /// Makes sure that standard errors are neither too small nor far too large.
    pub(super) fn check(&self, name: &str, least: f64) {
        let count = self.all.len() as f64;
        let mean = self.all.iter().sum::<f64>() / count;
        let spread = (self.all.iter().map(|off| off * off).sum::<f64>() / count).sqrt();
        let beyond = self.all.iter().filter(|off| off.abs() > 4.0).count();
        println!("{name}: mean {mean:.2}, spread {spread:.2}, {beyond} of {count} beyond 4");
        assert!(beyond as f64 <= count / 100.0, "{name}: {beyond} of {count} beyond 4");
        assert!((least..=1.6).contains(&spread), "{name}: a spread of {spread} standard errors");
    }
}

/// The sub-windows that are asked for: parts of the window.
const PARTS: [f64; 4] = [0.05, 0.3, 0.6, 1.0];

/// Inserts three and a half windows of a stream; asks for each sub-window now and then.
fn stream_of_items(kind: &str, window: u64, parameters: &Parameters, errors: &mut Errors) {
    for repeats in ALL_REPEATS {
        for seed in 0..scaled(6) {
            let mut watched = Watched::new(kind, parameters.clone(), seed);
            for at in 0..window * 7 / 2 {
                watched.insert(repeats.key(seed, at, window), 1 << 40);
                if at % (window / 3 + seed) == window / 4 {
                    let within =
                        PARTS.map(|part| Some(Within::Items((part * window as f64) as u64)));
                    within.into_iter().chain([None]).for_each(|part| errors.add(watched.ask(part)));
                }
            }
        }
    }
}

#[test]
fn windows_of_inserts_know_the_keys_of_each_sub_window_within_their_standard_errors() {
    let window = 20_000;
    for (kind, fpr, least) in [
        ("fingerprint", 0.02, 0.7),
        ("fingerprint", 0.001, 0.4),
        ("fingerprint", 1e-6, 0.0),
        ("age-partitioned", 0.001, 0.7),
        ("age-partitioned", 0.05, 0.7),
        ("timing", 0.01, 0.7),
        ("block-timing", 0.01, 0.7),
        ("two-buffer", 0.01, 0.7),
        ("double-buffering", 0.01, 0.7),
    ] {
        let parameters = Parameters::new().with("window-items", window).with("fpr", fpr);
        let mut errors = Errors::default();
        stream_of_items(kind, window, &parameters, &mut errors);
        errors.check(&format!("{kind} at {fpr}"), least);
    }
}

#[test]
fn windows_of_time_know_the_keys_of_each_sub_window_within_their_standard_errors() {
    let (keys, step) = (20_000_u64, 500);
    let window = keys * step;
    for (kind, least) in [("fingerprint", 0.3), ("time-limited", 0.3)] {
        let mut errors = Errors::default();
        for repeats in ALL_REPEATS {
            for seed in 0..6 {
                let rate = 1e6 / step as f64;
                let parameters = Parameters::new().with("window", window).with("rate", rate);
                let mut watched = Watched::new(kind, parameters, seed);
                let mut now = 1 << 40;
                for at in 0..keys * 7 / 2 {
                    now += step;
                    watched.insert(repeats.key(seed, at, keys), now);
                    if at % (keys / 3 + seed) == keys / 4 {
                        let width = |part: f64| Within::micros((part * window as f64) as u64);
                        PARTS.iter().for_each(|&part| errors.add(watched.ask(Some(width(part)))));
                        // Most blocks are behind then.
                        errors.add(watched.ask_at(now + window / 3, Some(width(0.7))));
                        errors.add(watched.ask_at(now + window / 2, None));
                    }
                }
                let (after, _) = watched.ask_at(now + 2 * window, None);
                assert_eq!(after.keys, 0.0, "all keys have expired");
            }
        }
        errors.check(kind, least);
    }
}

#[test]
fn a_time_limited_filter_of_several_banks_knows_its_keys_within_what_they_may_share() {
    let window = 10_000_000;
    let mut errors = Errors::default();
    // Looks at filters of one bank, two, three and more.
    let mut looks = [0_u32; 3];
    for repeats in ALL_REPEATS {
        for seed in 0..4 {
            let parameters = Parameters::new().with("window", window).with("rate", 50);
            let mut watched = Watched::new("time-limited", parameters, seed);
            let (mut now, mut at) = (1 << 40, 0);
            // A window at each of these rates, which rise faster than banks expire, then a calm.
            for (rate, windows) in [(50, 1.0), (400, 0.5), (3000, 0.4), (12_000, 0.3), (100, 0.6)] {
                let step = 1_000_000 / rate;
                let end = now + (windows * window as f64) as u64;
                let mut next = now + window / 9;
                while now < end {
                    now += step;
                    watched.insert(repeats.key(seed, at, 2000), now);
                    at += 1;
                    if now < next {
                        continue;
                    }
                    next = now + window / 9;
                    let banks = watched.machine.parts.state().banks().count();
                    looks[banks.min(looks.len()) - 1] += 1;
                    let width = |part: f64| Some(Within::micros((part * window as f64) as u64));
                    for within in [None, width(0.05), width(0.3), width(1.0)] {
                        let (answer, truth) = watched.ask(within);
                        let off = (answer.keys - truth).abs();
                        let what =
                            format!("{repeats:?} {seed}, {banks} banks: {answer:?}, {truth}");
                        assert!(off <= 4.0 * answer.standard_error + 2.0, "{what}");
                        // Not even if no key is in two banks, or the small ones are overfull.
                        assert!(answer.standard_error <= 0.3 * truth + 2.0, "{what}");
                        errors.add((answer, truth));
                    }
                }
            }
            // A window later no bank of the burst has keys, and the error is that of cells alone.
            let (end, mut kept) = (now + 2 * window, (0.0, 0.0));
            while now < end {
                now += 1_000_000 / 40;
                watched.insert(repeats.key(seed, at, 2000), now);
                at += 1;
                if at % 100 == 0 && now > end - window / 2 {
                    let (answer, truth) = watched.ask(None);
                    errors.add((answer, truth));
                    kept = (answer.standard_error, truth);
                }
            }
            assert!(kept.0 < 0.05 * kept.1 + 1.0, "{repeats:?} {seed}: {kept:?}");
        }
    }
    assert!(looks.iter().all(|looks| *looks > 40), "{looks:?}");
    errors.check("several banks", 0.2);
}

#[test]
fn kinds_that_keep_all_keys_know_how_many_they_have_within_their_standard_errors() {
    for kind in ["bloom", "counting", "spectral", "dynamic-count"] {
        let mut errors = Errors::default();
        for seed in 0..40 {
            let parameters = Parameters::new().with("capacity", 5000).with("fpr", 0.01);
            let mut watched = Watched::new(kind, parameters, seed);
            for at in 0..8000 {
                watched.insert(mix(seed ^ at) % 6000, 1 << 40);
                if at % 2000 == 1500 {
                    errors.add(watched.ask(None));
                }
            }
            let part = watched.machine.distinct(0, Some(Within::Items(10)), u64::MAX);
            let error = part.expect_err("no ages").to_string();
            assert!(error.contains("distinct_within"), "{error}");
        }
        errors.check(kind, 0.7);
    }
}

#[test]
fn kinds_that_forget_at_random_or_decay_do_not_claim_to_know() {
    let stable = Parameters::new().with("cells", 5000).with("max", 3).with("K", 3).with("P", 10);
    let decaying = Parameters::new().with("capacity", 1000).with("lambda", 0.9);
    let decaying = decaying.with("epoch", 1_000_000);
    for (kind, parameters) in [("stable", stable), ("decaying", decaying)] {
        let kind = registry::build(kind, &parameters).expect("a filter");
        let machine = Machine::create(kind, &MachineOptions::new(), 4711, 1).expect("memory");
        assert!(machine.distinct(0, None, u64::MAX).is_err());
    }
}

#[test]
fn a_sample_of_the_blocks_says_the_same_with_a_larger_error() {
    let parameters = Parameters::new().with("window-items", 300_000).with("fpr", 0.001);
    let mut errors = Errors::default();
    for seed in 0..20 {
        let mut watched = Watched::new("fingerprint", parameters.clone(), seed);
        (0..200_000).for_each(|at| watched.insert(at, 1 << 40));
        let (whole, truth) = watched.ask(None);
        let part = watched.machine.distinct(0, None, 8).expect("a kind that knows it");
        assert!(part.standard_error > 10.0 * whole.standard_error, "{part:?} {whole:?}");
        assert!(part.standard_error < 0.02 * truth, "{part:?}");
        errors.add((part, truth));
    }
    errors.check("a sample", 0.7);
}
