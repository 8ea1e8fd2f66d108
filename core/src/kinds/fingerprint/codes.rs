//! The code of a bucket: one number for the sorted lives of its slots.
//!
//! The lives `r_0 >= r_1 >= … >= r_(b-1)`, each below `v`, have the code
//! `Σ C(r_s + b-1-s, b-s)`: the rank of the list among all `C(v+b-1, b)` lists (the combinatorial
//! number system). The code 0 is that of empty slots. The `v` codes after the last list are those
//! of a closed bucket, by the number of generations for which it stays closed.
//!
//! Lists are handled packed: life `s` in the bits from `s · life_bits` on. A code beyond all, which
//! only a torn read gives, counts as the last.

use std::fmt;

/// The most codes, lists and closed buckets together: their table is 64 KiB.
pub(super) const MOST_CODES: u64 = 1 << 14;

/// The codes of all lists of one length and range.
#[derive(Clone, PartialEq)]
pub(super) struct Codes {
    slots: u32,
    values: u32,
    life_bits: u32,
    /// The lives of each code, packed; those of closed buckets are 0.
    lives: Box<[u32]>,
    /// The lives of each code that are above 0.
    live: Box<[u8]>,
    /// The code that each code becomes a generation later.
    later: Box<[u16]>,
    /// What life `r` of slot `s` adds to the code, at `s · values + r`.
    ranks: Box<[u32]>,
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codes({}, {})", self.slots, self.values)
    }
}

/// Returns `C(n, k)`, at most the greatest number.
fn binomial(n: u64, k: u64) -> u64 {
    (0..k).fold(1, |product: u64, i| product.saturating_mul(n.saturating_sub(i)) / (i + 1))
}

/// Returns the number of lists of `slots` lives below `values`.
pub(super) fn lists(slots: u32, values: u32) -> u64 {
    binomial(u64::from(values) + u64::from(slots) - 1, slots.into())
}

/// Returns the number of codes.
pub(super) fn count(slots: u32, values: u32) -> u64 {
    lists(slots, values).saturating_add(values.into())
}

/// Returns the bits of a life.
pub(super) fn life_bits(values: u32) -> u32 {
    values.saturating_sub(1).max(1).ilog2() + 1
}

impl Codes {
    /// Creates the tables of `slots` lives below `values`, of which there are at most
    /// [`MOST_CODES`] codes.
    pub(super) fn new(slots: u32, values: u32) -> Self {
        let rank = |slot: u32, life: u32| {
            binomial(u64::from(life + slots - 1 - slot), (slots - slot).into()) as u32
        };
        let ranks = (0..slots).flat_map(|slot| (0..values).map(move |life| rank(slot, life)));
        let (ranks, life_bits) = (ranks.collect(), life_bits(values));
        let (lives, live, later) = (Box::default(), Box::default(), Box::default());
        let mut codes = Self { slots, values, life_bits, lives, live, later, ranks };
        let lists = lists(slots, values) as u32;
        let unranked = (0..lists).map(|code| codes.unranked(code));
        codes.lives = unranked.chain((0..values).map(|_| 0)).collect();
        let live = |&lives: &u32| (0..slots).filter(|&slot| codes.life(lives, slot) > 0).count();
        codes.live = codes.lives.iter().map(|lives| live(lives) as u8).collect();
        let next = |code: u32| match code.checked_sub(lists) {
            Some(left) if left > 1 => code - 1,
            Some(_) => 0,
            None => codes.code(codes.aged(codes.lives[code as usize], 1)),
        };
        codes.later = (0..lists + values).map(|code| next(code) as u16).collect();
        codes
    }

    /// Returns the list with this code: the greatest life that fits, slot by slot.
    fn unranked(&self, code: u32) -> u32 {
        let (mut rest, mut lives) = (code, 0);
        for (slot, ranks) in self.ranks.chunks(self.values as usize).enumerate() {
            let life = ranks.partition_point(|&rank| rank <= rest) - 1;
            rest -= ranks[life];
            lives |= (life as u32) << (slot as u32 * self.life_bits);
        }
        lives
    }

    /// Returns the code of packed lives.
    #[inline]
    pub(super) fn code(&self, lives: u32) -> u32 {
        let ranks = self.ranks.chunks_exact(self.values as usize).zip(0_u32..);
        ranks.map(|(ranks, slot)| ranks[self.life(lives, slot) as usize % ranks.len()]).sum()
    }

    /// Returns the life of a slot in packed lives.
    #[inline(always)]
    pub(super) fn life(&self, lives: u32, slot: u32) -> u32 {
        lives >> (slot * self.life_bits) & ((1 << self.life_bits) - 1)
    }

    /// Returns packed lives some generations later.
    fn aged(&self, lives: u32, generations: u32) -> u32 {
        let aged = |slot| self.life(lives, slot).saturating_sub(generations);
        (0..self.slots).fold(0, |all, slot| all | aged(slot) << (slot * self.life_bits))
    }

    /// Returns the packed lives of a code.
    #[inline(always)]
    pub(super) fn lives(&self, code: u64) -> u32 {
        self.lives[code.min(self.lives.len() as u64 - 1) as usize]
    }

    /// Returns the number of lives of a code that are above 0.
    #[inline(always)]
    pub(super) fn live(&self, code: u64) -> u32 {
        self.live[code.min(self.live.len() as u64 - 1) as usize].into()
    }

    /// Returns the code that this one becomes a generation later.
    #[inline]
    pub(super) fn later(&self, code: u64) -> u64 {
        self.later[code.min(self.later.len() as u64 - 1) as usize].into()
    }

    /// Returns the first code of a closed bucket.
    pub(super) fn closed(&self) -> u64 {
        lists(self.slots, self.values)
    }

    /// Returns the bits of a life in packed lives.
    #[inline(always)]
    pub(super) fn life_bits(&self) -> u32 {
        self.life_bits
    }

    /// Returns the greatest life.
    #[inline]
    pub(super) fn most(&self) -> u32 {
        self.values - 1
    }
}

#[cfg(test)]
mod tests;
