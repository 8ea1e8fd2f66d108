//! Claims about posteriors of windows of time: they equal the shares that are counted.

use super::*;
use crate::block::Layout;
use crate::conformance::{Harness, hash_of};
use crate::hash::mix;
use crate::inference::{Belief, Distinct, Form, Survival, prior};
use crate::kind::Within;
use crate::kind::posterior::PosteriorOptions;
use crate::machine::{Machine, MachineOptions};
use crate::time::OperationTime;

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

/// A filter in memory whose first key came `before` the end of a generation.
fn begun(before: Micros) -> (Machine, Micros) {
    let kind = build(&Parameters::new().with("window", WINDOW)).expect("a filter");
    let generations: u64 = kind.parameters().required("generations", "").expect("completed");
    let pace = WINDOW.div_ceil(generations);
    let machine = Machine::create(kind, &MachineOptions::new(), 1, 2).expect("a machine");
    (machine, START.next_multiple_of(pace) - before)
}

fn put(machine: &mut Machine, key: u64, time: Micros) {
    let (hash, time) = (machine.hash(&key.to_le_bytes()), OperationTime { time, stream: true });
    assert!(machine.insert(hash, time, &mut |_| {}).expect("an insert"), "key {key}");
}

/// Returns the posterior of a key that is one of a million, of a thousand a second.
fn posterior(machine: &Machine, key: u64, now: Micros, window: Option<Micros>) -> f64 {
    let stream = prior::Stream::new(1e-6, Distinct::ALL).rate(1000.0);
    let options =
        PosteriorOptions { window: window.map(Within::micros), ..PosteriorOptions::default() };
    machine.posterior(&key.to_le_bytes(), now, options, &stream).expect("a posterior")
}

#[test]
fn keys_of_the_first_generation_are_present_however_late_in_it_the_filter_began() {
    for before in [1, 1000, SECOND, 20 * SECOND] {
        let (mut machine, first) = begun(before);
        assert_eq!(posterior(&machine, 7, first, Some(1 << 50)), 0.0, "of an empty filter");
        put(&mut machine, 0, first);
        // One slot: of this key, or of another one that has its fingerprint.
        let at_once = posterior(&machine, 0, first, None);
        assert!(at_once > 0.6, "{before}: {at_once}");
        for key in 1..100 {
            put(&mut machine, key, first + key * 1000);
        }
        for now in [SECOND / 2, 10 * SECOND, WINDOW / 2, WINDOW - 1].map(|later| first + later) {
            for window in [None, Some(1 << 50)] {
                for key in 0..100 {
                    let told = posterior(&machine, key, now, window);
                    let least = if key == 0 && before < SECOND { 0.6 } else { 0.9 };
                    assert!(told > least, "{before}, key {key} after {}: {told}", now - first);
                }
                for key in 1000..1100 {
                    assert_eq!(posterior(&machine, key, now, window), 0.0, "{before}, key {key}");
                }
            }
        }
    }
}

#[test]
fn a_late_key_from_before_the_first_insert_is_present_at_its_own_age() {
    let (mut machine, mut first) = begun(SECOND);
    for round in 0..2 {
        for key in 0..100 {
            put(&mut machine, key, first + key);
        }
        let late = 1000 + round;
        let now = first + 100;
        assert_eq!(posterior(&machine, late, now, None), 0.0);
        put(&mut machine, late, first - WINDOW / 2);
        let told = |machine: &Machine, window| posterior(machine, late, now, window);
        assert!(told(&machine, None) > 0.9, "{}", told(&machine, None));
        assert!(told(&machine, Some(1 << 50)) > 0.9, "{}", told(&machine, Some(1 << 50)));
        assert_eq!(told(&machine, Some(WINDOW / 4)), 0.0, "it is older");
        let stream = prior::Stream::new(1e-6, Distinct::ALL).rate(1000.0);
        let ages = machine.age_posterior(&late.to_le_bytes(), now, Form::Refined, &stream);
        let ages = ages.expect("a posterior");
        let pace = ages.spans().next().expect("an age").0;
        assert!(pace.contains(&(now + WINDOW / 2 - first)), "{ages:?}");
        assert!((ages.never() + ages.within(WINDOW) - 1.0).abs() < 1e-9, "{ages:?}");
        first += WINDOW;
        machine.clear(OperationTime { time: first, stream: true }, &mut |_| {});
    }
}

/// Late keys are few, however high the rate of the others is.
#[test]
fn posteriors_of_late_keys_are_the_shares_that_are_counted() {
    let parameters = Parameters::new().with("window", WINDOW).with("fpr", 0.05);
    let kind = build(&parameters).expect("a filter");
    let mut machine = Machine::create(kind, &MachineOptions::new(), 1, 2).expect("a machine");
    // One of `UNIVERSE` keys each, the late ones all of one generation.
    const UNIVERSE: u64 = 200_000;
    let (first, time) = (START, START - WINDOW / 2);
    (0..2000).for_each(|key| put(&mut machine, UNIVERSE + key, first + key));
    let keys: Vec<u64> = (0..2000).map(|number| mix(number) % UNIVERSE).collect();
    keys.iter().for_each(|&key| put(&mut machine, key, time));
    let stream = prior::Stream::new(1.0 / UNIVERSE as f64, Distinct::ALL).rate(1e6);
    let (mut sum, mut inside, mut present) = (0.0, 0, 0);
    for key in 0..UNIVERSE {
        let options = PosteriorOptions::default();
        let told = machine.posterior(&key.to_le_bytes(), first + 2000, options, &stream);
        let age = machine.age(machine.hash(&key.to_le_bytes()), first + 2000).expect("ages");
        if age.is_some_and(|age| age.width() > WINDOW / 4) {
            sum += told.expect("a posterior");
            present += 1;
            inside += u64::from(keys.contains(&key));
        }
    }
    let (told, counted) = (sum / f64::from(present), inside as f64 / f64::from(present));
    println!("posterior {told:.4}, counted {counted:.4} of {present}");
    assert!((0.1..0.9).contains(&counted), "{counted}");
    assert!((told - counted).abs() < 0.05, "{told} against {counted}");
}
