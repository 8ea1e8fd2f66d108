//! The directory that a fetch makes: until it is a whole filter, it is none.
//!
//! A new one is made beside its name, and renamed. One that is there already may be a mount point
//! or what a link leads to, which cannot be replaced: it is filled in place, and becomes a filter
//! with its last file, `meta`. A subdirectory marks what is unfinished, so that the next call knows
//! what a kill has left; it goes when the filter is there, or when it is promoted. It holds the
//! lock of whoever makes the filter, and what is needed for that.

use crate::error::{Error, Result};
use crate::files::{beside, create, io, remove, sync_parent};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MARK: &str = "ebbtide.fetching";
const LOCK: &str = "lock";
const RESTORED_FROM: &str = "log";
/// The files of a filter, and of one that has been opened.
const META: &str = "meta";
const LIVE: &str = "live";
/// What a file system has that was just made.
const LOST: &str = "lost+found";
const RUNS: &str = "a fetch that runs";

/// A directory that is being made, by one process at a time. Dropped, it leaves none.
#[derive(Debug)]
pub struct Target {
    dir: PathBuf,
    /// What becomes the directory, or is it.
    whole: PathBuf,
    is_named: bool,
    _alone: File,
}

/// The mark of a filter that is whole, but not finished: the next call makes it again, unless it
/// was opened.
#[derive(Debug)]
pub struct Mark {
    path: PathBuf,
    _alone: File,
}

impl Target {
    /// Begins to make a directory, which may be there if it is empty, or was left by a call that
    /// did not end.
    ///
    /// # Errors
    /// [`Error::Occupied`] if something else is there, or another one makes it;
    /// [`Error::Store`].
    pub fn begin(dir: &Path) -> Result<Self> {
        let whole = match fs::symlink_metadata(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => beside(dir, "fetching"),
            Err(error) => return Err(io("look at", dir, &error)),
            Ok(_) => dir.to_path_buf(),
        };
        leftovers(&whole)?;
        let mark = whole.join(MARK);
        let lock = || {
            create(&mark)?;
            // A call that was killed may not have got so far.
            sync_parent(&mark)?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600).open(mark.join(LOCK))
        };
        let alone = lock().map_err(|error| io("make", &mark, &error))?;
        let runs = || Error::Occupied { path: dir.display().to_string(), found: RUNS.into() };
        match alone.try_lock() {
            // Whoever has just finished has removed the file.
            Ok(()) if is_at(&alone, &mark.join(LOCK)) => {}
            Ok(()) | Err(TryLockError::WouldBlock) => return Err(runs()),
            Err(TryLockError::Error(error)) => return Err(io("lock", &mark, &error)),
        }
        let target = Self { dir: dir.to_path_buf(), whole, is_named: false, _alone: alone };
        target.clear()?;
        Ok(target)
    }

    /// Returns where the filter is to be written, its `meta` last.
    pub fn whole(&self) -> &Path {
        &self.whole
    }

    /// Returns the directory for another filter, of which this one is a moment. It may be there.
    pub fn restored_from(&self) -> PathBuf {
        self.whole.join(MARK).join(RESTORED_FROM)
    }

    /// Gives the filter, which is whole, its name.
    pub fn name(mut self) -> Result<Mark> {
        remove(&self.restored_from())?;
        if self.whole != self.dir {
            let named = fs::rename(&self.whole, &self.dir).and_then(|()| sync_parent(&self.dir));
            named.map_err(|error| io("name", &self.dir, &error))?;
        }
        self.is_named = true;
        let alone = self._alone.try_clone();
        let alone = alone.map_err(|error| io("keep the lock of", &self.dir, &error))?;
        Ok(Mark { path: self.dir.join(MARK), _alone: alone })
    }

    /// Removes the files that calls have left.
    fn clear(&self) -> Result<()> {
        let mut found = leftovers(&self.whole)?;
        // Without it the others are no filter.
        found.sort_by_key(|path| !path.ends_with(META));
        for path in found {
            let removed = fs::remove_file(&path).and_then(|()| match path.ends_with(META) {
                true => sync_parent(&path),
                false => Ok(()),
            });
            removed.map_err(|error| io("remove", &path, &error))?;
        }
        remove(&self.restored_from())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_named {
            return;
        }
        // What cannot be removed is marked: the next call removes it.
        if self.clear().is_ok() {
            let _ = match self.whole == self.dir {
                true => remove(&self.whole.join(MARK)),
                false => remove(&self.whole),
            };
        }
    }
}

impl Mark {
    /// Removes the mark: the filter is finished.
    pub fn remove(self) -> Result<()> {
        remove(&self.path)
    }
}

/// Returns whether a filter is here that nobody still makes.
pub fn is_finished(dir: &Path) -> bool {
    dir.join(META).exists() && !dir.join(MARK).is_dir()
}

/// Returns whether a file still has its name.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |found: fs::Metadata| (found.dev(), found.ino());
    let (open, named) = (file.metadata().map(number), fs::metadata(path).map(number));
    open.is_ok_and(|open| named.is_ok_and(|named| open == named))
}

/// Returns the files that calls have left in a directory that did not end; none if it is empty or
/// not there.
fn leftovers(dir: &Path) -> Result<Vec<PathBuf>> {
    let occupied = |found| Err(Error::Occupied { path: dir.display().to_string(), found });
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| io("look into", dir, &error))?,
    };
    let (is_marked, is_filter) = (dir.join(MARK).is_dir(), dir.join(META).exists());
    if is_marked && dir.join(LIVE).exists() {
        return occupied("a filter that was opened since it was made".into());
    }
    if !is_marked && is_filter {
        return occupied("a filter".into());
    }
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| io("list", dir, &error))?.file_name();
        let name = name.to_string_lossy();
        // The file of locks stays: somebody may hold one.
        if [MARK, LOST, LOCK].contains(&&*name) {
            continue;
        }
        if !is_marked || !is_of_filter(&name) {
            return occupied(format!("the file {name}"));
        }
        found.push(dir.join(&*name));
    }
    Ok(found)
}

/// Returns whether a file has the name of one of a filter that was fetched and never opened. A
/// promotion has begun to ship it.
fn is_of_filter(name: &str) -> bool {
    let is_number = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    [META, "ship", "ship.new"].contains(&name)
        || ["wal-", "snap-", "tmp-"]
            .iter()
            .any(|start| name.strip_prefix(start).is_some_and(is_number))
}
