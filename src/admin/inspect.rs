//! Examines filters by their files, also while others have them open: verify, print the log,
//! restore, salvage, plan.
//!
//! Nothing here changes the files that it examines. State is rebuilt privately, in memory.

use crate::admin::look::{Look, look_at, needed_log};
use crate::admin::salvage;
use crate::admin::second::{Second, copy_file, missing};
use crate::archive::keep_setting;
use crate::archive::revisions::{Revision, Revisions, read_kept, revision_of};
use crate::archive::with_kept::{Whole, explained};
use crate::engine::lifecycle::open::{first_bank_bytes, layout, read_meta, write_new};
use crate::engine::small_files::write_file;
use crate::error::{Error, Result};
use crate::format::header::DURABLE;
use crate::format::names::FileName;
use crate::image::bank_files::most_bytes;
use crate::image::identity::Identity;
use crate::locks::holder_names::locked;
use crate::media::{Access, BESIDE_LOG_MOST, Disk, ImagePlace, Media};
use crate::meta::Meta;
use crate::options::{Keep, Options};
use crate::platform::system;
use crate::recovery::listing::{KeptMeta, KeptSnapshot};
use crate::recovery::log_reader::LogReader;
use crate::recovery::make_durable::make_durable;
use crate::recovery::{KnownExtent, Listing, Recovered, rebuild_in_memory};
use crate::snapshot::SnapshotReader;
use crate::wal::log_record::RECORD_BYTES;
use ebbtide_core::identity::check_max_memory;
use ebbtide_core::kind::Parameters;
use ebbtide_core::kinds::registry;
use std::fmt;
use std::path::{Path, PathBuf};

pub use ebbtide_core::kind::PlannedPart;

pub use crate::admin::dump_log::{Entry, wal};
pub use crate::admin::open_handles::{OpenHandle, handles};
pub use crate::admin::parts::{
    Assembly, Origin, Piece, SnapshotFile, origin, origin_on, snapshots_on, verify_snapshot_on,
};
pub use crate::admin::restore_at::{Restored, restore_at, restore_at_on};
pub use crate::admin::salvage::{Beyond, Lost};

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
        for file in verify_files(&second)?.files {
            report.files.push(FileReport { name: of_second(&file.name), ..file });
        }
    }
    for file in copies.without_second() {
        report.add_missing(second.path_of(file), of_second(&file.to_string()));
    }
    Ok(report)
}

fn of_second(name: &str) -> String {
    format!("second copy: {name}")
}

/// Returns whether an error says that the files are not those of a filter, or are damaged.
fn is_about_files(error: &Error) -> bool {
    error.is_damage() || matches!(error, Error::NotAFilter { .. })
}

fn verify_files(media: &dyn Media) -> Result<Report> {
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
fn verify_live(media: &dyn Media) -> Option<Result<String>> {
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

/// Creates a filter in a new directory from a backup (or from any filter that no process has open),
/// after checking that its state can be rebuilt in full. Of a damaged backup that has not been
/// opened for writing since, its second copy is used: a file that is damaged, missing or unreadable
/// takes nothing away.
///
/// # Errors
/// [`Error::NotAFilter`], [`Error::Locked`], [`Error::Damaged`], [`Error::Exists`], [`Error::Io`].
pub fn restore(from: impl AsRef<Path>, dir: impl AsRef<Path>) -> Result<()> {
    let from = Disk::new(from.as_ref());
    let to = Disk::for_copy_of(dir.as_ref(), &from);
    let second = Second(&from);
    match restore_from(&from, &to) {
        Err(error)
            if (is_about_files(&error) || matches!(error, Error::Io { .. }))
                && second.is_current().unwrap_or(false) =>
        {
            // If both are damaged, the first is the one to report.
            restore_from(&second, &to).map_err(|_| error)
        }
        restored => restored,
    }
}

fn restore_from(from: &dyn Media, to: &dyn Media) -> Result<()> {
    let meta = read_meta(from)?;
    let look = Look::begin(from, &meta)?;
    if let KnownExtent::WritersLive { .. } = look.known {
        return Err(locked(from.path()));
    }
    let recovered = rebuild_in_memory(from, &meta, look.known, &|| {})?;
    write_new(to, |_locks| {
        let listing = &recovered.listing;
        // Others are not needed, and may be damaged.
        let used = listing.snapshots.iter().filter(|&&start| start == recovered.start);
        let snapshots = used.map(|&start| FileName::Snapshot { start });
        let segments = listing.segments.iter();
        let segments = segments.map(|&(timeline, first)| FileName::Segment { timeline, first });
        for name in snapshots.chain(segments) {
            let name = name.to_string();
            copy_file(from, to, &name).map_err(Error::io("copy", from.path().join(&name)))?;
        }
        // Only the image, which is not copied, accounts for slots that dead writers left empty:
        // fill them.
        let copied = Listing::read(to)?;
        let history = LogReader::open(to, &copied, meta.log_uuid)?;
        make_durable(&history, to, (recovered.start, 0), &recovered.prefix)?;
        if look.is_over(from, &meta)? {
            return Err(locked(from.path()));
        }
        // Last, because it makes the directory a filter.
        write_file(to, 0, &FileName::Meta.to_string(), &meta.encode())
    })
}

/// Refuses to salvage a damaged backup whose second copy is sound.
fn check_second(media: &dyn Media) -> Result<()> {
    let second = Second(media);
    if !second.is_current().unwrap_or(false)
        || !verify_files(&second).is_ok_and(|report| report.is_sound())
    {
        return Ok(());
    }
    let is_damaged_first =
        |file: &&FileReport| !file.damage.is_empty() && !file.name.starts_with(&of_second(""));
    match verify_on(media)?.files.iter().find(is_damaged_first) {
        None => Ok(()),
        Some(file) => Err(Error::Damaged {
            path: media.path().to_path_buf(),
            offset: 0,
            expected: "a sound backup".to_owned(),
            found: format!("damage in `{}`", file.name),
            remedy: "nothing is lost, because its second copy is sound: `ebbtide restore` \
                     creates the filter from it",
        }),
    }
}

/// The result of [`salvage()`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Salvaged {
    /// The first LSN that was not recovered: the new filter has the state after all records below
    /// it, and its next record gets this LSN.
    pub lsn: u64,
    /// Insert operations in that state, since creation.
    pub inserts: u64,
    /// The start of the snapshot that the state is based on; `None` if the log was complete from
    /// the beginning.
    pub snapshot: Option<u64>,
    /// Every LSN below had been acknowledged as durable, as far as the remaining files show. The
    /// log records durability with a delay, so slightly more may have been durable.
    pub durable_lsn: u64,
    /// The loss from `lsn` on; `None` if nothing indicates that the log continued there.
    pub lost: Option<Lost>,
    /// Readable data beyond `lsn` that was left out.
    pub beyond: Option<Beyond>,
    /// Damage besides the end of the readable log, file by file: unusable snapshots, newest first,
    /// segments, `live`.
    pub damaged: Vec<Error>,
}

/// Recovers the longest provable prefix of a damaged filter into a new directory, and reports what
/// is lost. The new filter has the state after the longest unbroken prefix of records. Readable
/// data beyond the damage is reported and left out, because the filter never had a state that skips
/// operations. The source is not changed and may be read-only; no process may have the filter open.
/// The new filter replaces the old one: it has the same uuid, as after [`restore`].
///
/// Returns `None`, and writes nothing, if nothing is damaged, so that the filter opens as it is.
///
/// # Errors
/// [`Error::Damaged`] if nothing can be recovered, as without `meta`, or if this is a backup of
/// which the second copy is sound, so that [`restore`] loses nothing; [`Error::NotAFilter`],
/// [`Error::Locked`], [`Error::Exists`], [`Error::Version`], [`Error::Io`].
pub fn salvage(from: impl AsRef<Path>, dir: impl AsRef<Path>) -> Result<Option<Salvaged>> {
    let from = Disk::new(from.as_ref());
    salvage_on(&from, &Disk::for_copy_of(dir.as_ref(), &from))
}

/// As [`salvage()`], on media provided by the caller.
///
/// # Errors
/// As [`salvage()`].
pub fn salvage_on(from: &dyn Media, to: &dyn Media) -> Result<Option<Salvaged>> {
    check_second(from)?;
    let meta = read_meta(from)?;
    let look = Look::begin(from, &meta)?;
    if let KnownExtent::WritersLive { .. } = look.known {
        return Err(locked(from.path()));
    }
    let mut found = salvage::examine(from, &meta, look.known)?;
    found.damaged.extend(verify_live(from).and_then(Result::err));
    if look.is_over(from, &meta)? {
        return Err(locked(from.path()));
    }
    if !found.is_needed() {
        return Ok(None);
    }
    let inserts = write_new(to, |_locks| {
        if let Some(start) = found.snapshot {
            let name = FileName::Snapshot { start }.to_string();
            copy_file(from, to, &name).map_err(Error::io("copy", from.path().join(&name)))?;
        }
        found.write_log(from, to, &meta)?;
        let inserts = salvage::rebuilt_inserts(to, &meta, found.stop)?;
        if look.is_over(from, &meta)? {
            return Err(locked(from.path()));
        }
        // Last, because it makes the directory a filter.
        write_file(to, 0, &FileName::Meta.to_string(), &meta.encode())?;
        Ok(inserts)
    })?;
    Ok(Some(Salvaged {
        lsn: found.stop,
        inserts,
        snapshot: found.snapshot,
        durable_lsn: found.durable,
        lost: found.lost,
        beyond: found.beyond,
        damaged: found.damaged,
    }))
}

/// The expected cost and properties of a filter, before anything is created.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// The kind's name.
    pub kind: &'static str,
    /// All parameters, completed.
    pub parameters: Parameters,
    /// Bytes of memory at creation: blocks, headers, tables; excludes the log. A window of time
    /// grows by the keys that come, up to its limit (`max_memory`). For kinds whose
    /// blocks start small and grow, the bytes expected when the filter is as full as planned.
    pub memory_bytes: u64,
    /// The maximum of bytes on disk: three snapshots (two and one in progress), the log, and the
    /// image if it lies beside the log. For kinds whose blocks grow the expected bytes, as of
    /// memory.
    pub disk_bytes: u64,
    /// The bytes that an insert writes to the disk: its record, and its share of a snapshot of all
    /// memory. Each sync adds up to a page of 4 KiB, and an image on a disk what the system writes
    /// of it.
    pub written_bytes: f64,
    /// Bits of memory per key of the window, if the kind has a window or capacity in keys.
    pub bits_per_key: Option<f64>,
    /// The false-positive rate when the filter is as full as planned, by theory.
    pub fpr: f64,
    /// Number of stripes: shares of the key-hash space.
    pub stripes: u32,
    /// Number of blocks of the first bank.
    pub blocks: u64,
    /// Parts of the memory with the rates for which they are needed, if there are several rates.
    pub parts: Vec<PlannedPart>,
}

/// Plans a filter of a kind with these parameters.
///
/// # Errors
/// [`Error::Parameter`] for values that the kind refuses.
pub fn plan(kind: &str, parameters: &Parameters, options: &Options) -> Result<Plan> {
    options.check()?;
    let kind = registry::build(kind, parameters)?;
    let layout = layout(&*kind, options);
    check_max_memory(&*kind, layout)?;
    let (stripes, state_words) = (layout.stripes, kind.state_words() as u32);
    let identity =
        Identity { uuid: 0, timeline: 0, boot: 0, inode: 0, device: 0, stripes, state_words };
    let geometry = kind.geometry(layout);
    let bank_bytes = first_bank_bytes(&*kind, layout)?;
    let unused_words = layout.words(geometry).saturating_sub(kind.planned_words(layout));
    // The table of claims takes its space with the first one.
    let memory_bytes = identity.room_for_claims().start + bank_bytes - unused_words * 8;
    let parameters = kind.parameters();
    let keys = ["window-items", "capacity"]
        .iter()
        .find_map(|name| parameters.get(name)?.parse::<f64>().ok());
    let segments = 4 * options.segment_records(bank_bytes) * RECORD_BYTES;
    // Log of up to two checkpoints is kept, and a segment on either side.
    let due = options.checkpoint_due(memory_bytes);
    let log = due.saturating_mul(2).saturating_add(segments);
    let is_beside = !system::HAS_UNNAMED_FILES
        || match options.image_place()? {
            None => most_bytes(&*kind, bank_bytes) <= BESIDE_LOG_MOST,
            Some(place) => place == ImagePlace::BesideLog,
        };
    let copies = memory_bytes.saturating_mul(3 + u64::from(is_beside));
    Ok(Plan {
        kind: kind.name(),
        memory_bytes,
        disk_bytes: copies.saturating_add(log),
        written_bytes: RECORD_BYTES as f64 * (1.0 + memory_bytes as f64 / due as f64),
        bits_per_key: keys.map(|keys| memory_bytes as f64 * 8.0 / keys),
        fpr: kind.planned_fpr(layout),
        stripes: layout.stripes,
        blocks: layout.blocks(geometry),
        parts: kind.planned_parts(layout),
        parameters,
    })
}
