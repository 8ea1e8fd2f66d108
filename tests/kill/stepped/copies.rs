//! Recovers copies of a filter's files while no process changes them.

use super::scenes::Scene;
use ebbtide::{Filter, Result};
use ebbtide_testkit::copies::copy_files;
use std::fs;
use std::io::ErrorKind;
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
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => copy_files(dir, &place).expect("a copy of unchanging files"),
        }
        Ok(Self { filter: scene.open(&place)?, place })
    }

    /// Returns the directory of the copy.
    pub fn place(&self) -> &Path {
        &self.place
    }
}
