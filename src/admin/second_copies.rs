//! The second copy of the files of a backup, beside the first one.
//!
//! A backup is often all that is left of a filter. Each of its files is there twice, so that damage
//! in one of them takes nothing away. The second ones have names of their own, under which no
//! opener looks for a filter's files.

use crate::archive::keep_setting;
use crate::engine::temporary_files::{clear, write_file};
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::{Access, ByteLocks, Media, MediaFile};
use crate::meta::Meta;
use crate::recovery::Listing;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Before the name of the file that it is a copy of.
const PREFIX: &str = "second-";

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The numbers of the temporary names under which `meta` and `keep` are written.
const META_TEMPORARY: u64 = 0;
const KEEP_TEMPORARY: u64 = 1;

/// The second copies in a directory, as a directory of their own.
#[derive(Debug)]
pub(crate) struct Second<'a>(pub(crate) &'a dyn Media);

fn prefixed(name: &str) -> String {
    format!("{PREFIX}{name}")
}

impl Second<'_> {
    /// Copies the snapshots and the log of a backup, which have their names, how much log the
    /// filter keeps, then `meta`. On an error nothing is left.
    pub(crate) fn write(&self, meta: &Meta) -> Result<()> {
        let listing = Listing::read(self.0)?;
        let snapshots = listing.snapshots.iter().map(|&start| FileName::Snapshot { start });
        let segments = listing.segments.iter();
        let segments = segments.map(|&(timeline, first)| FileName::Segment { timeline, first });
        let write = || {
            for name in snapshots.chain(segments) {
                let name = name.to_string();
                let path = self.path().join(prefixed(&name));
                copy_file(self.0, self, &name).map_err(Error::io("write", path))?;
            }
            if let Some(keep) = keep_setting::read_if_there(self.0)? {
                let text = keep_setting::encode(keep);
                write_file(self, KEEP_TEMPORARY, &FileName::Keep.to_string(), &text)?;
            }
            write_file(self, META_TEMPORARY, &FileName::Meta.to_string(), &meta.encode())
        };
        // The first error is the one to report.
        write().inspect_err(|_| drop(clear(self)))
    }

    /// Returns the path of a second file.
    pub(crate) fn path_of(&self, file: FileName) -> PathBuf {
        self.path().join(prefixed(&file.to_string()))
    }

    /// Returns an error about a second file with the name that it has.
    pub(crate) fn explained(&self, mut error: Error) -> Error {
        if let Error::Damaged { path, .. } | Error::Version { path, .. } | Error::Io { path, .. } =
            &mut error
            && let Some(name) = path.file_name().and_then(OsStr::to_str)
            && FileName::parse(name).is_some()
        {
            *path = path.with_file_name(prefixed(name));
        }
        error
    }

    /// Returns what there is of both copies; `None` if this is no backup, or one that was opened
    /// for writing since: then the second files are not copies of the first ones any more.
    ///
    /// A backup has one snapshot and one segment, which begin at the same LSN. The first opener
    /// that writes adds a segment of a new timeline, and leaves `live`. So files that are missing
    /// do not look like an opening.
    pub(crate) fn copies(&self) -> Result<Option<Copies>> {
        let names = |media: &dyn Media| {
            let names = media.list().map_err(Error::io("list", media.path()))?;
            let files = names.iter().filter_map(|name| FileName::parse(name));
            Ok::<_, Error>(files.filter(|&file| file != FileName::Lock).collect::<Vec<_>>())
        };
        let copies = Copies { first: names(self.0)?, second: names(self)? };
        if copies.second.is_empty() {
            return Ok(None);
        }
        let mut all: Vec<_> = copies.first.iter().chain(&copies.second).copied().collect();
        all.retain(|file| !matches!(file, FileName::Meta | FileName::Keep));
        all.sort_unstable();
        all.dedup();
        let is_written_once = match all[..] {
            [FileName::Segment { first, .. }, FileName::Snapshot { start }] => first == start,
            [FileName::Segment { .. } | FileName::Snapshot { .. }] => true,
            _ => false,
        };
        let is_same = match (Meta::read(self.0), Meta::read(self)) {
            (Ok(first), Ok(second)) => {
                (first.uuid, first.log_uuid) == (second.uuid, second.log_uuid)
            }
            // What cannot be read says nothing.
            _ => true,
        };
        Ok(Some(copies).filter(|_| is_written_once && is_same))
    }

    /// Returns whether a filter can be read from these files: there are some besides `meta`, and
    /// they are copies of what the backup is.
    pub(crate) fn is_current(&self) -> Result<bool> {
        Ok(self.copies()?.is_some_and(|copies| copies.has_second()))
    }
}

/// The files of a backup, in both copies: `meta`, a snapshot, a segment and `keep`, as far as they
/// are there.
#[derive(Debug)]
pub(crate) struct Copies {
    first: Vec<FileName>,
    second: Vec<FileName>,
}

impl Copies {
    /// Returns whether there are second files of state or log.
    pub(crate) fn has_second(&self) -> bool {
        self.second.iter().any(|file| !matches!(file, FileName::Meta | FileName::Keep))
    }

    /// Returns the files of which only the second copy is left.
    pub(crate) fn without_first(&self) -> impl Iterator<Item = FileName> + '_ {
        self.second.iter().copied().filter(|file| !self.first.contains(file))
    }

    /// Returns the files of which only the first copy is left.
    pub(crate) fn without_second(&self) -> impl Iterator<Item = FileName> + '_ {
        self.first.iter().copied().filter(|file| !self.second.contains(file))
    }
}

/// Returns the error of a copy that is missing while there is another one.
pub(crate) fn missing(path: PathBuf) -> Error {
    Error::Damaged {
        path,
        offset: 0,
        expected: "a file, because there is another copy of it".to_owned(),
        found: "none".to_owned(),
        remedy: "the backup can be restored as long as the other copy is sound: make a new one",
    }
}

/// Copies a file of this name to another medium, and syncs it.
pub(crate) fn copy_file(from: &dyn Media, to: &dyn Media, name: &str) -> std::io::Result<()> {
    let source = from.open(name, Access::Read)?;
    let bytes = source.bytes()?;
    let target = to.create(name, bytes)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let size = (bytes - offset).min(COPY_BYTES as u64) as usize;
        source.read_at(&mut buffer[..size], offset)?;
        target.write_at(&buffer[..size], offset)?;
        offset += size as u64;
    }
    target.sync()
}

impl Media for Second<'_> {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn make(&self) -> io::Result<()> {
        self.0.make()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.0.list()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        self.0.create(&prefixed(name), bytes)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        self.0.open(&prefixed(name), access)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(&prefixed(from), &prefixed(to))
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename_new(&prefixed(from), &prefixed(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(&prefixed(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        self.0.locks(&prefixed(name), access)
    }

    fn boot_id(&self) -> io::Result<u128> {
        self.0.boot_id()
    }
}
