//! The shapes of buckets, and those that plans choose from.

use super::codes::{MOST_CODES, count, life_bits};
use crate::error::{Error, Result};

/// The most bytes of a bucket.
pub(super) const MOST_BYTES: u32 = 32;

/// The most bits of a fingerprint: the other bits of the hash choose the bucket.
pub(super) const MOST_BITS: u32 = 44;

/// The shape of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Slots of a bucket.
    pub slots: u32,
    /// Bits of a fingerprint.
    pub bits: u32,
    /// Generations in the window: those for which a key is present after its own.
    pub generations: u32,
    /// Bytes of a bucket.
    pub bytes: u32,
}

/// The shapes in buckets of 8 bytes that plans choose from, from the shortest fingerprint on.
pub const NARROW: [Shape; 6] = [
    Shape { slots: 6, bits: 8, generations: 10, bytes: 8 },
    Shape { slots: 5, bits: 10, generations: 14, bytes: 8 },
    Shape { slots: 4, bits: 12, generations: 20, bytes: 8 },
    Shape { slots: 4, bits: 13, generations: 14, bytes: 8 },
    Shape { slots: 3, bits: 16, generations: 36, bytes: 8 },
    Shape { slots: 3, bits: 17, generations: 30, bytes: 8 },
];

/// The generations of shapes in larger buckets.
const GENERATIONS: std::ops::RangeInclusive<u32> = 10..=30;

/// Returns the shapes in larger buckets that plans choose from: in each number of bytes all numbers
/// of slots, with the longest fingerprints for each number of generations.
pub fn wide_shapes() -> impl Iterator<Item = Shape> {
    let of = |bytes: u32, slots: u32, generations: u32| {
        let codes = count(slots, generations + 2);
        let bits = (8 * bytes).checked_sub((codes - 1).ilog2() + 1)? / slots;
        let shape = Shape { slots, bits, generations, bytes };
        (codes <= MOST_CODES && (4..=MOST_BITS).contains(&bits)).then_some(shape)
    };
    (9..=MOST_BYTES).flat_map(move |bytes| {
        (3..=6).flat_map(move |slots| GENERATIONS.filter_map(move |all| of(bytes, slots, all)))
    })
}

impl Shape {
    /// Returns the shape in buckets of 8 or 16 bytes, as filters of older versions have it.
    pub(super) fn in_words(slots: u32, bits: u32, generations: u32) -> Self {
        let shape = Self { slots, bits, generations, bytes: 8 };
        if shape.used_bits() <= 64 { shape } else { Self { bytes: 16, ..shape } }
    }

    /// Returns the bits of a bucket that are needed.
    pub(super) fn used_bits(&self) -> u64 {
        let codes = count(self.slots, self.generations + 2);
        u64::from(self.slots * self.bits) + u64::from((codes - 1).ilog2()) + 1
    }

    /// Returns the shape with as many generations as a window of `items` inserts has.
    #[must_use]
    pub fn for_items(self, items: u64) -> Self {
        let length = items.div_ceil(self.generations.into());
        Self { generations: items.div_ceil(length) as u32, ..self }
    }
}

/// Checks that a shape has codes, and fits in its bytes.
pub(super) fn checked(shape: Shape) -> Result<Shape> {
    let values = shape.generations + 2;
    let codes = count(shape.slots, values);
    if codes > MOST_CODES || shape.slots * life_bits(values) > u32::BITS {
        let expected = format!("at most {MOST_CODES} codes of {} lives", shape.slots);
        return Err(Error::parameter("generations", expected, format!("{codes} codes")));
    }
    if shape.used_bits() > u64::from(8 * shape.bytes) {
        let expected = format!("fingerprints and lives of at most {} bits", 8 * shape.bytes);
        return Err(Error::parameter("bits", expected, format!("{} bits", shape.used_bits())));
    }
    Ok(shape)
}
