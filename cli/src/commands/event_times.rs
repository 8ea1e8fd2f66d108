//! The times of the lines of a run: reads them, says once in which form they were found, and
//! refuses steps ahead that are too large.

use super::line::LineError;
use crate::args::Reading;
use crate::failure::{misfit, note};
use crate::formatting;
use crate::input::STDIN;
use crate::key_args::Times;
use crate::key_part::KeyParts;
use crate::time_forms::Extent;
use crate::times::{Doubt, Found, TimeReader};
use ebbtide::Timestamp;
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::stdin;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A time, and the form in which it was found.
pub type Read = (Timestamp, Found);

type Result<T> = std::result::Result<T, LineError>;

/// The times of lines.
pub struct EventTimes {
    reader: TimeReader,
    /// Whether the times are in front of the lines, and not in a field.
    in_front: bool,
    max_step: Option<Duration>,
    /// The latest time of a line that the filter has accepted, at first that of the filter.
    latest: Cell<Option<Timestamp>>,
    /// Whether a time was taken in this run. The filter may have one of an earlier run, which had
    /// other options.
    has_taken: Cell<bool>,
    /// Whether a number in another unit is a mistake of its line, and not of an option.
    is_unit_known: Cell<bool>,
    /// The current file, and when it was last modified.
    file: RefCell<(PathBuf, Option<SystemTime>)>,
}

impl EventTimes {
    /// Creates the times of lines that are read in this way; `None` if lines have none. `latest`
    /// returns the filter's time.
    pub fn new(
        reading: &Reading,
        latest: impl FnOnce() -> ebbtide::Result<Option<Timestamp>>,
    ) -> ebbtide::Result<Option<Self>> {
        let times: &Times = &reading.times;
        if !times.are_read() {
            return Ok(None);
        }
        Ok(Some(Self {
            reader: times.reader(),
            in_front: times.event_time,
            max_step: times.max_step,
            latest: Cell::new(latest()?),
            has_taken: Cell::new(false),
            is_unit_known: Cell::new(false),
            file: RefCell::default(),
        }))
    }

    /// Returns whether the times are in front of the lines.
    pub fn in_front(&self) -> bool {
        self.in_front
    }

    /// Reads the time in front of a line, and returns what is behind it as well.
    pub fn in_front_of<'b>(&self, path: &Path, line: &'b [u8]) -> Result<(Read, &'b [u8])> {
        let misfit = || LineError::Malformed(self.misfit(line));
        let tab = memchr::memchr(b'\t', line).ok_or_else(misfit)?;
        let read = self.read(path, &line[..tab], Extent::Whole, line)?;
        Ok((read, &line[tab + 1..]))
    }

    /// Reads the time in a part of a line.
    pub fn in_part(
        &self,
        path: &Path,
        line: &[u8],
        parts: &KeyParts,
        columns: &[usize],
    ) -> Result<Read> {
        match parts.time(line, columns).map_err(LineError::Malformed)? {
            Some((text, extent)) if !text.is_empty() => self.read(path, &text, extent, &text),
            _ => Err(LineError::Malformed(self.misfit(line))),
        }
    }

    /// Reads a time; `shown` is what an error shows.
    fn read(&self, path: &Path, text: &[u8], extent: Extent, shown: &[u8]) -> Result<Read> {
        let read = self.reader.read(text, extent, || self.modified(path));
        read.map_err(|doubt| match doubt {
            Doubt::NoTime => LineError::Malformed(self.misfit(shown)),
            Doubt::Wrong(what) => LineError::Malformed(what),
            Doubt::Unit(what) => LineError::Unit(what),
        })
    }

    /// Returns whether a number in another unit is a mistake of its line. If no time was taken
    /// before, most likely an option is wrong, and all lines are.
    pub fn is_unit_known(&self) -> bool {
        self.is_unit_known.get() || self.has_taken.get()
    }

    /// Says that the lines follow those of an earlier run, whose times were taken.
    pub fn continue_lines(&self) {
        self.is_unit_known.set(true);
    }

    /// Takes a time that was read from a line, unless it is too far ahead of those that count.
    pub fn take(
        &self,
        (path, number): (&Path, u64),
        (time, found): Read,
    ) -> std::result::Result<(), String> {
        self.step(time)?;
        if !self.has_taken.replace(true) && !self.in_front {
            note(&self.sentence(found, path, number));
        }
        Ok(())
    }

    /// Lets a time count for later lines: the filter has accepted the line.
    pub fn accept(&self, time: Timestamp) {
        self.latest.set(Some(self.latest.get().map_or(time, |latest| latest.max(time))));
    }

    /// Returns the latest time that counts.
    pub fn latest(&self) -> Option<Timestamp> {
        self.latest.get()
    }

    /// Lets no time of an earlier run count.
    pub fn forget(&self) {
        self.latest.set(None);
    }

    /// Returns a time as messages show it.
    pub fn shown(&self, time: Timestamp) -> String {
        match self.reader.unit {
            Some(unit) => unit.write(time),
            None => formatting::date(time).unwrap_or_else(|| formatting::time(time)),
        }
    }

    /// Refuses a time too far ahead of the latest one that counts.
    fn step(&self, time: Timestamp) -> std::result::Result<(), String> {
        let Some(latest) = self.latest.get() else { return Ok(()) };
        if let Some(most) = self.max_step.filter(|most| time.since(latest) > *most) {
            let ahead = match time.since(latest).as_secs() {
                seconds @ ..172_800 => formatting::duration(Duration::from_secs(seconds)),
                seconds => format!("{} days", seconds / 86_400),
            };
            return Err(format!(
                "time {} is {ahead} ahead of the latest one, {}: more than --max-step {}; give \
                 a larger one if nothing came for so long",
                self.shown(time),
                self.shown(latest),
                formatting::duration(most)
            ));
        }
        Ok(())
    }

    fn misfit(&self, found: &[u8]) -> String {
        match self.reader.unit.filter(|_| self.in_front) {
            Some(unit) => misfit(&unit.form(), found),
            None => misfit("a time, such as 2026-11-24T10:00:00Z or 24/Nov/2026:10:00:00", found),
        }
    }

    fn sentence(&self, found: Found, path: &Path, number: u64) -> String {
        let zone = match found {
            Found::Number(_) | Found::Written(_, true) => String::new(),
            Found::Written(..) => {
                let zone = self.reader.zone.clone().unwrap_or_else(jiff::tz::TimeZone::system);
                let name = zone.iana_name().map(str::to_owned);
                let name = name.or_else(|| zone.to_fixed_offset().ok().map(|it| it.to_string()));
                format!(", in the zone {}", name.as_deref().unwrap_or("of this machine"))
            }
        };
        format!("{}, line {number}: times are read as {}{zone}", path.display(), found.name())
    }

    /// Returns when a file was last modified, or the time of the clock if it is no regular file.
    fn modified(&self, path: &Path) -> Timestamp {
        let mut file = self.file.borrow_mut();
        if file.0 != path {
            let metadata = if path.as_os_str() == STDIN {
                stdin().as_fd().try_clone_to_owned().map(File::from).and_then(|it| it.metadata())
            } else {
                fs::metadata(path)
            };
            let metadata = metadata.ok().filter(fs::Metadata::is_file);
            let modified = metadata.and_then(|metadata| metadata.modified().ok());
            *file = (path.to_path_buf(), modified);
        }
        let since = file.1.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        since.map_or_else(Timestamp::now, |since| {
            Timestamp::from_unix_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
        })
    }
}
