//! `dedup`: prints each line whose key was not seen within the window.

use super::at_least_once::AtLeastOnce;
use super::at_rest::warn_if_ahead;
use super::closing;
use super::counts::Counts;
use super::exactly_once::{self, ExactlyOnce};
use super::in_memory::InMemory;
use super::place;
use super::run::Ended;
use super::stream::{Fed, Headers, Stream};
use crate::args::{Dedup, Since};
use crate::failure::{Failure, Result, note};
use crate::formatting;
use crate::input;
use crate::kind_options::{FPR, KIND_OF_WINDOWS};
use crate::option_names::option;
use crate::output::Output;
use ebbtide::units::shown;
use ebbtide::{Any, Checked, Error, Filter, Options, Parameters};
use rustix::fs::FileType;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs the command.
pub fn dedup(arguments: &Dedup) -> Result<()> {
    exactly_once::check(arguments)?;
    let spec = spec(arguments)?;
    let Some(dir) = &arguments.state else {
        let given = &arguments.reading;
        let of_files = [
            ("--keep-log", given.keep_log.is_some()),
            ("--durability", given.durability.is_some()),
            ("--image", given.image.is_some()),
        ];
        if let Some((option, _)) = of_files.iter().find(|(_, is_given)| *is_given) {
            let what = format!(
                "{option} needs --state DIR; without it the filter is in memory, and ends with \
                 this run"
            );
            return Err(Failure::Error(what));
        }
        let filter = InMemory::new(&spec.ok_or_else(no_window)?, arguments)?;
        return feed_in_memory(&filter, arguments)?.finish();
    };
    if arguments.output.is_none() {
        input::check(&arguments.origin(), &arguments.reading, true)?;
    }
    place::check(dir)?;
    let filter = remembered(dir, spec, arguments)?;
    warn_if_ahead(filter.clock_lead());
    let ended = feed(&filter, dir, arguments)?;
    closing::close(&filter)?;
    ended.finish()
}

/// Returns the options with which the filter is opened, except how much log it keeps.
fn options(arguments: &Dedup) -> Options {
    let mut options = Options::new();
    if let Some(place) = &arguments.reading.image {
        options = options.image(place.clone());
    }
    if let Some(hash) = arguments.hash {
        options = options.key_hash(hash.into());
    }
    if let Some(seed) = arguments.hash_seed {
        options = options.hash_seed(seed);
    }
    if let Some(stripes) = arguments.stripes {
        options = options.stripes(stripes);
    }
    if let Some(lead) = arguments.max_lead {
        options = options.max_lead(lead);
    }
    if let Some(durability) = arguments.reading.durability {
        options = options.durability(durability);
    }
    options
}

/// Returns the requested filter; `None` if the options leave that to an existing one.
fn spec(arguments: &Dedup) -> Result<Option<Any>> {
    let fpr = arguments.fpr.unwrap_or(FPR);
    let parameters = Parameters::new().with("fpr", fpr);
    let kind = arguments.kind.as_deref().unwrap_or(KIND_OF_WINDOWS);
    let needs_window = |option: &str| {
        let what = format!(
            "{option} needs a window; give --window DURATION or --last N as well, or leave it out: \
             an existing filter has what it was created with"
        );
        Err(Failure::Error(what))
    };
    match (arguments.window, arguments.last) {
        (Some(window), _) => {
            Ok(Some(Any::new(kind, parameters.with("window", window.as_micros()))))
        }
        (None, Some(last)) => Ok(Some(Any::new(kind, parameters.with("window-items", last)))),
        (None, None) if arguments.fpr.is_some() => needs_window("--fpr"),
        (None, None) if arguments.kind.is_some() => needs_window("--kind"),
        (None, None) => Ok(None),
    }
}

/// Opens the filter of earlier runs, or creates it.
fn remembered(dir: &Path, spec: Option<Any>, arguments: &Dedup) -> Result<Filter<Any>> {
    let options = options(arguments);
    let keep = arguments.reading.keep_log;
    let keeping = keep.map_or_else(|| options.clone(), |keep| options.clone().keep_log(keep));
    let opened = match (Filter::open(dir, options.clone()), spec) {
        (Err(Error::NotAFilter { .. }), None) => return Err(no_window()),
        (Err(Error::NotAFilter { .. }), Some(spec)) => {
            match Filter::create(dir, spec, keeping.clone()) {
                // Another process was faster.
                Err(Error::Exists { .. }) => Filter::open(dir, options),
                created => return created.map_err(by_option),
            }
        }
        (opened, _) => opened,
    };
    let filter = opened.map_err(by_option)?;
    check_same(&filter, dir, arguments)?;
    // Only now: a filter that is refused keeps its log. With an output more can be refused.
    if arguments.output.is_none() {
        keep_log(dir, arguments)?;
    }
    Ok(filter)
}

/// Sets how much log a filter keeps, for all its handles, if that is given.
fn keep_log(dir: &Path, arguments: &Dedup) -> Result<()> {
    let Some(keep) = arguments.reading.keep_log else { return Ok(()) };
    let filter = Filter::open(dir, options(arguments).keep_log(keep)).map_err(by_option)?;
    // It may be another one by now. Nothing was recorded through it.
    check_same(&filter, dir, arguments)?;
    Ok(filter.close()?)
}

/// Checks that an existing filter has what is given: what is not given is the filter's.
fn check_same(filter: &Filter<Any>, dir: &Path, arguments: &Dedup) -> Result<()> {
    let differs = |name: &str, wanted: String, found: &str| {
        let [expected, found] = [&*wanted, found].map(|value| shown(name, value));
        Err(differing(dir, name, &expected, &found))
    };
    let (kind, all) = (filter.kind(), filter.parameters());
    if let Some(wanted) = arguments.kind.as_ref().filter(|&wanted| wanted != kind) {
        return differs("kind", wanted.clone(), kind);
    }
    let given = [
        ("fpr", arguments.fpr.map(|fpr| fpr.to_string())),
        ("window", arguments.window.map(|window| window.as_micros().to_string())),
        ("window-items", arguments.last.map(|last| last.to_string())),
    ];
    for (name, wanted) in given {
        let found = all.get(name).unwrap_or("nothing");
        if let Some(wanted) = wanted.filter(|wanted| wanted != found) {
            return differs(name, wanted, found);
        }
    }
    Ok(())
}

/// Converts an error, with the option of this command in place of the parameter in which the filter
/// differs.
fn by_option(error: Error) -> Failure {
    match error {
        Error::Mismatch { path, what, expected, found } => {
            differing(&path, &what, &expected, &found)
        }
        other => other.into(),
    }
}

fn differing(path: &Path, what: &str, expected: &str, found: &str) -> Failure {
    let option = option(what).unwrap_or_else(|| what.to_owned());
    let path = path.display();
    Failure::Error(format!(
        "{path}: expected {option} {expected}, found {found}; leave {option} out, or use another \
         directory"
    ))
}

fn no_window() -> Failure {
    Failure::Error("the window is missing; give --window DURATION or --last N".to_owned())
}

/// Warns if files that exist are read with a window in time and no times of their own: to the
/// clock, all their lines come now.
fn warn_of_the_clock(parameters: &Parameters, arguments: &Dedup) {
    let Some(window) = parameters.get("window").filter(|_| !arguments.reading.times.are_read())
    else {
        return;
    };
    let is_file = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|it| it.is_file());
    let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
    let files = &arguments.files;
    let name = match files.iter().find(is_file) {
        Some(path) => path.display().to_string(),
        None if files.is_empty() || files.iter().any(|path| is_stdin(&path)) => {
            let found = rustix::fs::fstat(std::io::stdin());
            let kind = found.map(|found| FileType::from_raw_mode(found.st_mode));
            if kind != Ok(FileType::RegularFile) {
                return;
            }
            "standard input".to_owned()
        }
        None => return,
    };
    let window = window.parse().map(Duration::from_micros).map(formatting::duration);
    let window = window.map_or_else(|_| String::new(), |window| format!(" of {window}"));
    note(&format!(
        "{name} is a file, and its lines are taken as coming now: the window{window} is one of \
         the clock, not of the times in the lines; name these by --time-field"
    ));
}

/// Reads the files and prints the new lines.
fn feed(filter: &Filter<Any>, state: &Path, arguments: &Dedup) -> Result<Ended> {
    let stream = Stream::changing(filter, &arguments.reading)?.with_headers(headers(arguments));
    warn_of_the_clock(&filter.parameters(), arguments);
    if let (Since::Accepted, None, Some(times)) =
        (arguments.since, &arguments.output, stream.times())
    {
        // The filter's time stays behind that of lines which it accepts and does not insert.
        times.forget();
    }
    let mut counts = Counts::new(arguments.invert);
    let ended = if let Some(output) = &arguments.output {
        let (stream, counts, keep_log) = (&stream, &mut counts, &|| keep_log(state, arguments));
        ExactlyOnce { filter, stream, arguments, counts, keep_log }.run(output, state)
    } else if arguments.at_least_once {
        let (reading, since) = (&arguments.reading, arguments.since);
        AtLeastOnce { filter, stream: &stream, reading, since, counts: &mut counts }
            .run(arguments.origin())
    } else {
        let since = arguments.since.into();
        feed_at_most_once(&stream, arguments, &mut counts, |call, key| {
            call.since(since).check_and_insert(key)
        })
    };
    report(&counts, ended, arguments)
}

/// As [`feed`], with a filter that ends with the run: a kill loses what it knows, so that the order
/// of printing and recording makes no difference.
fn feed_in_memory(filter: &InMemory, arguments: &Dedup) -> Result<Ended> {
    let stream = Stream::for_this_run(filter, &arguments.reading)?;
    let stream = stream.with_headers(headers(arguments));
    warn_of_the_clock(&filter.parameters(), arguments);
    let mut counts = Counts::new(arguments.invert);
    let since = arguments.since.into();
    let ended = feed_at_most_once(&stream, arguments, &mut counts, |call, key| {
        call.check_and_insert(key, since)
    });
    report(&counts, ended, arguments)
}

fn headers(arguments: &Dedup) -> Headers {
    // The command itself writes the header to an output.
    let is_omitted = arguments.omit_header || arguments.output.is_some();
    if is_omitted { Headers::Omitted } else { Headers::Printed }
}

/// Reports the counts of a run.
fn report(counts: &Counts, ended: Result<Ended>, arguments: &Dedup) -> Result<Ended> {
    if counts.late > 0 && !arguments.stats {
        let printed = if arguments.invert { "not printed" } else { "printed unchecked" };
        note(&format!("lines older than the window, {printed}: {}", counts.late));
    }
    if let (true, Ok(ended)) = (arguments.stats, &ended) {
        note(&counts.report(ended));
    }
    ended
}

fn feed_at_most_once<'a, F: Fed>(
    stream: &Stream<'a, F>,
    arguments: &Dedup,
    counts: &mut Counts,
    ask: impl Fn(F::Call<'a>, &[u8]) -> ebbtide::Result<Checked>,
) -> Result<Ended> {
    let end = arguments.reading.delimiter();
    stream.run(
        arguments.origin(),
        true,
        |call, line| ask(call, &line.key),
        |line, checked, output: &mut Output| {
            // Of a line that is too late, the filter no longer stores whether its key was seen. A
            // duplicate line is better than a lost one.
            counts.late += u64::from(checked.is_too_late());
            let prints = counts.prints(checked.is_present());
            if prints { output.line(line.whole, end) } else { Ok(()) }
        },
    )
}
