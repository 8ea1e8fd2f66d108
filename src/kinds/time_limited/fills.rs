//! How full slices are: keys from newly set bits, and false-positive rates.
//!
//! A generation's keys are not counted but measured by the bits they set: a stream full of duplicates
//! fills slices far more slowly than its inserts say. `c` distinct keys set
//! `W·S·(1-e^(-c/W))` new bits, `S` the sum of the zero shares of the `k` slices before.
//!
//! What an event's effect on the state depends on uses only operations that IEEE 754 fixes to the last
//! bit (+ - × ÷ √), so that replay gives the same state on every machine.

use super::super::age_partitioned::theory::fpr_run;
use super::super::bloom::mean_over_blocks;
use super::super::{BankEntry, Moment, State};
use super::TimeLimited;
use super::generations::Generations;
use crate::cells::Layout;

/// Doublings in [`zeros_left`] and its inverse: a relative error of `x²/2048`.
const DOUBLINGS: u32 = 10;

/// The share of cells still zero at a load of `x` keys a cell: `e^-x`, near enough.
fn zeros_left(x: f64) -> f64 {
    let mut base = 1.0 + x / f64::from(1 << DOUBLINGS);
    for _ in 0..DOUBLINGS {
        base *= base;
    }
    1.0 / base
}

/// The load that leaves this share of cells zero: the inverse of [`zeros_left`].
fn load_leaving(share: f64) -> f64 {
    let mut root = 1.0 / share.max(1e-9);
    for _ in 0..DOUBLINGS {
        root = root.sqrt();
    }
    (root - 1.0) * f64::from(1 << DOUBLINGS)
}

/// The bank that an open generation writes to, as its measurements need it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    words: f64,
    /// Sum of the zero shares of the `k` slices when the generation opened.
    zeros: f64,
}

impl Measure {
    /// The measure of the open generation, which the bank of `since` and `words` serves.
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

    /// The distinct keys that set so many new bits.
    pub(super) fn keys(&self, novelty: u64) -> u64 {
        let share = novelty as f64 / (self.words * self.zeros);
        (load_leaving(1.0 - share) * self.words).round() as u64
    }

    /// The new bits that so many distinct keys set.
    pub(super) fn novelty(&self, keys: f64) -> u64 {
        (self.words * self.zeros * (1.0 - zeros_left(keys / self.words))) as u64
    }
}

/// The false-positive rate to expect of a query at this moment: over all banks, the program of runs over
/// the slices of generations that are alive, at fills that follow from the measured keys.
pub(super) fn expected_fpr(
    kind: &TimeLimited,
    state: &State<'_>,
    layout: Layout,
    moment: &Moment,
) -> f64 {
    let none = state
        .banks()
        .fold(1.0, |none, bank| none * (1.0 - bank_fpr(kind, state, layout, moment, &bank)));
    1.0 - none
}

fn bank_fpr(
    kind: &TimeLimited,
    state: &State<'_>,
    layout: Layout,
    moment: &Moment,
    bank: &BankEntry,
) -> f64 {
    let generations = kind.generations(state);
    let oldest = generations.first_since(moment.now, kind.window).max(bank.since);
    let open = generations.current();
    let last = kind.last_generation(state, bank).min(open);
    if oldest > last || last - oldest >= super::generations::RING {
        return 0.0;
    }
    let words = layout.words(bank.geometry).max(1);
    let measure = Measure::new(&generations, kind.k, bank.since, words);
    let keys = |generation: u64| {
        if generation < bank.since.max(generations.oldest()) || generation > last {
            0
        } else if generation == open {
            measure.keys(moment.totals.novelty.saturating_sub(generations.novelty()))
        } else {
            generations.keys(generation)
        }
    };
    let k = u64::from(kind.k);
    // Youngest first; a run of an alive generation has no slices older than those of `oldest`.
    let loads: Vec<f64> = (oldest.saturating_sub(k - 1)..=last)
        .rev()
        .map(|slice| {
            (slice..slice.saturating_add(k)).map(|g| keys(g) as f64).sum::<f64>() / words as f64
        })
        .collect();
    let spread = spread(loads.iter().copied().fold(0.0, f64::max), bank.geometry.words_per_block);
    mean_over_blocks(spread, |x| fpr_run(loads.iter().map(|load| -(-load * x).exp_m1()), kind.k))
}

/// The variance of a block's keys relative to their mean, where a run of slices is concerned: keys come to
/// blocks in a Poisson manner, and the `2k-1` generations of a run weigh as two thirds of one slice's keys.
fn spread(load: f64, words_per_block: u32) -> f64 {
    let keys = load * f64::from(words_per_block);
    if keys > 0.0 { 2.0 / (3.0 * keys) } else { 0.0 }
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
