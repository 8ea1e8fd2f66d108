//! Files that are copies of inputs, or become copies.

use super::super::rotation_names;
use super::{Copied, Search};
use crate::failure::{Failure, Result};
use crate::trail::Trail;

impl Search<'_> {
    /// Finds the files that are copies of inputs which are still there.
    pub(super) fn find_copies(&mut self) -> Result<()> {
        for at in 0..self.files.all.len() {
            let file = &self.files.all[at];
            let slot = self.slot_of(at);
            let is_left_out = self.wanted.left_out.contains(&file.id);
            if is_left_out || slot.is_some_and(|slot| self.is_input(slot)) {
                continue;
            }
            if !file.is_given() && (slot.is_some() || !self.is_unread(at) || file.is_forbidden()) {
                continue;
            }
            for base in 0..self.files.all.len() {
                // Of a file that is not given, the original need not be an input: it is empty, or
                // older than the last run, or refused itself.
                let is_read = self.files.all[base].is_given() || self.slot_of(base).is_some();
                let is_packed = (is_read || !file.is_given()) && self.is_packed_form(at, base);
                // An empty file may become the compressed form of another one, and is no copy yet.
                let is_copied = || self.is_copied(at, base) || self.is_unpacked_form(at, base);
                if !is_packed && (file.size == 0 || !is_copied()) {
                    continue;
                }
                if let Some(end) = self.beginning(at, base, is_packed)? {
                    let recorded = if is_packed { None } else { Some(end) };
                    self.copies.push(Copied { file: at, recorded });
                    // It is no input of its own, though it was empty and alone when a run saw it.
                    if let Some(slot) = slot.filter(|&slot| !self.entry(slot).is_left_out) {
                        (self.found[slot], self.inputs.entries[slot]) = (None, None);
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    pub(super) fn is_copy(&self, at: usize) -> bool {
        self.copies.iter().any(|copy| copy.file == at)
    }

    /// Returns whether by its name a file is the compressed form of another one.
    pub(super) fn is_packed_form(&self, at: usize, base: usize) -> bool {
        let (file, base) = (&self.files.all[at], &self.files.all[base]);
        let name = rotation_names::unpacked(&file.name);
        file.is_beside(base) && name != file.name && name == base.name
    }

    /// Returns whether by its name a file is what a compressed input was made from.
    fn is_unpacked_form(&self, at: usize, base: usize) -> bool {
        self.slot_of(base).is_some_and(|slot| self.is_input(slot)) && self.is_packed_form(base, at)
    }

    /// Returns whether a file may be a copy of a log. A rotation that renames leaves the log no
    /// input that is read, and what it has renamed is older than the log.
    pub(super) fn is_copied(&self, at: usize, base: usize) -> bool {
        let is_read = self.slot_of(base).is_some_and(|slot| self.is_input(slot));
        let (file, base) = (&self.files.all[at], &self.files.all[base]);
        let is_newer = base.born > 0 && file.born >= base.born;
        (is_read || base.is_given() && is_newer)
            && file.is_beside_or_below(base)
            && rotation_names::is_only_rotated(&file.name, &base.name)
    }

    /// Returns the end of a file with all of which another one begins.
    pub(super) fn beginning(
        &self,
        at: usize,
        base: usize,
        unfinished: bool,
    ) -> Result<Option<Trail>> {
        let (file, base) = (&self.files.all[at], &self.files.all[base]);
        let (opened, of_base) = (file.open()?, base.open()?);
        let found = self.wanted.content.beginning(&opened, &of_base, unfinished);
        found.map_err(|error| Failure::reading(&base.path, &error))
    }
}
