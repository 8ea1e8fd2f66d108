//! Banks of blocks, and the set of banks that a handle has mapped.
//!
//! A bank consists of a page of checked header, then a cache line of header for each block,
//! then an undo area for each stripe if the kind needs them, then the cells. In a bank of up to 16
//! KiB these parts follow one another without gaps. A bank belongs to one timeline's image. It is
//! allocated before its event is written and removed after its end.
//!
//! All of it is allocated from the start, except for kinds whose blocks grow. There each block's
//! cells lie in a hole of the file, which is filled from its beginning as far as the block needs
//! it.

use crate::error::{Error, Result};
use crate::format::header::{HEADER_BYTES, HEADER_WORDS, Header, IMAGE, PAGE_WORDS};
use crate::image::block_header::BlockHeader;
use crate::image::seqlock;
use crate::media::BankStore;
use crate::media::{Access, Mapped, MediaFile};
use ebbtide_core::block::places::{self, BLOCK_HEADER_WORDS};
use ebbtide_core::block::undo_log::{Undo, UndoRoom};
use ebbtide_core::block::{
    BankPlaces, Block, Blocks, FEW_BANKS, Geometry, Layout, MAX_BANKS, prefetch, prefetch_write,
    store,
};
use ebbtide_core::hash::scale;
use ebbtide_core::kind::decide::Locate;
use ebbtide_core::kind::{BankMask, Kind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"EBBTBNK\n";
const REMEDY: &str =
    "close every handle on the filter and open it again: its banks are then rebuilt";

/// The most cells, in words, that a core's cache is taken to hold: 1 MiB. Prefetching them would
/// cost an insert of `age-partitioned` 300 instructions without gain.
const CACHED_MOST: u64 = 1 << 17;

const _: () = assert!(places::PAGE_WORDS == PAGE_WORDS);
const _: () = assert!(places::BANK_HEADER_WORDS == HEADER_WORDS);

/// The parts of a kind's banks besides cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BankForm {
    /// The room of the undo area of each stripe.
    undo: UndoRoom,
    /// Whether blocks begin without room for cells.
    pub grows: bool,
}

impl BankForm {
    /// Returns the form of a kind's banks.
    #[must_use]
    pub fn of(kind: &dyn Kind) -> Self {
        Self { undo: kind.undo_room(), grows: kind.growth().is_some() }
    }
}

/// Returns the offsets of the parts of a bank; [`Error::Parameter`] for an absurd size.
fn places_of(layout: Layout, geometry: Geometry, form: BankForm) -> Result<BankPlaces> {
    layout.check(geometry)?;
    Ok(BankPlaces::new(layout, geometry, form.undo, form.grows))
}

/// One mapped bank.
#[derive(Debug)]
pub struct Bank {
    id: u32,
    geometry: Geometry,
    blocks: u64,
    layout: Layout,
    form: BankForm,
    places: BankPlaces,
    path: PathBuf,
    /// Kept only for kinds that grow, and by readers: an open filter of the other kinds needs no
    /// descriptor for its banks.
    file: Option<Box<dyn MediaFile>>,
    mapping: Mapped,
}

impl Bank {
    /// Returns the bytes of a bank's file.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an absurd size.
    pub fn bytes(layout: Layout, geometry: Geometry, form: BankForm) -> Result<u64> {
        Ok(places_of(layout, geometry, form)?.end as u64 * 8)
    }

    /// Creates a bank, all zero, for the image of a timeline. One of the same number is a leftover
    /// and is replaced: no record refers to it, otherwise it would have been opened.
    ///
    /// # Errors
    /// [`Error::Io`], including a full disk, and [`Error::Parameter`] for an absurd size.
    pub fn create(
        banks: &dyn BankStore,
        uuid: u128,
        timeline: u64,
        id: u32,
        layout: Layout,
        geometry: Geometry,
        form: BankForm,
    ) -> Result<Self> {
        let path = banks.path(id);
        let places = places_of(layout, geometry, form)?;
        let bytes = places.end as u64 * 8;
        let allocated = if form.grows { places.cells as u64 * 8 } else { bytes };
        let file = banks.create(id, bytes, allocated).map_err(Error::io("allocate", &path))?;
        let mapping = Mapped::new(file.map(Access::Write).map_err(Error::io("map", &path))?);
        let header = Self::header(uuid, timeline, id, geometry);
        for (at, word) in header.encode(MAGIC).into_iter().enumerate() {
            store(&mapping.words()[at], word);
        }
        let blocks = layout.blocks(geometry);
        let file = form.grows.then_some(file);
        let bank = Self { id, geometry, blocks, layout, form, places, path, file, mapping };
        if form.grows {
            bank.mapping.advise_random();
        }
        Ok(bank)
    }

    /// Maps a bank that another handle has created for the image of a timeline.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`] if it does not match the state block.
    pub fn open(
        banks: &dyn BankStore,
        (uuid, timeline): (u128, u64),
        id: u32,
        layout: Layout,
        geometry: Geometry,
        (form, access): (BankForm, Access),
    ) -> Result<Self> {
        let path = banks.path(id);
        let file = banks.open(id, access).map_err(Error::io("open", &path))?;
        let bytes = file.bytes().map_err(Error::io("measure", &path))?;
        let mut start = vec![0; HEADER_BYTES];
        file.read_at(&mut start, 0).map_err(Error::io("read", &path))?;
        let found: Header<6> = Header::decode(&start, MAGIC, IMAGE, &path, REMEDY)?;
        let wanted = Self::header(uuid, timeline, id, geometry);
        // If `live` lists an impossible size, it has lost a page, and the check below fails.
        let places = places_of(layout, geometry, form);
        let length = places.as_ref().map_or(0, |places| places.end as u64 * 8);
        if (found.words, bytes) != (wanted.words, length) {
            let expected = format!("{:x?} and {length} bytes", wanted.words);
            let found = format!("{:x?} and {bytes} bytes", found.words);
            return Err(Error::Damaged { path, offset: 16, expected, found, remedy: REMEDY });
        }
        let mapping = Mapped::new(file.map(access).map_err(Error::io("map", &path))?);
        let (places, blocks) = (places?, layout.blocks(geometry));
        let file = (form.grows || access == Access::Read).then_some(file);
        let bank = Self { id, geometry, blocks, layout, form, places, path, file, mapping };
        if form.grows {
            bank.mapping.advise_random();
        }
        Ok(bank)
    }

    fn header(uuid: u128, timeline: u64, id: u32, geometry: Geometry) -> Header<6> {
        Header {
            version: IMAGE.written,
            words: [
                uuid as u64,
                (uuid >> 64) as u64,
                timeline,
                u64::from(id),
                u64::from(geometry.blocks_per_stripe),
                u64::from(geometry.words_per_block),
            ],
        }
    }

    /// Sets the LSN of all blocks, which are empty, to that of the record that cleared the filter:
    /// no earlier record applies to them.
    pub fn begin_at(&self, lsn: u64) {
        for index in 0..self.blocks {
            self.block(index as usize).0.set_lsn(lsn);
        }
    }

    /// Returns the file, if it is kept open.
    pub(super) fn file(&self) -> Option<&dyn MediaFile> {
        self.file.as_deref()
    }

    /// See [`crate::media::Mapping::check_written`].
    pub(super) fn check_mapped(&self) -> std::io::Result<()> {
        self.mapping.check_written()
    }

    /// Returns the bank's number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the bank's geometry.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the block of a key; changes of it are not recorded for undo.
    #[must_use]
    #[inline(always)]
    pub fn block_of(&self, hash: u64) -> (BlockHeader<'_>, Block<'_>) {
        self.block(scale(hash, self.blocks) as usize)
    }

    /// As [`Bank::block_of`]; if it is to be changed, its changes are recorded for undo.
    #[inline(always)]
    fn block_in<const TO_CHANGE: bool>(&self, hash: u64) -> (BlockHeader<'_>, Block<'_>) {
        let (header, block) = self.block_of(hash);
        let undo = if TO_CHANGE { self.undo(self.layout.stripe_of(hash)) } else { block.undo };
        (header, Block { undo, ..block })
    }

    /// Returns a block by number, below [`Bank::blocks`]; changes of it are not recorded for undo.
    #[must_use]
    #[inline(always)]
    pub fn block(&self, index: usize) -> (BlockHeader<'_>, Block<'_>) {
        let words = self.mapping.words();
        let header_at = self.places.headers + index * BLOCK_HEADER_WORDS;
        let header =
            BlockHeader(words[header_at..].first_chunk().expect("a header for each block"));
        let cells = &words[self.cells_of(index)];
        let (own, number) = (header.own(), index as u64);
        (header, Block { own, cells, number, of: self.blocks, undo: Undo::NONE })
    }

    /// Returns the range of a block's cells, in words of the file.
    #[inline]
    fn cells_of(&self, index: usize) -> Range<usize> {
        let size = self.geometry.words_per_block as usize;
        let at = self.places.cells + index * size;
        at..at + size
    }

    /// Returns the undo area of an ordinary stripe (from 0), if the kind needs them.
    #[must_use]
    #[inline]
    pub fn undo(&self, stripe: usize) -> Undo<'_> {
        if self.form.undo == UndoRoom::None {
            return Undo::NONE;
        }
        let at = self.places.undo + stripe * self.places.area;
        Undo::new(&self.mapping.words()[at..at + self.places.area])
    }

    /// Allocates space for the first words of a block's cells, in banks whose blocks grow.
    ///
    /// # Errors
    /// [`Error::Io`], including a full disk: then nothing has changed.
    pub fn allocate(&self, block: u64, words: usize) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let cells = self.cells_of(block as usize);
        let end = (cells.start + words).min(cells.end);
        let allocated = file.allocate(cells.start as u64 * 8..end as u64 * 8);
        allocated.map_err(Error::io("allocate room in", &self.path))
    }

    /// Frees the space of a block's cells from this word on, which are all zero.
    pub fn free(&self, block: u64, from: usize) {
        let Some(file) = &self.file else { return };
        // A query that began before may still read there, which must not take space.
        if file.reads_fill_holes().unwrap_or(true) {
            return;
        }
        let cells = self.cells_of(block as usize);
        let start = (cells.start + from).min(cells.end);
        // Space that cannot be freed is used again when the block grows.
        let _ = file.free(start as u64 * 8..cells.end as u64 * 8);
    }

    /// Returns the blocks of an ordinary stripe (from 0).
    pub fn blocks_of_stripe(&self, stripe: usize) -> impl Iterator<Item = BlockHeader<'_>> {
        let each = u64::from(self.geometry.blocks_per_stripe);
        let first = stripe as u64 * each;
        (first..(first + each).min(self.blocks)).map(|index| self.block(index as usize).0)
    }

    /// Returns the ordinary stripe (from 0) that a block belongs to.
    #[must_use]
    pub fn stripe_of_block(&self, index: u64) -> usize {
        (index / u64::from(self.geometry.blocks_per_stripe.max(1))) as usize
    }

    /// Returns the bytes of memory; of a bank whose blocks grow, only their allocated room.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let all = self.mapping.words().len() as u64 * 8;
        let grown = self.file.as_ref().filter(|_| self.form.grows);
        let occupied = grown.and_then(|file| file.allocated_bytes().ok());
        occupied.map_or(all, |some| some.min(all))
    }
}

/// The banks that a handle has mapped, by their slots in the state block's table.
#[derive(Debug, Clone, Default)]
pub struct BankSet {
    slots: [Option<Arc<Bank>>; MAX_BANKS],
    /// The slots that contain a bank.
    present: BankMask,
    /// Whether the cells of all banks are more than a core's cache holds.
    prefetches: bool,
    /// The version of the state block that lists exactly these, if known.
    version: Option<u64>,
}

impl BankSet {
    /// Returns this set with a bank in a slot, or with the slot empty.
    #[must_use]
    pub fn with(&self, slot: usize, bank: Option<Arc<Bank>>) -> Self {
        let mut set = self.clone();
        let bit = 1 << (slot % MAX_BANKS);
        set.present = if bank.is_some() { set.present | bit } else { set.present & !bit };
        set.slots[slot % MAX_BANKS] = bank;
        let cells = |(_, bank): (usize, &Arc<Bank>)| bank.layout.words(bank.geometry);
        set.prefetches = set.iter().map(cells).sum::<u64>() > CACHED_MOST;
        set.version = None;
        set
    }

    /// Returns this set, marked as listed by this version of the state block.
    #[must_use]
    pub fn of_version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Returns whether it is marked as listed by this version of the state block.
    #[must_use]
    #[inline]
    pub fn is_of(&self, version: u64) -> bool {
        self.version == Some(version)
    }

    /// Returns whether it pays to prefetch the words of a key.
    #[must_use]
    #[inline]
    pub fn prefetches(&self) -> bool {
        self.prefetches
    }

    /// Returns the bank in a slot.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&Arc<Bank>> {
        self.slots.get(slot)?.as_ref()
    }

    /// Returns the number of slots up to the last that has a bank.
    #[must_use]
    pub fn slots(&self) -> usize {
        (BankMask::BITS - self.present.leading_zeros()) as usize
    }

    /// Returns all banks with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<Bank>)> {
        self.among(BankMask::MAX)
    }

    /// Returns the banks in the slots of `mask`.
    #[inline]
    fn among(&self, mask: BankMask) -> impl Iterator<Item = (usize, &Arc<Bank>)> {
        let mut left = mask & self.present;
        std::iter::from_fn(move || {
            let slot = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            Some((slot, self.get(slot)?))
        })
    }

    /// Returns the key's blocks in the banks of `mask`, to be changed.
    #[must_use]
    #[inline(always)] // as `locate_in`
    pub fn locate(&self, mask: BankMask, hash: u64) -> Located<'_> {
        self.locate_in::<true>(mask, hash)
    }

    /// Returns the key's blocks in all banks, to be read.
    #[must_use]
    #[inline(always)] // as `locate_in`
    pub fn locate_to_read(&self, hash: u64) -> Located<'_> {
        self.locate_in::<false>(BankMask::MAX, hash)
    }

    // Out of line, the result would be copied right after its words were stored, and the copy would
    // wait for the stores.
    #[inline(always)]
    fn locate_in<const TO_CHANGE: bool>(&self, mask: BankMask, hash: u64) -> Located<'_> {
        let wanted = mask & self.present;
        if let (1, Some(bank)) = (wanted, &self.slots[0]) {
            let (header, block) = bank.block_in::<TO_CHANGE>(hash);
            return Located { headers: Headers::One(0, header), blocks: Blocks::One(0, block) };
        }
        self.locate_many::<TO_CHANGE>(wanted, hash)
    }

    #[inline(never)]
    fn locate_many<const TO_CHANGE: bool>(&self, wanted: BankMask, hash: u64) -> Located<'_> {
        if wanted.is_power_of_two()
            && let Some((slot, bank)) = self.among(wanted).next()
        {
            let (header, block) = bank.block_in::<TO_CHANGE>(hash);
            return Located {
                headers: Headers::One(slot, header),
                blocks: Blocks::One(slot, block),
            };
        }
        let slots = (BankMask::BITS - wanted.leading_zeros()) as usize;
        let (mut headers, mut blocks) = (Headers::below(slots), Blocks::below(slots));
        for (slot, bank) in self.among(wanted) {
            let (header, block) = bank.block_in::<TO_CHANGE>(hash);
            headers.set(slot, header);
            blocks.set(slot, block);
        }
        Located { headers, blocks }
    }
}

/// The blocks of one key, with their headers.
#[derive(Debug)]
pub struct Located<'a> {
    /// Their headers.
    pub headers: Headers<'a>,
    /// The blocks, in the form that their kind reads.
    pub blocks: Blocks<'a>,
}

/// Headers by slot; as [`Blocks`].
#[derive(Debug)]
pub enum Headers<'a> {
    /// The header in one bank, with its slot.
    One(usize, BlockHeader<'a>),
    /// The headers in banks in the first slots.
    Few([Option<BlockHeader<'a>>; FEW_BANKS]),
    /// The headers in banks in any slots.
    Many([Option<BlockHeader<'a>>; MAX_BANKS]),
}

impl<'a> Headers<'a> {
    /// Returns room for the headers in banks in slots below `slots`.
    fn below(slots: usize) -> Self {
        if slots <= FEW_BANKS {
            Self::Few([None; FEW_BANKS])
        } else {
            Self::Many([None; MAX_BANKS])
        }
    }

    /// Sets the header in a slot for which there is room.
    fn set(&mut self, slot: usize, header: BlockHeader<'a>) {
        match self {
            Self::One(..) => {}
            Self::Few(slots) => slots[slot] = Some(header),
            Self::Many(slots) => slots[slot] = Some(header),
        }
    }

    /// Returns whether a test holds for each, with its slot; stops at the first for which it does
    /// not.
    #[inline(always)] // as `each`
    fn all(&self, mut test: impl FnMut(usize, &BlockHeader<'a>) -> bool) -> bool {
        let slots = match self {
            // Not as a list of one: the loop would cost a query more than its body.
            Self::One(slot, header) => return test(*slot, header),
            Self::Few(slots) => slots.as_slice(),
            Self::Many(slots) => slots.as_slice(),
        };
        let mut slots = slots.iter().enumerate();
        slots.all(|(slot, header)| header.as_ref().is_none_or(|header| test(slot, header)))
    }

    #[inline(always)] // out of line, an insert executes 20 more instructions
    pub fn each(&self, mut visit: impl FnMut(usize, &BlockHeader<'a>)) {
        self.all(|slot, header| {
            visit(slot, header);
            true
        });
    }

    /// Returns the sum of their versions before the blocks are read; `None` if one is being
    /// changed.
    #[must_use]
    #[inline]
    pub fn versions(&self) -> Option<u64> {
        let mut sum = 0_u64;
        let whole = self.all(|_, header| match seqlock::read(header.version()) {
            Some(version) => {
                sum = sum.wrapping_add(version);
                true
            }
            None => false,
        });
        whole.then_some(sum)
    }

    /// Returns whether none has changed since: versions only grow, so their sum is unchanged only
    /// if each of them is.
    #[must_use]
    #[inline]
    pub fn unchanged(&self, before: u64) -> bool {
        let mut sum = 0_u64;
        self.each(|_, header| sum = sum.wrapping_add(seqlock::again(header.version())));
        sum == before
    }
}

impl Locate for BankSet {
    type Located<'a> = Located<'a>;

    #[inline(always)]
    fn locate(&self, mask: BankMask, hash: u64) -> Located<'_> {
        Self::locate(self, mask, hash)
    }
}

impl<'a> AsRef<Blocks<'a>> for Located<'a> {
    #[inline]
    fn as_ref(&self) -> &Blocks<'a> {
        &self.blocks
    }
}

impl Located<'_> {
    /// Prefetches the headers, for reading.
    #[inline]
    pub fn prefetch_headers(&self) {
        self.headers.each(|_, header| prefetch(header.version()));
    }

    /// Prefetches the headers, for writing.
    #[inline]
    pub fn prefetch_headers_to_write(&self) {
        self.headers.each(|_, header| prefetch_write(header.version()));
    }

    /// Marks all of them as being changed; see [`seqlock`] and [`ebbtide_core::block::undo_log`].
    #[inline]
    pub fn begin(&self) {
        self.begin_undo();
        self.headers.each(|_, header| seqlock::begin(header.version()));
    }

    /// Stores in the undo area which block the following entries belong to.
    #[inline]
    pub fn begin_undo(&self) {
        self.headers.each(|slot, header| {
            if let Some(block) = self.blocks.get(slot) {
                block.undo.begin(block.number, header.lsn());
            }
        });
    }

    /// Marks all of them as whole again, up to this LSN if one was applied.
    #[inline]
    pub fn end(&self, lsn: Option<u64>) {
        self.headers.each(|_, header| {
            if let Some(lsn) = lsn {
                header.set_lsn(lsn);
            }
            seqlock::end(header.version());
        });
    }

    /// Returns those of these blocks to which this LSN has not been applied.
    #[must_use]
    pub fn older_than(&self, lsn: u64) -> Blocks<'_> {
        let slots = self.blocks.iter().map(|(slot, _)| slot + 1).max();
        let mut older = Blocks::below(slots.unwrap_or(0));
        self.headers.each(|slot, header| {
            if let Some(block) = self.blocks.get(slot).filter(|_| lsn > header.lsn()) {
                older.set(slot, *block);
            }
        });
        older
    }

    /// Stores that this LSN has been applied to all of them.
    pub fn note(&self, lsn: u64) {
        self.headers.each(|_, header| {
            if lsn > header.lsn() {
                header.set_lsn(lsn);
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
