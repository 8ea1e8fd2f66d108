//! The layout of a bank, and the lookup of a key's blocks in a set of banks.

use crate::format::header::HEADER_WORDS;
use crate::format::names::FileName;
use crate::image::bank::*;
use crate::image::named_banks::NamedBanks;
use crate::media::failing::Failing;
use crate::media::{Media, Memory};
use crate::primitives::AtomicU64;
use crate::{Bloom, Counting, DynamicCount, Spec};
use ebbtide_core::block::OWN_WORDS;
use ebbtide_core::block::load;
use ebbtide_core::block::places::PACKED_MOST;
use ebbtide_core::block::undo_log::Begun;
use std::io::ErrorKind;

const LAYOUT: Layout = Layout { stripes: 3, block_words: 64 };
const GEOMETRY: Geometry = Geometry { blocks_per_stripe: 5, words_per_block: 72 };
const PLAIN: BankForm = BankForm { undo: UndoRoom::None, grows: false };
const NOTING: BankForm = BankForm { undo: UndoRoom::Block, grows: false };
const GROWING: BankForm = BankForm { undo: UndoRoom::Block, grows: true };
/// The filter and its timeline.
const IMAGE: (u128, u64) = (5 << 64 | 7, 3);

fn memory() -> Failing<Memory> {
    let memory = Failing::new(Memory::new());
    memory.make().expect("nothing fails yet");
    memory
}

fn named(media: &Failing<Memory>, timeline: u64) -> NamedBanks {
    NamedBanks::new(Arc::new(media.clone()), timeline)
}

fn create(media: &Failing<Memory>, id: u32, geometry: Geometry, form: BankForm) -> Result<Bank> {
    Bank::create(&named(media, IMAGE.1), IMAGE.0, IMAGE.1, id, LAYOUT, geometry, form)
}

fn bank(form: BankForm) -> Arc<Bank> {
    Arc::new(create(&memory(), 0, GEOMETRY, form).expect("space"))
}

/// Returns the headers of a key's blocks, by slot.
fn headers<'a>(located: &Located<'a>) -> Vec<BlockHeader<'a>> {
    let mut found = Vec::new();
    located.headers.each(|_, header| found.push(*header));
    found
}

/// Returns keys from the whole range.
fn hashes() -> impl Iterator<Item = u64> {
    (0..97).map(|part| part * (u64::MAX / 97) + 5)
}

#[test]
fn a_set_is_of_the_version_it_was_made_for_and_of_no_other() {
    let none = BankSet::default();
    for version in [0, 1, u64::MAX - 1, u64::MAX] {
        assert!(!none.is_of(version));
        let set = none.clone().of_version(version);
        assert!(set.is_of(version) && !set.is_of(version.wrapping_add(1)));
        assert!(!set.with(0, None).is_of(version), "it is another set");
    }
}

#[test]
fn only_what_cannot_be_done_again_is_noted_and_only_blocks_that_grow_begin_small() {
    let form = |spec: &dyn Fn() -> ebbtide_core::Result<Arc<dyn Kind>>| {
        BankForm::of(&*spec().expect("a kind"))
    };
    assert_eq!(form(&|| Bloom::capacity(1000).kind()), PLAIN);
    assert_eq!(form(&|| Counting::capacity(1000).kind()), NOTING);
    assert_eq!(form(&|| DynamicCount::capacity(1000).kind()), GROWING);
}

#[test]
fn a_bank_has_blocks_and_they_are_no_larger_than_the_largest() {
    let layout = Layout { stripes: 2, block_words: 64 };
    let bytes = |blocks_per_stripe, words_per_block| {
        Bank::bytes(layout, Geometry { blocks_per_stripe, words_per_block }, NOTING)
    };
    bytes(1, 1).expect("a bank");
    bytes(7, Layout::MOST_BLOCK_WORDS).expect("a bank");
    let most = (Layout::MOST_BANK_WORDS / 2 / u64::from(Layout::MOST_BLOCK_WORDS)) as u32;
    bytes(most, Layout::MOST_BLOCK_WORDS).expect("the largest bank");
    for (blocks, words) in [
        (0, 64),
        (1, 0),
        (1, Layout::MOST_BLOCK_WORDS + 1),
        (most + 1, Layout::MOST_BLOCK_WORDS),
        (u32::MAX, 8192),
    ] {
        assert!(matches!(bytes(blocks, words), Err(Error::Parameter { .. })), "{blocks} {words}");
    }
}

#[test]
fn headers_undo_areas_and_cells_lie_beside_one_another_and_fill_the_file() {
    for form in [PLAIN, NOTING, GROWING] {
        let bank = bank(form);
        let (words, block) = (bank.mapping.words(), GEOMETRY.words_per_block as usize);
        assert_eq!((bank.blocks(), bank.geometry(), bank.id()), (15, GEOMETRY, 0));
        // In a small bank, the parts follow one another.
        let is_small = bank.places.end <= PACKED_MOST && !form.grows;
        let (headers, unit) = if is_small { (HEADER_WORDS, 8) } else { (PAGE_WORDS, PAGE_WORDS) };
        assert_eq!([bank.places.undo % unit, bank.places.cells % unit], [0; 2]);
        assert_eq!(bank.places.headers, headers, "{form:?}");
        assert!(is_small || form != PLAIN);
        let bytes = Bank::bytes(LAYOUT, GEOMETRY, form).expect("a bank");
        assert_eq!((words.len() as u64 * 8, words.len()), (bytes, bank.places.cells + 15 * block));
        for index in 0..15 {
            let (header, block) = bank.block(index);
            for word in header.0.iter().chain(block.cells) {
                assert_eq!(load(word), 0, "{form:?} {index}");
                store(word, 200 + index as u64);
            }
            assert_eq!((block.number, block.of), (index as u64, 15));
        }
        let block_of = |value: u64| -> (Vec<_>, Vec<_>) {
            let words = |count| (0..count).map(|_| AtomicU64::new(value)).collect();
            (words(OWN_WORDS), words(block))
        };
        for stripe in (0..3).filter(|_| form.undo != UndoRoom::None) {
            let (own, cells) = block_of(100 + stripe as u64);
            bank.undo(stripe).begin(7, 100 + stripe as u64);
            // More than are saved one by one: the whole block is saved.
            (0..70).for_each(|at| bank.undo(stripe).note(&own, &cells, at, 100 + stripe as u64));
        }
        for stripe in (0..3).filter(|_| form.undo != UndoRoom::None) {
            let begun = Begun { block: 7, lsn: 100 + stripe as u64 };
            assert_eq!(bank.undo(stripe).begun(), Some(begun));
            let (own, cells) = block_of(0);
            bank.undo(stripe).take_back(&own, &cells);
            assert!(own.iter().chain(&cells).all(|word| load(word) == 100 + stripe as u64));
        }
        let mut counts = [0; 215];
        for word in words {
            counts.get_mut(load(word) as usize).into_iter().for_each(|count| *count += 1);
        }
        assert!(counts[200..].iter().all(|&count| count == BLOCK_HEADER_WORDS + block));
        assert!(words[HEADER_WORDS..headers].iter().all(|word| load(word) == 0));
    }
}

#[test]
fn a_keys_block_is_one_of_its_stripe_and_is_noted_in_its_stripes_area() {
    let bank = bank(NOTING);
    for hash in hashes() {
        let stripe = LAYOUT.stripe_of(hash);
        let (header, block) = bank.block_in::<true>(hash);
        assert_eq!(bank.stripe_of_block(block.number), stripe);
        let is_same = |other: &BlockHeader<'_>| std::ptr::eq(other.0, header.0);
        assert_eq!(bank.blocks_of_stripe(stripe).filter(is_same).count(), 1);
        block.undo.begin(block.number, hash);
        block.set_word(0, hash);
        let begun = Begun { block: block.number, lsn: hash };
        assert_eq!(bank.undo(stripe).begun(), Some(begun));
        bank.undo(stripe).begin(0, 0);
        for read in [bank.block(block.number as usize), bank.block_of(hash)] {
            assert_eq!(read.1.number, block.number);
            read.1.set_word(0, 1);
            assert_eq!(bank.undo(stripe).begun(), None, "nothing is noted of a block to be read");
        }
    }
    let of_stripe = |stripe| bank.blocks_of_stripe(stripe).map(|header| header.0.as_ptr());
    let all: Vec<_> = (0..3).flat_map(of_stripe).collect();
    let expected: Vec<_> = (0..15).map(|index| bank.block(index).0.0.as_ptr()).collect();
    assert_eq!(all, expected);
}

#[test]
fn a_bank_is_opened_as_what_it_is_and_as_nothing_else() {
    let memory = memory();
    let made = create(&memory, 4, GEOMETRY, NOTING).expect("space");
    store(&made.block(14).1.cells[71], 9);
    let open = |image: (u128, u64), id, geometry, form| {
        let banks = named(&memory, image.1);
        Bank::open(&banks, image, id, LAYOUT, geometry, (form, Access::Write))
    };
    let same = open(IMAGE, 4, GEOMETRY, NOTING).expect("it is there");
    assert_eq!((same.id(), same.blocks(), same.block(14).1.word(71)), (4, 15, 9));
    // Under the names of others.
    let name = |timeline, bank| FileName::Bank { timeline, bank }.to_string();
    for (timeline, bank) in [(3, 5), (4, 4)] {
        memory.rename_new(&name(3, 4), &name(timeline, bank)).expect("the name is free");
        let opened = open((IMAGE.0, timeline), bank, GEOMETRY, NOTING);
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{timeline} {bank}");
        memory.rename_new(&name(timeline, bank), &name(3, 4)).expect("the name is free");
    }
    let (uuid, timeline) = IMAGE;
    let swapped = Geometry { blocks_per_stripe: 72, words_per_block: 5 };
    // As a page of `live` says that is lost.
    let none = Geometry { blocks_per_stripe: 0, words_per_block: 0 };
    for (image, geometry, form) in [
        (IMAGE, none, NOTING),
        ((uuid ^ 1, timeline), GEOMETRY, NOTING),
        ((uuid ^ 1 << 64, timeline), GEOMETRY, NOTING),
        (IMAGE, Geometry { blocks_per_stripe: 6, ..GEOMETRY }, NOTING),
        (IMAGE, Geometry { words_per_block: 73, ..GEOMETRY }, NOTING),
        (IMAGE, swapped, NOTING),
        (IMAGE, GEOMETRY, PLAIN),
    ] {
        let opened = open(image, 4, geometry, form);
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{image:?} {geometry:?}");
    }
    drop((made, same));
    let file = memory.open(&name(3, 4), Access::Write).expect("it is there");
    let length = file.bytes().expect("no error");
    file.write_at(&[0; 8], length).expect("space");
    assert!(matches!(open(IMAGE, 4, GEOMETRY, NOTING), Err(Error::Damaged { .. })));
}

#[test]
fn a_leftover_is_replaced_and_what_cannot_be_replaced_is_an_error() {
    let memory = memory();
    let old = create(&memory, 0, GEOMETRY, PLAIN).expect("space");
    store(&old.block(0).1.cells[0], 9);
    let new = create(&memory, 0, GEOMETRY, PLAIN).expect("space");
    assert_eq!((new.block(0).1.word(0), old.block(0).1.word(0)), (0, 9));
    memory.fail_after(1, ErrorKind::PermissionDenied);
    let refused = create(&memory, 1, GEOMETRY, PLAIN);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
}

#[test]
fn blocks_that_grow_take_space_when_they_get_room_and_give_it_back() {
    let memory = memory();
    let geometry = Geometry { blocks_per_stripe: 2, words_per_block: 1024 };
    let bank = create(&memory, 0, geometry, GROWING).expect("space");
    let start = bank.places.cells as u64 * 8;
    let used = || bank.memory_bytes() - start;
    assert_eq!(used(), 0, "all but cells");
    let page = PAGE_WORDS as u64 * 8;
    for (block, words, expected) in
        [(1, 1, 1), (1, 512, 1), (1, 513, 2), (1, 5000, 2), (3, 1024, 4), (2, 0, 4)]
    {
        bank.allocate(block, words).expect("space");
        assert_eq!(used(), expected * page, "{block} {words}");
    }
    for block in [1, 3] {
        bank.block(block).1.cells.iter().for_each(|word| store(word, block as u64));
    }
    memory.inner().set_capacity(start + 4 * page);
    assert!(bank.allocate(0, 1).is_err_and(|error| error.is_full()));
    assert_eq!(used(), 4 * page);
    for (block, from, expected) in [(1, 5000, 4), (1, 513, 4), (1, 512, 3), (1, 0, 2), (3, 1, 1)] {
        bank.free(block, from);
        assert_eq!(used(), expected * page, "{block} {from}");
    }
    let left = |block: usize| bank.block(block).1.cells.iter().filter(|&word| load(word) != 0);
    assert_eq!([left(1).count(), left(3).count()], [0, 512], "of the others nothing was freed");
}

#[test]
fn blocks_that_do_not_grow_have_all_their_space_from_the_start() {
    let memory = memory();
    let bank = create(&memory, 0, GEOMETRY, NOTING).expect("space");
    let bytes = Bank::bytes(LAYOUT, GEOMETRY, NOTING).expect("a bank");
    assert_eq!(bank.memory_bytes(), bytes);
    memory.fail_after(1, ErrorKind::StorageFull);
    bank.allocate(0, 72).expect("it asks for nothing");
}

#[test]
fn a_set_has_the_banks_that_were_put_into_it_and_finds_a_keys_blocks_in_those_asked_for() {
    let (one, two, three) = (bank(PLAIN), bank(NOTING), bank(NOTING));
    let slots = |set: &BankSet| set.iter().map(|(slot, _)| slot).collect::<Vec<_>>();
    let set = BankSet::default().with(2, Some(one.clone())).with(5, Some(two.clone()));
    assert_eq!(slots(&set), [2, 5]);
    assert!(set.get(2).is_some_and(|bank| Arc::ptr_eq(bank, &one)));
    assert!([0, 3, 8, usize::MAX].iter().all(|&slot| set.get(slot).is_none()));
    let set = set.with(2, Some(three.clone()));
    assert_eq!(slots(&set), [2, 5]);
    assert!(set.get(2).is_some_and(|bank| Arc::ptr_eq(bank, &three)));
    assert_eq!(slots(&set.with(5, None)), [2]);
    assert_eq!(slots(&set.with(4, None)), [2, 5]);
    let set = set.with(0, Some(one));
    for hash in hashes() {
        for mask in [0, 1, 4, 1 | 32, 2 | 4 | 32, 2, BankMask::MAX] {
            let located = set.locate(mask, hash);
            let mut headers = headers(&located).into_iter();
            for slot in 0..MAX_BANKS {
                let expected = set.get(slot).filter(|_| mask & 1 << slot != 0);
                let expected = expected.map(|bank| bank.block_of(hash));
                let block = located.blocks.get(slot).map(|block| block.cells.as_ptr());
                assert_eq!(block, expected.map(|(_, block)| block.cells.as_ptr()), "{slot}");
                if let Some((header, _)) = expected {
                    assert!(headers.next().is_some_and(|found| std::ptr::eq(found.0, header.0)));
                }
            }
            assert!(headers.next().is_none());
        }
    }
}

#[test]
fn a_keys_blocks_are_marked_and_compared_all_together() {
    let banks = [0, 3].map(|slot| (slot, bank(NOTING)));
    for slots in [&banks[..1], &banks[..]] {
        let put = |set: BankSet, (slot, bank): &(usize, Arc<Bank>)| {
            store(bank.block_of(7).0.version(), 10 * *slot as u64);
            set.with(*slot, Some(bank.clone()))
        };
        let set = slots.iter().fold(BankSet::default(), put);
        let located = set.locate(BankMask::MAX, 7);
        let mut seen = located.headers.versions().expect("whole blocks");
        assert!(located.headers.unchanged(seen));
        assert_eq!(seen, if slots.len() == 1 { 0 } else { 30 });
        for (_, bank) in slots {
            // One of them is enough.
            seqlock::begin(bank.block_of(7).0.version());
            assert!(!located.headers.unchanged(seen) && located.headers.versions().is_none());
            seqlock::end(bank.block_of(7).0.version());
            assert!(!located.headers.unchanged(seen));
            seen = located.headers.versions().expect("whole blocks");
        }
        located.begin();
        let all = |test: &dyn Fn(&BlockHeader<'_>) -> bool| headers(&located).iter().all(test);
        let is_whole = |header: &BlockHeader<'_>| seqlock::read(header.version()).is_some();
        assert!(all(&|header| !is_whole(header)));
        located.end(None);
        assert!(all(&is_whole) && !located.headers.unchanged(seen));
        assert!(all(&|header| header.lsn() == 0));
        located.begin();
        located.end(Some(9));
        assert!(all(&is_whole) && all(&|header| header.lsn() == 9));
        headers(&located).iter().for_each(|header| header.set_lsn(0));
    }
}

#[test]
fn a_record_is_for_the_blocks_that_are_older_than_it_and_makes_no_block_older() {
    let (first, second) = (bank(NOTING), bank(NOTING));
    let set = BankSet::default().with(0, Some(first.clone())).with(1, Some(second.clone()));
    let located = set.locate(BankMask::MAX, 7);
    let lsns = || [&first, &second].map(|bank| bank.block_of(7).0.lsn());
    second.block_of(7).0.set_lsn(5);
    for (lsn, older) in [(1, [true, false]), (5, [true, false]), (6, [true, true])] {
        let blocks = located.older_than(lsn);
        assert_eq!([0, 1].map(|slot| blocks.get(slot).is_some()), older, "{lsn}");
    }
    for (lsn, expected) in [(3, [3, 5]), (5, [5, 5]), (4, [5, 5]), (6, [6, 6])] {
        located.note(lsn);
        assert_eq!(lsns(), expected);
    }
    assert!(located.older_than(6).get(0).is_none() && located.older_than(6).get(1).is_none());
    located.begin_undo();
    let block = *located.blocks.get(0).expect("a block");
    block.set_word(1, 1);
    let begun = Begun { block: block.number, lsn: 6 };
    assert_eq!(first.undo(LAYOUT.stripe_of(7)).begun(), Some(begun));
    assert_eq!(second.undo(LAYOUT.stripe_of(7)).begun(), None);
    // Each bank has an area of its own.
    located.blocks.get(1).expect("a block").set_word(1, 1);
    let begun = Begun { block: second.block_of(7).1.number, lsn: 6 };
    assert_eq!(second.undo(LAYOUT.stripe_of(7)).begun(), Some(begun));
}

#[test]
fn a_change_of_any_block_shows_in_the_sum_of_their_versions() {
    let words: [[AtomicU64; BLOCK_HEADER_WORDS]; 3] = Default::default();
    let mut slots = [None; MAX_BANKS];
    for (slot, words) in [1, 4, 7].into_iter().zip(&words) {
        slots[slot] = Some(BlockHeader(words));
    }
    let headers = Headers::Many(slots);
    for changed in &words {
        let before = headers.versions().expect("whole blocks");
        assert!(headers.unchanged(before));
        seqlock::begin(&changed[0]);
        assert_eq!(headers.versions(), None);
        assert!(!headers.unchanged(before));
        seqlock::end(&changed[0]);
        assert!(!headers.unchanged(before));
    }
}
