//! From a number of keys and two rates to counters and a front.
//!
//! * `error` is the share of keys whose estimate is higher than promised: in all of its counters
//!   the key has met others. The counters alone keep it.
//! * `fpr` is the share of absent keys that are reported as present. Such a key passes the front
//!   *and* finds all its counters above zero, so the counters need to be no better than `error`,
//!   and the front keeps the rest: its own rate is at most `fpr / error`.
//!
//! A counter takes about 20 bits and a bit of the front one, so that the rate of absent keys is
//! cheap in the front and expensive in the counters. The basic filter, whose counters keep both,
//! has an `error` equal to its `fpr`.
//!
//! Both rates hold while at most `capacity` distinct keys are alive. The front also contains keys
//! whose counts have decayed to nothing, for one lifetime ([`theory::lifetime`]) to two. It is
//! planned for `front-keys` distinct keys that are inserted within a lifetime, twice the capacity
//! if absent, at its worst moment: just before a swap, when both buffers contain that many.
//!
//! If `cells` is given, nothing is derived from the rates: `error` is then the `fpr`, and the front
//! has as many bits and hash functions as there are counters. Filters that were created before
//! `error` existed have this form.

use super::front::Mode;
use super::shape::{DIGIT_BITS, MOST_FRONT, MOST_FUNCTIONS, MOST_POOL, Shape};
use super::theory::{self, Load};
use crate::block::Layout;
use crate::error::{Error, Result};
use crate::kind::Parameters;
use crate::kind::parameters::{DEFAULT_FPR, probability, within};
use crate::kinds::bloom;
use crate::kinds::decaying::half_life::MOST_FRACTION_BITS;

/// The parameters of this kind.
pub(super) const KNOWN: [&str; 14] = [
    "capacity",
    "fpr",
    "error",
    "cells",
    "k",
    "lambda",
    "epoch",
    "fraction-bits",
    "counter-bits",
    "front",
    "front-bits",
    "front-k",
    "front-keys",
    "pool",
];

/// The `error` of a filter whose size is derived, unless its `fpr` is higher.
pub const DEFAULT_ERROR: f64 = 0.03;

/// Keys of the front for each key of the capacity, if `front-keys` is absent.
const FRONT_KEYS: u64 = 2;

/// The greatest number of keys of the front.
const MOST_FRONT_KEYS: u64 = 1 << 50;

const DEFAULT_FRACTION_BITS: u64 = 8;
const DEFAULT_COUNTER_BITS: u64 = 32;

/// Digits in the pool for each counter, as in the paper.
const DEFAULT_POOL: f64 = 0.5;

/// The greatest number of hash functions of the front that plans consider.
const MOST_PLANNED_FUNCTIONS: u32 = 32;

/// Counters and front, with the rates that they keep.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// Distinct keys of which something is left.
    pub capacity: u64,
    /// The rate of absent keys.
    pub fpr: f64,
    /// The share of keys that are counted too high by more than promised.
    pub error: f64,
    /// Counters of a key.
    pub k: u32,
    /// The variant of the front.
    pub front: Mode,
    /// Bits of a key in a buffer of the front.
    pub front_k: u32,
    /// Distinct keys that are inserted within a lifetime of the front.
    pub front_keys: u64,
}

/// Returns `F`.
///
/// # Errors
/// [`Error::Parameter`] for a number out of bounds.
pub(super) fn fraction_bits(parameters: &Parameters) -> Result<u32> {
    let bits = parameters.optional("fraction-bits", "a number of bits")?;
    let bits = bits.unwrap_or(DEFAULT_FRACTION_BITS);
    Ok(within("fraction-bits", bits, 0, MOST_FRACTION_BITS.into())? as u32)
}

/// Returns the greatest number of bits of a value.
///
/// # Errors
/// [`Error::Parameter`] for fewer than those of a base counter, and for more than 64.
pub(super) fn counter_bits(parameters: &Parameters, base_bits: u32) -> Result<u32> {
    let bits = parameters.optional("counter-bits", "a number of bits")?;
    let bits = bits.unwrap_or(DEFAULT_COUNTER_BITS.max(base_bits.into()));
    Ok(within("counter-bits", bits, base_bits.into(), 64)? as u32)
}

impl Plan {
    /// Completes the parameters, for counters of `fraction` binary places.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds or that do not fit each other, and if no
    /// filter keeps the rates.
    pub fn of(parameters: &Parameters, fraction: u32) -> Result<(Self, Shape)> {
        let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
        let is_sized = parameters.get("cells").is_some();
        let error = match parameters.optional("error", "a share of keys")? {
            Some(error) => probability("error", error)?,
            None if is_sized || parameters.get("front") == Some(Mode::None.name()) => fpr,
            None => fpr.max(DEFAULT_ERROR),
        };
        let base_bits = DIGIT_BITS + fraction;
        // Marks, table and pool take nearly as many bits again.
        let bits = f64::from(2 * base_bits);
        let of_counters = parameters.clone().with("fpr", error);
        let counters = bloom::Plan::of_bits(&of_counters, "cells", bits)?;
        let default = if is_sized || error > fpr { Mode::Swapped } else { Mode::None };
        let (capacity, k, front) = (counters.capacity, counters.k, mode(parameters, default)?);
        if front == Mode::None && error > fpr && !is_sized {
            let expected = format!(
                "at most the rate {fpr}, which no front keeps (a filter that exists is opened \
                 without it)"
            );
            return Err(Error::parameter("error", expected, error));
        }
        let keys = parameters.count("front-keys", "a number of keys", MOST_FRONT_KEYS)?;
        let front_keys = keys.unwrap_or(FRONT_KEYS.saturating_mul(capacity));
        let mut plan = Self { capacity, fpr, error, k, front, front_k: k, front_keys };
        let blocks = counters.cells as f64 * bits / (Layout::PLANNED_BLOCK_WORDS * 64) as f64;
        let (cells, buffers) = (counters.cells, front.buffers());
        let pool = pool(parameters)?;
        let load = |front_bits, front_k| {
            Self { front_k, ..plan.clone() }.load(cells as f64, front_bits, blocks.max(1.0))
        };
        let is_planned = !is_sized && front != Mode::None && error > fpr;
        let planned = match is_planned && parameters.get("front-bits").is_none() {
            true => {
                let k = parameters.count(
                    "front-k",
                    "a number of hash functions",
                    MOST_FUNCTIONS as u64,
                )?;
                bloom::without_same_hash(capacity as f64, fpr)?;
                let most = cells.saturating_mul(MOST_FRONT);
                let found = fewest_bits(fpr, most, k.map(|k| k as u32), load);
                let expected = format!("a rate that a front of at most {most} bits keeps");
                Some(found.ok_or_else(|| Error::parameter("fpr", expected, fpr))?)
            }
            false => None,
        };
        let (front_bits, front_k) = given_front(parameters, &plan, cells, planned)?;
        plan.front_k = front_k;
        Ok((plan, Shape { cells, front_bits, buffers, pool, base_bits }))
    }

    /// Returns the load at the worst moment: a capacity of keys in these counters, and as many keys
    /// as planned in each buffer of the front.
    pub fn load(&self, counters: f64, front_bits: f64, blocks: f64) -> Load {
        let keys = self.front_keys as f64;
        Load {
            keys: self.capacity as f64,
            counters,
            k: self.k,
            front_keys: match self.front {
                Mode::Swapped => [keys; 2],
                Mode::Plain | Mode::None => [keys, 0.0],
            },
            front_bits: if self.front == Mode::None { 0.0 } else { front_bits },
            front_k: self.front_k,
            blocks,
        }
    }

    /// Returns the plan as completed parameters.
    pub fn parameters(&self, shape: &Shape) -> Parameters {
        let all = Parameters::new()
            .with("capacity", self.capacity)
            .with("fpr", self.fpr)
            .with("error", self.error)
            .with("cells", shape.cells)
            .with("k", self.k)
            .with("front", self.front.name())
            .with("front-bits", shape.front_bits)
            .with("pool", shape.pool);
        match self.front {
            Mode::None => all,
            _ => all.with("front-k", self.front_k).with("front-keys", self.front_keys),
        }
    }
}

/// Returns the bits of a buffer of the front and its hash functions: as given, else as planned,
/// else those of the counters.
fn given_front(
    parameters: &Parameters,
    plan: &Plan,
    cells: u64,
    planned: Option<(u64, u32)>,
) -> Result<(u64, u32)> {
    let bits = parameters.optional("front-bits", "a number of bits")?;
    let k = parameters.optional("front-k", "a number of hash functions")?;
    if plan.front == Mode::None {
        return match (bits, k) {
            (None | Some(0), None) => Ok((0, plan.k)),
            (Some(bits), None) => {
                Err(Error::parameter("front-bits", "none, as there is no front", bits))
            }
            (_, Some(k)) => Err(Error::parameter("front-k", "none, as there is no front", k)),
        };
    }
    let (planned_bits, planned_k) = match (bits, planned) {
        (None, Some(planned)) => planned,
        _ => (cells, plan.k),
    };
    let most = cells.saturating_mul(MOST_FRONT);
    let bits = within("front-bits", bits.unwrap_or(planned_bits), 1, most)?;
    let k = within("front-k", k.unwrap_or(planned_k.into()), 1, MOST_FUNCTIONS as u64)?;
    Ok((bits, k as u32))
}

/// Returns the fewest bits of a buffer, and the hash functions, with which a filter keeps the rate
/// of absent keys; `None` if `most` bits do not. `k` is the number of hash functions if it is
/// given.
fn fewest_bits(
    fpr: f64,
    most: u64,
    k: Option<u32>,
    load: impl Fn(f64, u32) -> Load,
) -> Option<(u64, u32)> {
    let holds = |bits: u64, k: u32| theory::fpr(&load(bits as f64, k)) <= fpr;
    let fewest = |k: u32| {
        let (mut low, mut high) = (0, most);
        if !holds(high, k) {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if holds(middle, k) { high = middle } else { low = middle }
        }
        Some((high, k))
    };
    let planned = k.map_or(1..=MOST_PLANNED_FUNCTIONS, |k| k..=k);
    planned.filter_map(fewest).min()
}

/// Parses `front` by name.
fn mode(parameters: &Parameters, default: Mode) -> Result<Mode> {
    let name = parameters.get("front").unwrap_or(default.name());
    match Mode::NAMES.iter().find(|(known, _)| *known == name) {
        Some(&(_, mode)) => Ok(mode),
        None => Err(Error::parameter("front", "swapped, plain or none", name)),
    }
}

/// Parses `pool`.
fn pool(parameters: &Parameters) -> Result<f64> {
    let pool = parameters.optional("pool", "digits for each counter")?.unwrap_or(DEFAULT_POOL);
    if (0.0..=MOST_POOL).contains(&pool) {
        Ok(pool)
    } else {
        Err(Error::parameter("pool", format!("a number from 0 to {MOST_POOL}"), pool))
    }
}
