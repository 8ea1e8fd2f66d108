//! The records of a batch, decided before any of them is applied.
//!
//! The records are those that the operations would write one after the other, and the answers those
//! that the operations would get. Sums, latest time, clock and filter-wide state are therefore
//! private copies, which count up with each record; and so are blocks that earlier records change.
//!
//! Records are staged while a batch is filled, without a lock, or under its stripes at the commit.
//! Nothing is allocated before all of them are staged: a bank that an event opens is imagined until
//! then.

use crate::engine::overlay::{Access, Overlay, Shown};
use crate::engine::time::{ClockCopy, Stamp};
use crate::engine::write::Writer;
use crate::error::{Error, Result};
use crate::image::BankSet;
use crate::image::shared::Banks;
use crate::sync::AtomicU64;
use crate::wal::Record;
use ebbtide_core::block::Blocks;
use ebbtide_core::event;
use ebbtide_core::kind::parts::parts;
use ebbtide_core::kind::plan::{Locate, decide};
use ebbtide_core::kind::{
    BankMask, Change, Checked, Decision, Event, Kind, Micros, Moment, Operation, Precondition,
    Request, State, Totals, WritePlan, records,
};
use std::sync::Arc;

/// An operation of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchOperation {
    pub(crate) change: Change,
    pub(crate) hash: u64,
    pub(crate) weight: u64,
    /// The operation's time, if it is not the clock's.
    pub(crate) time: Option<Micros>,
    /// The [reading](super::time::Time::read_clock) of the clock when it was added.
    pub(crate) read: Micros,
    /// Whether its key was answered as new, which must still be true at the commit.
    pub(crate) is_new: bool,
}

/// An operation that was staged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Added {
    /// The answer of its precondition.
    pub(crate) checked: Checked,
    /// Whether it leaves records.
    pub(crate) is_written: bool,
    /// Whether its own time is too late.
    pub(crate) is_late: bool,
    /// Its time.
    pub(crate) stamp: Stamp,
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

/// Who stages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host<'w> {
    pub(crate) writer: &'w Writer,
    pub(crate) access: Access<'w>,
    /// Whether stripe 0 is held.
    pub(crate) holds_events: bool,
}

/// The room that a block of a kind that grows needs for a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// The block's number.
    pub(crate) block: u64,
    /// Its room with the record, in words.
    pub(crate) words: usize,
    /// Whether that is more than it has now.
    pub(crate) grows: bool,
}

/// A bank that an event of the batch opens, or closes.
#[derive(Debug, Clone, Copy)]
struct BankChange {
    /// The first record that it concerns.
    from: usize,
    slot: usize,
    opens: Option<Event>,
}

/// What records need beside the log: see [`Staging::allocate`].
#[derive(Debug)]
pub(crate) struct Allocated {
    /// The banks, from these records on.
    pub(crate) banks: Vec<(usize, Arc<BankSet>)>,
    /// The rooms of blocks that grow.
    pub(crate) rooms: Vec<Room>,
}

/// What the records are decided on, beside the blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Basis {
    /// The version of the state block.
    version: u64,
    totals: Totals,
    /// The latest time, as stripes store it.
    latest: u64,
    /// The time that stripe 0 has recorded.
    recorded: Micros,
}

impl Basis {
    /// Reads the basis now, except for the version of the state block.
    fn read(writer: &Writer, version: u64) -> Self {
        let header = writer.shared.image.header();
        let recorded = header.stripe(0).time() >> 1;
        let (totals, latest) = (header.counters().sum(), header.time().read());
        Self { version, totals, latest, recorded }
    }
}

/// What a decision about an operation leads to.
struct Decided {
    plan: WritePlan,
    /// The operation and its record, unless an event must come first.
    written: Option<(Operation, Record)>,
    room: Option<Room>,
}

/// The records of a batch, and what they are decided on.
#[derive(Debug)]
pub(crate) struct Staging {
    /// Whether records depend on blocks.
    depends: bool,
    /// Whether there are questions.
    asks: bool,
    /// What it began with.
    basis: Basis,
    /// Whether all of it was decided on this basis.
    is_sound: bool,
    clock: ClockCopy,
    /// The banks that it began with.
    banks: Arc<BankSet>,
    /// The filter-wide state, and the blocks.
    state: Box<[AtomicU64]>,
    overlay: Overlay,
    totals: Totals,
    latest: u64,
    recorded: Micros,
    pub(crate) records: Vec<Record>,
    /// Whether some of them are events.
    pub(crate) has_events: bool,
    bank_changes: Vec<BankChange>,
    rooms: Vec<Room>,
    /// Operations that are too late.
    pub(crate) refused: usize,
}

impl Staging {
    /// Begins with the filter as it is now. `asks` allows questions, also later ones.
    ///
    /// # Errors
    /// [`Error::Io`] if a bank cannot be mapped.
    pub(crate) fn new(writer: &Writer, asks: bool) -> Result<Self> {
        let shared = &writer.shared;
        let (kind, image) = (&*shared.meta.kind, &shared.image);
        let state_block = image.header().state_block();
        loop {
            // Before the state: see `Writer::basis`.
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
            let basis = Basis { recorded, ..Basis::read(writer, version) };
            let clock = writer.time.copy();
            if !state_block.unchanged(version) {
                continue;
            }
            return Ok(Self {
                depends: kind.growth().is_some() || (!shared.weighs && kind.measures()),
                asks,
                basis,
                is_sound: true,
                clock,
                state: words,
                overlay: Overlay::new(image.layout(), banks.clone()),
                banks,
                totals: basis.totals,
                latest: basis.latest,
                recorded: basis.recorded,
                records: Vec::new(),
                has_events: false,
                bank_changes: Vec::new(),
                rooms: Vec::new(),
                refused: 0,
            });
        }
    }

    /// Returns whether blocks are read.
    pub(crate) fn reads_blocks(&self) -> bool {
        self.asks || self.depends
    }

    /// Returns what the clock's base must be raised to when the records are written.
    pub(crate) fn raised(&self) -> Option<i64> {
        self.clock.raised()
    }

    /// Makes room for the records of this many operations.
    pub(crate) fn reserve(&mut self, operations: usize) {
        self.records.reserve(operations);
        if self.reads_blocks() {
            self.overlay.reserve(operations);
        }
    }

    /// Returns whether the records are those that the operations would write now. The caller holds
    /// the stripes of all keys, which no record of another caller has changed.
    pub(crate) fn still_holds(&self, writer: &Writer) -> bool {
        self.is_sound && !self.is_behind(writer)
    }

    /// Allocates the banks and the rooms that the records need. The caller holds the stripes of all
    /// keys, and stripe 0 if there are events.
    ///
    /// # Errors
    /// [`Error::Io`], including a full disk: the filter is unchanged.
    pub(crate) fn allocate(&self, writer: &Writer) -> Result<Allocated> {
        let mut banks = vec![(0, self.banks.clone())];
        for change in &self.bank_changes {
            let opened = match &change.opens {
                Some(event) => writer.shared.image.prepare_ahead(event)?.map(Arc::new),
                None => None,
            };
            let before = &banks[banks.len() - 1].1;
            let after = before.with(change.slot, opened);
            banks.push((change.from, Arc::new(after)));
        }
        if let Some(bank) = self.banks.get(0) {
            for room in self.rooms.iter().filter(|room| room.grows) {
                bank.allocate(room.block, room.words)?;
            }
        }
        Ok(Allocated { banks, rooms: self.rooms.clone() })
    }

    /// Returns whether other callers have written since.
    pub(crate) fn is_behind(&self, writer: &Writer) -> bool {
        let version = writer.shared.image.header().state_block().version();
        self.basis != Basis::read(writer, version)
    }

    /// Counts what other callers have written since.
    pub(crate) fn adopt(&mut self, writer: &Writer) {
        let now = Basis::read(writer, self.basis.version);
        let (sum, before) = (now.totals, self.basis.totals);
        let more = |now: u64, before: u64| now.wrapping_sub(before);
        let inserts = more(sum.inserts, before.inserts);
        let new_bits = more(sum.new_bits, before.new_bits);
        self.totals.inserts = self.totals.inserts.wrapping_add(inserts);
        self.totals.new_bits = self.totals.new_bits.wrapping_add(new_bits);
        self.latest = self.latest.max(now.latest);
        self.recorded = self.recorded.max(now.recorded);
        (self.basis, self.is_sound) = (now, false);
    }

    /// Adds the records of an operation, if its precondition allows it.
    pub(crate) fn add(
        &mut self,
        host: Host<'_>,
        operation: &BatchOperation,
        precondition: Precondition,
    ) -> std::result::Result<Added, Unstaged> {
        let stamp = match operation.time {
            Some(time) => Stamp { time, stream: true },
            None => self.clock.stamp(operation.read, Stamp::from_word(self.latest)),
        };
        let mut parts = parts(&*host.writer.shared.meta.kind, operation.weight);
        let first = parts.next().unwrap_or(1);
        let added = self.add_part(host, operation, first, stamp, precondition)?;
        for weight in parts {
            // The precondition was checked for the whole weight.
            let is_written = added.is_written
                && self.add_part(host, operation, weight, stamp, Precondition::Nothing)?.is_written;
            if !is_written {
                break;
            }
        }
        Ok(added)
    }

    /// Adds the record of an operation, or of a part of one, and of the events before it.
    fn add_part(
        &mut self,
        host: Host<'_>,
        operation: &BatchOperation,
        weight: u32,
        stamp: Stamp,
        mut precondition: Precondition,
    ) -> std::result::Result<Added, Unstaged> {
        let is_timed = operation.time.is_some();
        let mut answer = None;
        loop {
            let now = stamp.time.max(self.latest >> 1);
            let moment = Moment { time: stamp.time, now, totals: self.totals };
            let Decided { plan, written, room } =
                self.decide(host, operation, weight, (stamp, &moment), precondition)?;
            if let Some(checked) = plan.unchanged(precondition) {
                let is_late = plan.decision == Decision::TooLate;
                if is_late && !is_timed && !stamp.stream {
                    return Err(Unstaged::Outdated);
                }
                return Ok(Added { checked, is_written: false, is_late, stamp });
            }
            // The answer is that of the first decision: before the events.
            let checked = *answer.get_or_insert(Checked::of(plan.present == Some(true)));
            precondition = Precondition::Nothing;
            if let Some((operation, record)) = written {
                self.write(host, plan.mask, &operation, record, room);
                return Ok(Added { checked, is_written: true, is_late: false, stamp });
            }
            if matches!(host.access, Access::Held) && !host.holds_events {
                return Err(Unstaged::NeedsEvents);
            }
            let (kind, layout) =
                (&*host.writer.shared.meta.kind, host.writer.shared.image.layout());
            let due = kind.due(&State::new(&self.state), layout, &moment);
            // Nothing else is due: the time is ahead of what stripe 0 has recorded.
            let time = || Event::Step { step: 0, time: stamp.time, word: 0 };
            self.event(host, &due.unwrap_or_else(time), stamp)?;
        }
    }

    /// Decides an operation, or a part of one, on the blocks as the records so far leave them.
    fn decide(
        &mut self,
        host: Host<'_>,
        operation: &BatchOperation,
        weight: u32,
        (stamp, moment): (Stamp, &Moment),
        precondition: Precondition,
    ) -> Result<Decided> {
        let shared = &host.writer.shared;
        let (kind, layout) = (&*shared.meta.kind, shared.image.layout());
        let BatchOperation { change, hash, time, .. } = *operation;
        let is_ahead =
            shared.grace < Micros::MAX && stamp.time > self.recorded.saturating_add(shared.grace);
        let request =
            Request { hash, weight: operation.weight, precondition, is_timed: time.is_some() };
        let state = State::new(&self.state);
        let shows = self.depends || precondition != Precondition::Nothing;
        let (key, records) = ((hash, shows), &self.records);
        self.overlay.read((kind, &state), key, records, host.access, |blocks| {
            let shown = Shown::All(blocks);
            let plan = decide((kind, true), &state, layout, moment, &request, &shown, |_| {});
            let mut decided = Decided { plan, written: None, room: None };
            let Decision::Insert { step } = plan.decision else { return decided };
            if plan.due || is_ahead || plan.unchanged(precondition).is_some() {
                return decided;
            }
            let operation = Operation { change, hash, step, time: stamp.time, weight };
            let located = shown.locate(plan.mask, hash);
            let blocks = located.as_ref();
            let record = records::of_operation(kind, &state, blocks, &operation, stamp.stream);
            decided.written = Some((operation, record));
            decided.room = room_for(kind, blocks, &operation);
            decided
        })
    }

    /// Adds the record of an operation.
    fn write(
        &mut self,
        host: Host<'_>,
        mask: BankMask,
        operation: &Operation,
        record: Record,
        room: Option<Room>,
    ) {
        let shared = &host.writer.shared;
        self.rooms.extend(room);
        if self.reads_blocks() {
            let state = State::new(&self.state);
            let kind = (&*shared.meta.kind, &state);
            self.overlay.add(kind, mask, operation, self.records.len());
        }
        let counts = records::counts(shared.weighs, &record);
        self.totals.inserts = self.totals.inserts.wrapping_add(counts.inserts);
        self.totals.new_bits = self.totals.new_bits.wrapping_add(counts.new_bits);
        self.pass(host, Stamp { time: record.time, stream: record.stream });
        self.records.push(record);
    }

    /// Adds the record of an event, and applies it to the private state.
    fn event(&mut self, host: Host<'_>, event: &Event, stamp: Stamp) -> Result<()> {
        let shared = &host.writer.shared;
        let (kind, image) = (&*shared.meta.kind, &shared.image);
        let mut record = event::to_record(event, stamp.stream);
        if record.time > stamp.time {
            // As in `Steps::apply_event`.
            record.stream = self.latest & 1 != 0;
        }
        let state = State::new(&self.state);
        let change = match *event {
            Event::OpenBank { id, geometry, .. } => {
                image.layout().check(geometry)?;
                let slot = state.free_slot().unwrap_or(0);
                self.overlay.open(slot, id, geometry);
                Some((slot, Some(*event)))
            }
            Event::CloseBank { id, .. } => {
                let closed = state.banks().find(|bank| bank.id == id);
                closed.map(|bank| {
                    self.overlay.close(bank.slot);
                    (bank.slot, None)
                })
            }
            Event::Step { .. } => None,
        };
        state.apply_banks(event);
        if let Some(events) = kind.events() {
            events.apply(&state, image.layout(), event);
        }
        self.has_events = true;
        self.records.push(record);
        if let Some((slot, opens)) = change {
            self.bank_changes.push(BankChange { from: self.records.len(), slot, opens });
        }
        self.recorded = self.recorded.max(record.time);
        self.pass(host, Stamp { time: record.time, stream: record.stream });
        Ok(())
    }

    /// Advances the latest time.
    fn pass(&mut self, host: Host<'_>, stamp: Stamp) {
        if host.writer.shared.uses_time {
            self.latest = self.latest.max(stamp.word());
        }
    }
}

/// Returns the room that a block needs for an operation, if blocks of the kind grow.
fn room_for(kind: &dyn Kind, blocks: &Blocks<'_>, operation: &Operation) -> Option<Room> {
    let (growth, block) = (kind.growth()?, blocks.get(0)?);
    let (has, needs) = (growth.room_now(block), growth.room(block, operation));
    Some(Room { block: block.number, words: needs.max(has), grows: needs > has })
}
