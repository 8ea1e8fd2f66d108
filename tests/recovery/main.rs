//! What a filter is after a restart, a crash or damage: its former state, or an error; and what
//! salvage recovers then.

mod older_formats;
mod restarts;
mod salvage;
