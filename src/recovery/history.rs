//! The log as recovery reads it: across timelines, up to its end, telling the end from damage.
//!
//! A timeline ends every lower one at the LSN where it began, whatever valid records lie beyond, and the reader
//! never goes back to a lower timeline: records that an earlier recovery left behind can never join newer ones.
//! After a power cut the log ends at the first place that is empty or wrong. After the death of all
//! processes on a living kernel (`tail` is known then) places below the tail that are empty belong to
//! writers that died, and a wrong one is damage. Damage is never taken for the end.

use crate::error::{Error, Result};
use crate::format::header::DURABLE;
use crate::image::Control;
use crate::media::{Access, Media};
use crate::recovery::Listing;
use crate::sync::Ordering;
use crate::wal::record::{Decoded, Op, Record};
use crate::wal::segment::{Segment, SegmentFile, SegmentHeader};
use std::collections::BTreeMap;
use std::path::PathBuf;

const REMEDY: &str = "records that were acknowledged are missing or damaged here: run `ebbtide verify`, then restore a backup, or save what lies before the damage with `ebbtide salvage`";

/// The log of a filter, all timelines. Segments are mapped as they are read, one at a time: however long the log, it takes one
/// descriptor.
#[derive(Debug)]
pub struct History {
    directory: PathBuf,
    /// Ascending by timeline and first LSN; every one has a sound header.
    segments: Vec<SegmentHeader>,
    /// Those that stay mapped, by timeline and first LSN.
    held: BTreeMap<(u64, u64), Segment>,
    /// The oldest version of a segment's format; the newest without any.
    version: u32,
    /// Timelines with the LSN at which each began, ascending.
    timelines: Vec<(u64, u64)>,
}

/// What the live image says of the log's end, where it can be believed: only on the same run of the machine.
#[derive(Debug, Clone, Copy)]
pub enum LogExtent {
    /// Nothing: the log ends at the first place that is empty or wrong.
    Nothing,
    /// All who wrote have died.
    Died {
        /// The timeline they wrote.
        timeline: u64,
        /// Every place below was made durable.
        durable: u64,
        /// The next LSN they would have reserved.
        tail: u64,
        /// How many places they may have left empty at most.
        unfinished: u64,
    },
    /// The same run of the machine, but the device went meanwhile and came back: what was not durable yet may be gone, as after
    /// a power cut.
    Cut {
        /// The timeline that was written.
        timeline: u64,
        /// Every place below was made durable.
        durable: u64,
    },
    /// Somebody writes now.
    Living {
        /// The timeline they write.
        timeline: u64,
        /// Every place below is published.
        durable: u64,
    },
}

impl LogExtent {
    /// What those left who wrote last; nobody writes now.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be found out whether the machine still runs as it did then.
    pub fn of_the_dead(home: &dyn Media, uuid: u128) -> Result<Self> {
        Ok(match Control::open_previous(home, uuid, Access::Read)? {
            // Relaxed: whoever wrote it is dead, and the byte locks order us after that.
            Some(image) => Self::Died {
                timeline: image.identity().timeline,
                durable: image.durable().load(Ordering::Relaxed),
                tail: image.tail().load(Ordering::Relaxed),
                unfinished: image.unfinished(),
            },
            None => Self::Nothing,
        })
    }

    /// What those have reached who write now. To be asked before files are listed, which may hold more.
    ///
    /// # Errors
    /// As [`LogExtent::of_the_dead`].
    pub fn of_the_living(home: &dyn Media, uuid: u128) -> Result<Self> {
        Ok(match Control::find(home, uuid, Access::Read)? {
            // Acquire: pairs with the raising of the durable end.
            Some(image) => Self::Living {
                timeline: image.identity().timeline,
                durable: image.durable().load(Ordering::Acquire),
            },
            None => Self::Nothing,
        })
    }

    /// What is known of this timeline: the LSN below which nothing is wrong, and how many places there may be empty.
    fn of_timeline(self, timeline: u64) -> Option<(u64, u64)> {
        match self {
            Self::Died { timeline: of, tail, unfinished, .. } if of == timeline => {
                Some((tail, unfinished))
            }
            Self::Cut { timeline: of, durable } | Self::Living { timeline: of, durable }
                if of == timeline =>
            {
                Some((durable, 0))
            }
            _ => None,
        }
    }
}

/// How far the log reaches.
#[derive(Debug, Clone, Default)]
pub struct Prefix {
    /// The first LSN that is not part of it.
    pub stop: u64,
    /// Places below that nobody ever wrote.
    pub holes: Vec<u64>,
    /// Records read, VOIDs included.
    pub records: u64,
}

/// Makes sure that a segment names the same start of its timeline as the one before, if that is of the same.
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

impl History {
    /// Looks at the headers of all segments, one after the other.
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

    /// The log that segments with these headers make up: ascending, those of a timeline [agree](check_start) on its start.
    fn of(directory: PathBuf, segments: Vec<SegmentHeader>) -> Self {
        let mut timelines: Vec<_> =
            segments.iter().map(|header| (header.timeline, header.timeline_start)).collect();
        timelines.dedup();
        Self { directory, segments, held: BTreeMap::new(), version: DURABLE.written, timelines }
    }

    /// The log that these segments of a directory make up, as [`History::of`]; they stay mapped.
    #[must_use]
    pub(crate) fn of_mapped(directory: PathBuf, segments: Vec<Segment>) -> Self {
        let headers = segments.iter().map(|segment| *segment.header()).collect();
        let place = |segment: Segment| ((segment.header().timeline, segment.first()), segment);
        Self { held: segments.into_iter().map(place).collect(), ..Self::of(directory, headers) }
    }

    /// Maps all segments that reach beyond `from`: they can be read then whoever removes the files.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn hold(&mut self, media: &dyn Media, from: u64) -> Result<()> {
        for header in self.segments.iter().filter(|header| header.end() > from) {
            let segment = self.open_segment(media, header, Access::Read)?;
            self.held.insert((header.timeline, header.first), segment);
        }
        Ok(())
    }

    fn open_segment(
        &self,
        media: &dyn Media,
        header: &SegmentHeader,
        access: Access,
    ) -> Result<Segment> {
        Segment::open(media, header.timeline, header.first, header.uuid, access)
    }

    /// Lets `read` look at a segment.
    pub(crate) fn visit<T>(
        &self,
        media: &dyn Media,
        header: &SegmentHeader,
        read: impl FnOnce(&Segment) -> Result<T>,
    ) -> Result<T> {
        match self.held.get(&(header.timeline, header.first)) {
            Some(segment) => read(segment),
            None => read(&self.open_segment(media, header, Access::Read)?),
        }
    }

    /// The newest timeline; 0 if there is no log at all.
    #[must_use]
    pub fn last_timeline(&self) -> u64 {
        self.timelines.last().map_or(0, |&(timeline, _)| timeline)
    }

    /// What the headers of all segments say.
    #[must_use]
    pub fn segments(&self) -> &[SegmentHeader] {
        &self.segments
    }

    /// The segments that stay mapped.
    pub(crate) fn held(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.held.values()
    }

    /// The oldest version of a segment's format.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The timelines with the LSNs at which each begins and ends; the newest has no end.
    pub fn timelines(&self) -> impl Iterator<Item = (u64, u64, Option<u64>)> {
        let ends = self.timelines.iter().skip(1).map(|&(_, next)| Some(next)).chain([None]);
        self.timelines.iter().zip(ends).map(|(&(timeline, start), end)| (timeline, start, end))
    }

    /// Hands on every record from LSN `from` on, until the log ends.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it ends where it must not, and what `visit` returns.
    pub fn read(
        &self,
        media: &dyn Media,
        from: u64,
        known: LogExtent,
        visit: impl FnMut(u64, u64, &Record) -> Result<()>,
    ) -> Result<Prefix> {
        let mut prefix = Prefix { stop: from, ..Prefix::default() };
        self.read_on(media, known, &mut prefix, visit)?;
        Ok(prefix)
    }

    /// As [`History::read`], from where a prefix stops; what was read is in it also after an error.
    ///
    /// # Errors
    /// As [`History::read`].
    pub(crate) fn read_on(
        &self,
        media: &dyn Media,
        known: LogExtent,
        prefix: &mut Prefix,
        mut visit: impl FnMut(u64, u64, &Record) -> Result<()>,
    ) -> Result<()> {
        let known = self.without_lost(media, known, prefix.stop)?;
        let of_last = known.of_timeline(self.last_timeline());
        for (timeline, start, end) in self.timelines() {
            if end.is_some_and(|end| end <= prefix.stop) {
                continue;
            }
            if prefix.stop < start {
                return Err(self.missing(prefix.stop, start));
            }
            let least = end.or(of_last.map(|(least, _)| least));
            let read = self.read_timeline(media, (timeline, end), least, prefix, &mut visit);
            if let (Some((_, unfinished)), None) = (of_last, end) {
                self.check_holes(unfinished, prefix)?;
            }
            if let (None, Some(end)) = (read?, end) {
                return Err(self.missing(prefix.stop, end));
            }
        }
        // Those who write now may have filled and noted what was empty a moment ago.
        if !matches!(known, LogExtent::Living { .. }) {
            self.check_rest(media, prefix)?;
        }
        Ok(())
    }

    /// What is known, unless more places are empty than writers that died can have left, all of them above what was made durable:
    /// then the device went without the machine and came back, and what it had not written yet is gone.
    fn without_lost(&self, media: &dyn Media, known: LogExtent, from: u64) -> Result<LogExtent> {
        let LogExtent::Died { timeline, durable, tail, unfinished } = known else {
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
        Ok(if empty > unfinished { LogExtent::Cut { timeline, durable } } else { known })
    }

    /// Reads one timeline up to `end`, or (for the last one) as far as it goes. `known` is an LSN up to which nothing
    /// may be wrong. `Some` if `end` was reached.
    fn read_timeline(
        &self,
        media: &dyn Media,
        (timeline, end): (u64, Option<u64>),
        known: Option<u64>,
        prefix: &mut Prefix,
        visit: &mut impl FnMut(u64, u64, &Record) -> Result<()>,
    ) -> Result<Option<()>> {
        for segment in self.segments.iter().filter(|segment| segment.timeline == timeline) {
            if segment.end() <= prefix.stop {
                continue;
            }
            // Allocated ahead of what turned out to be the timeline's end, by a handle that died; the next recovery may
            // have died too before it removed it.
            if end.is_some_and(|end| end <= segment.first) {
                break;
            }
            if segment.first > prefix.stop {
                return Err(self.missing(prefix.stop, segment.first));
            }
            let read = |segment: &Segment| self.read_segment(segment, end, known, prefix, visit);
            if !self.visit(media, segment, read)? {
                return Ok(None);
            }
        }
        if let Some(tail) = known.filter(|&known| prefix.stop < known) {
            return Err(self.missing(prefix.stop, tail));
        }
        Ok(end.map(|_| ()))
    }

    /// Reads the rest of a segment, as [`History::read_timeline`]. False if the log ends here.
    fn read_segment(
        &self,
        segment: &Segment,
        end: Option<u64>,
        known: Option<u64>,
        prefix: &mut Prefix,
        visit: &mut impl FnMut(u64, u64, &Record) -> Result<()>,
    ) -> Result<bool> {
        for lsn in prefix.stop..segment.end().min(end.unwrap_or(u64::MAX)) {
            match segment.read(lsn) {
                Decoded::Valid(record) => visit(segment.header().timeline, lsn, &record)?,
                Decoded::Empty if end.is_none() && known.is_some_and(|tail| lsn < tail) => {
                    prefix.holes.push(lsn);
                }
                Decoded::Empty | Decoded::Wrong if known.is_none_or(|known| lsn >= known) => {
                    return Ok(false);
                }
                Decoded::Empty => {
                    return Err(self.at(lsn, format!("record {lsn}"), "an empty place".into()));
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

    /// Makes sure that no more places are empty than there may be. Else nobody knows which of them are damage, and the prefix
    /// stops at the first.
    fn check_holes(&self, unfinished: u64, prefix: &mut Prefix) -> Result<()> {
        let count = prefix.holes.len();
        if count as u64 <= unfinished {
            return Ok(());
        }
        prefix.stop = prefix.holes[0];
        let expected = format!("at most {unfinished} empty places, one for each writer that died");
        Err(self.at(prefix.stop, expected, format!("{count}")))
    }

    /// Looks beyond the end for a record that says the log was durable further than it now reaches.
    fn check_rest(&self, media: &dyn Media, prefix: &Prefix) -> Result<()> {
        let timeline = self.last_timeline();
        let of_timeline = self.segments.iter().filter(|segment| segment.timeline == timeline);
        for header in of_timeline.filter(|header| header.end() > prefix.stop) {
            self.visit(media, header, |segment| {
                for lsn in prefix.stop.max(segment.first())..segment.end() {
                    if let Decoded::Valid(Record { op: Op::Durable, payload, .. }) =
                        segment.read(lsn)
                        && payload > prefix.stop
                        && payload <= lsn
                    {
                        let expected = format!(
                            "records up to {payload}, which record {lsn} says were durable"
                        );
                        let found = "an empty or damaged place".to_owned();
                        return Err(self.at(prefix.stop, expected, found));
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The error for a damaged place.
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

    /// The error for a timeline of which no segment is left.
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

    /// Makes the prefix durable from `from` on, holes voided, so that a new timeline may be built on it, segment by segment: pages
    /// are dirtied first, because an earlier sync may have failed and left them clean; and the file is opened before that, for
    /// the system tells of a failure those who had it open then.
    ///
    /// # Errors
    /// [`Error::Io`]; nothing may be built then.
    pub fn secure(&self, media: &dyn Media, from: u64, prefix: &Prefix) -> Result<()> {
        for header in &self.segments {
            if header.end() <= from || header.first >= prefix.stop {
                continue;
            }
            let segment = self.open_segment(media, header, Access::Write)?;
            for &lsn in prefix.holes.iter().filter(|&&lsn| segment.holds(lsn)) {
                segment.void(lsn);
            }
            segment.dirty(from, prefix.stop);
            segment.sync().map_err(Error::io("sync", header.path(&self.directory)))?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
