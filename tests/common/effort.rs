//! How much a harness repeats: `EBBTIDE_EFFORT` is the percentage of its default count, 100 if not
//! set. Emulated processors get a small one. A count given as an argument is not scaled.

/// So many repetitions, scaled; at least one.
pub fn scaled(count: u64) -> u64 {
    let percent = std::env::var("EBBTIDE_EFFORT").map_or(100, |text| {
        text.parse().unwrap_or_else(|_| panic!("EBBTIDE_EFFORT is a percentage, found {text:?}"))
    });
    (count * percent).div_ceil(100).max(1)
}
