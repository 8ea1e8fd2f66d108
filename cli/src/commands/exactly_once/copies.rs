//! Copies of inputs that are still there, compressed or not, and files that are left out: they are
//! no inputs, and are recorded where later runs could not tell.

use super::names;
use super::plan::Search;
use super::positions::Entry;
use crate::failure::{Failure, Result};
use crate::trail::Trail;

/// A file that is a copy of an input which is still there, finished or not. Its lines are read in
/// that input.
pub struct Copied {
    file: usize,
    /// Its end, if it is recorded: it may outlive the name that shows what it is a copy of.
    recorded: Option<Trail>,
}

impl Search<'_> {
    /// Finds the files that are copies of inputs which are still there.
    pub fn find_copies(&mut self) -> Result<()> {
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
                // Of a file that is not given, another one that is neither may be the original: that
                // is empty, or older than the last run, or refused itself.
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

    pub fn is_copy(&self, at: usize) -> bool {
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

    /// Removes files from those that hold the content of one input, unless none would be left: those
    /// that are recorded as other files, the compressed form of another one, and those not given.
    pub fn choose(&self, files: &mut Vec<(usize, Trail)>) -> Result<()> {
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
    pub fn add_left_out(&mut self) -> Result<()> {
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
}
