//! The files that may be inputs: those given, and those beside them whose names are related.

use super::{rotation_names, stamps};
use crate::failure::{Failure, Result};
use crate::source;
use rustix::fs::CWD;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a run waits for the clock of the files to advance.
const TICK: Duration = Duration::from_millis(30);

/// How often the files are looked at again because one was renamed meanwhile.
const ATTEMPTS: usize = 5;

/// Device and inode.
pub type Id = (u64, u64);

/// Returns device and inode.
pub fn id(metadata: &Metadata) -> Id {
    (metadata.dev(), metadata.ino())
}

/// Returns the identity of an open file.
pub fn identity(file: &File, metadata: &Metadata) -> Identity {
    Identity::new(metadata, born_open(file, metadata))
}

/// The bits of an identity that are of inode and creation; those above are of the device.
const FILE_BITS: u32 = 48;

/// The identity of a file: a hash of its inode and of the time of its creation, because a new file
/// may get the inode of a removed one; and one of its device. The number of a device may be another
/// one after a start of the system or of a container. But a snapshot of a file system has the files
/// of the original, with all but the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// What is recorded. Never 0.
    pub recorded: u64,
    /// What earlier versions have recorded: a hash of all three.
    former: u64,
    /// Whether it has a time of creation. Without it the device is needed.
    is_born: bool,
}

impl Identity {
    fn new(metadata: &Metadata, born: u64) -> Self {
        Self::of(metadata.dev(), metadata.ino(), born)
    }

    fn of(device: u64, inode: u64, born: u64) -> Self {
        let former = hash(&[device, inode, born]);
        let (is_born, bits) = (born != 0, (1 << FILE_BITS) - 1);
        let file_and_device = hash(&[inode, born]) & bits | hash(&[device]) & !bits;
        let recorded = if is_born { file_and_device.max(1) } else { former };
        Self { recorded, former, is_born }
    }

    /// Returns whether this was recorded of a file that has this device now.
    pub fn is_exactly(self, recorded: u64) -> bool {
        recorded == self.recorded || recorded == self.former
    }

    /// Returns whether this was recorded of this file, whatever number its device had.
    pub fn is(self, recorded: u64) -> bool {
        let is_file = (recorded ^ self.recorded) << (u64::BITS - FILE_BITS) == 0;
        self.is_exactly(recorded) || self.is_born && is_file
    }
}

fn hash(words: &[u64]) -> u64 {
    let mut hash = 0_u64;
    for word in words {
        // SplitMix64: every bit of a word changes about half of the hash.
        hash = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
    }
    hash.max(1)
}

/// Returns when an open file was created, in nanoseconds; 0 if its file system does not know that.
fn born_open(file: &File, metadata: &Metadata) -> u64 {
    stamps::born(file.as_fd(), Path::new(""), metadata)
}

/// As [`born_open`], of the file that has this path. 0 if that is another one by now.
fn born_at(path: &Path, metadata: &Metadata) -> u64 {
    stamps::born(CWD, path, metadata)
}

/// Returns device and inode of each of these files.
pub fn ids(paths: &[PathBuf]) -> Result<Vec<Id>> {
    let of = |path: &PathBuf| {
        let found = fs::metadata(path).map_err(|error| Failure::reading(path, &error))?;
        Ok(id(&found))
    };
    paths.iter().map(of).collect()
}

/// Checks that the files named on the command line can be inputs.
pub fn check(paths: &[PathBuf], left_out: &[PathBuf]) -> Result<()> {
    let left_out = ids(left_out)?;
    let wanted = paths.iter().filter(|path| !is_any(path, &left_out));
    wanted.map(|path| Found::given(path)).try_for_each(|found| found.map(drop))
}

/// Returns whether a path names one of these files.
pub fn is_any(path: &Path, ids: &[Id]) -> bool {
    !ids.is_empty() && fs::metadata(path).is_ok_and(|found| ids.contains(&id(&found)))
}

/// A file that may be an input.
#[derive(Debug)]
pub struct Found {
    pub path: PathBuf,
    pub name: Vec<u8>,
    /// The directory that contains it, whatever its spelling, and the one that contains that.
    directory: Id,
    above: Id,
    /// The file, if it is named on the command line.
    given: Option<File>,
    pub id: Id,
    pub identity: Identity,
    pub size: u64,
    /// When it was written last, in nanoseconds since the Unix epoch. Copies may keep that time.
    pub written: u64,
    /// When it was created, in nanoseconds since the Unix epoch; 0 if that is not known.
    pub born: u64,
    /// When it was written last or created, whichever is later: not before it got here.
    pub newest: u64,
    /// When its content, its name or its mode was changed last, in nanoseconds since the Unix
    /// epoch. No program can set that.
    pub changed: u64,
}

/// Returns a time in nanoseconds.
fn nanos(seconds: i64, nanos: i64) -> u64 {
    let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
}

impl Found {
    /// Opens a file that is named on the command line. Of a link to a file, name and directory are
    /// those of the file: what a rotation makes of it is beside it.
    fn given(path: &Path) -> Result<Self> {
        let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let target = if is_link { fs::canonicalize(path).ok() } else { None };
        let path = target.as_deref().unwrap_or(path);
        let failed = |error: std::io::Error| Failure::reading(path, &error);
        let directory = directory_of(path);
        let above = fs::metadata(directory.join("..")).map_err(failed)?;
        let directories = (id(&fs::metadata(directory).map_err(failed)?), id(&above));
        let file = source::open_file(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Failure::Error(format!(
                "{} is no regular file, so a killed run could not resume it; leave --output out",
                path.display()
            )));
        }
        let born = born_open(&file, &metadata);
        Ok(Self { given: Some(file), ..Self::new(path, directories, &metadata, born) })
    }

    /// Describes a file that may be opened later: there may be many.
    fn beside(path: &Path, directories: (Id, Id), metadata: &Metadata) -> Self {
        Self::new(path, directories, metadata, born_at(path, metadata))
    }

    fn new(path: &Path, directories: (Id, Id), metadata: &Metadata, born: u64) -> Self {
        let written = nanos(metadata.mtime(), metadata.mtime_nsec());
        Self {
            path: path.to_path_buf(),
            name: path.file_name().unwrap_or_default().as_bytes().to_vec(),
            directory: directories.0,
            above: directories.1,
            given: None,
            id: id(metadata),
            identity: Identity::new(metadata, born),
            size: metadata.len(),
            written,
            born,
            newest: written.max(born),
            changed: nanos(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether it is named on the command line.
    pub fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// Returns whether both are in one directory.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.directory == other.directory
    }

    /// Returns whether a rotation of the other one may have put it where it is: beside that, or in
    /// a directory for old files, below that of the other one.
    pub fn is_beside_or_below(&self, other: &Self) -> bool {
        self.is_beside(other) || self.above == other.directory
    }

    /// Returns whether this user may not read it.
    pub fn is_forbidden(&self) -> bool {
        let is_forbidden = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
        !self.is_given() && source::open_file(&self.path).is_err_and(is_forbidden)
    }

    /// Returns whether it is not named on the command line, and its path does not name it any more.
    pub fn is_gone(&self) -> bool {
        !self.is_given() && !fs::metadata(&self.path).is_ok_and(|now| id(&now) == self.id)
    }

    /// Opens it, or returns it if it is open.
    pub fn open(&self) -> Result<File> {
        let failed = |error: std::io::Error| match error.kind() {
            // It was there when its directory was listed.
            ErrorKind::NotFound => renaming(),
            _ => Failure::reading(&self.path, &error),
        };
        if let Some(file) = &self.given {
            return file.try_clone().map_err(failed);
        }
        let file = source::open_file(&self.path).map_err(failed)?;
        if id(&file.metadata().map_err(failed)?) == self.id { Ok(file) } else { Err(renaming()) }
    }
}

fn renaming() -> Failure {
    Failure::Error(
        "the inputs are being renamed, by a rotation; run again when it has ended".to_owned(),
    )
}

/// The files beside an input cannot be listed.
fn unlisted(directory: &Path, input: &Path, error: &io::Error) -> Failure {
    Failure::Error(format!(
        "cannot list {}, where parts of a rotation of {} may be that no run has read: {error}",
        directory.display(),
        input.display()
    ))
}

/// The files of a run, those given first, in their order.
#[derive(Debug)]
pub struct Files {
    pub all: Vec<Found>,
    /// Everything that this run does not see was written or created later than this.
    pub seen: u64,
}

/// Returns the directory that contains a file of this name.
pub fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

impl Files {
    /// Opens the files given and those beside them with related names. `own` are files of the run
    /// itself, which are no inputs.
    pub fn look(paths: &[PathBuf], own: &[Id]) -> Result<Self> {
        for attempt in 1..=ATTEMPTS {
            let began = stamps::now();
            let given = given(paths, own)?;
            let mut files = Self { all: given, seen: 0 };
            files.add_beside(own)?;
            if !paths.iter().all(|path| files.is_still(path)) {
                continue;
            }
            // What was written within this tick of the clock may be followed by more that has the
            // same time.
            let newest = files.all.iter().map(|file| file.newest).max().unwrap_or(0);
            if newest < began || attempt == ATTEMPTS {
                files.seen = newest.min(began.saturating_sub(1));
                return Ok(files);
            }
            let waits = Instant::now();
            while stamps::now() <= newest && waits.elapsed() < TICK {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Err(renaming())
    }

    /// Returns whether a path still names the file that was opened.
    fn is_still(&self, path: &Path) -> bool {
        let now = fs::metadata(path).ok();
        now.is_some_and(|now| self.all.iter().any(|file| file.is_given() && file.id == id(&now)))
    }

    /// Adds the files of related names.
    fn add_beside(&mut self, own: &[Id]) -> Result<()> {
        let live: Vec<Vec<u8>> = self.all.iter().map(|file| file.name.clone()).collect();
        self.add(own, |name, _| live.iter().any(|live| rotation_names::is_related(name, live)))
    }

    /// Adds the files beside the given ones whose names were made from that of `live` as `one` was.
    pub fn add_alike(&mut self, own: &[Id], one: &[u8], live: &[u8]) -> Result<()> {
        self.add(own, |name, _| rotation_names::is_alike(one, name, live))
    }

    /// Adds the files beside the given ones that have one of these identities.
    pub fn add_of_identity(&mut self, own: &[Id], wanted: &[u64]) -> Result<()> {
        self.add(own, |_, path| {
            let is_wanted = |found: Identity| wanted.iter().any(|&wanted| found.is(wanted));
            let found = fs::metadata(path);
            found.is_ok_and(|found| is_wanted(Identity::new(&found, born_at(path, &found))))
        })
    }

    /// Adds the files beside the given ones that have this inode.
    pub fn add_of_inode(&mut self, own: &[Id], inode: u64) -> Result<()> {
        self.add(own, |_, path| fs::metadata(path).is_ok_and(|found| found.ino() == inode))
    }

    /// Adds the regular files in the directories of the given ones that are wanted, sorted by name.
    fn add(&mut self, own: &[Id], wanted: impl Fn(&[u8], &Path) -> bool) -> Result<()> {
        let mut directories: Vec<((Id, Id), PathBuf)> = Vec::new();
        for file in self.all.iter().filter(|file| file.is_given()) {
            let ids = (file.directory, file.above);
            if directories.iter().all(|(other, _)| *other != ids) {
                directories.push((ids, file.path.clone()));
            }
        }
        for (ids, given) in directories {
            let directory = directory_of(&given);
            let failed = |error| unlisted(directory, &given, &error);
            let mut found = Vec::new();
            for entry in fs::read_dir(directory).map_err(failed)? {
                // Beside a bare name, names are bare.
                let path = given.with_file_name(entry.map_err(failed)?.file_name());
                if wanted(path.file_name().unwrap_or_default().as_bytes(), &path) {
                    found.push(path);
                }
            }
            found.sort();
            for path in found {
                let Ok(metadata) = fs::metadata(&path) else { continue };
                let is_there = |file: &Found| file.id == id(&metadata);
                if !metadata.is_file()
                    || own.contains(&id(&metadata))
                    || self.all.iter().any(is_there)
                {
                    continue;
                }
                self.all.push(Found::beside(&path, ids, &metadata));
            }
        }
        Ok(())
    }
}

/// Returns the files of which a file may be an earlier part, by a relation of their names: those
/// beside it. If nothing beside it has such a name, it may have been moved to a directory for old
/// files, below that of the newer one.
pub fn newer(all: &[Found], file: &Found, is_newer: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut related: Vec<usize> =
        (0..all.len()).filter(|&at| all[at].id != file.id && is_newer(at)).collect();
    let has_one_beside = related.iter().any(|&at| all[at].is_beside(file));
    let of = if has_one_beside { file.directory } else { file.above };
    related.retain(|&at| all[at].directory == of);
    related
}

/// Opens the files given, each once.
fn given(paths: &[PathBuf], own: &[Id]) -> Result<Vec<Found>> {
    let mut all: Vec<Found> = Vec::new();
    for path in paths {
        let found = Found::given(path)?;
        if own.contains(&found.id) {
            return Err(Failure::Error(format!(
                "{} is the output as well as an input; name another output",
                path.display()
            )));
        }
        if all.iter().all(|other| other.id != found.id) {
            all.push(found);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_on_a_device_of_another_number_if_its_creation_is_known() {
        let file = Identity::of(1, 2, 3);
        let all = [(1, 2, 3), (9, 2, 3), (1, 9, 3), (1, 2, 9)];
        let all = all.map(|(device, inode, born)| Identity::of(device, inode, born));
        assert_eq!(all.map(|other| other.is(file.recorded)), [true, true, false, false]);
        assert_eq!(all.map(|other| other.is_exactly(file.recorded)), [true, false, false, false]);
        // What an earlier version has recorded does not separate the device.
        assert_eq!(all.map(|other| other.is(file.former)), [true, false, false, false]);
        let unborn = [(1, 2), (9, 2)].map(|(device, inode)| Identity::of(device, inode, 0));
        assert_eq!(unborn.map(|other| other.is(unborn[0].recorded)), [true, false]);
    }

    #[test]
    fn a_file_beside_an_input_is_gone_when_its_path_names_none_or_another_one() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| dir.path().join(name);
        for name in ["h.log", "h.log.1", "h.log.2"] {
            fs::write(path(name), name).expect("space");
        }
        let files = Files::look(&[path("h.log")], &[]).expect("they are there");
        let gone = || files.all.iter().map(Found::is_gone).collect::<Vec<_>>();
        assert_eq!(gone(), [false, false, false]);
        fs::write(path("new"), "of another log").expect("space");
        fs::rename(path("new"), path("h.log.2")).expect("renamed");
        fs::remove_file(path("h.log.1")).expect("removed");
        assert_eq!(gone(), [false, true, true]);
        for file in &files.all[1..] {
            let opened = file.open();
            let asks = |what: &str| what.contains("run again");
            assert!(matches!(&opened, Err(Failure::Error(what)) if asks(what)), "{opened:?}");
        }
        // What is named on the command line is open.
        fs::remove_file(path("h.log")).expect("removed");
        assert!(!files.all[0].is_gone());
    }
}
