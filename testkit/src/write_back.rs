//! A medium that writes back the live image, and sometimes fails to.
//!
//! A disk's kernel writes stores to mapped files back when it likes. If that fails, it notes the
//! failure with the file, and may take the page back to what the disk holds. Here that happens at
//! once, to pages that a test chooses by chance. The failure is reported as Linux does it: once to
//! each opening that existed before, and to a later one only if nobody received it.

use crate::random::Random;
use ebbtide::media::{Access, ByteLocks, Mapping, Media, MediaFile, Memory};
use ebbtide_core::atomic::AtomicU64;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PAGE_WORDS: usize = 512;

/// What the disk holds of a file of the image, and what failed.
#[derive(Debug, Default)]
struct Disk {
    words: Vec<u64>,
    failures: u64,
    is_received: bool,
}

/// The files of an image, by identity, with mappings of their words.
pub(crate) type Image = Vec<(u64, Box<dyn Mapping>)>;

/// What the disk holds of the files of an image, and what failed.
#[derive(Debug, Default)]
pub(crate) struct WrittenBack(BTreeMap<u64, Disk>);

/// The failures that an opening has received.
pub(crate) type Received = Arc<std::sync::atomic::AtomicU64>;

impl WrittenBack {
    /// Writes the whole image back.
    pub(crate) fn write(&mut self, image: &Image) {
        for (identity, mapping) in image {
            let words = mapping.words().iter().map(|word| word.load(Ordering::Relaxed));
            self.0.entry(*identity).or_default().words = words.collect();
        }
    }

    /// Fails to write back pages chosen by chance, and takes them back. Returns whether there were
    /// any.
    pub(crate) fn lose(&mut self, image: &Image, random: &mut Random) -> bool {
        let mut any = false;
        for (identity, mapping) in image {
            let disk = self.0.entry(*identity).or_default();
            disk.words.resize(mapping.words().len(), 0);
            let pages = mapping.words().chunks(PAGE_WORDS).zip(disk.words.chunks(PAGE_WORDS));
            let share = 1 + random.below(4);
            let mut lost = false;
            for (page, on_disk) in pages {
                let is_dirty = page.iter().zip(on_disk).any(|(now, before)| differs(now, *before));
                if is_dirty && random.below(share) == 0 {
                    page.iter()
                        .zip(on_disk)
                        .for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
                    lost = true;
                }
            }
            if lost {
                disk.failures += 1;
                disk.is_received = false;
            }
            any |= lost;
        }
        any
    }

    /// Returns what a new opening of a file counts as received.
    pub(crate) fn open(&self, identity: u64) -> Received {
        let seen = self
            .0
            .get(&identity)
            .map_or(0, |disk| disk.failures - u64::from(disk.failures > 0 && !disk.is_received));
        Arc::new(seen.into())
    }

    /// Notes that a sync of a file failed, which reports it to this opening.
    pub(crate) fn fail(&mut self, identity: u64, received: &Received) {
        let disk = self.0.entry(identity).or_default();
        disk.failures += 1;
        disk.is_received = true;
        received.store(disk.failures, Ordering::Relaxed);
    }

    /// Reports the failures that an opening has not received.
    pub(crate) fn report(&mut self, identity: u64, received: &Received) -> io::Result<()> {
        let Some(disk) = self.0.get_mut(&identity) else { return Ok(()) };
        if received.swap(disk.failures, Ordering::Relaxed) == disk.failures {
            return Ok(());
        }
        disk.is_received = true;
        // Linux: input or output error.
        Err(io::Error::from_raw_os_error(5))
    }
}

/// A planned loss: at the call after this many more, of pages chosen by chance.
#[derive(Debug)]
struct Plan {
    calls_before: u64,
    random: Random,
}

#[derive(Debug, Default)]
struct State {
    disk: WrittenBack,
    plan: Option<Plan>,
    /// Whether the last loss took back any page.
    lost: bool,
}

/// A handle on the medium; clones share it.
#[derive(Debug, Clone, Default)]
pub struct WriteBack {
    media: Memory,
    state: Arc<Mutex<State>>,
}

impl WriteBack {
    /// Creates an empty medium.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the files of the image that have their names.
    fn image(&self) -> Image {
        let names = self.media.list().unwrap_or_default();
        let live = names.iter().filter(|name| name.starts_with("live"));
        let files = live.filter_map(|name| self.media.open(name, Access::Write).ok());
        files.map(|file| parts(&*file)).collect()
    }

    /// Writes the whole image back.
    pub fn write_back(&self) {
        let image = self.image();
        self.state().disk.write(&image);
    }

    /// Fails to write back pages of the image chosen by chance, and takes them back. Returns
    /// whether there were any.
    pub fn lose(&self, random: &mut Random) -> bool {
        let image = self.image();
        let mut state = self.state();
        state.lost = state.disk.lose(&image, random);
        state.lost
    }

    /// As [`WriteBack::lose`], in the `n`-th call of the medium from now on.
    pub fn lose_at(&self, n: u64, random: Random) {
        let mut state = self.state();
        state.plan = Some(Plan { calls_before: n, random });
        state.lost = false;
    }

    /// Ends the plan. Returns whether pages were lost.
    pub fn end(&self) -> bool {
        let mut state = self.state();
        state.plan = None;
        state.lost
    }

    /// Counts a call.
    fn tick(&self) {
        let mut state = self.state();
        let Some(plan) = &mut state.plan else { return };
        if plan.calls_before > 0 {
            plan.calls_before -= 1;
        } else if let Some(mut plan) = state.plan.take() {
            drop(state);
            self.lose(&mut plan.random);
        }
    }

    fn wrap(&self, file: io::Result<Box<dyn MediaFile>>) -> io::Result<Box<dyn MediaFile>> {
        let file = file?;
        let identity = file.identity()?;
        let seen = self.state().disk.open(identity);
        Ok(Box::new(File { media: self.clone(), identity, seen, file }))
    }

    /// Reports the failures that an opening has not received.
    fn report(&self, identity: u64, seen: &Received) -> io::Result<()> {
        self.tick();
        self.state().disk.report(identity, seen)
    }
}

fn differs(word: &AtomicU64, before: u64) -> bool {
    word.load(Ordering::Relaxed) != before
}

fn parts(file: &dyn MediaFile) -> (u64, Box<dyn Mapping>) {
    let identity = file.identity().expect("an open file");
    (identity, file.map(Access::Write).expect("whole words"))
}

impl Media for WriteBack {
    fn path(&self) -> &Path {
        self.media.path()
    }

    fn make(&self) -> io::Result<()> {
        self.media.make()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.tick();
        self.media.list()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        self.tick();
        self.wrap(self.media.create(name, bytes))
    }

    fn create_with_hole(
        &self,
        name: &str,
        bytes: u64,
        allocated: u64,
    ) -> io::Result<Box<dyn MediaFile>> {
        self.tick();
        self.wrap(self.media.create_with_hole(name, bytes, allocated))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        self.tick();
        self.wrap(self.media.open(name, access))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.tick();
        self.media.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.tick();
        self.media.rename_new(from, to)
    }

    fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.tick();
        self.media.link_new(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.tick();
        self.media.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.tick();
        self.media.sync()
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        self.media.locks(name, access)
    }

    fn boot_id(&self) -> io::Result<u128> {
        self.media.boot_id()
    }
}

#[derive(Debug)]
struct File {
    media: WriteBack,
    identity: u64,
    /// The failures that this opening received.
    seen: Received,
    file: Box<dyn MediaFile>,
}

impl MediaFile for File {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }

    fn identity(&self) -> io::Result<u64> {
        self.file.identity()
    }

    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        self.media.tick();
        self.file.allocate(bytes)
    }

    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        self.file.free(bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.media.tick();
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.media.tick();
        self.file.write_at(buffer, offset)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.media.tick();
        self.file.truncate(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.media.tick();
        self.file.sync()
    }

    fn check_written(&self) -> io::Result<()> {
        self.media.report(self.identity, &self.seen)
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        let (media, identity) = (self.media.clone(), self.identity);
        // A mapping keeps the opening that it was made from.
        let received = (access == Access::Write).then(|| self.seen.clone());
        Ok(Box::new(Mapped { media, identity, received, mapping: self.file.map(access)? }))
    }
}

#[derive(Debug)]
struct Mapped {
    media: WriteBack,
    identity: u64,
    received: Option<Received>,
    mapping: Box<dyn Mapping>,
}

// SAFETY: the words are those of the mapping that this value owns.
#[expect(unsafe_code, reason = "the trait asks for a promise")]
unsafe impl Mapping for Mapped {
    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    fn write_back(&self, words: usize) -> io::Result<()> {
        self.mapping.write_back(words)
    }

    fn check_written(&self) -> io::Result<()> {
        self.received.as_ref().map_or(Ok(()), |seen| self.media.report(self.identity, seen))
    }

    fn populate(&self, words: Range<usize>) {
        self.mapping.populate(words);
    }

    fn release(&self, words: Range<usize>) {
        self.mapping.release(words);
    }
}
