//! `restore`: a new filter from a backup, or from a filter's past.

use super::place;
use crate::args::Restore;
use crate::failure::Result;
use crate::formatting::counted;
use crate::output::Output;
use ebbtide::inspect;

/// Creates the filter; prints what it has, if that is a moment of the past.
pub fn restore(arguments: &Restore) -> Result<()> {
    place::check(&arguments.dir)?;
    place::check_outside(&arguments.dir, &arguments.src)?;
    let Some(at) = arguments.at else {
        return Ok(inspect::restore(&arguments.src, &arguments.dir)?);
    };
    let restored = inspect::restore_at(&arguments.src, at, &arguments.dir)?;
    let (last, inserts) = (restored.lsn.saturating_sub(1), counted(restored.inserts, "insert"));
    let mut output = Output::new()?;
    let dir = arguments.dir.display();
    output.sentence(&format!("{dir} has every record up to LSN {last}, {inserts} in all"))?;
    output.flush()
}
