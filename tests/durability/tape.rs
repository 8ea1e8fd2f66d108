//! What was written to a disk, and when: enough to tell what a power cut at any moment may leave.
//!
//! A moment is a number: each call to the medium has one before its effect and one after it, each operation one when it
//! returned. Of each 512-byte sector of a file the tape has the version of every moment at which it had changed, of each file
//! every length, of each name in the directory every file that it was the name of; and when each was synced. What a sync found
//! is on the disk; what came later may be there or not, each sector and each name for itself.
//!
//! The blocks of a file without a name may be given to another one before the removal of its last name is on the disk (ext4 mounted with
//! `data=writeback` does so). If the name comes back, foreign bytes may be behind it.
//!
//! What is in the banks of a live image is not noted: it is most of what is written, and nobody must read it after a cut. Who opens
//! one then is reported.
//!
//! A disk that was left by a cut has a tape of its own, and reads from the one before what nobody has asked for yet.

use crate::choices::Chooser;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Bytes that a disk writes in one piece, or at least each eight of them.
pub const SECTOR_BYTES: usize = 512;
/// Words of a sector.
pub const SECTOR_WORDS: usize = SECTOR_BYTES / 8;
/// Threads whose operations are counted.
pub const THREADS: usize = 4;

/// A place on the tape.
pub type Moment = u64;
/// A version of a sector.
pub type Sector = Arc<[u64; SECTOR_WORDS]>;

/// What the users of a disk have been told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    /// That there is a filter.
    pub created: bool,
    /// That the disk is full: what would be needed if the newest snapshot were damaged may go.
    pub full: bool,
    /// How many operations of the first thread may have been begun, where that is more than one that has not returned.
    pub begun: u64,
    /// How many operations of each thread have returned.
    pub returned: [u64; THREADS],
    /// How many operations of each thread are durable.
    pub durable: [u64; THREADS],
}

impl Told {
    /// The most operations that there can be.
    pub fn most(&self) -> u64 {
        self.begun.max(self.returned[0] + 1)
    }
}

/// Something that changes, with the moments at which it did, ascending.
#[derive(Debug, Clone)]
pub struct Course<T>(Vec<(Moment, T)>);

impl<T: Clone + PartialEq> Course<T> {
    /// What is on the disk from the beginning.
    pub fn beginning(with: T) -> Self {
        Self(vec![(0, with)])
    }

    /// What it is now.
    pub fn last(&self) -> &T {
        &self.0[self.0.len() - 1].1
    }

    /// It changes.
    pub fn set(&mut self, now: Moment, to: T) {
        if *self.last() != to {
            self.0.push((now, to));
        }
    }

    /// What it was at a moment.
    pub fn at(&self, moment: Moment) -> &T {
        let after = self.0.partition_point(|(when, _)| *when <= moment);
        &self.0[after.max(1) - 1].1
    }

    /// What a cut at a moment may leave, oldest first, if the last sync before it was at `synced`.
    pub fn since(&self, synced: Moment, at: Moment) -> &[(Moment, T)] {
        let end = self.0.partition_point(|(when, _)| *when <= at).max(1);
        let begin = self.0[..end].partition_point(|(when, _)| *when < synced).max(1) - 1;
        &self.0[begin..end]
    }
}

/// The last of these moments that is not after `at`; 1, before which the tape does not reach, if there is none.
fn last_before(syncs: &[Moment], at: Moment) -> Moment {
    let after = syncs.partition_point(|&sync| sync <= at);
    after.checked_sub(1).map_or(1, |last| syncs[last])
}

/// Where the content of a file comes from that a cut left.
#[derive(Debug, Clone)]
struct Origin {
    tape: Arc<Tape>,
    inode: u64,
    at: Moment,
}

/// The content of a file, whatever its name.
#[derive(Debug, Clone, Default)]
pub struct Inode {
    /// What is not below is as the cut left it, which is not decided yet.
    origin: Option<Origin>,
    length: Option<Course<u64>>,
    sectors: Vec<Option<Course<Sector>>>,
    syncs: Vec<Moment>,
    /// The cut left its blocks with what another file had written to them.
    foreign: bool,
    /// A bank of the live image: what is stored in it is not noted.
    bank: bool,
    /// A sync of it has failed: no sync proves anything until it is opened anew.
    failed: bool,
}

/// What a sector holds that was never written.
static ZEROS: LazyLock<[(Moment, Sector); 1]> =
    LazyLock::new(|| [(0, Arc::new([0; SECTOR_WORDS]))]);

/// What a sector holds that belonged to another file since.
static FOREIGN: LazyLock<[(Moment, Sector); 1]> =
    LazyLock::new(|| [(0, Arc::new([0x6e67_6965_726f_6620; SECTOR_WORDS]))]);

impl Inode {
    /// A new file of zeros.
    pub fn new(now: Moment, bytes: u64, bank: bool) -> Self {
        let mut length = Course::beginning(0);
        length.set(now, bytes);
        Self { length: Some(length), bank, ..Self::default() }
    }

    /// Whether what is stored in it is not noted.
    pub fn is_bank(&self) -> bool {
        self.bank
    }

    /// Whether a power cut has left it.
    pub fn was_left(&self) -> bool {
        self.origin.is_some()
    }

    /// Its last sync before a moment.
    fn synced(&self, at: Moment) -> Moment {
        last_before(&self.syncs, at)
    }

    /// The lengths that a cut may leave, each once, oldest first.
    pub fn lengths(&self, at: Moment) -> Vec<u64> {
        match (&self.length, &self.origin) {
            (Some(length), _) => distinct(length.since(self.synced(at), at)),
            (None, Some(origin)) => origin.tape.inodes[&origin.inode].lengths(origin.at),
            (None, None) => vec![0],
        }
    }

    /// The versions of a sector that a cut may leave, oldest first.
    pub fn versions(&self, sector: usize, at: Moment) -> &[(Moment, Sector)] {
        match (self.sectors.get(sector), &self.origin) {
            (Some(Some(course)), _) => course.since(self.synced(at), at),
            _ if self.foreign => &*FOREIGN,
            (_, Some(origin)) => origin.tape.inodes[&origin.inode].versions(sector, origin.at),
            _ => &*ZEROS,
        }
    }

    /// Whether the cut that left the file left open what is in a sector.
    pub fn is_open(&self, sector: usize) -> bool {
        self.origin.is_some() && !matches!(self.sectors.get(sector), Some(Some(_)))
    }

    /// Its length has been decided.
    pub fn decide_length(&mut self, bytes: u64) {
        self.length.get_or_insert_with(|| Course::beginning(bytes));
    }

    /// What is in a sector has been decided.
    pub fn decide(&mut self, sector: usize, content: Sector) {
        *self.track(sector) = Some(Course::beginning(content));
    }

    fn track(&mut self, sector: usize) -> &mut Option<Course<Sector>> {
        if self.sectors.len() <= sector {
            self.sectors.resize(sector + 1, None);
        }
        &mut self.sectors[sector]
    }

    /// The file is so long now.
    pub fn grow(&mut self, now: Moment, bytes: u64) {
        if let Some(length) = &mut self.length {
            length.set(now, bytes);
        }
    }

    /// A sector that is not open is mapped and holds these words now.
    pub fn look(&mut self, now: Moment, sector: usize, words: &[AtomicU64]) {
        let differ = |last: &Sector| {
            let each = words.iter().zip(last.iter());
            each.fold(0, |all, (word, last)| all | (word.load(Ordering::Relaxed) ^ last)) != 0
        };
        if self.newest(sector).is_none_or(differ) {
            let mut content = [0; SECTOR_WORDS];
            for (to, word) in content.iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed);
            }
            self.store(now, sector, &content);
        }
    }

    /// A sector that is not open holds these words now; missing ones are zero.
    pub fn store(&mut self, now: Moment, sector: usize, words: &[u64]) {
        let same = |last: &Sector| last[..words.len()] == *words;
        match self.track(sector) {
            Some(course) if same(course.last()) => {}
            slot => {
                let mut content = [0; SECTOR_WORDS];
                content[..words.len()].copy_from_slice(words);
                slot.get_or_insert_with(|| Course(ZEROS.to_vec())).set(now, content.into());
            }
        }
    }

    /// Everything so far is on the disk.
    pub fn sync(&mut self, now: Moment) {
        if !self.failed {
            self.syncs.push(now);
        }
    }

    /// A sync has failed: its pages count as clean, and may not be on the disk.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// It was opened: who does so after a failed sync stores to each page before it relies on the next sync, which a model that
    /// looks at contents cannot see.
    pub fn reopen(&mut self) {
        self.failed = false;
    }

    /// The words of a range of a sector, if a cut now leaves them as they are for certain.
    pub fn certain(&self, sector: usize, words: Range<usize>, now: Moment) -> Option<Vec<u64>> {
        let (newest, others) = self.versions(sector, now).split_last()?;
        let newest = &newest.1[words.clone()];
        others.iter().all(|(_, other)| other[words.clone()] == *newest).then(|| newest.to_vec())
    }

    /// The newest version of a sector that somebody has asked for.
    pub fn newest(&self, sector: usize) -> Option<&Sector> {
        Some(self.sectors.get(sector)?.as_ref()?.last())
    }

    /// Whether nothing of it is lost in a cut now.
    pub fn is_synced(&self, now: Moment) -> bool {
        let mut sectors = 0..self.sectors.len();
        self.lengths(now).len() == 1 && sectors.all(|at| self.versions(at, now).len() == 1)
    }

    /// Sectors that have changed since the last sync before a moment.
    fn dirty(&self, at: Moment) -> usize {
        (0..self.sectors.len()).filter(|&sector| self.versions(sector, at).len() > 1).count()
    }
}

/// What may be left, each once, the newest of equal ones.
fn distinct<T: Copy + PartialEq>(all: &[(Moment, T)]) -> Vec<T> {
    let mut kept: Vec<T> = Vec::with_capacity(all.len());
    for &(_, one) in all.iter().rev() {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept.reverse();
    kept
}

/// The tape of one disk.
#[derive(Debug, Clone)]
pub struct Tape {
    /// The run of the machine.
    pub boot: u128,
    /// The newest moment.
    pub now: Moment,
    /// What each name is the name of.
    pub names: BTreeMap<String, Course<Option<u64>>>,
    /// The files.
    pub inodes: BTreeMap<u64, Inode>,
    /// The last one made.
    pub last_inode: u64,
    /// What users were told.
    pub told: Course<Told>,
    syncs: Vec<Moment>,
    /// The moments right before something got synced that was not on the disk for certain.
    fullest: Vec<Moment>,
}

impl Tape {
    /// An empty directory in this run of the machine.
    pub fn new(boot: u128) -> Self {
        Self {
            boot,
            now: 1,
            names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            last_inode: 0,
            told: Course::beginning(Told::default()),
            syncs: Vec::new(),
            fullest: Vec::new(),
        }
    }

    /// The file of a name.
    pub fn find(&self, name: &str) -> Option<u64> {
        *self.names.get(name)?.last()
    }

    /// A name is now that of another file, or of none.
    pub fn name(&mut self, name: &str, inode: Option<u64>) {
        let names = self.names.entry(name.to_owned());
        names.or_insert_with(|| Course::beginning(None)).set(self.now, inode);
    }

    /// What a name may be the name of after a cut at a moment, oldest first.
    pub fn left_by_name(&self, name: &str, at: Moment) -> Vec<Option<u64>> {
        let synced = last_before(&self.syncs, at);
        let course = self.names.get(name).map(|course| course.since(synced, at));
        distinct(course.unwrap_or_default())
    }

    /// The directory is synced.
    pub fn sync(&mut self) {
        self.now += 1;
        self.fullest.push(self.now - 1);
        self.syncs.push(self.now);
    }

    /// A file is synced.
    pub fn sync_file(&mut self, inode: u64) {
        self.now += 1;
        if let Some(file) = self.inodes.get_mut(&inode) {
            self.fullest.push(self.now - 1);
            file.sync(self.now);
        }
    }

    /// How many files there have been whose names begin so.
    pub fn count(&self, prefix: &str) -> u64 {
        self.names.keys().filter(|name| name.starts_with(prefix)).count() as u64
    }

    /// The moments at which a cut may leave most: what it may leave at any other moment, it may leave at the next of these,
    /// when no less has been acknowledged. For between syncs what may be left only grows.
    pub fn fullest(&self) -> impl Iterator<Item = Moment> {
        let before = self.fullest.iter().copied();
        before.chain([self.now]).filter(|&moment| moment > 0)
    }

    /// Sectors, of files with these names at a moment, that are not on the disk for certain.
    pub fn dirty(&self, at: Moment, counts: impl Fn(&str) -> bool) -> usize {
        let named = self.names.iter().filter(|(name, _)| counts(name));
        let inodes = named.filter_map(|(_, course)| *course.at(at));
        inodes.map(|inode| self.inodes[&inode].dirty(at)).sum()
    }

    /// What a cut at a moment leaves. Names are decided now, contents when somebody asks.
    pub fn cut(self: &Arc<Self>, at: Moment, chooser: &mut Chooser) -> Self {
        let mut left = Self { last_inode: self.last_inode, ..Self::new(self.boot + 1) };
        left.told = Course::beginning(*self.told.at(at));
        for name in self.names.keys() {
            let may_be = self.left_by_name(name, at);
            if let Some(inode) = may_be[chooser.pick(may_be.len())] {
                left.names.insert(name.clone(), Course::beginning(Some(inode)));
                left.inodes.entry(inode).or_insert_with(|| self.left_of(inode, at));
            }
        }
        for (&inode, file) in &mut left.inodes {
            let nameless = self.names.values().all(|course| *course.at(at) != Some(inode));
            file.foreign |= nameless && chooser.pick(2) == 1;
        }
        left
    }

    fn left_of(self: &Arc<Self>, inode: u64, at: Moment) -> Inode {
        let file = &self.inodes[&inode];
        let untouched = file.length.is_none() && file.sectors.is_empty();
        let here = || Origin { tape: self.clone(), inode, at };
        // Nobody has asked for it on this tape: it is still as an earlier cut left it.
        let origin = file.origin.clone().filter(|_| untouched).unwrap_or_else(here);
        let foreign = file.foreign && untouched;
        Inode { origin: Some(origin), foreign, bank: file.bank, ..Inode::default() }
    }
}
