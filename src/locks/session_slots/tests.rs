//! The bytes of the file `lock`: each is held by one handle at a time, and seen by the others.

use super::*;
use crate::media::failing::Failing;
use crate::media::{Disk, Memory};
use std::io::ErrorKind;

#[test]
fn each_slot_has_a_byte_of_its_own_and_no_other_byte_is_a_slot() {
    assert!((0..SLOTS).all(|slot| slot_of_byte(slot_byte(slot)) == Some(slot)));
    let others = [OPENING_BYTE, CHECKPOINT_BYTE, CHECKPOINT_BYTE + 1, u64::MAX];
    assert!(others.iter().all(|&other| slot_of_byte(other).is_none()));
}

fn on_every_medium(claim: impl Fn(&dyn Media)) {
    // Miri has no locks of open file descriptions.
    if !cfg!(miri) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        claim(&Disk::new(directory.path()));
    }
    claim(&memory());
}

fn memory() -> Failing<Memory> {
    let memory = Failing::new(Memory::new());
    memory.make().expect("nothing fails yet");
    memory
}

fn open(media: &dyn Media) -> Sessions {
    Sessions::open(media, Access::Write).expect("no error")
}

fn taken(media: &dyn Media) -> Sessions {
    let slots = open(media);
    slots.take().expect("no error").expect("a free slot");
    slots
}

#[test]
fn two_handles_get_different_slots() {
    on_every_medium(|media| {
        let (a, b) = (open(media), open(media));
        assert_eq!((a.own(), a.alive().expect("no error")), (None, vec![]));
        assert_eq!(a.take().expect("no error"), Some(0));
        assert_eq!(a.take().expect("no error"), Some(0), "it keeps the one it has");
        assert_eq!(b.take().expect("no error"), Some(1));
        assert_eq!((a.own(), b.own()), (Some(0), Some(1)));
        for handle in [&a, &b, &open(media)] {
            assert_eq!(handle.alive().expect("no error"), [0, 1]);
            assert!(handle.is_alive(0) && handle.is_alive(1) && !handle.is_alive(2));
        }
        assert_eq!(media.list().expect("made"), ["lock"]);
    });
}

/// An opener that finds another image instead of the one that it took its slot for has no
/// incarnation there.
#[test]
fn a_slot_is_registered_again_when_it_is_asked_for_again() {
    on_every_medium(|media| {
        let (slots, mut registered) = (open(media), Vec::new());
        drop(taken(media));
        for _ in 0..2 {
            let own = slots.take_registered(|slot| registered.push(slot)).expect("no error");
            assert_eq!(own, Some(0));
        }
        assert_eq!(registered, [0, 0]);
    });
}

#[test]
fn all_slots_can_be_taken_and_one_more_is_refused() {
    on_every_medium(|media| {
        let handles: Vec<Sessions> = (0..SLOTS).map(|_| taken(media)).collect();
        let own: Vec<u16> = handles.iter().filter_map(Sessions::own).collect();
        assert!(own.iter().copied().eq(0..SLOTS));
        let late = open(media);
        assert_eq!(late.take().expect("no error"), None);
        assert_eq!((late.own(), late.alive().expect("no error")), (None, own));
        // The bytes beside the slots are not slots.
        assert!(late.try_opening().expect("no error"));
        assert!(late.try_checkpoint().expect("no error"));
        assert!(!late.is_alive(SLOTS) && !handles[0].is_alive(SLOTS));
        assert!(!handles[0].is_alive(u16::MAX));
    });
}

#[test]
fn a_dropped_slot_is_free_and_the_next_one_takes_it() {
    on_every_medium(|media| {
        let (a, b, c) = (taken(media), taken(media), taken(media));
        drop(a);
        assert!(!c.is_alive(0) && c.is_alive(1));
        assert_eq!(c.alive().expect("no error"), [1, 2]);
        assert_eq!(taken(media).own(), Some(0));
        drop(b);
        assert_eq!(c.alive().expect("no error"), [2]);
    });
}

#[test]
fn the_opening_byte_is_held_alone_and_seen_by_others() {
    on_every_medium(|media| {
        let (a, b) = (open(media), open(media));
        let reading = Sessions::open(media, Access::Read).expect("the file is there");
        assert!(a.try_opening().expect("no error"));
        assert!(!b.try_opening().expect("no error"));
        for other in [&b, &reading] {
            assert!(other.is_being_opened().expect("no error"));
            assert!(!other.wait_until_unopened(Duration::ZERO).expect("no error"));
        }
        a.end_opening().expect("no error");
        for other in [&b, &reading] {
            assert!(!other.is_being_opened().expect("no error"));
            assert!(other.wait_until_unopened(Duration::ZERO).expect("no error"));
        }
        // Whoever looks holds nothing.
        assert!(a.try_opening().expect("no error"));
    });
}

#[test]
fn who_only_reads_sees_life_and_takes_nothing() {
    on_every_medium(|media| {
        let missing = Sessions::open(media, Access::Read).expect_err("there is no file");
        assert!(
            matches!(&missing, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
        );
        let alive = taken(media);
        let reading = Sessions::open(media, Access::Read).expect("the file is there");
        assert!(reading.anyone_else().expect("no error") && reading.is_alive(0));
        reading.take().expect_err("opened for reading");
        reading.try_checkpoint().expect_err("opened for reading");
        reading.try_opening().expect_err("opened for reading");
        assert_eq!(alive.alive().expect("no error"), [0]);
    });
}

#[test]
fn the_own_slot_is_not_anyone_else() {
    on_every_medium(|media| {
        let handles: Vec<Sessions> = (0..3).map(|_| taken(media)).collect();
        let [first, middle, last] = <[Sessions; 3]>::try_from(handles).expect("three");
        for handle in [&first, &middle, &last] {
            assert!(handle.anyone_else().expect("no error"));
        }
        drop(first);
        assert!(middle.anyone_else().expect("no error"));
        assert!(last.anyone_else().expect("no error"));
        drop(last);
        assert!(!middle.anyone_else().expect("no error"));
        assert!(open(media).anyone_else().expect("no error"));
        // Handles that open or write a snapshot hold no slot.
        let other = open(media);
        assert!(other.try_opening().expect("no error"));
        assert!(other.try_checkpoint().expect("no error"));
        assert!(!middle.anyone_else().expect("no error"));
    });
}

#[test]
fn one_handle_at_a_time_writes_a_snapshot_or_alters_the_filter() {
    on_every_medium(|media| {
        let (a, b) = (taken(media), taken(media));
        assert!(a.try_checkpoint().expect("no error"));
        assert!(!b.try_checkpoint().expect("no error"));
        a.end_checkpoint().expect("no error");
        assert!(b.try_checkpoint().expect("no error"));
        assert_eq!((a.own(), b.own()), (Some(0), Some(1)), "the slots are still held");
        assert!(a.try_alteration().expect("no error") && !b.try_alteration().expect("no error"));
        // Slots count as used as they are asked for.
        assert!(a.anyone_of(|slot| slot == 1).expect("no error"));
        assert!(!a.anyone_of(|slot| slot == 0).expect("no error"), "its own");
        assert!(!a.anyone_of(|_| false).expect("no error"));
    });
}

#[test]
fn patience_ends_and_is_rewarded() {
    on_every_medium(|media| {
        let (a, b) = (open(media), open(media));
        assert!(a.wait_opening(Duration::ZERO).expect("no error"));
        assert!(!b.wait_opening(Duration::ZERO).expect("no error"));
        assert!(!b.wait_opening(Duration::from_millis(25)).expect("no error"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                a.end_opening().expect("no error");
            });
            let limit = Duration::from_secs(60);
            let entered = b.wait_opening(limit).expect("no error");
            assert!(entered, "the byte was given back, and not seen free for {limit:?}");
        });
    });
}

#[test]
fn the_opening_byte_is_waited_for_as_long_as_its_holder_shows_progress() {
    on_every_medium(|media| {
        let (opener, waiting) = (open(media), open(media));
        let patience = 2 * PROGRESS_BEAT;
        assert!(opener.try_opening().expect("no error"));
        // Between any two attempts the holder shows progress, however busy the machine is.
        let start = Instant::now();
        let shown = || {
            opener.note_progress();
            Ok(start.elapsed() > 3 * patience)
        };
        assert!(waiting.wait_for_opener(patience, shown).expect("no error"));
        // It shows none any more.
        let start = Instant::now();
        assert!(!waiting.wait_opening(patience).expect("no error"));
        assert!(start.elapsed() >= patience);
        opener.end_opening().expect("no error");
        assert_eq!(waiting.progress().expect("no error"), [false; 2]);
        // Only the holder of the byte shows progress.
        opener.note_progress();
        assert_eq!(waiting.progress().expect("no error"), [false; 2]);
    });
}

#[test]
fn a_busy_opening_byte_is_tried_again() {
    let memory = memory();
    let (busy, waiting) = (open(&memory), open(&memory));
    assert!(busy.try_opening().expect("no error"));
    // Only the fourth attempt meets the fault.
    memory.fail_after(4, ErrorKind::Other);
    waiting.wait_opening(Duration::from_secs(60)).expect_err("the fault on demand");
    assert!(!memory.clear_faults());
}

#[test]
fn a_refusal_of_the_system_is_passed_on_and_counts_as_life() {
    let memory = memory();
    let slots = open(&memory);
    let fails = |action: &str, call: &dyn Fn() -> Result<()>| {
        memory.fail_after(1, ErrorKind::PermissionDenied);
        let error = call().expect_err("the fault on demand");
        let Error::Io { action: found, path, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*found, path), (action, &memory.path().join("lock")));
    };
    fails("lock", &|| Sessions::open(&memory, Access::Write).map(|_| ()));
    fails("lock", &|| slots.try_opening().map(|_| ()));
    fails("lock", &|| slots.wait_opening(Duration::MAX).map(|_| ()));
    fails("unlock", &|| slots.end_opening());
    fails("probe", &|| slots.anyone_else().map(|_| ()));
    fails("probe", &|| slots.alive().map(|_| ()));
    fails("probe", &|| slots.take().map(|_| ()));
    memory.fail_after(2, ErrorKind::PermissionDenied);
    assert!(matches!(slots.take(), Err(Error::Io { action: "lock", .. })));
    fails("lock", &|| slots.try_checkpoint().map(|_| ()));
    fails("unlock", &|| slots.end_checkpoint());
    assert_eq!(slots.take().expect("no error"), Some(0), "nothing was left behind");
    assert_eq!(slots.own(), Some(0));

    memory.fail_after(1, ErrorKind::Other);
    assert!(slots.is_alive(5), "who knows");
    assert!(!slots.is_alive(5));
    memory.fail_after(1, ErrorKind::Other);
    assert!(slots.is_alive(0), "not even asked");
    assert!(memory.clear_faults());
}
