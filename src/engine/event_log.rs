//! Records under stripe 0: events, heartbeats and clears.

use crate::engine::log_writer::LogWriter;
use crate::engine::shared::{Local, Shared};
use crate::engine::time::{Stamp, Time};
use crate::locks::stripes::StripeGuard;
use crate::wal::{Op, Record};
use std::sync::Arc;

/// The records of a handle under stripe 0.
#[derive(Debug, Clone)]
pub struct EventLog {
    shared: Arc<Shared>,
    time: Arc<Time>,
    log_writer: Arc<LogWriter>,
}

impl EventLog {
    /// Creates the records of a handle.
    pub(crate) fn new(shared: Arc<Shared>, time: Arc<Time>, log_writer: Arc<LogWriter>) -> Self {
        Self { shared, time, log_writer }
    }

    /// Stores the earliest possible slot of the record, for a process that takes stripe 0 over,
    /// then appends the record. If there is no room, [`LogWriter::make_room`] makes some or returns
    /// the reason.
    pub(crate) fn append(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        record: &Record,
    ) -> Option<u64> {
        let header = self.shared.image.header();
        // Checked again: an event of a dead owner that could not be repaired counts for recovery,
        // but has not been applied here.
        if header.refuses() {
            return None;
        }
        header.events_from().announce(header.tail().hint());
        self.log_writer.append(&mut stripe.segment, record)
    }

    /// Appends a heartbeat. Returns whether there was room for it.
    pub(crate) fn append_heartbeat(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        stamp: Stamp,
    ) -> bool {
        let record =
            Record { time: stamp.time, stream: stamp.stream, ..Record::new(Op::Heartbeat) };
        let Some(lsn) = self.append(stripe, &record) else {
            return false;
        };
        let time = stamp.word();
        stripe.entry().note(lsn, time);
        self.time.raise(time);
        true
    }

    /// Makes the recorded events of a dead process count: recovery drops events that no record
    /// follows, because their insert is missing. A heartbeat without a new time is appended after
    /// them.
    pub(crate) fn confirm(&self, stripe: &mut StripeGuard<'_, Local>) {
        loop {
            let (time, end) = (stripe.entry().sums().time, self.shared.log.mapped_end());
            let stamp = Stamp::from_word(time);
            // If no room can be made either, no process can insert. The next process that can
            // insert confirms them by a record that follows.
            if self.append_heartbeat(stripe, stamp) || self.log_writer.make_room(end).is_err() {
                return;
            }
        }
    }
}
