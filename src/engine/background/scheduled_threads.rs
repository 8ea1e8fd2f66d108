//! The background tasks of a schedule, in the place of `threads`: the harness runs each
//! in a thread of its own, when it likes. It may run them whether or not they are due, or only if
//! they are due or were woken, as a worker does.

use crate::engine::background::task::{Task, Work};
use crate::primitives::{Instant, Mutex, scheduled, sleep};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How often a thread that removes a task looks whether it still runs.
const PAUSE: Duration = Duration::from_micros(60);

/// A task that the harness runs until it is removed.
#[derive(Clone)]
pub(crate) struct Registered(Arc<Mutex<Entry>>);

struct Entry {
    /// `None` once it was removed.
    task: Option<Arc<dyn Task>>,
    /// A running task is not due, unless it was woken meanwhile.
    due: Option<Instant>,
    is_running: bool,
}

impl Entry {
    /// Makes the task due at a time, unless it is due earlier.
    fn schedule(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |before| before.min(at)));
    }

    /// Returns the time until the task is due.
    fn left(&self) -> Duration {
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()))
    }
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registered")
    }
}

impl Registered {
    /// Runs the task once. Returns the time until it is due, or `None` if it was removed, as one
    /// is that panics.
    pub(crate) fn run(&self) -> Option<Duration> {
        self.run_if(|_| true)
    }

    /// As [`Registered::run`], but only if it is due.
    pub(crate) fn run_if_due(&self) -> Option<Duration> {
        self.run_if(|entry| entry.left().is_zero())
    }

    /// Returns the time until the task is due, none of it if it is running; `None` if it was
    /// removed.
    pub(crate) fn due(&self) -> Option<Duration> {
        let entry = self.0.lock();
        entry.task.as_ref()?;
        Some(if entry.is_running { Duration::ZERO } else { entry.left() })
    }

    fn run_if(&self, is_wanted: impl FnOnce(&Entry) -> bool) -> Option<Duration> {
        let mut entry = self.0.lock();
        let task = entry.task.clone()?;
        if !is_wanted(&entry) {
            return Some(entry.left());
        }
        entry.due = None;
        entry.is_running = true;
        drop(entry);
        let next = catch_unwind(AssertUnwindSafe(|| task.run()));
        // Without the lock: it may be the last reference to a filter.
        drop(task);
        // In a process that has died, this ends the thread.
        let mut entry = self.0.lock();
        entry.is_running = false;
        match next {
            Ok(next) => entry.schedule(next),
            Err(panic) => {
                entry.task = None;
                drop(entry);
                resume_unwind(panic)
            }
        }
        entry.task.is_some().then(|| entry.left())
    }

    /// Makes the task due now.
    pub(crate) fn wake(&self) {
        self.0.lock().schedule(Instant::now());
    }

    /// Removes the task, and waits until it has finished running.
    pub(crate) fn remove(&self) {
        self.dismiss();
        // The threads of a process that has died finish nothing.
        while self.0.lock().is_running && !std::thread::panicking() {
            sleep(PAUSE);
        }
    }

    /// Removes the task without waiting for it: what it runs may wait for the caller.
    pub(crate) fn dismiss(&self) {
        let task = self.0.lock().task.take();
        // It may be the last reference to a filter.
        drop(task);
    }
}

/// Makes a task for the harness, which is due at once.
///
/// # Errors
/// An error of the system if the harness has it start no threads.
pub(crate) fn register(_work: Work, task: Arc<dyn Task>) -> std::io::Result<Registered> {
    if !scheduled::may_start() {
        return Err(std::io::ErrorKind::WouldBlock.into());
    }
    let entry = Entry { task: Some(task), due: Some(Instant::now()), is_running: false };
    Ok(Registered(Arc::new(Mutex::new(entry))))
}

/// Returns the next tick of the period `every`.
pub(crate) fn next_tick(now: Instant, every: Duration) -> Instant {
    now.next_tick(every)
}
