//! From pieces to a filter in memory. Nothing is allocated that a piece does not hold: tables of a
//! filter's empty parts take less than a thousandth of what they list.

use super::chunks::{Memory, fill, zeros};
use super::claims::from_words;
use super::ledger::{LSN_MAX, Ledger, Position};
use super::parts::Parts;
use super::pieces::{BEGIN, CHUNK, CLAIMS, COUNTS, Checked, SEAL, Seal, damaged, open};
use crate::block::MAX_BANKS;
use crate::claims::ClaimList;
use crate::digest::Sums;
use crate::error::{Error, Result};
use crate::identity::{Build, Identity};

/// The restoration of a filter from its pieces.
#[derive(Debug)]
pub(super) struct Restoration {
    pub(super) parts: Parts,
    /// The number of the next piece.
    pub(super) number: u32,
    /// The least slot and number of the next chunk.
    next: (usize, usize),
    seal: Seal,
    pub(super) sealed: bool,
}

impl Restoration {
    /// Begins with the first piece, of a filter of a kind that `build` builds.
    pub(super) fn begin(first: &[u8], build: Build<'_>) -> Result<Self> {
        let piece = open(first, 0)?;
        if piece.what != BEGIN {
            return Err(damaged(0, "the first piece", format!("type {}", piece.what)));
        }
        let parts = parts(piece.content, build)?;
        let mut seal = Seal::default();
        seal.add(piece.checksum);
        Ok(Self { parts, number: 1, next: (0, 0), seal, sealed: false })
    }

    /// Adds the next piece. After an error the filter cannot be restored.
    pub(super) fn add(&mut self, piece: &[u8]) -> Result<()> {
        let number = self.number;
        let Checked { what, content, checksum } = open(piece, number)?;
        match what {
            _ if self.sealed => return Err(damaged(number, "no piece after the last one", "one")),
            CHUNK => self.chunk(content)?,
            CLAIMS if self.next == (0, 0) => {
                let claims = from_words(&self.parts.claims, words(content), content.len() % 8 == 0);
                self.parts.claims =
                    claims.ok_or_else(|| damaged(number, "claims, one of each key", "others"))?;
            }
            SEAL => {
                let expected = self.seal.words();
                if !words(content).eq(expected) || content.len() != 16 {
                    return Err(damaged(number, "the seal of all pieces before it", "another"));
                }
                self.sealed = true;
            }
            what => return Err(damaged(number, "a chunk or the seal", format!("type {what}"))),
        }
        self.seal.add(checksum);
        self.number = number.saturating_add(1);
        Ok(())
    }

    fn chunk(&mut self, content: &[u8]) -> Result<()> {
        let number = self.number;
        let mut all = words(content);
        let [slot, chunk] = [(); 2].map(|()| all.next().unwrap_or(u64::MAX));
        let place =
            (slot.min(MAX_BANKS as u64) as usize, usize::try_from(chunk).unwrap_or(usize::MAX));
        let found = || format!("chunk {chunk} of slot {slot} with {} bytes", content.len());
        let in_order = place >= self.next;
        let bank = self.parts.memory.bank_mut(place.0).filter(|_| in_order);
        let size = bank.as_ref().map_or(0, |bank| bank.words_of(place.1));
        let Some(bank) = bank.filter(|_| size > 0 && content.len() == (2 + size) * 8) else {
            let expected = format!("a chunk of a bank of the filter from {:?} on", self.next);
            return Err(damaged(number, expected, found()));
        };
        fill(bank.try_chunk_mut(place.1)?, all);
        self.next = (place.0, place.1 + 1);
        Ok(())
    }

    /// Returns the filter, unless the last piece is missing.
    pub(super) fn finish(self) -> Result<Parts> {
        if self.sealed {
            return Ok(self.parts);
        }
        let found = format!("{} pieces without it", self.number);
        Err(damaged(self.number, "the last piece, which seals all", found))
    }
}

/// Returns the whole words of a content.
fn words(content: &[u8]) -> impl Iterator<Item = u64> {
    content.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes))
}

/// Makes the filter of the first piece, without chunks.
fn parts(content: &[u8], build: Build<'_>) -> Result<Parts> {
    let mut all = words(content);
    let [length, next_lsn, chain, state_words, stripes] =
        [(); COUNTS].map(|()| all.next().unwrap_or(u64::MAX));
    let bytes = [COUNTS as u64, state_words, stripes.saturating_mul(3)];
    let bytes = bytes.iter().fold(0_u64, |sum, &words| sum.saturating_add(words)).saturating_mul(8);
    if bytes.checked_add(length) != Some(content.len() as u64) {
        let expected = format!("{length} bytes of identity after {bytes} others");
        return Err(damaged(0, expected, format!("{} bytes in all", content.len())));
    }
    let identity = Identity::decode(&content[bytes as usize..], build)?;
    let (layout, kind) = (identity.layout, &*identity.kind);
    let expected = [kind.state_words() as u64, u64::from(layout.stripes) + 1];
    if [state_words, stripes] != expected || !(1..=LSN_MAX).contains(&next_lsn) {
        let expected = format!("state words and stripes {expected:?}, an LSN up to {LSN_MAX}");
        return Err(damaged(0, expected, format!("{state_words}, {stripes}, {next_lsn}")));
    }
    let state = zeros(state_words as usize);
    fill(&state, all.by_ref().take(state_words as usize));
    let mut sums = vec![Sums::default(); stripes as usize].into_boxed_slice();
    for sum in &mut sums {
        let [inserts, time, new_bits] = [(); 3].map(|()| all.next().unwrap_or(0));
        *sum = Sums { inserts, time, new_bits };
    }
    let memory = Memory::from_state(layout, state).map_err(|error| match error {
        Error::Parameter { expected, found, .. } => damaged(0, expected, found),
        other => other,
    })?;
    let position = Position { uuid: identity.uuid, next_lsn, chain };
    let ledger = Ledger::from_parts(position, kind.uses_time(), sums);
    let grace = kind.grace();
    Ok(Parts { identity, memory, ledger, claims: ClaimList::default(), grace })
}

/// Creates the error for a filter without pieces.
pub(super) fn no_pieces() -> Error {
    let what = "a saved filter".to_owned();
    Error::Damaged { what, expected: "pieces".to_owned(), found: "none".to_owned() }
}
