//! Keeping segments and snapshots that recovery no longer needs, and removing the oldest of them.
//!
//! A *base* is a snapshot from which replay can reach later moments, or the creation of the filter
//! if the log has its first record. What is kept always begins at a base, so that every moment from
//! its end on can be reached. Some of the snapshots in between stay as well, an eighth of the kept
//! log apart, or four times their own size: otherwise the first base could never advance.

use crate::archive::revisions::{Revisions, revision_of};
use crate::archive::with_kept::Whole;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::options::Keep;
use crate::recovery::Listing;
use crate::recovery::listing::{KeptMeta, KeptSegment, KeptSnapshot};
use crate::recovery::removal::remove_for_good;
use crate::snapshot::SnapshotReader;
use crate::wal::log_record::RECORD_BYTES;
use crate::wal::segment::{SegmentFile, owner};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Steps between bases in the kept log.
const BASES: u64 = 8;
/// Log between two bases, in bytes of a snapshot.
const LOG_OF_SNAPSHOT: u64 = 4;

/// Kept files are examined again when their number has changed by one in this many.
const PRUNED_AT: usize = 32;

/// The present second, in Unix seconds, by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// By the wall clock, which names files.
    pub wall: u64,
    /// By a clock that has run evenly since the machine was started, whatever has been done to the
    /// wall clock since.
    pub even: u64,
}

impl Now {
    /// Returns how long ago a file got its name: by the clock by which it is less, as
    /// [`Archive::superfluous`] keeps it. `None` if it is in the future of both.
    #[must_use]
    pub fn age(self, since: u64) -> Option<Duration> {
        let ages = [self.wall, self.even].map(|now| now.checked_sub(since));
        ages.into_iter().flatten().min().map(Duration::from_secs)
    }

    /// Returns whether a file may have got its name within this time. One that is old by the wall
    /// clock is not, unless that was behind then, or has been set ahead since: by the other clock
    /// it is young.
    fn is_within(self, time: Duration, since: u64) -> bool {
        let earliest = |now: u64| now.saturating_sub(time.as_secs());
        since >= earliest(self.wall) || (earliest(self.even)..=self.even).contains(&since)
    }
}

/// When this handle last removed kept files that were not wished any more. To find them, all have
/// to be examined. That is done when their number has changed by one in [`PRUNED_AT`], so the cost
/// for each added file stays constant. Where a snapshot is larger than two segments it is done each
/// time: the number says little about the bytes there, and writing the snapshot took longer.
#[derive(Debug, Default)]
pub struct Pruning {
    /// What was wished.
    pub keep: Keep,
    /// The number that was left.
    pub files: usize,
    /// The time, in Unix seconds.
    pub second: u64,
}

impl Pruning {
    /// Returns whether kept files are to be examined: there are more, or fewer, because another
    /// handle removed some; time has passed; or something else is wished.
    #[must_use]
    pub fn is_due(&self, keep: Keep, files: usize, second: u64) -> bool {
        let is_older = match keep {
            Keep::For(time) => second.abs_diff(self.second) >= time.as_secs() / PRUNED_AT as u64,
            Keep::Nothing | Keep::Bytes(_) => false,
        };
        keep != self.keep || is_older || files.abs_diff(self.files) * PRUNED_AT >= self.files
    }

    /// Returns what to keep now, so that it is not more than wished before the next time.
    #[must_use]
    pub fn aim(keep: Keep) -> Keep {
        match keep {
            Keep::Bytes(most) => Keep::Bytes(most - most / PRUNED_AT as u64 * 2),
            keep => keep,
        }
    }
}

/// Gives files that recovery no longer needs their names as kept ones, in this order; `listing` is
/// the directory. A file loses its former name when the new one survives a power cut. Stops at a
/// missing one, as [`remove_for_good`]: another handle does the same. Empty segments are removed
/// instead, under temporary names with these numbers.
///
/// # Errors
/// [`Error::Io`].
pub fn keep(
    media: &dyn Media,
    files: &[FileName],
    second: u64,
    listing: &Listing,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let is_affected = |former: &FileName| files.contains(former);
    let kept_already: Vec<_> = listing.before_kept().filter(is_affected).collect();
    let is_useless = |file: &FileName| !kept_already.contains(file) && is_empty(media, *file);
    let (empty, files): (Vec<_>, Vec<_>) = files.iter().partition(|file| is_useless(file));
    remove_for_good(media, empty, numbers)?;
    let mut linked = Vec::new();
    for file in &files {
        let Some(kept) = file.kept(second) else { continue };
        let name = file.to_string();
        // A process may have died here.
        if !kept_already.contains(file) {
            match name_as_kept(media, &name, &kept.to_string()) {
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                // Another handle was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                done => done.map_err(Error::io("link", media.path().join(&name)))?,
            }
        }
        linked.push(name);
    }
    media.sync().map_err(Error::io("sync", media.path()))?;
    for name in linked {
        match media.remove(&name) {
            // It was renamed, or another handle was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => done.map_err(Error::io("remove", media.path().join(name)))?,
        }
    }
    Ok(())
}

/// Returns whether a file is a segment to which nothing was ever written. A creator that was
/// stopped may have named it when the others had filled, kept and removed theirs. Kept, it would
/// lie before a gap.
fn is_empty(media: &dyn Media, file: FileName) -> bool {
    let FileName::Segment { timeline, first } = file else { return false };
    // What cannot be read is kept: it may have been more.
    owner(media, &file.to_string()).is_some_and(|log| {
        let opened = SegmentFile::open(media, timeline, first, log, Access::Read);
        opened.and_then(|segment| segment.is_empty()).unwrap_or(false)
    })
}

/// Gives a file its name as a kept one, beside the former one if files can have two. A power cut
/// may take a file that was renamed: that is log which recovery does not need.
fn name_as_kept(media: &dyn Media, from: &str, to: &str) -> io::Result<()> {
    match media.link_new(from, to) {
        Err(error) if error.kind() == ErrorKind::Unsupported => media.rename_new(from, to),
        linked => linked,
    }
}

/// Takes out all names but one of files that several handles have kept in different seconds.
fn take_second_names(listing: &mut Listing) -> Vec<FileName> {
    let mut taken = Vec::new();
    listing.kept_segments.dedup_by(|&mut KeptSegment { timeline, first, since }, before| {
        let is_same = (timeline, first) == (before.timeline, before.first);
        taken.extend(is_same.then_some(FileName::KeptSegment { since, timeline, first }));
        is_same
    });
    listing.kept_snapshots.dedup_by(|&mut KeptSnapshot { start, since }, before| {
        let is_same = start == before.start;
        taken.extend(is_same.then_some(FileName::KeptSnapshot { since, start }));
        is_same
    });
    taken
}

/// The kept files of a filter, and what they make reachable.
#[derive(Debug)]
pub struct Archive {
    listing: Listing,
    /// The bases, oldest first, without the creation.
    bases: Vec<Base>,
    /// Kept snapshots that are no base, because they are damaged, and second names of kept files.
    useless: Vec<FileName>,
    /// Kept snapshots below `lost_below`, or that cannot be read, which are no bases either. They
    /// stay as long as the log around them: parameters and permissions may be restored.
    lost: Vec<FileName>,
    /// See [`Revisions::lost_below`].
    lost_below: u64,
}

/// A sound snapshot.
#[derive(Debug, Clone, Copy)]
struct Base {
    start: u64,
    end: u64,
    bytes: u64,
    /// The second in its name, if it is a kept one.
    since: Option<u64>,
    /// Where its revision ends.
    revision: Option<u64>,
}

impl Base {
    fn file(&self) -> Option<FileName> {
        FileName::Snapshot { start: self.start }.kept(self.since?)
    }
}

impl Archive {
    /// Examines the directory of a filter.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(media: &dyn Media, meta: &Meta) -> Result<Self> {
        Self::read_revisions(media, meta.log_uuid, Revisions::read(media, meta)?)
    }

    /// As [`Archive::read`], of a filter with this log now and these revisions.
    fn read_revisions(media: &dyn Media, log_uuid: u128, revisions: Revisions) -> Result<Self> {
        let lost_below = revisions.lost_below;
        let revisions = revisions.joined();
        let mut listing = Listing::of_filter(media, log_uuid)?;
        listing.leave_irregular(media);
        let mut useless = take_second_names(&mut listing);
        let whole = Whole::new(media);
        let own = listing.snapshots.iter().map(|&start| (start, None));
        let kept = listing.kept_snapshots.iter().map(|kept| (kept.start, Some(kept.since)));
        let (mut bases, mut lost) = (Vec::new(), Vec::new());
        for (start, since) in own.chain(kept) {
            let kept = since.and_then(|since| FileName::Snapshot { start }.kept(since));
            if let Some(kept) = kept.filter(|_| start < lost_below) {
                lost.push(kept);
                continue;
            }
            let Some(revision) = revision_of(&revisions, start) else { continue };
            match SnapshotReader::open(&whole, start, revision.meta.log_uuid) {
                Ok(reader) => {
                    let header = reader.header();
                    let (end, bytes, revision) = (header.end, header.bytes, revision.end);
                    bases.push(Base { start, end, bytes, since, revision });
                }
                Err(error) if error.is_not_found() => {}
                Err(Error::Damaged { .. } | Error::Version { .. }) => useless.extend(kept),
                Err(error) if error.is_unreadable() => lost.push(kept.ok_or(error)?),
                Err(error) => return Err(error),
            }
        }
        // The former name of one that has both comes first: recovery may need it.
        bases.sort_unstable_by_key(|base| (base.start, base.since));
        bases.dedup_by_key(|base| base.start);
        Ok(Self { listing, bases, useless, lost, lost_below })
    }

    /// Returns the first LSN as of which, and as of every later one, the state can be rebuilt;
    /// `None` if there is none.
    #[must_use]
    pub fn reaches_from(&self) -> Option<u64> {
        let first = self.first_lsn()?;
        if first == 1 && self.lost_below == 0 {
            return Some(0);
        }
        self.bases.iter().find(|base| first <= base.start).map(|base| base.end.saturating_sub(1))
    }

    /// Returns since when, in seconds since the Unix epoch, recovery has not needed the oldest kept
    /// segment that can be read: its operations are older.
    #[must_use]
    pub fn since(&self) -> Option<u64> {
        let mut kept = self.listing.kept_segments.iter();
        kept.find(|kept| kept.first >= self.lost_below).map(|kept| kept.since)
    }

    /// Returns the LSN of the oldest record that is there.
    fn first_lsn(&self) -> Option<u64> {
        let kept = self.listing.kept_segments.first().map(|kept| kept.first);
        kept.or_else(|| self.listing.segments.first().map(|&(_, first)| first))
    }

    /// Returns the bytes that the kept files take, as far as they can be opened.
    #[must_use]
    pub fn bytes(&self, media: &dyn Media) -> u64 {
        self.sizes(media).values().sum()
    }

    /// Returns the bytes that each kept file takes.
    fn sizes(&self, media: &dyn Media) -> BTreeMap<FileName, u64> {
        let snapshots = self.bases.iter().filter_map(Base::file).chain(self.lost.iter().copied());
        let files = self.segments().chain(snapshots);
        files.map(|file| (file, allocated(media, file))).collect()
    }

    fn segments(&self) -> impl Iterator<Item = FileName> {
        self.listing.kept_segments.iter().map(|kept| FileName::KeptSegment {
            since: kept.since,
            timeline: kept.timeline,
            first: kept.first,
        })
    }

    /// Returns the LSN of the first record behind the kept log. A kept segment may have its former
    /// name, too.
    fn next_first(&self) -> Option<u64> {
        let last = self.listing.kept_segments.last().map_or(0, |kept| kept.first);
        let mut own = self.listing.segments.iter().map(|&(_, first)| first);
        own.find(|&first| first > last)
    }

    /// Returns the kept files that are not needed to reach the moments from this base on: older
    /// snapshots, then the log below it.
    fn before(&self, base: &Base) -> Vec<FileName> {
        let older = self.bases.iter().filter(|other| other.start < base.start);
        let is_older = |lost: &FileName| match lost {
            FileName::KeptSnapshot { start, .. } => *start < base.start,
            _ => false,
        };
        let lost = self.lost.iter().copied().filter(is_older);
        let snapshots = lost.chain(older.filter_map(Base::file));
        let firsts = self.listing.kept_segments.iter().map(|kept| kept.first).skip(1);
        let ends = firsts.chain(self.next_first());
        let below = ends.take_while(|&end| end <= base.start).count();
        snapshots.chain(self.segments().take(below)).collect()
    }

    /// Returns the kept files that these wishes do not ask for, in the order in which they are to
    /// be removed.
    #[must_use]
    pub fn superfluous(&self, media: &dyn Media, keep: Keep, now: Now) -> Vec<FileName> {
        let mut files = self.useless.clone();
        let base = match keep {
            Keep::Nothing => {
                files.extend(self.all());
                return self.with_metas(files);
            }
            Keep::For(time) => self.base_for(|since| now.is_within(time, since)),
            Keep::Bytes(most) => {
                let sizes = self.sizes(media);
                let all = sizes.values().sum::<u64>();
                let rest = |base: &Base| {
                    all - self.before(base).iter().filter_map(|file| sizes.get(file)).sum::<u64>()
                };
                // The oldest base from which on it is no more.
                match self.bases.iter().find(|base| rest(base) <= most) {
                    _ if all <= most => None,
                    Some(base) => Some(*base),
                    None => return self.superfluous(media, Keep::Nothing, now),
                }
            }
        };
        files.extend(base.iter().flat_map(|base| self.before(base)));
        files.extend(self.between(base.map_or(0, |base| base.start)));
        self.with_metas(files)
    }

    /// Returns all kept files but damaged ones: snapshots, then log.
    fn all(&self) -> impl Iterator<Item = FileName> {
        let bases = self.bases.iter().filter_map(Base::file);
        self.lost.iter().copied().chain(bases).chain(self.segments())
    }

    /// Returns the newest base from which the kept log can be reached that is young enough, by the
    /// seconds in its names, and some before it: by the second in whose name `stat` knows that none
    /// is missing.
    fn base_for(&self, is_young: impl Fn(u64) -> bool) -> Option<Base> {
        // What recovery needed until then is younger.
        let wanted = self.listing.kept_segments.iter().find(|kept| is_young(kept.since));
        let from = wanted.map(|kept| kept.first).or(self.next_first())?;
        self.bases.iter().rev().find(|base| base.end < from).copied()
    }

    /// Returns kept snapshots, from the base of this start on, that lie between two others that are
    /// near enough.
    fn between(&self, start: u64) -> Vec<FileName> {
        let bases: Vec<_> = self.bases.iter().filter(|base| base.start >= start).collect();
        let (Some(first), Some(last)) = (bases.first(), bases.last()) else { return Vec::new() };
        let (span, mut before, mut files) = (last.start - first.start, first.start, Vec::new());
        for (at, base) in bases.iter().enumerate().skip(1) {
            let own = base.bytes.saturating_mul(LOG_OF_SNAPSHOT) / RECORD_BYTES;
            let distance = (span / BASES).max(own);
            let next = bases.get(at + 1).map_or(u64::MAX, |next| next.start);
            // Only from there the log after an alteration can be replayed.
            let is_first = bases[at - 1].revision != base.revision;
            match base.file() {
                Some(file) if next - before <= distance && !is_first => files.push(file),
                _ => before = base.start,
            }
        }
        files
    }

    /// Returns the oldest kept files, up to the next base: what a full disk takes first. Returns
    /// none if one of them still has its former name too, because a process died while renaming:
    /// to remove it would free no space, and the next checkpoint would keep it again, although some
    /// behind it are gone. That checkpoint removes the former names.
    #[must_use]
    pub fn oldest(&self) -> Vec<FileName> {
        let first = self.first_lsn().unwrap_or(0);
        let removes = |base: &&Base| base.start > first && !self.before(base).is_empty();
        let base = self.bases.iter().find(removes);
        let is_taken = |file| match file {
            FileName::Segment { first: start, .. } | FileName::Snapshot { start } => {
                base.is_none_or(|base| start < base.start)
            }
            _ => false,
        };
        if self.listing.both_named().any(is_taken) {
            return Vec::new();
        }
        self.with_metas(match base {
            Some(base) => self.useless.iter().copied().chain(self.before(base)).collect(),
            None => self.useless.iter().copied().chain(self.all()).collect(),
        })
    }

    /// Adds the former files `meta` of which no log is left when these files are gone.
    fn with_metas(&self, mut removed: Vec<FileName>) -> Vec<FileName> {
        let left = self.segments().position(|segment| !removed.contains(&segment));
        let kept = left.map(|at| self.listing.kept_segments[at].first);
        let first = kept.or_else(|| self.listing.segments.first().map(|&(_, first)| first));
        let metas = self.listing.kept_metas.iter();
        let is_over = |until: u64| first.is_none_or(|first| until <= first);
        let over = metas.filter(|meta| is_over(meta.until));
        removed.extend(over.map(|&KeptMeta { since, until }| FileName::KeptMeta { since, until }));
        removed
    }
}

/// Returns the bytes that a file takes; 0 if it is gone, or cannot be opened.
fn allocated(media: &dyn Media, file: FileName) -> u64 {
    let opened = media.open(&file.to_string(), Access::Read);
    opened.and_then(|file| file.allocated_bytes()).unwrap_or_default()
}

/// Removes the oldest kept files. Returns whether there were any.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_oldest(
    media: &dyn Media,
    meta: &Meta,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<bool> {
    let oldest = Archive::read(media, meta)?.oldest();
    let any = !oldest.is_empty();
    remove_for_good(media, oldest, numbers)?;
    Ok(any)
}

#[cfg(all(test, not(loom)))]
mod tests;
