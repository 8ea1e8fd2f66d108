//! An insert whose time is ahead records it in stripe 0 first: a step that ends by an event
//! contains no key later than the event.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::seqlock;
use ebbtide::models::stripe_lock::{Owner, try_lock, unlock};
use ebbtide::models::stripe_table::{STRIPE_WORDS, Stripe};
use loom::sync::Arc;
use loom::thread;

/// The key's time, which another thread has recorded or is recording.
const TIME: u64 = 7;

struct Filter {
    /// The state block's version: 0 while the first step is open.
    version: AtomicU64,
    /// The time at which the first step ended, plus one.
    ended: AtomicU64,
    /// Stripe 0's lock and time.
    stripe: [AtomicU64; STRIPE_WORDS],
}

/// The plan of an insert: whether its time has been recorded, and the version of the state block
/// that it uses.
type Plan = fn(&Filter) -> (bool, u64);

/// The way in which stripe 0 records a time.
type Note = fn(&Filter, u64, u64);

impl Filter {
    fn stripe(&self) -> Stripe<'_> {
        Stripe::new(&self.stripe)
    }

    /// Acts under stripe 0, unless it is busy.
    fn hold(&self, slot: u16, act: impl FnOnce()) {
        let owner = Owner { slot, incarnation: 1 };
        if try_lock(self.stripe().lock_word(), owner) {
            act();
            unlock(self.stripe().lock_word(), owner).expect("held by this thread");
        }
    }

    /// Ends the first step at the recorded time of stripe 0.
    fn end_step(&self, note: Note) {
        let time = self.stripe().time();
        let next = seqlock::begin_other(&self.version);
        self.ended.store(time + 1, Ordering::Relaxed);
        seqlock::flip(&self.version, next);
        note(self, 2, time);
    }
}

fn plan(filter: &Filter) -> (bool, u64) {
    let told = filter.stripe().time() >= TIME;
    (told, seqlock::current(&filter.version))
}

fn note(filter: &Filter, lsn: u64, time: u64) {
    filter.stripe().note(lsn, time);
}

fn model(plan: Plan, note: Note) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let zero = |_| AtomicU64::new(0);
        let (version, ended) = (zero(0), zero(0));
        let filter = Arc::new(Filter { version, ended, stripe: std::array::from_fn(zero) });
        let [event, teller, inserting] = [(); 3].map(|()| Arc::clone(&filter));
        let threads = [
            thread::spawn(move || event.hold(1, || event.end_step(note))),
            thread::spawn(move || teller.hold(2, || note(&teller, 3, TIME))),
        ];
        let inserting = thread::spawn(move || {
            let (told, version) = plan(&inserting);
            told && version == 0
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let in_first_step = inserting.join().expect("no panic");
        let ended = filter.ended.load(Ordering::Relaxed);
        assert!(!in_first_step || ended == 0 || ended > TIME, "ended before its key");
    });
}

#[test]
fn a_step_has_no_key_that_is_later_than_its_end() {
    model(plan, note);
}

#[test]
#[should_panic = "ended before its key"]
fn a_planted_insert_that_tells_nothing_is_found() {
    fn plan(filter: &Filter) -> (bool, u64) {
        (true, seqlock::current(&filter.version)) // the bug
    }
    model(plan, note);
}

#[test]
#[should_panic = "ended before its key"]
fn a_planted_plan_that_asks_for_the_time_last_is_found() {
    fn plan(filter: &Filter) -> (bool, u64) {
        let version = seqlock::current(&filter.version);
        (filter.stripe().time() >= TIME, version) // the bug: in the other order
    }
    model(plan, note);
}

#[test]
#[should_panic = "ended before its key"]
fn a_planted_time_noted_without_release_is_found() {
    fn note(filter: &Filter, _: u64, time: u64) {
        let noted = &filter.stripe[1];
        noted.store(noted.load(Ordering::Relaxed).max(time), Ordering::Relaxed); // the bug
    }
    model(plan, note);
}
