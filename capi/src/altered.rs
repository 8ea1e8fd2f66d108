//! What functions return that give filters other parameters, or make filters of the logs of others.

use crate::answer::Answer;
use crate::failure::{Failure, Result};
use crate::history::micros;
use engine::Timestamp;
use engine::history::{AlterationPlan, Altered, Remade, Unlogged};

/// Flag of ebbtide_alter: keys of which the log has no record any more are forgotten. Without the
/// flag the filter stays as it is if some of them would be in the new window (EBBTIDE_NOT_KEPT).
pub const EBBTIDE_FORGET: u32 = 1;

/// What ebbtide_alter has done. Set size to sizeof(struct ebbtide_altered); the library sets the
/// other members. A later version may add members at the end; size then keeps programs built with
/// this one working.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alteration {
    /// sizeof(struct ebbtide_altered).
    pub size: usize,
    /// The LSN of the alteration. As of it the filter has the new parameters, as of the one before
    /// the former ones.
    pub lsn: u64,
    /// Insertions and removals in the log, which the filter now has.
    pub operations: u64,
    /// The time of the first of them in microseconds since the Unix epoch, if has_since is 1.
    pub since_us: u64,
    /// For how long writers were stopped at the end, in microseconds.
    pub stopped_us: u64,
    /// 1 if the log reaches back to the creation of the filter. If 0, the filter does not know any
    /// more what was inserted before.
    pub is_whole: u32,
    /// 1 if the first operation has a time, otherwise 0.
    pub has_since: u32,
}

/// What ebbtide_alter would take. Set size to sizeof(struct ebbtide_alteration_plan); the library
/// sets the other members. A later version may add members at the end; size then keeps programs
/// built with this one working.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Planned {
    /// sizeof(struct ebbtide_alteration_plan).
    pub size: usize,
    /// Records of the log that it reads.
    pub records: u64,
    /// The LSN of the first of them. If it is 1, the log reaches back to the creation of the
    /// filter. Otherwise what was inserted before is forgotten.
    pub first_lsn: u64,
    /// The time of the first operation in microseconds since the Unix epoch, if has_since is 1.
    pub since_us: u64,
    /// Bytes of memory that the filter takes when it is new, with the parameters that it has.
    pub memory_before: u64,
    /// The same, with the new ones. The alteration takes it twice, beside what the filter takes
    /// now, and as many bytes of disk for a snapshot.
    pub memory_after: u64,
    /// 1 if the log has the whole new window, as far as records and times tell, and no removals
    /// that the new kind cannot make. If 0, the alteration needs EBBTIDE_FORGET.
    pub has_window: u32,
    /// 1 if the first operation has a time, otherwise 0.
    pub has_since: u32,
}

/// What ebbtide_remake has made. Set size to sizeof(struct ebbtide_remade); the library sets the
/// other members. A later version may add members at the end; size then keeps programs built with
/// this one working.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    /// sizeof(struct ebbtide_remade).
    pub size: usize,
    /// Insertions and removals that the new filter has taken.
    pub operations: u64,
    /// The time of the first of them in microseconds since the Unix epoch, if has_since is 1.
    pub since_us: u64,
    /// 1 if the logs reach back to the creation of each filter. If 0, the new one does not know
    /// what was inserted before.
    pub is_whole: u32,
    /// 1 if the first operation has a time, otherwise 0.
    pub has_since: u32,
}

impl Answer for Alteration {
    const NAME: &'static str = "ebbtide_altered";
    const FIRST: usize = 48;
}

impl Answer for Planned {
    const NAME: &'static str = "ebbtide_alteration_plan";
    const FIRST: usize = 56;
}

impl Answer for Made {
    const NAME: &'static str = "ebbtide_remade";
    const FIRST: usize = 32;
}

// The sizes of the first version, without padding.
const _: () = {
    assert!(size_of::<Alteration>() == Alteration::FIRST);
    assert!(size_of::<Planned>() == Planned::FIRST);
    assert!(size_of::<Made>() == Made::FIRST);
};

/// Returns a time in microseconds, and 1 if there is one.
fn known(since: Option<Timestamp>) -> (u64, u32) {
    since.map_or((0, 0), |time| (time.as_unix_micros(), 1))
}

impl From<Altered> for Alteration {
    fn from(altered: Altered) -> Self {
        let Altered { lsn, operations, is_whole, since, stopped, .. } = altered;
        let (since_us, has_since) = known(since);
        let (stopped_us, is_whole) = (micros(stopped), u32::from(is_whole));
        let size = size_of::<Self>();
        Self { size, lsn, operations, since_us, stopped_us, is_whole, has_since }
    }
}

impl From<AlterationPlan> for Planned {
    fn from(plan: AlterationPlan) -> Self {
        let AlterationPlan { records, first_lsn, since, memory_before, memory_after, .. } = plan;
        let (since_us, has_since) = known(since);
        let (size, has_window) = (size_of::<Self>(), u32::from(!plan.must_forget()));
        Self {
            size,
            records,
            first_lsn,
            since_us,
            memory_before,
            memory_after,
            has_window,
            has_since,
        }
    }
}

impl From<Remade> for Made {
    fn from(made: Remade) -> Self {
        let (since_us, has_since) = known(made.since);
        let (size, is_whole) = (size_of::<Self>(), u32::from(made.is_whole));
        Self { size, operations: made.operations, since_us, is_whole, has_since }
    }
}

/// Returns what happens to keys of which the log has no record any more.
pub fn unlogged(flags: u32) -> Result<Unlogged> {
    match flags {
        0 => Ok(Unlogged::Refuse),
        EBBTIDE_FORGET => Ok(Unlogged::Forget),
        _ => Err(Failure::argument(format!(
            "flags of the alteration: expected EBBTIDE_FORGET or 0, found {flags:#x}"
        ))),
    }
}
