//! A small seeded generator, so that every run is reproducible.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws a number below `limit`, which must not be zero; the bias is irrelevant to tests.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0) % limit
    }
}

/// SplitMix64's finalizer.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
