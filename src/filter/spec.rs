//! What a user asks for: a kind with its parameters, as a type of its own or by name.

use crate::error::Result;
use crate::kinds::{Kind, Parameters, age_partitioned, bloom, registry, time_limited};
use std::sync::Arc;
use std::time::Duration;

/// A kind with parameters; the type parameter of [`Filter`](crate::Filter).
pub trait Spec {
    /// The kind's name; `None` if only the value knows.
    const KIND: Option<&'static str>;

    /// The kind's name, as on the command line.
    fn name(&self) -> &str;

    /// What is asked of it; the kind completes the rest.
    fn parameters(&self) -> &Parameters;

    /// The kind, all parameters checked and completed.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] for values out of bounds.
    fn kind(&self) -> Result<Arc<dyn Kind>> {
        registry::build(self.name(), self.parameters())
    }
}

/// A [`Spec`] of a kind that knows how long ago a key was seen.
pub trait Ages: Spec {}

/// A [`Spec`] of a kind that knows how often a key was inserted.
pub trait Counts: Spec {}

/// A [`Spec`] of a kind whose counts decay.
pub trait Decays: Counts {}

/// A [`Spec`] of a kind from which keys can be removed.
pub trait Removes: Counts {}

/// A [`Spec`] of a kind that keeps important keys longer.
pub trait Weighs: Spec {}

/// A kind by name, for programs that learn it at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Any {
    kind: String,
    parameters: Parameters,
}

impl Any {
    /// The kind of this name with these parameters, both in the spelling of the command line.
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

// What a kind does not do it answers with `Error::Unsupported`.
impl Ages for Any {}
impl Counts for Any {}
impl Decays for Any {}
impl Removes for Any {}
impl Weighs for Any {}

/// A Bloom filter: remembers every key for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bloom(Parameters);

impl Bloom {
    /// For so many distinct keys.
    #[must_use]
    pub fn capacity(keys: u64) -> Self {
        Self(Parameters::new().with("capacity", keys))
    }

    /// The false-positive rate at capacity. Default 0.001.
    #[must_use]
    pub fn fpr(self, rate: f64) -> Self {
        Self(self.0.with("fpr", rate))
    }
}

impl Spec for Bloom {
    const KIND: Option<&'static str> = Some(bloom::NAME);

    fn name(&self) -> &str {
        bloom::NAME
    }

    fn parameters(&self) -> &Parameters {
        &self.0
    }
}

/// An age-partitioned Bloom filter: remembers the last N insertions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgePartitioned(Parameters);

impl AgePartitioned {
    /// A key stays for at least this many insertions (repeated ones count too).
    #[must_use]
    pub fn last(insertions: u64) -> Self {
        Self(Parameters::new().with("window-items", insertions))
    }

    /// The false-positive rate at the fullest moment. Default 0.001.
    #[must_use]
    pub fn fpr(self, rate: f64) -> Self {
        Self(self.0.with("fpr", rate))
    }

    /// Instead of what the planner finds best: `k` hash functions and `l` further slices, memory as in the paper.
    #[must_use]
    pub fn slices(self, k: u32, l: u32) -> Self {
        Self(self.0.with("k", k).with("l", l))
    }
}

impl Spec for AgePartitioned {
    const KIND: Option<&'static str> = Some(age_partitioned::NAME);

    fn name(&self) -> &str {
        age_partitioned::NAME
    }

    fn parameters(&self) -> &Parameters {
        &self.0
    }
}

impl Ages for AgePartitioned {}

/// A time-limited Bloom filter: remembers for a time, whatever the rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeLimited(Parameters);

impl TimeLimited {
    /// A key stays for at least this long.
    #[must_use]
    pub fn window(window: Duration) -> Self {
        Self(Parameters::new().with("window", window.as_micros()))
    }

    /// The false-positive rate to keep to. Default 0.001.
    #[must_use]
    pub fn fpr(self, rate: f64) -> Self {
        Self(self.0.with("fpr", rate))
    }

    /// How many new keys to expect per second at first. Default: few; the filter grows with the rate.
    #[must_use]
    pub fn rate(self, keys_per_second: f64) -> Self {
        Self(self.0.with("rate", keys_per_second))
    }
}

impl Spec for TimeLimited {
    const KIND: Option<&'static str> = Some(time_limited::NAME);

    fn name(&self) -> &str {
        time_limited::NAME
    }

    fn parameters(&self) -> &Parameters {
        &self.0
    }
}

impl Ages for TimeLimited {}
