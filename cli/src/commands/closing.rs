//! The end of a command that has changed a filter.
//!
//! Whoever reads "try again" repeats the command, and would count its keys twice. So the error of
//! the close says what is recorded already.

use crate::failure::{Failure, Result, note};
use ebbtide::{Any, Error, Filter};

/// Makes what a command has done durable, and closes its filter. If only the files that make the
/// next opening faster cannot be written, that is a note and no error.
pub fn close(filter: &Filter<Any>) -> Result<()> {
    filter.sync().map_err(|error| {
        explained(
            error,
            "what this command has done may be lost if the system fails, otherwise it is \
             recorded: look at the filter before you repeat anything",
        )
    })?;
    match filter.close() {
        // From here on everything is durable.
        Err(Error::Io { action, path, source }) => {
            note(&format!(
                "all is recorded: do not repeat it; only the snapshot at the end was not written \
                 (cannot {action} {}: {source}), a later command writes it",
                path.display()
            ));
            Ok(())
        }
        closed => closed.map_err(|error| explained(error, "all is recorded: do not repeat it")),
    }
}

/// As [`close`], of a command that has printed what it did; also if that failed, which is then an
/// error as well.
pub fn close_after(filter: &Filter<Any>, printed: Result<()>) -> Result<()> {
    let closed = close(filter);
    closed.and(printed)
}

/// Adds a clause to an error, unless it says itself what is lost.
fn explained(error: Error, clause: &str) -> Failure {
    match error {
        Error::Retired { replaced: true, .. } => error.into(),
        other => Failure::from(other).and(clause),
    }
}
