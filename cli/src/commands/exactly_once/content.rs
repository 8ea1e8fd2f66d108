//! Recognises a file by its content, after decompression: whether it begins with the bytes that an
//! earlier run has read.

use super::positions::Entry;
use crate::compressed::{self, Unread};
use crate::progress::Progress;
use crate::source;
use crate::stop::Stop;
use crate::trail::{CHECKED_BYTES, Trail};
use crate::waits::Waits;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// The longest part of a file that is compared as a whole at every run. Of a longer one only the
/// last bytes are compared, unless it is compressed or has another inode.
const WHOLE_BYTES: u64 = 64 << 20;

/// Reads the content of files.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    /// Ends a long comparison.
    pub stop: &'a Stop,
    /// Whether compressed files are read as they are.
    pub plain: bool,
}

impl Content<'_> {
    /// Returns whether a file is read decompressed.
    pub fn is_packed(&self, file: &File) -> io::Result<bool> {
        Ok(!self.plain && compressed::is_compressed(file)?)
    }

    /// Returns the format of a file that cannot be read because it is compressed by that.
    pub fn unread(&self, file: &File) -> io::Result<Option<&'static Unread>> {
        if self.plain { Ok(None) } else { compressed::unread(file) }
    }

    fn waits(&self) -> Rc<Waits<'_>> {
        Rc::new(Waits::new(self.stop, None, Progress::hidden()))
    }

    fn open(&self, file: &File) -> io::Result<Box<dyn Read + '_>> {
        source::reopen(file, !self.is_packed(file)?, self.waits(), 0)
    }

    /// Returns the place at this offset, or at the end of a shorter file.
    pub fn up_to(&self, file: &File, offset: u64) -> io::Result<Trail> {
        let mut trail = Trail::default();
        trail.read_to(&mut self.open(file)?, offset)?;
        Ok(trail)
    }

    /// Returns whether a file is compressed, whole, and holds nothing.
    pub fn is_packed_nothing(&self, file: &File) -> io::Result<bool> {
        if !self.is_packed(file)? {
            return Ok(false);
        }
        match self.up_to(file, 1) {
            Ok(trail) => Ok(trail.offset() == 0),
            Err(error) if self.stop.signal().is_some() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Reads on to this offset, to the end, or to where the content cannot be decompressed further.
    fn decode(&self, trail: &mut Trail, source: &mut dyn Read, offset: u64) -> io::Result<()> {
        match trail.read_to(source, offset) {
            Err(error) if self.stop.signal().is_none() && error.raw_os_error().is_none() => Ok(()),
            read => read,
        }
    }

    /// Returns the end of a file, or the place behind which it cannot be decompressed.
    pub fn end(&self, file: &File) -> io::Result<Trail> {
        let mut trail = Trail::default();
        self.decode(&mut trail, &mut self.open(file)?, u64::MAX)?;
        Ok(trail)
    }

    /// Returns the end of the last line in front of a place, if it is near: an unfinished line may
    /// get its end.
    pub fn line_end(&self, file: &File, place: Trail, end: u8) -> io::Result<Trail> {
        let tail = place.tail();
        let behind = tail.iter().rposition(|byte| *byte == end).map(|at| tail.len() - at - 1);
        match behind {
            Some(0) => Ok(place),
            Some(behind) => self.up_to(file, place.offset() - behind as u64),
            None if place.offset() <= CHECKED_BYTES => Ok(Trail::default()),
            None => Ok(place),
        }
    }

    /// Returns the place of an entry in the file of the same identity; `None` if its content is
    /// another one, which may be a compressed file that is not whole yet.
    pub fn of_same_file(&self, file: &File, entry: &Entry) -> io::Result<Option<Trail>> {
        if entry.offset <= WHOLE_BYTES || self.is_packed(file)? {
            let mut trail = Trail::default();
            self.decode(&mut trail, &mut self.open(file)?, entry.offset)?;
            let is_same = trail.offset() == entry.offset && trail.check() == entry.check;
            return Ok(is_same.then(|| trail.at_line(entry.lines)));
        }
        let mut tail = vec![0; CHECKED_BYTES as usize];
        match file.read_exact_at(&mut tail, entry.offset - CHECKED_BYTES) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let trail = Trail::resumed(entry.offset, entry.lines, entry.check, tail);
        Ok((trail.check() == entry.check).then_some(trail))
    }

    /// Returns which of these entries a file begins with, each with its place; reads it once, and
    /// nothing of a plain one that has other bytes in front of all these places. A file that cannot
    /// be decompressed further ends there.
    pub fn matching(&self, file: &File, entries: &[Entry]) -> io::Result<Vec<(usize, Trail)>> {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        let is_packed = self.is_packed(file)?;
        order.retain(|&at| is_packed || has_tail(file, &entries[at]));
        if order.is_empty() {
            return Ok(Vec::new());
        }
        order.sort_by_key(|&at| entries[at].offset);
        let (mut source, mut trail) = (self.open(file)?, Trail::default());
        let mut found = Vec::new();
        for at in order {
            let entry = &entries[at];
            let read = trail.read_to(&mut source, entry.offset);
            if self.stop.signal().is_some() {
                read?;
            } else if read.is_err() {
                break;
            }
            if trail.offset() == entry.offset && trail.check() == entry.check {
                found.push((at, trail.clone().at_line(entry.lines)));
            }
        }
        Ok(found)
    }

    /// Returns the end of all of a file, with which another one begins; `None` if that begins
    /// otherwise, or is shorter. If it may be `unfinished`, it ends where it cannot be decompressed
    /// further; otherwise it begins nothing then.
    pub fn beginning(
        &self,
        part: &File,
        whole: &File,
        unfinished: bool,
    ) -> io::Result<Option<Trail>> {
        if self.unread(part)?.is_some() {
            return Ok(None);
        }
        if unfinished && !self.plain && compressed::may_become_compressed(part)? {
            return Ok(Some(Trail::default()));
        }
        let (mut part, mut whole) = (self.open(part)?, self.open(whole)?);
        let (mut read, mut of_whole) = (vec![0; 64 << 10], Trail::default());
        let mut of_part = Trail::default();
        loop {
            match part.read(&mut read) {
                Ok(count) if count > 0 => of_part.pass(&read[..count], 0),
                Err(error) if self.stop.signal().is_some() => return Err(error),
                Err(_) if !unfinished => return Ok(None),
                _ => return Ok(Some(of_part)),
            }
            self.decode(&mut of_whole, &mut whole, of_part.offset())?;
            if (of_whole.offset(), of_whole.check()) != (of_part.offset(), of_part.check()) {
                return Ok(None);
            }
        }
    }

    /// Returns whether there are only blank lines in front of a place: no header of a table.
    pub fn is_blank_before(&self, file: &File, place: &Trail) -> io::Result<bool> {
        let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| b"\r\n".contains(byte));
        if !is_blank(place.tail()) || place.offset() <= CHECKED_BYTES {
            return Ok(is_blank(place.tail()));
        }
        let (mut source, mut bytes) = (self.open(file)?.take(place.offset()), vec![0; 64 << 10]);
        loop {
            match source.read(&mut bytes)? {
                0 => return Ok(true),
                count if is_blank(&bytes[..count]) => {}
                _ => return Ok(false),
            }
        }
    }

    /// Returns the byte at this offset; `None` at the end.
    pub fn byte_at(&self, file: &File, offset: u64) -> io::Result<Option<u8>> {
        let mut source = self.open(file)?;
        if self.is_packed(file)? {
            Trail::default().read_to(&mut source, offset)?;
        } else {
            source = source::reopen(file, true, self.waits(), offset)?;
        }
        let mut byte = [0];
        Ok((source.read(&mut byte)? == 1).then_some(byte[0]))
    }
}

/// Returns whether a plain file has the last bytes of an entry in front of its place.
fn has_tail(file: &File, entry: &Entry) -> bool {
    let length = entry.offset.min(CHECKED_BYTES);
    let mut tail = vec![0; length as usize];
    let read = file.read_exact_at(&mut tail, entry.offset - length);
    read.is_ok() && crc32fast::hash(&tail) == entry.check as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    #[test]
    fn of_a_plain_file_with_other_bytes_in_front_of_all_places_nothing_else_is_read() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| ((at * at) >> 3) as u8).collect();
        let stop = Stop::never();
        let content = Content { stop: &stop, plain: false };
        let entry = |bytes: &[u8]| {
            let (mut entry, mut trail) = (Entry::new(1, b"h.log"), Trail::default());
            trail.pass(bytes, 7);
            entry.advance(&trail);
            entry
        };
        let mut other = bytes[..9000].to_vec();
        other[3] ^= 1;
        let entries = [&bytes[..5], &bytes[..4096], &other[..], &bytes[..15_000]].map(entry);
        let matching = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(bytes).expect("space");
            file.seek(SeekFrom::Start(1)).expect("a place");
            let found = content.matching(&file, &entries).expect("it is read");
            let found: Vec<_> = found.iter().map(|(at, it)| (*at, it.next_line())).collect();
            // Only reading the whole moves the place.
            (found, file.stream_position().expect("a place") != 1)
        };
        assert_eq!(matching(&bytes), (vec![(0, 7), (1, 7), (3, 7)], true));
        assert_eq!(matching(&bytes[..14_999]), (vec![(0, 7), (1, 7)], true));
        // Its last bytes are the same, and those in front of them are not.
        assert_eq!(matching(&[b"x".as_slice(), &bytes[1..9000]].concat()), (vec![], true));
        assert_eq!(matching(&bytes[..4]), (vec![], false));
        assert_eq!(matching(&b"other".repeat(9000)), (vec![], false));
    }
}
