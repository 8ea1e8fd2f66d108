//! Checks the directory of a new filter: it must not contain other files.

use crate::failure::{Failure, Result};
use ebbtide::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Refuses a directory that contains other files and no filter, which is most likely a mistake.
///
/// The files of an interrupted or a concurrent creation count as a filter's files.
pub fn check(dir: &Path) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        // Not a directory, or not readable: the creation that follows reports the cause.
        Err(_) => return Ok(()),
    };
    let mut foreign = None;
    for entry in entries {
        let entry = entry.map_err(|error| Failure::reading(dir, &error))?;
        let name = entry.file_name();
        if name == "meta" {
            return Ok(());
        }
        if !name.to_str().is_some_and(is_of_a_filter) {
            foreign.get_or_insert(name);
        }
    }
    match foreign {
        None => Ok(()),
        Some(name) => Err(Failure::Error(format!(
            "{} holds other files, such as {}, and no filter; name a directory that is empty or \
             does not exist, because a filter needs its own",
            dir.display(),
            name.display()
        ))),
    }
}

/// Refuses a directory for a copy or a new filter within that of a filter that it is made of, whose
/// files it would mix with.
pub fn check_outside(dest: &Path, dir: &Path) -> Result<()> {
    let Ok(dir) = dir.canonicalize() else { return Ok(()) };
    if dest.canonicalize().is_ok_and(|dest| dest == dir) {
        // The creation that follows reports that there is a filter.
        return Ok(());
    }
    // It may not exist yet.
    let existing = dest.ancestors().map(|it| if it == "" { Path::new(".") } else { it });
    let existing = existing.filter_map(|it| it.canonicalize().ok()).next();
    if existing.is_some_and(|existing| existing.starts_with(&dir)) {
        return Err(Failure::Error(format!(
            "{} is within the directory of the filter, which holds its files only; name another \
             directory",
            dest.display()
        )));
    }
    Ok(())
}

/// Refuses a path at which there is something already.
pub fn check_vacant(dir: &Path) -> Result<()> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != ErrorKind::NotADirectory => {
            Err(Failure::reading(dir, &error))
        }
        _ => Err(Error::Exists { path: dir.to_path_buf() }.into()),
    }
}

/// Returns whether a file name is one that filters use, or that a fresh file system contains.
fn is_of_a_filter(name: &str) -> bool {
    let is_number = |text: &str| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'-';
        !text.is_empty() && text.bytes().all(is_digit)
    };
    let prefixes = ["live-", "wal-", "snap-", "tmp-", "attach-"];
    let is_numbered = |prefix: &&str| name.strip_prefix(*prefix).is_some_and(is_number);
    matches!(name, "lock" | "live" | "keep" | "lost+found") || prefixes.iter().any(is_numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_filters_give_are_theirs() {
        let names =
            ["lock", "live", "keep", "live-000002-0000", "wal-000002-0000000000000001", "tmp-7"];
        for name in names.into_iter().chain(["snap-0000000000000001", "attach-0", "lost+found"]) {
            assert!(is_of_a_filter(name), "{name}");
        }
        for name in ["main.rs", "live.c", "live-", "live-x", "tmp-7a", "wal", ".git", "Lock"] {
            assert!(!is_of_a_filter(name), "{name}");
        }
    }
}
