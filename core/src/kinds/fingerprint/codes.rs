//! The code of a bucket: one number for the sorted lives of its slots.
//!
//! The lives `r_0 >= r_1 >= … >= r_(b-1)`, each below `v`, have the code
//! `Σ C(r_s + b-1-s, b-s)`: the rank of the list among all `C(v+b-1, b)` lists (the combinatorial
//! number system). The code 0 is that of empty slots. The `v` codes after the last list are those
//! of a closed bucket, by the number of generations for which it stays closed.
//!
//! Lists are handled packed: life `s` in the bits from `s · life_bits` on. A code beyond all, which
//! only a torn read gives, counts as that of empty slots.

use once_cell::race::OnceBox;
use std::fmt;

/// The most slots of a bucket.
pub(super) const MOST_SLOTS: u32 = 8;

/// The most codes, lists and closed buckets together: their table is 64 KiB.
pub(super) const MOST_CODES: u64 = 1 << 14;

/// More than the values that lives may have with [`MOST_CODES`]: 179, in lists of two.
const MORE_THAN_VALUES: usize = 180;

/// The codes of all lists of one length and range.
#[derive(Clone, PartialEq)]
pub(super) struct Codes {
    slots: u32,
    values: u32,
    life_bits: u32,
    /// The lives of each code, packed; those of closed buckets are 0.
    lives: Box<[u32]>,
    /// The number of lives of each code that are above 0, now and a generation later, and the code
    /// a generation later.
    each: Box<[Each]>,
    /// What life `r` of slot `s` adds to the code, at `s << life_bits | r`.
    ranks: Box<[u32]>,
}

/// What is read of a code most often.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Each {
    later: u16,
    live: u8,
    live_later: u8,
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
    /// Returns the tables of `slots` lives below `values`, as [`Codes::new`] creates them. All
    /// filters of the process share them, because they are larger than a small filter.
    pub(super) fn shared(slots: u32, values: u32) -> &'static Self {
        const SLOTS: usize = MOST_SLOTS as usize + 1;
        static ALL: [[OnceBox<Codes>; MORE_THAN_VALUES]; SLOTS] =
            [const { [const { OnceBox::new() }; MORE_THAN_VALUES] }; SLOTS];
        // Of threads that create the same tables at once, the first one's are kept. None waits for
        // another: a child of `fork` would wait for a thread that it does not have.
        ALL[slots as usize][values as usize].get_or_init(|| Box::new(Self::new(slots, values)))
    }

    /// Creates the tables of `slots` lives below `values`, of which there are at most
    /// [`MOST_CODES`] codes.
    pub(super) fn new(slots: u32, values: u32) -> Self {
        let rank = |slot: u32, life: u32| {
            binomial(u64::from(life + slots - 1 - slot), (slots - slot).into()) as u32
        };
        let life_bits = life_bits(values);
        let all_lives = 0..1 << life_bits;
        let ranks = (0..slots).flat_map(|slot| all_lives.clone().map(move |life| rank(slot, life)));
        let ranks = ranks.collect();
        let (lives, each) = (Box::default(), Box::default());
        let mut codes = Self { slots, values, life_bits, lives, each, ranks };
        let lists = lists(slots, values) as u32;
        let unranked = (0..lists).map(|code| codes.unranked(code));
        codes.lives = unranked.chain((0..values).map(|_| 0)).collect();
        let live = |&lives: &u32| (0..slots).filter(|&slot| codes.life(lives, slot) > 0).count();
        let next = |code: u32| match code.checked_sub(lists) {
            Some(left) if left > 1 => code - 1,
            Some(_) => 0,
            None => codes.code(codes.aged(codes.lives[code as usize], 1)),
        };
        let each = |(lives, code)| {
            let later = next(code);
            let live_later = live(&codes.lives[later as usize]) as u8;
            Each { later: later as u16, live: live(lives) as u8, live_later }
        };
        codes.each = codes.lives.iter().zip(0..).map(each).collect();
        codes
    }

    /// Returns the list with this code: the greatest life that fits, slot by slot.
    fn unranked(&self, code: u32) -> u32 {
        let (mut rest, mut lives) = (code, 0);
        for (slot, ranks) in self.ranks.chunks(1 << self.life_bits).enumerate() {
            let ranks = &ranks[..self.values as usize];
            let life = ranks.partition_point(|&rank| rank <= rest) - 1;
            rest -= ranks[life];
            lives |= (life as u32) << (slot as u32 * self.life_bits);
        }
        lives
    }

    /// Returns the code of packed lives.
    #[inline]
    pub(super) fn code(&self, lives: u32) -> u32 {
        let (mask, mut code, mut left) = ((1 << self.life_bits) - 1, 0, lives);
        for slot in 0..self.slots {
            code += self.ranks[(slot << self.life_bits | left & mask) as usize];
            left >>= self.life_bits;
        }
        code
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
        self.lives.get(code as usize).copied().unwrap_or_default()
    }

    #[inline(always)]
    fn each(&self, code: u64) -> Each {
        self.each.get(code as usize).copied().unwrap_or_default()
    }

    /// Returns the number of lives of a code that are above 0.
    #[inline(always)]
    pub(super) fn live(&self, code: u64) -> u32 {
        self.each(code).live.into()
    }

    /// Returns the code that this one becomes a generation later, and how many of its lives are
    /// above 0.
    #[inline(always)]
    pub(super) fn later(&self, code: u64) -> (u64, u32) {
        let Each { later, live_later, .. } = self.each(code);
        (later.into(), live_later.into())
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
