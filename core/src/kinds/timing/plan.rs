//! The derivation of a plan: batches and bits of a timer from the window, then timers and hash
//! functions from the rate.
//!
//! Memory is proportional to `bits·(w+B-1)`: few large batches take few bits but keep keys longer
//! than the window. The remaining values of a timer are padding, without which sweeps cost too much
//! (section 3.1.3). The paper leaves the choice open except for "`P ≈ m/(kB)`", that is, about `k`
//! timers swept an insert.

use super::theory;
use crate::error::{Error, Result};
use crate::kind::Parameters;
use crate::kind::parameters::{DEFAULT_FPR, within};
use crate::kinds::bloom::without_same_hash;
use std::f64::consts::LN_2;

/// The longest window and the largest batch, in inserts; memory bounds a window earlier.
const MOST_ITEMS: u64 = 1 << 39;

/// The greatest padding, in ticks: what [`MOST_BITS`] leave beside the longest window.
const MOST_PADDING: u64 = (1 << MOST_BITS) - MOST_ITEMS - 3;

/// The greatest number of bits of a timer: enough for the longest window with as much padding.
const MOST_BITS: u32 = 40;

/// The greatest number of hash functions.
const MOST_FUNCTIONS: u64 = 64;

/// The greatest number of bits of a filter: 8 TiB.
const MOST_MEMORY: u64 = 1 << 46;

/// The bits of a block of 16 KiB, the size that plans assume. Smaller ones have a slightly higher
/// rate.
const PLANNED_BLOCK_BITS: f64 = 2048.0 * 64.0;

/// Timers swept an insert, for each hash function, that a plan allows. Twice the paper's rule:
/// sweeps process whole words, and a timer of 3 bits then covers a window in three batches.
const MOST_SWEPT: f64 = 2.0;

/// Bits that a plan considers beyond the fewest.
const SPARE_BITS: u32 = 6;

/// A filter of timers.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The window `w`, in inserts.
    pub window: u64,
    /// The planned false-positive rate of keys never inserted, at the worst moment.
    pub fpr: f64,
    /// Inserts with one timestamp: `B`.
    pub batch: u64,
    /// Bits of a timer.
    pub bits: u32,
    /// Timers of a key.
    pub k: u32,
    /// Timers in all: `m`.
    pub timers: u64,
    /// The padding `P`, in ticks.
    pub padding: u64,
}

/// The user's choices about timestamps.
#[derive(Debug, Clone, Copy)]
struct Asked {
    batch: Option<u64>,
    bits: Option<u32>,
    padding: Option<u64>,
}

/// A size of batches, and timestamps that distinguish enough of them.
#[derive(Debug, Clone, Copy)]
struct Stamps {
    batch: u64,
    bits: u32,
    padding: u64,
}

impl Plan {
    /// Derives the plan from `window-items` and `fpr` (0.001 if absent), and `batch` if the kind
    /// fixes it; `block-size`, `bits`, `padding`, `k` and `timers` override what would be derived.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds or that do not fit each other, and if no
    /// filter of at most 8 TiB reaches the rate.
    pub fn from_parameters(parameters: &Parameters, batch: Option<u64>) -> Result<Self> {
        let window = parameters.required("window-items", "how many inserts it looks back")?;
        let window = within("window-items", window, 1, MOST_ITEMS)?;
        let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
        let asked = Asked {
            batch: match batch {
                None => parameters.count("block-size", "a number of inserts", MOST_ITEMS)?,
                fixed => fixed,
            },
            bits: bounded(parameters, "bits", 2, MOST_BITS.into())?.map(|bits| bits as u32),
            padding: bounded(parameters, "padding", 0, MOST_PADDING)?,
        };
        let Stamps { batch, bits, padding } = best_stamps(window, asked)?;
        let most = MOST_MEMORY / u64::from(bits);
        let timers = parameters.count("timers", "a number of timers", most)?;
        let k = parameters.count("k", "a number of hash functions", MOST_FUNCTIONS)?;
        let covered = theory::most_covered(window, batch) as f64;
        let size = Size { window, covered, fpr, bits };
        let (timers, k) = match (timers, k) {
            (Some(timers), Some(k)) => (timers, k as u32),
            (Some(timers), None) => (timers, best_functions(timers as f64 / covered)),
            (None, Some(k)) => (size.timers(k as u32)?, k as u32),
            (None, None) => size.best()?,
        };
        Ok(Self { window, fpr, batch, bits, k, timers, padding })
    }

    /// Returns the plan as completed parameters, without the batch, which only one of the kinds
    /// has.
    pub(super) fn parameters(&self) -> Parameters {
        Parameters::new()
            .with("window-items", self.window)
            .with("fpr", self.fpr)
            .with("bits", self.bits)
            .with("k", self.k)
            .with("timers", self.timers)
            .with("padding", self.padding)
    }
}

/// Returns an integer within bounds, if the parameter is given.
fn bounded(
    parameters: &Parameters,
    name: &'static str,
    least: u64,
    most: u64,
) -> Result<Option<u64>> {
    let given = parameters.optional(name, &format!("an integer from {least} to {most}"))?;
    given.map(|value| within(name, value, least, most)).transpose()
}

/// Returns the batches and timestamps that take the least memory without sweeping too much; if all
/// sweep too much, those with the fewest bits.
fn best_stamps(window: u64, asked: Asked) -> Result<Stamps> {
    let fewest = theory::values(window, asked.batch.unwrap_or(window), asked.padding.unwrap_or(0));
    let least = theory::least_bits(fewest);
    let bits = match asked.bits {
        None => least..=(least + SPARE_BITS).min(MOST_BITS),
        Some(bits) if bits >= least => bits..=bits,
        Some(bits) => {
            return Err(Error::parameter(
                "bits",
                format!("at least {least}, for {fewest} values"),
                bits,
            ));
        }
    };
    let mut best: Option<(bool, f64, Stamps)> = None;
    for bits in bits {
        let stamps = stamps_of(window, asked, bits);
        let covered = theory::most_covered(window, stamps.batch) as f64;
        let (costly, memory) = (!is_cheap(window, stamps), f64::from(bits) * covered);
        if best.is_none_or(|(other, least, _)| (costly, memory) < (other, least)) {
            best = Some((costly, memory, stamps));
        }
    }
    match best {
        Some((_, _, stamps)) => Ok(stamps),
        None => Err(Error::parameter("window-items", "a shorter one", window)),
    }
}

/// Returns the timestamps of `bits` bits: with the given batch, else with the smallest batches that
/// do not sweep too much.
fn stamps_of(window: u64, asked: Asked, bits: u32) -> Stamps {
    let values = 1_u64 << bits;
    let of = |batch: u64| {
        let all = values.saturating_sub(theory::values(window, batch, 0));
        Stamps { batch, bits, padding: asked.padding.unwrap_or(all.min(MOST_PADDING)) }
    };
    if let Some(batch) = asked.batch {
        return of(batch);
    }
    // More batches in the window leave less padding, and each timer is met as often: the cost only
    // rises.
    let most = window.min(values.saturating_sub(3 + asked.padding.unwrap_or(0)));
    let (mut few, mut many) = (1, most.max(1) + 1);
    while many - few > 1 {
        let middle = few.midpoint(many);
        if is_cheap(window, of(window.div_ceil(middle))) { few = middle } else { many = middle }
    }
    of(window.div_ceil(few))
}

/// Returns whether sweeps cost no more than [`MOST_SWEPT`], with half of the timers in use when the
/// filter is full.
fn is_cheap(window: u64, stamps: Stamps) -> bool {
    let per_function = theory::most_covered(window, stamps.batch) as f64 / LN_2;
    let (batch, padding) = (stamps.batch as f64, stamps.padding as f64);
    theory::swept_per_insert(per_function, batch, padding) <= MOST_SWEPT
}

/// Returns the best number of hash functions for this number of timers a key.
fn best_functions(timers_per_key: f64) -> u32 {
    (timers_per_key * LN_2).round().clamp(1.0, MOST_FUNCTIONS as f64) as u32
}

/// The requirements for the timers.
#[derive(Debug, Clone, Copy)]
struct Size {
    window: u64,
    covered: f64,
    fpr: f64,
    bits: u32,
}

impl Size {
    /// Returns the fewest timers that keep the rate, and the number of hash functions with which
    /// they do.
    fn best(self) -> Result<(u64, u32)> {
        // The optimum is fractional, and slightly lower where blocks hold few keys.
        let of_timers = without_same_hash(self.covered, self.fpr)?;
        let near = (-of_timers.log2()).floor().clamp(1.0, (MOST_FUNCTIONS - 1) as f64) as u32;
        let mut best = (self.timers(near)?, near);
        for k in [near + 1, (near - 1).max(1)] {
            best = best.min((self.timers(k)?, k));
        }
        Ok(best)
    }

    /// Returns the fewest timers with which `k` hash functions keep the rate.
    fn timers(self, k: u32) -> Result<u64> {
        let of_timers = without_same_hash(self.covered, self.fpr)?;
        let block = PLANNED_BLOCK_BITS / f64::from(self.bits);
        let rate = |timers: f64| theory::fpr(self.covered, timers, k, (timers / block).max(1.0));
        let most = MOST_MEMORY / u64::from(self.bits);
        let (mut low, mut high) = (0.0, most as f64);
        if rate(high) > of_timers {
            let expected = format!("one that 8 TiB hold at fpr {} and {k} functions", self.fpr);
            return Err(Error::parameter("window-items", expected, self.window));
        }
        while high - low > 1.0 {
            let middle = f64::midpoint(low, high);
            if rate(middle) > of_timers { low = middle } else { high = middle }
        }
        Ok((high.ceil() as u64).clamp(1, most))
    }
}
