//! The space of those parts of the file `live` that few filters use: positions, claims, and who has
//! the file of the banks open.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::live_file::Control;
use crate::media::{Access, Media, MediaFile};
use std::io::ErrorKind;

/// Allocates space for what says where the banks are, in a new image whose banks have no names.
///
/// # Errors
/// [`Error::Io`], including a full disk.
pub fn allocate_holders(control: &Control, media: &dyn Media, temporary: &str) -> Result<()> {
    let allocate = |file: Box<dyn MediaFile>| file.allocate(control.identity.room_for_holders());
    let allocated = media.open(temporary, Access::Write).and_then(allocate);
    allocated.map_err(Error::io("allocate", media.path().join(FileName::Live.to_string())))
}

/// Allocates space for positions, unless there are any; for the holder of stripe 0, before a
/// record with the first one is written, and for the creator of the image, whose file has the name
/// `temporary` at first.
///
/// # Errors
/// [`Error::Io`], including a full disk: then nothing has changed. [`Error::Damaged`] if the
/// file of this name is another image.
pub fn allocate_positions(
    control: &Control,
    media: &dyn Media,
    temporary: Option<&str>,
) -> Result<()> {
    if !control.positions().all().is_empty() {
        return Ok(());
    }
    let path = media.path().join(FileName::Live.to_string());
    let file = own_file(control, media, temporary)?;
    let allocated = file.allocate(control.identity.room_for_positions());
    allocated.map_err(Error::io("allocate room for positions in", path))
}

/// Opens the file of this image, which has its name, or in its creator this temporary one.
fn own_file(
    control: &Control,
    media: &dyn Media,
    temporary: Option<&str>,
) -> Result<Box<dyn MediaFile>> {
    match (own_named(control, media), temporary) {
        (Ok(file), _) => Ok(file),
        (Err(error), None) => Err(error),
        (Err(error), Some(name)) => own_temporary(control, media, name)?.ok_or(error),
    }
}

/// Opens the file of this image, which has its name.
fn own_named(control: &Control, media: &dyn Media) -> Result<Box<dyn MediaFile>> {
    let (found, file, _) = Control::examine(media, control.identity.uuid, Access::Write)?;
    if found != control.identity {
        let expected = format!("the image of timeline {}", control.identity.timeline);
        let found = format!("that of timeline {}", found.timeline);
        return Err(control.damaged(media.path(), expected, found));
    }
    Ok(file)
}

/// Opens the file of this image under its temporary name. `None` if it has another one by now.
fn own_temporary(
    control: &Control,
    media: &dyn Media,
    name: &str,
) -> Result<Option<Box<dyn MediaFile>>> {
    let path = || media.path().join(name);
    let file = match media.open(name, Access::Write) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(Error::io("open", path()))?,
    };
    let inode = file.identity().map_err(Error::io("look at", path()))?;
    Ok((inode == control.identity.inode).then_some(file))
}

/// Frees the space of the table of claims in the image that an earlier handle left, whoever has it
/// mapped. The caller has exclusive access, and has rebuilt the claims without that table.
pub fn free_claims_of_last(media: &dyn Media, uuid: u128) {
    let Ok((identity, file, _)) = Control::examine(media, uuid, Access::Write) else { return };
    let claims = identity.room_for_claims();
    if file.bytes().is_ok_and(|bytes| bytes == claims.end) {
        // Best effort: where space cannot be freed, the file keeps it.
        let _ = file.free(claims);
    }
}

/// Allocates space for the table of claims, unless it has it; for the holder of stripe 0 before
/// a record of the first claim is written, and for the creator of the image, whose file has the
/// name `temporary` at first.
///
/// # Errors
/// As [`allocate_positions`].
pub fn allocate_claims(
    control: &Control,
    media: &dyn Media,
    temporary: Option<&str>,
) -> Result<()> {
    if control.claims().has_space() {
        return Ok(());
    }
    let path = media.path().join(FileName::Live.to_string());
    let file = own_file(control, media, temporary)?;
    let allocated = file.allocate(control.identity.room_for_claims());
    allocated.map_err(Error::io("allocate room for claims in", path))?;
    control.claims().note_space();
    Ok(())
}
