//! The probability that counters reach their maximum: pure functions of numbers.

/// Returns the expected share of counters that reach `2^bits - 1` or more when `keys` distinct
/// keys, each inserted once, raise `k` of `cells` counters. It is the upper tail of a binomial
/// variable, approximated by a Poisson one (*Summary Cache*, section V.C, where it is bounded by
/// `(e·k·n / (j·m))^j`, for j = 16 and at `k = ln 2 · m/n` by 1.37e-15 a counter).
///
/// Repeated keys raise counters further: for those it is no bound.
#[must_use]
pub fn overflow(keys: f64, cells: f64, k: u32, bits: u32) -> f64 {
    let mean = keys * f64::from(k) / cells;
    if mean.is_nan() || mean <= 0.0 {
        return 0.0;
    }
    if mean.is_infinite() {
        return 1.0;
    }
    let end = (2.0_f64.powi(bits as i32) - 1.0).max(1.0);
    // The first term of the tail by logarithms, the others by their ratio.
    let mut term = (end * mean.ln() - mean - log_factorial(end)).exp();
    if mean > end {
        // Most of the tail lies around the mean, where the first term may be too small for a
        // number: the terms below the end instead, which become smaller.
        let (mut below, mut count) = (0.0, end);
        while count >= 1.0 {
            term *= count / mean;
            count -= 1.0;
            below += term;
            if term <= below * f64::EPSILON {
                break;
            }
        }
        return (1.0 - below).clamp(0.0, 1.0);
    }
    let (mut sum, mut count) = (0.0, end);
    while term > sum * f64::EPSILON && count < end + 10.0 * mean + 1000.0 {
        sum += term;
        count += 1.0;
        term *= mean / count;
    }
    sum.min(1.0)
}

/// Returns `ln(n!)`, by Stirling's series beyond the first few.
fn log_factorial(n: f64) -> f64 {
    if n < 16.0 {
        return (1..=n as u32).map(|factor| f64::from(factor).ln()).sum();
    }
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3));
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + series
}
