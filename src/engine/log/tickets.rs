//! Tickets: the durability of operations that have returned already.
//!
//! A task awaits its ticket without blocking a thread. One thread of the process syncs for all
//! tickets of all filters, in the way of every other caller (see [`group_commit`]), for as long as
//! any ticket waits. It also wakes the tickets that a sync of another thread or process has made
//! durable: it waits for that sync like any caller.
//!
//! Invariants: wakers and callbacks run without any lock, and not while this handle counts as busy,
//! so they may use and close the filter. In a forked child a ticket takes no lock.
//!
//! [`group_commit`]: crate::engine::log::group_commit

use crate::engine::background::task::{Task, Work};
use crate::engine::background::threads::{self, Registered};
use crate::engine::log::group_commit::{GroupCommit, again_if_unread};
use crate::engine::log::ticket_list::{TicketId, TicketList};
use crate::engine::shared::Shared;
use crate::error::{Error, Result};
use crate::primitives::{Hint, Instant, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The sleep of a task that nobody waits for; whoever begins to wait wakes it.
const LONG: Duration = Duration::from_secs(3600);

/// The shortest sync after which it pays to wait for tasks that will be back soon: to sleep and be
/// woken takes some tens of microseconds.
const GATHERED_FROM: Duration = Duration::from_micros(120);

/// After a sync, the tasks that it has woken are waited for, for its duration divided by this, so
/// that they share the next sync. Otherwise half of them would come during the next sync, and wait
/// for the one after.
const GATHERED_FOR: u32 = 2;

/// The longest wait for them: after a sync that stalled, the next ones may be fast again.
const GATHERED_MOST: Duration = Duration::from_millis(20);

/// The pause after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The most misses counted: 2^6 syncs then pass between two waits.
const MISSES_MOST: u32 = 6;

/// The tickets of a handle.
#[derive(Debug)]
pub struct Tickets {
    shared: Arc<Shared>,
    commits: Arc<GroupCommit>,
    waiters: TicketList,
    /// What syncing failed with, for the ticket for which it was tried.
    failed: Mutex<BTreeMap<TicketId, Error>>,
    task: Mutex<SyncTask>,
    last_number: Hint,
    gathering: Mutex<Gathering>,
}

/// Whether the tasks that a sync wakes are waited for: those that do one operation after the other
/// come back at once, others do not.
#[derive(Debug, Default)]
struct Gathering {
    /// How many tickets the present wait is for; 0 without one.
    wanted: usize,
    /// Rises by 2 when a wait ends before enough tickets are there, and falls by 1 when enough
    /// came. The disk is idle during a wait, so most of them must succeed.
    misses: u32,
    /// The syncs until the next wait.
    pause: u32,
}

impl Gathering {
    /// Notes how many tickets were there when the wait ended.
    fn end(&mut self, waiting: usize) {
        if waiting < self.wanted {
            self.misses = (self.misses + 2).min(MISSES_MOST);
            self.pause = 1 << self.misses;
        } else if self.wanted > 0 {
            self.misses = self.misses.saturating_sub(1);
        }
        self.wanted = 0;
    }

    /// Returns how many tickets to wait for after a sync that lasted this long: nine tenths of the
    /// `woken` ones, and those that are `left`; one if it does not pay.
    fn begin(&mut self, lasted: Duration, woken: usize, left: usize) -> usize {
        if lasted < GATHERED_FROM || woken < 2 {
            return 1;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return 1;
        }
        self.wanted = left + woken - woken / 10;
        self.wanted
    }
}

/// Returns how long to wait for woken tasks after a sync that lasted this long.
fn gathering_time(lasted: Duration) -> Duration {
    (lasted / GATHERED_FOR).min(GATHERED_MOST)
}

/// The task that syncs.
#[derive(Debug)]
enum SyncTask {
    /// No ticket has been awaited yet.
    Unneeded,
    Running(Registered),
    /// The handle is being closed, which answers all tickets.
    Stopped,
    /// The handle is closed: what is not durable will not become so.
    Ended,
}

impl Tickets {
    /// Creates the tickets of a handle.
    pub(crate) fn new(shared: Arc<Shared>, commits: Arc<GroupCommit>) -> Self {
        Self {
            shared,
            commits,
            waiters: TicketList::default(),
            failed: Mutex::default(),
            task: Mutex::new(SyncTask::Unneeded),
            last_number: Hint::default(),
            gathering: Mutex::default(),
        }
    }

    /// Returns a ticket for the durability of all records up to this LSN.
    pub(crate) fn issue(&self, lsn: u64) -> TicketId {
        (lsn, self.last_number.next())
    }

    /// Returns whether the ticket's records are durable.
    pub(crate) fn is_durable(&self, (lsn, _): TicketId) -> Result<bool> {
        self.shared.check_process()?;
        Ok(self.shared.durable() > lsn)
    }

    /// Waits until the ticket's records are durable.
    pub(crate) fn wait(&self, (lsn, _): TicketId) -> Result<()> {
        self.shared.check_process()?;
        again_if_unread(|| self.commits.commit_applied(lsn.saturating_add(1)))
    }

    /// Returns whether the ticket's records are durable, or why they are not; or keeps the waker
    /// until that is known.
    pub(crate) fn poll(
        self: &Arc<Self>,
        ticket: TicketId,
        context: &Context<'_>,
    ) -> Poll<Result<()>> {
        match self.is_durable(ticket) {
            Ok(false) => {}
            known => return Poll::Ready(known.map(drop)),
        }
        let task = match self.running_task() {
            Ok(task) => task,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let (answer, wakes) =
            self.waiters.join(ticket, context.waker(), || self.answer(ticket).transpose());
        if let (true, Some(task)) = (wakes, task) {
            task.wake();
        }
        answer
    }

    /// Returns what is known about a ticket; `None` if it must wait.
    fn answer(&self, ticket: TicketId) -> Result<Option<()>> {
        if self.is_durable(ticket)? {
            return Ok(Some(()));
        }
        if let Some(error) = self.failed.lock().remove(&ticket) {
            return Err(error);
        }
        if self.shared.header().is_poisoned() {
            return Err(self.shared.poisoned());
        }
        match *self.task.lock() {
            SyncTask::Ended => Err(self.shared.closed()),
            _ => Ok(None),
        }
    }

    /// Ends the wait of a ticket that is dropped.
    pub(crate) fn leave(&self, ticket: TicketId) {
        // A process of a schedule may die while it holds the list's lock, and drop tickets then.
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        // A forked child has the list, but its lock may be held by a thread of the parent.
        if self.shared.check_process().is_ok() {
            self.waiters.leave(ticket);
            self.failed.lock().remove(&ticket);
        }
    }

    /// Returns the task that syncs, started if there is none; `None` once closing has begun.
    fn running_task(self: &Arc<Self>) -> Result<Option<Registered>> {
        let mut task = self.task.lock();
        if matches!(*task, SyncTask::Unneeded) {
            let path = self.shared.path();
            let started = threads::register(Work::Syncs, self.clone());
            *task = SyncTask::Running(started.map_err(Error::io("start a thread for", path))?);
        }
        match &*task {
            SyncTask::Running(running) => Ok(Some(running.clone())),
            _ => Ok(None),
        }
    }

    /// Stops the task that syncs. Tickets wait for [`Tickets::end`] then. Does not wait for the
    /// task: closing waits for its commit as for any operation, and wakers and callbacks that it
    /// runs may wait for closing.
    pub(crate) fn stop(&self) {
        let task = std::mem::replace(&mut *self.task.lock(), SyncTask::Stopped);
        if let SyncTask::Running(task) = task {
            task.dismiss();
        }
    }

    /// Runs the task that syncs once if it is due, for a schedule. Returns the time until it is
    /// due; `None` if there is none.
    #[cfg(shuttle)]
    pub(crate) fn run_task(&self) -> Option<Duration> {
        let task = match &*self.task.lock() {
            SyncTask::Running(task) => task.clone(),
            _ => return None,
        };
        task.run_if_due()
    }

    /// Forgets the tickets of a process of a schedule that has died: their callbacks own
    /// themselves.
    #[cfg(shuttle)]
    pub(crate) fn forget(&self) {
        self.waiters.forget();
    }

    /// Answers all tickets: nothing will be synced any more.
    pub(crate) fn end(&self) {
        *self.task.lock() = SyncTask::Ended;
        self.waiters.wake_below(u64::MAX, |_, _| 1);
    }
}

impl Tickets {
    /// Commits up to the highest LSN that is waited for. If a part of the log cannot be opened,
    /// perhaps only the highest tickets need it: then commits for the first ticket alone. An error
    /// is that ticket's.
    fn commit(&self, highest: u64) -> (Result<()>, Option<TicketId>) {
        match (self.commits.commit(highest.saturating_add(1)), self.waiters.first()) {
            (Err(error), Some(first)) if !matches!(error, Error::Poisoned { .. }) => {
                let commit = || self.commits.commit(first.0.saturating_add(1));
                (again_if_unread(commit), Some(first))
            }
            (committed, _) => (committed, None),
        }
    }

    /// Commits for the tickets that wait, and wakes those that are durable. Returns when to run
    /// next.
    fn serve(&self) -> Instant {
        let waiting = self.waiters.read();
        self.gathering.lock().end(waiting.map_or(0, |(count, _)| count));
        let Some((_, highest)) = waiting else { return Instant::now() + LONG };
        let begun = Instant::now();
        let (synced, tried) = match self.shared.enter() {
            Ok(_busy) => self.commit(highest),
            // Closing answers all tickets.
            Err(_) => return Instant::now() + LONG,
        };
        let end = match synced {
            Ok(()) => {
                let end = self.shared.durable();
                // An earlier attempt may have failed for tickets that are durable now.
                self.failed.lock().retain(|&(lsn, _), _| lsn >= end);
                end
            }
            Err(Error::Poisoned { .. }) => u64::MAX,
            Err(error) => {
                if let Some(ticket) = tried {
                    self.waiters.wake_one(ticket, || {
                        self.failed.lock().insert(ticket, error);
                    });
                }
                self.shared.durable()
            }
        };
        // Without the wait for a leader that was stopped.
        let lasted = begun.elapsed().min(self.commits.took());
        let mut wanted = 1;
        let complete = self.waiters.wake_below(end, |woken, left| {
            wanted = self.gathering.lock().begin(lasted, woken, left);
            wanted
        });
        Instant::now()
            + match (complete, wanted) {
                (true, _) => Duration::ZERO,
                (false, 1) => LONG,
                (false, _) => gathering_time(lasted),
            }
    }
}

impl Task for Tickets {
    fn run(&self) -> Instant {
        // In a forked child, to which a waker may have returned.
        if self.shared.check_process().is_err() {
            return Instant::now() + LONG;
        }
        // What reports of slow work call may panic. The tickets wait for another attempt.
        catch_unwind(AssertUnwindSafe(|| self.serve())).unwrap_or_else(|panic| {
            std::mem::forget(panic);
            Instant::now() + AFTER_PANIC
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(1);

    #[test]
    fn the_woken_are_waited_for_as_long_as_they_come_back_and_else_more_and_more_seldom() {
        let mut gathering = Gathering::default();
        for _ in 0..100 {
            assert_eq!(gathering.begin(SYNC, 64, 3), 61, "nine tenths of 64, and those there");
            gathering.end(61);
        }
        let mut waits = Vec::new();
        for sync in 0..400_usize {
            if gathering.begin(SYNC, 64, 0) > 1 {
                waits.push(sync);
                gathering.end(5);
            }
        }
        let between: Vec<_> = waits.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(between, [5, 17, 65, 65, 65, 65, 65]);
        while gathering.begin(SYNC, 64, 0) == 1 {}
        gathering.end(58);
        assert_eq!(gathering.begin(SYNC, 64, 0), 58, "they came back: again after each sync");
    }

    #[test]
    fn after_a_sync_that_stalled_nobody_waits_for_half_of_its_time() {
        assert_eq!(gathering_time(SYNC), SYNC / 2);
        assert_eq!(gathering_time(Duration::from_secs(30)), Duration::from_millis(20));
    }

    #[test]
    fn nothing_is_waited_for_after_a_short_sync_or_for_a_single_task() {
        let mut gathering = Gathering::default();
        for _ in 0..10 {
            assert_eq!(gathering.begin(GATHERED_FROM / 2, 1000, 0), 1);
            assert_eq!(gathering.begin(SYNC, 1, 5), 1);
            gathering.end(0);
        }
        assert_eq!(gathering.begin(SYNC, 2, 0), 2, "these were no waits that failed");
    }
}
