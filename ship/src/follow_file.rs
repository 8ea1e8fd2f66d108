//! The file `follow` in a directory, by which it is known as a follower's copy of a place.

use crate::error::Result;
use crate::files::{create_private, empty_but, io, occupied, others, sync_parent};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const NAME: &str = "follow";
const TEMPORARY: &str = "follow.new";
const TITLE: &str = "ebbtide: a follower's copy of ";

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Returns the place that a directory is a follower's copy of; `None` if it is none.
///
/// # Errors
/// [`Error::Store`](crate::Error::Store) if it cannot be read.
pub fn copied_from(dir: impl AsRef<Path>) -> Result<Option<String>> {
    let path = path(dir.as_ref());
    match fs::read_to_string(&path) {
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(io("read", &path, &error)),
        Ok(text) => {
            let place = |line: &str| line.strip_suffix('\n').unwrap_or(line).to_owned();
            Ok(text.strip_prefix(TITLE).map(place))
        }
    }
}

/// Returns whether nothing but the file is in a directory.
pub fn is_alone(dir: &Path) -> Result<bool> {
    Ok(others(dir, NAME)?.is_empty())
}

/// Removes all else from a directory.
pub fn leave_alone(dir: &Path) -> Result<()> {
    empty_but(dir, NAME)
}

/// Returns the file, whose lock a follower holds.
pub fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Returns what else is in a directory that is no copy; `None` if nothing is.
pub fn found_in(dir: &Path) -> Result<Option<String>> {
    // A kill may have left it.
    let leftover = dir.join(TEMPORARY);
    match fs::remove_file(&leftover) {
        Err(error) if !is_missing(&error) => Err(io("remove", &leftover, &error)),
        _ => occupied(dir),
    }
}

/// Marks a directory, which is created if it is not there.
pub fn write(dir: &Path, place: &str) -> Result<()> {
    let (new, path) = (dir.join(TEMPORARY), path(dir));
    let write = || {
        create_private(dir)?;
        fs::write(&new, format!("{TITLE}{place}\n"))?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, &path)?;
        sync_parent(&path)
    };
    write().map_err(|error| io("write", &path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_returned_as_it_was_written_also_with_spaces_at_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(copied_from(dir.path()).expect("no file"), None);
        for place in ["s3://bucket/orders", "/srv/my copy ", "/srv/tab\t", "/srv/line\n"] {
            write(dir.path(), place).expect("written");
            assert_eq!(copied_from(dir.path()).expect("read").as_deref(), Some(place));
        }
    }
}
