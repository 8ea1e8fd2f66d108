//! The list of tickets that wait for a sync: each is woken, and not before its answer is known.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::ticket_list::TicketList;
use loom::sync::Arc;
use loom::thread;
use std::task::{Poll, Wake, Waker};

struct Shared {
    waiters: TicketList,
    tail: AtomicU64,
    durable: AtomicU64,
    /// Whether the handle is closed: no ticket has to wait.
    ended: AtomicU64,
    /// The task that syncs has been woken, and has not begun to run since.
    due: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        let number = AtomicU64::new;
        let (tail, durable, ended, due) = (number(1), number(1), number(0), number(0));
        Arc::new(Self { waiters: TicketList::default(), tail, durable, ended, due })
    }

    fn knows(&self, lsn: u64) -> bool {
        self.durable.load(Ordering::Acquire) > lsn || self.ended.load(Ordering::Acquire) == 1
    }
}

/// A task that awaits the ticket of an LSN.
struct Awaiting {
    shared: Arc<Shared>,
    lsn: u64,
    /// 1 after it was woken, 2 if its answer was not known then.
    woken: AtomicU64,
}

impl Wake for Awaiting {
    fn wake(self: std::sync::Arc<Self>) {
        let woken = if self.shared.knows(self.lsn) { 1 } else { 2 };
        self.woken.store(woken, Ordering::Release);
    }
}

/// The way in which a ticket joins the list, and in which the task that syncs works.
#[derive(Clone, Copy)]
struct Protocol {
    looks_under_the_lock: bool,
    raises_before_it_wakes: bool,
    is_due_again: bool,
    /// Sleeps until two tickets wait, or for some time.
    gathers: bool,
    has_an_end: bool,
}

const PROPER: Protocol = Protocol {
    looks_under_the_lock: true,
    raises_before_it_wakes: true,
    is_due_again: true,
    gathers: false,
    has_an_end: true,
};

impl Protocol {
    /// As `Tickets::poll`, for a record of its own. Returns the task if it waits.
    fn poll(self, shared: &Arc<Shared>, number: u64) -> Option<std::sync::Arc<Awaiting>> {
        let lsn = shared.tail.fetch_add(1, Ordering::AcqRel);
        let woken = AtomicU64::new(0);
        let task = std::sync::Arc::new(Awaiting { shared: shared.clone(), lsn, woken });
        let waker = Waker::from(task.clone());
        let early = shared.knows(lsn);
        let known = || if self.looks_under_the_lock { shared.knows(lsn) } else { early };
        let (polled, wakes) = shared.waiters.join((lsn, number), &waker, || known().then_some(()));
        if wakes {
            shared.due.store(1, Ordering::Release);
        }
        (polled == Poll::Pending).then_some(task)
    }

    /// As `Tickets::run`, if it is due.
    fn run(self, shared: &Shared) {
        let due = shared.due.load(Ordering::Acquire) == 1;
        if due && self.is_due_again {
            shared.due.store(0, Ordering::Release);
        }
        let wanted = if self.gathers { 2 } else { 1 };
        if let (true, Some((_, highest))) = (due, shared.waiters.read()) {
            let end = highest + 1;
            if !self.raises_before_it_wakes {
                shared.waiters.wake_below(end, |_, _| 1); // the bug
            }
            shared.durable.fetch_max(end, Ordering::AcqRel);
            let complete = shared.waiters.wake_below(end, |_, _| wanted);
            if complete || (self.gathers && self.has_an_end) {
                shared.due.store(1, Ordering::Release);
            }
        }
        if due && !self.is_due_again {
            shared.due.store(0, Ordering::Release); // the bug
        }
    }
}

/// Two tasks await a ticket each, beside `serve`; `last` runs after all of them.
fn two_tickets(protocol: Protocol, serve: fn(Protocol, &Shared), last: fn(Protocol, &Shared)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Shared::new();
        let tasks = [0, 1].map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || protocol.poll(&shared, number))
        });
        let serving = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || serve(protocol, &shared))
        };
        serving.join().expect("no panic");
        let waiting = tasks.map(|task| task.join().expect("no panic"));
        let checking = thread::spawn(move || {
            last(protocol, &shared);
            for task in waiting.iter().flatten() {
                match task.woken.load(Ordering::Acquire) {
                    0 => panic!("never woken"),
                    1 => {}
                    _ => panic!("woken before the answer is known"),
                }
            }
        });
        checking.join().expect("no panic");
    });
}

/// The task that syncs runs twice meanwhile, and then for as long as it is due.
fn syncing(protocol: Protocol) {
    let twice = |protocol: Protocol, shared: &Shared| {
        protocol.run(shared);
        protocol.run(shared);
    };
    two_tickets(protocol, twice, |protocol, shared| {
        while shared.due.load(Ordering::Acquire) == 1 {
            protocol.run(shared);
        }
    });
}

/// The handle is closed, and nothing is synced any more.
fn closing(protocol: Protocol) {
    let end = |_: Protocol, shared: &Shared| {
        shared.ended.store(1, Ordering::Release);
        shared.waiters.wake_below(u64::MAX, |_, _| 1);
    };
    two_tickets(protocol, end, |_, _| {});
}

#[test]
fn every_ticket_is_woken_once_it_is_durable() {
    syncing(PROPER);
}

#[test]
fn a_task_that_sleeps_until_two_wait_or_for_some_time_wakes_every_ticket() {
    syncing(Protocol { gathers: true, ..PROPER });
}

#[test]
#[should_panic = "never woken"]
fn a_planted_wait_for_two_without_an_end_is_found() {
    syncing(Protocol { gathers: true, has_an_end: false, ..PROPER });
}

#[test]
fn closing_leaves_no_ticket_waiting() {
    closing(PROPER);
}

#[test]
#[should_panic = "never woken"]
fn a_planted_ticket_that_looks_only_before_it_joins_is_found() {
    closing(Protocol { looks_under_the_lock: false, ..PROPER });
}

#[test]
#[should_panic = "never woken"]
fn a_planted_task_that_forgets_wakeups_while_it_runs_is_found() {
    syncing(Protocol { is_due_again: false, ..PROPER });
}

#[test]
#[should_panic = "woken before the answer is known"]
fn a_planted_wakeup_before_the_durable_end_is_raised_is_found() {
    syncing(Protocol { raises_before_it_wakes: false, ..PROPER });
}
