//! Which processes have a filter open, from the outside.
//!
//! The system records for each descriptor which bytes of a file it holds locked, and `/proc` shows
//! it. So a look needs no help from the processes, and finds stopped ones too.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::locks::session::slot_of_byte;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A live handle on a filter, and its process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OpenHandle {
    /// The handle's session slot, as in [`Details::slots`](crate::Details::slots).
    pub slot: u16,
    /// The id of the process, in the namespace of the caller.
    pub pid: u32,
    /// The name of the process, as the system shortens it.
    pub process: String,
    /// Whether the process is stopped, by a signal or a debugger.
    pub stopped: bool,
}

/// Returns the live handles on a filter whose processes the caller may examine, by slot. Processes
/// of other users (unless the caller is privileged) and of other containers are missing:
/// [`Details::slots`](crate::Details::slots) has the slots of all handles.
///
/// # Errors
/// [`Error::Io`] if the file `lock` or the list of processes cannot be read.
pub fn handles(dir: impl AsRef<Path>) -> Result<Vec<OpenHandle>> {
    let lock = dir.as_ref().join(FileName::Lock.to_string());
    let file = match fs::metadata(&lock) {
        Ok(found) => (found.dev(), found.ino()),
        // Such a filter was copied or restored, and never opened since.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("examine", lock)(error)),
    };
    let processes = fs::read_dir("/proc").map_err(Error::io("list", "/proc"))?;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<_> = pids.flat_map(|pid| of_process(pid, file)).collect();
    found.sort_by_key(|handle| (handle.slot, handle.pid));
    Ok(found)
}

/// Returns the handles of one process. Without permission, or if it has ended, there are none.
fn of_process(pid: u32, file: (u64, u64)) -> Vec<OpenHandle> {
    let home = PathBuf::from(format!("/proc/{pid}"));
    let Ok(descriptors) = fs::read_dir(home.join("fd")) else { return Vec::new() };
    let is_ours =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == file);
    let ours = descriptors.flatten().filter(|entry| is_ours(&entry.path()));
    let slots = ours.flat_map(|entry| {
        let locks = fs::read_to_string(home.join("fdinfo").join(entry.file_name()));
        slots_in(&locks.unwrap_or_default())
    });
    let slots: Vec<u16> = slots.collect();
    if slots.is_empty() {
        return Vec::new();
    }
    let name = fs::read_to_string(home.join("comm")).unwrap_or_default();
    let (process, stopped) = (name.trim_end().to_owned(), is_stopped(&home));
    let handle = |slot| OpenHandle { slot, pid, process: process.clone(), stopped };
    slots.into_iter().map(handle).collect()
}

/// Returns the session slots whose bytes these lines of a descriptor show as locked, as in
/// `lock:  1: OFDLCK  ADVISORY  WRITE -1 00:2f:4711 5 5`.
fn slots_in(descriptor: &str) -> Vec<u16> {
    let locked = |line: &str| {
        let mut numbers = line.strip_prefix("lock:")?.split_whitespace().rev();
        let (end, start) = (numbers.next()?.parse::<u64>().ok()?, numbers.next()?.parse().ok()?);
        Some(start..=end)
    };
    descriptor.lines().filter_map(locked).flatten().filter_map(slot_of_byte).collect()
}

/// Returns whether the state of a process is stopped or traced.
fn is_stopped(home: &Path) -> bool {
    let stat = fs::read_to_string(home.join("stat")).unwrap_or_default();
    // The name in parentheses may contain any character.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bloom, Filter, Options};

    #[test]
    fn slots_are_those_of_the_locked_bytes_and_other_bytes_are_no_handles() {
        let text = "pos:\t0\nlock:\t1: OFDLCK  ADVISORY  WRITE -1 00:2f:4711 1 1\n\
                    lock:\t2: OFDLCK  ADVISORY  READ -1 00:2f:4711 0 0\n\
                    lock:\t3: OFDLCK  ADVISORY  WRITE -1 00:2f:4711 5 6\n\
                    lock:\t4: OFDLCK  ADVISORY  WRITE -1 00:2f:4711 127 EOF\n";
        assert_eq!(slots_in(text), [0, 4, 5]);
        assert!(slots_in("flags: 2\nlock: odd\n").is_empty());
    }

    #[test]
    fn an_open_handle_is_found_with_its_process_and_a_closed_one_is_not() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let dir = home.path().join("seen");
        let filter = Filter::create(&dir, Bloom::capacity(100), Options::new()).expect("a filter");
        let second = Filter::<Bloom>::open(&dir, Options::new()).expect("a second handle");
        let found = handles(&dir).expect("handles");
        let slots: Vec<_> = found.iter().map(|handle| (handle.slot, handle.pid)).collect();
        assert_eq!(slots, [(0, std::process::id()), (1, std::process::id())]);
        assert!(found.iter().all(|handle| !handle.stopped && !handle.process.is_empty()));
        second.close().expect("closed");
        assert_eq!(handles(&dir).expect("handles").len(), 1);
        filter.close().expect("closed");
        assert!(handles(&dir).expect("handles").is_empty());
        assert!(handles(home.path()).expect("no lock file").is_empty());
    }
}
