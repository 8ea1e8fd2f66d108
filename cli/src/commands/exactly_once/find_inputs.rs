//! What a run reads: finds each recorded input among the files, by its identity or its content, and
//! refuses to continue where lines may be missing. Changes nothing.
//!
//! A line that no earlier run has read was written after the last run began to look. So it is in a
//! recorded input, behind its offset, or in a file written later than that. A recorded input that
//! may have grown must therefore be found, and no other file of its rotation may be as new.

mod copies;
mod search;
mod unread;

use super::content::Content;
use super::files::{Files, Found, Id};
use super::order::{Order, Step};
use super::positions::{Entry, Inputs, MOST_INPUTS, NO_FILE, OldPlace, Recorded, name_hash};
use super::refusals;
use super::rotation_names;
use super::stamps;
use crate::failure::{Failure, Result};
use crate::trail::Trail;
use std::path::PathBuf;

/// What a run is asked to do.
pub struct Wanted<'a> {
    /// The files given.
    pub paths: &'a [PathBuf],
    /// The files of the output.
    pub own: &'a [Id],
    /// Reads the files anew, whatever is recorded.
    pub is_new: bool,
    /// Continues without inputs that are gone.
    pub accepts_missing: bool,
    /// Files that are not to be read.
    pub left_out: Vec<Id>,
    /// Takes the rest of each file as a line.
    pub is_complete: bool,
    /// The byte that ends a line.
    pub end: u8,
    pub content: Content<'a>,
}

/// What a run reads, in order, and what it records before it begins.
pub struct Plan {
    pub steps: Vec<Step>,
    pub inputs: Inputs,
}

/// The search for the recorded inputs.
struct Search<'a> {
    wanted: &'a Wanted<'a>,
    files: Files,
    inputs: Inputs,
    /// The file of each slot, and the place in it.
    found: Vec<Option<(usize, Trail)>>,
    /// The files given that have a recorded identity and other content, with their slots.
    changed: Vec<(usize, usize)>,
    /// The slots of inputs that are gone, with files given that begin like them, which does not
    /// show that they are the same ones.
    alike: Vec<(usize, usize)>,
    /// Files whose names were made as that of an input was, by a rotation of a kind that is not
    /// known, each with the log that has the input's name now.
    strange: Vec<(usize, usize)>,
    copies: Vec<Copied>,
    /// Compressed parts that were read to their end and are as they were then, each with its slot.
    /// Nothing of them is read.
    settled: Vec<(usize, usize)>,
    /// Whether the clock is behind what the last run saw: then the times of files tell nothing.
    is_clock_back: bool,
}

/// A file that is a copy of an input which is still there, finished or not. Its lines are read in
/// that input.
struct Copied {
    file: usize,
    /// Its end, if it is recorded: it may outlive the name that shows what it is a copy of.
    recorded: Option<Trail>,
}

/// Plans a run.
pub fn plan(wanted: &Wanted<'_>, recorded: Recorded) -> Result<Plan> {
    let mut files = Files::look(wanted.paths, wanted.own)?;
    let inputs = match recorded {
        _ if wanted.is_new => Inputs::default(),
        Recorded::Inputs(inputs) => inputs,
        Recorded::Old(place) => converted(wanted, &mut files, place)?,
    };
    let is_first = inputs.is_empty();
    let found = vec![None; MOST_INPUTS];
    let mut inputs = inputs;
    inputs.entries.resize(MOST_INPUTS, None);
    let is_clock_back = stamps::now() < inputs.seen;
    let mut search = Search {
        wanted,
        files,
        inputs,
        found,
        changed: Vec::new(),
        alike: Vec::new(),
        strange: Vec::new(),
        copies: Vec::new(),
        settled: Vec::new(),
        is_clock_back,
    };
    if !is_first {
        search.by_identity()?;
        search.add_strange()?;
        search.by_content()?;
        search.add_strange()?;
        search.refuse_missing()?;
        search.refuse_gaps()?;
    }
    search.find_copies()?;
    search.refuse_unread()?;
    search.abandon_missing();
    search.add_new()?;
    search.add_left_out()?;
    search.finish()
}

impl Search<'_> {
    fn slot_of(&self, file: usize) -> Option<usize> {
        self.found.iter().position(|found| found.as_ref().is_some_and(|(at, _)| *at == file))
    }

    /// Returns the slots of the inputs that have not been found.
    fn lost(&self) -> Vec<usize> {
        let all = self.inputs.iter().map(|(slot, _)| slot);
        all.filter(|&slot| self.found[slot].is_none()).collect()
    }

    fn entry(&self, slot: usize) -> Entry {
        self.inputs.entries[slot].expect("slots of inputs have entries")
    }

    /// Returns whether a lost input may have lines that were not read.
    fn is_wanted(&self, slot: usize) -> bool {
        let entry = self.entry(slot);
        !entry.is_complete && !entry.is_left_out && !entry.is_abandoned
    }

    /// Marks the inputs that are gone and may not have been read to their end, which is accepted
    /// now. Their places are kept, for they may appear again.
    fn abandon_missing(&mut self) {
        for slot in self.lost() {
            let mut entry = self.entry(slot);
            if self.is_wanted(slot) {
                entry.is_abandoned = true;
                // What has its identity now is another input.
                if self.changed.iter().any(|(_, of)| *of == slot) {
                    entry.identity = NO_FILE;
                }
                self.inputs.entries[slot] = Some(entry);
            }
        }
    }

    /// Records files that are left out, and copies: later runs then recognise them under other
    /// names, grown and compressed. If there are no positions left, their times must do.
    fn add_left_out(&mut self) -> Result<()> {
        for at in 0..self.files.all.len() {
            let file = &self.files.all[at];
            let copy = self.copies.iter().find(|copy| copy.file == at);
            let end = copy.and_then(|copy| copy.recorded.clone());
            if end.is_none() && !self.wanted.left_out.contains(&file.id) {
                continue;
            }
            let free = || self.inputs.entries.iter().position(Option::is_none);
            let Some(slot) = self.slot_of(at).or_else(free) else { continue };
            let recorded = self.inputs.entries[slot];
            let end = match (end, recorded) {
                // Nothing of what this user may not read was read: it is known by its identity.
                (None, None) if file.is_forbidden() => None,
                (None, None) => {
                    let trail = self.wanted.content.end(&file.open()?);
                    Some(trail.map_err(|error| Failure::reading(&file.path, &error))?)
                }
                (end, _) => end,
            };
            let mut entry =
                recorded.unwrap_or_else(|| Entry::new(file.identity.recorded, &file.name));
            if let Some(end) = end {
                let end = self.wanted.content.line_end(&file.open()?, end, self.wanted.end);
                entry.advance(&end.map_err(|error| Failure::reading(&file.path, &error))?);
            }
            (entry.is_complete, entry.is_left_out) = (true, true);
            self.inputs.entries[slot] = Some(entry);
        }
        Ok(())
    }

    /// Adds the files given that are not recorded.
    fn add_new(&mut self) -> Result<()> {
        for at in 0..self.files.all.len() {
            let file = &self.files.all[at];
            if !file.is_given() || self.slot_of(at).is_some() || self.is_copy(at) {
                continue;
            }
            if self.inputs.forgotten > 0 && file.written <= self.inputs.forgotten {
                return Err(refusals::forgotten(file));
            }
            self.refuse_unwhole(at)?;
            let entry = Entry::new(file.identity.recorded, &file.name);
            let slot = self.free_slot()?;
            self.inputs.entries[slot] = Some(entry);
            self.found[slot] = Some((at, Trail::default()));
        }
        Ok(())
    }

    /// Refuses to read an input from its beginning that is compressed again in its place, and is
    /// not whole: its lines were read.
    fn refuse_unwhole(&self, at: usize) -> Result<()> {
        let file = &self.files.all[at];
        let former = self.changed.iter().filter(|(changed, _)| *changed == at);
        for entry in former.filter_map(|(_, slot)| self.inputs.entries[*slot].as_ref()) {
            let read = self.wanted.content.up_to(&file.open()?, entry.offset);
            read.map_err(|error| Failure::reading(&file.path, &error))?;
        }
        Ok(())
    }

    /// Returns a free slot; if there is none, that of an input that was complete and is gone, or of
    /// one that is still there and not given.
    fn free_slot(&mut self) -> Result<usize> {
        if let Some(free) = self.inputs.entries.iter().position(Option::is_none) {
            return Ok(free);
        }
        let gone = self.lost().into_iter().find(|&slot| !self.is_wanted(slot));
        let Some(gone) = gone.or_else(|| self.oldest_complete()) else {
            return Err(refusals::too_many(MOST_INPUTS));
        };
        self.inputs.forgotten = self.inputs.seen;
        self.found[gone] = None;
        Ok(gone)
    }

    /// Returns the slot of the oldest file that was read to its end or is left out, and is there.
    /// Without its record it is passed over by its time; if it is given, compressed or grown, runs
    /// are refused.
    fn oldest_complete(&self) -> Option<usize> {
        let found = self.found.iter().enumerate();
        let found = found.filter_map(|(slot, found)| Some((slot, found.as_ref()?.0)));
        let may_go = |&(slot, at): &(usize, usize)| {
            let file = &self.files.all[at];
            let is_old = file.newest <= self.inputs.seen && !self.is_clock_back;
            self.entry(slot).is_complete && !file.is_given() && is_old
        };
        found.filter(may_go).min_by_key(|&(_, at)| self.files.all[at].written).map(|(slot, _)| slot)
    }

    /// Returns whether an input that was read to its end is another file now, to which more may be
    /// written: a new log may begin with all that a part of it had, its header.
    fn may_grow(&self, slot: usize, at: usize) -> Result<bool> {
        let (file, entry) = (&self.files.all[at], self.entry(slot));
        let is_other = !file.identity.is(entry.identity) && file.is_given();
        if !is_other || !entry.is_complete || entry.is_left_out {
            return Ok(false);
        }
        let is_packed = self.wanted.content.is_packed(&file.open()?);
        Ok(!is_packed.map_err(|error| Failure::reading(&file.path, &error))?)
    }

    /// Returns whether an input that was read to its end may have lines again: what was changed or
    /// replaced since the last run is compressed, or has another length.
    fn may_have_news(&self, slot: usize, at: usize) -> Result<bool> {
        let (file, entry) = (&self.files.all[at], self.entry(slot));
        let is_changed = !file.identity.is(entry.identity)
            || file.changed > self.inputs.seen
            || self.is_clock_back;
        if !is_changed || !entry.is_complete || entry.is_left_out || file.size == 0 {
            return Ok(false);
        }
        if file.size != entry.offset {
            return Ok(true);
        }
        let is_packed = self.wanted.content.is_packed(&file.open()?);
        is_packed.map_err(|error| Failure::reading(&file.path, &error))
    }

    /// Records where the inputs are now, and orders them.
    fn finish(mut self) -> Result<Plan> {
        let before = self.inputs.clone();
        let mut found: Vec<(usize, usize, Trail)> = std::mem::take(&mut self.found)
            .into_iter()
            .enumerate()
            .filter_map(|(slot, found)| found.map(|(at, trail)| (slot, at, trail)))
            .collect();
        for (slot, at, _) in &found {
            let (is_copy, may_grow) = (self.is_copy(*at), self.may_grow(*slot, *at)?);
            let has_news = self.may_have_news(*slot, *at)?;
            let file = &self.files.all[*at];
            let live = self.strange.iter().find(|(strange, _)| strange == at);
            let live = live.map(|(_, live)| &self.files.all[*live].name);
            if let Some(entry) = &mut self.inputs.entries[*slot] {
                // If this run is killed before it reads them, the next one has to.
                entry.is_complete &= !has_news;
                // Its own name would not show later runs that it is an earlier part of the log.
                let is_part = |live: &&Vec<u8>| {
                    let was_it =
                        rotation_names::is_dated(&file.name) || entry.name == name_hash(live);
                    was_it && !entry.is_complete
                };
                entry.name = name_hash(live.filter(is_part).unwrap_or(&file.name));
                entry.identity = file.identity.recorded;
                // It was left out, and is given now.
                let is_input = file.is_given() && entry.is_left_out && !is_copy;
                entry.is_complete &= !is_input && !may_grow;
                entry.is_left_out &= !is_input;
                entry.is_abandoned &= !file.is_given();
            }
        }
        self.inputs.seen = self.inputs.seen.max(self.files.seen);
        found.retain(|&(slot, at, _)| !self.settled.contains(&(slot, at)));
        let (files, content) = (&self.files.all, self.wanted.content);
        let strange = &self.strange;
        let order = Order { files, strange, before: &before, now: &self.inputs, content };
        let steps = order.steps(found, self.wanted.is_complete)?;
        Ok(Plan { steps, inputs: self.inputs })
    }
}

/// Converts the place of an earlier version, which stored one for all inputs: those in front of it
/// had been read.
fn converted(wanted: &Wanted<'_>, files: &mut Files, place: OldPlace) -> Result<Inputs> {
    let is_it = |file: &Found| file.id.1 == place.inode;
    if !files.all.iter().any(is_it) {
        files.add_of_inode(wanted.own, place.inode)?;
    }
    let Some(last) = files.all.iter().position(is_it) else {
        if wanted.accepts_missing {
            return Ok(Inputs::default());
        }
        return Err(refusals::old_missing(place.offset));
    };
    let (file, mut inputs) = (&files.all[last], Inputs::default());
    let failed = |error| Failure::reading(&file.path, &error);
    let trail = wanted.content.up_to(&file.open()?, place.offset).map_err(failed)?;
    let mut entry = Entry::new(file.identity.recorded, &file.name);
    entry.advance(&trail.clone().at_line(place.lines));
    if trail.offset() < place.offset || trail.check() & u64::from(u32::MAX) != place.check {
        if wanted.accepts_missing {
            return Ok(Inputs::default());
        }
        entry.offset = place.offset;
        return Err(refusals::changed(&entry, file, &[]));
    }
    entry.is_torn = trail.tail().last().is_some_and(|last| *last != wanted.end);
    inputs.entries.push(Some(entry));
    // Files that were not read were written after the last one was.
    inputs.seen = file.written;
    if file.is_given() {
        for file in &files.all[..last] {
            let failed = |error| Failure::reading(&file.path, &error);
            let trail = wanted.content.up_to(&file.open()?, u64::MAX).map_err(failed)?;
            let mut entry = Entry::new(file.identity.recorded, &file.name);
            entry.is_torn = trail.tail().last().is_some_and(|last| *last != wanted.end);
            entry.advance(&trail);
            inputs.entries.push(Some(entry));
        }
    }
    Ok(inputs)
}
