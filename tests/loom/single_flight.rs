//! The single-flight gate, and the group commit built on it: with any leader, overtaken or failing.

use ebbtide::models::primitives::{AtomicU64, Ordering, Watermark};
use ebbtide::models::single_flight::{self, Leader, Taken};
use ebbtide::models::slot::Tail;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;

const PLACES: usize = 2;

/// The shared memory, and the disk.
struct Shared {
    syncing: AtomicU64,
    tail: AtomicU64,
    durable: AtomicU64,
    poisoned: AtomicU64,
    /// The last word of each slot; `place.rs` models the publication of the others.
    places: [AtomicU64; PLACES],
    disk: [AtomicU64; PLACES],
}

impl Shared {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            syncing: zero(),
            tail: zero(),
            durable: zero(),
            poisoned: zero(),
            places: [(); PLACES].map(|()| zero()),
            disk: [(); PLACES].map(|()| zero()),
        })
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn take(word: &AtomicU64) -> Taken<'_> {
    single_flight::take(word, Duration::ZERO)
}

/// The way in which a leader works.
#[derive(Clone, Copy)]
struct Lead {
    raised_before_the_sync: bool,
    /// How the durable end is raised.
    raise: fn(&AtomicU64, u64),
    closes_holes: bool,
}

const PROPER: Lead = Lead {
    raised_before_the_sync: false,
    raise: |end, to| Watermark::new(end).raise(to),
    closes_holes: true,
};

impl Lead {
    /// As `GroupCommit::lead`.
    fn lead(self, shared: &Shared) {
        let upto = shared.tail.load(Ordering::Acquire);
        if self.raised_before_the_sync {
            (self.raise)(&shared.durable, upto); // the bug
        }
        for at in 0..upto as usize {
            // A slot that stays empty becomes a VOID: here without patience.
            if self.closes_holes {
                let _ = shared.places[at].compare_exchange(
                    0,
                    u64::MAX,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
            }
            let published = shared.places[at].load(Ordering::Acquire);
            shared.disk[at].store(published, Ordering::Relaxed);
        }
        (self.raise)(&shared.durable, upto);
    }

    /// As `GroupCommit::commit`.
    fn commit(self, shared: &Shared, target: u64) {
        while Watermark::new(&shared.durable).read() < target {
            let leader = match take(&shared.syncing) {
                Taken::Again => continue,
                Taken::Ours(leader) | Taken::Overtook(leader) => leader,
            };
            if Watermark::new(&shared.durable).read() < target {
                self.lead(shared);
            }
            leader.end();
        }
    }

    /// Appends a record and waits until it is durable. The disk must contain the content of the
    /// slot.
    fn append(self, shared: &Shared, record: u64) {
        let lsn = Tail::new(&shared.tail).reserve(1, PLACES as u64).expect("room for all") as usize;
        let _ =
            shared.places[lsn].compare_exchange(0, record, Ordering::Release, Ordering::Relaxed);
        self.commit(shared, lsn as u64 + 1);
        let published = shared.places[lsn].load(Ordering::Relaxed);
        assert!(published != 0);
        assert_eq!(shared.disk[lsn].load(Ordering::Relaxed), published, "not on the disk");
    }
}

/// Two threads append and commit. Before them a leader may have been stopped in the middle.
fn group_commit(stopped: bool, lead: Lead) {
    explore(move || {
        let shared = Shared::new();
        if stopped {
            let shared = Arc::clone(&shared);
            let stopped = thread::spawn(move || drop(take(&shared.syncing)));
            stopped.join().expect("no panic");
        }
        let writers = [7, 8].map(|record| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || lead.append(&shared, record))
        });
        for writer in writers {
            writer.join().expect("no panic");
        }
        assert_eq!(shared.durable.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn every_acknowledged_record_is_on_the_disk() {
    group_commit(false, PROPER);
}

#[test]
fn a_stopped_leader_blocks_no_other_handle() {
    group_commit(true, PROPER);
}

#[test]
#[should_panic = "not on the disk"]
fn a_planted_durable_end_raised_before_the_sync_is_found() {
    group_commit(false, Lead { raised_before_the_sync: true, ..PROPER });
}

#[test]
#[should_panic = "not on the disk"]
fn a_planted_durable_end_raised_without_release_is_found() {
    fn raise(end: &AtomicU64, to: u64) {
        end.fetch_max(to, Ordering::Relaxed); // the bug
    }
    group_commit(false, Lead { raise, ..PROPER });
}

#[test]
#[should_panic = "not on the disk"]
fn a_planted_leader_that_leaves_holes_is_found() {
    group_commit(false, Lead { closes_holes: false, ..PROPER });
}

/// A leader of the code, or of a planted variant by its number.
enum Held<'a> {
    Code(Leader<'a>),
    Planted(u64),
}

/// The way in which the gate is taken (with whether the leader before has ended) and released.
#[derive(Clone, Copy)]
struct Gate {
    take: for<'a> fn(&'a AtomicU64) -> Option<(bool, Held<'a>)>,
    end: fn(&AtomicU64, Held<'_>),
    poisons_late: bool,
}

const CODE: Gate = Gate {
    take: |word| match take(word) {
        Taken::Again => None,
        Taken::Ours(leader) => Some((true, Held::Code(leader))),
        Taken::Overtook(leader) => Some((false, Held::Code(leader))),
    },
    end: |word, held| match held {
        Held::Code(leader) => leader.end(),
        Held::Planted(number) => end_by_hand(word, number, Ordering::Release),
    },
    poisons_late: false,
};

fn end_by_hand(word: &AtomicU64, number: u64, order: Ordering) {
    let _ = word.compare_exchange(number, number + 1, order, Ordering::Relaxed);
}

fn take_by_hand(word: &AtomicU64, order: Ordering) -> Option<(bool, Held<'_>)> {
    let seen = word.load(Ordering::Relaxed);
    let number = if seen & 1 == 0 { seen + 1 } else { seen + 2 };
    word.compare_exchange(seen, number, order, Ordering::Relaxed).ok()?;
    Some((seen & 1 == 0, Held::Planted(number)))
}

/// A leader's sync fails; another thread checks meanwhile how the leader before it ended.
fn failure(gate: Gate) {
    explore(move || {
        let shared = Shared::new();
        let failing = thread::spawn(move || {
            let (_, held) = (gate.take)(&shared.syncing).expect("no other thread leads");
            let next = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let Some((in_order, held)) = (gate.take)(&shared.syncing) else { return };
                    let poisoned = shared.poisoned.load(Ordering::Relaxed);
                    assert!(
                        !in_order || poisoned == 1,
                        "a failure of the previous turn was not seen"
                    );
                    (gate.end)(&shared.syncing, held);
                })
            };
            // Relaxed: ordered by the release of the gate.
            if gate.poisons_late {
                (gate.end)(&shared.syncing, held);
                shared.poisoned.store(1, Ordering::Relaxed);
            } else {
                shared.poisoned.store(1, Ordering::Relaxed);
                (gate.end)(&shared.syncing, held);
            }
            next.join().expect("no panic");
        });
        failing.join().expect("no panic");
    });
}

#[test]
fn a_leader_that_sees_the_previous_turn_ended_sees_its_failure() {
    failure(CODE);
}

#[test]
#[should_panic = "a failure of the previous turn was not seen"]
fn a_planted_poison_after_the_end_of_the_turn_is_found() {
    failure(Gate { poisons_late: true, ..CODE });
}

#[test]
#[should_panic = "a failure of the previous turn was not seen"]
fn a_planted_turn_taken_without_acquire_is_found() {
    failure(Gate { take: |word| take_by_hand(word, Ordering::Relaxed), ..CODE });
}

#[test]
#[should_panic = "a failure of the previous turn was not seen"]
fn a_planted_turn_that_is_overtaken_in_order_is_found() {
    let take: for<'a> fn(&'a AtomicU64) -> Option<(bool, Held<'a>)> =
        |word| take_by_hand(word, Ordering::Acquire).map(|(_, held)| (true, held)); // the bug
    failure(Gate { take, ..CODE });
}

#[test]
#[should_panic = "a failure of the previous turn was not seen"]
fn a_planted_turn_ended_without_release_is_found() {
    fn end(word: &AtomicU64, held: Held<'_>) {
        if let Held::Planted(number) = held {
            end_by_hand(word, number, Ordering::Relaxed); // the bug
        }
    }
    failure(Gate { take: |word| take_by_hand(word, Ordering::Acquire), end, ..CODE });
}

/// Two threads lead, each twice. Each leader has its own number, also after an overtake, so the
/// word contains the number of leaders in the end.
fn taking(gate: Gate) {
    explore(move || {
        let shared = Shared::new();
        let threads = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut taken = 0;
                for _ in 0..2 {
                    if let Some((_, held)) = (gate.take)(&shared.syncing) {
                        taken += 1;
                        (gate.end)(&shared.syncing, held);
                    }
                }
                taken
            })
        });
        let taken: u64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        // Relaxed: the threads were joined.
        assert_eq!(shared.syncing.load(Ordering::Relaxed), 2 * taken, "a turn taken twice");
    });
}

#[test]
fn no_turn_is_taken_twice_and_none_is_undone() {
    taking(CODE);
}

#[test]
#[should_panic = "a turn taken twice"]
fn a_planted_end_that_takes_the_overtakers_turn_away_is_found() {
    fn end(word: &AtomicU64, held: Held<'_>) {
        if let Held::Planted(number) = held {
            word.store(number + 1, Ordering::Release); // the bug
        }
    }
    taking(Gate { take: |word| take_by_hand(word, Ordering::Acquire), end, ..CODE });
}
