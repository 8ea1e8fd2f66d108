//! One handle's view of the log: the segments that it has mapped, and how it allocates more. How
//! much, and when: `engine::log::space`.
//!
//! Segments of a timeline have one size, so an LSN determines the name of its segment. A writer
//! reserves only below the end that is allocated *and* mapped by its own handle, so a reserved slot
//! can always be written. Other handles allocate segments too, and remove them: a handle maps the
//! segments it needs, from the tail on (for its syncs from the durable end on), and unmaps the
//! rest. The protocol of a slot is in [`crate::wal::slot`].

use crate::error::{Error, Result};
use crate::format::header::PAGE_BYTES;
use crate::format::names::FileName;
use crate::media::{Access, Media};
use crate::primitives::{AtomicU64, Hint, Mutex, Watermark};
use crate::wal::log_record::RECORD_BYTES;
use crate::wal::segment::{Segment, SegmentFile, SegmentHeader, is_of_another};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Slots in a page of a segment: each allocated piece of a segment ends with a page, or with the
/// segment.
pub const PAGE_RECORDS: u64 = PAGE_BYTES / RECORD_BYTES;

/// A log of up to this many slots takes no space ahead: 256 KiB. Small filters stay small.
pub const SMALL: u64 = (256 << 10) / RECORD_BYTES;

/// One in this many slots of the mapped log is set aside for handles that write few records, but at
/// most one in [`SET_ASIDE_OF_SEGMENT`] of a segment.
const SET_ASIDE_OF_GROWN: u64 = 16;
const SET_ASIDE_OF_SEGMENT: u64 = 8;

/// One handle's view of the log of the current timeline.
#[derive(Debug)]
pub struct Log {
    media: Arc<dyn Media>,
    /// The header of the timeline's first segment.
    first: SegmentHeader,
    access: Access,
    /// By first LSN.
    segments: Mutex<BTreeMap<u64, Arc<Segment>>>,
    /// The end of the log that this handle has mapped.
    mapped: AtomicU64,
    /// The end up to which handles that write many records may reserve.
    common: AtomicU64,
    temporaries: Hint,
    /// Every slot below is complete, as this handle has seen.
    walked: Hint,
}

impl Log {
    /// Creates the log of a timeline whose first segment is `first`; nothing is mapped yet.
    /// Temporary files are numbered from `temporary` on, which no other handle uses.
    #[must_use]
    pub fn new(
        media: Arc<dyn Media>,
        first: SegmentHeader,
        temporary: u64,
        access: Access,
    ) -> Self {
        Self {
            media,
            first,
            access,
            segments: Mutex::default(),
            mapped: AtomicU64::new(first.first),
            common: AtomicU64::new(first.first),
            temporaries: Hint::new(temporary),
            walked: Hint::default(),
        }
    }

    /// Returns the header of the segment with an LSN of the timeline.
    #[must_use]
    pub fn header_of(&self, lsn: u64) -> SegmentHeader {
        let whole = lsn.saturating_sub(self.first.first) / self.first.capacity;
        let first = self.first.first + whole * self.first.capacity;
        SegmentHeader { first, ..self.first }
    }

    /// Returns the number of records that each segment of the timeline has room for.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.first.capacity
    }

    /// Returns the end up to which this handle may reserve.
    #[must_use]
    #[inline]
    pub fn mapped_end(&self) -> u64 {
        // The end is raised only after the segments below it are in the list.
        Watermark::new(&self.mapped).read()
    }

    /// Returns the end up to which this handle may reserve although it writes many records: the
    /// slots between it and [`Log::mapped_end`] are for handles that write few, so that they need
    /// not wait until the log has been extended.
    #[must_use]
    #[inline]
    pub fn common_end(&self) -> u64 {
        Watermark::new(&self.common).read()
    }

    /// Returns the slots that a log with this mapped end keeps for handles that write few records.
    /// A log of up to 256 KiB keeps none, since it should be small.
    #[must_use]
    pub fn slots_set_aside(&self, end: u64) -> u64 {
        let grown = end.saturating_sub(self.first.timeline_start);
        (grown.saturating_sub(SMALL) / SET_ASIDE_OF_GROWN)
            .min(self.first.capacity / SET_ASIDE_OF_SEGMENT)
    }

    /// Returns the segment of an LSN, if it is mapped.
    #[must_use]
    pub fn segment(&self, lsn: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.lock();
        let (_, segment) = segments.range(..=lsn).next_back()?;
        segment.holds(lsn).then(|| segment.clone())
    }

    /// Maps all segments from the one of `from` up to `end`, which is allocated, and returns them:
    /// the returned segments contain every slot in between, even if others are unmapped meanwhile.
    /// A missing segment was removed because it lay below a snapshot.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn map(&self, from: u64, end: u64) -> Result<Vec<Arc<Segment>>> {
        let mut at = self.header_of(from.max(self.first.first)).first;
        let mut mapped = Vec::new();
        while at < end {
            let known = self.segments.lock().get(&at).cloned();
            mapped.push(match known {
                Some(segment) => segment,
                None => {
                    let (timeline, uuid) = (self.first.timeline, self.first.uuid);
                    self.add(Segment::open(&*self.media, timeline, at, uuid, self.access)?)
                }
            });
            at += self.first.capacity;
        }
        Watermark::new(&self.mapped).raise(end);
        Watermark::new(&self.common).raise(end - self.slots_set_aside(end));
        Ok(mapped)
    }

    /// Returns the mapped segments from that of `from` on, up to the first one that is not mapped.
    #[must_use]
    pub fn mapped_from(&self, from: u64) -> Vec<Arc<Segment>> {
        let mut at = self.header_of(from.max(self.first.first)).first;
        let segments = self.segments.lock();
        let mapped = segments.range(at..).map_while(|(&first, segment)| {
            (first == at).then(|| {
                at = segment.end();
                segment.clone()
            })
        });
        mapped.collect()
    }

    fn add(&self, segment: Segment) -> Arc<Segment> {
        // Two threads may have opened the same segment; either one will do.
        self.segments.lock().entry(segment.first()).or_insert_with(|| Arc::new(segment)).clone()
    }

    /// Allocates the next piece of the log, which is allocated up to `first` now, up to `upto` in
    /// the same segment. If `first` begins a segment, the segment is created, and `sync_names`
    /// makes its name durable: also if another handle has just created it, which may not have
    /// finished that.
    ///
    /// The rest of a segment needs no sync of its own: the sync that makes a record durable also
    /// writes the metadata to find the record, and a piece that is lost in a power cut contains no
    /// record.
    ///
    /// # Errors
    /// [`Error::Io`], including a full disk, and `NotFound` if `is_current` returns that the
    /// directory has been replaced: then nothing has changed. What `sync_names` returns.
    pub fn allocate(
        &self,
        (first, upto): (u64, u64),
        is_current: &dyn Fn() -> bool,
        sync_names: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let (header, media) = (self.header_of(first), &*self.media);
        let open = || {
            SegmentFile::open(media, header.timeline, header.first, header.uuid, self.access)
                .and_then(|file| file.allocate(first, upto).map(|()| file))
        };
        if first > header.first {
            return open().map(drop);
        }
        let places = upto - first;
        let create =
            || Segment::create_if(media, header, places, self.next_temporary(), is_current);
        let segment = match create() {
            // If the directory is another filter's by now, the file is that filter's.
            Err(error) if error.is_exists() && is_current() && self.remove_another(&header)? => {
                create()?
            }
            Err(error) if error.is_exists() => open()?.map(self.access)?,
            made => made?,
        };
        // Only the name. The file was synced before it got that, and that of another handle may
        // have records by now: a sync of them that fails here would be missed by the next sync of
        // the log.
        sync_names()?;
        drop(self.add(segment));
        Ok(())
    }

    /// Removes the file with a segment's name if it belongs to another filter: it was written late
    /// by a process that had a former filter of this directory open. Returns false if it does not.
    fn remove_another(&self, header: &SegmentHeader) -> Result<bool> {
        let path = header.path(self.media.path());
        let name = FileName::Segment { timeline: header.timeline, first: header.first }.to_string();
        if !is_of_another(&*self.media, &name, header.uuid) {
            return Ok(false);
        }
        self.media.remove(&name).map(|()| true).map_err(Error::io("remove", path))
    }

    /// Returns a number for a temporary file's name, unique among all live handles.
    pub fn next_temporary(&self) -> u64 {
        self.temporaries.next()
    }

    /// Returns whether segments are mapped that lie wholly below `lsn`.
    #[must_use]
    pub fn has_below(&self, lsn: u64) -> bool {
        self.segments.lock().first_key_value().is_some_and(|(_, segment)| segment.end() <= lsn)
    }

    /// Unmaps the segments that lie wholly below `lsn` and that nobody else uses. So the last
    /// reference to a segment is always dropped here, without a lock: if its file has been removed,
    /// the system then frees its blocks, which lasts seconds on a busy disk.
    pub fn forget_below(&self, lsn: u64) {
        let mut unused = Vec::new();
        // Under the lock nobody can begin to use one.
        self.segments.lock().retain(|_, segment| {
            let is_kept = segment.end() > lsn || Arc::strong_count(segment) > 1;
            if !is_kept {
                unused.push(segment.clone());
            }
            is_kept
        });
        drop(unused);
    }

    /// Returns the LSN below which this handle has seen every slot complete.
    #[must_use]
    pub fn walked(&self) -> u64 {
        self.walked.get()
    }

    /// Notes that every slot below this LSN is complete.
    pub fn note_walked(&self, lsn: u64) {
        self.walked.raise(lsn);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::wal::{Op, Record};
    use std::cell::Cell;
    use std::io::ErrorKind;

    const FIRST: SegmentHeader =
        SegmentHeader { uuid: 7, timeline: 2, timeline_start: 5, first: 5, capacity: 10 };

    fn log(media: &Arc<Memory>, temporary: u64) -> Log {
        Log::new(media.clone(), FIRST, temporary, Access::Write)
    }

    #[test]
    fn segments_that_lie_wholly_below_are_forgotten() {
        let media = Arc::new(Memory::new());
        media.make().expect("nothing fails yet");
        let log = log(&media, 100);
        for first in [5, 15, 25] {
            log.allocate((first, first + 10), &|| true, &|| Ok(())).expect("space");
        }
        let known = |lsn| log.segment(lsn).is_some();
        log.forget_below(14);
        assert!(!log.has_below(14) && known(5) && known(14), "one place of the first lies above");
        let in_use = log.segment(5);
        log.forget_below(15);
        assert!(log.has_below(15) && in_use.is_some() && known(5), "another one would unmap it");
        drop(in_use);
        log.forget_below(15);
        assert!(!known(5) && !known(14) && known(15) && known(34) && !known(35));
        assert!(!log.has_below(15));
        log.forget_below(35);
        assert!(!log.has_below(u64::MAX) && !known(34));
    }

    #[test]
    fn a_segment_gets_its_space_piece_by_piece_whoever_allocates_it() {
        let media = Arc::new(Memory::new());
        media.make().expect("nothing fails yet");
        let first = SegmentHeader { capacity: 4096, ..FIRST };
        let log = |temporary| Log::new(media.clone(), first, temporary, Access::Write);
        let (one, other) = (log(100), log(200));
        let name = FileName::Segment { timeline: 2, first: 5 }.to_string();
        let allocated = || {
            let file = media.open(&name, Access::Read).expect("it is there");
            file.allocated_bytes().expect("it is open") / RECORD_BYTES - PAGE_RECORDS
        };
        one.allocate((5, 517), &|| true, &|| Ok(())).expect("space");
        assert_eq!(allocated(), 512);
        // Its creator stopped before it recorded that; then both extend it.
        other.allocate((5, 517), &|| true, &|| Ok(())).expect("the one that is there");
        for log in [&one, &other] {
            log.allocate((517, 773), &|| true, &|| Ok(())).expect("space");
            assert_eq!(allocated(), 768);
        }
        media.set_capacity(0);
        let error = one.allocate((773, 1157), &|| true, &|| Ok(())).expect_err("no space");
        assert!(error.is_full() && allocated() == 768, "{error}");
        media.set_capacity(u64::MAX);
        media.remove(&name).expect("it is there");
        let error = other
            .allocate((773, 1157), &|| true, &|| Ok(()))
            .expect_err("a checkpoint has removed it");
        assert!(error.is_not_found(), "{error}");
    }

    #[test]
    fn what_is_forgotten_is_mapped_again_and_the_end_only_grows() {
        let media = Arc::new(Memory::new());
        media.make().expect("nothing fails yet");
        let (maker, other) = (log(&media, 100), log(&media, 200));
        for first in [5, 15, 25] {
            maker.allocate((first, first + 10), &|| true, &|| Ok(())).expect("space");
        }
        assert_eq!(other.mapped_end(), 5);
        let firsts = |from, end| {
            let segments = other.map(from, end).expect("they are there");
            segments.iter().map(|segment| segment.first()).collect::<Vec<_>>()
        };
        assert_eq!(firsts(1, 25), [5, 15], "from the beginning of the timeline");
        assert_eq!(other.mapped_end(), 25);
        other.forget_below(25);
        assert_eq!(firsts(24, 35), [15, 25]);
        assert_eq!(firsts(15, 25), [15]);
        assert_eq!(other.mapped_end(), 35);
    }

    #[test]
    fn a_segment_that_another_handle_has_just_made_is_shared() {
        let media = Arc::new(Memory::new());
        media.make().expect("nothing fails yet");
        let (one, other) = (log(&media, 100), log(&media, 200));
        one.allocate((5, 15), &|| true, &|| Ok(())).expect("space");
        other.allocate((5, 15), &|| true, &|| Ok(())).expect("the one that is there");
        let [mine, theirs] = [&one, &other].map(|log| log.segment(9).expect("mapped"));
        assert!(mine.write(9, &Record::new(Op::Insert)));
        assert!(theirs.is_complete(9) && !theirs.is_complete(8));
    }

    #[test]
    fn a_segment_that_another_filter_has_left_here_is_replaced_and_one_of_a_new_filter_stays() {
        let media = Arc::new(Memory::new());
        media.make().expect("nothing fails yet");
        let log = log(&media, 100);
        let others = SegmentHeader { uuid: FIRST.uuid + 1, ..FIRST };
        drop(Segment::create(&*media, others, 0).expect("space"));
        let uuid = || {
            let of = |uuid| {
                SegmentFile::open(&*media, FIRST.timeline, FIRST.first, uuid, Access::Read).is_ok()
            };
            (of(FIRST.uuid), of(others.uuid))
        };
        // The directory is that filter's by now, or when this handle has found the file.
        for count in [0, 1] {
            let asked = Cell::new(0);
            let is_current = || asked.replace(asked.get() + 1) < count;
            log.allocate((5, 15), &is_current, &|| Ok(())).expect_err("it is not ours");
            assert_eq!(uuid(), (false, true));
        }
        log.allocate((5, 15), &|| true, &|| Ok(())).expect("its name is free");
        assert_eq!(uuid(), (true, false));
        assert!(log.segment(5).is_some());
    }

    #[test]
    fn a_full_disk_is_the_error_that_it_is() {
        let media = Arc::new(Memory::with_capacity(4096));
        media.make().expect("nothing fails yet");
        let error = log(&media, 100)
            .allocate((5, 15), &|| true, &|| Ok(()))
            .expect_err("no room for records");
        let Error::Io { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.kind(), ErrorKind::StorageFull);
        assert_eq!(media.list().expect("made"), [""; 0], "nothing is left behind");
    }

    #[test]
    fn temporaries_have_numbers_of_their_own() {
        let media = Arc::new(Memory::new());
        let log = log(&media, 100);
        assert_eq!([0; 3].map(|_| log.next_temporary()), [100, 101, 102]);
    }
}
