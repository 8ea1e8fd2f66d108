//! Waits for input, which a signal or a closed output ends.

use crate::descriptor::{self, Ready};
use crate::progress::Progress;
use crate::stop::Stop;
use std::cell::Cell;
use std::io::{self, Stdout};
use std::os::fd::{AsFd, BorrowedFd};

/// Conditions under which a wait for input ends early.
pub struct Waits<'s> {
    /// Indicates whether a signal asks the command to stop.
    pub stop: &'s Stop,
    /// The output whose reader may close it, if there is one.
    pub output: Option<Stdout>,
    /// Why the last wait ended early.
    pub ended: Cell<Option<Ready>>,
    /// Counts the bytes read.
    pub progress: Progress,
}

impl<'s> Waits<'s> {
    /// Creates these conditions.
    pub fn new(stop: &'s Stop, output: Option<Stdout>, progress: Progress) -> Self {
        Self { stop, output, ended: Cell::new(None), progress }
    }

    /// Waits until an input is readable. Fails without a meaningful error if the wait ends early:
    /// [`Waits::ended`] has the reason.
    pub fn wait_for(&self, input: BorrowedFd<'_>) -> io::Result<()> {
        let output = self.output.as_ref().map(AsFd::as_fd);
        match descriptor::wait_to_read(input, self.stop.wake(), output)? {
            Ready::Input => Ok(()),
            early => {
                self.ended.set(Some(early));
                Err(io::Error::other("the wait for input ended early"))
            }
        }
    }
}
