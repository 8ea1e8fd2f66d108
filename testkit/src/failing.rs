//! A medium whose next call, or a later one, fails once, or whose syncs take long.

use ebbtide::media::{Access, ByteLocks, Mapping, Media, MediaFile};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A failure that is triggered by a later call.
#[derive(Debug)]
struct Fault {
    calls_before: u64,
    kind: ErrorKind,
}

/// A handle on a medium, with failures on demand; clones share them.
#[derive(Debug, Clone)]
pub struct Failing<M> {
    media: M,
    fault: Trigger,
    syncs: Syncs,
    /// Whether a file may have two names.
    links: bool,
}

/// The syncs of a medium's files.
#[derive(Debug, Clone, Default)]
struct Syncs(Arc<SyncCounts>);

#[derive(Debug, Default)]
struct SyncCounts {
    nanos_each: AtomicU64,
    count: AtomicU64,
    panics: AtomicBool,
    failed_write_back: AtomicBool,
}

impl Syncs {
    /// Counts a sync, and waits for as long as it takes. Relaxed: the numbers order nothing.
    fn wait(&self) {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0.panics.swap(false, Ordering::Relaxed), "a sync panics, as the test wants");
        let nanos = self.0.nanos_each.load(Ordering::Relaxed);
        if nanos > 0 {
            std::thread::sleep(Duration::from_nanos(nanos));
        }
    }
}

/// The pending failure of a medium, for all its files and locks.
#[derive(Debug, Clone, Default)]
struct Trigger(Arc<Mutex<Option<Fault>>>);

impl Trigger {
    /// Counts a call; called first in every method that may fail.
    fn admit(&self) -> Result<()> {
        let mut pending = self.0.lock().expect("no panic");
        match &mut *pending {
            Some(fault) if fault.calls_before == 0 => {
                let error = Error::new(fault.kind, "a fault on demand");
                *pending = None;
                return Err(error);
            }
            Some(fault) => fault.calls_before -= 1,
            None => {}
        }
        Ok(())
    }
}

impl<M> Failing<M> {
    /// Wraps a medium.
    pub fn new(media: M) -> Self {
        Self { media, fault: Trigger::default(), syncs: Syncs::default(), links: true }
    }

    /// Returns the medium as one whose files have one name each.
    #[must_use]
    pub fn without_links(self) -> Self {
        Self { links: false, ..self }
    }

    /// Returns the medium itself, whose calls are not counted.
    pub fn inner(&self) -> &M {
        &self.media
    }

    /// Makes the `n`-th call from now fail once with `kind`, without any effect; 1 is the very next
    /// one.
    ///
    /// Counts all calls, through any handle, of methods of [`Media`], [`MediaFile`] and
    /// [`ByteLocks`] that return a result. A pending fault is replaced. To fail each step of an
    /// operation in turn, run it with n = 1, 2, … until [`Failing::clear_faults`] returns true.
    pub fn fail_after(&self, n: u64, kind: ErrorKind) {
        let fault = Fault { calls_before: n.saturating_sub(1), kind };
        *self.fault.0.lock().expect("no panic") = Some(fault);
    }

    /// Removes the pending fault; returns whether there was one.
    pub fn clear_faults(&self) -> bool {
        self.fault.0.lock().expect("no panic").take().is_some()
    }

    /// Makes each sync of a file take this much longer from now on.
    pub fn slow_syncs(&self, by: Duration) {
        self.syncs.0.nanos_each.store(by.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Reports a failed write-back to the next opening that asks.
    pub fn fail_write_back(&self) {
        self.syncs.0.failed_write_back.store(true, Ordering::Relaxed);
    }

    /// Returns whether a failed write-back was reported.
    pub fn has_reported(&self) -> bool {
        !self.syncs.0.failed_write_back.load(Ordering::Relaxed)
    }

    /// Makes the next sync of a file panic.
    pub fn panic_in_next_sync(&self) {
        self.syncs.0.panics.store(true, Ordering::Relaxed);
    }

    /// Returns how often a file was synced.
    pub fn syncs(&self) -> u64 {
        self.syncs.0.count.load(Ordering::Relaxed)
    }

    fn file(&self, file: Box<dyn MediaFile>) -> Box<dyn MediaFile> {
        Box::new(Part { inner: file, fault: self.fault.clone(), syncs: self.syncs.clone() })
    }
}

/// A file or the locks of a failing medium.
#[derive(Debug)]
struct Part<T> {
    inner: T,
    fault: Trigger,
    syncs: Syncs,
}

impl<M: Media> Media for Failing<M> {
    fn path(&self) -> &Path {
        self.media.path()
    }

    fn make(&self) -> Result<()> {
        self.fault.admit()?;
        self.media.make()
    }

    fn list(&self) -> Result<Vec<String>> {
        self.fault.admit()?;
        self.media.list()
    }

    fn create(&self, name: &str, bytes: u64) -> Result<Box<dyn MediaFile>> {
        self.fault.admit()?;
        Ok(self.file(self.media.create(name, bytes)?))
    }

    fn create_with_hole(
        &self,
        name: &str,
        bytes: u64,
        allocated: u64,
    ) -> Result<Box<dyn MediaFile>> {
        self.fault.admit()?;
        Ok(self.file(self.media.create_with_hole(name, bytes, allocated)?))
    }

    fn create_to_grow(
        &self,
        name: &str,
        lengths: (u64, u64),
        allocated: u64,
    ) -> Result<Box<dyn MediaFile>> {
        self.fault.admit()?;
        Ok(self.file(self.media.create_to_grow(name, lengths, allocated)?))
    }

    fn open(&self, name: &str, access: Access) -> Result<Box<dyn MediaFile>> {
        self.fault.admit()?;
        Ok(self.file(self.media.open(name, access)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.fault.admit()?;
        self.media.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.fault.admit()?;
        self.media.rename_new(from, to)
    }

    fn link_new(&self, from: &str, to: &str) -> Result<()> {
        self.fault.admit()?;
        if !self.links {
            return Err(ErrorKind::Unsupported.into());
        }
        self.media.link_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.fault.admit()?;
        self.media.remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.fault.admit()?;
        self.media.sync()
    }

    fn locks(&self, name: &str, access: Access) -> Result<Box<dyn ByteLocks>> {
        self.fault.admit()?;
        let inner = self.media.locks(name, access)?;
        Ok(Box::new(Part { inner, fault: self.fault.clone(), syncs: self.syncs.clone() }))
    }

    fn boot_id(&self) -> Result<u128> {
        self.fault.admit()?;
        self.media.boot_id()
    }
}

impl ByteLocks for Part<Box<dyn ByteLocks>> {
    fn try_lock(&self, byte: u64, access: Access) -> Result<bool> {
        self.fault.admit()?;
        self.inner.try_lock(byte, access)
    }

    fn unlock(&self, byte: u64) -> Result<()> {
        self.fault.admit()?;
        self.inner.unlock(byte)
    }

    fn is_held_by_others(&self, bytes: Range<u64>) -> Result<bool> {
        self.fault.admit()?;
        self.inner.is_held_by_others(bytes)
    }

    // Never fails: who asks takes an error for a yes.
    fn has_its_name(&self) -> Result<bool> {
        self.inner.has_its_name()
    }
}

impl MediaFile for Part<Box<dyn MediaFile>> {
    fn bytes(&self) -> Result<u64> {
        self.fault.admit()?;
        self.inner.bytes()
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.fault.admit()?;
        self.inner.allocated_bytes()
    }

    fn identity(&self) -> Result<u64> {
        self.fault.admit()?;
        self.inner.identity()
    }

    fn allocate(&self, bytes: Range<u64>) -> Result<()> {
        self.fault.admit()?;
        self.inner.allocate(bytes)
    }

    fn free(&self, bytes: Range<u64>) -> Result<()> {
        self.fault.admit()?;
        self.inner.free(bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.fault.admit()?;
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.fault.admit()?;
        self.inner.write_at(buffer, offset)
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        self.fault.admit()?;
        self.inner.truncate(bytes)
    }

    fn sync(&self) -> Result<()> {
        self.fault.admit()?;
        self.syncs.wait();
        self.inner.sync()
    }

    fn check_written(&self) -> Result<()> {
        // Not counted: files of the image are asked at times that depend on other threads.
        if self.syncs.0.failed_write_back.swap(false, Ordering::Relaxed) {
            return Err(Error::other("a failed write-back on demand"));
        }
        self.inner.check_written()
    }

    fn map(&self, access: Access) -> Result<Box<dyn Mapping>> {
        self.fault.admit()?;
        self.inner.map(access)
    }

    fn map_to_grow(&self, access: Access, most: u64) -> Result<Box<dyn Mapping>> {
        self.fault.admit()?;
        self.inner.map_to_grow(access, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::media::Memory;
    use std::time::Instant;

    #[test]
    fn slow_syncs_are_counted_and_take_their_time() {
        let media = Failing::new(Memory::new());
        media.make().expect("a directory");
        let file = media.create("a", 8).expect("a file");
        file.sync().expect("synced");
        media.slow_syncs(Duration::from_millis(3));
        let begin = Instant::now();
        file.sync().expect("synced");
        assert!(media.syncs() == 2 && begin.elapsed() >= Duration::from_millis(3));
        media.panic_in_next_sync();
        let again = std::panic::AssertUnwindSafe(|| file.sync());
        assert!(std::panic::catch_unwind(again).is_err());
        file.sync().expect("synced");
    }
}
