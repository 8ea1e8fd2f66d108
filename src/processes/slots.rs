//! The slots of a filter: proof that a handle lives.
//!
//! Owns the meaning of the bytes of the file `lock`, which is never renamed and never deleted. Byte 0, the
//! *opening* byte, is held while a handle opens. Byte 1 + s is held by the handle in slot s for as long as
//! it lives; the system releases it when its process dies, however it dies. No process ids: they are
//! reused, and mean nothing across containers.
//!
//! For now a filter has one handle at a time, which takes slot 0: whoever finds it held is refused. Letting
//! several processes in means to attach here instead, in the next free slot, and to look at all
//! [`SLOTS`] bytes for life before recovering.

use crate::error::{Error, Result};
use crate::media::{ByteLock, Media};
use crate::names::FileName;
use std::time::Duration;

/// Slots that the file has bytes for.
pub const SLOTS: u16 = 126;

// The image's slot table has room for all of them.
const _: () = assert!(SLOTS as usize <= crate::bytes::PAGE_WORDS);

const OPENING_BYTE: u64 = 0;
const FIRST_SLOT_BYTE: u64 = 1;

/// How often a byte is tried, and how long apart: some 100 ms, enough for another handle that
/// is being refused or has just been killed, not for one that recovers a filter.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// The right to open or create the filter, until dropped. Everybody else waits.
#[derive(Debug)]
pub struct Opening {
    _lock: Box<dyn ByteLock>,
}

/// A slot, held until dropped or until the process dies.
#[derive(Debug)]
pub struct Slot {
    index: u16,
    _lock: Box<dyn ByteLock>,
}

impl Slot {
    /// Its number, below [`SLOTS`]; lock words name it.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.index
    }
}

/// Takes a slot, and with it the right to open the filter alone; the caller drops the second when the
/// filter is open. `None` if another handle has the filter open or is opening it.
///
/// # Errors
/// The system's refusal to open or lock the file `lock`.
pub fn take(media: &dyn Media) -> Result<Option<(Slot, Opening)>> {
    let Some(opening) = patiently(media, OPENING_BYTE)?.map(|lock| Opening { _lock: lock }) else {
        return Ok(None);
    };
    // Tried for a while too: the child of a fork holds it until it executes something else.
    let Some(lock) = patiently(media, FIRST_SLOT_BYTE)? else {
        return Ok(None);
    };
    Ok(Some((Slot { index: 0, _lock: lock }, opening)))
}

fn patiently(media: &dyn Media, byte: u64) -> Result<Option<Box<dyn ByteLock>>> {
    for _ in 1..TRIES {
        if let Some(lock) = try_byte(media, byte)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(PAUSE);
    }
    try_byte(media, byte)
}

fn try_byte(media: &dyn Media, byte: u64) -> Result<Option<Box<dyn ByteLock>>> {
    let name = FileName::Lock.to_string();
    media.lock(&name, byte).map_err(Error::io("lock", media.path().join(name)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::{Disk, Memory};
    use std::io::ErrorKind;

    fn memory() -> Memory {
        let memory = Memory::new();
        memory.make().expect("nothing fails yet");
        memory
    }

    #[test]
    fn one_handle_at_a_time_has_the_slot() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for media in [&Disk::new(directory.path()) as &dyn Media, &memory()] {
            let (slot, opening) = take(media).expect("no error").expect("nobody else is there");
            assert_eq!(slot.index(), 0);
            drop(opening);
            assert!(take(media).expect("no error").is_none(), "the slot is held");
            drop(slot);
            let again = take(media).expect("no error").expect("free again");
            assert!(take(media).expect("no error").is_none(), "it is being opened");
            drop(again);
            assert_eq!(media.list().expect("made"), ["lock"], "the file stays");
        }
    }

    #[test]
    fn a_refused_handle_leaves_the_opening_byte_free() {
        let memory = memory();
        let (slot, opening) = take(&memory).expect("no error").expect("nobody else is there");
        drop(opening);
        assert!(take(&memory).expect("no error").is_none());
        assert!(memory.lock("lock", OPENING_BYTE).expect("no error").is_some());
        drop(slot);
    }

    #[test]
    fn a_busy_opening_byte_is_tried_again() {
        let memory = memory();
        let busy = memory.lock("lock", OPENING_BYTE).expect("no error");
        // The fault is met by the fourth try only.
        memory.fail_after(4, ErrorKind::Other);
        take(&memory).expect_err("the fault on demand");
        assert!(!memory.clear_faults());
        drop(busy);
    }

    #[test]
    fn a_refusal_of_the_system_is_passed_on() {
        let memory = memory();
        for call in [1, 2] {
            memory.fail_after(call, ErrorKind::PermissionDenied);
            let error = take(&memory).expect_err("the fault on demand");
            assert!(matches!(error, Error::Io { action: "lock", .. }), "{error}");
        }
        assert!(take(&memory).expect("no error").is_some(), "nothing was left locked");
    }
}
