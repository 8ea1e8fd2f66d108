//! Exactly once, with real servers: across kills of the consumer and restarts of the server, and
//! what is refused because it would lose or repeat messages.
//!
//! Servers that are not installed are skipped, with a sentence. `EBBTIDE_KILLS` sets how often a
//! consumer is killed, `EBBTIDE_SEED` repeats a run.

mod kills;
mod refused;
mod support;
