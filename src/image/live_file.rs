//! The file `live`: header, counters, session table, stripe table and the state block.
//!
//! | words | content |
//! |---|---|
//! | 0-15 | checked header: magic, version, [`Identity`] (8); checksum in word 15 |
//! | 16 | the tail, which every insert moves |
//! | 24-30 | durable end, status, refused, allocated end, last note, unheld slots, events' start |
//! | 31 | the start of the timeline |
//! | 32-39 | snapshots: newest, damaged ones; the time base; whether writers wait |
//! | 40, 48 | single-flight gates: syncing, growing the log |
//! | 49, 50 | the clock offset; slots in a segment of the timeline |
//! | 56 | the latest time |
//! | 64-68 | the head of the sharded counters |
//! | 72-76 | the file without a name that contains the banks |
//! | 80-85 | the head of the claims |
//! | 88-90 | the time base of leases |
//! | 128-255 | session table: the incarnation of each slot |
//! | 256- | stripes, 8 words each; stripe 0 guards the state block |
//! | after the stripes | the state block, in two copies |
//! | after the state block | the shards of the counters |
//! | after the shards | the positions of sources: late, because few filters use them |
//! | in the next page | who has the file of the banks open: a word for each session slot |
//! | after the holders | the table of claims; the file ends before it until the first claim |

use crate::error::{Error, Result};
use crate::format::header::{HEADER_BYTES, HEADER_WORDS};
use crate::format::names::FileName;
use crate::image::bank_file_holders::{FILE_WORDS, Holders};
use crate::image::claims::{self, Claims};
use crate::image::counters::{Counters, HEAD_WORDS};
use crate::image::identity::none_if_unfit;
use crate::image::identity::{Identity, REMEDY, SLOTS, SLOTS_WORDS, STRIPES};
use crate::image::positions::Positions;
use crate::image::state_block::StateBlock;
use crate::image::stripe_table::{STRIPE_WORDS, Stripe};
use crate::image::words::{
    CheckpointRequest, DamagedSnapshots, EventsFrom, ImageTime, Incarnation, LastNote, LatestTime,
    Refused, Status, UnheldSlots,
};
use crate::media::{Access, MappedHead, Media, MediaFile};
use crate::primitives::{AtomicU64, Watermark};
use crate::wal::mapped_log::PAGE_RECORDS;
use crate::wal::segment::{CAPACITY_MAX, LSN_MAX};
use crate::wal::slot::Tail;
use ebbtide_core::block::{load, store};
use ebbtide_core::kind::State;
use std::path::Path;

const TAIL: usize = 16;
const DURABLE: usize = 24;
pub(super) const STATUS: usize = 25;
const REFUSED: usize = 26;
const ALLOCATED: usize = 27;
const NOTED: usize = 28;
const NOTING: usize = 29;
const EVENTS_FROM: usize = 30;
const TIMELINE_START: usize = 31;
const SNAPSHOT: usize = 32;
const UNSOUND: usize = 33;
const TIME_BASE: usize = 36;
const WANTED: usize = 39;
const SYNCING: usize = 40;
const GROWING: usize = 48;
pub(crate) const CLOCK_OFFSET: usize = 49;
const SEGMENT_RECORDS: usize = 50;
const TIME: usize = 56;
const COUNTERS: usize = 64;
const FILE: usize = 72;
const CLAIMS: usize = 80;
const LEASE_BASE: usize = 88;

/// The maximum number of damaged snapshots that an image can list.
pub const UNSOUND_MAX: usize = 3;

const _: () = assert!(UNSOUND + UNSOUND_MAX <= TIME_BASE && TIME_BASE + 3 <= WANTED);
const _: () = assert!(HEADER_WORDS <= TAIL, "counters lie behind the checked header");
const _: () = assert!((CLOCK_OFFSET + 1) * 8 <= 512, "header, base and offset: one sector");
const _: () = assert!(COUNTERS + HEAD_WORDS <= FILE && FILE + FILE_WORDS <= CLAIMS);
const _: () = assert!(CLAIMS + claims::HEAD_WORDS <= LEASE_BASE && LEASE_BASE + 3 <= SLOTS);
const _: () = assert!(STRIPES.is_multiple_of(STRIPE_WORDS));

/// The bytes at the start of the file that [`has_log`] needs.
pub(super) const LOG_ENDS_BYTES: usize = (TIMELINE_START + 1) * 8;

const _: () = assert!(ALLOCATED < TIMELINE_START && LOG_ENDS_BYTES <= 512, "within one sector");

/// Returns whether a segment was allocated for the timeline of an image that starts with these
/// [bytes](LOG_ENDS_BYTES).
pub(super) fn has_log(start: &[u8]) -> bool {
    let word = |at: usize| start.get(at * 8..).and_then(|bytes| bytes.first_chunk::<8>());
    let word = |at| word(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    // Without a start, a power cut has left a part of what the creator of the image wrote.
    let start = word(TIMELINE_START);
    start > 0 && word(ALLOCATED) > start
}

/// Returns the boot id of the machine; 0 if the system has none.
///
/// # Errors
/// [`Error::Io`] if it cannot be determined now.
pub fn boot_id(media: &dyn Media) -> Result<u128> {
    use std::io::ErrorKind::{InvalidData, NotADirectory, NotFound, PermissionDenied};
    match media.boot_id() {
        Err(error)
            if matches!(
                error.kind(),
                NotFound | NotADirectory | PermissionDenied | InvalidData
            ) =>
        {
            Ok(0)
        }
        read => read.map_err(Error::io("read the boot id for", media.path())),
    }
}

/// The mapped file `live`.
#[derive(Debug)]
pub struct Control {
    pub(crate) identity: Identity,
    /// The ranges of the state block and of the shards, in words.
    state_block: (usize, usize),
    shards: (usize, usize),
    /// The words before the stripes lie where they do in every image.
    mapping: MappedHead<STRIPES>,
    /// Kept open by readers.
    file: Option<Box<dyn MediaFile>>,
}

impl Control {
    /// Creates the image's file under a temporary name, all zero except its identity, without space
    /// for what few filters use ([`rare_space`](crate::image::rare_space)).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(media: &dyn Media, temporary: &str, mut identity: Identity) -> Result<Self> {
        let path = media.path().join(FileName::Live.to_string());
        let lengths = (identity.room_for_claims().start, identity.bytes());
        let allocated = identity.room_for_positions().start;
        let file = media.create_to_grow(temporary, lengths, allocated);
        let file = file.map_err(Error::io("allocate", &path))?;
        identity.inode = file.identity().map_err(Error::io("examine", &path))?;
        identity.device = file.device().map_err(Error::io("examine", &path))?;
        let header = Self::over(media, identity, &*file, Access::Write)?;
        for (at, word) in identity.encode().enumerate() {
            store(header.word(at), word);
        }
        Ok(header)
    }

    /// Opens the image that other handles use. The caller knows a live handle, or holds the opening
    /// byte. The boot id is not compared: byte locks of the file `lock` exist only in the present
    /// boot.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`] if it is not the image of this filter, in its own file.
    pub fn attach(media: &dyn Media, uuid: u128, access: Access) -> Result<Self> {
        let (identity, file, _) = Self::examine(media, uuid, access)?;
        let image = Self::over(media, identity, &*file, access)?;
        Ok(Self { file: (access == Access::Read).then_some(file), ..image })
    }

    /// As [`Control::attach`]; `None` if there is no valid image of this filter.
    ///
    /// # Errors
    /// [`Error::Io`] if that cannot be determined.
    pub fn find(media: &dyn Media, uuid: u128, access: Access) -> Result<Option<Self>> {
        Self::attach(media, uuid, access).map_or_else(none_if_unfit, |image| Ok(Some(image)))
    }

    pub(super) fn over(
        media: &dyn Media,
        identity: Identity,
        file: &dyn MediaFile,
        access: Access,
    ) -> Result<Self> {
        let path = || media.path().join(FileName::Live.to_string());
        let mapped = file.map_to_grow(access, identity.bytes());
        let mapping = mapped.map_err(|error| Error::io("map", path())(error))?;
        let length = mapping.words().len() as u64 * 8;
        let (state_block, shards) = (identity.state_block(), identity.shards());
        let control = MappedHead::new(mapping).map(|mapping| Self {
            identity,
            state_block,
            shards,
            mapping,
            file: None,
        });
        // Before the file is measured: whoever lengthens it does so before it notes the space.
        let expected = control.as_ref().map_or(identity.bytes(), Self::bytes);
        let bytes = file.bytes().map_err(|error| Error::io("measure", path())(error))?;
        match control {
            Some(control) if bytes >= expected => Ok(control),
            _ => {
                let (expected, found) =
                    (format!("{expected} bytes"), format!("{} bytes", bytes.min(length)));
                let (path, offset) = (path(), bytes.min(length));
                Err(Error::Damaged { path, offset, expected, found, remedy: REMEDY })
            }
        }
    }

    /// Opens the image's file, if it is this filter's and not a copy; also returns its present
    /// device.
    pub(super) fn examine(
        media: &dyn Media,
        uuid: u128,
        access: Access,
    ) -> Result<(Identity, Box<dyn MediaFile>, u64)> {
        let path = media.path().join(FileName::Live.to_string());
        let name = FileName::Live.to_string();
        let file = media.open(&name, access).map_err(Error::io("open", &path))?;
        let mut start = vec![0; HEADER_BYTES];
        file.read_at(&mut start, 0).map_err(Error::io("read", &path))?;
        let identity = Identity::decode(&start, &path)?;
        let bytes = file.bytes().map_err(Error::io("measure", &path))?;
        // Any length between is valid while the first claim grows the file.
        let expected_bytes = bytes.clamp(identity.room_for_claims().start, identity.bytes());
        let inode = file.identity().map_err(Error::io("examine", &path))?;
        let device = file.device().map_err(Error::io("examine", &path))?;
        let is_ours = (identity.uuid, identity.inode) == (uuid, inode);
        if !is_ours || bytes != expected_bytes {
            let text =
                |uuid, inode, bytes| format!("filter {uuid:032x}, inode {inode}, {bytes} bytes");
            let expected = text(uuid, inode, expected_bytes);
            let found = text(identity.uuid, identity.inode, bytes);
            return Err(Error::Damaged { path, offset: 16, expected, found, remedy: REMEDY });
        }
        Ok((identity, file, device))
    }

    /// Checks that the ends of the log are consistent with one another, with the size of segments
    /// and with the stripes: the image has no checksums, and writes must not follow an invalid end.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn check(&self, directory: &Path) -> Result<()> {
        // Smaller values are read first: `counted`, `snapshot` and `durable` before the tail, the
        // tail before the allocated end, all with Acquire. A value read later can only have grown.
        // The timeline's start and the size of its segments never change. Without a record it may
        // have no segment.
        let counted = (0..self.stripe_count()).map(|at| self.stripe(at).lsn()).max().unwrap_or(0);
        let snapshot = self.snapshot().read();
        let (start, capacity) = (self.timeline_start(), self.segment_records());
        let (durable, tail) = (self.durable().read(), self.tail().read());
        let allocated = self.allocated().read();
        let sound = (1..=CAPACITY_MAX).contains(&capacity)
            && start <= durable
            && durable <= tail
            && tail <= allocated
            && allocated <= LSN_MAX
            && ((allocated - start) % capacity).is_multiple_of(PAGE_RECORDS)
            && counted < tail
            && snapshot <= tail;
        if sound {
            return Ok(());
        }
        let found = format!(
            "start {start}, durable {durable}, tail {tail}, allocated {allocated}, counted \
             {counted}, snapshot {snapshot}, segments of {capacity}"
        );
        let expected = "start <= durable <= tail <= allocated, whole pages allocated, and counted \
                        and snapshot within the tail";
        Err(self.damaged(directory, expected.to_owned(), found))
    }

    /// Creates the error for an image that cannot be right.
    #[must_use]
    pub fn damaged(&self, directory: &Path, expected: String, found: String) -> Error {
        let (path, offset) = (directory.join(FileName::Live.to_string()), HEADER_BYTES as u64);
        Error::Damaged { path, offset, expected, found, remedy: REMEDY }
    }

    /// Returns the identity of the image.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        &self.mapping.head()[at]
    }

    /// Returns the next LSN to reserve.
    #[must_use]
    #[inline]
    pub fn tail(&self) -> Tail<'_> {
        Tail::new(self.word(TAIL))
    }

    /// Returns the sharded counters: a cache of the stripes' sums, for steps.
    #[must_use]
    #[inline]
    pub fn counters(&self) -> Counters<'_> {
        let head = &self.mapping.head()[COUNTERS..];
        Counters::new(head, self.mapping.words(), self.shards)
    }

    /// Returns the word by which a checkpoint is requested; writers wait while it is set.
    #[must_use]
    #[inline]
    pub fn checkpoint_request(&self) -> CheckpointRequest<'_> {
        CheckpointRequest(self.word(WANTED))
    }

    /// Returns the cache of the latest time, for kinds with time.
    #[must_use]
    #[inline]
    pub fn time(&self) -> LatestTime<'_> {
        LatestTime(self.word(TIME))
    }

    /// Returns the durable end: every LSN below is durable.
    #[must_use]
    #[inline]
    pub fn durable(&self) -> Watermark<'_> {
        Watermark::new(self.word(DURABLE))
    }

    /// Returns the word that counts the inserts refused as too late since the image was made.
    #[must_use]
    #[inline]
    pub fn refused(&self) -> Refused<'_> {
        Refused(self.word(REFUSED))
    }

    /// Returns what happened to the image.
    #[must_use]
    #[inline]
    pub fn status(&self) -> Status<'_> {
        Status::new(self.word(STATUS))
    }

    /// See [`Status::is_poisoned`].
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.status().is_poisoned()
    }

    /// See [`Status::is_distrusted`].
    #[must_use]
    #[inline]
    pub fn is_distrusted(&self) -> bool {
        self.status().is_distrusted()
    }

    /// Returns the file, if it is kept open.
    pub(super) fn file(&self) -> Option<&dyn MediaFile> {
        self.file.as_deref()
    }

    /// See [`crate::media::Mapping::check_written`].
    pub(super) fn check_mapped(&self) -> std::io::Result<()> {
        self.mapping.check_written()
    }

    /// See [`Status::retire`].
    pub fn retire(&self) {
        self.status().retire();
    }

    /// See [`Status::is_altered`].
    #[must_use]
    #[inline]
    pub fn is_altered(&self) -> bool {
        self.status().is_altered()
    }

    /// See [`Status::is_retired`].
    #[must_use]
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.status().is_retired()
    }

    /// See [`Status::refuses`].
    #[must_use]
    #[inline]
    pub fn refuses(&self) -> bool {
        self.status().refuses()
    }

    /// Returns the allocated end of the log: records below may be written.
    #[must_use]
    #[inline]
    pub fn allocated(&self) -> Watermark<'_> {
        Watermark::new(self.word(ALLOCATED))
    }

    /// Returns the LSN at which the timeline began. Relaxed: the word never changes.
    #[must_use]
    pub fn timeline_start(&self) -> u64 {
        load(self.word(TIMELINE_START))
    }

    /// Returns the number of slots in a segment of the timeline.
    #[must_use]
    pub fn segment_records(&self) -> u64 {
        load(self.word(SEGMENT_RECORDS))
    }

    /// Sets where the timeline begins, and the slots of its segments, for a caller with
    /// exclusive access to the image.
    pub fn begin_timeline(&self, start: u64, segment_records: u64) {
        store(self.word(TIMELINE_START), start);
        store(self.word(SEGMENT_RECORDS), segment_records);
    }

    /// Returns the word with the LSN of the newest `Durable` record.
    #[must_use]
    pub fn last_note(&self) -> LastNote<'_> {
        LastNote(self.word(NOTED))
    }

    /// Returns the word that counts possibly empty slots that no held stripe accounts for.
    #[must_use]
    pub fn unheld_slots(&self) -> UnheldSlots<'_> {
        UnheldSlots(self.word(NOTING))
    }

    /// Returns the announcement of records of stripe 0: a word with a lower bound of their LSNs.
    #[must_use]
    #[inline]
    pub fn events_from(&self) -> EventsFrom<'_> {
        EventsFrom(self.word(EVENTS_FROM))
    }

    /// Returns the start of the newest snapshot; 0 without one.
    #[must_use]
    #[inline]
    pub fn snapshot(&self) -> Watermark<'_> {
        Watermark::new(self.word(SNAPSHOT))
    }

    /// Returns the starts of damaged snapshots.
    #[must_use]
    pub fn unsound(&self) -> DamagedSnapshots<'_> {
        DamagedSnapshots(&self.mapping.head()[UNSOUND..UNSOUND + UNSOUND_MAX])
    }

    /// Returns the time base, and the identity of its clock.
    #[must_use]
    #[inline]
    pub fn time_base(&self) -> ImageTime<'_> {
        let words = self.mapping.head()[TIME_BASE..].first_chunk().expect("it is as long");
        ImageTime { words, clock: self.word(TIME_BASE + 2) }
    }

    /// Returns the time base of leases, and the identity of its clock.
    #[must_use]
    pub fn lease_base(&self) -> ImageTime<'_> {
        let words = self.mapping.head()[LEASE_BASE..].first_chunk().expect("it is as long");
        ImageTime { words, clock: self.word(LEASE_BASE + 2) }
    }

    /// The single-flight gate of syncing the log.
    #[must_use]
    pub fn syncing(&self) -> &AtomicU64 {
        self.word(SYNCING)
    }

    /// The single-flight gate of allocating log.
    #[must_use]
    pub fn growing(&self) -> &AtomicU64 {
        self.word(GROWING)
    }

    /// Returns the word with the incarnation of a session slot: how often it was taken.
    #[must_use]
    pub fn incarnation(&self, slot: usize) -> Incarnation<'_> {
        Incarnation(self.word(SLOTS + slot % SLOTS_WORDS))
    }

    /// Returns whether a handle has used this image in this session slot.
    #[must_use]
    pub fn has_had_handle(&self, slot: u16) -> bool {
        self.incarnation(slot.into()).read() > 0
    }

    /// Returns the number of ordinary stripes and stripe 0.
    #[must_use]
    #[inline]
    pub fn stripe_count(&self) -> usize {
        self.identity.stripes as usize + 1
    }

    /// Returns a stripe's entry: of the state block, or of share `index - 1` of the key-hash space.
    #[must_use]
    #[inline]
    pub fn stripe(&self, index: usize) -> Stripe<'_> {
        Stripe::new(&self.mapping.words()[STRIPES + index * STRIPE_WORDS..])
    }

    /// Returns an upper bound of the slots of the log that dead processes may have left empty: one
    /// per held stripe, plus the count of [unheld slots](Control::unheld_slots).
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        let stripes = (0..self.stripe_count()).map(|at| self.stripe(at));
        let held = stripes.filter(Stripe::is_held).count();
        (held as u64).saturating_add(self.unheld_slots().count())
    }

    /// Returns the state block.
    #[must_use]
    #[inline]
    pub fn state_block(&self) -> StateBlock<'_> {
        StateBlock::new(&self.mapping.words()[self.state_block.0..self.state_block.1])
    }

    /// Returns which file contains the banks, and who has it open.
    #[must_use]
    pub fn holders(&self) -> Holders<'_> {
        let (start, end) = self.identity.holders();
        Holders::new(
            &self.mapping.head()[FILE..FILE + FILE_WORDS],
            &self.mapping.words()[start..end],
        )
    }

    /// Returns the positions of sources.
    #[must_use]
    pub fn positions(&self) -> Positions<'_> {
        let (start, end) = self.identity.positions();
        Positions::new(&self.mapping.words()[start..end])
    }

    /// Returns the claims.
    #[must_use]
    pub fn claims(&self) -> Claims<'_> {
        let head = &self.mapping.head()[CLAIMS..CLAIMS + claims::HEAD_WORDS];
        let (start, end) = self.identity.claims();
        Claims::new(head, &self.mapping.words()[start..end])
    }

    /// Returns the active filter-wide state. Without stripe 0 it may be replaced while it is read.
    #[must_use]
    #[inline]
    pub fn state(&self) -> State<'_> {
        let state_block = self.state_block();
        state_block.state(state_block.version())
    }

    /// Returns the least length of the file in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let has_claims = self.claims().has_space();
        if has_claims { self.identity.bytes() } else { self.identity.room_for_claims().start }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
