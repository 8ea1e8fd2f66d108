//! A batch writes what its operations would write one after the other, behind a header.
//!
//! Two filters of the same kind, layout and seed get the same random operations, one of them in
//! batches of random length: their records, digests and sums are equal. Batches are longer than
//! generations of the samples, longer than segments, and have late keys in them.

use ebbtide::inspect::wal;
use ebbtide::{Clock, Digest, Durability, Entry, Filter, ManualClock, Options, Timestamp};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::path::Path;
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
}

/// Everything of a record that does not depend on its slot.
#[derive(Debug, PartialEq)]
struct Shown(&'static str, u64, bool, Vec<(&'static str, u64)>);

struct Twins<'a> {
    sample: &'a Sample,
    single: Filter,
    batched: Filter,
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
        let (single, batched) = (made(0), made(1));
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
                Operation { key: self.random.below(KEYS), time, weight }
            })
            .collect()
    }

    fn operate(&mut self) -> usize {
        let pause = self.pause();
        self.now += pause;
        self.hands.iter().for_each(|hand| hand.advance(Duration::from_micros(pause)));
        let operations = self.draw();
        let mut batch = self.batched.batch();
        for operation in &operations {
            let entry = Entry::new(operation.key.to_le_bytes());
            let entry =
                operation.time.map_or(entry, |time| entry.time(Timestamp::from_unix_micros(time)));
            let entry = match self.sample.heaviest {
                1 => entry,
                _ => entry.weight(operation.weight),
            };
            self.single.insert_entries(&[entry]).expect("an insert");
            if self.random.below(2) == 0 {
                batch.insert_entry(&entry).expect("room");
            } else if batch.check_and_insert_entry(&entry).expect("an answer").is_too_late() {
                // Before the batch it is later than at its place in the batch, or as late: the
                // other filter refused it, or accepted it before the time of the batch passed.
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
            if !["durable", "heartbeat", "void", "batch"].contains(&entry.operation) {
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
        let [single, batched] = [&self.single, &self.batched].map(|filter| self.records(filter));
        let differ = single.iter().zip(&batched).position(|(single, batched)| single != batched);
        if let Some(at) = differ {
            panic!("{label}: record {at}: {:?}, in a batch {:?}", single[at], batched[at]);
        }
        assert_eq!(single.len(), batched.len(), "{label}");
        let digests = [&self.single, &self.batched].map(|filter| {
            let Digest { value, inserts, .. } = filter.digest().expect("a digest");
            (value, inserts)
        });
        assert_eq!(digests[0], digests[1], "{label}");
        let refused =
            [&self.single, &self.batched].map(|filter| filter.stat().expect("figures").refused);
        assert_eq!(refused[0], refused[1], "{label}");
    }
}

#[test]
fn a_batch_writes_what_its_operations_write_one_after_the_other() {
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
