//! A partition: a stream's filter and its output, in one directory.

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{Message, Position};
use ebbtide::{Durability, Filter, Fingerprint, Options};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// The sources of a filter's positions.
const MAJOR: u64 = 0;
const MINOR: u64 = 1;
const LENGTH: u64 = 2;

/// What a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// The death of the process, but no power cut.
    Kill,
    /// A power cut, after which up to the last second is consumed again, to the same output.
    PowerCut,
    /// A power cut that loses no commit. Only then may the server remove messages up to the
    /// position, or a reader of the output act on it.
    PowerCutAtOnce,
}

/// How a partition is kept.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The number of messages of the stream within which a message may be repeated.
    pub window: u64,
    /// How probable it is that a new message is lost because it is taken for a repeated one.
    pub fpr: f64,
    /// What a commit survives.
    pub survives: Survives,
}

impl Default for Settings {
    /// A million messages, one in 10⁹ of them lost, at 42 bits each.
    fn default() -> Self {
        Self { window: 1_000_000, fpr: 1e-9, survives: Survives::PowerCut }
    }
}

/// An open partition.
#[derive(Debug)]
pub struct Partition {
    seen: Filter<Fingerprint>,
    output: Output,
    survives: Survives,
}

impl Partition {
    /// The file of the output, in the directory of the partition.
    pub const OUTPUT: &str = "output";
    /// The directory of the filter, in that of the partition.
    pub const SEEN: &str = "seen";

    /// Opens or creates the partition in a directory.
    ///
    /// # Errors
    /// [`Failure::Lasting`] if another process consumes it, or its files do not fit together.
    pub fn open(dir: &Path, settings: Settings) -> Result<Self> {
        fs::create_dir_all(dir)?;
        // Its lock comes first: it ensures that there is one consumer.
        let output = Output::open(dir.join(Self::OUTPUT))?;
        let durability = match settings.survives {
            Survives::Kill | Survives::PowerCut => Durability::Interval(Duration::from_secs(1)),
            Survives::PowerCutAtOnce => Durability::Always,
        };
        let spec = Fingerprint::last(settings.window).fpr(settings.fpr);
        let options = Options::new().durability(durability);
        let path = dir.join(Self::SEEN);
        if !output.is_empty()? && !has_entries(&path)? {
            return Err(missing(&path));
        }
        let seen = Filter::open_or_create(path, spec, options)?;
        let mut partition = Self { seen, output, survives: settings.survives };
        partition.resume()?;
        Ok(partition)
    }

    /// Returns to the last commit: cuts the output, and returns the position of the last message,
    /// `None` if there was none.
    ///
    /// # Errors
    /// [`Failure::Lasting`] if the output is shorter than it was then.
    pub fn resume(&mut self) -> Result<Option<Position>> {
        self.output.cut(self.seen.position(LENGTH)?.unwrap_or(0))?;
        let Some(major) = self.seen.position(MAJOR)? else { return Ok(None) };
        let minor = self.seen.position(MINOR)?.unwrap_or(0);
        Ok(Some(Position { major, minor }))
    }

    /// Passes on the messages that are new, and remembers all: one commit. The messages follow
    /// those of the commit before. Returns how many were new.
    ///
    /// # Errors
    /// After any error nothing has been remembered, and [`Partition::resume`] must come next.
    pub fn take(&mut self, messages: &[Message]) -> Result<usize> {
        let Some(last) = messages.last() else { return Ok(0) };
        let mut batch = self.seen.batch();
        let mut new = 0;
        for message in messages {
            let is_new = match &message.id {
                Some(id) => batch.check_and_insert(id)?.is_new(),
                None => true,
            };
            if is_new {
                self.output.add(&message.body);
                new += 1;
            }
        }
        batch.set_position(LENGTH, self.output.write()?)?;
        batch.set_position(MAJOR, last.position.major)?;
        batch.set_position(MINOR, last.position.minor)?;
        if self.survives != Survives::Kill {
            // Before the commit: no power cut may leave a commit whose output is lost.
            self.output.sync()?;
        }
        batch.commit()?;
        Ok(new)
    }
}

/// Returns whether something is in a directory.
fn has_entries(dir: &Path) -> Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().transpose()?.is_some()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The failure of a partition whose filter is missing. The output is written after the filter was
/// created, so it has lines of a filter that is lost; a new one would cut them all off.
fn missing(seen: &Path) -> Failure {
    Failure::lasting(format!(
        "{}: no filter, but the output has lines; restore the directory of the partition from one \
         backup, or move the output away to begin anew",
        seen.display()
    ))
}
