//! Writing a snapshot: frames first, the header last, then one sync.

use crate::format::header::{PAGE_BYTES, to_bytes};
use crate::media::{Access, Media, MediaFile};
use crate::snapshot::format::MAGIC;
use crate::snapshot::{ChecksumSeed, Frame, SnapshotHeader};
use std::io;

/// Bytes buffered before they are written.
const BUFFER_BYTES: usize = 32 << 10;

/// After each of these pieces the system is asked to write it to the disk.
const PIECE_BYTES: u64 = 8 << 20;

/// A snapshot in progress, under a temporary name.
#[derive(Debug)]
pub struct SnapshotWriter {
    file: Box<dyn MediaFile>,
    seed: ChecksumSeed,
    buffer: Vec<u8>,
    offset: u64,
    frames: u64,
    /// The offset up to which the system was asked to write to the disk.
    begun: u64,
}

impl SnapshotWriter {
    /// Begins a snapshot in a new file of this name.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(media: &dyn Media, temporary: &str, seed: ChecksumSeed) -> io::Result<Self> {
        Ok(Self::into(media.create(temporary, PAGE_BYTES)?, seed))
    }

    /// Begins a snapshot in the existing file of this name, overwriting it: in the space that it
    /// occupies.
    ///
    /// # Errors
    /// The system's error.
    pub fn over(media: &dyn Media, temporary: &str, seed: ChecksumSeed) -> io::Result<Self> {
        Ok(Self::into(media.open(temporary, Access::Write)?, seed))
    }

    fn into(file: Box<dyn MediaFile>, seed: ChecksumSeed) -> Self {
        let buffer = Vec::with_capacity(BUFFER_BYTES + (1 << 17));
        Self { file, seed, buffer, offset: PAGE_BYTES, frames: 0, begun: PAGE_BYTES }
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// The system's error, including a full disk.
    pub fn frame(&mut self, frame: &Frame, words: &[u64]) -> io::Result<()> {
        let offset = self.offset + self.buffer.len() as u64;
        let payload = to_bytes(words);
        let head = [
            frame.content as u64,
            frame.bank.into(),
            frame.index,
            frame.lsn,
            words.len() as u64,
            self.seed.checksum(frame, offset, &payload),
        ];
        self.buffer.extend(to_bytes(&head));
        self.buffer.extend(payload);
        self.frames += 1;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        if self.offset - self.begun >= PIECE_BYTES {
            // At most two pieces are not on the disk, however large the filter.
            let before = self.begun.saturating_sub(PIECE_BYTES).max(PAGE_BYTES);
            self.file.write_out(self.begun..self.offset, false)?;
            self.file.write_out(before..self.begun, true)?;
            self.begun = self.offset;
        }
        Ok(())
    }

    /// Writes the header (its counts are filled in here; uuid, timeline and start are those of the
    /// frames) and syncs the file. The caller renames it. Returns the header as written.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish(mut self, header: SnapshotHeader) -> io::Result<SnapshotHeader> {
        self.flush()?;
        self.file.truncate(self.offset)?;
        let header = SnapshotHeader { frames: self.frames, bytes: self.offset, ..header };
        self.file.write_at(&to_bytes(&header.words().encode(MAGIC)), 0)?;
        self.file.sync()?;
        Ok(header)
    }
}
