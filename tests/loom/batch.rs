//! A batch counts as a whole or not at all, and everybody agrees which: its owner, who voids a slot
//! of it, and who reads the log.

use ebbtide::models::batches::Batches;
use ebbtide::models::log_record::{Op, Record};
use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::slot::{last_word, publish, void};
use loom::sync::Arc;
use loom::thread;

const VOID: u64 = 7;
const CONTINUES: u64 = 100;
const LAST: u64 = 200;
/// A first record, one in the middle, and the last one: more behave as the one in the middle.
const SLOTS: usize = 3;

type Slot = [AtomicU64; 4];

struct Log {
    slots: [Slot; SLOTS],
    /// Set by the owner when it applies the batch.
    applied: AtomicU64,
}

impl Log {
    fn new() -> Arc<Self> {
        let slot = || [0; 4].map(AtomicU64::new);
        Arc::new(Self { slots: [(); SLOTS].map(|()| slot()), applied: AtomicU64::new(0) })
    }

    fn content(at: usize) -> [u64; 4] {
        [at as u64, 0, 0, if at + 1 < SLOTS { CONTINUES } else { LAST }]
    }

    /// Publishes the slots in this order until one is void, as `LogWriter::append_batch` does.
    fn commit(&self, order: [usize; SLOTS]) -> bool {
        let is_whole = order.into_iter().all(|at| publish(&self.slots[at], Self::content(at)));
        if is_whole {
            self.applied.store(1, Ordering::Release);
        } else {
            self.slots.iter().for_each(|slot| void(slot, VOID));
        }
        is_whole
    }

    /// Reads the log as a repairer does, which voids what is empty: the number of records that
    /// count, in a batch or alone.
    fn read(&self, mut void_of: impl FnMut(&Slot)) -> (usize, usize) {
        let (mut batches, mut whole, mut alone) = (Batches::default(), 0, 0);
        for (lsn, slot) in (1..).zip(&self.slots) {
            if last_word(slot) == 0 {
                void_of(slot);
            }
            let record = match last_word(slot) {
                CONTINUES => Record { continues: true, ..Record::new(Op::Insert) },
                LAST => Record::new(Op::Insert),
                _ => Record::new(Op::Void),
            };
            let pass = |group: &[(u64, Record)], counts: bool| {
                match (counts, group.len()) {
                    (false, _) => {}
                    (true, 1) => alone += usize::from(group[0].1.op == Op::Insert),
                    (true, _) => whole += 1,
                }
                Ok(())
            };
            batches.take(lsn, &record, pass).expect("no error");
        }
        batches.end(SLOTS as u64 + 1, |_, _| Ok(())).expect("no error");
        (whole, alone)
    }
}

fn decided(order: [usize; SLOTS], voided: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let log = Log::new();
        let owner = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.commit(order))
        };
        let walker = {
            let log = Arc::clone(&log);
            // Its patience ended at this slot.
            thread::spawn(move || void(&log.slots[voided], VOID))
        };
        let repairer = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.read(|slot| void(slot, VOID)))
        };
        let is_whole = owner.join().expect("no panic");
        walker.join().expect("no panic");
        let (whole, alone) = repairer.join().expect("no panic");
        assert_eq!(alone, 0, "a record counts without its batch");
        assert_eq!(whole, usize::from(is_whole), "owner and reader disagree");
        assert_eq!(log.read(|_| {}), (whole, alone), "a later reader disagrees");
        assert_eq!(log.applied.load(Ordering::Acquire), u64::from(is_whole));
    });
}

#[test]
fn owner_and_readers_agree_whether_a_batch_counts() {
    for voided in 0..SLOTS {
        decided([0, 1, 2], voided);
    }
}

#[test]
#[should_panic = "owner and reader disagree"]
fn a_planted_batch_that_is_published_from_its_end_is_found() {
    decided([2, 1, 0], 0);
}

#[test]
#[should_panic = "a batch was applied and does not count"]
fn a_planted_application_before_the_last_publication_is_found() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let log = Log::new();
        let owner = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let _ = publish(&log.slots[0], Log::content(0));
                log.applied.store(1, Ordering::Release); // the bug
                (1..SLOTS).all(|at| publish(&log.slots[at], Log::content(at)))
            })
        };
        let walker = {
            let log = Arc::clone(&log);
            thread::spawn(move || void(&log.slots[SLOTS - 1], VOID))
        };
        owner.join().expect("no panic");
        walker.join().expect("no panic");
        let (whole, _) = log.read(|_| {});
        let applied = log.applied.load(Ordering::Acquire);
        assert!(applied == 0 || whole == 1, "a batch was applied and does not count");
    });
}
