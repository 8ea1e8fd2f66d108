//! Streams with a few frequent keys: rank `r` (from 1) with probability proportional to `r^-s`.

use crate::random::Random;

/// A Zipf distribution over a number of keys; exponent 0 is the uniform one.
pub struct Zipf {
    /// The cumulative weights of the ranks.
    sums: Vec<f64>,
}

impl Zipf {
    /// Creates the distribution over `keys` keys, at least one.
    pub fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=keys).map(|rank| (rank as f64).powf(-exponent));
        let sums = weights.map(|weight| {
            sum += weight;
            sum
        });
        Self { sums: sums.collect() }
    }

    /// Draws the next key: its rank, from 0.
    pub fn next(&self, random: &mut Random) -> usize {
        let all = self.sums.last().copied().unwrap_or(0.0);
        let part = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * all;
        self.sums.partition_point(|&sum| sum <= part).min(self.sums.len() - 1)
    }
}
