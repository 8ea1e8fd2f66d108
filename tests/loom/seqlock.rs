//! Block versions: a reader that finds the version unchanged has read cells of one moment.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::seqlock;
use loom::sync::Arc;
use loom::sync::atomic::fence;
use loom::thread;

/// A block of two cells that are equal whenever the version is even.
struct Block {
    version: AtomicU64,
    cells: [AtomicU64; 2],
}

/// The protocol: how a writer begins and ends, how a reader begins and validates.
#[derive(Clone, Copy)]
struct Protocol {
    begin: fn(&AtomicU64),
    end: fn(&AtomicU64),
    read: fn(&AtomicU64) -> Option<u64>,
    unchanged: fn(&AtomicU64, u64) -> bool,
}

const PROPER: Protocol = Protocol {
    begin: seqlock::begin,
    end: seqlock::end,
    read: seqlock::read,
    unchanged: seqlock::unchanged,
};

fn model(protocol: Protocol) {
    loom::model(move || {
        let block = Arc::new(Block {
            version: AtomicU64::new(0),
            cells: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let writer = {
            let block = Arc::clone(&block);
            thread::spawn(move || {
                for value in 1..=2 {
                    (protocol.begin)(&block.version);
                    for cell in &block.cells {
                        cell.store(value, Ordering::Relaxed);
                    }
                    (protocol.end)(&block.version);
                }
            })
        };
        let reader = {
            let block = Arc::clone(&block);
            thread::spawn(move || {
                let Some(before) = (protocol.read)(&block.version) else {
                    return;
                };
                // Read the cell written last first: the order that a missing fence would break.
                let second = block.cells[1].load(Ordering::Relaxed);
                let first = block.cells[0].load(Ordering::Relaxed);
                if (protocol.unchanged)(&block.version, before) {
                    assert_eq!(first, second, "torn");
                    assert_eq!(first * 2, before, "of another moment");
                }
            })
        };
        writer.join().expect("no panic");
        reader.join().expect("no panic");
    });
}

#[test]
fn a_block_that_did_not_change_was_read_whole() {
    model(PROPER);
}

#[test]
#[should_panic = "assertion `left == right` failed"]
fn a_planted_begin_without_a_fence_is_found() {
    fn begin(version: &AtomicU64) {
        let seen = version.load(Ordering::Relaxed);
        version.store(seen | 1, Ordering::Relaxed); // the bug: no fence after it
    }
    model(Protocol { begin, ..PROPER });
}

#[test]
#[should_panic = "assertion `left == right` failed"]
fn a_planted_end_without_release_is_found() {
    fn end(version: &AtomicU64) {
        let seen = version.load(Ordering::Relaxed);
        version.store((seen | 1) + 1, Ordering::Relaxed); // the bug
    }
    model(Protocol { end, ..PROPER });
}

#[test]
#[should_panic = "assertion `left == right` failed"]
fn a_planted_read_without_acquire_is_found() {
    fn read(version: &AtomicU64) -> Option<u64> {
        let seen = version.load(Ordering::Relaxed); // the bug
        (seen & 1 == 0).then_some(seen)
    }
    model(Protocol { read, ..PROPER });
}

#[test]
#[should_panic = "assertion `left == right` failed"]
fn a_planted_check_without_a_fence_is_found() {
    fn unchanged(version: &AtomicU64, before: u64) -> bool {
        version.load(Ordering::Relaxed) == before // the bug: no fence before it
    }
    model(Protocol { unchanged, ..PROPER });
}

#[test]
#[should_panic = "assertion `left == right` failed"]
fn a_planted_version_that_is_not_checked_is_found() {
    fn unchanged(_: &AtomicU64, _: u64) -> bool {
        fence(Ordering::Acquire);
        true // the bug
    }
    model(Protocol { unchanged, ..PROPER });
}
