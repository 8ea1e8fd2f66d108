//! Reads the records of a filter's log, for people and for programs that examine it.

use crate::admin::look::{look_at, needed_log};
use crate::archive::revisions::{Revision, revisions};
use crate::archive::whole::{Whole, explained};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::media::{Disk, Media};
use crate::meta::Meta;
use crate::recovery::batches::{Batches, Group};
use crate::recovery::log_reader::LogReader;
use crate::recovery::{KnownExtent, Listing};
use crate::wal::{Op, Record};
use ebbtide_core::claims::HeldClaim;
use ebbtide_core::event;
use ebbtide_core::kind::Event;
use std::ops::Range;
use std::path::Path;

/// A record as `ebbtide wal` prints it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Entry {
    /// The record's number.
    pub lsn: u64,
    /// The record's timeline.
    pub timeline: u64,
    /// The record's time; the epoch itself if it has none.
    pub time: Timestamp,
    /// The operation: `insert`, `remove`, `step`, `open-bank`, `close-bank`, `heartbeat`,
    /// `durable`, `void`, `clear`, `position`; `batch` in logs of formats up to 5.
    pub operation: &'static str,
    /// Whether the record counts: false in a batch that its writer did not complete.
    pub counts: bool,
    record: Record,
    /// Whether the argument of an operation is its weight.
    weighs: bool,
}

/// Returns the content of a record about a bank.
fn bank_details(record: &Record) -> Vec<(&'static str, u64)> {
    match event::from_record(record) {
        Some(Event::OpenBank { id, geometry, since, .. }) => vec![
            ("bank", id.into()),
            ("since", since),
            ("blocks-per-stripe", geometry.blocks_per_stripe.into()),
            ("words", geometry.words_per_block.into()),
        ],
        Some(Event::CloseBank { id, .. }) => vec![("bank", id.into())],
        _ => Vec::new(),
    }
}

impl Entry {
    /// Returns the other content of the record, as names and values.
    #[must_use]
    pub fn details(&self) -> Vec<(&'static str, u64)> {
        let Record { payload, step, argument, .. } = self.record;
        let argument = u64::from(argument);
        match self.record.op {
            Op::Insert | Op::Remove => {
                let what = if self.weighs { "weight" } else { "new" };
                vec![("hash", payload), ("step", step), (what, argument)]
            }
            Op::Step => vec![("step", step), ("word", payload)],
            Op::OpenBank | Op::CloseBank => bank_details(&self.record),
            Op::Durable => vec![("upto", payload)],
            Op::Batch => vec![("records", payload)],
            Op::Position => vec![("source", payload), ("position", self.record.time)],
            Op::Claim => {
                let claim = HeldClaim::of_record(&self.record);
                let lease = (claim.deadline - claim.since) / 1000;
                vec![("hash", payload), ("token", step), ("lease-ms", lease)]
            }
            Op::Release => vec![("hash", payload), ("token", step)],
            Op::Heartbeat | Op::Clear | Op::Void => Vec::new(),
        }
    }

    /// Returns the hash of the key that the record inserts or removes; `None` for other records.
    pub(crate) fn key_hash(&self) -> Option<u64> {
        matches!(self.record.op, Op::Insert | Op::Remove).then_some(self.record.payload)
    }

    /// Returns whether the record inserts a key.
    pub(crate) fn is_insert(&self) -> bool {
        self.record.op == Op::Insert
    }

    /// Returns whether the record removes all keys.
    pub(crate) fn is_clear(&self) -> bool {
        self.record.op == Op::Clear
    }

    /// Returns the step of the record, and its weight (or, for kinds without weights, the new
    /// bits).
    pub(crate) fn step_and_argument(&self) -> (u64, u32) {
        (self.record.step, self.record.argument)
    }

    /// Returns whether the next record belongs to the same batch: the records of a batch count only
    /// together.
    #[must_use]
    pub fn continues(&self) -> bool {
        self.record.continues
    }

    /// Returns whether the record's time came with the key.
    #[must_use]
    pub fn is_stream_time(&self) -> bool {
        self.record.stream
    }
}

/// Opens the log of a filter with what is only kept. The rest is mapped, and stays readable
/// whatever others do from here on.
fn whole_log(media: &dyn Media, whole: &Whole<'_>, meta: &Meta) -> Result<LogReader> {
    let needed = Listing::of_filter(media, meta.log_uuid)?;
    if !needed.has_kept() {
        return needed_log(media, &needed, meta);
    }
    let listing = Listing::of_filter(whole, meta.log_uuid)?;
    let mut history = LogReader::open(whole, &listing, meta.log_uuid)?;
    history.hold(whole, needed.segments.first().map_or(0, |&(_, first)| first))?;
    Ok(history)
}

/// Passes every record of a filter's log to `visit`, in the order of LSNs, from the oldest that is
/// still present.
///
/// # Errors
/// [`Error::NotAFilter`](crate::Error::NotAFilter), [`Error::Locked`](crate::Error::Locked),
/// [`Error::Io`](crate::Error::Io), [`Error::Damaged`](crate::Error::Damaged) after all readable
/// records, and errors of `visit`.
pub fn wal(dir: impl AsRef<Path>, mut visit: impl FnMut(&Entry) -> Result<()>) -> Result<()> {
    let media = Disk::new(dir.as_ref());
    let whole = Whole::new(&media);
    let opened = look_at(&media, |meta, known| Opened::of(&media, &whole, meta, known))?;
    opened.records(&media, &whole, &mut visit).map(|_| ())
}

/// As [`wal`], for a medium and a filter that the caller has read, before its latest alteration
/// only if `is_past`. Returns the LSN of the oldest record that is still present, and the first LSN
/// beyond the newest.
///
/// # Errors
/// [`Error::Retired`] if the filter was replaced or altered meanwhile, and as [`wal`].
pub(crate) fn records(
    media: &dyn Media,
    (meta, is_past): (&Meta, bool),
    visit: &mut dyn FnMut(&Entry) -> Result<()>,
) -> Result<Range<u64>> {
    let whole = Whole::new(media);
    let opened = look_at(media, |now, known| Opened::of(media, &whole, now, known))?;
    let replaced = opened.meta.uuid != meta.uuid;
    if replaced || (!is_past && opened.meta.log_uuid != meta.log_uuid) {
        return Err(Error::Retired { path: media.path().to_path_buf(), replaced });
    }
    opened.records(media, &whole, visit)
}

/// The log of a filter, opened.
struct Opened {
    known: KnownExtent,
    /// The log that it writes now.
    present: LogReader,
    meta: Meta,
    /// The parts of its log before that, the oldest first.
    former: Vec<(Meta, LogReader)>,
}

impl Opened {
    fn of(media: &dyn Media, whole: &Whole<'_>, meta: &Meta, known: KnownExtent) -> Result<Self> {
        let mut revisions = revisions(media, meta)?;
        revisions.pop();
        let open = |Revision { meta, end }: Revision| {
            let past = Whole::past(media);
            let listing = Listing::of_filter(&past, meta.log_uuid)?;
            let history = LogReader::open(&past, &listing, meta.log_uuid)?;
            history.end_at(end.unwrap_or(u64::MAX));
            Ok((meta, history))
        };
        let former = revisions.into_iter().map(open).collect::<Result<_>>()?;
        Ok(Self { known, present: whole_log(media, whole, meta)?, meta: meta.clone(), former })
    }

    /// See [`records`].
    fn records(
        self,
        media: &dyn Media,
        whole: &Whole<'_>,
        visit: &mut dyn FnMut(&Entry) -> Result<()>,
    ) -> Result<Range<u64>> {
        let mut first = None;
        for (meta, history) in self.former {
            let (past, log) = (Whole::past(media), (&history, KnownExtent::Nothing));
            let read = records_of((media, &past), &meta, log, visit)?;
            first = first.or(read.filter(|read| !read.is_empty()).map(|read| read.start));
        }
        let log = (&self.present, self.known);
        let read = records_of((media, whole), &self.meta, log, visit)?.unwrap_or(1..1);
        Ok(first.unwrap_or(read.start)..read.end)
    }
}

/// As [`records`], of a part of the log; `None` if there is none.
fn records_of(
    (media, whole): (&dyn Media, &Whole<'_>),
    meta: &Meta,
    (history, known): (&LogReader, KnownExtent),
    visit: &mut dyn FnMut(&Entry) -> Result<()>,
) -> Result<Option<Range<u64>>> {
    let Some(first) = history.segments().first().map(|segment| segment.first) else {
        return Ok(None);
    };
    let weighs = meta.kind.weights().is_some();
    let mut show = |timeline, group: Group<'_>, counts| {
        group.iter().try_for_each(|&(lsn, record)| {
            // Word 1 of a position is no time.
            let micros = if record.op == Op::Position { 0 } else { record.time };
            let (time, operation) = (Timestamp::from_unix_micros(micros), record.op.name());
            visit(&Entry { lsn, timeline, time, operation, counts, record, weighs })
        })
    };
    let (mut batches, mut last) = (Batches::default(), 0);
    let read = history.read(whole, first, known, |timeline, lsn, record| {
        last = timeline;
        batches.take(lsn, record, |group, counts| show(timeline, group, counts))
    });
    let read = read.map_err(|error| explained(media, error));
    let stop = read.as_ref().map_or(u64::MAX, |read| read.stop);
    let end = batches.end(stop, |group, counts| show(last, group, counts))?;
    read.map(|_| Some(first..end))
}
