//! The filters that the paper compares (Table III), and their answers to a stream's items: each
//! item is looked up, then inserted.

use super::seed::seed;
use super::streams::{HIGHEST, Item};
use ebbtide::kinds::stable::Deletion;
use ebbtide::kinds::stable::theory::{Chain, level_shares, same_shares, two_class_shares};
use ebbtide::media::Memory;
use ebbtide::{Any, Checked, Durability, Filter, Options, Parameters, Result};
use std::collections::HashSet;
use std::error::Error;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The result of an experiment.
pub type Done<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The number of cells: 16 KB at the paper's 8 bits (Table II); of bits, in a Bloom filter.
pub const CELLS: u64 = 16384;
/// The highest value of a cell.
pub const MAX: u32 = 7;
/// The number of cells of a key.
pub const K: u32 = 5;
/// The number of cells decremented by an insert.
pub const P: u32 = 10;

/// Formats a rate in per cent.
pub fn percent(rate: f64) -> String {
    format!("{rate:.2}")
}

/// A filter of the comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// The plain Bloom filter.
    Bloom,
    /// SBF.
    Stable,
    /// IBF-2C.
    TwoClasses,
    /// IBF-MC.
    ManyClasses,
    /// IBF-H.
    Hybrid,
}

impl Algorithm {
    /// All filters, in the paper's order.
    pub const ALL: [Self; 5] =
        [Self::Bloom, Self::Stable, Self::TwoClasses, Self::ManyClasses, Self::Hybrid];

    /// The filters with random decay.
    pub const FORGETTING: [Self; 4] =
        [Self::Stable, Self::TwoClasses, Self::ManyClasses, Self::Hybrid];

    /// Returns the paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bloom => "BF",
            Self::Stable => "SBF",
            Self::TwoClasses => "IBF-2C",
            Self::ManyClasses => "IBF-MC",
            Self::Hybrid => "IBF-H",
        }
    }

    /// Returns the name of our kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Bloom => "bloom",
            Self::Stable => "stable",
            Self::TwoClasses => "importance-2c",
            Self::ManyClasses => "importance-mc",
            Self::Hybrid => "importance-h",
        }
    }

    /// Creates the filter with the paper's parameters.
    pub fn filter(self, seed: u64) -> Result<Contestant> {
        let parameters = match self {
            Self::Bloom => {
                Parameters::new().with("capacity", CELLS).with("bits", CELLS).with("k", K)
            }
            _ => self.cells(CELLS).with("P", P),
        };
        Contestant::new(self.kind(), parameters, seed)
    }

    /// Returns parameters with this many cells, and with the paper's `max`, `K` and scale of
    /// importance, but without `P`.
    pub fn cells(self, cells: u64) -> Parameters {
        let shared = Parameters::new().with("cells", cells).with("max", MAX).with("K", K);
        if self == Self::Stable { shared } else { shared.with("importance-max", HIGHEST) }
    }

    /// Returns how the filter chooses cells to decrement.
    pub fn deletion(self) -> Deletion {
        if self == Self::Hybrid { Deletion::ByValue } else { Deletion::Uniform }
    }

    /// Returns the `Q_i` of a stream: the share of its items that raise cells to `i` or more.
    pub fn shares(self, stream: &[Item]) -> Vec<f64> {
        let mut levels = [0.0; MAX as usize];
        for item in stream {
            levels[level(item.importance) as usize - 1] += 1.0 / stream.len() as f64;
        }
        match self {
            Self::Bloom | Self::Stable => same_shares(MAX),
            Self::TwoClasses => two_class_shares(MAX, levels[MAX as usize / 2..].iter().sum()),
            Self::ManyClasses | Self::Hybrid => level_shares(&levels),
        }
    }

    /// Returns the closed form of a filter with random decay, with the paper's parameters.
    pub fn chain(self, shares: &[f64]) -> Chain {
        Chain::new(CELLS, K, P.into(), shares, self.deletion())
    }
}

/// Returns the level of an importance: 1 to [`MAX`].
fn level(importance: u32) -> u32 {
    (importance * MAX).div_ceil(HIGHEST).clamp(1, MAX)
}

/// A filter in memory.
pub struct Contestant {
    /// The filter.
    pub filter: Filter<Any>,
    weighs: bool,
}

impl Contestant {
    /// Creates a filter of this kind in one stripe; `seed` is that of its key hash.
    pub fn new(kind: &str, parameters: Parameters, seed: u64) -> Result<Self> {
        let options = Options::new()
            .hash_seed(seed)
            .stripes(1)
            .durability(Durability::Never)
            .background(false);
        let filter =
            Filter::create_on(Arc::new(Memory::new()), Any::new(kind, parameters), options)?;
        Ok(Self { filter, weighs: kind.starts_with("importance") })
    }

    /// Looks up an item, then inserts it.
    pub fn take(&self, item: Item) -> Result<bool> {
        let mut call = self.filter.call();
        if self.weighs {
            call = call.importance(item.importance.into());
        }
        Ok(call.check_and_insert(item.key.to_le_bytes())? == Checked::Present)
    }

    /// Processes a stream from its beginning.
    pub fn take_all(&self, stream: &[Item], score: &mut Score) -> Done {
        score.take_all(stream, |item| Ok(self.take(item)?))
    }

    /// Returns the share of cells that are zero.
    pub fn zeros(&self) -> Result<f64> {
        Ok(1.0 - self.filter.stat()?.fill)
    }

    /// Returns the share of keys, never inserted, that are found; `round` chooses the keys.
    pub fn false_positives(&self, round: u64, probes: u64) -> Result<f64> {
        let first = (1 << 63) + round * probes;
        let keys: Vec<_> = (first..first + probes).map(u64::to_le_bytes).collect();
        let found = self.filter.contains_all(&keys)?;
        Ok(found.iter().filter(|&&found| found).count() as f64 / probes as f64)
    }
}

/// The results for the items of one importance.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// The number of items that had not occurred before.
    pub first: u64,
    /// Of these, the number found: false positives.
    pub false_positives: u64,
    /// The number of items that had occurred before.
    pub repeated: u64,
    /// Of these, the number not found.
    pub false_negatives: u64,
}

/// The results for all items, by importance.
pub struct Score([Counts; HIGHEST as usize + 1]);

impl Score {
    /// Creates the score of no items.
    pub fn new() -> Self {
        Self([Counts::default(); HIGHEST as usize + 1])
    }

    /// Returns the importances that occurred, with their results.
    pub fn by_importance(&self) -> impl Iterator<Item = (u32, &Counts)> {
        (0..).zip(&self.0).filter(|(_, counts)| counts.first > 0)
    }

    /// Processes a stream from its beginning; `take` looks up an item, inserts it, and returns
    /// whether it was found.
    pub fn take_all(&mut self, stream: &[Item], mut take: impl FnMut(Item) -> Done<bool>) -> Done {
        let mut seen = HashSet::new();
        for &item in stream {
            let found = take(item)?;
            let counts = &mut self.0[item.importance as usize];
            if seen.insert(item.key) {
                counts.first += 1;
                counts.false_positives += u64::from(found);
            } else {
                counts.repeated += 1;
                counts.false_negatives += u64::from(!found);
            }
        }
        Ok(())
    }

    fn share(
        &self,
        range: RangeInclusive<u32>,
        weight: fn(u32) -> f64,
        of: fn(&Counts) -> (u64, u64),
    ) -> f64 {
        let (mut wrong, mut all) = (0.0, 0.0);
        for (importance, counts) in self.by_importance().filter(|(at, _)| range.contains(at)) {
            let (part, whole) = of(counts);
            wrong += weight(importance) * part as f64;
            all += weight(importance) * whole as f64;
        }
        if all > 0.0 { 100.0 * wrong / all } else { 0.0 }
    }

    /// Returns the false positives among the first items of these importances, in per cent.
    pub fn false_positives(&self, range: RangeInclusive<u32>) -> f64 {
        self.share(range, |_| 1.0, |counts| (counts.false_positives, counts.first))
    }

    /// Returns the false negatives among the repeated ones, in per cent.
    pub fn false_negatives(&self, range: RangeInclusive<u32>) -> f64 {
        self.share(range, |_| 1.0, |counts| (counts.false_negatives, counts.repeated))
    }

    /// Returns FP, FN, wFP, wFN over all importances, in per cent; the weighted ones count each
    /// item by its importance.
    pub fn aggregates(&self) -> [f64; 4] {
        let all = 0..=HIGHEST;
        [
            self.false_positives(all.clone()),
            self.false_negatives(all.clone()),
            self.share(all.clone(), f64::from, |counts| (counts.false_positives, counts.first)),
            self.share(all, f64::from, |counts| (counts.false_negatives, counts.repeated)),
        ]
    }
}

/// The results of streams in all five filters.
pub struct Contest {
    scores: [Score; 5],
    /// The number of streams.
    pub streams: usize,
}

impl Contest {
    /// Runs streams, each through new filters whose seed derives from the stream's number.
    pub fn run(streams: &[Vec<Item>]) -> Done<Self> {
        let mut scores = Algorithm::ALL.map(|_| Score::new());
        for (number, stream) in (0..).zip(streams) {
            for (algorithm, score) in Algorithm::ALL.into_iter().zip(&mut scores) {
                algorithm.filter(seed() + number)?.take_all(stream, score)?;
            }
        }
        Ok(Self { scores, streams: streams.len() })
    }

    /// Returns the results in one filter.
    pub fn of(&self, algorithm: Algorithm) -> &Score {
        &self.scores[algorithm as usize]
    }
}
