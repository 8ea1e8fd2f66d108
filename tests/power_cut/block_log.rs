//! The log of a block device, in the format of dm-log-writes.
//!
//! The first sector is a header. Entries follow, each a sector that describes the entry, and its
//! data. All numbers have 64 bits, are little-endian, and count sectors of 512 bytes.

use std::ops::Range;
use std::path::Path;

/// The unit of all numbers, and of atomic disk writes.
pub const SECTOR: usize = 512;
const MAGIC: u64 = 0x006A_7366_7773_6872;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;

/// One write, or a flush.
#[derive(Debug)]
pub struct Entry {
    /// The first sector written.
    pub sector: u64,
    sectors: u64,
    /// The range of the data in the log; empty for a flush and a discard.
    data: Range<usize>,
    /// Whether all data logged before is on disk.
    pub flush: bool,
    /// The end of the entry in the log.
    pub end: u64,
}

/// The writes to a device, in order.
#[derive(Debug)]
pub struct BlockLog {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk().expect("a whole sector");
    u64::from_le_bytes(*word)
}

impl BlockLog {
    /// Reads a whole log.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if bytes.len() < SECTOR || word(&bytes, 0) != MAGIC || !bytes.len().is_multiple_of(SECTOR) {
            return Err(format!("{} is not the log of a block device", path.display()));
        }
        let (mut entries, mut at) = (Vec::new(), SECTOR);
        while at < bytes.len() {
            let [sector, sectors, flags] = [0, 8, 16].map(|field| word(&bytes, at + field));
            let length = if flags & DISCARD == 0 { sectors as usize * SECTOR } else { 0 };
            let data = at + SECTOR..at + SECTOR + length;
            if data.end > bytes.len() {
                return Err(format!("{}: a bad entry at {at}", path.display()));
            }
            at = data.end;
            let flush = flags & FLUSH != 0;
            entries.push(Entry { sector, sectors, data, flush, end: at as u64 });
        }
        Ok(Self { bytes, entries })
    }

    /// Returns all entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the sectors that an entry wrote, with their bytes. A discard writes zeros. The loop
    /// device turns blocks that the file system wants to be zero into punched holes, and never
    /// discards anything else, because the file system is mounted without discard.
    pub fn sectors(&self, entry: &Entry) -> impl Iterator<Item = (u64, &[u8])> {
        let written = self.bytes[entry.data.clone()].chunks(SECTOR);
        let discarded = if entry.data.is_empty() { entry.sectors as usize } else { 0 };
        (entry.sector..).zip(written.chain(std::iter::repeat_n(&[0; SECTOR][..], discarded)))
    }

    /// Returns the length of the log after this many entries.
    pub fn position(&self, entries: usize) -> u64 {
        entries.checked_sub(1).map_or(SECTOR as u64, |last| self.entries[last].end)
    }

    /// Returns how many entries there were when the log had this length.
    pub fn entries_at(&self, position: u64) -> usize {
        self.entries.partition_point(|entry| entry.end <= position)
    }
}
