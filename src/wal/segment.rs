//! A log segment: a mapped file of records under a checked header.
//!
//! A segment is written under a temporary name, synced, and renamed, and its directory is synced,
//! before it may receive the first record. A file with a segment's name and an invalid header is
//! therefore damage, never a leftover. Its records become durable by `sync`.

use crate::error::{Error, Result};
use crate::format::header::{self, DURABLE, HEADER_BYTES, Header, PAGE_BYTES, PAGE_WORDS};
use crate::format::names::FileName;
use crate::media::{Access, Mapped, Media, MediaFile};
use crate::primitives::AtomicU64;
use crate::wal::log_record::{Decoded, RECORD_BYTES, RECORD_WORDS, Record, void_word};
use crate::wal::slot;
use crate::wal::synced_mapping::SyncedMapping;
use ebbtide_core::block::{load, store};
use std::ops::Range;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"EBBTWAL\n";
const REMEDY: &str =
    "run `ebbtide verify`; restore a backup, or save what can still be read with `ebbtide salvage`";

/// The maximum number of records of a segment; keeps every size far from overflow.
pub const CAPACITY_MAX: u64 = 1 << 32;

/// The upper bound of LSNs: unreachable, and far from overflow.
pub const LSN_MAX: u64 = 1 << 62;

/// Returns whether a snapshot or segment belongs to a log other than that with this uuid: of
/// another filter, or of this one before an alteration. False if it cannot be read.
#[must_use]
pub fn is_of_another(media: &dyn Media, name: &str, uuid: u128) -> bool {
    owner(media, name).is_some_and(|owner| owner != uuid)
}

/// Returns which log a segment or a snapshot belongs to, if its header is sound.
#[must_use]
pub fn owner(media: &dyn Media, name: &str) -> Option<u128> {
    let mut start = [0; HEADER_BYTES];
    let read = media.open(name, Access::Read).and_then(|file| file.read_at(&mut start, 0));
    read.ok().and_then(|()| header::owner(&start))
}

/// Returns the content of a segment's header, if its checksum is right.
#[must_use]
pub fn sound_header(bytes: &[u8; HEADER_BYTES]) -> Option<SegmentHeader> {
    let decoded = Header::decode(bytes, MAGIC, DURABLE, Path::new(""), REMEDY);
    decoded.ok().map(SegmentHeader::from_words)
}

/// The content of a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log it belongs to: [`Meta::log_uuid`](crate::meta::Meta::log_uuid).
    pub uuid: u128,
    /// The timeline of its records.
    pub timeline: u64,
    /// The LSN at which that timeline began.
    pub timeline_start: u64,
    /// The LSN of its first record.
    pub first: u64,
    /// The number of records it has room for.
    pub capacity: u64,
}

impl SegmentHeader {
    fn words(&self) -> Header<6> {
        let words = [
            self.uuid as u64,
            (self.uuid >> 64) as u64,
            self.timeline,
            self.timeline_start,
            self.first,
            self.capacity,
        ];
        Header { version: DURABLE.written, words }
    }

    fn from_words(header: Header<6>) -> Self {
        let [low, high, timeline, timeline_start, first, capacity] = header.words;
        let uuid = u128::from(high) << 64 | u128::from(low);
        Self { uuid, timeline, timeline_start, first, capacity }
    }

    fn name(&self) -> FileName {
        FileName::Segment { timeline: self.timeline, first: self.first }
    }

    /// Returns the bytes of the whole file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        PAGE_BYTES + self.capacity * RECORD_BYTES
    }

    /// Returns the LSN after its last record.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.capacity
    }

    /// Returns whether the record of this LSN belongs here.
    #[must_use]
    #[inline]
    pub fn holds(&self, lsn: u64) -> bool {
        lsn.wrapping_sub(self.first) < self.capacity
    }

    /// Returns the offset of a record in the file.
    #[must_use]
    pub fn offset(&self, lsn: u64) -> u64 {
        PAGE_BYTES + (lsn - self.first) * RECORD_BYTES
    }

    /// Returns the path of the file, for messages.
    #[must_use]
    pub fn path(&self, directory: &Path) -> PathBuf {
        directory.join(self.name().to_string())
    }
}

/// A segment's file with a sound header: gives access to a segment without mapping it.
#[derive(Debug)]
pub struct SegmentFile {
    /// The file's header.
    pub header: SegmentHeader,
    /// The version of the file's format.
    pub version: u32,
    file: Box<dyn MediaFile>,
    path: PathBuf,
}

impl SegmentFile {
    /// Opens a segment: first reads the header, then checks all its content against the file and
    /// its name.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Version`], [`Error::Damaged`].
    pub fn open(
        media: &dyn Media,
        timeline: u64,
        first: u64,
        uuid: u128,
        access: Access,
    ) -> Result<Self> {
        let name = FileName::Segment { timeline, first }.to_string();
        let path = media.path().join(&name);
        let file = media.open(&name, access).map_err(Error::io("open", &path))?;
        let bytes = file.bytes().map_err(Error::io("measure", &path))?;
        let mut start = vec![0; HEADER_BYTES.min(usize::try_from(bytes).unwrap_or(usize::MAX))];
        file.read_at(&mut start, 0).map_err(Error::io("read", &path))?;
        let words = Header::decode(&start, MAGIC, DURABLE, &path, REMEDY)?;
        let (version, header) = (words.version, SegmentHeader::from_words(words));
        let damaged = |offset: u64, expected: String, found: String| {
            Err(Error::Damaged { path: path.clone(), offset, expected, found, remedy: REMEDY })
        };
        if header.uuid != uuid {
            return damaged(
                16,
                format!("a segment of log {uuid:032x}"),
                format!("one of {:032x}", header.uuid),
            );
        }
        if (header.timeline, header.first) != (timeline, first) {
            return damaged(
                32,
                format!("timeline {timeline}, first LSN {first}, as its name says"),
                format!("timeline {}, first LSN {}", header.timeline, header.first),
            );
        }
        if header.first.min(header.timeline_start) == 0 {
            let found = format!("from {}, {} first", header.timeline_start, header.first);
            let offset = if header.first == 0 { 48 } else { 40 };
            return damaged(offset, "LSNs of a timeline, from 1 on".to_owned(), found);
        }
        let sound = header.capacity > 0
            && header.capacity <= CAPACITY_MAX
            && header.timeline_start <= header.first
            && header.first <= LSN_MAX;
        if !sound || header.bytes() != bytes {
            let expected = format!("{} records", header.capacity);
            return damaged(56, expected, format!("a file of {bytes} bytes"));
        }
        Ok(Self { header, version, file, path })
    }

    /// Returns the bytes of disk that it occupies.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn allocated_bytes(&self) -> Result<u64> {
        self.file.allocated_bytes().map_err(Error::io("measure", &self.path))
    }

    /// Returns an LSN, not below `lsn`, from which on no slot was ever written: by what the system
    /// knows of the file, so without reading it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn written_end(&self, lsn: u64) -> Result<u64> {
        let from = lsn.clamp(self.header.first, self.header.end());
        let end = self.file.data_end(self.header.offset(from));
        let end = end.map_err(Error::io("measure", &self.path))?;
        let slots = end.saturating_sub(PAGE_BYTES).div_ceil(RECORD_BYTES);
        Ok((self.header.first + slots).clamp(from, self.header.end()))
    }

    /// Returns whether nothing was ever written to a slot. A segment that has records shows that by
    /// its first ones.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_empty(&self) -> Result<bool> {
        let (mut piece, mut at) = ([0; PAGE_BYTES as usize], PAGE_BYTES);
        let end = self.header.offset(self.written_end(self.header.first)?);
        while at < end {
            let bytes = (end - at).min(PAGE_BYTES);
            let piece = &mut piece[..bytes as usize];
            self.file.read_at(piece, at).map_err(Error::io("read", &self.path))?;
            if piece.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at += bytes;
        }
        Ok(true)
    }

    /// Frees the space of the slots from `lsn` on, which no process writes or has mapped for
    /// writing; they then read as empty, or as before. Does nothing if the system has no such call.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn free_from(&self, lsn: u64) -> Result<()> {
        let from = self.header.offset(lsn.clamp(self.header.first, self.header.end()));
        // Usually an earlier opener has freed it.
        if self.allocated_bytes()? <= from {
            return Ok(());
        }
        let freed = self.file.free(from..self.header.bytes());
        freed.map_err(Error::io("free the rest of", &self.path))
    }

    /// Allocates space for the slots from `from` up to `upto`; what is written there stays.
    ///
    /// # Errors
    /// [`Error::Io`], including a full disk: then nothing has changed.
    pub fn allocate(&self, from: u64, upto: u64) -> Result<()> {
        let bytes = self.header.offset(from)..self.header.offset(upto);
        self.file.allocate(bytes).map_err(Error::io("allocate more of", &self.path))
    }

    /// Maps the segment. Reading one that is mapped for reading never allocates disk space. On some
    /// media such a mapping is a copy of the present records.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn map(self, access: Access) -> Result<Segment> {
        let mapping = match access {
            Access::Read => self.file.map_for_reading(),
            Access::Write => self.file.map(access),
        };
        let mapping = mapping.map_err(Error::io("map", &self.path))?;
        let is_whole = self.allocated_bytes()? >= self.header.bytes();
        Ok(Segment::over(self.header, self.file, Mapped::new(mapping), is_whole))
    }
}

/// A mapped segment.
#[derive(Debug)]
pub struct Segment {
    header: SegmentHeader,
    mapping: SyncedMapping,
}

impl Segment {
    fn over(
        header: SegmentHeader,
        file: Box<dyn MediaFile>,
        mapping: Mapped,
        is_whole: bool,
    ) -> Self {
        if !is_whole {
            // Without this, a store could allocate disk space for the hole around its page, too.
            mapping.advise_random();
        }
        Self { header, mapping: SyncedMapping::new(file, mapping) }
    }

    /// Creates a segment with space for all its slots and makes it durable, including its name.
    ///
    /// # Errors
    /// [`Error::Io`], `AlreadyExists` if there is one of this name; at most a temporary file is
    /// left behind.
    pub fn create(media: &dyn Media, header: SegmentHeader, temporary: u64) -> Result<Self> {
        let segment = Self::create_if(media, header, header.capacity, temporary, &|| true)?;
        media.sync().map_err(Error::io("sync", media.path()))?;
        Ok(segment)
    }

    /// As [`Segment::create`], but only this many slots have space, the segment gets its name only
    /// if the directory is still the filter's just before, and the caller syncs the directory.
    ///
    /// # Errors
    /// As [`Segment::create`]; [`Error::Io`], `NotFound`, if the directory has been replaced.
    pub fn create_if(
        media: &dyn Media,
        header: SegmentHeader,
        places: u64,
        temporary: u64,
        is_current: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let (name, temporary) =
            (header.name().to_string(), FileName::Temporary(temporary).to_string());
        let path = media.path().join(&name);
        let allocated = PAGE_BYTES + places * RECORD_BYTES;
        let file = media.create_with_hole(&temporary, header.bytes(), allocated);
        let file = file.map_err(Error::io("allocate", &path))?;
        let made = Self::fill(&*file, &header)
            .and_then(|mapping| {
                mapping.write_back(mapping.words().len())?;
                file.sync()?;
                if !is_current() {
                    return Err(std::io::ErrorKind::NotFound.into());
                }
                media.rename_new(&temporary, &name)?;
                Ok(mapping)
            })
            .map_err(Error::io("create", &path));
        match made {
            Ok(mapping) => Ok(Self::over(header, file, mapping, places == header.capacity)),
            Err(error) => {
                // The first error is the one to report; the next opening removes a leftover.
                let _ = media.remove(&temporary);
                Err(error)
            }
        }
    }

    fn fill(file: &dyn MediaFile, header: &SegmentHeader) -> std::io::Result<Mapped> {
        let mapping = Mapped::new(file.map(Access::Write)?);
        for (at, word) in header.words().encode(MAGIC).into_iter().enumerate() {
            store(&mapping.words()[at], word);
        }
        Ok(mapping)
    }

    /// Opens and maps a segment; see [`SegmentFile::open`].
    ///
    /// # Errors
    /// As [`SegmentFile::open`].
    pub fn open(
        media: &dyn Media,
        timeline: u64,
        first: u64,
        uuid: u128,
        access: Access,
    ) -> Result<Self> {
        SegmentFile::open(media, timeline, first, uuid, access)?.map(access)
    }

    /// Returns the segment's header.
    #[must_use]
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Returns the LSN of its first record.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.header.first
    }

    /// Returns the LSN after its last record.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.header.end()
    }

    /// Returns whether the record of this LSN belongs here.
    #[must_use]
    #[inline]
    pub fn holds(&self, lsn: u64) -> bool {
        self.header.holds(lsn)
    }

    /// Returns the four words of a record's slot, which must be here.
    #[must_use]
    #[inline]
    pub fn slot(&self, lsn: u64) -> &[AtomicU64] {
        let at = PAGE_WORDS + (lsn - self.header.first) as usize * RECORD_WORDS;
        &self.mapping.words()[at..at + RECORD_WORDS]
    }

    /// Writes a record into its slot; see [`slot::publish`].
    #[inline]
    pub fn write(&self, lsn: u64, record: &Record) -> bool {
        slot::publish(self.slot(lsn), record.encode(self.header.timeline, lsn))
    }

    /// Reads the record of a slot.
    #[must_use]
    pub fn read(&self, lsn: u64) -> Decoded {
        Record::decode(slot::words(self.slot(lsn)), self.header.timeline, lsn)
    }

    /// Turns a slot that is still empty into a VOID.
    pub fn void(&self, lsn: u64) {
        slot::void(self.slot(lsn), void_word(self.header.timeline, lsn));
    }

    /// Returns whether a slot's record is published, or the slot voided.
    #[must_use]
    pub fn is_complete(&self, lsn: u64) -> bool {
        slot::last_word(self.slot(lsn)) != 0
    }

    /// Returns whether anything was ever written to a slot.
    #[must_use]
    pub fn is_touched(&self, lsn: u64) -> bool {
        self.slot(lsn).iter().any(|word| load(word) != 0)
    }

    /// Makes the records written so far durable.
    ///
    /// # Errors
    /// The system's error, unchanged: the caller poisons the filter.
    pub fn sync(&self) -> std::io::Result<()> {
        self.sync_to(self.end())
    }

    /// As [`Segment::sync`], of the records below `upto`. Pages after them, which may have been
    /// made present for coming records, are not written.
    ///
    /// # Errors
    /// As [`Segment::sync`].
    pub fn sync_to(&self, upto: u64) -> std::io::Result<()> {
        // From the header on.
        self.mapping.sync(self.words_of(self.first(), upto).end)
    }

    /// Checks that the system could write back all stores since the segment was opened here. After
    /// a failure every sync fails, too.
    ///
    /// # Errors
    /// The system's error, of a write-back.
    pub fn check_written(&self) -> std::io::Result<()> {
        self.mapping.check_written()
    }

    /// Returns whether it has been synced since it was opened here. If not, a sync of another
    /// process may have failed before, which the system does not report.
    #[must_use]
    pub fn was_synced(&self) -> bool {
        self.mapping.was_synced()
    }

    /// Stores to one word of the header and of each page with records from `from` up to `upto`
    /// without changing it, so that the next sync writes the pages even if an earlier, failed one
    /// marked them clean.
    pub fn dirty(&self, from: u64, upto: u64) {
        self.mapping.dirty(self.words_of(from, upto));
    }

    /// Returns the range of the records from `from` up to `upto` that are here, in words of the
    /// file.
    fn words_of(&self, from: u64, upto: u64) -> Range<usize> {
        let word = |lsn: u64| {
            let index = lsn.clamp(self.first(), self.end()) - self.first();
            PAGE_WORDS + index as usize * RECORD_WORDS
        };
        word(from)..word(upto)
    }

    /// Releases the pages from the one that contains `from` to `upto`. All records below `upto`
    /// must be complete.
    pub fn release(&self, from: u64, upto: u64) {
        let Range { start, end } = self.words_of(from, upto);
        self.mapping.mapping().release(start / PAGE_WORDS * PAGE_WORDS..end);
    }

    /// Makes the pages of records from `from` up to `upto` present ahead of the writers.
    pub fn populate(&self, from: u64, upto: u64) {
        self.mapping.mapping().populate(self.words_of(from, upto));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
