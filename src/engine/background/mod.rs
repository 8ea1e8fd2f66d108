//! Background work: `maintenance` has the tasks of a filter, `threads` runs them, `task` is what a
//! thread knows of one, and `wakeup` wakes it. In schedules `scheduled_threads` runs them.

pub mod maintenance;
pub mod task;
#[cfg(not(shuttle))]
pub mod threads;
#[cfg(shuttle)]
#[path = "scheduled_threads.rs"]
pub mod threads;
pub mod wakeup;
