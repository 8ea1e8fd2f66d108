//! Measures what shipping costs a writer, and how long a fetch takes.
//!
//! `cargo run --release --example measure -- writer|fetch [MiB]`. The store is a directory.

use ebbtide::{Any, Bloom, Filter, Fingerprint, Options, Reader};
use ebbtide_ship::{ShipOptions, Store, Worker, fetch};
use std::error::Error;
use std::path::Path;
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
        Some("fetch") => {
            let mebibytes = arguments.get(1).map_or(Ok(1024), |text| text.parse())?;
            fetched(parent.path(), mebibytes)
        }
        _ => Err("expected writer or fetch".into()),
    }
}
