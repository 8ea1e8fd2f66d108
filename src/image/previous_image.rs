//! The image that an earlier handle left: its timeline, and whether it is of this boot, so that it
//! says how far the log reaches.

use crate::error::{Error, Result};
use crate::format::header::HEADER_BYTES;
use crate::format::names::{FileName, TIMELINE_MAX};
use crate::image::identity::{Identity, none_if_unfit};
use crate::image::live_file::{Control, boot_id};
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
/// read. An image gets its name only when its timeline's first segment is durable, so the
/// result is also valid after a power cut and for a copy.
///
/// # Errors
/// [`Error::Io`] if that cannot be determined.
pub fn timeline(media: &dyn Media, uuid: u128) -> Result<Option<u64>> {
    let read = || {
        let name = FileName::Live.to_string();
        let path = media.path().join(&name);
        let file = media.open(&name, Access::Read).map_err(Error::io("open", &path))?;
        let mut start = vec![0; HEADER_BYTES];
        file.read_at(&mut start, 0).map_err(Error::io("read", &path))?;
        let identity = Identity::decode(&start, &path)?;
        let ours = identity.uuid == uuid && identity.timeline <= TIMELINE_MAX;
        Ok(ours.then_some(identity.timeline))
    };
    read().or_else(none_if_unfit)
}
