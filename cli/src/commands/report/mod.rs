//! `report`: one page about a filter, with diagrams, or the diagrams alone as one picture.

mod charts;
mod page;
mod samples;

use super::observer::Observer;
use crate::failure::{Failure, Result};
use crate::operator_args::Report;
use crate::plot::picture;
use std::fs;
use std::thread;
use std::time::Duration;

/// The time between two looks, from which the throughput follows.
const BETWEEN: Duration = Duration::from_secs(1);

/// Writes the report.
pub fn report(arguments: &Report) -> Result<()> {
    let ending = arguments.output.extension().and_then(|ending| ending.to_str());
    let is_page = match ending {
        Some("html") => true,
        Some("svg") => false,
        _ => {
            return Err(Failure::Error(format!(
                "expected a file that ends in .html or .svg, found {}",
                arguments.output.display()
            )));
        }
    };
    let past = arguments.past;
    let mut observer = Observer::open(&arguments.dir, past)?;
    let mut seen = observer.look()?;
    if !seen.details.slots.is_empty() {
        // Only a filter in use has a throughput, and can be seen to stand still.
        thread::sleep(BETWEEN);
        seen = observer.look()?;
    }
    let end = if past.at.is_some() { seen.stat.lsn } else { u64::MAX };
    let samples = samples::Samples::take(&observer, end)?;
    let charts = charts::all(&seen, &samples);
    let mut heading = format!("{}: {}", observer.dir().display(), seen.stat.kind);
    if let Some(at) = past.at {
        heading += &format!(", as of {at}");
    }
    let text = if is_page {
        page::page(&heading, &past, &seen, &samples, &charts)
    } else {
        picture(&heading, &charts)
    };
    fs::write(&arguments.output, text).map_err(|error| {
        Failure::Error(format!("cannot write {}: {error}", arguments.output.display()))
    })
}
