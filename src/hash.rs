//! Key hashing and the places a hash leads to.
//!
//! A key is hashed once, with the filter's random seed, to 64 bits (XXH3). Everything else is a pure
//! function of those bits: the stripe and the block are the hash's leading bits (a multiply instead
//! of a division), the positions inside a block are independent mixes of all of them. Independent
//! matters: `a + j·b` double hashing costs up to a third in false positives at small blocks.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Names the hash function in `meta`; a filter made with another one cannot be opened.
pub const HASH_ID: &str = "xxh3-64";

/// The 64-bit hash of a key under the filter's seed.
#[must_use]
#[inline]
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// Maps the whole range of `hash` evenly onto `0..range`: `floor(hash · range / 2^64)`.
///
/// Ranges that divide one another nest: `scale(h, s) == scale(h, s · c) / c`, which is why the
/// stripe of a key is the stripe of its block in every bank.
#[must_use]
#[inline]
pub fn scale(hash: u64, range: u64) -> u64 {
    ((u128::from(hash) * u128::from(range)) >> 64) as u64
}

/// A bijective mix of all 64 bits (the finaliser of SplitMix64).
#[must_use]
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The positions of a key inside its block: independent, even over `0..range`, one per hash function.
///
/// Two positions come from one mix, 32 bits each, so `range` must be at most 2^26 for the
/// unevenness to stay below one in 64.
#[derive(Debug, Clone, Copy)]
pub struct Positions {
    hash: u64,
    range: u32,
}

impl Positions {
    /// The positions of `hash` in a block of `range` cells.
    #[must_use]
    #[inline]
    pub fn new(hash: u64, range: u32) -> Self {
        Self { hash, range }
    }

    /// The position that hash function `function` gives.
    #[must_use]
    #[inline]
    pub fn get(&self, function: u32) -> usize {
        let (even, odd) = self.pair(function >> 1);
        if function & 1 == 0 { even } else { odd }
    }

    /// Visits the positions of functions 0 to `k - 1`. Functions that happen to meet in one visit it each.
    #[inline]
    pub fn each(&self, k: u32, mut visit: impl FnMut(usize)) {
        for pair in 0..k / 2 {
            let (even, odd) = self.pair(pair);
            visit(even);
            visit(odd);
        }
        if k % 2 == 1 {
            visit(self.get(k - 1));
        }
    }

    /// The positions that hash functions `2 · pair` and `2 · pair + 1` give: both for one mix.
    #[must_use]
    #[inline]
    pub fn pair(&self, pair: u32) -> (usize, usize) {
        let step = (u64::from(pair) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = mix(self.hash.wrapping_add(step));
        let scaled = |half: u32| ((u64::from(half) * u64::from(self.range)) >> 32) as usize;
        (scaled(bits as u32), scaled((bits >> 32) as u32))
    }
}

/// The checksum of records: XXH3 over a handful of bytes, faster there than a CRC.
#[must_use]
#[inline]
pub fn short_checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// A streaming hash for the digest of a filter's logical state.
#[derive(Default)]
pub struct DigestHasher(xxhash_rust::xxh3::Xxh3);

impl DigestHasher {
    /// Adds words, as little-endian bytes.
    pub fn words(&mut self, words: &[u64]) {
        for word in words {
            self.0.update(&word.to_le_bytes());
        }
    }

    /// The 128-bit digest of everything added.
    #[must_use]
    pub fn finish(&self) -> u128 {
        self.0.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_nests_so_that_a_blocks_stripe_is_the_keys_stripe() {
        for i in 0..10_000_u64 {
            let hash = mix(i);
            for (stripes, per_stripe) in [(1, 1), (16, 3), (64, 7)] {
                assert_eq!(scale(hash, stripes), scale(hash, stripes * per_stripe) / per_stripe);
            }
        }
    }

    #[test]
    fn positions_are_even_and_independent_of_the_block() {
        let mut counts = [0_u32; 100];
        for i in 0..20_000_u64 {
            let positions = Positions::new(mix(i), 100);
            for function in 0..5 {
                counts[positions.get(function)] += 1;
            }
        }
        // 100,000 draws over 100 cells: mean 1000, standard deviation 31.5; six of them.
        assert!(counts.iter().all(|&c| (811..=1189).contains(&c)), "{counts:?}");
    }
}
