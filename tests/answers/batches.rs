//! A batch answers and writes as its operations would one after the other.
//!
//! Two filters of the same kind, layout and seed get the same random operations, one of them in
//! batches of random length: their answers, false ones included, and their records, digests and
//! sums are equal. Batches are longer than generations and windows of the samples, longer than
//! segments, and have late keys in them; the clock moves while they are filled.

use ebbtide::inspect::wal;
use ebbtide::kinds::Parameters;
use ebbtide::media::Memory;
use ebbtide::{
    Any, Batch, Clock, Digest, Durability, Entry, Filter, ManualClock, Options, Since, Timestamp,
};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Operations of each filter.
const OPERATIONS: u64 = 1000;
/// Keys of a stream: few, so that they repeat.
const KEYS: u64 = 600;
/// The first time of every stream, in microseconds.
const START: u64 = 1_700_000_000_000_000;

/// The source of times.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Times {
    /// They come with the keys, some of them late.
    Given,
    /// They come from a clock.
    Clock,
    /// Some come with the keys, the others from a clock.
    Mixed,
}

/// One operation.
#[derive(Debug, Clone, Copy)]
struct Operation {
    key: u64,
    time: Option<u64>,
    weight: f64,
    /// Whether it asks whether the key is new.
    asks: bool,
    /// How much the clock moves before it.
    pause: u64,
}

/// Everything of a record that does not depend on its slot.
#[derive(Debug, PartialEq)]
struct Shown(&'static str, u64, bool, Vec<(&'static str, u64)>);

struct Twins<'a> {
    sample: &'a Sample,
    single: Filter,
    batched: Arc<Filter>,
    hands: [ManualClock; 2],
    random: Random,
    times: Times,
    now: u64,
}

impl<'a> Twins<'a> {
    fn new(sample: &'a Sample, times: Times, stripes: u32, dirs: [&Path; 2]) -> Self {
        let hands = [0, 1].map(|_| ManualClock::new(Timestamp::from_unix_micros(START)));
        let made = |at: usize| {
            let clock = match times {
                Times::Given => Clock::stream(),
                Times::Clock | Times::Mixed => Clock::from(hands[at].clone()),
            };
            let options = Options::new()
                .hash_seed(7)
                .stripes(stripes)
                .block_bytes(2048)
                .segment_bytes(4 << 10)
                .checkpoint_bytes(1 << 40)
                .max_lead(Duration::from_secs(1 << 20))
                .durability(Durability::Never)
                .background(false)
                .clock(clock);
            Filter::create(dirs[at], sample.spec(), options).expect("a filter")
        };
        let (single, batched) = (made(0), Arc::new(made(1)));
        let random = Random::new(u64::from(stripes) << 8 | times as u64);
        Self { sample, single, batched, hands, random, times, now: START }
    }

    fn pause(&mut self) -> u64 {
        match self.random.below(300) {
            0 => 900_000,
            1..4 => 60_000,
            _ => self.random.below(2000),
        }
    }

    /// Draws the operations of a batch. A stream's time advances within it.
    fn draw(&mut self) -> Vec<Operation> {
        let length = match self.random.below(10) {
            0 => 1,
            1..8 => self.random.below(40),
            _ => self.random.below(700),
        };
        let sample = self.sample;
        (0..length)
            .map(|_| {
                if self.times != Times::Clock {
                    self.now += self.pause();
                }
                let late = match self.random.below(12) {
                    0 => self.random.below(400_000),
                    1 => self.random.below(20_000),
                    _ => 0,
                };
                let is_given = match self.times {
                    Times::Given => true,
                    Times::Clock => false,
                    Times::Mixed => self.random.below(3) == 0,
                };
                let time = is_given.then_some(self.now - late);
                let weight = (1 + self.random.below(sample.heaviest)) as f64;
                let pause = if self.random.below(8) == 0 { self.pause() } else { 0 };
                let (key, asks) = (self.random.below(KEYS), self.random.below(4) > 0);
                Operation { key, time, weight, asks, pause }
            })
            .collect()
    }

    fn pass(&mut self, pause: u64) {
        self.now += pause;
        self.hands.iter().for_each(|hand| hand.advance(Duration::from_micros(pause)));
    }

    fn operate(&mut self) -> usize {
        let pause = self.pause();
        self.pass(pause);
        let operations = self.draw();
        let since = [Since::LastSeen, Since::LastAccepted][self.random.below(2) as usize];
        let batched = self.batched.clone();
        let mut batch = Batch::new(batched.call().since(since));
        for (number, operation) in operations.iter().enumerate() {
            self.pass(operation.pause);
            let entry = Entry::new(operation.key.to_le_bytes());
            let entry =
                operation.time.map_or(entry, |time| entry.time(Timestamp::from_unix_micros(time)));
            let entry = match self.sample.heaviest {
                1 => entry,
                _ => entry.weight(operation.weight),
            };
            let single = self.single.call().since(since);
            if operation.asks {
                let mut answer = Vec::new();
                single.check_and_insert_entries(&[entry], &mut answer).expect("an answer");
                let batched = batch.check_and_insert_entry(&entry).expect("an answer");
                let label = format!("{}, {:?}, {since:?}", self.sample.name, self.times);
                assert_eq!(answer, [batched], "{label}: {number} of {}", operations.len());
            } else {
                single.insert_entries(&[entry]).expect("an insert");
                batch.insert_entry(&entry).expect("room");
            }
        }
        batch.commit().expect("a commit");
        operations.len()
    }

    fn records(&self, filter: &Filter) -> Vec<Shown> {
        let mut records = Vec::new();
        wal(filter.path(), |entry| {
            assert!(entry.counts);
            if !["durable", "heartbeat", "void"].contains(&entry.operation) {
                let time = entry.time.as_unix_micros();
                records.push(Shown(entry.operation, time, entry.is_stream_time(), entry.details()));
            }
            Ok(())
        })
        .expect("a log");
        records
    }

    fn compare(&self) {
        let label = format!("{}, {:?}", self.sample.name, self.times);
        let [single, batched] = [&self.single, &*self.batched].map(|filter| self.records(filter));
        let differ = single.iter().zip(&batched).position(|(single, batched)| single != batched);
        if let Some(at) = differ {
            panic!("{label}: record {at}: {:?}, in a batch {:?}", single[at], batched[at]);
        }
        assert_eq!(single.len(), batched.len(), "{label}");
        let digests = [&self.single, &*self.batched].map(|filter| {
            let Digest { value, inserts, .. } = filter.digest().expect("a digest");
            (value, inserts)
        });
        assert_eq!(digests[0], digests[1], "{label}");
        let refused =
            [&self.single, &*self.batched].map(|filter| filter.stat().expect("figures").refused);
        assert_eq!(refused[0], refused[1], "{label}");
    }
}

#[test]
fn a_batch_answers_and_writes_as_its_operations_do_one_after_the_other() {
    for sample in &SAMPLES {
        for (times, stripes) in
            [(Times::Given, 4), (Times::Clock, 1), (Times::Mixed, 4), (Times::Clock, 4)]
        {
            let dirs = [0, 1].map(|_| tempfile::tempdir().expect("a temporary directory"));
            let places = [0, 1].map(|at: usize| dirs[at].path().join("filter"));
            let mut twins = Twins::new(sample, times, stripes, [&places[0], &places[1]]);
            let mut done = 0;
            while done < scaled(OPERATIONS) {
                done += twins.operate() as u64;
            }
            twins.compare();
            let before = twins.batched.digest().expect("a digest").value;
            let Twins { single, batched, .. } = twins;
            drop(batched);
            drop(single);
            let again = Filter::<ebbtide::Any>::open(
                &places[1],
                Options::new().clock(Clock::stream()).background(false),
            );
            let again = again.expect("the filter");
            assert_eq!(again.digest().expect("a digest").value, before, "{}", sample.name);
        }
    }
}

/// Keys and whether each batch answered them as new, by an exact model of the window: how long ago
/// a key was seen last, in items or microseconds.
struct Exact {
    seen: BTreeMap<u64, u64>,
    /// Keys within the window that were answered as new.
    missed: u64,
    /// Keys far beyond the window, and those of them that were answered as present.
    far: (u64, u64),
}

impl Exact {
    /// Notes the answer for a key at this place; `within` and `beyond` are ages.
    fn note(&mut self, (key, place): (u64, u64), is_new: bool, (within, beyond): (u64, u64)) {
        match self.seen.insert(key, place).map(|before| place - before) {
            Some(age) if age <= within => self.missed += u64::from(is_new),
            Some(age) if age <= beyond => {}
            Some(_) | None => self.far = (self.far.0 + 1, self.far.1 + u64::from(!is_new)),
        }
    }
}

/// The kinds whose window is exact up to a documented overrun, of which three windows are enough.
#[test]
fn no_key_of_the_window_is_new_to_a_batch_and_none_far_beyond_it_is_present() {
    const ITEMS: [&str; 6] = [
        "fingerprint",
        "age-partitioned",
        "timing",
        "block-timing",
        "double-buffering",
        "two-buffer",
    ];
    const TIMED: [&str; 2] = ["fingerprint", "time-limited"];
    const LENGTH: u64 = 800;
    let options = || {
        let options = Options::new().hash_seed(3).stripes(2).block_bytes(2048);
        options.clock(Clock::stream()).max_lead(Duration::from_secs(1 << 20)).background(false)
    };
    let items = ITEMS.into_iter().map(|kind| (kind, false));
    for (kind, is_timed) in items.chain(TIMED.into_iter().map(|kind| (kind, true))) {
        for window in [LENGTH / 4, LENGTH, LENGTH * 4] {
            let parameters = Parameters::new().with("fpr", 0.001);
            let parameters = match is_timed {
                false => parameters.with("window-items", window),
                // One key in a millisecond.
                true => parameters.with("window", window * 1000).with("rate", 1000),
            };
            let spec = Any::new(kind, parameters);
            let filter = Filter::create_on(Arc::new(Memory::new()), spec, options());
            let filter = filter.expect("a filter");
            let mut random = Random::new(window);
            let mut exact = Exact { seen: BTreeMap::new(), missed: 0, far: (0, 0) };
            let mut place = 0_u64;
            for _ in 0..12 {
                let mut batch = filter.batch();
                for _ in 0..LENGTH {
                    // New keys, and keys of any age up to six windows.
                    let key = match random.below(2) {
                        0 => place,
                        _ => place.saturating_sub(random.below(6 * window)),
                    };
                    let time = Timestamp::from_unix_micros(START + place * 1000);
                    let entry = Entry::new(key.to_le_bytes());
                    let entry = if is_timed { entry.time(time) } else { entry };
                    let checked = batch.check_and_insert_entry(&entry).expect("an answer");
                    exact.note((key, place), checked.is_new(), (window - 1, 4 * window));
                    place += 1;
                }
                batch.commit().expect("a commit");
            }
            let Exact { missed, far: (far, wrong), .. } = exact;
            let label = format!("{kind}, window {window}, timed: {is_timed}");
            assert_eq!(missed, 0, "{label}");
            assert!(far > 1000 && wrong <= far / 100 + 5, "{label}: {wrong} of {far} present");
        }
    }
}

/// Blocks of 64 KiB, each of which is changed several times: more than the copies that are kept.
#[test]
fn a_batch_that_changes_more_blocks_than_it_keeps_copies_of_answers_as_single_operations_do() {
    let made = || {
        let options = Options::new().hash_seed(9).stripes(8).block_bytes(64 << 10);
        let options = options.durability(Durability::Never).background(false);
        let spec = Any::new("bloom", Parameters::new().with("capacity", 45_000_000));
        Filter::create_on(Arc::new(Memory::new()), spec, options).expect("a filter")
    };
    let (single, batched) = (made(), made());
    let (mut batch, mut random, mut present) = (batched.batch(), Random::new(1), 0);
    for _ in 0..6000 {
        let key = random.below(3000).to_le_bytes();
        let checked = batch.check_and_insert(key).expect("an answer");
        assert_eq!(checked, single.check_and_insert(key).expect("an answer"));
        present += u64::from(checked.is_present());
    }
    assert!(present > 3000, "{present}");
    batch.commit().expect("a commit");
    let digests = [&single, &batched].map(|filter| filter.digest().expect("a digest").value);
    assert_eq!(digests[0], digests[1]);
}
