//! An array of bits, as plain memory: fields of up to 57 bits at any offset.

/// The widest field: it lies in eight bytes, at any offset.
pub const WIDEST: usize = 57;

/// Bits in words. One more word at the end lets every field be read as two.
pub struct Bits(Vec<u64>);

impl Bits {
    /// Creates this many zero bits.
    pub fn new(bits: usize) -> Self {
        Self(vec![0; bits / 64 + 2])
    }

    /// Returns the field of `width` bits at an offset.
    #[inline]
    pub fn get(&self, at: usize, width: usize) -> u64 {
        debug_assert!(width <= WIDEST);
        let (word, shift) = (at / 64, at % 64);
        let pair = u128::from(self.0[word]) | u128::from(self.0[word + 1]) << 64;
        (pair >> shift) as u64 & mask(width)
    }

    /// Stores a field.
    #[inline]
    pub fn set(&mut self, at: usize, width: usize, value: u64) {
        debug_assert!(width <= WIDEST && value <= mask(width));
        let (word, shift) = (at / 64, at % 64);
        let [ones, value] = [mask(width), value].map(|bits| u128::from(bits) << shift);
        let pair = u128::from(self.0[word]) | u128::from(self.0[word + 1]) << 64;
        let pair = pair & !ones | value;
        self.0[word] = pair as u64;
        self.0[word + 1] = (pair >> 64) as u64;
    }

    /// Moves the bits `from..upto` up by one, over the bit `upto`, and clears the bit `from`.
    pub fn move_up(&mut self, from: usize, upto: usize) {
        // From the top, so that no bit is overwritten before it is read.
        let mut end = upto;
        while end > from {
            let width = (end - from).min(WIDEST);
            let bits = self.get(end - width, width);
            self.set(end - width + 1, width, bits);
            end -= width;
        }
        self.set(from, 1, 0);
    }
}

/// Returns the number of bits of a value; 1 for 0.
pub fn width(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()).max(1) as usize
}

#[inline]
fn mask(width: usize) -> u64 {
    (1 << width) - 1
}
