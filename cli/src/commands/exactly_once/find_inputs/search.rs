//! The search for the recorded inputs among the files.

use super::super::files::Found;
use super::super::positions::{Entry, name_hash};
use super::super::{refusals, rotation_names};
use super::Search;
use super::unread::has_next_number;
use crate::failure::{Failure, Result};
use crate::trail::Trail;
use std::fs::File;

/// The bytes that a file of its name must have in common with an input that was read to its end,
/// unless its age says more, or it is compressed or a part of a rotation.
const TELLING_BYTES: u64 = 64;

/// The bytes and lines that it must have in common with an input that may have grown since, that
/// was left out, or that had another name: more than headers and banners have, because what is
/// bound wrongly is lost.
const CERTAIN_BYTES: u64 = 4096;
const CERTAIN_LINES: u64 = 16;

/// The number of the next line if only a header was read.
const BEHIND_HEADER: u64 = 2;

impl Search<'_> {
    pub(super) fn by_identity(&mut self) -> Result<()> {
        self.bind_identities()?;
        // One that was read to its end, and whose name another file has now, tells what names the
        // rotation makes.
        let given = self.files.all.iter().filter(|file| file.is_given());
        let names: Vec<u64> = given.map(|file| name_hash(&file.name)).collect();
        let lost = self.lost().into_iter().map(|slot| (slot, self.entry(slot)));
        let lost =
            lost.filter(|(slot, entry)| self.is_wanted(*slot) || names.contains(&entry.name));
        let missing: Vec<u64> = lost.map(|(_, entry)| entry.identity).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.files.add_of_identity(self.wanted.own, &missing)?;
        self.bind_identities()
    }

    fn bind_identities(&mut self) -> Result<()> {
        for slot in self.lost() {
            let entry = self.entry(slot);
            let identities = || self.files.all.iter().map(|file| file.identity);
            let at = identities()
                .position(|identity| identity.is_exactly(entry.identity))
                .or_else(|| identities().position(|identity| identity.is(entry.identity)));
            let is_free =
                |at: usize| self.slot_of(at).is_none() && !self.changed.contains(&(at, slot));
            let Some(at) = at.filter(|&at| is_free(at)) else { continue };
            if entry.offset == 0 {
                // There is nothing to compare, and this user may not be permitted to read it.
                self.found[slot] = Some((at, Trail::default().at_line(entry.lines)));
                continue;
            }
            let file = &self.files.all[at];
            let opened = file.open()?;
            let failed = |error| Failure::reading(&file.path, &error);
            // A rotation keeps many of them, and each comparison would decompress all of it.
            if self.is_settled(file, &entry)
                && self.wanted.content.is_packed(&opened).map_err(failed)?
            {
                self.found[slot] = Some((at, Trail::default()));
                self.settled.push((slot, at));
                continue;
            }
            match self.wanted.content.of_same_file(&opened, &entry).map_err(failed)? {
                Some(trail) => self.found[slot] = Some((at, trail)),
                None => self.changed.push((at, slot)),
            }
        }
        Ok(())
    }

    /// Returns whether the file of an input's identity was read to its end, is not given, and was
    /// not changed since the last run.
    fn is_settled(&self, file: &Found, entry: &Entry) -> bool {
        let is_changed = file.changed > self.inputs.seen || self.is_clock_back;
        entry.is_complete && !file.is_given() && !is_changed
    }

    /// Finds empty inputs that were copied and are empty still.
    fn bind_empty(&mut self) {
        for slot in self.lost() {
            let entry = self.entry(slot);
            let is_it = |at: &usize| {
                let file = &self.files.all[*at];
                let is_same = name_hash(&file.name) == entry.name && file.size == 0;
                let is_old = file.written <= self.inputs.seen;
                is_same && file.is_given() && is_old && self.slot_of(*at).is_none()
            };
            let at = (0..self.files.all.len()).find(is_it);
            if let Some(at) = at.filter(|_| entry.offset == 0) {
                self.found[slot] = Some((at, Trail::default()));
            }
        }
    }

    /// Finds inputs that were copied or compressed.
    pub(super) fn by_content(&mut self) -> Result<()> {
        self.bind_empty();
        self.bind_contents()?;
        self.bind_filled()
    }

    /// Finds inputs of which nothing was read in the parts that were copied or compressed from
    /// them: names and numbers alone show which they are.
    fn bind_filled(&mut self) -> Result<()> {
        for slot in 0..self.found.len() {
            let is_it = |entry: &Entry| entry.offset == 0 && self.is_wanted(slot);
            if !self.inputs.entries[slot].as_ref().is_some_and(is_it) {
                continue;
            }
            if let Some(at) = self.filled(slot)? {
                self.found[slot] = Some((at, Trail::default()));
            }
        }
        Ok(())
    }

    /// Returns the part that holds all of an input of which nothing was read, if there was one
    /// rotation. After several of them that part may be gone, and the one that is there be another.
    fn filled(&self, slot: usize) -> Result<Option<usize>> {
        let (entry, found) = (self.entry(slot), self.found[slot].as_ref().map(|(at, _)| *at));
        let mut parts = Vec::new();
        for (live_at, live) in self.files.all.iter().enumerate() {
            let was_live = name_hash(&live.name) == entry.name;
            // A log that is still there was copied and truncated.
            let is_truncated = found == Some(live_at) && was_live;
            if !live.is_given() || found.is_some() && !is_truncated {
                continue;
            }
            let shifted = self.shifted(live);
            if shifted.is_empty() && !self.has_dated(live, u64::MAX) {
                continue;
            }
            let mut new = Vec::new();
            for at in self.with_content(self.new_rotated(live))? {
                let file = &self.files.all[at];
                if file.is_forbidden() {
                    return Err(refusals::forbidden(file));
                }
                let is_copied = is_truncated || self.is_copied(at, live_at);
                let end = if is_copied { self.beginning_of_log(at)? } else { None };
                // Nothing, compressed, begins every log.
                if end.is_none_or(|end| !is_truncated && end.offset() == 0) {
                    new.push(at);
                }
            }
            let [at] = new[..] else { continue };
            let file = &self.files.all[at];
            let has_base_name = name_hash(rotation_names::unpacked(&file.name)) == entry.name;
            let is_it = match rotation_names::number(&file.name, &live.name) {
                Some(_) if shifted.is_empty() => false,
                Some(number) if was_live => {
                    number == self.first_number(live) || shifted.contains(&(number + 1))
                }
                Some(_) => has_next_number(file, live, &entry),
                None => self.has_dated(live, file.written) && (was_live || has_base_name),
            };
            parts.extend(is_it.then_some(at));
        }
        // Logs of one name in several directories: each has its part, and nothing was read of any.
        let is_alike = |&slot: &usize| {
            let other = self.entry(slot);
            (other.name, other.offset) == (entry.name, 0) && self.is_wanted(slot)
        };
        let alike = self.lost().into_iter().filter(is_alike).count();
        Ok(parts.first().copied().filter(|_| parts.len() == 1 || parts.len() == alike))
    }

    /// Returns whether a recorded part of a log with a date is there that was not written after
    /// this time. What is newer than that was not removed for its age.
    fn has_dated(&self, live: &Found, written: u64) -> bool {
        let mut parts = self.found.iter().flatten().map(|(at, _)| &self.files.all[*at]);
        let is_part = |part: &Found| is_dated_part(part, live) && self.is_placed(part, live);
        parts.any(|part| part.written <= written && is_part(part))
    }

    /// Returns the parts of a log with numbers or dates that are not recorded, and may have lines
    /// that no run has read.
    pub(super) fn new_rotated(&self, live: &Found) -> Vec<usize> {
        let all = 0..self.files.all.len();
        let is_it = |&at: &usize| {
            let file = &self.files.all[at];
            let has_number = rotation_names::number(&file.name, &live.name).is_some();
            let is_new = file.is_given() && file.size > 0 || self.is_unread(at);
            let is_form = (0..self.files.all.len()).any(|base| self.is_packed_form(at, base));
            // It may be an input that was read, whose place another one took.
            let is_forgotten = self.inputs.forgotten > 0 && file.written <= self.inputs.forgotten;
            (has_number || is_dated_part(file, live))
                && self.is_placed(file, live)
                && is_new
                && !is_forgotten
                && self.slot_of(at).is_none()
                && !self.wanted.left_out.contains(&file.id)
                && !is_form
        };
        all.filter(is_it).collect()
    }

    fn bind_contents(&mut self) -> Result<()> {
        let has_content = |&slot: &usize| self.entry(slot).offset > 0;
        let lost: Vec<usize> = self.lost().into_iter().filter(has_content).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let entries: Vec<Entry> = lost.iter().map(|&slot| self.entry(slot)).collect();
        for (which, mut files) in self.matches(&lost, &entries)?.into_iter().enumerate() {
            let slot = lost[which];
            if files.len() > 1 && self.is_wanted(slot) {
                self.choose(&mut files, &entries[which])?;
                if files.len() > 1 {
                    let names = files.iter().map(|(at, _)| &self.files.all[*at]);
                    return Err(refusals::ambiguous(&entries[which], &names.collect::<Vec<_>>()));
                }
            }
            let Some((at, trail)) = files.into_iter().next() else { continue };
            if let Some(other) = self.slot_of(at) {
                (self.found[other], self.inputs.entries[other]) = (None, None);
            }
            self.found[slot] = Some((at, trail));
        }
        Ok(())
    }

    /// Returns the files that begin like each of these lost inputs, with the places in them.
    fn matches(&mut self, lost: &[usize], entries: &[Entry]) -> Result<Vec<Vec<(usize, Trail)>>> {
        let any_is_wanted = lost.iter().any(|&slot| self.is_wanted(slot));
        let mut matches: Vec<Vec<(usize, Trail)>> = vec![Vec::new(); lost.len()];
        let (mut alike, mut copied) = (Vec::new(), Vec::new());
        for at in 0..self.files.all.len() {
            let file = &self.files.all[at];
            let slot = self.slot_of(at);
            let Some(opened) = self.open_candidate(at, any_is_wanted)? else { continue };
            let failed = |error| Failure::reading(&file.path, &error);
            let is_packed = self.wanted.content.is_packed(&opened).map_err(failed)?;
            let begun = self.wanted.content.matching(&opened, entries).map_err(failed)?;
            // The lines of a copy are read in its original.
            let is_copy = || match is_packed {
                true => self.is_form(at, any_is_wanted),
                false => Ok(self.beginning_of_log(at)?.is_some()),
            };
            if begun.is_empty() || is_copy()? {
                continue;
            }
            let mut likely = Vec::new();
            for (which, trail) in begun {
                let is_free = slot.is_none() || self.is_wanted(lost[which]);
                if is_free && self.is_telling(at, &entries[which], is_packed.then_some(&opened))? {
                    likely.push((which, trail));
                } else if file.is_given() {
                    alike.push((lost[which], at));
                }
            }
            // Of inputs of which one begins with the other, the file is the longest; of equal ones,
            // one whose file is not in another directory.
            likely.sort_by_key(|(which, trail)| {
                let of = &matches[*which];
                let is_beside = of.iter().any(|(other, _)| self.files.all[*other].is_beside(file));
                (trail.offset(), self.is_wanted(lost[*which]), is_beside, of.is_empty())
            });
            let Some((longest, trail)) = likely.pop() else { continue };
            if entries[longest].is_left_out {
                let is_it = |which: usize| {
                    self.is_wanted(lost[which]) && entries[which].lines > BEHIND_HEADER
                };
                let input = likely.into_iter().rfind(|(which, _)| is_it(*which));
                copied.extend(input.map(|(which, trail)| (which, at, trail)));
            }
            matches[longest].push((at, trail));
        }
        // A copy is left out as long as its log is there. That was truncated if no other file is
        // it.
        copied.retain(|(which, ..)| matches[*which].is_empty());
        for (which, at, trail) in copied {
            matches.iter_mut().for_each(|files| files.retain(|(other, _)| *other != at));
            matches[which].push((at, trail));
        }
        self.alike = alike;
        Ok(matches)
    }

    /// Opens a file that may be a lost input; `None` if it cannot be one.
    fn open_candidate(&self, at: usize, any_is_wanted: bool) -> Result<Option<File>> {
        let (file, slot) = (&self.files.all[at], self.slot_of(at));
        let is_candidate = file.is_given() || any_is_wanted || self.is_unread(at);
        // A file of which nothing is read may hold what was read of another one.
        if !is_candidate || file.size == 0 || slot.is_some_and(|slot| self.is_input(slot)) {
            return Ok(None);
        }
        // It may be an input that was read, whose place another one took.
        if slot.is_none() && !file.is_given() && file.newest <= self.inputs.forgotten {
            return Ok(None);
        }
        // Others beside the inputs may be anything, also parts of other logs.
        if file.is_forbidden() {
            let is_known = slot.is_some() || self.wanted.left_out.contains(&file.id);
            if !is_known && self.is_part_of_given(file) && self.is_unread(at) {
                return Err(refusals::forbidden(file));
            }
            return Ok(None);
        }
        match file.open() {
            Err(_) if file.is_gone() && !self.is_part_of_given(file) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Returns whether some of a file was read.
    pub(super) fn is_input(&self, slot: usize) -> bool {
        let entry = self.entry(slot);
        entry.offset > 0 && !entry.is_left_out
    }

    /// Returns whether what a file has in common with an input shows that it is the same one: many
    /// files begin with the same header. `packed` is the file if it is compressed.
    fn is_telling(&self, at: usize, entry: &Entry, packed: Option<&File>) -> Result<bool> {
        let file = &self.files.all[at];
        let has_name = entry.name == name_hash(&file.name);
        let accepts = self.wanted.accepts_missing && file.is_given();
        // Another file with the same header may have come in the place of a copy that was left out.
        let may_be_another = entry.is_left_out
            && packed.is_none()
            && file.size > entry.offset
            && entry.offset < CERTAIN_BYTES;
        if has_name && !may_be_another && (accepts || file.written <= self.inputs.seen) {
            return Ok(true);
        }
        if self.is_made(file, entry) {
            // A file that was left out and renamed is found by its identity.
            let is_same = match packed {
                _ if !entry.is_left_out => true,
                Some(packed) => self.is_left_out_form(file, packed, entry)?,
                None => false,
            };
            if is_same {
                return Ok(true);
            }
        }
        let was_read_to_end = entry.is_complete && !entry.is_left_out;
        if was_read_to_end && has_name && !self.has_moved_on(file) {
            return Ok(packed.is_some() || entry.offset >= TELLING_BYTES || self.is_part(file));
        }
        // Nothing is missing without one that was read to its end, and a new log or export may
        // begin with all of its lines. These must be read.
        let may_be_new = was_read_to_end && file.written > self.inputs.seen;
        Ok(!may_be_new && entry.offset >= CERTAIN_BYTES && entry.lines > CERTAIN_LINES)
    }

    /// Returns whether a part has its number since a rotation that came after the last run: then it
    /// is not what had that number in front of it.
    fn has_moved_on(&self, file: &Found) -> bool {
        let is_of = |live: &Found| {
            let has_number = rotation_names::number(&file.name, &live.name).is_some();
            has_number && self.is_placed(file, live) && !self.shifted(live).is_empty()
        };
        self.files.all.iter().any(is_of)
    }

    /// Returns whether a compressed file that begins like one that was left out is that one: it has
    /// no other lines, or has more in common with it than a header.
    fn is_left_out_form(&self, file: &Found, packed: &File, entry: &Entry) -> Result<bool> {
        if entry.offset >= CERTAIN_BYTES {
            return Ok(true);
        }
        let content = self.wanted.content;
        let end = content.end(packed);
        let end = end.and_then(|end| content.line_end(packed, end, self.wanted.end));
        let end = end.map_err(|error| Failure::reading(&file.path, &error))?;
        Ok(end.offset() == entry.offset)
    }

    /// Returns whether a file is the compressed form of an input that has been found, or of a file
    /// that is compared as well.
    fn is_form(&self, at: usize, any_is_wanted: bool) -> Result<bool> {
        for base in 0..self.files.all.len() {
            let is_compared = match self.slot_of(base) {
                Some(slot) => self.is_input(slot) || any_is_wanted,
                None => self.files.all[base].is_given() || any_is_wanted || self.is_unread(base),
            };
            if is_compared && self.is_packed_form(at, base) {
                return Ok(self.beginning(at, base, true)?.is_some());
            }
        }
        Ok(false)
    }

    /// Returns the end of a file with all of which the log begins whose part it is by its name.
    pub(super) fn beginning_of_log(&self, at: usize) -> Result<Option<Trail>> {
        for base in 0..self.files.all.len() {
            let [file, log] = [at, base].map(|at| &self.files.all[at]);
            let is_part = rotation_names::is_only_rotated(&file.name, &log.name);
            let is_part = is_part && log.is_given() && file.is_beside_or_below(log);
            if is_part && log.size > 0 {
                let end = self.beginning(at, base, false)?;
                if end.is_some() {
                    return Ok(end);
                }
            }
        }
        Ok(None)
    }

    /// Returns whether a rotation may have made the name of a file from that of an input.
    fn is_made(&self, file: &Found, entry: &Entry) -> bool {
        let is_live = |name: &[u8]| self.files.all.iter().any(|live| live.name == name);
        rotation_names::is_made_from(&file.name, |name| name_hash(name) == entry.name, is_live)
    }

    /// As [`Search::is_part`], of one that is given.
    fn is_part_of_given(&self, file: &Found) -> bool {
        let is_of =
            |live: &Found| live.is_given() && rotation_names::is_rotated(&file.name, &live.name);
        self.files.all.iter().any(is_of)
    }

    /// Returns whether by its name a file belongs to the rotation of another one.
    pub(super) fn is_part(&self, file: &Found) -> bool {
        self.files.all.iter().any(|live| rotation_names::is_rotated(&file.name, &live.name))
    }

    /// Removes files from those that hold the content of one input, unless none would be left:
    /// those that are left out or recorded as other files, compressed forms of others, and those
    /// not given. The file that has the name of the input now may be a new one with the same
    /// header. Of the parts of one log the oldest is the input.
    fn choose(&self, files: &mut Vec<(usize, Trail)>, entry: &Entry) -> Result<()> {
        let all: Vec<usize> = files.iter().map(|(at, _)| *at).collect();
        let mut packed = Vec::new();
        for &at in &all {
            for &base in &all {
                if self.is_packed_form(at, base) && self.beginning(at, base, true)?.is_some() {
                    packed.push(at);
                }
            }
        }
        let has_name = |at: usize| name_hash(&self.files.all[at].name) == entry.name;
        let is_old = |at: usize| self.files.all[at].written <= self.inputs.seen;
        let any_made = all.iter().any(|&at| self.is_made(&self.files.all[at], entry));
        let is_given = |at: usize| self.files.all[at].is_given();
        let is_one_given = all.iter().filter(|&&at| is_given(at)).count() == 1;
        let mut keep = |is_it: &dyn Fn(usize) -> bool| {
            if files.iter().any(|(at, _)| is_it(*at)) {
                files.retain(|(at, _)| is_it(*at));
            }
        };
        keep(&|at| !packed.contains(&at));
        keep(&|at| !self.wanted.left_out.contains(&self.files.all[at].id));
        keep(&|at| self.slot_of(at).is_none());
        keep(&|at| has_name(at) && is_old(at));
        keep(&|at| !(any_made && has_name(at)));
        keep(&|at| !is_one_given || is_given(at));
        // None of them has lines that were not read.
        if files.iter().all(|(at, _)| self.files.all[*at].size == entry.offset) {
            files.truncate(1);
        }
        if let Some(oldest) = self.oldest_part(files) {
            files.retain(|(at, _)| *at == oldest);
        }
        Ok(())
    }

    /// Returns the oldest of these files if all of them are parts of one log that no run has read:
    /// those behind it are read from their beginning if they are given, and refused otherwise.
    /// Nothing shows whether an older part was removed: of the input only the beginning is known
    /// that all parts have.
    fn oldest_part(&self, files: &[(usize, Trail)]) -> Option<usize> {
        let is_log = |live: &&Found| {
            files.iter().all(|&(at, _)| {
                let part = &self.files.all[at];
                rotation_names::is_only_rotated(&part.name, &live.name)
                    && self.is_placed(part, live)
                    && self.slot_of(at).is_none()
                    && (part.is_given() || self.is_unread(at))
            })
        };
        let live = self.files.all.iter().find(is_log)?;
        let parts = files.iter().map(|(at, _)| &self.files.all[*at]);
        let mut order: Vec<&Found> = parts.chain([live]).collect();
        refusals::sort(&mut order);
        let oldest = order.into_iter().find(|file| file.id != live.id)?;
        self.files.all.iter().position(|file| file.id == oldest.id)
    }
}

/// Returns whether by its name a file is a part of a log with a date, which it keeps.
fn is_dated_part(file: &Found, live: &Found) -> bool {
    let has_number = rotation_names::number(&file.name, &live.name).is_some();
    !has_number
        && rotation_names::is_dated(&file.name)
        && rotation_names::is_only_rotated(&file.name, &live.name)
}
