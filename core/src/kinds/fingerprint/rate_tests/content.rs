//! The rate of false positives by content: the share of all absent keys that a filter finds,
//! computed from the slots that are in its blocks.
//!
//! Blocks are read as `docs/format.md` describes them ("Buckets of fingerprints"), bit by bit, and
//! the code of the lives by its formula. Nothing of the kind's code is called, neither for buckets
//! nor for questions, so that a mistake there is not made here as well.
//!
//! A hash is uniform over 64 bits, so the block of an absent key, its fingerprint and its first
//! bucket are independent; *places* are the pairs of the latter two. The rate is the mean over
//! blocks of the share of places at which a question finds a live slot or a closed bucket.

use super::Shape;
use crate::block::{Block, load};
use crate::hash::mix;

/// A fingerprint, and the first bucket of a key that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) fingerprint: u64,
    pub(super) bucket: u64,
}

/// What the blocks of one bank have.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) live: u64,
    pub(super) closed: u64,
    pub(super) buckets: u64,
    pub(super) blocks: u64,
    /// The sum of the shares of the blocks.
    found: f64,
    /// The places of live slots, those of one block after those of another.
    pub(super) places: Vec<Place>,
}

impl Content {
    /// Returns the rate; 0 of a bank that is no more.
    pub(super) fn rate(&self) -> f64 {
        // A key of a live slot has its hash, and an absent key that has it too is found.
        self.found / self.blocks.max(1) as f64 + self.live as f64 / 2_f64.powi(64)
    }

    /// Adds a block, in this generation of the filter.
    pub(super) fn add(&mut self, form: &Form, block: &Block<'_>, generation: u64) {
        let behind = generation.saturating_sub(block.own(0));
        let bytes: Vec<u8> = block.cells.iter().flat_map(|cell| load(cell).to_le_bytes()).collect();
        let buckets: Vec<Bucket> = bytes
            .chunks_exact(form.shape.bytes as usize)
            .map(|bytes| form.bucket(bytes, behind))
            .collect();
        let count = buckets.len() as u64;
        let is_closed = |bucket: u64| buckets[bucket as usize].closed;
        let mut places = Vec::new();
        for (bucket, slots) in (0..).zip(&buckets) {
            for &fingerprint in &slots.live {
                for bucket in [bucket, form.other(fingerprint, bucket, count)] {
                    places.push(Place { fingerprint, bucket });
                }
            }
            self.live += slots.live.len() as u64;
            self.closed += u64::from(slots.closed);
        }
        places.sort_unstable();
        places.dedup();
        places.retain(|&Place { fingerprint, bucket }| {
            ![bucket, form.other(fingerprint, bucket, count)].into_iter().any(is_closed)
        });
        if block.own(5) > behind {
            // Closed as a whole.
            self.found += 1.0;
        } else {
            self.found += places.iter().map(|&place| form.share(place, count)).sum::<f64>();
            if buckets.iter().any(|bucket| bucket.closed) {
                self.found += form.of_closed(&buckets);
            }
        }
        self.blocks += 1;
        self.buckets += count;
        self.places.extend(places);
    }
}

/// A bucket in the generation of the filter.
struct Bucket {
    /// The fingerprints of live slots.
    live: Vec<u64>,
    closed: bool,
}

/// The buckets of a shape.
pub(super) struct Form {
    shape: Shape,
    /// The lives of each code.
    lives: Vec<Vec<u32>>,
}

fn binomial(n: u64, k: u64) -> u64 {
    (1..=k).fold(1, |product, i| product * (n + 1 - i) / i)
}

impl Form {
    pub(super) fn new(shape: Shape) -> Self {
        let (b, values) = (shape.slots, shape.generations + 2);
        let count = binomial(u64::from(values + b - 1), b.into()) as usize;
        let mut lives = vec![Vec::new(); count];
        // All lists `r_0 >= r_1 >= …`, each under its code.
        let mut lists = vec![Vec::new()];
        for _ in 0..b {
            lists = lists
                .into_iter()
                .flat_map(|list: Vec<u32>| {
                    let most = list.last().copied().unwrap_or(values - 1);
                    (0..=most).map(move |life| [list.clone(), vec![life]].concat())
                })
                .collect();
        }
        for list in lists {
            let term = |(s, &r): (u32, &u32)| {
                if r == 0 { 0 } else { binomial(u64::from(r + b - 1 - s), u64::from(b - s)) }
            };
            let code: u64 = (0..).zip(&list).map(term).sum();
            assert!(lives[code as usize].is_empty(), "two lists of one code: {list:?}");
            lives[code as usize] = list;
        }
        Self { shape, lives }
    }

    /// Reads a bucket of a block that is some generations behind.
    fn bucket(&self, bytes: &[u8], behind: u64) -> Bucket {
        let Shape { slots, bits, .. } = self.shape;
        let number = |from: u32, to: u32| {
            let bit = |at: u32| u64::from(bytes[at as usize / 8] >> (at % 8) & 1);
            (from..to).rev().fold(0, |number, at| number << 1 | bit(at))
        };
        let all = 8 * self.shape.bytes;
        let code = number(slots * bits, all) as usize;
        match self.lives.get(code) {
            Some(lives) => {
                let is_live = |&slot: &u32| u64::from(lives[slot as usize]) > behind;
                let of = |slot: u32| number(slot * bits, (slot + 1) * bits);
                Bucket { live: (0..slots).filter(is_live).map(of).collect(), closed: false }
            }
            None => {
                let left = (code - self.lives.len()) as u64;
                Bucket { live: Vec::new(), closed: left > behind }
            }
        }
    }

    /// Returns the sum of the two buckets of a fingerprint, modulo their number.
    fn sum(fingerprint: u64, buckets: u64) -> u64 {
        ((fingerprint.wrapping_mul(0x9e37_79b1) % (1 << 32)) * buckets) >> 32
    }

    /// Returns the other bucket of a fingerprint.
    fn other(&self, fingerprint: u64, bucket: u64, buckets: u64) -> u64 {
        (Self::sum(fingerprint, buckets) + buckets - bucket) % buckets
    }

    /// Returns the bits of a hash that choose the first bucket.
    fn bucket_bits(&self) -> u32 {
        if self.shape.bits > 32 { 20 } else { 32 }
    }

    /// Returns the first of the numbers that choose this bucket.
    fn first(&self, bucket: u64, buckets: u64) -> u64 {
        (bucket << self.bucket_bits()).div_ceil(buckets)
    }

    /// Returns the share of hashes with this first bucket.
    fn chance(&self, bucket: u64, buckets: u64) -> f64 {
        let numbers = self.first(bucket + 1, buckets) - self.first(bucket, buckets);
        numbers as f64 / 2_f64.powi(self.bucket_bits() as i32)
    }

    /// Returns the share of places with a closed bucket.
    fn of_closed(&self, buckets: &[Bucket]) -> f64 {
        let count = buckets.len() as u64;
        // Of more fingerprints than these, all sums are equally likely.
        let bits = self.shape.bits.min(24);
        let mut sums = vec![0_u64; buckets.len()];
        (0..1_u64 << bits).for_each(|number| sums[Self::sum(number, count) as usize] += 1);
        let closed: Vec<u64> = (0..count).filter(|&at| buckets[at as usize].closed).collect();
        let found = |bucket: u64| {
            if buckets[bucket as usize].closed {
                return 1.0;
            }
            let with = |&other: &u64| sums[((bucket + other) % count) as usize];
            closed.iter().map(with).sum::<u64>() as f64 / 2_f64.powi(bits as i32)
        };
        (0..count).map(|bucket| self.chance(bucket, count) * found(bucket)).sum()
    }

    /// Returns a hash at a place, in blocks of this many buckets; `random` chooses which.
    pub(super) fn hash_at(&self, place: Place, buckets: u64, random: u64) -> u64 {
        let (bits, below) = (self.shape.bits, self.bucket_bits());
        let first = self.first(place.bucket, buckets);
        let numbers = self.first(place.bucket + 1, buckets) - first;
        let low = first + mix(random) % numbers;
        let between = (mix(!random) << below) % (1 << (64 - bits));
        let mixed = place.fingerprint << (64 - bits) | between | low;
        unmixed(mixed).wrapping_sub(0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the share of hashes that are at a place.
    pub(super) fn share(&self, place: Place, buckets: u64) -> f64 {
        self.chance(place.bucket, buckets) / 2_f64.powi(self.shape.bits as i32)
    }
}

/// Returns the number of which `mix` makes this one.
fn unmixed(mixed: u64) -> u64 {
    let undo = |x: u64, by: usize| (by..64).step_by(by).fold(x, |all, by| all ^ x >> by);
    let mut x = undo(mixed, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    x = undo(x, 27).wrapping_mul(0x96de_1b17_3f11_9089);
    undo(x, 30)
}

#[test]
fn a_number_is_found_from_what_mix_makes_of_it() {
    (0..1000).map(mix).for_each(|number| assert_eq!(mix(unmixed(number)), number));
}
