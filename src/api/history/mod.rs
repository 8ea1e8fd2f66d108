//! The past of a filter: its operations, one by one, and any [moment](At) of it.
//!
//! [`History`] reads the log while others write it. [`Reader::at`](crate::Reader::at) opens a
//! filter as it was, [`restore_at`](crate::inspect::restore_at) makes a new one that is what it
//! was, and [`remake`] makes one with other parameters, of several filters, or of a share of the
//! keys. [`Filter::alter`](crate::Filter::alter) gives a filter that is in use other parameters.
//! [`Options::keep_log`](crate::Options::keep_log) says how much log is kept.

pub(crate) mod alter;
mod commits;
mod operations;
mod plan;
mod refill;
mod remake;
mod unfinished;

pub use crate::archive::At;
pub use alter::{Altered, Unlogged};
pub use commits::History;
pub use operations::{Change, Commit, Operation};
pub use plan::{AlterationPlan, plan};
pub use remake::{Remade, Share, remake};
