//! A medium in the view of a process: each call is one step, and the locks of a dead process are
//! released.

use crate::schedule::{panics, stage};
use ebbtide::media::{Access, ByteLocks, Mapping, Media, MediaFile};
use ebbtide_core::atomic::AtomicU64;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A planted mistake of the system, which a schedule must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The holder of a byte appears not to hold it, so that a live process is judged dead.
    FalseDeath,
    /// Two processes can hold the opening byte at once.
    TwoOpen,
    /// A rename replaces an existing name where it must not.
    NamesReplaced,
    /// The removal of a log segment also removes the one after it.
    OneSegmentTooMany,
}

type Locks = Arc<Mutex<Option<Box<dyn ByteLocks>>>>;

/// One directory, and the holders of its locks.
#[derive(Debug, Clone)]
pub struct Place<M> {
    /// The medium with the directory.
    pub medium: M,
    planted: Option<Planted>,
    /// The processes that hold locks.
    held: Arc<Mutex<Vec<(usize, Locks)>>>,
}

impl<M: Media + Clone + 'static> Place<M> {
    /// Creates the directory of a medium, which nobody uses yet.
    pub fn new(medium: M, planted: Option<Planted>) -> Self {
        Self { medium, planted, held: Arc::default() }
    }

    /// Returns the directory in the view of a process.
    pub fn of(&self, process: usize) -> Arc<dyn Media> {
        Arc::new(View { place: self.clone(), process })
    }

    /// Releases the locks of a process.
    pub fn bury(&self, process: usize) {
        let held = std::mem::take(&mut *self.held.lock().expect("not poisoned"));
        let (gone, left) = held.into_iter().partition(|(holder, _)| *holder == process);
        *self.held.lock().expect("not poisoned") = left;
        let gone: Vec<(usize, Locks)> = gone;
        for (_, locks) in gone {
            locks.lock().expect("not poisoned").take();
        }
    }
}

/// Makes a call to the system.
fn call<T>(act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if stage::step() { stage::at_once(act) } else { Err(io::Error::other("the process is dead")) }
}

#[derive(Debug)]
struct View<M> {
    place: Place<M>,
    process: usize,
}

impl<M: Media> View<M> {
    fn medium(&self) -> &M {
        &self.place.medium
    }

    fn file(name: &str, file: Box<dyn MediaFile>) -> Box<dyn MediaFile> {
        Box::new(File { file, is_log: name.starts_with("wal-") })
    }

    fn is(&self, planted: Planted) -> bool {
        self.place.planted == Some(planted)
    }
}

impl<M: Media> Media for View<M> {
    fn path(&self) -> &Path {
        self.medium().path()
    }

    fn make(&self) -> io::Result<()> {
        call(|| self.medium().make())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        call(|| self.medium().list())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        call(|| self.medium().create(name, bytes).map(|file| Self::file(name, file)))
    }

    fn create_with_hole(
        &self,
        name: &str,
        bytes: u64,
        allocated: u64,
    ) -> io::Result<Box<dyn MediaFile>> {
        call(|| {
            self.medium()
                .create_with_hole(name, bytes, allocated)
                .map(|file| Self::file(name, file))
        })
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        call(|| self.medium().open(name, access).map(|file| Self::file(name, file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        call(|| self.medium().rename(from, to))
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let (replaces, too_many) =
            (self.is(Planted::NamesReplaced), self.is(Planted::OneSegmentTooMany));
        call(|| {
            // The removal of a segment begins with this rename.
            if too_many && from.starts_with("wal-") {
                let mut names = self.medium().list()?.into_iter();
                let next = names.find(|other| other.starts_with("wal-") && other.as_str() > from);
                next.map_or(Ok(()), |next| self.medium().remove(&next))?;
            }
            match replaces {
                true => self.medium().rename(from, to),
                false => self.medium().rename_new(from, to),
            }
        })
    }

    fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        call(|| self.medium().link_new(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        call(|| self.medium().remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        call(|| self.medium().sync())
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        let locks = call(|| self.medium().locks(name, access))?;
        let locks: Locks = Arc::new(Mutex::new(Some(locks)));
        self.place.held.lock().expect("not poisoned").push((self.process, locks.clone()));
        Ok(Box::new(LocksOfProcess { locks, planted: self.place.planted }))
    }

    fn boot_id(&self) -> io::Result<u128> {
        call(|| self.medium().boot_id())
    }
}

#[derive(Debug)]
struct LocksOfProcess {
    locks: Locks,
    planted: Option<Planted>,
}

impl LocksOfProcess {
    fn with<T>(&self, ask: impl FnOnce(&dyn ByteLocks) -> io::Result<T>) -> io::Result<T> {
        call(|| match &*self.locks.lock().expect("not poisoned") {
            Some(locks) => ask(&**locks),
            None => Err(io::Error::other("the process is dead")),
        })
    }
}

impl ByteLocks for LocksOfProcess {
    fn try_lock(&self, byte: u64, access: Access) -> io::Result<bool> {
        let always = self.planted == Some(Planted::TwoOpen) && byte == 0;
        self.with(|locks| Ok(locks.try_lock(byte, access)? || always))
    }

    fn unlock(&self, byte: u64) -> io::Result<()> {
        self.with(|locks| locks.unlock(byte))
    }

    fn is_held_by_others(&self, bytes: Range<u64>) -> io::Result<bool> {
        let never = self.planted == Some(Planted::FalseDeath) && bytes.end - bytes.start == 1;
        self.with(|locks| Ok(!never && locks.is_held_by_others(bytes)?))
    }
}

impl Drop for LocksOfProcess {
    fn drop(&mut self) {
        // As closing a file does.
        self.locks.lock().expect("not poisoned").take();
    }
}

#[derive(Debug)]
struct File {
    file: Box<dyn MediaFile>,
    is_log: bool,
}

impl MediaFile for File {
    fn bytes(&self) -> io::Result<u64> {
        call(|| self.file.bytes())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        call(|| self.file.allocated_bytes())
    }

    fn identity(&self) -> io::Result<u64> {
        call(|| self.file.identity())
    }

    fn allocate(&self, bytes: Range<u64>) -> io::Result<()> {
        call(|| self.file.allocate(bytes))
    }

    fn free(&self, bytes: Range<u64>) -> io::Result<()> {
        call(|| self.file.free(bytes))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        call(|| self.file.read_at(buffer, offset))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        call(|| self.file.write_at(buffer, offset))
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        call(|| self.file.truncate(bytes))
    }

    fn sync(&self) -> io::Result<()> {
        stage::pass_sync();
        let synced = call(|| self.file.sync());
        // After a sync that failed, pages look clean, and the next leader stores them again: a
        // simulated disk, which sees only contents, would not notice.
        if self.is_log && synced.is_ok() {
            panics::end_log_sync(stage::is_alive());
        }
        synced
    }

    fn check_written(&self) -> io::Result<()> {
        call(|| self.file.check_written())
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        call(|| Ok(Box::new(Mapped(self.file.map(access)?)) as Box<dyn Mapping>))
    }
}

#[derive(Debug)]
struct Mapped(Box<dyn Mapping>);

// SAFETY: the words are those of the mapping that this value owns.
#[expect(unsafe_code, reason = "the trait asks for a promise")]
unsafe impl Mapping for Mapped {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    fn write_back(&self, words: usize) -> io::Result<()> {
        call(|| self.0.write_back(words))
    }

    fn check_written(&self) -> io::Result<()> {
        call(|| self.0.check_written())
    }

    fn populate(&self, words: Range<usize>) {
        self.0.populate(words);
    }

    fn release(&self, words: Range<usize>) {
        self.0.release(words);
    }
}
