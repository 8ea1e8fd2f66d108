//! When a checkpoint is due: once the log since the newest snapshot has gathered enough bytes.
//!
//! How many is an [option](crate::Options::checkpoint_bytes), by default in proportion to the
//! filter. `checkpoint` writes a snapshot when it is due, `backpressure` makes writers wait when it
//! is overdue.

use crate::engine::shared::Shared;
use crate::wal::log_record::RECORD_BYTES;

/// Returns the bytes of log that make a checkpoint due.
pub(crate) fn bytes(shared: &Shared) -> u64 {
    shared.options.checkpoint_due(shared.image.memory_bytes())
}

/// Returns whether the log since the newest snapshot is more than `times` the amount that makes a
/// checkpoint due.
pub(crate) fn is_due(shared: &Shared, times: u64) -> bool {
    let header = shared.header();
    let newest = header.snapshot().hint().max(1);
    let tail = header.tail().hint();
    let gathered = tail.saturating_sub(newest).saturating_mul(RECORD_BYTES);
    gathered > bytes(shared).saturating_mul(times)
}
