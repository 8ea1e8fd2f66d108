//! `dedup --output`: each new line is written to a file exactly once, however often a run is
//! killed.
//!
//! Lines are read in pieces of a fixed number, whose ends do not depend on where a run began. The
//! new lines of a piece are appended to the output first. Then one batch of the filter records
//! their keys, the length of the output and the place in the input. A run that follows a killed one
//! truncates the output to that length and continues from that place.

use super::counts::Counts;
use super::line::{Line, LineError, Skipped};
use super::run::{Ended, Run};
use super::stream::Stream;
use crate::args::Dedup;
use crate::failure::{Failure, Result};
use crate::input::{Batch as Lines, Input};
use crate::key_args::Origin;
use crate::trail::Trail;
use ebbtide::{Any, Batch, Call, Checked, Durability, Entry, Error, Filter};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The sources of the positions, from the upper end: programs of the user number theirs from 0.
const OUTPUT_FILE: u64 = u64::MAX;
const OUTPUT_LENGTH: u64 = u64::MAX - 1;
const INPUT_FILE: u64 = u64::MAX - 2;
const INPUT_OFFSET: u64 = u64::MAX - 3;
const INPUT_LINES: u64 = u64::MAX - 4;
const INPUT_CHECK: u64 = u64::MAX - 5;

/// How long another run may keep the output.
const LOCK_TIME: Duration = Duration::from_secs(2);

/// The place that an earlier run has reached in its last file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The inode of the file.
    file: u64,
    /// The bytes that were read, after decompression.
    offset: u64,
    /// The number of the next line.
    lines: u64,
    /// The checksum of the bytes in front of the offset.
    check: u64,
}

impl Place {
    fn of(file: u64, trail: &Trail) -> Self {
        Self { file, offset: trail.offset(), lines: trail.next_line(), check: trail.check() }
    }

    /// Sets the positions that hold it.
    fn set(self, batch: &mut Batch<'_>) -> ebbtide::Result<()> {
        batch.set_position(INPUT_FILE, self.file)?;
        batch.set_position(INPUT_OFFSET, self.offset)?;
        batch.set_position(INPUT_LINES, self.lines)?;
        batch.set_position(INPUT_CHECK, self.check)
    }
}

/// The output, and how much of it counts.
struct Target<'a> {
    path: &'a Path,
    file: File,
    length: u64,
    /// Whether its bytes must be on the disk before a batch that counts them may be.
    syncs: bool,
}

/// A line of a piece: its number and its bytes.
type Kept = (u64, Vec<u8>);

/// Deduplicates lines into a file.
pub struct ExactlyOnce<'a> {
    pub filter: &'a Filter<Any>,
    pub stream: &'a Stream<'a, Filter<Any>>,
    pub arguments: &'a Dedup,
    /// Counts the lines.
    pub counts: &'a mut Counts,
}

fn refuse<T>(what: String) -> Result<T> {
    Err(Failure::Error(what))
}

fn writing(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Error(format!("cannot write {}: {error}", path.display()))
}

/// Returns the place that an earlier run has reached; `None` before the first batch.
fn reached(filter: &Filter<Any>) -> Result<Option<Place>> {
    let of = |source| filter.position(source);
    let place = (of(INPUT_FILE)?, of(INPUT_OFFSET)?, of(INPUT_LINES)?, of(INPUT_CHECK)?);
    Ok(match place {
        (Some(file), Some(offset), Some(lines), Some(check)) => {
            Some(Place { file, offset, lines, check })
        }
        _ => None,
    })
}

/// Locks an output for this run; false if another one has it. A killed run keeps it until the
/// system has ended its process, which is waited for.
fn lock(output: &File) -> std::io::Result<bool> {
    let began = Instant::now();
    loop {
        match flock(output, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LOCK_TIME => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

impl<'a> Target<'a> {
    /// Opens the output for this run only, and cuts off what a killed run has written without
    /// recording it. Of a new state, the output's present content stays.
    fn open(filter: &Filter<Any>, path: &'a Path, syncs: bool) -> Result<Self> {
        let failed = writing(path);
        let options = File::options().create(true).truncate(false).read(true).write(true).clone();
        let mut file = options.open(path).map_err(&failed)?;
        if !lock(&file).map_err(&failed)? {
            return refuse(format!(
                "{} is being written by another run; wait for its end, or name another output and \
                 another --state",
                path.display()
            ));
        }
        let metadata = file.metadata().map_err(&failed)?;
        if !metadata.is_file() {
            return refuse(format!(
                "{} is no regular file, which cannot be resumed: leave --output out",
                path.display()
            ));
        }
        let (inode, found) = (metadata.ino(), metadata.len());
        let length = match (filter.position(OUTPUT_FILE)?, filter.position(OUTPUT_LENGTH)?) {
            (Some(file), Some(length)) if file == inode && length <= found => length,
            (Some(file), Some(length)) => {
                let why = if file == inode { "is shorter" } else { "is another file" };
                return refuse(format!(
                    "{} {why} than what the filter's state records: expected {length} bytes in \
                     file {file}, found {found} bytes in file {inode}; put the output back, or \
                     begin with another --state",
                    path.display()
                ));
            }
            _ => {
                // Durable before the first line is written: after a power cut, lines of a forgotten
                // run would be taken for what the output held already.
                sync_name(path).map_err(&failed)?;
                let mut first = Batch::new(filter.call().durability(Durability::Always));
                first.set_position(OUTPUT_FILE, inode)?;
                first.set_position(OUTPUT_LENGTH, found)?;
                first.commit()?;
                found
            }
        };
        file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length))).map_err(&failed)?;
        Ok(Self { path, file, length, syncs })
    }

    /// Writes the lines of a piece behind those that count.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        let synced = written.and_then(|()| if self.syncs { self.file.sync_data() } else { Ok(()) });
        synced.map_err(writing(self.path))
    }

    /// Removes what [`Target::write`] has written, because its batch does not count.
    fn take_back(&mut self) -> Result<()> {
        let cut = self.file.set_len(self.length);
        let back = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
        back.map(|_| ()).map_err(writing(self.path))
    }
}

/// Makes the name of a file durable.
fn sync_name(path: &Path) -> std::io::Result<()> {
    File::open(directory_of(path)).and_then(|directory| directory.sync_all())
}

fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Returns the inode of a regular file.
fn identify(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path).map_err(|error| Failure::reading(path, &error))?;
    if !metadata.is_file() {
        return refuse(format!(
            "{} is no regular file, so a killed run could not resume it; leave --output out",
            path.display()
        ));
    }
    Ok(metadata.ino())
}

/// Searches the directories of these files for a file of this inode, which a rotation has renamed.
fn renamed(files: &[PathBuf], inode: u64) -> Option<PathBuf> {
    let mut directories: Vec<&Path> = files.iter().map(|path| directory_of(path)).collect();
    directories.dedup();
    let entries = directories.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten();
    entries.flatten().map(|entry| entry.path()).find(|path| {
        fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.ino() == inode)
    })
}

/// Returns the files that are left to read, the first of them from this place on.
fn left(files: &[PathBuf], place: Option<Place>) -> Result<Vec<PathBuf>> {
    if files.is_empty() || files.iter().any(|path| path.as_os_str() == "-") {
        return refuse(
            "standard input cannot be read again after a kill; --output needs files".to_owned(),
        );
    }
    let inodes = files.iter().map(|path| identify(path)).collect::<Result<Vec<_>>>()?;
    let Some(place) = place else { return Ok(files.to_vec()) };
    if let Some(at) = inodes.iter().position(|&inode| inode == place.file) {
        return Ok(files[at..].to_vec());
    }
    match renamed(files, place.file) {
        Some(rest) => Ok([&[rest], files].concat()),
        None => refuse(format!(
            "the file that was read last (file {}, {} bytes of it) is neither among the inputs nor \
             beside them: it was removed, replaced or compressed; give it as well, or give \
             --new-input if nothing of it is missing",
            place.file, place.offset
        )),
    }
}

impl ExactlyOnce<'_> {
    /// Reads the files and writes the new lines to the output.
    pub fn run(&mut self, output: &Path) -> Result<Ended> {
        let place = reached(self.filter)?.filter(|_| !self.arguments.new_input);
        let files = left(&self.arguments.files, place)?;
        let durability = match self.arguments.reading.durability {
            Some(durability) => durability,
            None => self.filter.stat()?.durability,
        };
        let syncs = durability != Durability::Never;
        let mut target = Target::open(self.filter, output, syncs)?;
        let mut run = Run::new(true, true, Skipped::Nothing)?;
        match self.feed(files, place, &mut target, &mut run) {
            Ok(()) => Ok(run.end()),
            Err(failure) => run.fail(failure),
        }
    }

    fn feed(
        &mut self,
        files: Vec<PathBuf>,
        place: Option<Place>,
        target: &mut Target<'_>,
        run: &mut Run,
    ) -> Result<()> {
        let (stop, reading) = (run.stop.clone(), &self.arguments.reading);
        let most = reading.batch.get().min(Batch::<Any>::MOST_OPERATIONS);
        let (mut header, mut begins) = (None, place.is_none() && !self.arguments.omit_header);
        for (at, path) in files.into_iter().enumerate() {
            let place = place.filter(|place| at == 0 && place.offset > 0);
            let origin = || Origin { files: vec![path.clone()], ..Origin::default() };
            let file = identify(&path)?;
            let mut input = Input::new(origin(), reading, false, &stop)?;
            if let Some(place) = place {
                // The header of a table is in front of the place.
                let mut again = Input::new(origin(), reading, false, &stop)?;
                if let Some(mut first) = again.next_batch(1, || Ok(()))? {
                    self.stream.take_header(&mut first, &mut header, run)?;
                }
                input.begin_at(Trail::at(place.offset, place.lines))?;
                same_content(&path, place, input.trail())?;
            }
            let mut piece = Vec::new();
            loop {
                let more = match input.next_batch(most - piece.len(), || Ok(()))? {
                    Some(mut lines) => {
                        self.stream.take_header(&mut lines, &mut header, run)?;
                        piece.extend(lines.lines.iter().map(|&(at, line)| (at, line.to_vec())));
                        true
                    }
                    None => false,
                };
                if stop.signal().is_some() {
                    // Lines that were read and not recorded are read again.
                    return Ok(());
                }
                if piece.len() == most || (!more && !piece.is_empty()) {
                    let first = header.as_deref().filter(|_| begins);
                    begins = false;
                    let place = Place::of(file, input.trail());
                    self.record((&path, &piece), first, place, target, run)?;
                    piece.clear();
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Writes the new lines of a piece, and records all of it. `header` is written before them.
    fn record(
        &mut self,
        (path, piece): (&Path, &[Kept]),
        header: Option<&[u8]>,
        place: Place,
        target: &mut Target<'_>,
        run: &mut Run,
    ) -> Result<()> {
        let of = Lines { path, begins_file: false, lines: Vec::new() };
        let mut lines = Vec::with_capacity(piece.len());
        for (number, whole) in piece {
            if !run.take(path, *number) {
                return Ok(());
            }
            lines.extend(self.stream.line(&of, whole, *number, run)?);
        }
        let end = self.arguments.reading.delimiter();
        loop {
            let mut batch = Batch::new(self.call());
            let (mut new, mut counts) = (Vec::new(), self.counts.clone());
            if let Some(header) = header {
                new.extend([header, &[end]].concat());
            }
            for line in &lines {
                match self.check(line, &mut batch) {
                    Ok(checked) => {
                        counts.late += u64::from(checked.is_too_late());
                        if counts.prints(checked.is_present()) {
                            new.extend([line.whole, &[end]].concat());
                        }
                    }
                    Err(error) => {
                        self.stream.judge(LineError::Refused(error), &of, line.number, run)?;
                    }
                }
            }
            target.write(&new)?;
            let length = target.length + new.len() as u64;
            place.set(&mut batch)?;
            batch.set_position(OUTPUT_LENGTH, length)?;
            match batch.commit() {
                Ok(()) => {
                    (target.length, *self.counts) = (length, counts);
                    return Ok(());
                }
                // Another process has inserted one of the keys: check all of them again.
                Err(Error::Conflict { .. }) => target.take_back()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn call(&self) -> Call<'_> {
        let call = self.filter.call().since(self.arguments.since.into());
        match self.arguments.reading.durability {
            Some(durability) => call.durability(durability),
            None => call,
        }
    }

    /// Checks a line and adds it to the batch.
    fn check(&self, line: &Line<'_>, batch: &mut Batch<'_>) -> ebbtide::Result<Checked> {
        let entry = Entry::new(&line.key);
        batch.check_and_insert_entry(&match line.time {
            Some(time) => entry.time(time),
            None => entry,
        })
    }
}

/// Checks that the bytes in front of the place are those that an earlier run read there.
fn same_content(path: &Path, place: Place, trail: &Trail) -> Result<()> {
    if trail.check() == place.check {
        return Ok(());
    }
    refuse(format!(
        "{} was replaced: the bytes in front of byte {}, up to which it was read, are other ones; \
         give --new-input to read it from its beginning",
        path.display(),
        place.offset
    ))
}
