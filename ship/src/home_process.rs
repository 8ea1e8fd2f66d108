//! The process that a worker is of. A child made by fork does not have its thread, and the locks
//! are as the fork has found them: none of them is taken there.

use crate::error::{Error, Result};
use crate::status::Status;

const FORKED: &str = "this is a forked child of the process that ships";

/// The process of a worker.
#[derive(Debug, Clone)]
pub struct Home {
    process: u32,
    /// What a child knows.
    elsewhere: Status,
}

impl Home {
    /// Creates that of a worker with this status.
    pub fn of(status: &Status) -> Self {
        let failure = Some(FORKED.to_owned());
        let elsewhere = Status { failure, is_stopped: true, ..status.clone() };
        Self { process: std::process::id(), elsewhere }
    }

    /// Returns whether this is the process.
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns an error in another process.
    pub fn check(&self) -> Result<()> {
        if self.is_here() {
            return Ok(());
        }
        Err(Error::Store {
            object: "the filter".into(),
            action: "ship",
            found: FORKED.into(),
            remedy: "use it where it was started; a child starts its own, for another filter",
            is_transient: false,
        })
    }

    /// Returns the status, by `look` if this is the process.
    pub fn status(&self, look: impl FnOnce() -> Status) -> Status {
        if self.is_here() { look() } else { self.elsewhere.clone() }
    }
}
