//! Requests for pages: a synthetic stream as skewed as the paper's, and real ones where they are there.

use super::random::Random;
use super::zipf::Zipf;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The seed of streams and of hashing.
pub const SEED: u64 = 20_261_120;
/// Pages of the synthetic stream.
pub const PAGES: usize = 10_000;
/// Its Zipf exponent: with that a tenth of the pages gets 90 % of the visits, as in the paper's Fig. 1.
const EXPONENT: f64 = 1.2;
/// Epochs of the synthetic stream, and requests of each.
pub const EPOCHS: u64 = 50;
pub const PER_EPOCH: u64 = 10_000;

/// A stream of pages, by number.
pub struct Stream {
    pub name: &'static str,
    pub requests: Vec<u32>,
}

impl Stream {
    /// The synthetic one.
    pub fn synthetic() -> Self {
        let (zipf, mut random) = (Zipf::new(PAGES, EXPONENT), Random::new(SEED));
        let request = |_| zipf.next(&mut random) as u32;
        Self {
            name: "synthetic, Zipf 1.2",
            requests: (0..EPOCHS * PER_EPOCH).map(request).collect(),
        }
    }

    /// The column of a file of real requests; `None`, with a notice, if it is not there.
    pub fn real(name: &'static str, file: &str, column: usize) -> Option<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(file);
        let Ok(text) = fs::read_to_string(&path) else {
            println!("{file} is not here: its rows are left out");
            return None;
        };
        let mut numbers = HashMap::new();
        let requests = text.lines().filter_map(|line| line.split_whitespace().nth(column));
        let requests = requests.map(|key| {
            let next = numbers.len() as u32;
            *numbers.entry(key).or_insert(next)
        });
        Some(Self { name, requests: requests.collect() })
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.requests.iter().max().map_or(0, |&page| page as usize + 1)
    }
}

/// Visits of a page, by how often it was visited: from the most on.
pub struct Profile(Vec<f64>);

impl Profile {
    /// Of these counts; pages that were never visited do not count.
    pub fn new(counts: impl Iterator<Item = f64>) -> Self {
        let mut counts: Vec<f64> = counts.filter(|&count| count > 0.0).collect();
        counts.sort_by(|a, b| b.total_cmp(a));
        Self(counts)
    }

    /// The counts, largest first.
    pub fn counts(&self) -> &[f64] {
        &self.0
    }

    /// The percentage of visits that go to the tenth of pages that are visited most, and to the 85 % visited least.
    pub fn shares(&self) -> (f64, f64) {
        let pages = self.0.len();
        let sum = |counts: &[f64]| counts.iter().sum::<f64>() * 100.0 / self.0.iter().sum::<f64>();
        (sum(&self.0[..pages / 10]), sum(&self.0[pages - pages * 85 / 100..]))
    }
}
