//! Polynomial decay `(1+x)^-a` (the paper's section 3.2), by a sum of exponentials that is never
//! below it ([`sum_of_exponentials`](super::sum_of_exponentials)): a counter is one number for each
//! term, each on the grid of its own half-life.
//!
//! | kind word | holds |
//! |---|---|
//! | 0 | the epoch that the block has caught up to |
//! | 1 | additions that were cut short because a term's number was full |
//! | 2 | one more than the epoch in which a key was first cut; 0 if that matters no longer |
//! | 3, 5 | the keys that were cut ([`cut_keys`](super::cut_keys)) |
//! | 4 | one more than the epoch in which a key was last cut; 0 if that matters no longer |
//!
//! **The guarantee** holds for a *horizon* of `n` epochs. Let `c` be the exact count of the inserts
//! that are at most `n` epochs old, and `C` that of all, both by the polynomial.
//! * An estimate is at least `c`. The numbers of a term lack less than a unit of `2^-F` each
//!   ([`half_life`](super::half_life)), so a read adds one for each term.
//! * It is at most `1 + excess` times `C`, collisions and late inserts apart. The sum of terms uses
//!   three quarters of `excess` at most. The rest covers rounding: up to three units a term for a
//!   counter and one a term for an insert, and `F` is so great that four units a term are a small
//!   part of the least count, `(1+n)^-a`.
//! * A sum below `(1+n)^-a` is reported as 0, because an insert within the horizon leaves that
//!   much. So a key that was inserted once is absent soon after the horizon, although the slowest
//!   term holds on to it for many times as long.
//!
//! A key older than the horizon is rejected as too late.
//!
//! **Once a number was full**, the same applies as in `exponential.rs`, with the least number of a
//! term in place of the least counter. What was cut off matters for the horizon, because inserts
//! before it count no longer.

use super::counters::{Addition, At, Cells, Counters, note_full};
use super::cut_keys::CutKeys;
use super::half_life::{HalfLife, MOST_FRACTION_BITS, SCALED_PLACES};
use super::sum_of_exponentials::{MOST_HORIZON, MOST_TERMS, Polynomial, Term, Terms};
use crate::block::Block;
use crate::block::packed::Packed;
use crate::error::{Error, Result};
use crate::kind::parameters::{probability, within};
use crate::kind::{Estimate, Parameters};

/// The name of this decay function, in the parameter `decay`.
pub(super) const NAME: &str = "polynomial";

/// The parameters of this decay function.
pub(super) const KNOWN: [&str; 5] = ["exponent", "horizon", "excess", "terms", "fraction-bits"];

const DEFAULT_EXCESS: f64 = 0.03;
const LEAST_FRACTION_BITS: u32 = 8;

/// Bits that a number has above its fraction by default: sums up to 65,535.
const DEFAULT_WHOLE_BITS: u32 = 16;

/// Bits that a number needs above its fraction: one insert adds up to `2 · 2^F`.
const LEAST_WHOLE_BITS: u32 = 2;

/// The greatest exponent.
const MOST_EXPONENT: f64 = 8.0;

/// Units of a term that rounding costs at most.
const ROUNDED_UNITS: f64 = 4.0;

const EPOCH: usize = 0;
const FIRST_CUT: usize = 2;
const LATEST_CUT: usize = 4;

/// Counters that decay as a polynomial.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SumOfExponentials {
    function: Polynomial,
    excess: f64,
    terms: Terms,
    decays: Vec<HalfLife>,
    fraction: u32,
    bits: u32,
    /// The least count that an insert within the horizon leaves, scaled.
    least: u128,
    normaliser: f64,
}

/// The terms as of one epoch.
#[derive(Debug, Clone, Copy)]
struct Now<'a> {
    counters: &'a SumOfExponentials,
    packed: Packed,
    /// Grid points since the block caught up, by term.
    steps: [u32; MOST_TERMS],
    /// Powers for reading, by term.
    powers: [u64; MOST_TERMS],
    epoch: u64,
}

impl SumOfExponentials {
    /// Creates the counters from `exponent`, `horizon`, `excess`, `terms`, `fraction-bits` and
    /// `counter-bits`, of which all but the first two are derived if absent.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds, for terms that are below the function or
    /// above it by more than `excess`, and if no sum of exponentials is near enough.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let exponent = parameters.required("exponent", "the a of (1+x)^-a")?;
        if !(exponent > 0.0 && exponent <= MOST_EXPONENT) {
            let expected = format!("a number above 0, at most {MOST_EXPONENT}");
            return Err(Error::parameter("exponent", expected, exponent));
        }
        let horizon = parameters.required("horizon", "the epochs for which it is exact")?;
        let horizon = within("horizon", horizon, 1, MOST_HORIZON)?;
        let excess = parameters.optional("excess", "a share of the count")?;
        let excess = probability("excess", excess.unwrap_or(DEFAULT_EXCESS))?;
        let function = Polynomial { exponent, horizon };
        let terms = match parameters.get("terms") {
            None => function.terms(excess)?,
            Some(text) => text.parse().map_err(|()| {
                let expected = format!("at most {MOST_TERMS} pairs weight:lambda");
                Error::parameter("terms", expected, text)
            })?,
        };
        let found = function.excess(&terms).filter(|&found| found < excess).ok_or_else(|| {
            let expected = "terms whose sum is never below the function within the horizon, nor \
                            above it by more than the excess";
            Error::parameter("terms", expected, &terms)
        })?;
        let least = function.at(horizon as f64);
        let units = ROUNDED_UNITS * terms.0.len() as f64 * (1.0 + excess);
        let needed = (units / (least * (excess - found))).log2().ceil().max(0.0);
        let needed = (needed as u64).max(LEAST_FRACTION_BITS.into());
        if needed > MOST_FRACTION_BITS.into() {
            let expected = "a horizon of which counters keep the end (raise excess, or shorten it)";
            return Err(Error::parameter("horizon", expected, horizon));
        }
        let fraction = parameters.optional("fraction-bits", "a number of bits")?.unwrap_or(needed);
        let fraction = within("fraction-bits", fraction, needed, MOST_FRACTION_BITS.into())? as u32;
        let bits = parameters.optional("counter-bits", "a number of bits")?;
        let bits = bits.unwrap_or((fraction + DEFAULT_WHOLE_BITS).into());
        let bits = within("counter-bits", bits, (fraction + LEAST_WHOLE_BITS).into(), 64)? as u32;
        let decay = |term: &Term| HalfLife::new(term.lambda, fraction);
        let decays = terms.0.iter().map(decay).collect::<Result<_>>()?;
        // Slightly less, because the power is not exact.
        let scaled = (1.0 - 1e-9) * least * 2.0_f64.powi((SCALED_PLACES + fraction) as i32);
        let sum: f64 = (0..=horizon).rev().map(|age| function.at(age as f64)).sum();
        let (least, normaliser) = (scaled as u128, 1.0 / sum);
        Ok(Self { function, excess, terms, decays, fraction, bits, least, normaliser })
    }

    /// Returns the numbers; those of one counter are adjacent.
    fn packed(&self, cells: &Cells<'_>) -> Packed {
        let cells = cells.count as usize * self.decays.len();
        Packed { first: 0, bits: self.bits, cells }
    }

    /// Returns the terms in epoch `now`, or in that of the block if it is later.
    #[inline]
    fn now(&self, cells: &Cells<'_>, now: u64) -> Now<'_> {
        let caught_up = cells.block.own(EPOCH);
        let epoch = now.max(caught_up);
        let (mut steps, mut powers) = ([0; MOST_TERMS], [0; MOST_TERMS]);
        for (number, decay) in self.decays.iter().enumerate() {
            steps[number] = decay.steps(caught_up, epoch);
            powers[number] = decay.power(epoch);
        }
        Now { counters: self, packed: self.packed(cells), steps, powers, epoch }
    }

    /// Returns the keys that were cut, by epochs.
    fn cut_keys(&self) -> CutKeys {
        CutKeys { words: [3, 5], period: self.function.horizon + 1 }
    }

    /// Returns whether something that was cut off matters in epoch `now`.
    #[inline]
    fn matters(&self, block: &Block<'_>, now: u64) -> bool {
        let latest = block.own(LATEST_CUT);
        latest != 0 && now.saturating_sub(latest - 1) <= self.function.horizon
    }

    /// Records that something was cut off a key.
    #[cold]
    fn note_cut(&self, block: &Block<'_>, hash: u64) {
        let epoch = block.own(EPOCH);
        if block.own(FIRST_CUT) == 0 {
            block.set_own(FIRST_CUT, epoch.saturating_add(1));
        }
        self.cut_keys().add(block, hash, epoch, block.own(LATEST_CUT) != 0);
        block.set_own(LATEST_CUT, epoch.saturating_add(1));
    }
}

impl Now<'_> {
    /// Returns a counter's count, scaled; and, for a key that was cut, whether the counter may lack
    /// something.
    #[inline]
    fn total(&self, block: &Block<'_>, cell: u32, was_cut: bool) -> (u128, bool) {
        let terms = self.counters.decays.len();
        let first = cell as usize * terms;
        let (mut sum, mut lacks) = (0, false);
        for (number, decay) in self.counters.decays.iter().enumerate() {
            let value = self.packed.get(block, first + number);
            let value = decay.halve(value, self.steps[number]);
            sum += HalfLife::scaled(value, self.powers[number]);
            lacks |= was_cut && value >= self.full_since_first_cut(block, decay);
        }
        if sum > 0 {
            // What the numbers may lack by rounding.
            sum += (terms as u128) << SCALED_PLACES;
        }
        (if sum < self.counters.least { 0 } else { sum }, lacks)
    }

    /// Returns what is left of a term's number that was full at the first cut.
    #[cold]
    fn full_since_first_cut(&self, block: &Block<'_>, decay: &HalfLife) -> u64 {
        let first = block.own(FIRST_CUT).saturating_sub(1);
        decay.halve(self.packed.most(), decay.steps(first, self.epoch))
    }
}

impl Counters for SumOfExponentials {
    fn describe(&self, parameters: Parameters) -> Parameters {
        parameters
            .with("decay", NAME)
            .with("exponent", self.function.exponent)
            .with("horizon", self.function.horizon)
            .with("excess", self.excess)
            .with("terms", &self.terms)
            .with("fraction-bits", self.fraction)
            .with("counter-bits", self.bits)
    }

    fn bits(&self) -> u32 {
        self.bits * self.decays.len() as u32
    }

    fn table_bytes(&self) -> usize {
        let tables: usize = self.decays.iter().map(HalfLife::table_bytes).sum();
        tables + size_of_val(&*self.decays)
    }

    fn forgotten(&self, epoch: u64, now: u64) -> bool {
        now.saturating_sub(epoch) > self.function.horizon
    }

    fn add<const N: usize>(&self, cells: &Cells<'_>, at: &At<N>, addition: Addition) {
        let Addition { weight, epoch, now } = addition;
        let (block, packed) = (cells.block, self.packed(cells));
        at.iter().for_each(|at| self.prefetch(cells, at));
        self.catch_up(cells, now);
        let now = block.own(EPOCH);
        let (most, mut cut, mut is_cut) = (packed.most(), 0, false);
        for (number, (term, decay)) in self.terms.0.iter().zip(&self.decays).enumerate() {
            let added = decay.added_part(weight, term.part, epoch);
            let added = decay.late(added, decay.steps(epoch, now));
            let place = |at: u32| at as usize * self.decays.len() + number;
            // All are loaded before one is written, as in `exponential`.
            let mut old = [0; N];
            for (old, at) in old.iter_mut().zip(at.iter()) {
                *old = packed.get(block, place(at));
            }
            let mut has_room = false;
            for (&old, at) in old.iter().zip(at.iter()) {
                let is_full = added > most - old;
                cut += u64::from(is_full);
                has_room |= !is_full;
                packed.set(block, place(at), old.saturating_add(added).min(most));
            }
            is_cut |= !has_room;
        }
        if cut > 0 {
            note_full(block, cut);
        }
        if is_cut {
            self.note_cut(block, at.hash);
        }
    }

    fn least<const N: usize>(&self, cells: &Cells<'_>, at: &At<N>, now: u64) -> Estimate {
        // As in a ring, the processor would meet the misses one by one.
        at.iter().for_each(|at| self.prefetch(cells, at));
        let (now, block) = (self.now(cells, now), cells.block);
        let was_cut = self.matters(block, now.epoch)
            && self.cut_keys().may_have(block, at.hash, block.own(EPOCH), now.epoch);
        let totals = at.iter().map(|at| now.total(block, at, was_cut));
        let (total, at_least) = totals.min().unwrap_or_default();
        Estimate { count: HalfLife::count(total, self.fraction), at_least }
    }

    fn catch_up(&self, cells: &Cells<'_>, now: u64) {
        let block = cells.block;
        if now <= block.own(EPOCH) {
            return;
        }
        let Now { packed, steps, .. } = self.now(cells, now);
        let from = block.own(EPOCH);
        block.set_own(EPOCH, now);
        if self.matters(block, now) {
            self.cut_keys().catch_up(block, from, now);
        } else if block.own(LATEST_CUT) != 0 {
            [FIRST_CUT, LATEST_CUT].iter().for_each(|&own| block.set_own(own, 0));
            self.cut_keys().clear(block);
        }
        for (number, (decay, &times)) in self.decays.iter().zip(&steps).enumerate() {
            let places = (number..packed.cells).step_by(self.decays.len());
            for place in places.take_while(|_| times > 0) {
                let value = packed.get(block, place);
                if value != 0 {
                    packed.set(block, place, decay.halve(value, times));
                }
            }
        }
    }

    fn in_use(&self, cells: &Cells<'_>) -> u64 {
        let now = self.now(cells, 0);
        (0..cells.count).filter(|&cell| now.total(cells.block, cell, false).0 > 0).count() as u64
    }

    fn marked(&self, block: &Block<'_>) -> f64 {
        let (first, now) = (block.own(FIRST_CUT).saturating_sub(1), block.own(EPOCH));
        let most = u64::MAX >> (64 - self.bits);
        let of_any_value = |decay: &HalfLife| decay.halve(most, decay.steps(first, now)) == 0;
        if self.matters(block, now) && self.decays.iter().any(of_any_value) {
            self.cut_keys().rate(block)
        } else {
            0.0
        }
    }

    fn prefetch(&self, cells: &Cells<'_>, at: u32) {
        let (packed, terms) = (self.packed(cells), self.decays.len());
        // The first and the last number, which may lie in different lines of the cache.
        let first = at as usize * terms;
        packed.prefetch(cells.block, first);
        packed.prefetch(cells.block, first + terms - 1);
    }

    /// Returns one over the sum of the polynomial up to the horizon.
    fn normaliser(&self) -> f64 {
        self.normaliser
    }
}
