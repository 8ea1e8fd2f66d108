//! From a planned false-positive rate to the shape of buckets, and from keys to the size of banks.

use super::shape::{MOST_BITS, MOST_BYTES, NARROW, Shape, checked, wide_shapes};
use super::theory::{
    fpr as fpr_of, load_of_fpr, mean_keys, old_mean_keys, pair_keys_of, same_hash,
};
use crate::block::{Geometry, Layout, UndoRoom};
use crate::error::{Error, Result};
use crate::kind::parameters::{DEFAULT_FPR, within};
use crate::kind::{Micros, Parameters};
use crate::kinds::memory_limit::Memory;

/// The kind's name.
pub const NAME: &str = "fingerprint";

/// The greatest number of words of a bank: 8 TiB.
pub(super) const MOST_WORDS: u64 = 1 << 40;

/// The longest window, in inserts; memory bounds it earlier.
pub(super) const MOST_ITEMS: u64 = 1 << 48;

/// The factor between the capacity of a bank and the live keys that it is expected to hold.
pub(super) const MARGIN: f64 = 1.25;

/// The part of the planned rate that open buckets may use; the rest is for closed ones, of which
/// there are hardly any.
const AIM: f64 = 0.998;

/// The part of the planned rate that a full bank of a burst may add: two dozen are full after a
/// large one.
const BURST_PART: f64 = 1.0 / 32.0;

/// The part of the planned rate that buckets may add which are closed because too many keys have no
/// other one. That is rare, but at low rates it could be most of the rate of a small filter.
const SINGLE_PART: f64 = 0.01;

/// Words by which the blocks of a burst's banks are shorter than those of other banks, which have a
/// multiple of eight. So a block's length tells the form of its buckets.
const BURST_WORDS: u32 = 4;

/// The lowest load at which a shape is used: below it the rate is lower than fingerprints of
/// [`MOST_BITS`] bits can keep in reasonable memory.
const LEAST_LOAD: f64 = 0.25;

/// The words of a block that plans assume: 64 KiB. Larger blocks are filled better.
pub(super) const BLOCK_WORDS: u32 = Layout::MOST_BLOCK_WORDS;

/// Blocks of a bank at least, so that two callers rarely change the same one.
const LEAST_BLOCKS: u64 = 8;

/// The most slots that an insert moves, in new filters.
const MOVES: u32 = 8;

/// The same in filters that do not have the parameter: those of older versions.
pub(super) const OLD_MOVES: u32 = 4;

/// Blocks of a stripe at least, in filters of older versions. An undo area had room for a block.
const OLD_LEAST_BLOCKS: u64 = 24;

/// The part of a filter that undo areas may take.
const UNDO_PART: u64 = 400;

/// The least target size of a block, in words: smaller ones vary too much in their number of keys.
const LEAST_BLOCK_WORDS: u64 = 128;

/// A shape and the load that keeps the planned rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design {
    /// The shape of buckets.
    pub shape: Shape,
    /// The most slots that an insert moves.
    pub moves: u32,
    /// The highest mean load.
    pub load: f64,
    /// The load that is given as the highest, if one is.
    pub max_load: Option<f64>,
    /// The planned rate.
    pub fpr: f64,
    /// The most live keys of a block for each pair of its buckets; infinite if it is not limited.
    pub pair_keys: f64,
}

impl Design {
    /// Returns the design of a shape for a window of `keys` live keys, 0 if their number is open.
    fn new(shape: Shape, moves: u32, fpr: f64, keys: f64) -> Self {
        let of_hashes = if moves > OLD_MOVES { same_hash(keys) } else { 0.0 };
        let load = load_of_fpr(shape.slots, shape.bits, AIM * fpr - of_hashes);
        let is_old = moves <= OLD_MOVES;
        let pair_keys =
            if is_old { f64::INFINITY } else { pair_keys_of(shape.slots, SINGLE_PART * fpr) };
        Self { shape, moves, load: load.min(1.0), max_load: None, fpr, pair_keys }
    }

    fn with_max_load(self, max_load: Option<f64>) -> Self {
        Self { load: self.load.min(max_load.unwrap_or(1.0)), max_load, ..self }
    }

    /// Returns the design of given or completed parameters: `fpr`, and `slots`, `bits` and
    /// `generations` together, or none of them. `bytes` and `moves` may come with them; without,
    /// they are those of filters of older versions. `window` is the length of the window in the
    /// units that generations divide, and `items` that in inserts, if it is one.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values out of bounds or that do not fit each other.
    pub fn from_parameters(
        parameters: &Parameters,
        window: Option<u64>,
        items: Option<u64>,
    ) -> Result<(Self, f64)> {
        let fpr = parameters.fpr()?.unwrap_or(DEFAULT_FPR);
        let fitted = |shape: Shape| window.map_or(shape, |window| shape.for_items(window));
        let count = |name| parameters.optional::<u64>(name, "an integer");
        // In a window of time, those that the first bank is planned for.
        let rate: Option<f64> = parameters.optional("rate", "new keys a second")?;
        let keys = |shape| match (items, window, rate) {
            (Some(items), _, _) => live_keys(shape, items) as f64,
            (None, Some(window), Some(rate)) => {
                let keys = MARGIN * keys_of_rate(shape, window, rate);
                // More are refused because of their memory.
                if keys <= MOST_ITEMS as f64 { keys } else { 0.0 }
            }
            _ => 0.0,
        };
        let given = match (count("slots")?, count("bits")?, count("generations")?) {
            (None, None, None) => None,
            (Some(slots), Some(bits), Some(generations)) => {
                let slots = within("slots", slots, 2, super::codes::MOST_SLOTS.into())? as u32;
                let bits = within("bits", bits, 4, MOST_BITS.into())? as u32;
                let most = window.unwrap_or(62).min(62);
                let generations = within("generations", generations, 1, most)? as u32;
                let shape = Shape::in_words(slots, bits, generations);
                let bytes = count("bytes")?.unwrap_or(shape.bytes.into());
                let bytes = within("bytes", bytes, 8, MOST_BYTES.into())? as u32;
                let moves = count("moves")?.unwrap_or(OLD_MOVES.into());
                let moves = within("moves", moves, 1, MOVES.into())? as u32;
                Some((checked(Shape { bytes, ..shape })?, moves))
            }
            _ => {
                let expected = "slots, bits and generations together, or none of them";
                return Err(Error::parameter("slots", expected, "some of them"));
            }
        };
        let of = |shape, moves| {
            let shape = fitted(shape);
            Self::new(shape, moves, fpr, keys(shape))
        };
        let design = match given {
            Some((shape, moves)) => match of(shape, moves) {
                // Such windows of time were planned without regard to the hashes.
                design if items.is_none() && design.load < LEAST_LOAD => {
                    Self::new(fitted(shape), moves, fpr, 0.0)
                }
                design => design,
            },
            None => {
                only_with_shape(parameters)?;
                let shapes = NARROW.into_iter().chain(wide_shapes());
                choose(shapes.map(|shape| of(shape, MOVES)), items).ok_or_else(|| too_low(fpr))?
            }
        };
        let design = design.with_max_load(max_load(parameters)?);
        if design.load < LEAST_LOAD {
            return Err(given.map_or_else(|| too_low(fpr), |(shape, _)| too_short(fpr, shape)));
        }
        Ok((design, fpr))
    }

    /// Returns the completed parameters that do not depend on the window.
    #[must_use]
    pub fn parameters(&self, fpr: f64) -> Parameters {
        let Shape { slots, bits, generations, bytes } = self.shape;
        let mut all = Parameters::new()
            .with("fpr", fpr)
            .with("slots", slots)
            .with("bits", bits)
            .with("generations", generations);
        // Filters of older versions do not have these: their parameters stay as they are.
        if bytes != Shape::in_words(slots, bits, generations).bytes {
            all.set("bytes", bytes);
        }
        if self.moves != OLD_MOVES {
            all.set("moves", self.moves);
        }
        if let Some(load) = self.max_load {
            all.set(MAX_LOAD, load);
        }
        all
    }

    /// Returns the design of the banks that open one after the other in a burst: with the same
    /// lives and bytes of a bucket, in fewer slots, whose fingerprints are so long that several
    /// full banks together add hardly anything to the planned rate. `None` if there is none.
    #[must_use]
    pub fn in_burst(&self) -> Option<Self> {
        // Filters of older versions have at most 32 bits.
        let most = if self.shape.bits <= 32 { 32 } else { MOST_BITS };
        let longest = |slots: u32| {
            let of = |bits| Shape { slots, bits, ..self.shape };
            let shape = (4..=most).rev().map(of).find(|&shape| checked(shape).is_ok())?;
            let is_low = fpr_of(slots, shape.bits, 1.0, 0.0) <= self.fpr * BURST_PART;
            let design = Self::new(shape, self.moves, self.fpr, 0.0);
            is_low.then_some(Self { pair_keys: f64::INFINITY, ..design })
        };
        (2..self.shape.slots).rev().find_map(longest)
    }

    /// Returns the words of a bank for this many live keys, in the layout of plans.
    #[must_use]
    pub fn words(&self, keys: f64) -> u64 {
        let layout = Layout { stripes: 1, block_words: BLOCK_WORDS };
        layout.words(self.geometry(layout, keys))
    }

    /// Returns the slots of a bank of this geometry.
    #[must_use]
    pub fn slots(&self, layout: Layout, geometry: Geometry) -> u64 {
        let buckets = u64::from(geometry.words_per_block) * 8 / u64::from(self.shape.bytes);
        layout.blocks(geometry) * buckets * u64::from(self.shape.slots)
    }

    /// Returns the mean number of live keys that a bank of this geometry is planned for.
    #[must_use]
    pub fn capacity(&self, layout: Layout, geometry: Geometry) -> f64 {
        let Shape { slots, bytes, .. } = self.shape;
        let buckets = f64::from(geometry.words_per_block * 8 / bytes);
        let blocks = layout.blocks(geometry) as f64;
        let most = self.load * f64::from(slots) * buckets;
        let mean = if self.moves > OLD_MOVES {
            mean_keys(&self.shape, buckets, blocks, self.fpr)
        } else {
            old_mean_keys(slots, buckets, blocks)
        };
        mean.min(most).max(1.0) * blocks
    }

    /// Returns the smallest geometry with a capacity of `keys` live keys.
    #[must_use]
    pub fn geometry(&self, layout: Layout, keys: f64) -> Geometry {
        self.geometry_by(layout, keys, |words| self.geometry_of(layout, words))
    }

    /// Returns the smallest geometry for `keys` live keys of those that `of` returns for words.
    fn geometry_by(&self, layout: Layout, keys: f64, of: impl Fn(u64) -> Geometry) -> Geometry {
        let words = f64::from(self.shape.bytes) / 8.0;
        // Not where blocks are said to be smaller than that takes.
        let is_limited = self.least_block_words() <= layout.block_words.into();
        let pair_keys = if is_limited { self.pair_keys } else { f64::INFINITY };
        let stripes = f64::from(layout.stripes.max(1));
        let for_pairs = (keys * stripes / pair_keys).sqrt();
        let mut wanted = (keys / (f64::from(self.shape.slots) * self.load)).max(for_pairs) * words;
        // Beyond the greatest size the result need only be too large.
        let geometry_of = |words: f64| of((words as u64).clamp(1, 2 * MOST_WORDS));
        let mut geometry = geometry_of(wanted);
        // Smaller blocks vary more, so they need more words, and these make larger blocks.
        for _ in 0..1000 {
            let buckets = f64::from(geometry.words_per_block * 8 / self.shape.bytes);
            let of_pairs = pair_keys * buckets * buckets * layout.blocks(geometry) as f64;
            let room = self.capacity(layout, geometry).min(of_pairs);
            if room >= keys {
                break;
            }
            wanted *= (keys / room).max(1.0005);
            geometry = geometry_of(wanted);
        }
        geometry
    }

    /// Returns the geometry of a bank of this many words: in small banks smaller blocks.
    #[must_use]
    pub fn geometry_of(&self, layout: Layout, words: u64) -> Geometry {
        let stripes = u64::from(layout.stripes.max(1));
        let fewest = if self.moves > OLD_MOVES { LEAST_BLOCKS } else { OLD_LEAST_BLOCKS * stripes };
        let least = self.least_block_words().max(LEAST_BLOCK_WORDS);
        let target = (words / fewest).max(least).min(layout.block_words.into());
        Layout { block_words: target as u32, ..layout }.geometry(words)
    }

    /// Returns the least target size of a block, in words, that keeps `pair_keys` at full load.
    fn least_block_words(&self) -> u64 {
        let buckets = self.load * f64::from(self.shape.slots) / self.pair_keys;
        // Blocks have three quarters of the target size at least.
        (buckets * f64::from(self.shape.bytes) / 6.0) as u64
    }
}

/// Returns whether blocks of this many words belong to a bank of a burst.
#[inline(always)]
pub(super) fn is_of_burst(block_words: usize) -> bool {
    block_words % 8 == BURST_WORDS as usize
}

/// The parameter of the highest load: the share of slots that are live just before a shift.
pub(super) const MAX_LOAD: &str = "max-load";

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
            let mut geometry = burst.geometry_of(layout, words.min(MOST_WORDS));
            geometry.words_per_block -= BURST_WORDS;
            geometry
        })
    }
}

/// Reads the highest load, if one is given.
fn max_load(parameters: &Parameters) -> Result<Option<f64>> {
    match parameters.optional(MAX_LOAD, "a share of slots")? {
        Some(load) if !(LEAST_LOAD..=1.0).contains(&load) => {
            Err(Error::parameter(MAX_LOAD, format!("a share from {LEAST_LOAD} to 1"), load))
        }
        load => Ok(load),
    }
}

/// Refuses parameters that only mean something beside a given shape.
fn only_with_shape(parameters: &Parameters) -> Result<()> {
    match ["bytes", "moves"].into_iter().find_map(|name| Some((name, parameters.get(name)?))) {
        None => Ok(()),
        Some((name, given)) => {
            Err(Error::parameter(name, "none without slots, bits and generations", given))
        }
    }
}

/// Returns the design of the fewest words for a window. Buckets of more than 8 bytes are only used
/// where none of 8 keeps the rate at a high load: they cost more time.
fn choose(designs: impl Iterator<Item = Design>, items: Option<u64>) -> Option<Design> {
    let block_words = if items.is_some() { BLOCK_WORDS } else { Layout::PLANNED_BLOCK_WORDS };
    let items = items.unwrap_or(1 << 20);
    let is_usable = |design: &Design| {
        design.load >= LEAST_LOAD && design.least_block_words() <= block_words.into()
    };
    let usable: Vec<_> = designs.filter(is_usable).collect();
    let narrow = |design: &Design| design.shape.bytes == 8;
    let any = usable.iter().any(|design| narrow(design) && design.load > 0.8);
    let words = |design: &Design| {
        let keys = live_keys(design.shape, items) as f64;
        let words = design.words(keys);
        // In wide buckets a filter of three stripes may take more than one of a single block.
        let stripes = if any { 1 } else { few_stripes(words) as u32 };
        let layout = Layout { stripes, block_words };
        if stripes > 1 { layout.words(design.geometry(layout, keys)) } else { words }
    };
    let among = usable.into_iter().filter(|design| !any || narrow(design));
    among.min_by_key(|design| (words(design), design.shape.bits))
}

/// Returns the most live keys of a window of `items` inserts: those of all its generations and of
/// the open one.
pub(super) fn live_keys(shape: Shape, items: u64) -> u64 {
    let generations = u64::from(shape.generations);
    items.div_ceil(generations).saturating_mul(generations + 1)
}

/// Returns the most live keys of a window of time at a rate of inserts, just before a generation
/// ends.
pub(super) fn keys_of_rate(shape: Shape, window: Micros, a_second: f64) -> f64 {
    let pace = window.div_ceil(shape.generations.into());
    a_second * (pace as f64 / 1e6) * f64::from(shape.generations + 1)
}

/// Returns the number of stripes for a bank of this many words, each with an undo area. Small
/// filters have up to three all the same, so that one caller rarely waits for another.
pub(super) fn stripes_for(words: u64, undo: UndoRoom) -> u32 {
    let area = undo.area_words(0).max(1) as u64;
    (words / (UNDO_PART * area)).max(few_stripes(words)).clamp(1, 64) as u32
}

/// Returns the number of stripes that a small filter has although undo areas take more than their
/// part.
fn few_stripes(words: u64) -> u64 {
    (words / u64::from(2 * Layout::LEAST_BLOCK_WORDS)).isqrt().min(3)
}

fn too_low(fpr: f64) -> Error {
    let expected = format!(
        "a rate that fingerprints of {MOST_BITS} bits and hashes of 64 bits can keep for this \
         number of keys"
    );
    Error::parameter("fpr", expected, fpr)
}

fn too_short(fpr: f64, shape: Shape) -> Error {
    let expected = format!("fingerprints long enough for a rate of {fpr}");
    Error::parameter("bits", expected, shape.bits)
}

#[cfg(test)]
mod tests;
