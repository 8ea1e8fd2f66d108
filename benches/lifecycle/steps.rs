//! A shift and an epoch: the insert that causes one, and those after it, in which the blocks catch
//! up.

use super::large::{self, head, key, row, time};
use super::measuring::middle;
use ebbtide::{Any, Durability, Filter, Options, Timestamp};
use hdrhistogram::Histogram;
use std::time::Instant;

/// The number of inserts in an epoch: enough to touch about half of the blocks of 1 GiB fifty
/// times.
const EPOCH_INSERTS: u64 = 3_000_000;
/// The number of inserts measured separately, just before a step and just after it.
const NEAR: u64 = 100_000;
const EPOCH_MICROS: u64 = 4_000_000;
const START_MICROS: u64 = 1_700_000_000_000_000;

/// A round: times of single inserts, in nanoseconds.
struct Round {
    causing: f64,
    before: Histogram<u64>,
    after: Histogram<u64>,
    /// All inserts from one step to the next.
    all: Histogram<u64>,
}

/// A filter that steps by the number of inserts, or by stream time proportional to that number.
struct Stepping {
    filter: Filter<Any>,
    /// The number of inserts from one step to the next.
    length: u64,
    uses_time: bool,
    next: u64,
    _directory: tempfile::TempDir,
}

impl Stepping {
    fn new(kind: &str, mib: u64) -> Self {
        let directory = large::directory();
        let options = Options::new().durability(Durability::Never).checkpoint_bytes(u64::MAX);
        let filter =
            Filter::create(directory.path().join("filter"), large::spec(kind, mib), options);
        let filter = filter.expect("a filter");
        let generation = filter.parameters().get("generation").and_then(|text| text.parse().ok());
        let length = generation.unwrap_or(EPOCH_INSERTS);
        let uses_time = generation.is_none();
        Self { filter, length, uses_time, next: 0, _directory: directory }
    }

    /// Inserts the next key; returns its nanoseconds.
    fn insert(&mut self) -> u64 {
        let (number, call) = (self.next, self.filter.call());
        self.next += 1;
        let call = if self.uses_time {
            let micros = START_MICROS + number / self.length * EPOCH_MICROS;
            call.time(Timestamp::from_unix_micros(micros))
        } else {
            call
        };
        let begin = Instant::now();
        call.insert(key(number)).expect("an insert");
        begin.elapsed().as_nanos() as u64
    }

    fn insert_until(&mut self, next: u64) -> Histogram<u64> {
        let mut times = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds");
        while self.next < next {
            times.saturating_record(self.insert());
        }
        times
    }

    fn step(&self) -> Option<u64> {
        self.filter.stat().expect("figures").step
    }

    /// Measures from just before a step to just before the next.
    fn round(&mut self) -> Round {
        let due = self.next.next_multiple_of(self.length);
        self.insert_until(due - NEAR);
        // Not just before the step, because it loads other data into the caches.
        let step = self.step();
        let before = self.insert_until(due);
        let causing = self.insert() as f64;
        let after = self.insert_until(due + NEAR);
        assert_eq!(self.step(), step.map(|step| step + 1), "that insert makes a step");
        let mut all = self.insert_until(due + self.length - NEAR);
        all.add(&before).and_then(|()| all.add(&after)).expect("the same bounds");
        Round { causing, before, after, all }
    }
}

fn quantile(quantile: f64) -> impl Fn(&Histogram<u64>) -> f64 {
    move |times| times.value_at_quantile(quantile) as f64
}

/// Prints the table.
pub fn run(rounds: usize, mib: u64) {
    println!(
        "Steps at {mib} MiB, {rounds} rounds; {NEAR} inserts just before and just after, and all \
         between two steps\n"
    );
    head(&[
        "",
        "step",
        "p50 before",
        "p50 after",
        "p99.9 before",
        "p99.9 after",
        "p99.9 of all",
        "after, above that",
    ]);
    for (kind, name) in [("age-partitioned", "shift"), ("decaying", "epoch")] {
        let mut filter = Stepping::new(kind, mib);
        filter.insert_until(filter.length - NEAR);
        let rounds: Vec<_> = (0..rounds).map(|_| filter.round()).collect();
        let p = |of: fn(&Round) -> &Histogram<u64>, at: f64| {
            time(middle(&rounds, |round| quantile(at)(of(round))))
        };
        let above = middle(&rounds, |round| {
            let limit = round.all.value_at_quantile(0.999);
            round.after.count_between(limit + 1, u64::MAX) as f64 / round.after.len() as f64
        });
        row([
            format!("{name} ({kind})"),
            time(middle(&rounds, |round| round.causing)),
            p(|round| &round.before, 0.5),
            p(|round| &round.after, 0.5),
            p(|round| &round.before, 0.999),
            p(|round| &round.after, 0.999),
            p(|round| &round.all, 0.999),
            format!("{:.3} %", above * 100.0),
        ]);
    }
}
