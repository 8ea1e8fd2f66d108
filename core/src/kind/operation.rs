//! What a kind is given and returns: moments, operations, queries, decisions.

use super::Kind;
use crate::event::Micros;
use std::iter;

/// Filter-wide sums, as read: another thread's latest insert may be missing, but no insert is
/// counted too often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Insert operations applied since creation.
    pub inserts: u64,
    /// The sum of [`Kind::new_bits`](super::Kind::new_bits) over all inserts since creation; for
    /// kinds with weights, the number of removals.
    pub new_bits: u64,
}

/// The times and sums from which an insert is decided.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The key's own time, which may lie before `now`.
    pub time: Micros,
    /// The filter's time.
    pub now: Micros,
    /// Sums over the filter: exact if they decide an event, otherwise possibly slightly too high.
    pub totals: Totals,
}

/// A kind's decision about an insert, made before its record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Insert under this step.
    Insert {
        /// The step (generation, tick, …) that the record carries.
        step: u64,
    },
    /// The key's time lies before the window: nothing is changed.
    TooLate,
}

/// The change that an operation makes for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The key is inserted.
    Insert,
    /// The key is removed as many times as its weight.
    Remove,
}

/// An operation as stored in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The change that is made.
    pub change: Change,
    /// The key's hash.
    pub hash: u64,
    /// The step that was decided.
    pub step: u64,
    /// The key's time.
    pub time: Micros,
    /// The key's weight: how often it counts, or how important it is. From 1 to [`MOST_WEIGHT`]; 1
    /// for kinds without weights.
    pub weight: u32,
}

/// The greatest weight in one record, limited by its field.
pub const MOST_WEIGHT: u32 = (1 << 24) - 1;

/// The greatest count that one operation adds or removes. Above [`MOST_WEIGHT`] the operation is
/// written as several records that count together or not at all: 65,536 of them at most, and no
/// more than change something.
pub const MOST_COUNT: u64 = (MOST_WEIGHT as u64) << 16;

/// Returns the part of a weight that is written: above what one record holds no more than fills the
/// counters ([`KeyCounts::fills`](super::KeyCounts::fills)).
fn written(kind: &dyn Kind, weight: u64) -> u64 {
    let most = u64::from(MOST_WEIGHT);
    if weight <= most {
        return weight;
    }
    let fills = kind.counts().and_then(|counts| counts.fills());
    fills.map_or(weight, |fills| weight.min(fills.max(most)))
}

/// Returns the weights of the records of an operation with this weight, in their order; each is at
/// least 1 and at most [`MOST_WEIGHT`].
pub fn parts(kind: &dyn Kind, weight: u64) -> impl Iterator<Item = u32> + use<> {
    let (most, mut left) = (u64::from(MOST_WEIGHT), written(kind, weight));
    let first = left.min(most) as u32;
    let rest = iter::from_fn(move || {
        left = left.saturating_sub(most);
        (left > 0).then(|| left.min(most) as u32)
    });
    iter::once(first).chain(rest)
}

/// Returns the number of [`parts`] of a weight.
#[must_use]
pub fn count_parts(kind: &dyn Kind, weight: u64) -> u64 {
    written(kind, weight).div_ceil(MOST_WEIGHT.into()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Parameters;
    use crate::kinds::registry;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn counting(bits: u32) -> Arc<dyn Kind> {
        let parameters = Parameters::new().with("capacity", 100).with("counter-bits", bits);
        registry::build("counting", &parameters).expect("a kind")
    }

    proptest! {
        #[test]
        fn the_parts_of_a_weight_fit_records_and_sum_up_to_it(
            weight in prop_oneof![1..=MOST_COUNT, 1..(1_u64 << 26)],
        ) {
            let parameters = Parameters::new().with("capacity", 100);
            let kind = registry::build("spectral", &parameters).expect("a kind");
            let all: Vec<u32> = parts(&*kind, weight).collect();
            prop_assert_eq!(all.iter().map(|&part| u64::from(part)).sum::<u64>(), weight);
            prop_assert!(all.iter().all(|&part| (1..=MOST_WEIGHT).contains(&part)));
            prop_assert_eq!(all.len() as u64, count_parts(&*kind, weight));
        }

        #[test]
        fn a_weight_beyond_the_counters_has_no_more_parts_than_fill_them(
            weight in prop_oneof![1..=MOST_COUNT, 1..(1_u64 << 26)],
            bits in 1_u32..=32,
        ) {
            let kind = counting(bits);
            let all: Vec<u64> = parts(&*kind, weight).map(u64::from).collect();
            let fills = (1_u64 << bits) - 1;
            prop_assert!(all.iter().sum::<u64>() >= weight.min(fills));
            prop_assert!(all.iter().sum::<u64>() <= weight);
            prop_assert!(all.len() as u64 <= fills.div_ceil(MOST_WEIGHT.into()));
            prop_assert_eq!(all.len() as u64, count_parts(&*kind, weight));
        }
    }

    #[test]
    fn the_greatest_weight_is_one_record_of_counters_that_a_record_fills() {
        for bits in [1, 4, 24] {
            assert!(parts(&*counting(bits), MOST_COUNT).eq([MOST_WEIGHT]), "{bits}");
        }
        assert!(parts(&*counting(25), MOST_COUNT).eq([MOST_WEIGHT, MOST_WEIGHT, 1]));
        assert_eq!(count_parts(&*counting(32), MOST_COUNT), 257);
    }
}

/// A question about one key.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// The key's hash.
    pub hash: u64,
    /// The time of the query.
    pub now: Micros,
    /// Sums over the filter; for [`Kind::contains`](super::Kind::contains) possibly slightly too
    /// high.
    pub totals: Totals,
}
