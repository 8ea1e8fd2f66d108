//! The processes that have the filter open: they answer requests on their standard input until it
//! ends.
//!
//! - A writer receives `share N SKIP`, then `N` lines `MICROSECONDS SOURCE`, of which the first
//!   `SKIP` are inserted already. It answers with the sources to watch among them, separated by
//!   blanks.
//! - The reader receives `rates N MICROSECONDS`, then `N` lines `SOURCE`. It answers with `N`
//!   rates, and a `+` behind those that are "at least".

use super::{EPOCH, LAMBDA, Result, WATCHED};
use ebbtide::{Decaying, Filter, Options, Reader, Timestamp};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::path::Path;

/// The number of sources of the last minutes for which the filter is planned.
const SOURCES: u64 = 10_000;

/// The share of other sources that seem to have a request, if there are as many.
const FPR: f64 = 0.01;

/// Returns the filter's parameters.
pub fn spec() -> Decaying {
    Decaying::capacity(SOURCES, LAMBDA, EPOCH).fpr(FPR)
}

/// Returns the settings of a handle. The fixed seed makes runs comparable.
pub fn options() -> Options {
    Options::new().hash_seed(1)
}

/// Reads requests of two numbers and their lines; passes each line to `each`, and the end of each
/// request to `end`, which returns the answer.
fn serve<T>(
    begin: impl Fn(u64) -> T,
    mut each: impl FnMut(&mut T, usize, &str) -> Result<()>,
    end: impl Fn(T) -> String,
) -> Result<()> {
    let mut lines = io::stdin().lock().lines();
    while let Some(request) = lines.next() {
        let request = request?;
        let mut words = request.split_whitespace().skip(1).map(str::parse::<u64>);
        let (Some(Ok(count)), Some(Ok(number))) = (words.next(), words.next()) else {
            return Err(format!("expected a request with two numbers, found {request}").into());
        };
        let mut state = begin(number);
        for at in 0..count as usize {
            // Without the rest of a request its sender has died.
            let Some(line) = lines.next() else { return Ok(()) };
            each(&mut state, at, &line?)?;
        }
        let mut answers = io::stdout().lock();
        writeln!(answers, "{}", end(state))?;
        answers.flush()?;
    }
    Ok(())
}

/// Runs a writer.
pub fn write(dir: &Path) -> Result<()> {
    let filter: Filter<Decaying> = Filter::open(dir, options())?;
    let watched = WATCHED / (1.0 - LAMBDA);
    serve(
        |skip| (skip as usize, BTreeSet::new()),
        |(skip, found), at, line| {
            let (time, source) = line.split_once(' ').ok_or("expected a time and a source")?;
            let call = filter.call().time(Timestamp::from_unix_micros(time.parse()?));
            // One step inserts and returns the count. It is never too low, so the last request
            // with which a source reaches the limit shows that, whoever inserted the others.
            let estimate = if at < *skip {
                filter.estimate(source)?
            } else {
                call.insert_and_estimate(source)?
            };
            if estimate.at_least || estimate.count >= watched {
                found.insert(source.to_owned());
            }
            Ok(())
        },
        |(_, found)| found.into_iter().collect::<Vec<_>>().join(" "),
    )?;
    Ok(filter.close()?)
}

/// Runs the reader.
pub fn read(dir: &Path) -> Result<()> {
    let reader: Reader<Decaying> = Reader::open(dir, options())?;
    serve(
        |now| (Timestamp::from_unix_micros(now), Vec::new()),
        |(now, rates), _, source| {
            let rate = reader.call().time(*now).frequency(source)?;
            rates.push(format!("{}{}", rate.count, if rate.at_least { "+" } else { "" }));
            Ok(())
        },
        |(_, rates)| rates.join(" "),
    )
}
