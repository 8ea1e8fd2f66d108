//! The effects of records on an image, each exactly once.

use crate::format::names::FileName;
use crate::image::apply_record::*;
use crate::image::mapped_image::tests::{apply, made, open_bank, windows};
use crate::image::stripe_table::StripeSums;
use crate::media::Media;
use crate::{Bloom, Counting, DynamicCount, Spec};
use ebbtide_core::block::{load, store};
use ebbtide_core::kind::{Change, Operation, Query};
use std::sync::Arc;

/// A key of the last stripe.
const HASH: u64 = u64::MAX - 99;
const STRIPE: usize = 4;

fn operation(op: Op, argument: u32) -> Record {
    Record { argument, payload: HASH, time: 40, stream: true, ..Record::new(op) }
}

/// Returns the key's count.
fn count(image: &Image, kind: &dyn Kind) -> f64 {
    let (state, banks) = (image.header().state(), image.keep_banks());
    let query = Query { hash: HASH, now: 0, totals: Totals::default() };
    let estimate = kind.estimate(&state, &banks.locate(1, HASH).blocks, &query);
    estimate.expect("a kind that counts").count
}

fn sums(image: &Image, stripe: usize) -> StripeSums {
    image.header().stripe(stripe).sums()
}

/// Returns the LSN of the key's block.
fn block_lsn(image: &Image) -> u64 {
    image.keep_banks().get(0).expect("a bank").block_of(HASH).0.lsn()
}

#[test]
fn an_operation_is_applied_and_counted_once_however_often_its_record_comes() {
    let (image, kind, _) = made(&Counting::capacity(1000));
    let (insert, remove) = (operation(Op::Insert, 7), operation(Op::Remove, 2));
    for _ in 0..3 {
        apply(&image, &*kind, 5, &insert);
        apply(&image, &*kind, 4, &insert);
        let expected = StripeSums { lsn: 5, inserts: 1, time: 81, new_bits: 0 };
        assert_eq!((count(&image, &*kind), block_lsn(&image)), (7.0, 5));
        assert_eq!(sums(&image, STRIPE), expected);
    }
    for _ in 0..3 {
        apply(&image, &*kind, 6, &remove);
        let expected = StripeSums { lsn: 6, inserts: 1, time: 81, new_bits: 1 };
        assert_eq!((count(&image, &*kind), block_lsn(&image)), (5.0, 6));
        assert_eq!(sums(&image, STRIPE), expected);
    }
    assert!((0..STRIPE).all(|stripe| sums(&image, stripe) == StripeSums::default()));
    // Interrupted between the block and the sums; and a snapshot's sums that are later than its
    // block.
    image.keep_banks().get(0).expect("a bank").block_of(HASH).0.set_lsn(8);
    apply(&image, &*kind, 8, &insert);
    assert_eq!((count(&image, &*kind), sums(&image, STRIPE).inserts), (5.0, 2));
    image.header().stripe(STRIPE).note(10, 0);
    apply(&image, &*kind, 9, &insert);
    assert_eq!((count(&image, &*kind), sums(&image, STRIPE).inserts), (12.0, 2));
}

#[test]
fn a_weight_is_no_new_bits() {
    let counted = |spec: &dyn Fn() -> Arc<dyn Kind>, op| {
        records::counts(spec().weights().is_some(), &operation(op, 9))
    };
    let plain = || Bloom::capacity(1000).kind().expect("a kind");
    let weighing = || Counting::capacity(1000).kind().expect("a kind");
    assert_eq!(counted(&plain, Op::Insert), Totals { inserts: 1, new_bits: 9 });
    assert_eq!(counted(&weighing, Op::Insert), Totals { inserts: 1, new_bits: 0 });
    assert_eq!(counted(&weighing, Op::Remove), Totals { inserts: 0, new_bits: 1 });
    // Without weights a key counts once, whatever the record contains.
    let (image, kind, _) = made(&Bloom::capacity(1000));
    apply(&image, &*kind, 5, &operation(Op::Insert, 9));
    assert_eq!(sums(&image, STRIPE).new_bits, 9);
}

#[test]
fn a_heartbeat_tells_the_time_once_and_other_notes_tell_nothing() {
    let (image, kind, _) = made(&windows());
    let heartbeat = |time| Record { time, ..Record::new(Op::Heartbeat) };
    for (lsn, time, expected) in [(3, 20, (3, 40)), (2, 90, (3, 40)), (3, 90, (3, 40))] {
        apply(&image, &*kind, lsn, &heartbeat(time));
        assert_eq!((sums(&image, 0).lsn, sums(&image, 0).time), expected);
    }
    let stream = Record { stream: true, ..heartbeat(90) };
    apply(&image, &*kind, 4, &stream);
    let expected = StripeSums { lsn: 4, time: 181, ..StripeSums::default() };
    assert_eq!(sums(&image, 0), expected);
    for op in [Op::Void, Op::Durable] {
        apply(&image, &*kind, 9, &operation(op, 1));
    }
    assert_eq!((image.last_change(), sums(&image, 0)), (4, expected));
}

#[test]
fn an_event_happens_once_however_often_its_record_comes() {
    let (image, kind, memory) = made(&windows());
    let files = || memory.list().expect("a directory");
    let slots = || image.banks().iter().map(|(slot, bank)| (slot, bank.id())).collect::<Vec<_>>();
    let lsns = || (image.header().state_block().current().lsn(), sums(&image, 0).lsn);
    let state =
        || (image.header().state_block().version(), files(), slots(), sums(&image, 0), lsns());
    let once = |lsn, event: Event| {
        apply(&image, &*kind, lsn, &event::to_record(&event, false));
        let after = state();
        assert_eq!(lsns(), (lsn, lsn));
        (1..=lsn).for_each(|lsn| apply(&image, &*kind, lsn, &event::to_record(&event, true)));
        assert_eq!(state(), after, "{event:?}");
    };
    once(5, open_bank(1));
    assert_eq!((slots(), sums(&image, 0).time), (vec![(0, 0), (1, 1)], 100));
    let names = [0, 1].map(|bank| FileName::Bank { timeline: 1, bank }.to_string());
    assert_eq!(files(), ["live", &names[0], &names[1]]);
    let banks = image.keep_banks();
    let word = &banks.get(1).expect("it is open").block(0).1.cells[0];
    store(word, 9);
    once(6, Event::Step { step: 4, time: 60, word: 2 });
    once(7, Event::CloseBank { id: 0, time: 70 });
    assert_eq!((slots(), sums(&image, 0).time), (vec![(1, 1)], 140));
    assert_eq!(files(), ["live", &names[1]]);
    // Interrupted between the state block and stripe 0.
    image.header().stripe(0).set_sums(&StripeSums { lsn: 6, ..StripeSums::default() });
    let version = image.header().state_block().version();
    apply(&image, &*kind, 7, &event::to_record(&Event::CloseBank { id: 0, time: 70 }, false));
    assert_eq!((lsns(), image.header().state_block().version()), ((7, 7), version));
    assert_eq!(load(word), 9);
}

#[test]
fn a_block_that_grows_gets_room_before_an_operation_and_gives_back_what_it_does_not_use() {
    let (image, kind, memory) = made(&DynamicCount::capacity(2000));
    let used = || image.memory_bytes();
    let empty = used();
    apply(&image, &*kind, 5, &operation(Op::Insert, 1));
    let small = used();
    apply(&image, &*kind, 6, &operation(Op::Insert, (1 << 24) - 2));
    let large = used();
    assert!(empty < small && small < large, "{empty} {small} {large}");
    assert_eq!(count(&image, &*kind), f64::from((1 << 24) - 1));
    // Without space nothing changes.
    memory.set_capacity(0);
    let other = Record { payload: 99, ..operation(Op::Insert, 1) };
    let refused = super::apply(&image, &*kind, &image.keep_banks(), 7, &other);
    assert!(refused.is_err_and(|error| error.is_full()));
    assert_eq!((used(), image.last_change()), (large, 6));
    apply(&image, &*kind, 7, &operation(Op::Remove, (1 << 24) - 2));
    assert_eq!((used(), count(&image, &*kind)), (small, 1.0));
    let banks = image.keep_banks();
    let bank = banks.get(0).expect("a bank");
    assert_eq!(used(), image.header().bytes() + bank.memory_bytes());
    let located = banks.locate(1, HASH);
    let block = located.blocks.get(0).expect("a block");
    let again = Operation { change: Change::Insert, hash: HASH, step: 0, time: 0, weight: 1 };
    let room =
        block_growth::allocate(&image, &*kind, &banks, block, &again, true).expect("it has room");
    let room = room.expect("it may allocate");
    let growth = kind.growth().expect("it grows");
    assert_eq!(room, growth.room_now(block));
}
