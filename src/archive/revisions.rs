//! The parameters that a filter had before it was altered.
//!
//! An alteration replaces `meta`. The former one is kept, under a name with the LSN at which its
//! parameters ended, as long as log from before is.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::Media;
use crate::meta::Meta;
use crate::recovery::Listing;

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

/// Returns the revisions of a filter, oldest first; `now` is its `meta`.
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`], [`Error::Version`].
pub fn revisions(media: &dyn Media, now: &Meta) -> Result<Vec<Revision>> {
    let mut revisions = Vec::new();
    for kept in Listing::read(media)?.kept_metas {
        let name = FileName::KeptMeta { since: kept.since, until: kept.until };
        match Meta::read_named(media, name) {
            // It was written by an alteration that did not come to its end.
            Ok(meta) if meta.log_uuid == now.log_uuid || meta.uuid != now.uuid => {}
            Ok(meta) => revisions.push(Revision { meta, end: Some(kept.until) }),
            // It was removed meanwhile.
            Err(Error::NotAFilter { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    revisions.push(Revision::present(now));
    Ok(revisions)
}

/// Returns the first of these revisions that an LSN is of.
#[must_use]
pub fn revision_of(revisions: &[Revision], lsn: u64) -> Option<&Revision> {
    revisions.iter().find(|revision| revision.reaches(lsn))
}
