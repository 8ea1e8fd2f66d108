//! A full disk, as a writer meets it: frees space, or waits for a checkpoint that does.
//!
//! That checkpoint may also take the space of what `reclaim` calls the fallback base. A filter is
//! opened on a full disk by `open_on_full_disk`.

use crate::engine::backpressure::Backpressure;
use crate::engine::shared::Shared;
use crate::error::{Error, Result};

/// Makes space if an attempt failed on a full disk: removes the oldest part of the log that is
/// only kept, or requests a checkpoint, which removes log. Otherwise returns the error.
pub(crate) fn make_space(
    (shared, backpressure): (&Shared, &Backpressure),
    error: Error,
    waited: &mut Waited,
) -> Result<()> {
    if error.is_full() && shared.remove_oldest_kept()? {
        return Ok(());
    }
    // Before the request: the checkpoint may be written before this thread continues.
    let newest = shared.header().snapshot().hint();
    if error.is_full() && waited.may_repeat(newest) && backpressure.request() {
        waited.note(newest);
        return Ok(());
    }
    Err(error)
}

/// A caller's waits for a checkpoint, on a full disk.
#[derive(Debug, Default)]
pub(crate) struct Waited {
    /// The newest snapshot when the last wait began.
    newest: u64,
    /// How many waits began with that snapshot.
    times: u32,
}

impl Waited {
    /// Twice: the checkpoint that ends the first wait may have begun before it, and then removes
    /// less log.
    const MOST: u32 = 2;

    /// Returns whether the caller has waited for any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.times > 0
    }

    fn may_repeat(&self, newest: u64) -> bool {
        self.newest != newest || self.times < Self::MOST
    }

    fn note(&mut self, newest: u64) {
        self.times = if self.newest == newest { self.times + 1 } else { 1 };
        self.newest = newest;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_caller_without_space_waits_for_two_checkpoints_after_each_snapshot() {
        let mut waited = Waited::default();
        assert!(!waited.any());
        for newest in [0, 7, 9] {
            for _ in 0..2 {
                assert!(waited.may_repeat(newest));
                waited.note(newest);
                assert!(waited.any());
            }
            assert!(!waited.may_repeat(newest));
        }
    }
}
