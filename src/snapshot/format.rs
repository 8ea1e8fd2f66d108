//! The format of a snapshot's file: its header, its frames and their checksums.
//!
//! A page with the header (see [`SnapshotHeader`]), then frames without gaps, in this order: the
//! state, positions, claims, the stripes, the blocks of each bank ([`crate::snapshot::save`]).
//!
//! | word of a frame | content |
//! |---|---|
//! | 0 | [`Content`] |
//! | 1 | the bank's number, for blocks |
//! | 2 | the number of the stripe, of the block, or of the frame of claims |
//! | 3 | the LSN last applied |
//! | 4 | words of payload |
//! | 5 | checksum |
//! | from 6 on | payload |

use crate::format::header::{DURABLE, Header, to_bytes};

pub(super) const MAGIC: &[u8; 8] = b"EBBTSNP\n";
pub(super) const FRAME_WORDS: usize = 6;
pub(super) const REMEDY: &str = "the older snapshot is used if it is sound; run `ebbtide verify`, \
                                 restore a backup, or save what the log still tells with \
                                 `ebbtide salvage`";

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Content {
    /// The state block: the kind's words, then the filter-wide state.
    State = 1,
    /// The sums of a stripe.
    Stripe = 2,
    /// A block: the kind's words, then the cells.
    Block = 3,
    /// The positions of all sources, in pairs; none without positions.
    Positions = 4,
    /// Some of the claims: the latest time and token, then hash, token, beginning and deadline of
    /// each; none if there never was one.
    Claims = 5,
}

impl Content {
    /// All contents, by their numbers.
    pub const ALL: [Self; 5] =
        [Self::State, Self::Stripe, Self::Block, Self::Positions, Self::Claims];

    /// Returns the content of this number.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|&content| content as u64 == number)
    }
}

/// A frame without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The frame's content.
    pub content: Content,
    /// The bank's number, for blocks.
    pub bank: u32,
    /// The number of the stripe or block, or of the part of the claims.
    pub index: u64,
    /// The LSN last applied to it.
    pub lsn: u64,
}

/// The content of a snapshot's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// The filter it belongs to.
    pub uuid: u128,
    /// The timeline in which it was written.
    pub timeline: u64,
    /// The tail of the log before the first copy.
    pub start: u64,
    /// The tail of the log after the last copy.
    pub end: u64,
    /// The number of frames that follow.
    pub frames: u64,
    /// Bytes of the whole file.
    pub bytes: u64,
}

impl SnapshotHeader {
    pub(super) fn words(&self) -> Header<7> {
        let (low, high) = (self.uuid as u64, (self.uuid >> 64) as u64);
        let words = [low, high, self.timeline, self.start, self.end, self.frames, self.bytes];
        Header { version: DURABLE.written, words }
    }

    pub(super) fn from_words(header: Header<7>) -> Self {
        let [low, high, timeline, start, end, frames, bytes] = header.words;
        Self { uuid: u128::from(high) << 64 | u128::from(low), timeline, start, end, frames, bytes }
    }
}

/// The first version whose frames are bound to their snapshot.
const BOUND_SINCE: u32 = 5;

/// What the checksums of a snapshot's frames begin with, which binds frames to their snapshot. A
/// snapshot may overwrite an older one in the same place. If the disk drops a write, an older frame
/// remains there, which must not be accepted as one of this snapshot.
#[derive(Debug, Clone, Copy)]
pub struct ChecksumSeed(Option<[u64; 4]>);

impl ChecksumSeed {
    /// Creates the seed of newly written snapshots.
    #[must_use]
    pub fn new(uuid: u128, timeline: u64, start: u64) -> Self {
        Self::of_version(DURABLE.written, uuid, timeline, start)
    }

    /// Creates the seed of a format version: frames of older versions are not bound to a snapshot.
    pub(super) fn of_version(version: u32, uuid: u128, timeline: u64, start: u64) -> Self {
        let words = [start, timeline, uuid as u64, (uuid >> 64) as u64];
        Self((version >= BOUND_SINCE).then_some(words))
    }

    /// Returns the checksum of a frame: over the snapshot, the frame's offset, its words and its
    /// payload.
    pub(super) fn checksum(self, frame: &Frame, offset: u64, payload: &[u8]) -> u64 {
        let mut hasher = crc32fast::Hasher::new();
        if let Self(Some(words)) = self {
            hasher.update(&to_bytes(&words));
        }
        let words = [frame.content as u64, frame.bank.into(), frame.index, frame.lsn, offset];
        hasher.update(&to_bytes(&words));
        hasher.update(payload);
        // Never zero, so that a hole in the file is no valid frame.
        u64::from(hasher.finalize()) | 1 << 32
    }
}

/// Corrects the checksums of all frames, as far as their lengths lead through the file's bytes.
#[cfg(fuzzing)]
pub fn seal_frames(file: &mut [u8]) {
    use crate::format::header::{HEADER_BYTES, PAGE_BYTES, to_words};
    const HEAD_BYTES: usize = FRAME_WORDS * 8;
    let Some(header) = file.get(..HEADER_BYTES) else {
        return;
    };
    let words: Vec<u64> = to_words(header).collect();
    let uuid = u128::from(words[3]) << 64 | u128::from(words[2]);
    let version = u32::try_from(words[1]).unwrap_or(u32::MAX);
    let seed = ChecksumSeed::of_version(version, uuid, words[4], words[5]);
    let mut at = PAGE_BYTES as usize;
    while let Some(Some((head, rest))) =
        file.get_mut(at..).map(|rest| rest.split_at_mut_checked(HEAD_BYTES))
    {
        let words: Vec<u64> = to_words(head).collect();
        let payload =
            usize::try_from(words[4]).ok().and_then(|words| rest.get(..words.checked_mul(8)?));
        let (Some(payload), Some(content)) = (payload, Content::of_number(words[0])) else {
            return;
        };
        let frame = Frame { content, bank: words[1] as u32, index: words[2], lsn: words[3] };
        let sum = seed.checksum(&frame, at as u64, payload);
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
            let seed = ChecksumSeed::new(7, 1, 5);
            assert_eq!(seed.checksum(&frame, offset, &[7; 16]) >> 32, 1);
        }
    }
}
