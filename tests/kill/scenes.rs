//! What the children do: kinds with small windows, small segments and frequent checkpoints, so that steps, banks,
//! segment changes and snapshots are under way at every moment.

use crate::kinds::{SAMPLES, Sample};
use crate::random::mix;
use ebbtide::{Any, Clock, Downtime, Durability, Filter, Options, Timestamp};
use std::sync::LazyLock;
use std::time::Duration;

/// Who writes checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoints {
    /// The thread that inserts, after so many operations; there is no background thread.
    Inline(u64),
    /// The background thread.
    Background,
    /// And another one that does nothing else.
    Always,
}

/// One way of using a filter.
#[derive(Debug)]
pub struct Scene {
    /// What it is called, unique.
    pub name: &'static str,
    sample: Sample,
    segment_bytes: u64,
    durability: Durability,
    downtime: Downtime,
    /// Who writes checkpoints, next to the background thread if there is one.
    pub checkpoints: Checkpoints,
    /// One, or two.
    pub threads: usize,
    /// Whether the system's clock gives the times.
    pub clocked: bool,
    /// The most operations of each thread between two kills.
    pub most: u64,
}

/// A kind of bits, whose keys weigh nothing.
const fn bits(kind: &'static str, parameters: &'static [(&'static str, &'static str)]) -> Sample {
    Sample { name: kind, kind, parameters, heaviest: 1, removes: false }
}

/// One thread, times given, nothing in the background: the state is a function of how many operations there were. These, and
/// one for each kind.
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

/// Two threads whose operations commute, for a generation is 60,000 inserts and none ends: the state is a function of
/// which operations there were.
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
    // A record that a snapshot has seen and the log tells again must not count twice.
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

/// Two threads with events and a background thread: what an insert meets depends on who comes first, which only the log
/// knows.
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

/// All scenes of one thread.
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
    /// The scene of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        let mut all = ALL_EXACT.iter().chain(&UNORDERED).chain(&LOOSE);
        all.find(|scene| scene.name == name)
    }

    /// The kind.
    pub fn spec(&self) -> Any {
        self.sample.spec()
    }

    /// The operation of this number; each leaves one record.
    pub fn operate(&self, filter: &Filter, thread: usize, number: u64) {
        let call = filter.call();
        let call = self.time(number).map_or(call, |time| call.time(time));
        let done = self.sample.operate(call, number, |number| self.key(thread, number));
        done.expect("an operation");
    }

    /// The settings that children use.
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

    /// The settings of a filter in memory that has the same digest.
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

    /// The key of a thread's operation. One thread repeats keys now and then; two never meet.
    pub fn key(&self, thread: usize, number: u64) -> [u8; 8] {
        let key = if self.threads == 1 { mix(number) % 50_000 } else { number * 2 + thread as u64 };
        key.to_le_bytes()
    }

    /// Whether no key leaves the window during the test.
    pub fn keeps_all(&self) -> bool {
        self.clocked || self.sample.kind == "bloom"
    }

    /// The time of a thread's operation, if it is given: in turns 1000 operations each at 100,000, 10,000 and 1000 a
    /// second, so that banks open and close.
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
