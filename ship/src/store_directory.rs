//! The directory of a store: the one that was opened, or what lies in its place while it is away.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What to do about a directory that is away.
pub(crate) const PUT_BACK: &str = "mount the directory, or put it back; a shipper and a follower \
                                   try again; if it was replaced for good, restart them";

/// A directory with objects.
#[derive(Debug, Clone)]
pub(crate) struct StoreDirectory {
    path: PathBuf,
    /// Alone: a file system that is mounted again may have another device number.
    inode: u64,
}

impl StoreDirectory {
    /// Takes a directory as it is now.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), inode: std::fs::metadata(path)?.ino() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that its path leads to it, not to another directory or to none, as after `umount`:
    /// what is put there would be missed once the directory is back, and what is not found there
    /// may exist. The error is what was found.
    pub(crate) fn check(&self) -> Result<(), String> {
        let found = match std::fs::metadata(&self.path) {
            Ok(found) if found.ino() == self.inode => return Ok(()),
            Ok(_) => "another directory than was opened".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(format!("{}: {found}", self.path.display()))
    }
}
