//! What a filter is after a restart, a crash or damage: its former state, or an error; what salvage
//! recovers then; what it was at any moment of its past, and the operations that made it so; and a
//! model of the protocol between processes that recover and remove files.

mod altered;
mod beside_alterations;
mod commits;
mod kept_files;
mod long_logs;
mod moments;
mod older_formats;
mod parts;
mod parts_of_logs;
mod protocol;
mod remade;
mod restarts;
mod salvage;
mod taken_over;
mod times_of_logs;
