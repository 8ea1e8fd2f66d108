//! Blocks as the records of a batch leave them, while none of the records is applied.
//!
//! A block is its words in the image and, on top of them, the changes of the batch's records, which
//! the overlay keeps as a list for each block. A block with such changes that is read is copied,
//! and the changes are applied to the copy. Copies are a cache: they are discarded when they take
//! too much memory, and made again from words and changes. Nothing here changes the image.
//!
//! Invariant: a copy shows all changes of its block.

use crate::engine::read::query::Queries;
use crate::engine::write::request::Waits;
use crate::error::Result;
use crate::image::BankSet;
use crate::primitives::AtomicU64;
use crate::wal::Record;
use ebbtide_core::block::{Blocks, FEW_BANKS, Geometry, Layout};
use ebbtide_core::hash::mix;
use ebbtide_core::kind::copy::BlockCopy;
use ebbtide_core::kind::decide::Locate;
use ebbtide_core::kind::{BankMask, Kind, Operation, State, records};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::{iter, mem};

/// When copies take more bytes than this, 64 MiB, all are discarded before those of the next key
/// are made. Below it each block is copied once; beyond it a block may be copied at each operation,
/// which takes microseconds.
const MOST_COPIED: usize = 64 << 20;

/// The bytes of discarded copies whose memory a thread keeps for its next ones: the system takes
/// longer to provide new memory than the copies take.
const MOST_SPARE: usize = 4 << 20;

thread_local! {
    /// Memory of copies, without words.
    static SPARE: RefCell<Vec<Vec<AtomicU64>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the memory of a discarded copy, or none.
fn spare() -> Vec<AtomicU64> {
    let taken = SPARE.try_with(|spare| spare.borrow_mut().pop());
    taken.ok().flatten().unwrap_or_default()
}

/// Keeps the memory of a copy that is not needed any more.
fn discard(copy: BlockCopy) {
    let memory = copy.into_memory();
    let bytes = memory.capacity() * size_of::<AtomicU64>();
    // A thread that ends keeps nothing.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if (spare.len() + 1) * bytes <= MOST_SPARE {
            spare.push(memory);
        }
    });
}

/// How the words of the image are read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BlockAccess<'q> {
    /// Directly: the caller holds the stripes of all keys.
    Held,
    /// As queries do, without a lock.
    Shared(&'q Queries, Waits),
}

impl BlockAccess<'_> {
    /// Reads a key's blocks. `read` may see blocks in the middle of a change, and is then called
    /// again.
    fn read<T>(self, banks: &BankSet, hash: u64, read: impl Fn(&Blocks<'_>) -> T) -> Result<T> {
        match self {
            Self::Held => Ok(read(&banks.locate_to_read(hash).blocks)),
            Self::Shared(queries, waits) => queries.read_blocks(banks, hash, waits, read),
        }
    }
}

/// The number of a bank, and a block's number in it.
type BlockKey = (u32, u64);

/// A block that a batch changes.
#[derive(Debug)]
struct Changed {
    /// The index in [`Overlay::changes`] of the last change; [`NONE`] if there is none yet.
    last: u32,
    copy: Option<Box<BlockCopy>>,
}

/// No change.
const NONE: u32 = u32::MAX;

/// A change of a block.
#[derive(Debug)]
struct Change {
    /// The index of its record.
    record: u32,
    /// The index of the change before it of the same block, or [`NONE`].
    before: u32,
}

/// A bank that an event of the batch opens. It is not allocated yet, so it is all zero.
#[derive(Debug)]
struct Imagined {
    slot: usize,
    id: u32,
    geometry: Geometry,
}

/// Blocks as a batch has left them so far.
#[derive(Debug)]
pub(crate) struct Overlay {
    layout: Layout,
    banks: Arc<BankSet>,
    imagined: Vec<Imagined>,
    changed: HashMap<BlockKey, Changed, BuildHasherDefault<Mixed>>,
    changes: Vec<Change>,
    /// The bytes of all copies.
    copied: usize,
}

/// The hasher of numbers of blocks.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }
}

/// A value for each slot of a bank: the first ones on the stack, which are all that most filters
/// have.
enum BySlot<T> {
    Few([Option<T>; FEW_BANKS]),
    Many(Vec<Option<T>>),
}

impl<T> BySlot<T> {
    /// Returns the values of `of` for the slots below `slots`, at least the first ones.
    #[inline]
    fn from_fn(slots: usize, of: impl FnMut(usize) -> Option<T>) -> Self {
        if slots <= FEW_BANKS {
            Self::Few(std::array::from_fn(of))
        } else {
            Self::Many((0..slots).map(of).collect())
        }
    }

    #[inline]
    fn as_mut(&mut self) -> &mut [Option<T>] {
        match self {
            Self::Few(slots) => slots,
            Self::Many(slots) => slots,
        }
    }
}

/// The blocks of one key, as a decision reads them: all of them, borrowed, or those of some banks.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack of one operation")]
pub(crate) enum Shown<'a> {
    All(&'a Blocks<'a>),
    Part(Blocks<'a>),
}

impl<'a> AsRef<Blocks<'a>> for Shown<'a> {
    fn as_ref(&self) -> &Blocks<'a> {
        match self {
            Self::All(blocks) => blocks,
            Self::Part(blocks) => blocks,
        }
    }
}

impl Locate for Shown<'_> {
    type Located<'b>
        = Shown<'b>
    where
        Self: 'b;

    fn locate(&self, mask: BankMask, _: u64) -> Shown<'_> {
        let blocks = self.as_ref();
        if matches!(blocks, Blocks::One(..)) {
            return Shown::All(blocks);
        }
        let mut among = blocks.iter().filter(|(slot, _)| mask >> slot & 1 != 0);
        let (first, second) = (among.next(), among.next());
        if let (Some((slot, block)), None) = (first, second) {
            return Shown::Part(Blocks::One(slot, *block));
        }
        let mut some = Blocks::below((BankMask::BITS - mask.leading_zeros()) as usize);
        for (slot, block) in first.into_iter().chain(second).chain(among) {
            some.set(slot, *block);
        }
        Shown::Part(some)
    }
}

impl Overlay {
    /// Creates the overlay of a batch without records, on these banks.
    pub(crate) fn new(layout: Layout, banks: Arc<BankSet>) -> Self {
        let (changed, changes) = (HashMap::default(), Vec::new());
        Self { layout, banks, imagined: Vec::new(), changed, changes, copied: 0 }
    }

    /// Makes room for the changes of this many records.
    pub(crate) fn reserve(&mut self, records: usize) {
        let blocks: u64 = self.banks.iter().map(|(_, bank)| bank.blocks()).sum();
        self.changed.reserve(records.min(usize::try_from(blocks).unwrap_or(records)));
        self.changes.reserve(records);
    }

    /// Opens a bank, which is imagined until somebody allocates it.
    pub(crate) fn open(&mut self, slot: usize, id: u32, geometry: Geometry) {
        self.imagined.push(Imagined { slot, id, geometry });
    }

    /// Closes the bank in a slot.
    pub(crate) fn close(&mut self, slot: usize) {
        self.imagined.retain(|bank| bank.slot != slot);
        if self.banks.get(slot).is_some() {
            self.banks = Arc::new(self.banks.with(slot, None));
        }
    }

    /// Returns the number of slots up to the last that has a bank.
    fn slots(&self) -> usize {
        let imagined = self.imagined.iter().map(|bank| bank.slot + 1).max().unwrap_or(0);
        self.banks.slots().max(imagined)
    }

    /// Calls `visit` with each of a key's blocks: its slot, its key, and the geometry of its bank
    /// if that is only imagined.
    #[inline]
    fn each(&self, hash: u64, mut visit: impl FnMut(usize, BlockKey, Option<Geometry>)) {
        for (slot, bank) in self.banks.iter() {
            visit(slot, (bank.id(), bank.block_of(hash).1.number), None);
        }
        for bank in &self.imagined {
            let number = self.layout.block_of(bank.geometry, hash) as u64;
            visit(bank.slot, (bank.id, number), Some(bank.geometry));
        }
    }

    /// Reads a key's blocks as the batch has left them, if `shows`; otherwise as they are in the
    /// image. `read` may see blocks in the middle of a change, and is then called again. `records`
    /// are those of the batch.
    pub(crate) fn read<T>(
        &mut self,
        (kind, state): (&dyn Kind, &State<'_>),
        (hash, shows): (u64, bool),
        records: &[Record],
        access: BlockAccess<'_>,
        read: impl Fn(&Blocks<'_>) -> T,
    ) -> Result<T> {
        if !shows || (self.changed.is_empty() && self.imagined.is_empty()) {
            return access.read(&self.banks, hash, read);
        }
        self.show(kind, state, hash, records, access)?;
        let overlay = &*self;
        access.read(&overlay.banks, hash, |blocks| read(&overlay.shown(blocks, hash)))
    }

    /// Returns a key's blocks, copies in the place of those that have been copied.
    fn shown<'a>(&'a self, blocks: &Blocks<'a>, hash: u64) -> Blocks<'a> {
        let copy = |key| self.changed.get(&key).and_then(|changed| changed.copy.as_ref());
        if let (Blocks::One(0, block), Some(bank), true) =
            (blocks, self.banks.get(0), self.imagined.is_empty())
        {
            let copy = copy((bank.id(), block.number));
            return Blocks::One(0, copy.map_or(*block, |copy| copy.block()));
        }
        let mut shown = Blocks::below(self.slots());
        self.each(hash, |slot, key, _| {
            let copy = copy(key).map(|copy| copy.block());
            if let Some(block) = copy.or_else(|| blocks.get(slot).copied()) {
                shown.set(slot, block);
            }
        });
        shown
    }

    /// Copies those of a key's blocks that the batch has changed, unless they are copied already.
    /// All of them are copied together, so that none of them is discarded before it is read.
    fn show(
        &mut self,
        kind: &dyn Kind,
        state: &State<'_>,
        hash: u64,
        records: &[Record],
        access: BlockAccess<'_>,
    ) -> Result<()> {
        if self.copied >= MOST_COPIED {
            self.discard_copies();
        }
        let mut wanted = BySlot::from_fn(self.slots(), |_| None);
        let wanted = wanted.as_mut();
        let mut is_wanted = false;
        self.each(hash, |slot, key, imagined| {
            let changed = self.changed.get(&key);
            if changed.map_or(imagined.is_some(), |changed| changed.copy.is_none()) {
                (wanted[slot], is_wanted) = (Some((key, imagined)), true);
            }
        });
        if !is_wanted {
            return Ok(());
        }
        let of_image = |slot: usize| matches!(wanted[slot], Some((_, None)));
        let mut copies = access.read(&self.banks, hash, |blocks| {
            let copy = |slot| Some(BlockCopy::whole(spare(), kind, *blocks.get(slot)?));
            BySlot::from_fn(wanted.len(), |slot| if of_image(slot) { copy(slot) } else { None })
        })?;
        for ((slot, wanted), copy) in wanted.iter().enumerate().zip(copies.as_mut()) {
            let Some((key, imagined)) = *wanted else { continue };
            let zero = imagined.map(|geometry| BlockCopy::zero(self.layout, geometry, key.1));
            if let Some(copy) = copy.take().or(zero) {
                self.apply_changes(kind, state, (slot, key), &copy, records);
                self.keep(key, copy);
            }
        }
        Ok(())
    }

    /// Applies the changes of a block to a copy of its words in the image.
    fn apply_changes(
        &self,
        kind: &dyn Kind,
        state: &State<'_>,
        (slot, key): (usize, BlockKey),
        copy: &BlockCopy,
        all: &[Record],
    ) {
        let at = |index: u32| self.changes.get(index as usize);
        let last = self.changed.get(&key).and_then(|changed| at(changed.last));
        let mut changes: Vec<u32> = iter::successors(last, |change| at(change.before))
            .map(|change| change.record)
            .collect();
        changes.reverse();
        let records = changes.into_iter().filter_map(|record| all.get(record as usize));
        for operation in records.filter_map(|record| records::operation(kind, record)) {
            change(kind, state, slot, copy, &operation);
        }
    }

    fn discard_copies(&mut self) {
        let copies = self.changed.values_mut().filter_map(|changed| changed.copy.take());
        copies.for_each(|copy| discard(*copy));
        self.copied = 0;
    }

    fn keep(&mut self, key: BlockKey, copy: BlockCopy) {
        self.copied += mem::size_of_val(copy.words());
        let changed = self.changed.entry(key).or_insert(Changed { last: NONE, copy: None });
        changed.copy = Some(Box::new(copy));
    }

    /// Adds the change that the record of this index makes to the key's blocks in the banks of
    /// `mask`.
    pub(crate) fn add(
        &mut self,
        (kind, state): (&dyn Kind, &State<'_>),
        mask: BankMask,
        operation: &Operation,
        record: usize,
    ) {
        let mut keys = BySlot::from_fn(self.slots(), |_| None);
        let keys = keys.as_mut();
        self.each(operation.hash, |slot, key, _| {
            keys[slot] = Some(key).filter(|_| mask >> slot & 1 != 0);
        });
        for (slot, key) in keys.iter().enumerate() {
            let Some(key) = *key else { continue };
            let changed = self.changed.entry(key).or_insert(Changed { last: NONE, copy: None });
            let before = mem::replace(&mut changed.last, self.changes.len() as u32);
            self.changes.push(Change { record: record as u32, before });
            if let Some(copy) = &changed.copy {
                change(kind, state, slot, copy, operation);
            }
        }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        self.discard_copies();
    }
}

/// Applies an operation to a copy of one of the key's blocks.
fn change(
    kind: &dyn Kind,
    state: &State<'_>,
    slot: usize,
    copy: &BlockCopy,
    operation: &Operation,
) {
    records::change(kind, state, &Blocks::One(slot, copy.block()), operation);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::wal::Op;
    use crate::{Bloom, Clock, Filter, Fingerprint, Options, Timestamp};
    use ebbtide_core::block::{Block, load};
    use std::time::Duration;

    #[test]
    fn copies_take_at_most_64_mib_however_many_blocks_a_batch_changes() {
        let options = Options::new().block_bytes(64 << 10).clock(Clock::stream());
        let spec = Bloom::capacity(60_000_000).fpr(0.001);
        let filter = Filter::create_on(Arc::new(Memory::new()), spec, options.background(false));
        let filter = filter.expect("a filter");
        let (shared, mut records) = (&filter.engine().shared, Vec::new());
        let (image, kind) = (&shared.image, shared.kind());
        let state_block = image.header().state_block();
        let words = state_block.words_of(state_block.version());
        let state = State::new(&words);
        let mut overlay = Overlay::new(image.layout(), image.keep_banks());
        let mut most = 0;
        for number in 0..5000 {
            let record = Record { payload: mix(number), ..Record::new(Op::Insert) };
            let operation = records::operation(kind, &record).expect("an insert");
            let (of, mask) = ((kind, &state), kind.touches(&state, operation.step));
            let read =
                overlay.read(of, (record.payload, true), &records, BlockAccess::Held, |_| ());
            read.expect("an answer");
            overlay.add(of, mask, &operation, records.len());
            records.push(record);
            let copies = overlay.changed.values().filter_map(|changed| changed.copy.as_ref());
            let bytes: usize = copies.map(|copy| mem::size_of_val(copy.words())).sum();
            // And at most those of one key, which has one block.
            assert!(bytes < MOST_COPIED + (65 << 10), "{bytes} bytes after {number} inserts");
            most = most.max(bytes);
        }
        assert!(most > MOST_COPIED / 2 && overlay.changed.len() > 1200, "{most}");
    }

    #[test]
    fn all_blocks_of_a_key_show_its_changes_also_when_copies_are_discarded() {
        let options = Options::new().clock(Clock::stream()).stripes(1).background(false);
        let spec = Fingerprint::window(Duration::from_secs(600));
        let filter = Filter::create_on(Arc::new(Memory::new()), spec, options).expect("a filter");
        let shared = &filter.engine().shared;
        let (image, kind) = (&shared.image, shared.kind());
        let time = 1 << 40;
        for key in 0..20_000_u64 {
            let call = filter.call().time(Timestamp::from_unix_micros(time + key));
            call.insert(key.to_le_bytes()).expect("an insert");
        }
        let state_block = image.header().state_block();
        let words = state_block.words_of(state_block.version());
        let state = State::new(&words);
        let payload = mix(77);
        let of_bank = |since| Record { payload, step: since, time, ..Record::new(Op::Insert) };
        let records: Vec<_> = state.banks().map(|bank| of_bank(bank.since)).collect();
        assert!(records.len() > 1, "a burst takes several banks");
        let read = |blocks: &Blocks<'_>| {
            let sum = |block: &Block<'_>| block.cells.iter().map(load).fold(0, u64::wrapping_add);
            blocks.iter().map(|(_, block)| sum(block)).collect::<Vec<_>>()
        };
        let of = (kind, &state);
        for copied in (MOST_COPIED - (70 << 10)..=MOST_COPIED).step_by(512) {
            let mut overlay = Overlay::new(image.layout(), image.keep_banks());
            for (number, record) in records.iter().enumerate() {
                let operation = records::operation(kind, record).expect("an insert");
                let mask = kind.touches(&state, operation.step);
                overlay.add(of, mask, &operation, number);
            }
            overlay.copied = copied;
            let mut blocks = |shows| {
                let key = (payload, shows);
                overlay.read(of, key, &records, BlockAccess::Held, read).expect("an answer")
            };
            let (before, after) = (blocks(false), blocks(true));
            let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
            assert_eq!(changed.count(), records.len(), "{copied}: {before:?} {after:?}");
        }
    }
}
