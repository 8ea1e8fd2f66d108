//! Reads lines from files and standard input: raw bytes, of any length, in batches.
//!
//! A batch contains only lines that are already in memory, so the caller can answer it before it
//! waits for more input. A line ends at its delimiter or at the end of its file. The delimiter is
//! not part of the line; a carriage return is.

use crate::compressed;
use crate::descriptor::Ready;
use crate::failure::{Failure, Result};
use crate::key_args::{Origin, Reading};
use crate::key_part::KeyParts;
use crate::own_output::OwnOutput;
use crate::progress::Progress;
use crate::source;
use crate::splitter::{Ending, Found, Splitter};
use crate::stop::Stop;
use crate::trail::Trail;
use crate::waits::Waits;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The size of the first buffer, in bytes; a longer line makes the buffer grow.
const BUFFER_BYTES: usize = 256 << 10;

/// The longest line, and the longest record of CSV, where an unclosed quote is the likely cause,
/// unless the command line says otherwise.
const MOST_LINE_BYTES: u64 = 64 << 20;
const MOST_RECORD_BYTES: u64 = 16 << 20;

/// The path by which messages name standard input.
pub const STDIN: &str = "standard input";

/// The lines of several files, one file after another.
pub struct Input<'a> {
    files: std::vec::IntoIter<PathBuf>,
    /// The lines of the command line that have not been handed out.
    given: std::vec::IntoIter<Vec<u8>>,
    /// The number of those that have been handed out.
    given_lines: u64,
    /// The lines of the command line in the current batch.
    current: Vec<Vec<u8>>,
    source: Option<Box<dyn Read + 'a>>,
    path: PathBuf,
    ending: Ending,
    splitter: Splitter,
    /// Whether the file has handed out no line yet.
    at_begin: bool,
    /// Whether the current batch begins the file.
    begins: bool,
    buffer: Vec<u8>,
    /// Bytes that were read and not yet handed out: `buffer[start..end]`. Its first `searched`
    /// bytes contain no end of a line.
    start: usize,
    end: usize,
    searched: usize,
    at_end: bool,
    /// Whether the bytes behind the last end of a line are a line of their own.
    ends: bool,
    /// Whether they were handed out.
    took_rest: bool,
    /// The bytes of the longest line.
    most_bytes: usize,
    found: Vec<Found>,
    /// Whether compressed files are read as they are.
    plain: bool,
    /// How far the file was read.
    trail: Trail,
    /// Standard output, if answers go there.
    output: OwnOutput,
    waits: Rc<Waits<'a>>,
}

/// Lines that are in memory.
pub struct Batch<'a> {
    /// The file that contains them.
    pub path: &'a Path,
    /// Whether the first of them is the first of its file.
    pub begins_file: bool,
    /// The lines, without their delimiters, each with its number in the file, from 1.
    pub lines: Vec<(u64, &'a [u8])>,
}

impl<'s> Input<'s> {
    /// Creates the input of these files in order, or of the lines of the command line. Reports
    /// missing files, and one to which the answers go, now.
    pub fn new(
        mut origin: Origin,
        reading: &Reading,
        prints_answers: bool,
        stop: &'s Stop,
    ) -> Result<Self> {
        if origin.is_stdin() {
            origin.files.push(PathBuf::from("-"));
        }
        let output = if prints_answers { OwnOutput::new() } else { OwnOutput::none() };
        let total = examine(&origin, &output)?;
        let reads_stdin = origin.files.iter().any(|path| is_stdin(path));
        let progress = Progress::new(total, reads_stdin, prints_answers);
        let printed = prints_answers.then(io::stdout);
        let mut input = Self::of_nothing(reading, Waits::new(stop, printed, progress))?;
        let given: Vec<_> = origin.lines.into_iter().map(OsString::into_vec).collect();
        (input.files, input.given) = (origin.files.into_iter(), given.into_iter());
        input.output = output;
        Ok(input)
    }

    /// Creates the input of an open regular file, from a place on, whose lines answer nothing on
    /// standard output. Its path may name another file by now, or none. Unless `ends`, an
    /// unfinished last line stays there.
    pub fn of_file(
        (file, path): (&File, &Path),
        place: Trail,
        ends: bool,
        reading: &Reading,
        stop: &'s Stop,
    ) -> Result<Self> {
        let failed = |error| Failure::reading(path, &error);
        let is_packed =
            !reading.no_decompress && compressed::is_compressed(file).map_err(failed)?;
        let begin = if is_packed { 0 } else { place.offset() };
        let bytes = file.metadata().map_err(failed)?.len().saturating_sub(begin);
        let progress = Progress::new(Some(bytes), false, false);
        let mut input = Self::of_nothing(reading, Waits::new(stop, None, progress))?;
        let source = source::reopen(file, !is_packed, input.waits.clone(), begin);
        let mut source = source.map_err(failed)?;
        if is_packed {
            Trail::default().read_to(&mut source, place.offset()).map_err(failed)?;
        }
        (input.source, input.path) = (Some(source), path.to_path_buf());
        input.splitter = Splitter::from_line(input.ending, place.next_line().max(1));
        (input.at_begin, input.at_end) = (place.offset() == 0, false);
        (input.trail, input.ends) = (place, ends);
        Ok(input)
    }

    /// Creates an input without lines.
    fn of_nothing(reading: &Reading, waits: Waits<'s>) -> Result<Self> {
        let ending = KeyParts::new(reading)?.ending(reading.delimiter());
        let splitter = Splitter::new(ending);
        let most_bytes = if splitter.is_csv() { MOST_RECORD_BYTES } else { MOST_LINE_BYTES };
        let most_bytes = reading.max_line.unwrap_or(most_bytes);
        Ok(Self {
            files: Vec::new().into_iter(),
            given: Vec::new().into_iter(),
            given_lines: 0,
            current: Vec::new(),
            source: None,
            path: PathBuf::from("the command line"),
            ending,
            splitter,
            at_begin: true,
            begins: false,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            searched: 0,
            at_end: true,
            ends: true,
            took_rest: false,
            most_bytes: usize::try_from(most_bytes).unwrap_or(usize::MAX),
            found: Vec::new(),
            plain: reading.no_decompress,
            trail: Trail::default(),
            output: OwnOutput::none(),
            waits: Rc::new(waits),
        })
    }

    /// Returns how far the current file was handed out.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Returns the number of bytes of an unfinished last line that was not handed out.
    pub fn left(&self) -> usize {
        self.end - self.start
    }

    /// Returns whether an unfinished last line was handed out.
    pub fn took_rest(&self) -> bool {
        self.took_rest
    }

    /// Returns the next lines, at least one and at most `most`; `None` at the end of the last file,
    /// or when a signal asks the command to stop. Calls `before_wait` before it opens or reads a
    /// file, because that may block, and may be the file of the output.
    pub fn next_batch(
        &mut self,
        most: usize,
        mut before_wait: impl FnMut() -> Result<()>,
    ) -> Result<Option<Batch<'_>>> {
        loop {
            if self.waits.stop.signal().is_some() {
                return Ok(None);
            }
            self.find_lines(most);
            if !self.found.is_empty() {
                return Ok(Some(self.batch()));
            }
            before_wait()?;
            if !self.at_end {
                self.fill()?;
            } else if !self.open_next()? {
                return Ok(None);
            }
        }
    }

    /// Moves up to `most` lines from the buffer to `found`.
    fn find_lines(&mut self, most: usize) {
        self.found.clear();
        self.take_given(most);
        if !self.found.is_empty() {
            return self.mark_begin();
        }
        let bytes = &self.buffer[self.start..self.end];
        let (end, searched) = self.splitter.find(bytes, self.searched, most, &mut self.found);
        self.trail.pass(&bytes[..end], self.splitter.next_line());
        self.place(self.start);
        self.start += end;
        self.searched = searched;
        if self.found.is_empty() && self.at_end && self.ends && self.start < self.end {
            self.splitter.rest(&self.buffer[self.start..self.end], &mut self.found);
            let rest = &self.buffer[self.start..self.end];
            self.trail.pass(rest, self.splitter.next_line());
            self.place(self.start);
            self.start = self.end;
            (self.searched, self.took_rest) = (0, true);
        }
        self.mark_begin();
    }

    /// Moves lines of the command line to the batch.
    fn take_given(&mut self, most: usize) {
        self.current = self.given.by_ref().take(most).collect();
        for line in &self.current {
            self.given_lines += 1;
            self.found.push(Found { range: 0..line.len(), number: self.given_lines });
        }
    }

    fn mark_begin(&mut self) {
        self.begins = self.at_begin;
        self.at_begin &= self.found.is_empty();
    }

    /// Converts the ranges of the lines found from offsets behind `offset` to those in the buffer.
    fn place(&mut self, offset: usize) {
        for Found { range, .. } in &mut self.found {
            *range = range.start + offset..range.end + offset;
        }
    }

    fn batch(&self) -> Batch<'_> {
        let lines = self.found.iter().enumerate().map(|(at, Found { range, number })| {
            let text = self.current.get(at).map_or(&self.buffer[..], |line| line);
            (*number, &text[range.clone()])
        });
        Batch { path: &self.path, begins_file: self.begins, lines: lines.collect() }
    }

    /// Reads once, behind the rest of the buffer; reads nothing if a signal asks the command to
    /// stop.
    fn fill(&mut self) -> Result<()> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        // One byte more than the longest line shows whether its end follows.
        let most = self.most_bytes.saturating_add(1);
        if self.end >= most {
            return Err(self.endless());
        }
        if self.end == self.buffer.len() {
            self.buffer.resize((2 * self.end).min(most), 0);
        }
        let limit = self.buffer.len().min(most);
        let count = match source.read(&mut self.buffer[self.end..limit]) {
            Ok(count) => count,
            Err(error) => {
                return match self.waits.ended.take() {
                    Some(Ready::OutputClosed) => Err(Failure::ClosedPipe),
                    // By a signal, which the caller looks for before it reads again.
                    Some(_) => Ok(()),
                    None => Err(Failure::reading(&self.path, &error)),
                };
            }
        };
        self.end += count;
        self.at_end = count == 0;
        Ok(())
    }

    /// Describes a line that is longer than allowed.
    fn endless(&self) -> Failure {
        let (what, hint) = if self.splitter.is_csv() {
            ("record", "; most likely a quote is not closed")
        } else {
            ("line", "")
        };
        Failure::Error(format!(
            "{}: expected the end of the {what} that begins at byte {} within {} bytes, found \
             none{hint}; give a larger --max-line if it is longer",
            self.path.display(),
            self.trail.offset(),
            self.most_bytes
        ))
    }

    /// Opens the next file; returns false if there is none.
    fn open_next(&mut self) -> Result<bool> {
        let Some(path) = self.files.next() else {
            return Ok(false);
        };
        let file = (!is_stdin(&path)).then_some(path.as_path());
        // An output that was empty at the beginning may have lines now.
        file.map_or(Ok(()), |file| self.output.check_path(file))?;
        let opened = source::open(file, self.plain, self.waits.clone());
        self.source = Some(opened.map_err(|error| Failure::reading(&path, &error))?);
        self.path = file.map_or_else(|| PathBuf::from(STDIN), PathBuf::from);
        self.splitter = Splitter::new(self.ending);
        self.trail = Trail::default();
        self.at_begin = true;
        self.at_end = false;
        self.took_rest = false;
        Ok(true)
    }
}

/// Refuses options and files of which [`Input::new`] would return an error, for a caller that has
/// not opened a filter yet.
pub fn check(origin: &Origin, reading: &Reading, prints_answers: bool) -> Result<()> {
    KeyParts::new(reading)?;
    let output = if prints_answers { OwnOutput::new() } else { OwnOutput::none() };
    if origin.is_stdin() {
        return output.check_stdin();
    }
    examine(origin, &output).map(|_| ())
}

/// Reports missing files, and one to which the answers go. Returns the bytes of all files, if all
/// are regular ones.
fn examine(origin: &Origin, output: &OwnOutput) -> Result<Option<u64>> {
    let mut total = Some(0);
    for path in &origin.files {
        if is_stdin(path) {
            output.check_stdin()?;
            total = None;
            continue;
        }
        let metadata = fs::metadata(path).map_err(|error| {
            let hint = if error.kind() == ErrorKind::NotFound { origin.hint } else { "" };
            Failure::Error(format!("cannot read {}: {error}{hint}", path.display()))
        })?;
        output.check_file(path, &metadata)?;
        total = total.filter(|_| metadata.is_file()).map(|sum: u64| sum + metadata.len());
    }
    Ok(total)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::sync::LazyLock;

    #[derive(Parser)]
    struct Reader {
        #[command(flatten)]
        reading: Reading,
    }

    /// Returns one piece per read; the buffer's size is a multiple of the largest piece.
    struct Pieces(std::vec::IntoIter<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let piece = self.0.next().unwrap_or_default();
            into[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn input(pieces: Vec<&'static [u8]>) -> Input<'static> {
        static NEVER: LazyLock<Stop> = LazyLock::new(Stop::never);
        let Reader { reading } = Reader::parse_from(["test"]);
        let mut input = Input::new(Origin::default(), &reading, true, &NEVER).expect("input");
        input.files = Vec::new().into_iter();
        input.source = Some(Box::new(Pieces(pieces.into_iter())));
        input.at_end = false;
        input
    }

    /// Returns all batches, each with the number of its first line and the number of waits before
    /// it.
    fn batches(mut input: Input<'_>, most: usize) -> Vec<(u64, usize, Vec<Vec<u8>>)> {
        let mut all = Vec::new();
        let mut waits = 0;
        loop {
            let wait = || {
                waits += 1;
                Ok(())
            };
            let Some(batch) = input.next_batch(most, wait).expect("batch") else {
                return all;
            };
            let lines = batch.lines.iter().map(|(_, line)| line.to_vec()).collect();
            all.push((batch.lines[0].0, waits, lines));
        }
    }

    fn lines(lines: &[&[u8]]) -> Vec<Vec<u8>> {
        lines.iter().map(|line| line.to_vec()).collect()
    }

    #[test]
    fn complete_lines_are_handed_out_before_the_next_read() {
        let all = batches(input(vec![b"a\nb\nc", b"d\n", b"e"]), 10);
        assert_eq!(
            all,
            [(1, 1, lines(&[b"a", b"b"])), (3, 2, lines(&[b"cd"])), (4, 4, lines(&[b"e"])),]
        );
    }

    #[test]
    fn a_batch_has_at_most_the_requested_lines_and_needs_no_new_read() {
        let all = batches(input(vec![b"a\nb\nc\n"]), 2);
        assert_eq!(all, [(1, 1, lines(&[b"a", b"b"])), (3, 1, lines(&[b"c"]))]);
    }

    #[test]
    fn empty_lines_and_carriage_returns_are_kept() {
        let all = batches(input(vec![b"\na\r\n\n"]), 10);
        assert_eq!(all, [(1, 1, lines(&[b"", b"a\r", b""]))]);
    }

    #[test]
    fn a_line_longer_than_the_buffer_arrives_whole() {
        let piece: &'static [u8] = &[b'x'; 65_536];
        let mut pieces = vec![piece; 7];
        pieces.push(b"\ny\n");
        let all = batches(input(pieces), 10);
        assert_eq!(all, [(1, 8, vec![vec![b'x'; 7 * 65_536], b"y".to_vec()])]);
    }
}
