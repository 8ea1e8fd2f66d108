//! Live images with wrong words: an opener detects them where possible; otherwise nothing hangs,
//! panics or requests unlimited space. The fuzz target `live_image` found many of these cases.

use ebbtide::media::{Access, Mapping, Media, Memory};
use ebbtide::{Any, Clock, Durability, Error, Filter, Options, Parameters, Since, inspect};
use std::sync::Arc;
use std::sync::atomic::Ordering;

// Words of `live`, as in `docs/format.md`.
const TAIL: usize = 16;
const DURABLE: usize = 24;
const ALLOCATED: usize = 27;
const TIMELINE_START: usize = 31;
const SNAPSHOT: usize = 32;
const SYNCING: usize = 40;
const COUNTER_SHARDS: usize = 432;
const TERMS: usize = 128;
const STRIPE_1: usize = 256 + 8;
/// The index of the version of the first block of a small bank.
const VERSION: usize = 16;

fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .image(ebbtide::ImagePlace::BesideLog)
        .stripes(1)
        .block_bytes(512)
        .segment_bytes(4096)
        .durability(Durability::Never)
        .clock(Clock::stream())
        .background(false)
}

/// An open filter, on a disk that is soon full.
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

    /// Maps the file whose name begins with `start`.
    fn map(&self, start: &str) -> Box<dyn Mapping> {
        let names = self.memory.list().expect("a directory");
        let name = names.iter().find(|name| name.starts_with(start)).expect("a file");
        let file = self.memory.open(name, Access::Write).expect("it is there");
        file.map(Access::Write).expect("whole words")
    }

    /// Sets a word of `live`; returns its old value.
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
fn an_opener_reports_contradictory_ends_of_the_log_as_damage() {
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
        (TIMELINE_START, u64::MAX),
        (TIMELINE_START, 0),
        (SNAPSHOT, u64::MAX),
        // The counts of the stripe.
        (STRIPE_1 + 2, u64::MAX),
        (STRIPE_1 + 5, 1 << 40),
        // The incarnation of the next session slot.
        (TERMS + 1, u64::MAX),
        (TERMS + 1, (1 << 48) - 1),
        // The stripe, held by the handle that gets the next session slot, in its next incarnation.
        (STRIPE_1, 2 << 1 | 1 << 16),
    ];
    for (at, value) in wild {
        let before = scene.set(at, value);
        assert_damaged(scene.join());
        scene.set(at, before);
        // A used incarnation number stays used.
        scene.set(TERMS + 1, 0);
    }
    scene.join().expect("the words are restored").insert("key").expect("an insert");
}

#[test]
fn a_tail_far_beyond_a_writer_does_not_create_files() {
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
fn no_caller_waits_for_the_durability_of_records_never_reserved() {
    let scene = Scene::new();
    let second = scene.join().expect("all is well");
    let before = scene.set(STRIPE_1 + 2, u64::MAX);
    let call = second.call().durability(Durability::Always).since(Since::LastAccepted);
    call.check_and_insert([3]).expect("the key is present, and needs no record");
    scene.set(STRIPE_1 + 2, before);
}

#[test]
fn a_block_marked_as_changing_without_an_owner_is_an_error_and_not_an_endless_wait() {
    let lease = std::time::Duration::from_secs(60);
    for claims in [false, true] {
        let scene = Scene::new();
        let second = scene.join().expect("all is well");
        let bank = scene.map("live-");
        let blocks = scene.first.stat().expect("figures").blocks as usize;
        let blocks = &bank.words()[VERSION..VERSION + 8 * blocks];
        blocks.iter().step_by(8).for_each(|version| version.store(7, Ordering::Relaxed));
        // A claim asks under the stripes that it holds.
        let asked = match claims {
            true => second.claim([3], lease).map(drop),
            false => second.contains([3]).map(drop),
        };
        assert!(matches!(asked, Err(Error::Poisoned { .. })), "{asked:?}");
        assert!(matches!(scene.first.insert([3]), Err(Error::Poisoned { .. })));
    }
}

#[test]
fn a_stripe_whose_word_names_no_owner_is_taken_over() {
    let scene = Scene::new();
    let second = scene.join().expect("all is well");
    // An incarnation and waiters, but no session slot; a session slot without a byte in any file;
    // an unused session slot.
    for word in [5 << 16 | 1, 1, 1000 << 1 | 5 << 16, 9 << 1] {
        scene.set(STRIPE_1, word);
        second.insert(word.to_le_bytes()).expect("an insert");
        assert!(second.contains(word.to_le_bytes()).expect("an answer"));
    }
}

#[test]
fn the_changes_of_a_dead_owner_are_repaired_for_any_counts_of_its_stripe() {
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
fn counters_at_their_maximum_wrap() {
    let scene = Scene::new();
    for (at, value) in [(SYNCING, u64::MAX), (SYNCING, u64::MAX - 1)] {
        scene.set(at, value);
        scene.first.insert([value as u8]).expect("an insert");
        scene.first.sync().expect("a sync");
    }
    let image = scene.map("live");
    // One stripe, and so one shard.
    image.words()[COUNTER_SHARDS].store(u64::MAX, Ordering::Relaxed);
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
fn a_snapshot_with_impossible_lsns_is_damage_and_is_not_salvaged() {
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
    let report = inspect::verify_on(&memory).expect("it can be inspected");
    assert!(!report.is_sound());
    let saved = Memory::new();
    inspect::salvage_on(&memory, &saved).expect("the log has all").expect("and is needed");
    let filter: Filter = Filter::open_on(Arc::new(saved), options()).expect("what was saved opens");
    assert!(filter.contains([3]).expect("an answer"));
}
