//! Whether the system could write back the files of the image.
//!
//! If it could not, pages of the image may show older content at any time. [`check_mapped`] learns
//! of every failure since the handle made its mappings, but may write a page of each file.
//! [`check_files`] writes nothing, and learns of a failure only if no other process has.

use crate::format::names::FileName;
use crate::image::bank::Bank;
use crate::image::mapped_image::Image;
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
            // Another image's file: its handles must receive its failures.
            _ => return Ok(()),
        },
    }
    let banks = image.keep_banks();
    let banks = || banks.iter().map(|(_, bank)| bank);
    for file in banks().filter_map(|bank| bank.file()) {
        file.check_written()?;
    }
    let others = banks().filter(|bank| bank.file().is_none());
    image.files().store().check_written(&mut others.map(|bank| bank.id()))
}

fn opened(image: &Image, name: FileName) -> Option<Box<dyn MediaFile>> {
    image.media().open(&name.to_string(), Access::Read).ok()
}
