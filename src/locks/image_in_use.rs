//! Whether processes use the image of a filter.
//!
//! A handle keeps its session slot when the filter is altered, until it is used again. So a held
//! slot proves that a handle lives, not that it uses the present image. The image itself records
//! the slots of its handles.

use crate::error::Result;
use crate::image::unmapped_sessions::Handles;
use crate::locks::session_slots::Sessions;
use crate::media::Media;

/// Returns whether any other handle uses the image of the filter. Exact for the holder of the
/// opening byte.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if that cannot be determined.
pub fn is_in_use(media: &dyn Media, uuid: u128, slots: &Sessions) -> Result<bool> {
    if !slots.anyone_else()? {
        return Ok(false);
    }
    match Handles::read(media, uuid)? {
        // They open the filter again.
        Some(handles) if handles.is_altered() => Ok(false),
        Some(handles) => slots.anyone_of(|slot| handles.has_had(slot)),
        // Nothing is recorded about them.
        None => Ok(true),
    }
}
