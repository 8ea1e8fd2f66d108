//! Whether processes use the image of a filter.
//!
//! A handle keeps its session slot when the filter is altered, until it is used again. So a held
//! slot proves that a handle lives, not that it uses the present image: that has the slots of its
//! handles.

use crate::error::Result;
use crate::image::Control;
use crate::locks::session::Sessions;
use crate::media::{Access, Media};

/// Returns whether any other handle uses the image of the filter. Exact for the holder of the
/// opening byte.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if that cannot be determined.
pub fn is_in_use(media: &dyn Media, uuid: u128, slots: &Sessions) -> Result<bool> {
    match Control::find(media, uuid, Access::Read)? {
        // Its handles open the filter again.
        Some(image) if image.is_altered() => Ok(false),
        Some(image) => slots.anyone_of(|slot| image.has_had_handle(slot)),
        // Nothing is recorded about them.
        None => slots.anyone_else(),
    }
}
