//! Several threads or processes at once. An iteration is one operation by each of them, so its time
//! does not depend on their number unless they hinder each other.

use crate::checkpoints;
use crate::processes::Crew;
use crate::subject::{Kind, Lazy, Mebibytes, Operation, Subject, lazily};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput};
use ebbtide::Durability;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const KIND: &str = "age-partitioned";
const SIZES: [Mebibytes; 2] = [Mebibytes(16), Mebibytes(256)];
const NUMBERS: [u64; 2] = [1, 2];
const WRITERS: [u64; 3] = [1, 8, 64];

/// Measures threads, processes, and operations during checkpoints, on the same filters.
pub fn all(criterion: &mut Criterion) {
    for size in SIZES {
        let subject = lazily(Kind::named(KIND), size, Durability::Never);
        for operation in Operation::ALL {
            threads(criterion, &subject, operation, size);
        }
        for operation in Operation::ALL {
            processes(criterion, &subject, operation, size);
        }
        if size == checkpoints::SIZE {
            checkpoints::all(criterion, &subject);
        }
    }
    durabilities(criterion);
}

fn threads(criterion: &mut Criterion, subject: &Lazy, operation: Operation, size: Mebibytes) {
    let mut group = group(criterion, format!("threads/{}/{size}", operation.name()));
    for number in NUMBERS {
        measure(&mut group, number, |each| by_threads(subject, operation, number, each));
    }
    group.finish();
}

fn processes(criterion: &mut Criterion, subject: &Lazy, operation: Operation, size: Mebibytes) {
    let mut group = group(criterion, format!("processes/{}/{size}", operation.name()));
    for number in NUMBERS {
        let mut crew = None;
        measure(&mut group, number, |each| {
            let crew = crew.get_or_insert_with(|| Crew::start(&subject.path(), number));
            crew.run(operation, subject, each)
        });
    }
    group.finish();
}

fn durabilities(criterion: &mut Criterion) {
    let levels = [
        ("never", Durability::Never),
        // Shorter than the default, so that each sample has its share of the syncs.
        ("interval", Durability::Interval(Duration::from_millis(20))),
        ("always", Durability::Always),
    ];
    for (name, level) in levels {
        let subject = lazily(Kind::named(KIND), SIZES[0], level);
        let mut group = group(criterion, format!("durability/{name}"));
        for writers in WRITERS {
            measure(&mut group, writers, |each| {
                by_threads(&subject, Operation::Insert, writers, each)
            });
        }
        group.finish();
    }
}

/// Samples of equal length: the cost of a start is then a small part of each.
fn group(criterion: &mut Criterion, name: String) -> BenchmarkGroup<'_, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    group
}

/// Times `number` of them; `run` receives the number of operations for each, and returns the
/// duration.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    number: u64,
    mut run: impl FnMut(u64) -> Duration,
) {
    group.throughput(Throughput::Elements(number));
    group.bench_function(BenchmarkId::from_parameter(number), |bencher| {
        bencher.iter_custom(&mut run);
    });
}

/// Returns the time from the start of the first thread to the end of the last.
fn by_threads(subject: &Subject, operation: Operation, threads: u64, each: u64) -> Duration {
    let (filter, barrier) = (&subject.filter, &Barrier::new(threads as usize));
    let times = thread::scope(|scope| {
        let work = |first: u64| {
            move || {
                barrier.wait();
                let start = Instant::now();
                operation.run(filter, first..first + each);
                (start, Instant::now())
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work(subject.take(each)))).collect();
        let ended = running.into_iter().map(|thread| thread.join().expect("an end"));
        ended.collect::<Vec<_>>()
    });
    let start = times.iter().map(|times| times.0).min().expect("a thread");
    let end = times.iter().map(|times| times.1).max().expect("a thread");
    end - start
}
