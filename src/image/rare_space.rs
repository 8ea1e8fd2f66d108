//! The space of those parts of the file `live` that few filters use: positions, claims, and who has
//! the file of the banks open.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::live_file::Control;
use crate::media::{Access, Media, MediaFile};
use std::io::ErrorKind;

/// Frees the space of positions, unless there are any, and of what says where the banks are,
/// if they have names; for the creator of the image, before the file gets its name.
pub fn free_unused(control: &Control, media: &dyn Media, temporary: &str) {
    let positions = control.positions().all().is_empty();
    let holders = control.holders().file().is_none();
    let positions = positions.then(|| control.identity.room_for_positions());
    let holders = holders.then(|| control.identity.room_for_holders());
    for unused in positions.into_iter().chain(holders) {
        let file = media.open(temporary, Access::Write);
        // Best effort: where space cannot be freed, the file keeps it.
        let _ = file.and_then(|file| file.free(unused));
    }
}

/// Allocates space for positions, unless there are any; for the holder of stripe 0, before a
/// record with the first one is written.
///
/// # Errors
/// [`Error::Io`], including a full disk: then nothing has changed. [`Error::Damaged`] if the
/// file of this name is another image.
pub fn allocate_positions(control: &Control, media: &dyn Media) -> Result<()> {
    if !control.positions().all().is_empty() {
        return Ok(());
    }
    let path = || media.path().join(FileName::Live.to_string());
    let allocated = own_file(control, media)?.allocate(control.identity.room_for_positions());
    allocated.map_err(|error| Error::io("allocate room for positions in", path())(error))
}

/// Opens the file of this image, which has its name.
fn own_file(control: &Control, media: &dyn Media) -> Result<Box<dyn MediaFile>> {
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
    let file = match (own_file(control, media), temporary) {
        (Ok(file), _) => file,
        (Err(error), None) => return Err(error),
        (Err(error), Some(name)) => own_temporary(control, media, name)?.ok_or(error)?,
    };
    let allocated = file.allocate(control.identity.room_for_claims());
    allocated.map_err(Error::io("allocate room for claims in", path))?;
    control.claims().note_space();
    Ok(())
}
