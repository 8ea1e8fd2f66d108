//! Loads a snapshot into an empty image, and refuses frames that do not fit the filter. What they
//! hold, [`save`] says.
//!
//! [`save`]: crate::snapshot::save

use crate::error::{Error, Result};
use crate::image::positions::MOST_SOURCES;
use crate::image::stripe_table::StripeSums;
use crate::image::{Bank, BankForm, Image};
use crate::media::Media;
use crate::snapshot::{Content, Frame, SnapshotHeader, SnapshotReader};
use ebbtide_core::block::{OWN_WORDS, store};
use ebbtide_core::claims::{HeldClaim, LatestClaim};
use ebbtide_core::kind::{BankEntry, Kind};
use ebbtide_core::state::STATE_WORDS;

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
    image.allocate_positions()?;
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
