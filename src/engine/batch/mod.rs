//! Batches: records of which all take effect, or none.
//!
//! `commit` commits batches of the caller; `before_commit` is one before that. `staging` decides
//! the records, `overlay` shows blocks as they leave them, `append_staged` appends and applies
//! them.

pub mod append_staged;
pub mod before_commit;
pub mod commit;
pub mod overlay;
pub mod staging;
