//! Which processes have a filter open, from the outside.

use crate::error::Result;
use crate::locks::holder_names;
use crate::locks::session_slots::slot_of_byte;
use std::path::Path;

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
/// [`Error::Io`](crate::Error::Io) if the file `lock` or the list of processes cannot be read.
pub fn handles(dir: impl AsRef<Path>) -> Result<Vec<OpenHandle>> {
    let mut found = Vec::new();
    for holder in holder_names::holders(dir.as_ref())? {
        let (pid, stopped) = (holder.pid, holder.stopped);
        found.extend(holder.bytes.iter().copied().filter_map(slot_of_byte).map(|slot| {
            let process = holder.process.clone();
            OpenHandle { slot, pid, process, stopped }
        }));
    }
    found.sort_by_key(|handle| (handle.slot, handle.pid));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bloom, Filter, Options};

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
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
