//! Claims about the pool and its lookup table alone.

use super::super::pool::{Digits, MOST_DIGITS, digits_of, most_of};
use super::*;
use crate::atomic::AtomicU64;
use crate::block::{OWN_WORDS, load};

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

proptest! {
    #[test]
    fn every_number_keeps_its_digits_until_all_slots_are_used(
        lines in 1_u64..12,
        share in 1_u64..10,
        picks in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_u64..16, any::<bool>()),
            0..300,
        ),
        rebuild_at in 0..300_usize,
    ) {
        let counters = lines * shape::LINE as u64;
        let pool = share as f64 / shape::LINE as f64;
        let shape = Shape { cells: counters, front_bits: 0, buffers: 0, pool, base_bits: 4 };
        let (own, cells) = (words(OWN_WORDS), words(shape.words(counters) as usize));
        let block = Block::alone(&own, &cells);
        let parts = shape.parts(cells.len(), 1);
        let pool = Pool::of(&parts, &block, share);
        let mut model = vec![Vec::new(); counters as usize];
        let mut used = 0;
        for (round, (pick, digit, hot)) in picks.into_iter().enumerate() {
            // Half of all digits go to few counters.
            let at = if hot { pick.index(2) } else { pick.index(model.len()) };
            let (line, owner) = (at / shape::LINE, at % shape::LINE);
            let chain = pool.chain(line, owner);
            if model[at].len() < 15 {
                match pool.extend(line, owner, &chain) {
                    Some(longer) => {
                        model[at].push(digit);
                        used += 1;
                        let number = number_of(&model[at]);
                        pool.set(owner, &longer, number);
                    }
                    None => prop_assert_eq!(used, lines * share),
                }
            }
            if round == rebuild_at {
                let mut digits = Digits::default();
                for (at, held) in model.iter_mut().enumerate() {
                    if at % shape::LINE == 0 {
                        digits.line();
                    }
                    digits.push(at % shape::LINE, number_of(held));
                    held.truncate(digits_of(number_of(held)));
                }
                used = digits.len() as u64;
                pool.rebuild(&digits);
            }
            for (at, held) in model.iter().enumerate() {
                let chain = pool.chain(at / shape::LINE, at % shape::LINE);
                prop_assert_eq!((chain.number, chain.digits), (number_of(held), held.len()));
            }
        }
        let counters = &cells[..parts.table.first];
        prop_assert!(counters.iter().all(|word| load(word) == 0), "others are left alone");
    }
}

fn number_of(digits: &[u64]) -> u64 {
    digits.iter().rev().fold(0, |number, digit| number << 4 | digit)
}

#[test]
fn numbers_take_as_many_digits_as_they_need() {
    for (number, digits) in [(0, 0), (1, 1), (15, 1), (16, 2), (255, 2), (256, 3), (u64::MAX, 16)] {
        assert_eq!(digits_of(number), digits, "{number}");
    }
    for (count, digits) in [(15, 0), (16, 1), (255, 1), (256, 2)] {
        assert_eq!(theory::digits(count), digits, "{count}");
    }
    for digits in 0..=MOST_DIGITS {
        let most = most_of(digits);
        assert_eq!(digits_of(most), digits);
        assert!(most == u64::MAX || digits_of(most + 1) == digits + 1);
    }
}

/// Fig. 2 of the time-decaying paper: extra counters 01 and 02, and 0 in the small counter.
#[test]
fn the_papers_example_of_three_digits_is_288() {
    // No fraction: counters of 4 bits.
    let setting = Setting { fraction: 0, k: 4, cells: 500, ..Setting::USUAL };
    let mut harness = setting.harness();
    for (hits, digits, count) in [(15, 0, 15.0), (17, 2, 32.0), (256, 2, 288.0)] {
        harness.insert_weighing(hash_of(1), 0, hits);
        let told = harness.estimate(hash_of(1)).expect("it counts").count;
        let used = harness.metric("pool_in_use");
        println!("{count}: {used} digits in {} counters", setting.k);
        assert_eq!((told, used >= digits), (count, true));
    }
    // 256·1 + 16·2 + 0: two digits in each of four counters.
    assert_eq!(harness.metric("pool_in_use"), 8);
    assert_eq!(number_of(&[0, 2, 1]), 288);
}
