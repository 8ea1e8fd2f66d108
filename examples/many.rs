//! Measures many small filters in one process, one for each tenant: the resources that each of them
//! needs.
//!
//! `cargo run --release --example many 2000` opens 2000 filters of 1,000 keys, inserts 1,000 keys
//! into each, leaves them idle until their memory no longer falls, and prints threads, descriptors,
//! mappings, memory, and bytes of disk, open and closed, with a table of the files of one.
//! `many 2000 /mnt/disk` creates them there; `many 2000 /mnt/disk closed` closes each before it
//! creates the next. Raise the limit of open files first if it is low.

use ebbtide::{AgePartitioned, Filter, Options};
use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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

fn mappings() -> Result<u64, Box<dyn Error>> {
    Ok(fs::read_to_string("/proc/self/maps")?.lines().count() as u64)
}

/// Bytes of disk of a directory and all that it holds, itself included.
fn occupied(path: &Path) -> Result<u64, Box<dyn Error>> {
    let found = fs::symlink_metadata(path)?;
    let mut bytes = found.blocks() * 512;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += occupied(&entry?.path())?;
        }
    }
    Ok(bytes)
}

/// Prints what each file of a filter takes.
fn print_files(directory: &Path) -> Result<(), Box<dyn Error>> {
    println!("    {:<32} {:>8} KiB", "the directory", fs::metadata(directory)?.blocks() / 2);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kib = occupied(&entry.path())? as f64 / 1024.0;
        println!("    {:<32} {kib:>8} KiB", entry.file_name().to_string_lossy());
    }
    Ok(())
}

fn fill(dir: &Path) -> Result<Filter<AgePartitioned>, Box<dyn Error>> {
    Ok(Filter::create(dir, AgePartitioned::last(1_000), Options::new())?)
}

/// Waits until the memory of the process no longer falls: background threads release the pages of
/// logs that nobody writes. Returns it in KiB.
fn memory_at_rest() -> Result<u64, Box<dyn Error>> {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    while since.elapsed() < Duration::from_secs(4) {
        let memory = figure("VmRSS:")?;
        if memory < least {
            (least, since) = (memory, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(least)
}

/// One after the other: created, filled, closed.
fn closed(count: u64, home: &Path) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    for tenant in 0..count {
        let filter = fill(&home.join(format!("{tenant:06}")))?;
        for key in 0..1_000_u64 {
            filter.insert(key.to_le_bytes())?;
        }
        filter.close()?;
    }
    let each = begun.elapsed() / count.max(1) as u32;
    println!("{count} filters, each created, filled and closed in {each:.1?}");
    println!("disk each        {:>8.1} KiB", occupied(home)? as f64 / 1024.0 / count as f64);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(500), |count| count.parse())?;
    let home = match std::env::args().nth(2) {
        Some(place) => tempfile::tempdir_in(place)?,
        None => tempfile::tempdir()?,
    };
    if std::env::args().nth(3).is_some_and(|how| how == "closed") {
        return closed(count, home.path());
    }
    let (memory, files, maps) = (figure("VmRSS:")?, descriptors()?, mappings()?);
    let begun = Instant::now();
    let mut filters = Vec::new();
    for tenant in 0..count {
        filters.push(fill(&home.path().join(format!("{tenant:06}")))?);
    }
    let created = begun.elapsed();
    let begun = Instant::now();
    for key in 0..1_000_u64 {
        for filter in &filters {
            filter.insert(key.to_le_bytes())?;
        }
    }
    let inserted = begun.elapsed();
    let begun = Instant::now();
    let idle = memory_at_rest()?;
    println!("idle after {:.0?}", begun.elapsed());
    let each = |bytes: u64| bytes as f64 / 1024.0 / count as f64;
    println!("{count} filters, created in {created:.1?}, 1,000 keys into each in {inserted:.1?}");
    println!("threads          {:>8}", figure("Threads:")?);
    println!("descriptors each {:>8.2}", (descriptors()? - files) as f64 / count as f64);
    println!("mappings each    {:>8.2}", (mappings()? - maps) as f64 / count as f64);
    println!("memory each      {:>8.1} KiB", (idle - memory) as f64 / count as f64);
    println!("disk each, open  {:>8.1} KiB", each(occupied(home.path())?));
    let one = home.path().join(format!("{:06}", 0));
    print_files(&one)?;
    let begun = Instant::now();
    for filter in filters {
        filter.close()?;
    }
    println!("closed in {:.1?}", begun.elapsed());
    println!("disk each, closed {:>7.1} KiB", each(occupied(home.path())?));
    print_files(&one)
}
