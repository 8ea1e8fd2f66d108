//! New segments: no record is written to a segment before it exists, for any number of concurrent
//! creators.

use ebbtide::models::primitives::{AtomicU64, Ordering, Watermark};
use ebbtide::models::single_flight::{self, Taken};
use ebbtide::models::slot::Tail;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;

/// The slots that are written.
const SLOTS: usize = 2;

/// The shared state: memory, and files.
struct Shared {
    tail: AtomicU64,
    allocated: AtomicU64,
    growing: AtomicU64,
    /// Whether a segment has its name. The kernel lets one creator succeed.
    named: [AtomicU64; SLOTS],
    /// Whether a slot has its space, and its segment is durable: Relaxed, because only the raised
    /// end publishes it to others.
    made: [AtomicU64; SLOTS],
    /// Pieces of one slot each in a segment.
    pieces: usize,
}

/// How the end is raised and read.
#[derive(Clone, Copy)]
struct Protocol {
    raise: fn(&AtomicU64, u64),
    read: fn(&AtomicU64) -> u64,
    raised_first: bool,
}

const PROPER: Protocol = Protocol {
    raise: |end, to| Watermark::new(end).raise(to),
    read: |end| Watermark::new(end).read(),
    raised_first: false,
};

impl Shared {
    fn new(pieces: usize) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let (named, made) = ([zero(), zero()], [zero(), zero()]);
        Arc::new(Self { tail: zero(), allocated: zero(), growing: zero(), named, made, pieces })
    }

    fn make(&self, first: u64) {
        let segment = first as usize / self.pieces;
        if !(first as usize).is_multiple_of(self.pieces) {
            // The kernel extends a file that has its name.
            let named = self.named[segment].load(Ordering::Relaxed);
            assert_eq!(named, 1, "a piece of a segment that does not exist");
            self.made[first as usize].store(1, Ordering::Relaxed);
            return;
        }
        // A creator that was slower makes the other one's segment durable.
        let _ = self.named[segment].compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        self.made[first as usize].store(1, Ordering::Relaxed);
    }

    fn allocate(&self, first: u64, protocol: Protocol) {
        if protocol.raised_first {
            (protocol.raise)(&self.allocated, first + 1); // the bug
        }
        self.make(first);
        (protocol.raise)(&self.allocated, first + 1);
    }

    /// As `LogSpace::extend`: returns the mapped end, beyond `end`.
    fn extend(&self, end: u64, protocol: Protocol) -> u64 {
        loop {
            let allocated = (protocol.read)(&self.allocated);
            if allocated > end {
                return allocated;
            }
            let leader = match single_flight::take(&self.growing, Duration::ZERO) {
                Taken::Again => continue,
                Taken::Ours(leader) | Taken::Overtook(leader) => leader,
            };
            if (protocol.read)(&self.allocated) <= end {
                self.allocate(allocated, protocol);
            }
            leader.end();
        }
    }

    /// An insert of a handle, with its own mapped end.
    fn insert(&self, protocol: Protocol) -> u64 {
        let mut mapped = 0;
        loop {
            if let Some(lsn) = Tail::new(&self.tail).reserve(1, mapped) {
                let made = self.made[lsn as usize].load(Ordering::Relaxed);
                assert_eq!(made, 1, "a segment that does not exist");
                return lsn;
            }
            mapped = self.extend(mapped, protocol);
        }
    }
}

/// Two handles insert into segments of this many pieces; before them a third one may have been
/// stopped as the leader, when the file had its name and the end was not raised.
fn growth(pieces: usize, stopped: bool, protocol: Protocol) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Shared::new(pieces);
        if stopped {
            let shared = Arc::clone(&shared);
            let stopped = thread::spawn(move || {
                let taken = single_flight::take(&shared.growing, Duration::ZERO);
                // It has named the segment, and makes no further progress.
                let _ =
                    shared.named[0].compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
                drop(taken);
            });
            stopped.join().expect("no panic");
        }
        let handles = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.insert(protocol))
        });
        let mut places = handles.map(|handle| handle.join().expect("no panic"));
        places.sort_unstable();
        assert_eq!(places, [0, 1]);
        assert!(shared.allocated.load(Ordering::Relaxed) == 2);
    });
}

#[test]
fn a_reserved_slot_lies_in_an_existing_segment_for_any_creator() {
    growth(1, false, PROPER);
}

#[test]
fn a_reserved_slot_lies_in_an_existing_piece_for_any_allocator() {
    growth(2, false, PROPER);
}

#[test]
fn an_allocator_stopped_before_it_raised_the_end_blocks_no_other_handle() {
    growth(2, true, PROPER);
}

#[test]
#[should_panic = "that does not exist"]
fn a_planted_end_raised_before_the_piece_exists_is_found() {
    growth(2, false, Protocol { raised_first: true, ..PROPER });
}

#[test]
fn a_stopped_creator_blocks_no_other_handle() {
    growth(1, true, PROPER);
}

#[test]
#[should_panic = "a segment that does not exist"]
fn a_planted_end_raised_before_the_segment_is_there_is_found() {
    growth(1, false, Protocol { raised_first: true, ..PROPER });
}

#[test]
#[should_panic = "a segment that does not exist"]
fn a_planted_allocated_end_raised_without_release_is_found() {
    fn raise(end: &AtomicU64, to: u64) {
        end.fetch_max(to, Ordering::Relaxed); // the bug
    }
    growth(1, false, Protocol { raise, ..PROPER });
}

#[test]
#[should_panic = "a segment that does not exist"]
fn a_planted_allocated_end_read_without_acquire_is_found() {
    // The bug: no Acquire.
    growth(1, false, Protocol { read: |end| end.load(Ordering::Relaxed), ..PROPER });
}
