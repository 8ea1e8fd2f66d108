//! All kinds by name.

pub use super::{Entry, REGISTRY};

use crate::error::{Error, Result};
use crate::kind::{Kind, Parameters};
use std::sync::Arc;

/// Builds the kind of this name from parameters.
///
/// # Errors
/// [`Error::Parameter`] for an unknown name, and for parameters that the kind rejects.
pub fn build(name: &str, parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    match REGISTRY.iter().find(|entry| entry.name == name) {
        Some(entry) => (entry.build)(parameters),
        None => {
            let names: Vec<_> = REGISTRY.iter().map(|entry| entry.name).collect();
            Err(Error::parameter("kind", format!("one of {}", names.join(", ")), name))
        }
    }
}
