//! `D(j)`: the expected number of distinct keys in `j` insertions (section 2.5).
//!
//! The functions are the paper's equations as printed. [`Distinct`] tabulates one of them, because
//! a query of a filter evaluates `D` several times. `groups` sums over keys of many different
//! probabilities.

mod groups;

use crate::error::{Error, Result};
use groups::{Groups, met};
use std::fmt;
use std::sync::Arc;

/// Equation 15: returns `D(j) = Σ (1 - (1-p_x)^j)`, summed over keys with these probabilities.
///
/// Exact, and slow for many keys; [`Distinct::of_probabilities`] tabulates it.
#[must_use]
pub fn of_each(probabilities: &[f64], j: f64) -> f64 {
    probabilities.iter().map(|&p| met((-p).ln_1p(), j)).sum()
}

/// Equation 16: returns `D(j) = |U|·(1 - (1-1/|U|)^j)`, for `universe` keys that are equally
/// likely. 0 without keys.
#[must_use]
pub fn uniform(universe: u64, j: f64) -> f64 {
    if universe == 0 {
        return 0.0;
    }
    let keys = universe as f64;
    keys * met((-1.0 / keys).ln_1p(), j)
}

/// Equation 17: returns `D(j) ≈ j/H·(1 - γ + ln(|U|·H/j))`, `H` the [`harmonic`] number of `|U|`,
/// for keys with `p_x = 1/(x·H)`.
///
/// An approximation for about `10 <= j <= |U|`: it gives 1.2 for `D(1)` where there are 2^16 keys,
/// and falls from `0.56·|U|·H` on. [`Distinct::power_law`] is equation 15 for the
/// same keys, and holds everywhere.
#[must_use]
pub fn power_law_approximated(universe: u64, j: f64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    let h = harmonic(universe, 1.0);
    j / h * (1.0 - EULER + (universe as f64 * h / j).ln())
}

/// Returns `H = Σ x^-s` for `x` from 1 to `universe`, `s` the exponent: the sum of the weights of a
/// power law.
///
/// For the paper's exponent, 1, it is the harmonic number. Accurate to about nine digits, in some
/// microseconds.
#[must_use]
pub fn harmonic(universe: u64, exponent: f64) -> f64 {
    groups::of_ranks(universe, exponent).map(|group| group.mass).sum()
}

/// Equation 18: returns `D(j)` on the straight line through two points `(j, D(j))`, both axes
/// logarithmic.
#[must_use]
pub fn interpolated((j1, d1): (f64, f64), (j3, d3): (f64, f64), j2: f64) -> f64 {
    (d1.ln() + (d3 / d1).ln() * (j2 / j1).ln() / (j3 / j1).ln()).exp()
}

/// A tabulated model `D(j)` of how the keys of a stream repeat. Cheap to clone.
///
/// ```
/// use ebbtide_core::inference::Distinct;
/// // Of 1000 keys, all equally likely, 1000 inserts meet all but 1/e.
/// let distinct = Distinct::uniform(1000)?;
/// assert!((distinct.of(1000.0) - 632.3).abs() < 0.1);
/// assert_eq!(Distinct::ALL.of(1000.0), 1000.0);
/// # Ok::<(), ebbtide_core::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Distinct {
    table: Option<Arc<Table>>,
}

impl Distinct {
    /// No key repeats: `D(j) = j`.
    pub const ALL: Self = Self { table: None };

    /// Creates the model of `universe` equally likely keys (equation 16).
    ///
    /// # Errors
    /// [`Error::Parameter`] for a universe without keys.
    pub fn uniform(universe: u64) -> Result<Self> {
        check_universe(universe)?;
        Ok(Self::tabulated(universe as f64, |j| uniform(universe, j)))
    }

    /// Creates the model in which the key of rank `x` of `universe` has the probability `x^-s/H`,
    /// `s` the exponent: the paper's power law (section 5.3.1) for 1, uniform for 0.
    ///
    /// By equation 15, in which ranks far down are grouped: within 0.1 % for exponents up to 4.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a universe without keys, and for an exponent that is negative or
    /// not finite.
    pub fn power_law(universe: u64, exponent: f64) -> Result<Self> {
        check_universe(universe)?;
        if !(exponent >= 0.0 && exponent.is_finite()) {
            return Err(Error::parameter("exponent", "a number, 0 or more", exponent));
        }
        Ok(Self::of_groups(&Groups::of_power_law(universe, exponent)))
    }

    /// Creates the model of keys with these probabilities (equation 15). If they sum to less than
    /// 1, the remaining inserts are of keys that never repeat.
    ///
    /// Probabilities that differ by less than a sixteenth are grouped: within 0.1 % of the full
    /// sum.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a number that is not from 0 to 1, and if the sum is above 1.
    pub fn of_probabilities(probabilities: impl IntoIterator<Item = f64>) -> Result<Self> {
        Ok(Self::of_groups(&Groups::of_probabilities(probabilities)?))
    }

    /// Creates the model from measured points `(j, D(j))`, in the order of `j` (equation 18).
    ///
    /// `D(1) = 1` is implied. Beyond the last point the last slope continues, from 0 (no new keys)
    /// to 1 (new keys only).
    ///
    /// ```
    /// use ebbtide_core::inference::Distinct;
    /// let distinct = Distinct::sampled(&[(100.0, 90.0), (10_000.0, 4_000.0)])?;
    /// assert!((distinct.of(1000.0) - 600.0).abs() < 0.1, "the geometric mean");
    /// # Ok::<(), ebbtide_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no point beyond `j = 1`, if a number is not finite, if `j`
    /// does not rise from 1, if `D(j)` falls, and if it is above `j`.
    pub fn sampled(points: &[(f64, f64)]) -> Result<Self> {
        let line = line_through(points)?;
        Ok(Self::tabulated(f64::INFINITY, |j| {
            let at = line.partition_point(|point| point.0 <= j).clamp(1, line.len() - 1);
            interpolated(line[at - 1], line[at], j)
        }))
    }

    fn of_groups(groups: &Groups) -> Self {
        Self::tabulated(groups.keys(), |j| groups.distinct(j))
    }

    fn tabulated(limit: f64, d: impl Fn(f64) -> f64) -> Self {
        Self { table: Some(Arc::new(Table::new(limit, d))) }
    }

    /// Returns `D(j)`. Never falls as `j` grows; equals `j` below 1; 0 for negative `j` and for
    /// NaN.
    ///
    /// Read from a table of 32 steps an octave, to 2^44, with a parabola in each step. Accurate to
    /// five digits, with differences between two nearby `j` that stay meaningful. Beyond 2^44 it
    /// continues on a straight line, up to the number of keys.
    #[must_use]
    #[inline]
    pub fn of(&self, j: f64) -> f64 {
        match &self.table {
            Some(table) if j >= 1.0 => table.at(j),
            _ => j.max(0.0),
        }
    }
}

impl fmt::Debug for Distinct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.table.is_none() {
            return f.write_str("Distinct::ALL");
        }
        // Three thousand numbers would not help a reader.
        let of = |octave: i32| (octave, self.of(2_f64.powi(octave)));
        f.debug_map().entries([8, 16, 24, 32, 40].map(of)).finish()
    }
}

fn check_universe(universe: u64) -> Result<()> {
    if universe == 0 {
        return Err(Error::parameter("universe", "at least one key", universe));
    }
    Ok(())
}

/// Returns the points, checked, with one at 1 and one at the end of the table.
fn line_through(points: &[(f64, f64)]) -> Result<Vec<(f64, f64)>> {
    let mut line = vec![(1.0, 1.0)];
    for &(j, d) in points.strip_prefix(&[(1.0, 1.0)]).unwrap_or(points) {
        let (before, least) = line[line.len() - 1];
        if !(j > before && j.is_finite()) {
            return Err(Error::parameter("points", format!("a j above {before} (D(1) is 1)"), j));
        }
        if !(d >= least && d <= j) {
            return Err(Error::parameter("points", format!("D({j}) from {least} to {j}"), d));
        }
        line.push((j, d));
    }
    let &[.., (j1, d1), (j3, d3)] = line.as_slice() else {
        return Err(Error::parameter("points", "at least one with j above 1", points.len()));
    };
    let slope = ((d3 / d1).ln() / (j3 / j1).ln()).min(1.0);
    if j3 < END {
        line.push((END, d3 * (END / j3).powf(slope)));
    }
    Ok(line)
}

/// Steps in an octave, as bits of the mantissa.
const STEP_BITS: u32 = 5;
/// The bits of an `f64` below the steps.
const REST_BITS: u32 = f64::MANTISSA_DIGITS - 1 - STEP_BITS;
/// The bits of 1.0 are the first step.
const FIRST: u64 = 1_f64.to_bits() >> REST_BITS;
const OCTAVES: usize = 44;
const STEPS: usize = OCTAVES << STEP_BITS;
const END: f64 = (1_u64 << OCTAVES) as f64;

/// `D(j)` at the beginning of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Node {
    value: f64,
    /// Four times the height of the step's middle above the straight line to the next node. A line
    /// would make the differences `D(a+b) - D(a)` wrong by up to a fifth where nearly all keys
    /// have occurred; a parabola by 2 %.
    bend: f64,
}

#[derive(Debug, PartialEq)]
struct Table {
    nodes: [Node; STEPS + 1],
    /// Upper bound of `D(j)`.
    limit: f64,
}

impl Table {
    fn new(limit: f64, d: impl Fn(f64) -> f64) -> Self {
        let bits = |step: usize| (FIRST + step as u64) << REST_BITS;
        let mut nodes = [Node { value: 1.0, bend: 0.0 }; STEPS + 1];
        for step in 0..STEPS {
            let value = nodes[step].value;
            let next = d(f64::from_bits(bits(step + 1))).min(limit).max(value);
            let middle = d(f64::from_bits(bits(step) + (1 << (REST_BITS - 1))));
            // Between these bounds the parabola never falls, and is concave.
            let bend = 4.0 * (middle - 0.5 * (value + next));
            nodes[step].bend = bend.clamp(0.0, next - value);
            nodes[step + 1].value = next;
        }
        Self { nodes, limit }
    }

    /// Returns `D(j)` for `j` from 1 on.
    #[inline]
    fn at(&self, j: f64) -> f64 {
        let bits = j.to_bits();
        let step = ((bits >> REST_BITS) - FIRST) as usize;
        if step >= STEPS {
            return self.beyond(j);
        }
        let along = (bits % (1 << REST_BITS)) as f64 * (1.0 / (1_u64 << REST_BITS) as f64);
        let (from, to) = (self.nodes[step], self.nodes[step + 1]);
        from.value + along * ((to.value - from.value) + (1.0 - along) * from.bend)
    }

    /// Continues along the tangent at the end.
    #[cold]
    fn beyond(&self, j: f64) -> f64 {
        let (before, last) = (self.nodes[STEPS - 1], self.nodes[STEPS].value);
        let slope = (last - before.value - before.bend) * ((2 << STEP_BITS) as f64 / END);
        // An infinite `j` times a slope of zero would be NaN.
        (last + slope * (j.min(f64::MAX) - END)).min(self.limit)
    }
}

#[cfg(test)]
mod tests;
