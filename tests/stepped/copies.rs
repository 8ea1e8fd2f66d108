//! What recovery makes of a filter's files while nobody changes them.

use crate::scenes::Scene;
use ebbtide::{Filter, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A copy of a filter, opened alone.
#[derive(Debug)]
pub struct Copied {
    /// Recovered from the files as they were.
    pub filter: Filter,
    place: PathBuf,
}

impl Copied {
    /// Copies what a filter has on the disk, and recovers it.
    pub fn of(scene: &Scene, dir: &Path) -> Result<Self> {
        let place = dir.with_extension("copy");
        copy(dir, &place).expect("a copy of files that nobody changes");
        Ok(Self { filter: scene.open(&place)?, place })
    }

    /// Where it lies.
    pub fn place(&self) -> &Path {
        &self.place
    }
}

/// Copies all files, over those of an earlier copy.
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
