//! The kind passes the suite that ebbtide's own kinds pass, and keeps its window.

use ebbtide_core::block::Layout;
use ebbtide_core::conformance::{
    Harness, Model, Step, answers_as_the_model, builds_again, hash_of, keeps_the_contract, rejects,
};
use ebbtide_core::hash::mix;
use ebbtide_core::kind::{Kind, Micros, Within};
use ebbtide_core::machine::{Machine, MachineOptions, Restore};
use ebbtide_core::time::OperationTime;
use ebbtide_core::{Error, Parameters};
use outside_kind::{NAME, build};
use std::collections::VecDeque;
use std::sync::Arc;

fn ring(window: u64, slots: u64, fpr: f64) -> Arc<dyn Kind> {
    let parameters = Parameters::new().with("window-items", window).with("slots", slots);
    build(&parameters.with("fpr", fpr)).expect("a sound filter")
}

/// The window itself: generations of keys, with no false positives.
struct Naive {
    generations: VecDeque<Vec<u64>>,
    length: usize,
    slots: usize,
}

impl Model for Naive {
    fn insert(&mut self, hash: u64, _: Micros) {
        if self.generations.back().is_none_or(|open| open.len() == self.length) {
            self.generations.push_back(Vec::new());
        }
        if self.generations.len() > self.slots {
            self.generations.pop_front();
        }
        self.generations.back_mut().expect("an open one").push(hash);
    }

    fn contains(&self, hash: u64, _: Micros) -> bool {
        self.generations.iter().flatten().any(|&key| key == hash)
    }
}

#[test]
fn it_keeps_the_contract_of_all_kinds() {
    for slots in [2, 3, 4, 9] {
        let kind = ring(300, slots, 0.01);
        keeps_the_contract(&kind, Layout { stripes: 4, block_words: 64 }, 1000);
    }
}

#[test]
fn one_block_answers_as_a_ring_of_sets() {
    for (slots, seed) in (2..8).zip(100..) {
        let kind = ring(60, slots, 1e-9);
        let mut harness = Harness::new(kind, Layout { stripes: 1, block_words: 2048 });
        let (slots, length) = (slots as usize, 60_usize.div_ceil(slots as usize - 1));
        let mut model = Naive { generations: VecDeque::new(), length, slots };
        let steps: Vec<_> = (0..2000_u64)
            .map(|at| match mix(at ^ seed << 32) {
                draw if draw % 2 == 0 => Step::Insert((draw >> 8) as u8, 1),
                draw => Step::Ask((draw >> 8) as u8, 0, Within::Items(1)),
            })
            .collect();
        answers_as_the_model(&mut harness, &mut model, &steps);
    }
}

#[test]
fn the_measured_rate_is_the_wanted_one() {
    for (slots, fpr) in [(2, 0.01), (4, 0.01), (8, 0.001)] {
        let layout = Layout { stripes: 2, block_words: 2048 };
        let kind = ring(50_000, slots, fpr);
        let planned = kind.planned_fpr(layout);
        let mut harness = Harness::new(kind, layout);
        for key in 0..150_000 {
            harness.insert(hash_of(key), 0);
        }
        assert!((140_000..150_000).all(|key| harness.contains(hash_of(key))));
        let measured = harness.measured_fpr(200_000);
        assert!(measured < 1.2 * fpr && planned <= fpr, "{measured}, planned {planned}");
    }
}

#[test]
fn parameters_are_completed_and_checked() {
    let sound = Parameters::new().with("window-items", 1000).with("fpr", 0.01);
    builds_again(build, &sound);
    builds_again(build, &sound.clone().with("slots", 7).with("k", 3));
    rejects(build, &Parameters::new(), "window-items");
    rejects(build, &sound.clone().with("slots", 1), "slots");
    rejects(build, &sound.clone().with("fpr", 2), "fpr");
    rejects(build, &sound.with("capacity", 2), "kind");
}

#[test]
fn a_filter_of_this_kind_is_saved_and_restored_by_a_host_that_knows_it() -> Result<(), Error> {
    let options = MachineOptions::new();
    let mut saved = Machine::create(ring(1000, 4, 0.01), &options, 1, 2)?;
    let time = OperationTime { time: 1, stream: true };
    let hash = saved.hash(b"a key");
    saved.insert(hash, time, &mut |_| {})?;
    let mut pieces = saved.pieces();
    let first = pieces.next().expect("a first piece");
    assert!(Restore::begin(&first).is_err(), "ebbtide does not have this kind");
    let mut restore = Restore::begin_with(&first, &|name, parameters| match name {
        NAME => build(parameters),
        other => Err(Error::parameter("kind", NAME, other)),
    })?;
    pieces.try_for_each(|piece| restore.add(&piece))?;
    let restored = restore.finish()?;
    assert!(restored.contains(hash, 1) && restored.digest() == saved.digest());
    Ok(())
}
