//! How often the longest tests repeat what they do.

/// Scales a number of keys, filters or questions by `EBBTIDE_EFFORT`, a percentage: 100 if it is
/// not set. Returns at least 1.
///
/// # Panics
/// If the variable is not a number.
pub(crate) fn scaled(count: u64) -> u64 {
    let effort = std::env::var("EBBTIDE_EFFORT").ok();
    let percent = effort.map_or(100, |text| text.parse().expect("EBBTIDE_EFFORT is a number"));
    (count * percent).div_ceil(100).max(1)
}
