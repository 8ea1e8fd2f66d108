//! Each known mistake, planted in the engine, makes some test fail.
//!
//! ```text
//! RUSTFLAGS="--cfg planted" cargo test --target-dir target/planted --test planted
//! ```
//!
//! builds the tests that are needed in the same way, makes sure that they pass without a mistake, and then plants twelve, one
//! for each of the likeliest bugs. `-- --each` plants all of them. `-- --all` does more: it tries each mistake on every
//! harness, with small counts, and prints who catches what, as `docs/reliability.md` has it. `--mistake NAME` is for one of
//! them only. Without `--cfg planted` nothing can be planted, and this says so.

#[cfg(planted)]
mod build;
#[cfg(planted)]
mod command;
#[cfg(planted)]
mod harnesses;
#[cfg(planted)]
mod run;
#[cfg(planted)]
mod table;

#[cfg(planted)]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(planted))]
fn main() {
    println!(
        "skipped: mistakes are planted in builds for it only, as by \
         RUSTFLAGS=\"--cfg planted\" cargo test --target-dir target/planted --test planted"
    );
}
