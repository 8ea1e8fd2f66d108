//! Banks as the state block lists them, and the end of a rebuild.

use crate::format::names::FileName;
use crate::image::apply_record;
use crate::image::mapped_image::*;
use crate::image::stripe_table::StripeSums;
use crate::media::Memory;
use crate::wal::Record;
use crate::{Bloom, Spec, TimeLimited};
use ebbtide_core::block::Geometry;
use ebbtide_core::event;
use std::time::Duration;

pub(in crate::image) const LAYOUT: Layout = Layout { stripes: 4, block_words: 512 };
const STRIPE: usize = 4;

/// Creates a new filter's image, under its name.
pub(in crate::image) fn made(spec: &impl Spec) -> (Image, Arc<dyn Kind>, Arc<Memory>) {
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

pub(in crate::image) fn windows() -> TimeLimited {
    TimeLimited::window(Duration::from_secs(64)).rate(1.0)
}

/// Opens the same image as another handle.
fn attached(memory: &Arc<Memory>, kind: &dyn Kind) -> Result<Image> {
    let header = Control::attach(&**memory, 7, Access::Write)?;
    Image::attach(memory.clone(), header, LAYOUT, kind, Access::Write)
}

pub(in crate::image) fn apply(image: &Image, kind: &dyn Kind, lsn: u64, record: &Record) {
    apply_record::apply(image, kind, &image.keep_banks(), lsn, record).expect("space");
}

pub(in crate::image) fn open_bank(id: u32) -> Event {
    let geometry = Geometry { blocks_per_stripe: 2, words_per_block: 64 };
    Event::OpenBank { id, geometry, since: 3, time: 50 }
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
fn banks_are_not_prefetched_once_they_are_cleared_and_those_that_stay_are() {
    let (image, kind, memory) = made(&Bloom::capacity(1000));
    image.finish(&*kind, 1);
    let other = attached(&memory, &*kind).expect("it is there");
    let recent = |image: &Image| {
        let banks = image.recent_banks();
        (matches!(banks, Banks::Fixed(_)), banks.iter().map(|(_, bank)| bank.id()).next())
    };
    other.follow().expect("the banks");
    assert_eq!(recent(&other), (true, Some(0)));
    let cleared = image.prepare_clear(&*kind).expect("space");
    image.clear_state(9, &cleared);
    for image in [&image, &other] {
        image.follow().expect("the banks");
        assert_eq!(recent(image), (false, Some(1)));
    }
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
