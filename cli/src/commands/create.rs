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
    let mut options = arguments.creation.options();
    if let Some(keep) = arguments.keep_log {
        options = options.keep_log(keep);
    }
    Filter::<Any>::create(&arguments.dir, spec, options)?.close()?;
    Ok(())
}
