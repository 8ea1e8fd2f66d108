//! Bad input: damaged, missing, foreign and swapped files, directories that are not filters, values
//! out of bounds.
//!
//! One rule covers all cases: opening gives the former state, or an error that a user can act on.
//! Opening never panics, never gives another state, and never increases the damage: with the file
//! restored, the filter opens as before.

mod damage;
mod directories;
mod files;
mod options;
mod parameters;
mod states;
mod wild_image;
