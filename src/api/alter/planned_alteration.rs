//! What an alteration would take.

use crate::admin::look::look_at;
use crate::api::alter::refill::{has_window, time_at_start, window_items};
use crate::api::alter::take_over::{LatestByClock, take_over};
use crate::api::config::Spec;
use crate::api::history::operations::Change;
use crate::api::history::read_log::History;
use crate::archive::revisions::revisions;
use crate::clock::{Clock, Timestamp};
use crate::engine::lifecycle::alter::meta_after;
use crate::engine::lifecycle::open::first_bank_bytes;
use crate::engine::time::filter_time::latest_of_stripes;
use crate::error::Result;
use crate::image::Control;
use crate::media::{Access, Disk, Media};
use crate::meta::Meta;
use crate::recovery::{KnownExtent, rebuild_in_memory};
use ebbtide_core::kind::Kind;
use ebbtide_core::time::OperationTime;
use std::path::Path;

/// Records of the beginning in which an operation with a time is looked for.
const RECORDS: u64 = 1000;

/// What [`Filter::alter`](crate::Filter::alter) would take; see [`plan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlterationPlan {
    /// Records of the log that it reads.
    pub records: u64,
    /// The LSN of the first of them. If it is 1, the log reaches back to the creation of the
    /// filter. Otherwise what was inserted before is forgotten.
    pub first_lsn: u64,
    /// The time of the first operation, if it has one.
    pub since: Option<Timestamp>,
    /// Whether the log has the whole new window, as far as records and times tell.
    /// Otherwise the alteration forgets keys, and must be allowed to
    /// ([`Unlogged::Forget`](super::Unlogged::Forget)).
    pub has_window: bool,
    /// Whether the log has removals, since the last clear, and the new kind cannot remove keys:
    /// removed keys would be in the filter again. Then, too, it must be allowed.
    pub keeps_removed: bool,
    /// Bytes of memory that the filter takes when it is new, with the parameters that it has.
    pub memory_before: u64,
    /// The same, with the new ones. The alteration takes it twice, beside what the filter takes
    /// now, and as many bytes of disk for a snapshot; with an image beside the log twice as many.
    pub memory_after: u64,
}

/// Returns what it would take to give a filter other parameters. Changes nothing.
///
/// ```
/// use ebbtide::{AgePartitioned, Filter, Options, history};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("seen");
/// let options = Options::new().keep_log("24h".parse()?);
/// let seen = Filter::create(&dir, AgePartitioned::last(1000), options)?;
/// seen.insert("order 17")?;
/// let plan = history::plan(&dir, AgePartitioned::last(50_000))?;
/// assert!(plan.has_window && plan.records >= 1 && plan.memory_after > plan.memory_before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter), and as [`History::open`].
pub fn plan<K: Spec>(dir: impl AsRef<Path>, spec: K) -> Result<AlterationPlan> {
    let media = Disk::new(dir.as_ref());
    let kind = spec.kind()?;
    let mut history = History::open(dir.as_ref())?.with_undurable();
    let first_lsn = history.next_lsn();
    let begins = time_at_start(&media, &history.revision, first_lsn)?;
    let former = history.revision.meta.kind.clone();
    // For another window, or none, a clear may be what makes the log enough.
    let wanted = if first_lsn == 1 { 0 } else { window_items(&*kind).unwrap_or(u64::MAX) };
    let Begin { counted, since, is_cleared } = read(&mut history, &*kind, wanted)?;
    let is_without_removal = kind.removal().is_none();
    let (meta, end, latest) = look_at(&media, |meta, known| {
        if let KnownExtent::WritersLive { .. } = known
            && let Some(image) = Control::find(&media, meta.uuid, Access::Read)?
        {
            return Ok((meta.clone(), image.tail().hint(), latest_of_stripes(&image)));
        }
        let rebuilt = rebuild_in_memory(&media, meta, known, &|| {})?;
        let latest = latest_of_stripes(rebuilt.image.header());
        Ok((meta.clone(), rebuilt.prefix.stop, latest))
    })?;
    let by_clock = LatestByClock::new(Clock::system(), latest);
    let begins = begins.map(|begins| by_clock.of(&*former, begins));
    let latest = by_clock.of(&*meta.kind, latest);
    let after = meta_after(&meta, kind)?;
    let memory = |meta: &Meta| first_bank_bytes(&*meta.kind, meta.layout);
    let records = end.saturating_sub(first_lsn);
    Ok(AlterationPlan {
        records,
        first_lsn,
        since,
        has_window: first_lsn == 1
            || is_cleared
            || has_window(&*after.kind, counted, begins, latest),
        keeps_removed: is_without_removal && keeps_removed(&media, end)?,
        memory_before: memory(&meta)?,
        memory_after: memory(&after)?,
    })
}

impl AlterationPlan {
    /// Returns whether the alteration needs [`Unlogged::Forget`](super::Unlogged::Forget).
    #[must_use]
    pub fn must_forget(&self) -> bool {
        !self.has_window || self.keeps_removed
    }
}

/// Returns whether the log below `end` has a removal behind its last clear. Reads all of it, if the
/// filter could ever remove keys.
fn keeps_removed(media: &Disk, end: u64) -> Result<bool> {
    let mut history = History::open(media.path())?.with_undurable();
    let revisions = revisions(media, history.meta())?;
    if !revisions.iter().any(|revision| revision.meta.kind.removal().is_some()) {
        return Ok(false);
    }
    let mut keeps = false;
    while history.next_lsn() < end {
        let operations = history.read_operations(None)?;
        if operations.is_empty() {
            break;
        }
        for operation in operations {
            match operation.change {
                Change::Remove { .. } => keeps = true,
                Change::Clear => keeps = false,
                _ => {}
            }
        }
    }
    Ok(keeps)
}

/// What the beginning of a log has.
struct Begin {
    /// The number of operations that a filter of the new kind takes.
    counted: u64,
    /// The time of the first operation that has one.
    since: Option<Timestamp>,
    /// Whether the filter was cleared there.
    is_cleared: bool,
}

/// Reads the beginning of the log: until an operation has a time, and until this many are found
/// that a filter of this kind takes, or a clear.
fn read(history: &mut History, kind: &dyn Kind, wanted: u64) -> Result<Begin> {
    let (first, mut counted, mut since) = (history.next_lsn(), 0, None);
    let mut is_cleared = false;
    let latest = LatestByClock::new(Clock::system(), OperationTime::default());
    while (counted < wanted && !is_cleared)
        || (since.is_none() && history.next_lsn() <= first + RECORDS)
    {
        let Some(commit) = history.read_patiently()? else { break };
        let mut operations = commit.operations;
        // The time of a claim is that of leases.
        let mut timed = operations.iter().filter(|of| !matches!(of.change, Change::Claim { .. }));
        since = since.or_else(|| timed.find_map(|operation| operation.time));
        take_over(&mut operations, (&*history.revision.meta.kind, kind), &latest);
        let is_taken = |change| match change {
            Change::Insert { .. } => true,
            Change::Remove { .. } => kind.removal().is_some(),
            _ => false,
        };
        counted += operations.iter().filter(|of| is_taken(of.change)).count() as u64;
        is_cleared |= operations.iter().any(|of| of.change == Change::Clear);
    }
    Ok(Begin { counted, since, is_cleared })
}
