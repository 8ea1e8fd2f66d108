//! Widths, levels and thresholds of the paper, as functions of numbers.

/// Returns `x`, the bits of the first vector: `floor(log2(M/n))` for keys that are inserted `M/n`
/// times on average (section 3), at least 1.
#[must_use]
pub fn fixed_bits(mean_count: f64) -> u32 {
    let whole = if mean_count >= 2.0 { mean_count.min(4_294_967_296.0) as u64 } else { 2 };
    whole.ilog2()
}

/// Returns the level of a counter (section 3.3), which is also the bits that its `OF_j` takes: 0
/// for `OF_j = 0`, else `floor(log2 OF_j) + 1`, so that level `l` means
/// `2^(l-1) <= OF_j <= 2^l - 1`.
#[must_use]
#[inline]
pub fn level(overflow: u64) -> u32 {
    u64::BITS - overflow.leading_zeros()
}

/// Returns `T`, below which all counters must be before an OFV of `y` bits drops one (section 3.3):
/// `2^(x+y-2) + (2^(x+y-1) - 2^(x+y-2)) · λ`, rounded down, for `y >= 1`. Counters below
/// `2^(x+y-1)` fit `y - 1` bits.
///
/// The text has another rule for level 0, `(2^x - 1) · λ`, which disagrees with this one at
/// `y = 1`; this one holds here for every `y`. With `y = 0` there is no bit to drop, and no value
/// is below the threshold.
#[must_use]
#[inline]
pub fn threshold(x: u32, y: u32, lambda: f64) -> u64 {
    match (x + y).checked_sub(2) {
        Some(exponent) if y > 0 && exponent < 63 => {
            let half = 1_u64 << exponent;
            half + (half as f64 * lambda) as u64
        }
        _ => 0,
    }
}

/// Returns the expected largest of `variables` Poisson variables of this mean: the value above
/// which one of them lies on average. It gives the width of the OFV of a block whose counters have
/// a Poisson number of keys each.
///
/// The tail is approximated by a geometric series with the same beginning, with Stirling's formula
/// for the factorial: within one and a half of the true value for means up to some tens and ten
/// variables or more.
#[must_use]
pub fn largest_of_poisson(mean: f64, variables: f64) -> f64 {
    // Returns the logarithm of the expected number of variables with this value or more.
    let expected = |value: f64| {
        let exactly = value - mean + value * (mean / value).ln();
        let or_more =
            (std::f64::consts::TAU * value).ln() / 2.0 + (1.0 - mean / (value + 1.0)).ln();
        exactly - or_more + variables.max(1.0).ln()
    };
    let mut low = mean.max(1.0);
    if expected(low) <= 0.0 {
        return mean;
    }
    let mut high = 2.0 * low;
    while expected(high) > 0.0 {
        high *= 2.0;
    }
    while high - low > 0.01 * low {
        let middle = f64::midpoint(low, high);
        if expected(middle) > 0.0 { low = middle } else { high = middle }
    }
    low
}
