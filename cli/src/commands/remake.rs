//! `alter`, `merge` and `split`: new filters from the operations of others.

use super::{alter, at_rest, place};
use crate::failure::{Failure, Result};
use crate::formatting::counted;
use crate::kind_options::described;
use crate::output::{Output, object};
use crate::remake_args::{Alter, Merge, Remade, Settings, Split};
use ebbtide::history::{History, Share, check_new, remake};
use ebbtide::{Any, Options, Parameters, Reader};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// `alter`.
pub fn alter(arguments: &Alter) -> Result<()> {
    let Alter { dir, new, remade, json } = arguments;
    let Some(new) = new else { return alter::in_place(arguments) };
    if remade.named().is_empty() {
        return Err(Failure::Error(
            "nothing to alter; name the kind or the parameters of the new filter".to_owned(),
        ));
    }
    check_place(&[dir], new)?;
    let spec = spec(remade, dir)?;
    let operations = make(&[dir], new, spec, &remade.settings, None)?;
    if !json {
        return say(new, operations, 1);
    }
    let mut output = Output::new()?;
    output.json(object([("operations", operations.into())]))?;
    output.flush()
}

/// `merge`.
pub fn merge(arguments: &Merge) -> Result<()> {
    let Merge { dirs, remade } = arguments;
    let Some((new, from)) = dirs.split_last() else { return Ok(()) };
    let from: Vec<_> = from.iter().collect();
    check_different(&from)?;
    check_place(&from, new)?;
    let operations = make(&from, new, spec(remade, from[0])?, &remade.settings, None)?;
    say(new, operations, from.len())
}

/// Refuses a filter that is named twice: its operations would be counted twice.
fn check_different(from: &[&PathBuf]) -> Result<()> {
    let mut seen = HashSet::new();
    // One that is not there is reported by whoever opens it.
    let paths = from.iter().filter_map(|dir| Some((dir, dir.canonicalize().ok()?)));
    for (dir, path) in paths {
        if !seen.insert(path) {
            let dir = dir.display();
            return Err(Failure::Error(format!(
                "{dir} is named twice; name each filter once, because its operations would count \
                 twice"
            )));
        }
    }
    Ok(())
}

/// `split`.
pub fn split(arguments: &Split) -> Result<()> {
    let Split { dir, new, into, settings } = arguments;
    let name = |number: u64| {
        let mut name = OsString::from(new);
        name.push(format!("-{number}"));
        PathBuf::from(name)
    };
    // Before the first is made.
    for number in 0..into.get() {
        let new = name(number);
        check_place(&[dir], &new)?;
        place::check_vacant(&new)?;
        check_new(&new)?;
    }
    let (kind, parameters) = like(dir)?;
    // All are made, whether or not somebody reads the sentences.
    let mut said = Ok(());
    for number in 0..into.get() {
        let (new, spec) = (name(number), Any::new(&kind, parameters.clone()));
        let share = Share { number, count: into.get() };
        let operations = make(&[dir], &new, spec, settings, Some(share))?;
        said = said.and_then(|()| say(&new, operations, 1));
    }
    said
}

/// Refuses a directory for a new filter that holds something else, or is within that of another.
fn check_place(from: &[&PathBuf], new: &Path) -> Result<()> {
    place::check(new)?;
    from.iter().try_for_each(|dir| place::check_outside(new, dir))
}

/// Returns the kind and the parameters of a filter.
fn like(dir: &Path) -> Result<(String, Parameters)> {
    let reader = Reader::<Any>::open(dir, at_rest::options())?;
    Ok((reader.kind().to_owned(), reader.parameters()))
}

/// Returns the wanted kind with its parameters: those of a filter, unless others are given.
fn spec(remade: &Remade, dir: &Path) -> Result<Any> {
    let (kind, parameters) = like(dir)?;
    if remade.named().is_empty() {
        return Ok(Any::new(&kind, parameters));
    }
    let kind = remade.kind.as_deref().unwrap_or(&kind);
    let (kind, parameters) = described(Some(kind), remade.last, &remade.kind_options)?;
    Ok(Any::new(kind, parameters))
}

fn make(
    from: &[&PathBuf],
    new: &Path,
    spec: Any,
    settings: &Settings,
    share: Option<Share>,
) -> Result<u64> {
    for dir in from.iter().filter(|_| !settings.forget) {
        let first = History::open(dir)?.next_lsn();
        if first > 1 {
            return Err(Failure::Error(format!(
                "the log of {} begins at LSN {first}, so that the new filter would not know what \
                 was inserted before; make it nevertheless with --forget",
                dir.display()
            )));
        }
    }
    let mut options = Options::new();
    if let Some(keep) = settings.keep_log {
        options = options.keep_log(keep);
    }
    Ok(remake(from, new, spec, options, share)?.operations)
}

fn say(new: &Path, operations: u64, filters: usize) -> Result<()> {
    let (operations, from) = (counted(operations, "operation"), counted(filters as u64, "filter"));
    let mut output = Output::new()?;
    output.sentence(&format!("{} has {operations} of {from}", new.display()))?;
    output.flush()
}
