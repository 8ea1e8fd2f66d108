//! Requests for pages: a synthetic stream as skewed as the paper's, and real ones if they are
//! present.

use super::seed::seed;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::zipf::Zipf;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The number of pages of the synthetic stream.
pub const PAGES: usize = 10_000;
/// Its Zipf exponent: a tenth of the pages gets 90 % of the visits, as in the paper's Fig. 1.
const EXPONENT: f64 = 1.2;
/// The number of epochs of the synthetic stream, and of requests in each.
pub const EPOCHS: u64 = 50;
pub const PER_EPOCH: u64 = 10_000;

/// A stream of pages, by number.
pub struct Stream {
    pub name: &'static str,
    pub requests: Vec<u32>,
}

impl Stream {
    /// Creates the synthetic stream.
    pub fn synthetic() -> Self {
        let (zipf, mut random) = (Zipf::new(PAGES, EXPONENT), Random::new(seed()));
        let request = |_| zipf.next(&mut random) as u32;
        Self {
            name: "synthetic, Zipf 1.2",
            requests: (0..EPOCHS * PER_EPOCH).map(request).collect(),
        }
    }

    /// Reads a column of a file of real requests; returns `None`, with a notice, if it is missing.
    pub fn real(name: &'static str, file: &str, column: usize) -> Option<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(file);
        let Ok(text) = fs::read_to_string(&path) else {
            println!("{file} is missing: its rows are omitted");
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

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.requests.iter().max().map_or(0, |&page| page as usize + 1)
    }
}

/// Visits per page, in descending order.
pub struct Profile(Vec<f64>);

impl Profile {
    /// Creates the profile of these counts; pages that were never visited do not count.
    pub fn new(counts: impl Iterator<Item = f64>) -> Self {
        let mut counts: Vec<f64> = counts.filter(|&count| count > 0.0).collect();
        counts.sort_by(|a, b| b.total_cmp(a));
        Self(counts)
    }

    /// Returns the counts, largest first.
    pub fn counts(&self) -> &[f64] {
        &self.0
    }

    /// Returns the percentage of visits that go to the most visited tenth of the pages, and to the
    /// least visited 85 %.
    pub fn shares(&self) -> (f64, f64) {
        let pages = self.0.len();
        let sum = |counts: &[f64]| counts.iter().sum::<f64>() * 100.0 / self.0.iter().sum::<f64>();
        (sum(&self.0[..pages / 10]), sum(&self.0[pages - pages * 85 / 100..]))
    }
}
