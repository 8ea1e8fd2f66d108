//! The history of all writes to a disk: enough to derive the possible results of a power cut at any
//! moment.
//!
//! A moment is a number: each call to the medium has one before its effect and one after it, and
//! each operation has one when it returned. For each 512-byte sector of a file the tape contains
//! the version of every moment at which it had changed. For each file it contains every length, and
//! for each name in the directory every file that it referred to; and the moments of all syncs.
//! Data found by a sync is on disk. Later data may be there or not, each sector and each name
//! independently.
//!
//! The blocks of a file without a name may be given to another file before the removal of its last
//! name is on disk (ext4 mounted with `data=writeback` does so). If the name comes back, it may
//! refer to foreign bytes.
//!
//! The content of the banks of a live image is not recorded: it is most of the data written, and
//! must not be read after a cut. Opening a bank then is reported as a violation.
//!
//! A disk after a cut has its own tape, and takes from the previous tape the data that has not been
//! read yet.

use ebbtide_core::atomic::AtomicU64;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

/// The number of bytes that a disk writes atomically, or at least each eight of them.
pub const SECTOR_BYTES: usize = 512;
/// The number of words of a sector.
pub const SECTOR_WORDS: usize = SECTOR_BYTES / 8;
/// The number of threads whose operations are counted.
pub const THREADS: usize = 4;

/// A position on the tape.
pub type Moment = u64;
/// A version of a sector.
pub type Sector = Arc<[u64; SECTOR_WORDS]>;

/// The acknowledgements given to the users of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    /// The filter exists.
    pub created: bool,
    /// The disk is full: data that only a damaged newest snapshot would require may be removed.
    pub full: bool,
    /// The number of operations of the first thread that may have begun, where more than one may
    /// be unfinished.
    pub begun: u64,
    /// The number of operations of each thread that have returned.
    pub returned: [u64; THREADS],
    /// The number of operations of each thread that are durable.
    pub durable: [u64; THREADS],
}

impl Told {
    /// Returns the largest possible number of operations.
    pub fn most(&self) -> u64 {
        self.begun.max(self.returned[0] + 1)
    }
}

/// The values of something over time, with the moments of the changes, ascending.
#[derive(Debug, Clone)]
pub struct Course<T>(Vec<(Moment, T)>);

impl<T: Clone + PartialEq> Course<T> {
    /// Creates a course with a value that is on disk from the beginning.
    pub fn beginning(with: T) -> Self {
        Self(vec![(0, with)])
    }

    /// Returns the current value.
    pub fn last(&self) -> &T {
        &self.0[self.0.len() - 1].1
    }

    /// Changes the value.
    pub fn set(&mut self, now: Moment, to: T) {
        if *self.last() != to {
            self.0.push((now, to));
        }
    }

    /// Returns all values, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Returns the value at a moment.
    pub fn at(&self, moment: Moment) -> &T {
        let after = self.0.partition_point(|(when, _)| *when <= moment);
        &self.0[after.max(1) - 1].1
    }

    /// Returns the moment of the last change before a moment.
    fn last_change(&self, before: Moment) -> Moment {
        let changes = self.0.partition_point(|(when, _)| *when < before);
        self.0[changes.max(1) - 1].0
    }

    /// Returns the values that a cut at a moment may leave, oldest first, if the last sync before
    /// it was at `synced`.
    pub fn since(&self, synced: Moment, at: Moment) -> &[(Moment, T)] {
        let end = self.0.partition_point(|(when, _)| *when <= at).max(1);
        let begin = self.0[..end].partition_point(|(when, _)| *when < synced).max(1) - 1;
        &self.0[begin..end]
    }
}

/// Returns the last of these moments that is not after `at`; 1, the beginning of the tape, if there
/// is none.
fn last_before(syncs: &[Moment], at: Moment) -> Moment {
    let after = syncs.partition_point(|&sync| sync <= at);
    after.checked_sub(1).map_or(1, |last| syncs[last])
}

/// The origin of the content of a file after a cut.
#[derive(Debug, Clone)]
struct Origin {
    tape: Arc<Tape>,
    inode: u64,
    at: Moment,
}

/// The content of a file, independent of its name.
#[derive(Debug, Clone, Default)]
pub struct Inode {
    /// Sectors not listed below are as the cut left them, still undecided.
    origin: Option<Origin>,
    length: Option<Course<u64>>,
    sectors: Vec<Option<Course<Sector>>>,
    syncs: Vec<Moment>,
    /// The cut left its blocks with the data of another file.
    foreign: bool,
    /// A bank of the live image, whose content is not recorded.
    bank: bool,
    /// A sync of it has failed: no sync proves anything until it is opened again.
    failed: bool,
}

/// The content of a sector that was never written.
static ZEROS: LazyLock<[(Moment, Sector); 1]> =
    LazyLock::new(|| [(0, Arc::new([0; SECTOR_WORDS]))]);

/// The content of a sector that has since belonged to another file.
static FOREIGN: LazyLock<[(Moment, Sector); 1]> =
    LazyLock::new(|| [(0, Arc::new([0x6e67_6965_726f_6620; SECTOR_WORDS]))]);

impl Inode {
    /// Creates a file of zeros.
    pub fn new(now: Moment, bytes: u64, bank: bool) -> Self {
        let mut length = Course::beginning(0);
        length.set(now, bytes);
        Self { length: Some(length), bank, ..Self::default() }
    }

    /// Returns whether its content is not recorded.
    pub fn is_bank(&self) -> bool {
        self.bank
    }

    /// Returns whether a power cut has left it.
    pub fn was_left(&self) -> bool {
        self.origin.is_some()
    }

    /// Returns its last sync before a moment.
    fn synced(&self, at: Moment) -> Moment {
        last_before(&self.syncs, at)
    }

    /// Returns the lengths that a cut may leave, without duplicates, oldest first.
    pub fn lengths(&self, at: Moment) -> Vec<u64> {
        match (&self.length, &self.origin) {
            (Some(length), _) => distinct(length.since(self.synced(at), at)),
            (None, Some(origin)) => origin.tape.inodes[&origin.inode].lengths(origin.at),
            (None, None) => vec![0],
        }
    }

    /// Returns the byte from which on nothing was ever stored.
    pub fn stored_end(&self) -> u64 {
        let before = match &self.origin {
            _ if self.foreign => u64::MAX,
            Some(origin) => origin.tape.inodes[&origin.inode].stored_end(),
            None => 0,
        };
        before.max((self.sectors.len() * SECTOR_BYTES) as u64)
    }

    /// Returns the versions of a sector that a cut may leave, oldest first.
    pub fn versions(&self, sector: usize, at: Moment) -> &[(Moment, Sector)] {
        match (self.sectors.get(sector), &self.origin) {
            (Some(Some(course)), _) => course.since(self.synced(at), at),
            _ if self.foreign => &*FOREIGN,
            (_, Some(origin)) => origin.tape.inodes[&origin.inode].versions(sector, origin.at),
            _ => &*ZEROS,
        }
    }

    /// Returns whether the content of a sector is undecided after the cut that left the file.
    pub fn is_open(&self, sector: usize) -> bool {
        self.origin.is_some() && !matches!(self.sectors.get(sector), Some(Some(_)))
    }

    /// Decides its length.
    pub fn decide_length(&mut self, bytes: u64) {
        self.length.get_or_insert_with(|| Course::beginning(bytes));
    }

    /// Decides the content of a sector.
    pub fn decide(&mut self, sector: usize, content: Sector) {
        *self.track(sector) = Some(Course::beginning(content));
    }

    fn track(&mut self, sector: usize) -> &mut Option<Course<Sector>> {
        if self.sectors.len() <= sector {
            self.sectors.resize(sector + 1, None);
        }
        &mut self.sectors[sector]
    }

    /// Records a new length of the file.
    pub fn grow(&mut self, now: Moment, bytes: u64) {
        if let Some(length) = &mut self.length {
            length.set(now, bytes);
        }
    }

    /// Records the words of a decided, mapped sector.
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

    /// Records the words of a decided sector; missing ones are zero.
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

    /// Records that everything so far is on disk.
    pub fn sync(&mut self, now: Moment) {
        if !self.failed {
            self.syncs.push(now);
        }
    }

    /// Records a failed sync: its pages count as clean, and may not be on disk.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Records that the file was opened again. After a failed sync an opener stores to each page
    /// before it relies on the next sync; a model that compares contents cannot see that.
    pub fn reopen(&mut self) {
        self.failed = false;
    }

    /// Returns the words of a range of a sector, if they certainly survive a cut now.
    pub fn certain(&self, sector: usize, words: Range<usize>, now: Moment) -> Option<Vec<u64>> {
        let (newest, others) = self.versions(sector, now).split_last()?;
        let newest = &newest.1[words.clone()];
        others.iter().all(|(_, other)| other[words.clone()] == *newest).then(|| newest.to_vec())
    }

    /// Returns the newest version of a sector that was accessed.
    pub fn newest(&self, sector: usize) -> Option<&Sector> {
        Some(self.sectors.get(sector)?.as_ref()?.last())
    }

    /// Returns whether a cut now loses nothing of it.
    pub fn is_synced(&self, now: Moment) -> bool {
        let mut sectors = 0..self.sectors.len();
        self.lengths(now).len() == 1 && sectors.all(|at| self.versions(at, now).len() == 1)
    }

    /// Returns what a sector of it had when the last sync succeeded, if it has changed since.
    pub fn before_changes(&self, sector: usize, now: Moment) -> Option<Sector> {
        let course = self.sectors.get(sector)?.as_ref()?;
        let synced = course.at(self.synced(now));
        (synced != course.last()).then(|| synced.clone())
    }

    /// Returns the number of sectors that have changed since the last sync before a moment.
    fn dirty(&self, at: Moment) -> usize {
        (0..self.sectors.len()).filter(|&sector| self.versions(sector, at).len() > 1).count()
    }
}

/// Returns the possible values without duplicates; of equal ones the newest.
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
    /// The boot of the machine.
    pub boot: u128,
    /// The newest moment.
    pub now: Moment,
    /// The file of each name.
    pub names: BTreeMap<String, Course<Option<u64>>>,
    /// The files.
    pub inodes: BTreeMap<u64, Inode>,
    /// The number of the last file created.
    pub last_inode: u64,
    /// The acknowledgements given to users.
    pub told: Course<Told>,
    syncs: Vec<Moment>,
    /// The moments of failed syncs of the directory, and when the filter was opened after each:
    /// until then no sync proves anything about a name that was changed before the failure.
    failed: Vec<(Moment, Option<Moment>)>,
    /// Whether that opening changes nothing: such a name must be changed again.
    pub doubts_failed: bool,
    /// The moments right before a sync of data that was not certainly on disk.
    fullest: Vec<Moment>,
}

impl Tape {
    /// Creates an empty directory in this boot of the machine.
    pub fn new(boot: u128) -> Self {
        Self {
            boot,
            now: 1,
            names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            last_inode: 0,
            told: Course::beginning(Told::default()),
            syncs: Vec::new(),
            failed: Vec::new(),
            doubts_failed: false,
            fullest: Vec::new(),
        }
    }

    /// Returns the file of a name.
    pub fn find(&self, name: &str) -> Option<u64> {
        *self.names.get(name)?.last()
    }

    /// Assigns a name to another file, or to none.
    pub fn name(&mut self, name: &str, inode: Option<u64>) {
        let names = self.names.entry(name.to_owned());
        names.or_insert_with(|| Course::beginning(None)).set(self.now, inode);
    }

    /// Returns the files that a name may refer to after a cut at a moment, oldest first.
    pub fn left_by_name(&self, name: &str, at: Moment) -> Vec<Option<u64>> {
        let Some(course) = self.names.get(name) else { return Vec::new() };
        distinct(course.since(self.last_proof(course, at), at))
    }

    /// Returns the last sync of the directory before a moment that proves that a name is on disk.
    fn last_proof(&self, name: &Course<Option<u64>>, at: Moment) -> Moment {
        let mut synced = last_before(&self.syncs, at);
        let is_no_proof = |synced: Moment| {
            let changed = name.last_change(synced);
            self.failed.iter().any(|&(failed, reopened)| {
                (changed..synced).contains(&failed) && reopened.is_none_or(|when| synced < when)
            })
        };
        while is_no_proof(synced) {
            synced = last_before(&self.syncs, synced - 1);
        }
        synced
    }

    /// Records a sync of the directory. Returns whether it proves that all names are on disk.
    pub fn sync(&mut self) -> bool {
        self.now += 1;
        self.fullest.push(self.now - 1);
        self.syncs.push(self.now);
        self.failed.iter().all(|(_, reopened)| reopened.is_some())
    }

    /// Records a failed sync of the directory: its names count as written, and may not be on disk.
    pub fn fail(&mut self) {
        self.failed.push((self.now, None));
        self.now += 1;
    }

    /// Records that the filter was opened.
    pub fn reopen(&mut self) {
        if self.doubts_failed {
            return;
        }
        let now = self.now;
        self.failed.iter_mut().for_each(|(_, reopened)| *reopened = reopened.or(Some(now)));
    }

    /// Records a sync of a file.
    pub fn sync_file(&mut self, inode: u64) {
        self.now += 1;
        if let Some(file) = self.inodes.get_mut(&inode) {
            self.fullest.push(self.now - 1);
            file.sync(self.now);
        }
    }

    /// Returns how many files there have been whose names begin with `prefix`.
    pub fn count(&self, prefix: &str) -> u64 {
        self.names.keys().filter(|name| name.starts_with(prefix)).count() as u64
    }

    /// Returns the moments at which the set of possible results is largest. A result that is
    /// possible at any other moment is possible at the next of these, when no less has been
    /// acknowledged: between syncs the set only grows.
    pub fn fullest(&self) -> impl Iterator<Item = Moment> {
        let before = self.fullest.iter().copied();
        before.chain([self.now]).filter(|&moment| moment > 0)
    }

    /// Returns the number of sectors, of files with these names at a moment, that are not certainly
    /// on disk.
    pub fn dirty(&self, at: Moment, counts: impl Fn(&str) -> bool) -> usize {
        let named = self.names.iter().filter(|(name, _)| counts(name));
        let inodes = named.filter_map(|(_, course)| *course.at(at));
        inodes.map(|inode| self.inodes[&inode].dirty(at)).sum()
    }

    /// Returns the disk after a cut at a moment. `pick` decides names now, by choosing one of a
    /// number of options, ascending by age; contents are decided at the first access.
    pub fn cut(self: &Arc<Self>, at: Moment, mut pick: impl FnMut(usize) -> usize) -> Self {
        let mut left = Self { last_inode: self.last_inode, ..Self::new(self.boot + 1) };
        left.told = Course::beginning(*self.told.at(at));
        for name in self.names.keys() {
            let may_be = self.left_by_name(name, at);
            if let Some(inode) = may_be[pick(may_be.len())] {
                left.names.insert(name.clone(), Course::beginning(Some(inode)));
                left.inodes.entry(inode).or_insert_with(|| self.left_of(inode, at));
            }
        }
        for (&inode, file) in &mut left.inodes {
            let nameless = self.names.values().all(|course| *course.at(at) != Some(inode));
            file.foreign |= nameless && pick(2) == 1;
        }
        left
    }

    fn left_of(self: &Arc<Self>, inode: u64, at: Moment) -> Inode {
        let file = &self.inodes[&inode];
        let untouched = file.length.is_none() && file.sectors.is_empty();
        let here = || Origin { tape: self.clone(), inode, at };
        // The file was not accessed on this tape: it is still as an earlier cut left it.
        let origin = file.origin.clone().filter(|_| untouched).unwrap_or_else(here);
        let foreign = file.foreign && untouched;
        Inode { origin: Some(origin), foreign, bank: file.bank, ..Inode::default() }
    }
}
