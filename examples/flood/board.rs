//! The table of a minute: rates by the filter, their error bounds, and exact rates.
//!
//! A rate is a weighted mean of requests a minute: the present minute counts one half, the one
//! before a quarter, and so on. It is never too low by more than `ε`. It is too high by rounding,
//! by less than 0.4 %, and by other sources that share all counters of a source. Markov's
//! inequality bounds the probability of the latter; the bound printed here fails for at most one
//! source in a million.

use super::requests::{MINUTE, Request};
use super::{LAMBDA, Result};
use ebbtide::Parameters;
use ebbtide::kinds::decaying::HalfLife;
use std::collections::HashMap;

/// The probability with which collisions may exceed the bound.
const CHANCE: f64 = 1e-6;

/// The number of sources in a table.
const ROWS: usize = 10;

/// The error bounds of a filter.
pub struct Bounds {
    half_life: HalfLife,
    cells: f64,
    k: f64,
}

impl Bounds {
    /// Returns the bounds of a filter with these parameters.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let number = |name| parameters.required::<f64>(name, "a number");
        Ok(Self {
            half_life: HalfLife::new(LAMBDA, number("fraction-bits")? as u32)?,
            cells: number("cells")?,
            k: number("k")?,
        })
    }

    /// Returns the bounds of the exact rate, where the decayed counts of all sources add up to
    /// `total`.
    fn of(&self, rate: Rate, total: f64) -> (f64, f64) {
        let count = rate.count / (1.0 - LAMBDA);
        // The excess at which `theory::chance_of_excess` is the probability.
        let shared = self.k * total / (self.cells * CHANCE.powf(1.0 / self.k));
        let highest = count + self.half_life.epsilon();
        let least = (count - shared - self.half_life.most_above(highest)).max(0.0);
        let most = if rate.at_least { f64::INFINITY } else { highest };
        (least * (1.0 - LAMBDA), most * (1.0 - LAMBDA))
    }
}

/// An estimate of the reader, in requests a minute.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub count: f64,
    /// Whether a counter is full.
    pub at_least: bool,
}

impl Rate {
    /// Reads an answer of the reader.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix('+');
        let count = number.unwrap_or(text).parse().ok()?;
        Some(Self { count, at_least: number.is_some() })
    }
}

/// The exact decayed counts of all sources.
#[derive(Default)]
pub struct Exact {
    counts: HashMap<String, f64>,
    total: f64,
    minute: u64,
}

impl Exact {
    /// Adds the requests of a minute.
    pub fn add(&mut self, minute: &[Request]) {
        let now = minute[0].time / MINUTE;
        let left = LAMBDA.powf((now - self.minute) as f64);
        self.minute = now;
        self.total = self.total * left + minute.len() as f64;
        self.counts.retain(|_, count| {
            *count *= left;
            *count > 1e-6
        });
        for request in minute {
            *self.counts.entry(request.source.clone()).or_default() += 1.0;
        }
    }

    fn rate(&self, source: &str) -> f64 {
        self.counts.get(source).copied().unwrap_or(0.0) * (1.0 - LAMBDA)
    }
}

/// What is printed below all tables.
#[derive(Debug, Default)]
pub struct Summary {
    minutes: u64,
    rows: u64,
    outside: u64,
    missed: u64,
    excess: f64,
}

impl Summary {
    /// Prints the ten highest of the watched sources of a minute, and compares them with the exact
    /// rates.
    pub fn print(
        &mut self,
        minute: &[Request],
        exact: &Exact,
        bounds: &Bounds,
        watched: &[(String, Rate)],
    ) {
        let time = minute[0].time / MINUTE;
        let (hour, number) = (time / 60 % 24, time % 60);
        println!("{hour:02}:{number:02}, {} requests", minute.len());
        println!(
            "  {:<16} {:>9} {:>9} {:>9} {:>9}",
            "source", "a minute", "at least", "at most", "exact"
        );
        let mut rows: Vec<&(String, Rate)> = watched.iter().collect();
        rows.sort_by(|one, other| {
            other.1.count.total_cmp(&one.1.count).then_with(|| one.0.cmp(&other.0))
        });
        rows.truncate(ROWS);
        let mut lowest = f64::INFINITY;
        for (source, rate) in &rows {
            let (least, most) = bounds.of(*rate, exact.total);
            let truth = exact.rate(source);
            lowest = lowest.min(truth);
            self.outside += u64::from(truth < least || truth > most);
            self.excess = self.excess.max(rate.count - truth);
            let count = rate.count;
            println!("  {source:<16} {count:>9.2} {least:>9.2} {most:>9.2} {truth:>9.2}");
        }
        self.minutes += 1;
        self.rows += rows.len() as u64;
        let limit = if rows.len() < ROWS { super::WATCHED + 1.0 } else { lowest };
        let is_listed = |source: &String| rows.iter().any(|row| row.0 == *source);
        let above = exact.counts.keys().filter(|source| exact.rate(source) > limit);
        self.missed += above.filter(|source| !is_listed(source)).count() as u64;
    }

    /// Prints the summary.
    pub fn end(&self) {
        let Self { minutes, rows, outside, missed, excess } = self;
        println!("{minutes} minutes, {rows} rows");
        println!("{outside} exact rates outside their bounds; the highest excess is {excess:.2}");
        println!("{missed} sources missed that are above the last one of their table");
    }
}
