//! The workloads whose processes are killed or stopped: kinds with small windows and blocks, and
//! the conditions of the operation under test.

use super::children::Plan;
use ebbtide::{
    Any, Call, Claim, Clock, Durability, Entry, Filter, Options, Parameters, Result, Timestamp,
};
use ebbtide_testkit::random::mix;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// The operation under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An insert.
    Insert,
    /// A check and insert of an absent key.
    Check,
    /// The commit of a batch of [`BATCH`] keys in as many stripes, and of a position.
    Batch,
    /// A claim of an absent key.
    Claim,
    /// The confirmation of a claim.
    Confirm,
    /// The end of a claim without an insert.
    Release,
    /// The renewal of a claim.
    Extend,
    /// A removal of the key that was inserted to warm up.
    Remove,
    /// A clear.
    Clear,
    /// A checkpoint.
    Checkpoint,
    /// A sync.
    Sync,
    /// Opening: attaching to a filter in use, or recovering one whose process was killed.
    Open,
    /// Closing: with other handles open, or as the last handle.
    Close,
}

impl Operation {
    /// Returns the number of keys that it inserts.
    pub fn inserts(self) -> u64 {
        match self {
            Self::Insert | Self::Check | Self::Confirm => 1,
            Self::Batch => BATCH,
            _ => 0,
        }
    }

    /// Returns whether it changes claims.
    pub fn is_of_claims(self) -> bool {
        self == Self::Claim || self.needs_claim()
    }

    /// Returns whether it changes a claim that was given before.
    pub fn needs_claim(self) -> bool {
        matches!(self, Self::Confirm | Self::Release | Self::Extend)
    }

    /// Returns the number of keys that belong to it.
    pub fn keys(self) -> u64 {
        self.inserts().max(1)
    }
}

/// The keys of a batch.
pub const BATCH: u64 = 3;
/// Longer than a run.
const LEASE: Duration = Duration::from_secs(86_400);
/// The source whose position a batch sets, to the number after its last key.
const SOURCE: u64 = 7;

/// The condition of the operation.
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
    /// It is the insert that finds no space in the log.
    Segment,
    /// It is the insert after a pause longer than the window: a step that skips generations.
    Silence,
    /// It is the insert with which a block changes its size.
    Room,
    /// It follows some inserts after a checkpoint.
    Later,
}

impl Aim {
    /// Returns whether the insert is determined on a copy.
    pub fn needs_copies(self) -> bool {
        matches!(self, Self::Step | Self::AfterStep | Self::Banks | Self::Room)
    }
}

/// A workload.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    /// The unique name for `--path`.
    pub path: &'static str,
    /// The kind of filter.
    pub kind: &'static str,
    /// The parameters.
    pub parameters: &'static [(&'static str, &'static str)],
    /// The bytes of a segment.
    pub segment_bytes: u64,
    /// The operation under test.
    pub operation: Operation,
    /// The condition of the operation.
    pub aim: Aim,
    /// The default number of instructions from kill to kill: some 10 s for a scene. (For repairing
    /// victims: one of this many pairs.)
    pub every: usize,
    /// The number of latest keys that are certainly present; 0 for kinds that may lose a key at
    /// once.
    pub keeps: u64,
    /// The number of victims, killed one after the other: from the second on they repair the
    /// changes of the one before.
    pub victims: u64,
    /// The largest weight of a key, if the kind uses weights.
    pub heaviest: u64,
    /// The number of stripes.
    pub stripes: u32,
}

/// Fixed, so that [`Scene::stripe`] can be computed.
const HASH_SEED: u64 = 4711;

/// The number of inserts from pause to pause: more than a round makes after the one under test.
pub const SILENCES: u64 = 100;
const SILENCE: Duration = Duration::from_millis(1200);

/// The number of inserts of equal weight, where weights grow up to the largest of one insert.
const HEAVIER: u64 = 1000;

/// In microseconds.
const WINDOW: u64 = 500_000;

impl Scene {
    /// Returns whether its path has about a hundred thousand instructions or more, each of which is
    /// stepped through once before the first kill.
    pub fn is_long(&self) -> bool {
        use Operation::{Batch, Checkpoint, Clear, Close, Open};
        matches!(self.operation, Open | Close | Checkpoint)
            || (self.operation == Batch && self.aim == Aim::Banks)
            || (self.operation == Clear && self.victims > 1)
            || self.every > 9000
    }

    /// Returns the kind.
    pub fn spec(&self) -> Any {
        let pairs = self.parameters.iter();
        Any::new(
            self.kind,
            pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value)),
        )
    }

    /// Returns the options of every handle.
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

    /// Returns the number of records in a segment.
    pub fn segment_records(&self) -> u64 {
        self.segment_bytes / 32
    }

    /// Opens the filter, with or without other open handles.
    pub fn open(&self, dir: &Path) -> Result<Filter> {
        Filter::open(dir, self.options())
    }

    /// Returns the key of an insert. Where batches are tested, consecutive keys are in different
    /// stripes.
    pub fn key(&self, number: u64) -> [u8; 8] {
        let keys = (0..).map(|again: u64| mix(number ^ again << 48).to_le_bytes());
        let stripe = (number % u64::from(self.stripes)) as u32;
        let is_batch = self.operation == Operation::Batch;
        keys.into_iter()
            .find(|key| !is_batch || self.stripe_of(key) == stripe)
            .expect("one of all numbers")
    }

    /// Returns the stripe of an insert's key.
    pub fn stripe(&self, number: u64) -> u32 {
        self.stripe_of(&self.key(number))
    }

    /// Returns the stripe of a key, as docs/format.md defines it.
    fn stripe_of(&self, key: &[u8]) -> u32 {
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(key, HASH_SEED);
        ((u128::from(hash) * u128::from(self.stripes)) >> 64) as u32
    }

    /// Returns the position that a filter has, the number after the last key of the last batch; 0
    /// without one.
    pub fn position(&self, filter: &Filter) -> u64 {
        filter.position(SOURCE).expect("an answer").unwrap_or(0)
    }

    fn commit(&self, filter: &Filter, first: u64) -> Result<()> {
        let mut batch = filter.batch();
        for number in first..first + BATCH {
            let entry = Entry::new(self.key(number)).time(self.time(number));
            batch.check_and_insert_entry(&entry)?;
        }
        batch.set_position(SOURCE, first + BATCH)?;
        batch.commit()
    }

    /// Returns the time of an insert: alternately 2000 at 50,000 and at 1000 per second, so that
    /// banks open and close, or with pauses in between. Kinds without time ignore it.
    fn time(&self, number: u64) -> Timestamp {
        let (turn, rest) = (number / 4000, number % 4000);
        let within = if rest < 2000 { rest * 20 } else { 40_000 + (rest - 2000) * 1000 };
        let turns = Duration::from_micros(2_040_000) * turn as u32;
        let silences = if self.aim == Aim::Silence { number / SILENCES } else { 0 };
        let silent = SILENCE.as_micros() as u64 * silences;
        let micros = 1_700_000_000_000_000 + turns.as_micros() as u64 + within + silent;
        Timestamp::from_unix_micros(micros)
    }

    fn call<'a>(&self, filter: &'a Filter, number: u64) -> Call<'a> {
        let call = filter.call().time(self.time(number));
        match self.aim {
            // Increasing weights, so that there is always a block whose counters get wider.
            Aim::Room => call.weight(f64::from(1 << (number / HEAVIER % 24))),
            _ if self.heaviest > 1 => call.weight((1 + number * 7 % self.heaviest) as f64),
            _ => call,
        }
    }

    /// Inserts the key of this number.
    pub fn insert(&self, filter: &Filter, number: u64) -> Result<()> {
        let inserted = self.call(filter, number).insert(self.key(number))?;
        assert!(inserted, "{number} is refused as too late");
        Ok(())
    }

    /// Inserts the key of this number, and returns when it is durable.
    pub fn insert_durably(&self, filter: &Filter, number: u64) -> Result<()> {
        let call = self.call(filter, number).durability(Durability::Always);
        let inserted = call.insert(self.key(number))?;
        assert!(inserted, "{number} is refused as too late, beside a victim");
        Ok(())
    }

    /// Returns whether the key of this number is present, at the end of its window.
    pub fn contains(&self, filter: &Filter, number: u64) -> bool {
        let last = self.time(number).as_unix_micros() + WINDOW - 1;
        let call = filter.call().time(Timestamp::from_unix_micros(last));
        call.contains(self.key(number)).expect("an answer")
    }

    /// Returns the latest keys, all of them in the window, if the next insert is `next`.
    pub fn latest(&self, next: u64) -> Range<u64> {
        // Keys before a pause have expired.
        let spoken = if self.aim == Aim::Silence { (next - 1) / SILENCES * SILENCES } else { 0 };
        next.saturating_sub(self.keeps).max(spoken)..next
    }

    /// Claims the key of this number. Returns the token; `None` if it is not to be had.
    pub fn claim(&self, filter: &Filter, number: u64) -> Result<Option<u64>> {
        match self.call(filter, number).claim(self.key(number), LEASE)? {
            Claim::Yours(lease) => Ok(Some(lease.into_token())),
            Claim::Seen | Claim::InProgress { .. } => Ok(None),
        }
    }

    /// Ends the claim of the key of this number, if there is one.
    pub fn end_claim(&self, filter: &Filter, number: u64) -> Result<bool> {
        filter.end_claim(self.key(number))
    }

    /// Runs the operation under test. The handle is not dropped afterwards: dropping is a separate
    /// operation. `token` is that of the claim, if it needs one.
    pub fn operate(
        &self,
        filter: Option<Filter>,
        dir: &Path,
        plan: &Plan,
        token: u64,
    ) -> Result<()> {
        let Some(filter) = filter else { return self.open(dir).map(std::mem::forget) };
        let number = plan.tested;
        match self.operation {
            Operation::Insert => self.insert(&filter, number)?,
            Operation::Check => {
                self.call(&filter, number).check_and_insert(self.key(number))?;
            }
            Operation::Batch => self.commit(&filter, number)?,
            Operation::Claim => drop(self.claim(&filter, number)?),
            Operation::Confirm => {
                let lease = filter.resume_claim(self.key(number), token);
                self.call(&filter, number).confirm(&lease)?;
                std::mem::forget(lease);
            }
            Operation::Release => {
                let lease = filter.resume_claim(self.key(number), token);
                assert!(lease.release()?, "{number} is claimed");
            }
            Operation::Extend => {
                let lease = filter.resume_claim(self.key(number), token);
                lease.extend(LEASE)?;
                std::mem::forget(lease);
            }
            Operation::Remove => {
                let removed = self.call(&filter, plan.warm).remove(self.key(plan.warm))?;
                assert!(removed, "{} is present", plan.warm);
            }
            Operation::Clear => filter.clear()?,
            Operation::Checkpoint => drop(filter.checkpoint()?),
            Operation::Sync => filter.sync()?,
            Operation::Open => {}
            Operation::Close => return filter.close(),
        }
        std::mem::forget(filter);
        Ok(())
    }
}
