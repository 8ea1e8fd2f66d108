//! A temporary directory that vanishes with its process: at its end, by a signal, or, after a kill,
//! when the next command makes one.

use crate::failure::{Failure, Result};
use crate::stop;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

/// How often a directory is made anew because another command took it for one that was left.
const ATTEMPTS: usize = 10;

/// A locked directory. The lock shows other commands that its process lives.
pub struct Temporary {
    // Fields are dropped in this order.
    dir: TempDir,
    _locked: File,
}

impl Temporary {
    /// Removes the directories that killed processes have left, and makes a new one.
    pub fn new(prefix: &str) -> Result<Self> {
        sweep(prefix);
        let failed =
            |error| Failure::Error(format!("cannot create a temporary directory: {error}"));
        for _ in 0..ATTEMPTS {
            let dir = TempDir::with_prefix(prefix).map_err(failed)?;
            match locked(dir.path(), FlockOperation::LockExclusive) {
                Ok(locked) if is_named(&locked, dir.path()) => {
                    remove_on_signal(dir.path())?;
                    return Ok(Self { dir, _locked: locked });
                }
                // Another command has removed it before it was locked.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::Error::other("other commands remove it")))
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn locked(dir: &Path, how: FlockOperation) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = File::from(open(dir, flags, Mode::empty())?);
    flock(&dir, how)?;
    Ok(dir)
}

/// Returns whether a path still names this directory.
fn is_named(dir: &File, path: &Path) -> bool {
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    let (Ok(open), Ok(named)) = (dir.metadata(), fs::symlink_metadata(path)) else { return false };
    id(open) == id(named)
}

/// Removes the user's directories with this prefix that no process has locked. What cannot be
/// removed stays.
fn sweep(prefix: &str) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if !is_one || !entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own) {
            continue;
        }
        // Kept until the directory is removed.
        if let Ok(_locked) = locked(&entry.path(), FlockOperation::NonBlockingLockExclusive) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes the directory when the run is interrupted.
fn remove_on_signal(dir: &Path) -> Result<()> {
    let dir = dir.to_path_buf();
    let mut signals = stop::listen()?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Rename first: a filter's threads may still create files in the old directory. Files
            // that cannot be removed stay; the signal ends the run in any case.
            let away = dir.with_extension("gone");
            let moved = fs::rename(&dir, &away).is_ok();
            let _ = fs::remove_dir_all(if moved { &away } else { &dir });
            stop::end_by(signal);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_command_left_is_removed_and_what_others_use_stays() {
        let prefix = format!("ebbtide-test-{}-", std::process::id());
        let used = Temporary::new(&prefix).expect("a directory");
        let at = |name: &str| std::env::temp_dir().join(format!("{prefix}{name}"));
        let (left, file) = (at("left"), at("file"));
        fs::create_dir(&left).expect("a directory");
        fs::write(left.join("content"), b"").expect("a file");
        fs::write(&file, b"").expect("a file");
        let next = Temporary::new(&prefix).expect("a directory");
        assert!(!left.exists() && file.exists() && used.path().exists() && next.path().exists());
        fs::remove_file(&file).expect("it is there");
        let path = next.path().to_path_buf();
        drop(next);
        assert!(!path.exists());
    }
}
