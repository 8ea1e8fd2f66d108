//! Decompresses a regular file in a thread of its own, some pieces ahead of the command, which works
//! on those before meanwhile.

use crate::source::{Decoder, Format, Waits};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// The most bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// The pieces that are ready at most, while another one is being filled.
const PIECES: usize = 4;

/// The content of a compressed file.
pub struct ReadAhead<'s> {
    waits: Rc<Waits<'s>>,
    descriptor: OwnedFd,
    /// `None` when the thread is to end.
    pieces: Option<Receiver<io::Result<Vec<u8>>>>,
    /// Takes pieces back, to be filled again.
    used: SyncSender<Vec<u8>>,
    /// What is handed out, and how many bytes of it were.
    piece: Vec<u8>,
    at: usize,
    thread: Option<JoinHandle<()>>,
}

impl<'s> ReadAhead<'s> {
    /// Begins to decompress a file, from its present offset on.
    pub fn new(file: File, format: Format, waits: Rc<Waits<'s>>) -> io::Result<Self> {
        let descriptor = file.as_fd().try_clone_to_owned()?;
        let content = Decoder::new(format, Counted { file, count: waits.progress.counter() })?;
        Self::of(content, descriptor, waits)
    }

    fn of(
        content: impl Read + Send + 'static,
        descriptor: OwnedFd,
        waits: Rc<Waits<'s>>,
    ) -> io::Result<Self> {
        let (filled, pieces) = sync_channel(PIECES);
        let (used, empty) = sync_channel(PIECES + 2);
        let fill = move || fill_pieces(content, &filled, &empty);
        let thread = thread::Builder::new().name("decompress".to_owned()).spawn(fill)?;
        let (pieces, thread) = (Some(pieces), Some(thread));
        Ok(Self { waits, descriptor, pieces, used, piece: Vec::new(), at: 0, thread })
    }
}

impl ReadAhead<'_> {
    /// Takes the next piece; an empty one at the end.
    fn next_piece(&mut self) -> io::Result<()> {
        let Some(pieces) = &self.pieces else { return Ok(()) };
        self.waits.wait_for(self.descriptor.as_fd())?;
        let died = |_| Err(io::Error::other("the thread that decompresses it has panicked"));
        let piece = pieces.recv().unwrap_or_else(died)?;
        if piece.is_empty() {
            self.pieces = None;
        }
        // If there is no room for it, a new one is made.
        let _ = self.used.try_send(std::mem::replace(&mut self.piece, piece));
        self.at = 0;
        Ok(())
    }
}

impl Read for ReadAhead<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            self.next_piece()?;
        }
        let count = into.len().min(self.piece.len() - self.at);
        into[..count].copy_from_slice(&self.piece[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

/// The thread reads at the offset of the file, which others may set when it has ended.
impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        self.pieces = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Hands out the content in pieces, until its end, an error, or until nobody wants them. The last
/// piece is empty, or the error.
fn fill_pieces(
    mut content: impl Read,
    filled: &SyncSender<io::Result<Vec<u8>>>,
    empty: &Receiver<Vec<u8>>,
) {
    loop {
        let mut piece = empty.try_recv().unwrap_or_default();
        piece.resize(PIECE_BYTES, 0);
        let read = content.read(&mut piece);
        let is_last = !matches!(read, Ok(1..));
        let read = read.map(|count| {
            piece.truncate(count);
            piece
        });
        if filled.send(read).is_err() || is_last {
            return;
        }
    }
}

/// A file whose bytes are counted as they are read.
struct Counted<C> {
    file: File,
    count: C,
}

impl<C: Fn(u64)> Read for Counted<C> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.inspect(|bytes| (self.count)(*bytes as u64)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;
    use crate::stop::Stop;
    use std::cell::Cell;
    use std::sync::mpsc::channel;
    use std::time::Duration;

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
        let (ended, progress) = (Cell::new(None), Progress::hidden());
        let waits = Rc::new(Waits { stop, output: None, ended, progress });
        let file = tempfile::tempfile().expect("a temporary file");
        ReadAhead::of(content, file.into(), waits).expect("a thread")
    }

    #[test]
    fn the_content_before_an_error_is_read_then_the_error() {
        let stop = Stop::never();
        let counts: Vec<usize> = (1..200).collect();
        let content: Vec<u8> = counts.iter().flat_map(|&count| vec![count as u8; count]).collect();
        for (fails, panics) in [(false, false), (true, false), (false, true)] {
            let mut script: Vec<_> = counts.iter().copied().map(Ok).collect();
            script.extend(fails.then(|| Err(io::Error::other("damaged"))));
            let mut all = Vec::new();
            let read = ahead(&stop, Script(script, panics)).read_to_end(&mut all);
            assert_eq!(all, content);
            let found = read.map_err(|error| error.to_string());
            match (fails, panics) {
                (true, _) => assert_eq!(found, Err("damaged".to_owned())),
                (_, true) => assert!(found.is_err_and(|what| what.contains("panicked"))),
                _ => assert_eq!(found, Ok(content.len())),
            }
        }
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
