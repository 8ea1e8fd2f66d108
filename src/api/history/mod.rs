//! The past of a filter: its operations, one by one, and any [moment](At) of it.
//!
//! [`History`] reads the log while others write it. [`Reader::at`](crate::Reader::at) opens a
//! filter as it was, [`restore_at`](crate::inspect::restore_at) makes a new one that is what it
//! was, and [`remake`] makes one with other parameters, of several filters, or of a share of the
//! keys. [`Filter::alter`](crate::Filter::alter) gives a filter that is in use other parameters.
//! [`Options::keep_log`](crate::Options::keep_log) says how much log is kept.

pub(crate) mod operations;
pub(crate) mod read_log;

pub use crate::api::alter::planned_alteration::{AlterationPlan, plan};
pub use crate::api::alter::{Altered, Unlogged};
#[doc(hidden)]
pub use crate::api::remake::check_new;
pub use crate::api::remake::{Remade, Share, remake};
pub use crate::archive::At;
#[doc(hidden)]
pub use crate::platform::fork::Guard;
pub use operations::{Change, Commit, Operation};
pub use read_log::History;
