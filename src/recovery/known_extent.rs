//! How far the log reaches by the image: what recovery knows beside the log itself.

use crate::error::{Error, Result};
use crate::image::Control;
use crate::image::identity::none_if_unfit;
use crate::image::previous_image;
use crate::media::{Access, Media};

/// The extent of the log by the image, if the image is valid: only within the same boot of the
/// machine.
#[derive(Debug, Clone, Copy)]
pub enum KnownExtent {
    /// No information: the log ends at the first slot that is empty or invalid.
    Nothing,
    /// All writers have died.
    WritersDied {
        /// The timeline that they wrote.
        timeline: u64,
        /// Every slot below was made durable.
        durable: u64,
        /// The next LSN to be reserved.
        tail: u64,
        /// The maximum number of slots they may have left empty.
        unfinished: u64,
    },
    /// The same boot, but the device was removed meanwhile and came back, or failed to write the
    /// image or the log: what was not durable yet may be lost, as after a power cut.
    DeviceLost {
        /// The timeline that was written.
        timeline: u64,
        /// Every slot below was made durable.
        durable: u64,
    },
    /// Live writers exist.
    WritersLive {
        /// The timeline that they write.
        timeline: u64,
        /// Every slot below is published or void.
        durable: u64,
    },
}

impl KnownExtent {
    /// Returns the extent left by the last writers; there are no live ones.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be determined whether the machine is still in the same boot.
    pub fn of_the_dead(home: &dyn Media, uuid: u128) -> Result<Self> {
        Ok(match previous_image::open(home, uuid, Access::Read)? {
            // Its ends may be older than the log, never newer, and its count of gaps may be wrong.
            // So only the durable end is used. Nor can lost records of the log be distinguished
            // from slots that dead writers left empty.
            Some(image) if image.is_distrusted() || image.status().has_lost_log() => {
                Self::DeviceLost {
                    timeline: image.identity().timeline,
                    durable: image.durable().hint(),
                }
            }
            // Its writers are dead, and the byte locks order these loads after their stores.
            Some(image) => Self::WritersDied {
                timeline: image.identity().timeline,
                durable: image.durable().hint(),
                tail: image.tail().hint(),
                unfinished: image.unfinished(),
            },
            None => Self::Nothing,
        })
    }

    /// Returns the extent reached by live writers. Call it before files are listed, because the
    /// listing may then contain more.
    ///
    /// # Errors
    /// [`Error::Version`] if they are of another version of ebbtide, and as
    /// [`KnownExtent::of_the_dead`].
    pub fn of_the_living(home: &dyn Media, uuid: u128) -> Result<Self> {
        let image = match Control::attach(home, uuid, Access::Read) {
            // Processes of another version of ebbtide have it open.
            Err(error @ Error::Version { .. }) => return Err(error),
            found => found.map_or_else(none_if_unfit, |image| Ok(Some(image)))?,
        };
        Ok(image.map_or(Self::Nothing, |image| Self::WritersLive {
            timeline: image.identity().timeline,
            durable: image.durable().read(),
        }))
    }

    /// Returns the LSN below which the log, of which this is the last timeline, was made durable by
    /// writers of this boot; 0 if that is unknown.
    #[must_use]
    pub fn made_durable(self, last_timeline: u64) -> u64 {
        match self {
            Self::WritersDied { timeline, durable, .. } if timeline == last_timeline => durable,
            _ => 0,
        }
    }

    /// Returns the LSN below which a log is durable that ends at `stop`, and of which this is the
    /// last timeline. Nothing of it has been synced since.
    #[must_use]
    pub fn durable_before(self, stop: u64, last_timeline: u64) -> u64 {
        match self {
            Self::WritersDied { timeline, durable, .. }
            | Self::DeviceLost { timeline, durable }
                if timeline == last_timeline =>
            {
                durable.min(stop)
            }
            // What was read after a power cut is on the disk.
            _ => stop,
        }
    }

    /// Returns what is known of this timeline, the last one of the log, if it is the one that was
    /// written, or if that one has no log yet.
    pub(super) fn of_timeline(self, timeline: u64) -> Option<KnownEnds> {
        match self {
            // No more slots between the two are empty than dead writers can have left: otherwise
            // it is `DeviceLost`.
            Self::WritersDied { timeline: of, durable, tail, .. } if of == timeline => {
                Some(KnownEnds { complete: durable, valid: tail })
            }
            Self::DeviceLost { timeline: of, durable }
            | Self::WritersLive { timeline: of, durable }
                if of == timeline =>
            {
                Some(KnownEnds::complete(durable))
            }
            // That began behind this one, all of which was durable. A segment that came into being
            // since this was known may be missing in a listing, but no slot of it was durable.
            Self::WritersDied { timeline: of, durable, .. }
            | Self::DeviceLost { timeline: of, durable }
            | Self::WritersLive { timeline: of, durable }
                if of > timeline =>
            {
                Some(KnownEnds::complete(durable))
            }
            _ => None,
        }
    }
}

/// How far a timeline is known to reach.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownEnds {
    /// No slot below this LSN is empty: it was published or voided, and made durable.
    pub(super) complete: u64,
    /// No slot below this LSN is invalid, but some may be empty.
    pub(super) valid: u64,
}

impl KnownEnds {
    /// Of a timeline of which every slot below this LSN has a record.
    pub(super) fn complete(end: u64) -> Self {
        Self { complete: end, valid: end }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::{Bloom, Durability, Filter, Options};
    use std::sync::Arc;

    #[test]
    fn after_a_failed_sync_of_the_log_empty_slots_are_not_taken_for_those_of_dead_writers() {
        for is_lost in [false, true] {
            let memory = Arc::new(Memory::new());
            let options = Options::new().background(false).durability(Durability::Never);
            let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
            let filter = filter.expect("a filter");
            (0..9_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
            let header = filter.engine().header();
            let ends = (header.durable().hint(), header.tail().hint());
            if is_lost {
                header.status().lose_log();
                assert!(header.is_poisoned() && !header.is_distrusted());
            }
            let uuid = filter.engine().shared.meta.uuid;
            let known = KnownExtent::of_the_dead(&*memory, uuid).expect("no error");
            match known {
                KnownExtent::DeviceLost { durable, .. } => {
                    assert!(is_lost && durable == ends.0);
                }
                KnownExtent::WritersDied { durable, tail, .. } => {
                    assert!(!is_lost && (durable, tail) == ends);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
