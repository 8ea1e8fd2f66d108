//! An image that is retired because the filter is altered: what was written to it is in the new
//! one, and it answers nothing that the new one contradicts.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::words::Status;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Two images of a filter with one stripe, whose cells count the keys, or a lack of them: 7 is
/// what the cell of the old image shows if its memory was not freed.
struct Filter {
    /// The stripe of the old image, with the number of records written under it.
    stripe: Mutex<u64>,
    status: AtomicU64,
    old_cell: AtomicU64,
    /// The records that the new image has, once it is there.
    new: Mutex<Option<u64>>,
    /// Whether an insert into the new image has returned.
    has_returned: AtomicBool,
}

impl Filter {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            stripe: Mutex::new(0),
            status: AtomicU64::new(0),
            old_cell: AtomicU64::new(7),
            new: Mutex::new(None),
            has_returned: AtomicBool::new(false),
        })
    }

    fn status(&self) -> Status<'_> {
        Status::new(&self.status)
    }

    /// As steps 3 to 10 of `docs/protocols/alter.md`.
    fn alter(&self) {
        self.alter_and_mark(|status| Status::new(status).retire_to_alter());
    }

    fn alter_and_mark(&self, mark: impl FnOnce(&AtomicU64)) {
        let written = self.stripe.lock().expect("no panic");
        let made = *written;
        mark(&self.status);
        drop(written);
        *self.new.lock().expect("no panic") = Some(made);
        // The call that frees the memory. It need not order anything.
        self.old_cell.store(0, Ordering::Relaxed);
    }

    /// Writes a record, into the old image or the new one.
    fn insert(&self) {
        let mut written = self.stripe.lock().expect("no panic");
        if self.status().refuses() {
            drop(written);
            while !self.insert_new() {
                thread::yield_now();
            }
            return;
        }
        *written += 1;
    }

    fn insert_new(&self) -> bool {
        let mut new = self.new.lock().expect("no panic");
        new.as_mut().map(|written| *written += 1).is_some()
    }
}

fn no_record_is_lost(alter: fn(&Filter)) {
    loom::model(move || {
        let filter = Filter::new();
        let actors = [
            {
                let filter = filter.clone();
                thread::spawn(move || alter(&filter))
            },
            {
                let filter = filter.clone();
                thread::spawn(move || {
                    filter.insert();
                })
            },
        ];
        for actor in actors {
            actor.join().expect("no panic");
        }
        let new = *filter.new.lock().expect("no panic");
        assert_eq!(new, Some(1), "the record is in the new image");
    });
}

/// `ask` answers from the old image, or not.
fn no_answer_is_outdated(ask: fn(&Filter) -> Option<u64>) {
    no_answer_beside(Filter::alter, ask);
}

fn no_answer_beside(alter: fn(&Filter), ask: fn(&Filter) -> Option<u64>) {
    loom::model(move || {
        let filter = Filter::new();
        let altering = {
            let filter = filter.clone();
            thread::spawn(move || {
                alter(&filter);
                assert!(filter.insert_new(), "the new image is there");
                filter.has_returned.store(true, Ordering::Release);
            })
        };
        let asking = thread::spawn(move || {
            let has_returned = filter.has_returned.load(Ordering::Acquire);
            if let Some(answer) = ask(&filter) {
                assert_eq!(answer, 7, "the answer is not of freed memory");
                assert!(!has_returned, "the answer is not older than the question");
            }
        });
        altering.join().expect("no panic");
        asking.join().expect("no panic");
    });
}

fn ask(filter: &Filter) -> Option<u64> {
    let answer = filter.old_cell.load(Ordering::Relaxed);
    filter.status().answers().then_some(answer)
}

#[test]
fn what_was_written_before_an_alteration_is_in_the_new_image_and_nothing_comes_after() {
    no_record_is_lost(Filter::alter);
}

#[test]
fn an_image_that_was_altered_gives_no_answer() {
    no_answer_is_outdated(ask);
}

#[test]
#[should_panic = "is in the new image"]
fn a_planted_mark_after_the_stripes_are_released_is_found() {
    no_record_is_lost(|filter| {
        let made = *filter.stripe.lock().expect("no panic");
        filter.status().retire_to_alter(); // the bug: others write in between
        *filter.new.lock().expect("no panic") = Some(made);
    });
}

#[test]
#[should_panic = "is not of freed memory"]
fn a_planted_look_at_the_mark_before_the_cells_is_found() {
    no_answer_is_outdated(|filter| {
        let answers = filter.status().answers();
        // The bug: they may be freed in between.
        answers.then(|| filter.old_cell.load(Ordering::Relaxed))
    });
}

#[test]
#[should_panic = "is not of freed memory"]
fn a_planted_look_at_the_mark_without_a_fence_is_found() {
    no_answer_is_outdated(|filter| {
        let answer = filter.old_cell.load(Ordering::Relaxed);
        let is_altered = filter.status.load(Ordering::Relaxed) != 0; // the bug: no fence
        (!is_altered).then_some(answer)
    });
}

#[test]
#[should_panic = "is not of freed memory"]
fn a_planted_mark_without_a_fence_after_it_is_found() {
    let alter = |filter: &Filter| {
        // The bug: a Release store orders what is before it, not the cells that are freed later.
        filter.alter_and_mark(|status| status.store(u64::MAX, Ordering::Release));
    };
    no_answer_beside(alter, ask);
}
