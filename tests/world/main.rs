//! One world from one seed: it decides which thread of which process takes the next step, what time
//! it is, which calls to the disk fail, which pages of the image are lost, when processes die, when
//! the power fails, and what the disk then holds. See `docs/design/one-world.md`.
//!
//! ```text
//! cargo test --test world -- --seconds 3600
//! cargo test --test world -- --seed 20261127 --worlds 1 --trace
//! ```
//!
//! `--seed N`, the first seed; `--seconds N` (default 10), or `--worlds N`, one for each seed;
//! `--trace` prints each event, act and answer, and the log of a world that fails; `--all` counts
//! failures instead of ending with the first. A world that fails prints the arguments that repeat
//! it.
//!
//! The engine calls the world before each of its steps only if it is built with `--cfg shuttle`.
//! Built without, this program builds itself so, beside the other builds, and runs that.

#[cfg(shuttle)]
mod claims;
#[cfg(shuttle)]
mod faults;
#[cfg(shuttle)]
mod judge;
#[cfg(shuttle)]
mod kinds;
#[cfg(shuttle)]
mod oracle;
#[cfg(shuttle)]
mod plan;
#[cfg(shuttle)]
mod processes;
#[cfg(shuttle)]
mod replayed;
#[cfg(shuttle)]
mod report;
#[cfg(shuttle)]
mod revision;
#[cfg(shuttle)]
mod tasks;
#[cfg(shuttle)]
mod tickets;
#[cfg(shuttle)]
mod world;

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    report::main()
}

#[cfg(not(shuttle))]
mod scheduled;

#[cfg(not(shuttle))]
fn main() -> std::process::ExitCode {
    scheduled::main()
}
