//! Sockets in the filter's directory: their addresses, and messages of a byte with a descriptor.

use crate::media::disk::directory::{Directory, above_standard_streams};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Timespec, statat};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Returns the address of a socket in the directory: its path may be too long for one.
pub(super) fn address(directory: &Directory, name: &str) -> io::Result<SocketAddrUnix> {
    let number = directory.descriptor()?.as_raw_fd();
    let short = format!("/proc/self/fd/{number}");
    let address = match statat(CWD, &short, AtFlags::empty()) {
        Ok(_) => SocketAddrUnix::new(format!("{short}/{name}")),
        // Without `/proc`, the directory must still have its path.
        Err(_) => SocketAddrUnix::new(directory.absolute().join(name)),
    };
    Ok(address?)
}

/// Sends a byte, with a descriptor.
pub(super) fn send(socket: &OwnedFd, file: Option<&File>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = file.map(|file| [file.as_fd()]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a byte, and the descriptor that came with it.
pub(super) fn receive(socket: &OwnedFd, patience: Duration) -> io::Result<Option<OwnedFd>> {
    let until = Instant::now() + patience;
    let mut wait = [PollFd::new(socket, PollFlags::IN)];
    loop {
        // Signals may come more often than that.
        let left = until.saturating_duration_since(Instant::now());
        let (tv_sec, tv_nsec) = (left.as_secs() as i64, left.subsec_nanos().into());
        let limit = Timespec { tv_sec, tv_nsec };
        match poll(&mut wait, Some(&limit)) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            ready => {
                ready?;
                break;
            }
        }
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut found = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            found = descriptors.last().or(found);
        }
    }
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    if is_cut && found.is_none() {
        // It was sent, and this process has no number left for it.
        return Err(Errno::MFILE.into());
    }
    let is_whole = received.bytes == 1 && !is_cut;
    let found = found.filter(|_| is_whole);
    found.map(above_standard_streams).transpose()
}
