//! Key hashing, and the positions that a hash leads to.
//!
//! A key is hashed once, with the filter's function and secret, to 64 bits. Everything else is a
//! pure function of those bits. The hash's leading bits select the stripe and the block (a multiply
//! instead of a division); the positions inside a block are independent mixes of all bits. They
//! must be independent: `a + j·b` double hashing costs up to a third in false positives at small
//! blocks.

use crate::error::{Error, Result};
use siphasher::sip::SipHasher24;
use std::str::FromStr;
use std::{fmt, iter};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The function that hashes a filter's keys; the choice depends on whether the keys are trusted.
///
/// `docs/adversaries.md` describes what each of them withstands and costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyHash {
    /// XXH3 with a 64-bit seed, for trusted keys. It spreads keys evenly, but pairs of keys are
    /// known that collide under one seed in 1,400, and a single hash may reveal the seed.
    #[default]
    Fast,
    /// SipHash-2-4 with a 128-bit key, for untrusted keys. It is designed to be unpredictable
    /// without the key, even to an attacker who chooses keys and sees their hashes.
    Keyed,
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Keyed => "keyed",
        })
    }
}

impl FromStr for KeyHash {
    type Err = Error;

    /// Reads `fast` or `keyed`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "fast" => Ok(Self::Fast),
            "keyed" => Ok(Self::Keyed),
            _ => Err(Error::parameter("hash", "fast or keyed", text)),
        }
    }
}

/// The seed that a user chose. It is never shown, not even by `Debug`.
#[derive(Clone, Copy)]
pub struct Seed(pub u64);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Hashes the keys of one filter. `Debug` shows its function, never its secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHasher {
    function: KeyHash,
    /// The seed of XXH3, below 2^64, or the key of SipHash as a little-endian number.
    secret: u128,
}

impl KeyHasher {
    /// Creates a hasher with this secret, or as many of its bits as the function takes.
    #[must_use]
    pub fn new(function: KeyHash, secret: u128) -> Self {
        match function {
            KeyHash::Fast => Self { function, secret: u128::from(secret as u64) },
            KeyHash::Keyed => Self { function, secret },
        }
    }

    /// Creates a hasher with the secret derived from a user's number. For XXH3 that is the number
    /// itself; for SipHash the first two outputs of a SplitMix64 that starts from it, the first one
    /// as the low half.
    #[must_use]
    pub fn from_seed(function: KeyHash, Seed(seed): Seed) -> Self {
        let half = |number: u64| u128::from(mix(seed.wrapping_add(GOLDEN.wrapping_mul(number))));
        match function {
            KeyHash::Fast => Self::new(function, seed.into()),
            KeyHash::Keyed => Self::new(function, half(2) << 64 | half(1)),
        }
    }

    /// Returns the 64-bit hash of a key.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        match self.function {
            KeyHash::Fast => xxh3_64_with_seed(key, self.secret as u64),
            KeyHash::Keyed => self.siphash(key),
        }
    }

    /// Out of line, so that callers of the fast function stay small.
    #[inline(never)]
    fn siphash(&self, key: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.secret.to_le_bytes()).hash(key)
    }

    /// Returns its function.
    #[must_use]
    pub fn function(&self) -> KeyHash {
        self.function
    }

    /// Returns its secret, for the file `meta` only.
    #[must_use]
    pub fn secret(&self) -> u128 {
        self.secret
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").field("function", &self.function).finish_non_exhaustive()
    }
}

/// Maps the whole range of `hash` evenly onto `0..range`: `floor(hash · range / 2^64)`.
///
/// Ranges that divide one another nest: `scale(h, s) == scale(h, s · c) / c`. The stripe of a key
/// is therefore the stripe of its block in every bank.
#[must_use]
#[inline]
pub fn scale(hash: u64, range: u64) -> u64 {
    ((u128::from(hash) * u128::from(range)) >> 64) as u64
}

/// The increment of SplitMix64: 2^64 divided by the golden ratio, and odd.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes all 64 bits bijectively (the finaliser of SplitMix64).
#[must_use]
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The positions of a key inside its block: independent, even over `0..range`, one for each hash
/// function.
///
/// Two positions come from one mix, 32 bits each. `range` must be at most 2^26 for the unevenness
/// to stay below one in 64.
#[derive(Debug, Clone, Copy)]
pub struct Positions {
    hash: u64,
    range: u32,
}

impl Positions {
    /// Creates the positions of `hash` in a block of `range` cells.
    #[must_use]
    #[inline]
    pub fn new(hash: u64, range: u32) -> Self {
        Self { hash, range }
    }

    /// Returns the position that hash function `function` gives.
    #[must_use]
    #[inline]
    pub fn get(&self, function: u32) -> usize {
        let (even, odd) = self.pair(function >> 1);
        if function & 1 == 0 { even } else { odd }
    }

    /// Visits the positions of functions 0 to `k - 1`. A position shared by several functions is
    /// visited once for each.
    #[inline]
    pub fn each(&self, k: u32, mut visit: impl FnMut(usize)) {
        for (even, odd) in self.pairs().take(k as usize / 2) {
            visit(even);
            visit(odd);
        }
        if k % 2 == 1 {
            visit(self.get(k - 1));
        }
    }

    /// Returns the positions that hash functions `2 · pair` and `2 · pair + 1` give: both for one
    /// mix.
    #[must_use]
    #[inline]
    pub fn pair(&self, pair: u32) -> (usize, usize) {
        let step = (u64::from(pair) + 1).wrapping_mul(GOLDEN);
        self.pair_at(self.hash.wrapping_add(step))
    }

    /// Returns the results of [`Positions::pair`] for 0, 1, and so on, without end.
    #[inline]
    pub fn pairs(self) -> impl Iterator<Item = (usize, usize)> {
        let mut sum = self.hash;
        iter::repeat_with(move || {
            sum = sum.wrapping_add(GOLDEN);
            self.pair_at(sum)
        })
    }

    #[inline]
    fn pair_at(&self, sum: u64) -> (usize, usize) {
        let bits = mix(sum);
        let scaled = |half: u32| ((u64::from(half) * u64::from(self.range)) >> 32) as usize;
        (scaled(bits as u32), scaled((bits >> 32) as u32))
    }
}

/// Returns the checksum of a record: XXH3, for a few bytes faster than a CRC.
#[must_use]
#[inline]
pub fn short_checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// A streaming hash for the digest of a filter's logical state.
#[derive(Clone, Default)]
pub struct DigestHasher(xxhash_rust::xxh3::Xxh3);

impl DigestHasher {
    /// Adds words, as little-endian bytes.
    pub fn words(&mut self, words: &[u64]) {
        for word in words {
            self.0.update(&word.to_le_bytes());
        }
    }

    /// Returns the 128-bit digest of everything added.
    #[must_use]
    pub fn finish(&self) -> u128 {
        self.0.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyed_hash_is_the_one_of_its_paper() {
        // Appendix A of the SipHash paper: key 00 01 .. 0f, message 00 01 .. 0e.
        let bytes: [u8; 16] = std::array::from_fn(|at| at as u8);
        let hasher = KeyHasher::new(KeyHash::Keyed, u128::from_le_bytes(bytes));
        assert_eq!(hasher.hash(&bytes[..15]), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn the_key_of_a_seed_is_what_splitmix64_begins_with() {
        // The first two outputs from 1234567 as published with the generator's reference values.
        let hasher = KeyHasher::from_seed(KeyHash::Keyed, Seed(1_234_567));
        let [first, second] = [6_457_827_717_110_365_317_u128, 3_203_168_211_198_807_973];
        assert_eq!(hasher.secret(), second << 64 | first);
        assert_eq!(KeyHasher::from_seed(KeyHash::Fast, Seed(u64::MAX)).secret(), u64::MAX.into());
    }

    #[test]
    fn nothing_shown_tells_a_secret() {
        let shown = format!("{:?}", Seed(0x1234_5678_9abc_def0));
        assert_eq!(shown, "(secret)");
        let hasher = KeyHasher::new(KeyHash::Keyed, 0x1234_5678_9abc_def0);
        assert_eq!(format!("{hasher:?}"), "KeyHasher { function: Keyed, .. }");
    }

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
        // 100,000 draws over 100 cells: mean 1000, standard deviation 31.5; the tolerance is six of
        // them.
        assert!(counts.iter().all(|&c| (811..=1189).contains(&c)), "{counts:?}");
    }
}
