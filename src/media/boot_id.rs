//! The boot id: identifies one boot of the kernel, unless another file is mounted over it.
//!
//! `image::previous_image` compares it with that of an earlier image; `recovery::known_extent` says
//! what that means for the log, and `engine::time::time_over_reboots` for the filter's time.

use crate::media::BootIdSource;
use crate::platform::system;
use std::io;

/// Reads the boot id.
pub(super) fn id() -> io::Result<u128> {
    parse(&system::boot_id()?).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the kernel's boot id is no UUID")
    })
}

/// Determines its source.
#[cfg(target_os = "linux")]
pub(super) fn source() -> BootIdSource {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    let device = |path: &Path| std::fs::metadata(path).map(|file| file.dev());
    let path = Path::new(system::BOOT_ID);
    // A file mounted over it is on another device than the directory.
    match (device(path), path.parent().map(device)) {
        (Err(_), _) => BootIdSource::Missing,
        (Ok(of), Some(Ok(all))) if of != all => BootIdSource::MountedOver,
        _ => BootIdSource::Kernel,
    }
}

/// Determines its source: there is one.
#[cfg(target_os = "macos")]
pub(super) fn source() -> BootIdSource {
    BootIdSource::Kernel
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
