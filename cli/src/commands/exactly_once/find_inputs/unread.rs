//! What a run refuses to pass over: inputs that are gone, and files that may have lines that no run
//! has read.

use super::super::files::Found;
use super::super::positions::{Entry, name_hash};
use super::super::{refusals, rotation_names};
use super::Search;
use crate::failure::{Failure, Result};
use std::collections::BTreeSet;

impl Search<'_> {
    /// Returns whether a file may contain lines that no run has seen: it is not given, belongs to
    /// the rotation of a file given, and was written or created after the last run began, unless
    /// no run has seen that rotation.
    pub(super) fn is_unread(&self, at: usize) -> bool {
        let file = &self.files.all[at];
        if file.is_given() || file.size == 0 {
            return false;
        }
        let is_new = file.newest > self.inputs.seen || self.is_clock_back;
        // What was there when the last run began was no part then, and has another writer.
        let has_come = file.born == 0 || file.born > self.inputs.seen || self.is_clock_back;
        if is_new && has_come && self.strange.iter().any(|(strange, _)| *strange == at) {
            return true;
        }
        let given = self.files.all.iter().enumerate().filter(|(_, live)| live.is_given());
        given.into_iter().filter(|(_, live)| self.is_placed(file, live)).any(|(live_at, live)| {
            if rotation_names::is_rotated(&file.name, &live.name)
                || self.is_unknown_form(file, live)
            {
                return is_new || !self.is_known(live_at);
            }
            let is_series = |other: &Found| rotation_names::is_series(&other.name, &live.name);
            is_new && is_series(file) && self.has_found(live, is_series) && !self.is_known(live_at)
        })
    }

    /// Returns whether a file is where a rotation puts the parts of a log: beside it, below it, or
    /// where others are given.
    pub(super) fn is_placed(&self, file: &Found, live: &Found) -> bool {
        let is_part = |other: &Found| {
            other.is_given()
                && other.is_beside(file)
                && rotation_names::is_rotated(&other.name, &live.name)
        };
        file.is_beside_or_below(live) || self.files.all.iter().any(is_part)
    }

    /// Returns whether by its name a file is a part of a log's rotation, compressed in an unknown
    /// format, whose lines are in no other file.
    fn is_unknown_form(&self, file: &Found, live: &Found) -> bool {
        let Some(base) = rotation_names::unknown_form(&file.name, &live.name) else { return false };
        let is_base = |other: &Found| {
            let is_older = base != live.name || self.is_part(other);
            let is_form = base != live.name && rotation_names::unpacked(&other.name) == base;
            let is_it = (other.name == base && is_older) || is_form;
            is_it && other.size > 0 && other.is_beside(file)
        };
        !self.files.all.iter().any(is_base)
    }

    /// Finds inputs that were renamed in a way that is not known, since another file has their
    /// names, and adds the files that were renamed alike.
    pub(super) fn add_strange(&mut self) -> Result<()> {
        let mut strange = Vec::new();
        for (slot, entry) in self.inputs.iter() {
            let Some((at, _)) = self.found[slot] else { continue };
            let file = &self.files.all[at];
            let has_its_name = |live: &Found| {
                let is_it = live.is_given() && name_hash(&live.name) == entry.name;
                is_it && live.id != file.id && self.is_placed(file, live)
            };
            let live = self.files.all.iter().position(has_its_name);
            let Some(live) = live.filter(|_| name_hash(&file.name) != entry.name) else { continue };
            let is_part = |live: &Found| rotation_names::is_rotated(&file.name, &live.name);
            if !self.files.all.iter().any(|live| live.is_given() && is_part(live)) {
                strange.push((at, file.name.clone(), live));
            }
        }
        for (at, name, live) in strange {
            self.strange.push((at, live));
            let of = self.files.all[live].name.clone();
            self.files.add_alike(self.wanted.own, &name, &of)?;
            for (at, file) in self.files.all.iter().enumerate() {
                let is_it = rotation_names::is_alike(&name, &file.name, &of);
                if is_it && self.is_placed(file, &self.files.all[live]) {
                    self.strange.push((at, live));
                }
            }
        }
        Ok(())
    }

    /// Returns whether an earlier run has seen the rotation of a file given. The directory of an
    /// input that is gone is not recorded: its name counts if only one file given has it.
    fn is_known(&self, live_at: usize) -> bool {
        let live = &self.files.all[live_at];
        let given = self.files.all.iter().filter(|file| file.is_given());
        let is_only = given.filter(|file| file.name == live.name).count() == 1;
        let is_part = |other: &Found| rotation_names::is_rotated(&other.name, &live.name);
        let is_lost = |slot: usize| self.found[slot].is_none();
        let mut recorded = self.inputs.iter();
        self.slot_of(live_at).is_some()
            || self.has_found(live, is_part)
            || is_only
                && recorded
                    .any(|(slot, entry)| is_lost(slot) && entry.name == name_hash(&live.name))
    }

    /// Returns whether such a recorded input was found beside a file, or where its parts are.
    fn has_found(&self, live: &Found, is_it: impl Fn(&Found) -> bool) -> bool {
        let mut found = self.found.iter().flatten().map(|(at, _)| &self.files.all[*at]);
        found.any(|file| self.is_placed(file, live) && is_it(file))
    }

    /// Refuses to continue without inputs that may have lines that were not read.
    pub(super) fn refuse_missing(&self) -> Result<()> {
        if self.wanted.accepts_missing {
            return Ok(());
        }
        let mut lost = self.lost();
        lost.retain(|&slot| self.is_wanted(slot));
        let Some(&first) = lost.first() else { return self.refuse_returned() };
        let all = &self.files.all;
        let changed = self.changed.iter().find(|(_, of)| lost.contains(of));
        let (of, mut failure) = match changed {
            Some(&(at, slot)) => {
                let parts = self.new_parts(&all[at]);
                (slot, refusals::changed(&self.entry(slot), &all[at], &parts))
            }
            None => (first, self.missing(first)?),
        };
        if let Some((_, at)) = self.alike.iter().find(|(slot, _)| *slot == of) {
            failure = refusals::alike(failure, &self.entry(of), &all[*at]);
        }
        let others = lost.iter().filter(|slot| **slot != of).map(|&slot| self.entry(slot));
        Err(refusals::also_missing(failure, &others.collect::<Vec<Entry>>(), all))
    }

    /// Describes an input that is gone. One of which nothing was read may be any new part of the
    /// log that has its name now, but a copy of that.
    fn missing(&self, slot: usize) -> Result<Failure> {
        let (entry, all) = (self.entry(slot), &self.files.all);
        let mut parts = BTreeSet::new();
        for (live_at, live) in all.iter().enumerate().filter(|_| entry.offset == 0) {
            if !live.is_given() || name_hash(&live.name) != entry.name {
                continue;
            }
            for at in self.with_content(self.new_rotated(live))? {
                let is_copied = self.is_copied(at, live_at) && !all[at].is_forbidden();
                let end = if is_copied { self.beginning_of_log(at)? } else { None };
                if end.is_none_or(|end| end.offset() == 0) {
                    parts.insert(at);
                }
            }
        }
        let parts: Vec<&Found> = parts.into_iter().map(|at| &all[at]).collect();
        Ok(match &parts[..] {
            [] => refusals::missing(&entry, all),
            parts => refusals::unrecognised(&entry, parts, all),
        })
    }

    /// Refuses to read a file from its beginning that may be an input whose loss was accepted: it
    /// has that name, and begins with all that was read.
    fn refuse_returned(&self) -> Result<()> {
        let is_it = |&&(slot, at): &&(usize, usize)| {
            let entry = self.entry(slot);
            let has_name = entry.name == name_hash(&self.files.all[at].name);
            let is_open = self.found[slot].is_none() && self.slot_of(at).is_none();
            entry.is_abandoned && has_name && is_open
        };
        match self.alike.iter().find(is_it) {
            Some(&(slot, at)) => Err(refusals::returned(&self.entry(slot), &self.files.all[at])),
            None => Ok(()),
        }
    }

    /// Returns the files of an input's rotation that no run has seen.
    fn new_parts(&self, live: &Found) -> Vec<&Found> {
        let unread = (0..self.files.all.len()).filter(|&at| {
            let name = &self.files.all[at].name;
            rotation_names::is_rotated(name, &live.name)
                && self.slot_of(at).is_none()
                && self.is_unread(at)
        });
        unread.map(|at| &self.files.all[at]).filter(|file| self.is_placed(file, live)).collect()
    }

    /// Refuses to continue if files are gone between an input that was renamed and the file that
    /// has its name now: `h.log.1`, if `h.log` became `h.log.2`.
    pub(super) fn refuse_gaps(&self) -> Result<()> {
        if self.wanted.accepts_missing {
            return Ok(());
        }
        for (slot, entry) in self.inputs.iter() {
            let Some((at, _)) = &self.found[slot] else { continue };
            let file = &self.files.all[*at];
            if name_hash(&file.name) == entry.name {
                continue;
            }
            let is_live = |live: &&Found| live.is_given() && name_hash(&live.name) == entry.name;
            let lives = self.files.all.iter().filter(is_live);
            let nearest = |live: &&Found| (!live.is_beside(file), !file.is_beside_or_below(live));
            let Some(live) = lives.min_by_key(nearest) else { continue };
            if !self.shifted(live).is_empty() {
                continue;
            }
            let others = self.files.all.iter();
            let others = others.filter(|other| other.is_beside(file) || other.is_beside(live));
            let numbers: Vec<u64> = others
                .filter_map(|other| rotation_names::number(&other.name, &live.name))
                .collect();
            let last = rotation_names::number(&file.name, &live.name).unwrap_or(0);
            let first = self.first_number(live);
            if let Some(gone) = (first..last).find(|number| !numbers.contains(number)) {
                return Err(refusals::gap(file, live, gone));
            }
        }
        Ok(())
    }

    /// Returns the number of a log's newest part: some rotations begin at 1, others at 0, which
    /// only a recorded input shows.
    pub(super) fn first_number(&self, live: &Found) -> u64 {
        let zero = name_hash(&[&live.name[..], b".0"].concat());
        u64::from(!self.inputs.iter().any(|(_, entry)| entry.name == zero))
    }

    /// Returns the numbers of the parts of a log that had the ones before at the last run. If there
    /// are any, it was rotated once since. Its newest part may then have any number: a rotation may
    /// begin at 3.
    pub(super) fn shifted(&self, live: &Found) -> Vec<u64> {
        let shifted = self.inputs.iter().filter_map(|(slot, entry)| {
            let part = &self.files.all[self.found[slot].as_ref()?.0];
            let is_shifted = self.is_placed(part, live) && has_next_number(part, live, entry);
            rotation_names::number(&part.name, &live.name).filter(|_| is_shifted)
        });
        shifted.collect()
    }

    /// Returns whether a file is the compressed form of one without lines.
    fn holds_nothing(&self, at: usize) -> Result<bool> {
        let file = &self.files.all[at];
        if file.is_forbidden() {
            return Ok(false);
        }
        let is_it = self.wanted.content.is_packed_nothing(&file.open()?);
        is_it.map_err(|error| Failure::reading(&file.path, &error))
    }

    /// Returns these files without those that hold nothing, if others hold something.
    pub(super) fn with_content(&self, mut files: Vec<usize>) -> Result<Vec<usize>> {
        if files.len() < 2 {
            return Ok(files);
        }
        let mut empty = Vec::new();
        for &at in &files {
            if self.holds_nothing(at)? {
                empty.push(at);
            }
        }
        if empty.len() < files.len() {
            files.retain(|at| !empty.contains(at));
        }
        Ok(files)
    }

    /// Refuses to pass over a file that is not given and may contain lines that were not read.
    pub(super) fn refuse_unread(&self) -> Result<()> {
        let all = 0..self.files.all.len();
        let unread: Vec<usize> =
            all.filter(|&at| self.slot_of(at).is_none() && self.is_unread(at)).collect();
        let is_passed = |&at: &usize| {
            let is_left_out = self.wanted.left_out.contains(&self.files.all[at].id);
            !is_left_out && !self.is_copy(at)
        };
        let mut passed = Vec::new();
        for at in unread.into_iter().filter(is_passed) {
            if !self.holds_nothing(at)? {
                passed.push(&self.files.all[at]);
            }
        }
        if passed.is_empty() {
            return Ok(());
        }
        for file in &passed {
            let is_unknown = |live: &Found| live.is_given() && self.is_unknown_form(file, live);
            if self.files.all.iter().any(is_unknown) {
                return Err(refusals::unknown_format(file));
            }
            if file.is_forbidden() {
                return Err(refusals::forbidden(file));
            }
            let format = self.wanted.content.unread(&file.open()?);
            if let Some(format) = format.map_err(|error| Failure::reading(&file.path, &error))? {
                return Err(refusals::undecoded(file, format));
            }
        }
        let known = self.found.iter().flatten().map(|(at, _)| &self.files.all[*at]);
        Err(refusals::unread(&passed, &known.collect::<Vec<_>>(), &self.files.all))
    }
}

/// Returns whether in the rotation of a log a file has the number behind that which an input had at
/// the last run.
pub(super) fn has_next_number(file: &Found, live: &Found, entry: &Entry) -> bool {
    let number = rotation_names::number(&file.name, &live.name).filter(|number| *number > 0);
    number.is_some_and(|number| {
        let before = [&live.name[..], format!(".{}", number - 1).as_bytes()].concat();
        let packed = [".gz", ".zst", ".xz"].map(|end| [&before, end.as_bytes()].concat());
        packed.iter().chain([&before]).any(|name| name_hash(name) == entry.name)
    })
}
