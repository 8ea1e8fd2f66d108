//! Gets the file of an image from a process that has it open.
//!
//! A process of the same user, or of root, opens it below `/proc`, also if the other one is
//! stopped. Others, and those in containers of their own, ask at the holder's socket in the
//! filter's directory. Their right to read or write the filter is proven by a descriptor of the
//! file `live`, which they send along.

use crate::media::disk::bank_memory::socket::{address, receive, send};
use crate::media::disk::directory::{Directory, above_standard_streams};
use crate::media::{Access, Holder, UnnamedId};
use crate::platform::fork::Unshared;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, statat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

/// The time to wait for the answer of one process.
const PATIENCE: Duration = Duration::from_secs(2);

/// The same once this time has passed in vain: all processes of a container may be stopped.
const LATER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(6));

/// The pause between two attempts to connect to a process that many others ask.
const PAUSE: Duration = Duration::from_millis(5);

/// Gets the file from one of these processes, which have the file `live` open.
pub(super) fn find(
    directory: &Directory,
    wanted: &UnnamedId,
    (live, holders): (&str, &[Holder]),
    access: Access,
) -> io::Result<Unshared> {
    Unshared::open(|| {
        let below_proc = holders.iter().find_map(|holder| open_below_proc(wanted, holder, access));
        below_proc.map_or_else(|| ask_all(directory, wanted, (live, holders), access), Ok)
    })
}

/// Returns what distinguishes a file; the error of a file that has no nonce is `UnexpectedEof`.
pub(super) fn identity(file: &File) -> io::Result<UnnamedId> {
    let metadata = file.metadata()?;
    let mut nonce = [0; 16];
    file.read_exact_at(&mut nonce, 0)?;
    let nonce = u128::from_le_bytes(nonce);
    Ok(UnnamedId { device: metadata.dev(), inode: metadata.ino(), nonce })
}

fn flags(access: Access) -> OFlags {
    match access {
        Access::Read => OFlags::RDONLY,
        Access::Write => OFlags::RDWR,
    }
}

/// Opens the descriptor of a process, if it is of the wanted file: in another namespace the process
/// of that number is another one, and anything may be behind its descriptor.
fn open_below_proc(wanted: &UnnamedId, holder: &Holder, access: Access) -> Option<File> {
    let path = format!("/proc/{}/fd/{}", holder.process, holder.descriptor);
    let found = statat(CWD, &path, AtFlags::empty()).ok()?;
    if (found.st_dev, found.st_ino) != (wanted.device, wanted.inode) {
        return None;
    }
    let flags = flags(access) | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
    let file = File::from(above_standard_streams(opened).ok()?);
    is_wanted(wanted, &file).then_some(file)
}

fn is_wanted(wanted: &UnnamedId, file: &File) -> bool {
    identity(file).is_ok_and(|found| found == *wanted)
}

fn ask_all(
    directory: &Directory,
    wanted: &UnnamedId,
    (live, holders): (&str, &[Holder]),
    access: Access,
) -> io::Result<File> {
    let live = directory.open(live, flags(access))?;
    let (mut silent, mut own, begun) = (None, None, Instant::now());
    for holder in holders {
        let patience = if begun.elapsed() < LATER.1 { PATIENCE } else { LATER.0 };
        match ask(directory, &holder.name, &live, patience) {
            Ok(Some(file)) if is_wanted(wanted, &file) => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => silent = Some(holder),
            Err(error) if is_gone(&error) => {}
            Err(error) => own = Some(error),
        }
    }
    // Perhaps this process has no descriptor left, or may not ask.
    if let Some(error) = own {
        return Err(error);
    }
    let Some(holder) = silent else {
        let sentence = match access {
            Access::Write => "no process that has the filter open hands out its live image",
            Access::Read => {
                "no process that has the filter open hands out its live image for reading; without \
                 `/proc`, one cannot do that"
            }
        };
        return Err(io::Error::new(io::ErrorKind::NotFound, sentence));
    };
    let sentence = format!(
        "process {} (in its own namespace) has the live image and does not answer at {}; if it is \
         stopped, resume or end it; if it has no file descriptor left, raise its limit",
        holder.process, holder.name
    );
    Err(io::Error::new(io::ErrorKind::TimedOut, sentence))
}

/// Returns whether the process that was asked has ended, or hands the file out no more.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
    )
}

/// Asks at a socket; `None` if the process there does not have the file.
fn ask(
    directory: &Directory,
    name: &str,
    live: &File,
    patience: Duration,
) -> io::Result<Option<File>> {
    let (flags, until) = (SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, Instant::now() + patience);
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let (socket, address) = (above_standard_streams(socket)?, address(directory, name)?);
    loop {
        match connect(&socket, &address) {
            // As many wait as can: they are answered in turn, unless the process is stopped.
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            connected => break connected?,
        }
    }
    send(&socket, Some(live))?;
    let left = until.saturating_duration_since(Instant::now()).max(LATER.0);
    Ok(receive(&socket, left)?.map(File::from))
}
