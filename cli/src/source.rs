//! Opens an input and reads its bytes: waits until they are there, and decompresses gzip, Zstandard
//! and XZ data, which it recognises by their first bytes.
//!
//! Decoders sit on top of the part that waits, so a signal or a closed output ends a wait for
//! compressed input too. A compressed regular file, which no read waits for, is decompressed in a
//! thread of its own.

use crate::descriptor::{self, Ready};
use crate::progress::Progress;
use crate::read_ahead::ReadAhead;
use crate::stop::Stop;
use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use rustix::fs::OFlags;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::cell::Cell;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom, Stdin, Stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

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

/// The first bytes of each format; `?` is a digit from 1 to 9.
const MAGICS: [(&[u8], Format); 11] = [
    (b"\x1f\x8b", Format::Gzip),
    (b"\x28\xb5\x2f\xfd", Format::Zstandard),
    (b"\xfd7zXZ\0", Format::Xz),
    (b"BZh?1AY&SY", BZIP2),
    (b"BZh?\x17\x72\x45\x38\x50\x90", BZIP2),
    (b"\x04\x22\x4d\x18", LZ4),
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

/// Conditions under which a wait for input ends early.
pub struct Waits<'s> {
    /// Indicates whether a signal asks the command to stop.
    pub stop: &'s Stop,
    /// The output whose reader may close it, if there is one.
    pub output: Option<Stdout>,
    /// Why the last wait ended early.
    pub ended: Cell<Option<Ready>>,
    /// Counts the bytes read.
    pub progress: Progress,
}

/// A file or standard input.
enum Raw {
    File(File),
    /// Without the buffer of the standard library: `poll` does not see bytes in that buffer.
    Stdin(Stdin),
}

impl Raw {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(file) => file.as_fd(),
            Self::Stdin(stdin) => stdin.as_fd(),
        }
    }
}

/// Reads a file when it is ready.
struct Waiting<'s> {
    raw: Raw,
    waits: Rc<Waits<'s>>,
}

impl Waits<'_> {
    /// Waits until an input is readable. Fails without a meaningful error if the wait ends early:
    /// [`Waits::ended`] has the reason.
    pub fn wait_for(&self, input: BorrowedFd<'_>) -> io::Result<()> {
        let output = self.output.as_ref().map(AsFd::as_fd);
        match descriptor::wait_to_read(input, self.stop.wake(), output)? {
            Ready::Input => Ok(()),
            early => {
                self.ended.set(Some(early));
                Err(io::Error::other("the wait for input ended early"))
            }
        }
    }
}

impl Read for Waiting<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let waits = &self.waits;
            waits.wait_for(self.raw.descriptor())?;
            match rustix::io::read(self.raw.descriptor(), &mut *into).map_err(io::Error::from) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Ok(count) => {
                    waits.progress.advance(count as u64);
                    return Ok(count);
                }
                error => return error,
            }
        }
    }
}

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

/// Reads an open regular file from this offset on, before decompression. Unless `plain`, reading
/// decompresses what begins there.
pub fn reopen<'s>(
    file: &File,
    plain: bool,
    waits: Rc<Waits<'s>>,
    offset: u64,
) -> io::Result<Box<dyn Read + 's>> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(offset))?;
    Ok(decoded(Raw::File(file), plain, waits, offset))
}

/// Opens a file; `None` is standard input. Unless `plain`, reading decompresses it.
pub fn open<'s>(
    path: Option<&Path>,
    plain: bool,
    waits: Rc<Waits<'s>>,
) -> io::Result<Box<dyn Read + 's>> {
    let raw = match path {
        None => Raw::Stdin(io::stdin()),
        Some(path) => Raw::File(open_file(path)?),
    };
    Ok(decoded(raw, plain, waits, 0))
}

/// Opens a file for reading. A blocking open of a FIFO would wait for its writer, and no signal
/// would end the wait.
pub fn open_file(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).custom_flags(nonblocking).open(path)
}

/// Returns the bytes of an input, which is at this offset, decompressed unless `plain`.
fn decoded<'s>(raw: Raw, plain: bool, waits: Rc<Waits<'s>>, offset: u64) -> Box<dyn Read + 's> {
    if plain {
        return Box::new(Waiting { raw, waits });
    }
    if let Raw::File(file) = &raw
        && let Some(format) = format_of_regular(file, offset)
        // Without a thread it is decompressed in this one.
        && let Ok(ahead) = ReadAhead::new(file, offset, format, waits.clone())
    {
        return Box::new(ahead);
    }
    Box::new(Detecting::Undecided(Waiting { raw, waits }, Vec::new()))
}

/// Returns the format of a regular file that is compressed and read.
fn format_of_regular(file: &File, offset: u64) -> Option<Format> {
    // Files of the kernel's that can be read only once, in order, say that they are empty.
    let holds_more = |found: Metadata| found.is_file() && found.len() > offset;
    if !file.metadata().is_ok_and(holds_more) {
        return None;
    }
    let format = format_of(file, offset).ok()??;
    format.filter(|format| !matches!(format, Format::Unread(_)))
}

/// Decides by the first bytes whether to decompress. Waits for more bytes only while those at hand
/// could begin a format, so a line which is typed in is handed out at once.
enum Detecting<'s, R: Read> {
    Undecided(R, Vec<u8>),
    Decided(Box<dyn Read + 's>),
    /// Left behind by an error.
    Failed,
}

impl<'s, R: Read + 's> Read for Detecting<'s, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Self::Decided(reader) = self {
            return reader.read(into);
        }
        let Self::Undecided(mut inner, mut seen) = std::mem::replace(self, Self::Failed) else {
            return Err(io::Error::other("an earlier read failed"));
        };
        let format = loop {
            let count = inner.read(into)?;
            if seen.is_empty() && decide(&into[..count]) == Some(None) {
                *self = Self::Decided(Box::new(inner));
                return Ok(count);
            }
            seen.extend_from_slice(&into[..count]);
            match decide(&seen) {
                Some(decided) => break decided,
                None if count == 0 => break None,
                None => {}
            }
        };
        let bytes = Cursor::new(seen).chain(inner);
        *self = Self::Decided(match format {
            None => Box::new(bytes),
            Some(format) => Box::new(Decoder::new(format, bytes)?),
        });
        self.read(into)
    }
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
fn decide(seen: &[u8]) -> Option<Option<Format>> {
    let fits = |(wanted, found): (&u8, &u8)| match wanted {
        b'?' => (b'1'..=b'9').contains(found),
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
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    /// Returns one byte per read.
    struct Bytewise<'a>(&'a [u8]);

    impl Read for Bytewise<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(1).min(into.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Detecting::Undecided(Bytewise(bytes), Vec::new()).read_to_end(&mut all)?;
        Ok(all)
    }

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
        let texts =
            [b"BZh?1AY&SY".as_slice(), b"BZh0", b"BZhe", b"LZIP\n", b"PK\n", b"7z\n", b"]\n"];
        for text in texts {
            assert_eq!(decide(text), Some(None));
        }
    }

    #[test]
    fn data_that_only_begins_like_a_format_is_read_as_it_is() {
        for bytes in [b"".as_slice(), b"\x1f", b"\x28\xb5\x2f", b"\xfd7zXy\n", b"(\xb5a\nb\n"] {
            assert_eq!(read(bytes).expect("plain"), bytes);
        }
    }

    #[test]
    fn frames_of_zstandard_follow_each_other_and_skippable_ones_are_left_out() {
        let frame = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
        let skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
        let all = [frame(b"a\nb\n"), skippable.to_vec(), frame(b""), frame(b"c\n")].concat();
        assert_eq!(read(&all).expect("frames"), b"a\nb\nc\n");
        for end in 1..all.len() {
            if let Ok(part) = read(&all[..end]) {
                let whole: [&[u8]; 3] = [b"a\nb\n", &all[..end], b""];
                assert!(whole.contains(&&*part), "{end} bytes are no whole number of frames");
            }
        }
    }
}
