//! What a snapshot contains, and when one is written.

use crate::engine::checkpoints::checkpoint::*;
use crate::locks::session_slots::Sessions;
use crate::locks::stripe_lock::{self, Owner};
use crate::media::{Access, Memory};
use crate::recovery::Listing;
use crate::snapshot::SnapshotReader;
use crate::{Bloom, Durability, Filter, Options};
use ebbtide_core::block::{OWN_WORDS, store};

fn made() -> (Filter<Bloom>, Arc<Memory>) {
    let memory = Arc::new(Memory::new());
    let options = Options::new()
        .hash_seed(7)
        .stripes(2)
        .segment_bytes(4 << 10)
        .durability(Durability::Never)
        .background(false);
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
    (filter.expect("a filter"), memory)
}

fn insert(filter: &Filter<Bloom>, keys: impl Iterator<Item = u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
}

#[test]
fn who_writes_a_snapshot_is_waited_for_as_long_as_patience_lasts() {
    let (filter, memory) = made();
    let (engine, other) = (&filter.engine(), Sessions::open(&*memory, Access::Write));
    let other = other.expect("the lock file");
    assert!(other.try_checkpoint().expect("no error"));
    let (start, patience) = (Instant::now(), Duration::from_millis(30));
    let writing = engine.checkpoints.begin_snapshot(patience).expect("no error");
    assert!(!writing.alone && start.elapsed() >= patience);
    drop(writing);
    other.end_checkpoint().expect("no error");
    let writing = engine.checkpoints.begin_snapshot(Duration::ZERO).expect("no error");
    assert!(writing.alone && !other.try_checkpoint().expect("no error"));
    drop(writing);
    assert!(other.try_checkpoint().expect("no error"), "given back");
}

#[test]
fn a_backup_that_hangs_holds_up_no_checkpoint_of_its_handle() {
    let (filter, _memory) = made();
    let hanging = filter.engine().checkpoints.begin_snapshot(Duration::ZERO).expect("no error");
    assert!(hanging.first && hanging.alone);
    insert(&filter, 0..3);
    assert!(filter.checkpoint().expect("beside the other one") > 0);
    let beside = filter.engine().checkpoints.begin_snapshot(Duration::ZERO).expect("no error");
    assert!(!beside.first && !beside.alone);
    drop(beside);
    drop(hanging);
    let next = filter.engine().checkpoints.begin_snapshot(Duration::ZERO).expect("no error");
    assert!(next.first && next.alone);
}

#[test]
fn only_a_change_makes_a_checkpoint_write_another_snapshot() {
    let (filter, _memory) = made();
    assert_eq!(filter.checkpoint().expect("no error"), 0, "`meta` says everything");
    let mut newest = 0;
    for key in 0..3 {
        insert(&filter, key..key + 1);
        let start = filter.checkpoint().expect("no error");
        assert!(start > newest);
        assert_eq!(filter.checkpoint().expect("no error"), start);
        newest = start;
    }
}

#[test]
fn snapshots_that_tell_of_log_there_is_not_take_nothing_away() {
    let (filter, memory) = made();
    for keys in [0..200, 200..400] {
        insert(&filter, keys);
        filter.checkpoint().expect("no error");
    }
    let identity = *filter.engine().header().identity();
    let foreign = [
        (1 << 20, identity.timeline),
        (1 << 21, identity.timeline),
        (1 << 22, identity.timeline + 9),
    ];
    for (start, timeline) in foreign {
        let name = FileName::Snapshot { start }.to_string();
        let uuid = identity.uuid;
        let header = SnapshotHeader { uuid, timeline, start, end: start, frames: 0, bytes: 0 };
        SnapshotWriter::create(&*memory, &name, ChecksumSeed::new(uuid, timeline, start))
            .and_then(|writer| writer.finish(header))
            .expect("space");
    }
    insert(&filter, 400..600);
    filter.checkpoint().expect("no error");
    for (start, _) in foreign {
        memory.remove(&FileName::Snapshot { start }.to_string()).expect("it is still there");
    }
    let listing = Listing::read(&*memory).expect("a directory");
    let [_, older] = listing.snapshots[..] else { panic!("{:?}", listing.snapshots) };
    let first = listing.segments.iter().map(|&(_, first)| first).min();
    assert!(first.is_some_and(|first| first <= older), "{first:?}");
}

#[test]
fn what_a_checkpoint_removes_takes_no_space_any_more() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let options = Options::new().segment_bytes(4 << 10).background(false);
    let options = options.durability(Durability::Never);
    let filter = Filter::create(place.path(), Bloom::capacity(1000), options);
    let filter = filter.expect("a filter");
    for round in 0..4 {
        insert(&filter, round * 1000..(round + 1) * 1000);
        filter.checkpoint().expect("no error");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        let directory = place.path().to_str().expect("a name of letters");
        let removed = maps.lines().filter(|line| {
            line.contains(directory) && line.contains("tmp-") && line.ends_with("(deleted)")
        });
        assert_eq!(removed.count(), 0, "{maps}");
    }
}

#[test]
fn a_change_right_where_the_newest_snapshot_starts_makes_the_next_checkpoint() {
    let (filter, _memory) = made();
    let header = filter.engine().header();
    // Without room behind the last record there is no note of its sync.
    let full = || header.tail().hint() == header.allocated().hint();
    (1..).take_while(|_| !full()).for_each(|key| insert(&filter, key..key + 1));
    let newest = filter.checkpoint().expect("no error");
    insert(&filter, 0..1);
    assert_eq!(filter.engine().shared.image.last_change(), newest);
    assert!(filter.checkpoint().expect("no error") > newest);
}

#[test]
fn a_block_that_is_being_changed_is_copied_after_that() {
    let (filter, memory) = made();
    let engine = &filter.engine();
    let bank = &engine.shared.image.listed_banks().expect("a bank")[0];
    let index = bank.blocks() - 1;
    let (header, block) = bank.block(index as usize);
    let owner = engine.stripes.acquire(2, Wait::Always).expect("a stripe");
    store(&block.cells[0], 1);
    let (start, uuid) = (engine.header().tail().read(), engine.header().identity().uuid);
    let name = FileName::Snapshot { start }.to_string();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| engine.checkpoints.copy_to(Place::New, &name, Wait::Always));
        (0..50).take_while(|_| !copying.is_finished()).for_each(|_| primitives::sleep(PAUSE));
        store(&block.cells[0], 2);
        header.set_lsn(9);
        drop(owner); // the copy should have waited for it
        copying.join().expect("no panic").expect("space");
    });
    let mut reader = SnapshotReader::open(&*memory, start, uuid).expect("it is sound");
    let mut last = None;
    let read = reader.frames(|_, frame, words| {
        last = Some((frame.index, frame.lsn, words.get(OWN_WORDS..).unwrap_or_default().to_vec()));
        Ok(())
    });
    read.expect("it is sound");
    assert_eq!(last, Some((index, 9, vec![2])), "zeros at the end are left out");
}

#[test]
fn a_copy_of_an_image_that_an_alteration_has_retired_ends_before_the_next_block() {
    let (filter, memory) = made();
    insert(&filter, 0..3);
    let engine = &filter.engine();
    // The last stripe: blocks are copied once its sums are.
    let owner = engine.stripes.acquire(2, Wait::Always).expect("a stripe");
    let (start, uuid) = (engine.header().tail().read(), engine.header().identity().uuid);
    let name = FileName::Snapshot { start }.to_string();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| engine.checkpoints.copy_to(Place::New, &name, Wait::Always));
        (0..50).take_while(|_| !copying.is_finished()).for_each(|_| primitives::sleep(PAUSE));
        engine.header().status().retire_to_alter();
        drop(owner);
        let ended = copying.join().expect("no panic");
        assert!(matches!(ended, Err(Error::Retired { .. })), "{ended:?}");
    });
    assert!(SnapshotReader::open(&*memory, start, uuid).is_err(), "the rest was not copied");
}

#[test]
fn who_removes_log_below_a_snapshot_that_nobody_announced_can_repair_what_its_writer_left() {
    let memory = Arc::new(Memory::new());
    let options = Options::new().hash_seed(7).stripes(8).segment_bytes(4096);
    let options = options.durability(Durability::Never).background(false);
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
    let filter = filter.expect("a filter");
    let (engine, header) = (&filter.engine(), filter.engine().header());
    let stripe =
        |key: &u64| engine.shared.layout().stripe_of(engine.shared.hash(&key.to_le_bytes()));
    let insert = |keys: std::ops::Range<u64>| {
        let others = keys.filter(|key| stripe(key) != 0);
        others.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    };
    insert(0..4000);
    filter.checkpoint().expect("room");
    // It was renamed but its start not stored, by a dead process that held stripe 1, to which
    // nothing was written.
    header.snapshot().begin_at(0);
    let dead = Owner { slot: 9, incarnation: 1 };
    assert!(stripe_lock::try_lock(header.stripe(1).lock_word(), dead));
    insert(4000..4200);
    let names = memory.list().expect("a directory");
    let bytes = names.iter().map(|name| {
        let file = memory.open(name, Access::Read).expect("a file");
        file.allocated_bytes().expect("a length")
    });
    memory.set_capacity(bytes.sum());
    filter.checkpoint().expect("in the place of the log");
    assert!(!header.is_poisoned());
}

#[test]
fn a_stripe_that_a_stopped_process_keeps_holds_up_no_checkpoint_of_another_filter() {
    let memories = [(); 2].map(|()| Arc::new(Memory::new()));
    let options = Options::new().hash_seed(7).stripes(2).segment_bytes(4 << 10);
    let options = options.durability(Durability::Never).checkpoint_bytes(32 << 10);
    let [kept, free] = memories.each_ref().map(|memory| {
        let spec = Bloom::capacity(1000);
        Filter::create_on(memory.clone(), spec, options.clone()).expect("a filter")
    });
    let stopped = Filter::<Bloom>::open_on(memories[0].clone(), options.background(false));
    let stopped = stopped.expect("a second handle");
    let stripe = stopped.engine().shared.layout().stripe_of(stopped.engine().shared.hash(b"key"));
    let held = stopped.engine().stripes.acquire(stripe + 1, Wait::Always).expect("a stripe");
    let checkpoint_of = |filter: &Filter<Bloom>| filter.engine().header().snapshot().hint();
    let layout = stopped.engine().shared.layout();
    let is_free =
        |key: &u64| layout.stripe_of(stopped.engine().shared.hash(&key.to_le_bytes())) != stripe;
    // Its checkpoint is due, and waits for the stripe.
    insert(&kept, (0..6000).filter(is_free));
    primitives::sleep(Duration::from_millis(1200));
    let begun = Instant::now();
    insert(&free, 0..6000);
    while checkpoint_of(&free) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(120), "it is held up");
        primitives::sleep(Duration::from_millis(10));
    }
    assert_eq!(checkpoint_of(&kept), 0);
    // As soon as the stripe is free, that checkpoint is written, too.
    drop(held);
    while checkpoint_of(&kept) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(240), "it comes no more");
        primitives::sleep(Duration::from_millis(10));
    }
}
