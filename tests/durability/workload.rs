//! Workloads on a recording disk, and the states that are correct afterwards.
//!
//! Operations are numbered, and each is a function of its number, so the state is a function of
//! their count. Some of them are a batch, which ends with a position: also a function of their
//! numbers. No state may contain a part of a batch. A workload has several lives. Each ends with a
//! clean close, or with the death of the process between two operations or during one, and the next
//! life opens the remaining files. Checkpoints, syncs, and sometimes a second handle occur in
//! between.

use ebbtide::{Batch, Call, Clock, Durability, Error, Filter, Options, Timestamp};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::fault::{Fault, Plan};
use ebbtide_testkit::crash::tape::{Tape, Told};
use ebbtide_testkit::prefix::{Checked, Operations, Oracle, State, in_memory, text};
use ebbtide_testkit::random::{Random, mix};
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The durability of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// Each operation before it returns.
    Always,
    /// One in seven, and all before it.
    Mixed,
    /// At syncs, as by a background thread.
    Interval,
    /// At checkpoints and closes only.
    Never,
}

/// The size of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The number of lives, at least one.
    pub lives: u64,
    /// The largest number of steps of a life.
    pub steps: u64,
    /// The number of checkpoints per thousand steps.
    pub checkpoints: u64,
    /// The number of checkpoints per thousand steps that find the disk full, and then find some
    /// space.
    pub full: u64,
    /// The number of syncs per thousand steps, where syncs occur.
    pub syncs: u64,
    /// The number of calls of a life before which the process may die.
    pub calls: u64,
    /// The largest number of operations between two inspections of the disk, in some cases;
    /// otherwise one.
    pub burst: u64,
    /// The largest number of operations without a sync, for any habit.
    pub unsynced: u64,
}

/// Operations of which some may be a batch.
const CHUNK: u64 = 64;
/// Sources with positions.
const SOURCES: u64 = 3;

/// Some hundred operations, over several segments.
pub const USUAL: Size = Size {
    lives: 4,
    steps: 250,
    checkpoints: 15,
    full: 8,
    syncs: 40,
    calls: 400,
    burst: 60,
    unsynced: u64::MAX,
};

/// One workload.
#[derive(Debug)]
pub struct Workload {
    seed: u64,
    /// The kind.
    pub sample: &'static Sample,
    /// The durability of operations.
    pub habit: Habit,
    options: Options,
    oracle: Oracle<Stream>,
}

/// The operations of a workload.
#[derive(Debug)]
struct Stream {
    seed: u64,
    sample: &'static Sample,
    /// The options of a filter in memory with the same digest.
    reference: Options,
}

impl Stream {
    /// Returns the operations of the batch that contains this one, if it is in a batch.
    fn batch(&self, number: u64) -> Option<Range<u64>> {
        let chunk = number / CHUNK;
        let drawn = mix(self.seed ^ mix(chunk ^ CHUNK));
        let first = chunk * CHUNK + drawn / 4 % (CHUNK / 2);
        let most = if (drawn / 64).is_multiple_of(8) { CHUNK / 2 } else { 6 };
        let next = first + 1 + drawn / 1024 % most;
        let removal = (first..next).find(|&number| self.sample.is_removal(number));
        let batch = first..removal.unwrap_or(next);
        (drawn.is_multiple_of(4) && batch.contains(&number)).then_some(batch)
    }

    /// Returns the batch that begins with this operation.
    fn batch_from(&self, number: u64) -> Option<Range<u64>> {
        self.batch(number).filter(|batch| batch.start == number)
    }

    // Some keys repeat.
    fn key(&self, number: u64) -> [u8; 8] {
        (mix(number ^ self.seed) % 600).to_le_bytes()
    }

    fn call<'a>(&self, filter: &'a Filter, durable: bool) -> Call<'a, Filter> {
        let call = filter.call();
        if durable { call.durability(Durability::Always) } else { call }
    }

    /// Runs the operation of a number, and sets the position after the last one of a batch.
    fn run(&self, filter: &Filter, number: u64, durable: bool) -> Result<(), Error> {
        let call = self.call(filter, durable);
        let time = Timestamp::from_unix_micros(Workload::time(number));
        self.sample.operate(call.time(time), number, |number| self.key(number))?;
        match self.batch(number).filter(|batch| batch.end == number + 1) {
            Some(batch) => {
                let mut last = Batch::new(call);
                last.set_position(batch.start % SOURCES, batch.end)?;
                last.commit()
            }
            None => Ok(()),
        }
    }

    /// Runs the operations of a batch as one.
    fn run_batch(&self, filter: &Filter, numbers: Range<u64>, durable: bool) -> Result<(), Error> {
        let mut batch = Batch::new(self.call(filter, durable));
        batch.set_position(numbers.start % SOURCES, numbers.end)?;
        for number in numbers {
            let time = Timestamp::from_unix_micros(Workload::time(number));
            self.sample.add(&mut batch, number, time, |number| self.key(number))?;
        }
        batch.commit()
    }
}

impl Operations for Stream {
    fn witness(&self) -> Filter {
        in_memory(self.sample.spec(), self.reference.clone())
    }

    fn operate(&self, filter: &Filter, number: u64) -> Result<(), Error> {
        self.run(filter, number, false)
    }
}

/// Turns a panic into an error, so that it is reported with its seed.
pub fn caught<T>(run: impl FnOnce() -> Checked<T>) -> Checked<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("a panic".to_owned()))
}

impl Workload {
    /// Creates the workload of this number.
    pub fn new(seed: u64, number: u64) -> Self {
        let sample = &const { &SAMPLES }[number as usize % SAMPLES.len()];
        let mut random = Random::new(mix(seed) ^ mix(number + 1));
        let habit = match random.below(8) {
            0 | 1 => Habit::Always,
            2 | 3 => Habit::Mixed,
            4..=6 => Habit::Interval,
            _ => Habit::Never,
        };
        let stripes = [1, 2, 4][random.below(3) as usize];
        let durability = match habit {
            Habit::Always => Durability::Always,
            Habit::Interval => Durability::Interval(Duration::from_millis(1)),
            Habit::Mixed | Habit::Never => Durability::Never,
        };
        let common = Options::new()
            .hash_seed(4711)
            .stripes(stripes)
            .block_bytes([512, 2048][random.below(2) as usize])
            .background(false)
            .clock(Clock::stream());
        let options = common.clone().segment_bytes(4 << 10).durability(durability);
        let reference = common.segment_bytes(1 << 20).durability(Durability::Never);
        let seed = random.below(u64::MAX);
        let oracle = Oracle::keeping_all(Stream { seed, sample, reference });
        Self { seed, sample, habit, options, oracle }
    }

    /// Returns a separate stream of random numbers.
    pub fn random(&self, of: u64) -> Random {
        Random::new(mix(self.seed ^ mix(of)))
    }

    /// Creates the filter.
    pub fn create(&self, disk: &CrashDisk) -> Result<Filter, Error> {
        let filter =
            Filter::create_on(Arc::new(disk.clone()), self.sample.spec(), self.options.clone())?;
        disk.tell_created();
        Ok(filter)
    }

    /// Opens the filter.
    pub fn open(&self, disk: &CrashDisk) -> Result<Filter, Error> {
        Filter::open_on(Arc::new(disk.clone()), self.options.clone())
    }

    /// Returns the time of an operation: alternately fast and slow, so that banks open and close;
    /// all times differ.
    pub fn time(number: u64) -> u64 {
        let (turn, rest) = (number / 150, number % 150);
        let within = match rest / 50 {
            0 => rest * 10,
            1 => 500 + (rest - 50) * 400,
            _ => 20_500 + (rest - 100) * 4000,
        };
        1_700_000_000_000_000 + turn * 221_000 + within
    }

    /// Returns the number of the operation that follows the operation or batch of this number.
    pub fn next(&self, number: u64) -> u64 {
        self.oracle.operations().batch_from(number).map_or(number + 1, |batch| batch.end)
    }

    /// Runs the operation of a number, or the batch that begins with it.
    pub fn operate(&self, filter: &Filter, number: u64, durable: bool) -> Result<(), Error> {
        let operations = self.oracle.operations();
        match operations.batch_from(number) {
            Some(batch) => operations.run_batch(filter, batch, durable),
            None => operations.run(filter, number, durable),
        }
    }

    /// Returns the options of every handle.
    pub fn options(&self) -> Options {
        self.options.clone()
    }

    /// Returns the state after this many operations.
    pub fn state(&mut self, after: u64) -> Checked<State> {
        self.oracle.state(after)
    }

    /// Opens the filter on a disk that is full for some allocation, and then no longer.
    fn open_on_full(&self, disk: &CrashDisk, random: &mut Random) -> Result<Filter, Error> {
        disk.plan(Some(Plan::new(Fault::NoSpace, 1 + random.below(8), false)));
        let opened = self.open(disk);
        disk.plan(None);
        match opened {
            Err(error) if error.is_full() => self.open(disk),
            opened => opened,
        }
    }

    /// Writes a checkpoint on a disk that is full for some allocation, and then no longer. Returns
    /// false if it failed.
    fn checkpoint_on_full(disk: &CrashDisk, filter: &Filter, random: &mut Random) -> Checked<bool> {
        let fault = [Fault::NoSpace, Fault::ShortWrite][random.below(2) as usize];
        disk.plan(Some(Plan::new(fault, 1 + random.below(3), false)));
        let written = filter.checkpoint();
        disk.plan(None);
        match written {
            // There was no other snapshot, and no log below this one.
            Err(error) if error.is_full() => Ok(false),
            written => {
                disk.tell_relieved();
                written.map(|_| true).map_err(text)
            }
        }
    }

    /// Returns how many operations a filter contains. The number must be in this range, and these
    /// must be the first operations.
    pub fn identify(&mut self, found: &Filter, least: u64, most: u64) -> Checked<u64> {
        let operations = found.stat().map_err(text)?.operations;
        let inside = self.oracle.operations().batch(operations);
        if let Some(batch) = inside.filter(|batch| batch.start < operations) {
            return Err(format!("it contains {operations} operations, part of batch {batch:?}"));
        }
        self.oracle.prefix(found, least..=most)
    }

    /// Opens the files after a crash and compares them with the acknowledgements. Returns `None` if
    /// the crash came before there was a filter.
    pub fn recover(
        &mut self,
        disk: &CrashDisk,
        least: u64,
        told: &Told,
    ) -> Checked<Option<(Filter, u64)>> {
        let opened = self.open(disk);
        self.compare(disk, opened, least, told)
    }

    /// Compares a filter opened after a crash with the acknowledgements.
    fn compare(
        &mut self,
        disk: &CrashDisk,
        opened: Result<Filter, Error>,
        least: u64,
        told: &Told,
    ) -> Checked<Option<(Filter, u64)>> {
        self.sound(disk)?;
        match opened {
            Ok(filter) => {
                let number = self.identify(&filter, least, told.most())?;
                // Recovered operations are durable: otherwise nothing could be built on them.
                disk.tell_created();
                disk.tell_durable(0, number, &[]);
                Ok(Some((filter, number)))
            }
            Err(Error::NotAFilter { .. }) if !told.created => Ok(None),
            Err(error) => Err(text(error)),
        }
    }

    /// Records a workload of this size.
    pub fn record(&mut self, size: Size) -> Checked<Arc<Tape>> {
        let mut random = self.random(0);
        let mut disk = CrashDisk::new();
        if random.below(8) == 0 {
            disk.die_after(random.below(100));
        }
        let created = self.create(&disk).map_err(text)?;
        let mut open = Some((created, 0));
        for life in 0..size.lives {
            if let Some(killed) = disk.left() {
                (disk, open) = (self.bury(&disk, open, killed), None);
            }
            let (filter, number) = match open.take() {
                Some(open) => open,
                None => {
                    let told = disk.told();
                    let full = told.created && random.below(6) == 0;
                    let opened =
                        if full { self.open_on_full(&disk, &mut random) } else { self.open(&disk) };
                    match self.compare(&disk, opened, told.returned[0], &told)? {
                        Some(open) => open,
                        None => (self.create(&disk).map_err(text)?, 0),
                    }
                }
            };
            if random.below(2) == 0 && life + 1 < size.lives {
                disk.die_after(random.below(size.calls));
            }
            let number = self.live(&disk, &filter, number, &mut random, size)?;
            let killed = match disk.left() {
                None if random.below(2) == 0 => {
                    Some(self.kill(&disk, &filter, number, &mut random)?)
                }
                left => left,
            };
            match killed {
                Some(killed) => disk = self.bury(&disk, Some((filter, number)), killed),
                None => {
                    filter.close().map_err(text)?;
                    disk.tell_durable(0, number, &[]);
                }
            }
        }
        self.sound(&disk)?;
        Ok(disk.end())
    }

    /// Checks that no violation occurred on a disk.
    pub fn sound(&self, disk: &CrashDisk) -> Checked<()> {
        let violations = disk.violations();
        if violations.is_empty() { Ok(()) } else { Err(violations.join("; ")) }
    }

    /// Returns the disk after the death of the process, between two operations or between the
    /// reservation of a record's slot and its publication.
    fn kill(
        &mut self,
        disk: &CrashDisk,
        filter: &Filter,
        number: u64,
        random: &mut Random,
    ) -> Checked<CrashDisk> {
        if self.habit == Habit::Always || random.below(3) > 0 {
            return Ok(disk.without_process());
        }
        disk.tell_begun(self.next(number));
        self.operate(filter, number, false).map_err(text)?;
        let killed = disk.without_process();
        killed.unpublish(Self::time(number));
        Ok(killed)
    }

    /// Ends the use of a disk whose process died, and drops its filter.
    fn bury(&self, disk: &CrashDisk, open: Option<(Filter, u64)>, killed: CrashDisk) -> CrashDisk {
        disk.end();
        drop(open);
        killed
    }

    /// Works on a filter, from this operation on, until the steps are done or the process has died.
    pub fn live(
        &mut self,
        disk: &CrashDisk,
        filter: &Filter,
        mut number: u64,
        random: &mut Random,
        size: Size,
    ) -> Checked<u64> {
        let second = (random.below(5) == 0).then(|| self.open(disk)).transpose().map_err(text)?;
        let mut undurable = Vec::new();
        for _ in 0..1 + random.below(size.steps) {
            if disk.has_left() {
                break;
            }
            let filter = second.as_ref().filter(|_| random.below(2) == 0).unwrap_or(filter);
            let chance = random.below(1000);
            let mut durable = true;
            if undurable.len() as u64 + size.burst > size.unsynced {
                filter.sync().map_err(text)?;
            } else if chance < size.checkpoints {
                filter.checkpoint().map_err(text)?;
                disk.tell_relieved();
            } else if chance < size.checkpoints + size.full {
                durable = Self::checkpoint_on_full(disk, filter, random)?;
            } else if chance < size.checkpoints + size.full + size.syncs
                && self.habit != Habit::Never
            {
                filter.sync().map_err(text)?;
            } else {
                durable = match self.habit {
                    Habit::Always => true,
                    Habit::Mixed => random.below(7) == 0,
                    Habit::Interval | Habit::Never => false,
                };
                let burst =
                    if !durable && random.below(12) == 0 { random.below(size.burst) } else { 0 };
                let end = (0..=burst).fold(number, |number, _| self.next(number));
                if end > number + 1 {
                    disk.tell_begun(end);
                }
                while number < end {
                    let next = self.next(number);
                    self.operate(filter, number, durable).map_err(text)?;
                    undurable.extend((number..next).map(Self::time));
                    number = next;
                }
                if !durable {
                    disk.tell_returned(0, number);
                }
            }
            if durable {
                disk.tell_durable(0, number, &undurable);
                undurable.clear();
            }
            self.sound(disk)?;
        }
        if let Some(second) = second.filter(|_| !disk.has_left()) {
            second.close().map_err(text)?;
            disk.tell_durable(0, number, &undurable);
        }
        self.sound(disk)?;
        Ok(number)
    }
}
