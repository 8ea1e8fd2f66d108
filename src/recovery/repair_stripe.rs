//! Repair of a stripe whose owner died: the record that was left half applied is applied again.
//!
//! An owner counts each record before the next one. So a dead owner leaves at most one record that
//! the stripe's sums do not count, or the uncounted rest of one batch. Applying these records again
//! completes them, wherever they were interrupted ([`apply_record::apply`]). For kinds whose
//! operations are not idempotent, the partial change is [undone](ebbtide_core::block::undo_log)
//! first. The versions of the blocks are odd meanwhile, and even in the end. Slots in the log that
//! were reserved and not filled are voided. If a repairer dies, the next owner starts the repair
//! again.
//!
//! The caller holds the stripe.

use crate::error::{Error, Result};
use crate::image::{Image, apply_record, seqlock};
use crate::recovery::batches::{Batches, Group};
use crate::wal::log_record::Decoded;
use crate::wal::{Op, Record, Segment, empty_slots};
use ebbtide_core::event;
use ebbtide_core::kind::{Kind, records};
use std::sync::Arc;

/// Returns the LSN from which a record of the stripe may have to be applied; `None` if there cannot
/// be one.
///
/// `newest` is the start of the newest snapshot. Its writer held this stripe after that LSN, so all
/// earlier records of the stripe are applied.
#[must_use]
pub fn from(image: &Image, index: usize, newest: u64) -> Option<u64> {
    let header = image.header();
    let first = match index {
        // The writer of stripe 0 announces a lower bound before it writes.
        0 => header.events_from().read(),
        _ => Some(header.stripe(index).sums().lsn.saturating_add(1)),
    };
    first.map(|first| first.max(newest))
}

/// What was repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repaired {
    /// The stripe.
    Whole,
    /// Not all: stripe 0 must be repaired first and held. A clear is unfinished, or a batch has
    /// events that are not applied. Everything before it is repaired.
    NeedsStripe0,
}

/// Completes the unfinished operation of a stripe's owner. `segments` contain the log from [`from`]
/// on, up to the tail.
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`] if a bank cannot be mapped, or the system could not write
/// back the log: then the stripe still needs repair.
pub fn stripe(
    image: &Image,
    kind: &dyn Kind,
    index: usize,
    segments: &[Arc<Segment>],
    from: Option<u64>,
) -> Result<Repaired> {
    let mut repairing = Repairing { image, kind, index, outcome: Repaired::Whole };
    let mut batches = Batches::default();
    image.follow()?;
    if let Some(stripe) = index.checked_sub(1) {
        undo(image, stripe);
    }
    let tail = image.header().tail().read();
    for segment in segments {
        let Some(from) = from else { break };
        let places = empty_slots::places(segment, from, tail);
        // An empty slot may belong to the dead owner, and no count would include it after the
        // release. A live writer of such a slot takes another one.
        empty_slots::void(segment, places.clone())
            .map_err(Error::io("write back", segment.header().path(image.media().path())))?;
        for lsn in places {
            let Decoded::Valid(record) = segment.read(lsn) else { continue };
            batches.take(lsn, &record, |group, counts| repairing.take_group(group, counts))?;
            if repairing.outcome == Repaired::NeedsStripe0 {
                return Ok(Repaired::NeedsStripe0);
            }
        }
    }
    if index == 0 {
        image.header().claims().count_again();
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
    Ok(repairing.outcome)
}

/// The repair of one stripe.
struct Repairing<'a> {
    image: &'a Image,
    kind: &'a dyn Kind,
    index: usize,
    outcome: Repaired,
}

impl Repairing<'_> {
    /// Applies the records of a group that belong to the stripe, if the group is committed.
    fn take_group(&mut self, group: Group<'_>, counts: bool) -> Result<()> {
        if !counts {
            return Ok(());
        }
        if self.needs_stripe_0(group) {
            self.outcome = Repaired::NeedsStripe0;
            return Ok(());
        }
        let Self { image, kind, index, .. } = *self;
        // Another owner of stripe 0 may have opened a bank that these records need.
        image.follow()?;
        for (lsn, record) in group.iter().map(|(lsn, record)| (*lsn, record)) {
            if record.op == Op::Clear {
                apply_record::apply_clear(image, kind, index, lsn, record)?;
            } else if is_of(image, index, record) {
                // The owner of a batch marks each block only when it comes to it.
                begin_change(image, kind, lsn, record);
                apply_record::apply(image, kind, &image.banks(), lsn, record)?;
            }
        }
        Ok(())
    }

    /// Returns whether an ordinary stripe must wait for stripe 0. True for a clear that stripe 0
    /// has not counted. Also for a batch with a record of this stripe and an event that the state
    /// block lacks.
    fn needs_stripe_0(&self, group: Group<'_>) -> bool {
        let Self { image, index, .. } = *self;
        let header = image.header();
        let is_any = |wanted: &dyn Fn(u64, &Record) -> bool| {
            group.iter().any(|(lsn, record)| wanted(*lsn, record))
        };
        let is_uncounted_clear =
            |lsn, record: &Record| record.op == Op::Clear && !header.stripe(0).has_counted(lsn);
        let applied = header.state_block().lsn();
        let is_missing_event =
            |lsn, record: &Record| lsn > applied && event::from_record(record).is_some();
        let has_own = || group.iter().any(|(_, record)| is_of(image, index, record));
        index > 0
            && (is_any(&is_uncounted_clear)
                || group.len() > 1 && has_own() && is_any(&is_missing_event))
    }
}

/// Marks the blocks that a record is yet to change, so that readers wait.
fn begin_change(image: &Image, kind: &dyn Kind, lsn: u64, record: &Record) {
    let Some(operation) = records::operation(kind, record) else { return };
    let (banks, state) = (image.banks(), image.header().state());
    let located = banks.locate(kind.touches(&state, operation.step), operation.hash);
    located.headers.each(|_, header| {
        if header.lsn() < lsn {
            seqlock::begin(header.version());
        }
    });
}

/// Restores the words noted for undo, if the last change of an ordinary stripe (counted from 0) is
/// unfinished.
fn undo(image: &Image, stripe: usize) {
    for (_, bank) in image.banks().iter() {
        let undo = bank.undo(stripe);
        let Some(begun) = undo.begun().filter(|begun| begun.block < bank.blocks()) else {
            continue;
        };
        let (header, block) = bank.block(begun.block as usize);
        // A different LSN means that the change is complete: the LSN is stored last.
        if header.lsn() == begun.lsn {
            undo.take_back(block.own, block.cells);
        }
    }
}

/// Returns whether a record belongs to a stripe.
fn is_of(image: &Image, index: usize, record: &Record) -> bool {
    match record.op {
        Op::Insert | Op::Remove => image.layout().stripe_of(record.payload) + 1 == index,
        Op::Heartbeat | Op::Position | Op::Claim | Op::Release => index == 0,
        Op::Step | Op::OpenBank | Op::CloseBank => {
            index == 0 && event::from_record(record).is_some()
        }
        Op::Clear | Op::Durable | Op::Void | Op::Batch => false,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::image::identity::Identity;
    use crate::image::live_file::Control;
    use crate::media::{Access, Media, Memory};
    use crate::wal::segment::SegmentHeader;
    use crate::wal::slot;
    use crate::{Bloom, Counting, Fingerprint, Spec};
    use ebbtide_core::block::{Geometry, Layout, OWN_WORDS};
    use ebbtide_core::kind::Event;
    use std::time::Duration;

    const LAYOUT: Layout = Layout { stripes: 4, block_words: 512 };

    /// Creates the image of a new filter.
    fn made(spec: &impl Spec) -> (Image, Arc<dyn Kind>, Arc<dyn Media>) {
        let (kind, memory) = (spec.kind().expect("a kind"), Arc::new(Memory::new()));
        memory.make().expect("nothing fails yet");
        let (uuid, timeline, stripes) = (7, 1, LAYOUT.stripes);
        let state_words = kind.state_words() as u32;
        let identity =
            Identity { uuid, timeline, boot: 0, inode: 0, device: 0, stripes, state_words };
        let image = Image::create(memory.clone(), "live", identity, LAYOUT, &*kind);
        let image = image.expect("space");
        image.start(&*kind).expect("space");
        (image, kind, memory)
    }

    #[test]
    fn a_record_is_of_one_stripe_or_of_none() {
        let (image, _, _) = made(&Bloom::capacity(1000));
        let stripes = |record: &Record| {
            (0..=4).filter(|&index| is_of(&image, index, record)).collect::<Vec<_>>()
        };
        for quarter in 0..4_u64 {
            let hash = quarter << 62 | 99;
            let expected = LAYOUT.stripe_of(hash) + 1;
            for op in [Op::Insert, Op::Remove] {
                let record = Record { payload: hash, ..Record::new(op) };
                assert_eq!(stripes(&record), [expected], "{op:?}");
            }
        }
        for op in [
            Op::Heartbeat,
            Op::Step,
            Op::OpenBank,
            Op::CloseBank,
            Op::Position,
            Op::Claim,
            Op::Release,
        ] {
            assert_eq!(stripes(&Record::new(op)), [0], "{op:?}");
        }
        for op in [Op::Durable, Op::Void, Op::Batch] {
            assert!(stripes(&Record::new(op)).is_empty(), "{op:?}");
        }
    }

    /// Returns a segment with these records, from LSN 1 on.
    fn segment(image: &Image, memory: &dyn Media, records: &[Record]) -> Arc<Segment> {
        let header =
            SegmentHeader { uuid: 7, timeline: 1, timeline_start: 1, first: 1, capacity: 128 };
        let segment = Arc::new(Segment::create(memory, header, 0).expect("space"));
        for (lsn, record) in (1..).zip(records) {
            slot::publish(segment.slot(lsn), record.encode(1, lsn));
        }
        image.header().tail().begin_at(1 + records.len() as u64);
        segment
    }

    #[test]
    fn a_reader_of_a_block_that_a_repair_changes_reads_it_again() {
        let (image, kind, memory) = made(&Fingerprint::last(1000));
        // The owner of a batch died before it came to this block.
        let record = Record { payload: 99, step: 0, ..Record::new(Op::Insert) };
        let segment = segment(&image, &*memory, &[record]);
        let banks = image.keep_banks();
        let (header, _) = banks.get(0).expect("a bank").block_of(99);
        let before = seqlock::read(header.version()).expect("it is whole");
        stripe(&image, &*kind, 1, &[segment], Some(1)).expect("space");
        assert_eq!(header.lsn(), 1);
        let after = seqlock::read(header.version()).expect("it is whole again");
        assert!(after > before, "{before} {after}");
    }

    #[test]
    fn a_record_is_applied_in_the_bank_that_another_owner_opened_for_it_meanwhile() {
        let (image, kind, memory) = made(&Fingerprint::window(Duration::from_secs(64)));
        let header = Control::attach(&*memory, 7, Access::Write).expect("it is there");
        let other = Image::attach(memory, header, LAYOUT, &*kind, Access::Write).expect("banks");
        let geometry = Geometry { blocks_per_stripe: 2, words_per_block: 64 };
        let open = Event::OpenBank { id: 1, geometry, since: 3, time: 50 };
        image.prepare(&open).expect("space");
        apply_record::apply_event(&image, &*kind, 1, &open);
        let insert = Record { payload: 99, step: 3, ..Record::new(Op::Insert) };
        let batch = [(1, event::to_record(&open, true)), (2, insert)];
        let outcome = Repaired::Whole;
        let mut repairing = Repairing { image: &other, kind: &*kind, index: 1, outcome };
        repairing.take_group(&batch, true).expect("space");
        let banks = other.keep_banks();
        let opened = banks.iter().find(|(_, bank)| bank.id() == 1).expect("it is mapped").1;
        assert_eq!(opened.block_of(99).0.lsn(), 2);
    }

    #[test]
    fn no_stripe_is_cleared_before_the_state_however_often_its_repair_begins() {
        let (image, kind, memory) = made(&Bloom::capacity(1000));
        let insert = Record { payload: 99, ..Record::new(Op::Insert) };
        let segment = segment(&image, &*memory, &[insert, Record::new(Op::Clear)]);
        apply_record::apply(&image, &*kind, &image.keep_banks(), 1, &insert).expect("space");
        let repaired = |index: usize| {
            stripe(&image, &*kind, index, std::slice::from_ref(&segment), Some(1)).expect("space")
        };
        let inserts = || image.header().stripe(1).sums().inserts;
        // The first repairer dies before it has stripe 0.
        assert_eq!([repaired(1), repaired(1)], [Repaired::NeedsStripe0; 2]);
        assert_eq!((inserts(), image.header().state().next_bank()), (1, 1));
        assert_eq!([repaired(0), repaired(1)], [Repaired::Whole; 2]);
        assert_eq!((inserts(), image.header().state().next_bank()), (0, 2));
        assert_eq!(image.header().stripe(1).lsn(), 2);
    }

    #[test]
    fn what_was_not_completed_is_taken_back_and_notes_of_no_block_are_left_alone() {
        let (image, kind, _) = made(&Counting::capacity(1000));
        let banks = image.keep_banks();
        let bank = banks.get(0).expect("a bank");
        let index = bank.blocks() - 1;
        let (header, block) = bank.block(index as usize);
        header.set_lsn(5);
        // Interrupted; completed; and an undo area of a damaged image.
        for (noted, lsn, expected) in [(index, 5, 0), (index, 4, 9), (index + 1, 5, 9)] {
            block.set_word(0, 9);
            bank.undo(3).begin(noted, lsn);
            bank.undo(3).note(block.own, block.cells, OWN_WORDS, 0);
            stripe(&image, &*kind, 4, &[], None).expect("no error");
            assert_eq!(block.word(0), expected, "{noted} {lsn}");
        }
    }

    #[test]
    fn what_was_not_completed_is_taken_back_in_the_second_bank_as_in_the_first() {
        for at in 0..2 {
            let (image, kind, _) = made(&Fingerprint::window(Duration::from_secs(64)));
            let geometry = Geometry { blocks_per_stripe: 2, words_per_block: 64 };
            let open = Event::OpenBank { id: 1, geometry, since: 3, time: 50 };
            image.prepare(&open).expect("space");
            apply_record::apply_event(&image, &*kind, 3, &open);
            image.follow().expect("both banks");
            let banks = image.keep_banks();
            let found: Vec<_> = banks.iter().map(|(_, bank)| bank).collect();
            let [_, _] = found[..] else { panic!("{} banks", found.len()) };
            let bank = found[at];
            let index = bank.blocks() - 1;
            let (header, block) = bank.block(index as usize);
            header.set_lsn(5);
            seqlock::begin(header.version());
            bank.undo(3).begin(index, 5);
            bank.undo(3).note(block.own, block.cells, OWN_WORDS, 0);
            block.set_word(0, 9);
            stripe(&image, &*kind, 4, &[], None).expect("no error");
            assert_eq!(block.word(0), 0, "bank {at}");
            assert!(seqlock::read(header.version()).is_some(), "readers of bank {at} wait no more");
        }
    }
}
