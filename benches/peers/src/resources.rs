//! System measurements: memory of a process, space on the disk, the time of an fdatasync;
//! and medians of such values.

use crate::peers::Result;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

/// Returns the bytes of memory that a process occupies: private, shared and mapped from files. (The
/// kernel's cache of files accessed by calls is not included.)
pub fn resident(process: u32) -> Result<u64> {
    // Exact, unlike the number in `status`, which threads update in batches.
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kibibytes: u64 = kibibytes.ok_or("no Rss in smaps_rollup")?.parse()?;
    Ok(kibibytes << 10)
}

/// Returns the bytes of disk that the files below a directory occupy.
pub fn allocated(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes +=
            if metadata.is_dir() { allocated(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

/// Writes back all pending data of a file system, so that no peer pays for earlier writes.
pub fn settle(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// Returns whether files in this directory are in memory only, where syncs have no meaning.
pub fn in_memory(dir: &Path) -> Result<bool> {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    Ok(rustix::fs::statfs(dir)?.f_type == TMPFS)
}

/// Returns the nanoseconds of writing a page with `fdatasync` on this file system: the median over
/// consecutive pages of a file with allocated blocks, as a log is written.
pub fn fdatasync(dir: &Path) -> Result<f64> {
    const PAGES: usize = 256;
    const PAGE: [u8; 4096] = [0x5a; 4096];
    let path = dir.join("fdatasync");
    let file = File::create(&path)?;
    file.write_all_at(&PAGE.repeat(PAGES), 0)?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(PAGES);
    for page in 0..PAGES {
        let begun = Instant::now();
        file.write_all_at(&PAGE, (page * PAGE.len()) as u64)?;
        file.sync_data()?;
        times.push(begun.elapsed().as_nanos() as f64);
    }
    fs::remove_file(path)?;
    Ok(median(times))
}

/// Returns the median of the values, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }
}
