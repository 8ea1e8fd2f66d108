//! The header of a group of counters: where their bits begin, and how wide each counter is.
//!
//! Two words. The low 16 bits are the group's *place* (13 bits, a word of the data) and its *scale*
//! (2 bits); then come 28 *codes* of 4 bits. A counter of code `c` is `(c + 1) · 2^scale` bits
//! wide: exactly as wide as necessary as long as no counter of the group has more than 16 bits, in
//! steps of 2 bits up to 32 and of 4 bits up to 64. Counters follow one another without gaps, so
//! the beginning of one is a sum of codes: one look-up replaces the paper's coarse and offset
//! vectors. The header of an empty block is all zero: every counter 1 bit wide.

/// Counters of a group.
pub(super) const GROUP: usize = 28;

/// Words of a header.
pub(super) const HEADER_WORDS: usize = 2;

/// The greatest number of words that the counters of a group take: 64 bits each.
pub(super) const MOST_GROUP_WORDS: usize = GROUP;

const PLACE_BITS: u32 = 13;
const CODES_AT: u32 = 16;
const CODE_BITS: u32 = 4;
const MOST_SCALE: u32 = 2;

/// Widths of a group are up to this many units of `2^scale` bits.
const MOST_UNITS: u32 = 1 << CODE_BITS;

/// Returns the bits that a value takes; 0 takes one.
#[inline]
pub(super) fn bits_of(value: u64) -> u32 {
    64 - (value | 1).leading_zeros()
}

/// A group's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header(u128);

impl Header {
    /// Creates the header from these two words.
    #[inline]
    pub fn of_words(words: [u64; HEADER_WORDS]) -> Self {
        Self(u128::from(words[0]) | u128::from(words[1]) << 64)
    }

    /// Returns its two words.
    #[inline]
    pub fn words_of(self) -> [u64; HEADER_WORDS] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    /// Returns the narrowest header for these values, at place 0.
    pub fn narrowest(values: &[u64; GROUP]) -> Self {
        let widest = values.iter().map(|&value| bits_of(value)).max().unwrap_or(1);
        let scale = (0..MOST_SCALE).find(|scale| widest <= MOST_UNITS << scale);
        let empty = Self(u128::from(scale.unwrap_or(MOST_SCALE)) << PLACE_BITS);
        (0..GROUP).fold(empty, |header, at| header.with_width(at, bits_of(values[at])))
    }

    /// Returns the word of the data in which the group begins.
    #[inline]
    pub fn place(self) -> usize {
        self.0 as usize & ((1 << PLACE_BITS) - 1)
    }

    /// Returns the header of the same group at another place.
    pub fn at_place(self, place: usize) -> Self {
        let mask = (1 << PLACE_BITS) - 1;
        Self(self.0 & !mask | place as u128 & mask)
    }

    #[inline]
    fn scale(self) -> u32 {
        ((self.0 >> PLACE_BITS) as u32 & 3).min(MOST_SCALE)
    }

    /// Returns whether a counter can be this wide without a larger scale.
    #[inline]
    pub fn can_hold(self, bits: u32) -> bool {
        bits <= MOST_UNITS << self.scale()
    }

    /// Returns this header with one counter at least `bits` wide; the scale
    /// [allows](Header::can_hold) it.
    pub fn with_width(self, at: usize, bits: u32) -> Self {
        let code = bits.div_ceil(1 << self.scale()).clamp(1, MOST_UNITS) - 1;
        let shift = CODES_AT + CODE_BITS * at as u32;
        let mask = u128::from(MOST_UNITS - 1) << shift;
        Self(self.0 & !mask | u128::from(code) << shift)
    }

    /// Returns the bits of a counter.
    #[inline]
    pub fn width(self, at: usize) -> u32 {
        let code = (self.0 >> (CODES_AT + CODE_BITS * at as u32)) as u32 & (MOST_UNITS - 1);
        (code + 1) << self.scale()
    }

    /// Returns the bit of the group at which a counter begins; for [`GROUP`] the bits of all.
    #[inline]
    pub fn offset(self, at: usize) -> u32 {
        let before = self.0 & (u128::MAX >> (CODE_BITS * (GROUP - at) as u32));
        let [low, high] = Self(before >> CODES_AT << CODES_AT).words_of();
        (sum_of_codes(low, high) + at as u32) << self.scale()
    }

    /// Returns the words that the counters take.
    #[inline]
    pub fn words(self) -> usize {
        self.offset(GROUP).div_ceil(64) as usize
    }
}

/// Returns the sum of all nibbles of two words, computed in parallel.
#[inline]
fn sum_of_codes(low: u64, high: u64) -> u32 {
    const NIBBLES: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    const BYTES: u64 = 0x00ff_00ff_00ff_00ff;
    let pairs = |word: u64| (word & NIBBLES) + (word >> 4 & NIBBLES);
    let sums = pairs(low) + pairs(high);
    let sums = (sums & BYTES) + (sums >> 8 & BYTES);
    (sums.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u32
}

const _: () = assert!(CODES_AT + CODE_BITS * GROUP as u32 == 64 * HEADER_WORDS as u32);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn widths_are_the_least_of_their_scale_and_offsets_their_sums(
            bits in prop::array::uniform28(1..=64_u32),
            most in 1..=64_u32,
            place in 0..8192_usize,
        ) {
            let bits = bits.map(|bits| bits.min(most));
            let values = bits.map(|bits| u64::MAX >> (64 - bits));
            let header = Header::narrowest(&values).at_place(place);
            let widest = *bits.iter().max().expect("28 of them");
            let unit = [(16, 1), (32, 2), (64, 4)].into_iter().find(|(most, _)| widest <= *most);
            let unit = unit.expect("at most 64 bits").1;
            let mut offset = 0;
            for (at, bits) in bits.into_iter().enumerate() {
                prop_assert_eq!(header.width(at), bits.next_multiple_of(unit));
                prop_assert_eq!(header.offset(at), offset);
                offset += header.width(at);
            }
            prop_assert_eq!(header.offset(GROUP), offset);
            prop_assert!(header.words() <= MOST_GROUP_WORDS);
            prop_assert_eq!(header.place(), place);
            prop_assert_eq!(Header::of_words(header.words_of()), header);
        }
    }

    #[test]
    fn the_header_of_an_empty_group_is_zero() {
        assert_eq!(Header::narrowest(&[0; GROUP]), Header::of_words([0; HEADER_WORDS]));
        assert_eq!(Header::narrowest(&[1; GROUP]), Header::of_words([0; HEADER_WORDS]));
    }
}
