//! The list of tickets that wait for a sync, each with the waker of whoever awaits it.
//!
//! The sync task sets a threshold, usually 1. The ticket that reaches it wakes the task, unless the
//! task is awake already, because then it reads the list again before it sleeps. With a higher
//! threshold it also sleeps for a bounded time only. So it reads the list after every ticket that
//! has joined. It wakes tickets only after it has raised the durable end above them.
//!
//! A ticket joins only if it finds, under the list's lock, that its answer is not known yet.
//! Closing makes the answers of all tickets known first, and then takes the lock to wake those in
//! the list. So either it finds the ticket there, or the ticket finds its answer.
//!
//! Modelled in `tests/loom/ticket_list.rs`.

use crate::primitives::Mutex;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};

/// A ticket: the LSN that must become durable, and a number that no other ticket of the handle has.
pub type TicketId = (u64, u64);

/// The tickets of a handle that wait.
#[derive(Debug, Default)]
pub struct TicketList {
    list: Mutex<List>,
}

#[derive(Debug)]
struct List {
    wakers: BTreeMap<TicketId, Waker>,
    /// The task that syncs is woken when this many tickets wait; `None` from then on, until it has
    /// read the list.
    wanted: Option<usize>,
}

impl Default for List {
    fn default() -> Self {
        Self { wakers: BTreeMap::new(), wanted: Some(1) }
    }
}

impl List {
    /// Returns whether as many tickets wait as the task has asked for; if so, notes that the task
    /// is awake.
    fn is_complete(&mut self) -> bool {
        let complete = self.wanted.is_some_and(|wanted| self.wakers.len() >= wanted);
        if complete {
            self.wanted = None;
        }
        complete
    }
}

impl TicketList {
    /// Returns the answer if there is one; otherwise adds the ticket, or replaces its waker. The
    /// second result is true if the caller must wake the task that syncs.
    pub fn join<T>(
        &self,
        ticket: TicketId,
        waker: &Waker,
        answer: impl FnOnce() -> Option<T>,
    ) -> (Poll<T>, bool) {
        let waker = waker.clone();
        let mut list = self.list.lock();
        let (result, _replaced) = if let Some(answer) = answer() {
            ((Poll::Ready(answer), false), list.wakers.remove(&ticket))
        } else {
            let replaced = list.wakers.insert(ticket, waker);
            ((Poll::Pending, list.is_complete()), replaced)
        };
        // Wakers are dropped without the lock, here and below: a waker may run any code.
        drop(list);
        result
    }

    /// Returns how many tickets wait, and the highest LSN that is waited for, to the task, which is
    /// awake until [`TicketList::wake_below`]. `None` if there are none: the next one wakes it.
    pub fn read(&self) -> Option<(usize, u64)> {
        let mut list = self.list.lock();
        let highest = list.wakers.last_key_value().map(|(&(lsn, _), _)| lsn);
        list.wanted = highest.is_none().then_some(1);
        highest.map(|lsn| (list.wakers.len(), lsn))
    }

    /// Removes a ticket that no longer waits.
    pub fn leave(&self, ticket: TicketId) {
        let left = self.list.lock().wakers.remove(&ticket);
        drop(left);
    }

    /// Removes all tickets without waking them.
    #[cfg(shuttle)]
    pub(crate) fn forget(&self) {
        let left = std::mem::take(&mut self.list.lock().wakers);
        drop(left);
    }

    /// Returns the ticket with the lowest LSN.
    pub fn first(&self) -> Option<TicketId> {
        self.list.lock().wakers.first_key_value().map(|(&ticket, _)| ticket)
    }

    /// Removes a ticket, after `note` has noted its answer, and wakes it. Nothing if it no longer
    /// waits.
    pub fn wake_one(&self, ticket: TicketId, note: impl FnOnce()) {
        let mut list = self.list.lock();
        let Some(waker) = list.wakers.remove(&ticket) else { return };
        note();
        drop(list);
        wake(waker);
    }

    /// Removes and wakes all tickets with an LSN below `end`. `wanted` gets the number of these and
    /// of those left, and returns the new threshold, at least 1: the task is woken once as many
    /// wait. Returns true if as many wait already; the task then runs again.
    pub fn wake_below(&self, end: u64, wanted: impl FnOnce(usize, usize) -> usize) -> bool {
        let mut list = self.list.lock();
        let left = list.wakers.split_off(&(end, 0));
        let ready = std::mem::replace(&mut list.wakers, left);
        // Before any is woken: what its task does next may be waited for.
        list.wanted = Some(wanted(ready.len(), list.wakers.len()).max(1));
        let complete = list.is_complete();
        drop(list);
        ready.into_values().for_each(wake);
        complete
    }
}

/// Wakes a task. A panic of its waker, which the standard library has reported, must not keep other
/// tasks from being woken.
fn wake(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // To drop it may panic, too.
        std::mem::forget(panic);
    }
}
