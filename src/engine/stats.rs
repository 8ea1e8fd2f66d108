//! Statistics and the digest of an open filter.

use crate::clock::Timestamp;
use crate::engine::{Engine, Local};
use crate::error::{Error, Result};
use crate::format::header::DURABLE;
use crate::image::Bank;
use crate::locks::stripes::StripeGuard;
use crate::media::{Access, BootIdSource};
use crate::options::Durability;
use crate::recovery::Listing;
use crate::recovery::trim::{copy, used};
use crate::snapshot::SnapshotReader;
use crate::sync::{self, AtomicU64, Ordering, patience};
use crate::wal::segment::SegmentFile;
use ebbtide_core::block::{Block, OWN_WORDS};
use ebbtide_core::hash::{DigestHasher, KeyHash};
use ebbtide_core::kind::{Moment, Parameters, Sample};
use ebbtide_core::state::STATE_WORDS;
use std::fmt;
use std::time::Duration;

/// The pause, during which writers proceed, before all stripes are tried again.
const PAUSE: Duration = patience(Duration::from_millis(20));

/// Blocks of a bank that are sampled for the fill.
const SAMPLE: u64 = 1024;

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
    /// Insert operations applied since creation, by all handles.
    ///
    /// Do not use it as an offset to resume a stream from, unless
    /// [`Filter::sync`](crate::Filter::sync) comes first and a single consumer inserts every
    /// message once. Inserts that are not durable yet are included, and so are those of other
    /// handles. The last operations of a killed process may be missing until their stripe is used
    /// again. After a crash the first opener's value is that of the recovered state.
    pub inserts: u64,
    /// Operations of all types applied since creation: inserts and removals.
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
    /// The share of cells (bits, counters, timers) in use, measured on up to 1024 blocks.
    pub fill: f64,
    /// The expected false-positive rate at present, by theory.
    pub estimated_fpr: f64,
    /// The planned false-positive rate: when the filter is as full as planned, by theory.
    pub planned_fpr: f64,
    /// Whether the filter is clearly fuller than planned: its false-positive rate is more than
    /// twice the planned one. The keys have outgrown the filter, or a client floods it. Kinds that
    /// forget as fast as they learn, or grow, are never saturated; importance-aware ones only if
    /// most keys are more important than planned. (`decaying-optimized` is judged by its
    /// counters.)
    pub saturated: bool,
    /// The metrics of the kind: names and numbers.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_map"))]
    pub figures: Vec<(&'static str, u64)>,
    /// Bytes of memory: blocks, headers, tables; the log separately.
    pub memory_bytes: u64,
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
    /// Insert operations applied since creation.
    pub inserts: u64,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.value)
    }
}

/// A private copy of a block, which a kind may settle.
struct Copied {
    words: Vec<AtomicU64>,
    number: u64,
    of: u64,
}

impl Copied {
    fn of(block: Block<'_>, words: &mut Vec<u64>) -> Self {
        copy(&block, words);
        let words = words.iter().map(|&word| AtomicU64::new(word)).collect();
        Self { words, number: block.number, of: block.of }
    }

    fn block(&self) -> Block<'_> {
        let (own, cells) = self.words.split_at(OWN_WORDS);
        Block { number: self.number, of: self.of, ..Block::alone(own, cells) }
    }
}

impl Engine {
    /// Acquires all stripes: ordinary ones first, stripe 0 last, the order in which inserts take
    /// them. If one is unavailable, releases all for a while: other callers must not wait for its
    /// owner.
    pub(crate) fn lock_all(&self) -> Vec<StripeGuard<'_, Local>> {
        let indexes = || (1..self.image.header().stripe_count()).chain([0]);
        loop {
            let held: Option<Vec<_>> = indexes().map(|index| self.lock_soon(index)).collect();
            match held {
                Some(held) => return held,
                None => sync::sleep(PAUSE),
            }
        }
    }

    /// Returns a hash of the logical state, while all writers wait.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`] if a bank cannot be mapped.
    pub(crate) fn digest(&self) -> Result<Digest> {
        self.check_process()?;
        let header = self.image.header();
        let _held = self.lock_all();
        let kind = &*self.meta.kind;
        let (totals, time) = self.image.sum_stripes();
        let moment = Moment { time: time >> 1, now: time >> 1, totals };
        let mut hasher = DigestHasher::default();
        let mut words = Vec::new();
        for index in 0..header.stripe_count() {
            let sums = header.stripe(index).sums();
            let time = if kind.uses_time() { sums.time } else { 0 };
            hasher.words(&[sums.inserts, time, sums.new_bits]);
        }
        copy(&header.state_block().current().block(), &mut words);
        // However many of them the kind uses.
        words.resize(OWN_WORDS + STATE_WORDS, 0);
        hasher.words(&words);
        self.image.follow()?;
        let (state, banks) = (header.state(), self.image.banks());
        for entry in state.banks() {
            let Some(bank) = banks.get(entry.slot) else {
                continue;
            };
            for index in 0..bank.blocks() {
                let copied = Copied::of(used(kind, bank.block(index as usize).1), &mut words);
                kind.settle(&state, entry.slot, &copied.block(), &moment);
                copy(&copied.block(), &mut words);
                hasher.words(&words);
            }
        }
        let lsn = header.tail().load(Ordering::Acquire);
        // Fails if a stripe could not be repaired.
        self.check_writable()?;
        Ok(Digest { value: hasher.finish(), lsn, inserts: self.image.sum_stripes().0.inserts })
    }

    pub(crate) fn stat(&self) -> Result<Stat> {
        self.check_process()?;
        let header = self.image.header();
        let kind = &*self.meta.kind;
        let (totals, _) = self.image.sum_stripes();
        let latest = self.latest();
        let listed = self.image.listed_banks()?;
        let listing = Listing::read(&*self.media)?;
        let moment = self.exact_moment(self.now());
        let sample = self.sample(&moment);
        let (state, layout) = (header.state(), self.meta.layout);
        let removals = if kind.removal().is_some() { totals.new_bits } else { 0 };
        let metrics = kind.metrics().iter().map(|metric| (metric.name, self.metric(metric.word)));
        Ok(Stat {
            kind: kind.name(),
            parameters: kind.parameters(),
            inserts: totals.inserts,
            operations: totals.inserts.wrapping_add(removals),
            lsn: header.tail().load(Ordering::Acquire),
            durable_lsn: self.durable(),
            step: kind.step(&state, &moment),
            time: (latest.time > 0).then(|| Timestamp::from_unix_micros(latest.time)),
            clock_lead: self.clock_lead(),
            fill: sample.fill(),
            estimated_fpr: kind.estimated_fpr(&state, layout, &moment, &sample),
            planned_fpr: kind.planned_fpr(layout),
            saturated: kind.is_saturated(&state, layout, &moment, &sample),
            figures: metrics.collect(),
            memory_bytes: self.image.memory_bytes(),
            disk_bytes: self.disk_bytes()?,
            stripes: layout.stripes,
            blocks: listed.iter().map(|bank| bank.blocks()).sum(),
            banks: listed.len() as u32,
            handles: self.slots.alive()?.len() as u32,
            snapshots: listing.snapshots.len() as u32,
            wal_segments: listing.segments.len() as u32,
            refused: header.refused().load(Ordering::Relaxed),
            durability: self.meta.durability,
            key_hash: self.meta.hasher.function(),
            max_lead: self.meta.max_lead,
            boot_id: self.media.boot_id_source(),
            format: self.oldest_format(&listing),
        })
    }

    /// Samples blocks of all banks, each brought to the filter's step.
    fn sample(&self, moment: &Moment) -> Sample {
        let kind = &*self.meta.kind;
        let mut seen = Sample::default();
        let state = self.image.header().state();
        let banks = self.image.banks();
        let mut words = Vec::new();
        for entry in state.banks() {
            let Some(bank) = banks.get(entry.slot) else {
                continue;
            };
            for index in sampled(bank) {
                // Without its stripe: a metric may be slightly off, and a stopped process must not
                // delay it.
                let copied = Copied::of(used(kind, bank.block(index as usize).1), &mut words);
                kind.settle(&state, entry.slot, &copied.block(), moment);
                seen.look(kind, &state, entry.slot, &copied.block(), moment);
            }
        }
        seen
    }

    /// Returns the sum of a kind word over all blocks.
    fn metric(&self, word: usize) -> u64 {
        let banks = self.image.banks();
        let blocks =
            banks.iter().flat_map(|(_, bank)| (0..bank.blocks()).map(|at| bank.block(at as usize)));
        blocks.map(|(_, block)| block.own(word)).fold(0, u64::wrapping_add)
    }

    /// Returns the oldest format version among log and snapshots, as far as they exist and are
    /// sound.
    fn oldest_format(&self, listing: &Listing) -> u32 {
        let (media, uuid) = (&*self.media, self.meta.uuid);
        let snapshots = listing.snapshots.iter().filter_map(|&start| {
            SnapshotReader::open(media, start, uuid).ok().map(|reader| reader.version())
        });
        let segments = listing.segments.iter().filter_map(|&(timeline, first)| {
            let file = SegmentFile::open(media, timeline, first, uuid, Access::Read);
            file.ok().map(|file| file.version)
        });
        snapshots.chain(segments).min().unwrap_or(DURABLE.written)
    }

    fn disk_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for name in self.media.list().map_err(Error::io("list", self.media.path()))? {
            if crate::format::names::FileName::parse(&name).is_none() {
                continue;
            }
            // A file that is gone by now occupies nothing.
            if let Ok(file) = self.media.open(&name, Access::Read) {
                let path = self.media.path().join(&name);
                bytes += file.allocated_bytes().map_err(Error::io("measure", path))?;
            }
        }
        Ok(bytes)
    }
}

fn sampled(bank: &Bank) -> impl Iterator<Item = u64> {
    let (blocks, every) = (bank.blocks(), bank.blocks().div_ceil(SAMPLE).max(1));
    (0..blocks).step_by(every as usize)
}

#[cfg(all(test, not(loom)))]
mod tests;
