//! Clearing a filter: removes all keys in one step, while others have it open.
//!
//! The protocol is in `docs/protocols/image.md`. All stripes are held, so no insert is in progress.
//! The record comes first; then the state block lists a new, empty bank in the place of the old
//! ones; then the filter's sums and those of each stripe are cleared, stripe 0 first. If the
//! clearing process dies, processes that take over its stripes complete the same steps in the same
//! order.

use crate::engine::shared::Local;
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::stripe_0_records;
use crate::engine::write::writer::Writer;
use crate::error::Result;
use crate::image::apply_record;
use crate::locks::handle_stripes::StripeGuard;
use crate::wal::{Op, Record};

/// Removes all keys, durably. Writers wait meanwhile. `recorded` is the time that another filter's
/// log has, for one that takes its operations.
///
/// # Errors
/// [`crate::Error::Io`] (a full disk): nothing has changed. [`crate::Error::Poisoned`].
pub(crate) fn clear(writer: &Writer, recorded: Option<Stamp>) -> Result<()> {
    writer.shared.check_process()?;
    loop {
        let mut held = writer.stripes.lock_all()?;
        // Another filter's bank in this directory may have the same name. Checked now, because the
        // wait for a stripe has no limit.
        writer.shared.check_directory()?;
        writer.shared.check_writable()?;
        let end = writer.shared.log.mapped_end();
        let cleared = clear_held(writer, recorded, &mut held);
        drop(held);
        match cleared {
            Ok(Some(lsn)) => return writer.commits.commit_within(lsn.saturating_add(1)),
            Ok(None) => writer.log_space.extend(end)?,
            Err(error) if error.is_full() && writer.shared.remove_oldest_kept()? => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns `None` without room in the log; then nothing has happened. `held` are all stripes,
/// stripe 0 the last.
fn clear_held(
    writer: &Writer,
    recorded: Option<Stamp>,
    held: &mut [StripeGuard<'_, Local>],
) -> Result<Option<u64>> {
    let time = recorded.map_or_else(|| writer.time.stamp(None), Ok)?;
    let cleared = writer.shared.image.prepare_clear(writer.shared.kind())?;
    let record = Record { time: time.time, stream: time.stream, ..Record::new(Op::Clear) };
    let Some(stripe_0) = held.last_mut() else { return Ok(None) };
    let Ok(lsn) = stripe_0_records::append(writer, stripe_0, &record) else { return Ok(None) };
    let (image, time) = (&writer.shared.image, time.word());
    image.clear_state(lsn, &cleared);
    for index in 0..image.header().stripe_count() {
        apply_record::clear_stripe(image, index, lsn, time);
    }
    image.header().events_from().end();
    writer.time.raise(time);
    Ok(Some(lsn))
}
