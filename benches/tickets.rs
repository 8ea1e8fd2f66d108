//! How many operations share a sync if tasks await their durability, and how many are done.
//!
//! `cargo bench --bench tickets` runs 2 to 1,024 tasks on two threads, each of which does one
//! operation after the other, on media in memory whose syncs take 0.02 to 1 ms and a wakeup more.
//! `EBBTIDE_SECONDS` (2) sets the time of each run.

use ebbtide::media::Memory;
use ebbtide::{Durability, Filter, Fingerprint, Options};
use ebbtide_testkit::failing::Failing;
use futures::executor::block_on;
use futures::future::join_all;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const THREADS: u64 = 2;
const TASKS: [u64; 5] = [2, 16, 64, 256, 1024];
const SYNCS: [Duration; 4] = [
    Duration::from_micros(20),
    Duration::from_micros(100),
    Duration::from_micros(300),
    Duration::from_millis(1),
];

/// Does one operation after the other until the time is up; returns the times from each operation
/// to its durability.
async fn work(filter: &Filter<Fingerprint>, task: u64, time: Duration) -> Vec<Duration> {
    let (start, mut times) = (Instant::now(), Vec::new());
    for number in 0_u64.. {
        let begin = Instant::now();
        let key = (task << 32 | number).to_le_bytes();
        let ticket = filter.issue(|call| call.check_and_insert(key)).expect("an insert");
        ticket.await.expect("durable");
        times.push(begin.elapsed());
        if start.elapsed() >= time {
            break;
        }
    }
    times
}

fn measure(sync: Duration, tasks: u64, time: Duration) {
    let media = Arc::new(Failing::new(Memory::new()));
    let options = Options::new().durability(Durability::Never);
    let filter = Filter::create_on(media.clone(), Fingerprint::last(10_000_000), options);
    let filter = &filter.expect("a filter");
    media.slow_syncs(sync);
    let (before, start) = (media.syncs(), Instant::now());
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let tasks = (thread..tasks).step_by(THREADS as usize);
                scope.spawn(move || block_on(join_all(tasks.map(|task| work(filter, task, time)))))
            })
            .collect();
        let done = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
        done.flatten().collect()
    });
    let (seconds, syncs) = (start.elapsed().as_secs_f64(), media.syncs() - before);
    times.sort_unstable();
    let (count, each) = (times.len(), times.len() as f64 / syncs as f64);
    println!(
        "{sync:>6.0?} {tasks:>5} tasks {:>9.0}/s {each:>6.1} a sync, {:.2} of the tasks; \
         p50 {:.0?}, p99 {:.0?}",
        count as f64 / seconds,
        each / tasks as f64,
        times[count / 2],
        times[count * 99 / 100]
    );
}

fn main() {
    let seconds =
        std::env::var("EBBTIDE_SECONDS").map_or(2.0, |text| text.parse().expect("a time"));
    for sync in SYNCS {
        for tasks in TASKS {
            measure(sync, tasks, Duration::from_secs_f64(seconds));
        }
    }
}
