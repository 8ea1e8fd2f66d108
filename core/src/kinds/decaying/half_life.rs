//! The half-life grid: exponential decay (the time-decaying paper's section 3.2) in whole numbers.
//! A counter's undercount is bounded, it is rewritten only once a half-life, and it does reach
//! zero.
//!
//! A count decays by `λ` with each epoch. Rounding up at each epoch, as the paper's `C = λ·C` in
//! whole numbers would, stops decaying at `1/(1-λ)`. Therefore let `H` be the least number of
//! epochs with `λ^H <= 1/2`, and let epochs divisible by `H` be *grid points*. A counter holds the
//! value that the count had (or would have had) at the latest grid point, in units of `2^-F`. An
//! insert in epoch `e` adds `⌈w · 2^F · λ^-(e mod H)⌉`, a read gives `C · λ^(e mod H) / 2^F`, and a
//! grid point replaces `C` by `⌈C · λ^H⌉`, but 1 by 0.
//!
//! Guarantees for a counter, against the exact decayed count `c` of all that was added to it:
//! * It is too small by less than [`epsilon`](HalfLife::epsilon), `2^-F`. Only the last step, from
//!   1 to 0, loses anything. A counter that lacks `u` units before a grid point lacks at most
//!   `λ^H·(1 + u)` after it, which is at most `(1 + u)/2`, so never a whole unit.
//! * It is therefore 0 only if `c` is below `2^-F`.
//! * It is too large by less than [`most_above`](HalfLife::most_above). Each insert is rounded up
//!   by less than one unit, and is at least `2^F` of them. Each grid point rounds up by less than
//!   one, and halves what came before: two units in all.
//! * Without further inserts, a counter of `b` bits is 0 after `b + 1` grid points: each maps at
//!   most `2^n` to at most `2^(n-1)`.
//!
//! These numbers make up the state of filters, so they are the same on every machine: whole numbers
//! only, no `powf`, and floating point for the answer alone. All powers are rounded up, by less
//! than a relative `2^-56`, which the guarantees include.

use super::sum_of_exponentials::PART_PLACES;
use crate::error::Result;
use crate::kind::parameters::{probability, within};

/// The greatest number of fraction bits.
pub const MOST_FRACTION_BITS: u32 = 32;

/// Grid points after which nothing is left in any counter, even in one of 64 bits.
pub const MOST_STEPS: u32 = 65;

/// Binary places of the powers in use.
const PLACES: u32 = 62;

/// Binary places of scaled counts, beside those of the counter.
pub(super) const SCALED_PLACES: u32 = 32;

/// Binary places of the powers from which those are computed: `λ^n` has an error of `n·2^-125`, and
/// `n` is below `2^53`.
const FINE_PLACES: u32 = 126;

/// One, with [`FINE_PLACES`].
const FINE_ONE: u128 = 1 << FINE_PLACES;

/// The most by which all rounding of powers raises a count, relatively: 14 for an insert, 14 for a
/// read and two for each of 65 grid points, at most `2^-61` each.
const POWERS_ROUNDED: f64 = 1.0 / (1_u64 << 50) as f64;

/// Exponential decay by `λ` an epoch, of counters in units of `2^-F`.
#[derive(Debug, Clone, PartialEq)]
pub struct HalfLife {
    lambda: f64,
    fraction_bits: u32,
    epochs: u64,
    /// `λ^H` is this over `2^half_places`.
    half: u64,
    half_places: u32,
    decay: Powers,
    growth: Powers,
}

impl HalfLife {
    /// Creates decay by `lambda` an epoch, with `fraction_bits` binary places.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) if `lambda` does not lie between 0 and 1, both
    /// excluded, and for more than [`MOST_FRACTION_BITS`].
    pub fn new(lambda: f64, fraction_bits: u32) -> Result<Self> {
        let lambda = probability("lambda", lambda)?;
        within("fraction-bits", fraction_bits.into(), 0, MOST_FRACTION_BITS.into())?;
        if lambda <= 0.5 {
            // Each epoch is a grid point; λ itself is a whole number over a power of two.
            let (half, half_places) = fraction(lambda);
            let (decay, growth) = (Powers::none(), Powers::none());
            return Ok(Self { lambda, fraction_bits, epochs: 1, half, half_places, decay, growth });
        }
        let (mantissa, places) = fraction(lambda);
        let fine = u128::from(mantissa) << (FINE_PLACES - places);
        let (epochs, half) = half_life(fine);
        Ok(Self {
            lambda,
            fraction_bits,
            epochs,
            half: coarse(half),
            half_places: PLACES,
            decay: Powers::new(fine, epochs),
            growth: Powers::new(inverse(mantissa, places), epochs),
        })
    }

    /// Returns `λ`.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Returns `F`, the binary places of counters.
    #[must_use]
    pub fn fraction_bits(&self) -> u32 {
        self.fraction_bits
    }

    /// Returns `H`, the least number of epochs with `λ^H <= 1/2`.
    #[must_use]
    pub fn epochs_per_half_life(&self) -> u64 {
        self.epochs
    }

    /// Returns the number of the half-life that contains an epoch: `⌊epoch / H⌋`.
    #[must_use]
    #[inline]
    pub fn number(&self, epoch: u64) -> u64 {
        epoch / self.epochs
    }

    /// Returns the first epoch of a half-life: the grid point.
    #[must_use]
    #[inline]
    pub fn start(&self, number: u64) -> u64 {
        number.saturating_mul(self.epochs)
    }

    /// Returns how many grid points lie after epoch `from`, up to epoch `to`; at most
    /// [`MOST_STEPS`].
    #[must_use]
    #[inline]
    pub fn steps(&self, from: u64, to: u64) -> u32 {
        steps_between(self.number(from), self.number(to))
    }

    /// Returns what an insert of this weight in this epoch adds to a counter:
    /// `⌈weight · 2^F · λ^-(epoch mod H)⌉`.
    #[must_use]
    #[inline]
    pub fn added(&self, weight: u32, epoch: u64) -> u64 {
        let power = self.growth.get(epoch % self.epochs);
        // Below 2^32 · 2^63 · 2^32.
        let product = (u128::from(weight) * u128::from(power)) << self.fraction_bits;
        u64::try_from(shifted(product, PLACES)).unwrap_or(u64::MAX)
    }

    /// As [`added`](HalfLife::added), for a part of the weight: `part` over 2 to the power of
    /// [`PART_PLACES`], at most 2.
    #[must_use]
    #[inline]
    pub(super) fn added_part(&self, weight: u32, part: u64, epoch: u64) -> u64 {
        let power = self.growth.get(epoch % self.epochs);
        // Below 2^32 · 2^32 · 2^63.
        let product = u128::from(weight) * u128::from(part) * u128::from(power);
        let places = PLACES + PART_PLACES - self.fraction_bits;
        u64::try_from(shifted(product, places)).unwrap_or(u64::MAX)
    }

    /// Returns the power with which a counter is read in this epoch, for
    /// [`scaled`](HalfLife::scaled).
    #[must_use]
    #[inline]
    pub(super) fn power(&self, epoch: u64) -> u64 {
        self.decay.get(epoch % self.epochs)
    }

    /// Returns the count that a counter represents, rounded up, with `F` and [`SCALED_PLACES`]
    /// binary places. Sums of such counts of several counters are exact.
    #[must_use]
    #[inline]
    pub(super) fn scaled(value: u64, power: u64) -> u128 {
        shifted(u128::from(value) * u128::from(power), PLACES - SCALED_PLACES)
    }

    /// Returns a scaled sum as a number, rounded up.
    #[must_use]
    #[inline]
    pub(super) fn count(scaled: u128, fraction_bits: u32) -> f64 {
        rounded_up(scaled) / (1_u128 << (SCALED_PLACES + fraction_bits)) as f64
    }

    /// Returns what is left of a counter after `times` grid points: each replaces the value by
    /// `⌈value · λ^H⌉`, but 1 by 0.
    #[must_use]
    #[inline]
    pub fn halve(&self, mut value: u64, times: u32) -> u64 {
        for _ in 0..times {
            if value <= 1 {
                return 0;
            }
            value = self.halve_once(value);
        }
        value
    }

    /// Returns what is left after one grid point, without a branch, because whether a counter is in
    /// use cannot be predicted.
    #[must_use]
    #[inline]
    pub(super) fn halved(&self, value: u64) -> u64 {
        let halved = self.halve_once(value);
        if value > 1 { halved } else { 0 }
    }

    /// Returns what an insert that is `times` grid points late still adds. As
    /// [`halve`](HalfLife::halve), but 1 stays 1: if the rests of many late inserts were dropped
    /// one by one, the undercount of their sum would have no bound.
    #[must_use]
    #[inline]
    pub fn late(&self, mut value: u64, times: u32) -> u64 {
        for _ in 0..times {
            if value <= 1 {
                break;
            }
            value = self.halve_once(value);
        }
        value
    }

    #[inline]
    fn halve_once(&self, value: u64) -> u64 {
        let product = u128::from(value) * u128::from(self.half);
        // At most half of `value`, rounded up.
        shifted(product, self.half_places) as u64
    }

    /// Returns the count that a counter represents in an epoch of its half-life:
    /// `value · λ^(epoch mod H) / 2^F`, rounded up.
    #[must_use]
    #[inline]
    pub fn read(&self, value: u64, epoch: u64) -> f64 {
        let power = self.decay.get(epoch % self.epochs);
        let units = (1_u128 << (PLACES + self.fraction_bits)) as f64;
        // A division by a power of two, so exact.
        rounded_up(u128::from(value) * u128::from(power)) / units
    }

    /// Returns `ε = 2^-F`: a count read is too small by less than this, and 0 only if the exact one
    /// is below it.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        1.0 / (1_u64 << self.fraction_bits) as f64
    }

    /// Returns the most by which a count read is too large, collisions and late inserts apart, if
    /// the exact one is `count`: `2ε + 2^-F · count`, and `2^-50` of the count for the powers' last
    /// places. A late insert adds up to `2ε` more, until that has decayed.
    #[must_use]
    pub fn most_above(&self, count: f64) -> f64 {
        let epsilon = self.epsilon();
        2.0 * epsilon + (epsilon + POWERS_ROUNDED) * count
    }
}

/// Returns how many grid points lie between two half-lives; at most [`MOST_STEPS`], and 0 if `to`
/// is not later.
#[must_use]
#[inline]
pub fn steps_between(from: u64, to: u64) -> u32 {
    to.saturating_sub(from).min(MOST_STEPS.into()) as u32
}

/// Returns `⌈x / 2^places⌉`, for `x` and `2^places` up to `2^127`.
#[inline]
fn shifted(x: u128, places: u32) -> u128 {
    (x + ((1 << places) - 1)) >> places
}

/// Returns a number between 0 and 1 as a whole number of 53 bits over a power of two. Exact except
/// for numbers below `2^-74`, for which the result is larger, but so small that any counter times
/// it is still below one.
fn fraction(number: f64) -> (u64, u32) {
    let (mut whole, mut places) = (number, 0_u32);
    while whole < (1_u64 << 52) as f64 {
        whole *= 2.0;
        places += 1;
    }
    (whole as u64, places.min(2 * 64 - 1))
}

/// Returns `2^places / mantissa` with [`FINE_PLACES`], rounded up; `places` is 53 and `mantissa`
/// has 53 bits.
fn inverse(mantissa: u64, places: u32) -> u128 {
    // In two steps of long division: 2^(53 + 126) is too long for one.
    let divisor = u128::from(mantissa);
    let first = 1_u128 << (places + 64);
    let rest = (first % divisor) << (FINE_PLACES - 64);
    ((first / divisor) << (FINE_PLACES - 64)) + rest.div_ceil(divisor)
}

/// Returns `a · b`, both with [`FINE_PLACES`], rounded up. The product must be below 4.
fn times(a: u128, b: u128) -> u128 {
    let halves = |x: u128| (x >> 64, x & u128::from(u64::MAX));
    let ((a1, a0), (b1, b0)) = (halves(a), halves(b));
    let low = a0 * b0;
    let (middle_high, middle) = halves(a1 * b0 + (low >> 64));
    let middle = a0 * b1 + middle;
    let high = a1 * b1 + middle_high + (middle >> 64);
    let low = middle << 64 | halves(low).1;
    let beyond = 128 - FINE_PLACES;
    (high << beyond | low >> FINE_PLACES) + u128::from(low << beyond != 0)
}

/// Converts from [`FINE_PLACES`] to [`PLACES`], rounded up.
fn coarse(fine: u128) -> u64 {
    shifted(fine, FINE_PLACES - PLACES) as u64
}

/// Returns the least `H` with `λ^H <= 1/2`, and `λ^H`, for `λ` between 1/2 and 1.
fn half_life(lambda: u128) -> (u64, u128) {
    let mut squares = vec![lambda];
    while let Some(&last) = squares.last()
        && last > FINE_ONE / 2
    {
        squares.push(times(last, last));
    }
    // The largest number of epochs after which more than a half is left, bit by bit from the top.
    let (mut epochs, mut left) = (0, FINE_ONE);
    for (bit, &square) in squares.iter().enumerate().rev() {
        let less = times(left, square);
        if less > FINE_ONE / 2 {
            (epochs, left) = (epochs | 1 << bit, less);
        }
    }
    // Computed in another order it might be rounded up to slightly more than a half; it is not
    // more.
    (epochs + 1, times(left, lambda).min(FINE_ONE / 2))
}

/// Returns `x` as a float, the next one if it lies between two.
#[inline]
fn rounded_up(x: u128) -> f64 {
    let nearest = x as f64;
    if (nearest as u128) < x { nearest.next_up() } else { nearest }
}

/// The powers of a number from `^0` to `^(end - 1)`, all between 1/2 and 2, with [`PLACES`],
/// rounded up: one table for each 8 bits of the exponent.
#[derive(Debug, Clone, PartialEq)]
struct Powers(Vec<[u64; 256]>);

impl HalfLife {
    /// Returns the bytes of the tables.
    pub fn table_bytes(&self) -> usize {
        size_of_val(&*self.decay.0) + size_of_val(&*self.growth.0)
    }
}

impl Powers {
    /// Creates the power of exponent 0 only.
    fn none() -> Self {
        Self(Vec::new())
    }

    fn new(base: u128, end: u64) -> Self {
        let mut tables = Vec::new();
        let (mut base, mut last) = (base, end - 1);
        while last > 0 {
            let mut table = [0; 256];
            let mut power = FINE_ONE;
            // Exponents from `end` on are never used; their powers may be too large.
            for entry in table.iter_mut().take(last.min(255) as usize) {
                *entry = coarse(power);
                power = times(power, base);
            }
            table[last.min(255) as usize] = coarse(power);
            last >>= 8;
            if last > 0 {
                base = times(power, base);
            }
            tables.push(table);
        }
        Self(tables)
    }

    /// Returns the power of this exponent.
    #[inline]
    fn get(&self, mut exponent: u64) -> u64 {
        let Some((first, more)) = self.0.split_first() else {
            return 1 << PLACES;
        };
        let mut power = first[(exponent & 0xff) as usize];
        for table in more {
            exponent >>= 8;
            let product = u128::from(power) * u128::from(table[(exponent & 0xff) as usize]);
            power = shifted(product, PLACES) as u64;
        }
        power
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decay(lambda: f64, fraction_bits: u32) -> HalfLife {
        HalfLife::new(lambda, fraction_bits).expect("a sound decay")
    }

    #[test]
    fn a_half_life_is_the_least_number_of_epochs_that_halve() {
        for (lambda, epochs) in [
            (5e-324, 1),
            (0.1, 1),
            (0.5, 1),
            (0.5_f64.next_up(), 2),
            (0.7, 2),
            (0.5_f64.sqrt().next_down(), 2),
            (0.5_f64.sqrt().next_up(), 3),
            (0.75, 3),
            (0.8, 4),
            (0.9, 7),
            (0.99, 69),
            (0.999, 693),
            (0.999_999, 693_147),
            // ln 2 · 2^53, rounded up.
            (1.0_f64.next_down(), 6_243_314_768_165_359),
        ] {
            assert_eq!(decay(lambda, 8).epochs_per_half_life(), epochs, "{lambda}");
        }
    }

    /// Returns `base^n` for fractions over a power of two whose powers fit.
    fn exact(over: u32, log: u32, n: u32) -> (u128, u32) {
        (u128::from(over).pow(n), log * n)
    }

    #[test]
    fn inserts_reads_and_grid_points_are_the_exact_numbers_rounded_up() {
        for (over, log) in [(3, 2), (7, 3), (13, 4), (15, 4), (5, 3), (1, 3)] {
            let decay = decay(f64::from(over) / f64::from(1 << log), 8);
            let half_life = decay.epochs_per_half_life() as u32;
            for phase in 0..half_life {
                let (power, shift) = exact(over, log, phase);
                for weight in [1, 2, 3, 1000] {
                    let scaled = u128::from(weight) << (8 + shift);
                    let epoch = u64::from(phase + 5 * half_life);
                    let (told, exact) = (decay.added(weight, epoch), scaled.div_ceil(power));
                    // 4/3 is not a finite binary fraction, so 3 · 4/3 is slightly more than a whole
                    // number.
                    let above = u128::from(told) - exact;
                    assert!(above == 0 || above == 1 && scaled % power == 0 && phase > 0);
                    // Few enough digits for a float to be exact.
                    let read = f64::from(weight) * power as f64 / (1_u128 << (shift + 8)) as f64;
                    let told = decay.read(weight.into(), epoch);
                    assert!(told >= read && told <= read * (1.0 + 1e-15), "{told} for {read}");
                }
            }
            let (power, shift) = exact(over, log, half_life);
            for value in [2, 3, 4, 1000, u64::from(u32::MAX)] {
                let exact = (u128::from(value) * power).div_ceil(1 << shift) as u64;
                assert_eq!(decay.halve(value, 1), exact, "{value} at {over}/2^{log}");
            }
            assert_eq!((decay.halve(1, 1), decay.late(1, 1), decay.halve(0, 9)), (0, 1, 0));
        }
    }

    proptest! {
        #[test]
        fn powers_are_those_of_the_library_but_for_its_error(
            // From half-lives of one epoch to half-lives of 2^40 epochs.
            place in 0.0..40.0_f64,
            at in 0.0..1.0_f64,
        ) {
            let lambda = 1.0 - 0.5 * (-place).exp2();
            let decay = decay(lambda, 16);
            let phase = (decay.epochs_per_half_life() as f64 * at) as u64;
            let exact = (lambda.ln() * phase as f64).exp();
            let read = decay.read(1 << 40, phase) / f64::from(1 << 24);
            prop_assert!((read / exact - 1.0).abs() < 1e-13, "{} for {}", read, exact);
            let added = decay.added(1 << 20, phase) as f64 / 2.0_f64.powi(36);
            prop_assert!((added * exact - 1.0).abs() < 1e-10, "{} for {}", added, 1.0 / exact);
            let half = decay.halve(1 << 62, 1) as f64 / 2.0_f64.powi(62);
            let exact = (lambda.ln() * decay.epochs_per_half_life() as f64).exp();
            prop_assert!((half / exact - 1.0).abs() < 1e-13 && half <= 0.5);
        }

        #[test]
        fn a_counter_of_b_bits_is_zero_after_b_plus_1_grid_points(
            lambda in 0.0001..1.0_f64,
            bits in 1..=64_u32,
        ) {
            let decay = decay(lambda, 8);
            prop_assert_eq!(decay.halve(u64::MAX >> (64 - bits), bits + 1), 0);
        }
    }

    #[test]
    fn steps_are_grid_points_and_never_go_back() {
        let decay = decay(0.9, 8);
        for (from, to, steps) in [
            (0, 6, 0),
            (0, 7, 1),
            (6, 7, 1),
            (7, 6, 0),
            (0, 700, MOST_STEPS),
            (u64::MAX, u64::MAX, 0),
            (0, u64::MAX, MOST_STEPS),
        ] {
            assert_eq!(decay.steps(from, to), steps, "{from} to {to}");
        }
        assert_eq!(decay.start(decay.number(u64::MAX)), u64::MAX / 7 * 7);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        for lambda in [5e-324, 0.5, 0.500_001, 0.999_999, 1.0_f64.next_down()] {
            let decay = decay(lambda, MOST_FRACTION_BITS);
            for epoch in [0, 1, u64::MAX / 2, u64::MAX] {
                assert!(decay.added(u32::MAX, epoch) >= u64::from(u32::MAX) << 32);
                assert!(decay.read(u64::MAX, epoch) > 2.0_f64.powi(30));
            }
        }
        for lambda in [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
            assert!(HalfLife::new(lambda, 8).is_err());
        }
        assert!(HalfLife::new(0.5, 33).is_err());
    }
}
