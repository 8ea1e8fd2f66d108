//! The distance between the kills of a scene.

use ebbtide_testkit::environment::number;

/// A factor for the distances of `table.rs`, so that all scenes together take a minute or two.
const TIMES: usize = 8;

fn percent() -> usize {
    number("EBBTIDE_EFFORT").unwrap_or(100).max(1) as usize
}

/// Returns whether all scenes are wanted, also those whose paths take long to measure.
pub fn is_whole() -> bool {
    percent() >= 100
}

/// Returns the number of instructions per kill: `EBBTIDE_EFFORT` is the percentage of the kills to
/// make, 100 if not set; at 800 the distances are those of `table.rs`.
pub fn spaced(every: usize) -> usize {
    (every * TIMES * 100 / percent()).max(1)
}
