//! A disk in memory that can lose its power or its process at any call, and fail on demand.
//!
//! It records all writes on a [tape](crate::crash::tape), from which the result of a power cut is
//! derived: another disk, in the next boot of the machine. Stores through mappings are recorded at
//! the next call that changes something, and when an operation has returned. After the death of the
//! process the content is unchanged, on the same boot of the machine.

use crate::crash::choices::Chooser;
use crate::crash::fault::{Call, Fault, Plan};
use crate::crash::file::{Content, CrashFile, CrashLocks};
use crate::crash::monitor;
use crate::crash::tape::{Course, Inode, Moment, SECTOR_BYTES, SECTOR_WORDS, Tape, Told};
use ebbtide::media::{Access, ByteLocks, Media, MediaFile, Memory};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Decides the results of a cut; shared with the caller that advances to the next result.
pub type Decider = Arc<Mutex<Chooser>>;

/// A handle on the disk; clones share it.
#[derive(Debug, Clone)]
pub struct CrashDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Keeps each file that was opened under its inode number, permanently.
    memory: Memory,
    state: Mutex<State>,
    gate: Condvar,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tape: Tape,
    contents: BTreeMap<u64, Content>,
    pub(crate) recording: bool,
    decider: Option<Decider>,
    violations: Vec<String>,
    /// Every call fails: the test no longer needs the disk.
    dead: bool,
    fault: Option<Plan>,
    /// The process dies before this many more calls.
    death: Option<u64>,
    left: Option<CrashDisk>,
    /// The next sync of a log segment fails.
    failing: bool,
    /// Syncs of log segments wait.
    held: bool,
    /// The number of syncs of log segments so far.
    log_syncs: u64,
}

/// The result of a call that was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Well,
    /// Half of it, or one bit wrong; then the error, if there is one.
    Badly,
    /// Success; then the error.
    Late,
}

impl State {
    fn new(tape: Tape, recording: bool) -> Self {
        Self {
            tape,
            contents: BTreeMap::new(),
            recording,
            decider: None,
            violations: Vec::new(),
            dead: false,
            fault: None,
            death: None,
            left: None,
            failing: false,
            held: false,
            log_syncs: 0,
        }
    }

    /// Records the stores through mappings.
    pub(crate) fn look(&mut self) {
        if !self.recording {
            return;
        }
        self.tape.now += 1;
        for (number, content) in &self.contents {
            if let (Some(look), Some(inode)) = (&content.look, self.tape.inodes.get_mut(number)) {
                for (sector, words) in look.words().chunks(SECTOR_WORDS).enumerate() {
                    inode.look(self.tape.now, sector, words);
                }
            }
        }
    }

    /// Checks an invariant of the tape.
    pub(crate) fn expect(&mut self, holds: impl FnOnce(&Tape) -> Result<(), String>) {
        if self.recording
            && !monitor::is_blind()
            && let Err(what) = holds(&self.tape)
        {
            self.violations.push(what);
        }
    }

    pub(crate) fn find(&self, name: &str) -> io::Result<u64> {
        self.tape.find(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Drops the files without a name, which cannot come back once the directory is synced.
    fn forget_nameless(&mut self) {
        let names = self.tape.names.values().filter_map(|course| *course.last());
        let named: Vec<u64> = names.collect();
        for (number, content) in &mut self.contents {
            if !named.contains(number) {
                content.look = None;
            }
        }
    }

    /// Returns the content of a file, for reads and writes.
    pub(crate) fn content(&mut self, memory: &Memory, number: u64) -> &mut Content {
        let decider = &self.decider;
        let inode = self.tape.inodes.entry(number).or_default();
        self.contents.entry(number).or_insert_with(|| {
            let lengths = inode.lengths(self.tape.now);
            let length = lengths[pick(decider, lengths.len())];
            inode.decide_length(length);
            let file = memory.create(&number.to_string(), length).expect("memory is large");
            Content { file: file.into(), look: None }
        })
    }

    /// Records a write by a call to these bytes of a file.
    pub(crate) fn note(&mut self, number: u64, file: &dyn MediaFile, bytes: Range<u64>) {
        let Some(inode) = self.tape.inodes.get_mut(&number).filter(|_| self.recording) else {
            return;
        };
        let (now, size) = (self.tape.now, SECTOR_BYTES as u64);
        let length = file.bytes().expect("memory has a length");
        inode.grow(now, length);
        for sector in bytes.start / size..bytes.end.div_ceil(size) {
            let mut content = [0; SECTOR_BYTES];
            let there = (length - sector * size).min(size) as usize;
            file.read_at(&mut content[..there], sector * size).expect("it is there");
            let mut words = [0; SECTOR_WORDS];
            for (word, bytes) in words.iter_mut().zip(content.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            }
            inode.store(now, sector as usize, &words);
        }
    }

    /// Returns the planned failure.
    pub(crate) fn planned(&self) -> Option<Fault> {
        self.fault.map(|plan| plan.fault)
    }

    /// Decides these bytes of a file, unless they are decided.
    pub(crate) fn decide(&mut self, number: u64, bytes: Range<u64>) {
        let (Some(inode), Some(content)) =
            (self.tape.inodes.get_mut(&number), self.contents.get(&number))
        else {
            return;
        };
        let length = content.file.bytes().expect("memory has a length");
        let end = bytes.end.min(length);
        let words = SECTOR_WORDS as u64 * 8;
        for sector in bytes.start / words..end.div_ceil(words) {
            let start = sector * words;
            if !inode.is_open(sector as usize) {
                continue;
            }
            let asked = |byte: u64| (byte.clamp(start, start + words) - start) as usize;
            let asked = asked(bytes.start) / 8..asked(end).div_ceil(8);
            let versions = inode.versions(sector as usize, self.tape.now);
            let chosen = match &self.decider {
                Some(decider) => decider.lock().expect("no panic").sector(versions, asked),
                None => versions[versions.len() - 1].1.clone(),
            };
            let last = (length - start).min(words) as usize;
            match &content.look {
                Some(look) => {
                    let to = look.words()[start as usize / 8..].iter();
                    to.zip(chosen.iter()).for_each(|(to, &word)| to.store(word, Ordering::Relaxed));
                }
                None => {
                    let bytes: Vec<u8> =
                        chosen.iter().flat_map(|word| word.to_le_bytes()).collect();
                    content.file.write_at(&bytes[..last], start).expect("memory is large");
                }
            }
            inode.decide(sector as usize, chosen);
        }
    }
}

fn pick(decider: &Option<Decider>, of: usize) -> usize {
    let Some(decider) = decider else { return of - 1 };
    decider.lock().expect("no panic").pick(of)
}

impl Default for CrashDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl CrashDisk {
    /// Creates an empty disk that records.
    pub fn new() -> Self {
        Self::over(State::new(Tape::new(1), true))
    }

    fn over(state: State) -> Self {
        let memory = Memory::new();
        memory.make().expect("memory can be made");
        let shared = Shared { memory, state: Mutex::new(state), gate: Condvar::new() };
        Self(Arc::new(shared))
    }

    /// Returns the disk that a power cut at a moment of this tape leaves; `by` decides its content.
    pub fn after_cut(tape: &Arc<Tape>, at: Moment, by: &Decider, recording: bool) -> Self {
        let left = tape.cut(at, &mut by.lock().expect("no panic"));
        let state = State { decider: Some(by.clone()), ..State::new(left, recording) };
        Self::over(state)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no test panics in here")
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Records that the filter exists.
    pub fn tell_created(&self) {
        self.tell(|told| told.created = true);
    }

    /// Records that a checkpoint was written or was not needed: if there are two snapshots, either
    /// may be damaged again.
    pub fn tell_relieved(&self) {
        let is_there = |(name, course): (&String, &Course<Option<u64>>)| {
            name.starts_with("snap-") && course.last().is_some()
        };
        let snapshots = self.state().tape.names.iter().filter(|&file| is_there(file)).count();
        self.tell(|told| told.full &= snapshots < 2);
    }

    /// Records that operations up to this one will begin, with no inspection of the disk between
    /// them.
    pub fn tell_begun(&self, count: u64) {
        self.tell(|told| told.begun = count);
    }

    /// Records that this many operations of a thread have returned.
    pub fn tell_returned(&self, thread: usize, count: u64) {
        self.tell(|told| told.returned[thread] = count);
    }

    /// Records that this many operations of a thread have returned and are durable; the newly
    /// durable ones had these times.
    pub fn tell_durable(&self, thread: usize, count: u64, times: &[u64]) {
        self.tell(|told| {
            told.returned[thread] = told.returned[thread].max(count);
            told.durable[thread] = told.durable[thread].max(count);
        });
        self.state().expect(|tape| monitor::acknowledged(tape, times));
    }

    fn tell(&self, change: impl FnOnce(&mut Told)) {
        let mut state = self.state();
        state.look();
        let mut told = *state.tape.told.last();
        change(&mut told);
        let now = state.tape.now;
        state.tape.told.set(now, told);
    }

    /// Returns the recorded acknowledgements so far.
    pub fn told(&self) -> Told {
        *self.state().tape.told.last()
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().violations)
    }

    /// Ends the recording, and with it the use of the disk: every later call fails.
    pub fn end(&self) -> Arc<Tape> {
        let mut state = self.state();
        state.look();
        state.dead = true;
        let boot = state.tape.boot;
        Arc::new(std::mem::replace(&mut state.tape, Tape::new(boot)))
    }

    /// Returns the recording so far.
    pub fn tape(&self) -> Arc<Tape> {
        let mut state = self.state();
        state.look();
        Arc::new(state.tape.clone())
    }

    /// Returns the disk that a power cut would leave now.
    pub fn without_power(&self, random: crate::random::Random) -> Self {
        let tape = self.tape();
        let by = Arc::new(Mutex::new(Chooser::chance(random)));
        Self::after_cut(&tape, tape.now, &by, true)
    }

    /// Returns the disk that the death of the process would leave now: the whole content, on the
    /// same boot of the machine.
    pub fn without_process(&self) -> Self {
        self.killed(&mut self.state())
    }

    fn killed(&self, state: &mut State) -> Self {
        state.look();
        let killed = Self::over(State::new(state.tape.clone(), state.recording));
        let mut new = killed.state();
        new.decider = state.decider.clone();
        for (&number, content) in &state.contents {
            let bytes = content.file.bytes().expect("memory has a length");
            let mut copied = vec![0; bytes as usize];
            content.file.read_at(&mut copied, 0).expect("memory can be read");
            let file = killed.0.memory.create(&number.to_string(), bytes).expect("memory is large");
            file.write_at(&copied, 0).expect("memory is large");
            new.contents.insert(number, Content { file: file.into(), look: None });
        }
        drop(new);
        killed
    }

    /// Lets the process die before this many more calls; [`CrashDisk::left`] returns the disk that
    /// it leaves.
    pub fn die_after(&self, calls: u64) {
        self.state().death = Some(calls);
    }

    /// Returns whether the process has died.
    pub fn has_left(&self) -> bool {
        self.state().left.is_some()
    }

    /// Returns the disk that the death of the process left, if it has died.
    pub fn left(&self) -> Option<Self> {
        self.state().left.take()
    }

    /// Sets the planned failure, or clears it.
    pub fn plan(&self, fault: Option<Plan>) -> Option<Plan> {
        std::mem::replace(&mut self.state().fault, fault)
    }

    /// Lets the next sync of a log segment fail.
    pub fn fail_next_log_sync(&self) {
        self.state().failing = true;
    }

    /// Holds syncs of log segments, or releases them.
    pub fn hold_log_syncs(&self, held: bool) {
        self.state().held = held;
        self.0.gate.notify_all();
    }

    /// Returns the number of syncs of log segments.
    pub fn log_syncs(&self) -> u64 {
        self.state().log_syncs
    }

    /// Overwrites bytes of a file, to simulate decay.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) {
        let file = self.open(name, Access::Write).expect(name);
        file.write_at(bytes, offset).expect("memory is large");
    }

    /// Simulates the death of the writer of the newest record, of the operation at this time,
    /// before the publication: its slot is reserved and empty, and a stripe is held.
    pub fn unpublish(&self, time: u64) {
        let place = monitor::publication(&self.state().tape, time);
        let (name, offset) = place.expect("the newest record has this time");
        self.overwrite(&name, offset, &[0; 8]);
        // The lock word of the first ordinary stripe: the second entry of the table at word 256.
        self.overwrite("live", 8 * (256 + 8), &1_u64.to_le_bytes());
    }

    /// Returns the names that begin with `prefix`, ascending.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let mut names = self.list().expect("a directory");
        names.retain(|name| name.starts_with(prefix));
        names
    }

    /// Returns the bytes of a file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let file = self.open(name, Access::Read).expect(name);
        let mut content = vec![0; file.bytes().expect("memory has a length") as usize];
        file.read_at(&mut content, 0).expect("memory can be read");
        content
    }

    /// Admits a call: the process may die before it, and it may fail.
    pub(crate) fn enter(&self, call: Call) -> io::Result<(MutexGuard<'_, State>, Way)> {
        let mut state = self.state();
        if state.dead {
            return Err(io::Error::other("the disk is no longer in use"));
        }
        match state.death.take() {
            Some(0) => state.left = Some(self.killed(&mut state)),
            later => state.death = later.map(|calls| calls - 1),
        }
        let looks = matches!(
            call,
            Call::Create
                | Call::Rename
                | Call::Remove
                | Call::SyncDirectory
                | Call::Allocate
                | Call::Free
                | Call::Write
                | Call::Truncate
                | Call::Sync
                | Call::Map
        );
        if looks {
            state.look();
        }
        let Some(plan) = &mut state.fault else {
            return Ok((state, Way::Well));
        };
        let fault = plan.fault;
        if !plan.strikes(call) {
            return Ok((state, Way::Well));
        }
        if fault.is_full() {
            let (now, told) = (state.tape.now, *state.tape.told.last());
            state.tape.told.set(now, Told { full: true, ..told });
        }
        match fault.error() {
            Some(_) if fault == Fault::DoneAndFailed => Ok((state, Way::Late)),
            // Writes and syncs define the effect of their failures themselves.
            Some(error) if !matches!(call, Call::Write | Call::Sync) => Err(error),
            _ => Ok((state, Way::Badly)),
        }
    }

    /// Admits a sync of a file.
    pub(crate) fn enter_sync(&self, number: u64) -> io::Result<(MutexGuard<'_, State>, Way)> {
        let (mut state, way) = self.enter(Call::Sync)?;
        let mut log = state.tape.names.iter().filter(|(name, _)| name.starts_with("wal-"));
        if log.any(|(_, course)| *course.last() == Some(number)) {
            state.log_syncs += 1;
            if std::mem::take(&mut state.failing) {
                return Ok((state, Way::Badly));
            }
            while state.held {
                state = self.0.gate.wait(state).expect("no panic");
            }
            state.look();
        }
        Ok((state, way))
    }

    fn file(&self, state: &mut State, inode: u64) -> Box<dyn MediaFile> {
        let file = state.content(&self.0.memory, inode).file.clone();
        Box::new(CrashFile { disk: self.clone(), inode, file })
    }

    fn move_name(&self, from: &str, to: &str, may_replace: bool) -> io::Result<()> {
        let (mut state, way) = self.enter(Call::Rename)?;
        let inode = state.find(from)?;
        if !may_replace && state.find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.expect(|tape| monitor::renamed(tape, from, to));
        state.tape.now += 1;
        state.tape.name(from, None);
        state.tape.name(to, Some(inode));
        state.late(way)
    }
}

impl Media for CrashDisk {
    fn path(&self) -> &Path {
        Path::new("(crash disk)")
    }

    fn make(&self) -> io::Result<()> {
        self.enter(Call::Make).map(drop)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let (state, _) = self.enter(Call::List)?;
        let there = state.tape.names.iter().filter(|(_, course)| course.last().is_some());
        Ok(there.map(|(name, _)| name.clone()).collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        self.create_with_hole(name, bytes, bytes)
    }

    fn create_with_hole(
        &self,
        name: &str,
        bytes: u64,
        allocated: u64,
    ) -> io::Result<Box<dyn MediaFile>> {
        let (mut state, way) = self.enter(Call::Create)?;
        if state.find(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.tape.now += 1;
        state.tape.last_inode += 1;
        let (inode, now) = (state.tape.last_inode, state.tape.now);
        let file = self.0.memory.create_with_hole(&inode.to_string(), bytes, allocated)?;
        let bank = name.starts_with("live-");
        state.tape.inodes.insert(inode, Inode::new(now, bytes, bank));
        state.contents.insert(inode, Content { file: file.into(), look: None });
        state.tape.name(name, Some(inode));
        state.late(way)?;
        Ok(self.file(&mut state, inode))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        let (mut state, _) = self.enter(Call::Open)?;
        if name == "lock" {
            // It is empty, and created before all others; file systems keep the order of new names
            // in a directory.
            drop(self.0.memory.locks(name, Access::Write)?);
            return self.0.memory.open(name, access);
        }
        let inode = state.find(name)?;
        if let Some(inode) = state.tape.inodes.get_mut(&inode) {
            inode.reopen();
            if inode.is_bank() && inode.was_left() {
                state.violations.push(format!("{name} was opened after a power cut"));
            }
        }
        Ok(self.file(&mut state, inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.move_name(from, to, true)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.move_name(from, to, false)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, way) = self.enter(Call::Remove)?;
        state.find(name)?;
        state.expect(|tape| monitor::removed(tape, name));
        state.tape.now += 1;
        state.tape.name(name, None);
        state.late(way)
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, way) = self.enter(Call::SyncDirectory)?;
        state.tape.sync();
        state.forget_nameless();
        state.late(way)
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        let (_state, _) = self.enter(Call::Locks)?;
        let locks = self.0.memory.locks(name, access)?;
        Ok(Box::new(CrashLocks { disk: self.clone(), locks }))
    }

    fn boot_id(&self) -> io::Result<u128> {
        let (state, _) = self.enter(Call::BootId)?;
        Ok(state.tape.boot)
    }
}
