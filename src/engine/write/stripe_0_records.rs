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
    loop {
        let Some(mut stripe) = writer.stripes.lock_stripe_0() else { return Ok(()) };
        // Under the stripe: the repair after a dead owner may just have poisoned the filter.
        if writer.shared.header().refuses() {
            return Ok(());
        }
        let Err(lack) = append_heartbeat(writer, &mut stripe, stamp) else { return Ok(()) };
        drop(stripe);
        // No insert may ever come that makes room.
        writer.log_space.extend(lack.end)?;
    }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::{
        Clock, Downtime, Durability, Filter, ManualClock, Options, TimeLimited, Timestamp,
    };
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_filter_that_is_only_queried_keeps_its_heartbeats_however_long_it_is_open() {
        const HOUR: u64 = 3600;
        let memory = Arc::new(Memory::new());
        let hand = ManualClock::new(Timestamp::from_unix_micros(1 << 50));
        let options = Options::new().background(false).durability(Durability::Never);
        let options = options.downtime(Downtime::Freeze).clock(Clock::from(hand.clone()));
        let spec = TimeLimited::window(Duration::from_secs(HOUR));
        let filter = Filter::create_on(memory.clone(), spec, options.clone()).expect("a filter");
        assert!(filter.insert("a key").expect("an insert"));
        filter.close().expect("a clean end");
        let open = || Filter::<TimeLimited>::open_on(memory.clone(), options.clone());
        let filter = open().expect("the filter");
        for _ in 0..2 * HOUR {
            hand.advance(Duration::from_secs(1));
            heartbeat(&filter.engine().writer).expect("room");
        }
        assert!(!filter.contains("a key").expect("an answer"));
        // The process dies, or closes it.
        drop(filter);
        let again = open().expect("the filter");
        assert!(!again.contains("a key").expect("an answer"), "it was open for two hours");
    }
}
