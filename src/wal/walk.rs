//! How far the log is complete: the walk over last words that precedes every sync.
//!
//! A place that stays empty for [`PATIENCE`] is voided, whoever owns it: a killed or stopped writer holds
//! up nobody. A writer that comes too late finds its swap failing and reserves again.

use super::segment::Segment;
use crate::sync::{self, Instant, patience};
use std::sync::Arc;
use std::time::Duration;

/// How long a reserved place may stay empty before anyone may void it.
pub const PATIENCE: Duration = patience(Duration::from_millis(10));

/// Waits until every place from `from` up to `to` is published or voided.
///
/// `segments` are those from `from` on; places that they do not hold are passed over.
pub fn complete(segments: &[Arc<Segment>], from: u64, to: u64) {
    // One clock for all: a process that died or was stopped may have left many holes.
    let mut start = None;
    for segment in segments {
        for lsn in from.max(segment.first())..to.min(segment.end()) {
            if !segment.is_complete(lsn) {
                wait_or_void(segment, lsn, *start.get_or_insert_with(Instant::now));
            }
        }
    }
}

fn wait_or_void(segment: &Segment, lsn: u64, start: Instant) {
    while !segment.is_complete(lsn) {
        if start.elapsed() >= PATIENCE {
            segment.void(lsn);
        } else if start.elapsed() > PATIENCE / 100 {
            sync::yield_now();
        } else {
            sync::spin_hint();
        }
    }
}
