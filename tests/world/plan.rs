//! What the seed decides for a whole world.

use crate::kinds::{KINDS, Spec};
use crate::oracle::Layout;
use crate::tasks;
use ebbtide::{Durability, Keep};
use ebbtide_testkit::random::Random;
use std::time::Duration;

/// Where the times of keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The clock of the filter.
    Clock,
    /// Each comes with its key, and is a little later than the one before.
    Given,
    /// One of this number comes with its key, some early or late; the others from the clock.
    Mixed { one_in: u64 },
}

/// What the seed decides for a whole world.
#[derive(Debug)]
pub struct Plan {
    pub spec: &'static Spec,
    pub layout: Layout,
    pub durability: Durability,
    pub segment_bytes: u64,
    pub checkpoint_bytes: u64,
    /// What is kept of the log that recovery does not need; none if the option is not set.
    pub keeps: Option<Keep>,
    /// What threads do more often than anything else.
    pub favourite: Option<tasks::Act>,
    /// Where the times of keys come from.
    pub times: Times,
    /// Some worlds have no faults but deaths and power cuts.
    pub is_calm: bool,
    /// Whether processes die at random steps.
    pub is_mortal: bool,
    /// Whether processes have threads in the background.
    pub has_tasks: bool,
    /// Whether these run their tasks only when they are due or were woken.
    pub is_punctual: bool,
    /// How long a sync lasts.
    pub sync_lasts: Duration,
    /// Whether threads issue tickets.
    pub has_tickets: bool,
}

impl Plan {
    pub fn draw(random: &mut Random) -> Self {
        let durabilities =
            [Durability::Always, Durability::Interval(Duration::from_millis(1)), Durability::Never];
        Self {
            spec: &const { &KINDS }[random.below(KINDS.len() as u64) as usize],
            layout: Layout {
                stripes: [1, 2, 4][random.below(3) as usize],
                block_bytes: [512, 2048][random.below(2) as usize],
            },
            durability: durabilities[random.below(3) as usize],
            segment_bytes: [5 * 32, 17 * 32, 64 * 32][random.below(3) as usize],
            checkpoint_bytes: [300, 600, 2000][random.below(3) as usize],
            keeps: [
                None,
                None,
                Some(Keep::Bytes([1000, 5000][random.below(2) as usize])),
                Some(Keep::For(Duration::from_secs(86_400 * 365))),
            ][random.below(4) as usize],
            favourite: (random.below(2) == 0).then(|| tasks::Act::draw(random)),
            times: match random.below(6) {
                0 | 1 => Times::Clock,
                2 | 3 => Times::Given,
                4 => Times::Mixed { one_in: 2 },
                _ => Times::Mixed { one_in: 12 },
            },
            is_calm: random.below(3) == 0,
            is_mortal: random.below(4) > 0,
            has_tasks: random.below(2) == 0,
            is_punctual: random.below(2) == 0,
            sync_lasts: Duration::from_micros([0, 0, 0, 400][random.below(4) as usize]),
            has_tickets: random.below(2) == 0,
        }
    }

    /// Returns whether the filter is altered: its log has all that it ever got.
    pub fn alters(&self) -> bool {
        matches!(self.keeps, Some(Keep::For(_))) && self.spec.altered.is_some()
    }
}
