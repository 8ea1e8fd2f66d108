//! The layout of the file `live`, and the validity of an image.

use crate::format::names::TIMELINE_MAX;
use crate::image::clock_offset;
use crate::image::identity::none_if_unfit;
use crate::image::live_file::*;
use crate::image::previous_image;
use crate::image::stripe_table::StripeSums;
use crate::media::failing::Failing;
use crate::media::{Disk, Memory};
use ebbtide_core::claims::HeldClaim;
use ebbtide_core::kind::Totals;
use ebbtide_core::state::STATE_OWN_WORDS;
use std::io::ErrorKind;

const UUID: u128 = 5 << 64 | 7;
/// The boot id of [`Memory`].
const BOOT: u128 = 1;

fn memory() -> Failing<Memory> {
    let memory = Failing::new(Memory::new());
    memory.make().expect("nothing fails yet");
    memory
}

fn identity(stripes: u32) -> Identity {
    Identity { uuid: UUID, timeline: 3, boot: BOOT, inode: 0, device: 0, stripes, state_words: 512 }
}

fn made(stripes: u32) -> Control {
    Control::create(&memory(), "image", identity(stripes)).expect("space")
}

/// Creates an image under its final name.
fn named(identity: Identity) -> (Failing<Memory>, Control) {
    let memory = memory();
    let header = Control::create(&memory, "image", identity).expect("space");
    memory.rename("image", "live").expect("it is there");
    (memory, header)
}

fn is_damage<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Damaged { .. }))
}

#[test]
fn an_image_that_could_not_be_looked_at_is_not_taken_for_none() {
    let told = |kind: ErrorKind| none_if_unfit::<u64>(Error::io("open", "live")(kind.into()));
    for kind in [ErrorKind::NotFound, ErrorKind::InvalidInput, ErrorKind::UnexpectedEof] {
        assert!(matches!(told(kind), Ok(None)), "{kind}");
    }
    for kind in [ErrorKind::PermissionDenied, ErrorKind::Interrupted, ErrorKind::Other] {
        assert!(told(kind).is_err(), "{kind}");
    }
    let (memory, _header) = named(identity(2));
    for call in 1.. {
        memory.fail_after(call, ErrorKind::Other);
        let told = previous_image::open(&memory, UUID, Access::Read);
        if memory.clear_faults() {
            assert!(told.expect("nothing failed").is_some());
            break;
        }
        assert!(matches!(told, Err(Error::Io { .. })), "{call}: {told:?}");
    }
    memory.fail_after(1, ErrorKind::PermissionDenied);
    assert!(matches!(previous_image::timeline(&memory, UUID), Err(Error::Io { .. })));
}

#[test]
fn each_thing_has_a_place_of_its_own_and_the_file_is_no_larger_than_they_are() {
    // With 92 the last page is full. One is enough under Miri, which is slow.
    let stripes: &[u32] = if cfg!(miri) { &[2] } else { &[1, 2, 31, 64, 91, 92, 93] };
    for &stripes in stripes {
        let header = made(stripes);
        let words = header.mapping.words();
        let (shards, behind) = header.shards;
        let (positions, behind_positions) = header.identity.positions();
        let (holders, behind_holders) = header.identity.holders();
        let (claims, end) = header.identity.claims();
        assert_eq!(behind, positions, "{stripes}");
        assert!((behind_positions..behind_positions + 512).contains(&holders), "{stripes}");
        assert!(header.state_block.1 <= shards && shards.is_multiple_of(16), "{stripes}: {shards}");
        assert!((behind_holders..behind_holders + 512).contains(&claims), "{stripes}");
        assert!((end..end + 512).contains(&words.len()), "{stripes}: {}", words.len());
        assert_eq!(header.bytes(), claims as u64 * 8, "without claims");
        let stripe = |at| header.stripe(at);
        let marked = || {
            let some = [TAIL, DURABLE, REFUSED, ALLOCATED].map(|at| header.word(at));
            let more = [TIMELINE_START, NOTED, NOTING, EVENTS_FROM].map(|at| header.word(at));
            let others =
                [header.word(SNAPSHOT), header.syncing(), header.growing(), header.time().0];
            let (time, leases) = (header.time_base(), header.lease_base());
            let lists = header.unsound().0.iter().chain(time.words).chain([time.clock]);
            let lists = lists.chain(leases.words).chain([leases.clock]);
            let slots = (0..SLOTS_WORDS).map(|slot| header.incarnation(slot).0);
            let locks = (0..=stripes as usize).map(|at| stripe(at).lock_word());
            let one_by_one = [some, more, others].into_iter().flatten();
            one_by_one.chain(lists).chain(slots).chain(locks).enumerate()
        };
        assert_eq!(header.unsound().0.len(), UNSOUND_MAX);
        let sums = |at: usize| {
            let [lsn, inserts, time, new_bits] = [1, 2, 3, 4].map(|word| 9000 + at as u64 * word);
            StripeSums { lsn, inserts, time, new_bits }
        };
        // All are marked before the first is read.
        marked().for_each(|(mark, word)| store(word, 1000 + mark as u64));
        (0..header.stripe_count()).for_each(|at| stripe(at).set_sums(&sums(at)));
        for lsn in [71, 72] {
            header.state_block().change(lsn, |state| {
                [0, STATE_OWN_WORDS - 1].into_iter().for_each(|at| state.set_own(at, lsn));
            });
        }
        let claim = HeldClaim { hash: 81, token: 82, since: 83, deadline: 84 };
        header.claims().note_space();
        header.claims().set(85, claim);
        assert_eq!(header.bytes(), words.len() as u64 * 8, "with claims");
        header.counters().begin(Totals { inserts: 5, new_bits: 6 });
        (0..32).for_each(|shard| header.counters().count(shard, 1, 1));
        assert_eq!((header.claims().get(81), header.claims().lsn()), (Some(claim), 85));
        header.retire();
        assert!(marked().all(|(mark, word)| load(word) == 1000 + mark as u64), "{stripes}");
        assert_eq!(header.stripe_count(), stripes as usize + 1);
        assert!((0..=stripes as usize).all(|at| stripe(at).sums() == sums(at)), "{stripes}");
        assert_eq!(header.counters().sum(), Totals { inserts: 37, new_bits: 38 });
        assert!(header.is_retired() && !header.is_poisoned());
        let (state, state_block) = (header.state(), header.state_block());
        assert_eq!(
            [state.own(0), state.own(STATE_OWN_WORDS - 1), state_block.version()],
            [72, 72, 2]
        );
        assert_eq!([1, 2].map(|version| state_block.copy(version).lsn()), [71, 72]);
        let encoded = header.identity().encode().collect::<Vec<_>>();
        assert_eq!(words[..HEADER_WORDS].iter().map(load).collect::<Vec<_>>(), encoded);
    }
}

#[test]
fn an_image_is_that_of_its_filter_in_its_run_of_the_machine_and_in_its_own_file() {
    let (memory, header) = named(identity(2));
    let left = |boot, uuid| {
        let left = previous_image::open_in(boot, &memory, uuid, Access::Read);
        left.expect("no error").is_some()
    };
    let attached = Control::attach(&memory, UUID, Access::Write).expect("it is there");
    assert_eq!(attached.identity(), header.identity());
    let expected = Identity { inode: header.identity().inode, ..identity(2) };
    assert_eq!(*header.identity(), expected);
    assert_ne!(expected.inode, 0);
    header.tail().begin_at(9);
    assert_eq!(attached.tail().read(), 9, "the same words");
    assert!(left(BOOT, UUID));
    for (boot, uuid) in [(2, UUID), (BOOT | 1 << 64, UUID), (0, UUID), (BOOT, 7)] {
        assert!(!left(boot, uuid), "{boot} {uuid:x}");
    }
    for uuid in [7, UUID ^ 1] {
        assert!(is_damage(&Control::attach(&memory, uuid, Access::Read)), "{uuid:x}");
    }
    // All bits of a boot id are compared.
    let boot = 9 << 64 | BOOT;
    let (other, _header) = named(Identity { boot, ..identity(2) });
    let told = |boot| previous_image::open_in(boot, &other, UUID, Access::Read).expect("no error");
    assert_eq!(told(boot).expect("it is there").identity().boot, boot);
    assert!(told(BOOT).is_none());
    // Handles that share it now do so whatever boot id each of them reads.
    Control::attach(&other, UUID, Access::Read).expect("it is there");
    // Without a readable boot id the image is not used, then or now.
    let (other, _header) = named(Identity { boot: 0, ..identity(2) });
    let told = previous_image::open_in(0, &other, UUID, Access::Read);
    assert!(told.expect("no error").is_none());
    let previous = |uuid| {
        let opened = previous_image::open(&memory, uuid, Access::Read).expect("no error");
        (opened.is_some(), previous_image::timeline(&memory, uuid).expect("no error"))
    };
    assert_eq!(previous(UUID), (true, Some(3)));
    assert_eq!(previous(7), (false, None), "another filter's");
    // A copy is not the image, but contains its timeline.
    let file = memory.open("live", Access::Read).expect("it is there");
    let mut bytes = vec![0; file.bytes().expect("no error") as usize];
    file.read_at(&mut bytes, 0).expect("no error");
    let copy = memory.create("copy", bytes.len() as u64).expect("space");
    copy.write_at(&bytes, 0).expect("space");
    memory.rename("copy", "live").expect("it is there");
    assert!(is_damage(&Control::attach(&memory, UUID, Access::Read)));
    assert_eq!(previous(UUID), (false, Some(3)));
    memory.remove("live").expect("it is there");
    let gone = Control::attach(&memory, UUID, Access::Read);
    assert!(matches!(gone, Err(Error::Io { .. })));
    assert_eq!(previous(UUID), (false, None));
}

#[test]
fn an_image_that_was_made_longer_is_none_and_a_timeline_beyond_all_is_none() {
    let (memory, header) = named(identity(2));
    drop(header);
    let file = memory.open("live", Access::Write).expect("it is there");
    file.write_at(&[0; 8], file.bytes().expect("no error")).expect("space");
    assert!(is_damage(&Control::attach(&memory, UUID, Access::Write)));
    for (timeline, told) in [(TIMELINE_MAX, Some(TIMELINE_MAX)), (TIMELINE_MAX + 1, None)] {
        let (memory, _header) = named(Identity { timeline, ..identity(2) });
        assert_eq!(previous_image::timeline(&memory, UUID).expect("no error"), told);
    }
}

#[test]
fn the_run_of_the_machine_is_what_the_medium_says() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let disk = Disk::new(place.path());
    assert_eq!(boot_id(&disk).expect("Linux"), disk.boot_id().expect("Linux"));
    let memory = memory();
    memory.fail_after(1, ErrorKind::Other);
    assert!(matches!(boot_id(&memory), Err(Error::Io { .. })));
    // If there is none, the boot is unknown, and nothing fails.
    for kind in [ErrorKind::NotFound, ErrorKind::PermissionDenied] {
        memory.fail_after(1, kind);
        assert_eq!(boot_id(&memory).expect("no boot id"), 0, "{kind}");
    }
}

/// Segments of 8 records, and consistent ends of the log: start, durable, tail, allocated, counted,
/// newest snapshot.
const CAPACITY: u64 = 8;
const SOUND: [u64; 6] = [9, 12, 20, 25, 19, 20];

#[test]
fn ends_of_the_log_that_do_not_fit_together_are_damage() {
    let header = made(2);
    store(header.word(SEGMENT_RECORDS), CAPACITY);
    let check = |ends: [u64; 6], stripe| {
        let [start, durable, tail, allocated, counted, snapshot] = ends;
        store(header.word(TIMELINE_START), start);
        header.durable().begin_at(durable);
        header.tail().begin_at(tail);
        header.allocated().begin_at(allocated);
        header.snapshot().begin_at(snapshot);
        for at in 0..3 {
            let lsn = if at == stripe { counted } else { 0 };
            header.stripe(at).set_sums(&StripeSums { lsn, ..StripeSums::default() });
        }
        header.check(Path::new("place"))
    };
    let with = |end: usize, value| {
        let mut ends = SOUND;
        ends[end] = value;
        ends
    };
    let last = LSN_MAX - CAPACITY;
    let sound = [
        SOUND,
        with(0, 1),
        with(1, 9),
        with(1, 20),
        with(2, 25),
        with(3, 33),
        with(5, 0),
        [9, 9, 9, 17, 0, 0],
        // No record, and no segment yet.
        [9, 9, 9, 9, 0, 0],
        [last, last, last, LSN_MAX, 0, 0],
    ];
    for ends in sound {
        (0..3).for_each(|stripe| check(ends, stripe).expect("they fit"));
    }
    let unsound = [
        with(0, 17),
        with(1, 8),
        with(1, 21),
        with(2, 26),
        with(3, 26),
        with(3, 17),
        with(4, 20),
        with(4, 21),
        with(5, 21),
        [9, 9, 9, 8, 0, 0],
        [LSN_MAX, LSN_MAX, LSN_MAX, LSN_MAX + CAPACITY, 0, 0],
    ];
    for ends in unsound {
        for stripe in 0..3 {
            let Err(Error::Damaged { path, offset, found, .. }) = check(ends, stripe) else {
                panic!("{ends:?}");
            };
            assert_eq!((path, offset), (Path::new("place").join("live"), HEADER_BYTES as u64));
            assert!(found.contains(&format!("tail {}", ends[2])), "{found}");
        }
    }
    for capacity in [0, CAPACITY_MAX + 1] {
        store(header.word(SEGMENT_RECORDS), capacity);
        check(SOUND, 0).expect_err("no segment is of that size");
    }
}

#[test]
fn writes_are_refused_once_an_image_is_poisoned_or_retired_and_each_is_reported() {
    let header = made(2);
    let told = || [header.is_poisoned(), header.is_retired(), header.refuses()];
    assert_eq!(told(), [false, false, false]);
    (0..2).for_each(|_| header.status().poison());
    assert_eq!(told(), [true, false, true]);
    (0..2).for_each(|_| header.retire());
    assert_eq!(told(), [true, true, true]);
    let header = made(2);
    header.retire();
    assert_eq!([header.is_poisoned(), header.is_retired(), header.refuses()], [false, true, true]);
}

#[test]
fn every_held_stripe_and_every_note_may_have_left_a_place_empty() {
    let header = made(3);
    assert_eq!(header.unfinished(), 0);
    [0, 3].into_iter().for_each(|at| store(header.stripe(at).lock_word(), 1 << 40));
    assert_eq!(header.unfinished(), 2);
    store(header.unheld_slots().0, 5);
    assert_eq!(header.unfinished(), 7);
    store(header.unheld_slots().0, u64::MAX);
    assert_eq!(header.unfinished(), u64::MAX);
}

#[test]
fn the_clock_offset_is_read_back_in_any_run_of_the_machine_or_not_at_all() {
    let (memory, header) = named(identity(2));
    let previous = |uuid| clock_offset::previous(&memory, uuid).expect("no error");
    assert_eq!((clock_offset::noted(&header), previous(UUID)), (None, None), "it was never noted");
    let most = (1 << 47) - 1;
    for offset in [0, 1, -1, 18_000_000, -600_000, most, -most - 1] {
        clock_offset::note(&header, offset);
        assert_eq!((clock_offset::noted(&header), previous(UUID)), (Some(offset), Some(offset)));
        assert_eq!(previous(7), None, "another filter's");
    }
    for (offset, noted) in [(i64::MAX, most), (i64::MIN, -most - 1)] {
        clock_offset::note(&header, offset);
        assert_eq!(clock_offset::noted(&header), Some(noted));
    }
    clock_offset::note(&header, 12_345);
    let word = load(header.word(CLOCK_OFFSET));
    for bit in 0..64 {
        store(header.word(CLOCK_OFFSET), word ^ 1 << bit);
        assert_eq!((clock_offset::noted(&header), previous(UUID)), (None, None), "bit {bit}");
    }
    let (other, header) = named(Identity { boot: 9, ..identity(2) });
    clock_offset::note(&header, -77);
    assert_eq!(clock_offset::previous(&other, UUID).expect("no error"), Some(-77));
    other.fail_after(1, ErrorKind::PermissionDenied);
    assert!(matches!(clock_offset::previous(&other, UUID), Err(Error::Io { .. })));
}

#[test]
#[cfg_attr(miri, ignore = "files of the system")]
fn a_file_that_lengthens_for_the_first_claim_is_attached_at_any_length_between() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let disk = Disk::new(directory.path());
    let mut identity = identity(2);
    let created = Control::create(&disk, "live", identity).expect("space");
    identity = created.identity;
    let (short, long) = (identity.room_for_claims().start, identity.bytes());
    let path = directory.path().join("live");
    let file = std::fs::File::options().write(true).open(path).expect("it is there");
    assert_eq!(file.metadata().expect("it is open").len(), short, "before the first claim");
    let attach = || Control::attach(&disk, UUID, Access::Write);
    for bytes in [short, short + 1, long - 1, long, short] {
        file.set_len(bytes).expect("space");
        attach().unwrap_or_else(|error| panic!("{bytes}: {error}"));
    }
    for bytes in [short - 1, long + 1] {
        file.set_len(bytes).expect("space");
        assert!(is_damage(&attach()), "{bytes}");
    }
    // A claim needs all of the table: words beyond the end would be a signal.
    file.set_len(long).expect("space");
    created.claims().note_space();
    attach().expect("it is whole");
    for bytes in [short, long - 1] {
        file.set_len(bytes).expect("space");
        assert!(is_damage(&attach()), "{bytes}");
    }
}
