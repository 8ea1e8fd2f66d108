//! What a run refuses to pass over: inputs that are gone, and files that may have lines that no run
//! has read.

use super::super::files::Found;
use super::super::positions::name_hash;
use super::super::{names, refusals};
use super::Search;
use crate::failure::{Failure, Result};

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
    pub(super) fn refuse_missing(&self) -> Result<()> {
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
    pub(super) fn refuse_unread(&self) -> Result<()> {
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
}
