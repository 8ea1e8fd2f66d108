//! Applies the records of a log to an image, in order: inserts and removals by several threads
//! ([`parallel`](crate::recovery::parallel)), while the next ones are read. Records that change
//! neither blocks nor the state block (positions, claims) are applied at once. All others are
//! barriers: the operations before them are applied first. What a record changes, and that it is
//! applied once only, is in [`image::apply_record`](crate::image::apply_record).

use crate::error::Result;
use crate::image::{BankSet, Image, apply_record};
use crate::recovery::bare_events::BareEvents;
use crate::recovery::batches::{Batches, Group};
use crate::recovery::parallel::Parallel;
use crate::wal::{Op, Record};
use ebbtide_core::event;
use ebbtide_core::kind::Kind;
use std::sync::Arc;
use std::thread::Scope;

/// After this many records, progress is shown to waiting processes.
const RECORDS_A_STEP: u64 = 4096;

/// Records in transit from the log into an image.
pub(super) struct Replay<'scope, 'env> {
    image: &'env Image,
    kind: &'env dyn Kind,
    advance: &'env dyn Fn(),
    /// The currently mapped banks: looking them up for each record takes longer than the rest.
    banks: Arc<BankSet>,
    batches: Batches,
    operations: Parallel<'scope, 'env>,
    bare_events: BareEvents,
}

impl<'scope, 'env> Replay<'scope, 'env> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        image: &'env Image,
        kind: &'env dyn Kind,
        advance: &'env dyn Fn(),
    ) -> Self {
        let (banks, batches) = (image.keep_banks(), Batches::default());
        let operations = Parallel::new(scope, image, kind, &banks);
        let bare_events = BareEvents::default();
        Self { image, kind, advance, banks, batches, operations, bare_events }
    }

    /// Takes the next record.
    pub(super) fn take(&mut self, lsn: u64, record: &Record) -> Result<()> {
        if lsn.is_multiple_of(RECORDS_A_STEP) {
            (self.advance)();
        }
        let mut batches = std::mem::take(&mut self.batches);
        let taken = batches.take(lsn, record, |group, counts| self.take_group(group, counts));
        self.batches = batches;
        taken
    }

    fn take_group(&mut self, group: Group<'_>, counts: bool) -> Result<()> {
        if !counts || self.bare_events.hold_back(group) {
            return Ok(());
        }
        for (lsn, record) in self.bare_events.confirmed_by(group).iter().chain(group) {
            self.take_one(*lsn, record)?;
        }
        Ok(())
    }

    /// Takes a record that has happened.
    fn take_one(&mut self, lsn: u64, record: &Record) -> Result<()> {
        if matches!(record.op, Op::Insert | Op::Remove) {
            return self.operations.push(lsn, record, &self.banks);
        }
        if !record.op.is_apart() {
            self.operations.apply_and_wait(&self.banks)?;
        }
        apply_record::apply(self.image, self.kind, &self.banks, lsn, record)?;
        if record.op == Op::Clear || event::from_record(record).is_some() {
            self.banks = self.image.keep_banks();
        }
        Ok(())
    }

    /// Applies the events that are held back, which have happened although no record follows them.
    pub(super) fn apply_events(&mut self) -> Result<()> {
        self.bare_events.release().iter().try_for_each(|(lsn, record)| self.take_one(*lsn, record))
    }

    /// Applies all records taken, except events that no record follows and a batch cut off at
    /// `stop`. Returns where the log ends without that batch.
    pub(super) fn finish(&mut self, stop: u64) -> Result<u64> {
        let stop = self.batches.end(stop, |_, _| Ok(()))?;
        self.operations.apply_and_wait(&self.banks)?;
        Ok(stop)
    }

    /// Returns the LSN of the first event that is held back.
    pub(super) fn held_back(&self) -> Option<u64> {
        self.bare_events.first()
    }
}
