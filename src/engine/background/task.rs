//! What the background threads of a process do for one filter.

use crate::primitives::Instant;

/// The repeated work of a worker for one filter.
pub(crate) trait Task: Send + Sync {
    /// Does the work that is due. Returns when the task is due next.
    fn run(&self) -> Instant;
}

/// The worker that runs a task.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Work that is never slow except for syncs: the log.
    Log,
    /// Checkpoints, which no sync waits for.
    Snapshots,
    /// Syncs that tasks await.
    Syncs,
}
