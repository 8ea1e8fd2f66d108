//! The words of a filter in memory: the filter-wide state, and banks in chunks.
//!
//! A chunk holds the words of some neighbouring blocks, at most 1 MiB: first the kind words of all
//! of them, then their cells. It is allocated when one of its blocks is about to change, and reads
//! as zeros before. The lists of chunks grow likewise, so an empty filter of any size is small.

use crate::atomic::AtomicU64;
use crate::block::undo_log::Undo;
use crate::block::{Block, Blocks, Geometry, Layout, MAX_BANKS, OWN_WORDS, store};
use crate::error::{Error, Result};
use crate::kind::decide::Locate;
use crate::kind::{BankMask, Kind, State};
use crate::state::BankEntry;

/// The most words of a chunk: with the header of a piece they stay below 1 MiB.
const CHUNK_WORDS: usize = (1 << 17) - 16;

/// Chunks that are listed together.
const GROUP: usize = 256;

/// What blocks read that no chunk holds.
static ZEROS: [AtomicU64; Layout::MOST_BLOCK_WORDS as usize] =
    [const { AtomicU64::new(0) }; Layout::MOST_BLOCK_WORDS as usize];

/// Returns whether nothing was written to blocks that are not there.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn absent_blocks_are_zero() -> bool {
    ZEROS.iter().all(|word| crate::block::load(word) == 0)
}

type Chunk = Box<[AtomicU64]>;
type Group = Box<[Option<Chunk>; GROUP]>;

impl Locate for Memory {
    type Located<'a> = Blocks<'a>;

    #[inline]
    fn locate(&self, mask: BankMask, hash: u64) -> Blocks<'_> {
        Self::locate(self, mask, hash)
    }
}

/// Returns words that are all zero.
pub(super) fn zeros(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// Returns words that are all zero; `None` if there is no memory for them.
fn try_zeros(count: usize) -> Option<Box<[AtomicU64]>> {
    let mut words = Vec::new();
    words.try_reserve_exact(count).ok()?;
    words.extend((0..count).map(|_| AtomicU64::new(0)));
    Some(words.into_boxed_slice())
}

/// One bank.
#[derive(Debug)]
pub(super) struct Bank {
    id: u32,
    geometry: Geometry,
    blocks: u64,
    /// The blocks of a chunk, as a power of two.
    shift: u32,
    groups: Vec<Option<Group>>,
}

impl Bank {
    fn new(layout: Layout, entry: &BankEntry) -> Self {
        let (id, geometry) = (entry.id, entry.geometry);
        let in_chunk = CHUNK_WORDS / (OWN_WORDS + geometry.words_per_block as usize);
        let shift = in_chunk.max(1).ilog2();
        Self { id, geometry, blocks: layout.blocks(geometry), shift, groups: Vec::new() }
    }

    fn block_words(&self) -> usize {
        self.geometry.words_per_block as usize
    }

    /// Returns the bank's number.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of blocks in a chunk.
    #[inline]
    fn blocks_of(&self, chunk: usize) -> usize {
        // A number from outside may be any: shifted first, it would lose bits.
        let is_beyond = chunk as u64 > self.blocks >> self.shift;
        let before = if is_beyond { self.blocks } else { (chunk as u64) << self.shift };
        self.blocks.saturating_sub(before).min(1 << self.shift) as usize
    }

    /// Returns the number of words in a chunk: none beyond the last one.
    pub(super) fn words_of(&self, chunk: usize) -> usize {
        self.blocks_of(chunk) * (OWN_WORDS + self.block_words())
    }

    #[inline]
    fn chunk(&self, chunk: usize) -> Option<&Chunk> {
        self.groups.get(chunk / GROUP)?.as_ref()?[chunk % GROUP].as_ref()
    }

    /// Returns a block by number, below [`Bank::blocks`].
    #[inline]
    pub(super) fn block(&self, index: usize) -> Block<'_> {
        let (number, of, undo) = (index as u64, self.blocks, Undo::NONE);
        let (chunk, within) = (index >> self.shift, index & ((1 << self.shift) - 1));
        let Some(words) = self.chunk(chunk) else {
            let (own, cells) = (&ZEROS[..OWN_WORDS], &ZEROS[..self.block_words()]);
            return Block { own, cells, number, of, undo };
        };
        let (own, cells) = words.split_at(self.blocks_of(chunk) * OWN_WORDS);
        let own = &own[within * OWN_WORDS..][..OWN_WORDS];
        let cells = &cells[within * self.block_words()..][..self.block_words()];
        Block { own, cells, number, of, undo }
    }

    /// Returns the place of a chunk in the lists, which grow to hold it.
    fn place_mut(&mut self, chunk: usize) -> &mut Option<Chunk> {
        let (group, within) = (chunk / GROUP, chunk % GROUP);
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, || None);
        }
        let group = self.groups[group].get_or_insert_with(|| Box::new([const { None }; GROUP]));
        &mut group[within]
    }

    /// Returns a chunk that may be written to, allocated if it was not there.
    pub(super) fn chunk_mut(&mut self, chunk: usize) -> &mut [AtomicU64] {
        let words = self.words_of(chunk);
        self.place_mut(chunk).get_or_insert_with(|| zeros(words))
    }

    /// As [`Bank::chunk_mut`], for a chunk from outside.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn try_chunk_mut(&mut self, chunk: usize) -> Result<&mut [AtomicU64]> {
        let words = self.words_of(chunk);
        let fresh = try_zeros(words).ok_or(Error::Memory { bytes: words as u64 * 8 })?;
        Ok(self.place_mut(chunk).insert(fresh))
    }

    /// Returns the first chunk that is there from this number on.
    pub(super) fn chunk_from(&self, number: usize) -> Option<(usize, &[AtomicU64])> {
        let groups = self.groups.iter().enumerate().skip(number / GROUP);
        let groups = groups.filter_map(|(at, group)| Some((at, group.as_ref()?)));
        let mut chunks = groups.flat_map(|(at, group)| {
            let chunks = group.iter().enumerate();
            chunks.filter_map(move |(within, chunk)| Some((at * GROUP + within, chunk.as_deref()?)))
        });
        chunks.find(|(at, _)| *at >= number)
    }

    fn allocated_bytes(&self) -> usize {
        let groups = self.groups.iter().flatten();
        let of_group = |group: &Group| {
            let chunks: usize = group.iter().flatten().map(|words| size_of_val(&**words)).sum();
            size_of_val(&**group) + chunks
        };
        groups.map(of_group).sum::<usize>() + self.groups.capacity() * size_of::<Option<Group>>()
    }
}

/// The filter-wide state, and the banks that it lists.
#[derive(Debug)]
pub(super) struct Memory {
    layout: Layout,
    state: Box<[AtomicU64]>,
    banks: [Option<Bank>; MAX_BANKS],
    /// The slots that hold a bank.
    present: BankMask,
}

impl Memory {
    /// Creates the memory of a filter in its initial state.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a kind whose first bank has an absurd size.
    pub(super) fn new(kind: &dyn Kind, layout: Layout) -> Result<Self> {
        let memory = Self::with_state(layout, zeros(kind.state_words()));
        kind.start(&memory.state(), layout);
        memory.listed()
    }

    /// Creates the memory of a filter with this state, and banks without chunks.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the state lists a bank of an absurd size.
    pub(super) fn from_state(layout: Layout, words: Box<[AtomicU64]>) -> Result<Self> {
        Self::with_state(layout, words).listed()
    }

    fn with_state(layout: Layout, state: Box<[AtomicU64]>) -> Self {
        Self { layout, state, banks: [const { None }; MAX_BANKS], present: 0 }
    }

    fn listed(mut self) -> Result<Self> {
        self.state().banks().try_for_each(|entry| self.layout.check(entry.geometry))?;
        self.follow();
        Ok(self)
    }

    /// Replaces everything by the initial state, in which the numbers of banks continue.
    pub(super) fn clear(&mut self, kind: &dyn Kind) {
        let words = zeros(self.state.len());
        let state = State::new(&words);
        state.begin_after(&self.state());
        kind.start(&state, self.layout);
        self.state = words;
        self.follow();
    }

    /// Returns the filter-wide state.
    #[inline]
    pub(super) fn state(&self) -> State<'_> {
        State::new(&self.state)
    }

    /// Returns the words of the filter-wide state.
    pub(super) fn state_words(&self) -> &[AtomicU64] {
        &self.state
    }

    /// Opens the banks that the state lists and that are not there, and drops those that it does
    /// not list.
    pub(super) fn follow(&mut self) {
        self.present = 0;
        for slot in 0..MAX_BANKS {
            let listed = State::new(&self.state).bank(slot);
            let bank = &mut self.banks[slot];
            if listed.map(|entry| entry.id) != bank.as_ref().map(|bank| bank.id) {
                *bank = listed.map(|entry| Bank::new(self.layout, &entry));
            }
            self.present |= BankMask::from(bank.is_some()) << slot;
        }
    }

    /// Returns the banks, with their slots.
    pub(super) fn banks(&self) -> impl Iterator<Item = (usize, &Bank)> {
        let banks = self.banks.iter().enumerate();
        banks.filter_map(|(slot, bank)| Some((slot, bank.as_ref()?)))
    }

    /// Returns the bank in a slot, to be filled.
    pub(super) fn bank_mut(&mut self, slot: usize) -> Option<&mut Bank> {
        self.banks.get_mut(slot)?.as_mut()
    }

    /// Returns the key's blocks in the banks of `mask`.
    #[inline]
    pub(super) fn locate(&self, mask: BankMask, hash: u64) -> Blocks<'_> {
        let wanted = mask & self.present;
        let block = |bank: &'_ Bank| self.layout.block_of(bank.geometry, hash);
        if let (1, Some(bank)) = (wanted, &self.banks[0]) {
            return Blocks::One(0, bank.block(block(bank)));
        }
        let mut blocks = Blocks::below((BankMask::BITS - wanted.leading_zeros()) as usize);
        for (slot, bank) in self.banks().filter(|(slot, _)| wanted & 1 << slot != 0) {
            blocks.set(slot, bank.block(block(bank)));
        }
        blocks
    }

    /// Allocates the chunks of the key's blocks in the banks of `mask`.
    #[inline]
    pub(super) fn allocate(&mut self, mask: BankMask, hash: u64) {
        let mut wanted = mask & self.present;
        while wanted != 0 {
            let slot = wanted.trailing_zeros() as usize;
            wanted &= wanted - 1;
            if let Some(bank) = &mut self.banks[slot] {
                let chunk = self.layout.block_of(bank.geometry, hash) >> bank.shift;
                if bank.chunk(chunk).is_none() {
                    bank.chunk_mut(chunk);
                }
            }
        }
    }

    /// Allocates all chunks.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn allocate_all(&mut self) {
        for bank in self.banks.iter_mut().flatten() {
            let chunks = (0..).take_while(|&chunk| bank.words_of(chunk) > 0).count();
            for chunk in 0..chunks {
                bank.chunk_mut(chunk);
            }
        }
    }

    /// Visits each allocation that holds words.
    pub(super) fn each_allocation(&mut self, mut visit: impl FnMut(&mut Box<[AtomicU64]>)) {
        visit(&mut self.state);
        let groups = self.banks.iter_mut().flatten().flat_map(|bank| &mut bank.groups);
        let chunks = groups.flatten().flat_map(|group| group.iter_mut());
        chunks.flatten().for_each(visit);
    }

    /// Returns the bytes that are allocated.
    pub(super) fn allocated_bytes(&self) -> usize {
        let banks: usize = self.banks().map(|(_, bank)| bank.allocated_bytes()).sum();
        size_of_val(&*self.state) + banks
    }

    /// Returns the bytes of all banks when every chunk is there.
    pub(super) fn planned_bytes(&self) -> u64 {
        let of = |bank: &Bank| bank.blocks * (OWN_WORDS + bank.block_words()) as u64 * 8;
        size_of_val(&*self.state) as u64 + self.banks().map(|(_, bank)| of(bank)).sum::<u64>()
    }
}

/// Writes words, one after the other.
pub(super) fn fill(to: &[AtomicU64], from: impl Iterator<Item = u64>) {
    to.iter().zip(from).for_each(|(word, value)| store(word, value));
}
