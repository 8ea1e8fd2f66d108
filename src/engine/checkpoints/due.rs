//! When a checkpoint is due: once the log since the newest snapshot has gathered enough bytes.
//!
//! How many is an [option](crate::Options::checkpoint_bytes), by default in proportion to the
//! filter. `checkpoint` writes a snapshot when it is due, `open` when earlier handles left too much
//! log; `backpressure` makes writers wait when it is overdue.

use crate::engine::shared::Shared;
use crate::wal::log_record::RECORD_BYTES;

/// At this multiple of the log that makes a checkpoint due, writers wait for it.
pub(crate) const RESTRAINED: u64 = 2;
/// At this multiple, callers no longer wait for a checkpoint of another process.
pub(crate) const OVERDUE: u64 = 4;
/// An opener writes a snapshot if more timelines than this have log since the newest one.
const TIMELINES_MOST: u64 = 16;
/// An opener also writes one if the log exceeds what makes a checkpoint due by this many segments.
const SEGMENTS_BESIDE: u64 = 3;

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

/// Returns whether the log since the newest snapshot has enough timelines, or takes enough bytes,
/// to require a checkpoint by the opener: earlier handles died before they wrote one.
pub(crate) fn is_crowded(shared: &Shared, (timelines, taken): (u64, u64)) -> bool {
    let segment = shared.log.header_of(shared.header().timeline_start()).bytes();
    timelines > TIMELINES_MOST
        || taken > bytes(shared).saturating_add(segment.saturating_mul(SEGMENTS_BESIDE))
}
