//! Stop after stop: the operations of others while the victim is stopped during its operation, and
//! after it has resumed.

use super::children::{Plan, Survivor, Victim};
use super::ptrace::Stop;
use super::run::{Goal, Run};
use super::scenes::Operation;
use super::wave::{Beside, HeldUp, Stood};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::time::Duration;

/// The numbers of concurrent inserts beside a victim, and of those one by one.
const AT_ONCE: u64 = 24;
const IN_TURN: u64 = 32;
/// The duration that is reported. It is not asserted: on a busy machine a thread waits that long
/// for a processor.
const LONG: Duration = Duration::from_millis(50);

/// The durations of inserts beside stopped victims.
#[derive(Debug, Default)]
pub struct Waits {
    at_once: Vec<Duration>,
    in_turn: Vec<Duration>,
    held_up: usize,
    /// The address of the victim during a long insert, and the duration.
    long: Vec<String>,
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, times) in [("at once", &self.at_once), ("in turn", &self.in_turn)] {
            let mut times = times.clone();
            times.sort_unstable();
            let long = times.iter().filter(|&&time| time > LONG).count();
            let at = |share: usize| {
                times.get(times.len() * share / 100).copied().unwrap_or(Duration::ZERO)
            };
            let most = times.last().copied().unwrap_or(Duration::ZERO);
            let (half, nearly, count) = (at(50), at(99), times.len());
            write!(
                f,
                "{count} inserts {name}: p50 {half:?}, p99 {nearly:?}, max {most:?}, {long} above \
                 {LONG:?}; "
            )?;
        }
        write!(f, "{} blocked in the victim's stripe", self.held_up)?;
        self.long.iter().try_for_each(|long| write!(f, "\n  {long}"))
    }
}

impl Run<'_> {
    /// Runs one round: the victim is stopped within its operation, others insert, then it runs to
    /// the end.
    pub fn stop(&mut self, round: u64, goal: Goal) -> Result<(), String> {
        let (_, done) = self.prepare()?;
        let (warm, tested) = (self.next, self.next + 1);
        let plan = Plan { before: warm..warm, warm, tested };
        let keys = self.scene.operation.keys();
        self.next += 1 + keys;
        let mut victim = Victim::start(self.scene, &self.dir, &plan)?;
        self.doing("a victim opens", &[victim.tracee.id()], || victim.stand())?;
        self.advance(&mut victim, 0, goal)?;
        let stood = self.insert_beside(&victim, tested)?;
        self.note(&victim, goal, &stood);
        if stood.overdue > 0 {
            let place = self.place_of(&victim, goal);
            return Err(format!("{} inserts wait for a victim at {place}", stood.overdue));
        }
        self.release(&mut victim)?;
        let seen = self.ask("wait for the inserts that the victim blocked", Survivor::join)?;
        let own = 1 + self.scene.operation.inserts();
        let expected = self.inserts + done + own + AT_ONCE + IN_TURN;
        if seen.inserts != expected {
            return Err(format!("{} inserts, expected {expected}", seen.inserts));
        }
        self.inserts = expected;
        let mine = tested..tested + keys;
        if self.scene.operation.inserts() > 0 {
            let found = self.ask("query for the victim's keys", |survivor| survivor.count(mine))?;
            if found.present != keys {
                return Err(format!("{} of the victim's {keys} keys are there", found.present));
            }
        } else {
            // So that all keys up to here are present.
            self.inserts =
                self.ask("insert the key left out", |survivor| survivor.insert(mine))?.inserts;
        }
        self.find_latest()?;
        self.compare()?;
        if round.is_multiple_of(4) {
            self.ask("checkpoint", Survivor::checkpoint)?;
        }
        Ok(())
    }

    fn insert_beside(&mut self, victim: &Victim, tested: u64) -> Result<Stood, String> {
        let held_up = match self.scene.operation {
            Operation::Claim | Operation::Confirm | Operation::Release | Operation::Extend => {
                HeldUp::AnyStripe
            }
            Operation::Insert | Operation::Check | Operation::Batch => {
                let keys = tested..tested + self.scene.operation.keys();
                HeldUp::Stripes(keys.map(|number| self.scene.stripe(number)).collect())
            }
            Operation::Remove => HeldUp::Stripes(BTreeSet::from([self.scene.stripe(tested - 1)])),
            Operation::Checkpoint | Operation::Clear | Operation::Close => HeldUp::AnyStripe,
            Operation::Sync | Operation::Open => HeldUp::Nothing,
        };
        let (start, middle) = (self.next, self.next + AT_ONCE);
        self.next = middle + IN_TURN;
        let beside = Beside { at_once: start..middle, in_turn: middle..self.next, held_up };
        let mut survivor = self.survivor.take().expect("it filled the filter");
        let pids = [survivor.id(), victim.tracee.id()];
        let stood = self.doing("insert beside a victim", &pids, || survivor.stand(&beside));
        self.survivor = Some(survivor);
        stood
    }

    /// Lets the victim run to the end of its operation, and of its process.
    fn release(&mut self, victim: &mut Victim) -> Result<(), String> {
        let pid = victim.tracee.id();
        self.doing("the victim resumes", &[pid], || {
            loop {
                match victim.tracee.resume() {
                    // There is a mark at the end; the victim may have reached it already.
                    Ok(Stop::Mark) => {}
                    Ok(Stop::Exit(0)) => return Ok(()),
                    other => return Err(format!("the victim did not resume: {other:?}")),
                }
            }
        })
    }

    fn note(&mut self, victim: &Victim, goal: Goal, stood: &Stood) {
        let most = stood.at_once.iter().chain(&stood.in_turn).max();
        let most = most.copied().unwrap_or(Duration::ZERO);
        let after = stood.in_turn.iter().max().copied().unwrap_or(Duration::ZERO);
        let line = || {
            let (place, held_up) = (self.place_of(victim, goal), stood.held_up);
            format!("{goal:?} at {place}: {most:?}, in turn {after:?}, {held_up} blocked")
        };
        if self.settings.each {
            println!("  {}: {}", self.scene.path, line());
        }
        let line = (most > LONG).then(line);
        let waits = &mut self.results.waits;
        waits.at_once.extend(&stood.at_once);
        waits.in_turn.extend(&stood.in_turn);
        waits.held_up += stood.held_up;
        waits.long.extend(line);
    }

    /// Returns the address of a victim for `addr2line`: the offset in this binary of its position,
    /// or of its last position in this binary before that.
    fn place_of(&self, victim: &Victim, goal: Goal) -> String {
        let maps = fs::read_to_string(format!("/proc/{}/maps", victim.tracee.id()));
        let own = std::env::current_exe().unwrap_or_default();
        let own = own.to_string_lossy();
        let ranges: Vec<(u64, u64)> = maps
            .iter()
            .flat_map(|maps| maps.lines())
            .filter(|line| line.ends_with(&*own))
            .filter_map(|line| line.split(' ').next()?.split_once('-'))
            .filter_map(|(start, end)| {
                Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
            })
            .collect();
        let Some(base) = ranges.first().map(|range| range.0) else { return "?".to_owned() };
        let inside = |place: &&u64| ranges.iter().any(|(start, end)| (start..end).contains(place));
        let here = victim.tracee.place().unwrap_or_default();
        let walked: &[u64] = match (goal, self.ways.first()) {
            (Goal::After(count), Some(way)) => way.places.get(..count).unwrap_or_default(),
            _ => &[],
        };
        let found = [here].iter().chain(walked.iter().rev()).find(inside).copied();
        found.map_or_else(|| "?".to_owned(), |place| format!("{:#x}", place - base))
    }
}
