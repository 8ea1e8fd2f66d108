//! The lead: how far a filter's time is ahead of the wall clock, as the image notes it.
//!
//! It is the one thing that is believed of an image of another run of the machine, so its word carries a checksum.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::control::{Control, LEAD};
use crate::media::{Access, Media};
use ebbtide_core::block::{load, store};
use ebbtide_core::hash::mix;

/// A lead in 48 bits, and 16 bits that say that it is one, of this filter.
fn lead_word(millis: i64, uuid: u128) -> u64 {
    let millis = millis.clamp(-(1 << 47), (1 << 47) - 1) as u64 & ((1 << 48) - 1);
    millis << 16 | mix(millis ^ uuid as u64) & 0xFFFF
}

fn lead_of(word: u64, uuid: u128) -> Option<i64> {
    let millis = word as i64 >> 16;
    (word != 0 && lead_word(millis, uuid) == word).then_some(millis)
}

impl Control {
    /// How many milliseconds the filter's time was ahead of the wall clock when it was last noted;
    /// `None` if it never was.
    #[must_use]
    pub fn lead(&self) -> Option<i64> {
        lead_of(load(self.word(LEAD)), self.identity.uuid)
    }

    /// Notes how many milliseconds the filter's time is ahead of the wall clock.
    pub fn set_lead(&self, millis: i64) {
        store(self.word(LEAD), lead_word(millis, self.identity.uuid));
    }

    /// The lead that the newest image of this filter has, whatever run of the machine it was made
    /// in: the word carries a checksum and lies in one sector with the header's.
    ///
    /// # Errors
    /// [`Error::Io`] if that cannot be found out.
    pub fn previous_lead(media: &dyn Media, uuid: u128) -> Result<Option<i64>> {
        if Self::previous_timeline(media, uuid)?.is_none() {
            return Ok(None);
        }
        let path = media.path().join(FileName::Live.to_string());
        let mut word = [0; 8];
        let file = media.open(&FileName::Live.to_string(), Access::Read);
        file.and_then(|file| file.read_at(&mut word, LEAD as u64 * 8))
            .map_err(Error::io("read", &path))
            .map_or_else(Self::none_if_unfit, |()| Ok(lead_of(u64::from_le_bytes(word), uuid)))
    }
}
