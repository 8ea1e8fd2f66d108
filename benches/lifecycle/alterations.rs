//! Altering a filter beside writers: how long it takes, how long they are stopped, and how many
//! inserts they make before, meanwhile and afterwards.

use super::large::{directory, key, spec};
use super::measuring::middle;
use ebbtide::history::Unlogged;
use ebbtide::{Any, Durability, Filter, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For how long writers are observed before and afterwards.
const AROUND: Duration = Duration::from_secs(3);
/// How long writers run instead of an alteration, for comparison.
const INSTEAD: Duration = Duration::from_secs(20);

/// What one alteration took.
struct Round {
    seconds: f64,
    stopped: f64,
    /// Inserts a second.
    before: f64,
    meanwhile: f64,
    after: f64,
    /// In seconds.
    longest: f64,
}

/// Inserts keys of its own until the end. Returns the longest insert.
fn write(filter: &Filter, first: u64, count: &AtomicU64, is_over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    for number in first.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        filter.insert(key(number)).expect("an insert");
        longest = longest.max(begun.elapsed());
        count.fetch_add(1, Ordering::Relaxed);
    }
    longest
}

fn round(mib: u64, records: u64, writers: u64, alters: bool) -> Round {
    let home = directory();
    let dir = home.path().join("filter");
    let options =
        || Options::new().durability(Durability::Never).keep_log("10GiB".parse().expect("a size"));
    let filter = Filter::create(&dir, spec("fingerprint", mib), options()).expect("a filter");
    let mut next = 0;
    while next < records {
        let keys: Vec<_> = (next..records.min(next + 1000)).map(key).collect();
        next += filter.insert_all(&keys).expect("inserts") as u64;
    }
    // The writers have a handle of their own.
    let others: Filter<Any> = Filter::open(&dir, options()).expect("a filter");
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let write = |writer| {
            let (others, count, is_over) = (&others, &count, &is_over);
            scope.spawn(move || write(others, (writer + 1) << 40, count, is_over))
        };
        let writing: Vec<_> = (0..writers).map(write).collect();
        let rate = |work: &mut dyn FnMut()| {
            let (begun, before) = (Instant::now(), count.load(Ordering::Relaxed));
            work();
            let done = count.load(Ordering::Relaxed) - before;
            done as f64 / begun.elapsed().as_secs_f64()
        };
        let before = rate(&mut || std::thread::sleep(AROUND));
        let begun = Instant::now();
        let mut stopped = Duration::ZERO;
        let meanwhile = rate(&mut || {
            if !alters {
                return std::thread::sleep(INSTEAD);
            }
            stopped = filter
                .alter(spec("fingerprint", mib), Unlogged::Refuse)
                .expect("it is kept")
                .stopped;
        });
        let seconds = begun.elapsed().as_secs_f64();
        // The first checkpoint of the new log.
        filter.checkpoint().expect("a checkpoint");
        let after = rate(&mut || std::thread::sleep(AROUND));
        is_over.store(true, Ordering::Relaxed);
        let longest = writing.into_iter().map(|writer| writer.join().expect("no panic")).max();
        let longest = longest.unwrap_or_default().as_secs_f64();
        Round { seconds, stopped: stopped.as_secs_f64(), before, meanwhile, after, longest }
    })
}

/// Measures filters of this size, whose log has this many records.
pub fn run(rounds: usize, mib: u64, records: u64) {
    for writers in [1, 2] {
        let made: Vec<_> = (0..rounds).map(|_| round(mib, records, writers, true)).collect();
        let plain: Vec<_> = (0..rounds).map(|_| round(mib, records, writers, false)).collect();
        let million = |rate: f64| rate / 1e6;
        println!(
            "{mib} MiB, {records} records, {writers} writers: {:.2} s, stopped {:.0} ms, longest \
             insert {:.0} ms; inserts {:.2} M/s, meanwhile {:.2} ×, afterwards {:.3} × (without an \
             alteration {:.2} ×, {:.3} ×)",
            middle(&made, |round| round.seconds),
            middle(&made, |round| round.stopped) * 1e3,
            middle(&made, |round| round.longest) * 1e3,
            million(middle(&made, |round| round.before)),
            middle(&made, |round| round.meanwhile / round.before),
            middle(&made, |round| round.after / round.before),
            middle(&plain, |round| round.meanwhile / round.before),
            middle(&plain, |round| round.after / round.before),
        );
    }
}
