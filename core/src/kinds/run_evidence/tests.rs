//! The recursions against the sums that they replace.

use super::super::slice_columns::Columns;
use super::*;
use crate::hash::mix;

/// Generations and slices with probabilities of their own.
struct Any {
    some: Vec<f64>,
    touched: Vec<f64>,
}

impl Ages for Any {
    fn none(&self, generations: Range<u32>) -> f64 {
        generations.map(|age| 1.0 - self.some[age as usize]).product()
    }

    fn insert(&self, generation: u32) -> (f64, f64) {
        let some = self.some[generation as usize];
        (some, 1.0 - some)
    }

    fn touched(&self, slices: Range<u32>) -> f64 {
        slices.map(|age| self.touched[age as usize]).product()
    }
}

/// A row of ones and zeros, age 0 first, with its shape.
struct Naive<'a> {
    ones: &'a [bool],
    k: usize,
    generations: usize,
    ages: &'a Any,
}

impl Naive<'_> {
    /// Returns the likelihood of the row if the key was inserted in the generations of these bits,
    /// times their probability, without that of generations younger than `from`.
    fn weight(&self, inserts: u32, from: usize) -> f64 {
        let n = self.ones.len();
        let mut forced = vec![false; n];
        let mut weight = 1.0;
        for age in 0..self.generations {
            let some = self.ages.some[age];
            if inserts >> age & 1 == 1 {
                forced[age..n.min(age + self.k)].fill(true);
                weight *= if age < from { 1.0 } else { some };
            } else if age >= from {
                weight *= 1.0 - some;
            }
        }
        for age in (0..n).filter(|&age| forced[age]) {
            weight *= if self.ones[age] { 1.0 / self.ages.touched[age] } else { 0.0 };
        }
        weight
    }

    /// Returns `Λ`.
    fn inserted(&self, age: usize) -> f64 {
        let older = 0..1_u32 << (self.generations - age - 1);
        older.map(|bits| self.weight(bits << (age + 1) | 1 << age, age + 1)).sum()
    }

    /// Returns `V`.
    fn perhaps(&self, age: usize) -> f64 {
        let older = 0..1_u32 << (self.generations - age);
        older.map(|bits| self.weight(bits << age, age)).sum()
    }
}

fn share(seed: u64) -> f64 {
    (mix(seed) >> 11) as f64 / (1_u64 << 53) as f64
}

fn close(told: f64, exact: f64) -> bool {
    (told / exact - 1.0).abs() < 1e-12
}

#[test]
fn likelihoods_are_the_sums_over_all_patterns_of_inserts() {
    let mut several = 0;
    for seed in 0..3000_u64 {
        let n = 2 + (mix(seed) % 10) as u32;
        let k = 1 + (mix(seed ^ 1) % u64::from(n - 1).min(5)) as u32;
        let generations = 1 + (mix(seed ^ 2) % u64::from(n)) as u32;
        let of = |what: u64, age: u32| share(mix(seed) ^ (what << 32 | u64::from(age)));
        // Rare keys, common ones, and rows with many ones and with few.
        let rare = [1.0, 1e-3, 1e-9][(seed % 3) as usize];
        let fill = [0.5, 0.8, 0.95][(seed / 3 % 3) as usize];
        let ages = Any {
            some: (0..n).map(|age| rare * of(1, age)).collect(),
            touched: (0..n).map(|age| 0.05 + 0.9 * of(2, age)).collect(),
        };
        let ones: Vec<bool> = (0..n).map(|age| of(3, age) < fill).collect();
        let bits = (0..n).filter(|&age| ones[age as usize]).map(|age| 1 << (63 - age));
        let columns = Columns::new(k, n, 64);
        let starts = columns.starts(bits.sum());
        let naive =
            Naive { ones: &ones, k: k as usize, generations: generations as usize, ages: &ages };
        let row = Row::new(starts, columns.shape(), generations.into());
        let mut room = [Start::default(); 64];
        let found = row.weigh(&ages, &mut room);
        let expected: Vec<u32> =
            (0..generations).rev().filter(|&age| naive.inserted(age as usize) > 0.0).collect();
        assert_eq!(found.iter().map(|start| start.age).collect::<Vec<_>>(), expected);
        // The naive sums are relative to no insert at all: to all ones of runs set by other keys.
        let all: f64 = found.iter().map(|start| start.left).product();
        let mut unexplained = 1.0;
        for start in found.iter().rev() {
            let exact = naive.inserted(start.age as usize);
            let told = unexplained * start.inserted / all;
            assert!(close(told, exact), "{seed}: {told} for {exact}");
            // Also of the youngest start: the row may be that of an older bank.
            let exact = naive.perhaps(start.age as usize);
            let told = unexplained * start.perhaps / all;
            assert!(close(told, exact), "{seed}, V of {}: {told} for {exact}", start.age);
            unexplained *= start.left;
        }
        let whole = (row.whole(&ages) / all, naive.perhaps(0));
        assert!(close(whole.0, whole.1), "{seed}: {whole:?}");
        several += u32::from(found.len() > 2);
    }
    assert!(several > 500, "{several}");
}

#[test]
fn the_most_unlikely_rows_have_likelihoods_all_the_same() {
    for (some, touched) in [(0.0, 0.0), (1.0, 0.0), (1e-12, 1e-12), (1.0, 1.0), (0.5, 1e-300)] {
        let ages = Any { some: vec![some; 64], touched: vec![touched; 64] };
        for starts in [u64::MAX, 1, 1 << 63, 0x8000_0000_0000_0001, 0xffff_0000_ffff_0000] {
            let row = Row::new(starts, (12, 64), 64);
            let mut room = [Start::default(); 64];
            let found = row.weigh(&ages, &mut room);
            assert_eq!(found.len(), starts.count_ones() as usize);
            assert!(found.iter().all(|start| (0.0..=1.0 + 1e-12).contains(&start.inserted)));
            assert!((0.0..=1.0 + 1e-12).contains(&row.whole(&ages)));
        }
    }
}

#[test]
fn of_a_key_that_came_in_each_generation_the_youngest_is_nearly_certain_however_empty_the_filter() {
    for touched in [1e-2, 1e-4, 1e-9] {
        let ages = Any { some: vec![0.3; 64], touched: vec![touched; 64] };
        let row = Row::new(u64::MAX << 12, (12, 64), 64);
        let mut room = [Start::default(); 64];
        let found = row.weigh(&ages, &mut room);
        let youngest = found[found.len() - 1];
        let next = found[found.len() - 2];
        assert!(youngest.inserted > 0.0);
        assert!(youngest.left * next.inserted < 10.0 * touched * youngest.inserted);
    }
}
