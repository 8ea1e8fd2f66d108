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
//! [`group_commit`]: crate::engine::group_commit

use crate::engine::background_threads::{self, Registered};
use crate::engine::group_commit::GroupCommit;
use crate::engine::shared::Shared;
use crate::engine::task::{Task, Work};
use crate::engine::waiters::{Key, Waiters};
use crate::error::{Error, Result};
use crate::sync::{Hint, Instant, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The sleep of a task that nobody waits for; whoever begins to wait wakes it.
const LONG: Duration = Duration::from_secs(3600);

/// The tickets of a handle.
#[derive(Debug)]
pub struct Tickets {
    shared: Arc<Shared>,
    commits: Arc<GroupCommit>,
    waiters: Waiters,
    /// What syncing failed with, for the ticket for which it was tried.
    failed: Mutex<BTreeMap<Key, Error>>,
    task: Mutex<SyncTask>,
    last_number: Hint,
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
            waiters: Waiters::default(),
            failed: Mutex::default(),
            task: Mutex::new(SyncTask::Unneeded),
            last_number: Hint::default(),
        }
    }

    /// Returns a ticket for the durability of all records up to this LSN.
    pub(crate) fn issue(&self, lsn: u64) -> Key {
        (lsn, self.last_number.next())
    }

    /// Returns whether the ticket's records are durable.
    pub(crate) fn is_durable(&self, (lsn, _): Key) -> Result<bool> {
        self.shared.check_process()?;
        Ok(self.shared.durable() > lsn)
    }

    /// Waits until the ticket's records are durable.
    pub(crate) fn wait(&self, (lsn, _): Key) -> Result<()> {
        self.shared.check_process()?;
        self.commits.commit_applied(lsn.saturating_add(1))
    }

    /// Returns whether the ticket's records are durable, or why they are not; or keeps the waker
    /// until that is known.
    pub(crate) fn poll(self: &Arc<Self>, ticket: Key, context: &Context<'_>) -> Poll<Result<()>> {
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
    fn answer(&self, ticket: Key) -> Result<Option<()>> {
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
    pub(crate) fn leave(&self, ticket: Key) {
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
            let started = background_threads::register(Work::Syncs, self.clone());
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

    /// Answers all tickets: nothing will be synced any more.
    pub(crate) fn end(&self) {
        *self.task.lock() = SyncTask::Ended;
        self.waiters.wake_below(u64::MAX);
    }
}

impl Task for Tickets {
    fn run(&self) -> Instant {
        let Some(highest) = self.waiters.highest() else { return Instant::now() + LONG };
        let synced = match self.shared.enter() {
            Ok(_busy) => self.commits.commit(highest.saturating_add(1)),
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
                // Each ticket gets the error of an attempt of its own.
                self.waiters.wake_first(|ticket| {
                    self.failed.lock().insert(ticket, error);
                });
                self.shared.durable()
            }
        };
        let any_left = self.waiters.wake_below(end);
        Instant::now() + if any_left { Duration::ZERO } else { LONG }
    }
}
