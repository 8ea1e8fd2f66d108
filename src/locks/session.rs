//! The session slots of a filter: proof that a handle lives, and exclusive tasks.
//!
//! Defines the meaning of the bytes of the file `lock`, which is never renamed and never deleted:
//! - Byte 0, *opening*: held while a handle creates, opens, recovers, alters or closes. Processes
//!   that only look query it, and hold nothing.
//! - Byte 1 + s: held by the handle in slot s for as long as it lives; the system releases it when
//!   its process dies, however it dies. Process ids are not used: they are reused, and mean nothing
//!   across containers.
//! - Byte 127, *checkpoint*: held by the writer of a snapshot, to avoid duplicate work.
//! - Byte 130, *alteration*: held by the handle that alters the filter.
//! - Bytes 128 and 129, *progress*: the holder of the opening byte alternates between them as its
//!   work progresses. Processes that wait for the opening byte measure their patience from the last
//!   change.
//!
//! Each handle opens the file for itself, so two handles of one process are also distinguished. A
//! handle's own locks never conflict with each other, so the system is never queried about this
//! handle's slot. The consequences of a death are handled elsewhere.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::{Access, ByteLocks, Media};
use crate::sync::{self, AtomicU64, Instant, Ordering};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// The number of slots that the file has bytes for: the maximum number of handles on a filter.
pub const SLOTS: u16 = 126;

// The image's session table has room for all of them, and lock words can represent them.
const _: () = assert!(SLOTS as usize <= crate::format::header::PAGE_WORDS);
const _: () = assert!(SLOTS <= crate::locks::robust_word::Owner::SLOTS);

/// The byte that is held by a handle that creates, opens, recovers, alters or closes the filter.
pub const OPENING_BYTE: u64 = 0;
const FIRST_SLOT_BYTE: u64 = 1;
const CHECKPOINT_BYTE: u64 = FIRST_SLOT_BYTE + SLOTS as u64;
const PROGRESS_BYTES: [u64; 2] = [CHECKPOINT_BYTE + 1, CHECKPOINT_BYTE + 2];
const ALTERATION_BYTE: u64 = PROGRESS_BYTES[1] + 1;

/// The least time between two changes of the progress bytes.
const PROGRESS_BEAT: Duration = Duration::from_millis(200);

/// The first and the maximum pause between attempts to get the opening byte.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Returns the byte that is held by the handle in this slot.
fn slot_byte(slot: u16) -> u64 {
    FIRST_SLOT_BYTE + u64::from(slot)
}

/// Returns the slot whose byte this is; `None` for bytes of other meaning.
#[must_use]
pub fn slot_of_byte(byte: u64) -> Option<u16> {
    let slot = byte.checked_sub(FIRST_SLOT_BYTE)? as u16;
    (byte < CHECKPOINT_BYTE).then_some(slot)
}

/// One handle's view of the slots, and its hold on one of them. Dropping it releases everything.
#[derive(Debug)]
pub struct Sessions {
    locks: Box<dyn ByteLocks>,
    path: PathBuf,
    /// This handle's slot plus one, or zero. Written by the thread that opens or closes the handle,
    /// before other threads have it or after they are done.
    own: AtomicU64,
    /// 1 while this handle has the opening byte.
    opening: AtomicU64,
    /// The number of times that progress was shown since, and the last time, in microseconds since
    /// the file was opened.
    shown: AtomicU64,
    shown_at: AtomicU64,
    opened: Instant,
}

impl Sessions {
    /// Opens the file `lock`, with [`Access::Write`] creating it if necessary. With
    /// [`Access::Read`] the bytes can be queried, but nothing can be acquired.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(media: &dyn Media, access: Access) -> Result<Self> {
        let name = FileName::Lock.to_string();
        let path = media.path().join(&name);
        let locks = media.locks(&name, access).map_err(Error::io("lock", &path))?;
        let [own, opening, shown, shown_at] = [0; 4].map(AtomicU64::new);
        Ok(Self { locks, path, own, opening, shown, shown_at, opened: Instant::now() })
    }

    /// Returns whether the directory is still the filter's: false once it was removed, or replaced
    /// by another filter. The locks held here are then irrelevant to others. On a system error,
    /// assumes true.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.locks.has_its_name().unwrap_or(true)
    }

    /// Tries to get the opening byte. Returns false if another handle holds it.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_opening(&self) -> Result<bool> {
        let taken = self.try_byte(OPENING_BYTE)?;
        // Relaxed, as the other words here: nothing but the handle's own locks depends on them.
        self.opening.store(u64::from(taken), Ordering::Relaxed);
        Ok(taken)
    }

    /// Returns whether another handle opens, recovers or closes the filter now.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_being_opened(&self) -> Result<bool> {
        self.is_held(OPENING_BYTE..OPENING_BYTE + 1)
    }

    /// Shows processes that wait for the opening byte that the work of this handle, which holds it,
    /// progresses. Call it often.
    pub fn note_progress(&self) {
        let now = self.opened.elapsed().as_micros() as u64;
        let last = self.shown_at.load(Ordering::Relaxed);
        if self.opening.load(Ordering::Relaxed) == 0
            || now.saturating_sub(last) < PROGRESS_BEAT.as_micros() as u64
        {
            return;
        }
        self.shown_at.store(now, Ordering::Relaxed);
        let shown = self.shown.fetch_add(1, Ordering::Relaxed) as usize;
        // If it cannot be shown, others wait as if nothing had happened.
        let _ = self.locks.try_lock(PROGRESS_BYTES[shown % 2], Access::Read);
        let _ = self.locks.unlock(PROGRESS_BYTES[(shown + 1) % 2]);
    }

    /// Returns which of the progress bytes are held.
    fn progress(&self) -> Result<[bool; 2]> {
        let [one, other] = PROGRESS_BYTES.map(|byte| self.is_held(byte..byte + 1));
        Ok([one?, other?])
    }

    /// As [`Sessions::try_opening`], repeatedly until `patience` has passed since the holder of the
    /// byte last showed progress. Tries at least once.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait_opening(&self, patience: Duration) -> Result<bool> {
        self.wait_for_opener(patience, || self.try_opening())
    }

    /// Waits until no other handle opens, recovers or closes the filter; takes nothing. Returns
    /// false if `patience` has passed since that handle last showed progress.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait_until_unopened(&self, patience: Duration) -> Result<bool> {
        self.wait_for_opener(patience, || Ok(!self.is_being_opened()?))
    }

    /// Tries until it is done, or `patience` has passed since the holder of the opening byte last
    /// showed progress. Tries at least once.
    fn wait_for_opener(&self, patience: Duration, done: impl Fn() -> Result<bool>) -> Result<bool> {
        let (mut begin, mut seen) = (Instant::now(), None);
        let mut pause = FIRST_PAUSE;
        loop {
            if done()? {
                return Ok(true);
            }
            let now = Some(self.progress()?);
            if seen != now {
                // The first observation is no change.
                begin = if seen.is_some() { Instant::now() } else { begin };
                seen = now;
            }
            let left = patience.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            sync::sleep(pause.min(left));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Releases the opening byte.
    ///
    /// # Errors
    /// The system's error; the byte may then still be held.
    pub fn end_opening(&self) -> Result<()> {
        self.opening.store(0, Ordering::Relaxed);
        if self.shown.swap(0, Ordering::Relaxed) > 0 {
            for byte in PROGRESS_BYTES {
                // It means nothing without the opening byte.
                let _ = self.locks.unlock(byte);
            }
        }
        self.free_byte(OPENING_BYTE)
    }

    /// Returns whether any other handle holds a slot.
    ///
    /// # Errors
    /// The system's error.
    pub fn anyone_else(&self) -> Result<bool> {
        let slots = slot_byte(0)..slot_byte(SLOTS);
        match self.own().map(slot_byte) {
            Some(own) => Ok(self.is_held(slots.start..own)? || self.is_held(own + 1..slots.end)?),
            None => self.is_held(slots),
        }
    }

    /// Returns whether any other handle holds a slot of which `is_used` is true.
    ///
    /// # Errors
    /// The system's error.
    pub fn anyone_of(&self, is_used: impl Fn(u16) -> bool) -> Result<bool> {
        let mut used = (0..SLOTS).filter(|&slot| self.own() != Some(slot) && is_used(slot));
        used.try_fold(false, |found, slot| {
            let byte = slot_byte(slot);
            Ok(found || self.is_held(byte..byte + 1)?)
        })
    }

    /// Takes the first free slot; `None` if all are taken. A handle that has one keeps it.
    ///
    /// # Errors
    /// The system's error.
    #[cfg(test)]
    pub fn take(&self) -> Result<Option<u16>> {
        self.take_registered(|_| ())
    }

    /// As [`Sessions::take`]; `register` is called with a slot that is free before it is taken. So
    /// what it does has happened for each slot that is held. The caller holds the opening byte:
    /// nobody else takes a slot meanwhile.
    ///
    /// # Errors
    /// The system's error.
    pub fn take_registered(&self, mut register: impl FnMut(u16)) -> Result<Option<u16>> {
        if let Some(own) = self.own() {
            return Ok(Some(own));
        }
        for slot in 0..SLOTS {
            let byte = slot_byte(slot);
            if self.is_held(byte..byte + 1)? {
                continue;
            }
            register(slot);
            if self.try_byte(byte)? {
                // Relaxed, here and below: see the field.
                self.own.store(u64::from(slot) + 1, Ordering::Relaxed);
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// Releases this handle's slot, then the opening byte: a process that finds the slot free finds
    /// the opening byte free too, or waits for it.
    ///
    /// # Errors
    /// The system's error; bytes that were not released are held until this is dropped.
    pub fn release(&self) -> Result<()> {
        if let Some(own) = self.own() {
            self.free_byte(slot_byte(own))?;
            self.own.store(0, Ordering::Relaxed);
        }
        self.end_opening()
    }

    /// Returns this handle's slot.
    #[must_use]
    pub fn own(&self) -> Option<u16> {
        let slot = self.own.load(Ordering::Relaxed).checked_sub(1)?;
        Some(slot as u16)
    }

    /// Returns whether a live handle holds this slot. On a system error, assumes that the owner is
    /// alive. A slot without a byte in the file is never alive, whatever refers to it.
    #[must_use]
    pub fn is_alive(&self, slot: u16) -> bool {
        let byte = slot_byte(slot);
        let asked = || self.locks.is_held_by_others(byte..byte + 1).unwrap_or(true);
        slot < SLOTS && (self.own() == Some(slot) || asked())
    }

    /// Returns all slots with a live handle, ascending, including the own one.
    ///
    /// # Errors
    /// The system's error.
    pub fn alive(&self) -> Result<Vec<u16>> {
        let mut alive = Vec::new();
        for slot in 0..SLOTS {
            let byte = slot_byte(slot);
            if self.own() == Some(slot) || self.is_held(byte..byte + 1)? {
                alive.push(slot);
            }
        }
        Ok(alive)
    }

    /// Tries to get the checkpoint byte.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_checkpoint(&self) -> Result<bool> {
        self.try_byte(CHECKPOINT_BYTE)
    }

    /// Tries to get the byte of the handle that alters the filter. It is released when this is
    /// dropped, or by [`Sessions::end_alteration`].
    ///
    /// # Errors
    /// The system's error.
    pub fn try_alteration(&self) -> Result<bool> {
        self.try_byte(ALTERATION_BYTE)
    }

    /// Releases that byte.
    ///
    /// # Errors
    /// The system's error; the byte may then still be held.
    pub fn end_alteration(&self) -> Result<()> {
        self.free_byte(ALTERATION_BYTE)
    }

    /// Releases the checkpoint byte.
    ///
    /// # Errors
    /// The system's error; the byte may then still be held.
    pub fn end_checkpoint(&self) -> Result<()> {
        self.free_byte(CHECKPOINT_BYTE)
    }

    fn try_byte(&self, byte: u64) -> Result<bool> {
        self.locks.try_lock(byte, Access::Write).map_err(self.refused("lock"))
    }

    fn free_byte(&self, byte: u64) -> Result<()> {
        self.locks.unlock(byte).map_err(self.refused("unlock"))
    }

    fn is_held(&self, bytes: Range<u64>) -> Result<bool> {
        self.locks.is_held_by_others(bytes).map_err(self.refused("probe"))
    }

    fn refused(&self, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        Error::io(action, &self.path)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::failing::Failing;
    use crate::media::{Disk, Memory};
    use std::io::ErrorKind;

    #[test]
    fn each_slot_has_a_byte_of_its_own_and_no_other_byte_is_a_slot() {
        assert!((0..SLOTS).all(|slot| slot_of_byte(slot_byte(slot)) == Some(slot)));
        let others = [OPENING_BYTE, CHECKPOINT_BYTE, CHECKPOINT_BYTE + 1, u64::MAX];
        assert!(others.iter().all(|&other| slot_of_byte(other).is_none()));
    }

    fn on_every_medium(claim: impl Fn(&dyn Media)) {
        // Miri has no locks of open file descriptions.
        if !cfg!(miri) {
            let directory = tempfile::tempdir().expect("a temporary directory");
            claim(&Disk::new(directory.path()));
        }
        claim(&memory());
    }

    fn memory() -> Failing<Memory> {
        let memory = Failing::new(Memory::new());
        memory.make().expect("nothing fails yet");
        memory
    }

    fn open(media: &dyn Media) -> Sessions {
        Sessions::open(media, Access::Write).expect("no error")
    }

    fn taken(media: &dyn Media) -> Sessions {
        let slots = open(media);
        slots.take().expect("no error").expect("a free slot");
        slots
    }

    #[test]
    fn two_handles_get_different_slots() {
        on_every_medium(|media| {
            let (a, b) = (open(media), open(media));
            assert_eq!((a.own(), a.alive().expect("no error")), (None, vec![]));
            assert_eq!(a.take().expect("no error"), Some(0));
            assert_eq!(a.take().expect("no error"), Some(0), "it keeps the one it has");
            assert_eq!(b.take().expect("no error"), Some(1));
            assert_eq!((a.own(), b.own()), (Some(0), Some(1)));
            for handle in [&a, &b, &open(media)] {
                assert_eq!(handle.alive().expect("no error"), [0, 1]);
                assert!(handle.is_alive(0) && handle.is_alive(1) && !handle.is_alive(2));
            }
            assert_eq!(media.list().expect("made"), ["lock"]);
        });
    }

    #[test]
    fn all_slots_can_be_taken_and_one_more_is_refused() {
        on_every_medium(|media| {
            let handles: Vec<Sessions> = (0..SLOTS).map(|_| taken(media)).collect();
            let own: Vec<u16> = handles.iter().filter_map(Sessions::own).collect();
            assert!(own.iter().copied().eq(0..SLOTS));
            let late = open(media);
            assert_eq!(late.take().expect("no error"), None);
            assert_eq!((late.own(), late.alive().expect("no error")), (None, own));
            // The bytes beside the slots are not slots.
            assert!(late.try_opening().expect("no error"));
            assert!(late.try_checkpoint().expect("no error"));
            assert!(!late.is_alive(SLOTS) && !handles[0].is_alive(SLOTS));
            assert!(!handles[0].is_alive(u16::MAX));
        });
    }

    #[test]
    fn a_dropped_slot_is_free_and_the_next_one_takes_it() {
        on_every_medium(|media| {
            let (a, b, c) = (taken(media), taken(media), taken(media));
            drop(a);
            assert!(!c.is_alive(0) && c.is_alive(1));
            assert_eq!(c.alive().expect("no error"), [1, 2]);
            assert_eq!(taken(media).own(), Some(0));
            drop(b);
            assert_eq!(c.alive().expect("no error"), [2]);
        });
    }

    #[test]
    fn the_opening_byte_is_held_alone_and_seen_by_others() {
        on_every_medium(|media| {
            let (a, b) = (open(media), open(media));
            let reading = Sessions::open(media, Access::Read).expect("the file is there");
            assert!(a.try_opening().expect("no error"));
            assert!(!b.try_opening().expect("no error"));
            for other in [&b, &reading] {
                assert!(other.is_being_opened().expect("no error"));
                assert!(!other.wait_until_unopened(Duration::ZERO).expect("no error"));
            }
            a.end_opening().expect("no error");
            for other in [&b, &reading] {
                assert!(!other.is_being_opened().expect("no error"));
                assert!(other.wait_until_unopened(Duration::ZERO).expect("no error"));
            }
            // Whoever looks holds nothing.
            assert!(a.try_opening().expect("no error"));
        });
    }

    #[test]
    fn who_only_reads_sees_life_and_takes_nothing() {
        on_every_medium(|media| {
            let missing = Sessions::open(media, Access::Read).expect_err("there is no file");
            assert!(
                matches!(&missing, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
            );
            let alive = taken(media);
            let reading = Sessions::open(media, Access::Read).expect("the file is there");
            assert!(reading.anyone_else().expect("no error") && reading.is_alive(0));
            reading.take().expect_err("opened for reading");
            reading.try_checkpoint().expect_err("opened for reading");
            reading.try_opening().expect_err("opened for reading");
            assert_eq!(alive.alive().expect("no error"), [0]);
        });
    }

    #[test]
    fn the_own_slot_is_not_anyone_else() {
        on_every_medium(|media| {
            let handles: Vec<Sessions> = (0..3).map(|_| taken(media)).collect();
            let [first, middle, last] = <[Sessions; 3]>::try_from(handles).expect("three");
            for handle in [&first, &middle, &last] {
                assert!(handle.anyone_else().expect("no error"));
            }
            drop(first);
            assert!(middle.anyone_else().expect("no error"));
            assert!(last.anyone_else().expect("no error"));
            drop(last);
            assert!(!middle.anyone_else().expect("no error"));
            assert!(open(media).anyone_else().expect("no error"));
            // Handles that open or write a snapshot hold no slot.
            let other = open(media);
            assert!(other.try_opening().expect("no error"));
            assert!(other.try_checkpoint().expect("no error"));
            assert!(!middle.anyone_else().expect("no error"));
        });
    }

    #[test]
    fn one_handle_at_a_time_writes_a_snapshot() {
        on_every_medium(|media| {
            let (a, b) = (taken(media), taken(media));
            assert!(a.try_checkpoint().expect("no error"));
            assert!(!b.try_checkpoint().expect("no error"));
            a.end_checkpoint().expect("no error");
            assert!(b.try_checkpoint().expect("no error"));
            assert_eq!((a.own(), b.own()), (Some(0), Some(1)), "the slots are still held");
        });
    }

    #[test]
    fn patience_ends_and_is_rewarded() {
        on_every_medium(|media| {
            let (a, b) = (open(media), open(media));
            assert!(a.wait_opening(Duration::ZERO).expect("no error"));
            assert!(!b.wait_opening(Duration::ZERO).expect("no error"));
            assert!(!b.wait_opening(Duration::from_millis(25)).expect("no error"));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    a.end_opening().expect("no error");
                });
                let limit = Duration::from_secs(60);
                let entered = b.wait_opening(limit).expect("no error");
                assert!(entered, "the byte was given back, and not seen free for {limit:?}");
            });
        });
    }

    #[test]
    fn the_opening_byte_is_waited_for_as_long_as_its_holder_shows_progress() {
        on_every_medium(|media| {
            let (opener, waiting) = (open(media), open(media));
            let patience = 2 * PROGRESS_BEAT;
            assert!(opener.try_opening().expect("no error"));
            // Between any two attempts the holder shows progress, however busy the machine is.
            let start = Instant::now();
            let shown = || {
                opener.note_progress();
                Ok(start.elapsed() > 3 * patience)
            };
            assert!(waiting.wait_for_opener(patience, shown).expect("no error"));
            // It shows none any more.
            let start = Instant::now();
            assert!(!waiting.wait_opening(patience).expect("no error"));
            assert!(start.elapsed() >= patience);
            opener.end_opening().expect("no error");
            assert_eq!(waiting.progress().expect("no error"), [false; 2]);
            // Only the holder of the byte shows progress.
            opener.note_progress();
            assert_eq!(waiting.progress().expect("no error"), [false; 2]);
        });
    }

    #[test]
    fn a_busy_opening_byte_is_tried_again() {
        let memory = memory();
        let (busy, waiting) = (open(&memory), open(&memory));
        assert!(busy.try_opening().expect("no error"));
        // Only the fourth attempt meets the fault.
        memory.fail_after(4, ErrorKind::Other);
        waiting.wait_opening(Duration::from_secs(60)).expect_err("the fault on demand");
        assert!(!memory.clear_faults());
    }

    #[test]
    fn a_refusal_of_the_system_is_passed_on_and_counts_as_life() {
        let memory = memory();
        let slots = open(&memory);
        let fails = |action: &str, call: &dyn Fn() -> Result<()>| {
            memory.fail_after(1, ErrorKind::PermissionDenied);
            let error = call().expect_err("the fault on demand");
            let Error::Io { action: found, path, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!((*found, path), (action, &memory.path().join("lock")));
        };
        fails("lock", &|| Sessions::open(&memory, Access::Write).map(|_| ()));
        fails("lock", &|| slots.try_opening().map(|_| ()));
        fails("lock", &|| slots.wait_opening(Duration::MAX).map(|_| ()));
        fails("unlock", &|| slots.end_opening());
        fails("probe", &|| slots.anyone_else().map(|_| ()));
        fails("probe", &|| slots.alive().map(|_| ()));
        fails("probe", &|| slots.take().map(|_| ()));
        memory.fail_after(2, ErrorKind::PermissionDenied);
        assert!(matches!(slots.take(), Err(Error::Io { action: "lock", .. })));
        fails("lock", &|| slots.try_checkpoint().map(|_| ()));
        fails("unlock", &|| slots.end_checkpoint());
        assert_eq!(slots.take().expect("no error"), Some(0), "nothing was left behind");
        assert_eq!(slots.own(), Some(0));

        memory.fail_after(1, ErrorKind::Other);
        assert!(slots.is_alive(5), "who knows");
        assert!(!slots.is_alive(5));
        memory.fail_after(1, ErrorKind::Other);
        assert!(slots.is_alive(0), "not even asked");
        assert!(memory.clear_faults());
    }
}
