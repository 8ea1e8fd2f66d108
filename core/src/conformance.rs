//! The behaviour that every kind must show, specified once.
//!
//! The claims take a kind and, where they compare answers, a [`Model`]: the algorithm written
//! naively from its paper over the same hash positions. They drive the kind in a
//! [`Machine`](crate::machine::Machine), as every host does; a [`Harness`] around it also shows and
//! disturbs what hosts do not see. Models and kind-specific claims live in the tests of each kind's
//! folder. [`keeps_the_contract`] runs all claims that need no model.

mod harness;

pub use harness::Harness;

use crate::block::Layout;
use crate::error::{Error, Result};
use crate::hash::mix;
use crate::kind::{Age, Estimate, Kind, Micros, Parameters, Within};
use crate::kinds::registry;
use crate::machine::{self, Machine, Restore};
use crate::time::OperationTime;
use std::sync::Arc;

/// A kind's algorithm, written naively from its paper for one block, over the same hash positions.
pub trait Model {
    /// Inserts a key at a time.
    fn insert(&mut self, hash: u64, time: Micros);
    /// Inserts a key of a weight.
    fn insert_weighing(&mut self, hash: u64, time: Micros, weight: u32) {
        assert_eq!(weight, 1, "a model of a kind that does not weigh");
        self.insert(hash, time);
    }
    /// Removes a key, if it is contained that often.
    fn remove(&mut self, hash: u64, weight: u32) -> bool {
        panic!("a model of a kind that does not remove was asked to: {hash} {weight}");
    }
    /// Returns how often a key was inserted.
    fn estimate(&self, hash: u64, now: Micros) -> Option<Estimate> {
        let _ = (hash, now);
        None
    }
    /// Returns whether the key is in the window.
    fn contains(&self, hash: u64, now: Micros) -> bool;
    /// Returns the age that the kind guarantees to report.
    fn age(&self, hash: u64, now: Micros) -> Option<Age> {
        let _ = (hash, now);
        None
    }
    /// Returns whether the key was seen within a part of the window.
    fn contains_within(&self, hash: u64, now: Micros, within: Within) -> bool {
        let _ = within;
        self.contains(hash, now)
    }
}

/// One step of a test sequence: keys are small numbers, so that they repeat often.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Insert a key, this number of microseconds after the previous step.
    Insert(u8, u64),
    /// Insert a key of a weight, this number of microseconds after the previous step.
    InsertWeighing(u8, u64, u32),
    /// Remove a key as many times as its weight, if it is contained that often.
    Remove(u8, u32),
    /// Query everything about a key, this number of microseconds after the latest insert.
    Ask(u8, u64, Within),
}

/// Returns the hash of a small test key.
pub fn hash_of(key: u64) -> u64 {
    mix(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7e57)
}

/// Claim: over one block the kind answers every query at every time as its model does.
pub fn answers_as_the_model(harness: &mut Harness, model: &mut impl Model, steps: &[Step]) {
    let mut time = 0;
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Insert(key, later) => {
                time += later;
                harness.insert(hash_of(key.into()), time);
                model.insert(hash_of(key.into()), time);
            }
            Step::InsertWeighing(key, later, weight) => {
                time += later;
                harness.insert_weighing(hash_of(key.into()), time, weight);
                model.insert_weighing(hash_of(key.into()), time, weight);
            }
            Step::Remove(key, weight) => {
                let hash = hash_of(key.into());
                let (told, expected) = (harness.remove(hash, weight), model.remove(hash, weight));
                assert_eq!(told, expected, "step {index}: {step:?}");
            }
            Step::Ask(key, later, within) => {
                let (hash, now) = (hash_of(key.into()), time + later);
                let told = (
                    harness.contains_at(hash, now),
                    harness.age_at(hash, now),
                    harness.contains_within_at(hash, now, within),
                    harness.estimate_at(hash, now),
                );
                let expected = (
                    model.contains(hash, now),
                    model.age(hash, now),
                    model.contains_within(hash, now, within),
                    model.estimate(hash, now),
                );
                assert_eq!(told, expected, "step {index}: {step:?} at {now}");
            }
        }
    }
}

/// Claim: blocks that catch up late and blocks that catch up at once end in the same state, and
/// settling changes no answer.
pub fn lazy_is_eager(kind: &Arc<dyn Kind>, layout: Layout, keys: u64, pause: Micros) {
    let mut lazy = Harness::new(kind.clone(), layout);
    let mut eager = Harness::new(kind.clone(), layout);
    for key in 0..keys {
        lazy.insert(hash_of(key), key * pause);
        eager.insert(hash_of(key), key * pause);
        if mix(key).is_multiple_of(16) {
            eager.settle_in_place();
        }
        let asked = hash_of(key - mix(key) % (key + 1));
        assert_eq!(lazy.contains(asked), eager.contains(asked), "after key {key}");
        assert_eq!(lazy.age(asked), eager.age(asked), "after key {key}");
        assert_eq!(lazy.estimate(asked), eager.estimate(asked), "after key {key}");
        let (now, told) = (key * pause, |harness: &Harness, now| harness.evidence_at(asked, now));
        assert_eq!(told(&lazy, now), told(&eager, now), "after key {key}");
        let certain = lazy.posterior_at(asked, now);
        assert!(lazy.contains(asked) || certain.is_none_or(|p| p == 0.0), "key {key}: {certain:?}");
    }
    assert!(lazy.settled() == eager.settled(), "after {keys} keys");
    assert_eq!(lazy.totals(), eager.totals());
}

/// Claim: applying events again, the latest and earlier ones, changes nothing.
pub fn events_apply_once(kind: &Arc<dyn Kind>, layout: Layout, keys: u64, pause: Micros) {
    let mut once = Harness::new(kind.clone(), layout);
    let mut again = Harness::new(kind.clone(), layout);
    for key in 0..keys {
        once.insert(hash_of(key), key * pause);
        again.insert(hash_of(key), key * pause);
        let latest = once.events().len();
        for index in (latest.saturating_sub(2)..latest).rev() {
            again.apply(once.events()[index]);
        }
    }
    assert!(once.settled() == again.settled());
}

/// Claim: blocks of any content give an answer, and no panic.
pub fn survives_torn_words(kind: &Arc<dyn Kind>, layout: Layout) {
    let mut harness = Harness::new(kind.clone(), layout);
    for seed in 0..200 {
        harness.scramble(seed);
        for key in 0..20 {
            let hash = hash_of(seed * 100 + key);
            let now = mix(key) >> (key % 64);
            let _ = harness.contains_at(hash, now);
            let _ = harness.age_at(hash, now);
            let _ = harness.estimate_at(hash, now);
            let posterior = harness.posterior_at(hash, now).unwrap_or(0.0);
            assert!((0.0..=1.0).contains(&posterior), "{posterior}");
            if kind.removal().is_some() {
                let _ = harness.remove(hash, 1);
            }
            let _ = harness.contains_within_at(hash, now, Within::Items(mix(seed) >> (key % 64)));
            let _ = harness.contains_within_at(hash, now, Within::micros(mix(seed) >> (key % 64)));
            harness.insert_once(hash, now, 1);
        }
        let _ = harness.settled();
        assert!(!harness.estimated_fpr().is_nan());
        let width = mix(seed) >> (seed % 64);
        for within in [None, Some(Within::Items(width)), Some(Within::micros(width))] {
            if let Ok(found) = harness.distinct_at(mix(!seed) >> (seed % 64), within) {
                assert!(found.keys >= 0.0 && found.standard_error >= 0.0, "{found:?}");
            }
        }
    }
}

/// Claim: the records of a filter rebuild it in a second one, and its pieces in a third, which then
/// decides as the first. Questions write nothing, not even where no key has been.
pub fn records_and_pieces_rebuild(kind: &Arc<dyn Kind>, layout: Layout, keys: u64, pause: Micros) {
    let mut first = Harness::machine_of(kind.clone(), layout);
    let mut second = Harness::machine_of(kind.clone(), layout);
    let mut third = None;
    for key in 0..keys {
        if key == keys / 2 {
            third = Some(restored(kind, &first));
        }
        let now = (key + 1) * pause;
        let late = if mix(key).is_multiple_of(8) { mix(!key) % (20 * pause + 1) } else { 0 };
        let time = OperationTime { time: now.saturating_sub(late), stream: true };
        let (hash, mut records) = (hash_of(mix(key) % (keys / 2 + 1)), Vec::new());
        let of_first = first.insert(hash, time, &mut |record| records.push(record));
        for record in &records {
            second.apply(record).expect("the next record");
        }
        if let Some(third) = &mut third {
            let mut again = Vec::new();
            let of_third = third.insert(hash, time, &mut |record| again.push(record));
            assert_eq!((of_third, again), (of_first, records), "key {key} in a restored filter");
        }
        for asked in [hash, hash_of(!key)] {
            assert_eq!(first.contains(asked, now), second.contains(asked, now), "after key {key}");
        }
    }
    let third = third.expect("it was restored halfway");
    for twin in [&second, &third] {
        assert_eq!((twin.position(), twin.digest()), (first.position(), first.digest()));
    }
    assert!(third.pieces().eq(first.pieces()), "a restored filter is the same bit by bit");
    assert!(machine::absent_blocks_are_zero(), "a question has changed a block");
}

fn restored(kind: &Arc<dyn Kind>, saved: &Machine) -> Machine {
    let mut pieces = saved.pieces();
    let first = pieces.next().expect("a first piece");
    let mut restore = Restore::begin_with(&first, &|name, parameters| {
        assert_eq!((name, parameters), (kind.name(), &kind.parameters()));
        Ok(kind.clone())
    })
    .expect("a filter");
    pieces.for_each(|piece| restore.add(&piece).expect("the next piece"));
    restore.finish().expect("all pieces")
}

/// All claims that need no model, for a small filter. `pause` is the time between two keys, in
/// microseconds: some tens of keys should come in a step of the kind, if it has steps by time.
pub fn keeps_the_contract(kind: &Arc<dyn Kind>, layout: Layout, pause: Micros) {
    lazy_is_eager(kind, layout, 2000, pause);
    events_apply_once(kind, layout, 500, pause);
    survives_torn_words(kind, layout);
    records_and_pieces_rebuild(kind, layout, 2000, pause);
    inserts_use_cells(kind, layout);
}

/// Claim: inserts use more of the cells than an empty filter does, and never more than there are.
pub fn inserts_use_cells(kind: &Arc<dyn Kind>, layout: Layout) {
    let mut harness = Harness::new(kind.clone(), layout);
    let empty = harness.sample().fill();
    (0..100).for_each(|key| {
        harness.insert(hash_of(key), 0);
    });
    let (fill, name) = (harness.sample().fill(), kind.name());
    assert!(empty < fill && fill <= 1.0, "{name}: {empty} before, {fill} after 100 inserts");
}

/// Claim: the completed parameters build the same kind again.
pub fn builds_again(build: impl Fn(&Parameters) -> Result<Arc<dyn Kind>>, asked: &Parameters) {
    let kind = build(asked).unwrap_or_else(|error| panic!("{asked:?}: {error}"));
    let completed = kind.parameters();
    let again = build(&completed).unwrap_or_else(|error| panic!("{asked:?}: {error}"));
    assert_eq!(again.parameters(), completed, "from {asked:?}");
    assert_eq!(format!("{again:?}"), format!("{kind:?}"), "from {asked:?}");
    assert_eq!(again.first_words(), kind.first_words());
}

/// Claim: as [`builds_again`], for a kind of the registry.
pub fn parameters_round_trip(name: &str, asked: &Parameters) {
    builds_again(|parameters| registry::build(name, parameters), asked);
}

/// Claim: these parameters are rejected with an error about the parameter of this name.
pub fn rejects(
    build: impl Fn(&Parameters) -> Result<Arc<dyn Kind>>,
    asked: &Parameters,
    about: &str,
) {
    match build(asked) {
        Err(Error::Parameter { name, .. }) => assert_eq!(name, about, "from {asked:?}"),
        other => panic!("{asked:?} gave {other:?}"),
    }
}

/// Claim: as [`rejects`], for a kind of the registry.
pub fn refuses(name: &str, asked: &Parameters, about: &str) {
    rejects(|parameters| registry::build(name, parameters), asked, about);
}

/// The calibration of probabilities: the mean distance, over 20 bins, between the predicted
/// probability and the observed frequency.
#[derive(Default)]
pub struct Calibration([(f64, f64, f64); 20]);

impl Calibration {
    /// Adds the predicted probability of an event, and whether it occurred.
    pub fn add(&mut self, told: f64, so: bool) {
        assert!((0.0..=1.0).contains(&told), "{told}");
        let (count, sum, times) = &mut self.0[((told * 20.0) as usize).min(19)];
        (*count, *sum, *times) = (*count + 1.0, *sum + told, *times + f64::from(u8::from(so)));
    }

    /// Returns the mean distance, each bin weighted by its number of predictions.
    pub fn error(&self) -> f64 {
        let count: f64 = self.0.iter().map(|bin| bin.0).sum();
        self.0.iter().map(|(_, sum, times)| (sum - times).abs()).sum::<f64>() / count.max(1.0)
    }
}
