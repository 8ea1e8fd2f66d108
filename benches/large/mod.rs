//! Shared parts of the programs about large filters: filters of a given size, arguments, and
//! tables.

pub use super::common::{directory, key};

use ebbtide::{Any, Options, Parameters, inspect};
use std::str::FromStr;

/// The bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;

/// Returns the spec of a kind whose filter takes about this much memory. Windows of time and epochs
/// last 4 seconds.
pub fn spec(kind: &str, mib: u64) -> Any {
    const SPAN_MICROS: u64 = 4_000_000;
    let sized = |size: u64| match kind {
        "age-partitioned" | "fingerprint" | "timing" | "block-timing" | "double-buffering"
        | "two-buffer" => Parameters::new().with("window-items", size),
        "time-limited" => Parameters::new()
            .with("window", SPAN_MICROS)
            .with("rate", size as f64 * 1e6 / SPAN_MICROS as f64),
        "decaying" | "decaying-optimized" => {
            Parameters::new().with("capacity", size).with("lambda", 0.5).with("epoch", SPAN_MICROS)
        }
        _ => Parameters::new().with("capacity", size),
    };
    let memory = |size| {
        let plan = inspect::plan(kind, &sized(size), &Options::new());
        plan.expect("a kind that is sized by its window or capacity").memory_bytes
    };
    // Memory grows nearly in proportion.
    let size = (0..4).fold(MIB, |size, _| {
        (u128::from(size) * u128::from(mib * MIB) / u128::from(memory(size))) as u64
    });
    Any::new(kind, sized(size))
}

/// Returns the value of `--name` on the command line, or `default`.
pub fn argument<T: FromStr>(name: &str, default: T) -> T {
    let mut given = std::env::args().skip_while(|word| word.strip_prefix("--") != Some(name));
    match given.nth(1) {
        None => default,
        Some(word) => match word.parse() {
            Ok(value) => value,
            Err(_) => panic!("--{name} {word}: invalid value"),
        },
    }
}

/// Returns the median of some values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Formats a time in a readable unit.
pub fn time(nanos: f64) -> String {
    match nanos {
        _ if nanos < 1e4 => format!("{nanos:.0} ns"),
        _ if nanos < 1e7 => format!("{:.1} µs", nanos / 1e3),
        _ => format!("{:.1} ms", nanos / 1e6),
    }
}

/// Prints a row of a table.
pub fn row(cells: impl IntoIterator<Item = String>) {
    println!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}

/// Prints the head of a table.
pub fn head(cells: &[&str]) {
    row(cells.iter().map(|&cell| cell.to_owned()));
    println!("{}|", "|---".repeat(cells.len()));
}
