//! Checks all files of a filter, and of a backup both copies, also while others write them.
//!
//! Nothing is changed. The state is rebuilt in memory, to see that it can be.

use crate::admin::look::{look_at, needed_log};
use crate::admin::second_copies::{Second, missing};
use crate::archive::keep_setting;
use crate::archive::revisions::{Revision, Revisions, read_kept, revision_of};
use crate::archive::with_kept::{Whole, explained};
use crate::engine::lifecycle::open::read_meta;
use crate::error::{Error, Result};
use crate::format::header::DURABLE;
use crate::format::names::FileName;
use crate::media::{Access, Disk, Media};
use crate::meta::Meta;
use crate::options::Keep;
use crate::recovery::listing::{KeptMeta, KeptSnapshot};
use crate::recovery::log_reader::LogReader;
use crate::recovery::{KnownExtent, Listing, Recovered, rebuild_in_memory};
use crate::snapshot::SnapshotReader;
use std::fmt;
use std::path::{Path, PathBuf};

/// The findings of [`verify`] about one file, or about all files together.
#[derive(Debug)]
#[non_exhaustive]
pub struct FileReport {
    /// The file's name; `.` for all of them together.
    pub name: String,
    /// A short description.
    pub detail: String,
    /// The file's size in bytes.
    pub bytes: u64,
    /// The damage found.
    pub damage: Vec<Error>,
}

/// The findings of [`verify`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// The findings by file.
    pub files: Vec<FileReport>,
}

impl Report {
    /// Returns whether nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.files.iter().all(|file| file.damage.is_empty())
    }

    /// Returns this report, or the first error in it that is no statement about the files.
    fn unless(mut self, is_no_damage: impl Fn(&Error) -> bool) -> Result<Self> {
        let found = self.files.iter().position(|file| file.damage.iter().any(&is_no_damage));
        match found.and_then(|at| self.files[at].damage.pop()) {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    fn add(&mut self, media: &dyn Media, name: impl fmt::Display, found: Result<String>) {
        let (detail, damage) = match found {
            Ok(detail) => (detail, Vec::new()),
            Err(error) => (String::new(), vec![error]),
        };
        let name = name.to_string();
        let bytes = media.open(&name, Access::Read).and_then(|file| file.bytes()).unwrap_or(0);
        self.files.push(FileReport { name, detail, bytes, damage });
    }

    /// Adds that a file of a backup is missing in one copy, unless that was found anyway.
    fn add_missing(&mut self, path: PathBuf, name: String) {
        if self.files.iter().all(|found| found.name != name) {
            let damage = vec![missing(path)];
            self.files.push(FileReport { name, detail: String::new(), bytes: 0, damage });
        }
    }
}

/// The number of times damage is examined again beside active writers.
const LOOKS_AT_DAMAGE: u32 = 5;

fn describe(recovered: &Recovered) -> String {
    let (stop, start) = (recovered.prefix.stop, recovered.start);
    let inserts = recovered.image.sum_stripes().0.inserts;
    format!("state at LSN {stop} with {inserts} inserts, replayed from LSN {start}")
}

/// Checks every checksum of a filter's files and replays its log, changing nothing.
///
/// # Errors
/// If the files cannot be examined at all: [`Error::NotAFilter`], [`Error::Locked`], [`Error::Io`].
/// Damage is in the report.
pub fn verify(dir: impl AsRef<Path>) -> Result<Report> {
    verify_on(&Disk::new(dir.as_ref()))
}

/// As [`verify`], on a medium provided by the caller.
///
/// # Errors
/// As [`verify`].
pub fn verify_on(media: &dyn Media) -> Result<Report> {
    let second = Second(media);
    let mut report = match verify_files(media) {
        // Of a backup, the second copy may be sound.
        Err(error) if is_about_files(&error) && matches!(second.copies(), Ok(Some(_))) => {
            let mut report = Report { files: Vec::new() };
            report.add(media, FileName::Meta, Err(error));
            report
        }
        report => report?,
    };
    let Some(copies) = second.copies()? else { return Ok(report) };
    for file in copies.without_first() {
        let name = file.to_string();
        report.add_missing(media.path().join(&name), name);
    }
    if copies.has_second() {
        let found = verify_files(&second).map_err(|error| second.explained(error))?;
        for FileReport { name, detail, bytes, damage } in found.files {
            let (name, damage) = (of_second(&name), damage.into_iter());
            let damage = damage.map(|error| second.explained(error)).collect();
            report.files.push(FileReport { name, detail, bytes, damage });
        }
    }
    for file in copies.without_second() {
        report.add_missing(second.path_of(file), of_second(&file.to_string()));
    }
    Ok(report)
}

pub(super) fn of_second(name: &str) -> String {
    format!("second copy: {name}")
}

/// Returns whether an error says that the files are not those of a filter, or are damaged.
pub(super) fn is_about_files(error: &Error) -> bool {
    error.is_damage() || matches!(error, Error::NotAFilter { .. })
}

pub(super) fn verify_files(media: &dyn Media) -> Result<Report> {
    if let Err(error @ (Error::Damaged { .. } | Error::Version { .. })) = read_meta(media) {
        let mut report = Report { files: Vec::new() };
        report.add(media, FileName::Meta, Err(error));
        return Ok(report);
    }
    // Damage beside active writers may be files that were removed while they were examined: a
    // listing may contain a snapshot, but not yet the segment that it needs.
    for _ in 1..LOOKS_AT_DAMAGE {
        let (report, lives) = verify_once(media)?;
        if report.is_sound() || !lives {
            return Ok(report);
        }
    }
    verify_once(media).map(|(report, _)| report)
}

/// Examines everything once, and returns whether writers were active meanwhile.
fn verify_once(media: &dyn Media) -> Result<(Report, bool)> {
    look_at(media, |meta, known| {
        let mut report = Report { files: Vec::new() };
        report.add(media, FileName::Meta, Ok(format!("kind {}", meta.kind.name())));
        let listing = Listing::of_filter(media, meta.log_uuid)?;
        for &file in &listing.others {
            let detail = "of another filter, not read; move it away, or remove it";
            report.add(media, file, Ok(detail.to_owned()));
        }
        for &start in listing.snapshots.iter().rev() {
            report.add(media, FileName::Snapshot { start }, verify_snapshot(media, start, meta));
        }
        verify_log(media, &listing, meta, known, &mut report);
        verify_kept(media, &listing, meta, known, &mut report);
        if let Some(found) = verify_live(media) {
            report.add(media, FileName::Live, found);
        }
        let rebuilt = rebuild_in_memory(media, meta, known, &|| {});
        report.add(media, ".", rebuilt.map(|recovered| describe(&recovered)));
        // An unreadable file is not damaged, whatever the reason; nor is a missing one, while
        // writers are active.
        let lives = matches!(known, KnownExtent::WritersLive { .. });
        let says_nothing = |error: &Error| !(error.is_damage() || error.is_not_found() && !lives);
        report.unless(says_nothing).map(|report| (report, lives))
    })
}

fn verify_snapshot(media: &dyn Media, start: u64, meta: &Meta) -> Result<String> {
    let mut reader = SnapshotReader::open(media, start, meta.log_uuid)?;
    reader.frames(|_, _, _| Ok(()))?;
    let header = reader.header();
    let (end, frames, format) = (header.end, header.frames, of_format(reader.version()));
    Ok(format!("snapshot from LSN {start} to {end}, {frames} frames{format}"))
}

/// Returns a note that a file is of an older format. The next snapshot and its segments will be of
/// the newest.
fn of_format(version: u32) -> String {
    if version == DURABLE.written { String::new() } else { format!(", of format {version}") }
}

/// Checks that the next opener can replace the image, if there is one; its content does not matter.
pub(super) fn verify_live(media: &dyn Media) -> Option<Result<String>> {
    let name = FileName::Live.to_string();
    match media.open(&name, Access::Read) {
        Ok(_) => Some(Ok("live image, rebuilt when the filter is opened".to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(Error::io("open", media.path().join(name))(error))),
    }
}

/// Checks what recovery does not need: how much log is kept, and the log and the snapshots that
/// are only kept.
fn verify_kept(
    media: &dyn Media,
    listing: &Listing,
    meta: &Meta,
    known: KnownExtent,
    report: &mut Report,
) {
    match keep_setting::read(media) {
        Ok(Keep::Nothing) => {}
        keep => report.add(media, FileName::Keep, keep.map(|keep| format!("keeps {keep} of log"))),
    }
    if !listing.has_kept() {
        return;
    }
    let (lost_below, revisions) = match Revisions::read(media, meta) {
        Ok(read) => (read.lost_below, read.joined()),
        Err(error) => return report.add(media, "kept-*", Err(error)),
    };
    for &kept in &listing.kept_metas {
        let KeptMeta { since, until } = kept;
        let detail = format!("the parameters up to LSN {}", until.saturating_sub(1));
        match read_kept(media, kept) {
            // It was removed meanwhile.
            Err(Error::NotAFilter { .. }) => {}
            read => report.add(media, FileName::KeptMeta { since, until }, read.map(|_| detail)),
        }
    }
    for &KeptSnapshot { start, since } in listing.kept_snapshots.iter().rev() {
        let Some(revision) = revision_of(&revisions, start) else { continue };
        let verified = if start < lost_below {
            Ok("of no use without the parameters from then".to_owned())
        } else {
            let verified = verify_snapshot(&Whole::new(media), start, &revision.meta);
            verified.map_err(|error| explained(media, error))
        };
        report.add(media, FileName::KeptSnapshot { since, start }, verified);
    }
    for revision in &revisions {
        let read = read_revision(media, revision, known).map_err(|error| explained(media, error));
        report.add(media, "kept-*", read);
    }
}

/// Reads the whole log of a revision, kept parts included.
fn read_revision(media: &dyn Media, revision: &Revision, known: KnownExtent) -> Result<String> {
    let is_past = revision.end.is_some();
    let whole = if is_past { Whole::past(media) } else { Whole::new(media) };
    let known = if is_past { KnownExtent::Nothing } else { known };
    let listing = Listing::of_filter(&whole, revision.meta.log_uuid)?;
    let history = LogReader::open(&whole, &listing, revision.meta.log_uuid)?;
    let first = history.segments().first().map_or(1, |segment| segment.first);
    if let Some(end) = revision.end {
        history.end_at(end);
    }
    let prefix = history.read(&whole, first, known, |_, _, _| Ok(()))?;
    match revision.end {
        // Only its snapshots may be left, until they are removed as well.
        Some(end) if prefix.stop < end && !history.segments().is_empty() => {
            Err(history.missing(prefix.stop, end))
        }
        _ => {
            Ok(format!("log with {} records from LSN {first}, kept ones included", prefix.records))
        }
    }
}

/// Checks each segment's header on its own, then all records together.
fn verify_log(
    media: &dyn Media,
    listing: &Listing,
    meta: &Meta,
    known: KnownExtent,
    report: &mut Report,
) {
    for &(timeline, first) in &listing.segments {
        let one = Listing { segments: vec![(timeline, first)], ..Listing::default() };
        let opened = LogReader::open(media, &one, meta.log_uuid);
        let opened = opened.map(|history| {
            format!("log of timeline {timeline} from LSN {first}{}", of_format(history.version()))
        });
        report.add(media, FileName::Segment { timeline, first }, opened);
    }
    let read = needed_log(media, listing, meta).and_then(|history| {
        let first = history.segments().first().map_or(1, |segment| segment.first);
        let prefix = history.read(media, first, known, |_, _, _| Ok(()))?;
        Ok(format!("log with {} records from LSN {first} to {}", prefix.records, prefix.stop))
    });
    report.add(media, "wal", read);
}
