//! The parameters of a filter that is altered, as of any moment.

use crate::kinds::CAPACITIES;
use ebbtide::media::{Access, Media};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::prefix::{Checked, text};

/// The parameters that a filter has since an alteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision {
    pub capacity: u64,
    /// The LSN behind the alteration's; 0 before the first.
    pub start: u64,
}

impl Revision {
    /// That of a filter which was not altered.
    pub const FIRST: Self = Self { capacity: CAPACITIES[0], start: 0 };

    /// Returns whether it is known since when the filter has these parameters: a full disk may have
    /// taken the file `meta` of before.
    pub fn is_known(&self) -> bool {
        self.start > 0 || self.capacity == Self::FIRST.capacity
    }

    /// Returns that of a filter as of a record, by the files `meta`.
    pub fn as_of(lsn: u64, disk: &CrashDisk) -> Checked<Self> {
        let names = disk.names("kept-").into_iter();
        let ends = names.filter_map(|name| {
            let (_, end) = name.split_once("-meta-")?;
            Some((end.parse::<u64>().ok()?, name))
        });
        // The record before such an LSN is the alteration's.
        let (before, after): (Vec<_>, _) = ends.partition(|(end, _)| *end <= lsn.saturating_add(1));
        let name = after.into_iter().min().map_or_else(|| "meta".to_owned(), |(_, name)| name);
        let file = disk.open(&name, Access::Read).map_err(text)?;
        let mut bytes = vec![0; file.bytes().map_err(text)? as usize];
        file.read_at(&mut bytes, 0).map_err(text)?;
        let mut lines = bytes.split(|&byte| byte == b'\n').map(String::from_utf8_lossy);
        let capacity =
            lines.find_map(|line| line.strip_prefix("parameter capacity ")?.parse().ok());
        let start = before.into_iter().map(|(end, _)| end).max().unwrap_or(0);
        Ok(Self { capacity: capacity.unwrap_or(CAPACITIES[0]), start })
    }
}
