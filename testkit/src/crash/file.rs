//! The files and locks of a [`CrashDisk`](crate::crash::disk::CrashDisk).

use crate::crash::fault::{Call, Fault};
use crate::crash::state::{Shared, Way};
use crate::write_back::Received;
use ebbtide::media::{Access, ByteLocks, Mapping, MediaFile};
use ebbtide_core::atomic::AtomicU64;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// An open file.
#[derive(Debug)]
pub(crate) struct CrashFile {
    pub(crate) disk: Arc<Shared>,
    pub(crate) inode: u64,
    pub(crate) file: Arc<dyn MediaFile>,
    /// The failures of write-back that it has received.
    pub(crate) received: Received,
}

impl MediaFile for CrashFile {
    fn bytes(&self) -> io::Result<u64> {
        drop(self.disk.enter(Call::Examine)?);
        self.file.bytes()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        drop(self.disk.enter(Call::Examine)?);
        self.file.allocated_bytes()
    }

    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        let (mut state, way) = self.disk.enter(Call::Allocate)?;
        self.file.allocate(bytes.clone())?;
        if let Some(content) = state.contents.get_mut(&self.inode) {
            content.end = content.end.max(bytes.end);
        }
        state.late(way)
    }

    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        let (state, way) = self.disk.enter(Call::Free)?;
        self.file.free(bytes)?;
        state.late(way)
    }

    fn identity(&self) -> io::Result<u64> {
        drop(self.disk.enter(Call::Examine)?);
        Ok(self.inode)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (mut state, way) = self.disk.enter(Call::Read)?;
        state.decide(self.inode, offset..offset.saturating_add(buffer.len() as u64));
        self.file.read_at(buffer, offset)?;
        if way == Way::Badly {
            // The bit depends on the offset of the read, so that different bits are wrong.
            let at = (offset as usize / 8 + 5 * buffer.len() / 7) % buffer.len().max(1);
            buffer.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x10);
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let (mut state, way) = self.disk.enter(Call::Write)?;
        let (done, outcome) = match way {
            Way::Well => (buffer.len(), Ok(())),
            Way::Badly => (buffer.len() / 2, Err(state.failure())),
            Way::Late => (buffer.len(), Err(state.failure())),
        };
        let end = offset + done as u64;
        state.decide(self.inode, offset..end);
        state.tape.now += 1;
        self.file.write_at(&buffer[..done], offset)?;
        if let Some(content) = state.contents.get_mut(&self.inode) {
            content.end = content.end.max(end);
        }
        state.note(self.inode, &*self.file, offset..end);
        outcome
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let (mut state, way) = self.disk.enter(Call::Truncate)?;
        state.tape.now += 1;
        self.file.truncate(bytes)?;
        state.note(self.inode, &*self.file, bytes..bytes);
        state.late(way)
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, way) = self.disk.enter_sync(self.inode)?;
        if way == Way::Badly {
            let error = state.failure();
            if let Some(inode) = state.tape.inodes.get_mut(&self.inode) {
                inode.fail();
            }
            if state.planned() == Some(Fault::SyncDropsPages) {
                state.drop_pages(self.inode);
            }
            state.written_back.fail(self.inode, &self.received);
            return Err(error);
        }
        // As of Linux: each opening that existed when a sync failed receives the error.
        state.written_back.report(self.inode, &self.received)?;
        if !state.lying {
            state.tape.sync_file(self.inode);
        }
        state.late(way)
    }

    fn check_written(&self) -> io::Result<()> {
        // What fails is the write-back: see `CrashDisk::lose`.
        self.disk.state().written_back.report(self.inode, &self.received)
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        let (mut state, _) = self.disk.enter(Call::Map)?;
        let mapping = self.file.map(access)?;
        let noted = state.tape.inodes.get(&self.inode).is_some_and(|inode| !inode.is_bank());
        let content = state.content(&self.disk.memory, self.inode);
        if noted && content.look.is_none() {
            content.look = Some(self.file.map(Access::Write)?);
        }
        state.decide(self.inode, 0..u64::MAX);
        let (disk, inode) = (self.disk.clone(), self.inode);
        // A mapping keeps the opening that it was made from.
        let received = (access == Access::Write).then(|| self.received.clone());
        Ok(Box::new(CrashMapping { disk, inode, received, mapping }))
    }
}

#[derive(Debug)]
struct CrashMapping {
    disk: Arc<Shared>,
    inode: u64,
    received: Option<Received>,
    mapping: Box<dyn Mapping>,
}

// SAFETY: the words are those of the mapping that this value owns.
#[expect(unsafe_code, reason = "the trait asks for a promise")]
unsafe impl Mapping for CrashMapping {
    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    fn write_back(&self, _words: usize) -> io::Result<()> {
        *self.disk.state().passed_on.entry(self.inode).or_default() += 1;
        Ok(())
    }

    fn check_written(&self) -> io::Result<()> {
        let Some(received) = &self.received else { return Ok(()) };
        self.disk.state().written_back.report(self.inode, received)
    }

    fn populate(&self, words: Range<usize>) {
        self.mapping.populate(words);
    }

    fn release(&self, words: Range<usize>) {
        self.mapping.release(words);
    }
}

/// Locks that may fail.
#[derive(Debug)]
pub(crate) struct CrashLocks {
    pub(crate) disk: Arc<Shared>,
    pub(crate) locks: Box<dyn ByteLocks>,
}

impl ByteLocks for CrashLocks {
    fn try_lock(&self, byte: u64, access: Access) -> io::Result<bool> {
        drop(self.disk.enter(Call::Lock)?);
        self.locks.try_lock(byte, access)
    }

    fn unlock(&self, byte: u64) -> io::Result<()> {
        drop(self.disk.enter(Call::Lock)?);
        self.locks.unlock(byte)
    }

    fn is_held_by_others(&self, bytes: Range<u64>) -> io::Result<bool> {
        drop(self.disk.enter(Call::Lock)?);
        self.locks.is_held_by_others(bytes)
    }
}
