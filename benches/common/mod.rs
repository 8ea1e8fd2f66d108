//! Shared parts of the speed benches: the directory of their files, and their keys.

use std::path::PathBuf;

/// Creates a directory that is removed at the end, on the disk of the build, or in
/// `EBBTIDE_BENCH_DIR`.
pub fn directory() -> tempfile::TempDir {
    let parent = std::env::var_os("EBBTIDE_BENCH_DIR");
    let parent = parent.map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let made = tempfile::Builder::new().prefix("ebbtide-").tempdir_in(&parent);
    made.unwrap_or_else(|error| panic!("{}: {error}", parent.display()))
}

/// Returns a 16-byte key, a function of the number.
pub fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}
