//! A record's slot in the log: reserved once, written once, complete before it counts as durable.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::slot::{Tail, last_word, publish, void};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const VOID: u64 = 7;

type Slot = [AtomicU64; 4];

fn slot() -> Slot {
    [0; 4].map(AtomicU64::new)
}

fn record(writer: u64) -> [u64; 4] {
    [writer, writer + 1, writer + 2, writer + 3]
}

/// Returns whether the slot contains a whole record of some writer.
fn is_whole(slot: &Slot, last: u64) -> bool {
    let words = [0, 1, 2].map(|at: usize| slot[at].load(Ordering::Relaxed));
    words == [last - 3, last - 2, last - 1]
}

type Reserve = fn(&AtomicU64, u64) -> Option<u64>;
type Publish = fn(&[AtomicU64], [u64; 4]) -> bool;

fn reserve(tail: &AtomicU64, limit: u64) -> Option<u64> {
    Tail::new(tail).reserve(1, limit)
}

/// Three writers and space for two: no slot is reserved twice, or beyond the end.
fn reservation(reserve: Reserve) {
    loom::model(move || {
        let tail = Arc::new(AtomicU64::new(1));
        let writers = [(); 3].map(|()| {
            let tail = Arc::clone(&tail);
            thread::spawn(move || reserve(&tail, 3))
        });
        let mut places = writers.map(|writer| writer.join().expect("no panic"));
        places.sort_unstable();
        assert_eq!(places, [None, Some(1), Some(2)]);
    });
}

#[test]
fn every_slot_is_reserved_once_and_below_the_end() {
    reservation(reserve);
}

#[test]
#[should_panic = "assertion `left == right` failed"]
fn a_planted_reservation_in_two_steps_is_found() {
    fn two_steps(tail: &AtomicU64, limit: u64) -> Option<u64> {
        let lsn = tail.load(Ordering::Acquire);
        if lsn >= limit {
            return None;
        }
        tail.store(lsn + 1, Ordering::Release); // the bug
        Some(lsn)
    }
    reservation(two_steps);
}

/// A segment that a handle maps while another thread waits to write to it.
struct Mapped {
    tail: AtomicU64,
    end: AtomicU64,
    segment: UnsafeCell<bool>,
}

#[expect(unsafe_code, reason = "the segment is shared under the protocol that is being modelled")]
// SAFETY: `segment` is written before `end` is raised and read after the raised `end` was seen;
// loom checks exactly that.
unsafe impl Sync for Mapped {}

/// One thread maps a segment and raises the end, another reserves below the end and uses the
/// segment.
#[expect(unsafe_code, reason = "as above")]
fn growth(raise: Ordering, see: Ordering) {
    loom::model(move || {
        let log = Arc::new(Mapped {
            tail: AtomicU64::new(1),
            end: AtomicU64::new(1),
            segment: UnsafeCell::new(false),
        });
        let grower = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                // SAFETY: loom has checked that no other thread uses it now.
                log.segment.with_mut(|segment| unsafe { *segment = true });
                log.end.store(2, raise);
            })
        };
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                if reserve(&log.tail, log.end.load(see)).is_some() {
                    // SAFETY: loom has checked that no other thread writes it now.
                    assert!(log.segment.with(|segment| unsafe { *segment }));
                }
            })
        };
        grower.join().expect("no panic");
        writer.join().expect("no panic");
    });
}

#[test]
fn a_reserved_slot_is_mapped() {
    growth(Ordering::Release, Ordering::Acquire);
}

#[test]
#[should_panic = "Causality violation"]
fn a_planted_end_raised_without_release_is_found() {
    growth(Ordering::Relaxed, Ordering::Acquire);
}

/// A writer publishes, an impatient thread voids, a third thread reads.
fn publication(publish: Publish) {
    loom::model(move || {
        let slot = Arc::new(slot());
        let writer = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || publish(&*slot, record(10)))
        };
        let voider = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || void(&*slot, VOID))
        };
        let reader = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                let last = last_word(&*slot);
                assert!(last == 0 || last == VOID || is_whole(&slot, last), "half a record");
                last
            })
        };
        let published = writer.join().expect("no panic");
        voider.join().expect("no panic");
        let seen = reader.join().expect("no panic");
        let last = last_word(&*slot);
        assert!(seen == 0 || seen == last, "a slot changed after it was complete");
        assert_eq!(last != VOID, published, "the writer's result must match the slot");
        assert!(last == VOID || is_whole(&slot, last));
    });
}

#[test]
fn a_slot_becomes_a_whole_record_or_a_void_and_its_writer_learns_which() {
    publication(publish);
}

#[test]
#[should_panic = "half a record"]
fn a_planted_publication_without_release_is_found() {
    fn relaxed(slot: &[AtomicU64], words: [u64; 4]) -> bool {
        for at in 0..3 {
            slot[at].store(words[at], Ordering::Relaxed);
        }
        // The bug: Relaxed on success.
        slot[3].compare_exchange(0, words[3], Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
    publication(relaxed);
}

#[test]
#[should_panic = "a slot changed"]
fn a_planted_publication_that_overwrites_a_void_is_found() {
    fn overwriting(slot: &[AtomicU64], words: [u64; 4]) -> bool {
        for at in 0..3 {
            slot[at].store(words[at], Ordering::Relaxed);
        }
        let empty = last_word(slot) == 0;
        slot[3].swap(words[3], Ordering::Release); // the bug
        empty
    }
    publication(overwriting);
}

/// A writer appends; another one reserves a slot and dies. A third thread walks the slots up to the
/// tail, syncs, and publishes the durable end. `closing` is whether the walk voids empty slots.
fn walk(closing: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let tail = Arc::new(AtomicU64::new(0));
        let slots = Arc::new([slot(), slot()]);
        let writer = {
            let (tail, slots) = (Arc::clone(&tail), Arc::clone(&slots));
            thread::spawn(move || {
                let lsn = reserve(&tail, 2).expect("room for both");
                publish(&slots[lsn as usize], record(10))
            })
        };
        let dying = {
            let tail = Arc::clone(&tail);
            thread::spawn(move || reserve(&tail, 2).expect("room for both"))
        };
        let syncer = {
            let (tail, slots) = (Arc::clone(&tail), Arc::clone(&slots));
            thread::spawn(move || {
                let upto = tail.load(Ordering::Acquire) as usize;
                for slot in &slots[..upto] {
                    if closing && last_word(slot) == 0 {
                        void(slot, VOID);
                    }
                    // The words that a sync would write to disk now.
                    let last = last_word(slot);
                    assert!(last == VOID || last != 0 && is_whole(slot, last), "a gap");
                }
            })
        };
        writer.join().expect("no panic");
        dying.join().expect("no panic");
        syncer.join().expect("no panic");
    });
}

#[test]
fn everything_below_the_durable_end_is_complete() {
    walk(true);
}

#[test]
#[should_panic = "a gap"]
fn a_planted_walk_that_does_not_close_holes_is_found() {
    walk(false);
}

type Void = fn(&[AtomicU64], u64);

/// A writer that was stopped with a reserved slot resumes after a walker has voided it, or just
/// before, and retries until its record stands. `heeds` is whether it checks the result.
fn come_back(void: Void, heeds: bool) {
    loom::model(move || {
        let tail = Arc::new(AtomicU64::new(0));
        let slots = Arc::new([slot(), slot()]);
        let writer = {
            let (tail, slots) = (Arc::clone(&tail), Arc::clone(&slots));
            thread::spawn(move || {
                loop {
                    // The walker runs once, so it voids at most one slot.
                    let lsn = reserve(&tail, 2).expect("room for a second try");
                    if publish(&slots[lsn as usize], record(10)) || !heeds {
                        return lsn;
                    }
                }
            })
        };
        let walker = {
            let (tail, slots) = (Arc::clone(&tail), Arc::clone(&slots));
            thread::spawn(move || {
                if tail.load(Ordering::Acquire) > 0 && last_word(&slots[0]) == 0 {
                    void(&slots[0], VOID);
                }
            })
        };
        let lsn = writer.join().expect("no panic");
        walker.join().expect("no panic");
        let standing: Vec<u64> =
            (0..2).filter(|&at: &u64| last_word(&slots[at as usize]) == 13).collect();
        assert_eq!(standing, [lsn], "a record stands once, in the slot that its writer returned");
    });
}

#[test]
fn a_writer_that_resumes_too_late_writes_its_record_once_in_another_slot() {
    come_back(|slot, word| void(slot, word), true);
}

#[test]
#[should_panic = "a record stands once"]
fn a_planted_writer_that_does_not_ask_whether_it_came_too_late_is_found() {
    come_back(|slot, word| void(slot, word), false);
}

#[test]
#[should_panic = "a record stands once"]
fn a_planted_void_over_a_record_is_found() {
    fn overwriting(slot: &[AtomicU64], word: u64) {
        let _ = slot[3].swap(word, Ordering::Release); // the bug
    }
    come_back(overwriting, true);
}
