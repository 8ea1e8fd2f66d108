//! Copies of a filter's files.

use std::fs;
use std::io::Result;
use std::path::Path;
use tempfile::TempDir;

/// Returns the names of the files in a directory, ascending.
///
/// # Errors
/// The system's error.
pub fn names(dir: &Path) -> Result<Vec<String>> {
    let name = |entry: Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = fs::read_dir(dir)?.map(name).collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Copies all files into a new directory, without sockets, at which a process hands out the image.
///
/// # Errors
/// The system's error; the directory must not exist.
pub fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for name in names(from)?.into_iter().filter(|name| from.join(name).is_file()) {
        fs::copy(from.join(&name), to.join(&name))?;
    }
    Ok(())
}

/// Copies the filter's durable files and damages the newest snapshot, if there is an older one.
///
/// # Errors
/// The system's error.
pub fn copy_with_newest_damaged(dir: &Path) -> Result<Option<TempDir>> {
    let names = names(dir)?;
    let mut snapshots = names.iter().filter(|name| name.starts_with("snap-"));
    let newest = snapshots.next_back();
    if snapshots.next().is_none() {
        return Ok(None);
    }
    let copy = tempfile::tempdir()?;
    let lasting =
        |name: &&String| name.starts_with("snap-") || name.starts_with("wal-") || *name == "meta";
    for name in names.iter().filter(lasting) {
        let mut bytes = fs::read(dir.join(name))?;
        if let Some(last) = bytes.last_mut().filter(|_| Some(name) == newest) {
            *last ^= 1;
        }
        fs::write(copy.path().join(name), bytes)?;
    }
    Ok(Some(copy))
}
