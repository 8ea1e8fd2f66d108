//! A disk in memory that can lose its power or its process at any call.
//!
//! A file has what was last synced and what it is now; the directory has the names last synced and those of every moment
//! since. After a power cut each 512-byte sector of a file is either of its two versions, and the names are those of
//! one moment since the last sync of the directory. After the death of the process everything is as it was.

use crate::random::Random;
use ebbtide::media::{Access, ByteLocks, Mapping, Media, MediaFile, Memory};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

const SECTOR: usize = 512;
/// Threads whose acknowledged operations are counted.
pub const THREADS: usize = 4;

type Names = BTreeMap<String, Arc<Node>>;

/// What a crash left.
#[derive(Debug)]
pub struct Left {
    /// The disk, ready to be opened.
    pub disk: CrashDisk,
    /// How many operations of each thread had been acknowledged.
    pub acknowledged: [u64; THREADS],
}

/// A handle on the disk; clones share it.
#[derive(Debug, Clone)]
pub struct CrashDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Holds each file under its inode number, for ever.
    memory: Memory,
    boot: u128,
    acknowledged: [AtomicU64; THREADS],
    state: Mutex<State>,
    gate: Condvar,
}

#[derive(Debug)]
struct State {
    names: Names,
    /// The names last synced, then those after each change since.
    moments: Vec<Names>,
    last_inode: u64,
    /// The power goes before this many more calls.
    cut: Option<(u64, Random)>,
    left: Option<Left>,
    /// The next sync of a log segment fails.
    failing: bool,
    /// Syncs of log segments wait.
    held: bool,
    /// Syncs of log segments so far.
    log_syncs: u64,
}

#[derive(Debug)]
struct Node {
    inode: u64,
    file: Box<dyn MediaFile>,
    synced: Mutex<Option<Vec<u8>>>,
}

impl Node {
    fn now(&self) -> Vec<u8> {
        let bytes = self.file.bytes().expect("memory has a length");
        let mut content = vec![0; bytes as usize];
        self.file.read_at(&mut content, 0).expect("memory can be read");
        content
    }

    /// What the disk holds after a power cut.
    fn torn(&self, random: &mut Random) -> Vec<u8> {
        let (now, synced) = (self.now(), self.synced.lock().expect("no panic").clone());
        let synced = synced.unwrap_or_default();
        // The length goes its own way, as the inode does.
        let length = [now.len(), synced.len()][random.below(2) as usize];
        let mut torn = vec![0; length];
        for (at, sector) in torn.chunks_mut(SECTOR).enumerate() {
            let version = if random.below(2) == 0 { &now } else { &synced };
            let start = (at * SECTOR).min(version.len());
            let end = (start + sector.len()).min(version.len());
            sector[..end - start].copy_from_slice(&version[start..end]);
        }
        torn
    }
}

impl CrashDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::booted(1)
    }

    fn booted(boot: u128) -> Self {
        let memory = Memory::new();
        memory.make().expect("memory can be made");
        let state = State {
            names: Names::new(),
            moments: vec![Names::new()],
            last_inode: 0,
            cut: None,
            left: None,
            failing: false,
            held: false,
            log_syncs: 0,
        };
        Self(Arc::new(Shared {
            memory,
            boot,
            acknowledged: Default::default(),
            state: Mutex::new(state),
            gate: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no test panics in here")
    }

    /// So many operations of a thread have been acknowledged.
    pub fn acknowledge(&self, thread: usize, count: u64) {
        self.0.acknowledged[thread].store(count, Ordering::SeqCst);
    }

    fn acknowledged(&self) -> [u64; THREADS] {
        [0, 1, 2, 3].map(|thread: usize| self.0.acknowledged[thread].load(Ordering::SeqCst))
    }

    /// Cuts the power when so many more calls have been made; [`CrashDisk::left`] tells what remains.
    pub fn cut_after(&self, calls: u64, random: Random) {
        self.state().cut = Some((calls, random));
    }

    /// What the power cut left, if it has come.
    pub fn left(&self) -> Option<Left> {
        self.state().left.take()
    }

    /// Lets the next sync of a log segment fail.
    pub fn fail_next_log_sync(&self) {
        self.state().failing = true;
    }

    /// Makes syncs of log segments wait, or lets them go.
    pub fn hold_log_syncs(&self, held: bool) {
        self.state().held = held;
        self.0.gate.notify_all();
    }

    /// How many syncs of log segments there were.
    pub fn log_syncs(&self) -> u64 {
        self.state().log_syncs
    }

    /// What a power cut would leave now.
    pub fn without_power(&self, random: &mut Random) -> Left {
        let acknowledged = self.acknowledged();
        let disk = self.torn(&self.state(), random);
        Left { disk, acknowledged }
    }

    fn torn(&self, state: &State, random: &mut Random) -> Self {
        let cut = Self::booted(self.0.boot + 1);
        let names = &state.moments[random.below(state.moments.len() as u64) as usize];
        let mut new = cut.state();
        for (name, node) in names {
            let content = node.torn(random);
            let copy = cut.node(&mut new, content.len() as u64);
            copy.file.write_at(&content, 0).expect("memory is large");
            *copy.synced.lock().expect("no panic") = Some(content);
            new.names.insert(name.clone(), copy);
        }
        new.moments = vec![new.names.clone()];
        drop(new);
        cut
    }

    /// What the death of the process would leave now: everything, on the same run of the machine.
    pub fn without_process(&self) -> Left {
        let acknowledged = self.acknowledged();
        let state = self.state();
        let killed = Self::booted(self.0.boot);
        let mut new = killed.state();
        for (name, node) in &state.names {
            let content = node.now();
            new.last_inode = node.inode - 1;
            let copy = killed.node(&mut new, content.len() as u64);
            copy.file.write_at(&content, 0).expect("memory is large");
            *copy.synced.lock().expect("no panic") = node.synced.lock().expect("no panic").clone();
            new.names.insert(name.clone(), copy);
        }
        new.last_inode = state.last_inode;
        // Names that were not synced are kept as if they were: a later power cut is milder than it might be.
        new.moments = vec![new.names.clone()];
        drop(new);
        Left { disk: killed, acknowledged }
    }

    /// Overwrites bytes of a file, as decay would.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) {
        let node = self.state().names[name].clone();
        node.file.write_at(bytes, offset).expect("memory is large");
    }

    /// The names that begin so, ascending.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let state = self.state();
        let names = state.names.keys().filter(|name| name.starts_with(prefix));
        names.cloned().collect()
    }

    /// The bytes of a file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        self.state().names[name].now()
    }

    fn node(&self, state: &mut State, bytes: u64) -> Arc<Node> {
        state.last_inode += 1;
        let inode = state.last_inode;
        let file = self.0.memory.create(&inode.to_string(), bytes);
        Arc::new(Node { inode, file: file.expect("memory is large"), synced: Mutex::new(None) })
    }

    /// The way into every call: the power may go before it.
    fn enter(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        match state.cut.take() {
            Some((0, mut random)) => {
                // Before the files are looked at: what is acknowledged later may not be in them.
                let acknowledged = self.acknowledged();
                let disk = self.torn(&state, &mut random);
                state.left = Some(Left { disk, acknowledged });
            }
            Some((calls, random)) => state.cut = Some((calls - 1, random)),
            None => {}
        }
        state
    }

    fn file(&self, node: Arc<Node>) -> Box<dyn MediaFile> {
        let disk = self.clone();
        Box::new(CrashFile { disk, node })
    }
}

impl State {
    fn find(&self, name: &str) -> io::Result<Arc<Node>> {
        let found = self.names.get(name).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn changed(&mut self) {
        self.moments.push(self.names.clone());
    }
}

impl Media for CrashDisk {
    fn path(&self) -> &Path {
        Path::new("(crash disk)")
    }

    fn make(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.enter().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        let mut state = self.enter();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = self.node(&mut state, bytes);
        state.names.insert(name.to_owned(), node.clone());
        state.changed();
        Ok(self.file(node))
    }

    fn open(&self, name: &str, _: Access) -> io::Result<Box<dyn MediaFile>> {
        let node = self.enter().find(name)?;
        Ok(self.file(node))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.enter();
        let node = state.find(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), node);
        state.changed();
        Ok(())
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.enter();
        let node = state.find(from)?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.names.remove(from);
        state.names.insert(to.to_owned(), node);
        state.changed();
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.enter();
        state.find(name)?;
        state.names.remove(name);
        state.changed();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.enter();
        state.moments = vec![state.names.clone()];
        Ok(())
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        self.0.memory.locks(name, access)
    }

    fn boot_id(&self) -> io::Result<u128> {
        Ok(self.0.boot)
    }
}

#[derive(Debug)]
struct CrashFile {
    disk: CrashDisk,
    node: Arc<Node>,
}

impl CrashFile {
    fn is_log(&self, state: &State) -> bool {
        let mut log = state.names.iter().filter(|(name, _)| name.starts_with("wal-"));
        log.any(|(_, node)| node.inode == self.node.inode)
    }
}

impl MediaFile for CrashFile {
    fn bytes(&self) -> io::Result<u64> {
        self.node.file.bytes()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.node.file.allocated_bytes()
    }

    fn identity(&self) -> io::Result<u64> {
        Ok(self.node.inode)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.node.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let _state = self.disk.enter();
        self.node.file.write_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.enter();
        if self.is_log(&state) {
            state.log_syncs += 1;
            if std::mem::take(&mut state.failing) {
                return Err(io::Error::other("the disk is broken"));
            }
            while state.held {
                state = self.disk.0.gate.wait(state).expect("no panic");
            }
        }
        *self.node.synced.lock().expect("no panic") = Some(self.node.now());
        Ok(())
    }

    fn map(&self, access: Access) -> io::Result<Box<dyn Mapping>> {
        let _state = self.disk.enter();
        self.node.file.map(access)
    }
}
