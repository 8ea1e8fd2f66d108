//! Tickets for operations whose durability the caller awaits later.

use crate::engine::log::ticket_list::TicketId;
use crate::engine::log::tickets::Tickets;
use crate::error::Result;
use crate::primitives::Mutex;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// The answer of an operation that has been done, and the right to learn when it is durable; see
/// [`Filter::issue`](crate::Filter::issue).
///
/// Await it, block with [`Ticket::wait`], or leave a function with [`Ticket::on_durable`]. As a
/// future it works in any async runtime: a background thread of the process, `ebbtide-sync`, syncs
/// for all tickets that are awaited, and no thread of the runtime ever blocks. The thread starts
/// with the first ticket that is awaited, also if the filter was opened without background threads.
///
/// A ticket that is dropped cancels nothing. The operation stays, and becomes durable with the next
/// sync for whatever reason, at the latest when the filter is closed.
#[must_use = "the operation is done, but survives a power cut only once its ticket is durable"]
pub struct Ticket<T> {
    tickets: Arc<Tickets>,
    key: TicketId,
    /// Taken when the future ends.
    answer: Option<T>,
    /// Whether the ticket may be in the list of those that wait.
    waits: bool,
}

impl<T: fmt::Debug> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ticket = f.debug_struct("Ticket");
        ticket.field("lsn", &self.lsn()).field("answer", &self.answer).finish_non_exhaustive()
    }
}

impl<T> Ticket<T> {
    /// Creates the ticket of operations whose last record has this LSN.
    pub(crate) fn new(tickets: &Arc<Tickets>, lsn: u64, answer: T) -> Self {
        let key = tickets.issue(lsn);
        Self { tickets: tickets.clone(), key, answer: Some(answer), waits: false }
    }

    /// Returns the answer: what the operation returned.
    ///
    /// # Panics
    /// After the ticket was polled to its end as a future.
    #[must_use]
    pub fn answer(&self) -> &T {
        self.answer.as_ref().expect("the ticket was polled to its end, which took the answer")
    }

    /// Returns the LSN of the operation's last record. It is durable once
    /// [`Filter::durable_upto`](crate::Filter::durable_upto) is above it.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.key.0
    }

    /// Returns whether the operation is durable by now; false in a forked child. Costs a few loads.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.tickets.is_durable(self.key).unwrap_or(false)
    }

    /// Blocks until the operation is durable, as a call with
    /// [`Durability::Always`](crate::Durability::Always) does, but a log that cannot be opened does
    /// not poison the filter. Returns the answer.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) if a sync fails;
    /// [`Error::Closed`](crate::Error::Closed) if the filter was closed and that failed;
    /// [`Error::Forked`](crate::Error::Forked); [`Error::Io`](crate::Error::Io) if the log cannot
    /// be opened for a tenth of a second, or, of a future, if the thread that syncs cannot be
    /// started. The operation stays in effect then, but may not survive a power cut.
    ///
    /// # Panics
    /// As [`Ticket::answer`].
    pub fn wait(mut self) -> Result<T> {
        self.tickets.wait(self.key)?;
        Ok(self.take_answer())
    }

    /// Calls a function with the answer as soon as the operation is durable, or with the error of
    /// [`Ticket::wait`]: on the thread `ebbtide-sync`, or at once on this thread if it is durable
    /// already.
    ///
    /// The function may use the filter, and even close it. It should return soon: meanwhile this
    /// thread syncs no filter of the process. It may use [`Ticket::wait`], but must not block on a
    /// ticket as a future, which the same thread answers.
    pub fn on_durable(self, tell: impl FnOnce(Result<T>) + Send + 'static)
    where
        T: Unpin + Send + 'static,
    {
        Arc::new(Callback(Mutex::new(Some((self, tell))))).poll();
    }

    fn take_answer(&mut self) -> T {
        self.answer.take().expect("the ticket was polled to its end before")
    }
}

impl<T: Unpin> Future for Ticket<T> {
    /// The answer, or an error as of [`Ticket::wait`].
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = self.get_mut();
        let polled = ticket.tickets.poll(ticket.key, context);
        ticket.waits = polled.is_pending();
        polled.map(|durable| durable.map(|()| ticket.take_answer()))
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if self.waits {
            self.tickets.leave(self.key);
        }
    }
}

/// A ticket, and the function that waits for it.
struct Callback<T, F>(Mutex<Option<(Ticket<T>, F)>>);

impl<T, F> Callback<T, F>
where
    T: Unpin + Send + 'static,
    F: FnOnce(Result<T>) + Send + 'static,
{
    /// Calls the function if the ticket's end has come.
    fn poll(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        // Locked until the ticket is back: it may be woken before.
        let mut waiting = self.0.lock();
        let Some((mut ticket, tell)) = waiting.take() else { return };
        match Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => *waiting = Some((ticket, tell)),
            Poll::Ready(result) => {
                drop(waiting);
                tell(result);
            }
        }
    }
}

impl<T, F> Wake for Callback<T, F>
where
    T: Unpin + Send + 'static,
    F: FnOnce(Result<T>) + Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}
