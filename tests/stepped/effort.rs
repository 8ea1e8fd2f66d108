//! The distance between the kills of a scene.

/// A factor for the distances of `table.rs`, so that all scenes together take a minute or two.
const TIMES: usize = 4;

/// Returns the number of instructions per kill: `EBBTIDE_EFFORT` is the percentage of the kills to
/// make, 100 if not set; at 400 the distances are those of `table.rs`.
pub fn spaced(every: usize) -> usize {
    let percent = std::env::var("EBBTIDE_EFFORT").map_or(100, |text| {
        text.parse().unwrap_or_else(|_| panic!("EBBTIDE_EFFORT is a percentage, found {text:?}"))
    });
    (every * TIMES * 100 / usize::max(percent, 1)).max(1)
}
