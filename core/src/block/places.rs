//! Where the parts of a bank lie, and how much memory an image takes.

use super::undo_log::UndoRoom;
use super::{Geometry, Layout, OWN_WORDS};

/// Words of a page.
pub const PAGE_WORDS: usize = 512;

/// Words of the header of a bank.
pub const BANK_HEADER_WORDS: usize = 16;

/// Words of the header of a block: its version, its LSN, and the kind words.
pub const BLOCK_HEADER_WORDS: usize = 2 + OWN_WORDS;

/// The largest bank, in words, whose parts are not aligned to pages: 16 KiB.
pub const PACKED_MOST: usize = 4 * PAGE_WORDS;

/// The offsets of the parts of a bank, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BankPlaces {
    /// The headers of the blocks.
    pub headers: usize,
    /// The undo areas of the stripes.
    pub undo: usize,
    /// The words of an undo area; 0 without any.
    pub area: usize,
    /// The cells.
    pub cells: usize,
    /// The end of the bank.
    pub end: usize,
}

impl BankPlaces {
    /// Returns the places of a bank whose geometry has passed [`Layout::check`]: with this
    /// undo area for each stripe, and with blocks that grow in holes of the file or without.
    #[must_use]
    pub fn new(layout: Layout, geometry: Geometry, room: UndoRoom, grows: bool) -> Self {
        let words = layout.words(geometry);
        let blocks = layout.blocks(geometry) as usize * BLOCK_HEADER_WORDS;
        let size = geometry.words_per_block as usize;
        let area = room.area_words(OWN_WORDS + size);
        let lay_out = |headers: usize, unit: usize| {
            let undo = headers + blocks.next_multiple_of(unit);
            let cells = undo + (area * layout.stripes as usize).next_multiple_of(unit);
            Self { headers, undo, area, cells, end: cells + words as usize }
        };
        // Page alignment would make up most of a small bank.
        let packed = lay_out(BANK_HEADER_WORDS, BLOCK_HEADER_WORDS);
        let is_small = packed.end <= PACKED_MOST && !grows;
        if is_small { packed } else { lay_out(PAGE_WORDS, PAGE_WORDS) }
    }

    /// Returns the bytes of the bank, in whole pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end.next_multiple_of(PAGE_WORDS) as u64 * 8
    }
}

/// Returns the most bytes that an image takes besides its banks: control words and stripes, the
/// state in two copies, counters, positions and holders.
#[must_use]
pub fn head_bytes(stripes: u32, state_words: usize) -> u64 {
    let stripes = stripes as usize;
    let counters = 16 * stripes.clamp(1, 32).next_power_of_two();
    let words = 900 + 8 * stripes + 2 * state_words + counters;
    (words.next_multiple_of(PAGE_WORDS) + PAGE_WORDS) as u64 * 8
}
