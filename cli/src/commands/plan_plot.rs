//! `plan --plot`: bits a key against false-positive rate and window, for the kinds.

use crate::failure::{Failure, Result};
use crate::formatting;
use crate::kind_options::FPR;
use crate::plot::{Axis, Chart, Marks, picture};
use ebbtide::{Options, Parameters, inspect};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The kinds of windows of inserts, with one that never forgets beside them.
const OF_ITEMS: [&str; 6] =
    ["fingerprint", "age-partitioned", "block-timing", "two-buffer", "double-buffering", "bloom"];
/// The kinds of windows of time.
const OF_TIME: [&str; 2] = ["fingerprint", "time-limited"];

/// The inserts of a window that is not named.
const ITEMS: u64 = 1_000_000;
/// The inserts a second of a stream whose rate is not named.
const RATE: f64 = 1000.0;
/// The greatest memory that a diagram considers; larger plans say nothing new.
const MOST_ITEMS: u64 = 1_000_000_000;

/// What is varied: the rest is as the user asks.
#[derive(Clone, Copy)]
struct Wanted {
    /// The window in microseconds, if it is one of time.
    window: Option<u64>,
    /// The inserts a second, of a window of time.
    rate: f64,
    /// The inserts of the window.
    items: u64,
    fpr: f64,
}

impl Wanted {
    fn of(parameters: &Parameters) -> Self {
        let number = |name: &str| parameters.get(name)?.parse::<f64>().ok();
        let items = number("window-items").or_else(|| number("capacity"));
        let window = number("window").map(|micros| micros as u64);
        let rate = number("rate").unwrap_or(RATE);
        let items = match window {
            Some(micros) => (rate * micros as f64 / 1e6).max(1.0),
            None => items.unwrap_or(ITEMS as f64),
        };
        Self { window, rate, items: items as u64, fpr: number("fpr").unwrap_or(FPR) }
    }

    /// Returns the bits of a key in the window, for a kind that can be planned so.
    fn bits(&self, kind: &str) -> Option<f64> {
        let parameters = Parameters::new().with("fpr", self.fpr);
        let parameters = match (self.window, kind) {
            (Some(window), _) => parameters.with("window", window).with("rate", self.rate),
            (None, "bloom") => parameters.with("capacity", self.items),
            (None, _) => parameters.with("window-items", self.items),
        };
        let plan = inspect::plan(kind, &parameters, &Options::new()).ok()?;
        Some(plan.memory_bytes as f64 * 8.0 / self.items.max(1) as f64)
    }

    /// Returns one line for each kind through the plans that `vary` names.
    fn lines(&self, vary: &[(f64, Self)]) -> Vec<Marks> {
        let kinds: &[&str] = if self.window.is_some() { &OF_TIME } else { &OF_ITEMS };
        let line = |kind: &&str| {
            let points = vary.iter().filter_map(|(x, wanted)| Some((*x, wanted.bits(kind)?)));
            let points: Vec<_> = points.collect();
            (!points.is_empty()).then(|| Marks::Line { name: (*kind).to_owned(), points })
        };
        kinds.iter().filter_map(line).collect()
    }
}

/// Writes the diagrams.
pub fn write(parameters: &Parameters, file: &Path) -> Result<()> {
    let wanted = Wanted::of(parameters);
    let rates = (4..=36).map(|quarter| 10_f64.powf(-f64::from(quarter) / 4.0));
    let rates: Vec<_> = rates.map(|fpr| (fpr, Wanted { fpr, ..wanted })).collect();
    let sizes = (8..=36).map(|quarter| 10_f64.powf(f64::from(quarter) / 4.0) as u64);
    let sized = |items: u64| {
        let window = wanted.window.map(|_| (items as f64 / wanted.rate * 1e6) as u64);
        (items as f64, Wanted { items, window, ..wanted })
    };
    let sizes: Vec<_> = sizes.filter(|items| *items <= MOST_ITEMS).map(sized).collect();
    let of_rate = Chart {
        title: format!("Bits a key by false-positive rate, {}", described(&wanted)),
        x: Axis::log("false-positive rate"),
        y: Axis::linear("bits a key"),
        marks: wanted.lines(&rates),
    };
    let of_size = Chart {
        title: format!("Bits a key by keys in the window, rate {}", wanted.fpr),
        x: Axis::log("keys in the window"),
        y: Axis::log("bits a key"),
        marks: wanted.lines(&sizes),
    };
    let heading = "Memory of an ebbtide filter, without the log";
    fs::write(file, picture(heading, &[of_rate, of_size]))
        .map_err(|error| Failure::Error(format!("cannot write {}: {error}", file.display())))
}

fn described(wanted: &Wanted) -> String {
    let keys = formatting::count(wanted.items as f64);
    match wanted.window {
        Some(micros) => format!(
            "window {} at {} keys a second",
            formatting::duration(Duration::from_micros(micros)),
            formatting::count(wanted.rate)
        ),
        None => format!("window of {keys} keys"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_rate_takes_more_bits_in_every_kind() {
        let wanted = Wanted { window: None, rate: RATE, items: 100_000, fpr: 0.01 };
        let timed = Wanted { window: Some(100_000_000), ..wanted };
        let kinds = OF_ITEMS.iter().map(|kind| (wanted, kind));
        for (wanted, kind) in kinds.chain(OF_TIME.iter().map(|kind| (timed, kind))) {
            let bits = wanted.bits(kind).expect(kind);
            let lower = Wanted { fpr: 1e-6, ..wanted }.bits(kind).expect(kind);
            assert!(bits > 1.0 && lower > bits, "{kind}: {bits} {lower}");
        }
    }
}
