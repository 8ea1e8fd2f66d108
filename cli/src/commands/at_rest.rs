//! Filters at rest: no clock moves their time. Also the warning about a filter's time.

use crate::failure::{Failure, Result, note};
use crate::formatting;
use crate::moment::Past;
use ebbtide::{Any, Clock, Filter, Options, Reader};
use std::path::Path;
use std::time::Duration;

/// Opens a filter at rest.
pub fn open(dir: &Path) -> Result<Filter<Any>> {
    Filter::open(dir, options()).map_err(Failure::from)
}

/// Opens a filter for reading, or what it was at a moment of its past.
pub fn look(dir: &Path, past: &Past, options: Options) -> Result<Reader<Any>> {
    let reader = match past.at {
        Some(at) => Reader::at(dir, at, options),
        None => Reader::open(dir, options),
    };
    reader.map_err(Failure::from)
}

/// Warns if a filter's time is ahead of the clock by a minute or more.
pub fn warn_if_ahead(lead: Option<Duration>) {
    let minutes = lead.map_or(0, |lead| lead.as_secs() / 60);
    if minutes > 0 {
        let ahead = formatting::duration(Duration::from_secs(60 * minutes));
        note(&format!(
            "the filter's time is {ahead} ahead of the clock; keys without a time expire as usual, \
             keys with their own times appear older than they are and may be refused as too late"
        ));
    }
}

/// Returns options without a clock: answers refer to the filter's own latest time.
pub fn options() -> Options {
    Options::new().clock(Clock::stream())
}
