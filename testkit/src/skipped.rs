//! What a test leaves out.

use std::fmt::Display;
use std::io::{Write, stdout};

/// Says that the test, or a part of it, is left out here, and why: on a line of its own, also of a
/// test that passes, of which the harness shows only what is not printed by `println!`.
pub fn skipped(why: impl Display) {
    // In one piece, because other tests write meanwhile.
    let _ = stdout().write_all(format!("\nskipped: {why}\n").as_bytes());
}
