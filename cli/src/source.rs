//! Opens an input and reads its bytes: waits until they are there, and decompresses them.
//!
//! Decoders sit on top of the part that waits, so a signal or a closed output ends a wait for
//! compressed input too. A compressed regular file, which no read waits for, is decompressed in a
//! thread of its own.

use crate::compressed::{Decoder, decide, format_of_regular};
use crate::read_ahead::ReadAhead;
use crate::waits::Waits;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read, Seek, SeekFrom, Stdin};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

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
    let mut raw = match path {
        None => Raw::Stdin(io::stdin()),
        Some(path) => Raw::File(open_file(path)?),
    };
    // Some systems open `/dev/stdin` at the place that has been reached.
    let offset = match &mut raw {
        Raw::File(file) => file.stream_position().unwrap_or(0),
        Raw::Stdin(_) => 0,
    };
    Ok(decoded(raw, plain, waits, offset))
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
        for all in [all.clone(), [&skippable[..], &all].concat()] {
            assert_eq!(read(&all).expect("frames"), b"a\nb\nc\n");
            for end in 1..all.len() {
                if let Ok(part) = read(&all[..end]) {
                    // Fewer bytes than decide on a format are text.
                    let text = if end < 4 { &all[..end] } else { b"" };
                    let whole: [&[u8]; 3] = [b"a\nb\n", text, b""];
                    assert!(whole.contains(&&*part), "{end} bytes are no whole number of frames");
                }
            }
        }
        assert_eq!(read(skippable).expect("a frame"), b"");
        // LZ4 has such frames, too.
        assert!(read(&[&skippable[..], b"\x04\x22\x4d\x18more"].concat()).is_err());
        assert!(read(&[&skippable[..], b"a\nb\n"].concat()).is_err());
    }
}
