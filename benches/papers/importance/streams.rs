//! The streams of the Importance-aware experiments: requests to a content delivery network in place
//! of the paper's YouTube trace, and the three synthetic sets.
//!
//! A stream's items have the importance of their element, a whole number from 0 or 1 to
//! [`HIGHEST`]. An element has the same importance at each occurrence.

use ebbtide_testkit::random::{Random, mix};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// The highest importance.
pub const HIGHEST: u32 = 50;

/// The importances that the paper calls high.
pub const HIGH: RangeInclusive<u32> = 36..=HIGHEST;

/// An item of a stream.
#[derive(Clone, Copy)]
pub struct Item {
    /// The element.
    pub key: u64,
    /// The element's importance.
    pub importance: u32,
}

/// A request of the trace.
pub struct Request {
    /// The requested object.
    pub key: u64,
    /// Its size at the first request: 1,079 of 36,815 objects change theirs, but importance must
    /// be a function of the element.
    pub size: u64,
}

/// Reads the trace, which is stored beside the project; returns `None` if it is missing.
///
/// # Errors
///
/// If it cannot be read, or a line is not `tick key size`.
pub fn trace() -> Result<Option<Vec<Request>>, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/cdn_requests.txt");
    if !path.exists() {
        return Ok(None);
    }
    let mut sizes = HashMap::new();
    let mut requests = Vec::new();
    for (number, line) in fs::read_to_string(&path)?.lines().enumerate() {
        let fields: Vec<_> = line.split_whitespace().map(str::parse::<u64>).collect();
        let [Ok(_), Ok(key), Ok(size)] = fields[..] else {
            return Err(format!("{}:{}: not `tick key size`", path.display(), number + 1).into());
        };
        requests.push(Request { key, size: *sizes.entry(key).or_insert(size) });
    }
    Ok(Some(requests))
}

/// Returns the requests up to the one that completes this number of elements; all, if there are
/// fewer.
pub fn with_elements(requests: &[Request], elements: usize) -> &[Request] {
    let mut seen = HashSet::new();
    let full = requests.iter().position(|request| {
        seen.insert(request.key);
        seen.len() == elements
    });
    full.map_or(requests, |last| &requests[..=last])
}

/// Returns the elements from the smallest to the largest, with their sizes.
fn by_size(requests: &[Request]) -> Vec<(u64, u64)> {
    let sizes: HashMap<_, _> = requests.iter().map(|request| (request.key, request.size)).collect();
    let mut elements: Vec<_> = sizes.into_iter().map(|(key, size)| (size, key)).collect();
    elements.sort_unstable();
    elements.into_iter().map(|(size, key)| (key, size)).collect()
}

fn items(requests: &[Request], importance: impl Fn(&Request) -> u32) -> Vec<Item> {
    let item = |request: &Request| Item { key: request.key, importance: importance(request) };
    requests.iter().map(item).collect()
}

/// Returns the paper's first set: importance in proportion to size, 0 to 49 up to the 90th
/// percentile of the elements, 50 above.
pub fn proportional(requests: &[Request]) -> Vec<Item> {
    let elements = by_size(requests);
    let percentile = elements[elements.len() * 9 / 10].1.max(1);
    items(requests, |request| {
        if request.size > percentile { HIGHEST } else { (request.size * 49 / percentile) as u32 }
    })
}

/// Returns the paper's second set: importance by the rank of the size, so that all values from 0 to
/// 49 have equally many elements.
pub fn percentiles(requests: &[Request]) -> Vec<Item> {
    let elements = by_size(requests);
    let ranks: HashMap<_, _> =
        elements.iter().enumerate().map(|(rank, &(key, _))| (key, rank)).collect();
    items(requests, |request| (ranks[&request.key] * HIGHEST as usize / ranks.len()) as u32)
}

/// Shuffles a stream; all orders are equally likely.
pub fn shuffle(stream: &mut [Item], random: &mut Random) {
    for last in (1..stream.len()).rev() {
        stream.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// How often an element of a synthetic set occurs.
#[derive(Clone, Copy)]
pub enum Occurs {
    /// As often as any other: the paper's first set.
    Alike,
    /// In proportion to its importance: its second.
    WithImportance,
    /// In inverse proportion to it: its third.
    AgainstImportance,
}

impl Occurs {
    fn weight(self, importance: u32) -> f64 {
        match self {
            Self::Alike => 1.0,
            Self::WithImportance => f64::from(importance),
            Self::AgainstImportance => 1.0 / f64::from(importance),
        }
    }
}

/// A synthetic set: elements, equally many of each importance from 1 to 50, that are drawn
/// independently.
pub struct Synthetic {
    occurs: Occurs,
    /// The number of elements of each importance.
    each: u64,
    /// The number of items of a stream.
    pub length: usize,
}

impl Synthetic {
    /// Creates the set whose streams contain this many distinct elements, while a share `repeating`
    /// of their items has occurred before: both on average. This determines the length of a stream
    /// and the number of elements from which it is drawn.
    pub fn new(occurs: Occurs, elements: usize, repeating: f64) -> Self {
        let length = (elements as f64 / (1.0 - repeating)).round();
        let weights: f64 = (1..=HIGHEST).map(|importance| occurs.weight(importance)).sum();
        let distinct = |each: f64| -> f64 {
            let drawn = |importance| {
                let times = length * occurs.weight(importance) / (weights * each);
                each * -(-times).exp_m1()
            };
            (1..=HIGHEST).map(drawn).sum()
        };
        let (mut low, mut high) = (1, u64::from(u32::MAX));
        while high - low > 1 {
            let middle = low.midpoint(high);
            if distinct(middle as f64) < elements as f64 { low = middle } else { high = middle }
        }
        Self { occurs, each: high, length: length as usize }
    }

    /// Draws a stream.
    pub fn stream(&self, random: &mut Random) -> Vec<Item> {
        let mut sums = vec![0.0];
        for importance in 1..=HIGHEST {
            sums.push(sums[sums.len() - 1] + self.occurs.weight(importance));
        }
        let all = sums[sums.len() - 1];
        let item = |_| {
            let part = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * all;
            // The sums begin with 0, so the first above `part` is that of importance 1 or more.
            let importance = sums.partition_point(|&sum| sum <= part).min(sums.len() - 1) as u32;
            let number = u64::from(importance) * self.each + random.below(self.each);
            Item { key: mix(number), importance }
        };
        (0..self.length).map(item).collect()
    }
}
