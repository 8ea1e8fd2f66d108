//! Compressed data: gzip, Zstandard and XZ, which are recognised by their first bytes and
//! decompressed, and formats that are recognised and refused.

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;

/// A compressed format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Gzip,
    Zstandard,
    Xz,
    /// One that is recognised, and refused.
    Unread(&'static Unread),
}

/// A compressed format that is not read.
#[derive(Debug, PartialEq, Eq)]
pub struct Unread {
    pub name: &'static str,
    /// The program that decompresses it.
    pub program: &'static str,
}

const BZIP2: Format = Format::Unread(&Unread { name: "bzip2", program: "bunzip2" });
const LZ4: Format = Format::Unread(&Unread { name: "lz4", program: "unlz4" });
const LZIP: Format = Format::Unread(&Unread { name: "lzip", program: "lunzip" });
const LZMA: Format = Format::Unread(&Unread { name: "lzma", program: "unlzma" });
const COMPRESS: Format = Format::Unread(&Unread { name: "compress", program: "gunzip" });
const ZIP: Format = Format::Unread(&Unread { name: "zip", program: "unzip" });
const SEVEN_ZIP: Format = Format::Unread(&Unread { name: "7z", program: "7z" });

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is compressed by {}, which is not read", self.name)
    }
}

/// The first bytes of each format; `?` is a digit from 1 to 9, and `_` a byte from 0x50 to 0x5f:
/// with that begins a skippable frame of Zstandard, which the frames of `pzstd` have in front.
const MAGICS: [(&[u8], Format); 13] = [
    (b"\x1f\x8b", Format::Gzip),
    (b"\x28\xb5\x2f\xfd", Format::Zstandard),
    (b"_\x2a\x4d\x18", Format::Zstandard),
    (b"\xfd7zXZ\0", Format::Xz),
    (b"BZh?1AY&SY", BZIP2),
    (b"BZh?\x17\x72\x45\x38\x50\x90", BZIP2),
    (b"\x04\x22\x4d\x18", LZ4),
    (b"\x02\x21\x4c\x18", LZ4),
    (b"LZIP\x01", LZIP),
    (b"\x5d\0\0", LZMA),
    (b"\x1f\x9d", COMPRESS),
    (b"PK\x03\x04", ZIP),
    (b"7z\xbc\xaf\x27\x1c", SEVEN_ZIP),
];

/// The bytes of the longest of them.
const LONGEST: usize = 10;

/// The memory that decompression of XZ may take, in KiB: `xz -9` makes files that need 65 MiB.
const MOST_XZ_KIB: u32 = 256 << 10;

/// Returns whether a file begins like a compressed one.
pub fn is_compressed(file: &File) -> io::Result<bool> {
    Ok(matches!(format_of(file, 0)?, Some(Some(_))))
}

/// Returns whether a file is too short to tell whether it is compressed.
pub fn may_become_compressed(file: &File) -> io::Result<bool> {
    Ok(format_of(file, 0)?.is_none())
}

/// Returns the format of a file that is compressed, and cannot be read for that reason.
pub fn unread(file: &File) -> io::Result<Option<&'static Unread>> {
    match format_of(file, 0)? {
        Some(Some(Format::Unread(format))) => Ok(Some(format)),
        _ => Ok(None),
    }
}

/// As [`decide`], of the bytes of a file from this offset on.
fn format_of(file: &File, offset: u64) -> io::Result<Option<Option<Format>>> {
    let mut first = [0; LONGEST];
    let count = file.read_at(&mut first, offset)?;
    Ok(decide(&first[..count]))
}

/// Returns the format of a regular file that is compressed and read.
pub fn format_of_regular(file: &File, offset: u64) -> Option<Format> {
    // Files of the kernel's that can be read only once, in order, say that they are empty.
    let holds_more = |found: Metadata| found.is_file() && found.len() > offset;
    if !file.metadata().is_ok_and(holds_more) {
        return None;
    }
    let format = format_of(file, offset).ok()??;
    format.filter(|format| !matches!(format, Format::Unread(_)))
}

/// The content of compressed data.
#[expect(clippy::large_enum_variant, reason = "there is one for each file")]
pub enum Decoder<R: Read> {
    Gzip(Members<BufReader<R>>),
    Zstandard(Frames<BufReader<R>>),
    Xz(XzReader<BufReader<R>>),
}

impl<R: Read> Decoder<R> {
    /// Creates the content of data in this format; an error if it is not read.
    pub fn new(format: Format, source: R) -> io::Result<Self> {
        let source = BufReader::new(source);
        match format {
            Format::Gzip => Ok(Self::Gzip(Members::new(source))),
            Format::Zstandard => Ok(Self::Zstandard(Frames::new(source))),
            Format::Xz => Ok(Self::Xz(XzReader::new_mem_limit(source, true, MOST_XZ_KIB))),
            Format::Unread(unread) => Err(io::Error::other(format!(
                "{unread}; decompress it by {}, or give --no-decompress to read it as it is",
                unread.program
            ))),
        }
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(content) => content.read(into),
            Self::Zstandard(content) => content.read(into),
            Self::Xz(content) => content.read(into),
        }
    }
}

/// Returns the format of data that begins with these bytes, `Some(None)` if it is not compressed;
/// `None` if more bytes are needed.
pub fn decide(seen: &[u8]) -> Option<Option<Format>> {
    let fits = |(wanted, found): (&u8, &u8)| match wanted {
        b'?' => (b'1'..=b'9').contains(found),
        b'_' => (0x50..=0x5f).contains(found),
        wanted => wanted == found,
    };
    let possible = MAGICS.iter().find(|(magic, _)| magic.iter().zip(seen).all(fits));
    match possible {
        Some((magic, format)) => (seen.len() >= magic.len()).then_some(Some(*format)),
        None => Some(None),
    }
}

/// The content of gzip members, one after another. As `gzip` does, it skips zero bytes behind a
/// member: media with blocks of a fixed size pad the last one.
pub struct Members<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Members<R> {
    fn new(source: R) -> Self {
        Self(Some(GzDecoder::new(source)))
    }

    /// Begins the next member; returns false at the end of the data.
    fn begin(&mut self) -> io::Result<bool> {
        let Some(decoder) = &mut self.0 else { return Ok(false) };
        let source = decoder.get_mut();
        loop {
            let bytes = source.fill_buf()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            if bytes.is_empty() {
                return Ok(false);
            }
            if zeros == 0 {
                break;
            }
            source.consume(zeros);
        }
        self.0 = self.0.take().map(|decoder| GzDecoder::new(decoder.into_inner()));
        Ok(true)
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while let Some(decoder) = &mut self.0 {
            let count = decoder.read(into)?;
            if count > 0 || !self.begin()? {
                return Ok(count);
            }
        }
        Ok(0)
    }
}

/// The content of Zstandard frames, one after another; skippable frames are skipped.
pub struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), inside: false }
    }

    /// Begins the next frame; returns false at the end of the data.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => {
                    self.inside = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let wanted = u64::from(length);
                    let skipped = io::copy(&mut self.source.by_ref().take(wanted), &mut io::sink());
                    if skipped? < wanted {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Ends a frame whose content has been read: compares its checksum, if it has one.
    fn end(&mut self) -> io::Result<()> {
        self.inside = false;
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(ErrorKind::InvalidData, "a wrong checksum of a zstd frame"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while self.inside || self.begin()? {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
            }
            match self.decoder.read(into)? {
                0 => self.end()?,
                count => return Ok(count),
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decided_at_the_first_byte_that_no_format_begins_with() {
        assert_eq!(decide(b""), None);
        assert_eq!(decide(b"a"), Some(None));
        assert_eq!(decide(b"\x1f"), None);
        assert_eq!(decide(b"\x1f\x8b"), Some(Some(Format::Gzip)));
        assert_eq!(decide(b"\xfd7zX"), None);
        assert_eq!(decide(b"\xfd7zY"), Some(None));
        assert_eq!(decide(b"BZh91AY&S"), None);
        assert_eq!(decide(b"BZh91AY&SY"), Some(Some(BZIP2)));
        assert_eq!(decide(b"BZh9\x17\x72\x45\x38\x50\x90more"), Some(Some(BZIP2)));
        assert_eq!(decide(b"\x1f\x9d\x90"), Some(Some(COMPRESS)));
        assert_eq!(decide(b"]\0\0\x80\0"), Some(Some(LZMA)));
        assert_eq!(decide(b"\x02\x21\x4c\x18"), Some(Some(LZ4)));
        assert_eq!(decide(b"PK\x03\x04"), Some(Some(ZIP)));
        let texts =
            [b"BZh?1AY&SY".as_slice(), b"BZh0", b"BZhe", b"LZIP\n", b"PK\n", b"7z\n", b"]\n"];
        for text in texts {
            assert_eq!(decide(text), Some(None));
        }
    }

    #[test]
    fn zstandard_may_begin_with_any_of_sixteen_skippable_frames() {
        for first in 0x50..=0x5f {
            let magic = [first, 0x2a, 0x4d, 0x18];
            for end in 1..magic.len() {
                assert_eq!(decide(&magic[..end]), None, "{first:x}, {end} bytes");
            }
            assert_eq!(decide(&magic), Some(Some(Format::Zstandard)), "{first:x}");
        }
        for text in [b"O*M\x18".as_slice(), b"`*M\x18", b"P*M\n"] {
            assert_eq!(decide(text), Some(None));
        }
        for text in [b"P*\n".as_slice(), b"X\n", b"X*M\n", b"_x", b"P\0"] {
            assert_eq!(decide(text), Some(None));
        }
    }
}
