//! Operations while another thread writes one checkpoint after the other.

use crate::subject::{Lazy, Mebibytes, Operation};
use criterion::{Criterion, Throughput};
use std::cell::LazyCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The size of the filter.
pub const SIZE: Mebibytes = Mebibytes(256);
/// Long enough for several checkpoints.
const TIME: Duration = Duration::from_secs(4);

/// Sets a stop flag when dropped, also after a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn all(criterion: &mut Criterion, subject: &Lazy) {
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        let checkpoints = LazyCell::new(|| {
            let (filter, stop, written) = (&subject.filter, &stop, &written);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    filter.checkpoint().expect("a checkpoint");
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        for operation in Operation::ALL {
            let name = format!("during-checkpoints/{}", operation.name());
            let mut group = criterion.benchmark_group(name);
            group.measurement_time(TIME).throughput(Throughput::Elements(1));
            group.bench_function(SIZE.to_string(), |bencher| {
                LazyCell::force(&checkpoints);
                bencher.iter_custom(|count| {
                    let first = subject.take(count);
                    let start = Instant::now();
                    operation.run(&subject.filter, first..first + count);
                    start.elapsed()
                });
            });
            group.finish();
        }
    });
    let written = written.into_inner();
    if written > 0 {
        eprintln!("{written} checkpoints were written meanwhile");
    }
}
