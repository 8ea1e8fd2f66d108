//! All parts of an image, and how a record is applied to it.
//!
//! Repair applies each record by [`Image::apply`], except a clear, which it applies to one stripe
//! ([`Image::apply_clear`]). Replay uses `apply` too, but applies operations by
//! the two halves of it, [`Image::change_blocks`] and [`Image::count`], on several threads. Both
//! apply a record to a block if and only if it is newer than the block: exactly once.

use crate::error::Result;
use crate::image::bank::{Bank, BankForm, BankSet};
use crate::image::bank_files::{BankFiles, most_bytes};
use crate::image::control::Control;
use crate::image::identity::Identity;
use crate::image::mapped_banks::{Banks, FixedBanks};
use crate::image::rare_space;
use crate::image::room;
use crate::media::{Access, Media};
use crate::primitives::{AtomicU64, Mutex};
use crate::wal::{Op, Record};
use arc_swap::ArcSwap;
use ebbtide_core::block::{Block, Blocks, Layout};
use ebbtide_core::event;
use ebbtide_core::kind::{Event, Kind, Operation, State, Totals, records};
use ebbtide_core::time::OperationTime;
use std::sync::{Arc, OnceLock};

/// A mapped image.
#[derive(Debug)]
pub struct Image {
    header: Control,
    layout: Layout,
    form: BankForm,
    banks: ArcSwap<BankSet>,
    /// The banks of a kind that never changes them, until the filter is cleared: read without an
    /// atomic swap.
    fixed: OnceLock<FixedBanks>,
    /// Held while the set of banks is updated to the state block.
    following: Mutex<()>,
    media: Arc<dyn Media>,
    /// The name of the file `live` before it has that name, in its creator.
    temporary: Option<String>,
    files: BankFiles,
    access: Access,
}

/// The initial state of a filter that is cleared: its banks exist, but are not listed yet.
#[derive(Debug)]
pub struct Cleared {
    words: Box<[AtomicU64]>,
    banks: Vec<Bank>,
}

/// Returns the time of a record as stripes store it.
fn time_word(record: &Record) -> u64 {
    OperationTime { time: record.time, stream: record.stream }.word()
}

impl Image {
    /// Creates an empty image for a timeline under the temporary name `temporary`. No bank is open
    /// yet.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk.
    pub fn create(
        media: Arc<dyn Media>,
        temporary: &str,
        identity: Identity,
        layout: Layout,
        kind: &dyn Kind,
    ) -> Result<Self> {
        let form = BankForm::of(kind);
        let first = Bank::bytes(layout, kind.geometry(layout), form)?;
        let header = Control::create(&*media, temporary, identity)?;
        let files = BankFiles::create(&media, &header, most_bytes(kind, first))?;
        let image = Self::over(header, layout, form, (media, files), Access::Write);
        Ok(Self { temporary: Some(temporary.to_owned()), ..image })
    }

    /// Opens the image that other handles use; see [`Control::attach`].
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn attach(
        media: Arc<dyn Media>,
        header: Control,
        layout: Layout,
        kind: &dyn Kind,
        access: Access,
    ) -> Result<Self> {
        let Identity { stripes, state_words, .. } = *header.identity();
        if (stripes, state_words as usize) != (layout.stripes, kind.state_words()) {
            let expected = format!("{} stripes, {} words", layout.stripes, kind.state_words());
            let found = format!("{stripes} stripes, {state_words} words");
            return Err(header.damaged(media.path(), expected, found));
        }
        let files = BankFiles::find(&media, &header, access)?;
        let image = Self::over(header, layout, BankForm::of(kind), (media, files), access);
        image.follow()?;
        while !image.fix_banks(kind) {
            image.follow()?;
        }
        Ok(image)
    }

    fn over(
        header: Control,
        layout: Layout,
        form: BankForm,
        (media, files): (Arc<dyn Media>, BankFiles),
        access: Access,
    ) -> Self {
        let (banks, fixed) = (ArcSwap::default(), OnceLock::new());
        let following = Mutex::new(());
        let temporary = None;
        Self { header, layout, form, banks, fixed, following, media, temporary, files, access }
    }

    /// Notes the mapped banks, for a kind whose banks change with a clear only. Returns false if
    /// there was one since they were mapped.
    fn fix_banks(&self, kind: &dyn Kind) -> bool {
        if kind.changes_banks() {
            return true;
        }
        let fixed = FixedBanks::of(&self.header, self.banks.load_full());
        fixed.map(|fixed| self.fixed.get_or_init(|| fixed)).is_some()
    }

    /// Returns where the banks lie.
    pub fn files(&self) -> &BankFiles {
        &self.files
    }

    /// Returns the medium of its files.
    pub fn media(&self) -> &dyn Media {
        &*self.media
    }

    /// Returns the file `live`.
    #[must_use]
    #[inline]
    pub fn header(&self) -> &Control {
        &self.header
    }

    /// Returns the layout that all banks share.
    #[must_use]
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the currently mapped banks.
    #[inline]
    pub fn banks(&self) -> Banks<'_> {
        self.banks_near(&self.header.state())
    }

    /// As [`Image::banks`], for a caller that has read the state.
    #[inline]
    pub fn banks_near(&self, state: &State<'_>) -> Banks<'_> {
        match self.fixed.get() {
            Some(fixed) if fixed.next_bank == state.next_bank() => Banks::Fixed(&fixed.banks),
            _ => Banks::Current(self.banks.load()),
        }
    }

    /// Returns the banks that the state of this version lists, if they are mapped; otherwise see
    /// [`Image::follow`].
    #[must_use]
    #[inline]
    pub fn banks_of(&self, state: &State<'_>, version: u64) -> Option<Banks<'_>> {
        let banks = self.banks_near(state);
        let are_listed = match &banks {
            Banks::Fixed(_) => true,
            Banks::Current(banks) => banks.is_of(version),
        };
        are_listed.then_some(banks)
    }

    /// Returns recently mapped banks, for prefetching. Reads no mapped word: a forked child, which
    /// has no mapping, gets here before it is refused.
    #[inline]
    pub fn recent_banks(&self) -> Banks<'_> {
        match self.fixed.get() {
            Some(fixed) => Banks::Fixed(&fixed.banks),
            None => Banks::Current(self.banks.load()),
        }
    }

    /// Returns the currently mapped banks, to be kept over many operations.
    #[must_use]
    pub fn keep_banks(&self) -> Arc<BankSet> {
        self.banks.load_full()
    }

    /// Maps the banks that the state block lists now and unmaps the others.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn follow(&self) -> Result<()> {
        let _following = self.following.lock();
        let state_block = self.header.state_block();
        loop {
            let version = state_block.version();
            if self.banks.load().is_of(version) {
                return Ok(());
            }
            let listed = self.listed(&state_block.state(version));
            if state_block.unchanged(version) {
                self.banks.store(Arc::new(listed?.of_version(version)));
                return Ok(());
            }
            // An event came in between: the list may have been inconsistent, or its banks may be
            // gone.
        }
    }

    /// Returns the banks that a state lists, mapped.
    fn listed(&self, state: &State<'_>) -> Result<BankSet> {
        let (mapped, mut listed) = (self.banks.load(), BankSet::default());
        for entry in state.banks() {
            let known = mapped.get(entry.slot);
            let known =
                known.filter(|bank| bank.id() == entry.id && bank.geometry() == entry.geometry);
            let bank = match known {
                Some(bank) => bank.clone(),
                None => {
                    let Identity { uuid, timeline, .. } = *self.header.identity();
                    let (layout, geometry) = (self.layout, entry.geometry);
                    let (image, how) = ((uuid, timeline), (self.form, self.access));
                    Arc::new(Bank::open(
                        self.files.store(),
                        image,
                        entry.id,
                        layout,
                        geometry,
                        how,
                    )?)
                }
            };
            listed = listed.with(entry.slot, Some(bank));
        }
        Ok(listed)
    }

    /// Returns whether the state block lists a bank. If so, what was read of the bank before is
    /// what was stored there.
    #[must_use]
    pub fn lists(&self, bank: u32) -> bool {
        let state_block = self.header.state_block();
        loop {
            let version = state_block.version_after_reads();
            let is_listed = state_block.state(version).banks().any(|entry| entry.id == bank);
            if state_block.unchanged(version) {
                return is_listed;
            }
        }
    }

    /// Initialises a new filter: the kind's initial state, and its first bank.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk.
    pub fn start(&self, kind: &dyn Kind) -> Result<()> {
        self.header.state_block().change(0, |state| kind.start(state, self.layout));
        self.create_listed_banks()
    }

    /// Creates every bank that the state block lists, in an image that has none.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk.
    pub fn create_listed_banks(&self) -> Result<()> {
        for entry in self.header.state().banks() {
            drop(self.create_bank(entry.id, entry.geometry)?);
        }
        self.follow()
    }

    /// Returns the banks that the state block lists, mapped. Consistent for the holder of stripe 0.
    ///
    /// # Errors
    /// As [`Image::follow`].
    pub fn listed_banks(&self) -> Result<Vec<Arc<Bank>>> {
        self.follow()?;
        Ok(self.banks().iter().map(|(_, bank)| bank.clone()).collect())
    }

    fn create_bank(&self, id: u32, geometry: ebbtide_core::block::Geometry) -> Result<Bank> {
        let Identity { uuid, timeline, .. } = *self.header.identity();
        Bank::create(self.files.store(), uuid, timeline, id, self.layout, geometry, self.form)
    }

    /// Allocates the initial state of the filter to be cleared. The caller holds stripe 0, or is
    /// alone.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk: then nothing has changed.
    pub fn prepare_clear(&self, kind: &dyn Kind) -> Result<Cleared> {
        let words: Box<[AtomicU64]> = (0..kind.state_words()).map(|_| AtomicU64::new(0)).collect();
        let state = State::new(&words);
        state.begin_after(&self.header.state());
        kind.start(&state, self.layout);
        // Unused ones, allocated for a record that found no room, are replaced.
        let banks = state.banks().map(|entry| self.create_bank(entry.id, entry.geometry));
        let banks = banks.collect::<Result<_>>()?;
        Ok(Cleared { words, banks })
    }

    /// Clears the filter-wide state. The caller holds all stripes, has exclusive access, or repairs
    /// stripe 0 after a dead owner of all stripes.
    pub fn clear_state(&self, lsn: u64, cleared: &Cleared) {
        let before: Vec<_> = self.header.state().banks().collect();
        for bank in &cleared.banks {
            bank.begin_at(lsn);
        }
        self.header.state_block().change(lsn, |state| state.become_as(&State::new(&cleared.words)));
        for entry in before {
            self.remove_bank(entry.id);
        }
    }

    /// Applies the record of a clear to one stripe, which the caller holds, unless it has been
    /// applied.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the first bank cannot be allocated or mapped.
    pub fn apply_clear(
        &self,
        kind: &dyn Kind,
        index: usize,
        lsn: u64,
        record: &Record,
    ) -> Result<()> {
        if index == 0 && lsn > self.header.state_block().current().lsn() {
            let cleared = self.prepare_clear(kind)?;
            self.clear_state(lsn, &cleared);
            self.follow()?;
        }
        self.clear_stripe(index, lsn, time_word(record));
        Ok(())
    }

    /// Clears a stripe's sums, and with stripe 0 those of the filter, unless that was done. The
    /// caller holds the stripe. Stripe 0 must be cleared first: until then no other stripe is in
    /// use, so there is nothing else to be counted.
    pub fn clear_stripe(&self, index: usize, lsn: u64, time: u64) {
        let stripe = self.header.stripe(index);
        if stripe.has_counted(lsn) {
            return;
        }
        if index == 0 {
            self.header.counters().clear();
        }
        stripe.clear(lsn, time);
    }

    /// Creates the bank that an event opens, before its record is written, unless it is open. The
    /// caller holds stripe 0, or has exclusive access. An unused bank of the same number, created
    /// for a record that found no room, is replaced.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk: then nothing has changed.
    pub fn prepare(&self, event: &Event) -> Result<Option<Bank>> {
        match *event {
            Event::OpenBank { id, geometry, .. } if id >= self.header.state().next_bank() => {
                self.create_bank(id, geometry).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Removes the bank that an event closes, once the state block no longer lists it.
    pub fn remove_closed(&self, event: &Event) {
        if let Event::CloseBank { id, .. } = *event {
            self.remove_bank(id);
        }
    }

    /// Removes a bank that the state block no longer lists.
    fn remove_bank(&self, bank: u32) {
        let listed: Vec<u32> = self.header.state().banks().map(|entry| entry.id).collect();
        // If this fails, the space is free at the latest when the image ends.
        let _ = self.files.store().remove(bank, &listed);
    }

    /// Applies an event to the state block. The caller holds stripe 0, or has exclusive access, and
    /// has [prepared](Image::prepare) the event.
    pub fn apply_event(&self, kind: &dyn Kind, lsn: u64, event: &Event) {
        self.header.state_block().change(lsn, |state| self.change_state(kind, state, event));
        self.remove_closed(event);
    }

    /// Changes a filter-wide state as an event does.
    pub fn change_state(&self, kind: &dyn Kind, state: &State<'_>, event: &Event) {
        state.apply_banks(event);
        if let Some(events) = kind.events() {
            events.apply(state, self.layout, event);
        }
    }

    /// Applies one record, unless it has been applied: in replay, where the caller has
    /// exclusive access, or in repair, where it holds the record's stripe. `banks` are the
    /// currently mapped ones; an event changes them.
    ///
    /// The order is block, its LSN, the stripe's sums. Wherever it is interrupted, repeating it
    /// completes it.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if a bank cannot be allocated or mapped.
    pub fn apply(&self, kind: &dyn Kind, banks: &BankSet, lsn: u64, record: &Record) -> Result<()> {
        let stripe_0 = self.header.stripe(0);
        match record.op {
            // Whoever reads a batch decides whether its records count.
            Op::Void | Op::Durable | Op::Batch => {}
            Op::Position => {
                let positions = self.header.positions();
                if lsn > positions.lsn() {
                    positions.set(lsn, record.payload, record.time);
                }
                stripe_0.note(lsn, 0);
            }
            Op::Claim | Op::Release => {
                self.allocate_claims()?;
                if lsn > self.header.claims().lsn() {
                    self.header.claims().apply(lsn, record);
                }
                stripe_0.note(lsn, 0);
            }
            Op::Heartbeat => stripe_0.note(lsn, time_word(record)),
            Op::Insert | Op::Remove => {
                self.change_blocks(kind, banks, lsn, record)?;
                let stripe = self.layout.stripe_of(record.payload);
                self.count(kind, stripe, std::iter::once(&(lsn, *record)));
            }
            Op::Clear => {
                for index in 0..self.header.stripe_count() {
                    self.apply_clear(kind, index, lsn, record)?;
                }
            }
            Op::Step | Op::OpenBank | Op::CloseBank => {
                if let Some(event) = event::from_record(record) {
                    if lsn > self.header.state_block().current().lsn() {
                        self.prepare(&event)?;
                        self.apply_event(kind, lsn, &event);
                        self.follow()?;
                    }
                    stripe_0.note(lsn, time_word(record));
                }
            }
        }
        Ok(())
    }

    /// Allocates the table of claims, unless it has its space. The caller holds stripe 0, or has
    /// exclusive access.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk: then nothing has changed.
    pub fn allocate_claims(&self) -> Result<()> {
        rare_space::allocate_claims(&self.header, self.media(), self.temporary.as_deref())
    }

    /// Applies an operation to the key's blocks: the first half of [`Image::apply`]. In replay,
    /// operations on different blocks may be applied in any order.
    ///
    /// # Errors
    /// As [`Image::apply`].
    pub fn change_blocks(
        &self,
        kind: &dyn Kind,
        banks: &BankSet,
        lsn: u64,
        record: &Record,
    ) -> Result<()> {
        let Some(operation) = records::operation(kind, record) else { return Ok(()) };
        let state = self.header.state();
        let located = banks.locate(kind.touches(&state, operation.step), operation.hash);
        let older = located.older_than(lsn);
        let mut room = 0;
        if let Some(block) = older.get(0) {
            room = self.make_room(kind, banks, block, &operation, true)?.unwrap_or(0);
        }
        located.begin_undo();
        records::change(kind, &state, &older, &operation);
        located.note(lsn);
        self.give_back_room(kind, banks, &located.blocks, room);
        Ok(())
    }

    /// Counts operations of an ordinary stripe (from 0) in its sums: the second half of
    /// [`Image::apply`]. The operations may come in any order. All older ones of the stripe must be
    /// among them or counted already, because they would not be counted later.
    #[inline]
    pub fn count<'a>(
        &self,
        kind: &dyn Kind,
        stripe: usize,
        operations: impl Iterator<Item = &'a (u64, Record)>,
    ) {
        let (stripe, weighs) = (self.header.stripe(stripe + 1), kind.weights().is_some());
        let counted = stripe.sums().lsn;
        let (mut last, mut time, mut sum) = (counted, 0, Totals::default());
        for (lsn, record) in operations {
            if *lsn > counted && records::operation(kind, record).is_some() {
                let Totals { inserts, new_bits } = records::counts(weighs, record);
                sum.inserts = sum.inserts.wrapping_add(inserts);
                sum.new_bits = sum.new_bits.wrapping_add(new_bits);
                (last, time) = (last.max(*lsn), time.max(time_word(record)));
            }
        }
        if last > counted {
            stripe.count(last, time, sum);
        }
    }

    /// Makes room in a block for an operation, if blocks grow. Returns the room that the block used
    /// so far; `None` if `may_allocate` is false and room must be allocated.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk: then nothing has changed.
    #[inline(always)] // as `give_back_room`
    pub fn make_room(
        &self,
        kind: &dyn Kind,
        banks: &BankSet,
        block: &Block<'_>,
        operation: &Operation,
        may_allocate: bool,
    ) -> Result<Option<usize>> {
        // Most kinds do not grow.
        if !self.form.grows {
            return Ok(Some(0));
        }
        room::allocate(kind, banks, block, operation, may_allocate)
    }

    /// Frees the room that a block used before an operation and no longer uses. The caller holds
    /// its stripe.
    #[inline(always)]
    pub fn give_back_room(
        &self,
        kind: &dyn Kind,
        banks: &BankSet,
        blocks: &Blocks<'_>,
        before: usize,
    ) {
        // Most kinds do not grow.
        if before > 0 {
            room::free(kind, banks, blocks, before);
        }
    }

    /// Returns the sums over all stripes; exact for a caller that holds them all, or has exclusive
    /// access.
    #[must_use]
    pub fn sum_stripes(&self) -> (Totals, u64) {
        let (mut totals, mut time) = (Totals::default(), 0);
        for index in 0..self.header.stripe_count() {
            let sums = self.header.stripe(index).sums();
            totals.inserts = totals.inserts.wrapping_add(sums.inserts);
            totals.new_bits = totals.new_bits.wrapping_add(sums.new_bits);
            time = time.max(sums.time);
        }
        (totals, time)
    }

    /// Finishes a rebuild: fills the header's caches from the stripes, and sets the ends of the
    /// log.
    pub fn finish(&self, kind: &dyn Kind, tail: u64) {
        let are_fixed = self.fix_banks(kind);
        debug_assert!(are_fixed, "nobody else changes the banks of a rebuild");
        let (totals, time) = self.sum_stripes();
        self.header.counters().begin(totals);
        self.header.time().begin_at(time);
        self.header.tail().begin_at(tail);
        self.header.durable().begin_at(tail);
    }

    /// Returns the LSN of the last record that changed the state: the largest of all stripes and
    /// the state block.
    #[must_use]
    pub fn last_change(&self) -> u64 {
        let stripes = (0..self.header.stripe_count()).map(|at| self.header.stripe(at).lsn());
        stripes.max().unwrap_or(0).max(self.header.state_block().current().lsn())
    }

    /// Returns the bytes of memory: everything except the log.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let banks = self.banks();
        self.header.bytes() + banks.iter().map(|(_, bank)| bank.memory_bytes()).sum::<u64>()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
