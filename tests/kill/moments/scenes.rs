//! The workloads of the children: kinds with small windows, small segments and frequent
//! checkpoints, so that steps, banks, segment changes and snapshots are in progress at every
//! moment.

use ebbtide::{Any, Clock, Downtime, Durability, Filter, Options, Timestamp};
use ebbtide_testkit::random::mix;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::sync::LazyLock;
use std::time::Duration;

/// The writer of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoints {
    /// The inserting thread, after this many operations; there is no background thread.
    Inline(u64),
    /// The background thread.
    Background,
    /// The background thread, and another thread that does nothing else.
    Always,
}

/// A workload.
#[derive(Debug)]
pub struct Scene {
    /// The unique name of the workload.
    pub name: &'static str,
    sample: Sample,
    segment_bytes: u64,
    durability: Durability,
    downtime: Downtime,
    /// The writer of checkpoints, in addition to the background thread if there is one.
    pub checkpoints: Checkpoints,
    /// The number of threads: one or two.
    pub threads: usize,
    /// Whether the system clock gives the times.
    pub clocked: bool,
    /// The largest number of operations of each thread between two kills.
    pub most: u64,
}

/// A kind without weights.
const fn bits(kind: &'static str, parameters: &'static [(&'static str, &'static str)]) -> Sample {
    Sample { name: kind, kind, parameters, heaviest: 1, removes: false }
}

/// One thread, given times, no background work: the state is a function of the number of
/// operations. Besides these workloads there is one for each kind.
const EXACT: [Scene; 4] = [
    Scene {
        name: "age-partitioned, long",
        sample: bits("age-partitioned", &[("window-items", "2000"), ("fpr", "0.01")]),
        segment_bytes: 4 << 10,
        durability: Durability::Never,
        downtime: Downtime::Age,
        checkpoints: Checkpoints::Inline(500),
        threads: 1,
        clocked: false,
        most: 20_000,
    },
    Scene {
        name: "time-limited, long",
        sample: bits("time-limited", &[("window", "500000"), ("fpr", "0.01"), ("rate", "100")]),
        segment_bytes: 16 << 10,
        durability: Durability::Never,
        downtime: Downtime::Freeze,
        checkpoints: Checkpoints::Inline(3000),
        threads: 1,
        clocked: false,
        most: 20_000,
    },
    Scene {
        name: "age-partitioned, durable",
        sample: bits("age-partitioned", &[("window-items", "300"), ("fpr", "0.01")]),
        segment_bytes: 4 << 10,
        durability: Durability::Always,
        downtime: Downtime::Freeze,
        checkpoints: Checkpoints::Inline(70),
        threads: 1,
        clocked: false,
        most: 20_000,
    },
    Scene {
        name: "time-limited, many checkpoints",
        sample: bits("time-limited", &[("window", "200000"), ("fpr", "0.01"), ("rate", "100")]),
        segment_bytes: 64 << 10,
        durability: Durability::Never,
        downtime: Downtime::Age,
        checkpoints: Checkpoints::Inline(40),
        threads: 1,
        clocked: false,
        most: 20_000,
    },
];

/// Two threads whose operations commute, because a generation is 60,000 inserts and none ends: the
/// state is a function of the set of operations.
pub const UNORDERED: [Scene; 3] = [
    Scene {
        name: "two threads",
        sample: bits("age-partitioned", &[("window-items", "600000"), ("k", "12"), ("l", "10")]),
        segment_bytes: 4 << 10,
        durability: Durability::Interval(Duration::from_millis(1)),
        downtime: Downtime::Age,
        checkpoints: Checkpoints::Background,
        threads: 2,
        clocked: false,
        most: 2500,
    },
    Scene {
        name: "two threads, many checkpoints",
        sample: bits("age-partitioned", &[("window-items", "600000"), ("k", "12"), ("l", "10")]),
        segment_bytes: 16 << 10,
        durability: Durability::Never,
        downtime: Downtime::Freeze,
        checkpoints: Checkpoints::Always,
        threads: 2,
        clocked: false,
        most: 2500,
    },
    // A record that a snapshot includes and the log contains must not count twice.
    Scene {
        name: "counts by two threads, many checkpoints",
        sample: bits("counting", &[("capacity", "20000"), ("fpr", "0.0001")]),
        segment_bytes: 16 << 10,
        durability: Durability::Never,
        downtime: Downtime::Age,
        checkpoints: Checkpoints::Always,
        threads: 2,
        clocked: false,
        most: 2500,
    },
];

/// Two threads with events and a background thread: the effect of an insert depends on the order of
/// the threads, which only the log records.
pub const LOOSE: [Scene; 4] = [
    Scene {
        name: "two threads with shifts",
        sample: bits("age-partitioned", &[("window-items", "500"), ("fpr", "0.01")]),
        segment_bytes: 4 << 10,
        durability: Durability::Interval(Duration::from_millis(1)),
        downtime: Downtime::Age,
        checkpoints: Checkpoints::Always,
        threads: 2,
        clocked: false,
        most: 10_000,
    },
    Scene {
        name: "two threads by the clock",
        sample: bits("time-limited", &[("window", "600000000"), ("fpr", "0.01"), ("rate", "0.1")]),
        segment_bytes: 8 << 10,
        durability: Durability::Interval(Duration::from_millis(2)),
        downtime: Downtime::Freeze,
        checkpoints: Checkpoints::Background,
        threads: 2,
        clocked: true,
        most: 5000,
    },
    Scene {
        name: "two threads by the clock, durable",
        sample: bits("time-limited", &[("window", "600000000"), ("fpr", "0.01"), ("rate", "0.1")]),
        segment_bytes: 4 << 10,
        durability: Durability::Always,
        downtime: Downtime::Age,
        checkpoints: Checkpoints::Always,
        threads: 2,
        clocked: true,
        most: 5000,
    },
    Scene {
        name: "bloom by two threads",
        sample: bits("bloom", &[("capacity", "20000"), ("fpr", "0.0001")]),
        segment_bytes: 4 << 10,
        durability: Durability::Interval(Duration::from_millis(1)),
        downtime: Downtime::Age,
        checkpoints: Checkpoints::Always,
        threads: 2,
        clocked: false,
        most: 2500,
    },
];

/// All workloads of one thread.
pub static ALL_EXACT: LazyLock<Vec<Scene>> = LazyLock::new(|| {
    let of_kind = |sample: Sample| Scene {
        name: sample.name,
        sample,
        segment_bytes: 4 << 10,
        durability: Durability::Never,
        downtime: Downtime::Age,
        checkpoints: Checkpoints::Inline(700),
        threads: 1,
        clocked: false,
        most: 20_000,
    };
    EXACT.into_iter().chain(SAMPLES.map(of_kind)).collect()
});

impl Scene {
    /// Returns the workload of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        let mut all = ALL_EXACT.iter().chain(&UNORDERED).chain(&LOOSE);
        all.find(|scene| scene.name == name)
    }

    /// Returns the kind.
    pub fn spec(&self) -> Any {
        self.sample.spec()
    }

    /// Runs the operation of this number; each leaves one record.
    pub fn operate(&self, filter: &Filter, thread: usize, number: u64) {
        let call = filter.call();
        let call = self.time(number).map_or(call, |time| call.time(time));
        let done = self.sample.operate(call, number, |number| self.key(thread, number));
        done.expect("an operation");
    }

    /// Returns the options of the children.
    pub fn options(&self) -> Options {
        let clock = if self.clocked { Clock::system() } else { Clock::stream() };
        self.common_options()
            .segment_bytes(self.segment_bytes)
            .durability(self.durability)
            .downtime(self.downtime)
            .checkpoint_bytes(32 << 10)
            .background(!matches!(self.checkpoints, Checkpoints::Inline(_)))
            .clock(clock)
    }

    /// Returns the options of a filter in memory with the same digest.
    pub fn reference_options(&self) -> Options {
        self.common_options()
            .segment_bytes(1 << 20)
            .durability(Durability::Never)
            .background(false)
            .clock(Clock::stream())
    }

    fn common_options(&self) -> Options {
        Options::new().hash_seed(4711).stripes(4).block_bytes(2048)
    }

    /// Returns the key of a thread's operation. One thread repeats some keys; two threads never
    /// share a key.
    pub fn key(&self, thread: usize, number: u64) -> [u8; 8] {
        let key = if self.threads == 1 { mix(number) % 50_000 } else { number * 2 + thread as u64 };
        key.to_le_bytes()
    }

    /// Returns whether no key leaves the window during the test.
    pub fn keeps_all(&self) -> bool {
        self.clocked || self.sample.kind == "bloom"
    }

    /// Returns the time of a thread's operation, if it is given: 1000 operations each at 100,000,
    /// 10,000 and 1000 per second in turn, so that banks open and close.
    pub fn time(&self, number: u64) -> Option<Timestamp> {
        let (turn, rest) = (number / 3000, number % 3000);
        let within = match rest / 1000 {
            0 => rest * 10,
            1 => 10_000 + (rest - 1000) * 100,
            _ => 110_000 + (rest - 2000) * 1000,
        };
        let micros = 1_700_000_000_000_000 + turn * 1_110_000 + within;
        (!self.clocked).then(|| Timestamp::from_unix_micros(micros))
    }
}
