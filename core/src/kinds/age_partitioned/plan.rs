//! From a planned false-positive rate to numbers of slices, and memory.
//!
//! Rates here are those of the worst moment, just before a shift in the steady state; at all other
//! times a filter is better. For a given number of columns `k+l` the load ln 2 of the paper is not
//! the best: every load is tried, and bits a key, `columns·k/(l·L)`, are minimised.

use super::theory::{Phase, fpr, fpr_in_blocks};
use crate::error::{Error, Result};
use crate::kinds::bloom::without_same_hash;

/// The lane widths: a word of 64 bits holds one, two or four rows of columns.
pub const COLUMNS: [u32; 3] = [16, 32, 64];

/// The greatest number of words of a filter: 8 TiB.
pub const MOST_WORDS: u64 = 1 << 40;

/// Words of the blocks (16 KiB) over which plans assume keys to be spread.
const BLOCK_WORDS: f64 = 2048.0;

/// Plans aim at this part of the planned rate, so that a real filter, whose fills vary slightly
/// around the expected ones, still keeps it. Costs 0.4 % of memory.
const AIM: f64 = 0.97;

/// The range of loads tried.
const LOADS: (f64, f64) = (1e-6, 4.0);

/// Numbers of hash functions tried without a gain before the search ends: except for rounding, bits
/// a key have one minimum in `k`.
const PATIENCE: u32 = 4;

/// Numbers of slices, and the load at which they keep a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design {
    /// Slices that take each insert, and hash functions.
    pub k: u32,
    /// Slices that only age.
    pub l: u32,
    /// The load `k·g/W`.
    pub load: f64,
}

/// A filter for a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Slices that take each insert, and hash functions.
    pub k: u32,
    /// Slices that only age.
    pub l: u32,
    /// Bits of a row of columns: 16, 32 or 64, at least `k+l`.
    pub columns: u32,
    /// Inserts of a generation.
    pub generation: u64,
    /// Words of cells.
    pub words: u64,
}

/// Returns the highest load at which `rate` stays at most `wanted`; `None` if none does.
fn highest_load(wanted: f64, rate: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut low, mut high) = LOADS;
    if rate(low) > wanted {
        return None;
    }
    if rate(high) <= wanted {
        return Some(high);
    }
    // By ratio: loads span orders of magnitude.
    while high / low > 1.0 + 1e-9 {
        let middle = (low * high).sqrt();
        if rate(middle) > wanted { high = middle } else { low = middle }
    }
    Some(low)
}

/// Returns the design with the fewest bits a key for a long window in rows of `columns`, by pure
/// theory.
#[must_use]
pub fn design(wanted: f64, columns: u32) -> Option<Design> {
    search(|_| Some(wanted), columns, u64::MAX)
}

/// Returns the most keys that a filter of `l` aging slices holds: those of a window, and of a
/// generation beside it.
fn most_keys(items: u64, l: u32) -> f64 {
    (f64::from(l) + 1.0) * items.div_ceil(l.max(1).into()) as f64
}

/// Returns the design of the fewest words for a window of `items`: no more aging slices than items,
/// and no more than generations of their size need. `aim` returns the rate of the cells with this
/// many aging slices, `None` if there is none.
fn search(aim: impl Fn(u32) -> Option<f64>, columns: u32, items: u64) -> Option<Design> {
    let mut best: Option<(f64, Design)> = None;
    let mut since_best = 0;
    for k in 1..columns {
        let most = u64::from(columns - k).min(items);
        let l = items.div_ceil(items.div_ceil(most)) as u32;
        let load = aim(l).and_then(|aim| highest_load(aim, |load| fpr(k, l, load, Phase::WORST)));
        let Some(load) = load else { continue };
        let cost = f64::from(k) * items.div_ceil(l.into()) as f64 / load;
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, Design { k, l, load }));
            since_best = 0;
        } else {
            since_best += 1;
            if since_best == PATIENCE {
                break;
            }
        }
    }
    best.map(|(_, design)| design)
}

/// Returns the plan of the fewest words that keeps `wanted` over a window of `items` in blocks of
/// 16 KiB, with rows of the given width, or of the best one.
///
/// # Errors
/// [`Error::Parameter`] for a window of no items, for another width than 16, 32 or 64, for a rate
/// that equal hashes exceed, and if the filter would exceed 8 TiB.
pub fn plan(items: u64, wanted: f64, columns: Option<u32>) -> Result<Plan> {
    if items == 0 {
        return Err(Error::parameter("window-items", "a number from 1 on", items));
    }
    columns.map_or(Ok(()), check_columns)?;
    // With as many aging slices as there may be: fewer leave equal hashes to more keys.
    let most = u64::from(columns.unwrap_or(COLUMNS[2]) - 1).min(items) as u32;
    without_same_hash(most_keys(items, most), wanted)?;
    let aim = |l| without_same_hash(most_keys(items, l), wanted).ok().map(|rate| rate * AIM);
    COLUMNS
        .into_iter()
        .filter(|&width| columns.is_none_or(|only| only == width))
        .filter_map(|width| {
            let Design { k, l, .. } = search(aim, width, items)?;
            let cells_a_block = BLOCK_WORDS * f64::from(64 / width);
            let load = highest_load(aim(l)?, |load| {
                let block_keys = load * cells_a_block / f64::from(k);
                fpr_in_blocks(k, l, load, Phase::WORST, block_keys)
            })?;
            let generation = items.div_ceil(l.into());
            let words = words_for(k, generation, load, width).ok()?;
            Some(Plan { k, l, columns: width, generation, words })
        })
        .min_by_key(|plan| (plan.words, plan.k))
        .ok_or_else(|| too_large(items, wanted))
}

/// Returns the words of cells for generations of this size at this load.
///
/// # Errors
/// [`Error::Parameter`] for another width than 16, 32 or 64, and if they would exceed 8 TiB.
pub fn words_for(k: u32, generation: u64, load: f64, columns: u32) -> Result<u64> {
    check_columns(columns)?;
    let cells = (f64::from(k) * generation as f64 / load).ceil();
    let words = (cells / f64::from(64 / columns)).ceil();
    if words <= MOST_WORDS as f64 {
        Ok((words as u64).max(1))
    } else {
        Err(Error::parameter(
            "window-items",
            format!("a window that {MOST_WORDS} words (8 TiB) can hold"),
            format!("generations of {generation}, which take {words} words"),
        ))
    }
}

/// Returns the words of cells for generations of another size at the load of a plan.
///
/// # Errors
/// As [`words_for`].
pub fn words_of(plan: &Plan, generation: u64) -> Result<u64> {
    check_columns(plan.columns)?;
    let cells = plan.words as f64 * f64::from(64 / plan.columns);
    let load = f64::from(plan.k) * plan.generation as f64 / cells;
    words_for(plan.k, generation, load, plan.columns)
}

fn check_columns(columns: u32) -> Result<()> {
    if COLUMNS.contains(&columns) {
        return Ok(());
    }
    Err(Error::parameter("columns", "16, 32 or 64", columns))
}

fn too_large(items: u64, wanted: f64) -> Error {
    Error::parameter(
        "window-items",
        format!("a window that {MOST_WORDS} words (8 TiB) can hold at fpr {wanted}"),
        items,
    )
}
