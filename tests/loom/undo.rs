//! The undo area: a successor that finds a changed word of a dead owner's block also finds its
//! former value.
//!
//! The owner dies after any of its stores. In the model it merely stops, and the successor sees its
//! stores in any order that the fences allow.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::undo::{Begun, Undo};
use loom::sync::Arc;
use loom::sync::atomic::fence;
use loom::thread;

/// The count, the block and the LSN of the notes, and space for the notes of the model: each
/// further word multiplies the interleavings.
const AREA_WORDS: usize = 3 + 2 * 2;

/// A block of two words and its stripe's undo area.
struct Shared {
    block: [AtomicU64; 2],
    area: [AtomicU64; AREA_WORDS],
}

/// The way in which a word is changed.
type Change = fn(&Undo<'_>, &[AtomicU64; 2], usize, u64);

fn proper(undo: &Undo<'_>, block: &[AtomicU64; 2], at: usize, value: u64) {
    undo.note(&block[..1], &block[1..], at, block[at].load(Ordering::Relaxed));
    block[at].store(value, Ordering::Relaxed);
}

/// The owner of a stripe changes a word twice; the successor finds some of the stores and undoes
/// them.
fn death(change: Change) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let zero = || AtomicU64::new(0);
        let area = [(); AREA_WORDS].map(|()| zero());
        let shared = Arc::new(Shared { block: [zero(), zero()], area });
        let owner = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let undo = Undo::new(&shared.area);
                undo.begin(7, 3);
                for (at, value) in [(1, 1), (1, 2)] {
                    change(&undo, &shared.block, at, value);
                }
            })
        };
        let successor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // A copy of the words that the successor finds, because the owner of the model
                // continues.
                let found: Vec<_> =
                    shared.block.iter().map(|word| word.load(Ordering::Relaxed)).collect();
                // Acquire fence: pairs with the Release fence in `note`. It stands for the death.
                fence(Ordering::Acquire);
                let area: Vec<_> = shared
                    .area
                    .iter()
                    .map(|word| AtomicU64::new(word.load(Ordering::Acquire)))
                    .collect();
                let undo = Undo::new(&area);
                if found != [0, 0] {
                    assert_eq!(undo.begun(), Some(Begun { block: 7, lsn: 3 }), "not undone");
                }
                let block: Vec<_> = found.into_iter().map(AtomicU64::new).collect();
                undo.take_back(&block[..1], &block[1..]);
                let values = block.iter().map(|word| word.load(Ordering::Relaxed));
                assert_eq!(values.collect::<Vec<_>>(), [0, 0], "not undone");
            })
        };
        owner.join().expect("no panic");
        successor.join().expect("no panic");
    });
}

/// The owner changes both words, then one of them, and keeps each part; the successor finds some of
/// the stores, and undoes a part that was not kept.
fn death_between_parts(keep: fn(&Undo<'_>, &[AtomicU64; AREA_WORDS])) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let zero = || AtomicU64::new(0);
        let area = [(); AREA_WORDS].map(|()| zero());
        let shared = Arc::new(Shared { block: [zero(), zero()], area });
        let owner = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let undo = Undo::new(&shared.area);
                undo.begin(7, 3);
                for (part, words) in [(1, 2), (2, 1)] {
                    let words = &shared.block[..words];
                    undo.note_cells(0, 0, words);
                    words.iter().for_each(|word| word.store(part, Ordering::Relaxed));
                    keep(&undo, &shared.area);
                }
            })
        };
        let block = || shared.block.each_ref().map(|word| word.load(Ordering::Relaxed));
        // All but the block's number and its LSN, which stay.
        let area = || [0, 3, 4, 5, 6].map(|at| shared.area[at].load(Ordering::Relaxed));
        // The owner of the model continues, so the successor looks twice, and only at what stayed.
        // Acquire fences: pair with the Release fences of the notes. They stand for the death.
        let found = (block(), fence(Ordering::Acquire), area());
        fence(Ordering::Acquire);
        let stayed = (area(), fence(Ordering::Acquire), block());
        if (found.0, found.2) == (stayed.2, stayed.0) {
            let block = found.0.map(AtomicU64::new);
            let [count, notes @ ..] = found.2;
            let area: Vec<_> = [count, 7, 3].into_iter().chain(notes).map(AtomicU64::new).collect();
            let undo = Undo::new(&area);
            undo.take_back(&[], &block);
            let values = block.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>();
            assert!(
                [[0, 0], [1, 1], [2, 1]].iter().any(|whole| *whole == values[..]),
                "half a part"
            );
        }
        owner.join().expect("no panic");
    });
}

#[test]
fn a_part_that_was_kept_is_whole() {
    death_between_parts(|undo, _| undo.keep());
}

#[test]
#[should_panic = "half a part"]
fn a_planted_end_of_the_notes_without_a_fence_is_found() {
    death_between_parts(|_, area| area[0].store(0, Ordering::Relaxed)); // the bug
}

#[test]
fn every_change_can_be_undone() {
    death(proper);
}

#[test]
#[should_panic = "not undone"]
fn a_planted_change_before_its_note_is_found() {
    death(|undo, block, at, value| {
        let old = block[at].load(Ordering::Relaxed);
        block[at].store(value, Ordering::Relaxed); // the bug
        undo.note(&block[..1], &block[1..], at, old);
    });
}

#[test]
#[should_panic = "not undone"]
fn a_planted_note_of_the_new_value_is_found() {
    death(|undo, block, at, value| {
        undo.note(&block[..1], &block[1..], at, value); // the bug
        block[at].store(value, Ordering::Relaxed);
    });
}
