//! The order in which a run reads its inputs, and which of them have come to their end.

use super::content::Content;
use super::files::{self, Found};
use super::positions::{Entry, Inputs, name_hash};
use super::refusals;
use super::rotation_names;
use crate::failure::{Failure, Result};
use crate::trail::Trail;
use std::fs::File;
use std::path::PathBuf;

/// An input that a run reads.
pub struct Step {
    pub path: PathBuf,
    pub file: File,
    /// Where its positions are.
    pub slot: usize,
    pub entry: Entry,
    /// Where to begin.
    pub trail: Trail,
    /// Whether nothing more is written to it: a newer file follows, or it is compressed, or the
    /// command line says so. Its unfinished last line is then a line.
    pub ends: bool,
}

/// The files of a run.
pub struct Order<'a> {
    pub files: &'a [Found],
    /// Files that a rotation of an unknown kind has made, each with the log.
    pub strange: &'a [(usize, usize)],
    /// The inputs as the last run recorded them, and with their present names.
    pub before: &'a Inputs,
    pub now: &'a Inputs,
    pub content: Content<'a>,
}

/// An input: its slot, its file, and the place in it.
type Input = (usize, usize, Trail);

impl Order<'_> {
    /// Returns the steps: first what is left of files that were renamed, the oldest first, then the
    /// files given in their order.
    pub fn steps(&self, found: Vec<Input>, is_complete: bool) -> Result<Vec<Step>> {
        let mut all = Vec::new();
        for input in found {
            let is_left_out = self.now.entries[input.0].is_some_and(|entry| entry.is_left_out);
            if !is_left_out && (self.files[input.1].is_given() || self.is_left(&input)) {
                all.push(input);
            }
        }
        let given = |at: usize| self.files[at].is_given();
        all.sort_by_key(|&(_, at, _)| match given(at) {
            false => (false, self.files[at].written, at),
            true => (true, 0, at),
        });
        let order: Vec<(usize, usize)> = all.iter().map(|(slot, at, _)| (*slot, *at)).collect();
        let step = |(slot, at, trail): Input| {
            let found = &self.files[at];
            let file = found.open()?;
            let failed = |error| Failure::reading(&found.path, &error);
            if let Some(format) = self.content.unread(&file).map_err(failed)? {
                return Err(refusals::undecoded(found, format));
            }
            let is_packed = self.content.is_packed(&file).map_err(failed)?;
            let new = Entry::new(found.identity.recorded, &found.name);
            let entry = self.now.entries[slot].unwrap_or(new);
            let ends = is_complete || is_packed || self.is_followed((slot, at), &order);
            Ok(Step { path: found.path.clone(), file, slot, entry, trail, ends })
        };
        all.into_iter().map(step).collect()
    }

    /// Returns whether an input that is not given is read: one that was renamed, or that belongs to
    /// the rotation of a file given. Others are inputs of other runs.
    fn is_left(&self, (slot, at, _): &Input) -> bool {
        let file = &self.files[*at];
        let Some(entry) = self.before.entries[*slot] else { return false };
        if entry.is_complete && file.size == entry.offset {
            return false;
        }
        let is_live = |at: usize| {
            let live = &self.files[at].name;
            rotation_names::is_rotated(&file.name, live)
                || rotation_names::is_series(&file.name, live)
        };
        let lives = files::newer(self.files, file, is_live);
        let is_part = lives.into_iter().any(|at| self.files[at].is_given());
        entry.name != name_hash(&file.name) || is_part
    }

    /// Returns whether a newer file with content follows this one: another file has got its name
    /// since, or their names say so. A log that is written still must not be taken for the earlier
    /// part of another one, so in doubt none follows.
    fn is_followed(&self, (slot, at): (usize, usize), order: &[(usize, usize)]) -> bool {
        let file = &self.files[at];
        let place = |at: usize| order.iter().position(|(_, other)| *other == at);
        let earlier_name = self.before.entries[slot].map(|entry| entry.name);
        let is_newer = |other: usize| {
            let is_strange =
                rotation_names::is_dated(&file.name) && self.strange.contains(&(at, other));
            let (other, is_later) = (&self.files[other], place(other) > place(at));
            let has_its_name =
                earlier_name == Some(name_hash(&other.name)) && other.name != file.name;
            // The next of a series begins when the one before it has ended.
            let is_begun_later = other.born == 0 || other.born >= file.written;
            let is_next_date = rotation_names::is_series(&file.name, &other.name)
                && rotation_names::is_dated(&file.name)
                && other.is_beside(file)
                && is_later
                && is_begun_later;
            has_its_name
                || is_next_date
                || is_strange
                || rotation_names::is_only_rotated(&file.name, &other.name)
        };
        let newer = files::newer(self.files, file, is_newer);
        // An empty log follows what was a part at the last run already, was not written since, and
        // has no unfinished line.
        let is_at_rest = |log: &Found| {
            let was_part =
                |entry: Entry| entry.name != name_hash(&log.name) && entry.offset == file.size;
            self.before.entries[slot].is_some_and(was_part)
                && file.written <= self.before.seen
                && rotation_names::is_only_rotated(&file.name, &log.name)
        };
        let has_news =
            |log: &Found| log.written >= file.written && (log.size > 0 || is_at_rest(log));
        newer.into_iter().any(|at| place(at).is_some() && has_news(&self.files[at]))
    }
}
