//! A filter as parts that can be kept anywhere: its `meta`, its snapshots, and its log in pieces;
//! and a filter in a directory again, made of such parts.
//!
//! The parts are the bytes of `docs/format.md`. A snapshot, with all records from its start on,
//! gives the filter as of every commit from the snapshot's end on. This module does not know where
//! parts are kept.

use crate::engine::lifecycle::open::{read_meta, write_new};
use crate::engine::temporary_files::{clear, write_file};
use crate::error::{Error, Result};
use crate::format::header::{to_bytes, to_words};
use crate::format::names::{FileName, TIMELINE_OF_COPY_MAX};
use crate::locks::session_slots::Sessions;
use crate::media::{Disk, Media, MediaFile};
use crate::meta::Meta;
use crate::options::Durability;
use crate::recovery::Listing;
use crate::snapshot::SnapshotReader;
use crate::wal::log_record::{Decoded, RECORD_BYTES, RECORD_WORDS, Record, void_word};
use crate::wal::segment::SegmentHeader;
use crate::wal::{Op, Segment, slot};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

const META_TEMPORARY: u64 = 0;
const SEGMENT_TEMPORARY: u64 = 1;
/// Openings that may have happened behind the last part: each begins a timeline.
const OPENINGS: u64 = 64;
const REMEDY: &str = "this piece of the log is damaged, or belongs elsewhere: take it once more \
                      from where it was copied from, or another copy";

/// The content of a filter's `meta`, and the numbers in it that parts are recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The filter's uuid: also that of its backups and restored copies.
    pub uuid: u128,
    /// The number of its log, which its snapshots have as well; another one since the filter was
    /// [altered](crate::Filter::alter).
    pub log: u128,
    /// Whether operations become durable only with snapshots, because the filter's durability is
    /// `never`.
    pub is_never_synced: bool,
    /// The bytes of `meta`. They contain the secret seed of the hash of keys.
    pub meta: Vec<u8>,
}

impl Origin {
    fn of(meta: &Meta) -> Self {
        let is_never_synced = meta.durability == Durability::Never;
        let bytes = meta.encode();
        Self { uuid: meta.uuid, log: meta.log_uuid, is_never_synced, meta: bytes }
    }
}

/// Returns what a filter's `meta` holds.
///
/// # Errors
/// [`Error::NotAFilter`], [`Error::Damaged`], [`Error::Version`], [`Error::Io`].
pub fn origin(dir: impl AsRef<Path>) -> Result<Origin> {
    origin_on(&Disk::new(dir.as_ref()))
}

/// As [`origin`], on a medium provided by the caller.
///
/// # Errors
/// Those of [`origin`].
pub fn origin_on(media: &dyn Media) -> Result<Origin> {
    Ok(Origin::of(&read_meta(media)?))
}

/// A snapshot among a filter's files. It is not changed as long as it has its name, which it may
/// lose at any time. Who has it open can read it nevertheless, until another snapshot is written
/// over it, on a full disk: what was read is of this one if it had its name afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotFile {
    /// The file's name in the directory.
    pub name: String,
    /// The number of the log that it belongs to ([`Origin::log`]).
    pub log: u128,
    /// The records from this LSN on are needed with it.
    pub start: u64,
    /// As of the LSNs from the one before this on, snapshot and records yield the filter.
    pub end: u64,
    /// The timeline in which it was written.
    pub timeline: u64,
    /// The file's length.
    pub bytes: u64,
}

/// Returns a filter's snapshots, the newest first. Their headers were checked, not their contents.
/// One whose header is damaged, or cannot be read, is left out.
///
/// # Errors
/// [`Error::NotAFilter`], [`Error::Damaged`], [`Error::Version`] of `meta`, [`Error::Io`].
pub fn snapshots_on(media: &dyn Media) -> Result<Vec<SnapshotFile>> {
    let meta = read_meta(media)?;
    let mut found = Vec::new();
    for start in Listing::of_filter(media, meta.log_uuid)?.snapshots {
        match SnapshotReader::open(media, start, meta.log_uuid) {
            Ok(reader) => {
                let header = reader.header();
                let (end, timeline, bytes) = (header.end, header.timeline, header.bytes);
                let name = FileName::Snapshot { start }.to_string();
                let log = header.uuid;
                found.push(SnapshotFile { name, log, start, end, timeline, bytes });
            }
            // It was removed meanwhile, or it is of no use.
            Err(error) if error.is_not_found() || error.is_unreadable() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the highest timeline that a filter's log has, also if no record of it follows: each
/// opening of a filter that nobody else has open begins one. 0 without log.
///
/// # Errors
/// [`Error::NotAFilter`], [`Error::Damaged`], [`Error::Version`] of `meta`, [`Error::Io`].
pub fn newest_timeline_on(media: &dyn Media) -> Result<u64> {
    let meta = read_meta(media)?;
    let segments = Listing::of_filter(media, meta.log_uuid)?.segments;
    Ok(segments.iter().map(|&(timeline, _)| timeline).max().unwrap_or_default())
}

/// Checks every frame of a snapshot, in one pass over its file.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Version`]; [`Error::Io`], also for one that was removed.
pub fn verify_snapshot_on(media: &dyn Media, file: &SnapshotFile) -> Result<()> {
    SnapshotReader::open(media, file.start, file.log)?.frames(|_, _, _| Ok(()))
}

/// Records of a log that follow each other, as bytes: whole commits, with their events, each record
/// in 32 bytes. LSNs without a record that counts have a VOID.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// The number of the log.
    pub log: u128,
    /// The timeline of its last record, for which all of them are encoded.
    pub timeline: u64,
    /// The LSN of the first record.
    pub first: u64,
    /// The records.
    pub records: Vec<u8>,
}

impl Piece {
    /// Creates a piece of bytes that were one. [`Assembly::add`] checks them.
    #[must_use]
    pub fn of_bytes(log: u128, timeline: u64, first: u64, records: Vec<u8>) -> Self {
        Self { log, timeline, first, records }
    }

    /// Encodes these records; LSNs below `end` that are missing get a VOID.
    pub(crate) fn encode(
        (log, timeline): (u128, u64),
        (first, end): (u64, u64),
        found: &[(u64, Record)],
    ) -> Self {
        let mut records = Vec::with_capacity(((end - first) * RECORD_BYTES) as usize);
        let mut found = found.iter().peekable();
        for lsn in first..end {
            let words = match found.next_if(|&&(at, _)| at == lsn) {
                Some((_, record)) if record.op != Op::Void => record.encode(timeline, lsn),
                _ => [0, 0, 0, void_word(timeline, lsn)],
            };
            records.extend_from_slice(&to_bytes(&words));
        }
        Self { log, timeline, first, records }
    }

    /// Returns the LSN beyond the last record. (Bytes that were never a piece may end beyond the
    /// last LSN there is: then that.)
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.records.len() as u64 / RECORD_BYTES)
    }

    /// Adds a piece that follows this one directly, in the same timeline of the same log. Returns
    /// false, and changes nothing, if it does not.
    pub fn append(&mut self, next: &Self) -> bool {
        let follows =
            (next.log, next.timeline, next.first) == (self.log, self.timeline, self.end());
        if follows {
            self.records.extend_from_slice(&next.records);
        }
        follows
    }

    /// Returns each record with its LSN; `None` for bytes that are no record of their place.
    fn decode(&self) -> impl Iterator<Item = (u64, Option<Record>)> + '_ {
        let slots = self.records.chunks_exact(RECORD_BYTES as usize).zip(0..);
        slots.map(|(bytes, at)| {
            // Beyond the last LSN there is no record.
            let Some(lsn) = self.first.checked_add(at).filter(|&lsn| lsn < u64::MAX) else {
                return (u64::MAX, None);
            };
            let mut words = [0; RECORD_WORDS];
            words.iter_mut().zip(to_words(bytes)).for_each(|(to, word)| *to = word);
            match Record::decode(words, self.timeline, lsn) {
                Decoded::Valid(record) => (lsn, Some(record)),
                Decoded::Empty | Decoded::Wrong => (lsn, None),
            }
        })
    }

    /// Returns the records from an LSN on; `None` if one of them is damaged.
    pub(crate) fn records_from(&self, first: u64) -> Option<Vec<(u64, Record)>> {
        let wanted = self.decode().filter(|&(lsn, _)| lsn >= first);
        wanted.map(|(lsn, record)| Some((lsn, record?))).collect()
    }

    /// Returns whether it changes the filter: it has more than VOIDs, and notes about how far the
    /// log is durable and when the filter was alive.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        let records = self.decode().filter_map(|(_, record)| record);
        records
            .into_iter()
            .any(|record| !matches!(record.op, Op::Void | Op::Durable | Op::Heartbeat))
    }

    /// Returns whether it has a heartbeat: a note that the filter was alive, by which the time of
    /// one with [`Downtime::Freeze`](crate::Downtime) advances. (An alteration writes one as well.)
    #[must_use]
    pub fn has_heartbeats(&self) -> bool {
        let mut records = self.decode().filter_map(|(_, record)| record);
        records.any(|record| record.op == Op::Heartbeat)
    }

    /// Returns the latest time of an operation in it, in microseconds since the Unix epoch; 0 if
    /// none has a time.
    #[must_use]
    pub fn latest_micros(&self) -> u64 {
        let records = self.decode().filter_map(|(_, record)| record);
        let times =
            records.filter(|record| matches!(record.op, Op::Insert | Op::Remove | Op::Clear));
        times.map(|record| record.time).max().unwrap_or(0)
    }
}

/// A filter in a new directory, in the making: `meta` first, then perhaps a snapshot, then all
/// records from its start on (without a snapshot, from LSN 1 on). It becomes a filter by
/// [`Assembly::finish`]; dropped before, it leaves nothing.
///
/// What was assembled is a filter whose processes have ended: opening it replays the records.
/// Its uuid is that of the filter that the parts come from, so that only one of the two may be in
/// use.
pub struct Assembly {
    media: Arc<dyn Media>,
    meta: Meta,
    timeline: u64,
    /// The highest timeline of the parts so far, or that a machine may have begun meanwhile.
    highest: u64,
    start: u64,
    has_snapshot: bool,
    /// The first LSN that is missing.
    next: u64,
    segment: Option<Segment>,
    locks: Option<Arc<Sessions>>,
}

impl fmt::Debug for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut assembly = f.debug_struct("Assembly");
        assembly.field("path", &self.media.path()).field("next_lsn", &self.next);
        assembly.finish_non_exhaustive()
    }
}

impl Assembly {
    /// Begins with the bytes of `meta`. `timeline`: that of the first part. Others may have higher
    /// ones.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a filter, [`Error::Damaged`] if these are no bytes of a
    /// `meta`, [`Error::Version`], [`Error::Locked`], [`Error::Io`].
    pub fn begin(dir: impl AsRef<Path>, meta: &[u8], timeline: u64) -> Result<Self> {
        Self::begin_on(Arc::new(Disk::new(dir.as_ref())), meta, timeline)
    }

    /// As [`Assembly::begin`], on a medium provided by the caller.
    ///
    /// # Errors
    /// Those of [`Assembly::begin`].
    pub fn begin_on(media: Arc<dyn Media>, meta: &[u8], timeline: u64) -> Result<Self> {
        let meta = Meta::decode(meta, &media.path().join(FileName::Meta.to_string()))?;
        let locks = Some(write_new(&*media, Ok)?);
        // No filter has higher ones. That of `finish` comes after it.
        let (timeline, has_snapshot) = (timeline.clamp(1, TIMELINE_OF_COPY_MAX - 1), false);
        let (highest, start, next, segment) = (timeline, 1, 1, None);
        Ok(Self { media, meta, timeline, highest, start, has_snapshot, next, segment, locks })
    }

    /// Returns whether the kind uses time. Then a snapshot has the time of an
    /// [alteration](crate::Filter::alter) before it, if the kind before used time as well;
    /// otherwise only the latest time of an operation.
    #[must_use]
    pub fn uses_time(&self) -> bool {
        self.meta.kind.uses_time()
    }

    /// Creates the file of the snapshot, of zeros, for the caller to fill. Comes before the log.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn snapshot(&mut self, start: u64, bytes: u64) -> Result<Box<dyn MediaFile>> {
        let name = FileName::Snapshot { start }.to_string();
        let created = self.media.create(&name, bytes);
        let file = created.map_err(Error::io("create", self.media.path().join(name)))?;
        (self.start, self.next, self.has_snapshot) = (start, start, true);
        Ok(file)
    }

    /// Adds the next piece of the log. What is there of it already is left out.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the piece does not follow, or a record in it is wrong; [`Error::Io`].
    pub fn add(&mut self, piece: &Piece) -> Result<()> {
        let path = self.media.path().join(format!("piece-{}", piece.first));
        let damaged = |lsn: u64, expected: String, found: String| {
            let offset = lsn.saturating_sub(piece.first) * RECORD_BYTES;
            let path = path.clone();
            Err(Error::Damaged { path, offset, expected, found, remedy: REMEDY })
        };
        let (log, first) = (piece.log, piece.first);
        if log != self.meta.log_uuid || first > self.next || first == 0 {
            let expected = format!("LSN {} of log {:032x}", self.next, self.meta.log_uuid);
            return damaged(first, expected, format!("LSN {first} of log {log:032x}"));
        }
        self.highest = self.highest.max(piece.timeline);
        for (lsn, record) in piece.decode() {
            if lsn < self.next {
                continue;
            }
            let Some(record) = record else {
                return damaged(lsn, format!("the record of LSN {lsn}"), "something else".into());
            };
            self.write(lsn, &record)?;
        }
        Ok(())
    }

    /// Notes that a machine may have opened the filter as it is so far, and added nothing: what it
    /// has then begun is left out as well ([`Assembly::finish`]).
    pub fn leave_out_timelines(&mut self) {
        self.highest = self.highest.saturating_add(OPENINGS);
    }

    fn write(&mut self, lsn: u64, record: &Record) -> Result<()> {
        if self.segment.as_ref().is_none_or(|segment| segment.end() <= lsn) {
            self.next_segment(lsn, self.meta.segment_records)?;
        }
        if let Some(segment) = &self.segment {
            match record.op {
                Op::Void => segment.void(lsn),
                _ => drop(slot::publish(segment.slot(lsn), record.encode(self.timeline, lsn))),
            }
        }
        self.next = lsn + 1;
        Ok(())
    }

    fn next_segment(&mut self, first: u64, capacity: u64) -> Result<()> {
        self.end_segment()?;
        let header = SegmentHeader {
            uuid: self.meta.log_uuid,
            timeline: self.timeline,
            timeline_start: self.start,
            first,
            capacity,
        };
        self.segment = Some(Segment::create(&*self.media, header, SEGMENT_TEMPORARY)?);
        Ok(())
    }

    fn end_segment(&mut self) -> Result<()> {
        let Some(segment) = self.segment.take() else { return Ok(()) };
        let name = FileName::Segment { timeline: self.timeline, first: segment.first() };
        segment.sync().map_err(Error::io("sync", self.media.path().join(name.to_string())))
    }

    /// Makes it a filter, after a pass over all frames of its snapshot. Its timeline is higher than
    /// those of the parts and of up to 64 openings since: the tokens of its claims are greater
    /// than all that the filter has given there, also where the log of that is lost. Returns the
    /// LSN that its next record gets.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the snapshot is, which whoever has kept it may not have noticed;
    /// [`Error::Version`], [`Error::Io`].
    pub fn finish(mut self) -> Result<u64> {
        if self.has_snapshot {
            let mut snapshot = SnapshotReader::open(&*self.media, self.start, self.meta.log_uuid)?;
            snapshot.frames(|_, _, _| Ok(()))?;
        }
        // Openings that are not in the log have begun timelines, too.
        self.end_segment()?;
        let timeline = self.highest.saturating_add(OPENINGS).min(TIMELINE_OF_COPY_MAX);
        (self.timeline, self.start) = (timeline, self.next);
        // The next opening begins a timeline of its own.
        self.next_segment(self.next, 1)?;
        self.end_segment()?;
        let media = &*self.media;
        write_file(media, META_TEMPORARY, &FileName::Meta.to_string(), &self.meta.encode())?;
        self.locks = None;
        Ok(self.next)
    }
}

impl Drop for Assembly {
    fn drop(&mut self) {
        if self.locks.is_some() {
            // The opening byte is held: nobody else has begun here.
            let _ = clear(&*self.media);
        }
    }
}
