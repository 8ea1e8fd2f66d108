//! The fill of slices: numbers of keys from newly set bits.
//!
//! A generation's keys are not counted but measured by the bits they set, because a stream full of
//! duplicates fills slices far more slowly than its number of inserts suggests. `c` distinct keys
//! set `W·S·(1-e^(-c/W))` new bits, `S` the sum of the zero shares of the `k` slices before.
//!
//! Values that affect the state through an event use only operations that IEEE 754 fixes to the
//! last bit (+ - × ÷ √), so that replay gives the same state on every machine.

use super::generations::Generations;

/// Doublings in [`zeros_left`] and its inverse: a relative error of `x²/2048`.
const DOUBLINGS: u32 = 10;

/// Returns the share of cells still zero at a load of `x` keys a cell: a close approximation of
/// `e^-x`.
pub(super) fn zeros_left(x: f64) -> f64 {
    let mut base = 1.0 + x / f64::from(1 << DOUBLINGS);
    for _ in 0..DOUBLINGS {
        base *= base;
    }
    1.0 / base
}

/// Returns the load that leaves this share of cells zero: the inverse of [`zeros_left`].
fn load_leaving(share: f64) -> f64 {
    let mut root = 1.0 / share.max(1e-9);
    for _ in 0..DOUBLINGS {
        root = root.sqrt();
    }
    (root - 1.0) * f64::from(1 << DOUBLINGS)
}

/// The measures of the bank to which an open generation writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    words: f64,
    /// Sum of the zero shares of the `k` slices when the generation opened.
    zeros: f64,
}

impl Measure {
    /// Creates the measure of the open generation, which the bank of `since` and `words` serves.
    pub(super) fn new(generations: &Generations<'_>, k: u32, since: u64, words: u64) -> Self {
        let words = words.max(1) as f64;
        let (mut keys, mut zeros) = (0.0, 1.0);
        let open = generations.current();
        for back in 1..u64::from(k) {
            match open.checked_sub(back).filter(|&g| g >= since.max(generations.oldest())) {
                Some(generation) => keys += generations.keys(generation) as f64,
                None => {
                    zeros += f64::from(k - back as u32) * zeros_left(keys / words);
                    break;
                }
            }
            zeros += zeros_left(keys / words);
        }
        Self { words, zeros }
    }

    /// Returns the number of distinct keys that set `new_bits` new bits.
    pub(super) fn keys(&self, new_bits: u64) -> u64 {
        let share = new_bits as f64 / (self.words * self.zeros);
        (load_leaving(1.0 - share) * self.words).round() as u64
    }

    /// Returns the number of new bits that `keys` distinct keys set.
    pub(super) fn new_bits(&self, keys: f64) -> u64 {
        (self.words * self.zeros * (1.0 - zeros_left(keys / self.words))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_shares_and_loads_are_inverse_to_each_other_and_near_the_exponential() {
        for i in 1..200 {
            let x = f64::from(i) * 0.01;
            assert!((load_leaving(zeros_left(x)) - x).abs() < 1e-9, "at {x}");
            assert!((zeros_left(x) - (-x).exp()).abs() < 1e-3, "at {x}");
        }
    }
}
