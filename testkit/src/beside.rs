//! A medium to which somebody copies, while others change what is copied.

use ebbtide::media::{Access, ByteLocks, Media, MediaFile};
use std::fmt;
use std::io::Result;
use std::path::Path;

/// The medium `to`; before each of its files is created, `others` act.
pub struct Beside<'a> {
    /// Where the copy comes to lie.
    pub to: &'a dyn Media,
    /// What others do meanwhile.
    pub others: &'a (dyn Fn() -> Result<()> + Send + Sync),
}

impl fmt::Debug for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Media for Beside<'_> {
    fn create(&self, name: &str, bytes: u64) -> Result<Box<dyn MediaFile>> {
        (self.others)()?;
        self.to.create(name, bytes)
    }

    fn path(&self) -> &Path {
        self.to.path()
    }

    fn make(&self) -> Result<()> {
        self.to.make()
    }

    fn list(&self) -> Result<Vec<String>> {
        self.to.list()
    }

    fn open(&self, name: &str, access: Access) -> Result<Box<dyn MediaFile>> {
        self.to.open(name, access)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.to.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.to.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.to.remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.to.sync()
    }

    fn locks(&self, name: &str, access: Access) -> Result<Box<dyn ByteLocks>> {
        self.to.locks(name, access)
    }

    fn boot_id(&self) -> Result<u128> {
        self.to.boot_id()
    }
}
