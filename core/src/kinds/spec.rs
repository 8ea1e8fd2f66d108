//! The filters that users describe: a kind with its parameters, as a type of its own or by name.
//!
//! The types implement a trait for each capability of their kinds, so that unsupported operations
//! do not compile. Each type stands in the folder of its kind.

use super::registry;
use crate::error::{Error, Result};
use crate::kind::{Kind, Parameters};
use crate::units;
use std::fmt;
use std::str::FromStr;
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
    /// [`Error::Parameter`] for values out of bounds.
    fn kind(&self) -> Result<Arc<dyn Kind>> {
        registry::build(self.name(), self.parameters())
    }
}

/// A [`Spec`] of a kind that keeps how long ago a key was seen.
pub trait Ages: Spec {}

/// A [`Spec`] of a kind that knows how many distinct keys it has.
pub trait CountsDistinct: Spec {}

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

/// The name of the spec in errors about its text.
const SPEC: &str = "spec";

impl fmt::Display for Any {
    /// Writes the kind and its parameters, durations with a unit: `time-limited fpr=0.001
    /// window=10m`. Parsing the text returns an equal spec, if the parameters have the form in
    /// which kinds store them: digits and microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.kind.clone();
        for (name, value) in self.parameters.iter() {
            units::push_parameter(&mut text, name, value)?;
        }
        f.write_str(&text)
    }
}

impl FromStr for Any {
    type Err = Error;

    /// Reads a kind and its parameters, separated by blanks, in the spelling of the command line.
    /// Durations have a unit, without blanks (`10m`, `1h30m`). Counts may have underscores, an
    /// exponent or a suffix (`1_000_000`, `1e6`, `1M`; a suffix is a power of a thousand). `last`
    /// is another name of `window-items`.
    ///
    /// ```
    /// use ebbtide_core::Parameters;
    /// use ebbtide_core::kinds::spec::Any;
    /// let spec: Any = "time-limited window=10m fpr=0.001".parse()?;
    /// let parameters = Parameters::new().with("window", 600_000_000).with("fpr", 0.001);
    /// assert_eq!(spec, Any::new("time-limited", parameters));
    /// assert_eq!(spec.to_string(), "time-limited fpr=0.001 window=10m");
    /// # Ok::<(), ebbtide_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for text that has no such form. Whether the kind exists and takes these
    /// parameters is checked by [`Spec::kind`].
    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let kind = words.next().filter(|word| !word.contains('=')).ok_or_else(|| {
            let expected = "a kind and its parameters, as in \"time-limited window=10m fpr=0.001\"";
            Error::parameter(SPEC, expected, format!("{text:?}"))
        })?;
        let mut parameters = Parameters::new();
        for word in words {
            let (name, value) = units::split_setting(SPEC, word)?;
            let name = if name == "last" { "window-items" } else { name };
            if parameters.get(name).is_some() {
                return Err(Error::parameter(SPEC, format!("{name} once"), format!("{text:?}")));
            }
            let value = units::parse_parameter(name, value)
                .map_err(|error| Error::parameter(SPEC, format!("for {name}: {error}"), value))?;
            parameters.set(name, value);
        }
        Ok(Self::new(kind, parameters))
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
impl CountsDistinct for Any {}
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
