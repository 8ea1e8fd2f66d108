//! Checked words on the disk: headers of little-endian words that end in a checksum.
//!
//! Every file except `meta`, its kept copies, `keep` and `lock` begins with one. The checksum is
//! verified before any word is interpreted.

use crate::error::{Error, Result};
use std::path::Path;

/// Bytes of a page. A header fills one, so that the content after it is page aligned.
pub const PAGE_BYTES: u64 = 4096;
/// Words of a page.
pub const PAGE_WORDS: usize = 512;

const _: () = assert!(PAGE_WORDS as u64 * 8 == PAGE_BYTES);

/// The versions of a format that a build writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The version that is written.
    pub written: u32,
    /// The oldest version that is read.
    pub oldest: u32,
}

/// `meta`, log segments and snapshots, from which the state is rebuilt. `docs/format.md` lists the
/// changes.
pub const DURABLE: Versions = Versions { written: 6, oldest: 4 };

/// `live` and the banks. They belong to the processes that have the filter open, so only one
/// version is read; an image of another version is rebuilt.
pub const IMAGE: Versions = Versions { written: 19, oldest: 19 };

impl Versions {
    /// Checks that this build reads a version.
    ///
    /// # Errors
    /// [`Error::Version`].
    pub fn check(self, found: u64, path: &Path) -> Result<u32> {
        match u32::try_from(found) {
            Ok(found) if (self.oldest..=self.written).contains(&found) => Ok(found),
            _ => {
                let (path, expected) = (path.to_path_buf(), self.written);
                Err(Error::Version { path, expected, found: found.min(u32::MAX.into()) as u32 })
            }
        }
    }
}

/// Number of bytes that identify a file of ebbtide.
pub const MAGIC_BYTES: usize = 8;

/// Returns whether a file with this start is one of ebbtide's, of any version.
#[must_use]
pub fn is_magic(start: &[u8; MAGIC_BYTES]) -> bool {
    start.starts_with(b"EBBT") || start == b"ebbtide "
}

/// Converts words into bytes.
#[must_use]
pub fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Converts bytes into words; a remainder of fewer than eight bytes is dropped.
pub fn to_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

/// Words of every file header; the last is its checksum. Fixed for all future versions, so that a
/// file of another version can be distinguished from a damaged one.
pub const HEADER_WORDS: usize = 16;
/// Bytes of every file header.
pub const HEADER_BYTES: usize = HEADER_WORDS * 8;

/// Returns the uuid of the filter that a file belongs to, for any version, because all headers
/// begin alike. `None` if the header is not sound.
#[must_use]
pub fn owner(bytes: &[u8]) -> Option<u128> {
    let bytes = bytes.get(..HEADER_BYTES).filter(|bytes| bytes.starts_with(b"EBBT"))?;
    let (body, sum) = bytes.split_at(HEADER_BYTES - 8);
    let mut words = to_words(&body[16..]);
    let (low, high) = (words.next()?, words.next()?);
    let sound = to_words(sum).next() == Some(u64::from(crc32fast::hash(body)));
    sound.then_some(u128::from(high) << 64 | u128::from(low))
}

/// A file header: magic and version, `N` words, zeros, checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<const N: usize> {
    /// The version of the file's format.
    pub version: u32,
    /// The words after the version.
    pub words: [u64; N],
}

impl<const N: usize> Header<N> {
    const FITS: () = assert!(N + 3 <= HEADER_WORDS, "magic, version and checksum need a word each");

    /// Encodes the header's words, for a file of this magic.
    #[must_use]
    pub fn encode(&self, magic: &[u8; 8]) -> Vec<u64> {
        let () = Self::FITS;
        let mut words = vec![u64::from_le_bytes(*magic), u64::from(self.version)];
        words.extend(self.words);
        words.resize(HEADER_WORDS - 1, 0);
        words.push(u64::from(crc32fast::hash(&to_bytes(&words))));
        words
    }

    /// Decodes a header: magic, then checksum, then version.
    ///
    /// # Errors
    /// [`Error::Damaged`] for the first mismatch; [`Error::Version`] if only the version differs.
    pub fn decode(
        bytes: &[u8],
        magic: &[u8; 8],
        versions: Versions,
        path: &Path,
        remedy: &'static str,
    ) -> Result<Self> {
        let damaged = |offset, expected: String, found: String| {
            let path = path.to_path_buf();
            Err(Error::Damaged { path, offset, expected, found, remedy })
        };
        let Some(bytes) = bytes.get(..HEADER_BYTES) else {
            let expected = format!("a header of {HEADER_BYTES} bytes");
            return damaged(0, expected, format!("a file of {}", bytes.len()));
        };
        if bytes[..8] != *magic {
            let [expected, found] = [&magic[..], &bytes[..8]]
                .map(|bytes| format!("`{}`", String::from_utf8_lossy(bytes).escape_debug()));
            return damaged(0, format!("the magic {expected}"), found);
        }
        let (body, sum) = bytes.split_at(HEADER_BYTES - 8);
        let expected = u64::from(crc32fast::hash(body));
        let found = to_words(sum).next().unwrap_or_default();
        if expected != found {
            let expected = format!("header checksum {expected:08x}");
            return damaged(body.len() as u64, expected, format!("{found:08x}"));
        }
        let mut words = to_words(&body[8..]);
        let version = versions.check(words.next().unwrap_or_default(), path)?;
        let mut header = Self { version, words: [0; N] };
        for (to, from) in header.words.iter_mut().zip(words) {
            *to = from;
        }
        Ok(header)
    }
}
