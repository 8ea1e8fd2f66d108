//! From a window and a rate to bits and hash functions.

use crate::error::{Error, Result};
use crate::kind::Parameters;
use crate::kind::parameters::{DEFAULT_FPR, within};
use crate::kinds::bloom::without_same_hash;
use std::ops::RangeInclusive;

/// The greatest number of bits, of both buffers together: 8 TiB.
const MOST_BITS: u64 = 1 << 46;

/// The longest window, in inserts.
const MOST_ITEMS: u64 = 1 << 45;

/// The greatest number of hash functions.
const MOST_FUNCTIONS: u32 = 64;

/// Bits of one buffer in a block of 16 KiB, the size that plans assume.
const PLANNED_BLOCK_BITS: f64 = 2048.0 * 32.0;

/// A window and the size derived from it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// Inserts of a generation, the least number for which a key stays.
    pub window: u64,
    /// The planned false-positive rate just before a swap.
    pub fpr: f64,
    /// Bits of both buffers together.
    pub bits: u64,
    /// Bits of a key in a buffer.
    pub k: u32,
}

impl Plan {
    /// Derives the plan from `window-items` and `fpr` (0.001 if absent). `rate` is the filter's
    /// rate just before a swap, as a function of window, bits of one buffer, `k` and blocks. `bits`
    /// and `k` override what would be derived.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds, and if no filter of at most 8 TiB reaches the
    /// rate.
    pub fn from_parameters(
        parameters: &Parameters,
        rate: impl Fn(f64, f64, u32, f64) -> f64,
    ) -> Result<Self> {
        let window = parameters.required("window-items", "a number of inserts")?;
        let window = within("window-items", window, 1, MOST_ITEMS)?;
        let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
        let bits = parameters.count("bits", "a number of bits", MOST_BITS)?;
        let k = parameters.count("k", "a number of hash functions", MOST_FUNCTIONS.into())?;
        let rate =
            |half: f64, k: u32| rate(window as f64, half, k, (half / PLANNED_BLOCK_BITS).max(1.0));
        let candidates = match k {
            Some(k) => k as u32..=k as u32,
            None => 1..=MOST_FUNCTIONS,
        };
        let (bits, k) = match bits {
            Some(bits) => {
                let half = bits.div_ceil(2) as f64;
                let better = |a: &u32, b: &u32| rate(half, *a).total_cmp(&rate(half, *b));
                (bits, candidates.min_by(better).unwrap_or(1))
            }
            None => {
                // Those of both buffers.
                without_same_hash(2.0 * window as f64, fpr)?;
                fewest(candidates, |k| Some(2 * fewest_bits(fpr, |half| rate(half, k))?))
                    .ok_or_else(|| too_large(window, fpr))?
            }
        };
        Ok(Self { window, fpr, bits, k })
    }

    /// Returns the plan as completed parameters.
    pub fn parameters(&self) -> Parameters {
        Parameters::new()
            .with("window-items", self.window)
            .with("fpr", self.fpr)
            .with("bits", self.bits)
            .with("k", self.k)
    }
}

/// Returns the fewest bits, and their number of functions. Bits have one minimum, except for
/// rounding: the search ends some numbers after it.
fn fewest(functions: RangeInclusive<u32>, bits: impl Fn(u32) -> Option<u64>) -> Option<(u64, u32)> {
    const PATIENCE: u32 = 4;
    let mut best: Option<(u64, u32)> = None;
    for k in functions {
        let found = bits(k).map(|bits| (bits, k));
        best = match (best, found) {
            (Some(best), Some(found)) => Some(best.min(found)),
            (best, found) => best.or(found),
        };
        if best.is_some_and(|(_, least)| k >= least + PATIENCE) {
            break;
        }
    }
    best
}

/// Returns the fewest bits of one buffer that keep the rate; `None` if even half of the greatest
/// number does not.
fn fewest_bits(wanted: f64, rate: impl Fn(f64) -> f64) -> Option<u64> {
    let (mut low, mut high) = (0, MOST_BITS / 2);
    if rate(high as f64) > wanted {
        return None;
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        if rate(middle as f64) > wanted { low = middle } else { high = middle }
    }
    Some(high)
}

fn too_large(window: u64, fpr: f64) -> Error {
    let expected = format!("a window that {MOST_BITS} bits (8 TiB) can hold at fpr {fpr}");
    Error::parameter("window-items", expected, window)
}
