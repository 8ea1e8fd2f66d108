//! The operations in a log, read while others write it.

mod collected;

use crate::admin::look::{PATIENCE, look_at, look_within};
use crate::admin::parts::Piece;
use crate::api::history::operations::{Commit, Operation};
use crate::api::history::read_log::collected::{Collected, Raw, Read};
use crate::api::reader::view::open_meta;
use crate::archive::At;
use crate::archive::keep_setting::keeps_nothing;
use crate::archive::log_before_alteration::follows;
use crate::archive::past::{Past, of_whole_past};
use crate::archive::revisions::{Revision, revisions};
use crate::archive::with_kept::{Whole, explained};
use crate::engine::lifecycle::open::read_meta;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::{Disk, Media, MediaFile};
use crate::meta::Meta;
use crate::platform::fork::Guard;
use crate::primitives::{self, Instant};
use crate::recovery::batches::Batches;
use crate::recovery::log_reader::LogReader as Log;
use crate::recovery::{KnownExtent, Listing};
use crate::wal::segment::owner;
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The pause of a reader that waits for more.
const PAUSE: Duration = Duration::from_millis(5);
/// The time to wait for a process that opens or closes the filter, for a caller that tries again.
const BRIEFLY: Duration = Duration::from_millis(100);

/// The interval at which a reader that finds nothing checks whether its filter is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What changed a filter, in the order in which it happened: an iterator of [`Commit`]s.
///
/// It passes over what has not happened, by the rules of recovery: slots that were never written,
/// and batches that their writer did not finish. Reading takes no lock and delays no writer. The
/// iterator ends where the log ends now; asked again later, it continues with what came since.
/// [`History::wait`] waits for that.
///
/// By default it returns what survives a power cut: operations that are not durable yet come once
/// they are. [`History::with_undurable`] changes that.
///
/// ```
/// use ebbtide::history::{Change, History};
/// use ebbtide::{AgePartitioned, Durability, Filter, Keep, Options};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("seen");
/// let options = Options::new().keep_log("24h".parse()?).durability(Durability::Always);
/// let seen = Filter::create(&dir, AgePartitioned::last(10_000), options)?;
/// seen.insert("order 17")?;
/// seen.clear()?;
/// let changes: Vec<_> = History::open(&dir)?
///     .map(|commit| Ok(commit?.operations[0].change))
///     .collect::<ebbtide::Result<_>>()?;
/// assert!(matches!(changes[..], [Change::Insert { weight: 1, .. }, Change::Clear]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct History {
    media: Arc<dyn Media>,
    /// In a forked child the log is not mapped.
    guard: Guard,
    /// The filter's `meta` now.
    now: Meta,
    /// The file `meta`, kept open so that no other file gets its inode number.
    file: Box<dyn MediaFile>,
    /// When it was last checked to be that of the filter's path.
    looked: Instant,
    /// The part of the log that is read.
    pub(in crate::api) revision: Revision,
    /// The LSN to read next.
    next: u64,
    /// The timeline of the record before it; 0 if none was read.
    timeline: u64,
    durable: bool,
    read: VecDeque<Commit>,
    /// The log, if it is known to have more.
    log: Option<Log>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut history = f.debug_struct("History");
        history.field("path", &self.media.path()).field("next_lsn", &self.next_lsn());
        history.finish_non_exhaustive()
    }
}

impl History {
    /// Opens the log of a filter, from its oldest record on.
    ///
    /// # Errors
    /// [`Error::NotAFilter`], [`Error::Locked`], [`Error::Damaged`], [`Error::Version`],
    /// [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_on(Arc::new(Disk::new(dir.as_ref())))
    }

    /// As [`History::open`], on a medium provided by the caller.
    ///
    /// # Errors
    /// As [`History::open`].
    pub fn open_on(media: Arc<dyn Media>) -> Result<Self> {
        let (now, file, (revision, next)) = look_at(&*media, |now, _| {
            let file = open_meta(&*media)?;
            for revision in revisions(&*media, now)? {
                let listing = Listing::of_filter(&Whole::new(&*media), revision.meta.log_uuid)?;
                if let Some(&(_, first)) = listing.segments.first() {
                    return Ok((now.clone(), file, (revision, first)));
                }
            }
            Ok((now.clone(), file, (Revision::present(now), 1)))
        })?;
        let (timeline, durable, read, log) = (0, true, VecDeque::new(), None);
        let (looked, guard) = (Instant::now(), Guard::new());
        Ok(Self { media, guard, now, file, looked, revision, next, timeline, durable, read, log })
    }

    /// Continues after a moment: with the first commit that had not happened then.
    ///
    /// # Errors
    /// [`Error::NotKept`] if the log does not have it any more, [`Error::Forked`] as
    /// [`History::read`], and as [`History::open`].
    pub fn after(mut self, at: At) -> Result<Self> {
        self.check_process()?;
        let (now, file, (revision, next)) = look_at(&*self.media, |now, known| {
            let file = open_meta(&*self.media)?;
            let past = Past::of(&*self.media, now, known, at);
            let found = past.and_then(|past| Ok((past.revision().clone(), past.next_after(at)?)));
            let whole = (&*self.media, now, known);
            let found = found.map_err(|error| of_whole_past(whole, error))?;
            Ok((now.clone(), file, found))
        })?;
        (self.now, self.file) = (now, file);
        (self.revision, self.next, self.timeline) = (revision, next, 0);
        self.read.clear();
        self.log = None;
        Ok(self)
    }

    /// Also returns what is not durable yet. A power cut may take it back: if that happens to what
    /// was returned, the next call fails with [`Error::NotKept`].
    #[must_use]
    pub fn with_undurable(mut self) -> Self {
        self.durable = false;
        self
    }

    /// Returns the filter's kind, parameters and hash of keys.
    pub(in crate::api) fn meta(&self) -> &Meta {
        &self.now
    }

    /// Returns the LSN at which reading continues: every commit below it was returned, or lies
    /// before the place where reading began. To continue there later: [`History::after`] with
    /// `At::Lsn` of one less.
    #[must_use]
    pub fn next_lsn(&self) -> u64 {
        let first = self.read.front().and_then(|commit| commit.operations.first());
        first.map_or(self.next, |operation| operation.lsn)
    }

    /// As `next`, but waits up to this time for a commit to come, also while another process opens
    /// the filter. `None` if none came. The limit is for the wait only; reading takes its own time.
    ///
    /// # Errors
    /// As [`History::read`], but not [`Error::Locked`].
    pub fn wait(&mut self, time: Duration) -> Result<Option<Commit>> {
        let begun = Instant::now();
        loop {
            let left = || time.saturating_sub(begun.elapsed());
            match self.read_within(BRIEFLY.min(left())).and_then(|read| self.checked(read)) {
                Ok(None) | Err(Error::Locked { .. }) => {}
                read => return read,
            }
            if left().is_zero() {
                return Ok(None);
            }
            primitives::sleep(PAUSE.min(left()));
        }
    }

    /// Returns the next commit; `None` at the present end of the log.
    ///
    /// # Errors
    /// [`Error::NotKept`] if the log below has been removed meanwhile: it says from where reading
    /// may begin again. [`Error::Retired`] and [`Error::NotAFilter`] if another filter or none has
    /// the directory's path by now; noticed at the end of the log, within a second. The LSNs of
    /// another one, such as an older copy, are its own. [`Error::Forked`] in a child made by
    /// `fork`. [`Error::Damaged`], [`Error::Locked`], [`Error::Io`].
    pub fn read(&mut self) -> Result<Option<Commit>> {
        let read = self.read_within(BRIEFLY)?;
        self.checked(read)
    }

    /// As [`History::read`], for a caller that cannot try again, also after the directory was
    /// moved.
    pub(in crate::api) fn read_patiently(&mut self) -> Result<Option<Commit>> {
        self.read_within(PATIENCE)
    }

    fn read_within(&mut self, patience: Duration) -> Result<Option<Commit>> {
        self.check_process()?;
        if self.read.is_empty() {
            let (_, commits): (_, Vec<Commit>) = self.collect(None, patience)?;
            self.read.extend(commits);
        }
        Ok(self.read.pop_front())
    }

    /// Returns the next commits as bytes, with the events between them, for a copy elsewhere that
    /// is to be the same filter; `None` at the present end of the log. A piece has at most some
    /// megabytes, unless a batch is longer. Not to be mixed with [`History::read`].
    ///
    /// ```
    /// use ebbtide::history::History;
    /// use ebbtide::inspect::{Assembly, origin};
    /// use ebbtide::{AgePartitioned, Any, Durability, Filter, Options, Reader};
    /// # let parent = tempfile::tempdir()?;
    /// # let (dir, copy) = (parent.path().join("seen"), parent.path().join("copy"));
    /// let options = Options::new().durability(Durability::Always);
    /// let seen = Filter::create(&dir, AgePartitioned::last(10_000), options)?;
    /// seen.insert("order 17")?;
    /// let mut assembly = Assembly::begin(&copy, &origin(&dir)?.meta, 1)?;
    /// let mut history = History::open(&dir)?;
    /// while let Some(piece) = history.read_piece()? {
    ///     assembly.add(&piece)?;
    /// }
    /// assembly.finish()?;
    /// let copied = Reader::<Any>::open(&copy, Options::new())?;
    /// assert_eq!(copied.digest()?.value, seen.digest()?.value);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`History::read`].
    pub fn read_piece(&mut self) -> Result<Option<Piece>> {
        let (first, raw): (_, Raw) = self.collect(None, BRIEFLY)?;
        if self.next == first {
            return self.checked(None);
        }
        let log = self.revision.meta.log_uuid;
        // Of VOIDs alone.
        let timeline = if raw.records.is_empty() { self.timeline } else { raw.timeline };
        Ok(Some(Piece::encode((log, timeline), (first, self.next), &raw.records)))
    }

    /// Returns some of the next operations; none at the present end of the log. Not to be mixed
    /// with [`History::read`]. `alone`: the extent of the log, for a caller that keeps everybody
    /// from writing and altering the filter.
    pub(in crate::api) fn read_operations(
        &mut self,
        alone: Option<KnownExtent>,
    ) -> Result<Vec<Operation>> {
        Ok(self.collect(alone, PATIENCE)?.1)
    }

    /// Reads what comes next. Also returns the LSN at which it begins: lower than the LSN that was
    /// next to read, if the log was altered there.
    fn collect<C: Collected>(
        &mut self,
        alone: Option<KnownExtent>,
        patience: Duration,
    ) -> Result<(u64, C)> {
        self.check_process()?;
        let mut first = self.next;
        loop {
            self.enter_next_revision()?;
            let before = self.next;
            let mut opened = self.log.take();
            let read = if let Some(known) = alone {
                self.read_on(known, opened)
            } else {
                look_within(&*self.media, &self.now, patience, |known| {
                    self.read_on(known, opened.take())
                })
            };
            let (read, log): (Read<C>, _) = match read {
                Err(Error::Retired { .. }) => match self.note_alteration() {
                    Ok(()) | Err(Error::Retired { .. }) => {
                        first = first.min(self.next);
                        continue;
                    }
                    Err(error) => return Err(error),
                },
                read => read.map_err(|error| explained(&*self.media, error))?,
            };
            // Only now is it certain that nobody has opened the filter meanwhile.
            (self.next, self.timeline, self.log) = (read.next, read.timeline, log);
            if self.next == before || !read.found.is_empty() {
                return Ok((first, read.found));
            }
        }
    }

    /// Checks that the process is not a child made by `fork` since. For bindings that hold
    /// operations of a commit themselves.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[doc(hidden)]
    pub fn check_process(&self) -> Result<()> {
        if self.guard.is_foreign() {
            return Err(Error::Forked { path: self.media.path().to_path_buf() });
        }
        Ok(())
    }

    /// Returns what was read. If that is nothing, first checks that more may come.
    fn checked<T>(&mut self, read: Option<T>) -> Result<Option<T>> {
        if read.is_none() {
            self.check_place()?;
        }
        Ok(read)
    }

    /// Checks now and then that the directory's path still leads to this filter: otherwise nothing
    /// will ever come.
    fn check_place(&mut self) -> Result<()> {
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        let there = self.media.at_its_path().unwrap_or_else(|| self.media.clone());
        let of = |file: &dyn MediaFile| (file.identity().ok(), file.device().ok());
        let found = match open_meta(&*there) {
            Err(error) if error.is_not_found() => return Meta::read(&*there).map(drop),
            // It may be that of this filter.
            Err(_) => return Ok(()),
            Ok(found) => found,
        };
        if of(&*found) == of(&*self.file) {
            return Ok(());
        }
        // The next read takes note of an alteration.
        let is_altered = || {
            open_meta(&*self.media).is_ok_and(|own| of(&*own) == of(&*found))
                && Meta::read(&*self.media).is_ok_and(|meta| {
                    meta.uuid == self.now.uuid && meta.log_uuid != self.now.log_uuid
                })
        };
        if is_altered() {
            return Ok(());
        }
        Err(Error::Retired { path: self.media.path().to_path_buf(), replaced: true })
    }

    /// Creates the error for a log that ended although records up to an LSN are in it.
    pub(in crate::api) fn ended_at(&self, end: u64) -> Error {
        let (path, next) = (self.media.path().to_path_buf(), self.next);
        let (wanted, lacks_keep_log) = (format!("lsn:{next}"), false);
        Error::NotKept { path, wanted, from: next, end, lacks_keep_log }
    }

    /// Notes where the parameters ended that the filter had, because it was altered.
    fn note_alteration(&mut self) -> Result<()> {
        let (media, now) = (&*self.media, read_meta(&*self.media)?);
        self.file = open_meta(media)?;
        if self.revision.end.is_none() {
            let own = self.revision.meta.log_uuid;
            let mut known = revisions(media, &now)?.into_iter();
            if let Some(revision) = known.find(|revision| revision.meta.log_uuid == own) {
                // Behind the alteration the former log may have a note that changes nothing.
                self.next = self.next.min(revision.end.unwrap_or(u64::MAX));
                self.revision = revision;
            } else {
                self.next = self.first_of(&now)?;
                self.revision = Revision::present(&now);
                (self.timeline, self.log) = (0, None);
            }
        }
        self.now = now;
        Ok(())
    }

    /// Returns where the present log begins if nothing was missed of the log before it, which is
    /// gone.
    fn first_of(&self, now: &Meta) -> Result<u64> {
        let media = &*self.media;
        let (first, end) = look_within(media, now, BRIEFLY, |known| {
            let log = now.log_uuid;
            let log = Log::open(media, &Listing::of_filter(media, log)?, log)?;
            let first = log.segments().first().map(|segment| segment.first);
            Ok((first, log.end(media, known)?))
        })?;
        // What is not durable may have been taken back since it was read.
        let may_follow = self.durable && follows(now.log_uuid, self.revision.meta.log_uuid);
        match first {
            Some(first) if may_follow && first <= self.next => Ok(first),
            _ => {
                let (path, wanted) = (media.path().to_path_buf(), format!("lsn:{}", self.next - 1));
                let from = first.map_or(0, |first| first.saturating_sub(1));
                let lacks_keep_log = keeps_nothing(media);
                Err(Error::NotKept { path, wanted, from, end, lacks_keep_log })
            }
        }
    }

    /// Continues with the log that follows an alteration, once that before was read.
    fn enter_next_revision(&mut self) -> Result<()> {
        let Some(end) = self.revision.end.filter(|&end| self.next >= end) else { return Ok(()) };
        (self.now, self.file) = (read_meta(&*self.media)?, open_meta(&*self.media)?);
        let next =
            revisions(&*self.media, &self.now)?.into_iter().find(|revision| revision.reaches(end));
        self.revision = next.unwrap_or_else(|| Revision::present(&self.now));
        (self.timeline, self.log) = (0, None);
        Ok(())
    }

    /// Reads the next records, in a log that was opened before if there is one. Returns the log if
    /// it has more.
    fn read_on<C: Collected>(
        &self,
        known: KnownExtent,
        mut opened: Option<Log>,
    ) -> Result<(Read<C>, Option<Log>)> {
        let is_past = self.revision.end.is_some();
        let whole = if is_past { Whole::past(&*self.media) } else { Whole::new(&*self.media) };
        let known = if is_past { KnownExtent::Nothing } else { known };
        let durable = match known {
            // All of it was durable before the filter was altered.
            _ if is_past => self.revision.end.unwrap_or(u64::MAX),
            _ if !self.durable => u64::MAX,
            KnownExtent::WritersDied { durable, .. }
            | KnownExtent::DeviceLost { durable, .. }
            | KnownExtent::WritersLive { durable, .. } => durable,
            // The writers are gone, and recovery takes all that is there.
            KnownExtent::Nothing => u64::MAX,
        };
        let mut chunk = C::CHUNK;
        loop {
            let before = opened.take();
            let may_be_old = before.is_some();
            let log = before.map_or_else(|| self.open_log(&whole, known), Ok)?;
            let limit = self.next.saturating_add(chunk).min(durable);
            let read = match self.read_up_to(&whole, &log, known, limit) {
                // Segments came, or have gone, since it was opened.
                Err(_) if may_be_old => continue,
                read => read?,
            };
            let (has_more, is_short) = (read.stop >= limit && limit < durable, read.stop < limit);
            // Also of a batch that is longer than what is read at once.
            if is_past && read.next == self.next && !has_more {
                return Err(log.missing(self.next, durable));
            }
            if read.next > self.next || (is_short && !may_be_old) || limit >= durable {
                return Ok((read, has_more.then_some(log)));
            }
            // Of a long batch only the beginning was read, or there are newer segments.
            if !is_short {
                chunk = chunk.saturating_mul(2);
                opened = Some(log);
            }
        }
    }

    /// Reads the records below an LSN.
    fn read_up_to<C: Collected>(
        &self,
        whole: &Whole<'_>,
        log: &Log,
        known: KnownExtent,
        limit: u64,
    ) -> Result<Read<C>> {
        let weighs = self.revision.meta.kind.weights().is_some();
        let (mut batches, mut found, mut timeline) =
            (Batches::default(), C::default(), self.timeline);
        log.end_at(limit);
        let prefix = log.read(whole, self.next, known, |of, lsn, record| {
            timeline = of;
            batches.take(lsn, record, |group, counts| {
                if counts {
                    found.add(of, group, weighs);
                }
                Ok(())
            })
        })?;
        let next = batches.end(prefix.stop, |_, _| Ok(()))?;
        Ok(Read { found, stop: prefix.stop, next, timeline })
    }

    /// Leaves out segments that were read, without a look at each: those before the last one of the
    /// timeline that begins at the next LSN or below.
    fn leave_read(&self, whole: &Whole<'_>, listing: &mut Listing) {
        listing.segments.retain(|&(timeline, _)| timeline >= self.timeline);
        let is_own = |&(timeline, first): &(u64, u64)| {
            let name = FileName::Segment { timeline, first }.to_string();
            owner(whole, &name) == Some(self.revision.meta.log_uuid)
        };
        let may_be =
            |&(timeline, first): &(u64, u64)| timeline == self.timeline && first <= self.next;
        let segments = &listing.segments;
        if let Some(at) = segments.iter().rposition(|segment| may_be(segment) && is_own(segment)) {
            listing.segments.drain(..at);
        }
    }

    /// Opens the log from the next LSN on.
    fn open_log(&self, whole: &Whole<'_>, known: KnownExtent) -> Result<Log> {
        let mut listing = Listing::read(whole)?;
        let own = self.revision.meta.log_uuid;
        self.leave_read(whole, &mut listing);
        // First: what an alteration has left may begin anywhere.
        listing.leave_others(whole, own);
        let below = listing.segments_below(self.next).len();
        listing.segments.drain(..below);
        let mut log = Log::open(whole, &listing, own)?;
        let first = log.segments().first().map(|segment| segment.first);
        // Of the log from before an alteration all may have been removed.
        let first = first.or(self.revision.end).unwrap_or(1);
        let lost = log.timelines().find(|&(timeline, start, _)| {
            self.timeline > 0 && timeline > self.timeline && start < self.next
        });
        let wanted = match lost {
            Some((_, start, _)) => format!("lsn:{}, taken back to {start}", self.next - 1),
            None if first > self.next => format!("lsn:{}", self.next - 1),
            None => {
                log.keep_latest();
                return Ok(log);
            }
        };
        let end = log.end(whole, known)?;
        let path = self.media.path().to_path_buf();
        let (from, lacks_keep_log) = (first.max(1) - 1, keeps_nothing(&*self.media));
        Err(Error::NotKept { path, wanted, from, end, lacks_keep_log })
    }
}

impl Iterator for History {
    type Item = Result<Commit>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
