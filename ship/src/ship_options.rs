//! How a filter is shipped, as the caller chooses it.

use std::time::Duration;

/// The log since the start of a snapshot from which on a new one is shipped, at least.
const SNAPSHOT_LOG_BYTES: u64 = 1 << 20;

/// How a filter is shipped.
#[derive(Debug, Clone)]
pub struct ShipOptions {
    /// Begins although the directory cannot be shown to have what the store has: what only the
    /// store has is discarded.
    pub take_over: bool,
    /// How long snapshots and log stay in the store beyond the two newest snapshots.
    pub keep: Duration,
    /// A snapshot is shipped when the log since the one before is longer than this and than the
    /// snapshot.
    pub snapshot_log_bytes: u64,
}

impl Default for ShipOptions {
    fn default() -> Self {
        Self { take_over: false, keep: Duration::ZERO, snapshot_log_bytes: SNAPSHOT_LOG_BYTES }
    }
}
