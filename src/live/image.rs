//! All of a live image, and how a record is applied to it.
//!
//! [`Image::apply`] is the one way by which a record changes state, in replay as well as (for events) live.
//! A record is applied to a block if and only if it is newer than the block: exactly once.

use super::bank::{Bank, BankSet};
use super::header::{Identity, LiveHeader};
use super::{event, version};
use crate::cells::Layout;
use crate::error::Result;
use crate::kinds::{Event, Kind, Operation, Totals};
use crate::media::Media;
use crate::sync::Ordering;
use crate::wal::{Op, Record};
use arc_swap::ArcSwap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// A mapped live image.
#[derive(Debug)]
pub struct Image {
    header: LiveHeader,
    layout: Layout,
    banks: ArcSwap<BankSet>,
    /// The banks of a kind that never changes them: read without an atomic swap.
    fixed: OnceLock<Arc<BankSet>>,
    media: Arc<dyn Media>,
}

/// The banks of an image at one moment.
pub enum Banks<'a> {
    /// They never change.
    Fixed(&'a BankSet),
    /// They may have changed since.
    Current(arc_swap::Guard<Arc<BankSet>>),
}

impl Deref for Banks<'_> {
    type Target = BankSet;

    #[inline]
    fn deref(&self) -> &BankSet {
        match self {
            Self::Fixed(banks) => banks,
            Self::Current(banks) => banks,
        }
    }
}

/// A time as stripes keep it: doubled, plus one if it came with its key, so that of two equal times the
/// one from a stream counts.
#[must_use]
#[inline]
pub fn stamp(time: u64, stream: bool) -> u64 {
    time << 1 | u64::from(stream)
}

impl Image {
    /// Creates an empty image for an era under the temporary name `draft`. No bank is open yet.
    ///
    /// # Errors
    /// [`crate::Error::Io`], a full disk among them.
    pub fn create(
        media: Arc<dyn Media>,
        draft: &str,
        identity: Identity,
        layout: Layout,
    ) -> Result<Self> {
        let header = LiveHeader::create(&*media, draft, identity)?;
        Ok(Self { header, layout, banks: ArcSwap::default(), fixed: OnceLock::new(), media })
    }

    /// The file `live`.
    #[must_use]
    #[inline]
    pub fn header(&self) -> &LiveHeader {
        &self.header
    }

    /// What all banks share.
    #[must_use]
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The banks that are mapped now.
    #[inline]
    pub fn banks(&self) -> Banks<'_> {
        match self.fixed.get() {
            Some(fixed) => Banks::Fixed(fixed),
            None => Banks::Current(self.banks.load()),
        }
    }

    /// Puts the filter into the state it is created with: the kind's start, and its first bank.
    ///
    /// # Errors
    /// [`crate::Error::Io`], a full disk among them.
    pub fn start(&self, kind: &dyn Kind) -> Result<()> {
        kind.start(&self.header.state(), self.layout);
        self.map_listed_banks()
    }

    /// Creates and maps every bank that block 0 lists and this image does not have.
    ///
    /// # Errors
    /// [`crate::Error::Io`], a full disk among them.
    pub fn map_listed_banks(&self) -> Result<()> {
        for entry in self.header.state().banks() {
            let mapped = self.banks().get(entry.slot).is_some_and(|bank| bank.id() == entry.id);
            if !mapped {
                let bank = self.create_bank(entry.id, entry.geometry)?;
                self.place_bank(entry.slot, Some(bank));
            }
        }
        Ok(())
    }

    /// The mapped banks that block 0 lists. Consistent for the holder of stripe 0.
    #[must_use]
    pub fn listed_banks(&self) -> Vec<Arc<Bank>> {
        let banks = self.banks();
        self.header.state().banks().filter_map(|entry| banks.get(entry.slot).cloned()).collect()
    }

    fn create_bank(&self, id: u32, geometry: crate::cells::Geometry) -> Result<Arc<Bank>> {
        let identity = self.header.identity();
        let bank =
            Bank::create(&*self.media, identity.uuid, identity.era, id, self.layout, geometry)?;
        Ok(Arc::new(bank))
    }

    fn place_bank(&self, slot: usize, bank: Option<Arc<Bank>>) {
        self.banks.store(Arc::new(self.banks().with(slot, bank)));
    }

    /// Allocates and maps the bank that an event is about to open, so that nobody sees the event before the
    /// bank. Does nothing for other events. The caller holds stripe 0, or is alone.
    ///
    /// # Errors
    /// [`crate::Error::Io`], a full disk among them: nothing has changed then.
    pub fn prepare(&self, event: &Event) -> Result<()> {
        if let Event::OpenBank { id, geometry, .. } = *event {
            let state = self.header.state();
            if id >= state.next_bank() {
                // One of another size was allocated in vain, for a record that found no room; it is replaced.
                let mapped = |slot| {
                    let banks = self.banks();
                    let bank = banks.get(slot);
                    bank.is_some_and(|bank| bank.id() == id && bank.geometry() == geometry)
                };
                if let Some(slot) = state.free_slot().filter(|&slot| !mapped(slot)) {
                    let bank = self.create_bank(id, geometry)?;
                    self.place_bank(slot, Some(bank));
                }
            }
        }
        Ok(())
    }

    /// Applies an event to block 0. The caller holds stripe 0, or is alone, and has [prepared](Image::prepare)
    /// the event.
    pub fn apply_event(&self, kind: &dyn Kind, lsn: u64, event: &Event) {
        let (block0, state) = (self.header.block0(), self.header.state());
        version::begin(block0.version());
        state.apply_banks(event);
        kind.apply(&state, self.layout, event);
        block0.set_lsn(lsn);
        version::end(block0.version());
        if let Event::CloseBank { id, .. } = *event {
            let found = self
                .banks()
                .iter()
                .find(|(_, bank)| bank.id() == id)
                .map(|(slot, bank)| (slot, bank.clone()));
            if let Some((slot, bank)) = found {
                self.place_bank(slot, None);
                // What stays behind if this fails is removed at the next opening; the mapping lives as long as
                // anyone uses it.
                let _ = self.media.remove(bank.name());
            }
        }
    }

    /// Replays one record. The caller is alone with the image.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if a bank cannot be allocated.
    pub fn apply(&self, kind: &dyn Kind, lsn: u64, record: &Record) -> Result<()> {
        match record.op {
            Op::Void | Op::Durable => {}
            Op::Heartbeat => {
                let stripe = self.header.stripe(0);
                if lsn > stripe.sums().lsn {
                    stripe.note(lsn, stamp(record.time, record.stream));
                }
            }
            Op::Insert => self.replay_insert(kind, lsn, record),
            Op::Step | Op::OpenBank | Op::CloseBank => {
                if let Some(event) = event::from_record(record) {
                    let stripe = self.header.stripe(0);
                    if lsn > stripe.sums().lsn {
                        stripe.note(lsn, stamp(record.time, record.stream));
                    }
                    if lsn > self.header.block0().lsn() {
                        self.prepare(&event)?;
                        self.apply_event(kind, lsn, &event);
                    }
                }
            }
        }
        Ok(())
    }

    fn replay_insert(&self, kind: &dyn Kind, lsn: u64, record: &Record) {
        let operation = Operation { hash: record.payload, step: record.step, time: record.time };
        let stripe = self.header.stripe(self.layout.stripe_of(operation.hash) + 1);
        if lsn > stripe.sums().lsn {
            let time = stamp(record.time, record.stream);
            stripe.count_insert(lsn, time, u64::from(record.argument));
        }
        let (state, banks) = (self.header.state(), self.banks());
        let located = banks.locate(kind.touches(&state, operation.step), operation.hash);
        kind.insert(&state, &located.admit(lsn), &operation);
    }

    /// The sums over all stripes; exact for whoever is alone or holds them all.
    #[must_use]
    pub fn sum_stripes(&self) -> (Totals, u64, u64) {
        let mut totals = Totals::default();
        let (mut operations, mut time) = (0_u64, 0);
        for index in 0..self.header.stripe_count() {
            let sums = self.header.stripe(index).sums();
            totals.inserts = totals.inserts.wrapping_add(sums.inserts);
            totals.novelty = totals.novelty.wrapping_add(sums.novelty);
            operations = operations.wrapping_add(sums.operations);
            time = time.max(sums.time);
        }
        (totals, operations, time)
    }

    /// Ends the rebuilding: fills the header's caches from the stripes, and the ends of the log.
    pub fn finish(&self, kind: &dyn Kind, tail: u64) {
        if !kind.changes_banks() {
            self.fixed.get_or_init(|| self.banks.load_full());
        }
        let (totals, _, time) = self.sum_stripes();
        self.header.inserts().store(totals.inserts, Ordering::Relaxed);
        self.header.novelty().store(totals.novelty, Ordering::Relaxed);
        self.header.time().store(time, Ordering::Relaxed);
        self.header.tail().store(tail, Ordering::Relaxed);
        self.header.durable().store(tail, Ordering::Release);
    }

    /// The LSN of the last record that changed the state: the largest of all stripes and block 0.
    #[must_use]
    pub fn last_change(&self) -> u64 {
        let stripes = (0..self.header.stripe_count()).map(|at| self.header.stripe(at).sums().lsn);
        stripes.max().unwrap_or(0).max(self.header.block0().lsn())
    }

    /// Bytes of memory: everything but the log.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let banks = self.banks();
        self.header.bytes() + banks.iter().map(|(_, bank)| bank.memory_bytes()).sum::<u64>()
    }
}
