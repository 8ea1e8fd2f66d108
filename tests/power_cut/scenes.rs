//! The workloads: filters with small windows and small segments, used by one thread, two threads or
//! two processes. Some operations are a batch, which ends with a position: a function of their
//! numbers.

use ebbtide::{Any, Batch, Clock, Durability, Filter, Options, Timestamp};
use ebbtide_testkit::random::{Random, mix};
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::ops::Range;
use std::sync::LazyLock;
use std::time::Duration;

/// Operations of which some may be a batch.
const CHUNK: u64 = 64;

/// The users of the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crew {
    /// One thread: the state is a function of the number of operations.
    One,
    /// Two threads whose operations commute: the state is a function of the set of operations.
    Threads,
    /// Two processes, likewise.
    Processes,
}

/// A workload.
#[derive(Debug)]
pub struct Scene {
    /// The unique name of the workload.
    pub name: &'static str,
    sample: Sample,
    /// The users of the filter.
    pub crew: Crew,
}

const fn commuting(
    name: &'static str,
    crew: Crew,
    kind: &'static str,
    parameters: &'static [(&'static str, &'static str)],
) -> Scene {
    Scene { name, sample: Sample { name, kind, parameters, heaviest: 1, removes: false }, crew }
}

const ROOMY: &[(&str, &str)] = &[("capacity", "20000"), ("fpr", "0.00001")];
/// A generation is 60,000 inserts, and none ends. (In `bloom` the new bits of an insert depend on
/// the order.)
const LONG: &[(&str, &str)] = &[("window-items", "600000"), ("k", "12"), ("l", "10")];

/// All scenes: each kind with one thread, some with more.
pub static SCENES: LazyLock<Vec<Scene>> = LazyLock::new(|| {
    let alone = |sample: Sample| Scene { name: sample.name, sample, crew: Crew::One };
    let together = [
        commuting("two threads on counting", Crew::Threads, "counting", ROOMY),
        commuting("two processes on counting", Crew::Processes, "counting", ROOMY),
        commuting("two threads on age-partitioned", Crew::Threads, "age-partitioned", LONG),
        commuting("two processes on age-partitioned", Crew::Processes, "age-partitioned", LONG),
    ];
    SAMPLES.into_iter().map(alone).chain(together).collect()
});

/// Returns the options that are fixed at creation.
fn kept() -> Options {
    Options::new().hash_seed(4711).stripes(4).block_bytes(2048).clock(Clock::stream())
}

impl Scene {
    /// Returns the scene of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SCENES.iter().find(|scene| scene.name == name)
    }

    /// Returns the kind.
    pub fn spec(&self) -> Any {
        self.sample.spec()
    }

    /// Returns the number of streams of operations.
    pub fn streams(&self) -> usize {
        if self.crew == Crew::One { 1 } else { 2 }
    }

    /// Returns the operations of the batch that contains this one, if it is in a batch.
    pub fn batch(&self, number: u64) -> Option<Range<u64>> {
        let chunk = number / CHUNK;
        let drawn = mix(!chunk);
        let first = chunk * CHUNK + drawn / 2 % (CHUNK / 2);
        let most = if (drawn / 64).is_multiple_of(8) { CHUNK / 2 } else { 6 };
        let next = first + 1 + drawn / 1024 % most;
        let removal = (first..next).find(|&number| self.sample.is_removal(number));
        let batch = first..removal.unwrap_or(next);
        (drawn.is_multiple_of(2) && batch.contains(&number)).then_some(batch)
    }

    /// Returns the first number from this one on that is not inside a batch.
    pub fn boundary(&self, number: u64) -> u64 {
        let inside = self.batch(number).filter(|batch| batch.start < number);
        inside.map_or(number, |batch| batch.end)
    }

    /// Runs the operation of this number, or the batch that begins with it. Returns the number of
    /// the next.
    pub fn run(&self, filter: &Filter, stream: usize, number: u64, durability: Durability) -> u64 {
        let Some(numbers) = self.batch(number) else {
            self.operate(filter, stream, number, durability);
            return number + 1;
        };
        let mut batch = Batch::new(filter.call().durability(durability));
        batch.set_position(stream as u64, numbers.end).expect("a position");
        for number in numbers.clone() {
            let added = self
                .sample
                .add(&mut batch, number, time(number), |number| self.key(stream, number));
            added.expect("an operation");
        }
        batch.commit().expect("a batch");
        numbers.end
    }

    /// Runs the operation of this number alone, and sets the position after the last one of a
    /// batch; each operation leaves one record.
    pub fn operate(&self, filter: &Filter, stream: usize, number: u64, durability: Durability) {
        let call = filter.call().durability(durability);
        let timed = call.time(time(number));
        let done = self.sample.operate(timed, number, |number| self.key(stream, number));
        done.expect("an operation");
        if self.batch(number).is_some_and(|batch| batch.end == number + 1) {
            let mut last = Batch::new(call);
            last.set_position(stream as u64, number + 1).expect("a position");
            last.commit().expect("a position");
        }
    }

    /// Returns the key of a stream's operation. One stream repeats some keys; two streams never
    /// share a key.
    pub fn key(&self, stream: usize, number: u64) -> [u8; 8] {
        let alone = self.crew == Crew::One;
        let key = if alone { mix(number) % 50_000 } else { number * 2 + stream as u64 };
        key.to_le_bytes()
    }

    /// Returns the size of segments of a recording's filter.
    pub fn segment_bytes(seed: u64) -> u64 {
        [4 << 10, 4 << 10, 16 << 10][Random::new(mix(seed)).below(3) as usize]
    }

    /// Returns the options with which a recording opens its filter.
    pub fn options(random: &mut Random) -> Options {
        kept()
            .durability(Durability::Interval(Duration::from_millis(3)))
            .checkpoint_bytes(32 << 10)
            .background(random.below(2) == 0)
    }

    /// Returns the options with which a filter is checked after a power cut, and those of a filter
    /// in memory with the same digest.
    pub fn plain_options() -> Options {
        kept().durability(Durability::Never).background(false)
    }
}

/// Returns the time of an operation: 300 operations each at 100,000, 10,000 and 1000 per second in
/// turn, so that banks open and close.
fn time(number: u64) -> Timestamp {
    let (turn, rest) = (number / 900, number % 900);
    let within = match rest / 300 {
        0 => rest * 10,
        1 => 3_000 + (rest - 300) * 100,
        _ => 33_000 + (rest - 600) * 1000,
    };
    Timestamp::from_unix_micros(1_700_000_000_000_000 + turn * 333_000 + within)
}
