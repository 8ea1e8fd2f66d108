//! The state of a crash disk, and the admission of calls to it: the process may die before each,
//! and each may fail.

use crate::crash::choices::Decider;
use crate::crash::fault::{Call, Fault, Plan};
use crate::crash::monitor;
use crate::crash::tape::{SECTOR_BYTES, SECTOR_WORDS, Tape, Told};
use crate::random::mix;
use crate::write_back::{Image, WrittenBack};
use ebbtide::media::{Access, Mapping, Media, MediaFile, Memory};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the handles on a disk share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Keeps each file that was opened under its inode number, permanently.
    pub(crate) memory: Memory,
    pub(crate) state: Mutex<State>,
    pub(crate) gate: Condvar,
}

/// A file that was opened.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) file: Arc<dyn MediaFile>,
    /// The mapping through which stores are seen, once the file has been mapped.
    pub(crate) look: Option<Box<dyn Mapping>>,
    /// Nothing was stored from this byte on: it is a hole, until space is allocated there.
    pub(crate) end: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tape: Tape,
    pub(crate) contents: BTreeMap<u64, Content>,
    pub(crate) recording: bool,
    pub(crate) decider: Option<Decider>,
    pub(crate) violations: Vec<String>,
    /// Every call fails: the test no longer needs the disk.
    pub(crate) dead: bool,
    pub(crate) fault: Option<Plan>,
    /// The process dies before this many more calls.
    pub(crate) death: Option<u64>,
    pub(crate) left: Option<Arc<Shared>>,
    /// The next sync of a log segment fails.
    pub(crate) failing: bool,
    /// Syncs of log segments wait.
    pub(crate) held: bool,
    /// The number of syncs of log segments so far.
    pub(crate) log_syncs: u64,
    /// For each file how often stores were passed on to it, less the syncs since.
    pub(crate) passed_on: BTreeMap<u64, u64>,
    /// Syncs report success and do nothing.
    pub(crate) lying: bool,
    /// What was written back of the live image.
    pub(crate) written_back: WrittenBack,
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
    pub(crate) fn new(tape: Tape, recording: bool) -> Self {
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
            passed_on: BTreeMap::new(),
            lying: false,
            written_back: WrittenBack::default(),
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
                let sectors = content.end.div_ceil(SECTOR_BYTES as u64) as usize;
                let words = look.words().chunks(SECTOR_WORDS).take(sectors);
                for (sector, words) in words.enumerate() {
                    inode.look(self.tape.now, sector, words);
                }
            }
        }
    }

    /// Notes a sync of a log segment. On macOS it would not find stores to the mapping that were
    /// not passed on to the file.
    fn take_passed_on(&mut self, number: u64) {
        let is_mapped = self.contents.get(&number).is_some_and(|content| content.look.is_some());
        let left = self.passed_on.entry(number).or_default();
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None if is_mapped => {
                self.violations.push(format!("segment {number} was synced without its stores"));
            }
            None => {}
        }
    }

    /// Checks an invariant of the tape.
    pub(crate) fn expect(&mut self, holds: impl FnOnce(&Tape) -> Result<(), String>) {
        if self.recording
            && !self.lying
            && !monitor::is_blind()
            && let Err(what) = holds(&self.tape)
        {
            self.violations.push(what);
        }
    }

    /// Returns the files of the live image.
    pub(crate) fn image(&self) -> Image {
        let live = self.tape.names.iter().filter(|(name, _)| name.starts_with("live"));
        let inodes = live.filter_map(|(_, course)| *course.last());
        let opened = inodes.filter_map(|inode| Some((inode, self.contents.get(&inode)?)));
        let map = |content: &Content| content.file.map(Access::Write).expect("whole words");
        opened.map(|(inode, content)| (inode, map(content))).collect()
    }

    pub(crate) fn find(&self, name: &str) -> io::Result<u64> {
        self.tape.find(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Drops the files without a name, which cannot come back once the directory is synced.
    pub(crate) fn forget_nameless(&mut self) {
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
            let end = inode.stored_end().min(length);
            let file = memory.create_with_hole(&number.to_string(), length, end);
            let file = file.expect("memory is large");
            Content { file: file.into(), look: None, end }
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
                Some(decider) => decider.lock().sector(versions, asked),
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

    /// Drops pages of a file that have changed since its last sync, about three in four: nothing
    /// that was not durable counts as returned any more.
    pub(crate) fn drop_pages(&mut self, number: u64) {
        const SECTORS_OF_PAGE: usize = 4096 / SECTOR_BYTES;
        let (Some(inode), Some(content)) =
            (self.tape.inodes.get(&number), self.contents.get(&number))
        else {
            return;
        };
        let now = self.tape.now;
        let end = content.end.div_ceil(SECTOR_BYTES as u64) as usize;
        let is_dropped =
            |sector: &usize| !mix(now ^ mix((sector / SECTORS_OF_PAGE) as u64)).is_multiple_of(4);
        for sector in (0..end).filter(is_dropped) {
            let Some(before) = inode.before_changes(sector, now) else { continue };
            match &content.look {
                Some(look) => {
                    let words = look.words()[sector * SECTOR_WORDS..].iter();
                    let changes = words.zip(before.iter());
                    changes.for_each(|(word, &before)| word.store(before, Ordering::Relaxed));
                }
                None => {
                    let offset = sector as u64 * SECTOR_BYTES as u64;
                    let bytes: Vec<u8> =
                        before.iter().flat_map(|word| word.to_le_bytes()).collect();
                    let there = content.file.bytes().expect("memory has a length") - offset;
                    let there = there.min(SECTOR_BYTES as u64) as usize;
                    content.file.write_at(&bytes[..there], offset).expect("memory is large");
                }
            }
        }
        let mut told = *self.tape.told.last();
        told.begun = told.most();
        told.returned = told.durable;
        self.tape.told.set(now, told);
        self.look();
    }

    /// Returns the system's result for a call that has succeeded.
    pub(crate) fn late(&self, way: Way) -> io::Result<()> {
        if way == Way::Late { Err(self.failure()) } else { Ok(()) }
    }

    /// Returns the system's error for a failed call.
    pub(crate) fn failure(&self) -> io::Error {
        self.planned()
            .and_then(Fault::error)
            .unwrap_or_else(|| io::Error::other("the disk is broken"))
    }
}

fn pick(decider: &Option<Decider>, of: usize) -> usize {
    let Some(decider) = decider else { return of - 1 };
    decider.lock().pick(of)
}

impl Shared {
    pub(crate) fn over(state: State) -> Arc<Self> {
        let memory = Memory::new();
        memory.make().expect("memory can be made");
        Arc::new(Self { memory, state: Mutex::new(state), gate: Condvar::new() })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the disk that the death of the process would leave now.
    pub(crate) fn killed(state: &mut State) -> Arc<Self> {
        keep_holes_free();
        state.look();
        let killed = Self::over(State::new(state.tape.clone(), state.recording));
        let mut new = killed.state();
        new.decider = state.decider.clone();
        for (&number, content) in &state.contents {
            let bytes = content.file.bytes().expect("memory has a length");
            let end = content.end.min(bytes);
            let mut copied = vec![0; end as usize];
            content.file.read_at(&mut copied, 0).expect("memory can be read");
            let file = killed.memory.create_with_hole(&number.to_string(), bytes, end);
            let file = file.expect("memory is large");
            file.write_at(&copied, 0).expect("memory is large");
            new.contents.insert(number, Content { file: file.into(), look: None, end });
        }
        drop(new);
        killed
    }

    /// Admits a call: the process may die before it, and it may fail.
    pub(crate) fn enter(&self, call: Call) -> io::Result<(MutexGuard<'_, State>, Way)> {
        let mut state = self.state();
        if state.dead {
            return Err(io::Error::other("the disk is no longer in use"));
        }
        match state.death.take() {
            Some(0) => state.left = Some(Self::killed(&mut state)),
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
            Some(error) if !matches!(call, Call::Write | Call::Sync) => {
                if call == Call::SyncDirectory {
                    state.tape.fail();
                }
                Err(error)
            }
            _ => Ok((state, Way::Badly)),
        }
    }

    /// Admits a sync of a file.
    pub(crate) fn enter_sync(&self, number: u64) -> io::Result<(MutexGuard<'_, State>, Way)> {
        let (mut state, way) = self.enter(Call::Sync)?;
        let mut log = state.tape.names.iter().filter(|(name, _)| name.starts_with("wal-"));
        if log.any(|(_, course)| *course.last() == Some(number)) {
            state.log_syncs += 1;
            state.take_passed_on(number);
            if std::mem::take(&mut state.failing) {
                return Ok((state, Way::Badly));
            }
            while state.held {
                self.gate.wait(&mut state);
            }
            state.look();
        }
        Ok((state, way))
    }
}

/// Lets the allocator ask the system for each file of a megabyte or more, and give it back: its
/// zeros then cost nothing until they are used. By default it keeps the largest that was freed, and
/// writes the zeros of the next one itself, most of which are a hole.
fn keep_holes_free() {
    #[cfg(target_env = "gnu")]
    static ONCE: std::sync::Once = std::sync::Once::new();
    #[cfg(target_env = "gnu")]
    ONCE.call_once(|| {
        #[expect(unsafe_code, reason = "no safe wrapper offers it")]
        // SAFETY: changes a number of the allocator, under its lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        }
    });
}
