//! Reading and writing descriptors that may be in non-blocking mode, as pipes and terminals are
//! that another program shares: where they are not ready, the command waits.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// What a wait ended with.
#[derive(Debug, PartialEq, Eq)]
pub enum Ready {
    /// Something can be read, if only the end or an error.
    Input,
    /// A signal asks the command to stop.
    Stopped,
    /// Nobody reads the answers any more.
    OutputClosed,
}

/// Waits until `input` can be read, unless `stop` or the end of the reader of `output` comes first.
pub fn wait_to_read(
    input: BorrowedFd<'_>,
    stop: Option<BorrowedFd<'_>>,
    output: Option<BorrowedFd<'_>>,
) -> io::Result<Ready> {
    let mut waited = vec![PollFd::from_borrowed_fd(input, PollFlags::IN)];
    // Errors are reported without being asked for: for a pipe, that its reader is gone.
    waited.extend(output.map(|output| PollFd::from_borrowed_fd(output, PollFlags::empty())));
    waited.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
    wait(&mut waited, None)?;
    let stopped = stop.and(waited.last()).is_some_and(|last| !last.revents().is_empty());
    let closed = output.and(waited.get(1)).is_some_and(is_broken);
    Ok(match (stopped, closed) {
        (true, _) => Ready::Stopped,
        (false, true) => Ready::OutputClosed,
        (false, false) => Ready::Input,
    })
}

/// Whether nobody reads any more what is written here.
pub fn is_closed(output: BorrowedFd<'_>) -> bool {
    let mut waited = [PollFd::from_borrowed_fd(output, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    wait(&mut waited, Some(&now)).is_ok() && is_broken(&waited[0])
}

fn is_broken(output: &PollFd<'_>) -> bool {
    output.revents().contains(PollFlags::ERR)
}

fn wait(waited: &mut [PollFd<'_>], limit: Option<&Timespec>) -> io::Result<()> {
    loop {
        match poll(waited, limit) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done.map(|_| ()).map_err(io::Error::from),
        }
    }
}

/// Writes all bytes, however often it has to wait; adds to `written` what was handed over.
pub fn write_all(
    file: &mut (impl Write + AsFd),
    bytes: &[u8],
    written: &mut usize,
) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        match file.write(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                left = &left[count..];
                *written += count;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&mut [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
