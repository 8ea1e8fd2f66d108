//! The module in real servers, which the tests start: `redis-server`, or the program that
//! `EBBTIDE_REDIS_SERVER` names, such as `valkey-server`. Without it they are skipped.
//!
//! `EBBTIDE_EFFORT` scales random tests (100), `EBBTIDE_KILLS` sets the number of kills,
//! `EBBTIDE_PAYLOADS` that of damaged payloads. `.ci/redis` runs the short form, `.ci/redis long`
//! the long one.

mod altered;
mod altered_carried;
mod altered_rules;
mod bloom;
mod carried;
mod carried_pieces;
mod carried_server;
mod claims;
mod claims_carried;
mod claims_clock;
mod cluster;
mod commands;
mod crashes;
mod damaged;
mod default_spec;
mod figures;
mod limits;
mod loading;
mod replicas;
mod rules;
mod samples;
mod server;
mod torn;
mod twin;
mod versions;
