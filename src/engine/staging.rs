//! The records of a batch, decided before any of them is applied.
//!
//! The records are those that the operations would write one after the other. Sums, latest time and
//! filter-wide state are therefore private copies, which count up with each record; and so are
//! blocks on which a later record depends.

use crate::engine::time::{Reading, Stamp};
use crate::engine::write::Writer;
use crate::error::{Error, Result};
use crate::image::BankSet;
use crate::image::shared::Banks;
use crate::sync::AtomicU64;
use crate::wal::Record;
use ebbtide_core::block::{Block, Blocks, Layout, MAX_BANKS};
use ebbtide_core::event;
use ebbtide_core::hash::mix;
use ebbtide_core::kind::copy::BlockCopy;
use ebbtide_core::kind::plan::{Locate, decide};
use ebbtide_core::kind::{
    BankMask, Change, Decision, Event, Kind, Micros, Moment, Operation, Precondition, Request,
    State, Totals, parts, records,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::{iter, mem};

/// An operation of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchOperation {
    pub(crate) change: Change,
    pub(crate) hash: u64,
    pub(crate) weight: u64,
    /// The operation's time, if it is not the clock's.
    pub(crate) time: Option<Micros>,
    /// What was answered when it was added.
    pub(crate) answered: Answered,
}

/// An answer that a commit may have to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Nothing that may have changed since.
    Settled,
    /// The key was new, at this LSN of its stripe.
    NewAt(u64),
}

/// Why nothing was staged.
#[derive(Debug)]
pub(crate) enum Unstaged {
    /// An event is due, and stripe 0 is not held.
    NeedsEvents,
    /// By the clock's time, which was read before this process was stopped, an operation is too
    /// late.
    Outdated,
    Failed(Error),
}

impl From<Error> for Unstaged {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The records of a batch.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) records: Vec<Record>,
    /// The banks, from these records on.
    pub(crate) banks: Vec<(usize, Arc<BankSet>)>,
    /// Blocks with more room than they use, by number: the room.
    pub(crate) rooms: Vec<(u64, usize)>,
    /// Whether the blocks were read.
    pub(crate) read_blocks: bool,
    /// Operations that are too late.
    pub(crate) refused: usize,
    /// Where the clock must continue, if times that came with keys are ahead of it.
    pub(crate) clock_from: Option<Micros>,
}

/// A block that a batch changes.
enum Touched {
    /// By operations that its words do not show: the number of them, and the index of the last one
    /// in [`Overlay::unshown`].
    Changed { operations: usize, last: usize },
    /// A copy as the operations leave it.
    Copied(Box<BlockCopy>),
}

/// An operation that the words of a block do not show.
struct Unshown {
    operation: Operation,
    /// The index of the one before it on the same block, if there is one.
    before: Option<usize>,
}

/// Blocks of at most this many words are copied when a batch reaches them for the second time.
const COPIED_AT_ONCE: usize = 512;

/// The further words of a larger block for each change that need not show.
const WORDS_PER_CHANGE: usize = 8;

/// Returns how many changes of a batch the words of a block need not show to its later records. To
/// copy a large block for a few keys would take longer than to insert them; so that few keys do not
/// count the bits of one another, which changes the sum of new bits by a few percent at most.
fn spared(block: &Block<'_>) -> usize {
    block.cells.len().saturating_sub(COPIED_AT_ONCE) / WORDS_PER_CHANGE
}

/// Applies an operation to a copy of one of the key's blocks.
fn change(
    kind: &dyn Kind,
    state: &State<'_>,
    slot: usize,
    copy: &BlockCopy,
    operation: &Operation,
) {
    let mut blocks = [None; MAX_BANKS];
    blocks[slot] = Some(copy.block());
    records::change(kind, state, &Blocks::Many(blocks), operation);
}

/// The number of a bank, and a block's number in it.
type BlockKey = (u32, u64);

/// Blocks as a batch has left them so far.
struct Overlay {
    banks: Arc<BankSet>,
    /// Whether every change must be shown: the room of a block depends on it.
    is_exact: bool,
    touched: HashMap<BlockKey, Touched, BuildHasherDefault<Mixed>>,
    /// The operations of all [`Touched::Changed`].
    unshown: Vec<Unshown>,
    /// The number of copies.
    copies: usize,
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

/// Calls `visit` with each of a key's blocks: its slot, the block, and the key of the block.
#[inline]
fn each<'a>(
    banks: &BankSet,
    blocks: &Blocks<'a>,
    mut visit: impl FnMut(usize, &Block<'a>, BlockKey),
) {
    let slots = if let Blocks::One(_) = blocks { 1 } else { MAX_BANKS };
    for slot in 0..slots {
        if let (Some(block), Some(bank)) = (blocks.get(slot), banks.get(slot)) {
            visit(slot, block, (bank.id(), block.number));
        }
    }
}

impl Overlay {
    /// Copies those of the key's blocks whose earlier changes a record must see.
    fn settle(&mut self, kind: &dyn Kind, state: &State<'_>, mask: BankMask, hash: u64) {
        let located = self.banks.locate(mask, hash);
        each(&self.banks, &located.blocks, |slot, block, key| {
            let spared = if self.is_exact { 0 } else { spared(block) };
            if let Some(touched) = self.touched.get_mut(&key) {
                self.copies +=
                    usize::from(touched.show(kind, state, slot, block, spared, &self.unshown));
            }
        });
    }

    /// Adds an operation. `record` makes its record of the key's blocks, as the operations before
    /// it have left them.
    fn add(
        &mut self,
        kind: &dyn Kind,
        state: &State<'_>,
        mask: BankMask,
        added: &Operation,
        record: impl FnOnce(&Blocks<'_>) -> Result<Record>,
    ) -> Result<Record> {
        let located = self.banks.locate(mask, added.hash);
        let mut is_copied = false;
        each(&self.banks, &located.blocks, |slot, block, key| {
            let index = self.unshown.len();
            let before = match self.touched.entry(key) {
                Entry::Occupied(entry) => {
                    let touched = entry.into_mut();
                    let spared = if self.is_exact { 0 } else { spared(block) };
                    let is_new = touched.show(kind, state, slot, block, spared, &self.unshown);
                    self.copies += usize::from(is_new);
                    match touched {
                        Touched::Copied(_) => {
                            is_copied = true;
                            return;
                        }
                        Touched::Changed { operations, last } => {
                            *operations += 1;
                            Some(mem::replace(last, index))
                        }
                    }
                }
                Entry::Vacant(untouched) => {
                    untouched.insert(Touched::Changed { operations: 1, last: index });
                    None
                }
            };
            self.unshown.push(Unshown { operation: *added, before });
        });
        if !is_copied {
            return record(&located.blocks);
        }
        let record = record(&self.with_copies(&located.blocks))?;
        each(&self.banks, &located.blocks, |slot, _, key| {
            if let Some(Touched::Copied(copy)) = self.touched.get(&key) {
                change(kind, state, slot, copy, added);
            }
        });
        Ok(record)
    }

    /// Returns a key's blocks, copies in the place of those that have been copied.
    fn with_copies<'a>(&'a self, blocks: &Blocks<'a>) -> Blocks<'a> {
        let mut shown = [None; MAX_BANKS];
        each(&self.banks, blocks, |slot, block, key| {
            shown[slot] = Some(match self.touched.get(&key) {
                Some(Touched::Copied(copy)) => copy.block(),
                _ => *block,
            });
        });
        Blocks::Many(shown)
    }
}

impl Touched {
    /// Replaces more than `spared` changes of a block by a copy that shows them. Returns whether it
    /// did.
    fn show(
        &mut self,
        kind: &dyn Kind,
        state: &State<'_>,
        slot: usize,
        block: &Block<'_>,
        spared: usize,
        unshown: &[Unshown],
    ) -> bool {
        let Self::Changed { operations, last } = *self else { return false };
        if operations <= spared {
            return false;
        }
        let before = |at: &usize| unshown[*at].before;
        let mut done: Vec<usize> = iter::successors(Some(last), before).collect();
        done.reverse();
        let copy = BlockCopy::whole(block);
        for at in done {
            change(kind, state, slot, &copy, &unshown[at].operation);
        }
        *self = Self::Copied(Box::new(copy));
        true
    }
}

/// The blocks of one key in an overlay.
struct Overlaid<'a>(Blocks<'a>);

impl<'a> AsRef<Blocks<'a>> for Overlaid<'a> {
    fn as_ref(&self) -> &Blocks<'a> {
        &self.0
    }
}

impl Locate for Overlay {
    type Located<'a> = Overlaid<'a>;

    fn locate(&self, mask: BankMask, hash: u64) -> Overlaid<'_> {
        let located = self.banks.locate(mask, hash);
        if self.copies == 0 {
            return Overlaid(located.blocks);
        }
        Overlaid(self.with_copies(&located.blocks))
    }
}

/// Stages the records of a batch.
pub(crate) struct Staging<'a> {
    writer: &'a Writer,
    kind: &'a dyn Kind,
    layout: Layout,
    /// Whether the caller holds stripe 0.
    holds_events: bool,
    /// Whether records depend on blocks.
    pub(crate) depends: bool,
    /// The clock's time.
    clock: Reading,
    /// The filter-wide state, its banks and its blocks.
    state: Box<[AtomicU64]>,
    overlay: Overlay,
    totals: Totals,
    /// The latest time, as stripes store it.
    latest: u64,
    /// The time that stripe 0 has recorded.
    recorded: Micros,
    staged: Staged,
}

impl<'a> Staging<'a> {
    /// Begins a batch, for a caller that holds the stripes of all its keys.
    ///
    /// # Errors
    /// [`Error::Io`] if a bank cannot be mapped.
    pub(crate) fn new(writer: &'a Writer, clock: Reading, holds_events: bool) -> Result<Self> {
        let shared = &writer.shared;
        let (kind, image) = (&*shared.meta.kind, &shared.image);
        let state_block = image.header().state_block();
        loop {
            // In this order: see `Writer::plan`.
            let recorded = image.header().stripe(0).time() >> 1;
            let version = state_block.version();
            let words = state_block.words_of(version);
            let Some(banks) = image.banks_of(&State::new(&words), version) else {
                image.follow()?;
                continue;
            };
            let banks = match banks {
                Banks::Current(banks) => Arc::clone(&banks),
                Banks::Fixed(_) => image.keep_banks(),
            };
            if !state_block.unchanged(version) {
                continue;
            }
            let header = image.header();
            let staged = Staged {
                records: Vec::new(),
                banks: vec![(0, banks.clone())],
                rooms: Vec::new(),
                read_blocks: false,
                refused: 0,
                clock_from: None,
            };
            return Ok(Self {
                writer,
                kind,
                layout: image.layout(),
                holds_events,
                depends: kind.growth().is_some() || (!shared.weighs && kind.measures()),
                clock,
                state: words,
                overlay: Overlay {
                    banks,
                    is_exact: kind.growth().is_some(),
                    touched: HashMap::default(),
                    unshown: Vec::new(),
                    copies: 0,
                },
                totals: header.counters().sum(),
                latest: header.time().read(),
                recorded,
                staged,
            });
        }
    }

    /// Adds the records of an operation.
    pub(crate) fn add(&mut self, operation: &BatchOperation) -> std::result::Result<(), Unstaged> {
        for weight in parts(self.kind, operation.weight) {
            if !self.add_part(operation, weight)? {
                self.staged.refused += 1;
                break;
            }
        }
        Ok(())
    }

    /// Adds the record of an operation, or of a part of one, and of the events before it. Returns
    /// false if it is too late.
    fn add_part(
        &mut self,
        operation: &BatchOperation,
        weight: u32,
    ) -> std::result::Result<bool, Unstaged> {
        let BatchOperation { change, hash, time, .. } = *operation;
        let stamp = match time {
            Some(_) => self.writer.time.stamp(time)?,
            None => self.clock.after(Stamp::from_word(self.latest)),
        };
        let precondition = Precondition::Nothing;
        let is_timed = time.is_some();
        let request = Request { hash, weight: weight.into(), precondition, is_timed };
        let (step, mask) = loop {
            let now = stamp.time.max(self.latest >> 1);
            let moment = Moment { time: stamp.time, now, totals: self.totals };
            let grace = self.writer.shared.grace;
            let is_ahead = grace < Micros::MAX && stamp.time > self.recorded.saturating_add(grace);
            if self.depends && stamp.time < now {
                let (state, overlay) = (State::new(&self.state), &mut self.overlay);
                overlay.settle(self.kind, &state, BankMask::MAX, hash);
            }
            let state = State::new(&self.state);
            let (kind, layout) = ((self.kind, is_ahead), self.layout);
            let plan = decide(kind, &state, layout, &moment, &request, &self.overlay, |_| {});
            let Decision::Insert { step } = plan.decision else {
                if time.is_none() && !stamp.stream {
                    return Err(Unstaged::Outdated);
                }
                return Ok(false);
            };
            if !plan.due && !is_ahead {
                break (step, plan.mask);
            }
            if !self.holds_events {
                return Err(Unstaged::NeedsEvents);
            }
            match self.kind.due(&state, layout, &moment) {
                Some(due) => self.event(&due, stamp)?,
                None if is_ahead => {
                    self.event(&Event::Step { step: 0, time: stamp.time, word: 0 }, stamp)?;
                }
                None => break (step, plan.mask),
            }
        };
        let time = stamp.time;
        self.operation(&Operation { change, hash, step, time, weight }, mask, stamp)?;
        Ok(true)
    }

    /// Adds the record of an operation.
    fn operation(&mut self, operation: &Operation, mask: BankMask, stamp: Stamp) -> Result<()> {
        let (kind, state) = (self.kind, State::new(&self.state));
        let record = |blocks: &Blocks<'_>| {
            records::of_operation(kind, &state, blocks, operation, stamp.stream)
        };
        let record = if !self.depends {
            record(&self.overlay.banks.locate(mask, operation.hash).blocks)
        } else if let (Some(growth), Some(bank)) = (kind.growth(), self.overlay.banks.get(0)) {
            let (bank, rooms) = (Arc::clone(bank), &mut self.staged.rooms);
            self.overlay.add(kind, &state, mask, operation, |blocks| {
                if let Some(block) = blocks.get(0) {
                    let (used, wanted) = (growth.room_now(block), growth.room(block, operation));
                    if wanted > used {
                        bank.allocate(block.number, wanted)?;
                    }
                    rooms.push((block.number, wanted.max(used)));
                }
                Ok(record(blocks))
            })?
        } else {
            self.overlay.add(kind, &state, mask, operation, |blocks| Ok(record(blocks)))?
        };
        let counts = records::counts(self.writer.shared.weighs, &record);
        self.totals.inserts = self.totals.inserts.wrapping_add(counts.inserts);
        self.totals.new_bits = self.totals.new_bits.wrapping_add(counts.new_bits);
        self.pass(stamp.word());
        self.staged.records.push(record);
        Ok(())
    }

    /// Adds the record of an event, and applies it to the private state.
    fn event(&mut self, event: &Event, stamp: Stamp) -> Result<()> {
        let mut record = event::to_record(event, stamp.stream);
        if record.time > stamp.time {
            // As in `Steps::apply_event`.
            record.stream = self.latest & 1 != 0;
        }
        let state = State::new(&self.state);
        let opened = self.writer.shared.image.prepare_ahead(event)?;
        let banks = match *event {
            Event::OpenBank { .. } => {
                let slot = state.free_slot().unwrap_or(0);
                Some(self.overlay.banks.with(slot, opened.map(Arc::new)))
            }
            Event::CloseBank { id, .. } => state
                .banks()
                .find(|bank| bank.id == id)
                .map(|bank| self.overlay.banks.with(bank.slot, None)),
            Event::Step { .. } => None,
        };
        state.apply_banks(event);
        if let Some(events) = self.kind.events() {
            events.apply(&state, self.layout, event);
        }
        self.staged.records.push(record);
        if let Some(banks) = banks {
            self.overlay.banks = Arc::new(banks);
            self.staged.banks.push((self.staged.records.len(), self.overlay.banks.clone()));
        }
        self.recorded = self.recorded.max(record.time);
        self.pass(Stamp { time: record.time, stream: record.stream }.word());
        Ok(())
    }

    /// Advances the latest time.
    fn pass(&mut self, word: u64) {
        if self.writer.shared.uses_time {
            self.latest = self.latest.max(word);
        }
    }

    /// Makes room for the records of this many operations, and for this many others.
    pub(crate) fn reserve(&mut self, operations: usize, others: usize) {
        self.staged.records.reserve(operations + others);
        if self.depends {
            let blocks: u64 = self.overlay.banks.iter().map(|(_, bank)| bank.blocks()).sum();
            self.overlay.touched.reserve(operations.min(blocks as usize));
            self.overlay.unshown.reserve(operations);
        }
    }

    /// Returns what was staged.
    pub(crate) fn finish(self) -> Staged {
        Staged { clock_from: self.clock.moved_to(), read_blocks: self.depends, ..self.staged }
    }
}
