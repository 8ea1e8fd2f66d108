//! Files and directories of this machine. It does not know what they are for.

use crate::error::{Error, Result, may_pass};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Creates the error for a file of this machine.
pub fn io(action: &'static str, path: &Path, error: &std::io::Error) -> Error {
    let (object, found) = (path.display().to_string(), error.to_string());
    let remedy = "look at the disk of this machine";
    Error::Store { object, action, found, remedy, is_transient: may_pass(error) }
}

/// Creates a directory and those above it, as far as they are not there, durably. Other users may
/// look into them, and never change them, whatever the umask: they could replace a filter's files.
pub fn create(dir: &Path) -> std::io::Result<()> {
    create_with(dir, 0o755)
}

/// Creates a directory, if it is not there, that only its owner can look into: objects have the
/// secret seed of a filter and the hashes of its keys. Those above it as [`create`] does.
pub fn create_private(dir: &Path) -> std::io::Result<()> {
    if let Some(parent) = dir.parent() {
        create(parent)?;
    }
    create_with(dir, 0o700)
}

fn create_with(dir: &Path, mode: u32) -> std::io::Result<()> {
    let is_missing = |place: &&Path| !place.as_os_str().is_empty() && !place.exists();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    fs::DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    // A directory survives a power cut only if its parent was synced.
    missing.iter().rev().try_for_each(|made| sync_parent(made))
}

/// Returns what is in a directory; `None` if it is empty, or there is none.
pub fn occupied(dir: &Path) -> Result<Option<String>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("look into", dir, &error)),
        Ok(mut entries) => {
            let first = entries.next().transpose().map_err(|error| io("list", dir, &error))?;
            let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            Ok(match first.map(name) {
                Some(_) if dir.join("meta").exists() => Some("a filter".into()),
                Some(name) => Some(format!("the file {name}")),
                None => None,
            })
        }
    }
}

/// Returns the name of a directory beside this one.
pub fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{suffix}"));
    dir.with_file_name(name)
}

/// Removes a directory with all that is in it, if it is there.
pub fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", dir, &error)),
        _ => Ok(()),
    }
}

/// Removes all that is in a directory but the file of this name.
pub fn empty_but(dir: &Path, name: &str) -> Result<()> {
    for path in others(dir, name)? {
        let removed = match path.is_dir() && !path.is_symlink() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.map_err(|error| io("remove", &path, &error))?;
    }
    Ok(())
}

/// Returns what is in a directory but the file of this name.
pub fn others(dir: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let failed = |error: &std::io::Error| io("list", dir, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| failed(&error))? {
        let entry = entry.map_err(|error| failed(&error))?;
        if entry.file_name() != name {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Makes the name of a file or directory durable.
pub fn sync_parent(dir: &Path) -> std::io::Result<()> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_emptied_but_for_the_file_that_says_what_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path();
        fs::write(path.join("follow"), "a copy").expect("a file");
        fs::write(path.join("lock"), "").expect("a file");
        fs::create_dir_all(path.join("chain/part")).expect("a directory");
        fs::write(path.join("chain/follow"), "").expect("a file");
        std::os::unix::fs::symlink("/", path.join("root")).expect("a link");
        empty_but(path, "follow").expect("it is emptied");
        assert_eq!(others(path, "none").expect("a list"), [path.join("follow")]);
        assert_eq!(fs::read_to_string(path.join("follow")).expect("a file"), "a copy");
    }
}
