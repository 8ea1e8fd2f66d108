//! Notices that a file which is read is the one to which the answers go: each line read would add
//! one to read, until the disk is full.

use crate::failure::{Failure, Result};
use rustix::fs::{OFlags, fcntl_getfl};
use std::fs::{self, File, Metadata};
use std::io::{self, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Standard output, if it is a regular file.
pub struct OwnOutput(Option<File>);

impl OwnOutput {
    /// Looks at standard output.
    pub fn new() -> Self {
        let is_regular = |file: &File| file.metadata().is_ok_and(|metadata| metadata.is_file());
        Self(duplicate(io::stdout()).filter(is_regular))
    }

    /// For a command that writes no answers.
    pub fn none() -> Self {
        Self(None)
    }

    /// Refuses a file if the output continues it.
    pub fn check_file(&self, path: &Path, metadata: &Metadata) -> Result<()> {
        if self.continues(metadata, 0) { Err(refused(&path.display().to_string())) } else { Ok(()) }
    }

    /// As [`OwnOutput::check_file`], for a file that is looked up now; errors come when it is read.
    pub fn check_path(&self, path: &Path) -> Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        fs::metadata(path).map_or(Ok(()), |metadata| self.check_file(path, &metadata))
    }

    /// As [`OwnOutput::check_file`], for standard input.
    pub fn check_stdin(&self) -> Result<()> {
        let Some(mut input) = duplicate(io::stdin()).filter(|_| self.0.is_some()) else {
            return Ok(());
        };
        match (input.metadata(), input.stream_position()) {
            (Ok(metadata), Ok(from)) if self.continues(&metadata, from) => {
                Err(refused("standard input"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the next line is written behind this place of the file. Where it is written
    /// in front, as into an empty file, reading comes to an end.
    fn continues(&self, input: &Metadata, from: u64) -> bool {
        let Some(output) = &self.0 else { return false };
        let Ok(metadata) = output.metadata() else { return false };
        if (metadata.dev(), metadata.ino()) != (input.dev(), input.ino()) {
            return false;
        }
        let appends = fcntl_getfl(output).is_ok_and(|flags| flags.contains(OFlags::APPEND));
        let end = if appends { Ok(metadata.len()) } else { (&*output).stream_position() };
        end.is_ok_and(|end| from < end)
    }
}

fn duplicate(stream: impl AsFd) -> Option<File> {
    stream.as_fd().try_clone_to_owned().ok().map(File::from)
}

fn refused(name: &str) -> Failure {
    Failure::Error(format!(
        "cannot read {name}: standard output goes to the same file, which would grow without \
         limit; write to another file"
    ))
}
