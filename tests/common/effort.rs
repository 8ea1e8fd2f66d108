//! Scales the repetitions of a harness: `EBBTIDE_EFFORT` is the percentage of its default count,
//! 100 if not set. Emulated processors use a small one. A count given as an argument is not scaled.

/// Returns the scaled number of repetitions; at least one.
pub fn scaled(count: u64) -> u64 {
    let percent = std::env::var("EBBTIDE_EFFORT").map_or(100, |text| {
        text.parse().unwrap_or_else(|_| panic!("EBBTIDE_EFFORT is a percentage, found {text:?}"))
    });
    (count * percent).div_ceil(100).max(1)
}
