//! Looks at the files of a filter that other processes may have open.

use crate::error::{Error, Result};
use crate::locks::session::Sessions;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::recovery::history::History;
use crate::recovery::{Listing, LogExtent};
use std::time::Duration;

/// The time to wait for processes that open, recover or close the filter.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of times a look starts over because listed files were removed.
const TRIES: u32 = 20;
/// A look at a filter's files.
pub(crate) struct Look {
    /// Keeps others from opening the filter, unless a process has it open anyway. `None` if there
    /// is no file `lock`.
    pub(crate) locks: Option<Sessions>,
    pub(crate) known: LogExtent,
}

impl Look {
    pub(crate) fn begin(media: &dyn Media, meta: &Meta) -> Result<Self> {
        let locks = match Sessions::open(media, Access::Read) {
            Err(error) if error.is_not_found() => None,
            opened => Some(opened?),
        };
        let Some(locks) = locks else {
            return Ok(Self { locks: None, known: LogExtent::of_the_dead(media, meta.uuid)? });
        };
        if !locks.wait_opening(Access::Read, PATIENCE)? {
            return Err(Error::Locked { path: media.path().to_path_buf() });
        }
        let known = if locks.anyone_else()? {
            locks.end_opening()?;
            LogExtent::of_the_living(media, meta.uuid)?
        } else {
            LogExtent::of_the_dead(media, meta.uuid)?
        };
        Ok(Self { locks: Some(locks), known })
    }

    /// Shows processes that wait to open the filter that the look progresses.
    pub(crate) fn note_progress(&self) {
        if let Some(locks) = &self.locks {
            locks.note_progress();
        }
    }
}

/// Examines a filter's files, and retries if some were removed meanwhile: processes that have the
/// filter open remove files they no longer need.
pub(crate) fn look<T>(
    media: &dyn Media,
    meta: &Meta,
    mut at: impl FnMut(LogExtent) -> Result<T>,
) -> Result<T> {
    let mut left = TRIES;
    loop {
        let look = Look::begin(media, meta)?;
        left -= 1;
        match at(look.known) {
            Err(error) if left > 0 && may_have_gone(&error, look.known) => {}
            done => return done,
        }
    }
}

/// Returns whether an error may come from files that were removed while they were examined. Writers
/// remove files they no longer need, and a listing may contain a file but not the one before it.
fn may_have_gone(error: &Error, known: LogExtent) -> bool {
    let gone = match error {
        Error::Damaged { .. } => true,
        error => error.is_not_found(),
    };
    gone && matches!(known, LogExtent::Living { .. })
}

/// Opens the log without the segments that are no longer needed and that the next checkpoint
/// removes.
pub(crate) fn needed_log(media: &dyn Media, listing: &Listing, meta: &Meta) -> Result<History> {
    let segments = listing.segments_needed().to_vec();
    let needed = Listing { segments, ..Listing::default() };
    let mut history = History::open(media, &needed, meta.uuid)?;
    // Writers may remove files meanwhile.
    history.hold(media, 0)?;
    Ok(history)
}
