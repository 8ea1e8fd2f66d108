//! Settings from the environment. `docs/reliability.md` lists the variables.

/// The seed of a harness whose seed is not set.
pub const SEED: u64 = 0x0EBB;

/// Parses a number; `name` is the variable or argument that contains it.
///
/// # Panics
/// Names the variable or argument if the text is not a number.
pub fn parsed(name: &str, text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number, found {text:?}"))
}

/// Returns the number in an environment variable, if it is set.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| parsed(name, &text))
}

/// Returns `EBBTIDE_EFFORT`, the percentage of its count that a harness repeats: 40 if not set, so
/// that all tests take some minutes, and at least 1. Emulated processors use a small one.
pub fn effort() -> u64 {
    number("EBBTIDE_EFFORT").unwrap_or(40).max(1)
}

/// Scales the repetitions of a harness by [`effort`]. A count given as an argument is not scaled.
/// Returns at least one.
pub fn scaled(count: u64) -> u64 {
    (count * effort()).div_ceil(100).max(1)
}

/// Creates an empty directory, which stays if `keep` or `EBBTIDE_KEEP` is set.
pub fn home(keep: bool) -> tempfile::TempDir {
    let keep = keep || std::env::var_os("EBBTIDE_KEEP").is_some();
    let made = tempfile::Builder::new().prefix("ebbtide-").disable_cleanup(keep).tempdir();
    made.expect("a temporary directory")
}
