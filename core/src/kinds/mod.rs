//! The filter algorithms, each a [`Kind`]: a pure function over blocks.
//!
//! - Never forget: `bloom`.
//! - Forget after a window: `fingerprint`, `age_partitioned`, `time_limited`, `timing` (with
//!   block-timing), `buffering` (double buffering and two buffers).
//! - How often (frequency): `counting`, `spectral`, `dynamic_count`; with counts that decay,
//!   `decaying` and `decaying_optimized`.
//! - Forget at random: `stable`, `importance`.
//!
//! `docs/kinds.md` has a table of what each answers. `spec` has their types as users describe them.
//! What several of them use: `slice_columns` are slices of generations, `run_evidence` what a key's
//! bits say about its age, `distinct_by_fill` estimates distinct keys, `memory_limit` limits the
//! memory of a window, `altered_parameters` says which parameters an alteration keeps.
//!
//! A new kind is a folder here, with a line for its module and one in [`REGISTRY`].

pub mod age_partitioned;
#[cfg(test)]
mod ages_tests;
pub mod altered_parameters;
pub mod bloom;
pub mod buffering;
pub mod counting;
pub mod decaying;
pub mod decaying_optimized;
mod distinct_by_fill;
#[cfg(test)]
mod distinct_tests;
pub mod dynamic_count;
pub mod fingerprint;
pub mod importance;
#[cfg(test)]
mod measured_rates_tests;
mod memory_limit;
mod run_evidence;
mod slice_columns;
pub mod spec;
pub mod spectral;
pub mod stable;
pub mod time_limited;
pub mod timing;

use crate::error::{Error, Result};
use crate::kind::{Kind, Parameters};
use std::sync::Arc;

/// The constructor of a kind.
#[derive(Debug)]
pub struct Entry {
    /// The kind's name, as on the command line.
    pub name: &'static str,
    /// Builds the kind from the parameters that a user gives (`capacity`, `fpr`, …) or from those
    /// that [`Describe::parameters`](crate::kind::Describe::parameters) returned. It checks every
    /// value, completes the rest, and never panics.
    pub build: fn(&Parameters) -> Result<Arc<dyn Kind>>,
}

/// The kinds.
pub const REGISTRY: &[Entry] = &[
    Entry { name: bloom::NAME, build: bloom::build },
    Entry { name: counting::NAME, build: counting::build },
    Entry { name: spectral::NAME, build: spectral::build },
    Entry { name: dynamic_count::NAME, build: dynamic_count::build },
    Entry { name: decaying::NAME, build: decaying::build },
    Entry { name: decaying_optimized::NAME, build: decaying_optimized::build },
    Entry { name: timing::NAME, build: timing::build },
    Entry { name: timing::BLOCK_NAME, build: timing::build_block },
    Entry { name: age_partitioned::NAME, build: age_partitioned::build },
    Entry { name: time_limited::NAME, build: time_limited::build },
    Entry { name: fingerprint::NAME, build: fingerprint::build },
    Entry { name: stable::NAME, build: stable::build },
    Entry { name: importance::TWO_CLASSES, build: importance::build_two_classes },
    Entry { name: importance::MANY_CLASSES, build: importance::build_many_classes },
    Entry { name: importance::HYBRID, build: importance::build_hybrid },
    Entry { name: buffering::DOUBLE, build: buffering::build_double },
    Entry { name: buffering::TWO, build: buffering::build_two },
];

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

/// All kinds by name: `registry::build` says at a call what `build` alone does not.
pub mod registry {
    pub use super::{Entry, REGISTRY, build};
}
