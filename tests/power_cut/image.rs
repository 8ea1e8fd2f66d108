//! A disk in memory.

use crate::block_log::SECTOR;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: usize = 4096;
const SECTORS: usize = PAGE / SECTOR;

type Page = Box<[u8; PAGE]>;

/// The content of a disk; pages of zeros are omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image(Vec<Option<Page>>);

impl Image {
    /// Reads the content of a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut pages = vec![None; (file.metadata()?.len() as usize).div_ceil(PAGE)];
        for page in &mut pages {
            let mut bytes = Box::new([0; PAGE]);
            file.read_exact(&mut *bytes)?;
            *page = bytes.iter().any(|&byte| byte != 0).then_some(bytes);
        }
        Ok(Self(pages))
    }

    /// Writes a sector.
    pub fn set(&mut self, sector: u64, bytes: &[u8]) {
        let at = sector as usize % SECTORS * SECTOR;
        let page = self.0[sector as usize / SECTORS].get_or_insert_with(|| Box::new([0; PAGE]));
        page[at..at + SECTOR].copy_from_slice(bytes);
    }

    /// Returns whether both have the same content.
    pub fn is_like(&self, other: &Self) -> bool {
        const ZEROS: [u8; PAGE] = [0; PAGE];
        let bytes = |page: &Option<Page>| page.as_ref().map_or(ZEROS, |page| **page);
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|(ours, theirs)| bytes(ours) == bytes(theirs))
    }

    /// Writes the content to a new file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len((self.0.len() * PAGE) as u64)?;
        for (at, page) in self.0.iter().enumerate() {
            if let Some(page) = page {
                file.write_all_at(&**page, (at * PAGE) as u64)?;
            }
        }
        Ok(())
    }
}
