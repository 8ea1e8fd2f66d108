//! A mapping whose words are accessed without a call through the trait: for the paths of every
//! operation.
#![expect(unsafe_code, reason = "keeps a pointer to the words beside their mapping")]

use crate::media::Mapping;
use crate::primitives::AtomicU64;
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
    pub(crate) fn sync(&self, words: usize) -> std::io::Result<()> {
        self.mapping.sync(words)
    }

    /// See [`Mapping::write_back`].
    pub(crate) fn write_back(&self, words: usize) -> std::io::Result<()> {
        self.mapping.write_back(words)
    }

    /// See [`Mapping::check_written`].
    pub(crate) fn check_written(&self) -> std::io::Result<()> {
        self.mapping.check_written()
    }

    /// See [`Mapping::populate`].
    pub(crate) fn populate(&self, words: std::ops::Range<usize>) {
        self.mapping.populate(words);
    }

    /// See [`Mapping::advise_random`].
    pub(crate) fn advise_random(&self) {
        self.mapping.advise_random();
    }

    /// See [`Mapping::release`].
    pub(crate) fn release(&self, words: std::ops::Range<usize>) {
        self.mapping.release(words);
    }
}

/// A mapped file of at least `N` words, which are accessed without a check of the file's length.
#[derive(Debug)]
pub(crate) struct MappedHead<const N: usize> {
    /// Points to the first words of `mapped`, which is dropped together with it.
    head: NonNull<[AtomicU64; N]>,
    mapped: Mapped,
}

// SAFETY: `head` is a part of the words of `mapped`, which is `Send`.
unsafe impl<const N: usize> Send for MappedHead<N> {}
// SAFETY: as for `Mapped`, which is `Sync`.
unsafe impl<const N: usize> Sync for MappedHead<N> {}

impl<const N: usize> MappedHead<N> {
    /// Takes ownership of a mapping; `None` if it is shorter.
    pub(crate) fn new(mapping: Box<dyn Mapping>) -> Option<Self> {
        let mapped = Mapped::new(mapping);
        let head = NonNull::from(mapped.words().first_chunk()?);
        Some(Self { head, mapped })
    }

    /// Returns the first words.
    #[inline]
    pub(crate) fn head(&self) -> &[AtomicU64; N] {
        // SAFETY: as in `Mapped::words`, of which these are the first.
        unsafe { self.head.as_ref() }
    }

    /// See [`Mapping::check_written`].
    pub(crate) fn check_written(&self) -> std::io::Result<()> {
        self.mapped.check_written()
    }

    /// Returns all words.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.mapped.words()
    }
}
