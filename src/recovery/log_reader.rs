//! The log as recovery reads it: across timelines, up to its end, and with damage distinguished
//! from the end.
//!
//! A timeline ends where the next one begins: its later records are ignored, even valid ones. The
//! reader never goes back to a lower timeline, so records left behind by an earlier recovery can
//! never join newer ones.
//!
//! After a power cut the log ends at the first slot that is empty or invalid. After the death of
//! all processes on a running kernel (the tail is known then, from `known_extent`), empty slots
//! from the durable end up to the tail belong to dead writers. An empty one below that end, and an
//! invalid one below the tail, is damage. Damage is never treated as the end. Whether a record is
//! valid, its checksum says (`ebbtide_core::log_record`). `batches` cuts off a batch that lies
//! across the end.

use crate::error::{Error, Result};
use crate::format::header::DURABLE;
use crate::media::{Access, Media};
use crate::primitives::Hint;
use crate::primitives::mutex::Mutex;
use crate::recovery::Listing;
use crate::recovery::known_extent::{KnownEnds, KnownExtent};
use crate::wal::log_record::{Decoded, Op, Record};
use crate::wal::segment::{Segment, SegmentFile, SegmentHeader};
use std::collections::BTreeMap;
use std::path::PathBuf;

const REMEDY: &str = "records that were acknowledged are missing or damaged here: run `ebbtide \
                      verify`, then restore a backup, or save what lies before the damage with \
                      `ebbtide salvage`";

/// From this version on, the last record of a batch ends it. Before, a header told its length.
pub(crate) const BATCHES_END_THEMSELVES: u32 = 6;

/// The log of a filter, in all timelines. Segments are mapped one at a time while they are read:
/// however long the log, it needs one descriptor.
#[derive(Debug)]
pub struct LogReader {
    directory: PathBuf,
    /// Ascending by timeline and first LSN; each has a sound header.
    segments: Vec<SegmentHeader>,
    /// Segments that stay mapped, by timeline and first LSN.
    held: BTreeMap<(u64, u64), Segment>,
    /// The oldest format version of any segment; the current version if there is none.
    version: u32,
    /// Timelines with the LSN at which each began, ascending.
    timelines: Vec<(u64, u64)>,
    /// The first LSNs of segments that are durable, if all their slots are complete.
    synced: Mutex<Vec<u64>>,
    /// Reading stops at this LSN at the latest.
    limit: Hint,
    /// A cache of the segment read last, for callers that read the log in parts.
    latest: Option<Mutex<Option<Segment>>>,
}

/// The part of the log that can be read.
#[derive(Debug, Clone, Default)]
pub struct Prefix {
    /// The first LSN beyond the prefix.
    pub stop: u64,
    /// Slots below `stop` that were never written.
    pub gaps: Vec<u64>,
    /// The number of slots read: records, VOIDs and gaps.
    pub records: u64,
}

impl Prefix {
    /// Ends the prefix at an earlier LSN.
    pub(crate) fn end_at(&mut self, stop: u64) {
        self.stop = stop;
        self.gaps.retain(|&lsn| lsn < stop);
    }
}

/// Checks that two segments of one timeline have the same timeline start.
///
/// # Errors
/// [`Error::Damaged`].
pub(crate) fn check_start(
    media: &dyn Media,
    last: &SegmentHeader,
    header: &SegmentHeader,
) -> Result<()> {
    if last.timeline != header.timeline || last.timeline_start == header.timeline_start {
        return Ok(());
    }
    Err(Error::Damaged {
        path: header.path(media.path()),
        offset: 40,
        expected: format!("timeline {} to begin at {}", last.timeline, last.timeline_start),
        found: header.timeline_start.to_string(),
        remedy: REMEDY,
    })
}

impl LogReader {
    /// Reads the headers of all segments, one after the other.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], [`Error::Version`].
    pub fn open(media: &dyn Media, listing: &Listing, uuid: u128) -> Result<Self> {
        let mut segments: Vec<SegmentHeader> = Vec::new();
        let mut version = DURABLE.written;
        for &(timeline, first) in &listing.segments {
            let file = SegmentFile::open(media, timeline, first, uuid, Access::Read)?;
            if let Some(before) = segments.last() {
                check_start(media, before, &file.header)?;
            }
            version = version.min(file.version);
            segments.push(file.header);
        }
        Ok(Self { version, ..Self::of(media.path().to_path_buf(), segments) })
    }

    /// Creates the log of segments with these headers: ascending, and with
    /// [consistent](check_start) starts of timelines.
    fn of(directory: PathBuf, segments: Vec<SegmentHeader>) -> Self {
        let mut timelines: Vec<_> =
            segments.iter().map(|header| (header.timeline, header.timeline_start)).collect();
        timelines.dedup();
        let (held, version) = (BTreeMap::new(), DURABLE.written);
        let (synced, limit, latest) = (Mutex::default(), Hint::new(u64::MAX), None);
        Self { directory, segments, held, version, timelines, synced, limit, latest }
    }

    /// As [`LogReader::of`], from segments that are already mapped and stay so.
    #[must_use]
    pub(crate) fn of_mapped(directory: PathBuf, segments: Vec<Segment>) -> Self {
        let headers = segments.iter().map(|segment| *segment.header()).collect();
        let place = |segment: Segment| ((segment.header().timeline, segment.first()), segment);
        Self { held: segments.into_iter().map(place).collect(), ..Self::of(directory, headers) }
    }

    /// Maps all segments that reach beyond `from`, so that they stay readable even if their files
    /// are removed.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn hold(&mut self, media: &dyn Media, from: u64) -> Result<()> {
        let limit = self.limit.get();
        let is_read = |header: &&SegmentHeader| header.end() > from && header.first < limit;
        for header in self.segments.iter().filter(is_read) {
            let segment = self.open_segment(media, header, Access::Read)?;
            self.held.insert((header.timeline, header.first), segment);
        }
        Ok(())
    }

    /// Keeps the segment that was read last mapped until another one is read, for a caller that
    /// reads the log in parts and opens it again for what was written since.
    pub(crate) fn keep_latest(&mut self) {
        self.latest = Some(Mutex::default());
    }

    /// Reads the log as if it ended before this LSN, from now on.
    pub(crate) fn end_at(&self, limit: u64) {
        self.limit.set(limit);
    }

    /// Returns whether a prefix has reached the LSN at which reading was to end.
    fn is_at_limit(&self, prefix: &Prefix) -> bool {
        prefix.stop >= self.limit.get()
    }

    fn open_segment(
        &self,
        media: &dyn Media,
        header: &SegmentHeader,
        access: Access,
    ) -> Result<Segment> {
        Segment::open(media, header.timeline, header.first, header.uuid, access)
    }

    /// Calls `read` with a segment.
    pub(crate) fn visit<T>(
        &self,
        media: &dyn Media,
        header: &SegmentHeader,
        read: impl FnOnce(&Segment) -> Result<T>,
    ) -> Result<T> {
        if let Some(segment) = self.held.get(&(header.timeline, header.first)) {
            return read(segment);
        }
        let open = || self.open_segment(media, header, Access::Read);
        let Some(latest) = &self.latest else { return read(&open()?) };
        let mut latest = latest.lock();
        match latest.take().filter(|segment| segment.header() == header) {
            Some(segment) => read(latest.insert(segment)),
            None => read(latest.insert(open()?)),
        }
    }

    /// Returns the first LSNs of segments that were made durable while the log was read.
    pub(super) fn synced(&self) -> &Mutex<Vec<u64>> {
        &self.synced
    }

    /// Returns the newest timeline; 0 if there is no log at all.
    #[must_use]
    pub fn last_timeline(&self) -> u64 {
        self.timelines.last().map_or(0, |&(timeline, _)| timeline)
    }

    /// Returns the headers of all segments.
    #[must_use]
    pub fn segments(&self) -> &[SegmentHeader] {
        &self.segments
    }

    /// Returns the segments that stay mapped.
    pub(crate) fn held(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.held.values()
    }

    /// Returns the oldest version of a segment's format.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the timelines with the LSNs at which each begins and ends; the newest has no end.
    pub fn timelines(&self) -> impl Iterator<Item = (u64, u64, Option<u64>)> {
        let ends = self.timelines.iter().skip(1).map(|&(_, next)| Some(next)).chain([None]);
        self.timelines.iter().zip(ends).map(|(&(timeline, start), end)| (timeline, start, end))
    }

    /// Passes every record from LSN `from` on to `visit`, until the log ends.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it ends where it must not, and errors of `visit`.
    pub fn read(
        &self,
        media: &dyn Media,
        from: u64,
        known: KnownExtent,
        visit: impl FnMut(u64, u64, &Record) -> Result<()>,
    ) -> Result<Prefix> {
        let mut prefix = Prefix { stop: from, ..Prefix::default() };
        self.read_on(media, known, &mut prefix, visit)?;
        Ok(prefix)
    }

    /// Returns the LSN after the last record.
    ///
    /// # Errors
    /// As [`LogReader::read`].
    pub(crate) fn end(&self, media: &dyn Media, known: KnownExtent) -> Result<u64> {
        // The last ones may be empty: log is allocated ahead.
        for segment in self.segments().iter().rev() {
            let end = self.read(media, segment.first, known, |_, _, _| Ok(()))?.stop;
            if end > segment.first {
                return Ok(end);
            }
        }
        Ok(self.segments().first().map_or(1, |segment| segment.first))
    }

    /// Returns the LSN at which the first commit after the last damaged or missing record from
    /// `from` up to `upto` begins, after the batch to which that record may belong. `None` if that
    /// is more than one LSN beyond `upto`.
    pub(crate) fn behind_damage(
        &self,
        media: &dyn Media,
        from: u64,
        (known, upto): (KnownExtent, u64),
    ) -> Option<u64> {
        // The header may be what is damaged.
        if self.version < BATCHES_END_THEMSELVES {
            return None;
        }
        let limit = self.limit.get();
        self.end_at(upto.saturating_add(1));
        // After every 200 damaged records, the rest of the segment is not searched.
        const MOST_TRIES: u32 = 200;
        let (mut prefix, mut begins) = (Prefix { stop: from, ..Prefix::default() }, None);
        let mut tries = 0;
        loop {
            let read = self.read_on(media, known, &mut prefix, |_, lsn, record| {
                if begins.is_none() && !record.continues {
                    begins = Some(lsn + 1);
                }
                Ok(())
            });
            if !read.is_err_and(|error| error.is_damage()) {
                break;
            }
            begins = None;
            let at = prefix.stop;
            tries += 1;
            let holds = |segment: &&SegmentHeader| segment.first <= at && at < segment.end();
            let all_of_it = self.segments.iter().find(holds).filter(|_| tries % MOST_TRIES == 0);
            let after = all_of_it.map_or(at + 1, SegmentHeader::end);
            let next = self.segments.iter().filter(|segment| segment.end() > after);
            let Some(next) = next.map(|segment| segment.first.max(after)).min() else { break };
            prefix = Prefix { stop: next, ..Prefix::default() };
        }
        self.end_at(limit);
        begins
    }

    /// Continues reading at the end of `prefix` and extends it, also if an error follows.
    ///
    /// # Errors
    /// As [`LogReader::read`].
    pub(crate) fn read_on(
        &self,
        media: &dyn Media,
        known: KnownExtent,
        prefix: &mut Prefix,
        mut visit: impl FnMut(u64, u64, &Record) -> Result<()>,
    ) -> Result<()> {
        let known = self.without_lost(media, known, prefix.stop)?;
        let of_last = known.of_timeline(self.last_timeline());
        for (timeline, start, end) in self.timelines() {
            if self.is_at_limit(prefix) {
                return Ok(());
            }
            if end.is_some_and(|end| end <= prefix.stop) {
                continue;
            }
            if prefix.stop < start {
                return Err(self.missing(prefix.stop, start));
            }
            let known = end.map(KnownEnds::complete).or(of_last).unwrap_or_default();
            let read = self.read_timeline(media, (timeline, end), known, prefix, &mut visit);
            if self.is_at_limit(prefix) {
                return read.map(|_| ());
            }
            if !read? && let Some(end) = end {
                return Err(self.missing(prefix.stop, end));
            }
        }
        // With live writers a slot read as empty may be filled, and noted as durable, by now.
        if !matches!(known, KnownExtent::WritersLive { .. }) {
            self.check_rest(media, prefix)?;
        }
        Ok(())
    }

    /// Returns `known`, or [`KnownExtent::DeviceLost`] if more slots above the durable end are
    /// empty than dead writers can leave. Then the device lost writes while the machine kept
    /// running.
    fn without_lost(
        &self,
        media: &dyn Media,
        known: KnownExtent,
        from: u64,
    ) -> Result<KnownExtent> {
        let KnownExtent::WritersDied { timeline, durable, tail, unfinished } = known else {
            return Ok(known);
        };
        if timeline != self.last_timeline() {
            return Ok(known);
        }
        let mut empty = 0;
        let of_timeline = self.segments.iter().filter(|segment| segment.timeline == timeline);
        for header in of_timeline.filter(|segment| segment.end() > durable && segment.first < tail)
        {
            let places = durable.max(from).max(header.first)..tail.min(header.end());
            empty += self.visit(media, header, |segment| {
                Ok(places.filter(|&lsn| !segment.is_complete(lsn)).count() as u64)
            })?;
        }
        Ok(if empty > unfinished { KnownExtent::DeviceLost { timeline, durable } } else { known })
    }

    /// Reads one timeline up to `end`, or (the last one) up to the end of the log, which is `known`
    /// to reach so far. Returns whether `end` was reached.
    fn read_timeline(
        &self,
        media: &dyn Media,
        (timeline, end): (u64, Option<u64>),
        known: KnownEnds,
        prefix: &mut Prefix,
        visit: &mut impl FnMut(u64, u64, &Record) -> Result<()>,
    ) -> Result<bool> {
        for segment in self.segments.iter().filter(|segment| segment.timeline == timeline) {
            if segment.end() <= prefix.stop {
                continue;
            }
            if self.is_at_limit(prefix) {
                return Ok(false);
            }
            // A segment beyond the timeline's end: allocated ahead, and not removed by recovery.
            if end.is_some_and(|end| end <= segment.first) {
                break;
            }
            if segment.first > prefix.stop {
                return Err(self.missing(prefix.stop, segment.first));
            }
            let read = |segment: &Segment| self.read_segment(segment, end, known, prefix, visit);
            if !self.visit(media, segment, read)? {
                return Ok(false);
            }
        }
        if prefix.stop < known.valid && !self.is_at_limit(prefix) {
            return Err(self.missing(prefix.stop, known.valid));
        }
        Ok(end.is_some())
    }

    /// Reads the rest of a segment, as [`LogReader::read_timeline`]. Returns false if the log ends
    /// here.
    fn read_segment(
        &self,
        segment: &Segment,
        end: Option<u64>,
        known: KnownEnds,
        prefix: &mut Prefix,
        visit: &mut impl FnMut(u64, u64, &Record) -> Result<()>,
    ) -> Result<bool> {
        for lsn in prefix.stop..segment.end().min(end.unwrap_or(u64::MAX)) {
            if lsn >= self.limit.get() {
                return Ok(false);
            }
            match segment.read(lsn) {
                Decoded::Valid(record) => visit(segment.header().timeline, lsn, &record)?,
                Decoded::Empty if known.complete <= lsn && lsn < known.valid => {
                    prefix.gaps.push(lsn);
                }
                Decoded::Empty | Decoded::Wrong if lsn >= known.valid => return Ok(false),
                Decoded::Empty => {
                    return Err(self.at(lsn, format!("record {lsn}"), "an empty slot".into()));
                }
                Decoded::Wrong => {
                    let expected = format!("record {lsn} with its checksum");
                    return Err(self.at(lsn, expected, "other bytes".into()));
                }
            }
            prefix.stop = lsn + 1;
            prefix.records += 1;
        }
        Ok(true)
    }

    /// Looks beyond the end for a `Durable` record that names a later LSN. It proves damage.
    fn check_rest(&self, media: &dyn Media, prefix: &Prefix) -> Result<()> {
        let timeline = self.last_timeline();
        let of_timeline = self.segments.iter().filter(|segment| segment.timeline == timeline);
        for header in of_timeline.filter(|header| header.end() > prefix.stop) {
            let (timeline, first, uuid) = (header.timeline, header.first, header.uuid);
            let from = prefix.stop.max(first);
            // Do not read the hole at the end of a new segment: that would take memory.
            let end = match self.held.contains_key(&(timeline, first)) {
                true => header.end(),
                false => SegmentFile::open(media, timeline, first, uuid, Access::Read)?
                    .written_end(from)?,
            };
            if from == end {
                continue;
            }
            self.visit(media, header, |segment| {
                for lsn in from..end {
                    if let Decoded::Valid(Record { op: Op::Durable, payload, .. }) =
                        segment.read(lsn)
                        && payload > prefix.stop
                        && payload <= lsn
                    {
                        let expected = format!(
                            "records up to {payload}, which record {lsn} says were durable"
                        );
                        let found = "an empty or damaged slot".to_owned();
                        return Err(self.at(prefix.stop, expected, found));
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Creates the error for a damaged slot.
    pub(crate) fn at(&self, lsn: u64, expected: String, found: String) -> Error {
        let segment = self.segments.iter().rev().find(|segment| segment.holds(lsn));
        let (path, offset) = match segment {
            Some(segment) => (segment.path(&self.directory), segment.offset(lsn)),
            None => (self.directory.clone(), 0),
        };
        Error::Damaged { path, offset, expected, found, remedy: REMEDY }
    }

    pub(crate) fn missing(&self, from: u64, to: u64) -> Error {
        let expected = format!("log segments with the records from {from} up to {to}");
        Error::Damaged {
            path: self.directory.clone(),
            offset: 0,
            expected,
            found: "none that holds them".into(),
            remedy: REMEDY,
        }
    }

    /// Creates the error for a timeline without any segment left.
    pub(crate) fn lost(&self, timeline: u64) -> Error {
        Error::Damaged {
            path: self.directory.clone(),
            offset: 0,
            expected: format!(
                "log segments up to timeline {timeline}, which the other files belong to"
            ),
            found: format!("none after timeline {}", self.last_timeline()),
            remedy: REMEDY,
        }
    }

    /// Returns the segments that have room for records of their timeline from `from` on, each with
    /// the end of that room: what lies beyond the end of a timeline is never read, and its space
    /// may have been freed. No two of them begin at the same LSN.
    pub(super) fn from(&self, from: u64) -> impl Iterator<Item = (&SegmentHeader, u64)> + Clone {
        let bounded = self.segments.iter().map(|header| {
            let next = self.timelines.partition_point(|&(timeline, _)| timeline <= header.timeline);
            let end = self.timelines.get(next).map_or(u64::MAX, |&(_, start)| start);
            (header, header.end().min(end))
        });
        bounded.filter(move |&(header, end)| end > header.first.max(from))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
