//! Examines filters by their files, also while others have them open: verify, print the log,
//! restore, salvage, plan.
//!
//! Nothing here changes the files that it examines. State is rebuilt privately, in memory.

pub use crate::admin::dump_log::{Entry, wal};
pub use crate::admin::open_handles::{OpenHandle, handles};
pub use crate::admin::parts::{
    Assembly, Origin, Piece, SnapshotFile, newest_timeline_on, origin, origin_on, snapshots_on,
    verify_snapshot_on,
};
pub use crate::admin::planned_cost::{Plan, plan};
pub use crate::admin::provable_state::{Beyond, Lost};
pub use crate::admin::restore::{restore, restore_on};
pub use crate::admin::restore_at::{Restored, restore_at, restore_at_on};
pub use crate::admin::salvage::{Salvaged, salvage, salvage_on};
pub use crate::admin::verify::{FileReport, Report, verify, verify_on};
pub use ebbtide_core::kind::PlannedPart;
