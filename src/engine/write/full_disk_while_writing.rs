//! A full disk, as a writer meets it: frees space, or waits for a checkpoint that does.
//!
//! Other places: `checkpoint` writes its snapshot in the space of log that is only kept, or of the
//! fallback base; `reclaim_disk` removes what it finds no space to keep; `log::space` removes kept
//! log for the next piece of log. `full_disk_at_open` opens a filter on a full disk, also
//! where no image fits (`recovery::snapshot_on_full_disk`).

use crate::engine::checkpoints::backpressure::{Backpressure, Waited};
use crate::engine::shared::Shared;
use crate::error::{Error, Result};

/// Makes space if an attempt failed on a full disk: removes the oldest part of the log that is
/// only kept, or requests a checkpoint, which removes log. Otherwise returns the error.
pub(crate) fn make_space(
    (shared, backpressure): (&Shared, &Backpressure),
    error: Error,
    waited: &mut Waited,
) -> Result<()> {
    if !error.is_full() {
        return Err(error);
    }
    // Closing waits until this is done.
    let _busy = shared.enter()?;
    if shared.remove_oldest_kept()? {
        return Ok(());
    }
    // Before the request: the checkpoint may be written before this thread continues.
    let newest = shared.header().snapshot().hint();
    if waited.may_repeat(newest) && backpressure.request(true) {
        waited.note(newest);
        return Ok(());
    }
    Err(error)
}
