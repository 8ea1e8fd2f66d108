//! A new filter from the operations of others.

mod unfinished;

use crate::admin::look::look_at;
use crate::api::alter::check_weights;
use crate::api::alter::refill::{is_taken, time_in};
use crate::api::alter::take_over::{LatestByClock, has_removals, take_over};
use crate::api::batch::Batch;
use crate::api::config::Spec;
use crate::api::entry::AHEAD;
use crate::api::handle::Filter;
use crate::api::history::operations::{Change, Commit, Operation};
use crate::api::history::read_log::History;
use crate::api::paths::new_disk;
use crate::api::remake::unfinished::Unfinished;
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::engine::lifecycle::{open, options_match};
use crate::engine::time::filter_time::Stamp;
use crate::engine::write::clear::clear;
use crate::engine::write::request::{Precondition, Request, Waits};
use crate::engine::write::single::write_recorded;
use crate::error::{Error, Result};
use crate::image::{Control, clock_offset};
use crate::media::{Access, Disk};
use crate::options::{Durability, Options};
use crate::recovery::KnownExtent;
use ebbtide_core::hash::{KeyHasher, mix, scale};
use ebbtide_core::kind::Kind;
use ebbtide_core::time::OperationTime;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Operations after which a checkpoint is written, so that the log stays short.
const CHECKPOINT_EVERY: u64 = 1 << 20;

/// A share of all keys, by their hash: one of `count` equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    pub number: u64,
    /// The number of shares.
    pub count: u64,
}

impl Share {
    /// Returns the number of the share, of `count`, that a key hash belongs to: that of a
    /// [`Change`], or of [`Filter::key_hash`](crate::Filter::key_hash). It depends on all bits of
    /// the hash, so that a share has keys in all parts of its filter.
    #[must_use]
    pub fn of(hash: u64, count: u64) -> u64 {
        scale(mix(hash), count)
    }

    fn has(&self, hash: u64) -> bool {
        Self::of(hash, self.count) == self.number
    }
}

/// The result of [`remake`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remade {
    /// Inserts and removals that the new filter has taken: all but those of keys that were too late
    /// for it, or not there.
    pub operations: u64,
    /// Whether the logs reach back to the creation of each filter. Otherwise the new one does not
    /// know what was inserted before.
    pub is_whole: bool,
    /// The time of the first operation, if it has one.
    pub since: Option<Timestamp>,
}

/// A log that is read beside others.
struct Source {
    history: History,
    next: Option<Commit>,
    /// The time of the next commit, or of one before if that has none.
    time: Option<Timestamp>,
    /// The latest time that a clock gave.
    by_clock: Option<Timestamp>,
    /// How far the filter is ahead of the wall clock, in milliseconds.
    offset: i64,
    part: Part,
    latest: LatestByClock,
}

/// What is taken of a log.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Up to here only the positions.
    cleared: u64,
    /// Up to here.
    end: u64,
}

impl Part {
    const ALL: Self = Self { cleared: 0, end: u64::MAX };

    /// Returns all of a filter's log, up to the log's end now if others write to it: they may be
    /// faster than who reads.
    fn until_now(dir: &Path) -> Result<Self> {
        let media = Disk::new(dir);
        let end = look_at(&media, |meta, known| {
            let image = match known {
                KnownExtent::WritersLive { .. } => Control::find(&media, meta.uuid, Access::Read)?,
                _ => None,
            };
            Ok(image.map_or(u64::MAX, |image| image.tail().hint()))
        })?;
        Ok(Self { end: end.saturating_sub(1), ..Self::ALL })
    }

    /// Returns what a filter has of its log, up to the log's end now; and the latest time that came
    /// with a key.
    fn of(dir: &Path) -> Result<(Self, OperationTime)> {
        let (mut part, mut latest) = (Self { cleared: 0, end: 0 }, OperationTime::default());
        let most = Self::until_now(dir)?.end;
        let mut history = History::open(dir)?.with_undurable();
        while let Some(commit) = history.read_patiently()?.filter(|commit| commit.lsn <= most) {
            part.end = commit.lsn;
            for Operation { lsn, time, is_stream_time, change } in commit.operations {
                if matches!(change, Change::Clear) {
                    part.cleared = lsn;
                }
                let time = time.filter(|_| is_stream_time).map_or(0, Timestamp::as_unix_micros);
                if time > latest.time {
                    latest = OperationTime { time, stream: true };
                }
            }
        }
        Ok((part, latest))
    }

    fn has(&self, operation: &Operation) -> bool {
        operation.lsn > self.cleared || matches!(operation.change, Change::Position { .. })
    }
}

impl Source {
    fn open(dir: &Path) -> Result<Self> {
        let history = History::open(dir)?.with_undurable();
        let offset = clock_offset::previous(&Disk::new(dir), history.meta().uuid)?.unwrap_or(0);
        let latest = LatestByClock::new(Clock::system(), OperationTime::default());
        let part = Part::ALL;
        Ok(Self { history, next: None, time: None, by_clock: None, offset, part, latest })
    }

    /// Prepares that a filter of this kind takes the log over, alone or beside others. Reads it
    /// once if necessary.
    fn prepare(&mut self, dir: &Path, to: &dyn Kind, clock: &Clock, is_alone: bool) -> Result<()> {
        let kinds = [&self.history.revision.meta.kind, &self.history.meta().kind];
        let was_without_time = to.uses_time() && kinds.iter().any(|kind| !kind.uses_time());
        let (part, with_keys) = if !is_alone || was_without_time {
            Part::of(dir)?
        } else {
            (Part::until_now(dir)?, OperationTime::default())
        };
        // Of several, a clear is of the filter's own keys.
        self.part = if is_alone { Part { cleared: 0, ..part } } else { part };
        self.latest = LatestByClock::new(clock.clone(), with_keys);
        Ok(())
    }

    fn advance(&mut self, to: &dyn Kind) -> Result<Option<Commit>> {
        let read = self.history.read_patiently()?;
        let mut next = read.filter(|commit| commit.lsn <= self.part.end);
        if let Some(commit) = &mut next {
            let from = &*self.history.revision.meta.kind;
            take_over(&mut commit.operations, (from, to), &self.latest);
        }
        let times = next.iter().flat_map(|commit| &commit.operations);
        // That of a claim is the time of leases.
        let is_key = |of: &&Operation| !matches!(of.change, Change::Claim { .. });
        self.time = times.clone().filter(is_key).find_map(|of| of.time).or(self.time);
        let by_clock = times.filter(|of| is_key(of) && !of.is_stream_time);
        self.by_clock = self.by_clock.max(by_clock.filter_map(|of| of.time).max());
        if let Some(commit) = &mut next {
            commit.operations.retain(|operation| self.part.has(operation));
        }
        Ok(std::mem::replace(&mut self.next, next))
    }
}

/// Makes a filter in a new directory from the logs of others: it answers as one with this kind and
/// these parameters that has had all of their operations, in the order of their times, since the
/// beginning of their logs ([`Options::keep_log`]).
///
/// - Of one filter: the same with another window, rate, capacity or kind.
/// - Of several with the same hash of keys ([`Options::hash_seed`]): their union. Operations
///   without times come one filter after the other. Of a filter that was cleared, the keys since
///   its last clear: it removes no keys of others. To find it, each log is read twice.
/// - With a [`Share`]: only of some keys. All positions of sources stay, also those from before a
///   clear.
///
/// Keys are hashed as before: options that name another function or seed are refused. Durability,
/// downtime and `max_lead` are those of the first filter, unless the options say otherwise.
/// Importances keep their levels, so that kinds with importances must stay as they are. Counts are
/// no importances, and are nothing for a kind that does not count: an operation with a count is
/// one without. Where the new kind has a window in time and the former did not use time,
/// operations by a clock that was ahead of `options`' one, the system's if that is none, come at
/// the time of that one. Claims are left out. The filters may be open; what they do after the end
/// of their logs was read is not there. The new filter begins a log of its own, with the LSNs of
/// its own operations.
///
/// ```
/// use ebbtide::history::remake;
/// use ebbtide::{AgePartitioned, Filter, Keep, Options};
/// # let parent = tempfile::tempdir()?;
/// # let (dir, new) = (parent.path().join("seen"), parent.path().join("new"));
/// let options = Options::new().keep_log("24h".parse()?);
/// let seen = Filter::create(&dir, AgePartitioned::last(1000), options.clone())?;
/// seen.insert("order 17")?;
/// let made = remake(&[&dir], &new, AgePartitioned::last(50_000), options.clone(), None)?;
/// assert!(made.is_whole && made.operations == 1);
/// let larger: Filter<AgePartitioned> = Filter::open(&new, options)?;
/// assert!(larger.contains("order 17")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Mismatch`] if the filters differ in the hash of keys, or in importances, or the options
/// name another hash;
/// [`Error::Locked`] while another call makes a filter in the same directory;
/// [`Error::Parameter`], also for a kind that cannot remove keys if the log has a removal since the
/// last clear; [`Error::Exists`], and as [`History::open`] and
/// [`Filter::create`](crate::Filter::create). Then there is no new filter, unless an [`Error::Io`]
/// came at the very end, when the directory above was synced: then it is there, and may be gone
/// after a power cut.
pub fn remake<K: Spec, P: AsRef<Path>>(
    from: &[P],
    dir: impl AsRef<Path>,
    spec: K,
    options: Options,
    share: Option<Share>,
) -> Result<Remade> {
    let opened = from.iter().map(|dir| Source::open(dir.as_ref()));
    let mut sources = opened.collect::<Result<Vec<_>>>()?;
    let Some(first) = sources.first() else {
        return Err(Error::parameter("filters", "at least one", "none"));
    };
    if let Some(share) = share.filter(|share| share.number >= share.count) {
        let expected = format!("a number below {}", share.count);
        return Err(Error::parameter("share", expected, share.number));
    }
    let meta = first.history.meta();
    let hasher = meta.hasher;
    let mut options = options;
    options.durability.get_or_insert(meta.durability);
    options.downtime.get_or_insert(meta.downtime);
    options.max_lead.get_or_insert(Duration::from_micros(meta.max_lead));
    let kind = spec.kind()?;
    for (source, dir) in sources.iter().zip(from) {
        check_same_keys(source, dir.as_ref(), hasher)?;
        options_match::check_hash(dir.as_ref(), hasher, &options)?;
        check_weights(dir.as_ref(), source.history.meta(), &*kind)?;
    }
    let place = Unfinished::begin(dir.as_ref(), &options)?;
    let is_alone = sources.len() == 1;
    for (source, dir) in sources.iter_mut().zip(from) {
        source.prepare(dir.as_ref(), &*kind, &options.clock, is_alone)?;
    }
    let made = fill(sources, place.path(), spec, options, (hasher, share))?;
    place.finish()?;
    Ok(made)
}

/// Checks that [`remake`] can make a filter in this directory, as it does before its work. For
/// whoever makes several.
///
/// # Errors
/// [`Error::Exists`], [`Error::Parameter`], [`Error::Io`].
#[doc(hidden)]
pub fn check_new(dir: impl AsRef<Path>) -> Result<()> {
    unfinished::check(dir.as_ref()).map(drop)
}

/// Checks that a filter hashes keys as the first one does.
fn check_same_keys(source: &Source, dir: &Path, hasher: KeyHasher) -> Result<()> {
    if source.history.meta().hasher == hasher {
        return Ok(());
    }
    Err(Error::Mismatch {
        path: dir.to_path_buf(),
        what: "hash of keys".to_owned(),
        expected: "the function and the seed of the first filter".to_owned(),
        found: "others: create filters that will be united with one `hash_seed`".to_owned(),
    })
}

/// Writes the operations into a new filter in this directory.
fn fill<K: Spec>(
    mut sources: Vec<Source>,
    dir: &Path,
    spec: K,
    options: Options,
    (hasher, share): (KeyHasher, Option<Share>),
) -> Result<Remade> {
    let (mut is_whole, kind) = (true, spec.kind()?);
    for source in &mut sources {
        is_whole &= source.history.next_lsn() == 1;
        source.advance(&*kind)?;
    }
    // Its time is in the log.
    let clock = ManualClock::new(Timestamp::default());
    let settings = options.background(false).clock(clock.clone().into());
    let media = Arc::new(new_disk(dir, &settings)?);
    let engine = open::create_with(media, kind.clone(), settings, Some(hasher))?;
    let filter = Filter::<K>::start(engine)?;
    let mut writing = Writing { filter, has_clock: false, keeps_removed: false, share };
    let mut made = Remade { operations: 0, is_whole, since: None };
    // The earliest, and of several the first.
    let earliest = |sources: &[Source]| {
        let open = (0..sources.len()).filter(|&at| sources[at].next.is_some());
        open.min_by_key(|&at| (sources[at].time, at))
    };
    let mut next = Vec::with_capacity(AHEAD);
    while let Some(at) = earliest(&sources) {
        next.extend(sources[at].advance(&*kind)?.into_iter().flat_map(|commit| commit.operations));
        if next.len() >= AHEAD {
            writing.write_all(&next, &mut made)?;
            next.clear();
        }
    }
    writing.write_all(&next, &mut made)?;
    if writing.keeps_removed {
        return Err(has_removals(&*kind, ""));
    }
    if writing.has_clock {
        // Whoever opens it continues from there by a clock, as far ahead of it as the filter that
        // was the latest by a clock: a clock that was wrong was so for its keys.
        let latest = writing.filter.engine().time.latest().time;
        let offset = sources.iter().max_by_key(|source| source.by_clock).map_or(0, |of| of.offset);
        let wall = (latest as i64).saturating_sub(offset.saturating_mul(1000));
        clock.set_wall(Timestamp::from_unix_micros(wall.max(0) as u64));
        writing.filter.engine().time.continue_from(latest);
    }
    writing.filter.close()?;
    Ok(made)
}

/// A filter that takes operations of others.
struct Writing<K> {
    filter: Filter<K>,
    /// Whether a clock has moved the filter.
    has_clock: bool,
    /// Whether there was a removal, since the last clear, that the kind cannot make.
    keeps_removed: bool,
    share: Option<Share>,
}

impl<K: Spec> Writing<K> {
    /// Writes operations, whose cells are prefetched.
    fn write_all(&mut self, operations: &[Operation], made: &mut Remade) -> Result<()> {
        for operations in operations.chunks(AHEAD) {
            for operation in operations {
                if let Change::Insert { hash, .. } = operation.change {
                    self.filter.engine().writer.prefetch_to_write(hash);
                }
            }
            for operation in operations {
                if self.write(operation)? {
                    made.since = made.since.or(operation.time);
                    made.operations += 1;
                    if made.operations.is_multiple_of(CHECKPOINT_EVERY) {
                        self.filter.checkpoint()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes an operation. Returns whether it was one on a key of this share, and was taken.
    fn write(&mut self, operation: &Operation) -> Result<bool> {
        let engine = self.filter.engine();
        let (writer, kind) = (&engine.writer, engine.shared.kind());
        let latest = if kind.uses_time() { engine.time.latest() } else { Stamp::default() };
        let time = time_in(operation, kind.uses_time(), latest);
        let is_by_clock = kind.uses_time() && time.time > 0 && !time.stream;
        let weight = |weight: u32| if kind.weights().is_some() { weight.into() } else { 1 };
        let request = match operation.change {
            Change::Insert { hash, weight: of } => {
                Request::new(hash, None, weight(of), Precondition::Nothing, Waits::Always)
            }
            Change::Remove { hash, weight: of } if kind.removal().is_some() => {
                Request::remove(hash, None, weight(of), Waits::Always)
            }
            Change::Clear => {
                clear(writer, Some(time))?;
                self.keeps_removed = false;
                self.has_clock |= is_by_clock;
                return Ok(false);
            }
            Change::Position { source, position } => {
                let mut batch = Batch::new(self.filter.call().durability(Durability::Never));
                batch.set_position(source, position)?;
                batch.commit()?;
                return Ok(false);
            }
            Change::Remove { hash, .. } => {
                self.keeps_removed |= self.share.is_none_or(|share| share.has(hash));
                return Ok(false);
            }
            Change::Claim { .. } | Change::Release { .. } => return Ok(false),
        };
        if self.share.is_some_and(|share| !share.has(request.asked.hash)) {
            return Ok(false);
        }
        let written = write_recorded(writer, &request.recorded(time))?;
        self.has_clock |= is_by_clock;
        Ok(is_taken(operation, written.checked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Any, Bloom};

    #[test]
    fn a_single_source_ends_where_its_log_ended_when_the_copy_began() {
        let home = tempfile::tempdir().expect("a directory");
        let options = || Options::new().background(false);
        let filter = Filter::create(home.path(), Bloom::capacity(1000), options());
        let filter = filter.expect("a filter");
        let insert = |key: u64| filter.insert(key.to_le_bytes()).expect("an insert");
        (0..10).for_each(|key| assert!(insert(key)));
        let kind = "bloom capacity=2000".parse::<Any>().and_then(|spec| spec.kind());
        let kind = kind.expect("a kind");
        let mut source = Source::open(home.path()).expect("its log");
        source.prepare(home.path(), &*kind, &Clock::system(), true).expect("the end");
        (10..20).for_each(|key| assert!(insert(key)));
        source.advance(&*kind).expect("the first commit");
        let mut operations = 0;
        while source.next.is_some() {
            operations +=
                source.advance(&*kind).expect("a commit").map_or(0, |of| of.operations.len());
        }
        assert_eq!(operations, 10);
    }
}
