//! `create`.

use super::place;
use crate::args::Create;
use crate::failure::Result;
use ebbtide::{Any, Filter};

/// Creates the filter and closes it.
pub fn create(arguments: &Create) -> Result<()> {
    place::check(&arguments.dir)?;
    let spec = Any::new(&arguments.kind, arguments.kind_options.parameters());
    Filter::<Any>::create(&arguments.dir, spec, arguments.creation.options())?.close()?;
    Ok(())
}
