//! Data with two copies: the state block, which readers never wait for, and a stripe's sums, which
//! survive their writer.

use ebbtide::models::Totals;
use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::seqlock;
use ebbtide::models::stripe_lock::{Owner, try_lock, unlock};
use ebbtide::models::stripe_table::{STRIPE_WORDS, Stripe, StripeSums};
use loom::sync::Arc;
use loom::sync::atomic::fence;
use loom::thread;

/// Two copies of two words; both words of a copy equal the version to which it belongs.
struct Copies {
    lock: AtomicU64,
    version: AtomicU64,
    words: [[AtomicU64; 2]; 2],
}

/// The protocol: how a writer begins and publishes its copy, how a reader begins and validates.
#[derive(Clone, Copy)]
struct Protocol {
    begin_other: fn(&AtomicU64) -> u64,
    flip: fn(&AtomicU64, u64),
    current: fn(&AtomicU64) -> u64,
    unchanged: fn(&AtomicU64, u64) -> bool,
}

const PROPER: Protocol = Protocol {
    begin_other: seqlock::begin_other,
    flip: seqlock::flip,
    current: seqlock::current,
    unchanged: seqlock::unchanged,
};

impl Copies {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let words = [[zero(), zero()], [zero(), zero()]];
        Arc::new(Self { lock: zero(), version: zero(), words })
    }

    fn change(&self, protocol: Protocol) {
        let next = (protocol.begin_other)(&self.version);
        for word in &self.words[(next & 1) as usize] {
            word.store(next, Ordering::Relaxed);
        }
        (protocol.flip)(&self.version, next);
    }

    /// Reads the last word first: the order that a missing fence would break.
    fn read(&self, protocol: Protocol) {
        let before = (protocol.current)(&self.version);
        let copy = &self.words[(before & 1) as usize];
        let second = copy[1].load(Ordering::Relaxed);
        let first = copy[0].load(Ordering::Relaxed);
        if (protocol.unchanged)(&self.version, before) {
            assert_eq!([first, second], [before; 2], "of another version");
        }
    }
}

/// The writers of the model.
#[derive(Clone, Copy)]
enum Writers {
    /// One writer, twice: the second change overwrites the copy that was read.
    Twice,
    /// Two writers, each once if it finds the stripe free.
    Two,
}

fn state_block(writers: Writers, protocol: Protocol) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let copies = Copies::new();
        let mut threads = Vec::new();
        match writers {
            Writers::Twice => {
                let copies = Arc::clone(&copies);
                threads.push(thread::spawn(move || {
                    copies.change(protocol);
                    copies.change(protocol);
                }));
            }
            Writers::Two => threads.extend([1, 2].map(|slot| {
                let copies = Arc::clone(&copies);
                thread::spawn(move || {
                    let owner = Owner { slot, incarnation: 1 };
                    // A waiting writer would double the interleavings; the lock has its own models.
                    if try_lock(&copies.lock, owner) {
                        copies.change(protocol);
                        unlock(&copies.lock, owner).expect("held by this thread");
                    }
                })
            })),
        }
        let reader = Arc::clone(&copies);
        threads.push(thread::spawn(move || reader.read(protocol)));
        for thread in threads {
            thread.join().expect("no panic");
        }
        copies.read(PROPER);
    });
}

#[test]
fn a_copy_that_is_still_valid_was_read_whole() {
    state_block(Writers::Twice, PROPER);
}

#[test]
fn a_copy_that_is_still_valid_was_read_whole_for_any_writer() {
    state_block(Writers::Two, PROPER);
}

fn without_fence(version: &AtomicU64) -> u64 {
    version.load(Ordering::Relaxed).wrapping_add(1) // the bug: no fence after it
}

#[test]
#[should_panic = "of another version"]
fn a_planted_copy_begun_without_a_fence_is_found() {
    state_block(Writers::Twice, Protocol { begin_other: without_fence, ..PROPER });
}

#[test]
#[should_panic = "of another version"]
fn a_planted_copy_begun_without_a_fence_by_another_writer_is_found() {
    state_block(Writers::Two, Protocol { begin_other: without_fence, ..PROPER });
}

#[test]
#[should_panic = "of another version"]
fn a_planted_flip_without_release_is_found() {
    fn flip(version: &AtomicU64, next: u64) {
        version.store(next, Ordering::Relaxed); // the bug
    }
    state_block(Writers::Twice, Protocol { flip, ..PROPER });
}

#[test]
#[should_panic = "of another version"]
fn a_planted_current_without_acquire_is_found() {
    fn current(version: &AtomicU64) -> u64 {
        version.load(Ordering::Relaxed) // the bug
    }
    state_block(Writers::Twice, Protocol { current, ..PROPER });
}

#[test]
#[should_panic = "of another version"]
fn a_planted_copy_that_is_not_checked_is_found() {
    fn unchanged(_: &AtomicU64, _: u64) -> bool {
        fence(Ordering::Acquire);
        true // the bug
    }
    state_block(Writers::Twice, Protocol { unchanged, ..PROPER });
}

#[test]
#[should_panic = "of another version"]
fn a_planted_copy_checked_without_a_fence_is_found() {
    fn unchanged(version: &AtomicU64, before: u64) -> bool {
        version.load(Ordering::Relaxed) == before // the bug: no fence before it
    }
    state_block(Writers::Twice, Protocol { unchanged, ..PROPER });
}

/// A stripe's words, and whether the process that held it is dead.
struct Shared {
    words: [AtomicU64; STRIPE_WORDS],
    dead: AtomicU64,
}

fn sums(of: u64) -> StripeSums {
    StripeSums { lsn: of, inserts: of, time: of, new_bits: of }
}

/// The index of the words of a copy: the record with LSN 1 is counted in the second copy, that with
/// LSN 2 in the first.
const FIRST: usize = 2;
/// The time has one copy, because it only grows.
const TIME: usize = 1;

/// The stores of `Stripe::update` for LSN 2, in order.
const PROPER_STORES: [(usize, u64); 5] =
    [(FIRST, 0), (FIRST + 1, 2), (FIRST + 2, 2), (TIME, 2), (FIRST, 2)];

/// The owner of a stripe counts one record, and dies after some stores of the next. The successor
/// reads.
fn death(stores: [(usize, u64); 5], left: usize) {
    loom::model(move || {
        let words = [(); STRIPE_WORDS].map(|()| AtomicU64::new(0));
        let shared = Arc::new(Shared { words, dead: AtomicU64::new(0) });
        let dying = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                Stripe::new(&shared.words).count(1, 1, Totals { inserts: 1, new_bits: 1 });
                for &(at, value) in &stores[..left] {
                    shared.words[at].store(value, Ordering::Relaxed);
                }
                // Release: it stands for the kernel, which releases the byte lock of the dead
                // process.
                shared.dead.store(1, Ordering::Release);
            })
        };
        let successor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.dead.load(Ordering::Acquire) == 1 {
                    let found = Stripe::new(&shared.words).sums();
                    let lsn = if left == stores.len() { 2 } else { 1 };
                    // The time may be that of the record about to be counted.
                    assert_eq!(StripeSums { time: lsn, ..found }, sums(lsn), "half counted");
                    assert!((lsn..=2).contains(&found.time));
                    // Repair.
                    if lsn == 1 {
                        Stripe::new(&shared.words).count(2, 2, Totals { inserts: 1, new_bits: 1 });
                    }
                    assert_eq!(Stripe::new(&shared.words).sums(), sums(2));
                }
            })
        };
        dying.join().expect("no panic");
        successor.join().expect("no panic");
    });
}

#[test]
fn if_their_writer_dies_sums_are_those_before_or_after() {
    (0..=PROPER_STORES.len()).for_each(|left| death(PROPER_STORES, left));
}

#[test]
fn the_model_and_the_code_store_the_same_words() {
    // Loom's atomics exist in models only.
    loom::model(|| {
        let thread = thread::spawn(|| {
            let words = [(); STRIPE_WORDS].map(|()| AtomicU64::new(0));
            let stripe = Stripe::new(&words);
            for lsn in 1..=2 {
                stripe.count(lsn, lsn, Totals { inserts: 1, new_bits: 1 });
            }
            let mut expected = [0; STRIPE_WORDS];
            for (at, value) in PROPER_STORES {
                expected[at] = value;
            }
            let first: Vec<u64> =
                words[..5].iter().map(|word| word.load(Ordering::Relaxed)).collect();
            assert_eq!(first, expected[..5]);
        });
        thread.join().expect("no panic");
    });
}

#[test]
#[should_panic = "half counted"]
fn a_planted_lsn_that_is_stored_first_is_found() {
    let mut stores = PROPER_STORES;
    stores[0] = (FIRST, 2); // the bug
    death(stores, 3);
}
