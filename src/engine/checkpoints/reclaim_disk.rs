//! Reclaiming disk space: removes the snapshots and the log that checkpoints make superfluous, and,
//! on a full disk, the fallback base.
//!
//! Segments are removed according to the older of the two newest snapshots. The *fallback base* is
//! the older of them with the log that only it needs: files that would only be read if the newest
//! snapshot were damaged.

use crate::archive::keep_setting;
use crate::archive::kept_files::{self, Archive, Now, Pruning};
use crate::archive::log_before_alteration::{left, put_away};
use crate::clock::{Clock, Timestamp};
use crate::engine::checkpoints::backpressure::Backpressure;
use crate::engine::log::space::LogSpace;
use crate::engine::shared::Shared;
use crate::engine::time::lease_time::even_second;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::Control;
use crate::options::Keep;
use crate::primitives::Mutex;
use crate::recovery::Listing;
use crate::recovery::removal::{remove_for_good, remove_kept};
use crate::snapshot::{SnapshotHeader, SnapshotReader};
use crate::wal::log_record::RECORD_BYTES;
use std::io;
use std::iter::repeat_with;
use std::sync::Arc;

/// The number of sound snapshots that recovery needs: the newest, and one in case that is damaged.
const NEEDED: usize = 2;

/// The fallback base: files that would only be read if the newest snapshot were damaged.
#[derive(Default)]
pub(crate) struct FallbackBase {
    /// Starts of older snapshots, the oldest last.
    pub(crate) snapshots: Vec<u64>,
    /// The log below the newest snapshot.
    log: Vec<FileName>,
}

/// The system's clock as it was when it was first read, moved on by the time that has passed since:
/// the wall clock may be set, for example because it was behind when the machine was started.
#[derive(Debug)]
struct EvenClock {
    /// The time and the monotonic reading when the handle was opened.
    own: [u64; 2],
}

impl EvenClock {
    fn new() -> Self {
        Self { own: [Timestamp::now().as_unix_micros(), Clock::system().elapsed()] }
    }

    /// Returns the second now, that of leases if it can be.
    fn second(&self, header: &Control) -> u64 {
        even_second(header).unwrap_or_else(|| {
            let [time, read] = self.own;
            time.saturating_add(Clock::system().elapsed().saturating_sub(read)) / 1_000_000
        })
    }
}

/// The files that a handle removes.
#[derive(Debug)]
pub struct Reclaim {
    shared: Arc<Shared>,
    backpressure: Arc<Backpressure>,
    log_space: Arc<LogSpace>,
    /// Starts of snapshots of older timelines that this handle has read in full.
    proven: Mutex<Vec<u64>>,
    pruning: Mutex<Pruning>,
    even_clock: EvenClock,
}

impl Reclaim {
    /// Creates the reclaim of a handle.
    pub(crate) fn new(
        shared: Arc<Shared>,
        backpressure: Arc<Backpressure>,
        log_space: Arc<LogSpace>,
    ) -> Self {
        Self {
            shared,
            backpressure,
            log_space,
            proven: Mutex::default(),
            pruning: Mutex::default(),
            even_clock: EvenClock::new(),
        }
    }

    /// Notes a snapshot that was read in full.
    pub(crate) fn note_proven(&self, start: u64) {
        self.proven.lock().push(start);
    }

    /// Lists the files of this log. An alteration that failed may have left the first segment of
    /// another one, which does not end this one's segments.
    fn list(&self) -> Result<Listing> {
        let mut listing = Listing::of_filter(&*self.shared.media, self.shared.meta.log_uuid)?;
        // Also if the header of such a segment cannot be read.
        let own = self.shared.header().identity().timeline;
        listing.segments.retain(|&(timeline, _)| timeline <= own);
        Ok(listing)
    }

    /// Removes snapshots and segments that are no longer needed, according to the present files.
    pub(crate) fn tidy(&self) -> Result<()> {
        self.shared.check_directory()?;
        let listing = self.list()?;
        let known = self.shared.header().unsound();
        let (mut needed, mut oldest, mut snapshot_bytes) = (0, None, 0);
        let (mut superfluous, mut unread) = (Vec::new(), Vec::new());
        for &start in &listing.snapshots {
            let unsound = known.contains(start);
            let sound =
                match SnapshotReader::open(&*self.shared.media, start, self.shared.meta.log_uuid) {
                    Ok(reader) => {
                        snapshot_bytes = reader.header().bytes.max(snapshot_bytes);
                        (!unsound && self.is_ours(reader.header()))
                            .then_some(reader.header().timeline)
                    }
                    Err(Error::Damaged { .. } | Error::Version { .. }) => None,
                    // Not a file.
                    Err(Error::Io { source, .. })
                        if source.kind() == io::ErrorKind::InvalidInput =>
                    {
                        None
                    }
                    // Another handle was faster in tidying up.
                    Err(error) if error.is_not_found() => return Ok(()),
                    // The error is no statement about the snapshot.
                    Err(error) => return Err(error),
                };
            if needed < NEEDED {
                // One that looks damaged stays until there are enough newer ones. The read error
                // may be temporary, and the log before it may be gone.
                if let Some(timeline) = sound {
                    (needed, oldest) = (needed + 1, Some(start));
                    unread.extend(
                        (timeline < self.shared.header().identity().timeline).then_some(start),
                    );
                }
            } else {
                superfluous.push(FileName::Snapshot { start });
            }
        }
        // With fewer than two snapshots the whole log is the fallback base.
        if let Some(least) = oldest.filter(|_| needed == NEEDED) {
            // The writer of these snapshots may have stopped before it stored their start.
            self.shared.header().snapshot().raise(least);
            let segments = listing.segments_below(least).iter();
            superfluous
                .extend(segments.map(|&(timeline, first)| FileName::Segment { timeline, first }));
        }
        // A sound header proves little about the rest, and a handle that found it damaged may be
        // gone. Nothing is removed on the strength of a header alone.
        if !superfluous.is_empty() {
            if !unread.into_iter().all(|start| self.proves(start)) {
                return Ok(());
            }
            // Another handle may have named one of the snapshots since the last sync.
            self.shared.sync_directory()?;
        }
        // Reading took long: what has these names by now may be another filter's, or needed.
        self.shared.check_directory()?;
        self.shared.check_unaltered()?;
        self.keep_or_remove(&superfluous, &listing, snapshot_bytes)?;
        // At once: at a high insert rate, the log that is removed in a second could fill the disk.
        self.log_space.unmap_below(self.shared.durable());
        Ok(())
    }

    /// Removes files that recovery no longer needs, or keeps them for as long as is wished.
    /// `snapshot_bytes`: of the largest snapshot.
    fn keep_or_remove(
        &self,
        superfluous: &[FileName],
        listing: &Listing,
        snapshot_bytes: u64,
    ) -> Result<()> {
        let (media, second) = (&*self.shared.media, Timestamp::now().as_unix_millis() / 1000);
        let numbers = || repeat_with(|| self.shared.log.next_temporary());
        let keep = keep_setting::wished(media);
        let mut files = listing.kept_segments.len() + listing.kept_snapshots.len();
        if keep == Keep::Nothing {
            remove_for_good(media, superfluous.iter().copied(), numbers())?;
        } else {
            let rename = |listing: &Listing| {
                kept_files::keep(media, superfluous, second, listing, numbers())
            };
            let mut kept = rename(listing);
            // The disk takes no further name. What is kept goes first, because it is older.
            while kept.as_ref().is_err_and(Error::is_full) && self.shared.remove_oldest_kept()? {
                kept = rename(&self.list()?);
            }
            match kept {
                // Some of these files have both names by now. All that is kept goes, so that no
                // gap lies behind it.
                Err(error) if error.is_full() => {
                    let mut listing = self.list()?;
                    listing.leave_irregular(media);
                    remove_for_good(media, listing.kept(), numbers())?;
                    remove_for_good(media, superfluous.iter().copied(), numbers())?;
                }
                kept => kept.map(|()| files += superfluous.len())?,
            }
        }
        // Whoever altered the filter may have failed to put the log from before away. As long as
        // that is so, what is kept of it stays: the archive does not see the rest.
        if !listing.others.is_empty() {
            // After an alteration, this log would be taken for one from before it.
            self.shared.check_unaltered()?;
            match put_away(media, &self.shared.meta, (keep, second), numbers()) {
                Err(error) if error.is_full() => drop(self.shared.remove_oldest_kept()?),
                done => done?,
            }
        }
        if keep == Keep::Nothing && !listing.has_kept() {
            return Ok(());
        }
        let is_large = snapshot_bytes > self.shared.meta.segment_records * RECORD_BYTES * 2;
        if !is_large && !self.pruning.lock().is_due(keep, files, second) {
            return Ok(());
        }
        let archive = Archive::read(media, &self.shared.meta)?;
        let now = Now { wall: second, even: self.even_clock.second(self.shared.header()) };
        let unwanted = archive.superfluous(media, Pruning::aim(keep), now);
        let left = files.saturating_sub(unwanted.len());
        // Otherwise it was read with parameters that are former ones by now.
        self.shared.check_unaltered()?;
        remove_for_good(media, unwanted, numbers())?;
        *self.pruning.lock() = Pruning { keep, files: left, second };
        Ok(())
    }

    /// Returns whether a snapshot of an earlier timeline is sound as a whole; it is read once.
    fn proves(&self, start: u64) -> bool {
        let is_known = || self.proven.lock().contains(&start);
        if is_known() {
            return true;
        }
        let proven = self.is_proven(start);
        if proven {
            self.note_proven(start);
        }
        proven
    }

    /// Returns whether a snapshot can belong to this log. One that was copied here from another
    /// past of the filter refers to log that does not exist, or not yet, and justifies no removal.
    pub(crate) fn is_ours(&self, header: &SnapshotHeader) -> bool {
        // The log was durable through its end before it got its name.
        header.timeline <= self.shared.header().identity().timeline
            && header.end <= self.shared.durable()
    }

    /// Returns whether a snapshot is sound as a whole.
    pub(crate) fn is_proven(&self, start: u64) -> bool {
        let unsound = self.shared.header().unsound();
        let known = unsound.contains(start);
        let read = || {
            let mut reader =
                SnapshotReader::open(&*self.shared.media, start, self.shared.meta.log_uuid)?;
            reader.frames(|_, _, _| {
                self.backpressure.note_progress();
                // An opener holds the opening byte meanwhile.
                self.shared.slots.note_progress();
                Ok(())
            })?;
            Ok::<_, Error>(self.is_ours(reader.header()))
        };
        // A snapshot that is unreadable now does not justify removing another one.
        !known && read().unwrap_or(false)
    }

    /// Removes the log of the fallback base, if a segment finds no space and no new snapshot is
    /// needed. The older snapshots are then useless, but reserve their space for the next one,
    /// unless even the first segment finds none.
    ///
    /// What is only kept goes first.
    pub(crate) fn remove_fallback_log(&self) -> Result<()> {
        if self.shared.remove_oldest_kept()? {
            return Ok(());
        }
        let mut base = self.fallback_base()?.unwrap_or_default();
        let header = self.shared.header();
        if header.allocated().read() > header.timeline_start() {
            base.snapshots.clear();
        }
        self.remove_base(base).map(|_| ())
    }

    /// Returns the fallback base of the newest sound snapshot, after reading that snapshot in full
    /// and removing all that is only kept ([`remove_kept`]): its caller has found no other space.
    /// `None` if no snapshot is sound.
    pub(crate) fn fallback_base(&self) -> Result<Option<FallbackBase>> {
        let mut listing = self.list()?;
        let proven = listing.snapshots.iter().position(|&start| self.is_proven(start));
        let Some(at) = proven else { return Ok(None) };
        // The snapshot's name may be newer than the last sync of the directory, its writer dead.
        self.shared.sync_directory()?;
        let newest = listing.snapshots[at];
        let numbers = || repeat_with(|| self.shared.log.next_temporary());
        // So does log from before an alteration that could not be put away.
        let former = left(&*self.shared.media, &self.shared.meta, &listing)?;
        if listing.has_kept() {
            remove_kept(&*self.shared.media, &mut listing, newest, numbers())?;
        }
        remove_for_good(&*self.shared.media, former, numbers())?;
        // The snapshot's writer may have died before this. Repair must not search for log below.
        self.shared.header().snapshot().raise(newest);
        let log = listing.segments_below(newest).iter();
        let log = log.map(|&(timeline, first)| FileName::Segment { timeline, first }).collect();
        Ok(Some(FallbackBase { snapshots: listing.snapshots.split_off(at + 1), log }))
    }

    /// Removes the fallback base. Returns false if it is empty.
    pub(crate) fn remove_base(&self, base: FallbackBase) -> Result<bool> {
        let FallbackBase { snapshots, log } = base;
        let snapshots = snapshots.into_iter().rev().map(|start| FileName::Snapshot { start });
        let rest: Vec<_> = snapshots.chain(log).collect();
        let any = !rest.is_empty();
        remove_for_good(
            &*self.shared.media,
            rest,
            repeat_with(|| self.shared.log.next_temporary()),
        )?;
        self.log_space.unmap_below(self.shared.durable());
        Ok(any)
    }
}
