//! Whether the system could write back the files of the image.
//!
//! Where it could not, pages of the image may show older content at any time. Two checks find that
//! out. That of the handle's own mappings receives every failure since they were made, but may
//! write a page of each file. That of the files by name writes nothing, and receives a failure only
//! if no other process has.

use crate::format::names::FileName;
use crate::image::bank::Bank;
use crate::image::shared::Image;
use crate::media::{Access, MediaFile};
use std::io;
use std::sync::Arc;

/// Checks the handle's mappings of `live` and of these banks.
///
/// # Errors
/// The system's error, of a write-back.
pub fn check_mapped(image: &Image, banks: &[Arc<Bank>]) -> io::Result<()> {
    image.header().check_mapped()?;
    banks.iter().try_for_each(|bank| bank.check_mapped())
}

/// Checks the files of the image: those that the handle keeps open, the others by their names.
///
/// # Errors
/// As [`check_mapped`]. A file that cannot be opened is not checked.
pub fn check_files(image: &Image) -> io::Result<()> {
    let identity = image.header().identity();
    match image.header().file() {
        Some(file) => file.check_written()?,
        None => match opened(image, FileName::Live) {
            Some(live) if live.identity().is_ok_and(|inode| inode == identity.inode) => {
                live.check_written()?;
            }
            // Another image is there. Its handles must receive it, not this one.
            _ => return Ok(()),
        },
    }
    for (_, bank) in image.keep_banks().iter() {
        let name = FileName::Bank { timeline: identity.timeline, bank: bank.id() };
        match bank.file() {
            Some(file) => file.check_written()?,
            // Without a file it was closed since.
            None => opened(image, name).map_or(Ok(()), |file| file.check_written())?,
        }
    }
    Ok(())
}

fn opened(image: &Image, name: FileName) -> Option<Box<dyn MediaFile>> {
    image.media().open(&name.to_string(), Access::Read).ok()
}
