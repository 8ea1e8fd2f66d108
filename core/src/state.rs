//! The filter-wide state: the cells of the state block. A table of banks, then the kind words.
//!
//! Only events change it, under stripe 0; readers read it under the state block's version.

use crate::atomic::{AtomicU64, Ordering};
use crate::block::{FEW_BANKS, Geometry, MAX_BANKS, load, store};
use crate::event::Event;

/// A set of bank slots, one bit each.
pub type BankMask = u32;

/// The most words of the state: 4 KiB. A kind says how many of them it uses
/// ([`Kind::state_words`]); the others are zero, and lie nowhere.
///
/// [`Kind::state_words`]: crate::kind::Kind::state_words
pub const STATE_WORDS: usize = 512;

/// Words of the state of a kind that has 32 words of its own at most.
pub const SMALL_STATE_WORDS: usize = 2 * OWN;

/// Words of the state of a kind that has 64 words of its own at most, and up to [`MAX_BANKS`]
/// banks: after the kind words lie the entries of the slots from [`FEW_BANKS`] on.
pub const LARGE_STATE_WORDS: usize = 3 * OWN + MORE_WORDS;

const NEXT_BANK: usize = FEW_BANKS * ENTRY_WORDS;
/// The slots that may contain a bank, where there are many: an insert does not look at the others.
const OCCUPIED: usize = NEXT_BANK + 1;
const MORE_WORDS: usize = (MAX_BANKS - FEW_BANKS) * ENTRY_WORDS;
const OWN: usize = 32;
const ENTRY_WORDS: usize = 3;

/// The most kind words of the state.
pub const STATE_OWN_WORDS: usize = STATE_WORDS - OWN;

/// A bank as the table lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BankEntry {
    /// The bank's slot in the table, below [`State::slots`].
    pub slot: usize,
    /// The bank's number, from [`State::next_bank`]; never used again.
    pub id: u32,
    /// Its size.
    pub geometry: Geometry,
    /// The first step it serves.
    pub since: u64,
}

/// The filter-wide state of one filter.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// The table of banks and the first kind words: an array, because each operation reads them.
    words: &'a [AtomicU64; SMALL_STATE_WORDS],
    /// All words.
    all: &'a [AtomicU64],
}

impl<'a> State<'a> {
    /// Creates the state over the words of the state block.
    ///
    /// # Panics
    /// If there are not at least [`SMALL_STATE_WORDS`] of them.
    #[must_use]
    #[inline]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self { words: words.first_chunk().expect("all words of the state"), all: words }
    }

    /// Returns the number of slots of the table of banks.
    #[must_use]
    #[inline]
    pub fn slots(&self) -> usize {
        if self.all.len() == LARGE_STATE_WORDS { MAX_BANKS } else { FEW_BANKS }
    }

    /// Returns the number of words.
    #[must_use]
    pub fn words(&self) -> usize {
        self.all.len()
    }

    /// Returns the words of an entry of the table, below [`State::slots`].
    #[inline]
    fn entry(&self, slot: usize) -> &'a [AtomicU64] {
        let at = slot * ENTRY_WORDS;
        if slot < FEW_BANKS {
            return &self.words[at..at + ENTRY_WORDS];
        }
        let at = LARGE_STATE_WORDS - MAX_BANKS * ENTRY_WORDS + at;
        &self.all[at..at + ENTRY_WORDS]
    }

    /// Returns the entries of the slots from [`FEW_BANKS`] on.
    fn more_entries(&self) -> &'a [AtomicU64] {
        let first =
            if self.slots() > FEW_BANKS { LARGE_STATE_WORDS - MORE_WORDS } else { self.all.len() };
        &self.all[first..]
    }

    /// Returns the bank in a slot.
    #[must_use]
    #[inline]
    pub fn bank(&self, slot: usize) -> Option<BankEntry> {
        let is_occupied = match self.slots() {
            FEW_BANKS => slot < FEW_BANKS,
            // Acquire: pairs with the Release in `set_entry`.
            slots => slot < slots && self.words[OCCUPIED].load(Ordering::Acquire) >> slot & 1 != 0,
        };
        if is_occupied { self.listed(slot) } else { None }
    }

    /// Returns the bank in a slot that may contain one.
    #[inline]
    fn listed(&self, slot: usize) -> Option<BankEntry> {
        let entry = self.entry(slot);
        // Acquire: pairs with the Release in `set_entry`; an entry that is visible at all is
        // visible completely. (A query also checks the state block's version; an insert that has
        // been decided reads the table without.)
        let id = entry[0].load(Ordering::Acquire).checked_sub(1)? as u32;
        let size = load(&entry[1]);
        Some(BankEntry {
            slot,
            id,
            geometry: Geometry {
                blocks_per_stripe: (size >> 32) as u32,
                words_per_block: size as u32,
            },
            since: load(&entry[2]),
        })
    }

    /// Returns all banks, by slot.
    #[inline]
    pub fn banks(&self) -> impl Iterator<Item = BankEntry> + use<'a> {
        let state = *self;
        state.occupied().filter_map(move |slot| state.listed(slot))
    }

    /// Returns the slots that may contain a bank.
    #[inline]
    fn occupied(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = if self.slots() == FEW_BANKS {
            (1 << FEW_BANKS) - 1
        } else {
            // Acquire: pairs with the Release in `set_entry`.
            self.words[OCCUPIED].load(Ordering::Acquire)
        };
        std::iter::from_fn(move || {
            let slot = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (slot < MAX_BANKS).then_some(slot)
        })
    }

    /// Returns the bank that contains a step's slice: the latest of those that began at or before
    /// it.
    #[must_use]
    #[inline]
    pub fn bank_of_step(&self, step: u64) -> Option<BankEntry> {
        let mut latest: Option<BankEntry> = None;
        // Called at each insert: most slots are free.
        for bank in self.banks().filter(|bank| bank.since <= step) {
            if latest.is_none_or(|other| (other.since, other.id) < (bank.since, bank.id)) {
                latest = Some(bank);
            }
        }
        latest
    }

    /// Returns the slots of all banks.
    #[must_use]
    #[inline]
    pub fn mask(&self) -> BankMask {
        self.banks().fold(0, |mask, bank| mask | 1 << bank.slot)
    }

    /// Returns the number of the next bank to open.
    #[must_use]
    #[inline]
    pub fn next_bank(&self) -> u32 {
        load(&self.words[NEXT_BANK]) as u32
    }

    /// Returns the slot that the next bank will take.
    #[must_use]
    pub fn free_slot(&self) -> Option<usize> {
        (0..self.slots()).find(|&slot| self.bank(slot).is_none())
    }

    /// Returns a kind word, below the number that the kind states.
    #[must_use]
    #[inline]
    pub fn own(&self, index: usize) -> u64 {
        load(self.own_word(index))
    }

    #[inline]
    fn own_word(&self, index: usize) -> &'a AtomicU64 {
        &self.all[OWN + index]
    }

    /// Writes a kind word.
    #[inline]
    pub fn set_own(&self, index: usize, value: u64) {
        store(self.own_word(index), value);
    }

    /// Makes this state, which is all zero, the successor of another: the numbers of banks
    /// continue, because none is used twice.
    pub fn begin_after(&self, before: &State<'_>) {
        store(&self.words[NEXT_BANK], u64::from(before.next_bank()));
    }

    /// Makes this state equal to another.
    pub fn become_as(&self, other: &State<'_>) {
        self.copy_banks(other);
        for (to, from) in self.all[NEXT_BANK..].iter().zip(&other.all[NEXT_BANK..]) {
            store(to, load(from));
        }
    }

    /// Applies the changes of an event to the banks; other events, and ones applied already, change
    /// nothing. A bank that finds no free slot is not opened: a kind never has more.
    pub fn apply_banks(&self, event: &Event) {
        match *event {
            Event::Step { .. } => {}
            Event::OpenBank { id, geometry, since, .. } => {
                if id < self.next_bank() {
                    return;
                }
                let Some(slot) = self.free_slot() else {
                    return;
                };
                let size = u64::from(geometry.blocks_per_stripe) << 32
                    | u64::from(geometry.words_per_block);
                self.set_entry(slot, [u64::from(id) + 1, size, since]);
                store(&self.words[NEXT_BANK], u64::from(id) + 1);
            }
            Event::CloseBank { id, .. } => {
                if let Some(bank) = self.banks().find(|bank| bank.id == id) {
                    self.set_entry(bank.slot, [0; ENTRY_WORDS]);
                }
            }
        }
    }

    /// Makes the table of banks equal to another's. The order of writes ensures that an insert that
    /// still reads the table, for a step decided earlier, never finds a bank with another bank's
    /// size.
    pub fn copy_banks(&self, from: &State<'_>) {
        // Most events change no bank.
        let is_same = |to: &[AtomicU64], from: &[AtomicU64]| {
            to.iter().zip(from).all(|(to, from)| load(to) == load(from))
        };
        if is_same(&self.words[..NEXT_BANK], &from.words[..NEXT_BANK])
            && is_same(self.more_entries(), from.more_entries())
        {
            return;
        }
        for slot in 0..self.slots().min(from.slots()) {
            let [old, new] = [self.entry(slot), from.entry(slot)]
                .map(|words| [0, 1, 2].map(|word: usize| load(&words[word])));
            if old != new {
                self.set_entry(slot, new);
            }
        }
    }

    /// Writes an entry of the table, its number last; closed slots are all zero.
    fn set_entry(&self, slot: usize, [number, size, since]: [u64; ENTRY_WORDS]) {
        let entry = self.entry(slot);
        // Release, both times: pairs with the Acquire in `bank`.
        entry[0].store(0, Ordering::Release);
        entry[1].store(size, Ordering::Release);
        entry[2].store(since, Ordering::Release);
        entry[0].store(number, Ordering::Release);
        if self.slots() > FEW_BANKS {
            let others = load(&self.words[OCCUPIED]) & !(1 << slot);
            let occupied = others | u64::from(number > 0) << slot;
            // Release: pairs with the Acquire in `occupied`, which finds the entry complete.
            self.words[OCCUPIED].store(occupied, Ordering::Release);
        }
    }
}

const _: () = assert!(NEXT_BANK < OWN && OWN < STATE_WORDS);
const _: () = assert!(LARGE_STATE_WORDS < STATE_WORDS && MAX_BANKS <= BankMask::BITS as usize);
