//! Pages of the live image that the system could not write back, and took back to older content.
//!
//! Whenever that happens, no snapshot of such pages gets a name, every handle refuses writes and
//! questions once one of them found out, and the next opening has every operation.

use ebbtide::history::Unlogged;
use ebbtide::media::{Media, Memory};
use ebbtide::{
    Any, Clock, Durability, Error, Filter, ManualClock, Options, Parameters, Timestamp, inspect,
};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use ebbtide_testkit::write_back::WriteBack;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The claims, by name.
pub const ALL: [(&str, fn()); 5] = [
    ("whatever_pages_of_the_image_are_lost_and_when_no_operation_is", every_kind),
    ("handles_that_nobody_uses_find_out_that_pages_are_lost", in_the_background),
    ("no_backup_is_made_of_lost_pages", no_backup),
    ("no_alteration_takes_positions_from_lost_pages", no_alteration),
    ("no_record_is_called_durable_after_pages_of_the_image_are_lost", no_acknowledgement),
];

fn options() -> Options {
    let clock = ManualClock::new(Timestamp::from_unix_millis(1_000_000));
    Options::new()
        .hash_seed(7)
        .stripes(3)
        .block_bytes(512)
        .segment_bytes(4096)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::from(clock))
}

fn key(number: u64) -> [u8; 8] {
    (number % 400).to_le_bytes()
}

fn is_refused<T>(result: &ebbtide::Result<T>) -> bool {
    matches!(result, Err(Error::Poisoned { .. }))
}

/// What happens when pages are lost, or right after that.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Checkpoint,
    Attach,
    Close,
    Ask,
}

const ACTS: [Act; 4] = [Act::Checkpoint, Act::Attach, Act::Close, Act::Ask];

/// Two handles on a filter on such a medium, and one on a filter that loses nothing.
struct Scene {
    media: WriteBack,
    handles: Vec<Filter<Any>>,
    reference: Filter<Any>,
    done: u64,
}

impl Scene {
    fn new(sample: &Sample) -> Self {
        let media = WriteBack::new();
        let reference = Filter::create_on(Arc::new(Memory::new()), sample.spec(), options());
        let first = Filter::create_on(Arc::new(media.clone()), sample.spec(), options());
        let mut scene = Self {
            media,
            handles: vec![first.expect("a filter")],
            reference: reference.expect("a filter"),
            done: 0,
        };
        scene.handles.push(scene.open().expect("another handle"));
        scene
    }

    fn open(&self) -> ebbtide::Result<Filter<Any>> {
        let media: Arc<dyn Media> = Arc::new(self.media.clone());
        Filter::open_on(media, options())
    }

    fn operate(&mut self, sample: &Sample, random: &mut Random) {
        let time = Timestamp::from_unix_millis(1_000_000 + self.done);
        let handle = &self.handles[random.below(2) as usize];
        for filter in [handle, &self.reference] {
            sample.operate(filter.call().time(time), self.done, key).expect("an operation");
        }
        self.done += 1;
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Checkpoint => drop(self.handles[0].checkpoint()),
            Act::Attach => drop(self.open()),
            Act::Close => self.handles.drain(..).for_each(drop),
            // Nobody knows yet.
            Act::Ask => drop(self.handles[1].contains(key(0))),
        }
    }
}

fn round(sample: &Sample, seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut scene = Scene::new(sample);
    for _ in 0..50 + random.below(500) {
        scene.operate(sample, random);
        if random.below(60) == 0 {
            scene.media.write_back();
        }
        if random.below(150) == 0 {
            scene.handles[random.below(2) as usize].checkpoint().expect("a checkpoint");
        }
    }
    let act = ACTS[random.below(4) as usize];
    if random.below(2) == 0 {
        scene.media.lose_at(random.below(120), random.clone());
    } else {
        scene.media.lose(random);
    }
    scene.act(act);
    let lost = scene.media.end();
    let what = format!("{}, seed {seed}, {act:?}", sample.name);
    if lost && act != Act::Close {
        let third = scene.open();
        // The header of the image may be lost, too.
        let is_damaged = matches!(third, Err(Error::Damaged { .. }));
        assert!(is_refused(&third) || is_damaged, "{what}: {third:?}");
        assert!(is_refused(&scene.handles[1].checkpoint()), "{what}");
        for handle in &scene.handles {
            assert!(is_refused(&handle.contains(key(1))), "{what}");
            assert!(is_refused(&handle.insert(key(1))), "{what}");
            assert!(is_refused(&handle.digest()), "{what}");
            assert!(is_refused(&handle.checkpoint()), "{what}");
        }
    }
    scene.handles.clear();
    let report = inspect::verify_on(&scene.media).expect("a report");
    assert!(report.is_sound(), "{what}: {report:#?}");
    let after = scene.open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let [found, expected] =
        [&after, &scene.reference].map(|of| of.digest().expect("a digest").value);
    assert_eq!(found, expected, "{what}, {} operations", scene.done);
    lost
}

fn every_kind() {
    let mut lost = 0;
    for (at, sample) in SAMPLES.iter().enumerate() {
        for number in 0..scaled(16) {
            lost += u64::from(round(sample, 1000 * at as u64 + number));
        }
    }
    assert!(lost > 0, "no pages were lost");
}

/// Loses at least one page.
fn lose(media: &WriteBack) {
    let random = &mut Random::new(1);
    assert!((0..100).any(|_| media.lose(random)), "something was stored");
}

fn in_the_background() {
    let media = WriteBack::new();
    let spec = SAMPLES[0].spec();
    let make = || -> Arc<dyn Media> { Arc::new(media.clone()) };
    let filter = Filter::create_on(make(), spec, options().background(true)).expect("a filter");
    let other = Filter::<Any>::open_on(make(), options()).expect("another handle");
    filter.insert("a").expect("an insert");
    lose(&media);
    let began = Instant::now();
    while !is_refused(&filter.contains("a")) {
        assert!(began.elapsed() < Duration::from_secs(60), "a look each second");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_refused(&other.contains("a")), "the mark is in the image");
    drop((filter, other));
    let after = Filter::<Any>::open_on(make(), options()).expect("the filter");
    assert!(after.contains("a").expect("an answer"));
}

fn no_backup() {
    let media = WriteBack::new();
    let filter = Filter::create_on(Arc::new(media.clone()), SAMPLES[0].spec(), options());
    let filter = filter.expect("a filter");
    filter.insert("a").expect("an insert");
    let place = tempfile::tempdir().expect("a temporary directory");
    filter.backup(place.path().join("sound")).expect("a backup");
    lose(&media);
    let copy = place.path().join("copy");
    assert!(is_refused(&filter.backup(&copy)));
    assert!(matches!(Filter::<Any>::open(&copy, options()), Err(Error::NotAFilter { .. })));
}

/// Whatever is lost while a filter is altered, and whenever: its positions are the last ones.
fn no_alteration() {
    let (mut lost, mut altered) = (0, 0);
    for number in 0..scaled(400) {
        let random = &mut Random::new(number);
        let media = WriteBack::new();
        let make = || -> Arc<dyn Media> { Arc::new(media.clone()) };
        let bloom = |capacity: u64| Any::new("bloom", Parameters::new().with("capacity", capacity));
        let filter = Filter::create_on(make(), bloom(500), options()).expect("a filter");
        for position in 1..=20 {
            let mut batch = filter.batch();
            batch.insert(key(position)).expect("a part of a batch");
            batch.set_position(1, position).expect("a position");
            batch.commit().expect("a batch");
            if position == 7 {
                media.write_back();
            }
        }
        media.lose_at(random.below(400), random.clone());
        let done = filter.alter(bloom(900), Unlogged::Refuse);
        lost += u64::from(media.end());
        altered += u64::from(done.is_ok());
        drop(filter);
        let after = Filter::<Any>::open_on(make(), options());
        let after = after.unwrap_or_else(|error| panic!("{number}: {error}, {done:?}"));
        assert_eq!(after.position(1).expect("an answer"), Some(20), "{number}: {done:?}");
        assert!((1..=20).all(|at| after.contains(key(at)).expect("an answer")), "{number}");
    }
    assert!(lost > 0 && altered > 0, "{lost} times pages were lost, {altered} alterations");
}

/// An older tail lets two writers fill one slot, so a sync is no proof of what they wrote.
fn no_acknowledgement() {
    let mut refused = 0;
    for (at, sample) in SAMPLES.iter().enumerate() {
        let random = &mut Random::new(at as u64);
        let mut scene = Scene::new(sample);
        (0..1 + random.below(200)).for_each(|_| scene.operate(sample, random));
        let calls = scene.handles.iter().map(|handle| handle.call().durability(Durability::Always));
        let calls = calls.collect::<Vec<_>>();
        calls[0].insert("before").expect("nothing is lost");
        if scene.media.lose(random) {
            let after = calls[1].insert("after");
            assert!(after.is_err(), "{}: {after:?}", sample.name);
            refused += 1;
        }
    }
    assert!(refused > SAMPLES.len() / 2, "{refused} of {}", SAMPLES.len());
}
