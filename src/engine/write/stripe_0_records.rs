//! Single records under stripe 0: heartbeats, clears and records of claims. Events are records of
//! batches.

use crate::engine::background::wakeup::TICK;
use crate::engine::log::append::Lack;
use crate::engine::shared::Local;
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::writer::Writer;
use crate::error::Result;
use crate::locks::handle_stripes::StripeGuard;
use crate::wal::{Op, Record};

/// Announces the record for a process that takes stripe 0 over, then appends it. The caller applies
/// it, and then [ends](crate::image::words::EventsFrom::end) the announcement.
pub(crate) fn append(
    writer: &Writer,
    stripe_0: &mut StripeGuard<'_, Local>,
    record: &Record,
) -> std::result::Result<u64, Lack> {
    let header = writer.shared.header();
    header.events_from().announce(header.tail().hint());
    let lsn = writer.log_writer.append(&mut stripe_0.segment, record);
    if lsn.is_err() {
        header.events_from().end();
    }
    lsn
}

/// Records that the filter was alive now, unless another process just did.
pub(crate) fn heartbeat(writer: &Writer) -> Result<()> {
    let Some(stamp) = writer.time.alive() else { return Ok(()) };
    let latest = writer.time.latest();
    if u128::from(stamp.time.saturating_sub(latest.time)) < TICK.as_micros() / 2 {
        return Ok(());
    }
    let Some(mut stripe) = writer.stripes.lock_stripe_0() else { return Ok(()) };
    // Under the stripe: the repair after a dead owner may just have poisoned the filter.
    if writer.shared.header().refuses() {
        return Ok(());
    }
    // If there is no room, the next insert makes some; a heartbeat can wait.
    let _ = append_heartbeat(writer, &mut stripe, stamp);
    Ok(())
}

/// Appends a heartbeat and applies it.
pub(crate) fn append_heartbeat(
    writer: &Writer,
    stripe_0: &mut StripeGuard<'_, Local>,
    at: Stamp,
) -> std::result::Result<u64, Lack> {
    let record = Record { time: at.time, stream: at.stream, ..Record::new(Op::Heartbeat) };
    let lsn = append(writer, stripe_0, &record)?;
    stripe_0.entry().note(lsn, at.word());
    writer.shared.header().events_from().end();
    writer.time.raise(at.word());
    Ok(lsn)
}
