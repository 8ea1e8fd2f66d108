//! Banks as files of the filter's directory, each under its own name.

use crate::format::names::FileName;
use crate::media::BankStore;
use crate::media::{Access, Media, MediaFile};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The banks of a timeline's image.
#[derive(Debug)]
pub struct NamedBanks {
    media: Arc<dyn Media>,
    timeline: u64,
}

impl NamedBanks {
    /// Creates it for the banks of this timeline's image.
    #[must_use]
    pub fn new(media: Arc<dyn Media>, timeline: u64) -> Self {
        Self { media, timeline }
    }

    fn name(&self, bank: u32) -> String {
        FileName::Bank { timeline: self.timeline, bank }.to_string()
    }
}

impl BankStore for NamedBanks {
    fn path(&self, bank: u32) -> PathBuf {
        self.media.path().join(self.name(bank))
    }

    fn create(&self, bank: u32, bytes: u64, allocated: u64) -> io::Result<Box<dyn MediaFile>> {
        let name = self.name(bank);
        match self.media.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.media.create_with_hole(&name, bytes, allocated)
    }

    fn open(&self, bank: u32, access: Access) -> io::Result<Box<dyn MediaFile>> {
        self.media.open(&self.name(bank), access)
    }

    fn remove(&self, bank: u32, _others: &[u32]) -> io::Result<()> {
        self.media.remove(&self.name(bank))
    }

    fn check_written(&self, banks: &mut dyn Iterator<Item = u32>) -> io::Result<()> {
        for bank in banks {
            // One that is gone was closed since.
            if let Ok(file) = self.media.open(&self.name(bank), Access::Read) {
                file.check_written()?;
            }
        }
        Ok(())
    }
}
