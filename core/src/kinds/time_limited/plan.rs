//! The parameters of the kind, completed: slices, load, and how long a generation is open.

use super::generations::Generations;
use crate::error::{Error, Result};
use crate::kind::parameters::{DEFAULT_FPR, within};
use crate::kind::{Micros, Parameters, State};
use crate::kinds::age_partitioned::{design, theory};

/// The longest window: 36,000 years in microseconds.
const MOST_WINDOW: Micros = 1 << 60;

/// Columns of a block; those beyond `k+l` let generations close early.
pub(super) const COLUMNS: u32 = 64;

/// Columns left free in the steady state: for the grace, and so that a generation may close before
/// its time. When the rate rises, the next generation is then the first that measures only the new
/// rate.
const SPARE: u32 = 2;

/// Plans aim at this part of the planned rate, because fills vary slightly around the expected
/// ones.
const AIM: f64 = 0.97;

/// The highest load: beyond it more hash functions would be better.
const MOST_LOAD: f64 = 1.0;

/// A time-limited filter's parameters, completed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) window: Micros,
    pub(super) fpr: f64,
    pub(super) rate: Option<f64>,
    pub(super) k: u32,
    pub(super) l: u32,
    /// Set bits that each cell of a slice took when all `k` generations have used their allowance.
    pub(super) load: f64,
    /// The longest time for which a generation stays open.
    pub(super) pace: Micros,
    /// The time after its close for which it counts as open; with `pace` together `T/l`, rounded
    /// up.
    pub(super) grace: Micros,
}

impl Plan {
    /// Completes the parameters.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds or that do not fit each other.
    pub(super) fn of(parameters: &Parameters) -> Result<Self> {
        let window = parameters.required("window", "a number of microseconds")?;
        let window = within("window", window, 1, MOST_WINDOW)?;
        let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
        let rate = parameters.optional("rate", "inserts a second")?;
        if let Some(rate) = rate.filter(|&rate: &f64| !(rate >= 0.0 && rate.is_finite())) {
            return Err(Error::parameter("rate", "a number of inserts a second", rate));
        }
        let (k, l) = slice_counts(parameters, fpr)?;
        let load = match parameters.optional("load", "the highest load of a slice")? {
            Some(load) if load > 0.0 && load <= MOST_LOAD => load,
            Some(load) => {
                return Err(Error::parameter(
                    "load",
                    format!("above 0, at most {MOST_LOAD}"),
                    load,
                ));
            }
            None => planned_load(k, fpr)?,
        };
        let (pace, grace) = pace_and_grace(window, k, l);
        Ok(Self { window, fpr, rate, k, l, load, pace, grace })
    }

    /// Returns the generations on record.
    #[inline]
    pub(super) fn generations<'a>(&self, state: &State<'a>) -> Generations<'a> {
        Generations::new(state, (self.pace, self.grace), u64::from(self.k) - 1)
    }
}

/// Returns `k` and `l` as given, or those that take the least memory.
fn slice_counts(parameters: &Parameters, fpr: f64) -> Result<(u32, u32)> {
    match parameters.slices(COLUMNS - 1)? {
        None => {
            let best = design(AIM * fpr, COLUMNS - SPARE).ok_or_else(|| too_low(fpr))?;
            Ok((best.k, best.l))
        }
        Some((k, l)) if k + l <= COLUMNS => Ok((k, l)),
        Some((k, l)) => Err(Error::parameter("l", format!("at most {COLUMNS} slices, k+l"), k + l)),
    }
}

/// Returns how long a generation is open, and how long after that it still counts as open.
///
/// An insert may go to a generation that another thread closes concurrently because its allowance
/// is used, at a time before the insert's. The difference is at most the grace, because otherwise
/// the insert records its time first ([`Events::grace`](crate::kind::Events::grace)). The key's
/// window, from the generation's end on, is therefore complete. Grace is a 64th of `T/l`, if the
/// slices leave a spare column: `n-k` consecutive generations must cover the window and the grace,
/// which holds for `l <= 62`.
pub(super) fn pace_and_grace(window: Micros, k: u32, l: u32) -> (Micros, Micros) {
    let whole = window.div_ceil(l.into());
    let grace = if k + l < COLUMNS { whole / 64 } else { 0 };
    (whole - grace, grace)
}

/// Returns the highest load that keeps the rate with all columns in use and all generations full.
fn planned_load(k: u32, fpr: f64) -> Result<f64> {
    let l = COLUMNS - k;
    let holds = |load| theory::fpr(k, l, load, theory::Phase::WORST) <= AIM * fpr;
    let (mut low, mut high) = (1e-6, MOST_LOAD);
    if holds(high) {
        return Ok(high);
    }
    if !holds(low) {
        return Err(too_low(fpr));
    }
    while high / low > 1.0 + 1e-9 {
        let middle = (low * high).sqrt();
        if holds(middle) { low = middle } else { high = middle }
    }
    Ok(low)
}

fn too_low(fpr: f64) -> Error {
    Error::parameter("fpr", "a rate that 64 slices can keep", fpr)
}
