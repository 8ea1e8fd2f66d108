//! The parameters that a filter had before it was altered.
//!
//! An alteration replaces `meta`. The former `meta` stays as long as log from before the alteration
//! does, under a name with the LSN at which its parameters ended.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::Media;
use crate::meta::Meta;
use crate::recovery::Listing;
use crate::recovery::listing::KeptMeta;

const REMEDY: &str = "the filter does not need this file, only questions about moments before that \
                      alteration do: ask about later ones, or put the `meta` of a backup from that \
                      time in its place; it is removed with the log that it belongs to";

/// A part of a filter's log in which its parameters did not change.
#[derive(Debug, Clone)]
pub struct Revision {
    /// The parameters.
    pub meta: Meta,
    /// The LSN of the first record that is not of it; `None` for the present one.
    pub end: Option<u64>,
}

impl Revision {
    /// Returns the revision that has the present parameters.
    #[must_use]
    pub fn present(meta: &Meta) -> Self {
        Self { meta: meta.clone(), end: None }
    }

    /// Returns whether a record of this LSN is of this revision, or of one before.
    #[must_use]
    pub fn reaches(&self, lsn: u64) -> bool {
        self.end.is_none_or(|end| lsn < end)
    }
}

/// The revisions of a filter, as far as its former files `meta` are sound.
#[derive(Debug)]
pub struct Revisions {
    /// Those that can be read, the oldest first. The last one is the present.
    pub readable: Vec<Revision>,
    /// The LSN at which the last one ended that cannot be read; 0 if there is none. No log leads
    /// from below it to the present.
    pub lost_below: u64,
}

impl Revisions {
    /// Reads the revisions of a filter; `now` is its `meta`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(media: &dyn Media, now: &Meta) -> Result<Self> {
        let (mut readable, mut lost_below) = (Vec::new(), 0);
        for kept in Listing::read(media)?.kept_metas {
            match read_kept(media, kept) {
                // It was written by an alteration that did not come to its end.
                Ok(meta) if meta.log_uuid == now.log_uuid || meta.uuid != now.uuid => {}
                Ok(meta) => readable.push(Revision { meta, end: Some(kept.until) }),
                // It was removed meanwhile.
                Err(Error::NotAFilter { .. }) => {}
                Err(error) if error.is_unreadable() => lost_below = kept.until,
                Err(error) => return Err(error),
            }
        }
        readable.push(Revision::present(now));
        Ok(Self { readable, lost_below })
    }

    /// Returns those of the log that leads to the present.
    #[must_use]
    pub fn joined(mut self) -> Vec<Revision> {
        self.readable.retain(|revision| revision.end.is_none_or(|end| end > self.lost_below));
        self.readable
    }
}

/// Reads a former `meta`.
///
/// # Errors
/// [`Error::NotAFilter`] if it is gone, [`Error::Damaged`], [`Error::Version`], [`Error::Io`].
pub fn read_kept(media: &dyn Media, KeptMeta { since, until }: KeptMeta) -> Result<Meta> {
    match Meta::read_named(media, FileName::KeptMeta { since, until }) {
        Err(Error::Damaged { path, offset, expected, found, .. }) => {
            Err(Error::Damaged { path, offset, expected, found, remedy: REMEDY })
        }
        read => read,
    }
}

/// Returns the revisions of the log that leads to the present, oldest first; `now` is the filter's
/// `meta`. Of what lies before a former `meta` that is damaged or missing, no moment can be asked.
///
/// # Errors
/// [`Error::Io`].
pub fn revisions(media: &dyn Media, now: &Meta) -> Result<Vec<Revision>> {
    Ok(Revisions::read(media, now)?.joined())
}

/// Returns the first of these revisions that an LSN is of.
#[must_use]
pub fn revision_of(revisions: &[Revision], lsn: u64) -> Option<&Revision> {
    revisions.iter().find(|revision| revision.reaches(lsn))
}
