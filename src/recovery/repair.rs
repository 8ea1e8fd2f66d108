//! Repair of a stripe whose owner died: the record that it left half applied is applied again.
//!
//! An owner that dies leaves at most one record of its stripe that has not been counted in the stripe's sums, for it
//! counts each before it begins with the next. Applying that record again completes it, wherever it was cut off
//! ([`Image::apply`]); of kinds whose operations cannot be repeated, what was changed is [taken back](ebbtide_core::block::undo_log) first. Blocks that it had marked as being changed and had not begun with are marked as whole: nothing in
//! them has changed. The place in the log that it had reserved and not filled is voided. A repairer that dies leaves what
//! it found, or something further on.
//!
//! The caller holds the stripe.

use crate::error::Result;
use crate::image::{Image, seqlock};
use crate::sync::Ordering;
use crate::wal::record::Decoded;
use crate::wal::{Op, Record, Segment};
use ebbtide_core::event;
use ebbtide_core::kind::Kind;
use std::sync::Arc;

/// The LSN from which a record of the stripe may wait to be applied; none if there cannot be one.
///
/// `ground` is where the newest snapshot starts: it was made with the stripe in hand, so all before it is applied.
#[must_use]
pub fn from(image: &Image, index: usize, ground: u64) -> Option<u64> {
    let header = image.header();
    let counted = header.stripe(index).sums().lsn.saturating_add(1);
    if index > 0 {
        return Some(counted.max(ground));
    }
    // Stripe 0 has few records, so whoever writes one says beforehand where it will lie at the earliest.
    // Relaxed: its writer is dead, and the lock's takeover orders us after that.
    let announced = header.events_from().load(Ordering::Relaxed);
    (announced >= counted).then_some(announced.max(ground))
}

/// Completes what the owner of a stripe left. `segments` hold the log from [`from`] on, up to the tail.
///
/// Returns whether the owner was clearing the filter: then stripe 0 has to be repaired before this one is used.
///
/// # Errors
/// [`crate::Error::Io`], [`crate::Error::Damaged`] if a bank cannot be mapped: the stripe is then still to be repaired.
pub fn stripe(
    image: &Image,
    kind: &dyn Kind,
    index: usize,
    segments: &[Arc<Segment>],
    from: Option<u64>,
) -> Result<bool> {
    let mut cleared = false;
    image.follow()?;
    if let Some(stripe) = index.checked_sub(1) {
        take_back(image, stripe);
    }
    // Acquire: pairs with the Release of `slot::reserve`.
    let tail = image.header().tail().load(Ordering::Acquire);
    for segment in segments {
        let Some(from) = from else { break };
        for lsn in from.max(segment.first())..tail.min(segment.end()) {
            match segment.read(lsn) {
                Decoded::Valid(record) if record.op == Op::Clear => {
                    cleared |= lsn > image.header().stripe(index).lsn();
                    image.apply_clear(kind, index, lsn, &record)?;
                }
                Decoded::Valid(record) if is_of(image, index, &record) => {
                    image.apply(kind, &image.banks(), lsn, &record)?;
                }
                // Perhaps the dead owner's: once the stripe is let go, nothing accounts for it any more. A living writer whose place
                // it was takes the next one.
                Decoded::Empty => segment.void(lsn),
                _ => {}
            }
        }
    }
    if let Some(stripe) = index.checked_sub(1) {
        for (_, bank) in image.banks().iter() {
            for header in bank.blocks_of_stripe(stripe) {
                if seqlock::read(header.version()).is_none() {
                    seqlock::end(header.version());
                }
            }
        }
    }
    Ok(cleared)
}

/// Undoes what the owner of an ordinary stripe (from 0) did not come to complete, where it cannot simply be done again.
fn take_back(image: &Image, stripe: usize) {
    for (_, bank) in image.banks().iter() {
        let undo = bank.undo(stripe);
        let Some(begun) = undo.begun().filter(|begun| begun.block < bank.blocks()) else {
            continue;
        };
        let (header, block) = bank.block(begun.block as usize);
        // Else it was completed: the LSN is set after the last word.
        if header.lsn() == begun.lsn {
            undo.take_back(block.own, block.cells);
        }
    }
}

/// Whether a record belongs to a stripe.
fn is_of(image: &Image, index: usize, record: &Record) -> bool {
    match record.op {
        Op::Insert | Op::Remove => image.layout().stripe_of(record.payload) + 1 == index,
        Op::Heartbeat => index == 0,
        _ => index == 0 && event::from_record(record).is_some(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::image::control::Identity;
    use crate::media::{Media, Memory};
    use crate::{Bloom, Counting, Spec};
    use ebbtide_core::block::{Layout, OWN_WORDS};

    #[test]
    fn a_record_is_of_one_stripe_or_of_none() {
        let memory: Arc<dyn Media> = Arc::new(Memory::new());
        memory.make().expect("nothing fails yet");
        let kind = Bloom::capacity(1000).kind().expect("a kind");
        let layout = Layout { stripes: 4, block_words: 512 };
        let identity = Identity {
            uuid: 7,
            timeline: 1,
            boot: 0,
            inode: 0,
            device: 0,
            stripes: 4,
            state_words: 64,
        };
        let image = Image::create(memory, "image", identity, layout, &*kind).expect("space");
        let stripes = |record: &Record| {
            (0..=4).filter(|&index| is_of(&image, index, record)).collect::<Vec<_>>()
        };
        for quarter in 0..4_u64 {
            let hash = quarter << 62 | 99;
            let expected = layout.stripe_of(hash) + 1;
            for op in [Op::Insert, Op::Remove] {
                let record = Record { payload: hash, ..Record::new(op) };
                assert_eq!(stripes(&record), [expected], "{op:?}");
            }
        }
        for op in [Op::Heartbeat, Op::Step, Op::OpenBank, Op::CloseBank] {
            assert_eq!(stripes(&Record::new(op)), [0], "{op:?}");
        }
        for op in [Op::Durable, Op::Void] {
            assert!(stripes(&Record::new(op)).is_empty(), "{op:?}");
        }
    }

    #[test]
    fn what_was_not_completed_is_taken_back_and_notes_of_no_block_are_left_alone() {
        let memory: Arc<dyn Media> = Arc::new(Memory::new());
        memory.make().expect("nothing fails yet");
        let kind = Counting::capacity(1000).kind().expect("a kind");
        let layout = Layout { stripes: 4, block_words: 512 };
        let identity = Identity {
            uuid: 7,
            timeline: 1,
            boot: 0,
            inode: 0,
            device: 0,
            stripes: 4,
            state_words: 64,
        };
        let image = Image::create(memory, "image", identity, layout, &*kind).expect("space");
        image.start(&*kind).expect("space");
        let banks = image.keep_banks();
        let bank = banks.get(0).expect("a bank");
        let index = bank.blocks() - 1;
        let (header, block) = bank.block(index as usize);
        header.set_lsn(5);
        // Cut off; completed; and notes that a damaged image has.
        for (noted, lsn, expected) in [(index, 5, 0), (index, 4, 9), (index + 1, 5, 9)] {
            block.set_word(0, 9);
            bank.undo(3).begin(noted, lsn);
            bank.undo(3).note(block.own, block.cells, OWN_WORDS, 0);
            stripe(&image, &*kind, 4, &[], None).expect("no error");
            assert_eq!(block.word(0), expected, "{noted} {lsn}");
        }
    }
}
