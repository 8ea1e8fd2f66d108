//! A snapshot of the store in a file of this machine, part by part. The digests in its link say
//! which parts are there, so that a download that was interrupted continues.

use crate::error::{Error, Result};
use crate::files::{create, io, sync_parent};
use crate::link::{Snapshot, digest};
use crate::snapshot::check_parts;
use crate::store::{Folder, Store};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What the names of files begin with that are not whole.
const PARTIAL: &str = "partial-";
const REMEDY: &str = "fetch an older state with `--at`, or ship the filter to a new prefix from a \
                      machine that has it";

/// A download, whole or not.
#[derive(Debug)]
pub struct Download {
    snapshot: Snapshot,
    object: String,
    file: File,
    path: PathBuf,
    /// Where it is once it is whole.
    target: PathBuf,
    /// Parts that are there.
    parts: usize,
}

impl Download {
    /// Begins, or continues, a download into this directory.
    pub fn begin(store: &Store, dir: &Path, snapshot: Snapshot) -> Result<Self> {
        let object = store.name(Folder::Snapshot, &snapshot.name);
        check_parts(store, &snapshot)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if snapshot.name.is_empty() || !snapshot.name.bytes().all(is_plain) {
            let found = snapshot.name.escape_debug().to_string();
            return Err(Error::object(object, "a name of digits and letters", found, REMEDY));
        }
        let target = dir.join("snapshot").join(&snapshot.name);
        let path = match target.exists() {
            true => target.clone(),
            false => dir.join(format!("{PARTIAL}{}", snapshot.name)),
        };
        let open = || {
            create(&dir.join("snapshot"))?;
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)
        };
        let file = open().map_err(|error| io("open", &path, &error))?;
        Ok(Self { snapshot, object, file, path, target, parts: 0 })
    }

    /// Returns whether all parts are there.
    pub fn is_whole(&self) -> bool {
        self.parts == self.snapshot.digests.len()
    }

    /// Returns whether something of it is there.
    pub fn has_begun(&self) -> bool {
        self.parts > 0 || self.file.metadata().is_ok_and(|found| found.len() > 0)
    }

    /// Removes what is there of it, unless it is whole.
    pub fn discard(self) -> Result<()> {
        match self.path == self.target {
            true => Ok(()),
            false => remove_file(&self.path),
        }
    }

    /// Takes the next part from the file, or else from the store. Returns its length; `None` if the
    /// store does not have the snapshot any more.
    pub async fn take_part(&mut self, store: &Store) -> Result<Option<u64>> {
        let start = self.parts as u64 * self.snapshot.part_bytes;
        let range = start..self.snapshot.bytes.min(start + self.snapshot.part_bytes);
        let (expected, length) = (self.snapshot.digests[self.parts], range.end - range.start);
        let mut bytes = vec![0; length as usize];
        let is_there = self.file.read_exact_at(&mut bytes, start).is_ok();
        if !is_there || digest(&bytes) != expected {
            let read = store.get_part(Folder::Snapshot, &self.snapshot.name, range).await?;
            let Some(bytes) = read else { return Ok(None) };
            let found = digest(&bytes);
            if found != expected {
                let expected = format!("{expected:032x} as the digest of the part at byte {start}");
                let found = format!("{found:032x}");
                return Err(Error::object(self.object.as_str(), expected, found, REMEDY));
            }
            let written = self.file.write_all_at(&bytes, start);
            written.map_err(|error| io("write", &self.path, &error))?;
        }
        self.parts += 1;
        Ok(Some(length))
    }

    /// Makes what is whole durable, and gives it its name.
    pub fn finish(&self) -> Result<Snapshot> {
        let finish = || {
            self.file.set_len(self.snapshot.bytes)?;
            self.file.sync_all()?;
            fs::rename(&self.path, &self.target)?;
            sync_parent(&self.target)
        };
        finish().map_err(|error| io("finish", &self.path, &error))?;
        Ok(self.snapshot.clone())
    }

    /// Removes what downloads into this directory have left, none of which runs.
    pub fn remove_all(dir: &Path) -> Result<()> {
        let entries = fs::read_dir(dir).map_err(|error| io("list", dir, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| io("list", dir, &error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(PARTIAL) {
                remove_file(&path)?;
            }
        }
        Ok(())
    }
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", path, &error)),
        _ => Ok(()),
    }
}
