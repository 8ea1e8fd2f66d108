//! Gives other processes descriptors of bank files. One thread serves all filters of the process.
//! Usually one socket is enough; it is linked into the directory of each filter.
//!
//! A client sends a descriptor of the file `live`, which proves its right to read or write. The
//! server answers with a descriptor of the bank file with the same right.

use crate::media::HandedOut;
use crate::media::disk::bank_memory::socket::{address, receive, send};
use crate::media::disk::directory::{Directory, above_standard_streams};
use crate::platform::fork::{Guard, Unshared};
use crate::platform::per_process::PerProcess;
use crate::platform::threads;
use crate::primitives::mutex::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, chmodat, fcntl_getfl, fstat, linkat, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time to wait for the question of a process that has connected.
const PATIENCE: Duration = Duration::from_millis(200);

/// The pause after a failed system call, for example when no descriptor is free.
const PAUSE: Duration = Duration::from_millis(100);

/// The backlog of the listening socket.
const WAITING: i32 = 64;

static SERVER: PerProcess<Server> = PerProcess::new();

#[derive(Debug)]
struct Server(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    given: BTreeMap<u64, Given>,
    last: u64,
    sockets: Vec<Weak<Socket>>,
    /// Wakes the thread; made with it.
    wake: Option<Arc<OwnedFd>>,
    thread: Option<JoinHandle<()>>,
    /// The generation of the server thread. A thread with an older number ends.
    serving: u64,
}

/// A file that is handed out.
#[derive(Debug)]
struct Given {
    /// Device and inode of the file `live`.
    live: (u64, u64),
    file: Arc<Unshared>,
    socket: Arc<Socket>,
    /// Device and inode of the directory, and the socket's name there.
    name: ((u64, u64), String),
}

/// A socket for all filters of one owner on one file system; linked into each directory.
#[derive(Debug)]
struct Socket {
    listening: Unshared,
    /// An `O_PATH` descriptor of the socket's node, used to link it under further names.
    node: OwnedFd,
    device: u64,
    /// User and group of the filters.
    owner: (u32, u32),
}

/// Hands out a file until it is dropped.
#[derive(Debug)]
pub(super) struct Handing {
    number: u64,
    directory: Arc<Directory>,
    name: String,
    guard: Guard,
}

impl HandedOut for Handing {}

/// Hands out a file to processes that have opened the file `live` of the directory and ask at
/// `name`.
pub(super) fn hand_out(
    directory: &Arc<Directory>,
    file: &Arc<Unshared>,
    name: &str,
    live: &str,
) -> io::Result<Handing> {
    let server = SERVER.get(|| Server(Mutex::default()));
    let found = directory.stat(live)?;
    let live = (found.st_dev, found.st_ino);
    match directory.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut state = server.0.lock();
    let socket = state.socket(directory, name)?;
    state.last += 1;
    let number = state.last;
    let found = fstat(directory.descriptor()?)?;
    let named = ((found.st_dev, found.st_ino), name.to_owned());
    state.given.insert(number, Given { live, file: file.clone(), socket, name: named });
    // From here on an error drops `handing`, which undoes all of this.
    let (directory, name) = (directory.clone(), name.to_owned());
    let handing = Handing { number, directory, name, guard: Guard::new() };
    let served = state.serve(server);
    drop(state);
    served.map(|()| handing)
}

impl Drop for Handing {
    fn drop(&mut self) {
        if self.guard.is_foreign() {
            return;
        }
        let mut state = SERVER.get(|| Server(Mutex::default())).0.lock();
        if let Some(given) = state.given.remove(&self.number)
            && state.is_own_name(&given, &self.directory)
        {
            // If this fails, the next process with this name replaces the file.
            let _ = self.directory.remove(&self.name);
        }
        state.wake();
        let ended = if state.given.is_empty() { state.thread.take() } else { None };
        state.serving += u64::from(ended.is_some());
        drop(state);
        if let Some(thread) = ended {
            let _ = thread.join();
        }
    }
}

impl State {
    /// Returns whether the name still links to our socket and no other entry uses it. A newer
    /// filter in the same directory may have taken the name.
    fn is_own_name(&self, given: &Given, directory: &Directory) -> bool {
        let identity = |found: Stat| (found.st_dev, found.st_ino);
        let found = directory.stat(&given.name.1).map(identity).ok();
        let ours = fstat(&given.socket.node).map(identity).ok();
        ours.is_some()
            && found == ours
            && !self.given.values().any(|other| other.name == given.name)
    }

    /// Returns a socket that has this name in the directory.
    fn socket(&mut self, directory: &Directory, name: &str) -> io::Result<Arc<Socket>> {
        self.sockets.retain(|socket| socket.strong_count() > 0);
        let device = fstat(directory.descriptor()?)?.st_dev;
        let known = self.sockets.iter().filter_map(Weak::upgrade);
        let owner = directory.owner();
        let mut known = known.filter(|socket| (socket.device, socket.owner) == (device, owner));
        // Linking fails if the socket has too many links, or none left.
        if let Some(socket) = known.find(|socket| socket.get_name(directory, name).is_ok()) {
            return Ok(socket);
        }
        let socket = Arc::new(Socket::bind(directory, name, (device, owner))?);
        self.sockets.push(Arc::downgrade(&socket));
        Ok(socket)
    }

    /// Starts the thread, or wakes it so that it reads the list again.
    fn serve(&mut self, server: &'static Server) -> io::Result<()> {
        if self.thread.is_some() {
            self.wake();
            return Ok(());
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake = Arc::new(above_standard_streams(wake)?);
        self.wake = Some(wake.clone());
        self.serving += 1;
        let number = self.serving;
        let run = move || server.run(number, &wake);
        self.thread = Some(threads::spawn("ebbtide-attach", run)?);
        Ok(())
    }

    fn wake(&self) {
        if let Some(wake) = &self.wake {
            // It fails only if the thread is being woken anyway.
            let _ = rustix::io::write(wake, &1_u64.to_le_bytes());
        }
    }
}

/// Returns the error of a socket that was refused. A filter of system calls, such as
/// `RestrictAddressFamilies=` of systemd, refuses all of them.
fn refused(error: Errno) -> io::Error {
    match error {
        Errno::AFNOSUPPORT => io::ErrorKind::Unsupported.into(),
        error => error.into(),
    }
}

impl Socket {
    fn bind(
        directory: &Directory,
        name: &str,
        (device, owner): (u64, (u32, u32)),
    ) -> io::Result<Self> {
        let listening = Unshared::open(|| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
            Ok(File::from(above_standard_streams(made.map_err(refused)?)?))
        })?;
        bind(listening.file()?, &address(directory, name)?)?;
        // Anyone with access to the directory may connect. `answer` checks the right.
        let descriptor = directory.descriptor()?;
        chmodat(descriptor, name, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        directory.give_to_owner(name);
        listen(listening.file()?, WAITING)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = above_standard_streams(openat(descriptor, name, flags, Mode::empty())?)?;
        Ok(Self { listening, node, device, owner })
    }

    /// Gives the socket one more name.
    fn get_name(&self, directory: &Directory, name: &str) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", self.node.as_raw_fd());
        let follow = AtFlags::SYMLINK_FOLLOW;
        Ok(linkat(CWD, &path, directory.descriptor()?, name, follow)?)
    }
}

impl Server {
    /// Runs until the thread's number is outdated.
    fn run(&self, number: u64, wake: &OwnedFd) {
        loop {
            let sockets = {
                let state = self.0.lock();
                if state.serving != number {
                    return;
                }
                let mut sockets: Vec<Arc<Socket>> = Vec::new();
                for given in state.given.values() {
                    if !sockets.iter().any(|socket| Arc::ptr_eq(socket, &given.socket)) {
                        sockets.push(given.socket.clone());
                    }
                }
                sockets
            };
            let listening = sockets.iter().filter_map(|socket| socket.listening.file().ok());
            let listening: Vec<&File> = listening.collect();
            let mut waits = vec![PollFd::new(wake, PollFlags::IN)];
            waits.extend(listening.iter().map(|file| PollFd::new(*file, PollFlags::IN)));
            match poll(&mut waits, None) {
                Err(Errno::INTR) => continue,
                Err(_) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Ok(_) => {}
            }
            let _ = rustix::io::read(wake, &mut [0; 8]);
            for file in listening {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                loop {
                    let accepted = accept_with(file, flags).map_err(io::Error::from);
                    match accepted.and_then(above_standard_streams) {
                        // A client without a right, or one that is gone, gets no answer.
                        Ok(asking) => drop(self.answer(&asking)),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        // Without a free descriptor the client stays in the backlog, so poll
                        // returns at once.
                        Err(_) => {
                            std::thread::sleep(PAUSE);
                            break;
                        }
                    }
                    // Check after each client: a thread that closes a filter waits for this one.
                    if self.0.lock().serving != number {
                        return;
                    }
                }
            }
        }
    }

    fn answer(&self, asking: &OwnedFd) -> io::Result<()> {
        let Some(live) = receive(asking, PATIENCE)? else { return Ok(()) };
        let found = fstat(&live)?;
        let live_id = (found.st_dev, found.st_ino);
        let file = {
            let state = self.0.lock();
            let given = state.given.values().find(|given| given.live == live_id);
            given.map(|given| given.file.clone())
        };
        let Some(file) = file else { return send(asking, None) };
        let flags = fcntl_getfl(live.as_fd())?;
        // An `O_PATH` descriptor proves no right to read or write.
        match flags & (OFlags::RWMODE | OFlags::PATH) {
            mode if mode == OFlags::RDWR => send(asking, Some(file.file()?)),
            mode if mode == OFlags::RDONLY => {
                let path = format!("/proc/self/fd/{}", file.file()?.as_raw_fd());
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                // A child of a fork meanwhile closes it.
                let open = || Ok(File::from(rustix::fs::open(&path, flags, Mode::empty())?));
                send(asking, Some(Unshared::open(open)?.file()?))
            }
            _ => send(asking, None),
        }
    }
}
