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
//! Each handle opens the file itself, so that two handles of one process are distinguished. The
//! system reports no conflict of a handle with its own locks, so it is never asked about the
//! handle's own slot. After a death, `engine::dead_owners` decides that an owner is dead,
//! `stripe_lock` takes its locks over, and `recovery::repair_stripe` completes what it had begun.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::{Access, ByteLocks, Media};
use crate::primitives::{self, AtomicU64, Instant, Ordering};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// The number of slots that the file has bytes for: the maximum number of handles on a filter.
pub const SLOTS: u16 = 126;

// The image's session table has room for all of them, and lock words can represent them.
const _: () = assert!(SLOTS as usize <= crate::image::identity::SLOTS_WORDS);
const _: () = assert!(SLOTS <= crate::locks::stripe_lock::Owner::SLOTS);

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

    /// Tries until it is done, or has slept for `patience` since the holder of the opening byte
    /// last showed progress. The time in which this process itself was stopped does not count: the
    /// bytes that alternate may then look as before. Tries at least once.
    fn wait_for_opener(&self, patience: Duration, done: impl Fn() -> Result<bool>) -> Result<bool> {
        let (mut slept, mut seen) = (Duration::ZERO, None);
        let mut pause = FIRST_PAUSE;
        loop {
            if done()? {
                return Ok(true);
            }
            let now = Some(self.progress()?);
            if seen != now {
                // The first observation is no change.
                slept = if seen.is_some() { Duration::ZERO } else { slept };
                seen = now;
            }
            let left = patience.saturating_sub(slept);
            if left.is_zero() {
                return Ok(false);
            }
            primitives::sleep(pause.min(left));
            slept += pause.min(left);
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

    /// Returns whether a slot is free. It stays so while the caller holds the opening byte.
    ///
    /// # Errors
    /// The system's error.
    pub fn has_free_slot(&self) -> Result<bool> {
        for slot in 0..SLOTS {
            let byte = slot_byte(slot);
            if !self.is_held(byte..byte + 1)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the first free slot; `None` if all are taken. A handle that has one keeps it.
    ///
    /// # Errors
    /// The system's error.
    #[cfg(test)]
    pub fn take(&self) -> Result<Option<u16>> {
        self.take_registered(|_| ())
    }

    /// As [`Sessions::take`]; `register` is called with a slot that is free before it is taken, so
    /// every held slot has been registered. The caller holds the opening byte: nobody else takes a
    /// slot meanwhile.
    ///
    /// # Errors
    /// The system's error.
    pub fn take_registered(&self, mut register: impl FnMut(u16)) -> Result<Option<u16>> {
        if let Some(own) = self.own() {
            // For an image that was found instead of the one that it was taken for.
            register(own);
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
mod tests;
