//! What is compared when nobody is in a call.

use crate::faults;
use crate::tasks;
use crate::world::{LIVES, Opened, World, lock};
use ebbtide::history::At;
use ebbtide::media::Memory;
use ebbtide::{Any, Durability, Error, Filter, Keep, Reader, Timestamp};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::prefix::{Checked, text};
use ebbtide_testkit::random::Random;
use ebbtide_testkit::schedule::stage;
use std::sync::Arc;

impl World {
    /// Checks that all writes and syncs came in their order.
    pub fn check_order(&self, disk: &CrashDisk) -> Checked<()> {
        let violations = disk.violations();
        if violations.is_empty() { Ok(()) } else { Err(violations.join("; ")) }
    }

    /// Compares what a round left with the oracle.
    pub fn judge(&self, random: &mut Random) -> Checked<()> {
        let disk = self.disk();
        faults::heal(self);
        self.settle_tickets(&self.bury())?;
        faults::clear(self);
        self.ask(|_, _| Ok(()))?;
        self.check_order(&disk)?;
        // Callbacks may have closed some.
        let left = self.bury();
        self.check_interval(&left)?;
        // A handle that has found out refuses everything, and the others do by now.
        let is_lost = lock(&self.weather).lost;
        let may_be_poisoned = lock(&self.weather).may_poison;
        for (life, filter) in &left {
            match filter.sync() {
                Ok(()) => {}
                Err(_) if is_lost => {}
                Err(Error::Poisoned { .. } | Error::Retired { .. }) if may_be_poisoned => {}
                Err(error) => return Err(format!("process {life}, idle: {error}")),
            }
        }
        let refusing = left.iter().filter(|(_, filter)| filter.sync().is_err()).count();
        if refusing > 0 && refusing < left.len() && !is_lost {
            return Err(format!("{refusing} of {} processes refuse the filter", left.len()));
        }
        if is_lost || refusing > 0 {
            return self.close_all(left, random);
        }
        for (life, filter) in &left {
            self.compare(&format!("process {life}"), filter)?;
        }
        if let Some((_, filter)) = left.first() {
            self.compare_answers(filter, random)?;
            if random.below(4) == 0 {
                self.compare_copies(filter)?;
            }
            self.compare_past(random)?;
        }
        if !left.is_empty() && random.below(3) == 0 {
            self.close_all(left, random)?;
        }
        Ok(())
    }

    /// An interval passes: what had returned is durable, if the task of the log was woken for it.
    fn check_interval(&self, left: &[(usize, Arc<Opened>)]) -> Checked<()> {
        let Durability::Interval(every) = self.plan.durability else { return Ok(()) };
        let weather = *lock(&self.weather);
        let may_fail = weather.may_poison || weather.lost || self.plan.alters();
        if !self.plan.has_tasks || may_fail {
            return Ok(());
        }
        stage::pause(every);
        for (life, filter) in left {
            let Some(end) = lock(&self.written).get(life).copied() else { continue };
            let before = filter.durable_upto().map_err(text)?;
            let _ = filter.run_task(true, true);
            let durable = filter.durable_upto().map_err(text)?;
            self.trace(|| format!("process {life} wrote up to {end}; durable {before}, {durable}"));
            if durable < end {
                return Err(format!(
                    "process {life} wrote up to {end}, and its log is not synced beyond {durable}"
                ));
            }
            self.ask(|oracle, disk| {
                oracle.acknowledge(end, disk);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Ends all processes: some close, some die.
    fn close_all(&self, left: Vec<(usize, Arc<Opened>)>, random: &mut Random) -> Checked<()> {
        let weather = *lock(&self.weather);
        for (life, filter) in left {
            if random.below(2) == 0 {
                self.begin_closing(life);
                match filter.close() {
                    Ok(()) => self.closed()?,
                    Err(_) if weather.lost => {}
                    Err(Error::Poisoned { .. } | Error::Retired { .. }) if weather.may_poison => {}
                    Err(error) => return Err(format!("process {life}, closing: {error}")),
                }
            }
            stage::kill(life);
            drop(filter);
        }
        self.bury();
        let mut weather = lock(&self.weather);
        if weather.lost {
            // The time of leases was on a lost page, too: it follows the wall clock again.
            lock(&self.claims).forget_keys();
        }
        (weather.may_poison, weather.lost) = (false, false);
        Ok(())
    }

    /// A close has returned: all that had returned is durable. A handle that has not noticed an
    /// alteration closes what was before it.
    pub fn closed(&self) -> Checked<()> {
        self.ask(|oracle, disk| {
            if !self.plan.alters() {
                oracle.acknowledge(oracle.returned(), disk);
            }
            Ok(())
        })
    }

    /// Compares an idle filter with the log.
    pub fn compare(&self, who: &str, filter: &Opened) -> Checked<()> {
        let digest = filter.digest().map_err(text)?;
        let stat = filter.stat().map_err(text)?;
        let now = self.latest_possible();
        let (expected, figures) = self.ask(|oracle, disk| {
            oracle.apply(digest.lsn, disk).map_err(|what| format!("{who}: {what}"))?;
            let machine = oracle.machine();
            Ok((oracle.digest(), machine.stat(now, 0)))
        })?;
        if self.is_beyond_comparison()? || !self.knows_state()? {
            return Ok(());
        }
        self.trace(|| format!("{who} has {:x} at {}", digest.value, digest.lsn));
        lock(&self.counts).comparisons += 1;
        if (digest.inserts, stat.operations) != (figures.inserts, figures.operations) {
            return Err(format!(
                "{who} counts {} inserts and {} operations, its log {} and {}",
                digest.inserts, stat.operations, figures.inserts, figures.operations
            ));
        }
        if digest.value != expected {
            let lsn = digest.lsn;
            return Err(format!("the digest of {who} is not that of its log below {lsn}"));
        }
        Ok(())
    }

    fn is_beyond_comparison(&self) -> Checked<bool> {
        self.ask(|oracle, _| Ok(oracle.is_beyond_comparison()))
    }

    fn knows_state(&self) -> Checked<bool> {
        self.ask(|oracle, _| Ok(oracle.knows_state()))
    }

    /// Compares answers of an idle filter, whose digest is right, with the promise of its kind.
    pub fn compare_answers(&self, filter: &Opened, random: &mut Random) -> Checked<()> {
        if self.is_beyond_comparison()? {
            return Ok(());
        }
        let (now, knows_state) = (self.latest_possible(), self.knows_state()?);
        let time = Timestamp::from_unix_micros(now);
        for _ in 0..12 {
            let key = tasks::any_key(self, random);
            let hash = self.ask(|oracle, _| Ok(oracle.hash(key)))?;
            let found = filter.call().time(time).contains(key.to_le_bytes()).map_err(text)?;
            let (expected, is_certain) = self.ask(|oracle, _| {
                Ok((oracle.machine().contains(hash, now), oracle.is_certain(hash, now)))
            })?;
            // A process that died after it had counted an insert in its stripe, and before it
            // counted it in the filter's sums, leaves these late by one: a window of items ends
            // later then.
            let may_be_late = found && lock(&self.counts).killed + stage::figures().killed > 0;
            let is_other = knows_state && found != expected && !may_be_late;
            if is_other || is_certain && !found {
                return Err(format!(
                    "key {key} found: {found}, by the log: {expected}, certain: {is_certain}"
                ));
            }
        }
        if !knows_state {
            return Ok(());
        }
        let mut positions = filter.positions().map_err(text)?;
        positions.sort_unstable();
        let tokens: Vec<u64> = filter.claims().map_err(text)?.iter().map(|c| c.token).collect();
        self.ask(|oracle, _| {
            if positions != oracle.positions() {
                return Err(format!("positions {positions:?}, log: {:?}", oracle.positions()));
            }
            let mut held: Vec<u64> = oracle.claims().iter().map(|claim| claim.token).collect();
            held.sort_unstable();
            let mut tokens = tokens;
            tokens.sort_unstable();
            // Those whose lease is over are left out.
            if tokens.iter().any(|token| held.binary_search(token).is_err()) {
                return Err(format!("claims {tokens:?}, log: {held:?}"));
            }
            Ok(())
        })
    }

    /// Compares a backup, and what a reader replays, with a filter.
    fn compare_copies(&self, filter: &Opened) -> Checked<()> {
        let live = filter.digest().map_err(text)?.value;
        let copy = Memory::new();
        filter.backup_on(&copy).map_err(text)?;
        let restored: Opened = Filter::open_on(Arc::new(copy), self.options()).map_err(text)?;
        let reader: Reader<Any> =
            Reader::open_on(self.place().of(LIVES - 2), self.options()).map_err(text)?;
        let replayed = reader.digest().map_err(text)?.value;
        let restored = restored.digest().map_err(text)?.value;
        match (restored == live, replayed == live) {
            (true, true) => Ok(()),
            (is_same, _) => Err(format!(
                "the {} has another digest",
                if is_same { "replay of a reader" } else { "backup" }
            )),
        }
    }

    /// Compares the filter as of moments of the past with the log until then.
    pub fn compare_past(&self, random: &mut Random) -> Checked<()> {
        let Some(keeps) = self.plan.keeps else { return Ok(()) };
        if self.is_beyond_comparison()? || !self.knows_state()? {
            return Ok(());
        }
        let end = self.ask(|oracle, _| Ok(oracle.returned()))?;
        for _ in 0..3_u64.min(end - 1) {
            let lsn = 1 + random.below(end - 1);
            let place = self.place().of(LIVES - 2);
            let reader = match Reader::<Any>::at_on(place, At::Lsn(lsn), self.options()) {
                Err(Error::NotKept { .. }) if matches!(keeps, Keep::Bytes(_)) => continue,
                Err(_) if lock(&self.weather).may_lack_past() => continue,
                reader => reader.map_err(|error| format!("as of {lsn}: {error}"))?,
            };
            let found = reader.digest().map_err(text)?.value;
            if found != self.ask(|oracle, disk| oracle.digest_as_of(lsn, disk))? {
                return Err(format!("the filter as of {lsn} is not what its log said then"));
            }
            lock(&self.counts).moments += 1;
        }
        Ok(())
    }
}
