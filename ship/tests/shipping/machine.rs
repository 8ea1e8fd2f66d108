//! A machine whose processes can be killed one by one: the disk stays.

use ebbtide::media::{Access, ByteLocks, Media, MediaFile};
use ebbtide_testkit::crash::disk::CrashDisk;
use std::io::Result;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The disk of a machine, as a process sees it that outlives others.
#[derive(Debug, Clone, Default)]
pub struct Machine(Arc<Mutex<CrashDisk>>);

impl Machine {
    /// Returns the disk as it is now, for a writer.
    pub fn disk(&self) -> CrashDisk {
        self.0.lock().expect("no panic").clone()
    }

    /// Replaces the disk by what the death of its writer left.
    pub fn set(&self, disk: CrashDisk) {
        *self.0.lock().expect("no panic") = disk;
    }
}

impl Media for Machine {
    fn path(&self) -> &Path {
        Path::new("(machine)")
    }

    fn make(&self) -> Result<()> {
        self.disk().make()
    }

    fn list(&self) -> Result<Vec<String>> {
        self.disk().list()
    }

    fn create(&self, name: &str, bytes: u64) -> Result<Box<dyn MediaFile>> {
        self.disk().create(name, bytes)
    }

    fn open(&self, name: &str, access: Access) -> Result<Box<dyn MediaFile>> {
        self.disk().open(name, access)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk().rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.disk().rename_new(from, to)
    }

    fn link_new(&self, from: &str, to: &str) -> Result<()> {
        self.disk().link_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.disk().remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.disk().sync()
    }

    fn locks(&self, name: &str, access: Access) -> Result<Box<dyn ByteLocks>> {
        self.disk().locks(name, access)
    }

    fn boot_id(&self) -> Result<u128> {
        self.disk().boot_id()
    }
}
