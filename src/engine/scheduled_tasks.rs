//! The background tasks of a schedule, in the place of `background_threads`: the harness runs each
//! in a thread of its own, when it likes, whether or not the task is due or was woken.

use crate::engine::task::{Task, Work};
use crate::sync::{Instant, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// A task that the harness runs until it is removed.
#[derive(Clone)]
pub(crate) struct Registered(Arc<Mutex<Option<Arc<dyn Task>>>>);

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registered")
    }
}

impl Registered {
    /// Runs the task once. Returns the time until it is due, or `None` if it was removed.
    pub(crate) fn run(&self) -> Option<Duration> {
        let task = self.0.lock();
        let due = task.as_ref()?.run();
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Nothing: the harness may run it anyway.
    pub(crate) fn wake(&self) {}

    /// Removes the task, and waits until it has finished running.
    pub(crate) fn remove(&self) {
        let task = self.0.lock().take();
        // It may be the last reference to a filter.
        drop(task);
    }

    /// As [`Registered::remove`]: no task of a schedule waits for its remover.
    pub(crate) fn dismiss(&self) {
        self.remove();
    }
}

/// Makes a task for the harness.
pub(crate) fn register(_work: Work, task: Arc<dyn Task>) -> std::io::Result<Registered> {
    Ok(Registered(Arc::new(Mutex::new(Some(task)))))
}

/// Returns the next tick of the period `every`.
pub(crate) fn next_tick(now: Instant, every: Duration) -> Instant {
    now.next_tick(every)
}
