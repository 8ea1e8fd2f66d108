//! The file without a name that contains the banks, and the handles that have it open.
//!
//! A handle that attaches gets the file from one of these handles. The words of the file are
//! written before the image has its name, the word of a handle when it has its session slot. An
//! outdated word, of a slot that is free or has another handle by now, leads to no file, or to one
//! whose identity differs. If there is no such file the words of the slots lie in a hole, and are
//! not read.

use crate::format::names::FileName;
use crate::image::identity::SLOTS_WORDS;
use crate::media::{Holder, UnnamedId};
use crate::primitives::AtomicU64;
use ebbtide_core::block::{load, store};

/// Whether there is such a file, its device, its inode and its number.
pub(super) const FILE_WORDS: usize = 5;

/// The words about the file that contains the banks.
#[derive(Debug, Clone, Copy)]
pub struct Holders<'a> {
    file: &'a [AtomicU64],
    slots: &'a [AtomicU64],
}

impl<'a> Holders<'a> {
    pub(super) fn new(file: &'a [AtomicU64], slots: &'a [AtomicU64]) -> Self {
        Self { file, slots }
    }

    /// Returns the file; `None` if the banks are files with names.
    #[must_use]
    pub fn file(&self) -> Option<UnnamedId> {
        let [exists, device, inode, low, high] = [0, 1, 2, 3, 4].map(|at| load(&self.file[at]));
        let nonce = u128::from(high) << 64 | u128::from(low);
        (exists == 1).then_some(UnnamedId { device, inode, nonce })
    }

    /// Sets the file, for a caller with exclusive access to the image.
    pub fn set_file(&self, id: UnnamedId) {
        let words = [1, id.device, id.inode, id.nonce as u64, (id.nonce >> 64) as u64];
        for (at, word) in words.into_iter().enumerate() {
            store(&self.file[at], word);
        }
    }

    /// Notes where the handle in this slot has the file: its process, and the number of the
    /// descriptor.
    pub fn note(&self, slot: u16, (process, descriptor): (u32, u32)) {
        let word = u64::from(process) << 32 | u64::from(descriptor);
        store(&self.slots[usize::from(slot) % SLOTS_WORDS], word);
    }

    /// Returns all that were noted, for an image whose banks lie in such a file.
    #[must_use]
    pub fn all(&self) -> Vec<Holder> {
        let words = self.slots.iter().map(load).enumerate();
        let noted = words.filter(|&(_, word)| word != 0);
        let holder = |(slot, word): (usize, u64)| Holder {
            process: (word >> 32) as u32,
            descriptor: word as u32,
            name: FileName::Attach { slot: slot as u16 }.to_string(),
        };
        noted.map(holder).collect()
    }
}
