//! What a run reads: finds each recorded input among the files, by its identity or its content, and
//! refuses to continue where lines may be missing. Changes nothing.
//!
//! A line that no earlier run has read was written after the last run began to look. So it is in a
//! recorded input, behind its offset, or in a file written later than that. A recorded input that
//! may have grown must therefore be found, and no other file of its rotation may be as new.

use super::content::Content;
use super::files::{Files, Found, Id};
use super::names;
use super::order::{Order, Step};
use super::positions::{Entry, Inputs, MOST_INPUTS, OldPlace, Recorded, name_hash};
use super::refusals;
use super::stamps;
use crate::failure::{Failure, Result};
use crate::trail::Trail;
use std::path::PathBuf;

/// The bytes that a file must have in common with a recorded input of another identity, unless its
/// name or its age says more: many files begin with the same lines.
const TELLING_BYTES: u64 = 64;

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
    copies: Vec<Copied>,
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
    let (changed, copies) = (Vec::new(), Vec::new());
    let mut search = Search { wanted, files, inputs, found, changed, copies, is_clock_back };
    if !is_first {
        search.by_identity()?;
        search.by_content()?;
        search.refuse_missing()?;
        search.refuse_gaps()?;
    }
    search.find_copies()?;
    search.refuse_unread()?;
    search.remove_missing();
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
        !entry.is_complete && !entry.is_left_out
    }

    fn by_identity(&mut self) -> Result<()> {
        self.bind_identities()?;
        let lost = self.lost();
        let lost = lost.iter().filter(|&&slot| self.is_wanted(slot));
        let missing: Vec<u64> = lost.map(|&slot| self.entry(slot).identity).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.files.add_of_identity(self.wanted.own, &missing);
        self.bind_identities()
    }

    fn bind_identities(&mut self) -> Result<()> {
        for slot in self.lost() {
            let entry = self.entry(slot);
            let at = self.files.all.iter().position(|file| file.identity == entry.identity);
            let Some(at) = at.filter(|&at| !self.changed.contains(&(at, slot))) else { continue };
            let file = &self.files.all[at];
            let opened = file.open()?;
            let failed = |error| Failure::reading(&file.path, &error);
            match self.wanted.content.of_same_file(&opened, &entry).map_err(failed)? {
                Some(trail) => self.found[slot] = Some((at, trail)),
                None => self.changed.push((at, slot)),
            }
        }
        Ok(())
    }

    /// Finds empty inputs that were copied and are empty still.
    fn bind_empty(&mut self) {
        for slot in self.lost() {
            let entry = self.entry(slot);
            let is_it = |file: &Found| {
                let is_same = name_hash(&file.name) == entry.name && file.size == 0;
                is_same && file.is_given() && file.written <= self.inputs.seen
            };
            let at = self.files.all.iter().position(is_it);
            if let Some(at) = at.filter(|&at| entry.offset == 0 && self.slot_of(at).is_none()) {
                self.found[slot] = Some((at, Trail::default()));
            }
        }
    }

    /// Finds inputs that were copied or compressed.
    fn by_content(&mut self) -> Result<()> {
        self.bind_empty();
        let has_content = |&slot: &usize| self.entry(slot).offset > 0;
        let lost: Vec<usize> = self.lost().into_iter().filter(has_content).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let any_is_wanted = lost.iter().any(|&slot| self.is_wanted(slot));
        let entries: Vec<Entry> = lost.iter().map(|&slot| self.entry(slot)).collect();
        // For each lost input, the files that begin like it.
        let mut matches: Vec<Vec<(usize, Trail)>> = vec![Vec::new(); lost.len()];
        for at in 0..self.files.all.len() {
            let file = &self.files.all[at];
            let is_candidate = file.is_given() || any_is_wanted || self.is_unread(at);
            // A file of which nothing is read may hold what was read of another one.
            let slot = self.slot_of(at);
            if !is_candidate || file.size == 0 || slot.is_some_and(|slot| self.is_input(slot)) {
                continue;
            }
            let failed = |error| Failure::reading(&file.path, &error);
            let opened = file.open()?;
            let is_packed = self.wanted.content.is_packed(&opened).map_err(failed)?;
            let begun = self.wanted.content.matching(&opened, &entries).map_err(failed)?;
            let may_be = |&(which, _): &(usize, Trail)| {
                let is_free = slot.is_none() || self.is_wanted(lost[which]);
                let same_name = entries[which].name == name_hash(&file.name);
                is_free && self.is_telling(file, &entries[which], is_packed) || {
                    let accepts = self.wanted.accepts_missing && file.is_given();
                    is_free && same_name && (accepts || file.written <= self.inputs.seen)
                }
            };
            // Of inputs of which one begins with the other, the file is the longest.
            let longest = begun.into_iter().filter(may_be);
            let longest =
                longest.max_by_key(|(which, trail)| (trail.offset(), self.is_wanted(lost[*which])));
            if let Some((which, trail)) = longest {
                matches[which].push((at, trail));
            }
        }
        for (which, mut files) in matches.into_iter().enumerate() {
            let slot = lost[which];
            if files.len() > 1 && self.is_wanted(slot) {
                self.choose(&mut files)?;
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

    /// Returns whether some of a file was read.
    fn is_input(&self, slot: usize) -> bool {
        let entry = self.entry(slot);
        entry.offset > 0 && !entry.is_left_out
    }

    /// Returns whether what a file has in common with an input shows that it is the same one.
    fn is_telling(&self, file: &Found, entry: &Entry, is_packed: bool) -> bool {
        let is_rotated = |live: &Found| names::is_rotated(&file.name, &live.name);
        is_packed || entry.offset >= TELLING_BYTES || self.files.all.iter().any(is_rotated)
    }

    /// Returns whether a file may contain lines that no run has seen: it is not given, belongs to
    /// the rotation of a file given, and was written or created after the last run began, unless
    /// no run has seen that rotation.
    fn is_unread(&self, at: usize) -> bool {
        let file = &self.files.all[at];
        if file.is_given() || file.size == 0 {
            return false;
        }
        let is_new = file.newest > self.inputs.seen || self.is_clock_back;
        let given = self.files.all.iter().enumerate().filter(|(_, live)| live.is_given());
        given.into_iter().filter(|(_, live)| live.is_beside(file)).any(|(live_at, live)| {
            if names::is_rotated(&file.name, &live.name) {
                return is_new || !self.is_known(live_at);
            }
            let is_series = |other: &Found| names::is_series(&other.name, &live.name);
            is_new && is_series(file) && self.has_found(live, is_series) && !self.is_known(live_at)
        })
    }

    /// Returns whether an earlier run has seen the rotation of a file given. The directory of an
    /// input that is gone is not recorded: its name counts if only one file given has it.
    fn is_known(&self, live_at: usize) -> bool {
        let live = &self.files.all[live_at];
        let given = self.files.all.iter().filter(|file| file.is_given());
        let is_only = given.filter(|file| file.name == live.name).count() == 1;
        let is_part = |other: &Found| names::is_rotated(&other.name, &live.name);
        let is_lost = |slot: usize| self.found[slot].is_none();
        let mut recorded = self.inputs.iter();
        self.slot_of(live_at).is_some()
            || self.has_found(live, is_part)
            || is_only
                && recorded
                    .any(|(slot, entry)| is_lost(slot) && entry.name == name_hash(&live.name))
    }

    /// Returns whether such a recorded input was found beside a file.
    fn has_found(&self, live: &Found, is_it: impl Fn(&Found) -> bool) -> bool {
        let mut found = self.found.iter().flatten().map(|(at, _)| &self.files.all[*at]);
        found.any(|file| file.is_beside(live) && is_it(file))
    }

    /// Refuses to continue without an input that may have lines that were not read.
    fn refuse_missing(&self) -> Result<()> {
        for slot in self.lost() {
            let entry = self.entry(slot);
            let changed = self.changed.iter().find(|(_, of)| *of == slot);
            if !self.is_wanted(slot) {
                continue;
            }
            if !self.wanted.accepts_missing {
                let at = changed.map(|(at, _)| &self.files.all[*at]);
                return Err(match at {
                    Some(file) => refusals::changed(&entry, file, &self.new_parts(file)),
                    None => refusals::missing(&entry, &self.files.all),
                });
            }
        }
        Ok(())
    }

    /// Returns the files of an input's rotation that no run has seen.
    fn new_parts(&self, live: &Found) -> Vec<&Found> {
        let unread = (0..self.files.all.len()).filter(|&at| {
            let name = &self.files.all[at].name;
            names::is_rotated(name, &live.name) && self.slot_of(at).is_none() && self.is_unread(at)
        });
        unread.map(|at| &self.files.all[at]).filter(|file| file.is_beside(live)).collect()
    }

    /// Removes the inputs that are gone and may not have been read to their end, which is accepted
    /// now.
    fn remove_missing(&mut self) {
        for slot in self.lost() {
            if self.is_wanted(slot) {
                self.inputs.entries[slot] = None;
            }
        }
    }

    /// Refuses to continue if files are gone between an input that was renamed and the file that
    /// has its name now: `h.log.1`, if `h.log` became `h.log.2`.
    fn refuse_gaps(&self) -> Result<()> {
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
            let Some(live) = lives.min_by_key(|live| !live.is_beside(file)) else { continue };
            let others = self.files.all.iter();
            let others = others.filter(|other| other.is_beside(file) || other.is_beside(live));
            let numbers: Vec<u64> =
                others.filter_map(|other| names::number(&other.name, &live.name)).collect();
            let last = names::number(&file.name, &live.name).unwrap_or(0);
            // Some rotations begin at 1, others at 0, which only a recorded input tells.
            let zero = name_hash(&[&live.name[..], b".0"].concat());
            let first = u64::from(!self.inputs.iter().any(|(_, entry)| entry.name == zero));
            if let Some(gone) = (first..last).find(|number| !numbers.contains(number)) {
                return Err(refusals::gap(file, live, gone));
            }
        }
        Ok(())
    }

    /// Refuses to pass over a file that is not given and may contain lines that were not read.
    fn refuse_unread(&self) -> Result<()> {
        let all = 0..self.files.all.len();
        let unread: Vec<usize> =
            all.filter(|&at| self.slot_of(at).is_none() && self.is_unread(at)).collect();
        let is_passed = |&at: &usize| {
            let is_left_out = self.wanted.left_out.contains(&self.files.all[at].id);
            !is_left_out && !self.is_copy(at)
        };
        let passed = unread.into_iter().filter(is_passed).map(|at| &self.files.all[at]);
        let passed: Vec<&Found> = passed.collect();
        if passed.is_empty() {
            return Ok(());
        }
        for file in &passed {
            let format = self.wanted.content.unread(&file.open()?);
            if let Some(format) = format.map_err(|error| Failure::reading(&file.path, &error))? {
                return Err(refusals::undecoded(file, format));
            }
        }
        let known = self.found.iter().flatten().map(|(at, _)| &self.files.all[*at]);
        Err(refusals::unread(&passed, &known.collect::<Vec<_>>(), &self.files.all))
    }

    /// Finds the files that are copies of inputs which are still there.
    fn find_copies(&mut self) -> Result<()> {
        for at in 0..self.files.all.len() {
            let file = &self.files.all[at];
            let slot = self.slot_of(at);
            let is_left_out = self.wanted.left_out.contains(&file.id);
            if is_left_out || slot.is_some_and(|slot| self.is_input(slot)) || file.size == 0 {
                continue;
            }
            if !file.is_given() && (slot.is_some() || !self.is_unread(at)) {
                continue;
            }
            for base in 0..self.files.all.len() {
                // Of a file that is not given, the original need not be an input: it is empty, or
                // older than the last run, or refused itself.
                let is_read = self.files.all[base].is_given() || self.slot_of(base).is_some();
                let is_packed = (is_read || !file.is_given()) && self.is_packed_form(at, base);
                if !is_packed && !self.is_copied(at, base) {
                    continue;
                }
                if let Some(end) = self.beginning(at, base, is_packed)? {
                    let recorded = if is_packed { None } else { Some(end) };
                    self.copies.push(Copied { file: at, recorded });
                    break;
                }
            }
        }
        Ok(())
    }

    fn is_copy(&self, at: usize) -> bool {
        self.copies.iter().any(|copy| copy.file == at)
    }

    /// Returns whether by its name a file is the compressed form of another one.
    fn is_packed_form(&self, at: usize, base: usize) -> bool {
        let (file, base) = (&self.files.all[at], &self.files.all[base]);
        let name = names::unpacked(&file.name);
        file.is_beside(base) && name != file.name && name == base.name
    }

    /// Returns whether a file may be a copy of a log. A rotation that renames leaves the log no
    /// input that is read, and what it has renamed is older than the log.
    fn is_copied(&self, at: usize, base: usize) -> bool {
        let is_read = self.slot_of(base).is_some_and(|slot| self.is_input(slot));
        let (file, base) = (&self.files.all[at], &self.files.all[base]);
        let is_newer = base.born > 0 && file.born >= base.born;
        (is_read || base.is_given() && is_newer)
            && file.is_beside_or_below(base)
            && names::is_only_rotated(&file.name, &base.name)
    }

    /// Returns the end of a file with all of which another one begins.
    fn beginning(&self, at: usize, base: usize, unfinished: bool) -> Result<Option<Trail>> {
        let (file, base) = (&self.files.all[at], &self.files.all[base]);
        let (opened, of_base) = (file.open()?, base.open()?);
        let found = self.wanted.content.beginning(&opened, &of_base, unfinished);
        found.map_err(|error| Failure::reading(&base.path, &error))
    }

    /// Removes files from those that hold the content of one input, unless none would be left:
    /// those that are recorded as other files, compressed forms of others, and those not given.
    fn choose(&self, files: &mut Vec<(usize, Trail)>) -> Result<()> {
        let all: Vec<usize> = files.iter().map(|(at, _)| *at).collect();
        let mut packed = Vec::new();
        for &at in &all {
            for &base in &all {
                if self.is_packed_form(at, base) && self.beginning(at, base, true)?.is_some() {
                    packed.push(at);
                }
            }
        }
        let is_recorded = |at: usize| self.slot_of(at).is_some();
        if !all.iter().all(|&at| is_recorded(at)) {
            files.retain(|(at, _)| !is_recorded(*at));
        }
        files.retain(|(at, _)| !packed.contains(at));
        let is_given = |at: usize| self.files.all[at].is_given();
        if files.iter().filter(|(at, _)| is_given(*at)).count() == 1 {
            files.retain(|(at, _)| is_given(*at));
        }
        Ok(())
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
                (None, None) => {
                    let trail = self.wanted.content.end(&file.open()?);
                    Some(trail.map_err(|error| Failure::reading(&file.path, &error))?)
                }
                (end, _) => end,
            };
            let mut entry = recorded.unwrap_or_else(|| Entry::new(file.identity, &file.name));
            if let Some(end) = end {
                entry.advance(&end);
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
            let entry = Entry::new(file.identity, &file.name);
            let slot = self.free_slot()?;
            self.inputs.entries[slot] = Some(entry);
            self.found[slot] = Some((at, Trail::default()));
        }
        Ok(())
    }

    /// Returns a free slot; if there is none, that of an input that was complete and is gone.
    fn free_slot(&mut self) -> Result<usize> {
        if let Some(free) = self.inputs.entries.iter().position(Option::is_none) {
            return Ok(free);
        }
        let gone = self.lost().into_iter().find(|&slot| !self.is_wanted(slot));
        let Some(gone) = gone else {
            return Err(refusals::too_many(MOST_INPUTS));
        };
        self.inputs.forgotten = self.inputs.seen;
        Ok(gone)
    }

    /// Records where the inputs are now, and orders them.
    fn finish(mut self) -> Result<Plan> {
        let before = self.inputs.clone();
        self.inputs.seen = self.inputs.seen.max(self.files.seen);
        let found: Vec<(usize, usize, Trail)> = std::mem::take(&mut self.found)
            .into_iter()
            .enumerate()
            .filter_map(|(slot, found)| found.map(|(at, trail)| (slot, at, trail)))
            .collect();
        for (slot, at, _) in &found {
            let is_copy = self.is_copy(*at);
            let file = &self.files.all[*at];
            if let Some(entry) = &mut self.inputs.entries[*slot] {
                (entry.identity, entry.name) = (file.identity, name_hash(&file.name));
                // It was left out, and is given now.
                let is_input = file.is_given() && entry.is_left_out && !is_copy;
                entry.is_complete &= !is_input;
                entry.is_left_out &= !is_input;
            }
        }
        let (files, content) = (&self.files.all, self.wanted.content);
        let order = Order { files, before: &before, now: &self.inputs, content };
        let steps = order.steps(found, self.wanted.is_complete)?;
        Ok(Plan { steps, inputs: self.inputs })
    }
}

/// Converts the place of an earlier version, which stored one for all inputs: those in front of it
/// had been read.
fn converted(wanted: &Wanted<'_>, files: &mut Files, place: OldPlace) -> Result<Inputs> {
    let is_it = |file: &Found| file.id.1 == place.inode;
    if !files.all.iter().any(is_it) {
        files.add_of_inode(wanted.own, place.inode);
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
    let mut entry = Entry::new(file.identity, &file.name);
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
            let mut entry = Entry::new(file.identity, &file.name);
            entry.is_torn = trail.tail().last().is_some_and(|last| *last != wanted.end);
            entry.advance(&trail);
            inputs.entries.push(Some(entry));
        }
    }
    Ok(inputs)
}
