//! A mapping whose words are accessed without a call through the trait: for the paths of every
//! operation.
#![expect(unsafe_code, reason = "keeps a pointer to the words beside their mapping")]

use crate::media::Mapping;
use crate::sync::AtomicU64;
use std::ptr::NonNull;

/// A mapped file with a pointer to its words.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// Points into memory owned by `mapping`, which is dropped together with it.
    words: NonNull<[AtomicU64]>,
    mapping: Box<dyn Mapping>,
}

// SAFETY: `words` is what `mapping.words()` returns to any thread, and the mapping itself is
// `Send`.
unsafe impl Send for Mapped {}
// SAFETY: shared access returns `&[AtomicU64]`, which threads may share; the mapping itself is
// `Sync`.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Takes ownership of a mapping.
    pub(crate) fn new(mapping: Box<dyn Mapping>) -> Self {
        Self { words: NonNull::from(mapping.words()), mapping }
    }

    /// Returns the words.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: by the contract of `Mapping` its words stay in place until it is dropped, which
        // happens with `self`, and the slice borrows `self`.
        unsafe { self.words.as_ref() }
    }

    /// See [`Mapping::sync`].
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.mapping.sync()
    }

    /// See [`Mapping::populate`].
    pub(crate) fn populate(&self, words: std::ops::Range<usize>) {
        self.mapping.populate(words);
    }

    /// See [`Mapping::scatter`].
    pub(crate) fn scatter(&self) {
        self.mapping.scatter();
    }

    /// See [`Mapping::release`].
    pub(crate) fn release(&self, words: std::ops::Range<usize>) {
        self.mapping.release(words);
    }
}
