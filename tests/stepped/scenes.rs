//! What is killed or stopped: kinds with small windows and blocks, and where the operation under test stands.

use crate::random::mix;
use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Result, Timestamp};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// The operation under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An insert.
    Insert,
    /// A checkpoint.
    Checkpoint,
    /// A sync.
    Sync,
}

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Anywhere.
    Anywhere,
    /// It is the insert that needs a step.
    Step,
    /// It is the insert after one: columns are recycled.
    AfterStep,
    /// It is the insert with which the number of banks changes.
    Banks,
    /// It is the insert that finds no room in the log.
    Segment,
    /// It is the insert after a silence longer than the window: a step that skips generations.
    Silence,
}

impl Aim {
    /// Whether it is found by trying on a copy.
    pub fn needs_copies(self) -> bool {
        matches!(self, Self::Step | Self::AfterStep | Self::Banks)
    }
}

/// One way of using a filter.
#[derive(Debug)]
pub struct Scene {
    /// What `--path` calls it, unique.
    pub path: &'static str,
    kind: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    segment_bytes: u64,
    /// What is done while instructions are counted.
    pub operation: Operation,
    /// When.
    pub aim: Aim,
    /// Instructions from kill to kill, if not given: some 10 s for a scene. (Of who repairs: one of so many pairs.)
    pub every: usize,
    /// How many of the latest keys are certainly in the window.
    keeps: u64,
    /// Whether who repairs is killed too.
    pub repair: bool,
    /// Shares of the keys.
    stripes: u32,
}

/// Fixed, so that [`Scene::stripe`] is known.
const HASH_SEED: u64 = 4711;

const LONG: &[(&str, &str)] =
    &[("window-items", "20000"), ("k", "12"), ("l", "10"), ("words", "512")];
const SHORT: &[(&str, &str)] =
    &[("window-items", "160"), ("k", "12"), ("l", "10"), ("generation", "16"), ("words", "512")];
const MIDDLE: &[(&str, &str)] =
    &[("window-items", "1600"), ("k", "12"), ("l", "10"), ("generation", "160"), ("words", "5120")];
/// Inserts from silence to silence: more than a round has after the one under test.
pub const SILENCES: u64 = 100;
const SILENCE: Duration = Duration::from_millis(1200);

/// In microseconds, and as a parameter.
const WINDOW: u64 = 500_000;
const TIMED: &[(&str, &str)] = &[("window", "500000"), ("fpr", "0.0001"), ("rate", "100")];

const COUNTED: &[(&str, &str)] = &[("capacity", "2000"), ("fpr", "0.01")];
/// A key is there for many halvings more than its window has.
const HALVED: &[(&str, &str)] =
    &[("capacity", "2000"), ("fpr", "0.01"), ("lambda", "0.5"), ("epoch", "200000")];
const DRAWN: &[(&str, &str)] = &[("cells", "4096"), ("max", "7"), ("K", "4"), ("P", "12")];

const PLAIN: Scene = Scene {
    path: "insert",
    kind: "age-partitioned",
    parameters: LONG,
    segment_bytes: 64 << 10,
    operation: Operation::Insert,
    aim: Aim::Anywhere,
    every: 1,
    keeps: 64,
    repair: false,
    stripes: 1,
};

/// All of them.
pub const SCENES: [Scene; 12] = [
    PLAIN,
    Scene { path: "shift", parameters: SHORT, aim: Aim::Step, every: 101, ..PLAIN },
    Scene { path: "catch-up", parameters: SHORT, aim: Aim::AfterStep, every: 5, ..PLAIN },
    Scene {
        path: "bank",
        kind: "time-limited",
        parameters: TIMED,
        aim: Aim::Banks,
        every: 301,
        keeps: 32,
        ..PLAIN
    },
    Scene { path: "append", segment_bytes: 4 << 10, aim: Aim::Segment, every: 101, ..PLAIN },
    Scene { path: "checkpoint", operation: Operation::Checkpoint, every: 301, ..PLAIN },
    Scene { path: "sync", operation: Operation::Sync, every: 5, ..PLAIN },
    Scene { path: "repair", every: 1, repair: true, ..PLAIN },
    Scene {
        path: "silence",
        kind: "time-limited",
        parameters: TIMED,
        aim: Aim::Silence,
        every: 301,
        keeps: 20,
        ..PLAIN
    },
    // Kinds whose operations are taken back before they are done again.
    Scene { path: "count", kind: "counting", parameters: COUNTED, every: 5, ..PLAIN },
    // All of a block changes.
    Scene {
        path: "halving",
        kind: "decaying",
        parameters: HALVED,
        aim: Aim::Step,
        every: 31,
        keeps: 32,
        ..PLAIN
    },
    Scene { path: "draws", kind: "stable", parameters: DRAWN, every: 11, keeps: 0, ..PLAIN },
];

/// Stripes where the victim is stopped: it may hold up the keys of one.
const MANY: u32 = 16;

/// Those in which the victim is stopped. (Where a time-limited filter's victim holds stripe 0, others wait for it.)
pub const STOPS: [Scene; 6] = [
    Scene { path: "stopped-insert", stripes: MANY, ..SCENES[0] },
    // Others do without the next generation for as many inserts as one takes.
    Scene { path: "stopped-shift", stripes: MANY, parameters: MIDDLE, ..SCENES[1] },
    Scene { path: "stopped-catch-up", stripes: MANY, ..SCENES[2] },
    Scene { path: "stopped-append", stripes: MANY, ..SCENES[4] },
    Scene { path: "stopped-checkpoint", stripes: MANY, ..SCENES[5] },
    Scene { path: "stopped-sync", stripes: MANY, ..SCENES[6] },
];

impl Scene {
    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        const { &SCENES }.iter().chain(const { &STOPS })
    }

    /// The scene of this path.
    pub fn named(path: &str) -> Option<&'static Self> {
        Self::all().find(|scene| scene.path == path)
    }

    /// The kind.
    pub fn spec(&self) -> Any {
        let pairs = self.parameters.iter();
        Any::new(
            self.kind,
            pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value)),
        )
    }

    /// The settings of every handle.
    pub fn options(&self) -> Options {
        Options::new()
            .hash_seed(HASH_SEED)
            .stripes(self.stripes)
            .block_bytes(512)
            .segment_bytes(self.segment_bytes)
            .durability(Durability::Never)
            .background(false)
            .clock(Clock::stream())
    }

    /// Records in a segment.
    pub fn segment_records(&self) -> u64 {
        self.segment_bytes / 32
    }

    /// Opens the filter, whoever else has it open.
    pub fn open(&self, dir: &Path) -> Result<Filter> {
        Filter::open(dir, self.options())
    }

    /// The key of an insert.
    pub fn key(&self, number: u64) -> [u8; 8] {
        mix(number).to_le_bytes()
    }

    /// Which share of the keys that of an insert belongs to, as docs/format.md has it.
    pub fn stripe(&self, number: u64) -> u32 {
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&self.key(number), HASH_SEED);
        ((u128::from(hash) * u128::from(self.stripes)) >> 64) as u32
    }

    /// The time of an insert: 2000 in turns at 50,000 and at 1000 a second, so that banks open and close, or with
    /// silences between. Kinds without time do not mind.
    fn time(&self, number: u64) -> Timestamp {
        let (turn, rest) = (number / 4000, number % 4000);
        let within = if rest < 2000 { rest * 20 } else { 40_000 + (rest - 2000) * 1000 };
        let turns = Duration::from_micros(2_040_000) * turn as u32;
        let silences = if self.aim == Aim::Silence { number / SILENCES } else { 0 };
        let silent = SILENCE.as_micros() as u64 * silences;
        let micros = 1_700_000_000_000_000 + turns.as_micros() as u64 + within + silent;
        Timestamp::from_unix_micros(micros)
    }

    /// Inserts the key of this number.
    pub fn insert(&self, filter: &Filter, number: u64) -> Result<()> {
        let inserted = filter.call().time(self.time(number)).insert(self.key(number))?;
        assert!(inserted, "{number} is refused as too late");
        Ok(())
    }

    /// Inserts the key of this number, and returns when it is durable.
    pub fn insert_durably(&self, filter: &Filter, number: u64) -> Result<()> {
        let call = filter.call().time(self.time(number)).durability(Durability::Always);
        let inserted = call.insert(self.key(number))?;
        assert!(inserted, "{number} is refused as too late, beside a victim");
        Ok(())
    }

    /// Whether the key of this number is there, by time to the end of its window.
    pub fn contains(&self, filter: &Filter, number: u64) -> bool {
        let last = self.time(number).as_unix_micros() + WINDOW - 1;
        let call = filter.call().time(Timestamp::from_unix_micros(last));
        call.contains(self.key(number)).expect("an answer")
    }

    /// The latest keys, all of them in the window, where the next insert is `next`.
    pub fn latest(&self, next: u64) -> Range<u64> {
        // What came before a silence is gone.
        let spoken = if self.aim == Aim::Silence { (next - 1) / SILENCES * SILENCES } else { 0 };
        next.saturating_sub(self.keeps).max(spoken)..next
    }

    /// Does the operation under test.
    pub fn operate(&self, filter: &Filter, number: u64) -> Result<()> {
        match self.operation {
            Operation::Insert => self.insert(filter, number),
            Operation::Checkpoint => filter.checkpoint().map(drop),
            Operation::Sync => filter.sync(),
        }
    }
}
