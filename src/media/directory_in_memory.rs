//! A directory in memory: for tests, and for models where there can be no disk.
//!
//! It fulfils the contract of [`Media`] except durability: syncing does nothing. In addition it has
//! a size, so that it can be full. Limitation: a file that grows beyond its spare words gets new
//! ones, so a *mapped* file may only grow within them; the engine never grows a mapped file.

use crate::media::{Access, ByteLocks, Mapping, Media, MediaFile, available_memory};
use crate::primitives::mutex::Mutex;
use crate::primitives::{AtomicU64, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A handle on a directory in memory; clones share it, as two handles share a disk.
#[derive(Debug, Clone)]
pub struct Memory {
    directory: Arc<Mutex<Directory>>,
}

/// The state that all handles share. One lock guards names, lengths and space; words need none.
#[derive(Debug)]
struct Directory {
    made: bool,
    files: BTreeMap<String, Arc<Node>>,
    /// How each holder holds a byte of a file, by the file's identity, the byte, and the holder.
    locks: BTreeMap<(u64, u64), BTreeMap<u64, Access>>,
    last_holder: u64,
    capacity: u64,
    last_identity: u64,
}

/// A file, whatever its name, if it still has one.
#[derive(Debug)]
struct Node {
    identity: u64,
    content: Mutex<Content>,
}

/// `words` covers `bytes` and may have spare words, which are zero.
#[derive(Debug)]
struct Content {
    words: Words,
    bytes: u64,
    /// Pages, by number, that take no space.
    holes: BTreeSet<u64>,
}

/// Words of a file, shared with its mappings.
type Words = Arc<Box<[AtomicU64]>>;

/// The size from which an allocation is compared with the machine's memory before it is touched: a
/// process that takes more than there is would be killed, however large its address space is.
const COMPARED_BYTES: u64 = 64 << 20;

const REMEDY: &str = "plan a smaller filter, or create it in a directory";

/// The unit of holes.
const PAGE_BYTES: u64 = 4096;

impl Content {
    /// Returns the space that the file takes.
    fn occupied(&self) -> u64 {
        self.bytes.saturating_sub(self.holes.len() as u64 * PAGE_BYTES)
    }
}

/// Returns the pages that lie wholly within these bytes.
fn whole_pages(bytes: Range<u64>) -> Range<u64> {
    bytes.start.div_ceil(PAGE_BYTES)..bytes.end / PAGE_BYTES
}

impl Memory {
    /// Creates an empty medium without a directory, of unlimited size.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(u64::MAX)
    }

    /// As [`Memory::new`], with space for this many bytes. A file counts by its length, less its
    /// holes, for as long as it has a name.
    #[must_use]
    pub fn with_capacity(bytes: u64) -> Self {
        let directory = Directory {
            made: false,
            files: BTreeMap::new(),
            locks: BTreeMap::new(),
            last_holder: 0,
            capacity: bytes,
            last_identity: 0,
        };
        Self { directory: Arc::new(Mutex::new(directory)) }
    }

    /// Changes the size. If it becomes less than the space used, all files stay and nothing can
    /// grow.
    pub fn set_capacity(&self, bytes: u64) {
        self.directory.lock().capacity = bytes;
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Directory {
    /// Fails unless the directory exists.
    fn enter(&self) -> io::Result<()> {
        if self.made { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn find(&self, name: &str) -> io::Result<&Arc<Node>> {
        self.files.get(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Gives a file a second name.
    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.enter()?;
        let node = Arc::clone(self.find(from)?);
        if self.files.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.files.insert(to.to_owned(), node);
        Ok(())
    }

    /// Fails if this many more bytes do not fit.
    fn reserve(&self, more: u64) -> io::Result<()> {
        let used: u64 = self.files.values().map(|node| node.content.lock().occupied()).sum();
        if more <= self.capacity.saturating_sub(used) {
            Ok(())
        } else {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    /// Adds a file of zeros, of which the first `present` bytes take memory at once.
    fn add(&mut self, name: &str, bytes: u64, present: u64) -> io::Result<Arc<Node>> {
        let words = zeros(bytes.div_ceil(8), present)?;
        self.last_identity += 1;
        let content = Mutex::new(Content { words, bytes, holes: BTreeSet::new() });
        let node = Arc::new(Node { identity: self.last_identity, content });
        self.files.insert(name.to_owned(), Arc::clone(&node));
        Ok(node)
    }
}

impl Media for Memory {
    fn path(&self) -> &Path {
        Path::new("(memory)")
    }

    fn make(&self) -> io::Result<()> {
        self.directory.lock().made = true;
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let directory = self.directory.lock();
        directory.enter()?;
        Ok(directory.files.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        self.create_with_hole(name, bytes, bytes)
    }

    fn create_with_hole(
        &self,
        name: &str,
        bytes: u64,
        allocated: u64,
    ) -> io::Result<Box<dyn MediaFile>> {
        let mut directory = self.directory.lock();
        directory.enter()?;
        if directory.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let holes = whole_pages(allocated..bytes);
        let pages = holes.end.saturating_sub(holes.start);
        directory.reserve(bytes - pages * PAGE_BYTES)?;
        let node = directory.add(name, bytes, allocated)?;
        node.content.lock().holes = holes.collect();
        Ok(Box::new(MemoryFile { memory: self.clone(), node, access: Access::Write }))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        let directory = self.directory.lock();
        directory.enter()?;
        let node = Arc::clone(directory.find(name)?);
        Ok(Box::new(MemoryFile { memory: self.clone(), node, access }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut directory = self.directory.lock();
        directory.enter()?;
        let node = Arc::clone(directory.find(from)?);
        directory.files.remove(from);
        directory.files.insert(to.to_owned(), node);
        Ok(())
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let mut directory = self.directory.lock();
        directory.link(from, to)?;
        directory.files.remove(from);
        Ok(())
    }

    fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.lock().link(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut directory = self.directory.lock();
        directory.enter()?;
        directory.find(name)?;
        directory.files.remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.lock().enter()
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        let mut directory = self.directory.lock();
        directory.enter()?;
        if access == Access::Write && !directory.files.contains_key(name) {
            directory.add(name, 0, 0)?;
        }
        let file = directory.find(name)?.identity;
        directory.last_holder += 1;
        let holder = directory.last_holder;
        Ok(Box::new(MemoryLocks { memory: self.clone(), file, holder, access }))
    }

    fn boot_id(&self) -> io::Result<u128> {
        Ok(1) // memory lasts as long as the process, and so does its machine
    }
}

#[derive(Debug)]
struct MemoryLocks {
    memory: Memory,
    file: u64,
    holder: u64,
    access: Access,
}

impl ByteLocks for MemoryLocks {
    fn try_lock(&self, byte: u64, access: Access) -> io::Result<bool> {
        let mut directory = self.memory.directory.lock();
        if access == Access::Write && self.access == Access::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let holders = directory.locks.entry((self.file, byte)).or_default();
        let mut others = holders.iter().filter(|&(&holder, _)| holder != self.holder);
        let free = others.all(|(_, &theirs)| (access, theirs) == (Access::Read, Access::Read));
        if free {
            holders.insert(self.holder, access);
        }
        Ok(free)
    }

    fn unlock(&self, byte: u64) -> io::Result<()> {
        let mut directory = self.memory.directory.lock();
        if let Some(holders) = directory.locks.get_mut(&(self.file, byte)) {
            holders.remove(&self.holder);
        }
        Ok(())
    }

    fn is_held_by_others(&self, bytes: Range<u64>) -> io::Result<bool> {
        let directory = self.memory.directory.lock();
        let mut locks = directory
            .locks
            .iter()
            .filter(|((file, byte), _)| *file == self.file && bytes.contains(byte));
        Ok(locks.any(|(_, holders)| holders.keys().any(|&holder| holder != self.holder)))
    }
}

impl Drop for MemoryLocks {
    fn drop(&mut self) {
        self.memory.directory.lock().locks.retain(|_, holders| {
            holders.remove(&self.holder);
            !holders.is_empty()
        });
    }
}

#[derive(Debug)]
struct MemoryFile {
    memory: Memory,
    node: Arc<Node>,
    access: Access,
}

impl MemoryFile {
    fn permit(&self, access: Access) -> io::Result<()> {
        if access == Access::Write && self.access == Access::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }
}

impl MediaFile for MemoryFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.node.content.lock().bytes)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.node.content.lock().occupied())
    }

    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        let directory = self.memory.directory.lock();
        let pages = bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES);
        let missing = self.node.content.lock().holes.range(pages.clone()).count() as u64;
        directory.reserve(missing * PAGE_BYTES)?;
        self.node.content.lock().holes.retain(|page| !pages.contains(page));
        Ok(())
    }

    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        let mut content = self.node.content.lock();
        for page in whole_pages(bytes) {
            let start = (page * PAGE_BYTES / 8) as usize;
            for word in content.words.iter().skip(start).take((PAGE_BYTES / 8) as usize) {
                word.store(0, Ordering::Relaxed);
            }
            content.holes.insert(page);
        }
        Ok(())
    }

    fn identity(&self) -> io::Result<u64> {
        Ok(self.node.identity)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.node.content.lock();
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > content.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        copy_out(&content.words, buffer, offset);
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let directory = self.memory.directory.lock();
        self.permit(Access::Write)?;
        let end = offset.checked_add(buffer.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        let bytes = self.node.content.lock().bytes;
        if end > bytes {
            directory.reserve(end - bytes)?;
        }
        let mut content = self.node.content.lock();
        if !buffer.is_empty() {
            content.grow(end)?;
        }
        copy_in(&content.words, buffer, offset);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.permit(Access::Write)?;
        let mut content = self.node.content.lock();
        if content.bytes > bytes {
            content.cut(bytes);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        self.permit(access)?;
        let content = self.node.content.lock();
        if !content.bytes.is_multiple_of(8) {
            return Err(crate::media::not_whole_words(content.bytes));
        }
        let length = (content.bytes / 8) as usize;
        Ok(Box::new(MemoryMapping { words: Arc::clone(&content.words), length }))
    }
}

impl Content {
    /// Makes the file at least `bytes` long; doubles the words each time, so that appending stays
    /// cheap.
    fn grow(&mut self, bytes: u64) -> io::Result<()> {
        let wanted = bytes.div_ceil(8);
        if wanted > self.words.len() as u64 {
            if Arc::strong_count(&self.words) > 1 {
                let sentence = "a mapped file in memory cannot grow";
                return Err(io::Error::new(io::ErrorKind::Unsupported, sentence));
            }
            let words = zeros(wanted.max(2 * self.words.len() as u64), bytes)?;
            for (new, old) in words.iter().zip(self.words.iter()) {
                // Relaxed: neither is mapped, and the file's lock orders its calls.
                new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.words = words;
        }
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }

    /// Makes the file `bytes` long, which is less than before.
    fn cut(&mut self, bytes: u64) {
        let kept = bytes.div_ceil(PAGE_BYTES);
        self.holes.retain(|&page| page < kept);
        let after = vec![0; (self.bytes - bytes) as usize];
        copy_in(&self.words, &after, bytes);
        self.bytes = bytes;
    }
}

/// Returns words that are all zero. The first `present` bytes are touched, so that memory that is
/// lacking is found now; the others take none before they are used.
fn zeros(words: u64, present: u64) -> io::Result<Words> {
    let bytes = words.saturating_mul(8);
    if bytes >= COMPARED_BYTES {
        available_memory::check(bytes, REMEDY)?;
    }
    let refused =
        || available_memory::lack(bytes, "the system provides less to this process", REMEDY);
    let count = usize::try_from(words).map_err(|_| refused())?;
    let all = zeroed(count).ok_or_else(refused)?;
    for word in all.iter().take(present.div_ceil(8) as usize).step_by(PAGE_BYTES as usize / 8) {
        // Relaxed: nobody else has it yet.
        word.store(0, Ordering::Relaxed);
    }
    Ok(Arc::new(all))
}

/// Returns words of pages that the system has not provided yet, if the allocation is a large one.
/// `None` without memory.
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "a vector of zeros of atomics would be written word by word")]
fn zeroed(count: usize) -> Option<Box<[AtomicU64]>> {
    use std::alloc::{Layout, alloc_zeroed};
    if count == 0 {
        return Some(Box::default());
    }
    let layout = Layout::array::<AtomicU64>(count).ok()?;
    // SAFETY: the layout is not empty.
    let words = unsafe { alloc_zeroed(layout) }.cast::<AtomicU64>();
    let words = std::ptr::slice_from_raw_parts_mut(words, count);
    // SAFETY: the memory is that of this layout, zero is a valid word, and nothing else owns it.
    (!words.is_null()).then(|| unsafe { Box::from_raw(words) })
}

#[cfg(loom)]
fn zeroed(count: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..count).map(|_| AtomicU64::new(0)).collect())
}

/// Returns the words touched by `length` bytes from `offset` on: the index of each, which of its
/// bytes, and which bytes of the buffer.
fn pieces(length: usize, offset: u64) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let place = offset + done as u64;
        let first = (place % 8) as usize;
        let count = (8 - first).min(length - done);
        let buffer = done..done + count;
        done += count;
        (count > 0).then_some(((place / 8) as usize, first..first + count, buffer))
    })
}

fn copy_out(words: &[AtomicU64], buffer: &mut [u8], offset: u64) {
    for (index, bytes, place) in pieces(buffer.len(), offset) {
        // Acquire: partner is a store with Release through a mapping.
        let word = words[index].load(Ordering::Acquire).to_le_bytes();
        buffer[place].copy_from_slice(&word[bytes]);
    }
}

fn copy_in(words: &[AtomicU64], buffer: &[u8], offset: u64) {
    for (index, bytes, place) in pieces(buffer.len(), offset) {
        // Release: partner is a load with Acquire through a mapping. In one step, because other
        // bytes of the word may be stored meanwhile.
        let replace = |word: u64| {
            let mut word = word.to_le_bytes();
            word[bytes.clone()].copy_from_slice(&buffer[place.clone()]);
            Some(u64::from_le_bytes(word))
        };
        let _ = words[index].fetch_update(Ordering::Release, Ordering::Relaxed, replace);
    }
}

#[derive(Debug)]
struct MemoryMapping {
    words: Words,
    length: usize,
}

// SAFETY: the words lie in a shared slice that this value holds, and whose address and length never
// change.
#[expect(unsafe_code, reason = "the trait asks for a promise")]
unsafe impl Mapping for MemoryMapping {
    fn words(&self) -> &[AtomicU64] {
        &self.words[..self.length]
    }

    fn populate(&self, _words: Range<usize>) {
        // Memory is always present.
    }

    fn release(&self, _words: Range<usize>) {
        // And stays.
    }
}
