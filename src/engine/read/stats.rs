//! Statistics and the digest of an open filter.

use crate::archive::keep_setting;
use crate::archive::kept_files::{Archive, Now};
use crate::clock::Timestamp;
use crate::engine::read::distinct;
use crate::engine::shared::Shared;
use crate::engine::stripes::StripeLocks;
use crate::engine::time::filter_time::Time;
use crate::engine::time::lease_time::{Leases, even_second};
use crate::error::{Error, Result};
use crate::format::header::DURABLE;
use crate::image::stripe_table::StripeSums;
use crate::media::{Access, BankPlace, BootIdSource};
use crate::meta::Meta;
use crate::options::{Durability, Keep};
use crate::recovery::Listing;
use crate::snapshot::SnapshotReader;
use crate::wal::segment::SegmentFile;
use ebbtide_core::digest::{StateDigest, Sums};
use ebbtide_core::hash::KeyHash;
use ebbtide_core::kind::copy::BlockCopy;
use ebbtide_core::kind::distinct_query::CardinalityQuery;
use ebbtide_core::kind::sample::sampled;
use ebbtide_core::kind::{Cardinality, Moment, Parameters, Sample};
use std::fmt;
use std::time::Duration;

/// The most blocks of a bank that are sampled for the fill.
const SAMPLE: u64 = 1024;

/// The most blocks of a bank that are sampled for the number of distinct keys.
const DISTINCT_SAMPLE: u64 = 256;

/// Statistics of an open filter, as of the call.
///
/// With the feature `serde` it can be serialised: times are microseconds since the Unix epoch,
/// `durability`, `key_hash` and `digest` are strings as written by their `Display`, `parameters` a
/// map of strings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stat {
    /// The kind's name.
    pub kind: &'static str,
    /// The kind's parameters, completed.
    pub parameters: Parameters,
    /// Insert operations applied since creation or the last clear, by all handles.
    ///
    /// Do not use it as an offset to resume a stream from, unless
    /// [`Filter::sync`](crate::Filter::sync) comes first and a single consumer inserts every
    /// message once. Inserts that are not durable yet are included, and so are those of other
    /// handles. The last operations of a killed process may be missing until their stripe is used
    /// again. After a crash the first opener's value is that of the recovered state.
    pub inserts: u64,
    /// Operations of all types applied since creation or the last clear: inserts and removals.
    pub operations: u64,
    /// The LSN of the next record.
    pub lsn: u64,
    /// Every LSN below is durable.
    pub durable_lsn: u64,
    /// The present step (generation, epoch, tick), if the kind has steps.
    pub step: Option<u64>,
    /// The latest time seen.
    pub time: Option<Timestamp>,
    /// How far the filter's time is ahead of the clock; see
    /// [`Filter::clock_lead`](crate::Filter::clock_lead).
    pub clock_lead: Option<Duration>,
    /// The share of cells (bits, counters, timers) in use, measured on up to 1024 blocks of each
    /// bank.
    pub fill: f64,
    /// The distinct keys in the window, or at all for kinds without one, measured on up to 256
    /// blocks of each bank; `None` for kinds that do not know it. See
    /// [`Filter::distinct`](crate::Filter::distinct), which looks at all blocks.
    pub distinct_keys: Option<f64>,
    /// The standard error of that number, in keys.
    pub distinct_keys_error: Option<f64>,
    /// The expected false-positive rate at present, by theory.
    pub estimated_fpr: f64,
    /// The planned false-positive rate: when the filter is as full as planned, by theory.
    pub planned_fpr: f64,
    /// Whether the filter is clearly fuller than planned: its false-positive rate is more than
    /// twice the planned one, or its `max-memory` does not let it grow as it needs. The keys have
    /// outgrown the filter, or a client floods it. Kinds that forget as fast as they learn, or grow
    /// without a limit, are never saturated; importance-aware ones only if
    /// most keys are more important than planned. (`decaying-optimized` is judged by its
    /// counters.)
    pub saturated: bool,
    /// The metrics of the kind: names and numbers.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_map"))]
    pub figures: Vec<(&'static str, u64)>,
    /// Bytes of memory: blocks, headers, tables; the log separately.
    pub memory_bytes: u64,
    /// Where the cells of the live image lie.
    pub image: BankPlace,
    /// Bytes of disk that all files of the filter occupy.
    pub disk_bytes: u64,
    /// Shares of the key-hash space.
    pub stripes: u32,
    /// Blocks, in all banks.
    pub blocks: u64,
    /// Banks.
    pub banks: u32,
    /// Handles that have the filter open, in all processes, including the one that reports it if
    /// it is a [`Filter`](crate::Filter). A [`Reader`](crate::Reader) has no session and is
    /// never counted. Beside one idle daemon a reader therefore reports 1, and a `Filter`
    /// (which the command line may open) reports 2.
    pub handles: u32,
    /// Snapshots on the disk.
    pub snapshots: u32,
    /// Log segments on the disk.
    pub wal_segments: u32,
    /// Inserts refused as too late since the filter was opened.
    pub refused: u64,
    /// Claims that are held: keys that somebody is working on; see
    /// [`Filter::claim`](crate::Filter::claim).
    pub claims: u64,
    /// How long ago the oldest of them began.
    pub oldest_claim: Option<Duration>,
    /// How much log is kept beyond what recovery needs; see
    /// [`Options::keep_log`](crate::Options::keep_log).
    pub keep_log: Keep,
    /// The first LSN as of which the filter can be asked ([`Reader::at`](crate::Reader::at)) for as
    /// long as the log is kept; `None` if nothing is.
    pub kept_log_from: Option<u64>,
    /// How long ago recovery stopped needing the oldest kept log: all younger operations are there.
    /// `None` if nothing is kept, or not yet, or if the wall clock was ahead then.
    pub kept_log_for: Option<Duration>,
    /// Whether the kept log reaches less far back than `keep_log` asks for, and older log is gone:
    /// the option was set too late, or the disk was full. False where `keep_log` is a number of
    /// bytes.
    pub kept_log_is_short: bool,
    /// Bytes of disk of what is only kept.
    pub kept_log_bytes: u64,
    /// When records must be on the disk.
    pub durability: Durability,
    /// The function that hashes keys.
    pub key_hash: KeyHash,
    /// How far ahead of the wall clock a key's time may lie; kept at creation.
    pub max_lead: Duration,
    /// The source of the boot id. Unless it is the kernel's, a filter whose processes were all
    /// killed is recovered as after a power cut when its container restarts.
    pub boot_id: BootIdSource,
    /// The oldest format version among log and snapshots; the next ones are written in the newest.
    pub format: u32,
}

/// Serialises pairs as a map.
#[cfg(feature = "serde")]
fn as_map<S: serde::Serializer>(
    pairs: &[(&str, u64)],
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().copied())
}

/// A hash of the logical state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    /// The hash.
    pub value: u128,
    /// The LSN of the next record.
    pub lsn: u64,
    /// Insert operations applied since creation or the last clear.
    pub inserts: u64,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.value)
    }
}

/// Returns a hash of the logical state, while all writers wait.
///
/// # Errors
/// [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`] if a file cannot be opened or mapped.
pub(crate) fn digest(shared: &Shared, stripes: &StripeLocks) -> Result<Digest> {
    shared.check_process()?;
    shared.check_trusted()?;
    let header = shared.header();
    let _held = stripes.lock_all()?;
    let sums = (0..header.stripe_count()).map(|index| {
        let StripeSums { inserts, time, new_bits, .. } = header.stripe(index).sums();
        Sums { inserts, time, new_bits }
    });
    let mut digest = StateDigest::new(shared.kind(), sums);
    digest.state(&header.state_block().current().block());
    digest.positions(&header.positions().all());
    digest.claims(header.claims().latest(), header.claims().all().iter());
    shared.image.follow()?;
    let (state, banks) = (header.state(), shared.image.banks());
    for entry in state.banks() {
        let Some(bank) = banks.get(entry.slot) else {
            continue;
        };
        for index in 0..bank.blocks() {
            digest.block(&state, entry.slot, bank.block(index as usize).1);
        }
    }
    let lsn = header.tail().read();
    // Fails if a stripe could not be repaired.
    shared.check_writable()?;
    Ok(Digest { value: digest.finish(), lsn, inserts: shared.image.sum_stripes().0.inserts })
}

/// Returns statistics of an open filter.
///
/// # Errors
/// [`Error::Forked`], [`Error::Io`].
pub(crate) fn stat(shared: &Shared, clock: &Time, leases: &Leases) -> Result<Stat> {
    shared.check_process()?;
    let header = shared.header();
    let kind = shared.kind();
    let (totals, _) = shared.image.sum_stripes();
    let latest = clock.latest();
    let listed = shared.image.listed_banks()?;
    let listing = Listing::read(&*shared.media)?;
    let moment = clock.exact_moment(clock.now());
    let sample = sample(shared, &moment);
    let distinct = distinct_keys(shared, &moment)?;
    let (state, layout) = (header.state(), shared.meta.layout);
    let removals = if kind.removal().is_some() { totals.new_bits } else { 0 };
    let held = leases.held();
    let oldest = held.iter().map(|claim| claim.since).min();
    let kept = kept_log(shared, &listing)?;
    let metrics = kind.metrics().iter().map(|of| (of.name, metric(shared, of.word)));
    Ok(Stat {
        kind: kind.name(),
        parameters: kind.parameters(),
        inserts: totals.inserts,
        operations: totals.inserts.wrapping_add(removals),
        lsn: header.tail().read(),
        durable_lsn: shared.durable(),
        step: kind.step(&state, &moment),
        time: (latest.time > 0).then(|| Timestamp::from_unix_micros(latest.time)),
        clock_lead: clock.clock_lead(),
        fill: sample.fill(),
        distinct_keys: distinct.map(|distinct| distinct.keys),
        distinct_keys_error: distinct.map(|distinct| distinct.standard_error),
        estimated_fpr: kind.estimated_fpr(&state, layout, &moment, &sample),
        planned_fpr: kind.planned_fpr(layout),
        saturated: kind.is_saturated(&state, layout, &moment, &sample),
        figures: metrics.collect(),
        memory_bytes: shared.image.memory_bytes(),
        image: image_place(shared),
        disk_bytes: disk_bytes(shared)?,
        stripes: layout.stripes,
        blocks: listed.iter().map(|bank| bank.blocks()).sum(),
        banks: listed.len() as u32,
        handles: shared.slots.alive()?.len() as u32,
        snapshots: listing.snapshots.len() as u32,
        wal_segments: listing.segments.len() as u32,
        refused: header.refused().count(),
        claims: held.len() as u64,
        oldest_claim: oldest.map(|since| leases.since(since)),
        keep_log: kept.keep,
        kept_log_from: kept.from,
        kept_log_for: kept.age,
        kept_log_is_short: kept.is_short(),
        kept_log_bytes: kept.bytes,
        durability: shared.durability,
        key_hash: shared.meta.hasher.function(),
        max_lead: Duration::from_micros(shared.meta.max_lead),
        boot_id: shared.media.boot_id_source(),
        format: oldest_format(shared, &listing),
    })
}

/// Returns the number of distinct keys, by a sample of the blocks.
fn distinct_keys(shared: &Shared, moment: &Moment) -> Result<Option<Cardinality>> {
    match CardinalityQuery::new(shared.kind(), "distinct", None) {
        Ok(query) => distinct::count_at(shared, moment, &query.sampling(DISTINCT_SAMPLE)).map(Some),
        Err(_) => Ok(None),
    }
}

/// What is kept of the log.
#[derive(Default)]
struct KeptLog {
    keep: Keep,
    from: Option<u64>,
    age: Option<Duration>,
    /// Whether it got its name in what is the future by all clocks.
    is_of_future: bool,
    bytes: u64,
}

impl KeptLog {
    /// Returns whether it does not reach as far back as wished.
    fn is_short(&self) -> bool {
        let is_part = self.from.is_some_and(|from| from > 0);
        match self.keep {
            Keep::For(time) => is_part && !self.is_of_future && self.age.unwrap_or_default() < time,
            Keep::Nothing | Keep::Bytes(_) => false,
        }
    }
}

/// Returns what is kept of the log.
fn kept_log(shared: &Shared, listing: &Listing) -> Result<KeptLog> {
    let media = &*shared.media;
    // As long as the file `keep` is damaged, all is kept; `verify` reports it.
    let keep = keep_setting::wished(media);
    if keep == Keep::Nothing && !listing.has_kept() {
        return Ok(KeptLog::default());
    }
    // A handle on a moment of the past may have a former `meta`.
    let present = Meta::read(media);
    let archive = Archive::read(media, present.as_ref().unwrap_or(&shared.meta))?;
    let wall = Timestamp::now().as_unix_millis() / 1000;
    let now = Now { wall, even: even_second(shared.header()).unwrap_or(wall) };
    let (from, since) = (archive.reaches_from(), archive.since());
    let age = since.and_then(|since| now.age(since));
    let is_of_future = since.is_some() && age.is_none();
    Ok(KeptLog { keep, from, age, is_of_future, bytes: archive.bytes(media) })
}

/// Returns where the cells lie. The private image of a reader has no log.
fn image_place(shared: &Shared) -> BankPlace {
    let is_private = shared.is_reader() && shared.header().allocated().read() == 0;
    if is_private { BankPlace::Private } else { shared.image.files().place() }
}

/// Samples blocks of all banks, each brought to the filter's step.
fn sample(shared: &Shared, moment: &Moment) -> Sample {
    let kind = shared.kind();
    let mut seen = Sample::default();
    let state = shared.header().state();
    let banks = shared.image.banks();
    for entry in state.banks() {
        let Some(bank) = banks.get(entry.slot) else {
            continue;
        };
        for index in sampled(bank.blocks(), SAMPLE) {
            // Without its stripe: a metric may be slightly off, and a stopped process must not
            // delay it.
            let copied = BlockCopy::new(kind, bank.block(index as usize).1);
            kind.settle(&state, entry.slot, &copied.block(), moment);
            let fpr = kind.block_fpr(&state, entry.slot, &copied.block(), moment);
            seen.add(entry.slot, kind.fill(&copied.block()), fpr);
        }
    }
    seen
}

/// Returns the sum of a kind word over all blocks.
fn metric(shared: &Shared, word: usize) -> u64 {
    let banks = shared.image.banks();
    let blocks =
        banks.iter().flat_map(|(_, bank)| (0..bank.blocks()).map(|at| bank.block(at as usize)));
    blocks.map(|(_, block)| block.own(word)).fold(0, u64::wrapping_add)
}

/// Returns the oldest format version among log and snapshots, as far as they exist and are
/// sound.
fn oldest_format(shared: &Shared, listing: &Listing) -> u32 {
    let (media, uuid) = (&*shared.media, shared.meta.log_uuid);
    let snapshots = listing.snapshots.iter().filter_map(|&start| {
        SnapshotReader::open(media, start, uuid).ok().map(|reader| reader.version())
    });
    let segments = listing.segments.iter().filter_map(|&(timeline, first)| {
        let file = SegmentFile::open(media, timeline, first, uuid, Access::Read);
        file.ok().map(|file| file.version)
    });
    snapshots.chain(segments).min().unwrap_or(DURABLE.written)
}

fn disk_bytes(shared: &Shared) -> Result<u64> {
    let mut bytes = 0;
    for name in shared.media.list().map_err(Error::io("list", shared.path()))? {
        if crate::format::names::FileName::parse(&name).is_none() {
            continue;
        }
        // A file that is gone by now occupies nothing.
        if let Ok(file) = shared.media.open(&name, Access::Read) {
            let path = shared.path().join(&name);
            bytes += file.allocated_bytes().map_err(Error::io("measure", path))?;
        }
    }
    Ok(bytes)
}

#[cfg(all(test, not(loom)))]
mod tests;
