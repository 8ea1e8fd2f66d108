//! What a filter is after a restart, a crash or damage: its former state, or an error; what salvage
//! recovers then; the state as of moments of the past; and a model of the protocol between processes
//! that recover and remove files.

mod commits;
mod long_logs;
mod moments;
mod older_formats;
mod protocol;
mod restarts;
mod salvage;
