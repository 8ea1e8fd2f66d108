//! A process killed after any instruction leaves a filter with which other processes can continue;
//! a stopped process blocks only its own stripe.
//!
//! A child opens the filter and reaches the operation under test. The parent lets it execute some
//! instructions, one at a time, and kills it. The survivor must then continue: nothing hangs, the
//! child's insert is present completely or not at all, and the live state equals the state that
//! recovery derives from the files. Alternatively the parent stops the child there: others insert
//! durably, except for the keys of one stripe, and the test prints the durations; then the child
//! resumes. Linux on x86-64 only, and only where `ptrace` is allowed: elsewhere the test reports
//! that it was skipped.
//!
//! Arguments, in addition to those of every test: `--every N` instructions per kill (default: by
//! scene; 1 means all), `--seed S` (printed; default: the time), `--from I` and `--kills N` for
//! this many of those kills from this one on (for repairing victims: this many rounds), `--path P`
//! for one path of `table.rs` only; `--each` prints each stop, with its address for `addr2line`.

mod aim;
mod children;
mod copies;
mod effort;
mod ptrace;
mod run;
mod scenes;
mod stopped;
mod table;
mod trials;
mod watch;
mod wave;

pub use trials::trials;

/// Runs the role of this process until its end; returns false if it has none.
pub fn play_role() -> bool {
    if let Some(role) = children::Role::from_environment() {
        role.play();
    }
    false
}
