//! How far a file was read, so that a later run can continue there, and can tell whether it is the
//! same file.

use std::io::{self, ErrorKind, Read};

/// The bytes in front of a place that must be the same when reading continues there.
pub const CHECKED_BYTES: u64 = 4096;

/// A place in a file, after decompression.
#[derive(Debug, Clone, Default)]
pub struct Trail {
    offset: u64,
    /// The number of the next line, from 1; 0 at the beginning.
    next_line: u64,
    /// The last bytes in front of the offset.
    tail: Vec<u8>,
}

impl Trail {
    /// Returns this place of a file that has not been opened yet.
    pub fn at(offset: u64, next_line: u64) -> Self {
        Self { offset, next_line, tail: Vec::new() }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn next_line(&self) -> u64 {
        self.next_line
    }

    /// Returns the checksum of the bytes in front of the place.
    pub fn check(&self) -> u64 {
        crc32fast::hash(&self.tail).into()
    }

    /// Advances over lines, of which the next one has this number.
    pub fn pass(&mut self, bytes: &[u8], next_line: u64) {
        self.offset += bytes.len() as u64;
        self.next_line = next_line;
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let most = CHECKED_BYTES as usize;
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(most)..]);
        self.tail.drain(..self.tail.len().saturating_sub(most));
    }

    /// Reads up to the place, from a reader that is at `from`. Fails with
    /// [`ErrorKind::UnexpectedEof`] if the file ends before it.
    pub fn skip(&mut self, source: &mut dyn Read, from: u64) -> io::Result<()> {
        let (mut left, mut buffer) = (self.offset.saturating_sub(from), vec![0; 64 << 10]);
        while left > 0 {
            let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match source.read(&mut buffer[..wanted])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => {
                    self.keep(&buffer[..count]);
                    left -= count as u64;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_whether_it_was_read_or_skipped_to() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| ((at * at) >> 3) as u8).collect();
        for end in [0, 1, 4095, 4096, 4097, 19_999, 20_000] {
            let mut read = Trail::default();
            for (number, piece) in (2..).zip(bytes[..end].chunks(700)) {
                read.pass(piece, number);
            }
            let least = (end as u64).saturating_sub(CHECKED_BYTES);
            for from in [0, least] {
                let mut skipped = Trail::at(end as u64, 9);
                skipped.skip(&mut &bytes[from as usize..], from).expect("enough bytes");
                assert_eq!((skipped.offset(), skipped.check()), (read.offset(), read.check()));
            }
        }
        let ended = Trail::at(20_001, 9).skip(&mut &bytes[..], 0).expect_err("too short");
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
    }
}
