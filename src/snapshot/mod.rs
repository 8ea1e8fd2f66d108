//! Snapshots: checksummed files of blocks, the ground that replay stands on.
//!
//! A snapshot is a page of checked header and then frames: block 0, the sums of each stripe, the blocks of each
//! bank. It names the LSN before its first copy (`start`) and the one after its last (`end`): replay begins
//! at `start`, and a log that does not reach `end` is damaged. A snapshot knows nothing of kinds.

pub mod read;
pub mod write;

pub use read::SnapshotReader;

use crate::bytes::Header;

const MAGIC: &[u8; 8] = b"EBBTSNP\n";
const FRAME_WORDS: usize = 6;
const REMEDY: &str = "the older snapshot is used if it is sound; run `ebbtide verify`, restore a backup, or save what \
                      the log still tells with `ebbtide salvage`";

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Content {
    /// Block 0: the kind's words, then the filter-wide state.
    State = 1,
    /// The sums of a stripe.
    Stripe = 2,
    /// A block: the kind's words, then the cells.
    Block = 3,
}

/// A frame without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// What it holds.
    pub content: Content,
    /// The bank's number, for blocks.
    pub bank: u32,
    /// The number of the stripe or block.
    pub index: u64,
    /// The LSN last applied to it.
    pub lsn: u64,
}

/// What a snapshot's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// The filter it belongs to.
    pub uuid: u128,
    /// The era in which it was written.
    pub era: u64,
    /// The next LSN before the first copy.
    pub start: u64,
    /// The next LSN after the last copy.
    pub end: u64,
    /// How many frames follow.
    pub frames: u64,
    /// Bytes of the whole file.
    pub bytes: u64,
}

impl SnapshotHeader {
    fn words(&self) -> Header<7> {
        let (low, high) = (self.uuid as u64, (self.uuid >> 64) as u64);
        Header { words: [low, high, self.era, self.start, self.end, self.frames, self.bytes] }
    }

    fn from_words(header: Header<7>) -> Self {
        let [low, high, era, start, end, frames, bytes] = header.words;
        Self { uuid: u128::from(high) << 64 | u128::from(low), era, start, end, frames, bytes }
    }
}

/// The checksum of a frame: its place, its words and its payload.
fn frame_checksum(frame: &Frame, offset: u64, payload: &[u8]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    let words = [frame.content as u64, frame.bank.into(), frame.index, frame.lsn, offset];
    hasher.update(&crate::bytes::to_bytes(&words));
    hasher.update(payload);
    // Never zero, so that a hole in the file is no frame.
    u64::from(hasher.finalize()) | 1 << 32
}

/// Puts the checksums of all frames right, as far as their lengths lead through the file's bytes.
#[cfg(fuzzing)]
pub fn seal_frames(file: &mut [u8]) {
    use crate::bytes::{PAGE_BYTES, to_words};
    const HEAD_BYTES: usize = FRAME_WORDS * 8;
    let mut at = PAGE_BYTES as usize;
    while let Some(Some((head, rest))) =
        file.get_mut(at..).map(|rest| rest.split_at_mut_checked(HEAD_BYTES))
    {
        let words: Vec<u64> = to_words(head).collect();
        let payload =
            usize::try_from(words[4]).ok().and_then(|words| rest.get(..words.checked_mul(8)?));
        let content = [Content::State, Content::Stripe, Content::Block];
        let content = content.into_iter().find(|&content| content as u64 == words[0]);
        let (Some(payload), Some(content)) = (payload, content) else {
            return;
        };
        let frame = Frame { content, bank: words[1] as u32, index: words[2], lsn: words[3] };
        let sum = frame_checksum(&frame, at as u64, payload);
        head[HEAD_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        at += HEAD_BYTES + payload.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_frame_is_never_zero() {
        let frame = Frame { content: Content::Block, bank: 1, index: 2, lsn: 3 };
        for offset in 0..100 {
            assert_eq!(frame_checksum(&frame, offset, &[7; 16]) >> 32, 1);
        }
    }
}
