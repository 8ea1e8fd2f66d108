//! Measures what a second thread brings, and what the background threads take.
//!
//! ```sh
//! cargo bench --bench scaling                 # two minutes
//! EBBTIDE_MIB=1,16,256 cargo bench --bench scaling
//! ```
//!
//! Each round has three turns: one thread on one filter, two threads on one, and two threads on two
//! filters. The last is what the machine can do at most: the two threads share the processors, the
//! caches and the memory, but nothing of ebbtide's. All insert new keys, under the default
//! durability, with checkpoints. Results are medians of the rounds, and the ratios are of turns of
//! the same round.
//!
//! The processor time of the background threads is what the process used and the writer did not,
//! in the turns with one writer.

mod common;

use common::{directory, key};
use ebbtide::{AgePartitioned, Filter, Fingerprint, Options, Spec};
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

const TURN: Duration = Duration::from_millis(500);
const ROUNDS: usize = 21;
/// The number of operations between two looks at the clock.
const BATCH: u64 = 1_000;
/// How far the keys of two writers are apart: more than one ever inserts.
const APART: u64 = 1 << 40;

/// Returns the processor time that this process or thread has used.
fn used(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The next new key of each writer.
struct Writers([u64; 2]);

/// What was seen in a turn.
struct Turn {
    /// Operations a second, of all writers.
    rate: f64,
    /// The processor time of the writers.
    writing: Duration,
    /// The processor time of the process.
    all: Duration,
}

/// Inserts new keys, from this one, until the turn is over.
fn write<K>(filter: &Filter<K>, from: u64) -> (Range<u64>, Duration) {
    let begin = Instant::now();
    let mut next = from;
    while begin.elapsed() < TURN {
        for number in next..next + BATCH {
            filter.insert(key(number)).expect("an insert");
        }
        next += BATCH;
    }
    (from..next, used(ClockId::ThreadCPUTime))
}

impl Writers {
    /// Has one writer for each of the filters, at once.
    fn turn<K>(&mut self, filters: &[&Filter<K>]) -> Turn {
        let (begin, before) = (Instant::now(), used(ClockId::ProcessCPUTime));
        let written: Vec<_> = thread::scope(|scope| {
            let start = |(filter, from)| scope.spawn(move || write(filter, from));
            let threads: Vec<_> = filters.iter().copied().zip(self.0).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("a writer")).collect()
        });
        let (elapsed, all) = (begin.elapsed(), used(ClockId::ProcessCPUTime) - before);
        let mut operations = 0;
        for ((keys, _), next) in written.iter().zip(&mut self.0) {
            operations += keys.end - keys.start;
            *next = keys.end;
        }
        let writing = written.iter().map(|(_, time)| *time).sum();
        Turn { rate: operations as f64 / elapsed.as_secs_f64(), writing, all }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures two filters of this specification, and prints a row.
fn measure<K: Spec + Clone>(name: &str, mib: u64, window: u64, spec: &K) {
    let directory = directory();
    let create = |name| {
        Filter::create(directory.path().join(name), spec.clone(), Options::new()).expect("a filter")
    };
    let (one, other) = (create("one"), create("other"));
    let mut writers = Writers([0, APART]);
    for number in 0..window {
        one.insert(key(number)).expect("an insert");
        other.insert(key(number)).expect("an insert");
    }
    writers.0[0] = window;
    let rounds: Vec<[Turn; 3]> = (0..ROUNDS)
        .map(|_| {
            [writers.turn(&[&one]), writers.turn(&[&one, &one]), writers.turn(&[&one, &other])]
        })
        .collect();
    let of = |figure: &dyn Fn(&[Turn; 3]) -> f64| median(rounds.iter().map(figure).collect());
    let millions = |turn: usize| of(&|round| round[turn].rate / 1e6);
    println!(
        "| `{name}` | {mib} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} % |",
        millions(0),
        millions(1),
        millions(2),
        of(&|round| round[1].rate / round[0].rate),
        of(&|round| round[1].rate / round[2].rate),
        of(&|round| {
            let [alone, ..] = round;
            let background = alone.all.saturating_sub(alone.writing);
            100.0 * background.as_secs_f64() / alone.writing.as_secs_f64()
        }),
    );
}

fn main() {
    let sizes = std::env::var("EBBTIDE_MIB").unwrap_or_else(|_| "1,16".to_owned());
    println!("Millions of inserts a second, and the background's part of one writer's time:");
    println!();
    println!(
        "| kind | MiB | one thread | two | two, two filters | two / one | of two filters \
         | background |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for mib in sizes.split(',') {
        let mib: u64 = mib.trim().parse().expect("EBBTIDE_MIB is a list of numbers");
        // The windows for which each takes this many bytes at FPR 0.001.
        let (columns, fingerprints) = (mib * 312_500, mib * 444_000);
        measure("age-partitioned", mib, columns, &AgePartitioned::last(columns).fpr(0.001));
        measure("fingerprint", mib, fingerprints, &Fingerprint::last(fingerprints).fpr(0.001));
    }
}
