//! Which processes hold bytes of a filter's file `lock`, from the outside.
//!
//! The system records for each descriptor which bytes of a file it holds locked, and `/proc` shows
//! it. So a look needs no help from the processes, and finds stopped ones too.

use crate::error::Error;
use crate::format::names::FileName;
use crate::locks::session_slots::{self, OPENING_BYTE};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A process that holds bytes of the file `lock`.
#[derive(Debug)]
pub struct Holder {
    /// The id of the process, in the namespace of the caller.
    pub pid: u32,
    /// The name of the process, as the system shortens it.
    pub process: String,
    /// Whether the process is stopped, by a signal or a debugger.
    pub stopped: bool,
    /// The bytes.
    pub bytes: Vec<u64>,
}

impl Holder {
    fn describe(&self) -> String {
        let Self { pid, process, stopped, .. } = self;
        format!("process {pid} ({process}{})", if *stopped { ", stopped" } else { "" })
    }
}

/// Returns the processes that hold bytes of the file `lock` in this directory, as far as the caller
/// may examine them. Without the file there are none.
///
/// # Errors
/// [`Error::Io`] if the file or the list of processes cannot be read.
pub fn holders(dir: &Path) -> Result<Vec<Holder>, Error> {
    let lock = dir.join(FileName::Lock.to_string());
    let file = match fs::metadata(&lock) {
        Ok(found) => (found.dev(), found.ino()),
        // Such a filter was copied or restored, and never opened since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("examine", lock)(error)),
    };
    let processes = fs::read_dir("/proc").map_err(Error::io("list", "/proc"))?;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(|pid| of_process(pid, file)).collect())
}

/// Returns the error for a filter that others hold, which names them if they can be found: those
/// that open or close it, else all that have it open.
#[must_use]
pub fn locked(dir: &Path) -> Error {
    // The error is to be reported in any case.
    let found = holders(dir).unwrap_or_default();
    let is_opening = |holder: &&Holder| holder.bytes.contains(&OPENING_BYTE);
    let mut named: Vec<&Holder> = found.iter().filter(is_opening).collect();
    if named.is_empty() {
        let has_slot = |&byte: &u64| session_slots::slot_of_byte(byte).is_some();
        named = found.iter().filter(|holder| holder.bytes.iter().any(has_slot)).collect();
    }
    let names: Vec<String> = named.into_iter().map(Holder::describe).collect();
    Error::Locked { path: dir.to_path_buf(), holder: names.join(", ") }
}

/// Returns what one process holds. Without permission, or if it has ended, that is nothing.
fn of_process(pid: u32, file: (u64, u64)) -> Option<Holder> {
    let home = PathBuf::from(format!("/proc/{pid}"));
    let descriptors = fs::read_dir(home.join("fd")).ok()?;
    let is_ours =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == file);
    let ours = descriptors.flatten().filter(|entry| is_ours(&entry.path()));
    let bytes = ours.flat_map(|entry| {
        let locks = fs::read_to_string(home.join("fdinfo").join(entry.file_name()));
        bytes_in(&locks.unwrap_or_default())
    });
    let bytes: Vec<u64> = bytes.collect();
    if bytes.is_empty() {
        return None;
    }
    let name = fs::read_to_string(home.join("comm")).unwrap_or_default();
    // The name is the process's own choice: no control characters in a message.
    let process = name.trim_end().replace(char::is_control, "?");
    Some(Holder { pid, process, stopped: is_stopped(&home), bytes })
}

/// Returns the bytes that these lines of a descriptor show as locked, as in
/// `lock:  1: OFDLCK  ADVISORY  WRITE -1 00:2f:4711 5 5`.
fn bytes_in(descriptor: &str) -> Vec<u64> {
    let locked = |line: &str| {
        let mut numbers = line.strip_prefix("lock:")?.split_whitespace().rev();
        let (end, start) = (numbers.next()?.parse::<u64>().ok()?, numbers.next()?.parse().ok()?);
        // The file has meanings for its first bytes only, whatever a program locks.
        Some(start..=end.min(u64::from(u8::MAX)))
    };
    descriptor.lines().filter_map(locked).flatten().collect()
}

/// Returns whether the state of a process is stopped or traced.
fn is_stopped(home: &Path) -> bool {
    let stat = fs::read_to_string(home.join("stat")).unwrap_or_default();
    // The name in parentheses may contain any character.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::locks::session_slots::Sessions;
    use crate::media::{Access, Disk};

    #[test]
    fn the_bytes_are_those_of_the_lines_of_locks() {
        let text = "pos:\t0\nlock:\t1: OFDLCK  ADVISORY  WRITE -1 00:2f:4711 1 1\n\
                    lock:\t2: OFDLCK  ADVISORY  READ -1 00:2f:4711 0 0\n\
                    lock:\t3: OFDLCK  ADVISORY  WRITE -1 00:2f:4711 5 6\n\
                    lock:\t4: OFDLCK  ADVISORY  WRITE -1 00:2f:4711 127 EOF\n";
        assert_eq!(bytes_in(text), [1, 0, 5, 6]);
        assert!(bytes_in("flags: 2\nlock: odd\n").is_empty());
        let whole =
            bytes_in(&format!("lock:\t1: OFDLCK  ADVISORY  READ -1 00:2f:1 0 {}", u64::MAX));
        assert_eq!(whole.len(), 256);
    }

    #[test]
    fn a_process_is_stopped_by_its_state_whatever_its_name_is() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let state = |stat: &str| {
            fs::write(home.path().join("stat"), stat).expect("no error");
            is_stopped(home.path())
        };
        assert!(state("4711 (a daemon) T 1 4711 4711 0 -1") && state("1 (x) t 1"));
        assert!(state("4711 (a) S 1) T 1 4711 4711"));
        assert!(!state("4711 (a) T 1) S 1 4711 4711") && !state("4711 (T) R 1") && !state(""));
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
    fn the_error_names_who_opens_the_filter_else_who_has_it_open() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let text = || locked(home.path()).to_string();
        let us = format!("process {}", std::process::id());
        assert!(text().contains("held by another handle"), "{}", text());
        let handle = Sessions::open(&Disk::new(home.path()), Access::Write).expect("no error");
        handle.take().expect("no error").expect("a slot");
        assert!(text().contains(&us), "{}", text());
        handle.release().expect("no error");
        assert!(!text().contains(&us), "{}", text());
        assert!(handle.try_opening().expect("no error"));
        assert!(text().contains(&us) && !text().contains(", stopped"), "{}", text());
    }
}
