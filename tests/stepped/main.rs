//! A process killed after any instruction leaves a filter with which the others go on; one that is stopped holds up its
//! own stripe only.
//!
//! A child opens the filter and comes to the operation under test; the parent lets it do so many instructions of it,
//! one at a time, and kills it. Then the survivor must go on: nothing hangs, the child's insert is there in full or not at
//! all, and what is live is what recovery makes of the files. Or it leaves the child standing there: others insert durably,
//! but for the keys of one stripe, and it prints how long each took; then the child goes on. Linux on x86-64 only, and only where `ptrace` is allowed:
//! elsewhere it says that it was skipped.
//!
//! Arguments, next to those of every test: `--every N` instructions one kill (default: by scene; 1 is all of them), `--seed S`
//! (printed; default: the time), `--from I` and `--kills N` for so many of those kills from this one on (of who repairs: so many
//! rounds), `--path P` one path of `table.rs` only; `--each` tells of each stop, with its place for `addr2line`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod aim;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod children;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod copies;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod effort;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "../common/random.rs"]
mod random;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod run;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod scenes;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stopped;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod table;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod trials;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod watch;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod wave;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    if let Some(role) = children::Role::from_environment() {
        role.play();
    }
    trials::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("skipped: instructions are stepped through on Linux on x86-64 only");
}
