//! The state of a filter as of a moment of the past.
//!
//! A moment is an LSN: the state after its record. The state is that of a base whose copy ended
//! before it, and of the records from there up to the moment. A batch counts as a whole or not at
//! all: as of an LSN within one, it has not happened.

use crate::archive::keep_setting::keeps_nothing;
use crate::archive::kept_files::Archive;
use crate::archive::revisions::{Revision, revisions};
use crate::archive::with_kept::{Whole, explained};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::media::Media;
use crate::meta::Meta;
use crate::recovery::batches::{Batches, Group};
use crate::recovery::log_reader::{BATCHES_END_THEMSELVES, LogReader};
use crate::recovery::rebuild::{Recovered, rebuild_files_in_memory};
use crate::recovery::{KnownExtent, Listing};
use crate::snapshot::{Content, SnapshotReader};
use crate::wal::{Op, Record};
use ebbtide_core::time::OperationTime;
use ebbtide_core::units::date_text;
use std::fmt;

/// A moment of a filter's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// After the record with this LSN. If that is in the middle of a batch, before the batch.
    Lsn(u64),
    /// Just before the first committed operation with a later time. An operation of a filter with a
    /// clock has a time whatever the kind. Fails if a deleted part of the log contains a later
    /// time.
    Time(Timestamp),
    /// Before the first commit that set the position of this source beyond this one.
    Position {
        /// The source, as in [`Batch::set_position`](crate::Batch::set_position).
        source: u64,
        /// The position.
        position: u64,
    },
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lsn(lsn) => write!(f, "lsn:{lsn}"),
            Self::Time(time) => f.write_str(&date_text(time.as_unix_micros())),
            Self::Position { source, position } => write!(f, "position:{source}={position}"),
        }
    }
}

/// The log of a filter with the same parameters, and the snapshots from which parts of it can be
/// replayed.
#[derive(Debug)]
pub(crate) struct Past<'a> {
    whole: Whole<'a>,
    revision: Revision,
    listing: Listing,
    history: LogReader,
    known: KnownExtent,
    /// Start and end of each sound snapshot, oldest first.
    bases: Vec<(u64, u64)>,
}

impl<'a> Past<'a> {
    /// Opens the log that has a moment. `known` is the extent of the log by the image, `now` the
    /// filter's `meta`.
    pub(crate) fn of(media: &'a dyn Media, now: &Meta, known: KnownExtent, at: At) -> Result<Self> {
        let mut revisions = revisions(media, now)?;
        // Only of an altered filter there are more.
        let last = revisions.pop().unwrap_or_else(|| Revision::present(now));
        let mut damage = None;
        for revision in revisions {
            let is_before = match at {
                // The last record is the alteration itself: as of it, it has happened.
                At::Lsn(lsn) => revision.reaches(lsn.saturating_add(1)),
                _ => true,
            };
            if !is_before {
                continue;
            }
            match Self::former(media, revision, at) {
                Ok(None) => {}
                Ok(Some(past)) => return past.behind(damage, at),
                // A time may lie behind all of this log.
                Err(error) if matches!(at, At::Time(_)) && error.is_unreadable() => {
                    damage = damage.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        Self::open(media, last, known, at)?.behind(damage, at)
    }

    /// Opens the log from before an alteration, if that shows that it has a moment.
    fn former(media: &'a dyn Media, revision: Revision, at: At) -> Result<Option<Self>> {
        let past = Self::open(media, revision, KnownExtent::Nothing, at)?;
        // Parts of its log may be gone.
        if past.history.segments().is_empty() {
            return Ok(None);
        }
        // Without a later commit, also where its end is gone, the next one decides.
        let has = matches!(at, At::Lsn(_)) || past.first_beyond(at)?.0.is_some();
        Ok(has.then_some(past))
    }

    /// Returns the error met in the log before this one, unless a base of this log proves that no
    /// operation of that log has a later time than the requested one.
    fn behind(self, before: Option<Error>, at: At) -> Result<Self> {
        let log = (&self.whole, self.revision.meta.log_uuid);
        match (before, at) {
            (Some(error), At::Time(time)) if base_until(log, &self.bases, time)?.is_none() => {
                Err(error)
            }
            _ => Ok(self),
        }
    }

    /// Opens the log of a revision, or what a moment needs of it if the rest cannot be opened.
    fn open(media: &'a dyn Media, revision: Revision, known: KnownExtent, at: At) -> Result<Self> {
        let whole = if revision.end.is_some() { Whole::past(media) } else { Whole::new(media) };
        let meta = &revision.meta;
        let mut listing = Listing::of_filter(&whole, meta.log_uuid)?;
        // A damaged header does not say whose it is.
        listing.segments.retain(|&(_, first)| revision.reaches(first));
        let (mut bases, mut unreadable) = (Vec::new(), Vec::new());
        for &start in &listing.snapshots {
            match SnapshotReader::open(&whole, start, meta.log_uuid) {
                Ok(reader) => bases.push((start, reader.header().end)),
                Err(Error::Damaged { .. } | Error::Version { .. }) => {}
                Err(error) if error.is_unreadable() => unreadable.push(start),
                Err(error) => return Err(error),
            }
        }
        listing.snapshots.retain(|start| !unreadable.contains(start));
        bases.sort_unstable();
        let first = listing.segments.first().map(|&(_, first)| first);
        if let Some(first) = first {
            // A full disk removes the log of an older snapshot first.
            bases.retain(|&(start, _)| start >= first);
            listing.snapshots.retain(|&start| start >= first);
        }
        // Below the oldest base, log may be missing anywhere.
        if first.is_some_and(|first| first > 1) {
            let oldest = bases.first().map_or(u64::MAX, |&(start, _)| start);
            listing.segments = listing.segments.split_off(listing.segments_below(oldest).len());
        }
        let history = match LogReader::open(&whole, &listing, meta.log_uuid) {
            Err(error) if error.is_unreadable() => {
                let needed = needed_from((&whole, meta.log_uuid), &bases, at)?;
                let start = needed.ok_or(error)?;
                bases.retain(|base| base.0 >= start);
                listing.snapshots.retain(|&snapshot| snapshot >= start);
                listing.segments.drain(..listing.segments_below(start).len());
                LogReader::open(&whole, &listing, meta.log_uuid)?
            }
            opened => opened?,
        };
        history.end_at(revision.end.unwrap_or(u64::MAX));
        Ok(Self { whole, revision, listing, history, known, bases })
    }

    /// Returns the parameters, and the LSN at which they ended.
    pub(crate) fn revision(&self) -> &Revision {
        &self.revision
    }

    /// Returns the LSN of the first commit that lies beyond a moment, and where reading ended.
    fn first_beyond(&self, at: At) -> Result<(Option<u64>, u64)> {
        self.search(self.search_from(at)?, |record| match at {
            At::Lsn(_) => false,
            At::Time(time) => time_of(record) > time.as_unix_micros(),
            At::Position { source, position } => {
                record.op == Op::Position && record.payload == source && record.time > position
            }
        })
    }

    /// Returns where a search for the first commit beyond a moment begins: for a time, at the
    /// newest base that has no later one. A position may have been set back since it was beyond.
    fn search_from(&self, at: At) -> Result<u64> {
        let At::Time(time) = at else { return Ok(self.first()) };
        let base = base_until((&self.whole, self.revision.meta.log_uuid), &self.bases, time)?;
        Ok(base.map_or(self.first(), |base| self.bases[base].0.max(self.first())))
    }

    /// Returns the LSN of the first commit from `first` on that has such a record, and where
    /// reading ended.
    fn search(
        &self,
        first: u64,
        mut is: impl FnMut(&Record) -> bool,
    ) -> Result<(Option<u64>, u64)> {
        let found = self.log().search(first, |group| group.iter().any(|(_, record)| is(record)));
        self.history.end_at(self.revision.end.unwrap_or(u64::MAX));
        found
    }

    /// Returns the first LSN that is there.
    fn first(&self) -> u64 {
        self.history.segments().first().map_or(1, |segment| segment.first)
    }

    /// Returns the first moment that can be reached.
    fn reaches_from(&self) -> u64 {
        if self.first() == 1 {
            return 0;
        }
        self.bases.first().map_or(u64::MAX, |&(_, end)| end.saturating_sub(1))
    }

    /// Returns the LSN beyond a moment, as far as the log has it.
    fn limit(&self, at: At) -> Result<u64> {
        match at {
            At::Lsn(lsn) => Ok(lsn.saturating_add(1)),
            At::Time(time) if self.revision.end.is_none() => self.before_time(time),
            at => {
                let (found, end) = self.first_beyond(at)?;
                Ok(found.unwrap_or(end))
            }
        }
    }

    /// Returns the LSN of the first commit that is later. A time that has not come yet is an error.
    fn before_time(&self, time: Timestamp) -> Result<u64> {
        let (micros, mut latest) = (time.as_unix_micros(), 0);
        let from = self.search_from(At::Time(time))?;
        // That of operations before.
        let base = self.bases.iter().rfind(|base| base.0 <= from).or(self.bases.first());
        if let Some(&(start, _)) = base {
            let times = latest_of((&self.whole, self.revision.meta.log_uuid), start)?;
            latest = times.unwrap_or_default();
        }
        let (found, end) = self.search(from, |record| {
            let time = time_of(record);
            latest = latest.max(time);
            time > micros
        })?;
        let limit = found.unwrap_or(end);
        if latest == 0 {
            let expected = "lsn:N or position:SOURCE=N: the log of this filter has no times yet";
            return Err(Error::parameter("at", expected, At::Time(time).to_string()));
        }
        if micros > latest && time > Timestamp::now() {
            let wanted = format!("{}, which has not come yet", At::Time(time));
            let path = self.whole.path().to_path_buf();
            let from = self.reaches_from().min(limit);
            let lacks_keep_log = false;
            return Err(Error::NotKept { path, wanted, from, end: limit, lacks_keep_log });
        }
        Ok(limit)
    }

    /// Returns the LSN from which on the commits have not happened as of an LSN: the next one, or
    /// the beginning of the batch that this one is in. `None` if the log ends before that.
    fn commit_after(&self, lsn: u64) -> Result<Option<u64>> {
        // The longest batch, and its events.
        const LONGEST: u64 = 1 << 18;
        // No base begins within a batch.
        let base = self.bases.iter().rfind(|base| base.0 <= lsn).map_or(0, |base| base.0);
        let from = lsn.saturating_sub(LONGEST).max(base).max(self.first());
        let find = |from| self.log().search(from, |group| group[group.len() - 1].0 > lsn);
        let (found, end) = match find(from) {
            // Log before a moment is not needed to continue after it.
            Err(error) if error.is_damage() => {
                let of = (self.known, lsn);
                let begins = self.history.behind_damage(&self.whole, from, of);
                find(begins.ok_or(error)?)?
            }
            found => found?,
        };
        // Behind a commit the next LSN comes, also if its record does not count: that of a batch
        // which was never completed. Within such a batch the rest does not count either, unless its
        // header told that it is one.
        let next = lsn.saturating_add(1);
        let ends_itself = self.history.version() >= BATCHES_END_THEMSELVES;
        let found = found.map(|found| if ends_itself { found.min(next) } else { found });
        Ok(found.or((lsn < end).then_some(next)))
    }

    fn log(&self) -> Log<'_> {
        Log { whole: &self.whole, history: &self.history, known: self.known }
    }

    /// Returns the LSN after a moment, from which on the log has every record.
    ///
    /// # Errors
    /// [`Error::NotKept`], [`Error::Damaged`], [`Error::Io`].
    pub(crate) fn next_after(&self, at: At) -> Result<u64> {
        let first = self.first();
        let limit = match at {
            At::Lsn(lsn) if lsn >= first => self.commit_after(lsn)?,
            at => Some(self.limit(at)?),
        };
        self.history.end_at(self.revision.end.unwrap_or(u64::MAX));
        let is_gone = self.begins_beyond(at)?;
        if let Some(limit) = limit.filter(|&limit| limit >= first && !is_gone) {
            return Ok(limit);
        }
        let end = self.history.end(&self.whole, self.known)?;
        let from = if is_gone { self.reaches_from().min(end) } else { first - 1 };
        let oldest = self.bases.first().filter(|base| limit.is_some_and(|limit| limit >= base.1));
        let latest = match (at, oldest) {
            (At::Time(_), Some(&(start, _))) => {
                latest_of((&self.whole, self.revision.meta.log_uuid), start)?
            }
            _ => None,
        };
        let wanted = latest.map_or_else(|| at.to_string(), |latest| behind(at, latest));
        let path = self.whole.path().to_path_buf();
        let lacks_keep_log = is_gone || limit.is_some();
        Err(Error::NotKept { path, wanted, from, end, lacks_keep_log })
    }

    /// Returns whether a time or a position lies in log that is gone: the oldest base, which has
    /// all that came before, has something beyond it.
    fn begins_beyond(&self, at: At) -> Result<bool> {
        let (is_whole, log) = (self.first() == 1, self.revision.meta.log_uuid);
        match at {
            At::Lsn(_) => Ok(false),
            _ if is_whole => Ok(false),
            At::Time(time) => Ok(base_until((&self.whole, log), &self.bases, time)?.is_none()),
            At::Position { source, position } => {
                let Some(&(start, _)) = self.bases.first() else { return Ok(true) };
                let mut is_beyond = false;
                SnapshotReader::open(&self.whole, start, log)?.frames(|_, frame, words| {
                    let mut pairs = words.chunks_exact(2);
                    is_beyond |= frame.content == Content::Positions
                        && pairs.any(|pair| pair[0] == source && pair[1] > position);
                    Ok(())
                })?;
                Ok(is_beyond)
            }
        }
    }

    /// Rebuilds the state as of a moment, in memory.
    ///
    /// # Errors
    /// [`Error::NotKept`], and as [`rebuild_files_in_memory`].
    pub(crate) fn rebuild(self, at: At) -> Result<(Recovered, Meta)> {
        let meta = self.revision.meta.clone();
        Ok((self.rebuild_whole(at)?.0, meta))
    }

    /// As [`Past::rebuild`]; also returns the directory with all log, and its extent by the image.
    ///
    /// # Errors
    /// Those of [`Past::rebuild`].
    pub(crate) fn rebuild_whole(self, at: At) -> Result<(Recovered, Whole<'a>, KnownExtent)> {
        let (limit, from) = (self.limit(at)?, self.reaches_from());
        // Before a source had a position, what it set later shows where that was.
        let is_set_later = match at {
            At::Position { .. } => self.first_beyond(at)?.0.is_some(),
            _ => false,
        };
        let Self { whole, revision, mut listing, history, known, bases } = self;
        let not_kept = |wanted, history: &LogReader| -> Error {
            history.end_at(revision.end.unwrap_or(u64::MAX));
            let path = whole.path().to_path_buf();
            match history.end(&whole, known) {
                Ok(end) => {
                    let (from, lacks_keep_log) = (from.min(end), limit <= from);
                    Error::NotKept { path, wanted, from, end, lacks_keep_log }
                }
                Err(error) => error,
            }
        };
        if limit <= from {
            return Err(not_kept(at.to_string(), &history));
        }
        let base = bases.iter().rev().find(|&&(_, end)| end <= limit);
        let base = base.map_or(0, |&(start, _)| start);
        listing.snapshots.retain(|&start| start <= base);
        history.end_at(limit);
        let recovered = rebuild_files_in_memory(&whole, &revision.meta, (listing, history), known)?;
        let beyond = match at {
            // Less of the log is there, or the LSN is within a batch.
            At::Lsn(lsn) if recovered.prefix.stop <= lsn => {
                recovered.history.end_at(revision.end.unwrap_or(u64::MAX));
                let log = Log { whole: &whole, history: &recovered.history, known };
                (log.end(recovered.start)? <= lsn).then(|| at.to_string())
            }
            At::Lsn(_) => None,
            At::Position { source, position } => {
                match recovered.image.header().positions().get(source) {
                    Some(found) => (found > position).then(|| at.to_string()),
                    None => (!is_set_later).then(|| format!("{at}, which no commit has set")),
                }
            }
            At::Time(time) => {
                let latest = OperationTime::from_word(recovered.image.sum_stripes().1).time;
                (latest > time.as_unix_micros()).then(|| behind(at, latest))
            }
        };
        if let Some(wanted) = beyond {
            return Err(not_kept(wanted, &recovered.history));
        }
        Ok((recovered, whole, known))
    }
}

/// Returns an error of [`Past`] as one of the whole past of a filter: with all moments that can be
/// asked for, also those before and after the alteration nearest to it, and with the names that
/// kept files have. `now` is the filter's `meta`; `lacks_keep_log` tells so far that the moment is
/// an older one.
pub(crate) fn of_whole_past(
    (media, now, known): (&dyn Media, &Meta, KnownExtent),
    error: Error,
) -> Error {
    let Error::NotKept { path, wanted, mut from, mut end, lacks_keep_log } = error else {
        return explained(media, error);
    };
    // What cannot be read now does not make the range wider. A moment before what is there was
    // looked for in the oldest part.
    if !lacks_keep_log
        && let Ok(Some(all)) = Archive::read(media, now).map(|archive| archive.reaches_from())
    {
        from = from.min(all);
    }
    let present = Past::open(media, Revision::present(now), known, At::Lsn(u64::MAX));
    if let Ok(present_end) = present.and_then(|past| past.history.end(&past.whole, known)) {
        end = end.max(present_end);
    }
    let lacks_keep_log = lacks_keep_log && keeps_nothing(media);
    Error::NotKept { path, wanted, from, end, lacks_keep_log }
}

/// Returns the latest time that a base has; `None` if it is damaged behind its header.
fn latest_of((whole, log): (&Whole<'_>, u128), start: u64) -> Result<Option<u64>> {
    let latest = SnapshotReader::open(whole, start, log).and_then(|mut base| base.latest_time());
    match latest {
        Ok(word) => Ok(Some(OperationTime::from_word(word).time)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the number of the newest base without an operation that is later. Times in bases never
/// decrease.
fn base_until(
    log: (&Whole<'_>, u128),
    bases: &[(u64, u64)],
    time: Timestamp,
) -> Result<Option<usize>> {
    for (number, &(start, _)) in bases.iter().enumerate().rev() {
        if latest_of(log, start)?.is_some_and(|latest| latest <= time.as_unix_micros()) {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Returns where the base begins that is enough to reach a moment; `None` if all log may be needed.
fn needed_from(log: (&Whole<'_>, u128), bases: &[(u64, u64)], at: At) -> Result<Option<u64>> {
    let base = match at {
        At::Lsn(lsn) => bases.iter().rposition(|&(_, end)| end <= lsn.saturating_add(1)),
        // If others wrote meanwhile, the copy of the newest one may have ended after the moment.
        At::Time(time) => base_until(log, bases, time)?.and_then(|base| {
            let (start, end) = bases[base];
            if start == end { Some(base) } else { base.checked_sub(1) }
        }),
        At::Position { .. } => None,
    };
    Ok(base.map(|base| bases[base].0))
}

/// Returns a time with the reason why its state cannot be found although the log from there on is
/// kept: a deleted part of the log contains a later one.
fn behind(at: At, latest: u64) -> String {
    let latest = date_text(latest);
    format!(
        "{at}, because a deleted part of the log contains an operation with the later time \
         {latest} (a clock was set back, or keys came late); `lsn:N` reaches every moment that is \
         kept"
    )
}

/// Returns the time of an operation; 0 for those without one. That of a claim is the time of
/// leases.
fn time_of(record: &Record) -> u64 {
    if record.op.is_apart() { 0 } else { record.time }
}

/// The log of a revision.
struct Log<'a> {
    whole: &'a Whole<'a>,
    history: &'a LogReader,
    known: KnownExtent,
}

impl Log<'_> {
    /// Returns the LSN after the last record.
    fn end(&self, first: u64) -> Result<u64> {
        Ok(self.search(first, |_| false)?.1)
    }

    /// Returns the LSN of the first such commit from `first` on, and where reading ended.
    fn search(
        &self,
        first: u64,
        mut is: impl FnMut(Group<'_>) -> bool,
    ) -> Result<(Option<u64>, u64)> {
        let (mut batches, mut found) = (Batches::default(), None);
        let mut look = |group: Group<'_>, counts: bool| {
            if found.is_none() && counts && is(group) {
                found = Some(group[0].0);
                // The rest need not be read.
                self.history.end_at(group[group.len() - 1].0 + 1);
            }
            Ok(())
        };
        let read = self.history.read(self.whole, first, self.known, |_, lsn, record| {
            batches.take(lsn, record, &mut look)
        });
        let stop = batches.end(read?.stop, |_, _| Ok(()))?;
        Ok((found, stop))
    }
}
