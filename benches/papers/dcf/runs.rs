//! The filters of the experiments, their streams of keys, and their timing.

use super::seed::seed;
use super::timer::Timer;
use ebbtide::media::Memory;
use ebbtide::{Any, Durability, Filter, Options, Parameters, Result};
use ebbtide_testkit::random::Random;
use ebbtide_testkit::zipf::Zipf;
use std::error::Error;
use std::sync::Arc;

/// The result of an experiment.
pub type Done<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The paper's number of hash functions.
pub const K: u32 = 3;
/// The paper's `F_p`, the share of false positives.
pub const FPR: f64 = 0.05;

/// Returns the paper's `m` for this many distinct keys: with that many counters `k` functions keep
/// `F_p`.
pub fn counters_for(keys: u64) -> u64 {
    let full = -(-FPR.powf(1.0 / f64::from(K))).ln_1p();
    (f64::from(K) * keys as f64 / full).ceil() as u64
}

/// The compared kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Dynamic,
    Spectral,
    /// With counters of this many bits.
    Counting(u32),
}

/// The parameters of a filter.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub kind: Kind,
    /// The number of distinct keys.
    pub keys: u64,
    /// The mean number of inserts per key: the paper's `M/n`.
    pub mean: f64,
    /// The number of counters.
    pub cells: u64,
    /// The threshold of delayed shrinking.
    pub lambda: f64,
    /// The number of stripes; the kind's default if `None`.
    pub stripes: Option<u32>,
}

impl Setting {
    /// Returns the paper's defaults.
    pub fn new(kind: Kind, keys: u64, mean: f64) -> Self {
        Self { kind, keys, mean, cells: counters_for(keys), lambda: 0.5, stripes: None }
    }

    fn spec(&self) -> Any {
        let parameters = Parameters::new()
            .with("capacity", self.keys)
            .with("fpr", FPR)
            .with("cells", self.cells)
            .with("k", K);
        match self.kind {
            Kind::Dynamic => Any::new(
                "dynamic-count",
                parameters.with("mean-count", self.mean).with("lambda", self.lambda),
            ),
            Kind::Spectral => Any::new("spectral", parameters),
            Kind::Counting(bits) => Any::new("counting", parameters.with("counter-bits", bits)),
        }
    }
}

/// A filter of an experiment. It is in memory: no disk is measured.
pub struct Subject {
    setting: Setting,
    filter: Filter<Any>,
}

impl Subject {
    pub fn new(setting: Setting) -> Result<Self> {
        let mut options = Options::new().hash_seed(seed()).durability(Durability::Never);
        if let Some(stripes) = setting.stripes {
            options = options.stripes(stripes).block_bytes(64 << 10);
        }
        let filter = Filter::create_on(Arc::new(Memory::new()), setting.spec(), options)?;
        Ok(Self { setting, filter })
    }

    /// Inserts a key this many times at once.
    pub fn insert(&self, key: u32, times: u64) -> Result<()> {
        self.filter.call().times(times).insert(key.to_le_bytes()).map(drop)
    }

    /// Removes a key this many times at once.
    pub fn remove(&self, key: u32, times: u64) -> Result<()> {
        self.filter.call().times(times).remove(key.to_le_bytes()).map(drop)
    }

    /// Returns how often a key was inserted.
    pub fn count(&self, key: u32) -> Result<f64> {
        Ok(self.filter.estimate(key.to_le_bytes())?.count)
    }

    /// Returns the state of the filter from its statistics.
    pub fn state(&self) -> Result<State> {
        let stat = self.filter.stat()?;
        let figure = |name| stat.figures.iter().find(|f| f.0 == name).map_or(0, |figure| figure.1);
        let cells = self.setting.cells as f64;
        let bits = match self.setting.kind {
            Kind::Dynamic => {
                let x = ebbtide::kinds::dynamic_count::fixed_bits(self.setting.mean);
                cells * f64::from(x) + figure("overflow_bits") as f64
            }
            // Headers of two words for 28 counters, the groups' data, and the slack of an eighth
            // that a rebuild leaves.
            Kind::Spectral => cells / 28.0 * 128.0 + figure("live_words") as f64 * 72.0,
            Kind::Counting(bits) => cells * f64::from(bits),
        };
        Ok(State {
            bits,
            memory_bytes: stat.memory_bytes,
            blocks: stat.blocks,
            rebuilds: figure("rebuilds"),
            expansions: figure("expansions"),
            rewritten: figure("rewritten_cells"),
            saturated: figure("saturated_cells"),
        })
    }

    /// Returns the nanoseconds of an estimate, on average over random keys: the least of some
    /// turns.
    pub fn time_to_read(&self) -> Result<f64> {
        let mut random = Random::new(seed());
        let mut least = f64::MAX;
        for _ in 0..5 {
            let keys: Vec<_> =
                (0..50_000).map(|_| random.below(self.setting.keys) as u32).collect();
            let start = Timer::start();
            for &key in &keys {
                std::hint::black_box(self.count(key)?);
            }
            least = least.min(start.nanos() / keys.len() as f64);
        }
        Ok(least)
    }
}

/// The state of a filter at one moment.
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// The bits of the counters and of their indexes.
    pub bits: f64,
    /// All memory, in pages.
    pub memory_bytes: u64,
    pub blocks: u64,
    /// The number of rebuilds of whole blocks.
    pub rebuilds: u64,
    /// The number of counters of the spectral kind that outgrew their width.
    pub expansions: u64,
    /// The number of counters rewritten by any of these.
    pub rewritten: u64,
    pub saturated: u64,
}

/// Keys inserted one after the other, and the order of their removal.
pub struct Stream {
    pub inserts: Vec<u32>,
    pub removals: Vec<u32>,
    /// The number of inserts of each key at once.
    pub times: u32,
}

impl Stream {
    /// Creates `inserts` keys of a Zipf distribution, removed in random order.
    pub fn zipf(keys: u64, inserts: u64, exponent: f64, times: u32) -> Self {
        let mut random = Random::new(seed());
        let inserts: Vec<u32> = if exponent == 0.0 {
            (0..inserts).map(|_| random.below(keys) as u32).collect()
        } else {
            let zipf = Zipf::new(keys as usize, exponent);
            (0..inserts).map(|_| zipf.next(&mut random) as u32).collect()
        };
        let mut removals = inserts.clone();
        shuffle(&mut removals, &mut random);
        Self { inserts, removals, times }
    }
}

/// Shuffles a slice.
pub fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Operations that were timed together.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    operations: f64,
    nanos: f64,
    rewritten: f64,
}

/// The cost of operations of one kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// The total nanoseconds.
    pub total: f64,
    /// The nanoseconds of one operation without a rebuild.
    pub each: f64,
    /// The total nanoseconds of rebuilding.
    pub rebuilding: f64,
}

impl Cost {
    /// Fits `nanos = each · operations + b · rewritten` by least squares. The chunks have equal
    /// size.
    fn of(chunks: &[Chunk]) -> Self {
        let sum = |value: fn(&Chunk) -> f64| chunks.iter().map(value).sum::<f64>();
        let count = chunks.len() as f64;
        let (total, operations) = (sum(|chunk| chunk.nanos), sum(|chunk| chunk.operations));
        let rewritten = sum(|chunk| chunk.rewritten);
        let (mean_nanos, mean_rewritten) = (total / count, rewritten / count);
        let (mut up, mut down) = (0.0, 0.0);
        for chunk in chunks {
            let more = chunk.rewritten - mean_rewritten;
            up += more * (chunk.nanos - mean_nanos);
            down += more * more;
        }
        let a_cell = if down > 0.0 { (up / down).max(0.0) } else { 0.0 };
        let rebuilding = (a_cell * rewritten).min(total);
        Self { total, each: (total - rebuilding) / operations, rebuilding }
    }
}

/// The cost of a stream.
pub struct Timed {
    pub inserts: Cost,
    pub removals: Cost,
    /// The nanoseconds of an estimate, when all keys were inserted.
    pub read: f64,
    /// The state after all keys were removed again.
    pub empty: State,
}

/// Runs a stream several times, and uses the least time of each of `chunks` parts, because other
/// programs use this machine, too.
pub fn run(setting: Setting, stream: &Stream, chunks: usize, repeats: usize) -> Result<Timed> {
    let mut best: [Vec<Chunk>; 2] = [Vec::new(), Vec::new()];
    let mut last = None;
    for _ in 0..repeats {
        let subject = Subject::new(setting)?;
        let pass = |keys: &[u32], change: fn(&Subject, u32, u64) -> Result<()>, best| {
            let best: &mut Vec<Chunk> = best;
            let mut before = subject.state()?;
            for (index, keys) in keys.chunks(keys.len().div_ceil(chunks).max(1)).enumerate() {
                let start = Timer::start();
                keys.iter().try_for_each(|&key| change(&subject, key, stream.times.into()))?;
                let nanos = start.nanos();
                let after = subject.state()?;
                let rewritten = (after.rewritten - before.rewritten) as f64;
                before = after;
                match best.get_mut(index) {
                    Some(chunk) => chunk.nanos = chunk.nanos.min(nanos),
                    None => best.push(Chunk { operations: keys.len() as f64, nanos, rewritten }),
                }
            }
            Result::Ok(before)
        };
        let [inserts, removals] = &mut best;
        pass(&stream.inserts, Subject::insert, inserts)?;
        let read = subject.time_to_read()?;
        let empty = pass(&stream.removals, Subject::remove, removals)?;
        last = Some((read, empty));
    }
    let (read, empty) = last.expect("at least one repeat");
    let [inserts, removals] = best.map(|chunks| Cost::of(&chunks));
    Ok(Timed { inserts, removals, read, empty })
}
