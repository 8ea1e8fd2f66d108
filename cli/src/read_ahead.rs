//! Decompresses a regular file in a thread of its own, ahead of the command, which works on earlier
//! pieces meanwhile.

use crate::compressed::{Decoder, Format};
use crate::waits::Waits;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The most bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// The largest number of pieces that are ready.
const PIECES: usize = 4;

/// How often a wait for a piece looks for a reason to end. What is decompressed may have no content
/// for a long time: gigabytes of zero bytes behind a gzip member, for example.
const CHECK: Duration = Duration::from_millis(20);

/// A part of the content.
struct Piece {
    /// [`PIECE_BYTES`] bytes, or none if it was never filled.
    memory: Vec<u8>,
    /// How many of them are content.
    length: usize,
}

impl Piece {
    const NONE: Self = Self { memory: Vec::new(), length: 0 };
}

/// The content of a compressed file.
pub struct ReadAhead<'s> {
    waits: Rc<Waits<'s>>,
    file: Arc<File>,
    /// `None` at the end of the content.
    pieces: Option<Receiver<io::Result<Piece>>>,
    /// Takes pieces back, to be filled again.
    used: SyncSender<Piece>,
    /// What is handed out, and how many bytes of it were.
    piece: Piece,
    at: usize,
    /// Ends the thread.
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<'s> ReadAhead<'s> {
    /// Begins to decompress a file, from this offset on. Neither uses nor changes the offset of the
    /// file itself.
    pub fn new(file: &File, offset: u64, format: Format, waits: Rc<Waits<'s>>) -> io::Result<Self> {
        let (file, ended) = (Arc::new(file.try_clone()?), Arc::default());
        let count = waits.progress.counter();
        let source = Source { file: Arc::clone(&file), offset, ended: Arc::clone(&ended), count };
        Self::of(Decoder::new(format, source)?, file, ended, waits)
    }

    fn of(
        content: impl Read + Send + 'static,
        file: Arc<File>,
        ended: Arc<AtomicBool>,
        waits: Rc<Waits<'s>>,
    ) -> io::Result<Self> {
        let (filled, pieces) = sync_channel(PIECES);
        let (used, empty) = sync_channel(PIECES + 2);
        let fill = move || fill_pieces(content, &filled, &empty);
        let thread = thread::Builder::new().name("decompress".to_owned()).spawn(fill)?;
        let (pieces, thread) = (Some(pieces), Some(thread));
        Ok(Self { waits, file, pieces, used, piece: Piece::NONE, at: 0, ended, thread })
    }

    /// Takes the next piece; an empty one at the end.
    fn next_piece(&mut self) -> io::Result<()> {
        let Some(pieces) = &self.pieces else { return Ok(()) };
        let piece = loop {
            self.waits.wait_for(self.file.as_fd())?;
            match pieces.recv_timeout(CHECK) {
                Ok(piece) => break piece?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.panicked()),
            }
        };
        if piece.length == 0 {
            self.pieces = None;
        }
        // If there is no room for it, a new one is made.
        let _ = self.used.try_send(std::mem::replace(&mut self.piece, piece));
        self.at = 0;
        Ok(())
    }

    /// The thread has ended without an end of the content: so ends this one, as without a thread.
    fn panicked(&mut self) -> io::Error {
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
        io::Error::other("an earlier read failed")
    }
}

impl Read for ReadAhead<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.length {
            self.next_piece()?;
        }
        let count = into.len().min(self.piece.length - self.at);
        into[..count].copy_from_slice(&self.piece.memory[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        // Relaxed: it orders nothing.
        self.ended.store(true, Ordering::Relaxed);
        self.pieces = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Hands out the content in pieces, until its end, an error, or until nobody wants them. The last
/// piece is empty, or the error.
fn fill_pieces(
    mut content: impl Read,
    filled: &SyncSender<io::Result<Piece>>,
    empty: &Receiver<Piece>,
) {
    loop {
        let Piece { mut memory, .. } = empty.try_recv().unwrap_or(Piece::NONE);
        // Only new memory is cleared: the content may be a few bytes, such as a short member.
        memory.resize(PIECE_BYTES, 0);
        let read = content.read(&mut memory);
        let is_last = !matches!(read, Ok(1..));
        let read = read.map(|length| Piece { memory, length });
        if filled.send(read).is_err() || is_last {
            return;
        }
    }
}

/// A file from an offset on, whose bytes are counted as they are read.
struct Source<C> {
    file: Arc<File>,
    offset: u64,
    ended: Arc<AtomicBool>,
    count: C,
}

impl<C: Fn(u64)> Read for Source<C> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return Err(io::Error::other("nobody wants the rest"));
            }
            match self.file.read_at(into, self.offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(bytes) => {
                    self.offset += bytes as u64;
                    (self.count)(bytes as u64);
                    return Ok(bytes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;
    use crate::stop::Stop;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;
    use std::sync::mpsc::channel;

    /// Returns each result of a list, one per read, then ends or panics.
    struct Script(Vec<io::Result<usize>>, bool);

    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            assert!(!self.0.is_empty() || !self.1, "the end of the script");
            if self.0.is_empty() {
                return Ok(0);
            }
            let count = self.0.remove(0)?;
            into[..count].fill(count as u8);
            Ok(count)
        }
    }

    fn ahead(stop: &Stop, content: impl Read + Send + 'static) -> ReadAhead<'_> {
        let waits = Rc::new(Waits::new(stop, None, Progress::hidden()));
        let file = tempfile::tempfile().expect("a temporary file");
        ReadAhead::of(content, Arc::new(file), Arc::default(), waits).expect("a thread")
    }

    #[test]
    fn the_content_before_an_error_is_read_then_the_error() {
        let stop = Stop::never();
        let counts: Vec<usize> = (1..200).collect();
        let content: Vec<u8> = counts.iter().flat_map(|&count| vec![count as u8; count]).collect();
        for fails in [false, true] {
            let mut script: Vec<_> = counts.iter().copied().map(Ok).collect();
            script.extend(fails.then(|| Err(io::Error::other("damaged"))));
            let mut all = Vec::new();
            let read = ahead(&stop, Script(script, false)).read_to_end(&mut all);
            assert_eq!(all, content);
            let expected = if fails { Err("damaged".to_owned()) } else { Ok(content.len()) };
            assert_eq!(read.map_err(|error| error.to_string()), expected);
        }
    }

    #[test]
    #[should_panic = "the end of the script"]
    fn a_panic_while_decompressing_is_no_end_of_the_content() {
        let stop = Stop::never();
        let mut all = Vec::new();
        let read = ahead(&stop, Script(vec![Ok(3)], true)).read_to_end(&mut all);
        unreachable!("{read:?} {all:?}");
    }

    /// A file of a gzip member and, behind it, zero bytes for a long time.
    fn sparse() -> File {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(b"a\nb\n").expect("memory");
        let file = tempfile::tempfile().expect("a temporary file");
        file.write_all_at(&member.finish().expect("memory"), 0).expect("space");
        file.set_len(1 << 40).expect("a sparse file");
        file
    }

    #[test]
    fn a_drop_ends_the_search_for_more_content() {
        let (done, ended) = channel();
        thread::spawn(move || {
            let (stop, file) = (Stop::never(), sparse());
            let waits = Rc::new(Waits::new(&stop, None, Progress::hidden()));
            let mut content = ReadAhead::new(&file, 0, Format::Gzip, waits).expect("a thread");
            let mut first = [0; 4];
            let read = content.read_exact(&mut first);
            drop(content);
            done.send((read.is_ok(), first))
        });
        let found = ended.recv_timeout(Duration::from_secs(60));
        assert_eq!(found, Ok((true, *b"a\nb\n")));
    }

    #[test]
    fn who_has_read_enough_does_not_wait_for_the_rest() {
        let (done, ended) = channel();
        thread::spawn(move || {
            let stop = Stop::never();
            let mut content = ahead(&stop, io::repeat(7));
            let mut first = [0];
            let read = content.read(&mut first);
            drop(content);
            done.send((read.ok(), first))
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok((Some(1), [7])));
    }
}
