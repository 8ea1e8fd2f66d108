//! A filter that is only asked: opened as ever, or read by those who may not write its files.

use super::stream::{Fed, Settings};
use crate::failure::{Failure, Result};
use ebbtide::{
    Age, AgePosterior, Any, Call, Digest, Error, Estimate, Filter, Form, Options, Parameters,
    Prior, Reader, ReaderCall, Stat, Within,
};
use std::io::ErrorKind;
use std::path::Path;

/// An open filter.
pub enum Asked {
    Open(Filter<Any>),
    Read(Reader<Any>),
}

impl Asked {
    /// Opens the filter; for reading if the system allows no more.
    pub fn open(dir: &Path, options: Options) -> Result<Self> {
        match Filter::open(dir, options.clone()) {
            Err(error) if is_refusal(&error) => Ok(Self::Read(Reader::open(dir, options)?)),
            opened => Ok(Self::Open(opened?)),
        }
    }

    /// What there is to know about it.
    pub fn stat(&self) -> Result<Stat> {
        match self {
            Self::Open(filter) => filter.stat(),
            Self::Read(reader) => reader.stat(),
        }
        .map_err(Failure::from)
    }

    /// The hash of its state.
    pub fn digest(&self) -> Result<Digest> {
        match self {
            Self::Open(filter) => filter.digest(),
            Self::Read(reader) => reader.digest(),
        }
        .map_err(Failure::from)
    }

    /// All parameters of its kind.
    pub fn parameters(&self) -> Parameters {
        match self {
            Self::Open(filter) => filter.parameters(),
            Self::Read(reader) => reader.parameters(),
        }
    }

    /// Closes it.
    pub fn close(self) -> Result<()> {
        match self {
            Self::Open(filter) => Ok(filter.close()?),
            Self::Read(_) => Ok(()),
        }
    }
}

/// Whether the filter may be read at most: by the system's will, or because a sync failed and others still have it open.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Poisoned { .. } => true,
        Error::Io { source, .. } => {
            matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
        }
        _ => false,
    }
}

/// A question, with its settings.
pub enum Question<'a> {
    Open(Call<'a>),
    Read(ReaderCall<'a>),
}

impl Question<'_> {
    /// Whether a key is in the window.
    pub fn contains(&self, key: &[u8]) -> ebbtide::Result<bool> {
        match self {
            Self::Open(call) => call.contains(key),
            Self::Read(call) => call.contains(key),
        }
    }

    /// How often a key was inserted.
    pub fn estimate(&self, key: &[u8]) -> ebbtide::Result<Estimate> {
        match self {
            Self::Open(call) => call.estimate(key),
            Self::Read(call) => call.estimate(key),
        }
    }

    /// The same, normalised.
    pub fn frequency(&self, key: &[u8]) -> ebbtide::Result<Estimate> {
        match self {
            Self::Open(call) => call.frequency(key),
            Self::Read(call) => call.frequency(key),
        }
    }

    /// How long ago a key was seen.
    pub fn age(&self, key: &[u8]) -> ebbtide::Result<Option<Age>> {
        match self {
            Self::Open(call) => call.age(key),
            Self::Read(call) => call.age(key),
        }
    }

    /// By these formulas, and in another window than the filter's own if one is given.
    pub fn about(self, form: Form, window: Option<Within>) -> Self {
        match (self, window) {
            (Self::Open(call), None) => Self::Open(call.form(form)),
            (Self::Open(call), Some(window)) => Self::Open(call.form(form).window(window)),
            (Self::Read(call), None) => Self::Read(call.form(form)),
            (Self::Read(call), Some(window)) => Self::Read(call.form(form).window(window)),
        }
    }

    /// How sure it is that a key is in the window.
    pub fn posterior(&self, key: &[u8], prior: &impl Prior) -> ebbtide::Result<f64> {
        match self {
            Self::Open(call) => call.posterior(key, prior),
            Self::Read(call) => call.posterior(key, prior),
        }
    }

    /// How long ago a key was inserted, as a distribution.
    pub fn age_posterior(&self, key: &[u8], prior: &impl Prior) -> ebbtide::Result<AgePosterior> {
        match self {
            Self::Open(call) => call.age_posterior(key, prior),
            Self::Read(call) => call.age_posterior(key, prior),
        }
    }
}

impl Fed for Asked {
    type Call<'a> = Question<'a>;

    fn call(&self, settings: Settings) -> Question<'_> {
        match self {
            Self::Open(filter) => Question::Open(Fed::call(filter, settings)),
            Self::Read(reader) => {
                let call = reader.call();
                Question::Read(match settings.time {
                    Some(time) => call.time(time),
                    None => call,
                })
            }
        }
    }
}
