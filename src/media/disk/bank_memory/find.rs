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
use std::time::Duration;

/// The time to wait for the answer of one process.
const PATIENCE: Duration = Duration::from_secs(2);

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
    let mut silent = None;
    for holder in holders {
        match ask(directory, &holder.name, &live) {
            Ok(Some(file)) if is_wanted(wanted, &file) => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => silent = Some(holder),
            Err(_) => {}
        }
    }
    let Some(holder) = silent else {
        let sentence = "no process that has the filter open hands out its live image";
        return Err(io::Error::new(io::ErrorKind::NotFound, sentence));
    };
    let sentence = format!(
        "process {} (in its own namespace) has the live image and does not answer at {}; if it is \
         stopped, resume or end it; if it has no file descriptor left, raise its limit",
        holder.process, holder.name
    );
    Err(io::Error::new(io::ErrorKind::TimedOut, sentence))
}

/// Asks at a socket; `None` if the process there does not have the file.
fn ask(directory: &Directory, name: &str, live: &File) -> io::Result<Option<File>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address(directory, name)?) {
        // Too many wait for a process that is stopped.
        Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
        connected => connected?,
    }
    send(&socket, Some(live))?;
    Ok(receive(&socket, PATIENCE)?.map(File::from))
}
