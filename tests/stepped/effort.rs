//! How far apart the kills of a scene are.

/// Times what `table.rs` says, so that all scenes take a minute or two.
const TIMES: usize = 4;

/// One kill in so many instructions: `EBBTIDE_EFFORT` is the percentage of the kills to make, 100
/// if not set; with 400 one in as many as `table.rs` says.
pub fn spaced(every: usize) -> usize {
    let percent = std::env::var("EBBTIDE_EFFORT").map_or(100, |text| {
        text.parse().unwrap_or_else(|_| panic!("EBBTIDE_EFFORT is a percentage, found {text:?}"))
    });
    (every * TIMES * 100 / usize::max(percent, 1)).max(1)
}
