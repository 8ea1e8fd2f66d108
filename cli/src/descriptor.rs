//! Reads and writes descriptors that may be in non-blocking mode, such as pipes and terminals
//! shared with another program: waits until they are ready.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The reason why a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ready {
    /// A read will not block; it may return the end or an error.
    Input,
    /// A signal asks the command to stop.
    Stopped,
    /// The reader has closed the output.
    OutputClosed,
}

/// Waits until `input` is readable, `stop` is readable, or the reader of `output` closes it.
pub fn wait_to_read(
    input: BorrowedFd<'_>,
    stop: Option<BorrowedFd<'_>>,
    output: Option<BorrowedFd<'_>>,
) -> io::Result<Ready> {
    let mut waited = vec![PollFd::from_borrowed_fd(input, PollFlags::IN)];
    // `poll` always reports errors; for a pipe, the error means that its reader has closed it.
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

/// Waits until `stop` is readable, at most for `limit`.
pub fn wait_at_most(stop: Option<BorrowedFd<'_>>, limit: Duration) -> io::Result<()> {
    let waited = stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN));
    let limit = Timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    wait(&mut waited.into_iter().collect::<Vec<_>>(), Some(&limit))
}

/// Returns whether the reader of this descriptor has closed it.
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

/// Writes all bytes, waiting as often as necessary; adds the number of bytes written to `written`.
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
