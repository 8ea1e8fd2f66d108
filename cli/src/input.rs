//! Reads lines from files and standard input: raw bytes, of any length, in batches.
//!
//! A batch contains only lines that are already in memory, so the caller can answer it before it
//! waits for more input. A line ends at its delimiter or at the end of its file. The delimiter is
//! not part of the line; a carriage return is.

use crate::descriptor::{self, Ready};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::stop::Stop;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Stdin, Stdout};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The size of the first buffer, in bytes; a longer line makes the buffer grow.
const BUFFER_BYTES: usize = 256 << 10;

/// A source of bytes for lines.
trait Source: Read {
    /// Returns the descriptor to wait for; `None` if reading never blocks.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

impl Source for File {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// Standard input without the buffer of the standard library: `poll` does not see bytes in that
/// buffer.
struct Unbuffered(Stdin);

impl Read for Unbuffered {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, into)?)
    }
}

impl Source for Unbuffered {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// The lines of several files, one file after another.
pub struct Input<'a> {
    files: std::vec::IntoIter<PathBuf>,
    source: Option<Box<dyn Source>>,
    path: PathBuf,
    delimiter: u8,
    buffer: Vec<u8>,
    /// Bytes that were read and not yet handed out: `buffer[start..end]`. Its first `searched`
    /// bytes contain no delimiter.
    start: usize,
    end: usize,
    searched: usize,
    at_end: bool,
    /// The number of lines handed out of this file, including the current batch.
    lines: u64,
    ranges: Vec<Range<usize>>,
    progress: Progress,
    /// Conditions that end the reading before the input does: a signal, or a closed output.
    stop: &'a Stop,
    output: Option<Stdout>,
}

/// Lines that are in memory.
pub struct Batch<'a> {
    /// The file that contains them.
    pub path: &'a Path,
    /// The number of the first line, from 1.
    pub first_line: u64,
    /// The lines, without their delimiters.
    pub lines: Vec<&'a [u8]>,
}

impl<'s> Input<'s> {
    /// Creates the input of these files in order; `-` and an empty list mean standard input.
    /// Reports missing files now.
    pub fn new(
        mut files: Vec<PathBuf>,
        delimiter: u8,
        prints_answers: bool,
        stop: &'s Stop,
    ) -> Result<Self> {
        if files.is_empty() {
            files.push(PathBuf::from("-"));
        }
        let mut total = Some(0);
        for path in &files {
            if is_stdin(path) {
                total = None;
                continue;
            }
            let metadata = fs::metadata(path).map_err(|error| Failure::reading(path, &error))?;
            total = total.filter(|_| metadata.is_file()).map(|sum: u64| sum + metadata.len());
        }
        let reads_stdin = files.iter().any(|path| is_stdin(path));
        Ok(Self {
            files: files.into_iter(),
            source: None,
            path: PathBuf::new(),
            delimiter,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            searched: 0,
            at_end: true,
            lines: 0,
            ranges: Vec::new(),
            progress: Progress::new(total, reads_stdin, prints_answers),
            stop,
            output: prints_answers.then(io::stdout),
        })
    }

    /// Returns the next lines, at least one and at most `most`; `None` at the end of the last file,
    /// or when a signal asks the command to stop. Calls `before_wait` before it reads, because
    /// reading may block.
    pub fn next_batch(
        &mut self,
        most: usize,
        mut before_wait: impl FnMut() -> Result<()>,
    ) -> Result<Option<Batch<'_>>> {
        loop {
            if self.stop.signal().is_some() {
                return Ok(None);
            }
            self.find_lines(most);
            if !self.ranges.is_empty() {
                return Ok(Some(self.batch()));
            }
            if !self.at_end {
                before_wait()?;
                self.fill()?;
            } else if !self.open_next()? {
                return Ok(None);
            }
        }
    }

    /// Moves up to `most` lines from the buffer to `ranges`.
    fn find_lines(&mut self, most: usize) {
        self.ranges.clear();
        let from = self.start + self.searched;
        for at in memchr::memchr_iter(self.delimiter, &self.buffer[from..self.end]).take(most) {
            self.ranges.push(self.start..from + at);
            self.start = from + at + 1;
        }
        if self.ranges.is_empty() {
            self.searched = self.end - self.start;
            if self.at_end && self.start < self.end {
                self.ranges.push(self.start..self.end);
                self.start = self.end;
                self.searched = 0;
            }
        } else {
            self.searched = 0;
        }
        self.lines += self.ranges.len() as u64;
    }

    fn batch(&self) -> Batch<'_> {
        Batch {
            path: &self.path,
            first_line: self.lines - self.ranges.len() as u64 + 1,
            lines: self.ranges.iter().map(|range| &self.buffer[range.clone()]).collect(),
        }
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
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        let count = loop {
            if let Some(descriptor) = source.descriptor() {
                let output = self.output.as_ref().map(AsFd::as_fd);
                match descriptor::wait_to_read(descriptor, self.stop.wake(), output) {
                    Ok(Ready::Input) => {}
                    Ok(Ready::Stopped) => return Ok(()),
                    Ok(Ready::OutputClosed) => return Err(Failure::ClosedPipe),
                    Err(error) => return Err(Failure::reading(&self.path, &error)),
                }
            }
            match source.read(&mut self.buffer[self.end..]) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(Failure::reading(&self.path, &error)),
                Ok(count) => break count,
            }
        };
        self.end += count;
        self.at_end = count == 0;
        self.progress.advance(count as u64);
        Ok(())
    }

    /// Opens the next file; returns false if there is none.
    fn open_next(&mut self) -> Result<bool> {
        let Some(path) = self.files.next() else {
            return Ok(false);
        };
        if is_stdin(&path) {
            self.path = PathBuf::from("standard input");
            self.source = Some(Box::new(Unbuffered(io::stdin())));
        } else {
            // A blocking open of a FIFO would wait for its writer, and no signal would end the
            // wait.
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let file = File::options().read(true).custom_flags(nonblocking).open(&path);
            self.source = Some(Box::new(file.map_err(|error| Failure::reading(&path, &error))?));
            self.path = path;
        }
        self.lines = 0;
        self.at_end = false;
        Ok(true)
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    /// Returns one piece per read; the buffer's size is a multiple of the largest piece.
    struct Pieces(std::vec::IntoIter<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let piece = self.0.next().unwrap_or_default();
            into[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    impl Source for Pieces {
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    fn input(pieces: Vec<&'static [u8]>) -> Input<'static> {
        static NEVER: LazyLock<Stop> = LazyLock::new(Stop::never);
        let mut input = Input::new(Vec::new(), b'\n', true, &NEVER).expect("standard input");
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
            let lines = batch.lines.iter().map(|line| line.to_vec()).collect();
            all.push((batch.first_line, waits, lines));
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
