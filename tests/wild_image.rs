//! Live images whose words went wild: whoever joins finds out where it can be found out, and otherwise nothing hangs, panics
//! or asks for space without end. Much of this was found by the fuzz target `live_image`.

use ebbtide::media::{Access, Mapping, Media, Memory};
use ebbtide::{Any, Clock, Durability, Error, Filter, Options, Parameters, Since, inspect};
use std::sync::Arc;
use std::sync::atomic::Ordering;

// Words of `live`, as `docs/format.md` has them.
const TAIL: usize = 16;
const DURABLE: usize = 24;
const ALLOCATED: usize = 27;
const ERA_START: usize = 31;
const SNAPSHOT: usize = 32;
const SYNCING: usize = 40;
const TALLY_LANES: usize = 432;
const TERMS: usize = 128;
const STRIPE_1: usize = 256 + 8;
/// Where the first block of a small bank has its version.
const VERSION: usize = 16;

fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .stripes(1)
        .block_bytes(512)
        .segment_bytes(4096)
        .durability(Durability::Never)
        .clock(Clock::stream())
        .background(false)
}

/// A filter that somebody has open, on a disk that is soon full.
struct Scene {
    memory: Memory,
    first: Filter,
}

impl Scene {
    fn new() -> Self {
        let memory = Memory::with_capacity(1 << 20);
        let spec = Any::new("counting", Parameters::new().with("capacity", 100));
        let first = Filter::create_on(Arc::new(memory.clone()), spec, options()).expect("a filter");
        for key in 0..10_u8 {
            first.insert([key]).expect("an insert");
        }
        Self { memory, first }
    }

    fn join(&self) -> Result<Filter, Error> {
        Filter::open_on(Arc::new(self.memory.clone()), options())
    }

    /// The words of the file whose name begins so.
    fn map(&self, start: &str) -> Box<dyn Mapping> {
        let names = self.memory.list().expect("a directory");
        let name = names.iter().find(|name| name.starts_with(start)).expect("a file");
        let file = self.memory.open(name, Access::Write).expect("it is there");
        file.map(Access::Write).expect("whole words")
    }

    /// Sets a word of `live`; returns what was there.
    fn set(&self, at: usize, value: u64) -> u64 {
        self.map("live").words()[at].swap(value, Ordering::Relaxed)
    }
}

fn assert_damaged<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(Error::Damaged { path, .. }) if path.ends_with("live") => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn ends_of_the_log_that_do_not_fit_together_are_damage_to_who_joins() {
    let scene = Scene::new();
    let wild = [
        (TAIL, 0),
        (TAIL, u64::MAX),
        (TAIL, 1 << 40),
        (DURABLE, u64::MAX),
        (DURABLE, 0),
        (ALLOCATED, 0),
        (ALLOCATED, 1 << 40),
        (ALLOCATED, u64::MAX),
        (ERA_START, u64::MAX),
        (ERA_START, 0),
        (SNAPSHOT, u64::MAX),
        // What the stripe has counted.
        (STRIPE_1 + 2, u64::MAX),
        (STRIPE_1 + 5, 1 << 40),
        // The term that the next slot gets.
        (TERMS + 1, u64::MAX),
        (TERMS + 1, (1 << 48) - 1),
        // The stripe, held by the handle that has the next slot, in its next term.
        (STRIPE_1, 2 << 1 | 1 << 16),
    ];
    for (at, value) in wild {
        let before = scene.set(at, value);
        assert_damaged(scene.join());
        scene.set(at, before);
        // A term that was taken stays taken.
        scene.set(TERMS + 1, 0);
    }
    scene.join().expect("all is as it was").insert("key").expect("an insert");
}

#[test]
fn a_tail_that_runs_away_from_a_writer_is_not_followed_with_files() {
    let scene = Scene::new();
    let second = scene.join().expect("all is well");
    let files = scene.memory.list().expect("a directory").len();
    let before = scene.set(TAIL, 1 << 50);
    assert_damaged(second.insert("key"));
    assert!(matches!(scene.first.insert("key"), Err(Error::Poisoned { .. })));
    assert_eq!(scene.memory.list().expect("a directory").len(), files);
    scene.set(TAIL, before);
}

#[test]
fn nobody_waits_for_records_that_were_never_reserved_to_be_durable() {
    let scene = Scene::new();
    let second = scene.join().expect("all is well");
    let before = scene.set(STRIPE_1 + 2, u64::MAX);
    let call = second.call().durability(Durability::Always).since(Since::LastAccepted);
    call.check_and_insert([3]).expect("it is there, and needs no record");
    scene.set(STRIPE_1 + 2, before);
}

#[test]
fn a_block_that_is_marked_as_being_changed_by_nobody_is_an_error_and_no_endless_wait() {
    let scene = Scene::new();
    let second = scene.join().expect("all is well");
    let bank = scene.map("live-");
    let blocks = scene.first.stat().expect("figures").blocks as usize;
    let blocks = &bank.words()[VERSION..VERSION + 8 * blocks];
    blocks.iter().step_by(8).for_each(|version| version.store(7, Ordering::Relaxed));
    assert!(matches!(second.contains([3]), Err(Error::Poisoned { .. })));
}

#[test]
fn a_stripe_whose_word_names_nobody_is_taken_over() {
    let scene = Scene::new();
    let second = scene.join().expect("all is well");
    // A term and waiters, but no slot; a slot that no file has a byte for; one that nobody has.
    for word in [5 << 16 | 1, 1, 1000 << 1 | 5 << 16, 9 << 1] {
        scene.set(STRIPE_1, word);
        second.insert(word.to_le_bytes()).expect("an insert");
        assert!(second.contains(word.to_le_bytes()).expect("an answer"));
    }
}

#[test]
fn what_a_dead_owner_left_is_repaired_whatever_its_stripe_has_counted() {
    let scene = Scene::new();
    let second = scene.join().expect("all is well");
    let tail = scene.map("live").words()[TAIL].load(Ordering::Relaxed);
    // The last record is not counted; it makes the number of inserts wrap.
    for (at, value) in [(2, tail - 2), (5, tail - 2), (3, u64::MAX), (6, u64::MAX)] {
        scene.set(STRIPE_1 + at, value);
    }
    scene.set(STRIPE_1, 9 << 1);
    second.insert("key").expect("an insert");
    assert_eq!(second.stat().expect("figures").inserts, 1);
}

#[test]
fn counters_at_their_end_wrap() {
    let scene = Scene::new();
    for (at, value) in [(SYNCING, u64::MAX), (SYNCING, u64::MAX - 1)] {
        scene.set(at, value);
        scene.first.insert([value as u8]).expect("an insert");
        scene.first.sync().expect("a sync");
    }
    let image = scene.map("live");
    // One stripe, and so one lane.
    image.words()[TALLY_LANES].store(u64::MAX, Ordering::Relaxed);
    let bank = scene.map("live-");
    let blocks = scene.first.stat().expect("figures").blocks as usize;
    let blocks = &bank.words()[VERSION..VERSION + 8 * blocks];
    blocks.iter().step_by(8).for_each(|version| version.store(u64::MAX - 1, Ordering::Relaxed));
    scene.first.insert("key").expect("an insert");
    assert!(scene.first.contains("key").expect("an answer"));
    // Inserts and removals that the stripe has counted, in both copies.
    for at in [3, 4, 6, 7] {
        scene.set(STRIPE_1 + at, u64::MAX);
    }
    scene.first.insert("key").expect("an insert");
    assert_eq!(scene.first.stat().expect("figures").inserts, 0);
}

#[test]
fn a_snapshot_of_lsns_beyond_all_reason_is_damage_and_is_not_salvaged() {
    let Scene { memory, first } = Scene::new();
    first.checkpoint().expect("a snapshot");
    let names = memory.list().expect("a directory");
    let name = names.iter().find(|name| name.starts_with("snap-")).expect("a snapshot");
    let start = u64::MAX - 5;
    let file = memory.open(name, Access::Write).expect("it is there");
    let mut header = [0; 128];
    file.read_at(&mut header, 0).expect("a header");
    header[40..48].copy_from_slice(&start.to_le_bytes());
    header[48..56].copy_from_slice(&start.to_le_bytes());
    let sum = u64::from(crc32fast::hash(&header[..120]));
    header[120..].copy_from_slice(&sum.to_le_bytes());
    file.write_at(&header, 0).expect("room");
    memory.rename(name, &format!("snap-{start:016}")).expect("another name");
    drop(first);
    let report = inspect::verify_on(&memory).expect("it can be looked at");
    assert!(!report.is_sound());
    let saved = Memory::new();
    inspect::salvage_on(&memory, &saved).expect("the log has all").expect("and is needed");
    let filter: Filter = Filter::open_on(Arc::new(saved), options()).expect("what was saved opens");
    assert!(filter.contains([3]).expect("an answer"));
}
