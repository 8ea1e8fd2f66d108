//! Bad input: damaged, missing, foreign and swapped files, directories that are none, values out of bounds.
//!
//! One rule for all of it: opening gives the state that was there, or an error that a user can act on. It never
//! panics, never gives another state, and never makes a damage worse: with the file put back the filter
//! opens as before.

mod damage;
mod directories;
mod files;
mod options;
mod parameters;
mod states;
