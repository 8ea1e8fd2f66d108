//! Whose image a file `live` is, and where in it the parts lie whose size differs between filters.

use crate::error::{Error, Result};
use crate::format::header::{Header, IMAGE, PAGE_BYTES, PAGE_WORDS};
use crate::image::claims::CLAIMS_WORDS;
use crate::image::counters::shards_words;
use crate::image::positions::{HEAD_WORDS, POSITIONS_WORDS};
use crate::image::state_block::state_block_words;
use crate::image::stripe_table::STRIPE_WORDS;
use std::ops::Range;
use std::path::Path;

const MAGIC: &[u8; 8] = b"EBBTLIV\n";

/// What helps if the image is not the expected one.
pub(super) const REMEDY: &str =
    "close every handle on the filter and open it again: the image is then rebuilt";

/// The session table, and the stripes behind it.
pub(super) const SLOTS: usize = 128;
pub(crate) const SLOTS_WORDS: usize = 128;
pub(super) const STRIPES: usize = SLOTS + SLOTS_WORDS;

/// The identity of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The filter.
    pub uuid: u128,
    /// The timeline whose image it is.
    pub timeline: u64,
    /// The boot of the machine in which it was made; 0 if unknown.
    pub boot: u128,
    /// The inode of the file itself: a copy is not the image.
    pub inode: u64,
    /// The device of the file: a snapshot of the device is not the image.
    pub device: u64,
    /// The number of ordinary stripes.
    pub stripes: u32,
    /// Words of the filter-wide state.
    pub state_words: u32,
}

impl Identity {
    /// Returns the checked header of the file.
    pub(super) fn encode(&self) -> impl Iterator<Item = u64> {
        let words = [
            self.uuid as u64,
            (self.uuid >> 64) as u64,
            self.timeline,
            self.boot as u64,
            (self.boot >> 64) as u64,
            self.inode,
            u64::from(self.state_words) << 32 | u64::from(self.stripes),
            self.device,
        ];
        Header { version: IMAGE.written, words }.encode(MAGIC).into_iter()
    }

    /// Reads the checked header of the file at `path`.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) and
    /// [`Error::Version`](crate::Error::Version).
    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let header: Header<8> = Header::decode(bytes, MAGIC, IMAGE, path, REMEDY)?;
        let [uuid, uuid_high, timeline, boot, boot_high, inode, stripes, device] = header.words;
        Ok(Self {
            uuid: u128::from(uuid_high) << 64 | u128::from(uuid),
            timeline,
            boot: u128::from(boot_high) << 64 | u128::from(boot),
            inode,
            device,
            stripes: stripes as u32,
            state_words: (stripes >> 32) as u32,
        })
    }

    /// Returns the start and the end of the state block, in words.
    pub(super) fn state_block(&self) -> (usize, usize) {
        let at = STRIPES + (self.stripes as usize + 1) * STRIPE_WORDS;
        (at, at + state_block_words(self.state_words as usize))
    }

    /// Returns the start and the end of the positions, in words.
    pub(super) fn positions(&self) -> (usize, usize) {
        let at = self.shards().1;
        (at, at + POSITIONS_WORDS)
    }

    /// Returns the start and the end of the words about the file that contains the banks, and who
    /// has it open: in a page of their own.
    pub(super) fn holders(&self) -> (usize, usize) {
        let at = self.positions().1.next_multiple_of(PAGE_WORDS);
        (at, at + SLOTS_WORDS)
    }

    /// Returns the start and the end of the shards, each in a pair of cache lines of its own.
    pub(super) fn shards(&self) -> (usize, usize) {
        let at = self.state_block().1.next_multiple_of(2 * STRIPE_WORDS);
        (at, at + shards_words(self.stripes))
    }

    /// Returns the start and the end of the table of claims, in words: in pages of its own.
    pub(super) fn claims(&self) -> (usize, usize) {
        let at = self.holders().1.next_multiple_of(PAGE_WORDS);
        (at, at + CLAIMS_WORDS)
    }

    /// Returns the bytes of the file with the table of claims, which is its last part.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.claims().1 as u64 * 8).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the range by which the first claim extends the file.
    #[must_use]
    pub fn room_for_claims(&self) -> Range<u64> {
        self.claims().0 as u64 * 8..self.bytes()
    }

    /// Returns the bytes of the file that have no space on the disk as long as no source has a
    /// position.
    #[must_use]
    pub fn room_for_positions(&self) -> Range<u64> {
        let head = (self.positions().0 + HEAD_WORDS) as u64 * 8;
        head.next_multiple_of(PAGE_BYTES)..self.room_for_holders().start
    }

    /// Returns the bytes of the file that have no space on the disk if the banks have names.
    #[must_use]
    pub fn room_for_holders(&self) -> Range<u64> {
        self.holders().0 as u64 * 8..self.room_for_claims().start
    }
}

/// Returns `None` if the error means that there is no image of this filter, otherwise the
/// error.
pub(crate) fn none_if_unfit<T>(error: Error) -> Result<Option<T>> {
    use std::io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    match error {
        Error::Damaged { .. } | Error::Version { .. } => Ok(None),
        Error::Io { ref source, .. }
            if matches!(source.kind(), NotFound | InvalidInput | InvalidData | UnexpectedEof) =>
        {
            Ok(None)
        }
        error => Err(error),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use ebbtide_core::block::places::head_bytes;

    #[test]
    fn an_image_takes_no_more_besides_its_banks_than_a_limit_of_memory_counts() {
        for stripes in (1..=130).chain([1000, 4096]) {
            for state_words in [64, 168, 512] {
                let (uuid, timeline, boot, inode, device) = (0, 0, 0, 0, 0);
                let of = Identity { uuid, timeline, boot, inode, device, stripes, state_words };
                let counted = head_bytes(stripes, state_words as usize);
                let bytes = of.room_for_claims().start;
                assert!(bytes <= counted, "{of:?}: {bytes} of {counted}");
                assert!(counted <= bytes + 2 * PAGE_BYTES, "{of:?}: {counted}");
            }
        }
    }
}
