//! What the threads of processes do, and what they tell the oracle.

use crate::claims::{self, Then};
use crate::kinds::Promise;
use crate::oracle::{Begun, Written};
use crate::plan::Times;
use crate::tickets::Fate;
use crate::world::{Opened, World, lock};
use ebbtide::history::Unlogged;
use ebbtide::{Batch, Call, Checked as Answer, Durability, Error, Since};
use ebbtide_core::log_record::Op;
use ebbtide_testkit::prefix::Checked;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::schedule::{panics, stage};
use std::sync::Arc;

/// Keys that several threads insert.
pub const SHARED: u64 = 6;
/// The first of the keys that are only checked and inserted if they are new.
pub const CHECKED: u64 = 1 << 30;
/// The sources of positions.
const SOURCES: u64 = 3;

/// What a thread does in one step.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    Insert { durable: bool, shared: bool },
    InsertSome { durable: bool },
    Check { durable: bool, refreshes: bool },
    Remove,
    Batch { durable: bool },
    Questions { durable: bool },
    Work { then: Then },
    Ask,
    Sync,
    Checkpoint,
    Tasks,
    Clear,
    Alter,
    Issue { checks: bool, fate: Fate },
    Look,
}

impl Act {
    /// Draws one.
    pub fn draw(random: &mut Random) -> Self {
        let durable = random.below(3) == 0;
        match random.below(76) {
            0..=15 => Self::Insert { durable, shared: random.below(3) == 0 },
            16..=18 => Self::InsertSome { durable },
            19..=27 => Self::Check { durable, refreshes: random.below(4) == 0 },
            28..=31 => Self::Remove,
            32..=36 => Self::Batch { durable },
            37 | 38 => Self::Questions { durable },
            39..=44 => Self::Work { then: Then::draw(random) },
            45..=48 => Self::Ask,
            49..=51 => Self::Sync,
            52..=56 => Self::Checkpoint,
            57..=60 => Self::Tasks,
            61 if random.below(4) == 0 => Self::Clear,
            62 => Self::Alter,
            63 if random.below(2) == 0 => Self::Alter,
            64..=75 => Self::Issue { checks: random.below(3) == 0, fate: Fate::draw(random) },
            _ => Self::Look,
        }
    }
}

/// Returns a key that may have been inserted.
pub fn any_key(world: &World, random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.below(SHARED),
        1 => CHECKED + random.below(SHARED),
        2 => claims::any_key(random),
        _ => (1 << 20) + 1 + random.below(world.fresh() - (1 << 20)),
    }
}

/// Whether the handle is of use after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Continue,
    Stop,
}

/// Returns whether the handle is of no more use: the filter refuses it, its image is lost, or it is
/// closed.
pub fn is_over<T>(result: &Result<T, Error>) -> bool {
    let Err(error) = result else { return false };
    matches!(
        error,
        Error::Poisoned { .. } | Error::Retired { .. } | Error::Core(_) | Error::Closed { .. }
    )
}

/// A thread at work.
pub struct Task<'a> {
    pub world: &'a World,
    pub life: usize,
    pub filter: &'a Arc<Opened>,
    pub random: Random,
}

impl<'a> Task<'a> {
    /// Creates a thread of the process with this life and handle.
    pub fn new(world: &'a World, life: usize, filter: &'a Arc<Opened>, random: Random) -> Self {
        Self { world, life, filter, random }
    }

    /// Does one act.
    pub fn act(&mut self, act: Act) -> Checked<Next> {
        let (life, world) = (self.life, self.world);
        world.trace(|| format!("process {life}: {act:?}"));
        lock(&world.counts).operations += 1;
        *lock(&world.acting).entry(life).or_default() += 1;
        let next = match act {
            Act::Insert { durable, shared } => self.insert(durable, shared),
            Act::InsertSome { durable } => self.insert_some(durable),
            Act::Check { durable, refreshes } => self.check(durable, refreshes),
            Act::Remove if world.plan.spec.removes() => self.remove(),
            Act::Remove => self.insert(false, false),
            Act::Batch { durable } => self.batch(durable),
            Act::Questions { durable } => self.questions(durable),
            Act::Work { then } => self.work(then),
            Act::Ask => self.ask(),
            Act::Sync => self.secure(|filter| filter.sync()),
            Act::Checkpoint => {
                let next = self.secure(|filter| filter.checkpoint().map(drop))?;
                world.ask(|_, disk| {
                    // A thread in the background may have found the disk full, and make space yet.
                    if !world.plan.has_tasks {
                        disk.tell_relieved();
                    }
                    Ok(next)
                })
            }
            Act::Tasks if world.plan.has_tasks => self.secure(|filter| filter.sync()),
            Act::Tasks => self.secure(|filter| match filter.do_tasks() {
                // The clock has jumped while another thread had a stripe: the checkpoint comes
                // later.
                Err(Error::WouldWait { .. }) => Ok(()),
                done => done,
            }),
            Act::Clear => self.clear(),
            Act::Alter if world.plan.alters() => self.alter(),
            Act::Issue { checks, fate } if world.plan.has_tickets => self.issue(checks, fate),
            Act::Issue { .. } => self.insert(false, false),
            Act::Alter | Act::Look => {
                let looked = self.filter.stat().map(drop);
                let looked = looked.and_then(|()| self.filter.digest().map(drop));
                self.came(looked).map(|came| came.map_or(Next::Stop, |()| Next::Continue))
            }
        };
        world.trace(|| format!("process {life}: {act:?} -> {next:?}"));
        let others = {
            let mut acting = lock(&world.acting);
            let acts = acting.entry(life).or_default();
            *acts -= 1;
            *acts
        };
        // Another thread may be about to wake the task.
        if others == 0 {
            self.check_log_task()?;
        }
        next
    }

    /// With `Interval`, what has returned is durable soon: if it is not yet, the task of the log is
    /// running, or will be within an interval.
    fn check_log_task(&self) -> Checked<()> {
        let Durability::Interval(every) = self.world.plan.durability else { return Ok(()) };
        if self.world.plan.alters() || lock(&self.world.weather).lost {
            return Ok(());
        }
        stage::at_once(|| {
            let written = lock(&self.world.written).get(&self.life).copied().unwrap_or(0);
            match (self.filter.log_due(), self.filter.durable_upto()) {
                (Some(due), Ok(durable)) if due > every && durable < written => Err(format!(
                    "process {} wrote up to {written}, its log is durable up to {durable}, and \
                     nobody syncs it for {due:?}",
                    self.life
                )),
                _ => Ok(()),
            }
        })
    }

    /// Returns what a call returned; none if it failed as the weather allows.
    pub fn came<T>(&self, result: Result<T, Error>) -> Checked<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            // A callback of a ticket closes the handle.
            Err(Error::Closed { .. }) if self.world.is_closing(self.life) => Ok(None),
            Err(error) if self.world.may_fail_by(&error) => {
                self.world.trace(|| format!("process {}: {error}", self.life));
                lock(&self.world.counts).errors += 1;
                Ok(None)
            }
            Err(error) => Err(format!("process {}: {error}", self.life)),
        }
    }

    /// Returns whether keys may come too late.
    fn may_be_late(&self) -> bool {
        self.world.plan.times != Times::Clock
            && matches!(self.world.plan.spec.promise, Promise::Within(_))
    }

    pub fn is_durable(&self, durable: bool) -> bool {
        durable || self.world.plan.durability == Durability::Always
    }

    pub fn call(&mut self, durable: bool) -> Call<'a, Opened> {
        let mut call = self.filter.call();
        if let Some(time) = self.world.time_of_key(&mut self.random) {
            call = call.time(time);
        }
        if durable { call.durability(Durability::Always) } else { call }
    }

    fn weighing(&mut self, call: Call<'a, Opened>) -> Call<'a, Opened> {
        let heaviest = self.world.plan.spec.heaviest;
        if heaviest == 1 {
            return call;
        }
        call.weight((1 + self.random.below(heaviest)) as f64)
    }

    /// Performs a write with these records. `write` returns whether it has happened.
    pub fn write(
        &self,
        keys: &[(Op, u64)],
        durable: bool,
        checks: bool,
        write: impl FnOnce() -> Result<bool, Error>,
    ) -> Checked<Next> {
        let world = self.world;
        let (begun, written) = world.ask(|oracle, _| {
            let written: Vec<Written> =
                keys.iter().map(|&(op, key)| (op, oracle.hash(key))).collect();
            Ok((oracle.begin(&written, checks), written))
        })?;
        let result = panics::expose(write);
        self.wrote(begun, &written, durable, result)
    }

    fn wrote(
        &self,
        begun: Begun,
        written: &[Written],
        durable: bool,
        result: Result<bool, Error>,
    ) -> Checked<Next> {
        let is_over = is_over(&result);
        let is_durable = self.is_durable(durable);
        let happened = self.came(result)?;
        self.world.ask(|oracle, disk| {
            match happened {
                Some(true) => {
                    let end = oracle.end(begun, written)?;
                    self.world.note_written(self.life, end);
                    if is_durable {
                        oracle.acknowledge(end, disk);
                    }
                }
                None if is_over => {}
                Some(false) | None => oracle.fail(written),
            }
            Ok(if is_over { Next::Stop } else { Next::Continue })
        })
    }

    fn insert(&mut self, durable: bool, shared: bool) -> Checked<Next> {
        let key = if shared { self.random.below(SHARED) } else { self.world.fresh() };
        let call = self.call(durable);
        let call = self.weighing(call);
        self.write(&[(Op::Insert, key)], durable, false, || call.insert(key.to_le_bytes()))
    }

    fn insert_some(&mut self, durable: bool) -> Checked<Next> {
        let keys = [0; 3].map(|_| self.world.fresh());
        let call = self.call(durable);
        let bytes = keys.map(u64::to_le_bytes);
        let world = self.world;
        let (begun, written) = world.ask(|oracle, _| {
            let written = keys.map(|key| (Op::Insert, oracle.hash(key)));
            Ok((oracle.begin(&written, false), written))
        })?;
        match panics::expose(|| call.insert_all(&bytes)) {
            // A part may have happened.
            Err(error) => self.came(Err::<(), _>(error)).map(|_| Next::Stop),
            Ok(count) if count == keys.len() => self.wrote(begun, &written, durable, Ok(true)),
            Ok(_) => Ok(Next::Continue),
        }
    }

    /// Returns whether a key that is present was inserted.
    pub fn keeps(&self) -> bool {
        matches!(self.world.plan.spec.promise, Promise::Kept | Promise::Counted)
    }

    /// Checks and inserts a key that others check too.
    fn check(&mut self, durable: bool, refreshes: bool) -> Checked<Next> {
        let keeps = self.keeps();
        let (first, since) = match refreshes {
            true => (0, Since::LastSeen),
            false => (CHECKED, Since::LastAccepted),
        };
        let key = first + self.random.below(SHARED);
        let call = self.call(durable).since(since);
        let world = self.world;
        let (begun, written) = world.ask(|oracle, _| {
            let written = [(Op::Insert, oracle.hash(key))];
            Ok((oracle.begin(&written, !refreshes), written))
        })?;
        let now = world.latest_possible();
        let hash = written[0].1;
        let was_certain = world.ask(|oracle, _| Ok(oracle.is_certain(hash, now)))?;
        world.trace(|| format!("certain {was_certain} at {now}"));
        let result = panics::expose(|| call.check_and_insert(key.to_le_bytes()));
        let answer = result.as_ref().ok().copied();
        if refreshes && world.plan.times != Times::Clock && answer == Some(Answer::Present) {
            // By now its time may be too late to refresh anything.
            return Ok(Next::Continue);
        }
        let happened = |answer| match answer {
            Answer::New => true,
            Answer::Present => refreshes,
            _ => false,
        };
        let next = self.wrote(begun, &written, durable, result.map(happened))?;
        let is_trusted = !lock(&world.weather).lost;
        let is_durable = self.is_durable(durable);
        world.ask(|oracle, disk| {
            let now = world.now_of(oracle);
            let is_certain = was_certain && oracle.was_certain(hash, now, begun.from);
            match answer {
                Some(Answer::New) if is_certain && is_trusted && !refreshes => {
                    Err(format!("key {key} is new, and was inserted before, now {now}"))
                }
                Some(Answer::Present) if keeps && is_trusted => {
                    let Some(end) = oracle.first_insert(hash) else {
                        return Err(format!("key {key} is present, and was never inserted"));
                    };
                    if is_durable {
                        oracle.acknowledge(end, disk);
                    }
                    Ok(())
                }
                _ => Ok(()),
            }
        })?;
        Ok(next)
    }

    fn remove(&mut self) -> Checked<Next> {
        let key = self.world.fresh();
        let insert = self.call(false);
        let inserted =
            self.write(&[(Op::Insert, key)], false, false, || insert.insert(key.to_le_bytes()))?;
        if inserted == Next::Stop {
            return Ok(inserted);
        }
        let call = self.call(false);
        self.write(&[(Op::Remove, key)], false, false, || call.remove(key.to_le_bytes()))
    }

    /// Commits new keys, a checked one and a position in one step.
    fn batch(&mut self, durable: bool) -> Checked<Next> {
        let most = if self.random.below(6) == 0 { 24 } else { 3 };
        let count = 1 + self.random.below(most);
        let fresh: Vec<u64> = (0..count).map(|_| self.world.fresh()).collect();
        let shared = CHECKED + self.random.below(SHARED);
        let (source, position) = (self.random.below(SOURCES), self.world.fresh());
        let call = self.call(durable).since(Since::LastAccepted);
        let mut batch = Batch::new(call);
        for key in &fresh {
            let added = batch.insert(key.to_le_bytes());
            if self.came(added)?.is_none() {
                return Ok(Next::Stop);
            }
        }
        let checked = batch.check_and_insert(shared.to_le_bytes());
        let Some(checked) = self.came(checked)? else { return Ok(Next::Stop) };
        let set = batch.set_position(source, position);
        if self.came(set)?.is_none() {
            return Ok(Next::Stop);
        }
        let mut keys: Vec<(Op, u64)> = fresh.iter().map(|&key| (Op::Insert, key)).collect();
        if checked == Answer::New {
            keys.push((Op::Insert, shared));
        }
        self.write_unless_late(&keys, durable, true, || match batch.commit() {
            Err(Error::Conflict { .. }) => Ok(false),
            committed => committed.map(|()| true),
        })
    }

    /// Commits checked keys alone: often all are present, and the answers rest on what others
    /// wrote.
    fn questions(&mut self, durable: bool) -> Checked<Next> {
        let call = self.call(durable).since(Since::LastAccepted);
        let mut batch = Batch::new(call);
        let first = self.random.below(SHARED);
        let (mut new, mut present) = (Vec::new(), Vec::new());
        for number in first..first + 3 {
            let key = CHECKED + number % SHARED;
            let checked = batch.check_and_insert(key.to_le_bytes());
            match self.came(checked)? {
                None => return Ok(Next::Stop),
                Some(Answer::New) => new.push((Op::Insert, key)),
                Some(Answer::Present) => present.push(key),
                Some(_) => {}
            }
        }
        let mut is_done = false;
        let next = self.write_unless_late(&new, durable, true, || match batch.commit() {
            Err(Error::Conflict { .. }) => Ok(false),
            committed => {
                is_done = committed.is_ok();
                committed.map(|()| true)
            }
        })?;
        let is_trusted = !lock(&self.world.weather).lost;
        let is_sure = is_done && self.is_durable(durable) && self.keeps() && is_trusted;
        self.world.ask(|oracle, disk| {
            for key in present.into_iter().filter(|_| is_sure) {
                if let Some(end) = oracle.first_insert(oracle.hash(key)) {
                    oracle.acknowledge(end, disk);
                }
            }
            Ok(next)
        })
    }

    /// As `write`, for a call that does not say which of its keys came too late.
    pub fn write_unless_late(
        &mut self,
        keys: &[(Op, u64)],
        durable: bool,
        checks: bool,
        write: impl FnOnce() -> Result<bool, Error>,
    ) -> Checked<Next> {
        if !self.may_be_late() {
            return self.write(keys, durable, checks, write);
        }
        self.world.ask(|oracle, _| {
            let written: Vec<Written> =
                keys.iter().map(|&(op, key)| (op, oracle.hash(key))).collect();
            Ok(oracle.begin(&written, checks))
        })?;
        self.came(panics::expose(write))
            .map(|came| if came.is_some() { Next::Continue } else { Next::Stop })
    }

    /// Looks up keys that must be in the window.
    fn ask(&mut self) -> Checked<Next> {
        let world = self.world;
        let certain = |world: &World| {
            world.ask(|oracle, _| {
                let now = world.now_of(oracle);
                Ok(oracle.inserted().filter(|&hash| oracle.is_certain(hash, now)).collect())
            })
        };
        let all: Vec<u64> = certain(world)?;
        let keys = [self.random.below(SHARED), CHECKED + self.random.below(SHARED)];
        let newest = world.fresh();
        let keys = keys.into_iter().chain(newest.saturating_sub(9)..newest);
        for key in keys {
            let hash = world.ask(|oracle, _| Ok(oracle.hash(key)))?;
            let found = self.filter.contains(key.to_le_bytes());
            let Some(found) = self.came(found)? else { return Ok(Next::Stop) };
            let is_trusted = !lock(&world.weather).lost;
            if all.contains(&hash) && !found && is_trusted {
                let still: Vec<u64> = certain(world)?;
                if still.contains(&hash) {
                    return Err(format!("key {key} is not found"));
                }
            }
        }
        Ok(Next::Continue)
    }

    /// Makes durable all that has returned.
    fn secure(&self, call: impl FnOnce(&Opened) -> Result<(), Error>) -> Checked<Next> {
        let returned = self.world.ask(|oracle, _| Ok(oracle.returned()))?;
        let done = call(self.filter);
        let is_over = is_over(&done);
        if self.came(done)?.is_some() {
            self.world.ask(|oracle, disk| {
                oracle.acknowledge(returned, disk);
                Ok(())
            })?;
        }
        Ok(if is_over { Next::Stop } else { Next::Continue })
    }

    /// Fills the filter anew from its log, with another parameter or those that it has.
    fn alter(&mut self) -> Checked<Next> {
        let spec = self.world.plan.spec.any(self.random.below(2) == 0);
        if !self.world.ask(|oracle, _| Ok(oracle.begin_alteration()))? {
            return Ok(Next::Continue);
        }
        self.secure(|filter| match filter.alter(spec, Unlogged::Refuse) {
            // Another handle alters it; log is gone that was to be kept.
            Err(Error::Locked { .. }) => filter.sync(),
            Err(Error::NotKept { .. }) if lock(&self.world.weather).may_lack_past() => {
                filter.sync()
            }
            altered => altered.map(drop),
        })
    }

    fn clear(&self) -> Checked<Next> {
        self.write(&[(Op::Clear, 0)], false, false, || self.filter.clear().map(|()| true))
    }
}

impl World {
    /// As [`World::latest_possible`], for one who has the oracle.
    fn now_of(&self, oracle: &crate::oracle::Oracle) -> u64 {
        self.given_now().max(oracle.latest()) + 1
    }
}

/// Returns a sentence without checksums: those of headers cover the random number of the filter.
pub fn without_checksums(sentence: &str) -> String {
    let is_checksum = |word: &&str| {
        let word = word.trim_end_matches([',', ';']);
        word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let words: Vec<_> = sentence.split(' ').filter(|word| !is_checksum(word)).collect();
    words.join(" ")
}
