//! Measures what shipping costs a writer, and how long a fetch takes.
//!
//! `cargo run --release --example measure -- writer|paced [SECONDS]|follow [SECONDS]|fetch [MiB]`.
//! The store is a directory.

use ebbtide::{Any, Bloom, Filter, Fingerprint, Options, Reader};
use ebbtide_ship::{Follower, ShipOptions, Store, Worker, fetch};
use std::collections::VecDeque;
use std::error::Error;
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
    let every = Duration::from_secs(every.parse()?);
    let worker = Worker::start(dir, Store::open(url)?, options, every)?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if worker.status().is_stopped {
            return Err(worker.status().failure.unwrap_or_default().into());
        }
    }
}

/// As [`writer`], at 100,000 inserts a second.
fn paced(parent: &Path, every: &str) -> Result<()> {
    let dir = parent.join("seen");
    let spec = Fingerprint::window(Duration::from_secs(3600)).rate(2000.0).fpr(0.001);
    let filter = Filter::create(&dir, spec, Options::new())?;
    let url = parent.join("store").display().to_string();
    let (mut key, mut ratios) = (0, Vec::new());
    insert_paced(&filter, &mut key, Duration::from_secs(3))?;
    for pair in 0..7 {
        let alone = insert_paced(&filter, &mut key, Duration::from_secs(5))?;
        let child = Beside::start(&dir, &url, every)?;
        let beside = insert_paced(&filter, &mut key, Duration::from_secs(5))?;
        drop(child);
        ratios.push(beside / alone);
        println!("pair {pair}: {alone:.0} ns alone, {beside:.0} ns beside a shipper");
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.3}", ratios[3]);
    Ok(())
}

/// How far a follower is behind a writer of 100,000 inserts a second.
fn follow(parent: &Path, every: &str) -> Result<()> {
    let dir = parent.join("seen");
    let spec = Fingerprint::window(Duration::from_secs(3600)).rate(2000.0).fpr(0.001);
    let filter = Filter::create(&dir, spec, Options::new())?;
    let url = parent.join("store").display().to_string();
    let mut key = 0;
    insert_paced(&filter, &mut key, Duration::from_secs(1))?;
    let _shipper = Beside::start(&dir, &url, every)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let max_lag = Duration::from_secs(60);
    let mut follower = runtime.block_on(Follower::begin(Store::open(&url)?, max_lag))?;
    let answers = follower.answers();
    let is_over = AtomicBool::new(false);
    let mut behind = Vec::new();
    std::thread::scope(|scope| {
        let (runtime, is_over, answers) = (&runtime, &is_over, &answers);
        let following = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                runtime.block_on(follower.look()).map_err(|error| error.to_string())?;
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok::<_, String>(())
        });
        let (begun, mut written) = (Instant::now(), VecDeque::new());
        while begun.elapsed() < Duration::from_secs(30) {
            insert_paced(&filter, &mut key, Duration::from_millis(100))?;
            written.push_back((Instant::now(), filter.stat()?.lsn));
            while written.front().is_some_and(|&(_, lsn)| lsn <= answers.next_lsn()) {
                written.pop_front();
            }
            behind.push(written.front().map_or(0, |(time, _)| time.elapsed().as_millis()));
        }
        is_over.store(true, Ordering::Relaxed);
        following.join().expect("no panic").map_err(Box::from)
    })
    .map_err(|error: Box<dyn Error>| error)?;
    behind.sort_unstable();
    let (middle, most) = (behind[behind.len() / 2], behind[behind.len() - 1]);
    println!("{key} inserts; behind: {middle} ms in the middle, {most} ms at most");
    Ok(())
}

/// A copy of the snapshot's file, then fetch and opening.
fn fetched(parent: &Path, mebibytes: u64) -> Result<()> {
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
        .stop()?;
    let snapshot = std::fs::read_dir(parent.join("store/snapshot"))?.next().ok_or("none")??.path();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for round in 0..3 {
        let copied = parent.join("copied");
        let begun = Instant::now();
        std::fs::copy(&snapshot, &copied)?;
        std::fs::File::open(&copied)?.sync_all()?;
        let copy = begun.elapsed();
        std::fs::remove_file(&copied)?;
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
    }
    drop(Reader::<Any>::open(&dir, Options::new())?);
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parent = tempfile::tempdir()?;
    match arguments.first().map(String::as_str) {
        Some("writer") => writer(parent.path()),
        Some("paced") => paced(parent.path(), arguments.get(1).map_or("10", String::as_str)),
        Some("follow") => follow(parent.path(), arguments.get(1).map_or("1", String::as_str)),
        Some("ship") => ship(&arguments[1], &arguments[2], &arguments[3]),
        Some("fetch") => {
            let mebibytes = arguments.get(1).map_or(Ok(1024), |text| text.parse())?;
            fetched(parent.path(), mebibytes)
        }
        _ => Err("expected writer, paced, follow or fetch".into()),
    }
}
