//! `create`.

use super::place;
use crate::args::Create;
use crate::failure::Result;
use crate::kind_options::described;
use ebbtide::{Any, Filter};

/// Creates the filter and closes it.
pub fn create(arguments: &Create) -> Result<()> {
    place::check(&arguments.dir)?;
    let (kind, parameters) =
        described(arguments.kind.as_deref(), arguments.last, &arguments.kind_options)?;
    let spec = Any::new(kind, parameters);
    Filter::<Any>::create(&arguments.dir, spec, arguments.creation.options())?.close()?;
    Ok(())
}
