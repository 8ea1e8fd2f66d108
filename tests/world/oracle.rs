//! The oracle: what the log on the simulated disk says and what callers received, beside what the
//! filter is and answers.
//!
//! The state of a filter follows from its records in their order. The oracle reads them from the
//! disk by the format, and applies them to a filter in memory ([`Machine`]). It compares:
//!
//! - *Log and callers.* An operation that returned has exactly one record, with its key; one that
//!   returned an error has none; one that a death interrupted has one or none. No record changes.
//! - *Log and recovery.* A timeline begins where no acknowledged record is lost: none that was
//!   durable after a power cut, none that returned after a death.
//! - *Log and filter.* The digest is that of the filter in memory, and so are answers.

use crate::kinds::{Promise, Spec};
use crate::replayed::Replayed;
use crate::revision::Revision;
use ebbtide_core::claims::HeldClaim;
use ebbtide_core::log_record::{Decoded, Op, Record};
use ebbtide_core::machine::Machine;
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::log::Slot;
use ebbtide_testkit::prefix::Checked;
use std::collections::BTreeMap;
use std::ops::Range;

/// The secret of the key hash of every filter.
pub const SEED: u64 = 4711;

/// What callers know of a key's records, since the log was last compared.
#[derive(Debug, Default, Clone, Copy)]
struct OfKey {
    /// Operations whose records must be there.
    least: u64,
    /// Operations whose records may be there.
    unknown: u64,
}

/// The layout of a filter.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    pub stripes: u32,
    pub block_bytes: u64,
}

/// An operation that has begun: its records lie at this LSN or behind it.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    pub from: u64,
    /// The least such LSN of it and of the operations that ran when it began.
    overlaps_from: u64,
    timeline: u64,
}

/// An operation on a key: its code, and the key's hash.
pub type Written = (Op, u64);

/// What a disk may have lost when the next timeline begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: processes have died.
    Nothing,
    /// What was not durable: the power failed, or the image was lost.
    Undurable,
    /// Anything, for the disk lied, but nothing within.
    Anything,
}

/// The oracle of one filter.
#[derive(Debug)]
pub struct Oracle {
    spec: &'static Spec,
    revision: Revision,
    layout: Layout,
    log: BTreeMap<u64, (u64, Record)>,
    /// The first LSN whose slot was empty.
    next: u64,
    timeline: u64,
    /// Where the timeline begins.
    start: u64,
    /// Every record below has returned, or is durable.
    returned: u64,
    durable: u64,
    loss: Loss,
    /// Pages of the image are lost, and nobody has recovered since.
    is_image_lost: bool,
    /// Pages of the image of the timeline that is about to begin are lost.
    is_next_image_lost: bool,
    keys: BTreeMap<(u8, u64), OfKey>,
    /// Operations that may be running, by where the log ended when they began.
    running: BTreeMap<u64, u64>,
    /// For the record of each insert that has returned, the LSN from which on others ran beside it.
    overlaps: BTreeMap<u64, u64>,
    /// Records that may have been decided on an older state than that of their place in the log.
    doubtful: Vec<Range<u64>>,
    /// One of them does not fit to the records before it, or an alteration may have read one.
    is_beyond_comparison: bool,
    /// An alteration has begun.
    may_be_altered: bool,
    /// All operations with records below have happened.
    settled: u64,
    /// Keys that were only ever inserted if they were new.
    checked_only: BTreeMap<u64, bool>,
    /// A clear has begun since the log was last compared.
    clearing: bool,
    replayed: Replayed,
}

/// Groups of records that count, within these LSNs, with the LSN behind each.
fn groups(log: &BTreeMap<u64, (u64, Record)>, range: Range<u64>) -> Vec<(u64, Vec<Record>)> {
    let (mut groups, mut group): (Vec<_>, Vec<Record>) = Default::default();
    let mut before = None;
    for (&lsn, &(timeline, record)) in log.range(range) {
        if before.is_some_and(|before| before != (lsn - 1, timeline)) {
            group.clear();
        }
        before = Some((lsn, timeline));
        if record.op == Op::Void {
            group.clear();
            continue;
        }
        group.push(record);
        if !record.continues {
            groups.push((lsn + 1, std::mem::take(&mut group)));
        }
    }
    groups
}

impl Oracle {
    pub fn new(spec: &'static Spec, layout: Layout) -> Self {
        Self {
            spec,
            revision: Revision::FIRST,
            layout,
            log: BTreeMap::new(),
            next: 1,
            timeline: 0,
            start: 1,
            returned: 1,
            durable: 1,
            loss: Loss::Nothing,
            is_image_lost: false,
            is_next_image_lost: false,
            keys: BTreeMap::new(),
            running: BTreeMap::new(),
            overlaps: BTreeMap::new(),
            settled: 1,
            doubtful: Vec::new(),
            is_beyond_comparison: false,
            may_be_altered: false,
            checked_only: BTreeMap::new(),
            clearing: false,
            replayed: Replayed::new(spec, Revision::FIRST, layout),
        }
    }

    pub fn hash(&self, key: u64) -> u64 {
        self.replayed.machine.hash(&key.to_le_bytes())
    }

    /// Reads what the log has gained.
    pub fn read(&mut self, disk: &CrashDisk) -> Checked<()> {
        let mut found = disk.log(self.next);
        for (timeline, start) in found.timelines.split_off(&(self.timeline + 1)) {
            self.take(&found.slots)?;
            self.begin_timeline(timeline, start)?;
            // It may begin before the end of the one before.
            found = disk.log(self.next);
        }
        self.take(&found.slots)?;
        while self.log.contains_key(&self.next) {
            self.next += 1;
        }
        Ok(())
    }

    /// Takes the slots of the present timeline.
    fn take(&mut self, slots: &[Slot]) -> Checked<()> {
        for slot in slots.iter().filter(|slot| slot.timeline == self.timeline) {
            let Decoded::Valid(record) = Record::decode(slot.words, slot.timeline, slot.lsn) else {
                if self.loss != Loss::Nothing || self.is_image_lost {
                    continue; // nobody has recovered yet
                }
                return Err(format!("the slot of LSN {} has no record", slot.lsn));
            };
            let before = self.log.insert(slot.lsn, (slot.timeline, record));
            if before.is_some_and(|before| before != (slot.timeline, record)) {
                return Err(format!("record {} was {before:?} and is {record:?}", slot.lsn));
            }
        }
        Ok(())
    }

    /// A recovery has found the log up to `start`.
    fn begin_timeline(&mut self, timeline: u64, start: u64) -> Checked<()> {
        let is_image_lost = std::mem::take(&mut self.is_image_lost);
        let least = match self.loss {
            Loss::Nothing if !is_image_lost => self.returned,
            Loss::Nothing | Loss::Undurable => self.durable,
            Loss::Anything => 0,
        };
        if start < least {
            let loss = self.loss;
            return Err(format!(
                "timeline {timeline} begins at {start}; records below {least} were acknowledged, \
                 and {loss:?} may be lost"
            ));
        }
        let lost = self.log.split_off(&start);
        let counts = |record: &Record| !matches!(record.op, Op::Durable | Op::Void);
        let is_any_lost = lost.values().any(|(_, record)| counts(record));
        self.overlaps.split_off(&start);
        self.doubtful.retain(|doubtful| doubtful.start < start);
        if let Some(last) = self.doubtful.last_mut() {
            last.end = last.end.min(start);
        }
        self.returned = self.returned.min(start);
        self.durable = self.durable.min(start);
        (self.timeline, self.start, self.next) = (timeline, start, start);
        if std::mem::take(&mut self.is_next_image_lost) {
            self.is_image_lost = true;
            self.doubtful.push(start..u64::MAX);
        }
        if self.replayed.end > start {
            self.replayed = Replayed::new(self.spec, self.revision, self.layout);
        }
        // Otherwise the filter may have been altered, beside operations that are on their way.
        if is_any_lost || is_image_lost || self.loss != Loss::Nothing {
            self.settle();
        }
        Ok(())
    }

    /// A recovery is complete: what it found is durable.
    pub fn opened(&mut self) {
        self.loss = Loss::Nothing;
        self.returned = self.returned.max(self.start);
        self.durable = self.durable.max(self.start);
    }

    /// The power has failed. What the next recovery begins is on another tape, under numbers that
    /// may have been used for what is lost.
    pub fn cut(&mut self, loss: Loss) {
        self.loss = loss;
        self.timeline = 0;
    }

    /// Pages of the image are lost: until all have closed, no answer counts, and records may have
    /// been decided on an older state. `is_recovering`: also of an image that has no name yet.
    pub fn lose_image(&mut self, is_recovering: bool) {
        self.is_next_image_lost |= is_recovering;
        if !std::mem::replace(&mut self.is_image_lost, true) {
            self.doubtful.push(self.next..u64::MAX);
            self.is_beyond_comparison |= self.may_be_altered;
        }
        self.checked_only.values_mut().for_each(|checked| *checked = false);
    }

    /// An alteration begins, unless there are doubtful records: it performs each operation anew,
    /// and so corrects what a record says of one. Returns whether it does.
    pub fn begin_alteration(&mut self) -> bool {
        self.may_be_altered |= self.doubtful.is_empty();
        self.doubtful.is_empty()
    }

    /// Nothing is on its way any more: what the log has is what has happened.
    fn settle(&mut self) {
        let mut keys = BTreeMap::<_, OfKey>::new();
        for (_, group) in groups(&self.log, 0..u64::MAX) {
            for record in group {
                match record.op {
                    Op::Insert | Op::Remove => {
                        keys.entry((record.op as u8, record.payload)).or_default().least += 1;
                    }
                    Op::Clear => keys.clear(),
                    _ => {}
                }
            }
        }
        self.keys = keys;
        self.clearing = false;
        self.running.clear();
        self.settled = self.log.keys().next_back().map_or(1, |&last| last + 1);
    }

    /// Begins an operation with these records; `checks` if the key is inserted only if it is new.
    pub fn begin(&mut self, written: &[Written], checks: bool) -> Begun {
        for &(op, hash) in written {
            self.keys.entry((op as u8, hash)).or_default().unknown += 1;
            self.clearing |= op == Op::Clear;
            if op == Op::Insert {
                *self.checked_only.entry(hash).or_insert(true) &= checks && !self.is_image_lost;
            }
        }
        let last = self.log.keys().next_back().map_or(0, |&last| last + 1);
        let from = self.next.max(last);
        *self.running.entry(from).or_default() += 1;
        let overlaps_from = self.running.keys().next().copied().unwrap_or(from);
        Begun { from, overlaps_from, timeline: self.timeline }
    }

    /// Ends an operation that has not happened.
    pub fn fail(&mut self, written: &[Written]) {
        for &(op, hash) in written {
            let of_key = self.keys.entry((op as u8, hash)).or_default();
            of_key.unknown = of_key.unknown.saturating_sub(1);
        }
    }

    /// Ends an operation that has happened. Its records must be there; returns the LSN behind them.
    pub fn end(&mut self, begun: Begun, written: &[Written]) -> Checked<u64> {
        let mut end = 0;
        // An alteration meanwhile leaves out notes at the end of the log before it.
        let is_altered = begun.timeline != self.timeline;
        let from = if is_altered { begun.from.min(self.start) } else { begun.from };
        for &(op, hash) in written {
            let of_key = self.keys.entry((op as u8, hash)).or_default();
            of_key.unknown = of_key.unknown.saturating_sub(1);
            of_key.least += 1;
            let mut after = self.log.range(from..);
            let found = after.find(|(_, (_, record))| {
                record.op == op && (record.payload == hash || op == Op::Clear)
            });
            let Some((&lsn, _)) = found else {
                return Err(format!(
                    "{op:?} of {hash:x} returned and has no record from {from} on"
                ));
            };
            if op == Op::Insert {
                self.overlaps.insert(lsn, begun.overlaps_from.min(from));
            }
            end = end.max(lsn + 1);
        }
        self.returned = self.returned.max(end);
        if let Some(running) = self.running.get_mut(&begun.from) {
            *running -= 1;
        }
        self.running.retain(|_, running| *running > 0);
        Ok(end)
    }

    /// Returns the LSN below which all has returned.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// A call has acknowledged all below an LSN as durable. While pages of the image are lost and
    /// nobody has said so, that is not sure.
    pub fn acknowledge(&mut self, end: u64, disk: &CrashDisk) {
        if end > self.durable && !self.is_image_lost {
            self.durable = end;
            disk.tell_durable_below(end);
        }
    }

    /// Returns the LSN behind the first insert of a key that may count; none if there is none.
    pub fn first_insert(&self, hash: u64) -> Option<u64> {
        let inserts = |record: &Record| record.op == Op::Insert && record.payload == hash;
        let mut log = self.log.iter();
        log.find(|(_, (_, record))| inserts(record)).map(|(&lsn, _)| lsn + 1)
    }

    /// Returns whether a key must be in the window at a time.
    pub fn is_certain(&self, hash: u64, now: u64) -> bool {
        self.was_certain(hash, now, u64::MAX)
    }

    /// As [`Oracle::is_certain`], by inserts of the key below an LSN.
    pub fn was_certain(&self, hash: u64, now: u64, below: u64) -> bool {
        let of = |op: Op| self.keys.get(&(op as u8, hash)).copied().unwrap_or_default();
        let (inserts, removes) = (of(Op::Insert), of(Op::Remove));
        if self.clearing || inserts.least == 0 || removes.least + removes.unknown > 0 {
            return false;
        }
        let is_insert = |record: &Record| record.op == Op::Insert;
        let is_sure = |lsn: &u64| !self.doubtful.iter().any(|doubtful| doubtful.contains(lsn));
        match self.spec.promise {
            Promise::Kept | Promise::Counted => true,
            Promise::Nothing => false,
            Promise::Last(window) => {
                let unknown: u64 = self.keys.values().map(|of_key| of_key.unknown).sum();
                let inserts = |range| {
                    let records = self.log.range::<u64, _>(range);
                    records.filter(|(_, (_, record))| is_insert(record))
                };
                let latest = inserts(0..below).rfind(|(_, (_, record))| record.payload == hash);
                // Inserts that ran at the same time may have been counted after it.
                let latest = latest.filter(|(lsn, _)| is_sure(lsn));
                let from = latest.and_then(|(lsn, _)| self.overlaps.get(lsn));
                from.is_some_and(|&from| inserts(from..u64::MAX).count() as u64 + unknown <= window)
            }
            Promise::Within(window) => {
                let has_happened =
                    |lsn: &u64| *lsn < self.settled || self.overlaps.contains_key(lsn);
                let happened =
                    self.log.range(..below).filter(|(lsn, _)| has_happened(lsn) && is_sure(lsn));
                let mut inserts = happened.map(|(_, (_, record))| record);
                let latest = inserts.rfind(|record| is_insert(record) && record.payload == hash);
                latest.is_some_and(|record| now < record.time + window)
            }
        }
    }

    /// Returns the keys' hashes of all inserts.
    pub fn inserted(&self) -> impl Iterator<Item = u64> {
        let codes = self.keys.keys().filter(|(code, _)| *code == Op::Insert as u8);
        codes.map(|&(_, hash)| hash)
    }

    /// Returns the latest time of a record.
    pub fn latest(&self) -> u64 {
        let timed = self.log.values().filter(|(_, record)| record.op == Op::Insert);
        timed.map(|(_, record)| record.time).max().unwrap_or(0)
    }

    /// Applies all records below an LSN, and compares them with what callers know.
    pub fn apply(&mut self, end: u64, disk: &CrashDisk) -> Checked<()> {
        self.compare()?;
        if !self.knows_state() {
            self.settle();
            return Ok(());
        }
        let revision = Revision::as_of(u64::MAX, self.spec, disk)?;
        self.is_beyond_comparison |= !revision.is_known();
        if revision != std::mem::replace(&mut self.revision, revision) {
            self.replayed = Replayed::new(self.spec, revision, self.layout);
        }
        for (after, group) in groups(&self.log, self.replayed.end..end) {
            let applied = self.replayed.apply(after, &group);
            if applied.is_err()
                && self.doubtful.iter().any(|doubtful| doubtful.contains(&(after - 1)))
            {
                // A claim that was given although another one is there, for example.
                self.is_beyond_comparison = true;
                return Ok(());
            }
            applied?;
        }
        self.settle();
        Ok(())
    }

    /// Compares the records of each key with what callers know of it. Nobody is in a call.
    fn compare(&self) -> Checked<()> {
        let (mut found, mut is_whole) = (BTreeMap::<(u8, u64), u64>::new(), true);
        for (_, group) in groups(&self.log, 0..u64::MAX) {
            for record in group {
                match record.op {
                    Op::Insert | Op::Remove => {
                        *found.entry((record.op as u8, record.payload)).or_default() += 1;
                    }
                    Op::Clear => {
                        is_whole &= !self.clearing;
                        found.clear();
                    }
                    _ => {}
                }
            }
        }
        if !is_whole {
            return Ok(());
        }
        for (&(code, hash), of_key) in self
            .keys
            .iter()
            .filter(|((code, _), _)| [Op::Insert as u8, Op::Remove as u8].contains(code))
        {
            let count = found.remove(&(code, hash)).unwrap_or(0);
            let may_be = of_key.least..=of_key.least + of_key.unknown;
            if !may_be.contains(&count) {
                return Err(format!(
                    "key {hash:x} has {count} records of code {code}, expected {may_be:?}"
                ));
            }
            let keeps = matches!(self.spec.promise, Promise::Kept | Promise::Counted);
            let is_checked = self.checked_only.get(&hash) == Some(&true);
            let is_removed = self.keys.contains_key(&(Op::Remove as u8, hash));
            if code == Op::Insert as u8 && keeps && is_checked && !is_removed && count > 1 {
                return Err(format!("key {hash:x} was new {count} times"));
            }
        }
        match found.iter().next() {
            Some(((code, hash), count)) => {
                Err(format!("{count} records of code {code} for key {hash:x}, which nobody wrote"))
            }
            None => Ok(()),
        }
    }

    /// Returns whether the filter's state is that of its records: an alteration performs the
    /// operations anew, and kinds with an order decide by it when their events come.
    pub fn knows_state(&self) -> bool {
        !(self.may_be_altered && self.spec.has_order())
    }

    /// Returns whether the filter cannot be compared with its records any more.
    pub fn is_beyond_comparison(&self) -> bool {
        self.is_beyond_comparison
    }

    pub fn print(&self) {
        for (lsn, (timeline, record)) in &self.log {
            println!("{lsn} {timeline} {record:?}");
        }
        let Self { start, next, returned, durable, .. } = self;
        println!("start {start} next {next} returned {returned} durable {durable}");
    }

    /// Returns the filter that the records applied so far make.
    pub fn machine(&self) -> &Machine {
        &self.replayed.machine
    }

    /// Returns its digest.
    pub fn digest(&self) -> u128 {
        self.replayed.digest()
    }

    /// Returns the digest of the filter as of the record with this LSN.
    pub fn digest_as_of(&self, lsn: u64, disk: &CrashDisk) -> Checked<u128> {
        let mut then =
            Replayed::new(self.spec, Revision::as_of(lsn, self.spec, disk)?, self.layout);
        for (after, group) in groups(&self.log, 0..lsn + 1) {
            then.apply(after, &group)?;
        }
        Ok(then.digest())
    }

    /// Returns the claims that the records applied so far leave.
    pub fn claims(&self) -> Vec<HeldClaim> {
        self.replayed.machine.claims().copied().collect()
    }

    /// Returns the positions that the records applied so far leave, by source.
    pub fn positions(&self) -> Vec<(u64, u64)> {
        self.replayed.positions()
    }
}
