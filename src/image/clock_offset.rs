//! The clock offset: how far a filter's time is ahead of the wall clock (negative: behind), as
//! stored in the image.
//!
//! It is used from an image of another boot, too, so its word carries a checksum.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::identity::none_if_unfit;
use crate::image::live_file::{CLOCK_OFFSET, Control};
use crate::image::previous_image;
use crate::media::{Access, Media};
use ebbtide_core::block::{load, store};
use ebbtide_core::hash::mix;

/// Encodes an offset in 48 bits, and 16 bits that mark it as one of this filter.
fn offset_word(millis: i64, uuid: u128) -> u64 {
    let millis = millis.clamp(-(1 << 47), (1 << 47) - 1) as u64 & ((1 << 48) - 1);
    millis << 16 | mix(millis ^ uuid as u64) & 0xFFFF
}

fn offset_of(word: u64, uuid: u128) -> Option<i64> {
    let millis = word as i64 >> 16;
    (word != 0 && offset_word(millis, uuid) == word).then_some(millis)
}

/// Returns the offset in milliseconds when it was last stored; `None` if it never was.
#[must_use]
pub fn noted(control: &Control) -> Option<i64> {
    offset_of(load(control.word(CLOCK_OFFSET)), control.identity.uuid)
}

/// Returns the word that stores an offset. An offset of 0 whose word would be 0, which stands for
/// none, is stored as 1.
fn stored_word(millis: i64, uuid: u128) -> u64 {
    match offset_word(millis, uuid) {
        0 => offset_word(1, uuid),
        word => word,
    }
}

/// Stores the offset in milliseconds.
pub fn note(control: &Control, millis: i64) {
    store(control.word(CLOCK_OFFSET), stored_word(millis, control.identity.uuid));
}

/// Returns the offset in the newest image of this filter, from any boot of the machine: the word
/// carries a checksum and lies in one sector with the header's.
///
/// # Errors
/// [`Error::Io`] if that cannot be determined.
pub fn previous(media: &dyn Media, uuid: u128) -> Result<Option<i64>> {
    if previous_image::timeline(media, uuid)?.is_none() {
        return Ok(None);
    }
    let path = media.path().join(FileName::Live.to_string());
    let mut word = [0; 8];
    let file = media.open(&FileName::Live.to_string(), Access::Read);
    file.and_then(|file| file.read_at(&mut word, CLOCK_OFFSET as u64 * 8))
        .map_err(Error::io("read", &path))
        .map_or_else(none_if_unfit, |()| Ok(offset_of(u64::from_le_bytes(word), uuid)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_offset_of_0_is_found_again_in_every_filter() {
        let mut moved = 0;
        for uuid in 0..300_000 {
            let found = offset_of(stored_word(0, uuid), uuid).expect("it was stored");
            assert!(found == 0 || found == 1, "{uuid}: {found}");
            moved += found;
        }
        assert!(moved > 0, "the word of one filter in 65,536 would be 0");
    }
}
