//! Which handles an image has had, read from the file `live` without mapping it.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::identity::none_if_unfit;
use crate::image::identity::{SLOTS, SLOTS_WORDS};
use crate::image::live_file::{Control, STATUS};
use crate::image::words::Status;
use crate::media::{Access, Media};
use crate::primitives::AtomicU64;

/// The handles that an image has had, as of now.
#[derive(Debug)]
pub struct Handles {
    is_altered: bool,
    incarnations: Vec<u64>,
}

impl Handles {
    /// Reads the image of a filter; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Io`] if that cannot be determined.
    pub fn read(media: &dyn Media, uuid: u128) -> Result<Option<Self>> {
        let read = || {
            let file = Control::examine(media, uuid, Access::Read)?.1;
            let mut bytes = vec![0; (SLOTS + SLOTS_WORDS) * 8];
            let path = || media.path().join(FileName::Live.to_string());
            file.read_at(&mut bytes, 0).map_err(|error| Error::io("read", path())(error))?;
            let (words, _) = bytes.as_chunks();
            let words: Vec<u64> = words.iter().map(|&word| u64::from_le_bytes(word)).collect();
            let status = AtomicU64::new(words[STATUS]);
            let is_altered = Status::new(&status).is_altered();
            Ok(Some(Self { is_altered, incarnations: words[SLOTS..].to_vec() }))
        };
        read().or_else(none_if_unfit)
    }

    /// Returns whether the image was retired by an alteration.
    #[must_use]
    pub fn is_altered(&self) -> bool {
        self.is_altered
    }

    /// Returns whether a handle has used the image in this session slot.
    #[must_use]
    pub fn has_had(&self, slot: u16) -> bool {
        self.incarnations.get(usize::from(slot)).is_some_and(|&times| times > 0)
    }

    /// Returns how often handles have taken session slots in the image.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.incarnations.iter().fold(0, |sum, &times| sum.wrapping_add(times))
    }
}
