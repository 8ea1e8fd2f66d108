//! Rebuilds an image: from the base and the log from there.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::Image;
use crate::image::live_file::boot_id;
use crate::image::previous_image;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::platform::threads::spawn_scoped;
use crate::primitives::Hint;
use crate::recovery::bare_events::covered;
use crate::recovery::base::{self, Base, identity, memory};
use crate::recovery::known_extent::KnownExtent;
use crate::recovery::listing::Listing;
use crate::recovery::log_reader::{LogReader, Prefix};
use crate::recovery::make_durable;
use crate::recovery::removal::{remove_for_good, remove_kept};
use crate::recovery::replay::Replay;
use crate::wal::Record;
use crate::wal::segment::SegmentFile;
use ebbtide_core::kind::Kind;
use std::sync::Arc;

/// A filter's state, rebuilt.
#[derive(Debug)]
pub struct Recovered {
    /// The image, for the next timeline, under the given temporary name.
    pub image: Image,
    /// The log that it was rebuilt from.
    pub history: LogReader,
    /// The prefix of the log that was read.
    pub prefix: Prefix,
    /// The LSN where replay began.
    pub start: u64,
    /// The LSN below which the log was known to be durable ([`KnownExtent::made_durable`]).
    pub durable: u64,
    /// The files that were present.
    pub listing: Listing,
    /// Unusable snapshots (by start), with the reason.
    pub unsound: Vec<(u64, Error)>,
}

/// Rebuilds the state described by the files of `home`, as an image on `live` under the name
/// `temporary`. `known` is the extent of the log by the image. `makes_durable`: the caller has
/// exclusive access, and makes the log durable next; a long one is made durable while it is read.
/// `advance` is called from time to time, because other processes may wait.
///
/// # Errors
/// [`Error::Damaged`] if the state cannot be rebuilt in full, [`Error::Version`], [`Error::Io`].
pub fn rebuild(
    home: &dyn Media,
    live: &Arc<dyn Media>,
    meta: &Meta,
    temporary: &str,
    (known, makes_durable): (KnownExtent, bool),
    advance: &dyn Fn(),
) -> Result<Recovered> {
    let listing = Listing::of_filter(home, meta.log_uuid)?;
    let history = LogReader::open(home, &listing, meta.log_uuid)?;
    rebuild_files(home, live, meta, temporary, (listing, history), (known, makes_durable), advance)
}

/// As [`rebuild`], with these files: the caller has set how far the log is read, and dropped the
/// snapshots that end later.
fn rebuild_files(
    home: &dyn Media,
    live: &Arc<dyn Media>,
    meta: &Meta,
    temporary: &str,
    (listing, mut history): (Listing, LogReader),
    (known, makes_durable): (KnownExtent, bool),
    advance: &dyn Fn(),
) -> Result<Recovered> {
    // The last one may have no log.
    let last = previous_image::timeline(home, meta.uuid)?.unwrap_or(0).max(history.last_timeline());
    let timeline = listing.next_timeline(last, home.path())?;
    let identity = identity(meta, timeline, boot_id(home)?);
    let create = || Image::create(live.clone(), temporary, identity, meta.layout, &*meta.kind);
    let Base { image, start, end, timeline, mut unsound } =
        base::choose((home, meta, &listing, &history), &create, (&**live, temporary), advance)?;
    check_timelines(home, meta, &history, timeline)?;
    if let KnownExtent::WritersLive { .. } = known {
        // Writers may remove files meanwhile.
        history.hold(home, start)?;
    }
    let read = (home, meta, &listing, &history);
    let prefix = match apply_log(read, &image, (start, end), (known, makes_durable), advance) {
        // A full disk removes the log of an older snapshot: then the damage of the newest one is
        // the cause.
        Err(Error::Damaged { offset: 0, .. }) if !unsound.is_empty() => {
            return Err(unsound.swap_remove(0).1);
        }
        applied => applied?,
    };
    image.finish(&*meta.kind, prefix.stop);
    let durable = known.made_durable(history.last_timeline());
    Ok(Recovered { image, history, prefix, start, durable, listing, unsound })
}

/// Applies the log from `start` on to an image that has the state of that LSN; `end` is the end of
/// the snapshot. Returns the prefix that was read.
fn apply_log(
    (home, meta, listing, history): (&dyn Media, &Meta, &Listing, &LogReader),
    image: &Image,
    (start, end): (u64, u64),
    (known, makes_durable): (KnownExtent, bool),
    advance: &dyn Fn(),
) -> Result<Prefix> {
    let kind = &*meta.kind;
    let enough = &Hint::default();
    std::thread::scope(|scope| {
        if makes_durable && make_durable::is_long(history, start) {
            let durable = known.made_durable(history.last_timeline());
            let sync = move || make_durable::sync_ahead(history, home, (start, durable), enough);
            // Without a thread it is done later.
            let _ = spawn_scoped(scope, "ebbtide-recover", sync);
        }
        let _done = Done(enough);
        let mut replay = Replay::new(scope, image, kind, advance);
        let mut prefix =
            history.read(home, start, known, |_, lsn, record| replay.take(lsn, record))?;
        let read_to = prefix.stop;
        prefix.end_at(replay.finish(read_to)?);
        // Every snapshot was renamed only when the log was durable through its end.
        let least = listing.snapshots.first().copied().unwrap_or(1).max(end);
        if prefix.stop < least {
            return Err(history.missing(prefix.stop, least));
        }
        if matches!(known, KnownExtent::Nothing | KnownExtent::DeviceLost { .. }) {
            check_others(home, meta, listing, history, read_to)?;
        }
        match replay.held_back() {
            // The next timeline begins before them, unless a snapshot saw them.
            Some(first) if first >= covered(home, listing, meta.log_uuid) => prefix.end_at(first),
            _ => replay.apply_events()?,
        }
        Ok(prefix)
    })
}

/// Applies further records to an image that is used by nobody else: those of whole commits up to an
/// LSN.
///
/// # Errors
/// [`Error::Io`] if there is no memory for a bank.
pub(crate) fn apply_more(
    image: &Image,
    kind: &dyn Kind,
    records: &[(u64, Record)],
    end: u64,
) -> Result<()> {
    std::thread::scope(|scope| {
        let mut replay = Replay::new(scope, image, kind, &|| {});
        records.iter().try_for_each(|(lsn, record)| replay.take(*lsn, record))?;
        replay.finish(end)?;
        replay.apply_events()
    })?;
    image.finish(kind, end);
    Ok(())
}

/// Sets the hint when it is dropped.
struct Done<'a>(&'a Hint);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.set(1);
    }
}

/// As [`rebuild`], but with the image in memory, and without writing to `home`.
///
/// # Errors
/// As [`rebuild`].
pub fn rebuild_in_memory(
    home: &dyn Media,
    meta: &Meta,
    known: KnownExtent,
    advance: &dyn Fn(),
) -> Result<Recovered> {
    rebuild(home, &memory()?, meta, "image", (known, false), advance)
}

/// As [`rebuild_in_memory`], of these files, as [`rebuild_files`].
///
/// # Errors
/// As [`rebuild`].
pub(crate) fn rebuild_files_in_memory(
    home: &dyn Media,
    meta: &Meta,
    files: (Listing, LogReader),
    known: KnownExtent,
) -> Result<Recovered> {
    rebuild_files(home, &memory()?, meta, "image", files, (known, false), &|| {})
}

/// Checks that no segment of another filter lies exactly where reading the log ended: a segment of
/// this filter may have been there, and nothing else shows how far the log reached.
fn check_others(
    home: &dyn Media,
    meta: &Meta,
    listing: &Listing,
    history: &LogReader,
    stop: u64,
) -> Result<()> {
    for file in &listing.others {
        if let &FileName::Segment { timeline, first } = file
            && (history.segments().is_empty()
                || (timeline, first) == (history.last_timeline(), stop))
        {
            SegmentFile::open(home, timeline, first, meta.log_uuid, Access::Read)?;
        }
    }
    Ok(())
}

/// Checks that no timeline's log is missing as a whole: it exists before anything refers to its
/// timeline, and is removed only when a later timeline's log exists.
fn check_timelines(
    home: &dyn Media,
    meta: &Meta,
    history: &LogReader,
    snapshot_timeline: u64,
) -> Result<()> {
    // Unless no record was written to it.
    let live_timeline = previous_image::timeline_with_log(home, meta.uuid)?.unwrap_or(0);
    let named = snapshot_timeline.max(live_timeline);
    if history.last_timeline() < named {
        return Err(history.lost(named));
    }
    Ok(())
}

impl Recovered {
    /// Returns whether the newest snapshot has every operation, and is as durable as the log has
    /// to be before a new timeline begins: the log was durable through the end of the snapshot
    /// before that got its name. `known` is the extent of the log by the image.
    #[must_use]
    pub fn is_all_in_snapshot(&self, known: KnownExtent) -> bool {
        let stop = self.prefix.stop;
        let reaches_it = match known {
            KnownExtent::Nothing => true,
            KnownExtent::WritersDied { durable, tail, .. } => durable == stop && tail == stop,
            KnownExtent::DeviceLost { .. } | KnownExtent::WritersLive { .. } => false,
        };
        let last = self.history.segments().last();
        reaches_it
            && self.start == stop
            && self.unsound.is_empty()
            && self.listing.snapshots.first() == Some(&stop)
            // No segment is left over. The last timeline has log as long as it has a snapshot.
            && last.is_some_and(|segment| segment.first < stop)
    }

    /// Removes, in this order, what is only kept ([`remove_kept`]), older snapshots, and the log
    /// below the newest snapshot: the fallback base, which would only be read if the newest
    /// snapshot, which was just read, were damaged. Files get temporary names with these numbers
    /// meanwhile. Returns false if there is none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_fallback_base(
        mut self,
        home: &dyn Media,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Result<bool> {
        let newest = self.start;
        if self.listing.snapshots.first() != Some(&newest) {
            return Ok(false);
        }
        // The newest one's name may be newer than the last sync of the directory, and its writer
        // dead.
        home.sync().map_err(Error::io("sync", home.path()))?;
        let mut numbers = numbers.into_iter();
        remove_kept(home, &mut self.listing, newest, &mut numbers)?;
        let older = self.listing.snapshots.iter().skip(1);
        let older = older.map(|&start| FileName::Snapshot { start });
        let segments = self.listing.segments_below(newest).iter();
        let segments = segments.map(|&(timeline, first)| FileName::Segment { timeline, first });
        let superfluous: Vec<_> = older.chain(segments).collect();
        let any = !superfluous.is_empty();
        remove_for_good(home, superfluous, numbers)?;
        Ok(any)
    }

    /// Returns the files of `home` that are obsolete once the new timeline has begun: segments from
    /// the stop on, and banks that the new image does not have.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn leftovers(&self, home: &dyn Media) -> Result<Vec<FileName>> {
        let timeline = self.image.header().identity().timeline;
        let segments = self.listing.segments.iter();
        let segments = segments.filter(|&&(_, first)| first >= self.prefix.stop);
        let segments = segments.map(|&(timeline, first)| FileName::Segment { timeline, first });
        let mapped = self.image.banks();
        let used = |&(of, id): &(u64, u32)| {
            of == timeline && mapped.iter().any(|(_, bank)| bank.id() == id)
        };
        // Listed now, because an attempt to load a damaged snapshot may have created banks of this
        // timeline.
        let banks = Listing::read(home)?.banks.into_iter().filter(|bank| !used(bank));
        let banks = banks.map(|(timeline, bank)| FileName::Bank { timeline, bank });
        Ok(segments.chain(banks).collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
