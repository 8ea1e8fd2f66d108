//! Checked words on the disk: headers of little-endian words that end in a checksum.
//!
//! Every file but `meta` begins with one. The checksum is looked at first; no word is interpreted before.

use crate::error::{Error, Result};
use std::path::Path;

/// Bytes of a page: headers fill one, so that what follows is page aligned.
pub const PAGE_BYTES: u64 = 4096;
/// Words of a page.
pub const PAGE_WORDS: usize = 512;

const _: () = assert!(PAGE_WORDS as u64 * 8 == PAGE_BYTES);

/// The version of all formats described in `docs/format.md`.
pub const FORMAT_VERSION: u32 = 1;

/// Turns words into bytes.
#[must_use]
pub fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Turns bytes into words; a rest of fewer than eight bytes is left out.
pub fn to_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

/// A file header: magic and version, `N` words, checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<const N: usize> {
    /// The words between version and checksum.
    pub words: [u64; N],
}

impl<const N: usize> Header<N> {
    /// Bytes of the encoded header.
    pub const BYTES: usize = (N + 3) * 8;

    /// The header's words, for a file of this magic.
    #[must_use]
    pub fn encode(&self, magic: &[u8; 8]) -> Vec<u64> {
        let mut words = vec![u64::from_le_bytes(*magic), u64::from(FORMAT_VERSION)];
        words.extend(self.words);
        words.push(u64::from(crc32fast::hash(&to_bytes(&words))));
        words
    }

    /// Reads a header: magic, then checksum, then version.
    ///
    /// # Errors
    /// [`Error::Damaged`] naming the first thing that is wrong; [`Error::Version`] if only the version is.
    pub fn decode(
        bytes: &[u8],
        magic: &[u8; 8],
        path: &Path,
        remedy: &'static str,
    ) -> Result<Self> {
        let damaged = |offset, expected: String, found: String| {
            Err(Error::Damaged {
                path: path.to_path_buf(),
                offset,
                expected,
                found,
                remedy,
            })
        };
        let Some(bytes) = bytes.get(..Self::BYTES) else {
            return damaged(
                0,
                format!("a header of {} bytes", Self::BYTES),
                format!("a file of {}", bytes.len()),
            );
        };
        if bytes[..8] != *magic {
            let text = String::from_utf8_lossy(magic);
            return damaged(
                0,
                format!("the magic `{text}`"),
                format!("{:02x?}", &bytes[..8]),
            );
        }
        let sum_at = Self::BYTES - 8;
        let expected = u64::from(crc32fast::hash(&bytes[..sum_at]));
        let mut all = [0; 8];
        all.copy_from_slice(&bytes[sum_at..]);
        let found = u64::from_le_bytes(all);
        if expected != found {
            return damaged(
                sum_at as u64,
                format!("header checksum {expected:08x}"),
                format!("{found:08x}"),
            );
        }
        let mut words = to_words(&bytes[8..sum_at]);
        let version = words.next().unwrap_or_default();
        if version != u64::from(FORMAT_VERSION) {
            return Err(Error::Version {
                path: path.to_path_buf(),
                expected: FORMAT_VERSION,
                found: version as u32,
            });
        }
        let mut header = Self { words: [0; N] };
        for (to, from) in header.words.iter_mut().zip(words) {
            *to = from;
        }
        Ok(header)
    }
}
