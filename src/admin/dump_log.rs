//! Reads the records of a filter's log, for people and for programs that examine it.

use crate::admin::look::{look_at, needed_log};
use crate::archive::revisions::{Revision, revisions};
use crate::archive::with_kept::{Whole, explained};
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
use std::cell::Cell;
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
    /// `durable`, `void`, `clear`, `position`, `claim`, `release`; `batch` in logs of formats up to
    /// 5.
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

    /// Returns the step of the record, and its weight: 1 if the kind that the filter had then has
    /// none.
    pub(crate) fn step_and_weight(&self) -> (u64, u32) {
        (self.record.step, if self.weighs { self.record.argument } else { 1 })
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

/// Opens the part of a log that has these LSNs. If the header of a segment is damaged, only the log
/// behind that is opened, and the error returned as well.
fn open_behind_damage(
    media: &dyn Media,
    whole: &Whole<'_>,
    (log, lsns): (u128, Range<u64>),
) -> Result<(LogReader, Option<Error>)> {
    let mut listing = Listing::of_filter(whole, log)?;
    // A damaged header does not say whose it is.
    listing.segments.retain(|(_, first)| lsns.contains(first));
    let open = |at: usize| {
        let segments = listing.segments[at..].to_vec();
        LogReader::open(whole, &Listing { segments, ..Listing::default() }, log)
    };
    let error = match open(0) {
        Err(error) if error.is_unreadable() => explained(media, error),
        opened => return Ok((opened?, None)),
    };
    let all: Vec<usize> = (0..listing.segments.len()).collect();
    Ok((open(all.partition_point(|&at| open(at).is_err()))?, Some(error)))
}

/// Opens the log of a filter since it was altered last with what is only kept, as
/// [`open_behind_damage`]. The rest is mapped, and stays readable whatever others do from here on.
fn whole_log(
    media: &dyn Media,
    whole: &Whole<'_>,
    (meta, since): (&Meta, u64),
) -> Result<(LogReader, Option<Error>)> {
    let needed = Listing::of_filter(media, meta.log_uuid)?;
    if !needed.has_kept() {
        return Ok((needed_log(media, &needed, meta)?, None));
    }
    let from = needed.segments.first().map_or(0, |&(_, first)| first);
    let (mut history, damage) = open_behind_damage(media, whole, (meta.log_uuid, since..u64::MAX))?;
    // Only what is kept may be left out.
    let is_needed = history.segments().first().is_none_or(|segment| segment.first > from);
    match damage {
        Some(error) if is_needed => return Err(error),
        _ => history.hold(whole, from)?,
    }
    Ok((history, damage))
}

/// Passes every record of a filter's log to `visit`, in the order of LSNs, from the oldest that is
/// still present. The log before a kept segment whose header is damaged is left out, back to the
/// alteration before it.
///
/// # Errors
/// [`Error::NotAFilter`](crate::Error::NotAFilter), [`Error::Locked`](crate::Error::Locked),
/// [`Error::Io`](crate::Error::Io), [`Error::Damaged`](crate::Error::Damaged) after all readable
/// records, and errors of `visit`.
pub fn wal(dir: impl AsRef<Path>, mut visit: impl FnMut(&Entry) -> Result<()>) -> Result<()> {
    let media = Disk::new(dir.as_ref());
    let parts = look_at(&media, |meta, known| open_parts(&media, meta, known))?;
    let (mut damage, has_failed) = (None, Cell::new(false));
    let mut visit = |entry: &Entry| visit(entry).inspect_err(|_| has_failed.set(true));
    for part in parts {
        let read = part.records(&media, 0, &mut visit);
        for error in part.damage.into_iter().chain(read.err()) {
            // An error of `visit` may look like one of the log.
            if has_failed.get() || !error.is_damage() {
                return Err(error);
            }
            damage.get_or_insert(error);
        }
    }
    damage.map_or(Ok(()), Err)
}

/// As [`wal`], for a medium and a filter that the caller has read, before its latest alteration
/// only if `is_past`. Returns the LSN of the oldest record that is still present, and the first LSN
/// beyond the newest. What is only kept counts as gone up to its last damage, unless `is_past`:
/// `None` is passed if it has been met among records that were passed already.
///
/// # Errors
/// [`Error::Retired`] if the filter was replaced or altered meanwhile, and as [`wal`].
pub(crate) fn records(
    media: &dyn Media,
    (meta, is_past): (&Meta, bool),
    visit: &mut dyn FnMut(Option<&Entry>) -> Result<()>,
) -> Result<Range<u64>> {
    let (now, mut parts) =
        look_at(media, |now, known| Ok((now.clone(), open_parts(media, now, known)?)))?;
    let replaced = now.uuid != meta.uuid;
    if replaced || (!is_past && now.log_uuid != meta.log_uuid) {
        return Err(Error::Retired { path: media.path().to_path_buf(), replaced });
    }
    let damaged = parts.iter().rposition(|part| part.damage.is_some());
    parts.drain(..damaged.unwrap_or(0));
    // A moment of the past may lie before it.
    if is_past && let Some(error) = parts.first_mut().and_then(|part| part.damage.take()) {
        return Err(error);
    }
    let (mut first, mut end) = (None, 1);
    for part in &parts {
        let read = match part.records(media, 0, &mut |entry| visit(Some(entry))) {
            Err(error) if !is_past && error.is_damage() => {
                let begins = part.behind_damage(media).ok_or(error)?;
                (first, end) = (None, begins);
                visit(None)?;
                part.records(media, begins, &mut |entry| visit(Some(entry)))?
            }
            read => read?,
        };
        if let Some(read) = read {
            end = read.end;
            first = first.or((!read.is_empty()).then_some(read.start));
        }
    }
    Ok(first.unwrap_or(end)..end)
}

/// A part of a filter's log in which its parameters did not change, opened.
struct Part {
    meta: Meta,
    is_past: bool,
    history: LogReader,
    known: KnownExtent,
    /// The first LSN that is not only kept.
    needed_from: u64,
    /// The damage of a header before what was opened.
    damage: Option<Error>,
}

/// Opens the log of a filter, the oldest part first.
fn open_parts(media: &dyn Media, now: &Meta, known: KnownExtent) -> Result<Vec<Part>> {
    let (mut parts, mut since) = (Vec::new(), 0);
    for Revision { meta, end } in revisions(media, now)? {
        let Some(end) = end else {
            let own = Listing::of_filter(media, meta.log_uuid)?.segments;
            let needed_from = own.first().map_or(u64::MAX, |&(_, first)| first);
            let (history, damage) = whole_log(media, &Whole::new(media), (&meta, since))?;
            parts.push(Part { meta, is_past: false, history, known, needed_from, damage });
            continue;
        };
        let of = (meta.log_uuid, since..end);
        let (history, damage) = open_behind_damage(media, &Whole::past(media), of)?;
        history.end_at(end);
        let (known, needed_from) = (KnownExtent::Nothing, end);
        parts.push(Part { meta, is_past: true, history, known, needed_from, damage });
        since = end;
    }
    Ok(parts)
}

impl Part {
    fn whole<'a>(&self, media: &'a dyn Media) -> Whole<'a> {
        if self.is_past { Whole::past(media) } else { Whole::new(media) }
    }

    /// Returns where the first commit begins behind damage of what is only kept.
    fn behind_damage(&self, media: &dyn Media) -> Option<u64> {
        let first = self.history.segments().first()?.first;
        let of = (self.known, self.needed_from.checked_sub(1)?);
        self.history.behind_damage(&self.whole(media), first, of)
    }

    /// Passes every record of this part from `from` on to `visit`. Returns their LSNs; `None`
    /// without any log.
    fn records(
        &self,
        media: &dyn Media,
        from: u64,
        visit: &mut dyn FnMut(&Entry) -> Result<()>,
    ) -> Result<Option<Range<u64>>> {
        let Some(first) = self.history.segments().first().map(|segment| segment.first.max(from))
        else {
            return Ok(None);
        };
        let whole = self.whole(media);
        let weighs = self.meta.kind.weights().is_some();
        let mut show = |timeline, group: Group<'_>, counts| {
            group.iter().try_for_each(|&(lsn, record)| {
                // Word 1 of a position is no time.
                let micros = if record.op == Op::Position { 0 } else { record.time };
                let (time, operation) = (Timestamp::from_unix_micros(micros), record.op.name());
                visit(&Entry { lsn, timeline, time, operation, counts, record, weighs })
            })
        };
        let (mut batches, mut last) = (Batches::default(), 0);
        let read = self.history.read(&whole, first, self.known, |timeline, lsn, record| {
            last = timeline;
            batches.take(lsn, record, |group, counts| show(timeline, group, counts))
        });
        let read = read.map_err(|error| explained(media, error));
        let stop = read.as_ref().map_or(u64::MAX, |read| read.stop);
        let end = batches.end(stop, |group, counts| show(last, group, counts))?;
        read.map(|_| Some(first..end))
    }
}
