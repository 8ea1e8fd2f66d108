//! A new filter that has its name only when all of it is there.

use crate::api::paths::new_disk;
use crate::error::{Error, Result};
use crate::locks::holder_names::locked;
use crate::media::Media;
use crate::options::Options;
use crate::platform::system;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// A directory beside the one that it will become, which nobody else fills or removes meanwhile.
#[derive(Debug)]
pub(super) struct Unfinished {
    path: PathBuf,
    dir: PathBuf,
    /// The directory, locked: the system ends the lock of a process that dies.
    held: File,
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
        let (of, standing) = check(dir)?;
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
            // From here on it is removed if it does not get its name.
            let own = Self { path, dir: dir.to_path_buf(), held, is_finished: false };
            if let Some(standing) = &standing {
                inherit(&own.path, &own.held, standing)?;
            }
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
    /// [`Error::Io`]. If it came after the directory got its name, whose sync failed, the filter is
    /// there: somebody else may use it by now.
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

/// Refuses what cannot become a new filter. Returns its name, and what is there.
pub(super) fn check(dir: &Path) -> Result<(&OsStr, Option<Metadata>)> {
    check_vacant(dir)?;
    let Some(name) = dir.file_name() else {
        let expected = "a path that ends in a name";
        return Err(Error::parameter("directory", expected, dir.display()));
    };
    Ok((name, check_replaceable(dir, name)?))
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
fn check_replaceable(dir: &Path, name: &OsStr) -> Result<Option<Metadata>> {
    // With a slash at the end it would be what a link leads to.
    let itself = parent(dir).join(name);
    let found = match fs::symlink_metadata(&itself) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(Error::io("examine", dir))?,
    };
    let refuse = |expected: &str| Err(Error::parameter("directory", expected, dir.display()));
    if found.is_symlink() {
        return refuse("the directory itself, because the new one could not replace a link to it");
    }
    let above = fs::metadata(parent(dir)).map_err(Error::io("examine", parent(dir)))?;
    if found.dev() != above.dev() || system::is_mount_root(&itself) {
        return refuse("a directory within the mounted one, which could not be replaced");
    }
    Ok(Some(found))
}

/// Gives a new directory the owner, the group and the permissions of the one that it will replace.
/// Only root can give it away: it stays its creator's, as the files in it, if that is refused.
fn inherit(path: &Path, held: &File, standing: &Metadata) -> Result<()> {
    let examine = || held.metadata().map_err(Error::io("examine", path));
    let (own, user, group) = (examine()?, Some(standing.uid()), Some(standing.gid()));
    if (Some(own.uid()), Some(own.gid())) != (user, group) && fchown(held, user, group).is_err() {
        let _ = fchown(held, None, group);
    }
    let mut permissions = standing.permissions();
    if examine()?.gid() != standing.gid() {
        // They are not for another group.
        permissions.set_mode(permissions.mode() & !0o2070);
    }
    held.set_permissions(permissions).map_err(Error::io("give its mode to", path))
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_mounted_is_not_replaced() {
        assert!(check_replaceable(Path::new("/proc"), OsStr::new("proc")).is_err());
        #[cfg(not(ebbtide_portable))]
        assert!(system::is_mount_root(Path::new("/proc")));
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("dir");
        assert!(check(&dir).is_ok_and(|(_, standing)| standing.is_none()));
        fs::create_dir(&dir).expect("a directory");
        assert!(check(&dir).is_ok_and(|(_, standing)| standing.is_some()));
    }
}
