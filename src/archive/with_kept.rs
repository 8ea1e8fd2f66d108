//! A filter's directory with the kept files under their former names.

use crate::error::Error;
use crate::format::names::FileName;
use crate::media::{
    Access, BankStore, BootIdSource, ByteLocks, Holder, Media, MediaFile, UnnamedId,
};
use crate::primitives::mutex::Mutex;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

const REMEDY: &str = "the filter does not need this file, only questions about moments before its \
                      end do: ask about later ones; `--keep-log nothing` removes what is kept";

/// A directory to be read, in which kept segments and snapshots have their former names.
#[derive(Debug)]
pub struct Whole<'a> {
    media: &'a dyn Media,
    /// Whether it is seen without the image, which belongs to later log.
    is_past: bool,
    /// The names of kept files by their former names, as last listed.
    kept: Mutex<BTreeMap<String, String>>,
}

/// Returns an error about a kept file with the name that it has, and what that means.
pub fn explained(media: &dyn Media, error: Error) -> Error {
    let (Error::Damaged { path, .. } | Error::Version { path, .. } | Error::Io { path, .. }) =
        &error
    else {
        return error;
    };
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let whole = Whole::new(media);
    // Without a list the error stays as it is.
    let _ = whole.list();
    let kept = whole.kept.lock().get(name).cloned();
    let is_open = |name: &str| media.open(name, Access::Read).is_ok();
    // As `Whole::open` chooses.
    let Some(kept) = kept.filter(|kept| is_open(kept) || !is_open(name)) else {
        return error;
    };
    let path = path.with_file_name(kept);
    match error {
        Error::Damaged { offset, expected, found, .. } => {
            Error::Damaged { path, offset, expected, found, remedy: REMEDY }
        }
        Error::Version { expected, found, .. } => Error::Version { path, expected, found },
        Error::Io { action, source, .. } => Error::Io { action, path, source },
        error => error,
    }
}

/// The error for a change of a directory that is only read.
fn read_only<T>() -> io::Result<T> {
    Err(ErrorKind::ReadOnlyFilesystem.into())
}

impl<'a> Whole<'a> {
    /// Creates it for a directory.
    #[must_use]
    pub fn new(media: &'a dyn Media) -> Self {
        Self { media, is_past: false, kept: Mutex::default() }
    }

    /// As [`Whole::new`], but without the image: for log from before an alteration.
    #[must_use]
    pub fn past(media: &'a dyn Media) -> Self {
        Self { is_past: true, ..Self::new(media) }
    }

    fn hides(&self, name: &str) -> bool {
        self.is_past && FileName::parse(name) == Some(FileName::Live)
    }

    /// Opens a kept file by its former name.
    fn open_kept(&self, name: &str) -> io::Result<Box<dyn MediaFile>> {
        let kept = self.kept.lock().get(name).cloned();
        self.media.open(&kept.ok_or(ErrorKind::NotFound)?, Access::Read)
    }
}

impl Media for Whole<'_> {
    fn path(&self) -> &Path {
        self.media.path()
    }

    fn make(&self) -> io::Result<()> {
        self.media.make()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.media.list()?;
        let former = |name: &String| {
            let file = FileName::parse(name)?.before_kept()?;
            Some((file.to_string(), name.clone()))
        };
        let kept: BTreeMap<_, _> = names.iter().filter_map(former).collect();
        // A process that died between the two has left both.
        names.retain(|name| !kept.contains_key(name));
        names.extend(kept.keys().cloned());
        names.retain(|name| !self.hides(name));
        *self.kept.lock() = kept;
        Ok(names)
    }

    fn create(&self, _name: &str, _bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        read_only()
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        let is_missing = |error: &io::Error| error.kind() == ErrorKind::NotFound;
        if self.hides(name) {
            return Err(ErrorKind::NotFound.into());
        }
        // A delayed creator may have given the former name to an empty segment.
        match self.open_kept(name) {
            // It was removed meanwhile, or is no file, which nobody reads.
            Err(error) if is_missing(&error) || error.kind() == ErrorKind::InvalidInput => {}
            opened => return opened,
        }
        match self.media.open(name, access) {
            Err(error) if is_missing(&error) => {}
            opened => return opened,
        }
        match self.open_kept(name) {
            // It may have got its name just now.
            Err(error) if is_missing(&error) => {
                self.list()?;
                self.open_kept(name)
            }
            opened => opened,
        }
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        read_only()
    }

    fn rename_new(&self, _from: &str, _to: &str) -> io::Result<()> {
        read_only()
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        read_only()
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        self.media.locks(name, access)
    }

    fn find_unnamed(
        &self,
        wanted: &UnnamedId,
        holders: (&str, &[Holder]),
        access: Access,
    ) -> io::Result<Arc<dyn BankStore>> {
        self.media.find_unnamed(wanted, holders, access)
    }

    fn boot_id(&self) -> io::Result<u128> {
        self.media.boot_id()
    }

    fn boot_id_source(&self) -> BootIdSource {
        self.media.boot_id_source()
    }
}
