//! Copies of a filter's files.

use std::path::Path;

/// Copies the filter's durable files and damages the newest snapshot, if there is an older one.
pub fn copy_with_newest_damaged(dir: &Path) -> std::io::Result<Option<tempfile::TempDir>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    let mut snapshots: Vec<_> = names.iter().filter(|name| name.starts_with("snap-")).collect();
    snapshots.sort();
    let newest = snapshots.pop().cloned();
    if snapshots.is_empty() {
        return Ok(None);
    }
    let copy = tempfile::tempdir()?;
    let lasting =
        |name: &&String| name.starts_with("snap-") || name.starts_with("wal-") || *name == "meta";
    for name in names.iter().filter(lasting) {
        let mut bytes = std::fs::read(dir.join(name))?;
        if let Some(last) = bytes.last_mut().filter(|_| Some(name) == newest.as_ref()) {
            *last ^= 1;
        }
        std::fs::write(copy.path().join(name), bytes)?;
    }
    Ok(Some(copy))
}
