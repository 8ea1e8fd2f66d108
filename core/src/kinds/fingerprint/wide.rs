//! Numbers of 256 bits: as much of them as buckets of 17 to 32 bytes need.

use std::ops::{BitAnd, BitOr, BitXor, Not, Shl, Shr};

/// A number of 256 bits. The order of its parts makes the derived order that of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wide {
    pub(super) high: u128,
    pub(super) low: u128,
}

impl Wide {
    #[inline(always)]
    pub(super) const fn new(high: u128, low: u128) -> Self {
        Self { high, low }
    }

    /// Returns the sum, modulo 2^256.
    #[inline(always)]
    pub(super) fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self::new(self.high.wrapping_add(other.high).wrapping_add(carry.into()), low)
    }

    /// Returns the product, modulo 2^256.
    #[inline(always)]
    pub(super) fn times(self, factor: u64) -> Self {
        let factor = u128::from(factor);
        let lowest = u128::from(self.low as u64) * factor;
        // At most (2^64 - 1)^2 + 2^64 - 1: no overflow.
        let middle = (self.low >> 64) * factor + (lowest >> 64);
        let low = middle << 64 | u128::from(lowest as u64);
        Self::new(self.high.wrapping_mul(factor).wrapping_add(middle >> 64), low)
    }
}

impl BitAnd for Wide {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self::new(self.high & other.high, self.low & other.low)
    }
}

impl BitOr for Wide {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self::new(self.high | other.high, self.low | other.low)
    }
}

impl BitXor for Wide {
    type Output = Self;

    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        Self::new(self.high ^ other.high, self.low ^ other.low)
    }
}

impl Not for Wide {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        Self::new(!self.high, !self.low)
    }
}

impl Shl<u32> for Wide {
    type Output = Self;

    #[inline(always)]
    fn shl(self, by: u32) -> Self {
        match by {
            0 => self,
            1..128 => Self::new(self.high << by | self.low >> (128 - by), self.low << by),
            128..256 => Self::new(self.low << (by - 128), 0),
            _ => Self::new(0, 0),
        }
    }
}

impl Shr<u32> for Wide {
    type Output = Self;

    #[inline(always)]
    fn shr(self, by: u32) -> Self {
        match by {
            0 => self,
            1..128 => Self::new(self.high >> by, self.low >> by | self.high << (128 - by)),
            128..256 => Self::new(0, self.high >> (by - 128)),
            _ => Self::new(0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bits of a number, the lowest first.
    fn bits(number: Wide) -> Vec<bool> {
        let of = |part: u128| (0..128).map(move |bit| part >> bit & 1 == 1);
        of(number.low).chain(of(number.high)).collect()
    }

    fn any_wide() -> impl Strategy<Value = Wide> {
        let part = || prop_oneof![any::<u128>(), Just(0), Just(u128::MAX), Just(1 << 127)];
        (part(), part()).prop_map(|(high, low)| Wide::new(high, low))
    }

    proptest! {
        #[test]
        fn shifts_move_each_bit(number in any_wide(), by in 0_u32..256) {
            let (before, by_bits) = (bits(number), by as usize);
            let zeros = vec![false; by_bits];
            let up = [zeros.clone(), before[..256 - by_bits].to_vec()].concat();
            prop_assert_eq!(bits(number << by), up);
            prop_assert_eq!(bits(number >> by), [before[by_bits..].to_vec(), zeros].concat());
        }

        #[test]
        fn a_product_is_the_sum_of_shifted_numbers(number in any_wide(), factor: u64) {
            let set = (0..64).filter(|bit| factor >> bit & 1 == 1);
            let sum = set.fold(Wide::new(0, 0), |sum, bit| sum.plus(number << bit));
            prop_assert_eq!(number.times(factor), sum);
        }

        #[test]
        fn a_sum_carries_as_bits_do(one in any_wide(), other in any_wide()) {
            let mut carry = false;
            let sum = bits(one).into_iter().zip(bits(other)).map(|(one, other)| {
                let set = u8::from(one) + u8::from(other) + u8::from(carry);
                carry = set > 1;
                set % 2 == 1
            });
            let sum: Vec<_> = sum.collect();
            prop_assert_eq!(bits(one.plus(other)), sum);
        }

        #[test]
        fn numbers_are_ordered_by_their_highest_bits(one in any_wide(), other in any_wide()) {
            let reversed = |number| bits(number).into_iter().rev().collect::<Vec<_>>();
            prop_assert_eq!(one.cmp(&other), reversed(one).cmp(&reversed(other)));
        }
    }
}
