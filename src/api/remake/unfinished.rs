//! A new filter that has its name only when all of it is there.

use crate::api::paths::new_disk;
use crate::error::{Error, Result};
use crate::locks::holder_names::locked;
use crate::media::Media;
use crate::options::Options;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// A directory beside the one that it will become, which nobody else fills or removes meanwhile.
#[derive(Debug)]
pub(super) struct Unfinished {
    path: PathBuf,
    dir: PathBuf,
    /// The directory, locked: the system ends the lock of a process that dies.
    _held: File,
    is_finished: bool,
}

impl Unfinished {
    /// Makes an empty directory, which becomes `dir` at the end. What a dead process left there is
    /// removed. An empty `dir` gives it its owner and permissions.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Locked`] while another one fills it, [`Error::Parameter`] for a
    /// path that no directory can be moved to, [`Error::Io`].
    pub(super) fn begin(dir: &Path, options: &Options) -> Result<Self> {
        check_vacant(dir)?;
        let standing = check_replaceable(dir)?;
        let Some(of) = dir.file_name() else {
            let expected = "a path that ends in a name";
            return Err(Error::parameter("directory", expected, dir.display()));
        };
        let mut name = OsString::from(".");
        name.push(of);
        name.push(".ebbtide-unfinished");
        let path = dir.with_file_name(name);
        let disk = new_disk(&path, options)?;
        loop {
            disk.make().map_err(Error::io("make", &path))?;
            let Some(held) = lock(&path)? else { continue };
            let mut left = fs::read_dir(&path).map_err(Error::io("list", &path))?;
            if left.next().is_some() {
                // Of a process that died, and with its mode.
                fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
                continue;
            }
            if let Some(standing) = &standing {
                inherit(&path, &held, standing)?;
            }
            let is_finished = false;
            let own = Self { path, dir: dir.to_path_buf(), _held: held, is_finished };
            // Another one may have finished meanwhile.
            return check_vacant(dir).map(|()| own);
        }
    }

    /// Returns where the filter is made.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the directory its name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn finish(mut self) -> Result<()> {
        fs::rename(&self.path, &self.dir).map_err(Error::io("rename", &self.path))?;
        // From now on somebody else may make another one under that name.
        self.is_finished = true;
        let parent = parent(&self.dir);
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.map_err(Error::io("sync", parent))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            // The next one removes what is left.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn check_vacant(dir: &Path) -> Result<()> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        entries => match entries.map_err(Error::io("list", dir))?.next() {
            None => Ok(()),
            Some(_) => Err(Error::Exists { path: dir.to_path_buf() }),
        },
    }
}

fn parent(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses what no directory can be moved to. Returns what is there.
fn check_replaceable(dir: &Path) -> Result<Option<Metadata>> {
    let found = match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(Error::io("examine", dir))?,
    };
    let refuse = |expected: &str| Err(Error::parameter("directory", expected, dir.display()));
    if found.is_symlink() {
        return refuse("the directory itself, because the new one could not replace a link to it");
    }
    let above = fs::metadata(parent(dir)).map_err(Error::io("examine", parent(dir)))?;
    if found.dev() != above.dev() {
        return refuse("a directory within the mounted one, which could not be replaced");
    }
    Ok(Some(found))
}

/// Gives a new directory the owner and the permissions of the one that it will replace.
fn inherit(path: &Path, held: &File, standing: &Metadata) -> Result<()> {
    let own = held.metadata().map_err(Error::io("examine", path))?;
    if (own.uid(), own.gid()) != (standing.uid(), standing.gid()) {
        let given = fchown(held, Some(standing.uid()), Some(standing.gid()));
        given.map_err(Error::io("give its owner to", path))?;
    }
    held.set_permissions(standing.permissions()).map_err(Error::io("give its mode to", path))
}

/// Locks a directory; `None` if another one has its name by now, or none.
fn lock(path: &Path) -> Result<Option<File>> {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let held = match File::open(path) {
        Err(error) if is_missing(&error) => return Ok(None),
        opened => opened.map_err(Error::io("open", path))?,
    };
    match held.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(path)),
        Err(TryLockError::Error(error)) => return Err(Error::io("lock", path)(error)),
    }
    let own = held.metadata().map_err(Error::io("examine", path))?;
    match fs::metadata(path) {
        Err(error) if is_missing(&error) => Ok(None),
        found => {
            let found = found.map_err(Error::io("examine", path))?;
            let is_same = (found.dev(), found.ino()) == (own.dev(), own.ino());
            Ok(is_same.then_some(held))
        }
    }
}
