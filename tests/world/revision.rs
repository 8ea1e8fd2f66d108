//! The parameters of a filter that is altered, as of any moment.

use crate::kinds::Spec;
use ebbtide::media::{Access, Media};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::prefix::{Checked, text};

/// The parameters that a filter has since an alteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision {
    /// Whether they are those of the creation with what alterations set.
    pub is_altered: bool,
    /// The LSN behind the alteration's; 0 before the first.
    pub start: u64,
}

impl Revision {
    /// That of a filter which was not altered.
    pub const FIRST: Self = Self { is_altered: false, start: 0 };

    /// Returns whether it is known since when the filter has these parameters: a full disk may have
    /// taken the file `meta` of before.
    pub fn is_known(&self) -> bool {
        self.start > 0 || !self.is_altered
    }

    /// Returns that of a filter as of a record, by the files `meta`.
    pub fn as_of(lsn: u64, spec: &Spec, disk: &CrashDisk) -> Checked<Self> {
        let Some((parameter, altered)) = spec.altered else { return Ok(Self::FIRST) };
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
        let lines = bytes.split(|&byte| byte == b'\n').map(String::from_utf8_lossy);
        let mut values = lines.filter_map(|line| {
            let (name, value) = line.strip_prefix("parameter ")?.split_once(' ')?;
            (name == parameter).then(|| value.parse::<f64>().ok()).flatten()
        });
        let is_altered = values.next().is_some_and(|value| Ok(value) == altered.parse::<f64>());
        let start = before.into_iter().map(|(end, _)| end).max().unwrap_or(0);
        Ok(Self { is_altered, start })
    }
}
