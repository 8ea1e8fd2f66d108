//! A disk in memory that can lose its power or its process at any call, and fail on demand.
//!
//! It records all writes on a [tape](crate::crash::tape), from which the result of a power cut is
//! derived: another disk, in the next boot of the machine. Stores through mappings are recorded at
//! the next call that changes something, and when an operation has returned. After the death of the
//! process the content is unchanged, on the same boot of the machine.

use crate::crash::choices::{Chooser, Decider};
use crate::crash::fault::{Call, Plan};
use crate::crash::file::{CrashFile, CrashLocks};
use crate::crash::log;
use crate::crash::monitor;
use crate::crash::state::{Content, Shared, State};
use crate::crash::tape::{Course, Inode, Moment, Tape, Told};
use crate::random::Random;
use ebbtide::media::{Access, ByteLocks, Media, MediaFile};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A handle on the disk; clones share it.
#[derive(Debug, Clone)]
pub struct CrashDisk(Arc<Shared>);

impl Default for CrashDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl CrashDisk {
    /// Creates an empty disk that records.
    pub fn new() -> Self {
        Self(Shared::over(State::new(Tape::new(1), true)))
    }

    /// Returns the disk that a power cut at a moment of this tape leaves; `by` decides its content.
    pub fn after_cut(tape: &Arc<Tape>, at: Moment, by: &Decider, recording: bool) -> Self {
        let mut chooser = by.lock();
        let left = tape.cut(at, |of| chooser.pick(of));
        drop(chooser);
        let state = State { decider: Some(by.clone()), ..State::new(left, recording) };
        Self(Shared::over(state))
    }

    /// Records that the filter exists.
    pub fn tell_created(&self) {
        self.tell(|told| told.created = true);
    }

    /// Records that a checkpoint was written or was not needed. From then on, if there are two
    /// snapshots, the test may damage either again: a full disk may have removed the older one.
    pub fn tell_relieved(&self) {
        let is_there = |(name, course): (&String, &Course<Option<u64>>)| {
            name.starts_with("snap-") && course.last().is_some()
        };
        let snapshots = self.0.state().tape.names.iter().filter(|&file| is_there(file)).count();
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
        self.0.state().expect(|tape| monitor::acknowledged(tape, times));
    }

    fn tell(&self, change: impl FnOnce(&mut Told)) {
        let mut state = self.0.state();
        state.look();
        let mut told = *state.tape.told.last();
        change(&mut told);
        let now = state.tape.now;
        state.tape.told.set(now, told);
    }

    /// Returns the recorded acknowledgements so far.
    pub fn told(&self) -> Told {
        *self.0.state().tape.told.last()
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> Vec<String> {
        std::mem::take(&mut self.0.state().violations)
    }

    /// Ends the recording, and with it the use of the disk: every later call fails.
    pub fn end(&self) -> Arc<Tape> {
        let mut state = self.0.state();
        state.look();
        state.dead = true;
        let boot = state.tape.boot;
        Arc::new(std::mem::replace(&mut state.tape, Tape::new(boot)))
    }

    /// Returns the recording so far.
    pub fn tape(&self) -> Arc<Tape> {
        let mut state = self.0.state();
        state.look();
        Arc::new(state.tape.clone())
    }

    /// Returns the disk that a power cut would leave now.
    pub fn without_power(&self, random: Random) -> Self {
        let tape = self.tape();
        let by = Chooser::chance(random).shared();
        Self::after_cut(&tape, tape.now, &by, true)
    }

    /// Returns the disk that the death of the process would leave now: the whole content, on the
    /// same boot of the machine.
    pub fn without_process(&self) -> Self {
        Self(Shared::killed(&mut self.0.state()))
    }

    /// Lets the process die before this many more calls; [`CrashDisk::left`] returns the disk that
    /// it leaves.
    pub fn die_after(&self, calls: u64) {
        self.0.state().death = Some(calls);
    }

    /// Returns whether the process has died.
    pub fn has_left(&self) -> bool {
        self.0.state().left.is_some()
    }

    /// Returns the disk that the death of the process left, if it has died.
    pub fn left(&self) -> Option<Self> {
        self.0.state().left.take().map(Self)
    }

    /// Sets the planned failure, or clears it.
    pub fn plan(&self, fault: Option<Plan>) -> Option<Plan> {
        std::mem::replace(&mut self.0.state().fault, fault)
    }

    /// Returns the planned failure.
    pub fn planned(&self) -> Option<Plan> {
        self.0.state().fault
    }

    /// Lets the next sync of a log segment fail.
    pub fn fail_next_log_sync(&self) {
        self.0.state().failing = true;
    }

    /// Lets names that were changed before a failed sync of the directory be in doubt until they
    /// are changed again, also once the filter was opened.
    pub fn doubt_failed_names(&self) {
        self.0.state().tape.doubts_failed = true;
    }

    /// Lets syncs report success and do nothing, from now on; the monitor then expects nothing.
    pub fn lie(&self) {
        self.0.state().lying = true;
    }

    /// Writes the whole live image back.
    pub fn write_back(&self) {
        let mut state = self.0.state();
        let image = state.image();
        state.written_back.write(&image);
    }

    /// Fails to write back pages of the live image chosen by chance, and takes them back to what
    /// was written. Returns whether there were any.
    pub fn lose(&self, random: &mut Random) -> bool {
        let mut state = self.0.state();
        let image = state.image();
        state.written_back.lose(&image, random)
    }

    /// Returns all slots of the log with a record, a void or remains of either, from this LSN on.
    pub fn log(&self, from: u64) -> log::Found {
        let mut state = self.0.state();
        state.look();
        log::read(&state.tape, from)
    }

    /// Records that all records below an LSN are durable: the monitor expects them on disk.
    pub fn tell_durable_below(&self, end: u64) {
        let mut state = self.0.state();
        state.look();
        state.expect(|tape| monitor::log_lasts(tape, end));
    }

    /// Holds syncs of log segments, or releases them.
    pub fn hold_log_syncs(&self, held: bool) {
        self.0.state().held = held;
        self.0.gate.notify_all();
    }

    /// Returns the number of syncs of log segments.
    pub fn log_syncs(&self) -> u64 {
        self.0.state().log_syncs
    }

    /// Overwrites bytes of a file, to simulate decay.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) {
        let file = self.open(name, Access::Write).expect(name);
        file.write_at(bytes, offset).expect("memory is large");
    }

    /// Simulates the death of the writer of the newest record, of the operation at this time,
    /// before the publication: its slot is reserved and empty, and a stripe is held.
    pub fn unpublish(&self, time: u64) {
        let place = monitor::publication(&self.0.state().tape, time);
        let (name, offset) = place.expect("the newest record has this time");
        self.overwrite(&name, offset, &[0; 8]);
        // The lock word of the first ordinary stripe: the second entry of the table at word 256.
        self.overwrite("live", 8 * (256 + 8), &1_u64.to_le_bytes());
    }

    /// Simulates the death of a writer within a batch, of which these LSNs are not published: their
    /// slots, all in the newest segment and none durable, are reserved and empty.
    pub fn unpublish_slots(&self, lsns: Range<u64>) {
        let (name, count) = (self.names("wal-").pop().expect("a segment"), lsns.end - lsns.start);
        let first = name.rsplit('-').next().and_then(|first| first.parse::<u64>().ok());
        let offset = 4096 + (lsns.start - first.expect("its first LSN")) * 32;
        self.overwrite(&name, offset, &vec![0; 32 * count as usize]);
        // How many slots may be empty although no stripe is held for them.
        self.overwrite("live", 232, &count.to_le_bytes());
    }

    /// Returns whether there is a file of this name; not a call to the disk that may fail.
    pub fn has(&self, name: &str) -> bool {
        self.0.state().tape.find(name).is_some()
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

    fn file(&self, state: &mut State, inode: u64) -> Box<dyn MediaFile> {
        let file = state.content(&self.0.memory, inode).file.clone();
        let received = state.written_back.open(inode);
        Box::new(CrashFile { disk: self.0.clone(), inode, file, received })
    }

    fn move_name(&self, from: &str, to: &str, may_replace: bool) -> io::Result<()> {
        let (mut state, way) = self.0.enter(Call::Rename)?;
        let inode = state.find(from)?;
        if !may_replace && state.find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.expect(|tape| monitor::renamed(tape, from, to));
        state.tape.now += 1;
        state.tape.name(from, None);
        state.tape.name(to, Some(inode));
        if to == "live" {
            state.tape.reopen();
        }
        state.late(way)
    }
}

impl Media for CrashDisk {
    fn path(&self) -> &Path {
        Path::new("(crash disk)")
    }

    fn make(&self) -> io::Result<()> {
        self.0.enter(Call::Make).map(drop)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let (state, _) = self.0.enter(Call::List)?;
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
        let (mut state, way) = self.0.enter(Call::Create)?;
        if state.find(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.tape.now += 1;
        state.tape.last_inode += 1;
        let (inode, now) = (state.tape.last_inode, state.tape.now);
        let file = self.0.memory.create_with_hole(&inode.to_string(), bytes, allocated)?;
        let bank = name.starts_with("live-");
        state.tape.inodes.insert(inode, Inode::new(now, bytes, bank));
        state.contents.insert(inode, Content { file: file.into(), look: None, end: allocated });
        state.tape.name(name, Some(inode));
        state.late(way)?;
        Ok(self.file(&mut state, inode))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        let (mut state, _) = self.0.enter(Call::Open)?;
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

    fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, way) = self.0.enter(Call::Rename)?;
        let inode = state.find(from)?;
        if state.find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.tape.now += 1;
        state.tape.name(to, Some(inode));
        state.late(way)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, way) = self.0.enter(Call::Remove)?;
        state.find(name)?;
        state.expect(|tape| monitor::removed(tape, name));
        state.tape.now += 1;
        state.tape.name(name, None);
        state.late(way)
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, way) = self.0.enter(Call::SyncDirectory)?;
        if !state.lying && state.tape.sync() {
            state.forget_nameless();
        }
        state.late(way)
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        let (mut state, _) = self.0.enter(Call::Locks)?;
        if access == Access::Write {
            state.tape.reopen();
        }
        let locks = self.0.memory.locks(name, access)?;
        Ok(Box::new(CrashLocks { disk: self.0.clone(), locks }))
    }

    fn boot_id(&self) -> io::Result<u128> {
        let (state, _) = self.0.enter(Call::BootId)?;
        Ok(state.tape.boot)
    }
}
