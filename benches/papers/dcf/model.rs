//! The paper's structures by their formulas, on a plain array of counters: the overflow vector
//! widened for all counters at once (unlike in our blocks), and the spectral filter's base array
//! with its indexes.

use super::runs::K;
use ebbtide_testkit::random::mix;

/// The slack bits of the spectral filter per counter. The paper leaves its `ε` open.
const SLACK: f64 = 0.5;

/// Counters in blocks; a key's counters lie in one of them.
pub struct Model {
    counters: Vec<u64>,
    block: usize,
}

impl Model {
    /// Creates `cells` counters in blocks of at most `most_in_block`.
    pub fn new(cells: u64, most_in_block: u64) -> Self {
        let blocks = cells.div_ceil(most_in_block);
        let block = cells.div_ceil(blocks) as usize;
        Self { counters: vec![0; block * blocks as usize], block }
    }

    /// Inserts a key this many times.
    pub fn insert(&mut self, key: u32, times: u64) {
        let hash = mix(u64::from(key) + 1);
        let block = hash as usize % (self.counters.len() / self.block) * self.block;
        for function in 1..=u64::from(K) {
            let step = function.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let position = mix(hash.wrapping_add(step)) as usize % self.block;
            self.counters[block + position] += times;
        }
    }

    /// Returns `y` of each block, for this many bits in the first vector.
    fn widths(&self, x: u32) -> impl Iterator<Item = u32> {
        let blocks = self.counters.chunks(self.block);
        blocks.map(move |block| bits(block.iter().copied().max().unwrap_or(0) >> x))
    }

    /// Returns the rebuilds of a dynamic count filter from empty to this state and back: each bit
    /// of `y` is added once and removed once. Blocks count by their share of the counters.
    pub fn rebuilds(&self, x: u32) -> f64 {
        2.0 * self.mean_width(x)
    }

    fn mean_width(&self, x: u32) -> f64 {
        let blocks = (self.counters.len() / self.block) as f64;
        self.widths(x).map(f64::from).sum::<f64>() / blocks
    }

    /// Returns the bits per counter of a dynamic count filter.
    pub fn dynamic_bits(&self, x: u32) -> f64 {
        f64::from(x) + self.mean_width(x)
    }

    /// Returns the bits per counter of the spectral filter as the DCF paper describes it (section
    /// 2.2): `N` for the counters themselves, slack, `m` for the first coarse vector, `3m` for the
    /// second, `3·m·log log N` for the offset vectors.
    pub fn spectral_bits(&self) -> f64 {
        let m = self.counters.len() as f64;
        let n: f64 = self.counters.iter().map(|&counter| f64::from(bits(counter).max(1))).sum();
        n / m + SLACK + 4.0 + 3.0 * n.log2().log2()
    }
}

/// Returns the number of bits of a value.
fn bits(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}
