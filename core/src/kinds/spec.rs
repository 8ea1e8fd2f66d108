//! The filters that users describe: a kind with its parameters, as a type of its own or by name.
//!
//! The types implement a trait for each capability of their kinds, so that unsupported operations
//! do not compile. Each type stands in the folder of its kind.

use super::registry;
use crate::error::Result;
use crate::kind::{Kind, Parameters};
use std::sync::Arc;

/// A kind with parameters.
pub trait Spec {
    /// The kind's name; `None` if only the value determines it.
    const KIND: Option<&'static str>;

    /// Returns the kind's name, as on the command line.
    fn name(&self) -> &str;

    /// Returns the given parameters; the kind completes the others.
    fn parameters(&self) -> &Parameters;

    /// Returns the kind, with all parameters checked and completed.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) for values out of bounds.
    fn kind(&self) -> Result<Arc<dyn Kind>> {
        registry::build(self.name(), self.parameters())
    }
}

/// A [`Spec`] of a kind that keeps how long ago a key was seen.
pub trait Ages: Spec {}

/// A [`Spec`] of a kind with posteriors: the probability that a key is in the window.
pub trait Infers: Spec {}

/// A [`Spec`] of a kind that counts how often a key was inserted.
pub trait Counts: Spec {}

/// A [`Spec`] of a kind whose counts decay.
pub trait Decays: Counts {}

/// A [`Spec`] of a kind from which keys can be removed.
pub trait Removes: Counts {}

/// A [`Spec`] of a kind that keeps important keys longer.
pub trait Weighs: Spec {}

/// A kind by name, for programs that determine it at run time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Any {
    kind: String,
    parameters: Parameters,
}

impl Any {
    /// Creates the spec of a kind by name with these parameters, both in the spelling of the
    /// command line.
    #[must_use]
    pub fn new(kind: &str, parameters: Parameters) -> Self {
        Self { kind: kind.to_owned(), parameters }
    }
}

impl Spec for Any {
    const KIND: Option<&'static str> = None;

    fn name(&self) -> &str {
        &self.kind
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }
}

// Operations that the kind lacks return `Error::Unsupported`.
impl Ages for Any {}
impl Infers for Any {}
impl Counts for Any {}
impl Decays for Any {}
impl Removes for Any {}
impl Weighs for Any {}

/// Defines the spec of a kind: its parameters under its name.
macro_rules! spec {
    ($(#[$meta:meta])* $spec:ident, $name:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub struct $spec(crate::kind::Parameters);

        impl crate::kinds::spec::Spec for $spec {
            const KIND: Option<&'static str> = Some($name);

            fn name(&self) -> &str {
                $name
            }

            fn parameters(&self) -> &crate::kind::Parameters {
                &self.0
            }
        }
    };
}

/// Defines a setting that nearly all specs have: the false-positive rate.
macro_rules! fpr {
    () => {
        /// Sets the false-positive rate when the filter is as full as planned. Default 0.001.
        #[must_use]
        pub fn fpr(self, rate: f64) -> Self {
            Self(self.0.with("fpr", rate))
        }
    };
}

pub(super) use {fpr, spec};
