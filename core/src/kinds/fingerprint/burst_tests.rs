//! Bursts of any size into windows of time: memory in proportion to the keys, at every size.
//!
//! `cargo test burst_tests -- --nocapture` prints the figures.

use super::*;
use crate::block::{Layout, OWN_WORDS};
use crate::conformance::Harness;
use crate::hash::mix;
use crate::kind::State;
use crate::test_effort::scaled;

const SECOND: Micros = 1_000_000;
const WINDOW: Micros = 600 * SECOND;
const FPR: f64 = 0.001;
const START: Micros = 1_700_000_000 * SECOND;

struct Stream {
    harness: Harness,
    layout: Layout,
    keys: u64,
    now: Micros,
}

impl Stream {
    fn new(parameters: &Parameters) -> Self {
        let kind = build(parameters).expect("a kind");
        let layout =
            Layout { stripes: kind.default_stripes(8192), block_words: kind.default_block_words() };
        Self { harness: Harness::new(kind, layout), layout, keys: 0, now: START }
    }

    /// Returns about the bytes of the image: cells, headers and undo areas of blocks, a page a bank
    /// and what an image without banks takes.
    fn bytes(&self) -> u64 {
        let pages = |words: u64| (words * 8).next_multiple_of(4096);
        let banks = self.state().banks().map(|bank| {
            let block = OWN_WORDS + bank.geometry.words_per_block as usize;
            let area = self.harness.undo_room().area_words(block);
            let undo = pages(area as u64 * u64::from(self.layout.stripes));
            let blocks = pages(self.layout.blocks(bank.geometry) * 8);
            4096 + undo + blocks + pages(self.layout.words(bank.geometry))
        });
        (24 << 10) + banks.sum::<u64>()
    }

    fn state(&self) -> State<'_> {
        self.harness.state()
    }

    fn banks(&self) -> usize {
        self.state().banks().count()
    }

    fn bits_a_key(&self) -> f64 {
        self.bytes() as f64 * 8.0 / self.keys as f64
    }

    /// Inserts new keys, evenly over a time.
    fn burst(&mut self, count: u64, span: Micros) {
        let start = self.now;
        for i in 0..count {
            self.now = start + i * span / count;
            self.harness.insert(mix(self.keys), self.now);
            self.keys += 1;
        }
        self.now = start + span;
    }

    /// Asserts that the last `count` keys are present.
    fn assert_has_last(&self, count: u64) {
        let step = (count / 20_000).max(1) as usize;
        let mut last = (self.keys - count..self.keys).step_by(step);
        assert!(last.all(|key| self.harness.contains_at(mix(key), self.now)));
    }
}

fn default_window() -> Parameters {
    Parameters::new().with("window", WINDOW).with("fpr", FPR)
}

/// The most bits for each key of a burst of this many: just after a bank has opened, and at round
/// numbers.
fn most_bits(keys: u64) -> f64 {
    match keys {
        0..=10_000 => 60.0,
        10_001..100_000 => 90.0,
        _ => 40.0,
    }
}

#[test]
fn memory_is_in_proportion_to_the_keys_at_every_moment_of_a_burst() {
    let mut stream = Stream::new(&default_window());
    let count = scaled(12_000_000);
    let mut wrong = Vec::new();
    for keys in 1..=count {
        let opened = stream.state().next_bank();
        stream.burst(1, keys % 2);
        let is_round = [10_000, 100_000, 1_000_000, 10_000_000].contains(&keys);
        if keys < 8000 || !(stream.state().next_bank() > opened || is_round) {
            continue;
        }
        let (bits, banks) = (stream.bits_a_key(), stream.banks());
        let expected = stream.harness.estimated_fpr();
        println!(
            "{keys} keys, {banks} banks, {} KiB, {bits:.1} bits, {expected:.2e}",
            stream.bytes() >> 10
        );
        if bits > most_bits(keys) || expected > 1.3 * FPR {
            wrong.push((keys, bits, expected));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    let measured = stream.harness.measured_fpr(100_000);
    assert!(measured < 1.6 * FPR, "{measured}");
    assert_eq!(stream.harness.metric("closings"), 0);
    stream.assert_has_last(count);
}

#[test]
fn a_burst_keeps_every_planned_rate_nearly() {
    for fpr in [0.05, 0.01, 1e-3, 1e-4, 1e-6] {
        let mut stream = Stream::new(&default_window().with("fpr", fpr));
        let count = 1_000_000;
        stream.burst(count, SECOND / 2);
        let expected = stream.harness.estimated_fpr();
        println!(
            "{fpr}: {:.1} bits, {} banks, {expected:.2e}",
            stream.bits_a_key(),
            stream.banks()
        );
        assert!(stream.banks() > 8 && expected < 1.4 * fpr, "{fpr}: {expected}");
        assert!(!stream.harness.is_saturated(), "{fpr}");
        assert_eq!(stream.harness.metric("closings"), 0, "{fpr}");
        stream.assert_has_last(count);
    }
}

#[test]
fn a_window_after_a_burst_the_planned_size_is_back_and_the_next_burst_is_taken_as_well() {
    let mut stream = Stream::new(&default_window());
    let planned = stream.bytes();
    for (round, count) in [300_000, 40_000, 9000, 300_000].into_iter().enumerate() {
        let before = stream.keys;
        stream.burst(count, SECOND / 2);
        stream.assert_has_last(count);
        let bits = stream.bytes() as f64 * 8.0 / count as f64;
        println!("round {round}: {bits:.1} bits, {} banks", stream.banks());
        let most = if count < 100_000 { 125.0 } else { 46.5 };
        assert!(bits < most, "{bits} in round {round}");
        // Few keys come in the window after it.
        for _ in 0..40 {
            stream.burst(20, WINDOW / 40);
        }
        stream.burst(150, WINDOW * 3 / 14);
        assert!(stream.bytes() <= 2 * planned, "{} bytes", stream.bytes());
        assert!(!stream.harness.contains_at(mix(before), stream.now));
    }
    assert_eq!(stream.harness.metric("closings"), 0);
}

#[test]
fn filters_without_the_parameter_grow_as_they_did() {
    let new = build(&default_window()).expect("a kind").parameters();
    assert_eq!(new.get(GROWTH), Some("keys"));
    let mut old = Parameters::new();
    new.iter().filter(|(name, _)| *name != GROWTH).for_each(|(name, value)| old.set(name, value));
    let kind = build(&old).expect("a kind");
    assert_eq!(kind.parameters().get(GROWTH), None);
    assert!(kind.state_words() < build(&new).expect("a kind").state_words());
    let mut stream = Stream::new(&old);
    stream.burst(30_000, SECOND / 10);
    let banks: Vec<_> = stream.state().banks().map(|bank| bank.geometry).collect();
    assert_eq!(banks.len(), 2);
    assert!(banks.iter().all(|geometry| geometry.words_per_block % 8 == 0));
    stream.assert_has_last(30_000);
}
