//! A batch before its commit: its operations, and the answers that they get.
//!
//! Each question is answered from the filter as it is, with all earlier operations of the batch on
//! top: see [`Staging`]. What other callers insert meanwhile is counted, so the window advances.
//! Their keys are visible only in blocks that the batch has not copied, until it stages anew.
//!
//! Invariant: `staging`, if there is one, holds the first `staged` operations.

use crate::engine::batch::overlay::BlockAccess;
use crate::engine::batch::staging::{BatchOperation, EventHandling, Host, Staging, Unstaged};
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::request::{Checked, Precondition, Since, Waits};
use crate::engine::write::writer::Writer;
use crate::error::Result;
use ebbtide_core::kind::events_first::Performed;

/// While other callers write, a batch is staged anew only once it has doubled since the last time.
/// So each operation is staged only a few times.
const GROWN_BY: usize = 2;

/// Stands in `read_at` for a stripe that is taken to be changed, because it was read under an older
/// state.
const CHANGED: u64 = u64::MAX;

/// The operations of a batch.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    operations: Vec<BatchOperation>,
    pub(crate) staging: Option<Staging>,
    staged: usize,
    /// The number of operations when `staging` was begun.
    began_with: usize,
    /// The tail of the log when `staging` was compared with the filter last.
    tail: u64,
    /// For each stripe, one more than its LSN before its blocks were first read; 0 if they were
    /// not, [`CHANGED`] if they were read under an older state.
    read_at: Vec<u64>,
    /// Questions that were answered as too late.
    late: usize,
    /// The timeline of the image that the operations were staged in; 0 before.
    timeline: u64,
    /// Whether some operations were staged in another timeline: the filter was altered since.
    is_older: bool,
}

impl Prepared {
    pub(crate) fn operations(&self) -> &[BatchOperation] {
        &self.operations
    }

    /// Returns the number of operations and questions that were too late.
    pub(crate) fn refused(&self) -> usize {
        self.late + self.staging.as_ref().map_or(0, |staging| staging.refused)
    }

    /// Returns the stripes of the keys that were asked for.
    pub(crate) fn asked_stripes(&self) -> impl Iterator<Item = usize> {
        let read = self.read_at.iter().enumerate();
        read.filter(|(_, read)| **read != 0).map(|(stripe, _)| stripe)
    }

    /// Returns whether there were questions, whose answers may have moved the clock.
    pub(crate) fn has_asked(&self) -> bool {
        self.staging.is_some() || self.late > 0
    }

    /// Makes room for this many more operations.
    pub(crate) fn reserve(&mut self, operations: usize) {
        self.operations.reserve(operations);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.operations.clear();
        self.read_at.clear();
        (self.staging, self.staged, self.late) = (None, 0, 0);
        (self.timeline, self.is_older) = (0, false);
    }

    /// Adds an operation without a question.
    pub(crate) fn insert(&mut self, operation: BatchOperation) {
        self.operations.push(operation);
    }

    /// Makes each operation one of weight 1.
    pub(crate) fn leave_weights(&mut self) {
        self.operations.iter_mut().for_each(|operation| operation.weight = 1);
    }

    /// Takes account of an alteration of the filter: nothing that was staged or read before holds.
    pub(crate) fn enter(&mut self, writer: &Writer) {
        let timeline = writer.shared.header().identity().timeline;
        let before = std::mem::replace(&mut self.timeline, timeline);
        if before != 0 && before != timeline {
            (self.staging, self.staged, self.is_older) = (None, 0, true);
            self.read_at.clear();
        }
    }

    /// Answers whether the key of an operation is in the window, and adds the operation if the
    /// answer allows it. Returns whether it was added.
    ///
    /// # Errors
    /// As a query.
    pub(crate) fn check(
        &mut self,
        writer: &Writer,
        mut operation: BatchOperation,
        since: Since,
        waits: Waits,
    ) -> Result<(Checked, bool)> {
        writer.queries.check()?;
        self.enter(writer);
        let access = BlockAccess::Shared(&writer.queries, waits);
        let host = Host { writer, access, events: EventHandling::Staged };
        loop {
            self.compare(writer);
            let added = self.stage(host, &operation, since);
            let Performed { checked, is_recorded, is_late } = match added {
                Ok(added) => added,
                // The filter has advanced in the meantime.
                Err(Unstaged::Outdated | Unstaged::NeedsStripe0 { .. }) => {
                    self.staging = None;
                    continue;
                }
                Err(Unstaged::Failed(error)) => return Err(error),
            };
            self.late += usize::from(is_late);
            if is_recorded {
                operation.is_new = checked == Checked::New;
                self.operations.push(operation);
                self.staged += 1;
            }
            return Ok((checked, is_recorded));
        }
    }

    /// Takes account of what others have written: stages the operations anew, or at least counts
    /// the others' inserts.
    fn compare(&mut self, writer: &Writer) {
        let tail = writer.shared.header().tail().hint();
        let moved = std::mem::replace(&mut self.tail, tail) != tail;
        let Some(staging) = self.staging.as_mut().filter(|_| moved) else { return };
        if !staging.is_behind(writer) {
            return;
        }
        let has_grown =
            (self.operations.len() - self.began_with) * GROWN_BY >= self.operations.len();
        if has_grown || staging.has_no_current_bank(writer) {
            self.staging = None;
        } else {
            staging.adopt(writer);
        }
    }

    /// Stages the operations that are not staged yet, then a question.
    fn stage(
        &mut self,
        host: Host<'_>,
        asked: &BatchOperation,
        since: Since,
    ) -> std::result::Result<Performed, Unstaged> {
        // A commit that failed has staged them without what questions need.
        if self.staging.as_ref().is_none_or(|staging| !staging.asks) {
            self.begin(host.writer, true)?;
        }
        while let Some(operation) = self.next() {
            self.note_read(host.writer, operation.hash);
            self.add(host, &operation, Precondition::Nothing)?;
        }
        self.note_read(host.writer, asked.hash);
        let Some(staging) = &mut self.staging else { return Err(Unstaged::Outdated) };
        let stamp = staging.stamp(asked);
        staging.add(host, &asked.under(Precondition::Present(since)), stamp, None)
    }

    /// Begins to stage the operations, from the first one on; `asks` allows questions.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if a bank cannot be mapped.
    pub(crate) fn begin(&mut self, writer: &Writer, asks: bool) -> Result<()> {
        let mut staging = Staging::new(writer, asks)?;
        staging.reserve(self.operations.len());
        (self.staging, self.staged, self.began_with) = (Some(staging), 0, self.operations.len());
        Ok(())
    }

    /// Returns the first operation that is not staged yet.
    pub(crate) fn next(&self) -> Option<BatchOperation> {
        self.operations.get(self.staged).copied()
    }

    /// Returns the operation that comes `by` positions after the next one.
    pub(crate) fn ahead(&self, by: usize) -> Option<&BatchOperation> {
        self.operations.get(self.staged + by)
    }

    /// Returns the number of operations that are staged.
    pub(crate) fn staged(&self) -> usize {
        self.staged
    }

    /// Stages the operation that [`Prepared::next`] returns. Returns its time as well.
    pub(crate) fn add(
        &mut self,
        host: Host<'_>,
        operation: &BatchOperation,
        precondition: Precondition,
    ) -> std::result::Result<(Performed, Stamp), Unstaged> {
        let Some(staging) = &mut self.staging else { return Err(Unstaged::Outdated) };
        let stamp = staging.stamp(operation);
        let performed = staging.add(host, &operation.under(precondition), stamp, None)?;
        staging.refused += usize::from(performed.is_late);
        self.staged += 1;
        Ok((performed, stamp))
    }

    /// Notes the LSN of a key's stripe before a block of it is first read: an operation that the
    /// reader does not see raises that LSN later. Under an older state the reader may miss earlier
    /// operations too, so the commit asks again.
    fn note_read(&mut self, writer: &Writer, hash: u64) {
        let (header, stripe) = (writer.shared.header(), writer.shared.stripe_of(hash));
        if self.read_at.is_empty() {
            self.read_at.resize(header.stripe_count(), 0);
        }
        if let Some(read @ 0) = self.read_at.get_mut(stripe) {
            let lsn = header.stripe(stripe).lsn();
            let is_current =
                self.staging.as_ref().is_some_and(|staging| staging.has_current_state(writer));
            *read = if is_current { lsn + 1 } else { CHANGED };
        }
    }

    /// Returns whether another caller has changed an ordinary stripe since a block of it was read.
    /// `lsn` is that of the stripe now.
    pub(crate) fn is_changed(&self, stripe: usize, lsn: u64) -> bool {
        self.is_older || self.read_at.get(stripe).is_some_and(|&read| read != 0 && read != lsn + 1)
    }
}
