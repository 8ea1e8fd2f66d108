//! From a planned false-positive rate to the shape of buckets, and from keys to the size of banks.

use super::codes::{MOST_CODES, count, life_bits};
use super::theory::{fpr as fpr_of, load_of_fpr, mean_keys};
use crate::block::{Geometry, Layout};
use crate::error::{Error, Result};
use crate::kind::Parameters;
use crate::kind::parameters::{DEFAULT_FPR, within};
use crate::kinds::memory::Memory;

/// The kind's name.
pub const NAME: &str = "fingerprint";

/// The greatest number of words of a bank: 8 TiB.
pub(super) const MOST_WORDS: u64 = 1 << 40;

/// The layout for which filters are planned.
const PLANNED: Layout = Layout { stripes: 1, block_words: Layout::PLANNED_BLOCK_WORDS };

/// The part of the planned rate that open buckets may use; the rest is for closed ones, of which
/// there are hardly any.
const AIM: f64 = 0.998;

/// The part of the planned rate that a full bank of a burst may add: two dozen are full after a
/// large one.
const BURST_PART: f64 = 1.0 / 32.0;

/// Words by which the blocks of a burst's banks are shorter than those of other banks, which have a
/// multiple of eight. So a block's length tells the form of its buckets.
const BURST_WORDS: u32 = 4;

/// The lowest load at which a shape is used: below it the rate is lower than fingerprints of 32
/// bits can keep in reasonable memory.
const LEAST_LOAD: f64 = 0.25;

/// Blocks of a stripe: each stripe has room to save a block, which is then a 48th of its memory.
const BLOCKS_A_STRIPE: u64 = 48;

/// Blocks of a stripe at least: fewer would make the room to save one weigh too much.
const LEAST_BLOCKS: u64 = 24;

/// The same for banks of a burst: larger blocks are filled better, and the room to save one is only
/// taken for a window.
const LEAST_BLOCKS_IN_BURST: u64 = 12;

/// The least target size of a block, in words: smaller ones vary too much in their number of keys.
const LEAST_BLOCK_WORDS: u64 = 128;

/// The shape of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Slots of a bucket.
    pub slots: u32,
    /// Bits of a fingerprint.
    pub bits: u32,
    /// Generations in the window: those for which a key is present after its own.
    pub generations: u32,
}

const fn shape(slots: u32, bits: u32, generations: u32) -> Shape {
    Shape { slots, bits, generations }
}

/// The shapes that plans choose from. Buckets of one word come first, from the shortest fingerprint
/// on; then those of two words.
pub const SHAPES: [Shape; 11] = [
    shape(6, 8, 10),
    shape(5, 10, 14),
    shape(4, 12, 20),
    shape(4, 13, 14),
    shape(3, 16, 36),
    shape(3, 17, 30),
    shape(6, 19, 10),
    shape(5, 23, 11),
    shape(4, 28, 20),
    shape(4, 29, 14),
    shape(3, 32, 30),
];

impl Shape {
    /// Returns the bits of a bucket that are needed.
    fn used_bits(&self) -> u64 {
        let codes = count(self.slots, self.generations + 2);
        u64::from(self.slots * self.bits) + u64::from((codes - 1).ilog2()) + 1
    }

    /// Returns the words of a bucket: one or two.
    #[must_use]
    pub fn words(&self) -> u32 {
        if self.used_bits() <= 64 { 1 } else { 2 }
    }

    /// Returns the shape with as many generations as a window of `items` inserts has.
    #[must_use]
    pub fn for_items(self, items: u64) -> Self {
        let length = items.div_ceil(self.generations.into());
        Self { generations: items.div_ceil(length) as u32, ..self }
    }
}

/// A shape and the load that keeps the planned rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design {
    /// The shape of buckets.
    pub shape: Shape,
    /// The highest mean load.
    pub load: f64,
}

impl Design {
    fn new(shape: Shape, fpr: f64) -> Self {
        Self { shape, load: load_of_fpr(shape.slots, shape.bits, AIM * fpr).min(1.0) }
    }

    /// Returns the design of given or completed parameters: `fpr`, and `slots`, `bits` and
    /// `generations` together, or none of them. `items` is the window in inserts, if it is one.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds or that do not fit each other.
    pub fn from_parameters(parameters: &Parameters, items: Option<u64>) -> Result<(Self, f64)> {
        let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
        let fitted = |shape: Shape| items.map_or(shape, |items| shape.for_items(items));
        let count = |name| parameters.optional::<u64>(name, "an integer");
        let given = match (count("slots")?, count("bits")?, count("generations")?) {
            (None, None, None) => None,
            (Some(slots), Some(bits), Some(generations)) => {
                let slots = within("slots", slots, 2, super::codes::MOST_SLOTS.into())? as u32;
                let bits = within("bits", bits, 4, 32)? as u32;
                let most = items.unwrap_or(62).min(62);
                let generations = within("generations", generations, 1, most)? as u32;
                Some(checked(shape(slots, bits, generations))?)
            }
            _ => {
                let expected = "slots, bits and generations together, or none of them";
                return Err(Error::parameter("slots", expected, "some of them"));
            }
        };
        let design = match given {
            Some(shape) => Self::new(fitted(shape), fpr),
            None => {
                let shapes = SHAPES.into_iter().map(|shape| Self::new(fitted(shape), fpr));
                choose(&shapes.collect::<Vec<_>>(), items).ok_or_else(|| too_low(fpr))?
            }
        };
        if design.load < LEAST_LOAD {
            return Err(too_low(fpr));
        }
        Ok((design, fpr))
    }

    /// Returns the completed parameters that do not depend on the window.
    #[must_use]
    pub fn parameters(&self, fpr: f64) -> Parameters {
        Parameters::new()
            .with("fpr", fpr)
            .with("slots", self.shape.slots)
            .with("bits", self.shape.bits)
            .with("generations", self.shape.generations)
    }

    /// Returns the design of the banks that open one after the other in a burst: with the same
    /// lives and words of a bucket, in fewer slots, whose fingerprints are so long that several
    /// full banks together add hardly anything to the planned rate. `None` if there is none.
    #[must_use]
    pub fn in_burst(&self, fpr: f64) -> Option<Self> {
        let Shape { slots, generations, .. } = self.shape;
        let width = u64::from(64 * self.shape.words());
        let longest = |slots: u32| {
            let bits = (4..=32).rev().find(|&bits| {
                let one = shape(slots, bits, generations);
                checked(one).is_ok() && one.used_bits() <= width
            })?;
            let one = shape(slots, bits, generations);
            let is_low = fpr_of(slots, bits, 1.0, 0.0) <= fpr * BURST_PART;
            (one.words() == self.shape.words() && is_low).then(|| Self::new(one, fpr))
        };
        (2..slots).rev().find_map(longest)
    }

    /// Returns the words of a bank for this many live keys, in the layout of plans.
    #[must_use]
    pub fn words(&self, keys: f64) -> u64 {
        PLANNED.words(self.geometry(PLANNED, keys))
    }

    /// Returns the mean number of live keys that a bank of this geometry is planned for.
    #[must_use]
    pub fn capacity(&self, layout: Layout, geometry: Geometry) -> f64 {
        let Shape { slots, .. } = self.shape;
        let buckets = f64::from(geometry.words_per_block / self.shape.words());
        let blocks = layout.blocks(geometry) as f64;
        let most = self.load * f64::from(slots) * buckets;
        mean_keys(slots, buckets, blocks).min(most).max(1.0) * blocks
    }

    /// Returns the smallest geometry with a capacity of `keys` live keys.
    #[must_use]
    pub fn geometry(&self, layout: Layout, keys: f64) -> Geometry {
        self.geometry_by(layout, keys, |words| geometry_of(layout, words))
    }

    /// Returns the smallest geometry for `keys` live keys of those that `of` returns for words.
    fn geometry_by(&self, layout: Layout, keys: f64, of: impl Fn(u64) -> Geometry) -> Geometry {
        let words = f64::from(self.shape.words());
        let mut wanted = keys / (f64::from(self.shape.slots) * self.load) * words;
        // Beyond the greatest size the result need only be too large.
        let geometry_of = |words: f64| of((words as u64).clamp(1, 2 * MOST_WORDS));
        let mut geometry = geometry_of(wanted);
        // Smaller blocks vary more, so they need more words, and these make larger blocks.
        for _ in 0..64 {
            let room = self.capacity(layout, geometry);
            if room >= keys {
                break;
            }
            wanted *= (keys / room).max(1.0005);
            geometry = geometry_of(wanted);
        }
        geometry
    }
}

/// Returns the geometry of a bank of this many words: in small banks smaller blocks.
pub(super) fn geometry_of(layout: Layout, words: u64) -> Geometry {
    geometry_in(layout, words, LEAST_BLOCKS)
}

/// Returns the geometry of a bank of this many words, with this many blocks of a stripe at least.
fn geometry_in(layout: Layout, words: u64, least_blocks: u64) -> Geometry {
    let few = words / (u64::from(layout.stripes.max(1)) * least_blocks);
    let target = few.max(LEAST_BLOCK_WORDS).min(layout.block_words.into());
    Layout { block_words: target as u32, ..layout }.geometry(words)
}

/// Returns whether blocks of this many words belong to a bank of a burst.
#[inline(always)]
pub(super) fn is_of_burst(block_words: usize) -> bool {
    block_words % 8 == BURST_WORDS as usize
}

/// The parameter that says what the banks of a window of time grow by.
pub(super) const GROWTH: &str = "growth";

/// What the banks of a window of time grow by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// The rate of inserts, extrapolated to a window, also in a burst: filters of older versions,
    /// which do not have the parameter.
    Rate,
    /// In a burst, the keys that were inserted.
    Keys,
}

impl Growth {
    const NAMES: [(&'static str, Self); 2] = [("rate", Self::Rate), ("keys", Self::Keys)];

    /// Returns what is given; by keys if nothing is, and the shape is to be derived.
    pub(super) fn of(parameters: &Parameters) -> Result<Self> {
        let is_complete = parameters.get("slots").is_some();
        let default = if is_complete { "rate" } else { "keys" };
        let name = parameters.get(GROWTH).unwrap_or(default);
        match Self::NAMES.iter().find(|(known, _)| *known == name) {
            Some(&(_, growth)) => Ok(growth),
            None => Err(Error::parameter(GROWTH, "keys or rate", name)),
        }
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// The designs of the banks of a window of time, and the memory that they may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Designs {
    /// That of the planned banks.
    pub(super) calm: Design,
    /// That of the banks of a burst, if there is one.
    pub(super) burst: Option<Design>,
    pub(super) memory: Memory,
}

impl Designs {
    /// Returns the design of a bank of this geometry.
    #[inline]
    pub(super) fn of(&self, geometry: Geometry) -> &Design {
        match &self.burst {
            Some(burst) if is_of_burst(geometry.words_per_block as usize) => burst,
            _ => &self.calm,
        }
    }

    /// Returns the live keys that a bank of this geometry is planned for.
    pub(super) fn capacity(&self, layout: Layout, geometry: Geometry) -> f64 {
        self.of(geometry).capacity(layout, geometry)
    }

    /// Returns the geometry of a bank for this many live keys: of a burst, or a planned one.
    pub(super) fn geometry(&self, layout: Layout, keys: f64, in_burst: bool) -> Geometry {
        let Some(burst) = self.burst.filter(|_| in_burst) else {
            return self.calm.geometry(layout, keys);
        };
        burst.geometry_by(layout, keys, |words| {
            let mut geometry = geometry_in(layout, words.min(MOST_WORDS), LEAST_BLOCKS_IN_BURST);
            geometry.words_per_block -= BURST_WORDS;
            geometry
        })
    }
}

/// Checks that a shape has codes, and fits in two words.
fn checked(shape: Shape) -> Result<Shape> {
    let values = shape.generations + 2;
    let codes = count(shape.slots, values);
    if codes > MOST_CODES || shape.slots * life_bits(values) > u32::BITS {
        let expected = format!("at most {MOST_CODES} codes of {} lives", shape.slots);
        return Err(Error::parameter("generations", expected, format!("{codes} codes")));
    }
    if shape.used_bits() > 128 {
        let expected = "fingerprints and lives of at most 128 bits";
        return Err(Error::parameter("bits", expected, format!("{} bits", shape.used_bits())));
    }
    Ok(shape)
}

/// Returns the design of the fewest words for a window. Buckets of two words are only used where no
/// shape of one word keeps the rate at a high load: they cost more time.
fn choose(designs: &[Design], items: Option<u64>) -> Option<Design> {
    let items = items.unwrap_or(1 << 20);
    let narrow = |design: &&Design| design.shape.words() == 1;
    let kept = |design: &&Design| design.load > 0.8;
    let any = designs.iter().any(|design| narrow(&design) && kept(&design));
    let usable = designs.iter().filter(|design| design.load >= LEAST_LOAD);
    let words = |design: &Design| design.words(live_keys(design.shape, items) as f64);
    let among = usable.filter(|design| !any || narrow(design));
    among.min_by_key(|design| (words(design), design.shape.bits)).copied()
}

/// Returns the most live keys of a window of `items` inserts: those of all its generations and of
/// the open one.
pub(super) fn live_keys(shape: Shape, items: u64) -> u64 {
    let generations = u64::from(shape.generations);
    items.div_ceil(generations).saturating_mul(generations + 1)
}

/// Returns the number of stripes for a bank of this many words. Each takes an undo area of a block:
/// small filters have up to three all the same, so that one caller rarely waits for another.
pub(super) fn stripes_for(words: u64, block_words: u32) -> u32 {
    let blocks = words / u64::from(block_words.max(1));
    let (few, some) = (blocks.isqrt().min(3), blocks.isqrt() / 3);
    (blocks / BLOCKS_A_STRIPE).max(few).max(some).clamp(1, 64) as u32
}

fn too_low(fpr: f64) -> Error {
    let expected = "a rate that fingerprints of 32 bits can keep, or the kind age-partitioned or \
                    time-limited";
    Error::parameter("fpr", expected, fpr)
}

#[cfg(test)]
mod tests;
