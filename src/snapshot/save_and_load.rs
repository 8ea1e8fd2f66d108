//! Copies an image into a snapshot, and loads it again.
//!
//! The state block comes first, then positions and claims, the sums of each stripe, and the blocks
//! of each bank that the state lists. Each part is copied while nobody changes it, one after the
//! other: replay from the snapshot's start makes them parts of one state.

use crate::error::{Error, Result};
use crate::image::positions::MOST_SOURCES;
use crate::image::stripe_table::StripeSums;
use crate::image::{Bank, BankForm, Control, Image};
use crate::media::Media;
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::{Content, Frame, SnapshotHeader, SnapshotReader};
use ebbtide_core::block::{Block, OWN_WORDS, load as read, store};
use ebbtide_core::claims::{HeldClaim, LatestClaim};
use ebbtide_core::kind::copy::used;
use ebbtide_core::kind::{BankEntry, Kind};
use ebbtide_core::state::STATE_WORDS;
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
    let (header, block) = bank.block(index as usize);
    copy(&used(kind, block), words);
    shorten(words);
    let lsn = header.lsn();
    if image.lists(bank.id()) {
        return lsn;
    }
    // The bank was closed meanwhile, and its cells may be gone: an empty block with an LSN after
    // the closing. Replay skips the records before that, and then closes the bank.
    words.clear();
    words.resize(OWN_WORDS, 0);
    // 0 only in an image that lost pages, whose snapshot is discarded.
    image.header().tail().read().saturating_sub(1)
}

/// Loads a snapshot into an empty image. Returns the image with the snapshot's header.
pub fn load(
    (home, uuid, start): (&dyn Media, u128, u64),
    kind: &dyn Kind,
    image: Image,
    advance: &dyn Fn(),
) -> Result<(Image, SnapshotHeader)> {
    let mut reader = SnapshotReader::open(home, start, uuid)?;
    let (mut states, mut stripes, mut blocks) = (0, 0, 0);
    reader.frames(|reader, frame, words| {
        advance();
        match frame.content {
            Content::State => {
                load_state(&image, kind, reader, frame, words)?;
                states += 1;
            }
            Content::Positions => load_positions(&image, reader, frame, words)?,
            Content::Claims => load_claims(&image, reader, frame, words)?,
            Content::Stripe => {
                load_stripe(&image, reader, frame, words)?;
                stripes += 1;
            }
            Content::Block => {
                load_block(&image, kind, reader, frame, words)?;
                blocks += 1;
            }
        }
        Ok(())
    })?;
    let expected = (
        1,
        image.header().stripe_count(),
        image.banks().iter().map(|(_, bank)| bank.blocks()).sum::<u64>(),
    );
    if (states, stripes, blocks) != expected {
        let header = *reader.header();
        let found = format!("{:?}", (states, stripes, blocks));
        let expected =
            format!("as many states, stripes and blocks as the filter has, {expected:?}");
        return Err(reader.damaged(header.bytes, expected, found));
    }
    Ok((image, *reader.header()))
}

fn misfit(reader: &SnapshotReader, frame: &Frame, words: &[u64]) -> Error {
    let expected = "a frame that fits the filter".to_owned();
    reader.damaged(0, expected, format!("{frame:?} with {} words", words.len()))
}

fn load_state(
    image: &Image,
    kind: &dyn Kind,
    reader: &SnapshotReader,
    frame: &Frame,
    words: &[u64],
) -> Result<()> {
    let current = image.header().state_block().current();
    let block = current.block();
    // Zeros at the end are left out; up to version 4 they were not.
    let own = OWN_WORDS + block.cells.len();
    let beyond = words.get(own..).unwrap_or_default();
    let in_bounds = (OWN_WORDS..=OWN_WORDS + STATE_WORDS).contains(&words.len());
    if !in_bounds || beyond.iter().any(|&word| word != 0) {
        return Err(misfit(reader, frame, words));
    }
    for (to, from) in block.own.iter().chain(block.cells).zip(words) {
        store(to, *from);
    }
    current.set_lsn(frame.lsn);
    // A frame for each block follows: a table that lists more is wrong, and gets no space.
    let blocks = |bank: BankEntry| image.layout().blocks(bank.geometry);
    let listed = current.state().banks().map(blocks).fold(0, u64::saturating_add);
    let misfits =
        |bank: BankEntry| Bank::bytes(image.layout(), bank.geometry, BankForm::of(kind)).is_err();
    if listed > reader.header().frames || current.state().banks().any(misfits) {
        return Err(misfit(reader, frame, words));
    }
    image.create_listed_banks()
}

fn load_positions(
    image: &Image,
    reader: &SnapshotReader,
    frame: &Frame,
    words: &[u64],
) -> Result<()> {
    let positions = image.header().positions();
    let is_first = positions.all().is_empty();
    if !is_first || !words.len().is_multiple_of(2) || words.len() > 2 * MOST_SOURCES {
        return Err(misfit(reader, frame, words));
    }
    for pair in words.chunks_exact(2) {
        positions.set(frame.lsn, pair[0], pair[1]);
    }
    Ok(())
}

fn load_claims(image: &Image, reader: &SnapshotReader, frame: &Frame, words: &[u64]) -> Result<()> {
    let Some((&[time, token], rest)) = words.split_first_chunk() else {
        return Err(misfit(reader, frame, words));
    };
    image.allocate_claims()?;
    let claims = image.header().claims();
    let (all, []) = rest.as_chunks() else { return Err(misfit(reader, frame, words)) };
    for &[hash, token, since, deadline] in all {
        if claims.get(hash).is_some() || claims.is_full() {
            return Err(misfit(reader, frame, words));
        }
        claims.set(frame.lsn, HeldClaim { hash, token, since, deadline });
    }
    claims.begin_after(LatestClaim { time, token });
    Ok(())
}

fn load_stripe(image: &Image, reader: &SnapshotReader, frame: &Frame, words: &[u64]) -> Result<()> {
    let &[inserts, time, new_bits] = words else {
        return Err(misfit(reader, frame, words));
    };
    let index = usize::try_from(frame.index).ok().filter(|&at| at < image.header().stripe_count());
    let Some(index) = index else {
        return Err(misfit(reader, frame, words));
    };
    let sums = StripeSums { lsn: frame.lsn, inserts, time, new_bits };
    image.header().stripe(index).set_sums(&sums);
    Ok(())
}

fn load_block(
    image: &Image,
    kind: &dyn Kind,
    reader: &SnapshotReader,
    frame: &Frame,
    words: &[u64],
) -> Result<()> {
    let banks = image.banks();
    let bank = banks.iter().map(|(_, bank)| bank).find(|bank| bank.id() == frame.bank);
    let Some(bank) = bank.filter(|bank| frame.index < bank.blocks()) else {
        return Err(misfit(reader, frame, words));
    };
    // Trailing zeros are left out.
    let most = OWN_WORDS + bank.geometry().words_per_block as usize;
    let Some(cells) = words.len().checked_sub(OWN_WORDS).filter(|_| words.len() <= most) else {
        return Err(misfit(reader, frame, words));
    };
    bank.allocate(frame.index, cells)?;
    let (header, block) = bank.block(frame.index as usize);
    for (to, from) in block.own.iter().chain(block.cells).zip(words) {
        store(to, *from);
    }
    header.set_lsn(frame.lsn);
    if let Some(growth) = kind.growth() {
        // The block's room may end in zeros, which the snapshot has left out.
        bank.allocate(frame.index, growth.room_now(&block))?;
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
