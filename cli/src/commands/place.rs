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
    let (mut foreign, mut beside, mut has_log) = (None, None, false);
    for entry in entries {
        let entry = entry.map_err(|error| Failure::reading(dir, &error))?;
        let name = entry.file_name();
        if name == "meta" {
            return Ok(());
        }
        match name.to_str().map_or(Named::Foreign, Named::of) {
            Named::Ours => {}
            Named::Log => has_log = true,
            Named::Beside => beside = Some(name),
            Named::Foreign => foreign = Some(name),
        }
    }
    // Beside log, also log that is only kept, the creation that follows reports that `meta` is
    // missing. Alone they show it nothing, and a new filter would take their place.
    match foreign.or(beside.filter(|_| !has_log)) {
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

/// What a file of this name has to do with filters.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    /// Filters use the name, or a fresh file system contains it.
    Ours,
    /// It is of the log or the state of a filter.
    Log,
    /// It is of a filter that has a log beside it: former parameters, or the second copy of a
    /// backup.
    Beside,
    Foreign,
}

impl Named {
    fn of(name: &str) -> Self {
        let is_number = |text: &str| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'-';
            !text.is_empty() && text.bytes().all(is_digit)
        };
        let is_numbered = |name: &str, prefixes: &[&str]| {
            prefixes.iter().any(|prefix| name.strip_prefix(prefix).is_some_and(is_number))
        };
        if let Some((since, kept)) = name.strip_prefix("kept-").and_then(|it| it.split_once('-')) {
            return match is_number(since) {
                true if is_numbered(kept, &["wal-", "snap-"]) => Self::Log,
                true if is_numbered(kept, &["meta-"]) => Self::Beside,
                _ => Self::Foreign,
            };
        }
        if let Some(copy) = name.strip_prefix("second-") {
            let is_copy =
                matches!(copy, "meta" | "keep") || is_numbered(copy, &["wal-", "snap-", "tmp-"]);
            return if is_copy { Self::Beside } else { Self::Foreign };
        }
        if is_numbered(name, &["wal-", "snap-"]) {
            return Self::Log;
        }
        let is_ours = matches!(name, "lock" | "live" | "keep" | "lost+found")
            || is_numbered(name, &["live-", "tmp-", "attach-"]);
        if is_ours { Self::Ours } else { Self::Foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_filters_give_are_theirs() {
        let names = ["lock", "live", "keep", "live-000002-0000", "tmp-7", "attach-0", "lost+found"];
        assert!(names.into_iter().all(|name| Named::of(name) == Named::Ours));
        let log = ["wal-000002-0000000000000001", "snap-0000000000000001"];
        assert!(log.into_iter().all(|name| Named::of(name) == Named::Log));
        for name in log.map(|name| format!("kept-1796051708-{name}")) {
            assert_eq!(Named::of(&name), Named::Log, "{name}");
        }
        let second =
            ["second-meta", "second-keep", "second-wal-000002-0000000000000001", "second-tmp-0"];
        for name in second.into_iter().chain(["kept-1796051708-meta-0000000000000007"]) {
            assert_eq!(Named::of(name), Named::Beside, "{name}");
        }
        let foreign = ["main.rs", "live.c", "live-", "live-x", "tmp-7a", "wal", ".git", "Lock"];
        let alike = ["kept-", "kept-7", "kept-7-notes", "kept-x-wal-7", "second-", "second-hand"];
        for name in foreign.into_iter().chain(alike) {
            assert_eq!(Named::of(name), Named::Foreign, "{name}");
        }
    }
}
