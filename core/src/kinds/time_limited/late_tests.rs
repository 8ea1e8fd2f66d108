//! Streams whose keys are late by up to a whole window, and the filter's guarantees for them: no
//! key lost within its window, the planned rate of false positives, and a reliable estimate of it.
//!
//! `cargo test time_limited::late_tests -- --nocapture` prints the figures.

use super::generations::Generations;
use super::plan::pace_and_grace;
use super::tests::{in_rows, tiny};
use super::*;
use crate::conformance::Harness;
use crate::hash::mix;
use std::collections::VecDeque;

const SECOND: Micros = 1_000_000;

/// The window of all streams.
const T: Micros = 60 * SECOND;

/// The planned rate of false positives.
const WANTED: f64 = 0.003;

/// Keys never inserted that each check queries: a measured rate of 0.003 has a standard deviation
/// of 2.2e-4.
const PROBES: u64 = 60_000;

/// Checks a window.
const LOOKS: u64 = 10;

/// Returns a number from 0 to 1.
fn uniform(seed: u64) -> f64 {
    ((mix(seed) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// Returns how late a key is: uniformly distributed up to a window.
fn anything(i: u64) -> Micros {
    (uniform(i ^ 0x1a7e << 40) * T as f64) as Micros
}

/// Returns a lateness of less than a thousandth of a window, for one of ten keys up to a
/// window.
fn mostly_little(i: u64) -> Micros {
    if mix(i ^ 0x10 << 50).is_multiple_of(10) { anything(i) } else { anything(i) / 1000 }
}

/// Returns a lateness of four fifths of a window for half of the keys: one of two sources lags.
fn half_far(i: u64) -> Micros {
    if i.is_multiple_of(2) { 0 } else { T * 4 / 5 }
}

/// The lateness of the key of a number.
type Late = fn(u64) -> Micros;

const LATENESS: [(&str, Late); 4] = [
    ("in time", |_| 0),
    ("up to T", anything),
    ("1 of 10 up to T", mostly_little),
    ("1 of 2 by 0.8 T", half_far),
];

/// The results of a stream.
#[derive(Debug, Default)]
struct Outcome {
    /// The highest rate at a check, measured and estimated.
    worst: (f64, f64),
    /// The mean rate over all checks, measured and estimated.
    mean: (f64, f64),
    /// Bits of the newest bank for each key of the last window.
    bits: f64,
    /// Banks opened after the first, and the most at one time.
    banks: (usize, usize),
    /// Keys of the last window, and what the filter measured.
    keys: (usize, u64),
}

/// A stream in progress.
struct Stream {
    name: String,
    kind: Arc<dyn Kind>,
    layout: Layout,
    harness: Harness,
    now: Micros,
    /// The keys of the last window: each key, its time, and its arrival.
    keys: VecDeque<(u64, Micros, Micros)>,
    looks: u64,
    outcome: Outcome,
}

impl Stream {
    fn new(name: &str, expected: f64) -> Self {
        let parameters = Parameters::new().with("window", T).with("fpr", WANTED);
        let kind = build(&parameters.with("rate", expected)).expect("a kind");
        let layout = Layout { stripes: kind.default_stripes(2048), block_words: 2048 };
        let harness = Harness::new(kind.clone(), layout);
        let (name, keys, outcome) = (name.to_string(), VecDeque::new(), Outcome::default());
        Self { name, kind, layout, harness, now: 0, keys, looks: 0, outcome }
    }

    /// Feeds keys with Poisson arrivals at `rate`: inserts a second, by time in windows.
    fn run(mut self, windows: f64, late: Late, rate: fn(f64) -> f64) -> Outcome {
        let start = 1_700_000_000 * SECOND;
        let (mut time, mut inserts) = (0.0_f64, 0);
        while time < windows * T as f64 {
            time -= uniform(inserts ^ 0xabcd << 40).ln() / rate(time / T as f64) * 1e6;
            let came = start + time as u64;
            self.insert(mix(inserts), came - late(inserts), came);
            inserts += 1;
            if time as u64 * LOOKS / T > self.looks {
                self.looks += 1;
                self.look();
            }
        }
        self.finish()
    }

    fn insert(&mut self, hash: u64, time: Micros, came: Micros) {
        self.now = self.now.max(time);
        if let Decision::Insert { .. } = self.harness.insert(hash, time) {
            self.keys.push_back((hash, time, came));
        }
        while self.keys.front().is_some_and(|&(_, _, then)| then + T <= came) {
            self.keys.pop_front();
        }
    }

    /// Checks that no key is missing in its window, and that the rate equals the filter's estimate.
    fn look(&mut self) {
        let Self { name, harness, keys, outcome, .. } = self;
        outcome.banks.1 = outcome.banks.1.max(harness.state().banks().count());
        for &(hash, time, _) in keys.iter().step_by(keys.len() / 5000 + 1) {
            let there = time + T <= self.now || harness.contains(hash);
            assert!(there, "{name}: a key of {time} is gone at {}", self.now);
        }
        let (measured, estimated) = (harness.measured_fpr(PROBES), harness.estimated_fpr());
        // A fifth, and five standard deviations of the measured rate.
        let most = estimated * 0.2 + 5.0 * (estimated.max(1e-5) / PROBES as f64).sqrt();
        assert!((measured - estimated).abs() < most, "{name}: {measured}, not {estimated}");
        outcome.worst = (outcome.worst.0.max(measured), outcome.worst.1.max(estimated));
        outcome.mean = (outcome.mean.0 + measured, outcome.mean.1 + estimated);
    }

    fn finish(self) -> Outcome {
        let Self { name, kind, layout, harness, now, keys, looks, mut outcome } = self;
        outcome.mean = (outcome.mean.0 / looks as f64, outcome.mean.1 / looks as f64);
        let opened = |event: &&Event| matches!(event, Event::OpenBank { .. });
        outcome.banks.0 = harness.events().iter().filter(opened).count();
        let newest = harness.state().bank_of_step(u64::MAX).expect("a bank");
        outcome.bits = layout.words(newest.geometry) as f64 * 64.0 / keys.len() as f64;
        outcome.keys = (keys.len(), taken(&harness, &kind, now));
        println!("{name:36} {outcome:?}");
        assert!(outcome.worst.1 < WANTED);
        outcome
    }
}

/// Returns the measured keys of the generations that closed in the last window.
fn taken(harness: &Harness, kind: &Arc<dyn Kind>, now: Micros) -> u64 {
    let parameter = |name| kind.parameters().required(name, "").expect("completed");
    let (k, l) = (parameter("k"), parameter("l"));
    let pace = pace_and_grace(T, (k, l), 64);
    let state = harness.state();
    let generations = Generations::new(&state, pace, u64::from(k) - 1);
    (generations.first_since(now, T)..generations.current())
        .map(|generation| generations.keys(generation))
        .sum()
}

#[test]
fn late_keys_at_an_even_rate_keep_the_rate_and_are_measured() {
    for (name, late) in LATENESS {
        let stream = Stream::new(&format!("at capacity, {name}"), 800.0);
        let outcome = stream.run(4.0, late, |_| 970.0);
        let (came, measured) = (outcome.keys.0 as f64, outcome.keys.1 as f64);
        assert!((0.9..1.1).contains(&(measured / came)), "{name}: {measured} of {came}");
        assert!(outcome.banks.0 <= 1 && outcome.bits < 36.0);
    }
}

#[test]
fn late_keys_whose_rate_quadruples_keep_the_rate() {
    for (name, late) in LATENESS {
        let stream = Stream::new(&format!("x4, {name}"), 400.0);
        let outcome = stream.run(4.0, late, |t| if t < 1.5 { 480.0 } else { 1920.0 });
        assert!(outcome.banks.1 <= 3);
    }
}

#[test]
fn late_keys_in_bursts_keep_the_rate() {
    for (name, late) in LATENESS {
        let stream = Stream::new(&format!("bursts, {name}"), 100.0);
        let bursts = |t: f64| if (0.5..0.55).contains(&t.fract()) { 10_000.0 } else { 100.0 };
        let outcome = stream.run(4.0, late, bursts);
        assert!(outcome.banks.1 <= 3);
    }
}

#[test]
fn keys_of_one_moment_fill_its_generation_and_then_the_open_one() {
    let kind = tiny(T, 12, 50, 0.5);
    let mut harness = Harness::new(kind.clone(), Layout { stripes: 1, block_words: 64 });
    let span = kind.plan.pace + kind.plan.grace;
    let (moment, now) = (5 * T, 5 * T + T / 2);
    harness.insert(mix(0), moment);
    harness.insert(mix(1), now);
    let open = kind.plan.generations(&harness.state()).current();
    let steps: Vec<u64> = (2..2000)
        .map(|i| match harness.insert(mix(i), moment) {
            Decision::Insert { step } => step,
            Decision::TooLate => panic!("a key of the window is refused"),
        })
        .collect();
    // The smallest bank has capacity for 64 keys of each of the 12 generations that share a slice,
    // and the other generations took none.
    let own = steps.iter().filter(|&&step| step < open).count();
    assert!((600..900).contains(&own), "{own} of {}", steps.len());
    assert!(steps[1500..].iter().all(|&step| step >= open));
    for i in 2..2000 {
        assert!(harness.contains_at(mix(i), moment + T - 1));
        // A key that has its bits in a generation is not put into another one.
        let (first, again) = (steps[i as usize - 2], harness.insert(mix(i), moment));
        assert!(first >= open || again == Decision::Insert { step: first });
    }
    // The keys that the open generation took stay until it expires.
    let gone = now + T + 13 * span;
    let there = (2..2000).filter(|&i| harness.contains_at(mix(i), gone)).count();
    assert!(there <= 5, "{there}");
}

#[test]
fn late_keys_fill_rows_of_any_width_to_the_planned_load() {
    // A load of 0.3536 sets 1 - e^-0.3536 = 0.298 of the bits: 0.298^7 = 2e-4.
    for columns in [16, 32, 64] {
        let kind = in_rows(columns, T, (7, 5), 0.3536);
        let mut harness = Harness::new(kind.clone(), Layout { stripes: 1, block_words: 2048 });
        let (moment, now) = (5 * T, 5 * T + T / 2);
        harness.insert(mix(0), moment);
        harness.insert(mix(1), now);
        let open = kind.plan.generations(&harness.state()).current();
        let is_late = |decision| matches!(decision, Decision::Insert { step } if step < open);
        let keys = (2..10_000).take_while(|&i| is_late(harness.insert(mix(i), moment))).count();
        let geometry = harness.state().bank(0).expect("the first bank").geometry;
        let rows = geometry.words_per_block * 64 / columns;
        let fill = -(-(keys as f64) / f64::from(rows)).exp_m1();
        assert!((0.26..0.32).contains(&fill), "{columns}: {keys} keys of {rows} rows set {fill}");
    }
}
