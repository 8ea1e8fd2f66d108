//! A filter in memory that takes the operations in a log.

use crate::api::alter::take_over::{LatestByClock, take_over};
use crate::api::entry::AHEAD;
use crate::api::history::operations::{Change, Operation};
use crate::archive::revisions::Revision;
use crate::archive::with_kept::Whole;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::media::Media;
use crate::recovery::Listing;
use crate::snapshot::SnapshotReader;
use ebbtide_core::kind::{Checked, Kind, Micros, Request};
use ebbtide_core::machine::Machine;
use ebbtide_core::time::OperationTime;

/// Returns a time of the filter from which on the log has all records: its latest time at this LSN
/// of this revision, or soon after. Every removed record is at most as late. `None` if no sound
/// snapshot contains it, or if the log has all records.
///
/// The first operation's time would not do: it may have come with its key, as far ahead as the
/// filter allowed.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn time_at_start(
    media: &dyn Media,
    revision: &Revision,
    first: u64,
) -> Result<Option<OperationTime>> {
    if first == 1 {
        return Ok(None);
    }
    let (whole, log) = (Whole::new(media), revision.meta.log_uuid);
    let listing = Listing::of_filter(&whole, log)?;
    // The oldest that has all records before the first.
    for start in listing.snapshots.into_iter().rev().filter(|&start| start >= first) {
        let latest = SnapshotReader::open(&whole, start, log);
        match latest.and_then(|mut snapshot| snapshot.latest_time()) {
            Ok(word) => return Ok(Some(OperationTime::from_word(word))),
            Err(error) if error.is_unreadable() => {}
            // It was removed meanwhile.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns the size of a kind's window in operations, if it has one.
pub(super) fn window_items(kind: &dyn Kind) -> Option<u64> {
    parameter(kind, "window-items")
}

fn parameter(kind: &dyn Kind, name: &str) -> Option<u64> {
    kind.parameters().get(name).and_then(|value| value.parse().ok())
}

/// Returns whether a log that is not whole, with this number of operations, has all that a window
/// of this kind has. `begins` and `latest` are the filter's times where the log begins and ends.
/// False for a kind without a window.
pub(super) fn has_window(
    kind: &dyn Kind,
    operations: u64,
    begins: Option<Micros>,
    latest: Micros,
) -> bool {
    match (window_items(kind), parameter(kind, "window")) {
        (Some(items), _) => operations >= items,
        (None, Some(micros)) => {
            begins.is_some_and(|begins| begins.saturating_add(micros) <= latest)
        }
        (None, None) => false,
    }
}

/// Returns the time that an operation has in a filter that takes it over, of a kind that uses time
/// or not, whose latest time is `latest`. A clear without a time does not start its clock.
pub(in crate::api) fn time_in(
    operation: &Operation,
    uses_time: bool,
    latest: OperationTime,
) -> OperationTime {
    let (stream, untouched) = (operation.is_stream_time, OperationTime::default());
    match operation.time.map(Timestamp::as_unix_micros) {
        Some(time) if uses_time => latest.taking_over(OperationTime { time, stream }),
        Some(time) => OperationTime { time, stream },
        None if uses_time && operation.change == Change::Clear && latest == untouched => latest,
        // Without a clock.
        None if uses_time && !stream => latest.by_clock(None),
        None => OperationTime { time: 0, stream },
    }
}

/// Returns whether an operation was taken that was answered so.
pub(in crate::api) fn is_taken(operation: &Operation, checked: Checked) -> bool {
    match operation.change {
        // Of a key that is not there.
        Change::Remove { .. } => checked == Checked::Present,
        _ => checked != Checked::TooLate,
    }
}

/// A filter in memory that is filled from a log.
#[derive(Debug)]
pub(super) struct Refill {
    machine: Machine,
    /// Insertions and removals that the filter has taken.
    pub(super) operations: u64,
    /// The time of the first one that has one.
    pub(super) since: Option<Timestamp>,
    /// Whether the log has a removal, behind its last clear, that this kind cannot make.
    pub(super) keeps_removed: bool,
    /// Whether the log has a clear, behind which nothing from before the log is missing.
    is_cleared: bool,
    latest: LatestByClock,
}

impl Refill {
    pub(super) fn new(machine: Machine, latest: LatestByClock) -> Self {
        let (keeps_removed, is_cleared) = (false, false);
        Self { machine, operations: 0, since: None, keeps_removed, is_cleared, latest }
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn into_machine(self) -> Machine {
        self.machine
    }

    /// Returns whether all that the filter would have to know is among the operations, of a log
    /// that begins at this time of the filter.
    pub(super) fn has_its_window(&self, begins: Option<Micros>) -> bool {
        let latest = self.machine.latest().time;
        self.is_cleared || has_window(self.machine.kind(), self.operations, begins, latest)
    }

    /// Takes operations of the log of a kind. Their cells are prefetched.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a weight that the kind does not take.
    pub(super) fn take_all(&mut self, mut operations: Vec<Operation>, of: &dyn Kind) -> Result<()> {
        take_over(&mut operations, (of, self.machine.kind()), &self.latest);
        for operations in operations.chunks(AHEAD) {
            for operation in operations {
                if let Change::Insert { hash, .. } = operation.change {
                    self.machine.prefetch(hash);
                }
            }
            operations.iter().try_for_each(|operation| self.take(operation))?;
        }
        Ok(())
    }

    /// Takes an operation, at its time. Positions and claims are not of a filter's keys.
    fn take(&mut self, operation: &Operation) -> Result<()> {
        let kind = self.machine.kind();
        let weighs = kind.weights().is_some();
        let weight = |weight: u32| if weighs { weight.into() } else { 1 };
        let time = time_in(operation, kind.uses_time(), self.machine.latest());
        let request = match operation.change {
            Change::Insert { hash, weight: of } => Request::insert(hash).weighing(weight(of)),
            Change::Remove { hash, weight: of } if kind.removal().is_some() => {
                Request::remove(hash, weight(of))
            }
            Change::Clear => {
                self.machine.clear(time, &mut |_| {});
                (self.keeps_removed, self.is_cleared) = (false, true);
                return Ok(());
            }
            Change::Remove { .. } => {
                self.keeps_removed = true;
                return Ok(());
            }
            Change::Position { .. } | Change::Claim { .. } | Change::Release { .. } => {
                return Ok(());
            }
        };
        let request = Request { is_timed: time.stream, ..request };
        let written = self.machine.write(&request, time, &mut |_| {})?;
        self.operations += u64::from(is_taken(operation, written.checked));
        self.since = self.since.or(operation.time);
        Ok(())
    }
}
