//! What to expect of decaying counters, as pure functions of numbers. The false-positive rates are those of a plain Bloom filter
//! ([`fpr`](crate::kinds::bloom::fpr), [`fpr_of_fill`](crate::kinds::bloom::fpr_of_fill); the paper's eq. 5): a key of which nothing is
//! left is taken for one if all its counters are above zero.

use super::HalfLife;

/// The exact unnormalised count `y'_t` after `epochs` epochs, the current one among them, with `per_epoch` inserts each (eq. 3): `x · (1 - λ^n)/(1 - λ)`.
#[must_use]
pub fn count_after(per_epoch: f64, lambda: f64, epochs: f64) -> f64 {
    // Not 1 - λ^n: for λ near 1 and few epochs the digits would cancel.
    per_epoch * -(epochs * lambda.ln()).exp_m1() / (1.0 - lambda)
}

/// The count that [`count_after`] tends to, `x/(1 - λ)`; normalised (eq. 4) it is `x`, the inserts of an epoch.
#[must_use]
pub fn steady_count(per_epoch: f64, lambda: f64) -> f64 {
    per_epoch / (1.0 - lambda)
}

/// Claim 1 with what whole counters cost: below and above what an estimate lies, both excluded, collisions, full counters and late inserts
/// apart, when the exact decayed count is `count`. The paper's claim is that it never lies below `count`.
#[must_use]
pub fn estimate_bounds(half_life: &HalfLife, count: f64) -> (f64, f64) {
    (count - half_life.epsilon(), count + half_life.most_above(count))
}

/// Half-lives after which a counter of so many bits that is left alone is surely zero, however full it was.
#[must_use]
pub fn half_lives_to_zero(counter_bits: u32) -> u32 {
    counter_bits + 1
}

/// Epochs after which an estimate that is `estimate` now is surely 0 if nothing is inserted.
#[must_use]
pub fn epochs_to_zero(half_life: &HalfLife, estimate: f64) -> f64 {
    // The counter holds at most twice so many units, as of the last grid point; each grid point halves them, and one takes the last.
    let units = (estimate / half_life.epsilon()).max(1.0);
    (units.log2().ceil() + 2.0) * half_life.epochs_per_half_life() as f64
}

/// A bound for the chance that collisions raise an estimate by `above` or more, where the decayed counts of all keys sum up to `total`:
/// each of the `k` counters of a key holds `k · total/cells` of others on average, and the estimate is the least (Markov's inequality,
/// `k` times).
#[must_use]
pub fn chance_of_excess(total: f64, cells: f64, k: u32, above: f64) -> f64 {
    (f64::from(k) * total / (cells * above)).min(1.0).powi(k as i32)
}
