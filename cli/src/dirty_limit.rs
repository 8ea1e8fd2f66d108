//! Whether a live image on a disk is larger than what the system lets changed pages wait.

use ebbtide::{BankPlace, Stat};
use indicatif::BinaryBytes;
use std::fs;

/// Returns a remark if the system writes the image to its disk without pause: it is then slower
/// than memory by far, and wears the disk.
pub fn remark(stat: &Stat) -> Option<String> {
    let is_on_disk = matches!(stat.image, BankPlace::BesideLog | BankPlace::DiskDirectory);
    let limit = is_on_disk.then(system_limit).flatten()?;
    (stat.memory_bytes > limit).then(|| {
        format!(
            "the image lies on a disk ({}), and is larger than the {} of changed pages that the \
             system lets wait: it writes them without pause; leave the image in memory, or raise \
             vm.dirty_background_ratio (see \"Large filters\" in docs/operating.md)",
            stat.image,
            BinaryBytes(limit),
        )
    })
}

/// Returns the bytes of changed pages from which on the system writes them without pause; `None`
/// if it does not say. A container's own, lower limit is not known.
fn system_limit() -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{name}")).ok();
    let [bytes, ratio] = ["bytes", "ratio"]
        .map(|unit| read(&format!("sys/vm/dirty_background_{unit}"))?.trim().parse::<u64>().ok());
    limit(bytes?, ratio?, &read("meminfo")?)
}

/// `bytes` and `ratio`: the two forms of the limit, of which the other is 0; the second is in
/// percent of the memory that is available.
fn limit(bytes: u64, ratio: u64, meminfo: &str) -> Option<u64> {
    if bytes > 0 {
        return Some(bytes);
    }
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = available.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024) / 100 * ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_in_bytes_or_a_part_of_the_available_memory() {
        let meminfo = "MemTotal:  9000 kB\nMemAvailable:    1000 kB\nSwapTotal: 0 kB\n";
        assert_eq!(limit(0, 10, meminfo), Some(102_400));
        assert_eq!(limit(4096, 0, meminfo), Some(4096));
        assert_eq!(limit(0, 10, "MemTotal: 9000 kB\n"), None);
        assert!(system_limit().is_some(), "Linux says it");
    }
}
