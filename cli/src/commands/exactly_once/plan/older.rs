//! What earlier versions have recorded.

use super::super::files::{Files, Found};
use super::super::positions::{Entry, Inputs, OldPlace};
use super::super::refusals;
use super::Wanted;
use crate::failure::{Failure, Result};

/// Converts the place of an earlier version, which stored one for all inputs: those in front of it
/// had been read.
pub(super) fn converted(wanted: &Wanted<'_>, files: &mut Files, place: OldPlace) -> Result<Inputs> {
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
