//! Repair of what dead owners left, and who may acquire a stripe when.

use super::*;
use crate::image::apply_record;
use crate::locks::session_slots::Sessions;
use crate::media::failing::Failing;
use crate::media::{Access, Media, Memory};
use crate::wal::{Op, Record};
use crate::{AgePartitioned, Batch, Bloom, Claim, Durability, Filter, Options};
use ebbtide_core::block::{load, store};
use std::io::ErrorKind;

fn made() -> (Filter<Bloom>, Arc<Memory>) {
    let memory = Arc::new(Memory::new());
    let options =
        Options::new().hash_seed(7).stripes(2).durability(Durability::Never).background(false);
    let options = options.checkpoint_bytes(64 << 10);
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
    (filter.expect("a filter"), memory)
}

/// Another handle in session slot 1, in its fifth incarnation.
fn neighbour(engine: &crate::engine::Engine, media: &dyn Media) -> Sessions {
    let slots = Sessions::open(media, Access::Write).expect("the lock file");
    assert_eq!(slots.take().expect("no error"), Some(1));
    assert_eq!((0..5).map(|_| engine.header().incarnation(1).raise()).max(), Some(5));
    slots
}

const DEAD: Owner = Owner { slot: 9, incarnation: 1 };
const LIVING: Owner = Owner { slot: 1, incarnation: 5 };

#[test]
fn a_held_stripe_that_the_image_shows_as_free_is_given_to_no_other_thread_of_the_handle() {
    let (filter, _memory) = made();
    let engine = filter.engine();
    let released = Hint::default();
    let held = engine.stripes.acquire(1, Wait::Always).expect("a stripe");
    // As on a lost page of the image.
    store(held.entry().lock_word(), 0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let held = engine.stripes.acquire(1, Wait::Always).expect("a stripe");
            (released.get(), held.index())
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        released.set(1);
        drop(held);
        assert_eq!(other.join().expect("no panic"), (1, 1));
    });
}

#[test]
fn repair_applies_and_counts_what_the_dead_left_of_this_stripe_and_of_no_other() {
    let (filter, _memory) = made();
    let engine = filter.engine();
    let header = engine.header();
    (0..20_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    let unapplied = |stripe| {
        let mut hashes = (100_u64..).map(|key| engine.shared.hash(&key.to_le_bytes()));
        let hash = hashes.find(|&hash| engine.shared.layout().stripe_of(hash) == stripe);
        let record = Record {
            payload: hash.expect("a key of the stripe"),
            argument: 3,
            ..Record::new(Op::Insert)
        };
        engine.writer.log_writer.append(&mut None, &record).expect("room")
    };
    let (_others, lsn) = (unapplied(1), unapplied(0));
    let hole = header.tail().reserve(1, engine.shared.log.mapped_end()).expect("room");
    assert!(stripe_lock::try_lock(header.stripe(1).lock_word(), DEAD));
    let sums = || [1, 2].map(|stripe| header.stripe(stripe).sums());
    let (before, total) = (sums(), header.counters().sum());
    engine.stripes.repair_all().expect("descriptors");
    assert_eq!(load(header.stripe(1).lock_word()), 0);
    let after = sums();
    let counted = |at: usize| {
        (after[at].inserts - before[at].inserts, after[at].new_bits - before[at].new_bits)
    };
    assert_eq!((after[0].lsn, counted(0)), (lsn, (1, 3)));
    assert_eq!((after[1].lsn, counted(1)), (before[1].lsn, (0, 0)), "that of a living writer");
    let sum = header.counters().sum();
    assert_eq!((sum.inserts - total.inserts, sum.new_bits - total.new_bits), (1, 3));
    assert!(engine.shared.log.segment(hole).is_some_and(|segment| segment.is_complete(hole)));
}

#[test]
fn a_process_without_descriptors_leaves_a_dead_owners_stripe_to_be_repaired_by_others() {
    let memory = Arc::new(Failing::new(Memory::new()));
    let options = Options::new().hash_seed(7).stripes(2).segment_bytes(4096);
    let options = options.durability(Durability::Never).background(false);
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
    let filter = filter.expect("a filter");
    let engine = filter.engine();
    let layout = engine.shared.layout();
    let of_stripe = |index: usize, count: usize| {
        let keys = (0_u64..).map(|key| key.to_le_bytes());
        let keys = keys.filter(|key| layout.stripe_of(engine.shared.hash(key)) + 1 == index);
        keys.take(count).for_each(|key| assert!(filter.insert(key).is_ok()));
    };
    // Repair of stripe 2 needs log that this process has unmapped.
    of_stripe(2, 1);
    of_stripe(1, 500);
    filter.sync().expect("no error");
    let word = engine.header().stripe(2).lock_word();
    let mut refusals = 0;
    for call in 1.. {
        engine.log_space.unmap_durable();
        assert!(stripe_lock::try_lock(word, DEAD));
        memory.fail_after(call, ErrorKind::Other);
        match engine.stripes.acquire(2, Wait::Operation(Waits::Always)).map(drop) {
            Ok(()) if memory.clear_faults() => break,
            // Whether the owner is alive was asked again.
            Ok(()) => continue,
            refused => assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}"),
        }
        refusals += 1;
        assert_eq!(stripe_lock::holder_now(word), Some(DEAD), "{call}");
        assert!(!engine.header().is_poisoned(), "{call}");
        drop(engine.stripes.acquire(2, Wait::Always).expect("it can be repaired now"));
        assert_eq!(stripe_lock::holder_now(word), None, "{call}");
    }
    assert!(refusals > 0);
    of_stripe(2, 100);
}

#[test]
fn a_dead_owners_stripe_of_a_filter_that_was_replaced_is_no_cause_to_poison_it() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let options = Options::new().hash_seed(7).stripes(2).segment_bytes(4096);
    let options = options.durability(Durability::Never).background(false);
    let filter = Filter::create(place.path(), Bloom::capacity(1000), options.clone());
    let filter = filter.expect("a filter");
    let engine = filter.engine();
    let layout = engine.shared.layout();
    let keys = |index: usize, count: usize| {
        let keys = (0_u64..).map(|key| key.to_le_bytes());
        let of_stripe = |key: &[u8; 8]| layout.stripe_of(engine.shared.hash(key)) + 1 == index;
        keys.filter(of_stripe).take(count).collect::<Vec<_>>()
    };
    // Repair of stripe 2 needs log that this process has unmapped.
    for key in keys(2, 1).into_iter().chain(keys(1, 500)) {
        assert!(filter.insert(key).is_ok());
    }
    filter.sync().expect("no error");
    engine.log_space.unmap_durable();
    assert!(stripe_lock::try_lock(engine.header().stripe(2).lock_word(), DEAD));
    std::fs::remove_dir_all(place.path()).expect("it is there");
    let other = Filter::create(place.path(), Bloom::capacity(1000), options);
    let key = keys(2, 2)[1];
    for _ in 0..2 {
        let refused = filter.insert(key);
        assert!(matches!(refused, Err(Error::Retired { .. })), "{refused:?}");
    }
    assert!(!engine.header().is_poisoned());
    assert!(other.expect("a filter").insert(key).is_ok(), "the one that is there now");
}

#[test]
fn a_handle_of_a_former_image_is_no_writer_of_this_one() {
    let (filter, memory) = made();
    let engine = filter.engine();
    assert!(stripe_lock::try_lock(engine.header().stripe(1).lock_word(), DEAD));
    // It holds a slot in which this image has had no handle.
    let former = Sessions::open(&*memory, Access::Write).expect("the lock file");
    assert_eq!(former.take().expect("no error"), Some(1));
    assert!(!engine.header().has_had_handle(1) && engine.shared.slots.anyone_else().is_ok());
    let ended = engine.stripes.wait_for_writers(1, &mut 0);
    assert!(ended.is_err(), "nobody is left who would repair it");
}

/// The steps of a clear after its record, in the order of `clear.rs`.
const CLEARING: usize = 5;

/// Returns a filter whose clear was interrupted after this many steps.
fn half_cleared(steps: usize) -> Filter<Bloom> {
    let (filter, _) = made();
    let engine = filter.engine();
    (0..20_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    let header = engine.header();
    (0..3).for_each(|at| assert!(stripe_lock::try_lock(header.stripe(at).lock_word(), DEAD)));
    header.events_from().announce(header.tail().hint());
    let lsn = engine.writer.log_writer.append(&mut None, &Record::new(Op::Clear)).expect("room");
    let image = &engine.shared.image;
    let state = || image.clear_state(lsn, &image.prepare_clear(engine.shared.kind()).unwrap());
    let stripe = |index| apply_record::clear_stripe(image, index, lsn, 0);
    let done: [&dyn Fn(); CLEARING] =
        [&state, &|| header.counters().clear(), &|| stripe(0), &|| stripe(1), &|| stripe(2)];
    done.iter().take(steps).for_each(|step| step());
    filter
}

#[test]
fn whoever_comes_first_after_an_interrupted_clear_counts_nothing_of_before_it() {
    for (steps, first) in (0..=CLEARING).flat_map(|steps| (0..3).map(move |at| (steps, at))) {
        let filter = half_cleared(steps);
        let engine = filter.engine();
        let sum = || engine.header().counters().sum().inserts;
        drop(engine.stripes.acquire(first, Wait::Always).expect("a stripe"));
        assert_eq!(sum(), 0, "{steps} steps, then stripe {first}");
        // Some of them in stripes that need no repair any more.
        for (done, key) in (1..=9_u64).zip(100_u64..) {
            assert!(filter.insert(key.to_le_bytes()).expect("room"), "{steps} {first}");
            drop(engine.stripes.acquire(done as usize % 3, Wait::Always).expect("a stripe"));
            assert_eq!(sum(), done, "{steps} steps, then stripe {first}");
        }
        assert_eq!(engine.shared.image.sum_stripes().0.inserts, 9, "{steps} {first}");
        assert!(!filter.contains(3_u64.to_le_bytes()).expect("an answer"), "{steps} {first}");
    }
}

#[test]
fn nobody_waits_on_an_abandoned_image_for_a_slot_of_its_successor() {
    let (filter, memory) = made();
    let engine = filter.engine();
    let _alive = neighbour(engine, &*memory);
    assert!(stripe_lock::try_lock(engine.header().stripe(1).lock_word(), LIVING));
    let mut idle = 0;
    assert!(engine.stripes.wait_for_writers(1, &mut idle).is_ok(), "its writer may proceed");
    engine.header().retire();
    let told = engine.stripes.wait_for_writers(1, &mut idle);
    assert!(matches!(told, Err(Error::Retired { .. })), "{told:?}");
}

#[test]
fn without_waiting_a_key_whose_stripe_is_held_is_refused_at_once_and_changes_nothing() {
    let (filter, memory) = made();
    let engine = filter.engine();
    let _alive = neighbour(engine, &*memory);
    let header = engine.header();
    let of_stripe = |stripe| {
        let mut keys = (0_u64..).map(u64::to_le_bytes);
        let stripe_of = |key: &[u8; 8]| engine.shared.layout().stripe_of(engine.shared.hash(key));
        keys.find(|key| stripe_of(key) == stripe).expect("a key of the stripe")
    };
    let before = filter.digest().expect("a digest");
    // As a process does that was stopped in the middle of an insert.
    assert!(stripe_lock::try_lock(header.stripe(1).lock_word(), LIVING));
    let quick = filter.call().without_waiting();
    let refused = quick.check_and_insert(of_stripe(0));
    assert!(matches!(refused, Err(Error::WouldWait { .. })), "{refused:?}");
    assert!(!quick.contains(of_stripe(0)).expect("questions need no stripe"));
    // Long enough for others to see that the owner is alive.
    let (start, limit) = (Instant::now(), Duration::from_millis(30));
    let refused = filter.call().waiting_at_most(limit).insert(of_stripe(0));
    assert!(matches!(refused, Err(Error::WouldWait { .. })), "{refused:?}");
    assert!(start.elapsed() >= limit);
    assert!(stripe_lock::unlock(header.stripe(1).lock_word(), LIVING).is_ok());
    assert_eq!(filter.digest().expect("a digest"), before);
    // A checkpoint that writers must wait for.
    header.checkpoint_request().open(false);
    // Those that a handle may write before it waits.
    (0..64).for_each(|_| assert!(filter.insert(of_stripe(1)).expect("an insert")));
    let refused = quick.insert(of_stripe(1));
    assert!(matches!(refused, Err(Error::WouldWait { .. })), "{refused:?}");
    header.checkpoint_request().close();
    assert!(quick.insert(of_stripe(1)).expect("nothing to wait for"));
}

#[test]
fn the_living_keep_their_stripes_and_lose_them_when_they_die() {
    let (filter, memory) = made();
    let engine = filter.engine();
    let alive = neighbour(engine, &*memory);
    let word = engine.header().stripe(1).lock_word();
    assert_eq!(dead_owners::judge(&engine.shared, LIVING), Verdict::Wait);
    assert_eq!(
        dead_owners::judge(&engine.shared, Owner { incarnation: 4, ..LIVING }),
        Verdict::Dead,
        "taken again since"
    );
    assert_eq!(dead_owners::judge(&engine.shared, DEAD), Verdict::Dead);
    assert!(stripe_lock::try_lock(word, LIVING));
    let ours = engine.stripes.acquire(2, Wait::Always).expect("a stripe");
    engine.stripes.repair_all().expect("descriptors");
    let holder = || stripe_lock::holder_now(word);
    assert_eq!(holder(), Some(LIVING));
    drop(alive);
    engine.stripes.repair_all().expect("descriptors");
    assert_eq!(holder(), None);
    assert_eq!(ours.index(), 2);
}

#[test]
fn a_holder_of_stripe_0_is_abandoned_once_and_not_waited_for_again() {
    let (filter, memory) = made();
    let engine = filter.engine();
    let _alive = neighbour(engine, &*memory);
    let word = engine.header().stripe(0).lock_word();
    let abandoned = || engine.stripes.abandoned.get();
    assert!(engine.stripes.lock_stripe_0().is_some() && abandoned() == 0);
    assert!(stripe_lock::try_lock(word, LIVING));
    for _ in 0..2 {
        assert!(engine.stripes.lock_stripe_0().is_none());
        assert_eq!(stripe_lock::holder(abandoned()), Some(LIVING));
    }
    assert!(stripe_lock::unlock(word, LIVING).is_ok());
    assert!(engine.stripes.lock_stripe_0().is_some() && abandoned() == 0);
}

#[test]
fn while_stripe_0_is_held_inserts_and_batches_that_can_do_without_its_events_continue() {
    let memory = Arc::new(Memory::new());
    let options = || {
        let options = Options::new().hash_seed(7).stripes(2).background(false);
        options.durability(Durability::Never)
    };
    let filter = Filter::create_on(memory.clone(), AgePartitioned::last(4000), options());
    let filter = filter.expect("a filter");
    let header = || filter.engine().header();
    let mut keys = (0_u64..).map(u64::to_le_bytes);
    let mut next = || keys.next().expect("a key");
    // Returns how many inserts there were up to the next one with an event.
    let mut until_event = || {
        let with_event = |_: &i32| {
            let tail = header().tail().hint();
            filter.insert(next()).expect("an insert");
            header().tail().hint() == tail + 2
        };
        (1..).find(with_event).expect("a generation ends")
    };
    until_event();
    let generation = until_event();
    for _ in 1..generation {
        filter.insert(next()).expect("an insert");
    }
    let _alive = neighbour(filter.engine(), &*memory);
    let word = header().stripe(0).lock_word();
    assert!(stripe_lock::try_lock(word, LIVING));
    let (tail, alone) = (header().tail().hint(), next());
    let limited = filter.call().waiting_at_most(Duration::from_secs(20));
    let inserted = limited.insert(alone);
    let mut batch = Batch::new(limited);
    let together: Vec<_> = (0..3).map(|_| next()).collect();
    together.iter().for_each(|key| batch.insert(key).expect("room"));
    let committed = batch.commit();
    drop(batch);
    let written = header().tail().hint() - tail;
    // Before anything may fail: to close the filter would wait for it.
    assert!(stripe_lock::unlock(word, LIVING).is_ok());
    assert!(inserted.expect("an insert without its event"));
    committed.expect("a batch without its event");
    assert_eq!(written, 4, "no event is recorded");
    let there = |filter: &Filter<AgePartitioned>| {
        let all = std::iter::once(&alone).chain(&together);
        all.for_each(|key| assert!(filter.contains(key).expect("an answer")));
    };
    assert!(filter.insert(next()).expect("an insert"));
    assert_eq!(header().tail().hint(), tail + 6, "with the event");
    there(&filter);
    let before = filter.digest().expect("a digest").value;
    filter.close().expect("closed");
    drop(filter);
    let again = Filter::<AgePartitioned>::open_on(memory, options()).expect("it opens");
    there(&again);
    assert_eq!(again.digest().expect("a digest").value, before);
}

#[test]
fn a_bounded_wait_for_another_thread_of_the_same_handle_ends_too() {
    let (filter, _memory) = made();
    let engine = filter.engine();
    let held = engine.stripes.acquire(1, Wait::Always).expect("a stripe");
    let limit = Duration::from_millis(30);
    for wait in [Wait::Briefly, Wait::Operation(Waits::AtMost(limit))] {
        let refused = engine.stripes.acquire(1, wait).map(drop);
        assert!(matches!(refused, Err(Error::WouldWait { .. })), "{wait:?}: {refused:?}");
    }
    assert_eq!(dead_owners::judge(&engine.shared, engine.shared.stripes.owner()), Verdict::Wait);
    drop(held);
    drop(engine.stripes.acquire(1, Wait::Briefly).expect("it is free"));
}

#[test]
fn a_repair_that_needs_stripe_0_waits_for_its_live_owner_no_longer_than_its_caller() {
    for steps in 0..CLEARING {
        let filter = half_cleared(steps);
        let engine = filter.engine();
        let slots = neighbour(engine, &*engine.shared.media);
        let words = [0, 1].map(|index| engine.header().stripe(index).lock_word());
        // Who has taken stripe 0 over is stopped before it has repaired anything.
        assert!(stripe_lock::unlock(words[0], DEAD).is_ok());
        assert!(stripe_lock::try_lock(words[0], LIVING));
        let repaired = engine.stripes.acquire(1, Wait::Briefly).map(drop);
        if steps < 2 {
            assert!(matches!(repaired, Err(Error::WouldWait { .. })), "{steps}: {repaired:?}");
            assert_eq!(stripe_lock::holder_now(words[1]), Some(DEAD), "{steps}");
        }
        engine.stripes.repair_all().expect("descriptors");
        assert!(!engine.header().is_poisoned(), "{steps}");
        drop(slots);
        engine.stripes.repair_all().expect("descriptors");
        drop(engine.stripes.acquire(1, Wait::Briefly).expect("all can be repaired now"));
        assert_eq!(engine.header().counters().sum().inserts, 0, "{steps}");
    }
}

#[test]
fn while_another_process_keeps_stripe_0_claims_keep_no_other_stripe() {
    let (filter, memory) = made();
    let engine = filter.engine();
    let _alive = neighbour(engine, &*memory);
    let word = engine.header().stripe(0).lock_word();
    assert!(stripe_lock::try_lock(word, LIVING));
    let lease = Duration::from_secs(60);
    let limited = filter.call().waiting_at_most(Duration::from_millis(30));
    let refused = limited.claim("a", lease).map(drop);
    assert!(matches!(refused, Err(Error::WouldWait { .. })), "{refused:?}");
    std::thread::scope(|scope| {
        let claiming =
            scope.spawn(|| filter.claim("a", lease).map(|claim| matches!(claim, Claim::Yours(_))));
        // In the stripe of each of them, also that of the claim.
        for key in 0..1000_u64 {
            let call = filter.call().waiting_at_most(Duration::from_secs(60));
            assert!(call.insert(key.to_le_bytes()).expect("its stripe is free"));
        }
        assert!(!claiming.is_finished());
        assert!(stripe_lock::unlock(word, LIVING).is_ok());
        assert!(claiming.join().expect("no panic").expect("no error"));
    });
}

#[test]
fn while_another_process_keeps_a_stripe_a_batch_that_needs_it_keeps_no_other_one() {
    let (filter, memory) = made();
    let engine = filter.engine();
    let _alive = neighbour(engine, &*memory);
    let word = engine.header().stripe(2).lock_word();
    assert!(stripe_lock::try_lock(word, LIVING));
    let keys = (0..1000_u64).map(u64::to_le_bytes);
    let is_free = |key: &[u8; 8]| engine.shared.stripe_of(filter.call().hash(key)) == 1;
    let (free, kept): (Vec<_>, Vec<_>) = keys.partition(is_free);
    let batch_of = |waits: Option<Duration>| {
        let call = filter.call();
        let mut batch = Batch::new(waits.map_or(call, |limit| call.waiting_at_most(limit)));
        batch.insert(free[0]).expect("room");
        batch.insert(kept[0]).expect("room");
        batch.commit()
    };
    let refused = batch_of(Some(Duration::from_millis(30)));
    assert!(matches!(refused, Err(Error::WouldWait { .. })), "{refused:?}");
    std::thread::scope(|scope| {
        let committing = scope.spawn(|| batch_of(None));
        for key in &free[1..] {
            let call = filter.call().waiting_at_most(Duration::from_secs(60));
            assert!(call.insert(key).expect("its stripe is free"));
        }
        assert!(!committing.is_finished());
        assert!(stripe_lock::unlock(word, LIVING).is_ok());
        committing.join().expect("no panic").expect("no error");
    });
    assert!([free[0], kept[0]].iter().all(|key| filter.contains(key).expect("an answer")));
}

/// A reader has no session, and the word of its owner is that of a first writer.
#[test]
fn a_reader_does_not_take_a_dead_first_writer_for_itself() {
    let (first, memory) = made();
    let options = || Options::new().durability(Durability::Never).background(false);
    let second = Filter::<Bloom>::open_on(memory.clone(), options()).expect("another handle");
    let key = 7_u64.to_le_bytes();
    let engine = second.engine();
    let banks = engine.shared.image.keep_banks();
    let owner = first.engine().shared.stripes.owner();
    let index = engine.shared.stripe_of(engine.shared.hash(&key));
    assert!(stripe_lock::try_lock(engine.header().stripe(index).lock_word(), owner));
    for (bank, at) in
        banks.iter().flat_map(|(_, bank)| (0..bank.blocks()).map(move |at| (bank, at)))
    {
        crate::image::seqlock::begin(bank.block(at as usize).0.version());
    }
    // The first handle dies.
    first.engine().shared.slots.release().expect("no error");
    let reader = crate::Reader::<Bloom>::open_on(memory, Options::new()).expect("a reader");
    let asked = reader.call().contains(key);
    assert!(matches!(asked, Err(Error::Locked { .. })), "{asked:?}");
    assert!(stripe_lock::unlock(engine.header().stripe(index).lock_word(), owner).is_ok());
    std::mem::forget((first, second, reader));
}

#[test]
fn a_repair_that_finds_the_log_lost_poisons_the_filter_for_all() {
    let memory = Arc::new(Failing::new(Memory::new()));
    let options =
        Options::new().hash_seed(7).stripes(2).durability(Durability::Never).background(false);
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
    let filter = filter.expect("a filter");
    let engine = filter.engine();
    filter.insert("a").expect("an insert");
    let header = engine.header();
    header.tail().reserve(1, engine.shared.log.mapped_end()).expect("room");
    assert!(stripe_lock::try_lock(header.stripe(1).lock_word(), DEAD));
    memory.fail_write_back();
    let refused = engine.stripes.acquire(1, Wait::Always).map(drop);
    assert!(refused.is_err(), "{refused:?}");
    assert!(header.is_poisoned(), "another process would not know");
    assert_eq!(stripe_lock::holder(load(header.stripe(1).lock_word())), Some(DEAD));
}
