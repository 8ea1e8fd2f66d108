//! Copies an image into a snapshot.
//!
//! The state block comes first, then positions and claims, the sums of each stripe, and the blocks
//! of each bank that the state lists. Each part is copied while nobody changes it, one after the
//! other: replay from the snapshot's start makes them parts of one state. [`load`] reads them.
//!
//! [`load`]: crate::snapshot::load

use crate::error::Result;
use crate::image::stripe_table::StripeSums;
use crate::image::{Bank, Control, Image};
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::{Content, Frame};
use ebbtide_core::block::{Block, OWN_WORDS, load as read};
use ebbtide_core::claims::{HeldClaim, LatestClaim};
use ebbtide_core::kind::Kind;
use ebbtide_core::kind::copy::used;
use std::io;
use std::sync::Arc;

/// The most claims in a frame.
const CLAIMS_OF_FRAME: usize = 1 << 10;

/// A copy of the filter-wide state, with the banks that it lists.
pub struct State {
    lsn: u64,
    words: Vec<u64>,
    /// The positions of all sources and the LSN last applied to them, if there are any.
    positions: Option<(u64, Vec<u64>)>,
    /// The claims, in frames, and the LSN last applied to them, if there ever was one.
    claims: (u64, Vec<Vec<u64>>),
    /// The banks.
    pub banks: Vec<Arc<Bank>>,
}

impl State {
    /// Copies the state, for a caller that holds stripe 0 or has exclusive access.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Damaged`](crate::Error::Damaged) if a bank cannot
    /// be mapped.
    pub fn copy(image: &Image) -> Result<Self> {
        let header = image.header();
        let (current, mut words) = (header.state_block().current(), Vec::new());
        copy(&current.block(), &mut words);
        shorten(&mut words);
        let pairs = header.positions().all();
        let pairs: Vec<_> = pairs.into_iter().flat_map(<[u64; 2]>::from).collect();
        let positions = (!pairs.is_empty()).then(|| (header.positions().lsn(), pairs));
        let claims = (header.claims().lsn(), claim_frames(header));
        let banks = image.listed_banks()?;
        Ok(Self { lsn: current.lsn(), words, positions, claims, banks })
    }
}

/// Passes the payloads of the frames of positions and claims on.
///
/// # Errors
/// Those of `write`.
pub fn beside(
    header: &Control,
    mut write: impl FnMut(Content, u64, &[u64]) -> io::Result<()>,
) -> io::Result<()> {
    let pairs = header.positions().all();
    let pairs: Vec<_> = pairs.into_iter().flat_map(<[u64; 2]>::from).collect();
    if !pairs.is_empty() {
        write(Content::Positions, 0, &pairs)?;
    }
    let claims = claim_frames(header);
    (0..).zip(&claims).try_for_each(|(index, words)| write(Content::Claims, index, words))
}

/// Returns the payloads of the frames of claims.
fn claim_frames(header: &Control) -> Vec<Vec<u64>> {
    let (all, LatestClaim { time, token }) = (header.claims().all(), header.claims().latest());
    let words = |claim: &HeldClaim| [claim.hash, claim.token, claim.since, claim.deadline];
    let frame =
        |some: &[HeldClaim]| [time, token].into_iter().chain(some.iter().flat_map(words)).collect();
    match (all.is_empty(), token) {
        (true, 0) => Vec::new(),
        (true, _) => vec![frame(&[])],
        _ => all.chunks(CLAIMS_OF_FRAME).map(frame).collect(),
    }
}

/// Copies a block: the kind's words, then the cells.
pub fn copy(block: &Block<'_>, words: &mut Vec<u64>) {
    words.clear();
    words.extend(block.own.iter().chain(block.cells).map(read));
}

/// Leaves out zeros at the end.
pub fn shorten(words: &mut Vec<u64>) {
    let last = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
    words.truncate(last.max(OWN_WORDS));
}

/// Writes the content of an image after this state was copied. `hold` keeps others from changing a
/// stripe until its result is dropped; `advance` is called after each block.
///
/// # Errors
/// Those of the medium, including a full disk, and of `hold`.
pub fn save<G>(
    writer: &mut SnapshotWriter,
    (kind, image): (&dyn Kind, &Image),
    state: &State,
    hold: impl Fn(usize) -> io::Result<G>,
    advance: impl Fn(),
) -> io::Result<()> {
    let frame = |content, index, lsn| Frame { content, bank: 0, index, lsn };
    writer.frame(&frame(Content::State, 0, state.lsn), &state.words)?;
    if let Some((lsn, pairs)) = &state.positions {
        writer.frame(&frame(Content::Positions, 0, *lsn), pairs)?;
    }
    for (index, words) in (0..).zip(&state.claims.1) {
        writer.frame(&frame(Content::Claims, index, state.claims.0), words)?;
    }
    for at in 0..image.header().stripe_count() {
        let StripeSums { lsn, inserts, time, new_bits } = {
            let _held = hold(at)?;
            image.header().stripe(at).sums()
        };
        writer.frame(&frame(Content::Stripe, at as u64, lsn), &[inserts, time, new_bits])?;
    }
    let mut words = Vec::new();
    for bank in &state.banks {
        for index in 0..bank.blocks() {
            let lsn = {
                let _held = hold(bank.stripe_of_block(index) + 1)?;
                copy_block((kind, image), bank, index, &mut words)
            };
            advance();
            let block = Frame { content: Content::Block, bank: bank.id(), index, lsn };
            writer.frame(&block, &words)?;
        }
    }
    Ok(())
}

/// Copies a block, without zeros at the end. Returns its LSN.
fn copy_block(
    (kind, image): (&dyn Kind, &Image),
    bank: &Bank,
    index: u64,
    words: &mut Vec<u64>,
) -> u64 {
    // A freed page would be allocated again by the copy.
    if image.lists(bank.id()) {
        let (header, block) = bank.block(index as usize);
        copy(&used(kind, block), words);
        shorten(words);
        let lsn = header.lsn();
        if image.lists(bank.id()) {
            return lsn;
        }
    }
    // The bank was closed meanwhile, and its cells may be gone: an empty block with an LSN after
    // the closing. Replay skips the records before that, and then closes the bank.
    words.clear();
    words.resize(OWN_WORDS, 0);
    // 0 only in an image that lost pages, whose snapshot is discarded.
    image.header().tail().read().saturating_sub(1)
}

#[cfg(all(test, not(loom)))]
mod tests;
