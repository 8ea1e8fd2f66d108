//! One handle's view of the log: which segments it has mapped.
//!
//! Segments of an era have one size, so an LSN tells the name of its segment. A writer reserves only below the end that is
//! allocated *and* mapped by its own handle, so a reserved place can always be written. Other handles allocate segments
//! too, and remove them: a handle maps what it needs, from the durable end on, and lets go of the rest. The protocol
//! of a place is in [`super::place`].

use super::place;
use super::record::Record;
use super::segment::{Segment, SegmentHeader};
use crate::error::{Error, Result};
use crate::media::{Access, Media};
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One handle's view of the log of the current era.
#[derive(Debug)]
pub struct Log {
    media: Arc<dyn Media>,
    /// What the era's first segment says.
    first: SegmentHeader,
    access: Access,
    /// By first LSN.
    segments: Mutex<BTreeMap<u64, Arc<Segment>>>,
    /// The end of what this handle has mapped.
    mapped: AtomicU64,
    drafts: AtomicU64,
}

impl Log {
    /// The log of an era whose first segment is `first`; nothing is mapped yet. Drafts are numbered from `draft` on, which
    /// no other handle does.
    #[must_use]
    pub fn new(media: Arc<dyn Media>, first: SegmentHeader, draft: u64, access: Access) -> Self {
        Self {
            media,
            first,
            access,
            segments: Mutex::default(),
            mapped: AtomicU64::new(first.first),
            drafts: AtomicU64::new(draft),
        }
    }

    /// The header of the segment that an LSN of the era lies in.
    fn header_of(&self, lsn: u64) -> SegmentHeader {
        let whole = lsn.saturating_sub(self.first.first) / self.first.capacity;
        let first = self.first.first + whole * self.first.capacity;
        SegmentHeader { first, ..self.first }
    }

    /// The end of what this handle may reserve.
    #[must_use]
    #[inline]
    pub fn mapped_end(&self) -> u64 {
        // Acquire: pairs with the Release in `map`; the segments are in the list then.
        self.mapped.load(Ordering::Acquire)
    }

    /// The segment of an LSN, if it is mapped.
    #[must_use]
    pub fn segment(&self, lsn: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.lock();
        let (_, segment) = segments.range(..=lsn).next_back()?;
        segment.holds(lsn).then(|| segment.clone())
    }

    /// Maps all segments from the one of `from` up to `end`, which is allocated, and returns them: whatever is let go meanwhile,
    /// they hold every place in between. A segment that is not there any more was removed, as it lay below a snapshot.
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
                    let (era, uuid) = (self.first.era, self.first.uuid);
                    self.add(Segment::open(&*self.media, era, at, uuid, self.access)?)
                }
            });
            at += self.first.capacity;
        }
        // Release: pairs with the Acquire in `mapped_end`.
        self.mapped.fetch_max(end, Ordering::Release);
        Ok(mapped)
    }

    fn add(&self, segment: Segment) -> Arc<Segment> {
        // Two threads may have opened the same one; either will do.
        self.segments.lock().entry(segment.first()).or_insert_with(|| Arc::new(segment)).clone()
    }

    /// Allocates the segment that begins at `first`, durable with its name, and maps it; returns its end. If another handle
    /// has just made it, that one is made durable again: its maker may not have come so far.
    ///
    /// # Errors
    /// [`Error::Io`], a full disk among them: nothing has changed then.
    pub fn allocate(&self, first: u64) -> Result<u64> {
        let header = self.header_of(first);
        let segment = match Segment::create(&*self.media, header, self.next_draft()) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                let (era, uuid) = (header.era, header.uuid);
                let found = Segment::open(&*self.media, era, header.first, uuid, self.access)?;
                found.dirty(first, first);
                let synced = found.sync().and_then(|()| self.media.sync());
                synced.map_err(Error::io("sync", self.media.path()))?;
                found
            }
            made => made?,
        };
        Ok(self.add(segment).end())
    }

    /// A number for a temporary file's name, unique among all living handles.
    pub fn next_draft(&self) -> u64 {
        self.drafts.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets go of segments that lie wholly below `lsn`; false if there are none. Whoever still holds one keeps it mapped.
    pub fn forget_below(&self, lsn: u64) -> bool {
        let mut segments = self.segments.lock();
        let before = segments.len();
        segments.retain(|_, segment| segment.end() > lsn);
        segments.len() < before
    }

    /// Writes a record into its place in `segment`; see [`place::publish`].
    #[inline]
    pub fn write(&self, segment: &Segment, lsn: u64, record: &Record) -> bool {
        place::publish(segment.slot(lsn), record.encode(self.first.era, lsn))
    }
}
