//! The provable state of a damaged filter: the longest unbroken prefix of its operations.
//!
//! It consists of a snapshot and the log from its start up to the first damage. A snapshot counts
//! if all of it is sound and the log leads from its start to its end, because its blocks may
//! contain anything up to there. The newest snapshot that counts leads furthest: an older one needs
//! the log up to the newest too, and from there on both read the same log. Without a snapshot the
//! log must begin at LSN 1.
//!
//! Records beyond the first damage are counted and reported, but never applied, because the filter
//! never had a state that skips operations. Nothing here writes to the damaged filter.

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::format::header::{HEADER_BYTES, PAGE_BYTES, to_words};
use crate::format::names::{FileName, TIMELINE_OF_COPY_MAX};
use crate::image::previous_image;
use crate::media::{Access, Media, MediaFile, Memory};
use crate::meta::Meta;
use crate::recovery::KnownExtent;
use crate::recovery::bare_events::BareEvents;
use crate::recovery::base::load_alone;
use crate::recovery::batches::{Batches, Group};
use crate::recovery::listing::Listing;
use crate::recovery::log_reader::{LogReader, Prefix, check_start};
use crate::recovery::rebuild_in_memory;
use crate::snapshot::SnapshotReader;
use crate::wal::log_record::{Decoded, RECORD_BYTES};
use crate::wal::segment::{CAPACITY_MAX, SegmentHeader, sound_header};
use crate::wal::{Op, Segment, slot};
use std::ops::Range;

/// The number of the temporary name under which a segment of the new log is created.
const SEGMENT_TEMPORARY: u64 = 1;
/// Bytes of a damaged segment that are read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Words of a segment's header with the filter's uuid (two words) and the capacity.
const UUID_WORD: usize = 2;
const CAPACITY_WORD: usize = 7;

const REMEDY: &str = "no snapshot can be used, and the log cannot be read from its beginning, so \
                      nothing can be saved: restore a backup, or create the filter anew";

/// The records lost by a damaged filter: all from the first LSN on that was not recovered.
#[derive(Debug)]
#[non_exhaustive]
pub struct Lost {
    /// Every LSN below this one was assigned to a record, as far as the remaining files show.
    pub end: u64,
    /// The error at the end of the readable log, with the expected and the found content.
    pub cause: Error,
}

/// Operations that are readable beyond the recovered ones but left out, because some in between are
/// missing. A power cut also leaves such operations, which were not yet durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Beyond {
    /// The number of inserts and removals.
    pub operations: u64,
    /// The LSN of the first of them.
    pub first: u64,
    /// The LSN of the last.
    pub last: u64,
    /// The earliest time among them; the epoch itself if the filter has no clock.
    pub since: Timestamp,
    /// The latest time.
    pub until: Timestamp,
}

/// The recoverable part of a filter, and how to recover it.
#[derive(Debug)]
pub struct Salvage {
    history: LogReader,
    known: KnownExtent,
    /// The LSN from which the log is needed.
    start: u64,
    /// The first LSN that is not recovered.
    pub stop: u64,
    /// The snapshot to begin with, by its start.
    pub snapshot: Option<u64>,
    /// Every LSN below was durable, as far as the remaining files show.
    pub durable: u64,
    /// The timeline of the new log: no file refers to a higher one.
    timeline: u64,
    /// The loss, if there is any.
    pub lost: Option<Lost>,
    /// Readable operations beyond, which are left out.
    pub beyond: Option<Beyond>,
    /// Other damage.
    pub damaged: Vec<Error>,
}

/// A damaged segment.
struct Bad {
    first: u64,
    /// The LSN at which a reader leaves it before its end; `None` if all its slots are there.
    breaks_off: Option<u64>,
    error: Error,
}

/// The extent of the log from some LSN on.
struct Reach {
    prefix: Prefix,
    damage: Option<Error>,
    /// The durable end recorded on the way.
    noted: u64,
    /// The end of the prefix without a batch that lies across it.
    stop: u64,
    /// The first of the events that no record follows.
    unfollowed: Option<u64>,
}

/// The former extent of the log, by the remaining files.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// The newest timeline that a file refers to.
    timeline: u64,
    /// Every LSN below was durable.
    durable: u64,
    /// Every LSN below was assigned to a record.
    end: u64,
}

/// Determines the recoverable part of the filter in `home`; no process may have it open for
/// writing.
///
/// # Errors
/// [`Error::Damaged`] if nothing is recoverable; [`Error::Io`], [`Error::Version`] if a file is
/// unreadable for another reason.
pub fn examine(home: &dyn Media, meta: &Meta, known: KnownExtent) -> Result<Salvage> {
    let listing = Listing::of_filter(home, meta.log_uuid)?;
    let (history, mut bad) = open_log(home, &listing, meta.log_uuid)?;
    let mut damaged = Vec::new();
    let mut bases = Vec::new();
    for &start in &listing.snapshots {
        match load_alone(home, meta, start, &|| ()) {
            Ok(header) => bases.push((Some(start), start, header.end)),
            Err(error) => damaged.push(if_damage(error)?),
        }
    }
    bases.push((None, 1, 1));
    damaged.extend(listing.next_timeline(history.last_timeline(), home.path()).err());
    let mut told = told(home, &listing, &history, meta)?;
    for (snapshot, start, end) in bases {
        let Reach { prefix, damage, noted, stop, unfollowed } =
            reach(home, &history, known, start)?;
        if stop < end {
            continue;
        }
        // As in replay: events that no record follows have not happened, unless the snapshot may
        // have seen them.
        let stop = unfollowed.filter(|&first| first >= end).unwrap_or(stop);
        let cause = cause(&history, &mut bad, told, prefix.stop, damage);
        told.durable = told.durable.max(noted);
        let beyond = beyond(&history, stop, &mut told);
        let end = told.end.max(told.durable).max(stop);
        let lost = cause.map(|cause| Lost { end, cause });
        damaged.extend(bad.into_iter().map(|bad| bad.error));
        if lost.is_none() {
            // Older log, which is no longer needed.
            let first = history.segments().first().map_or(1, |segment| segment.first);
            damaged.extend(reach(home, &history, known, first)?.damage);
        }
        let found = Salvage {
            history,
            known,
            start,
            stop,
            snapshot,
            durable: told.durable,
            timeline: told.timeline.clamp(1, TIMELINE_OF_COPY_MAX),
            lost,
            beyond,
            damaged,
        };
        return found.unless_nothing();
    }
    // The last candidate for a recovery base is the empty one, which needs nothing.
    Err(history.lost(told.timeline))
}

impl Salvage {
    /// Returns whether anything is damaged or lost.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.lost.is_some() || !self.damaged.is_empty()
    }

    /// Returns this, unless everything is lost.
    fn unless_nothing(mut self) -> Result<Self> {
        let Some(Lost { cause, .. }) = self.lost.take_if(|_| self.stop == 1) else {
            return Ok(self);
        };
        // Snapshots first: with one of them something would be recoverable.
        Err(match self.damaged.into_iter().next().unwrap_or(cause) {
            Error::Damaged { path, offset, expected, found, .. } => {
                Error::Damaged { path, offset, expected, found, remedy: REMEDY }
            }
            other => other,
        })
    }

    /// Writes the log that belongs to the snapshot, as one timeline, and makes it durable.
    ///
    /// # Errors
    /// [`Error::Io`], including a full disk, and [`Error::Damaged`] if log has gone meanwhile.
    pub fn write_log(&self, home: &dyn Media, to: &dyn Media, meta: &Meta) -> Result<()> {
        let log = (&self.history, self.known);
        write_log((home, log), to, meta, (self.timeline, self.start..self.stop))
    }
}

/// Writes these records of a log, which is known to have them, as one timeline of another filter,
/// and makes them durable.
///
/// # Errors
/// [`Error::Io`], including a full disk, and what reading ended with if some have gone meanwhile.
pub(crate) fn write_log(
    (home, (history, known)): (&dyn Media, (&LogReader, KnownExtent)),
    to: &dyn Media,
    meta: &Meta,
    (timeline, records): (u64, Range<u64>),
) -> Result<()> {
    let capacity = meta.segment_records;
    let create = |first| {
        let (uuid, timeline_start) = (meta.log_uuid, records.start);
        let header = SegmentHeader { uuid, timeline, timeline_start, first, capacity };
        Segment::create(to, header, SEGMENT_TEMPORARY)
    };
    let mut segments = vec![create(records.start)?];
    while let Some(end) = segments.last().map(Segment::end).filter(|&end| end < records.end) {
        segments.push(create(end)?);
    }
    let mut prefix = Prefix { stop: records.start, ..Prefix::default() };
    let read = history.read_on(home, known, &mut prefix, |_, lsn, record| {
        let segment = (lsn - records.start) / capacity;
        if let Some(segment) = segments.get(segment as usize).filter(|_| lsn < records.end) {
            slot::publish(segment.slot(lsn), record.encode(timeline, lsn));
        }
        Ok(())
    });
    // The end of reading, and its reason, are known already.
    if prefix.stop < records.end {
        read?;
        return Err(history.missing(prefix.stop, records.end));
    }
    for segment in &segments {
        let places = segment.first()..segment.end().min(records.end);
        // Only the image of the filter accounts for slots that dead writers left empty.
        places.filter(|&lsn| !segment.is_complete(lsn)).for_each(|lsn| segment.void(lsn));
        let name = FileName::Segment { timeline, first: segment.first() };
        segment.sync().map_err(Error::io("sync", to.path().join(name.to_string())))?;
    }
    Ok(())
}

/// Checks that the written files yield a state, with every record below `stop`. Returns its number
/// of inserts.
pub(super) fn rebuilt_inserts(media: &dyn Media, meta: &Meta, stop: u64) -> Result<u64> {
    let rebuilt = rebuild_in_memory(media, meta, KnownExtent::Nothing, &|| {})?;
    if rebuilt.prefix.stop == stop {
        return Ok(rebuilt.image.sum_stripes().0.inserts);
    }
    Err(Error::Damaged {
        path: media.path().to_path_buf(),
        offset: 0,
        expected: format!("every record below {stop}, as just written"),
        found: format!("those below {}", rebuilt.prefix.stop),
        remedy: "this place does not keep what is written to it: choose another",
    })
}

/// Passes on an error that is a statement about the file; others end the search.
fn if_damage(error: Error) -> Result<Error> {
    if error.is_damage() { Ok(error) } else { Err(error) }
}

/// Maps all readable log.
fn open_log(home: &dyn Media, listing: &Listing, uuid: u128) -> Result<(LogReader, Vec<Bad>)> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut bad = Vec::new();
    // Sound ones first: they contain the starts of the others' timelines.
    for &(timeline, first) in &listing.segments {
        let opened = Segment::open(home, timeline, first, uuid, Access::Read).and_then(|segment| {
            let of_timeline = segments.last();
            of_timeline
                .map_or(Ok(()), |before| check_start(home, before.header(), segment.header()))?;
            Ok(segment)
        });
        match opened {
            Ok(segment) => segments.push(segment),
            Err(error) => bad.push((timeline, first, if_damage(error)?)),
        }
    }
    let mut found = Vec::new();
    for (timeline, first, error) in bad {
        let (rebuilt, breaks_off) = match error {
            // Of another version, or not a file.
            Error::Version { .. } | Error::Io { .. } => (None, Some(first)),
            _ => rebuild(home, listing, &segments, (timeline, first), uuid)?,
        };
        segments.extend(rebuilt);
        found.push(Bad { first, breaks_off, error });
    }
    segments.sort_by_key(|segment| (segment.header().timeline, segment.first()));
    Ok((LogReader::of_mapped(home.path().to_path_buf(), segments), found))
}

/// Reconstructs a segment in memory that is too short or too long, or whose header is damaged
/// except for the uuid. Name and length determine the rest of the header, and each record proves
/// that it belongs to this timeline and LSN. Also returns the LSN at which a reader leaves the
/// segment. The memory that it takes is bounded by what sound headers say, or by what was written:
/// the length may be damaged, too.
fn rebuild(
    home: &dyn Media,
    listing: &Listing,
    sound: &[Segment],
    (timeline, first): (u64, u64),
    uuid: u128,
) -> Result<(Option<Segment>, Option<u64>)> {
    let name = FileName::Segment { timeline, first }.to_string();
    let path = home.path().join(&name);
    let file = home.open(&name, Access::Read).map_err(Error::io("open", &path))?;
    let bytes = file.bytes().map_err(Error::io("measure", &path))?;
    let places = bytes.saturating_sub(PAGE_BYTES) / RECORD_BYTES;
    // The next segment of the timeline shows where this one ends.
    let next = listing.segments.iter().find(|&&(of, at)| of == timeline && at > first);
    let capacity = next.map_or(places, |&(_, next)| places.min(next - first)).min(CAPACITY_MAX);
    if capacity == 0 || first == 0 || first.checked_add(capacity).is_none() {
        return Ok((None, Some(first)));
    }
    let mut start = [0; HEADER_BYTES];
    file.read_at(&mut start, 0).map_err(Error::io("read", &path))?;
    let header: Vec<u64> = to_words(&start).collect();
    if u128::from(header[UUID_WORD + 1]) << 64 | u128::from(header[UUID_WORD]) != uuid {
        return Ok((None, Some(first)));
    }
    // Without another header, assume that the timeline began with its first segment. If that
    // segment is gone, the log of the lower timeline ends where this one began, at a slot without a
    // valid record, and is not read up to here.
    let told = sound.iter().map(Segment::header).find(|header| header.timeline == timeline);
    let lowest =
        listing.segments.iter().find(|&&(of, _)| of == timeline).map_or(first, |&(_, at)| at);
    let timeline_start = told.map_or(lowest, |header| header.timeline_start).min(first);
    let written = file.data_end(PAGE_BYTES).map_err(Error::io("measure", &path))?;
    let written = written.saturating_sub(PAGE_BYTES).div_ceil(RECORD_BYTES).min(capacity);
    let own = sound_header(&start).map(|header| header.capacity);
    let most = own.filter(|own| (1..=CAPACITY_MAX).contains(own)).unwrap_or_else(|| {
        // All segments of a timeline have room for as many.
        written.max(told.map_or(1, |header| header.capacity))
    });
    let capacity = capacity.min(most);
    let memory = Memory::new();
    memory.make().map_err(Error::io("make", memory.path()))?;
    let rebuilt = SegmentHeader { uuid, timeline, timeline_start, first, capacity };
    let segment = Segment::create(&memory, rebuilt, SEGMENT_TEMPORARY)?;
    copy_records(&*file, &segment, written.min(capacity)).map_err(Error::io("read", &path))?;
    let whole = header[CAPACITY_WORD] <= places;
    Ok((Some(segment), (!whole).then_some(first + capacity)))
}

/// Copies the first records of a file to a segment, in pieces.
fn copy_records(file: &dyn MediaFile, to: &Segment, records: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    let piece_records = PIECE_BYTES as u64 / RECORD_BYTES;
    for piece in (0..records).step_by(PIECE_BYTES / RECORD_BYTES as usize) {
        let bytes = (records - piece).min(piece_records) * RECORD_BYTES;
        let bytes = &mut buffer[..bytes as usize];
        file.read_at(bytes, PAGE_BYTES + piece * RECORD_BYTES)?;
        for (lsn, record) in (to.first() + piece..).zip(bytes.chunks_exact(RECORD_BYTES as usize)) {
            let mut words = [0; 4];
            for (to, word) in words.iter_mut().zip(to_words(record)) {
                *to = word;
            }
            slot::publish(to.slot(lsn), words);
        }
    }
    Ok(())
}

/// Returns the former extent of the log, according to snapshots, timelines and the image.
fn told(home: &dyn Media, listing: &Listing, history: &LogReader, meta: &Meta) -> Result<Told> {
    let named = listing.segments.last().map_or(0, |&(timeline, _)| timeline);
    let timeline = named.max(previous_image::timeline_with_log(home, meta.uuid)?.unwrap_or(0));
    // The base of a timeline was made durable before it began.
    let began = history.timelines().map(|(_, start, _)| start).max().unwrap_or(1);
    let mut told = Told { timeline, durable: began, end: began };
    for &start in &listing.snapshots {
        // It got its name when the log was durable through its end.
        let header =
            SnapshotReader::open(home, start, meta.log_uuid).map(|reader| *reader.header());
        let (timeline, end) = header.map_or((0, start), |header| (header.timeline, header.end));
        told.timeline = told.timeline.max(timeline);
        told.durable = told.durable.max(end);
    }
    if let Some(image) = previous_image::open(home, meta.uuid, Access::Read)? {
        // Their writers are dead. They have no checksum, but must be consistent.
        let (durable, tail) = (image.durable().hint(), image.tail().hint());
        let allocated = image.allocated().hint();
        if durable <= tail && tail <= allocated && image.identity().timeline == told.timeline {
            told.durable = told.durable.max(durable);
            told.end = told.end.max(tail);
        }
    }
    Ok(told)
}

/// Returns how far the log leads from this LSN.
fn reach(home: &dyn Media, history: &LogReader, known: KnownExtent, start: u64) -> Result<Reach> {
    let (mut prefix, mut noted) = (Prefix { stop: start, ..Prefix::default() }, 0);
    let (mut batches, mut bare_events) = (Batches::default(), BareEvents::default());
    let mut follow = |group: Group<'_>, counts: bool| {
        if counts && !bare_events.hold_back(group) {
            bare_events.confirmed_by(group);
        }
        Ok(())
    };
    let read = history.read_on(home, known, &mut prefix, |_, lsn, record| {
        if record.op == Op::Durable && record.payload <= lsn {
            noted = noted.max(record.payload);
        }
        batches.take(lsn, record, &mut follow)
    });
    let stop = batches.end(prefix.stop, &mut follow)?;
    let damage = match read {
        Ok(()) => None,
        Err(error @ Error::Damaged { .. }) => Some(error),
        Err(error) => return Err(error),
    };
    Ok(Reach { prefix, damage, noted, stop, unfollowed: bare_events.first() })
}

/// Returns why the log ends at `stop` although it should not; `None` if that is its end. `damage`
/// is the reader's error there.
fn cause(
    history: &LogReader,
    bad: &mut Vec<Bad>,
    told: Told,
    stop: u64,
    damage: Option<Error>,
) -> Option<Error> {
    let short = || (stop < told.durable).then(|| history.missing(stop, told.durable));
    let lost = || (history.last_timeline() < told.timeline).then(|| history.lost(told.timeline));
    // A later segment was created when those before it existed.
    let next = bad.iter().map(|bad| bad.first).find(|&first| first > stop);
    let next = next.filter(|_| !history.segments().iter().any(|segment| segment.holds(stop)));
    let gap = next.map(|next| history.missing(stop, next));
    // A damaged file that ends there is a better explanation than its absence.
    let broken = bad.iter().position(|bad| bad.breaks_off == Some(stop));
    match damage {
        Some(Error::Damaged { offset, .. }) if offset > 0 => damage,
        damage => match broken {
            Some(at) => Some(bad.remove(at).error),
            None => damage.or_else(short).or(gap).or_else(lost),
        },
    }
}

/// Returns the readable operations from `stop` on, and raises `told` to the extent that they show.
fn beyond(history: &LogReader, stop: u64, told: &mut Told) -> Option<Beyond> {
    let mut found: Option<Beyond> = None;
    for (timeline, start, end) in history.timelines() {
        let of_timeline = history.held().filter(|segment| segment.header().timeline == timeline);
        for segment in of_timeline {
            let first = stop.max(start).max(segment.first());
            for lsn in first..segment.end().min(end.unwrap_or(u64::MAX)) {
                let Decoded::Valid(record) = segment.read(lsn) else {
                    continue;
                };
                told.end = told.end.max(lsn + 1);
                match record.op {
                    Op::Durable if record.payload <= lsn => {
                        told.durable = told.durable.max(record.payload);
                    }
                    Op::Insert | Op::Remove | Op::Clear => {
                        let time = Timestamp::from_unix_micros(record.time);
                        let all = found.get_or_insert(Beyond {
                            operations: 0,
                            first: lsn,
                            last: lsn,
                            since: time,
                            until: time,
                        });
                        all.operations += 1;
                        all.last = lsn;
                        all.since = all.since.min(time);
                        all.until = all.until.max(time);
                    }
                    _ => {}
                }
            }
        }
    }
    found
}
