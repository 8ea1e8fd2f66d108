//! The handles that run calls.

use crate::api::filter::Filter;
use crate::engine::outcome::Waits;
use crate::engine::read::Queries;
use crate::error::Result;

/// A handle that runs calls: a [`Filter`] or a [`Reader`](crate::Reader).
pub trait Handle: sealed::Handle {
    /// The kind, as a type.
    type Kind;
}

pub(crate) mod sealed {
    use super::{Queries, Result, Waits};

    pub trait Handle {
        /// Runs a query on the engine that has the filter's state; if that state was retired
        /// meanwhile, again on another one (unless the caller must not wait).
        fn ask<T>(&self, waits: Waits, ask: impl FnMut(&Queries) -> Result<T>) -> Result<T>;
    }
}

impl<K> Handle for Filter<K> {
    type Kind = K;
}

impl<K> sealed::Handle for Filter<K> {
    #[inline]
    fn ask<T>(&self, _: Waits, mut ask: impl FnMut(&Queries) -> Result<T>) -> Result<T> {
        ask(&self.engine.queries)
    }
}
