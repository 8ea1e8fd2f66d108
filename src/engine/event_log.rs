//! Single records under stripe 0: heartbeats and clears. Events are records of batches.

use crate::engine::log_writer::LogWriter;
use crate::engine::shared::{Local, Shared};
use crate::engine::stripes::StripeLocks;
use crate::engine::time::Time;
use crate::engine::wakeup::TICK;
use crate::error::Result;
use crate::locks::stripes::StripeGuard;
use crate::wal::{Op, Record};
use std::sync::Arc;

/// The records of a handle under stripe 0.
#[derive(Debug)]
pub struct EventLog {
    shared: Arc<Shared>,
    time: Arc<Time>,
    log_writer: Arc<LogWriter>,
    stripes: Arc<StripeLocks>,
}

impl EventLog {
    /// Creates the records of a handle.
    pub(crate) fn new(
        shared: Arc<Shared>,
        time: Arc<Time>,
        log_writer: Arc<LogWriter>,
        stripes: Arc<StripeLocks>,
    ) -> Self {
        Self { shared, time, log_writer, stripes }
    }

    /// Announces the record for a process that takes stripe 0 over, then appends it. The caller
    /// applies it, and then [ends](crate::image::words::EventsFrom::end) the announcement. If there
    /// is no room, [`LogWriter::make_room`] makes some or returns the reason.
    pub(crate) fn append(
        &self,
        stripe: &mut StripeGuard<'_, Local>,
        record: &Record,
    ) -> Option<u64> {
        let header = self.shared.image.header();
        header.events_from().announce(header.tail().hint());
        let lsn = self.log_writer.append(&mut stripe.segment, record);
        if lsn.is_none() {
            header.events_from().end();
        }
        lsn
    }

    /// Records that the filter was alive now, unless another process just did.
    pub(crate) fn heartbeat(&self) -> Result<()> {
        let (stamp, latest) = (self.time.now(), self.time.latest());
        // Nothing has happened yet, or time comes with the keys: there is no lifetime to record.
        let lives = latest.time > 0 && !stamp.stream;
        let fresh = u128::from(stamp.time.saturating_sub(latest.time)) < TICK.as_micros() / 2;
        if !lives || fresh {
            return Ok(());
        }
        let Some(mut stripe) = self.stripes.lock_events() else { return Ok(()) };
        // Under the stripe: what its dead owner left may have just been found to be beyond repair.
        if self.shared.image.header().refuses() {
            return Ok(());
        }
        let record =
            Record { time: stamp.time, stream: stamp.stream, ..Record::new(Op::Heartbeat) };
        // If there is no room, the next insert makes some; a heartbeat can wait.
        if let Some(lsn) = self.append(&mut stripe, &record) {
            stripe.entry().note(lsn, stamp.word());
            self.shared.image.header().events_from().end();
            self.time.raise(stamp.word());
        }
        Ok(())
    }
}
