//! The output of `dedup --output`: written by one run at a time, continued at the recorded length,
//! and never cut without a copy of what is cut.

use super::files::{Id, Identity, directory_of, id, identity};
use super::positions::Output;
use crate::failure::{Failure, Result, note};
use crate::formatting::counted;
use crate::trail::{CHECKED_BYTES, Trail};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another run may keep a lock.
const LOCK_TIME: Duration = Duration::from_secs(2);

/// The most links from one name to the next that are followed.
const MOST_LINKS: usize = 40;

/// The longest output that is compared as a whole at every run.
const WHOLE_BYTES: u64 = 64 << 20;

/// The output, and how much of it counts.
pub struct Target<'a> {
    path: &'a Path,
    file: File,
    pub identity: Identity,
    /// The end of what counts.
    pub trail: Trail,
    /// Whether its bytes must be on the disk before a batch that counts them may be.
    syncs: bool,
}

fn writing(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Error(format!("cannot write {}: {error}", path.display()))
}

/// Locks a file or directory for this run; false if another one has it. A killed run keeps it until
/// the system has ended its process, which is waited for.
fn lock(file: &File) -> io::Result<bool> {
    let began = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LOCK_TIME => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Keeps other runs with an output from a state, as long as the result lives.
pub fn lock_state(dir: &Path) -> Result<File> {
    let failed = |error: io::Error| Failure::reading(dir, &error);
    let file = File::open(dir).map_err(failed)?;
    if lock(&file).map_err(failed)? {
        return Ok(file);
    }
    Err(Failure::Error(format!(
        "{} is in use by another run with --output; wait for its end, then run this one again",
        dir.display()
    )))
}

/// Returns the file that receives what is cut from an output.
fn cut_path(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".cut");
    name.into()
}

/// Returns device and inode of the output and of the file of what was cut, as far as they exist.
pub fn own(output: &Path) -> Vec<Id> {
    let all = [output.to_path_buf(), cut_path(output)];
    all.iter().filter_map(|path| fs::metadata(path).ok()).map(|found| id(&found)).collect()
}

/// Follows links, also to a file that does not exist, and returns the name without links.
fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = directory_of(&path).join(to),
            Err(_) => break,
        }
    }
    // Of a directory that does not exist yet, the nearest one that does.
    let mut missing = Vec::new();
    let mut rest = path.as_path();
    loop {
        if let Ok(found) = fs::canonicalize(rest) {
            return missing.iter().rev().fold(found, |path, name| path.join(name));
        }
        match (rest.file_name(), rest.parent()) {
            (Some(name), Some(parent)) => {
                missing.push(name.to_owned());
                rest = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            }
            _ => return path,
        }
    }
}

/// Refuses an output inside the directory of the state, which would destroy the filter, and one
/// that is an input, by any name. Nothing has been touched then.
pub fn check(output: &Path, state: &Path, inputs: &[PathBuf]) -> Result<()> {
    let ids = own(output);
    let of_state = fs::read_dir(state).into_iter().flatten().flatten();
    let is_of_state = |entry: fs::DirEntry| {
        fs::metadata(entry.path()).is_ok_and(|found| found.is_file() && ids.contains(&id(&found)))
    };
    for path in [output.to_path_buf(), cut_path(output)] {
        if resolved(&path).starts_with(resolved(state)) {
            return Err(Failure::Error(format!(
                "the output {} is inside {}, the directory of the state, which belongs to the \
                 filter; name an output elsewhere",
                path.display(),
                state.display()
            )));
        }
        let names = |input: &&PathBuf| resolved(input) == resolved(&path);
        if let Some(input) = inputs.iter().find(names) {
            return Err(is_input(&path, input));
        }
    }
    if of_state.into_iter().any(is_of_state) {
        return Err(Failure::Error(format!(
            "the output {} is a file of the filter in {}; name another output",
            output.display(),
            state.display()
        )));
    }
    let is_output =
        |input: &&PathBuf| fs::metadata(input).is_ok_and(|found| ids.contains(&id(&found)));
    inputs.iter().find(is_output).map_or(Ok(()), |input| Err(is_input(output, input)))
}

/// Gives a new file the owner, the group and the permissions of another one, whose owner has to
/// write to it later. Only root can give it away: otherwise it stays its creator's.
fn inherit(new: &File, other: &Metadata) -> io::Result<()> {
    let (own, user, group) = (new.metadata()?, Some(other.uid()), Some(other.gid()));
    if (Some(own.uid()), Some(own.gid())) != (user, group) && fchown(new, user, group).is_err() {
        let _ = fchown(new, None, group);
    }
    let mut permissions = other.permissions();
    if new.metadata()?.gid() != other.gid() {
        // They are not for another group.
        permissions.set_mode(permissions.mode() & !0o070);
    }
    new.set_permissions(permissions)
}

fn is_input(output: &Path, input: &Path) -> Failure {
    Failure::Error(format!(
        "the output {} is the input {}; name another output",
        output.display(),
        input.display()
    ))
}

impl<'a> Target<'a> {
    /// Opens the output for this run only. Changes nothing in it.
    pub fn open(path: &'a Path, syncs: bool) -> Result<Self> {
        let failed = writing(path);
        let options = File::options().create(true).truncate(false).read(true).write(true).clone();
        let file = options.open(path).map_err(&failed)?;
        if !lock(&file).map_err(&failed)? {
            return Err(Failure::Error(format!(
                "{} is being written by another run; wait for its end, or name another output and \
                 another --state",
                path.display()
            )));
        }
        let metadata = file.metadata().map_err(&failed)?;
        if !metadata.is_file() {
            return Err(Failure::Error(format!(
                "{} is no regular file, which cannot be resumed: leave --output out",
                path.display()
            )));
        }
        let identity = identity(&file, &metadata);
        Ok(Self { path, file, identity, trail: Trail::default(), syncs })
    }

    /// Finds the end of what counts: the recorded length, if the file is the one that was written,
    /// by its identity or its content; the present end for a new state, or if the file is adopted.
    pub fn find_end(&mut self, recorded: Option<Output>, adopts: bool) -> Result<()> {
        let failed = writing(self.path);
        let metadata = self.file.metadata().map_err(&failed)?;
        let found = metadata.len();
        let Some(recorded) = recorded.filter(|_| !adopts) else {
            self.trail = self.read_to(found).map_err(&failed)?;
            return Ok(());
        };
        if found < recorded.length {
            return Err(self.other("is shorter", recorded.length, found));
        }
        let is_same = match recorded.check {
            // Recorded by an earlier version.
            None => {
                self.trail = self.read_to(recorded.length).map_err(&failed)?;
                recorded.file == id(&metadata).1
            }
            Some(check) => {
                let is_it = self.identity.is(recorded.file);
                let quick = is_it && recorded.length > WHOLE_BYTES;
                self.trail = if quick {
                    let mut tail = vec![0; CHECKED_BYTES as usize];
                    let from = recorded.length - CHECKED_BYTES;
                    self.file.read_exact_at(&mut tail, from).map_err(&failed)?;
                    Trail::resumed(recorded.length, 0, check, tail)
                } else {
                    self.read_to(recorded.length).map_err(&failed)?
                };
                // All files begin with no bytes.
                let is_any = recorded.length == 0 && found > 0 && !is_it;
                self.trail.check() == check && !is_any
            }
        };
        if is_same { Ok(()) } else { Err(self.other("is another file", recorded.length, found)) }
    }

    fn other(&self, why: &str, expected: u64, found: u64) -> Failure {
        Failure::Error(format!(
            "{} {why} than what the filter's state records: expected the {expected} bytes that \
             were written, found {found} bytes; put the output back, or give --adopt-output to \
             continue behind what it holds now",
            self.path.display()
        ))
    }

    fn read_to(&self, length: u64) -> io::Result<Trail> {
        let (mut file, mut trail) = (&self.file, Trail::default());
        file.seek(SeekFrom::Start(0))?;
        trail.read_to(&mut file, length)?;
        Ok(trail)
    }

    /// Makes the name of the output durable.
    pub fn sync_name(&self) -> Result<()> {
        let directory = File::open(directory_of(self.path));
        directory.and_then(|directory| directory.sync_all()).map_err(writing(self.path))
    }

    /// Opens the file of what is cut, which a new one lets the same users read as the output.
    fn open_cut(&self, path: &Path) -> io::Result<File> {
        let options = File::options().append(true).mode(0o600).clone();
        match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                options.clone().create(true).open(path)
            }
            Err(error) => Err(error),
            Ok(file) => {
                inherit(&file, &self.file.metadata()?)?;
                Ok(file)
            }
        }
    }

    /// Moves what is behind the end to a file beside the output.
    pub fn cut(&mut self) -> Result<()> {
        let (path, length) = (cut_path(self.path), self.trail.offset());
        let found = self.file.metadata().map_err(writing(self.path))?.len();
        if found > length {
            let failed = writing(&path);
            let mut kept = self.open_cut(&path).map_err(&failed)?;
            let before = kept.metadata().map_err(&failed)?.len();
            let mut rest = &self.file;
            let copied = rest.seek(SeekFrom::Start(length));
            let copied = copied.and_then(|_| io::copy(&mut rest, &mut kept));
            if let Err(error) = copied.and_then(|_| kept.sync_all()) {
                // Each further run would add another part of a copy.
                let _ = kept.set_len(before);
                return Err(failed(error));
            }
            let directory = File::open(directory_of(&path));
            directory.and_then(|directory| directory.sync_all()).map_err(&failed)?;
            note(&format!(
                "cut {} behind byte {length} from {}, which the state does not count; what was cut \
                 is at the end of {}",
                counted(found - length, "byte"),
                self.path.display(),
                path.display()
            ));
        }
        self.take_back()
    }

    /// Returns whether what counts ends within a line: an output that was adopted may.
    pub fn is_torn(&self, end: u8) -> bool {
        self.trail.tail().last().is_some_and(|last| *last != end)
    }

    /// Writes the lines of a piece behind those that count, and returns their end. They do not
    /// continue a line that has no `end`.
    pub fn write(&mut self, lines: &[u8], end: u8) -> Result<Trail> {
        let missing = if self.is_torn(end) && !lines.is_empty() { &[end][..] } else { &[] };
        let bytes = &[missing, lines].concat();
        let written = self.file.write_all(bytes);
        let synced = written.and_then(|()| if self.syncs { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = synced {
            // What is there of it takes space that the next run may need.
            let _ = self.take_back();
            return Err(writing(self.path)(error));
        }
        let mut end = self.trail.clone();
        end.pass(bytes, 0);
        Ok(end)
    }

    /// Says that [`Target::write`] has ended a line.
    pub fn note_ended(&self) {
        note(&format!(
            "{}: the last line had no end, which was written in front of the first new line",
            self.path.display()
        ));
    }

    /// Removes what [`Target::write`] has written, because its batch does not count.
    pub fn take_back(&mut self) -> Result<()> {
        let cut = self.file.set_len(self.trail.offset());
        let back = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.trail.offset())));
        back.map(|_| ()).map_err(writing(self.path))
    }
}
