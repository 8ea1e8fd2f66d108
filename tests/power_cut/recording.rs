//! A recording: the initial disk, the log of the writes to it, and the notes of the
//! acknowledgements.

use crate::block_log::BlockLog;
use crate::crew::{Part, Role};
use crate::cut::{Cut, replay};
use crate::image::Image;
use crate::notes::{self, Noted, STREAMS};
use crate::scenes::Scene;
use crate::shelter;
use ebbtide_testkit::random::Random;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A finished recording.
#[derive(Debug)]
pub struct Recording {
    /// The directory of its files.
    dir: PathBuf,
    /// The workload.
    pub scene: &'static Scene,
    /// The log of the disk.
    pub log: BlockLog,
    /// The notes.
    pub noted: Noted,
    base: Image,
    /// The disk after this many entries, all of them flushed.
    flushed: (usize, Image),
}

/// The options with which the file system is created and mounted. Without `auto_da_alloc` a file
/// that has replaced another by a rename may be empty after a power cut. With `data=writeback` the
/// blocks of a removed file may belong to another file before the removal is on disk.
const MADE: [&str; 2] = ["-b 1024", "-b 4096"];
const MOUNTED: [&str; 5] =
    ["rw", "noauto_da_alloc", "noauto_da_alloc,commit=1", "data=journal", "data=writeback"];

fn told(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

impl Recording {
    /// Returns the directory of its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Records a scene in an empty directory, on an empty disk or on one that was left with these
    /// acknowledgements.
    pub fn make(
        dir: &Path,
        scene: &'static Scene,
        seed: u64,
        mounted: Option<&str>,
        left: Option<(&Image, Option<[u64; STREAMS]>)>,
    ) -> Result<Self, String> {
        // Removes the files of an earlier recording.
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir).map_err(told(dir))?;
        notes::begin(dir, left.and_then(|left| left.1)).map_err(told(dir))?;
        if let Some((disk, _)) = left {
            disk.write(&dir.join("disk.img")).map_err(told(dir))?;
        }
        std::fs::write(dir.join("scene"), scene.name).map_err(told(dir))?;
        let mut random = Random::new(seed);
        let made = MADE[random.below(MADE.len() as u64) as usize];
        let turn = MOUNTED[random.below(MOUNTED.len() as u64) as usize];
        let part = if left.is_some() { Part::Second } else { Part::First };
        let mut rig = shelter::rig(dir, mounted.unwrap_or(turn));
        rig.arg(std::env::current_exe().expect("this test's file")).env("MKFS_OPTIONS", made);
        Role::director(dir, scene, seed, part).give(&mut rig);
        shelter::done(&mut rig)?;
        let recording = Self::read(dir)?;
        let mut disk = recording.base.clone();
        replay(&recording.log, 0..recording.log.entries().len(), &mut disk);
        let after = dir.join("disk.img");
        if disk.is_like(&Image::read(&after).map_err(told(&after))?) {
            Ok(recording)
        } else {
            Err("the log does not lead to the disk that was left".to_owned())
        }
    }

    /// Reads an earlier recording.
    pub fn read(dir: &Path) -> Result<Self, String> {
        let name = std::fs::read_to_string(dir.join("scene")).map_err(told(dir))?;
        let scene = Scene::named(&name).ok_or_else(|| format!("no scene is called {name:?}"))?;
        let base = dir.join("base.img");
        let base = Image::read(&base).map_err(told(&base))?;
        let log = BlockLog::read(&dir.join("log.img"))?;
        let noted = Noted::read(dir).map_err(told(dir))?;
        let flushed = (0, base.clone());
        Ok(Self { dir: dir.to_owned(), scene, log, noted, base, flushed })
    }

    /// Returns the acknowledgements before a power cut; `None` if there may be no filter.
    pub fn promised(&self, cut: &Cut) -> Option<[u64; STREAMS]> {
        self.noted.at(self.log.position(cut.issued))
    }

    /// Returns the disk after a power cut. It is fastest in the order of the cuts.
    pub fn disk(&mut self, cut: &Cut) -> Image {
        let flushed = cut.open(&self.log).start;
        if flushed < self.flushed.0 {
            self.flushed = (0, self.base.clone());
        }
        replay(&self.log, self.flushed.0..flushed, &mut self.flushed.1);
        self.flushed.0 = flushed;
        let mut disk = self.flushed.1.clone();
        cut.tear(&self.log, &mut disk);
        disk
    }
}

/// Copies the files of a recording to a directory that outlives the shelter.
pub fn keep(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("power-cut-kept").join(name);
    // Removes the files of an earlier failure of this name.
    let _ = std::fs::remove_dir_all(&kept);
    std::fs::create_dir_all(&kept).map_err(told(&kept))?;
    let from = dir.join(".");
    shelter::done(Command::new("cp").args(["-r", "--sparse=always"]).args([&from, &kept]))?;
    Ok(kept)
}
