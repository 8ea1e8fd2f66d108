//! Expected values of decaying counters, as pure functions of numbers. The false-positive rates are
//! those of a plain Bloom filter ([`fpr`](crate::kinds::bloom::fpr),
//! [`fpr_of_fill`](crate::kinds::bloom::fpr_of_fill); the paper's eq. 5): a key of which nothing is
//! left is reported if all its counters are above zero.

use super::HalfLife;

/// Returns the exact unnormalised count `y'_t` after `epochs` epochs, including the current one,
/// with `per_epoch` inserts each (eq. 3): `x · (1 - λ^n)/(1 - λ)`.
#[must_use]
pub fn count_after(per_epoch: f64, lambda: f64, epochs: f64) -> f64 {
    // Not 1 - λ^n: for λ near 1 and few epochs the digits would cancel.
    per_epoch * -(epochs * lambda.ln()).exp_m1() / (1.0 - lambda)
}

/// Returns the limit of [`count_after`], `x/(1 - λ)`; normalised (eq. 4) it is `x`, the inserts of
/// an epoch.
#[must_use]
pub fn steady_count(per_epoch: f64, lambda: f64) -> f64 {
    per_epoch / (1.0 - lambda)
}

/// Returns the bounds of an estimate, both excluded, when the exact decayed count is `count`: claim
/// 1 with the cost of whole counters, collisions, full counters and late inserts apart. The paper
/// claims that it never lies below `count`.
#[must_use]
pub fn estimate_bounds(half_life: &HalfLife, count: f64) -> (f64, f64) {
    (count - half_life.epsilon(), count + half_life.most_above(count))
}

/// Returns the half-lives after which a counter of `counter_bits` bits without inserts is certainly
/// zero, however full it was.
#[must_use]
pub fn half_lives_to_zero(counter_bits: u32) -> u32 {
    counter_bits + 1
}

/// Returns the epochs after which an estimate that is `estimate` now is certainly 0 if nothing is
/// inserted.
#[must_use]
pub fn epochs_to_zero(half_life: &HalfLife, estimate: f64) -> f64 {
    // As of the last grid point, the counter holds at most twice this number of units; each grid
    // point halves them, and one takes the last.
    let units = (estimate / half_life.epsilon()).max(1.0);
    (units.log2().ceil() + 2.0) * half_life.epochs_per_half_life() as f64
}

/// Returns a bound for the probability that collisions raise an estimate by `above` or more, where
/// the decayed counts of all keys sum up to `total`. Each of the `k` counters of a key holds
/// `k · total/cells` of other keys on average, and the estimate is the least (Markov's inequality,
/// `k` times).
#[must_use]
pub fn chance_of_excess(total: f64, cells: f64, k: u32, above: f64) -> f64 {
    (f64::from(k) * total / (cells * above)).min(1.0).powi(k as i32)
}
