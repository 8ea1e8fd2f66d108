//! A medium with faults that tests switch on.

use ebbtide::media::{Access, BankStore, ByteLocks, Holder, Mapping, Media, MediaFile, UnnamedId};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A medium whose next sync of a log segment fails, which panics when the next bank is created,
/// which takes its time to create a segment, or whose processes do not have the image for some
/// attempts to get it.
#[derive(Debug)]
pub struct Faulty {
    inner: Box<dyn Media>,
    pub faults: Arc<Faults>,
}

/// The faults that are switched on.
#[derive(Debug, Default)]
pub struct Faults {
    /// The next sync of a log segment fails.
    pub sync: AtomicBool,
    /// The next creation of a bank panics.
    pub bank: AtomicBool,
    /// A new segment of the log is not created before this is cleared: the disk is busy.
    pub busy: AtomicBool,
    /// A thread waits for that.
    pub waits: AtomicBool,
    /// Whether images may lie in memory.
    pub in_memory: AtomicBool,
    /// The attempts that do not find the image.
    pub missing: AtomicU64,
}

#[derive(Debug)]
struct FaultyFile {
    inner: Box<dyn MediaFile>,
    is_log: bool,
    faults: Arc<Faults>,
}

impl Faulty {
    pub fn new(inner: impl Media + 'static) -> Arc<Self> {
        Arc::new(Self { inner: Box::new(inner), faults: Arc::default() })
    }

    fn file(&self, inner: Box<dyn MediaFile>, name: &str) -> Box<dyn MediaFile> {
        // A new segment first has the name of a temporary file.
        let is_log = name.starts_with("wal-") || name.starts_with("tmp-");
        Box::new(FaultyFile { inner, is_log, faults: self.faults.clone() })
    }
}

impl Media for Faulty {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn make(&self) -> io::Result<()> {
        self.inner.make()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        if name.starts_with("live-") && self.faults.bank.swap(false, Ordering::SeqCst) {
            panic!("in the middle of an insert");
        }
        while name.starts_with("tmp-") && self.faults.busy.load(Ordering::SeqCst) {
            self.faults.waits.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.file(self.inner.create(name, bytes)?, name))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        Ok(self.file(self.inner.open(name, access)?, name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        self.inner.locks(name, access)
    }

    fn boot_id(&self) -> io::Result<u128> {
        self.inner.boot_id()
    }

    fn create_unnamed(&self, bytes: u64) -> io::Result<Option<Arc<dyn BankStore>>> {
        match self.faults.in_memory.load(Ordering::SeqCst) {
            true => self.inner.create_unnamed(bytes),
            false => Ok(None),
        }
    }

    fn find_unnamed(
        &self,
        wanted: &UnnamedId,
        holders: (&str, &[Holder]),
        access: Access,
    ) -> io::Result<Arc<dyn BankStore>> {
        let less = |missing: u64| missing.checked_sub(1);
        match self.faults.missing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(io::ErrorKind::NotFound.into()),
            Err(_) => self.inner.find_unnamed(wanted, holders, access),
        }
    }
}

impl MediaFile for FaultyFile {
    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }

    fn identity(&self) -> io::Result<u64> {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buffer, offset)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.inner.truncate(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        if self.is_log && self.faults.sync.swap(false, Ordering::SeqCst) {
            return Err(io::Error::other("the disk is broken"));
        }
        self.inner.sync()
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        self.inner.map(access)
    }
}
