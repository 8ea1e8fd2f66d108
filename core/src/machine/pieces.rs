//! A filter in memory as pieces of bytes, each at most 1 MiB.
//!
//! All numbers are little-endian. Each piece has a header of 32 bytes, then its content:
//!
//! | offset | content |
//! |---|---|
//! | 0 | `EBBTMEM` and a line feed |
//! | 8 | format version (4 bytes), what the piece is (4) |
//! | 16 | the piece's number from 0 (4), the length of its content (4) |
//! | 24 | checksum (8): XXH3 of the content, seeded with XXH3 of the header's first 24 bytes |
//!
//! The content of a piece, in words of 8 bytes, by its type:
//!
//! - 1, the first: the length of the identity, next LSN, chain, number of state words, number of
//!   stripes; the state words; inserts, time and new bits of each stripe, that of events first; the
//!   identity.
//! - 2: the slot of the bank, the number of the chunk, the words of the chunk.
//! - 4, behind the first, if the filter ever had a claim: the latest time and token, then hash,
//!   token, beginning and deadline of up to 16,384 claims, by hash.
//! - 3, the last: XXH3-128 of the checksums of all pieces before it.
//!
//! Chunks stand in the order of slots and numbers; those that were never written to are left out.
//! Their sizes follow from the bank that the state lists. The words are as they are, not settled,
//! so a restored filter is the same bit by bit.

use super::parts::Parts;
use crate::block::load;
use crate::claims::LatestClaim;
use crate::error::{Error, Result};
use crate::hash::{DigestHasher, short_checksum};

pub(super) const VERSION: u32 = 1;
pub(super) const BEGIN: u32 = 1;
pub(super) const CHUNK: u32 = 2;
pub(super) const SEAL: u32 = 3;
pub(super) const CLAIMS: u32 = 4;

/// The most claims in a piece.
const CLAIMS_AT_ONCE: usize = 1 << 14;

/// Words before the state words in the first piece.
pub(super) const COUNTS: usize = 5;

const MAGIC: &[u8; 8] = b"EBBTMEM\n";
const HEADER_BYTES: usize = 32;
/// The largest piece.
const MOST_BYTES: usize = 1 << 20;

/// The pieces of a filter, in order.
#[derive(Debug)]
pub struct Pieces<'a> {
    parts: &'a Parts,
    cursor: PieceCursor,
    /// Whether the last piece is the seal.
    sealed: bool,
}

/// A place between two pieces of a filter, at which a host may continue to save it. It is valid
/// until the filter changes.
#[derive(Debug, Clone)]
pub struct PieceCursor {
    number: u32,
    /// The pieces of claims so far.
    claims: usize,
    /// The slot and the number of the next chunk to look for; `None` after the seal.
    next: Option<(usize, usize)>,
    seal: Seal,
}

impl Default for PieceCursor {
    fn default() -> Self {
        Self::new()
    }
}

impl PieceCursor {
    /// Returns the place before the first piece.
    #[must_use]
    pub fn new() -> Self {
        Self { number: 0, claims: 0, next: Some((0, 0)), seal: Seal::default() }
    }

    /// Returns the number of the next piece; the first one has 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether all pieces have been returned.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next.is_none()
    }
}

/// The hash of the checksums of all pieces so far.
#[derive(Clone, Default)]
pub(super) struct Seal(DigestHasher);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    pub(super) fn add(&mut self, checksum: u64) {
        self.0.words(&[checksum]);
    }

    pub(super) fn words(&self) -> [u64; 2] {
        let sum = self.0.finish();
        [sum as u64, (sum >> 64) as u64]
    }
}

impl<'a> Pieces<'a> {
    pub(super) fn new(parts: &'a Parts) -> Self {
        Self::from(parts, PieceCursor::new())
    }

    /// Returns the pieces from a place on.
    pub(super) fn from(parts: &'a Parts, cursor: PieceCursor) -> Self {
        Self { parts, cursor, sealed: true }
    }

    /// Returns the pieces without the seal, of a filter whose pieces have not all been added.
    pub(super) fn unsealed(parts: &'a Parts) -> Self {
        Self { sealed: false, ..Self::new(parts) }
    }

    /// Returns the place before the next piece.
    #[must_use]
    pub fn cursor(&self) -> &PieceCursor {
        &self.cursor
    }

    /// Encodes a piece.
    fn piece(&mut self, what: u32, words: impl Iterator<Item = u64>, tail: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        words.for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(tail);
        let length = (bytes.len() - HEADER_BYTES) as u32;
        bytes[..8].copy_from_slice(MAGIC);
        for (at, value) in [(8, VERSION), (12, what), (16, self.cursor.number), (20, length)] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes[24..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        debug_assert!(bytes.len() <= MOST_BYTES, "a piece of {} bytes", bytes.len());
        self.cursor.seal.add(sum);
        self.cursor.number += 1;
        bytes
    }

    fn first(&mut self) -> Vec<u8> {
        let (parts, position) = (self.parts, self.parts.ledger.position());
        let (identity, state) = (parts.identity.encode(), parts.memory.state_words());
        let stripes = parts.ledger.stripes();
        let counts: [u64; COUNTS] = [
            identity.len() as u64,
            position.next_lsn,
            position.chain,
            state.len() as u64,
            stripes.len() as u64,
        ];
        let sums = stripes.iter().flat_map(|sums| [sums.inserts, sums.time, sums.new_bits]);
        self.piece(BEGIN, counts.into_iter().chain(state.iter().map(load)).chain(sums), &identity)
    }

    /// Returns the next piece of claims, if there are more.
    fn claims(&mut self) -> Option<Vec<u8>> {
        let (claims, before) = (&self.parts.claims, self.cursor.claims);
        let is_first = before == 0 && claims.latest().token > 0;
        let mut rest = claims.iter().skip(before * CLAIMS_AT_ONCE).peekable();
        if rest.peek().is_none() && !is_first {
            return None;
        }
        let LatestClaim { time, token } = claims.latest();
        let claims = rest.take(CLAIMS_AT_ONCE);
        let words = claims.flat_map(|held| [held.hash, held.token, held.since, held.deadline]);
        self.cursor.claims += 1;
        Some(self.piece(CLAIMS, [time, token].into_iter().chain(words), &[]))
    }

    /// Returns the first chunk from this slot and number on.
    fn chunk_from(&self, from: (usize, usize)) -> Option<Found<'a>> {
        let banks = self.parts.memory.banks();
        banks.filter(|&(slot, _)| slot >= from.0).find_map(|(slot, bank)| {
            let least = if slot == from.0 { from.1 } else { 0 };
            let (number, words) = bank.chunk_from(least)?;
            Some(Found { slot, number, words })
        })
    }
}

/// A chunk that was found.
struct Found<'a> {
    slot: usize,
    number: usize,
    words: &'a [crate::atomic::AtomicU64],
}

impl Iterator for Pieces<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let next = self.cursor.next?;
        if self.cursor.number == 0 {
            return Some(self.first());
        }
        if let Some(claims) = self.claims() {
            return Some(claims);
        }
        let Some(Found { slot, number, words }) = self.chunk_from(next) else {
            self.cursor.next = None;
            let seal = self.cursor.seal.words();
            return self.sealed.then(|| self.piece(SEAL, seal.into_iter(), &[]));
        };
        self.cursor.next = Some((slot, number + 1));
        let place = [slot as u64, number as u64];
        Some(self.piece(CHUNK, place.into_iter().chain(words.iter().map(load)), &[]))
    }
}

pub(super) fn checksum(bytes: &[u8]) -> u64 {
    short_checksum(&bytes[HEADER_BYTES..], short_checksum(&bytes[..24], 0))
}

/// A piece whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked<'a> {
    pub(super) what: u32,
    pub(super) content: &'a [u8],
    pub(super) checksum: u64,
}

/// Creates the error for a piece.
pub(super) fn damaged(number: u32, expected: impl Into<String>, found: impl ToString) -> Error {
    let what = format!("piece {number} of a saved filter");
    Error::Damaged { what, expected: expected.into(), found: found.to_string() }
}

/// Checks a piece, which must have this number: its checksum first, then its header.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Version`].
pub(super) fn open(bytes: &[u8], number: u32) -> Result<Checked<'_>> {
    if !(HEADER_BYTES..=MOST_BYTES).contains(&bytes.len()) || !bytes.starts_with(MAGIC) {
        let expected = format!("{HEADER_BYTES} to {MOST_BYTES} bytes that begin with EBBTMEM");
        return Err(damaged(number, expected, format!("{} bytes", bytes.len())));
    }
    let field =
        |at: usize| bytes[at..at + 4].iter().rev().fold(0, |all, &b| all << 8 | u32::from(b));
    let found = u64::from(field(28)) << 32 | u64::from(field(24));
    let checksum = checksum(bytes);
    if found != checksum {
        let expected = format!("checksum {checksum:016x}");
        return Err(damaged(number, expected, format!("{found:016x}")));
    }
    if field(8) != VERSION {
        return Err(Error::Version { expected: VERSION, found: field(8).into() });
    }
    let content = &bytes[HEADER_BYTES..];
    if field(16) != number || field(20) as usize != content.len() {
        let found = format!("piece {} with {} bytes", field(16), field(20));
        return Err(damaged(number, format!("{} bytes of it", content.len()), found));
    }
    Ok(Checked { what: field(12), content, checksum })
}
