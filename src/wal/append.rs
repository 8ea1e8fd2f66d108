//! One handle's view of the log: which segments it has mapped, and how it grows.
//!
//! A writer reserves only below the end that is allocated *and* mapped by its own handle, so a reserved place
//! can always be written. The protocol of a place is in [`super::place`].

use super::place;
use super::record::Record;
use super::segment::{Segment, SegmentHeader};
use crate::error::Result;
use crate::media::Media;
use crate::sync::{AtomicU64, Ordering};
use parking_lot::Mutex;
use std::sync::Arc;

/// One handle's view of the log of the current era.
#[derive(Debug)]
pub struct Log {
    media: Arc<dyn Media>,
    uuid: u128,
    era: u64,
    era_start: u64,
    capacity: u64,
    /// Ascending and without gaps.
    segments: Mutex<Vec<Arc<Segment>>>,
    /// Orders those who grow the log: writers that only look up a segment do not wait for their syncs.
    growing: Mutex<()>,
    /// The end of what this handle has mapped.
    mapped: AtomicU64,
    temporary: AtomicU64,
}

impl Log {
    /// The log of an era that has just begun with this, its first segment. Later segments hold `capacity`
    /// records; `temporary` is a number for names of files in the making that no one else uses.
    #[must_use]
    pub fn new(media: Arc<dyn Media>, first: Segment, capacity: u64, temporary: u64) -> Self {
        let header = *first.header();
        Self {
            media,
            uuid: header.uuid,
            era: header.era,
            era_start: header.era_start,
            capacity,
            mapped: AtomicU64::new(first.end()),
            segments: Mutex::new(vec![Arc::new(first)]),
            growing: Mutex::new(()),
            temporary: AtomicU64::new(temporary),
        }
    }

    /// The end of what this handle may reserve.
    #[must_use]
    #[inline]
    pub fn mapped_end(&self) -> u64 {
        // Acquire: pairs with the Release in `grow`; the segment is in the list then.
        self.mapped.load(Ordering::Acquire)
    }

    /// The segment of an LSN below [`Log::mapped_end`] that has not been let go.
    #[must_use]
    pub fn segment(&self, lsn: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.lock();
        segments.iter().rev().find(|segment| segment.holds(lsn)).cloned()
    }

    /// All segments with records at or after `lsn`, ascending.
    #[must_use]
    pub fn segments_from(&self, lsn: u64) -> Vec<Arc<Segment>> {
        self.segments.lock().iter().filter(|segment| segment.end() > lsn).cloned().collect()
    }

    /// Makes sure that there is room beyond `end`: allocates and syncs the next segment, unless another
    /// thread just did. Returns the new end.
    ///
    /// # Errors
    /// [`crate::Error::Io`], a full disk among them: nothing has changed then.
    pub fn grow(&self, end: u64) -> Result<u64> {
        let _growing = self.growing.lock();
        let mapped = self.mapped.load(Ordering::Relaxed);
        if mapped > end {
            return Ok(mapped);
        }
        let header = SegmentHeader {
            uuid: self.uuid,
            era: self.era,
            era_start: self.era_start,
            first: mapped,
            capacity: self.capacity,
        };
        let segment = Segment::create(&*self.media, header, self.next_temporary())?;
        let new_end = segment.end();
        self.segments.lock().push(Arc::new(segment));
        // Release: pairs with the Acquire in `mapped_end`.
        self.mapped.store(new_end, Ordering::Release);
        Ok(new_end)
    }

    /// A number for a temporary file's name, unique in this handle.
    pub fn next_temporary(&self) -> u64 {
        self.temporary.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets go of segments that lie wholly below `lsn`. Writers that still hold one keep it mapped.
    pub fn forget_below(&self, lsn: u64) {
        self.segments.lock().retain(|segment| segment.end() > lsn);
    }

    /// Writes a record into its place in `segment`; see [`place::publish`].
    #[inline]
    pub fn write(&self, segment: &Segment, lsn: u64, record: &Record) -> bool {
        place::publish(segment.slot(lsn), record.encode(self.era, lsn))
    }
}
