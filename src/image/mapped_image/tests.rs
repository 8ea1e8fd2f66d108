//! The effects of records on an image, each exactly once.

use crate::format::names::FileName;
use crate::image::mapped_image::*;
use crate::image::stripe_table::StripeSums;
use crate::media::Memory;
use crate::{Bloom, Counting, DynamicCount, Spec, TimeLimited};
use ebbtide_core::block::{Geometry, load, store};
use ebbtide_core::kind::{Change, Query};
use std::time::Duration;

const LAYOUT: Layout = Layout { stripes: 4, block_words: 512 };
/// A key of the last stripe.
const HASH: u64 = u64::MAX - 99;
const STRIPE: usize = 4;

/// Creates a new filter's image, under its name.
fn made(spec: &impl Spec) -> (Image, Arc<dyn Kind>, Arc<Memory>) {
    let (kind, memory) = (spec.kind().expect("a kind"), Arc::new(Memory::new()));
    memory.make().expect("nothing fails yet");
    let identity = Identity {
        uuid: 7,
        timeline: 1,
        boot: 1,
        inode: 0,
        device: 0,
        stripes: LAYOUT.stripes,
        state_words: kind.state_words() as u32,
    };
    let image = Image::create(memory.clone(), "live", identity, LAYOUT, &*kind).expect("space");
    image.start(&*kind).expect("space");
    (image, kind, memory)
}

fn windows() -> TimeLimited {
    TimeLimited::window(Duration::from_secs(64)).rate(1.0)
}

/// Opens the same image as another handle.
fn attached(memory: &Arc<Memory>, kind: &dyn Kind) -> Result<Image> {
    let header = Control::attach(&**memory, 7, Access::Write)?;
    Image::attach(memory.clone(), header, LAYOUT, kind, Access::Write)
}

fn operation(op: Op, argument: u32) -> Record {
    Record { argument, payload: HASH, time: 40, stream: true, ..Record::new(op) }
}

fn apply(image: &Image, kind: &dyn Kind, lsn: u64, record: &Record) {
    image.apply(kind, &image.keep_banks(), lsn, record).expect("space");
}

fn open_bank(id: u32) -> Event {
    let geometry = Geometry { blocks_per_stripe: 2, words_per_block: 64 };
    Event::OpenBank { id, geometry, since: 3, time: 50 }
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
fn a_bank_that_is_open_is_not_made_again_and_one_made_in_vain_is() {
    let (image, _kind, memory) = made(&windows());
    let opened = |id| {
        let name = FileName::Bank { timeline: 1, bank: id }.to_string();
        memory.open(&name, Access::Read).and_then(|file| file.identity()).ok()
    };
    let before = opened(0);
    assert!(before.is_some());
    image.prepare(&open_bank(0)).expect("space");
    image.prepare(&Event::Step { step: 1, time: 1, word: 1 }).expect("space");
    image.prepare(&Event::CloseBank { id: 1, time: 1 }).expect("space");
    assert_eq!((opened(0), opened(1)), (before, None));
    image.prepare(&open_bank(1)).expect("space");
    let first = opened(1);
    image.prepare(&open_bank(1)).expect("space");
    assert!(first.is_some() && opened(1).is_some_and(|second| Some(second) != first));
}

#[test]
fn the_banks_of_another_handle_are_followed_and_those_that_never_change_are_kept() {
    let (image, kind, memory) = made(&windows());
    let other = attached(&memory, &*kind).expect("it is there");
    let version = image.header().state_block().version();
    let are_listed = |version| {
        let state = other.header().state_block().state(version);
        other.banks_of(&state, version).is_some()
    };
    assert!(are_listed(version));
    apply(&image, &*kind, 5, &event::to_record(&open_bank(1), false));
    assert!(!are_listed(version + 1));
    assert_eq!(other.banks().iter().count(), 1);
    let kept = other.keep_banks();
    let listed = other.listed_banks().expect("they are there");
    assert_eq!(listed.iter().map(|bank| bank.id()).collect::<Vec<_>>(), [0, 1]);
    assert!(are_listed(version + 1));
    let first = kept.get(0).expect("it was open");
    assert!(Arc::ptr_eq(first, &listed[0]), "it is not mapped again");
    // Slots that were reassigned to other banks, one of them of the same size.
    let events = [0, 1].map(|id| Event::CloseBank { id, time: 60 });
    for (lsn, event) in (6..).zip([events[0], open_bank(2), events[1], open_bank(3)]) {
        apply(&image, &*kind, lsn, &event::to_record(&event, false));
    }
    other.follow().expect("they are there");
    let ids = other.banks().iter().map(|(slot, bank)| (slot, bank.id())).collect::<Vec<_>>();
    assert_eq!(ids, [(0, 2), (1, 3)]);
    memory.remove(&FileName::Bank { timeline: 1, bank: 3 }.to_string()).expect("it is there");
    assert!(attached(&memory, &*kind).is_err(), "without its bank");
    image.finish(&*kind, 10);
    assert!(matches!(image.banks(), Banks::Current(_)));

    let (image, kind, memory) = made(&Bloom::capacity(1000));
    image.finish(&*kind, 1);
    for image in [image, attached(&memory, &*kind).expect("it is there")] {
        assert!(matches!(image.banks(), Banks::Fixed(_)) && image.banks().iter().count() == 1);
        assert!(image.banks_of(&image.header().state(), 77).is_some());
    }
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
    let refused = image.apply(&*kind, &image.keep_banks(), 7, &other);
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
    let room = image.make_room(&*kind, &banks, block, &again, true).expect("it has room");
    let room = room.expect("it may allocate");
    let growth = kind.growth().expect("it grows");
    assert_eq!(room, growth.room_now(block));
}

#[test]
fn banks_that_were_mapped_before_a_clear_are_not_taken_for_those_after_it() {
    let (image, kind, memory) = made(&Bloom::capacity(1000));
    // A handle that has mapped the banks, and does not know them for good yet.
    let header = Control::attach(&*memory, 7, Access::Write).expect("the image");
    let media: Arc<dyn Media> = memory.clone();
    let files = BankFiles::find(&media, &header, Access::Write).expect("the banks");
    let form = BankForm::of(&*kind);
    let other = Image::over(header, LAYOUT, form, (media, files), Access::Write);
    other.follow().expect("the banks");
    let cleared = image.prepare_clear(&*kind).expect("space");
    image.clear_state(9, &cleared);
    assert!(!other.fix_banks(&*kind));
    other.follow().expect("the banks");
    assert!(other.fix_banks(&*kind));
    let bank = |of: &Image| of.banks().iter().map(|(_, bank)| bank.id()).collect::<Vec<_>>();
    image.follow().expect("the banks");
    assert_eq!(bank(&other), bank(&image));
}

#[test]
fn a_rebuilt_image_begins_with_the_sums_of_its_stripes_and_the_end_of_its_log() {
    let (image, kind, _) = made(&Bloom::capacity(1000));
    assert_eq!((image.last_change(), image.sum_stripes()), (0, (Totals::default(), 0)));
    for stripe in 0..=LAYOUT.stripes as usize {
        let number = stripe as u64;
        let time = [7, 20, 90, 3, 5][stripe];
        let sums = StripeSums { lsn: 30 - number, inserts: number, time, new_bits: 10 * number };
        image.header().stripe(stripe).set_sums(&sums);
    }
    assert_eq!(image.last_change(), 30);
    image.header().stripe(STRIPE).note(40, 0);
    assert_eq!(image.last_change(), 40);
    image.header().state_block().change(45, |_| {});
    assert_eq!(image.last_change(), 45);
    let totals = Totals { inserts: 10, new_bits: 100 };
    image.finish(&*kind, 50);
    let header = image.header();
    assert_eq!((image.sum_stripes(), header.counters().sum()), ((totals, 90), totals));
    assert_eq!([header.time().read(), header.tail().read(), header.durable().read()], [90, 50, 50]);
    assert_eq!(image.layout(), LAYOUT);
}
