//! The records of a batch, decided before any of them is applied: a batch of the caller, a claim's
//! confirmation that needs an event or comes too late, or one operation whose weight takes several
//! records.
//!
//! The records and the answers are those of the operations one after the other. Staging therefore
//! works on private copies of sums, latest time, clock, filter-wide state and changed blocks, and
//! updates them after each record.
//!
//! A batch stages records while it is filled (without a lock), or at the commit (with all its
//! stripes). Nothing is allocated before the last record is staged: new banks exist only in the
//! overlay.

use crate::engine::batch::overlay::{BlockAccess, Overlay, Shown};
use crate::engine::time::clock_copy::{ClockCopy, When};
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::request::pass_count;
use crate::engine::write::writer::Writer;
use crate::error::{Error, Result};
use crate::image::BankSet;
use crate::image::mapped_banks::Banks;
use crate::primitives::AtomicU64;
use crate::wal::Record;
use ebbtide_core::block::Blocks;
use ebbtide_core::kind::decide::{Locate, decide, put_off};
use ebbtide_core::kind::events_first::{Performed, Recorder, perform};
use ebbtide_core::kind::{
    BankMask, Change, Decision, Estimate, Event, Kind, Micros, Moment, Operation, Precondition,
    Request, State, Totals, WritePlan, records,
};
use std::cell::Cell;
use std::sync::Arc;

/// An operation of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchOperation {
    pub(crate) change: Change,
    pub(crate) hash: u64,
    pub(crate) weight: u64,
    /// Its own time, or the [reading](crate::engine::time::filter_time::Time::read_clock) of the
    /// clock when it was added.
    pub(crate) when: When,
    /// Whether its key was answered as new, which must still be true at the commit.
    pub(crate) is_new: bool,
}

impl BatchOperation {
    /// Returns the operation under a precondition.
    pub(crate) fn under(&self, precondition: Precondition) -> Request {
        let Self { change, hash, weight, when, .. } = *self;
        Request { change, hash, weight, precondition, is_timed: matches!(when, When::Given(_)) }
    }
}

/// Why nothing was staged.
#[derive(Debug)]
pub(crate) enum Unstaged {
    /// An event must come first, and stripe 0 is not held.
    NeedsStripe0 {
        /// Whether the kind can do [without](ebbtide_core::kind::Events::step_without) the event.
        can_be_put_off: bool,
    },
    /// It must be staged anew: the process was stopped after it read the clock, so the time of an
    /// operation is outdated; or nothing is staged any more.
    Outdated,
    Failed(Error),
}

impl From<Error> for Unstaged {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ebbtide_core::error::Error> for Unstaged {
    fn from(error: ebbtide_core::error::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// What becomes of events that must come before an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventHandling {
    /// They are staged. Stripe 0 is held, or the records are staged again before they are written.
    Staged,
    /// Staging ends with [`Unstaged::NeedsStripe0`].
    Missing,
    /// Operations are staged without their due events if the kind allows it: a stalled process
    /// holds stripe 0.
    PutOff,
}

/// Who stages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host<'w> {
    pub(crate) writer: &'w Writer,
    pub(crate) access: BlockAccess<'w>,
    pub(crate) events: EventHandling,
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
    /// The index of the first record after that event.
    from: usize,
    slot: usize,
    opens: Option<Event>,
}

/// The memory that the records need, banks and rooms: see [`Staging::allocate`].
#[derive(Debug)]
pub(crate) struct Allocated {
    /// The banks, from these records on.
    pub(crate) banks: Vec<(usize, Arc<BankSet>)>,
    /// The rooms of blocks that grow.
    pub(crate) rooms: Vec<Room>,
}

/// The filter-wide values that the decisions used.
#[derive(Debug, Clone, Copy, PartialEq)]
struct StagedOn {
    /// The version of the state block.
    version: u64,
    totals: Totals,
    /// The latest time, as stripes store it.
    latest: u64,
    /// The time that stripe 0 has recorded.
    recorded: Micros,
}

impl StagedOn {
    /// Reads the present values, except for the version of the state block.
    fn read(writer: &Writer, version: u64) -> Self {
        let header = writer.shared.header();
        let recorded = writer.time.recorded_time();
        let (totals, latest) = (header.counters().sum(), header.time().read());
        Self { version, totals, latest, recorded }
    }
}

/// The record of an operation as it was decided last, and what it needs.
#[derive(Debug, Clone, Copy)]
struct Decided {
    record: Record,
    room: Option<Room>,
}

/// The records of a batch, and what they are decided on.
#[derive(Debug)]
pub(crate) struct Staging {
    /// Whether a record's content depends on the key's blocks.
    depends: bool,
    /// Whether the batch may contain queries.
    pub(crate) asks: bool,
    /// The filter-wide values when staging began, or at the last [`Staging::adopt`].
    basis: StagedOn,
    /// Whether all records were decided on `basis`.
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
    /// Starts staging on the current state. With `asks`, queries may be added at any time.
    ///
    /// # Errors
    /// [`Error::Io`] if a bank cannot be mapped.
    pub(crate) fn new(writer: &Writer, asks: bool) -> Result<Self> {
        let shared = &writer.shared;
        let (kind, image) = (shared.kind(), &shared.image);
        let state_block = image.header().state_block();
        loop {
            // Before the state: see `decide_and_apply::basis`.
            let recorded = writer.time.recorded_time();
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
            let basis = StagedOn { recorded, ..StagedOn::read(writer, version) };
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

    /// Returns whether the staged records are still valid. The caller holds the keys' stripes, and
    /// checks that their LSNs have not changed.
    pub(crate) fn still_holds(&self, writer: &Writer) -> bool {
        self.is_sound && !self.is_behind(writer)
    }

    /// Allocates the banks and the rooms that the records need. The caller holds the stripes of all
    /// keys, and stripe 0 if there are events.
    ///
    /// # Errors
    /// [`Error::Io`], including a full disk: the filter is unchanged.
    pub(crate) fn allocate(&self, writer: &Writer) -> Result<Allocated> {
        if !self.bank_changes.is_empty() {
            // Another filter's bank in this directory may have the same name.
            writer.shared.check_directory()?;
        }
        let mut banks = vec![(0, self.banks.clone())];
        for change in &self.bank_changes {
            let opened = match &change.opens {
                Some(event) => writer.shared.image.prepare(event)?.map(Arc::new),
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

    /// Returns whether the records need a bank or a room that is not allocated yet.
    pub(crate) fn needs_space(&self) -> bool {
        let opens = self.bank_changes.iter().any(|change| change.opens.is_some());
        opens || self.rooms.iter().any(|room| room.grows)
    }

    /// Returns whether sums, time or state differ from the basis: other callers have written since.
    pub(crate) fn is_behind(&self, writer: &Writer) -> bool {
        let version = writer.shared.header().state_block().version();
        self.basis != StagedOn::read(writer, version)
    }

    /// Returns whether the state block still has the version of the start.
    pub(crate) fn has_current_state(&self, writer: &Writer) -> bool {
        writer.shared.header().state_block().unchanged(self.basis.version)
    }

    /// Returns whether every bank of the start is closed: the filter was cleared, or a whole window
    /// has passed.
    pub(crate) fn has_no_current_bank(&self, writer: &Writer) -> bool {
        let mut current = writer.shared.header().state().banks();
        !current.any(|entry| self.banks.iter().any(|(_, bank)| bank.id() == entry.id))
    }

    /// Adds the inserts of other callers to the private sums, and follows their time. The records
    /// stop being exact.
    pub(crate) fn adopt(&mut self, writer: &Writer) {
        let now = StagedOn::read(writer, self.basis.version);
        self.clock.advance(writer.time.elapsed());
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

    /// Returns the time of an operation that comes next.
    pub(crate) fn stamp(&mut self, operation: &BatchOperation) -> Stamp {
        self.clock.stamp(operation.when, Stamp::from_word(self.latest))
    }

    /// Adds the records of an operation at this time, and of the events before it, if its
    /// precondition allows it. `count` receives the key's count, if the precondition reads it.
    pub(crate) fn add(
        &mut self,
        host: Host<'_>,
        request: &Request,
        stamp: Stamp,
        count: Option<&Cell<Option<Estimate>>>,
    ) -> std::result::Result<Performed, Unstaged> {
        let decided = None;
        let mut stager = Stager { staging: self, host, stamp, count, decided };
        let performed = perform(&mut stager, request, true)?;
        if performed.is_late && !request.is_timed && !stamp.stream {
            return Err(Unstaged::Outdated);
        }
        Ok(performed)
    }

    /// Adds the record of an operation.
    fn write(&mut self, host: Host<'_>, mask: BankMask, decided: &Decided) {
        let Decided { ref record, room } = *decided;
        let shared = &host.writer.shared;
        let kind = shared.kind();
        self.rooms.extend(room);
        if self.reads_blocks()
            && let Some(operation) = records::operation(kind, record)
        {
            let kind = (kind, &State::new(&self.state));
            self.overlay.add(kind, mask, &operation, self.records.len());
        }
        let counts = records::counts(shared.weighs, record);
        self.totals.inserts = self.totals.inserts.wrapping_add(counts.inserts);
        self.totals.new_bits = self.totals.new_bits.wrapping_add(counts.new_bits);
        self.advance_latest(host, Stamp { time: record.time, stream: record.stream });
        self.records.push(*record);
    }

    /// Adds the record of an event, and applies it to the private state.
    fn event(&mut self, host: Host<'_>, event: &Event, stamp: Stamp) -> Result<()> {
        let shared = &host.writer.shared;
        let (kind, image) = (shared.kind(), &shared.image);
        let record = records::of_event(event, stamp, Stamp::from_word(self.latest));
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
        self.advance_latest(host, Stamp { time: record.time, stream: record.stream });
        Ok(())
    }

    /// Advances the latest time.
    fn advance_latest(&mut self, host: Host<'_>, stamp: Stamp) {
        if host.writer.shared.uses_time {
            self.latest = self.latest.max(stamp.word());
        }
    }
}

/// One operation while it is staged.
struct Stager<'s, 'w> {
    staging: &'s mut Staging,
    host: Host<'w>,
    stamp: Stamp,
    count: Option<&'s Cell<Option<Estimate>>>,
    /// What was decided last; `None` if an event must come first.
    decided: Option<Decided>,
}

impl Stager<'_, '_> {
    fn moment(&self) -> Moment {
        let (time, totals) = (self.stamp.time, self.staging.totals);
        Moment { time, now: time.max(self.staging.latest >> 1), totals }
    }

    /// Returns whether the time must be recorded first: see [`Time::is_ahead`].
    fn is_ahead(&self) -> bool {
        self.host.writer.time.is_ahead_of(self.stamp.time, || self.staging.recorded)
    }

    /// Returns the step that could replace the due event, if the kind has one.
    fn replacing_step(&self) -> Option<u64> {
        let events = self.kind().events()?;
        events.step_without(&State::new(&self.staging.state), &self.moment())
    }

    /// Returns the step that replaces the due event if it is put off.
    fn step_if_put_off(&self) -> Option<u64> {
        if self.host.events == EventHandling::PutOff { self.replacing_step() } else { None }
    }

    /// Returns the event that must come before the operation.
    #[cold]
    fn next_event(&self, plan: &WritePlan) -> std::result::Result<Option<Event>, Unstaged> {
        if self.host.events != EventHandling::Staged {
            let can_be_put_off = plan.due && self.replacing_step().is_some();
            return Err(Unstaged::NeedsStripe0 { can_be_put_off });
        }
        let layout = self.host.writer.shared.layout();
        let due = self.kind().due(&State::new(&self.staging.state), layout, &self.moment());
        // If no event is due, only the time must be recorded.
        Ok(Some(due.unwrap_or(Event::time(self.stamp.time))))
    }
}

impl Recorder for Stager<'_, '_> {
    type Error = Unstaged;

    fn kind(&self) -> &dyn Kind {
        self.host.writer.shared.kind()
    }

    /// Decides on the blocks as the records so far leave them, and encodes the record.
    #[inline(always)]
    fn decide(
        &mut self,
        request: &Request,
        weight: u32,
        early: bool,
    ) -> std::result::Result<WritePlan, Unstaged> {
        let shared = &self.host.writer.shared;
        let (kind, layout, moment) = (shared.kind(), shared.layout(), self.moment());
        let Request { change, hash, precondition, .. } = *request;
        let is_ahead = self.is_ahead();
        let without = self.step_if_put_off();
        let (stamp, count, has_count) = (self.stamp, self.count, Cell::new(true));
        let Staging { depends, state, overlay, records, .. } = &mut *self.staging;
        let state = State::new(state);
        let key = (hash, *depends || precondition != Precondition::Nothing);
        let read = |blocks: &Blocks<'_>| {
            let shown = Shown::All(blocks);
            let count = |there| has_count.set(pass_count(there, count));
            let kind_early = (kind, early);
            let mut plan = decide(kind_early, &state, layout, &moment, request, &shown, count);
            put_off(&mut plan, kind, &state, without);
            let Decision::Insert { step } = plan.decision else { return (plan, None) };
            if plan.due || is_ahead || plan.unchanged(precondition).is_some() {
                return (plan, None);
            }
            let operation = Operation { change, hash, step, time: stamp.time, weight };
            let located = shown.locate(plan.mask, hash);
            let blocks = located.as_ref();
            let record = records::of_operation(kind, &state, blocks, &operation, stamp.stream);
            let room = room_for(kind, blocks, &operation);
            (plan, Some(Decided { record, room }))
        };
        let (plan, decided) = overlay.read((kind, &state), key, records, self.host.access, read)?;
        if !has_count.get() {
            return Err(shared.unsupported("estimate").into());
        }
        self.decided = decided;
        Ok(plan)
    }

    #[inline(always)]
    fn event_before(&mut self, plan: &WritePlan) -> std::result::Result<Option<Event>, Unstaged> {
        if self.decided.is_some() { Ok(None) } else { self.next_event(plan) }
    }

    fn record_event(&mut self, event: &Event) -> std::result::Result<(), Unstaged> {
        Ok(self.staging.event(self.host, event, self.stamp)?)
    }

    #[inline(always)]
    fn record_operation(&mut self, _: &Request, _: u32, plan: &WritePlan) -> bool {
        if let Some(decided) = &self.decided {
            self.staging.write(self.host, plan.mask, decided);
        }
        plan.present == Some(true)
    }
}

/// Returns the room that a block needs for an operation, if blocks of the kind grow.
fn room_for(kind: &dyn Kind, blocks: &Blocks<'_>, operation: &Operation) -> Option<Room> {
    let (growth, block) = (kind.growth()?, blocks.get(0)?);
    let (has, needs) = (growth.room_now(block), growth.room(block, operation));
    Some(Room { block: block.number, words: needs.max(has), grows: needs > has })
}
