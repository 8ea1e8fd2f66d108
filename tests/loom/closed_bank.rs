//! A bank that is closed while a checkpoint copies it: its space is freed, the copy is not used.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::seqlock;
use loom::sync::Arc;
use loom::thread;

/// The version of the state block, odd without the bank, and a cell of the bank.
struct Bank {
    version: AtomicU64,
    cell: AtomicU64,
}

/// As `Image::lists` after a copy: whether what was copied counts.
fn copy(bank: &Bank) -> Option<u64> {
    let copied = bank.cell.load(Ordering::Relaxed);
    (seqlock::current_after_reads(&bank.version) & 1 == 0).then_some(copied)
}

fn model(copy: fn(&Bank) -> Option<u64>) {
    loom::model(move || {
        let bank = Arc::new(Bank { version: AtomicU64::new(0), cell: AtomicU64::new(7) });
        let closing = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || {
                bank.version.store(1, Ordering::Release);
                // The call that frees the space: whoever meets the zero sees what came before it.
                bank.cell.store(0, Ordering::Release);
            })
        };
        let copying = thread::spawn(move || {
            if let Some(copied) = copy(&bank) {
                assert_eq!(copied, 7, "the copy of a bank that counts is whole");
            }
        });
        closing.join().expect("no panic");
        copying.join().expect("no panic");
    });
}

#[test]
fn a_copy_that_met_freed_space_does_not_count() {
    model(copy);
}

#[test]
#[should_panic = "is whole"]
fn a_planted_look_at_the_list_before_the_copy_is_found() {
    model(|bank| {
        let listed = bank.version.load(Ordering::Acquire) & 1 == 0;
        listed.then(|| bank.cell.load(Ordering::Relaxed)) // the bug: it may be closed in between
    });
}

#[test]
#[should_panic = "is whole"]
fn a_planted_copy_without_a_fence_is_found() {
    model(|bank| {
        let copied = bank.cell.load(Ordering::Relaxed);
        (bank.version.load(Ordering::Relaxed) & 1 == 0).then_some(copied) // the bug: no fence
    });
}
