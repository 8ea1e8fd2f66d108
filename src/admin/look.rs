//! Looks at the files of a filter that other processes may have open, or may open meanwhile.
//!
//! A look takes no lock, so nobody ever waits for it, wherever it is stopped. In place of a lock it
//! checks at its end that nobody has opened the filter since it began; otherwise it begins anew.

use crate::engine::lifecycle::open::read_meta;
use crate::error::{Error, Result};
use crate::image::previous_image;
use crate::image::unmapped_sessions::Handles;
use crate::locks::holder_names::locked;
use crate::locks::image_in_use::is_in_use;
use crate::locks::session_slots::Sessions;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::recovery::log_reader::LogReader;
use crate::recovery::{KnownExtent, Listing};
use std::time::Duration;

/// The time to wait for processes that open, recover or close the filter.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The number of times a look starts over, because files were removed or the filter was opened.
const TRIES: u32 = 20;

/// A look at a filter's files.
pub(crate) struct Look {
    /// `None` if there is no file `lock`.
    pub(crate) locks: Option<Sessions>,
    pub(crate) known: KnownExtent,
    /// What each opening changes.
    openings: Openings,
}

/// The timeline of the file `live`, and how often handles have taken session slots in it: each
/// opening without other handles begins a new one, each other one is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Openings {
    timeline: Option<u64>,
    count: u64,
}

impl Openings {
    fn of(media: &dyn Media, uuid: u128) -> Result<Self> {
        let timeline = previous_image::timeline(media, uuid)?;
        let handles = Handles::read(media, uuid)?;
        Ok(Self { timeline, count: handles.map_or(0, |handles| handles.openings()) })
    }
}

/// Opens the file `lock`, if there is one.
fn sessions(media: &dyn Media) -> Result<Option<Sessions>> {
    match Sessions::open(media, Access::Read) {
        Err(error) if error.is_not_found() => Ok(None),
        opened => opened.map(Some),
    }
}

impl Look {
    /// Begins a look, when nobody is opening or closing the filter.
    pub(crate) fn begin(media: &dyn Media, meta: &Meta) -> Result<Self> {
        Self::begin_within(media, meta, PATIENCE)
    }

    fn begin_within(media: &dyn Media, meta: &Meta, patience: Duration) -> Result<Self> {
        let locks = sessions(media)?;
        // Before anything else is read: see `is_over`.
        let openings = loop {
            if let Some(locks) = &locks
                && !locks.wait_until_unopened(patience)?
            {
                return Err(locked(media.path()));
            }
            let openings = Openings::of(media, meta.uuid)?;
            match &locks {
                // Whoever counts already, but has no slot yet, would not be seen.
                Some(locks) if locks.is_being_opened()? => {}
                _ => break openings,
            }
        };
        let known = match &locks {
            Some(locks) if is_in_use(media, meta.uuid, locks)? => {
                KnownExtent::of_the_living(media, meta.uuid)?
            }
            _ => KnownExtent::of_the_dead(media, meta.uuid)?,
        };
        Ok(Self { locks, known, openings })
    }

    /// Returns whether a process has begun to open the filter since this look began, so that what
    /// was read may be of two states. A look at a filter that is open anyway never is over: writers
    /// do not change what it reads.
    ///
    /// An opener holds the opening byte until it has a session slot. By then its timeline is in
    /// `live`, or, if it joined others, it is counted there. So it is seen by the byte, by the
    /// slot, by the timeline or by the count, whatever it has done, and whether it lives, and those
    /// that it joined. One that died before that has changed nothing that counts.
    pub(crate) fn is_over(&self, media: &dyn Media, meta: &Meta) -> Result<bool> {
        if let KnownExtent::WritersLive { .. } = self.known {
            return Ok(false);
        }
        let busy = match sessions(media)? {
            Some(locks) => locks.is_being_opened()? || is_in_use(media, meta.uuid, &locks)?,
            None => false,
        };
        Ok(busy || Openings::of(media, meta.uuid)? != self.openings)
    }
}

impl Look {
    /// Returns what was seen, unless the filter was altered meanwhile.
    fn unaltered<T>(&self, media: &dyn Media, meta: &Meta, seen: Result<T>) -> Result<T> {
        match Meta::read(media) {
            Ok(found) if found.log_uuid != meta.log_uuid && found.uuid == meta.uuid => {
                Err(Error::Retired { path: media.path().to_path_buf(), replaced: false })
            }
            // Of any other error the next look tells.
            _ => seen,
        }
    }
}

/// Examines a filter's files, and begins anew if some were removed meanwhile, or if the filter was
/// opened: processes that have it open remove files they no longer need.
///
/// # Errors
/// As [`look_within`].
pub(crate) fn look<T>(
    media: &dyn Media,
    meta: &Meta,
    at: impl FnMut(KnownExtent) -> Result<T>,
) -> Result<T> {
    look_within(media, meta, PATIENCE, at)
}

/// As [`look`], of the filter as it is then: an alteration meanwhile begins it anew, with the new
/// `meta`.
///
/// # Errors
/// [`Error::NotAFilter`], [`Error::Locked`], [`Error::Damaged`], [`Error::Version`], [`Error::Io`],
/// and errors of `at`.
pub(crate) fn look_at<T>(
    media: &dyn Media,
    mut at: impl FnMut(&Meta, KnownExtent) -> Result<T>,
) -> Result<T> {
    for _ in 0..TRIES {
        let meta = read_meta(media)?;
        match look(media, &meta, |known| at(&meta, known)) {
            Err(Error::Retired { replaced: false, .. }) => {}
            seen => return seen,
        }
    }
    Err(locked(media.path()))
}

/// As [`look`], but waits only so long for a process that opens or closes the filter.
///
/// # Errors
/// [`Error::Retired`] if the filter has another `meta` by now, because it was altered; errors of
/// `at`.
pub(crate) fn look_within<T>(
    media: &dyn Media,
    meta: &Meta,
    patience: Duration,
    mut at: impl FnMut(KnownExtent) -> Result<T>,
) -> Result<T> {
    for _ in 1..TRIES {
        let look = Look::begin_within(media, meta, patience)?;
        let seen = at(look.known);
        match &seen {
            Err(error) if may_have_gone(error, look.known) => {}
            _ if look.is_over(media, meta)? => {}
            _ => return look.unaltered(media, meta, seen),
        }
    }
    let look = Look::begin_within(media, meta, patience)?;
    let seen = at(look.known);
    if look.is_over(media, meta)? {
        return Err(locked(media.path()));
    }
    look.unaltered(media, meta, seen)
}

/// Returns whether an error may come from files that were removed while they were examined. Writers
/// remove files they no longer need, and a listing may contain a file but not the one before it.
fn may_have_gone(error: &Error, known: KnownExtent) -> bool {
    let gone = match error {
        Error::Damaged { .. } => true,
        error => error.is_not_found(),
    };
    gone && matches!(known, KnownExtent::WritersLive { .. })
}

/// Opens the log without the segments that are no longer needed and that the next checkpoint
/// removes.
pub(crate) fn needed_log(media: &dyn Media, listing: &Listing, meta: &Meta) -> Result<LogReader> {
    let segments = listing.segments_needed().to_vec();
    let needed = Listing { segments, ..Listing::default() };
    let mut history = LogReader::open(media, &needed, meta.log_uuid)?;
    // Writers may remove files meanwhile.
    history.hold(media, 0)?;
    Ok(history)
}
