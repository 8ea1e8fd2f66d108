//! Measures what shipping costs a writer, and how long a fetch takes.
//!
//! `cargo run --release --example measure -- writer`, `-- paced [SECONDS [PAIRS [EACH]]]`,
//! `-- follow [SECONDS [DURABILITY]]`, `-- fetch [MiB [ROUNDS]]`. The store is a directory.

use ebbtide::{Any, Bloom, Durability, Filter, Fingerprint, Options, Reader};
use ebbtide_ship::{Follower, Pace, ShipOptions, Store, Worker, fetch};
use std::collections::VecDeque;
use std::error::Error;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Inserts for a while; returns inserts a second.
fn insert(filter: &Filter<Fingerprint>, key: &mut u64, time: Duration) -> Result<f64> {
    let (begun, first) = (Instant::now(), *key);
    while begun.elapsed() < time {
        for _ in 0..1000 {
            filter.insert(key.to_le_bytes())?;
            *key += 1;
        }
    }
    Ok((*key - first) as f64 / begun.elapsed().as_secs_f64())
}

/// Pairs of the same time without and with a shipper beside the writer.
fn writer(parent: &Path) -> Result<()> {
    let dir = parent.join("seen");
    let spec = Fingerprint::window(Duration::from_secs(3600)).rate(2000.0).fpr(0.001);
    let filter = Filter::create(&dir, spec, Options::new())?;
    let url = parent.join("store").display().to_string();
    let (mut key, mut ratios) = (0, Vec::new());
    insert(&filter, &mut key, Duration::from_secs(3))?;
    for pair in 0..8 {
        let alone = insert(&filter, &mut key, Duration::from_secs(4))?;
        let every = Duration::from_secs(1);
        let options = ShipOptions { take_over: true, ..ShipOptions::default() };
        let worker = Worker::start(&dir, Store::open(&url)?, options, every)?;
        std::thread::sleep(Duration::from_secs(2));
        let beside = insert(&filter, &mut key, Duration::from_secs(4))?;
        let status = worker.stop()?;
        ratios.push(beside / alone);
        println!(
            "pair {pair}: {alone:.0}/s alone, {beside:.0}/s beside a shipper: {:.3}; {} MB shipped",
            beside / alone,
            status.bytes / 1_000_000
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.3}", f64::midpoint(ratios[3], ratios[4]));
    Ok(())
}

/// As [`insert`], 100,000 a second; returns the mean time of an insert in nanoseconds.
fn insert_paced(filter: &Filter<Fingerprint>, key: &mut u64, time: Duration) -> Result<f64> {
    let (begun, mut spent, mut bursts) = (Instant::now(), Duration::ZERO, 0);
    while begun.elapsed() < time {
        let burst = Instant::now();
        for _ in 0..1000 {
            filter.insert(key.to_le_bytes())?;
            *key += 1;
        }
        spent += burst.elapsed();
        bursts += 1;
        std::thread::sleep(Duration::from_millis(10).saturating_sub(burst.elapsed()));
    }
    Ok(spent.as_nanos() as f64 / f64::from(bursts * 1000))
}

/// A shipper in another process; ends when it is dropped.
struct Beside(std::process::Child);

impl Beside {
    fn start(dir: &Path, url: &str, every: &str) -> Result<Self> {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        let child = command.arg("ship").arg(dir).args([url, every]).spawn()?;
        std::thread::sleep(Duration::from_secs(2));
        Ok(Self(child))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ship(dir: &str, url: &str, every: &str) -> Result<()> {
    let options = ShipOptions { take_over: true, ..ShipOptions::default() };
    let every = Duration::from_secs_f64(every.parse()?);
    let worker = Worker::start(dir, Store::open(url)?, options, every)?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if worker.status().is_stopped {
            return Err(worker.status().failure.unwrap_or_default().into());
        }
    }
}

/// As [`writer`], at 100,000 inserts a second.
fn paced(parent: &Path, every: &str, pairs: usize, each: Duration) -> Result<()> {
    let dir = parent.join("seen");
    let spec = Fingerprint::window(Duration::from_secs(3600)).rate(2000.0).fpr(0.001);
    let filter = Filter::create(&dir, spec, Options::new())?;
    let url = parent.join("store").display().to_string();
    let (mut key, mut ratios) = (0, Vec::new());
    insert_paced(&filter, &mut key, Duration::from_secs(3))?;
    for pair in 0..pairs {
        // In turns, so that what grows does not count for one of them.
        let mut took = [0.0; 2];
        for beside in [pair % 2, 1 - pair % 2] {
            let child = (beside == 1).then(|| Beside::start(&dir, &url, every)).transpose()?;
            took[beside] = insert_paced(&filter, &mut key, each)?;
            drop(child);
        }
        let [alone, beside] = took;
        ratios.push(beside / alone);
        println!("pair {pair}: {alone:.0} ns alone, {beside:.0} ns beside a shipper");
    }
    ratios.sort_by(f64::total_cmp);
    let at = |part: usize| ratios[(ratios.len() - 1) * part / 4];
    println!("median {:.3}, quartiles {:.3} and {:.3}", at(2), at(1), at(3));
    Ok(())
}

/// How far a follower is behind a writer of 100,000 inserts a second: the age of the oldest insert
/// that it does not have, every 20 ms.
fn follow(parent: &Path, every: &str, durable: &str) -> Result<()> {
    let dir = parent.join("seen");
    let spec = Fingerprint::window(Duration::from_secs(3600)).rate(2000.0).fpr(0.001);
    let durability = Durability::Interval(Duration::from_secs_f64(durable.parse()?));
    let filter = Filter::create(&dir, spec, Options::new().durability(durability))?;
    let url = parent.join("store").display().to_string();
    let mut key = 0;
    insert_paced(&filter, &mut key, Duration::from_secs(1))?;
    let _shipper = Beside::start(&dir, &url, every)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let max_lag = Duration::from_secs(60);
    let mut follower = runtime.block_on(Follower::begin(Store::open(&url)?, max_lag))?;
    let answers = follower.answers();
    let mut pace = Pace::new(Duration::from_secs_f64(every.parse()?));
    let is_over = AtomicBool::new(false);
    let (mut behind, mut synced, mut late) = (Vec::new(), Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let (runtime, is_over, answers) = (&runtime, &is_over, &answers);
        let following = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let links = runtime.block_on(follower.look()).map_err(|error| error.to_string())?;
                std::thread::sleep(pace.pause(begun, Instant::now(), links > 0));
            }
            Ok::<_, String>(())
        });
        let (begun, mut written) = (Instant::now(), VecDeque::new());
        let mut undurable = VecDeque::new();
        while begun.elapsed() < Duration::from_secs(60) {
            let step = Instant::now();
            insert_paced(&filter, &mut key, Duration::from_millis(20))?;
            // More than what was asked for is what the machine did meanwhile.
            late.push(step.elapsed().saturating_sub(Duration::from_millis(20)).as_millis());
            let stat = filter.stat()?;
            written.push_back((Instant::now(), stat.lsn));
            undurable.push_back((Instant::now(), stat.lsn));
            behind.push(oldest(&mut written, answers.next_lsn()));
            synced.push(oldest(&mut undurable, stat.durable_lsn));
        }
        is_over.store(true, Ordering::Relaxed);
        following.join().expect("no panic").map_err(Box::from)
    })
    .map_err(|error: Box<dyn Error>| error)?;
    println!("{key} inserts, every {every} s, durable every {durable} s, in milliseconds");
    print_percentiles("behind the writer", behind);
    print_percentiles("not durable yet", synced);
    print_percentiles("a step of the writer late", late);
    Ok(())
}

/// Forgets what is reached, and returns the age of what is not in milliseconds.
fn oldest(written: &mut VecDeque<(Instant, u64)>, reached: u64) -> u128 {
    while written.front().is_some_and(|&(_, lsn)| lsn <= reached) {
        written.pop_front();
    }
    written.front().map_or(0, |(time, _)| time.elapsed().as_millis())
}

fn print_percentiles(name: &str, mut values: Vec<u128>) {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    let [half, most, rarely, always] = [50, 90, 99, 100].map(at);
    println!("{name}: median {half}, 90 % {most}, 99 % {rarely}, at most {always}");
}

/// Copies a file in parts of 8 MiB, and syncs it.
fn copy_in_parts(from: &Path, to: &Path) -> Result<()> {
    let (mut from, mut to) = (std::fs::File::open(from)?, std::fs::File::create(to)?);
    let mut part = vec![0; 8 << 20];
    loop {
        let read = from.read(&mut part)?;
        if read == 0 {
            return Ok(to.sync_all()?);
        }
        to.write_all(&part[..read])?;
    }
}

/// A copy of the snapshot's file, then fetch and opening.
fn fetched(parent: &Path, mebibytes: u64, rounds: usize) -> Result<()> {
    let dir = parent.join("seen");
    // 14.4 bits a key.
    let keys = mebibytes * (8 << 20) / 15;
    let filter = Filter::create(&dir, Bloom::capacity(keys).fpr(0.001), Options::new())?;
    for key in 0..keys / 16 {
        filter.insert(key.to_le_bytes())?;
    }
    filter.checkpoint()?;
    let url = parent.join("store").display().to_string();
    Worker::start(&dir, Store::open(&url)?, ShipOptions::default(), Duration::from_secs(10))?
        .finish()?;
    let snapshot = std::fs::read_dir(parent.join("store/snapshot"))?.next().ok_or("none")??.path();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for round in 0..rounds {
        let copied = parent.join("copied");
        let begun = Instant::now();
        copy_in_parts(&snapshot, &copied)?;
        let copy = begun.elapsed();
        let new = parent.join("new");
        let begun = Instant::now();
        let fetched = runtime.block_on(fetch(&Store::open(&url)?, &new, None))?;
        let arrived = begun.elapsed();
        let opened = Filter::<Any>::open(&new, Options::new())?;
        let ready = begun.elapsed();
        println!(
            "round {round}: {} MB; copy and sync {copy:.2?}, fetch {arrived:.2?}, open {:.2?}",
            fetched.bytes / 1_000_000,
            ready - arrived
        );
        drop(opened);
        std::fs::remove_dir_all(&new)?;
        // Only now: a fetch into the memory and the blocks that the copy has just freed is faster.
        std::fs::remove_file(&copied)?;
    }
    drop(Reader::<Any>::open(&dir, Options::new())?);
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |place: usize, default| arguments.get(place).map_or(default, String::as_str);
    let parent = tempfile::tempdir()?;
    let parent = parent.path();
    match at(0, "") {
        "writer" => writer(parent),
        "paced" => {
            let each = Duration::from_secs(at(3, "5").parse()?);
            paced(parent, at(1, "10"), at(2, "8").parse()?, each)
        }
        "follow" => follow(parent, at(1, "1"), at(2, "1")),
        "ship" => ship(&arguments[1], &arguments[2], &arguments[3]),
        "fetch" => fetched(parent, at(1, "1024").parse()?, at(2, "3").parse()?),
        _ => Err("expected writer, paced, follow or fetch".into()),
    }
}
