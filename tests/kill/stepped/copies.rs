//! Recovers copies of a filter's files while no process changes them.

use super::scenes::Scene;
use ebbtide::{Filter, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A copy of a filter, open in one handle only.
#[derive(Debug)]
pub struct Copied {
    /// The filter, recovered from the copied files.
    pub filter: Filter,
    place: PathBuf,
}

impl Copied {
    /// Copies a filter's files, and recovers the copy.
    pub fn of(scene: &Scene, dir: &Path) -> Result<Self> {
        let place = dir.with_extension("copy");
        copy(dir, &place).expect("a copy of unchanging files");
        Ok(Self { filter: scene.open(&place)?, place })
    }

    /// Returns the directory of the copy.
    pub fn place(&self) -> &Path {
        &self.place
    }
}

/// Copies all files, replacing those of an earlier copy.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir(to)?,
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
