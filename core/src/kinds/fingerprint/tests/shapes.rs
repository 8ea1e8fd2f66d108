//! The shapes of buckets that tests go through.

use crate::kinds::fingerprint::shape::{NARROW, Shape};

const fn shape(slots: u32, bits: u32, generations: u32, bytes: u32) -> Shape {
    Shape { slots, bits, generations, bytes }
}

/// Shapes in larger buckets: those of filters of older versions first, which have 16 bytes, then
/// each number of limbs and offsets in a cell.
const LARGER: [Shape; 12] = [
    shape(6, 19, 10, 16),
    shape(5, 23, 11, 16),
    shape(4, 28, 20, 16),
    shape(4, 29, 14, 16),
    shape(3, 32, 30, 16),
    shape(4, 17, 14, 10),
    shape(6, 12, 10, 11),
    shape(4, 23, 14, 13),
    shape(4, 33, 14, 18),
    shape(6, 27, 10, 22),
    shape(4, 43, 14, 23),
    shape(5, 44, 14, 32),
];

/// Returns the shapes.
pub(in crate::kinds::fingerprint) fn shapes() -> impl Iterator<Item = Shape> {
    NARROW.into_iter().chain(LARGER)
}

/// Calls a function with the type of the numbers that hold the buckets of a shape.
macro_rules! by_word {
    ($shape:expr, $function:ident($($argument:expr),*)) => {
        match $shape.bytes {
            0..=8 => $function::<u64>($($argument),*),
            9..=16 => $function::<u128>($($argument),*),
            _ => $function::<$crate::kinds::fingerprint::wide::Wide>($($argument),*),
        }
    };
}

pub(in crate::kinds::fingerprint) use by_word;
