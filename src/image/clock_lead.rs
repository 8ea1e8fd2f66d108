//! The lead: how far a filter's time is ahead of the wall clock, as stored in the image.
//!
//! It is the only value that is used from an image of another boot, so its word carries a checksum.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::control::{Control, LEAD};
use crate::media::{Access, Media};
use ebbtide_core::block::{load, store};
use ebbtide_core::hash::mix;

/// Encodes a lead in 48 bits, and 16 bits that mark it as a lead of this filter.
fn lead_word(millis: i64, uuid: u128) -> u64 {
    let millis = millis.clamp(-(1 << 47), (1 << 47) - 1) as u64 & ((1 << 48) - 1);
    millis << 16 | mix(millis ^ uuid as u64) & 0xFFFF
}

fn lead_of(word: u64, uuid: u128) -> Option<i64> {
    let millis = word as i64 >> 16;
    (word != 0 && lead_word(millis, uuid) == word).then_some(millis)
}

/// Returns the lead in milliseconds when it was last stored; `None` if it never was.
#[must_use]
pub fn noted(control: &Control) -> Option<i64> {
    lead_of(load(control.word(LEAD)), control.identity.uuid)
}

/// Stores the lead in milliseconds.
pub fn note(control: &Control, millis: i64) {
    store(control.word(LEAD), lead_word(millis, control.identity.uuid));
}

/// Returns the lead in the newest image of this filter, from any boot of the machine: the word
/// carries a checksum and lies in one sector with the header's.
///
/// # Errors
/// [`Error::Io`] if that cannot be determined.
pub fn previous(media: &dyn Media, uuid: u128) -> Result<Option<i64>> {
    if Control::previous_timeline(media, uuid)?.is_none() {
        return Ok(None);
    }
    let path = media.path().join(FileName::Live.to_string());
    let mut word = [0; 8];
    let file = media.open(&FileName::Live.to_string(), Access::Read);
    file.and_then(|file| file.read_at(&mut word, LEAD as u64 * 8))
        .map_err(Error::io("read", &path))
        .map_or_else(Control::none_if_unfit, |()| Ok(lead_of(u64::from_le_bytes(word), uuid)))
}
