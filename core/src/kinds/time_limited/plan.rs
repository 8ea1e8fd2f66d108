//! The parameters of the kind, completed: slices, load, and how long a generation is open.
//!
//! Rows have 16, 32 or 64 *columns*, as those of age-partitioned filters (the Time-limited paper,
//! section 5, has exactly `k+l` slices). Columns beyond `k+l` let generations close early in a
//! burst. A plan has one of two aims:
//! * `worst`: the rate holds with all columns in use and all generations full.
//! * `steady`: the mean rate of a steady stream holds, for which `k+l` slices are alive and a bank
//!   has [`MARGIN`] times the keys of a generation. It takes less memory, and bursts exceed the
//!   rate.

use super::generations::Generations;
use crate::block::UndoRoom;
use crate::error::{Error, Result};
use crate::kind::parameters::{DEFAULT_FPR, within};
use crate::kind::{Micros, Parameters, State};
use crate::kinds::age_partitioned::{COLUMNS, design, theory};
use crate::kinds::memory_limit::Memory;

/// The longest window: 36,000 years in microseconds.
const MOST_WINDOW: Micros = 1 << 60;

/// The greatest number of columns of a row.
pub(super) const MOST_COLUMNS: u32 = 64;

/// The columns of a row if `load` is given without them.
const DEFAULT_COLUMNS: u32 = 64;

/// Columns left free in the steady state: for the grace, and so that a generation may close before
/// its time. When the rate rises, the next generation is then the first that measures only the new
/// rate.
const SPARE: u32 = 2;

/// Plans aim at this part of the planned rate, because fills vary slightly around the expected
/// ones.
const AIM: f64 = 0.97;

/// The highest load: beyond it more hash functions would be better.
const MOST_LOAD: f64 = 1.0;

/// The factor between a bank's capacity and the measured need.
pub(super) const MARGIN: f64 = 1.25;

/// Moments of a generation over which the mean rate is computed.
const PHASES: u32 = 4;

/// The moment for which a rate is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Worst,
    Steady,
}

impl Aim {
    const NAMES: [(&'static str, Self); 2] = [("worst", Self::Worst), ("steady", Self::Steady)];

    fn of(parameters: &Parameters) -> Result<Self> {
        let name = parameters.get("aim").unwrap_or("worst");
        match Self::NAMES.iter().find(|(known, _)| *known == name) {
            Some(&(_, aim)) => Ok(aim),
            None => Err(Error::parameter("aim", "worst or steady", name)),
        }
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, aim)| *aim == self).map_or("", |(name, _)| name)
    }

    /// Returns the rate with `k` hash functions and `l` further slices alive, of `columns`, in
    /// banks of this load at capacity; `block_keys` as in [`theory::fpr_in_blocks`].
    pub(super) fn rate(self, (k, l, columns): (u32, u32, u32), load: f64, block_keys: f64) -> f64 {
        let at = |l, load, phase| theory::fpr_in_blocks(k, l, load, phase, block_keys);
        match self {
            Self::Worst => at(columns - k, load, theory::Phase::WORST),
            Self::Steady => {
                let phase = |number: u32| theory::Phase {
                    closed: u64::MAX,
                    fraction: (f64::from(number) + 0.5) / f64::from(PHASES),
                };
                let rates = (0..PHASES).map(|number| at(l, load / MARGIN, phase(number)));
                rates.sum::<f64>() / f64::from(PHASES)
            }
        }
    }
}

/// A time-limited filter's parameters, completed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) window: Micros,
    pub(super) fpr: f64,
    pub(super) rate: Option<f64>,
    pub(super) k: u32,
    pub(super) l: u32,
    /// Bits of a row of columns: 16, 32 or 64, at least `k+l`.
    pub(super) columns: u32,
    /// The moment for which the load is planned.
    pub(super) aim: Aim,
    /// Set bits that each cell of a slice took when all `k` generations have used their allowance.
    pub(super) load: f64,
    /// The longest time for which a generation stays open.
    pub(super) pace: Micros,
    /// The time after its close for which it counts as open; with `pace` together `T/l`, rounded
    /// up.
    pub(super) grace: Micros,
    /// The memory that banks may take.
    pub(super) memory: Memory,
}

impl Plan {
    /// Completes the parameters.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds or that do not fit each other.
    pub(super) fn of(parameters: &Parameters) -> Result<Self> {
        let window = parameters.required("window", "a duration such as 10m")?;
        let window = within("window", window, 1, MOST_WINDOW)?;
        let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
        let rate = parameters.optional("rate", "inserts a second")?;
        if let Some(rate) = rate.filter(|&rate: &f64| !(rate >= 0.0 && rate.is_finite())) {
            return Err(Error::parameter("rate", "a number of inserts a second", rate));
        }
        let aim = Aim::of(parameters)?;
        let Slices { k, l, columns, load } = Slices::of(parameters, fpr, aim)?;
        let (pace, grace) = pace_and_grace(window, (k, l), columns);
        let memory = Memory::of(parameters, UndoRoom::None)?;
        Ok(Self { window, fpr, rate, k, l, columns, aim, load, pace, grace, memory })
    }

    /// Returns the rows of a slice in this number of words.
    #[inline]
    pub(super) fn rows(&self, words: u64) -> u64 {
        words.saturating_mul(u64::from(64 / self.columns))
    }

    /// Returns the generations on record.
    #[inline]
    pub(super) fn generations<'a>(&self, state: &State<'a>) -> Generations<'a> {
        Generations::new(state, (self.pace, self.grace), u64::from(self.k) - 1)
    }
}

/// Slices, and the load that they keep.
#[derive(Debug, Clone, Copy)]
struct Slices {
    k: u32,
    l: u32,
    columns: u32,
    load: f64,
}

impl Slices {
    /// Returns what is given, and the rest so that it takes the least memory.
    fn of(parameters: &Parameters, fpr: f64, aim: Aim) -> Result<Self> {
        let pair = parameters.slices(MOST_COLUMNS - 1)?;
        let load = match parameters.optional("load", "the highest load of a slice")? {
            Some(load) if load > 0.0 && load <= MOST_LOAD => Some(load),
            Some(load) => {
                let expected = format!("above 0, at most {MOST_LOAD}");
                return Err(Error::parameter("load", expected, load));
            }
            None => None,
        };
        let columns = match parameters.optional("columns", "16, 32 or 64")? {
            Some(columns) if COLUMNS.contains(&columns) => Some(columns),
            Some(other) => return Err(Error::parameter("columns", "16, 32 or 64", other)),
            None => load.map(|_| DEFAULT_COLUMNS),
        };
        if let Some((k, l)) = pair
            && k + l > columns.unwrap_or(MOST_COLUMNS)
        {
            let most = columns.unwrap_or(MOST_COLUMNS);
            return Err(Error::parameter("l", format!("at most {most} slices, k+l"), k + l));
        }
        let widths = COLUMNS.into_iter().filter(|&width| columns.is_none_or(|only| only == width));
        let planned = widths.filter_map(|width| Self::planned(width, pair, load, fpr, aim));
        planned.min_by(|a, b| a.bits().total_cmp(&b.bits())).ok_or_else(|| {
            Error::parameter("fpr", "a rate that slices in rows of this width can keep", fpr)
        })
    }

    /// Returns the best slices in rows of this width; `None` if none keep the rate.
    fn planned(
        columns: u32,
        pair: Option<(u32, u32)>,
        load: Option<f64>,
        fpr: f64,
        aim: Aim,
    ) -> Option<Self> {
        let with = |k: u32, l: u32| {
            let load = match load {
                Some(load) => load,
                None => planned_load((k, l, columns), fpr, aim)?,
            };
            (k + l <= columns).then_some(Self { k, l, columns, load })
        };
        match (pair, aim) {
            (Some((k, l)), _) => (k + l <= columns).then(|| with(k, l)).flatten(),
            (None, Aim::Worst) if load.is_none() => {
                let best = design(AIM * fpr, columns - SPARE)?;
                with(best.k, best.l)
            }
            (None, _) => {
                let all = (1..columns - SPARE).filter_map(|k| with(k, columns - SPARE - k));
                let holds = |slices: &Self| {
                    let Self { k, l, load, .. } = *slices;
                    load_holds((k, l, columns), load, fpr, aim)
                };
                // At a load that is given, few numbers of slices keep the rate.
                all.filter(|slices| load.is_none() || holds(slices))
                    .min_by(|a, b| a.bits().total_cmp(&b.bits()))
            }
        }
    }

    /// Returns the bits of a key, in proportion: those of its row for each key of a generation.
    fn bits(&self) -> f64 {
        f64::from(self.k) * f64::from(self.columns) / (f64::from(self.l) * self.load)
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
pub(super) fn pace_and_grace(window: Micros, (k, l): (u32, u32), columns: u32) -> (Micros, Micros) {
    let whole = window.div_ceil(l.into());
    let grace = if k + l < columns { whole / 64 } else { 0 };
    (whole - grace, grace)
}

/// Returns whether slices of this load keep the rate at the planned moment.
fn load_holds(slices: (u32, u32, u32), load: f64, fpr: f64, aim: Aim) -> bool {
    aim.rate(slices, load, 0.0) <= AIM * fpr
}

/// Returns the highest load that keeps the rate at the planned moment; `None` if none does.
fn planned_load(slices: (u32, u32, u32), fpr: f64, aim: Aim) -> Option<f64> {
    let holds = |load| load_holds(slices, load, fpr, aim);
    let (mut low, mut high) = (1e-6, MOST_LOAD);
    if holds(high) {
        return Some(high);
    }
    if !holds(low) {
        return None;
    }
    while high / low > 1.0 + 1e-9 {
        let middle = (low * high).sqrt();
        if holds(middle) { low = middle } else { high = middle }
    }
    Some(low)
}
