//! Banks: files of blocks, and the set of them that a handle has mapped.
//!
//! A bank's file holds a page of checked header, then a cache line of header for each block, then the cells.
//! It belongs to one era's image, is allocated before its event is written and removed after its end.

use super::header::{BLOCK_HEADER_WORDS, BlockHeader};
use super::version;
use crate::bytes::{Header, PAGE_BYTES, PAGE_WORDS};
use crate::cells::{Block, Blocks, Geometry, Layout, MAX_BANKS, store};
use crate::error::{Error, Result};
use crate::kinds::BankMask;
use crate::media::{Access, Mapped, Media};
use crate::names::FileName;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"EBBTBNK\n";

/// The largest bank, in words of cells: far beyond memory, far below overflow.
pub const BANK_WORDS_MAX: u64 = 1 << 40;

/// One mapped bank.
#[derive(Debug)]
pub struct Bank {
    id: u32,
    name: String,
    geometry: Geometry,
    blocks: u64,
    layout: Layout,
    cells_at: usize,
    mapping: Mapped,
}

impl Bank {
    /// Bytes of a bank's file.
    ///
    /// # Errors
    /// [`Error::Parameter`] if they are beyond all reason.
    pub fn bytes(layout: Layout, geometry: Geometry) -> Result<u64> {
        let words = layout.words(geometry);
        if words > BANK_WORDS_MAX {
            let expected = format!("at most {BANK_WORDS_MAX} words of cells in a bank");
            return Err(Error::parameter("words", expected, words));
        }
        Ok(PAGE_BYTES + Self::header_bytes(layout.blocks(geometry)) + words * 8)
    }

    fn header_bytes(blocks: u64) -> u64 {
        (blocks * BLOCK_HEADER_WORDS as u64 * 8).next_multiple_of(PAGE_BYTES)
    }

    /// Creates a bank, all zero, for the image of an era. A file of the same name is a leftover (nothing was
    /// ever recorded about it, or it would have been opened) and is replaced.
    ///
    /// # Errors
    /// [`Error::Io`], a full disk among them, and [`Error::Parameter`] for an absurd size.
    pub fn create(
        media: &dyn Media,
        uuid: u128,
        era: u64,
        id: u32,
        layout: Layout,
        geometry: Geometry,
    ) -> Result<Self> {
        let name = FileName::Bank { era, bank: id }.to_string();
        let path = media.path().join(&name);
        let bytes = Self::bytes(layout, geometry)?;
        match media.remove(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("replace", &path)(error));
            }
            _ => {}
        }
        let file = media.create(&name, bytes).map_err(Error::io("allocate", &path))?;
        let mapping = Mapped::new(file.map(Access::Write).map_err(Error::io("map", &path))?);
        let header = Header {
            words: [
                uuid as u64,
                (uuid >> 64) as u64,
                era,
                u64::from(id),
                u64::from(geometry.blocks_per_stripe),
                u64::from(geometry.words_per_block),
            ],
        };
        for (at, word) in header.encode(MAGIC).into_iter().enumerate() {
            store(&mapping.words()[at], word);
        }
        let blocks = layout.blocks(geometry);
        let cells_at = PAGE_WORDS + (Self::header_bytes(blocks) / 8) as usize;
        Ok(Self { id, name, geometry, blocks, layout, cells_at, mapping })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its size.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// How many blocks it has.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block of a key.
    #[must_use]
    #[inline]
    pub fn block_of(&self, hash: u64) -> (BlockHeader<'_>, Block<'_>) {
        self.block(self.layout.block_of(self.geometry, hash))
    }

    /// A block by number, below [`Bank::blocks`].
    #[must_use]
    #[inline]
    pub fn block(&self, index: usize) -> (BlockHeader<'_>, Block<'_>) {
        let words = self.mapping.words();
        let header_at = PAGE_WORDS + index * BLOCK_HEADER_WORDS;
        let header = BlockHeader(&words[header_at..header_at + BLOCK_HEADER_WORDS]);
        let size = self.geometry.words_per_block as usize;
        let cells_at = self.cells_at + index * size;
        let block = Block { own: header.own(), cells: &words[cells_at..cells_at + size] };
        (header, block)
    }

    /// The ordinary stripe (from 0) that a block belongs to.
    #[must_use]
    pub fn stripe_of_block(&self, index: u64) -> usize {
        (index / u64::from(self.geometry.blocks_per_stripe.max(1))) as usize
    }

    /// Bytes of memory and of file.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.mapping.words().len() as u64 * 8
    }
}

/// The banks a handle has mapped, by their slots in block 0's table.
#[derive(Debug, Clone, Default)]
pub struct BankSet {
    slots: [Option<Arc<Bank>>; MAX_BANKS],
    /// The slots that hold a bank.
    present: BankMask,
}

impl BankSet {
    /// This set with a bank in a slot, or with the slot empty.
    #[must_use]
    pub fn with(&self, slot: usize, bank: Option<Arc<Bank>>) -> Self {
        let mut set = self.clone();
        let bit = 1 << (slot % MAX_BANKS);
        set.present = if bank.is_some() { set.present | bit } else { set.present & !bit };
        set.slots[slot % MAX_BANKS] = bank;
        set
    }

    /// The bank in a slot.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&Arc<Bank>> {
        self.slots.get(slot)?.as_ref()
    }

    /// All banks with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<Bank>)> {
        self.among(BankMask::MAX)
    }

    /// The banks in the slots of `mask`.
    #[inline]
    fn among(&self, mask: BankMask) -> impl Iterator<Item = (usize, &Arc<Bank>)> {
        let mut left = mask & self.present;
        std::iter::from_fn(move || {
            let slot = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            Some((slot, self.get(slot)?))
        })
    }

    /// The key's blocks in the banks of `mask`.
    #[must_use]
    #[inline]
    pub fn locate(&self, mask: BankMask, hash: u64) -> Located<'_> {
        let wanted = mask & self.present;
        if let (1, Some(bank)) = (wanted, &self.slots[0]) {
            let (header, block) = bank.block_of(hash);
            return Located { headers: Headers::One([Some(header)]), blocks: Blocks::One(block) };
        }
        let (mut headers, mut blocks) = ([None; MAX_BANKS], [None; MAX_BANKS]);
        for (slot, bank) in self.among(wanted) {
            let (header, block) = bank.block_of(hash);
            headers[slot] = Some(header);
            blocks[slot] = Some(block);
        }
        Located { headers: Headers::Many(headers), blocks: Blocks::Many(blocks) }
    }
}

/// The blocks of one key, with their headers.
#[derive(Debug)]
pub struct Located<'a> {
    headers: Headers<'a>,
    blocks: Blocks<'a>,
}

/// Headers by slot; as [`Blocks`].
#[derive(Debug)]
enum Headers<'a> {
    One([Option<BlockHeader<'a>>; 1]),
    Many([Option<BlockHeader<'a>>; MAX_BANKS]),
}

impl<'a> Located<'a> {
    /// The blocks, as their kind sees them.
    #[must_use]
    #[inline]
    pub fn blocks(&self) -> &Blocks<'a> {
        &self.blocks
    }

    #[inline]
    fn slots(&self) -> &[Option<BlockHeader<'a>>] {
        match &self.headers {
            Headers::One(slots) => slots,
            Headers::Many(slots) => slots,
        }
    }

    #[inline]
    fn headers(&self) -> impl Iterator<Item = &BlockHeader<'a>> {
        self.slots().iter().flatten()
    }

    /// Marks all of them as being changed; see [`version`].
    #[inline]
    pub fn begin(&self) {
        self.headers().for_each(|header| version::begin(header.version()));
    }

    /// Marks all of them as whole again, up to this LSN if one was applied.
    #[inline]
    pub fn end(&self, lsn: Option<u64>) {
        for header in self.headers() {
            if let Some(lsn) = lsn {
                header.set_lsn(lsn);
            }
            version::end(header.version());
        }
    }

    /// Their versions before reading them; `None` if one is being changed.
    #[must_use]
    #[inline]
    pub fn versions(&self) -> Option<[u64; MAX_BANKS]> {
        let mut versions = [0; MAX_BANKS];
        for (header, seen) in self.headers().zip(&mut versions) {
            *seen = version::read(header.version())?;
        }
        Some(versions)
    }

    /// Whether none has changed since these versions were read.
    #[must_use]
    #[inline]
    pub fn unchanged(&self, versions: &[u64; MAX_BANKS]) -> bool {
        let mut both = self.headers().zip(versions);
        both.all(|(header, &seen)| version::unchanged(header.version(), seen))
    }

    /// Those of these blocks to which this LSN has not been applied; notes that it has been now.
    #[must_use]
    pub fn admit(&self, lsn: u64) -> Blocks<'a> {
        let mut admitted = [None; MAX_BANKS];
        for (slot, header) in self.slots().iter().enumerate() {
            if let Some(header) = header.filter(|header| lsn > header.lsn()) {
                header.set_lsn(lsn);
                admitted[slot] = self.blocks.get(slot).copied();
            }
        }
        Blocks::Many(admitted)
    }
}
