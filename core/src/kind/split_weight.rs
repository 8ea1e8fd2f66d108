//! The records of an operation whose weight is too great for one record.

use super::{Kind, MOST_WEIGHT};
use std::iter;

/// Returns the weight that is written. A weight beyond one record is cut to what fills the counters
/// ([`KeyCounts::fills`](super::KeyCounts::fills)), because more changes nothing. For a kind that
/// does not count, it is the count that its caller gave a filter of the kind before an alteration:
/// then it is none.
fn written(kind: &dyn Kind, weight: u64) -> u64 {
    let most = u64::from(MOST_WEIGHT);
    if weight <= most {
        return weight;
    }
    let Some(counts) = kind.counts() else { return 1 };
    counts.fills().map_or(weight, |fills| weight.min(fills.max(most)))
}

/// Returns the weights of the records of an operation with this weight, in their order; each is at
/// least 1 and at most [`MOST_WEIGHT`].
pub fn split_weight(kind: &dyn Kind, weight: u64) -> impl Iterator<Item = u32> + use<> {
    let (most, mut left) = (u64::from(MOST_WEIGHT), written(kind, weight));
    let first = left.min(most) as u32;
    let rest = iter::from_fn(move || {
        left = left.saturating_sub(most);
        (left > 0).then(|| left.min(most) as u32)
    });
    iter::once(first).chain(rest)
}

/// Returns the number of records of a weight ([`split_weight`]).
#[must_use]
pub fn count_records(kind: &dyn Kind, weight: u64) -> u64 {
    written(kind, weight).div_ceil(MOST_WEIGHT.into()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{MOST_COUNT, Parameters};
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
            let all: Vec<u32> = split_weight(&*kind, weight).collect();
            prop_assert_eq!(all.iter().map(|&part| u64::from(part)).sum::<u64>(), weight);
            prop_assert!(all.iter().all(|&part| (1..=MOST_WEIGHT).contains(&part)));
            prop_assert_eq!(all.len() as u64, count_records(&*kind, weight));
        }

        #[test]
        fn a_weight_beyond_the_counters_has_no_more_parts_than_fill_them(
            weight in prop_oneof![1..=MOST_COUNT, 1..(1_u64 << 26)],
            bits in 1_u32..=32,
        ) {
            let kind = counting(bits);
            let all: Vec<u64> = split_weight(&*kind, weight).map(u64::from).collect();
            let fills = (1_u64 << bits) - 1;
            prop_assert!(all.iter().sum::<u64>() >= weight.min(fills));
            prop_assert!(all.iter().sum::<u64>() <= weight);
            prop_assert!(all.len() as u64 <= fills.div_ceil(MOST_WEIGHT.into()));
            prop_assert_eq!(all.len() as u64, count_records(&*kind, weight));
        }
    }

    #[test]
    fn a_large_count_is_one_record_of_a_kind_that_does_not_count() {
        let parameters = Parameters::new().with("capacity", 100);
        let kind = registry::build("bloom", &parameters).expect("a kind");
        assert!(split_weight(&*kind, MOST_COUNT).eq([1]));
        assert_eq!(count_records(&*kind, MOST_COUNT), 1);
    }

    #[test]
    fn the_greatest_weight_is_one_record_of_counters_that_a_record_fills() {
        for bits in [1, 4, 24] {
            assert!(split_weight(&*counting(bits), MOST_COUNT).eq([MOST_WEIGHT]), "{bits}");
        }
        assert!(split_weight(&*counting(25), MOST_COUNT).eq([MOST_WEIGHT, MOST_WEIGHT, 1]));
        assert_eq!(count_records(&*counting(32), MOST_COUNT), 257);
    }
}
