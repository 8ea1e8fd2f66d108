//! Schedules: one seed decides which thread of which process takes the next step, and which process
//! dies. The engine calls it before each step on shared words (`--cfg shuttle`).

pub mod panics;
pub mod place;
mod policy;
pub mod stage;
