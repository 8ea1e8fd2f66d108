//! Finds the lines in a buffer: each ends at a delimiter or at the end of the input. A record of
//! CSV is one line, also if a quoted field in it contains newlines.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};
use std::ops::Range;

/// What ends a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// This byte.
    Byte(u8),
    /// A newline outside the quotes of CSV, whose columns this byte separates.
    Record(u8),
}

/// A line in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The bytes, without the delimiter.
    pub range: Range<usize>,
    /// The number of the line in the input, from 1; of a record its first line.
    pub number: u64,
}

/// Splits one input.
pub struct Splitter {
    ending: Ending,
    parser: Reader,
    /// The number of the next line.
    next: u64,
}

impl Splitter {
    /// Begins an input.
    pub fn new(ending: Ending) -> Self {
        let separator = if let Ending::Record(separator) = ending { separator } else { b',' };
        Self { ending, parser: parser(separator), next: 1 }
    }

    /// Begins in the middle of an input, at a line of this number.
    pub fn from_line(ending: Ending, next: u64) -> Self {
        Self { next, ..Self::new(ending) }
    }

    /// Returns the number of the next line.
    pub fn next_line(&self) -> u64 {
        self.next
    }

    /// Returns whether lines are records of CSV.
    pub fn is_csv(&self) -> bool {
        matches!(self.ending, Ending::Record(_))
    }

    /// Finds up to `most` lines that end in `buffer`. `searched` bytes at its beginning belong to
    /// an unfinished line and have been searched before. Returns the end of the last line with its
    /// delimiter, 0 if there is none, and the number of bytes behind it that have been searched:
    /// the next call must pass it.
    pub fn find(
        &mut self,
        buffer: &[u8],
        searched: usize,
        most: usize,
        lines: &mut Vec<Found>,
    ) -> (usize, usize) {
        let (mut start, mut at) = (0, searched);
        match self.ending {
            Ending::Byte(byte) => {
                let ends = memchr::memchr_iter(byte, &buffer[searched..]).take(most);
                for end in ends.map(|at| searched + at) {
                    lines.push(Found { range: start..end, number: self.next });
                    self.next += 1;
                    start = end + 1;
                }
                at = if lines.len() < most { buffer.len() } else { start };
            }
            Ending::Record(_) => {
                while lines.len() < most {
                    let Some(end) = self.record_end(buffer, &mut at) else { break };
                    self.push(buffer, start..end - 1, lines);
                    start = end;
                }
                // Blank lines belong to no record, so none is waited for.
                let blank = buffer[start..].iter().take_while(|byte| **byte == b'\n').count();
                self.next += blank as u64;
                start += blank;
                at = at.max(start);
            }
        }
        (start, at - start)
    }

    /// Adds the rest of an input as its last line, if there is any.
    pub fn rest(&mut self, buffer: &[u8], lines: &mut Vec<Found>) {
        match self.ending {
            Ending::Byte(_) if buffer.is_empty() => {}
            Ending::Byte(_) => {
                lines.push(Found { range: 0..buffer.len(), number: self.next });
                self.next += 1;
            }
            Ending::Record(_) => self.push(buffer, 0..buffer.len(), lines),
        }
    }

    /// Adds a record without the blank lines in front of it; blank lines alone are no record.
    fn push(&mut self, buffer: &[u8], range: Range<usize>, lines: &mut Vec<Found>) {
        let blank = buffer[range.clone()].iter().take_while(|byte| b"\r\n".contains(byte)).count();
        let newlines = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
        let begin = range.start + blank;
        let number = self.next + newlines(&buffer[range.start..begin]);
        self.next = number + newlines(&buffer[begin..range.end]) + 1;
        if begin < range.end {
            lines.push(Found { range: begin..range.end, number });
        }
    }

    /// Returns the end of the next record behind `at`, with its newline; `None` if the buffer ends
    /// before it.
    fn record_end(&mut self, buffer: &[u8], at: &mut usize) -> Option<usize> {
        let (mut fields, mut ends) = ([0; 1024], [0; 64]);
        while *at < buffer.len() {
            let (result, read, ..) =
                self.parser.read_record(&buffer[*at..], &mut fields, &mut ends);
            *at += read;
            if result == ReadRecordResult::Record {
                return Some(*at);
            }
        }
        None
    }
}

/// Returns a parser of CSV (RFC 4180) whose columns this byte separates.
fn parser(separator: u8) -> Reader {
    ReaderBuilder::new().delimiter(separator).terminator(Terminator::Any(b'\n')).build()
}

/// Passes the fields of a record to `each`, unquoted, until it returns false. Returns whether all
/// quotes of the record are closed.
pub fn fields(record: &[u8], separator: u8, mut each: impl FnMut(&[u8]) -> bool) -> bool {
    let record = record.strip_suffix(b"\r").unwrap_or(record);
    let mut parser = parser(separator);
    let (mut text, mut ends) = (vec![0; record.len() + 1], vec![0; record.len() + 2]);
    let (ended, _, written, found) = parser.read_record(record, &mut text, &mut ends);
    // A newline ends the record, unless it is within quotes.
    let (after, _, more, last) =
        parser.read_record(b"\n", &mut text[written..], &mut ends[found..]);
    let is_closed = record.is_empty() || [ended, after].contains(&ReadRecordResult::Record);
    let mut start = 0;
    for &end in ends[..found + last].iter().chain((found + last == 0).then_some(&(written + more)))
    {
        if !each(&text[start..end]) {
            break;
        }
        start = end;
    }
    is_closed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a text that arrives in pieces of this size, with their numbers.
    fn lines(text: &[u8], ending: Ending, piece: usize) -> Vec<(u64, Vec<u8>)> {
        let mut splitter = Splitter::new(ending);
        let (mut all, mut kept, mut searched) = (Vec::new(), Vec::new(), 0);
        let mut take = |found: Vec<Found>, kept: &[u8]| {
            all.extend(found.into_iter().map(|line| (line.number, kept[line.range].to_vec())));
        };
        for bytes in text.chunks(piece) {
            kept.extend_from_slice(bytes);
            loop {
                let mut found = Vec::new();
                let (end, rest) = splitter.find(&kept, searched, 2, &mut found);
                let is_full = found.len() == 2;
                take(found, &kept);
                kept.drain(..end);
                searched = rest;
                if !is_full {
                    break;
                }
            }
        }
        let mut found = Vec::new();
        splitter.rest(&kept, &mut found);
        take(found, &kept);
        all
    }

    #[test]
    fn blank_lines_behind_a_record_are_passed_without_the_next_one() {
        let (mut splitter, mut searched) = (Splitter::new(Ending::Record(b',')), 0);
        for (text, end, expected) in [
            (&b"a\n\n\r\n\n"[..], 6, &[(0..1, 1)][..]),
            (b"\n\"b\n", 1, &[]),
            (b"\"b\n\"\n\nc\nd", 8, &[(0..4, 6), (6..7, 9)]),
        ] {
            let mut lines = Vec::new();
            let (found, unfinished) = splitter.find(text, searched, 9, &mut lines);
            searched = unfinished;
            let lines: Vec<_> = lines.into_iter().map(|line| (line.range, line.number)).collect();
            assert_eq!((found, &lines[..]), (end, expected), "{text:?}");
        }
    }

    fn record_fields(record: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        fields(record, b',', |field| {
            all.push(field.to_vec());
            true
        });
        all
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text = b"id,text\r\n1,\"a\nb\"\n\n2,\"say \"\"hi\"\"\n\n\"\r\n\"3\",5\" pipe\n4,last";
        let records = [
            (1, b"id,text\r".to_vec()),
            (2, b"1,\"a\nb\"".to_vec()),
            (5, b"2,\"say \"\"hi\"\"\n\n\"\r".to_vec()),
            (8, b"\"3\",5\" pipe".to_vec()),
            (9, b"4,last".to_vec()),
        ];
        for piece in 1..=text.len() {
            assert_eq!(lines(text, Ending::Record(b','), piece), records, "pieces of {piece}");
        }
        let plain = [(1, b"a".to_vec()), (2, b"".to_vec()), (3, b"b\r".to_vec())];
        for piece in 1..7 {
            assert_eq!(lines(b"a\n\nb\r", Ending::Byte(b'\n'), piece), plain);
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_is_distinguished_from_others() {
        let is_closed = |record: &[u8]| fields(record, b',', |_| false);
        for record in [&b"1,\"oops\n2,y"[..], b"\"", b"1,\"a\"\"", b"1,\"a\r"] {
            assert!(!is_closed(record), "{:?}", String::from_utf8_lossy(record));
        }
        for record in
            [&b""[..], b"a", b"\r", b"\"\"", b"1,\"a\"\r", b"5\" pipe", b"\"a\"b\",", b","]
        {
            assert!(is_closed(record), "{:?}", String::from_utf8_lossy(record));
        }
    }

    #[test]
    fn fields_are_unquoted_and_carriage_returns_at_the_end_are_not_part_of_them() {
        assert_eq!(record_fields(b"a,\"b,\"\"c\"\"\n\",d\r"), [&b"a"[..], b"b,\"c\"\n", b"d"]);
        assert_eq!(record_fields(b"1,\"x\"\r"), [&b"1"[..], b"x"]);
        assert_eq!(record_fields(b",,"), [&b""[..], b"", b""]);
        assert_eq!(record_fields(b"\"\""), [&b""[..]]);
        assert_eq!(record_fields(b"5\" pipe,2"), [&b"5\" pipe"[..], b"2"]);
    }
}
