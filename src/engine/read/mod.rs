//! Questions: `query` answers those about a key, `infer` computes posteriors, `distinct` counts
//! the keys, `details` and `stats` report figures.

pub mod details;
pub mod distinct;
pub mod infer;
pub mod query;
pub mod stats;
