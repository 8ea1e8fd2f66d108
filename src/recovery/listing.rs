//! What files a filter's directory holds.

use crate::error::{Error, Result};
use crate::media::Media;
use crate::names::FileName;

/// The files of a filter, by role.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Start LSNs of snapshots, newest first.
    pub snapshots: Vec<u64>,
    /// (era, first LSN) of log segments, ascending.
    pub segments: Vec<(u64, u64)>,
    /// (era, number) of banks.
    pub banks: Vec<(u64, u32)>,
    /// Numbers of files in the making.
    pub temporaries: Vec<u64>,
    /// Names that are not ours.
    pub foreign: Vec<String>,
}

impl Listing {
    /// Lists the directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(media: &dyn Media) -> Result<Self> {
        let mut listing = Self::default();
        for name in media.list().map_err(Error::io("list", media.path()))? {
            match FileName::parse(&name) {
                Some(FileName::Snapshot { start }) => listing.snapshots.push(start),
                Some(FileName::Segment { era, first }) => listing.segments.push((era, first)),
                Some(FileName::Bank { era, bank }) => listing.banks.push((era, bank)),
                Some(FileName::Temporary(number)) => listing.temporaries.push(number),
                Some(FileName::Meta | FileName::Lock | FileName::Live) => {}
                None => listing.foreign.push(name),
            }
        }
        listing.snapshots.sort_unstable_by(|a, b| b.cmp(a));
        listing.segments.sort_unstable();
        Ok(listing)
    }
}
