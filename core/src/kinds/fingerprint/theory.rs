//! Rates and sizes of fingerprint filters: pure functions of numbers.
//!
//! A question compares one fingerprint with those of two buckets. The *load* is the share of slots
//! that are live.

/// Returns the false-positive rate of buckets of `slots` fingerprints of `bits` bits at a load, a
/// share `closed` of the buckets being closed.
///
/// `2·b·α·2^-f + 2·c`, at most 1. Exact as a mean over absent keys: the load enters linearly, so
/// the spread of keys over blocks changes nothing.
#[must_use]
pub fn fpr(slots: u32, bits: u32, load: f64, closed: f64) -> f64 {
    (2.0 * f64::from(slots) * load / 2_f64.powi(bits as i32) + 2.0 * closed).min(1.0)
}

/// Returns the highest load that keeps a rate without closed buckets; it may be above 1.
#[must_use]
pub fn load_of_fpr(slots: u32, bits: u32, fpr: f64) -> f64 {
    fpr * 2_f64.powi(bits as i32) / (2.0 * f64::from(slots))
}

/// Returns the rate for the last `generations` of the `all` whose keys are live, the open one
/// included: keys of a sub-window take their share of the slots.
#[must_use]
pub fn sub_window_fpr(fpr: f64, generations: u32, all: u32) -> f64 {
    fpr * f64::from(generations.min(all)) / f64::from(all.max(1))
}

/// Returns the load that 99 of 100 blocks of this many buckets reach before an insert finds no
/// path.
///
/// Fitted to measured blocks of 64 to 8192 buckets, filled from empty.
#[must_use]
pub fn highest_load(slots: u32, buckets: f64) -> f64 {
    let (large, spread) = match slots {
        0..=2 => (0.79, 0.5),
        3 => (0.928, 0.25),
        4 => (0.966, 0.2),
        5 => (0.976, 0.1),
        _ => (0.977, 0.03),
    };
    large - spread / buckets.max(1.0).sqrt()
}

/// Returns the mean number of live keys that blocks of `buckets` buckets hold so that hardly any of
/// them overflows, if each of `blocks` blocks is equally likely for a key.
///
/// `μ + z·√μ` slots are used at most, `z` three deviations and more in small blocks, where one
/// closed bucket is a larger share. Only operations that are exact to the last bit are used,
/// because the size of a filter follows from it.
#[must_use]
pub fn mean_keys(slots: u32, buckets: f64, blocks: f64) -> f64 {
    let most = highest_load(slots, buckets) * f64::from(slots) * buckets;
    if blocks <= 1.0 {
        return most;
    }
    let deviations = (3.1 + 70.0 / buckets.max(1.0)) * (1.0 - 1.0 / blocks).sqrt();
    // `μ + z·√μ = most`, solved for `√μ`.
    let root = ((deviations * deviations + 4.0 * most).sqrt() - deviations) / 2.0;
    root * root
}

/// Returns the bits for each key of the window, headers of blocks included, when `load` of the
/// slots are live just before a shift: `bucket_bits` bits a bucket, `buckets` in a block, and keys
/// that stay for up to one generation beyond the window of `generations`.
#[must_use]
pub fn bits_a_key(slots: u32, bucket_bits: u32, buckets: f64, load: f64, generations: u32) -> f64 {
    let block = buckets * f64::from(bucket_bits) + 512.0;
    let keys = load * f64::from(slots) * buckets;
    block / keys * (1.0 + 1.0 / f64::from(generations.max(1)))
}
