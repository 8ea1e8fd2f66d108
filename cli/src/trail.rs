//! How far a file was read, so that a later run can continue there, and can tell whether it is the
//! same file.

use std::io::{self, ErrorKind, Read};

/// The bytes in front of a place whose checksum is kept separately.
pub const CHECKED_BYTES: u64 = 4096;

/// A place in a file, after decompression.
#[derive(Debug, Clone, Default)]
pub struct Trail {
    offset: u64,
    /// The number of the next line, from 1; 0 at the beginning.
    next_line: u64,
    /// The checksum of all bytes in front of the offset.
    whole: u32,
    /// The last bytes in front of the offset.
    tail: Vec<u8>,
}

impl Trail {
    /// Returns the place behind these last bytes, in front of which all bytes have this checksum:
    /// the upper half of a [check](Trail::check).
    pub fn resumed(offset: u64, next_line: u64, check: u64, tail: Vec<u8>) -> Self {
        Self { offset, next_line, whole: (check >> 32) as u32, tail }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the place with this number of its next line.
    pub fn at_line(self, next_line: u64) -> Self {
        Self { next_line, ..self }
    }

    pub fn next_line(&self) -> u64 {
        self.next_line
    }

    /// Returns the checksum of all bytes in front of the place, as the upper half, and that of the
    /// last [`CHECKED_BYTES`] of them.
    pub fn check(&self) -> u64 {
        u64::from(self.whole) << 32 | u64::from(crc32fast::hash(&self.tail))
    }

    /// Returns the last bytes in front of the place, at most [`CHECKED_BYTES`].
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Advances over bytes, behind which this line is next.
    pub fn pass(&mut self, bytes: &[u8], next_line: u64) {
        self.offset += bytes.len() as u64;
        self.next_line = next_line;
        let mut whole = crc32fast::Hasher::new_with_initial(self.whole);
        whole.update(bytes);
        self.whole = whole.finalize();
        let most = CHECKED_BYTES as usize;
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(most)..]);
        self.tail.drain(..self.tail.len().saturating_sub(most));
    }

    /// Reads on to this offset, or to the end of the source; counts no lines.
    pub fn read_to(&mut self, source: &mut dyn Read, offset: u64) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        while self.offset < offset {
            let left = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
            let wanted = buffer.len().min(left);
            match source.read(&mut buffer[..wanted]) {
                Ok(0) => break,
                Ok(count) => self.pass(&buffer[..count], self.next_line),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_in_whatever_pieces_it_was_read() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| ((at * at) >> 3) as u8).collect();
        for end in [0, 1, 4095, 4096, 4097, 19_999, 20_000] {
            let mut read = Trail::default();
            for (number, piece) in (2..).zip(bytes[..end].chunks(700)) {
                read.pass(piece, number);
            }
            let mut skipped = Trail::default();
            skipped.read_to(&mut &bytes[..], end as u64).expect("bytes in memory");
            assert_eq!((skipped.offset(), skipped.check()), (read.offset(), read.check()));
            let tail = bytes[end.saturating_sub(4096)..end].to_vec();
            let mut resumed = Trail::resumed(end as u64, 9, read.check(), tail);
            resumed.pass(b"more", 10);
            read.pass(b"more", 10);
            assert_eq!(resumed.check(), read.check());
        }
        let mut all = Trail::default();
        all.read_to(&mut &bytes[..], 20_001).expect("bytes in memory");
        assert_eq!(all.offset(), 20_000, "the end of the source");
    }

    #[test]
    fn other_bytes_far_in_front_change_the_check() {
        let bytes = vec![7; 20_000];
        let mut other = bytes.clone();
        other[3] = 8;
        let check = |bytes: &[u8]| {
            let mut trail = Trail::default();
            trail.pass(bytes, 1);
            trail.check()
        };
        assert_ne!(check(&bytes), check(&other));
        assert_eq!(check(&bytes) as u32, check(&other) as u32, "their last bytes are the same");
    }
}
