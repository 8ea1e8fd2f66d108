//! Random schedules of the engine: processes of several threads work on one filter, and are killed
//! at any step.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release --target-dir target/shuttle --test schedules \
//!     -- --count 100000 --seed 1
//! ```
//!
//! `--count N` schedules (default 100,000) of `--seed S`, `--from I` to continue where a run ended.
//! A schedule that fails prints the arguments that repeat it.

#[cfg(shuttle)]
mod history;
#[cfg(shuttle)]
mod play;
#[cfg(shuttle)]
mod run;
#[cfg(shuttle)]
mod settings;
#[cfg(shuttle)]
mod starts;

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    run::run()
}

#[cfg(not(shuttle))]
fn main() {
    println!("schedules: only with --cfg shuttle, see tests/schedules/main.rs");
}
