//! All kinds by name. A new kind adds its line to [`REGISTRY`].

use super::{Kind, Parameters, age_partitioned, bloom, time_limited};
use crate::error::{Error, Result};
use std::sync::Arc;

/// How to make a kind from parameters.
#[derive(Debug)]
pub struct Entry {
    /// The kind's name, as on the command line.
    pub name: &'static str,
    /// Makes the kind from what a user asks (`capacity`, `fpr`, …) or from what [`Kind::parameters`] gave; checks
    /// every value, fills in the rest, and panics on nothing.
    pub build: fn(&Parameters) -> Result<Arc<dyn Kind>>,
}

/// The kinds.
pub const REGISTRY: &[Entry] = &[
    Entry { name: bloom::NAME, build: bloom::build },
    Entry { name: age_partitioned::NAME, build: age_partitioned::build },
    Entry { name: time_limited::NAME, build: time_limited::build },
];

/// Makes the kind of this name from parameters.
///
/// # Errors
/// [`Error::Parameter`] for an unknown name, and for parameters the kind refuses.
pub fn build(name: &str, parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    match REGISTRY.iter().find(|entry| entry.name == name) {
        Some(entry) => (entry.build)(parameters),
        None => {
            let names: Vec<_> = REGISTRY.iter().map(|entry| entry.name).collect();
            Err(Error::parameter("kind", format!("one of {}", names.join(", ")), name))
        }
    }
}
