//! The output of a partition: a file that can be cut back to the length of the last commit.

use crate::failure::{Failure, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file of lines that one process at a time writes.
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
    /// Bytes that are written; those behind it belong to a batch that was not committed.
    length: u64,
    /// Bytes that are not written yet.
    lines: Vec<u8>,
}

impl Output {
    /// Opens or creates the file, and locks it until the process ends.
    ///
    /// # Errors
    /// [`Failure::Lasting`] if another process has the file locked.
    pub fn open(path: PathBuf) -> Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Failure::lasting(format!(
                "{}: another process consumes this partition; end it first",
                path.display()
            )),
            TryLockError::Error(error) => Failure::from(error),
        })?;
        // The file's name survives a power cut like its content.
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Self { file, path, length: 0, lines: Vec::new() })
    }

    /// Returns whether the file has no bytes.
    ///
    /// # Errors
    /// [`Failure::Lasting`] of the system.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.file.metadata()?.len() == 0)
    }

    /// Cuts the file back to a length that was committed.
    ///
    /// # Errors
    /// [`Failure::Lasting`] if the file is shorter.
    pub fn cut(&mut self, length: u64) -> Result<()> {
        let found = self.file.metadata()?.len();
        if found < length {
            return Err(Failure::lasting(format!(
                "{}: {found} bytes, but the filter has committed {length}; \
                 restore the directory of the partition from one backup",
                self.path.display()
            )));
        }
        self.file.set_len(length)?;
        self.length = length;
        self.lines.clear();
        Ok(())
    }

    /// Adds a line.
    pub fn add(&mut self, body: &[u8]) {
        self.lines.extend_from_slice(body);
        self.lines.push(b'\n');
    }

    /// Writes the lines and returns the new length.
    ///
    /// # Errors
    /// [`Failure::Lasting`], for example on a full disk.
    pub fn write(&mut self) -> Result<u64> {
        self.file.write_all_at(&self.lines, self.length)?;
        self.length += self.lines.len() as u64;
        self.lines.clear();
        Ok(self.length)
    }

    /// Waits until what is written survives a power cut.
    ///
    /// # Errors
    /// [`Failure::Lasting`]; what was written since the last commit may be lost then.
    pub fn sync(&self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }
}
