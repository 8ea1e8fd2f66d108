//! The distance between the kills of a scene.

use ebbtide_testkit::environment::effort;

/// A factor for the distances of `table.rs`, so that all scenes together take a minute or two.
const TIMES: usize = 8;

/// Returns whether all scenes are wanted, also those whose paths take long to measure.
pub fn is_whole() -> bool {
    effort() >= 100
}

/// Returns whether each scene is wanted with all positions of the survivor.
pub fn is_more_than_a_sample() -> bool {
    effort() >= 20
}

/// Returns the number of instructions per kill: `EBBTIDE_EFFORT` is the percentage of the kills to
/// make; at 800 the distances are those of `table.rs`.
pub fn spaced(every: usize) -> usize {
    (every * TIMES * 100 / effort() as usize).max(1)
}
