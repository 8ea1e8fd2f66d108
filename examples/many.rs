//! Measures many small filters in one process, one for each tenant: the resources that each of them
//! needs.
//!
//! `cargo run --release --example many 2000` opens 2000 filters of 1,000 keys, inserts 1,000 keys
//! into each, leaves them idle, and prints threads, descriptors, memory, and bytes of disk. Raise
//! the limit of open files first if it is low.

use ebbtide::{AgePartitioned, Filter, Options};
use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

/// Returns a number from `/proc/self/status`, in the unit that the system reports.
fn figure(name: &str) -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()).unwrap_or("0");
    Ok(number.parse()?)
}

fn descriptors() -> Result<u64, Box<dyn Error>> {
    Ok(fs::read_dir("/proc/self/fd")?.count() as u64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(500), |count| count.parse())?;
    let home = tempfile::tempdir()?;
    let (memory, files) = (figure("VmRSS:")?, descriptors()?);
    let begun = Instant::now();
    let mut filters = Vec::new();
    for tenant in 0..count {
        let dir = home.path().join(format!("{tenant:06}"));
        filters.push(Filter::create(dir, AgePartitioned::last(1_000), Options::new())?);
    }
    let created = begun.elapsed();
    let begun = Instant::now();
    for key in 0..1_000_u64 {
        for filter in &filters {
            filter.insert(key.to_le_bytes())?;
        }
    }
    let inserted = begun.elapsed();
    std::thread::sleep(Duration::from_secs(4));
    let disk: u64 =
        filters.iter().map(|filter| filter.stat().map_or(0, |stat| stat.disk_bytes)).sum();
    println!("{count} filters, created in {created:.1?}, 1,000 keys into each in {inserted:.1?}");
    println!("threads          {:>8}", figure("Threads:")?);
    println!("descriptors each {:>8.2}", (descriptors()? - files) as f64 / count as f64);
    println!("memory each      {:>8.1} KiB", (figure("VmRSS:")? - memory) as f64 / count as f64);
    println!("disk each        {:>8.1} KiB", disk as f64 / 1024.0 / count as f64);
    let begun = Instant::now();
    for filter in filters {
        filter.close()?;
    }
    println!("closed in {:.1?}", begun.elapsed());
    Ok(())
}
