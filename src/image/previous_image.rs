//! The image that an earlier handle left: its timeline, and whether it is of this boot, so that it
//! says how far the log reaches.

use crate::error::{Error, Result};
use crate::format::header::HEADER_BYTES;
use crate::format::names::{FileName, TIMELINE_MAX};
use crate::image::identity::{Identity, none_if_unfit};
use crate::image::live_file::{self, Control, boot_id};
use crate::media::{Access, Media};

/// Opens the previous image, to learn how far the log reaches. Returns `None` unless the image
/// is of this filter, this boot and this device.
///
/// # Errors
/// [`Error::Io`] if that cannot be determined.
pub fn open(media: &dyn Media, uuid: u128, access: Access) -> Result<Option<Control>> {
    open_in(boot_id(media)?, media, uuid, access)
}

pub(super) fn open_in(
    boot: u128,
    media: &dyn Media,
    uuid: u128,
    access: Access,
) -> Result<Option<Control>> {
    let found = || {
        let (identity, file, device) = Control::examine(media, uuid, access)?;
        // Only the header has a checksum. The rest is trusted for this boot and device only.
        let is_of_now = boot != 0 && boot == identity.boot && device == identity.device;
        is_of_now.then(|| Control::over(media, identity, &*file, access)).transpose()
    };
    found().or_else(none_if_unfit)
}

/// Returns the timeline of the image that an earlier handle left, if there is one that can be
/// read. It may have no log yet.
///
/// # Errors
/// [`Error::Io`] if that cannot be determined.
pub fn timeline(media: &dyn Media, uuid: u128) -> Result<Option<u64>> {
    let found = read_start(media, uuid, HEADER_BYTES).or_else(none_if_unfit)?;
    Ok(found.map(|(identity, _)| identity.timeline))
}

/// Returns the timeline of the image that an earlier handle left, if its log has begun: that is
/// noted when the first segment is durable, so the result is also valid after a power cut and for a
/// copy.
///
/// # Errors
/// [`Error::Io`] if that cannot be determined.
pub fn timeline_with_log(media: &dyn Media, uuid: u128) -> Result<Option<u64>> {
    let found = read_start(media, uuid, live_file::LOG_ENDS_BYTES).or_else(none_if_unfit)?;
    let with_log = found.filter(|(_, start)| live_file::has_log(start));
    Ok(with_log.map(|(identity, _)| identity.timeline))
}

/// Reads the first bytes of the image that an earlier handle left, if it is this filter's.
fn read_start(media: &dyn Media, uuid: u128, bytes: usize) -> Result<Option<(Identity, Vec<u8>)>> {
    let name = FileName::Live.to_string();
    let path = media.path().join(&name);
    let file = media.open(&name, Access::Read).map_err(Error::io("open", &path))?;
    let mut start = vec![0; bytes];
    file.read_at(&mut start, 0).map_err(Error::io("read", &path))?;
    let identity = Identity::decode(&start[..HEADER_BYTES], &path)?;
    let ours = identity.uuid == uuid && identity.timeline <= TIMELINE_MAX;
    Ok(ours.then_some((identity, start)))
}
