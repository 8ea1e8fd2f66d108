//! Measures what a second thread brings, and what the background threads take.
//!
//! ```sh
//! cargo bench --bench scaling                        # 16 MiB: a minute
//! cargo bench --bench scaling -- --mib 1             # another size
//! ```
//!
//! Each round has three turns: one thread on one filter, two threads on one, and two threads on two
//! filters. The last is what the machine can do at most: the two threads share the processors, the
//! caches and the memory, but nothing of ebbtide's. All insert new keys, under the default
//! durability, with checkpoints. A time is that of a turn, divided by the inserts of all its
//! threads. Results are medians of the rounds, and the ratios are of turns of the same round.
//!
//! The processor time of the background threads is what the process used and the writer did not,
//! in the turns with one writer.

mod common;
#[path = "large/mod.rs"]
mod large;

use ebbtide::{Filter, Options};
use large::{argument, directory, head, key, median, row, spec, time};
use rustix::time::{ClockId, clock_gettime};
use std::thread;
use std::time::{Duration, Instant};

const KINDS: [&str; 2] = ["age-partitioned", "fingerprint"];
const TURN: Duration = Duration::from_millis(500);
const ROUNDS: usize = 21;
/// The number of inserts between two looks at the clock.
const BATCH: u64 = 1_000;

/// Returns the nanoseconds of processor time that this process or thread has used.
fn used(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// A turn of some writers.
struct Turn {
    /// Nanoseconds for each insert of all writers.
    nanos: f64,
    /// The processor time of the background threads, divided by that of the writers.
    background: f64,
}

/// Inserts new keys until the turn is over, and moves `next` to the first unused one. Returns the
/// processor time of the thread.
fn write(filter: &Filter, next: &mut u64) -> f64 {
    let begin = Instant::now();
    while begin.elapsed() < TURN {
        for number in *next..*next + BATCH {
            filter.insert(key(number)).expect("an insert");
        }
        *next += BATCH;
    }
    used(ClockId::ThreadCPUTime)
}

/// Has one writer for each of the filters, at once; each has its own next key.
fn turn(filters: &[&Filter], next: &mut [u64; 2]) -> Turn {
    let unused: u64 = next.iter().sum();
    let (begin, before) = (Instant::now(), used(ClockId::ProcessCPUTime));
    let writing: f64 = thread::scope(|scope| {
        let start = |(&filter, next)| scope.spawn(move || write(filter, next));
        let writers: Vec<_> = filters.iter().zip(&mut *next).map(start).collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).sum()
    });
    let elapsed = begin.elapsed().as_nanos() as f64;
    let inserts = next.iter().sum::<u64>() - unused;
    let all = used(ClockId::ProcessCPUTime) - before;
    Turn { nanos: elapsed / inserts as f64, background: (all - writing) / writing }
}

/// Creates a filter of which every generation is full; returns it with the length of its window.
fn filled(kind: &str, mib: u64, path: std::path::PathBuf) -> (Filter, u64) {
    let filter = Filter::create(path, spec(kind, mib), Options::new()).expect("a filter");
    let window = filter.parameters().get("window-items").and_then(|text| text.parse().ok());
    let window: u64 = window.expect("a window of items");
    for from in (0..window).step_by(BATCH as usize) {
        let keys: Vec<_> = (from..window.min(from + BATCH)).map(key).collect();
        filter.insert_all(&keys).expect("inserts");
    }
    (filter, window)
}

/// Measures filters of a kind and size, and prints a row.
fn measure(kind: &str, mib: u64) {
    let directory = directory();
    let (one, window) = filled(kind, mib, directory.path().join("one"));
    let (other, _) = filled(kind, mib, directory.path().join("other"));
    // Further apart than the inserts of a writer.
    let mut next = [window, 1 << 40];
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| [&[&one][..], &[&one, &one], &[&one, &other]].map(|on| turn(on, &mut next)))
        .collect();
    let of = |figure: fn(&[Turn; 3]) -> f64| median(rounds.iter().map(figure));
    row([
        format!("`{kind}`"),
        mib.to_string(),
        time(of(|[alone, ..]| alone.nanos)),
        time(of(|[_, together, _]| together.nanos)),
        time(of(|[.., apart]| apart.nanos)),
        format!("{:.2}", of(|[alone, together, _]| alone.nanos / together.nanos)),
        format!("{:.2}", of(|[_, together, apart]| apart.nanos / together.nanos)),
        format!("{:.0} %", of(|[alone, ..]| 100.0 * alone.background)),
    ]);
}

fn main() {
    head(&[
        "kind",
        "MiB",
        "one thread",
        "two on one filter",
        "two on two",
        "two / one, inserts a second",
        "one filter / two",
        "background / writer, processor time",
    ]);
    let mib = argument("mib", 16);
    KINDS.iter().for_each(|kind| measure(kind, mib));
}
