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

/// Whether a closed output is looked for now and then. Linux's `poll` reports errors of descriptors
/// of which nothing is asked; for a pipe, the error means that its reader has closed it, and for a
/// socket the hangup. That of macOS does not watch such a descriptor, and reports the end of one
/// that is asked whether it can be written: mostly it can, so that nothing else would be waited
/// for.
const LOOKS: bool = cfg!(any(target_os = "macos", ebbtide_portable));

/// The time between two looks.
const BETWEEN: Duration = Duration::from_millis(100);

/// Waits until `input` is readable, `stop` is readable, or the reader of `output` closes it.
pub fn wait_to_read(
    input: BorrowedFd<'_>,
    stop: Option<BorrowedFd<'_>>,
    output: Option<BorrowedFd<'_>>,
) -> io::Result<Ready> {
    wait_as(LOOKS, input, stop, output)
}

/// As [`wait_to_read`]; `looks` as [`LOOKS`].
fn wait_as(
    looks: bool,
    input: BorrowedFd<'_>,
    stop: Option<BorrowedFd<'_>>,
    output: Option<BorrowedFd<'_>>,
) -> io::Result<Ready> {
    let (looked_at, watched) = if looks { (output, None) } else { (None, output) };
    let limit = looked_at.map(|_| timespec(BETWEEN));
    let mut waited = vec![PollFd::from_borrowed_fd(input, PollFlags::IN)];
    waited.extend(watched.map(|output| PollFd::from_borrowed_fd(output, PollFlags::empty())));
    waited.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
    loop {
        wait(&mut waited, limit.as_ref())?;
        let is_ready = |one: &PollFd<'_>| !one.revents().is_empty();
        if stop.and(waited.last()).is_some_and(is_ready) {
            return Ok(Ready::Stopped);
        }
        let watched = watched.and(waited.get(1));
        if watched.is_some_and(is_broken) || looked_at.is_some_and(is_closed) {
            return Ok(Ready::OutputClosed);
        }
        if is_ready(&waited[0]) {
            return Ok(Ready::Input);
        }
    }
}

/// Waits until `stop` is readable, at most for `limit`.
pub fn wait_at_most(stop: Option<BorrowedFd<'_>>, limit: Duration) -> io::Result<()> {
    let waited = stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN));
    wait(&mut waited.into_iter().collect::<Vec<_>>(), Some(&timespec(limit)))
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Returns whether the reader of this descriptor has closed it.
pub fn is_closed(output: BorrowedFd<'_>) -> bool {
    let asked = if LOOKS { PollFlags::OUT } else { PollFlags::empty() };
    let mut waited = [PollFd::from_borrowed_fd(output, asked)];
    wait(&mut waited, Some(&timespec(Duration::ZERO))).is_ok() && is_broken(&waited[0])
}

fn is_broken(output: &PollFd<'_>) -> bool {
    // The end of a pipe is an error on Linux, and a hangup on macOS; that of a socket is a hangup.
    output.revents().intersects(PollFlags::ERR | PollFlags::HUP)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;
    use std::os::unix::net::UnixStream;

    #[test]
    fn input_a_stop_and_a_closed_output_end_a_wait_however_the_output_is_watched() {
        for looks in [false, true] {
            let [input, stop, output] = [(); 3].map(|()| pipe().expect("a pipe"));
            let (mut sender, waker) = (input.1, stop.1);
            let wait = || {
                let (stop, output) = (Some(stop.0.as_fd()), Some(output.1.as_fd()));
                wait_as(looks, input.0.as_fd(), stop, output).expect("a wait")
            };
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    // After the first look.
                    std::thread::sleep(BETWEEN * 3 / 2);
                    sender.write_all(b"a").expect("written");
                });
                assert_eq!(wait(), Ready::Input, "{looks}");
            });
            assert!(!is_closed(output.1.as_fd()));
            drop(output.0);
            assert!(is_closed(output.1.as_fd()));
            assert_eq!(wait(), Ready::OutputClosed, "{looks}");
            drop(waker);
            assert_eq!(wait(), Ready::Stopped, "{looks}");
        }
    }

    #[test]
    fn an_output_that_is_a_socket_is_closed_once_its_reader_has_gone_and_brings_no_input() {
        for looks in [false, true] {
            let (input, stop) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
            let (output, reader) = UnixStream::pair().expect("two sockets");
            assert!(!is_closed(output.as_fd()));
            drop(reader);
            let (stop, output) = (Some(stop.0.as_fd()), output.as_fd());
            let ready = wait_as(looks, input.0.as_fd(), stop, Some(output)).expect("a wait");
            assert_eq!(ready, Ready::OutputClosed, "{looks}");
            assert!(is_closed(output));
        }
    }
}
