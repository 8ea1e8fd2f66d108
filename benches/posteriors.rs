//! The cost of a posterior compared with the plain answer, for each kind that infers, in filters
//! that fit the processor's caches and in larger ones: `cargo bench --bench posteriors`. The rounds
//! of all take turns, so that noise of the machine affects all equally.

#[path = "papers/common/table.rs"]
mod table;

use ebbtide::inference::Stream;
use ebbtide::{
    AgePartitioned, Any, BlockTiming, Bloom, Durability, Filter, Options, Penalty, Spec,
    TimeLimited, Timestamp, Timing, Within,
};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};
use table::Table;

type Done<T = ()> = Result<T, Box<dyn Error>>;

const MEBIBYTES: [u64; 3] = [1, 16, 64];
const KEYS: usize = 100_000;
const ROUNDS: usize = 15;
/// The number of keys per second of a time-limited filter.
const RATE: u64 = 100_000;
const PENALTY: Penalty = Penalty { false_positive: 2.0, false_negative: 1.0 };

/// A kind, and the approximate bits per key of its window.
const KINDS: [(&str, f64); 5] = [
    ("bloom", 14.4),
    ("timing", 330.0),
    ("block-timing", 66.0),
    ("age-partitioned", 26.5),
    ("time-limited", 36.0),
];

fn main() -> Done {
    // Cargo runs benches as tests too, with another argument; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let head =
        ["kind", "MiB", "keys", "contains", "posterior", "half-window", "decision", "ages", "over"];
    let mut table = Table::new(
        "Nanoseconds a key, medians of rounds; *over* is the posterior less 1.5 times the plain \
         answer",
        &head,
    );
    for (kind, bits) in KINDS {
        for mebibytes in MEBIBYTES {
            let window = ((mebibytes << 23) as f64 / bits) as u64;
            let subject = Subject::new(kind, window)?;
            for (which, keys) in [("present", subject.present()), ("absent", absent())] {
                let [contains, posterior, part, decision, ages] = subject.times(&keys)?;
                let whole = |time: f64| format!("{time:.0}");
                table.row([
                    kind.to_owned(),
                    mebibytes.to_string(),
                    which.to_owned(),
                    whole(contains),
                    whole(posterior),
                    whole(part),
                    whole(decision),
                    whole(ages),
                    whole(posterior - 1.5 * contains),
                ]);
            }
        }
    }
    println!("{table}");
    Ok(())
}

/// A filter whose window is full.
struct Subject {
    filter: Filter<Any>,
    stream: Stream,
    window: u64,
    inserts: u64,
    half: Within,
    _directory: tempfile::TempDir,
}

/// Returns a key, a function of the number.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

fn absent() -> Vec<[u8; 16]> {
    (0..KEYS as u64).map(|number| key(1 << 50 | number)).collect()
}

fn spec(kind: &str, window: u64) -> Any {
    fn any(spec: &impl Spec) -> Any {
        Any::new(spec.name(), spec.parameters().clone())
    }
    match kind {
        "bloom" => any(&Bloom::capacity(window)),
        "timing" => any(&Timing::last(window)),
        "block-timing" => any(&BlockTiming::last(window)),
        "age-partitioned" => any(&AgePartitioned::last(window)),
        _ => any(&TimeLimited::window(span(window)).rate(RATE as f64)),
    }
}

/// Returns the time in which this many keys arrive.
fn span(keys: u64) -> Duration {
    Duration::from_micros(keys * 1_000_000 / RATE)
}

impl Subject {
    fn new(kind: &str, window: u64) -> Done<Self> {
        let directory = tempfile::tempdir()?;
        let options = Options::new().durability(Durability::Never);
        let filter = Filter::create(directory.path().join("filter"), spec(kind, window), options)?;
        let inserts = if kind == "bloom" { window } else { window + window / 2 };
        for number in 0..inserts {
            let time = Timestamp::from_unix_micros(span(number).as_micros() as u64);
            filter.call().time(time).insert(key(number))?;
        }
        let stream = Stream::uniform(4 * window)?.rate(RATE as f64);
        let half = match kind {
            "time-limited" => Within::Time(span(window / 2)),
            _ => Within::Items(window / 2),
        };
        Ok(Self { filter, stream, window, inserts, half, _directory: directory })
    }

    /// Returns keys of the window, of all ages.
    fn present(&self) -> Vec<[u8; 16]> {
        let age = |number: u64| number.wrapping_mul(0x2545_f491_4f6c_dd1d) % (self.window * 9 / 10);
        (0..KEYS as u64).map(|number| key(self.inserts - 1 - age(number))).collect()
    }

    /// Returns the times of the plain answer, the posterior, that of half the window, a decision,
    /// and the ages.
    fn times(&self, keys: &[[u8; 16]]) -> Done<[f64; 5]> {
        let (filter, stream) = (&self.filter, &self.stream);
        let part = filter.call().window(self.half);
        let mut rounds = [const { Vec::new() }; 5];
        for _ in 0..ROUNDS {
            rounds[0].push(time(keys, |key| Ok(f64::from(u8::from(filter.contains(key)?))))?);
            rounds[1].push(time(keys, |key| filter.posterior(key, stream))?);
            rounds[2].push(time(keys, |key| part.posterior(key, stream))?);
            let decide =
                |key: &_| Ok(f64::from(u8::from(filter.contains_with(key, stream, PENALTY)?)));
            rounds[3].push(time(keys, decide)?);
            rounds[4].push(time(keys, |key| Ok(filter.age_posterior(key, stream)?.expected()))?);
        }
        Ok(rounds.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        }))
    }
}

/// Returns nanoseconds per key.
fn time(keys: &[[u8; 16]], ask: impl Fn(&[u8; 16]) -> ebbtide::Result<f64>) -> Done<f64> {
    let start = Instant::now();
    let mut sum = 0.0;
    for key in keys {
        sum += ask(key)?;
    }
    black_box(sum);
    Ok(start.elapsed().as_nanos() as f64 / keys.len() as f64)
}
