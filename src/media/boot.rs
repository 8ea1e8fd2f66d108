//! The boot id: identifies one boot of the kernel, unless another file is mounted over it.

use crate::media::BootIdSource;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel's file with it.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads the boot id.
pub(super) fn id() -> io::Result<u128> {
    parse(&fs::read_to_string(BOOT_ID)?).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the kernel's boot id is no UUID")
    })
}

/// Determines its source: a file mounted over it is on another device than the directory.
pub(super) fn source() -> BootIdSource {
    let device = |path: &Path| fs::metadata(path).map(|file| file.dev());
    let path = Path::new(BOOT_ID);
    match (device(path), path.parent().map(device)) {
        (Err(_), _) => BootIdSource::Missing,
        (Ok(of), Some(Ok(all))) if of != all => BootIdSource::MountedOver,
        _ => BootIdSource::Kernel,
    }
}

fn parse(text: &str) -> Option<u128> {
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_are_uuids() {
        assert_eq!(parse("00000000-0000-0000-0000-0000000000ff\n"), Some(255));
        assert_eq!(parse("00000000-0000-0000-0000-0000000000f"), None);
        assert_eq!(parse("0000000g-0000-0000-0000-000000000000"), None);
    }
}
