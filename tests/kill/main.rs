//! Processes that die or fork: killed at random moments, killed or stopped after an instruction,
//! and children made by fork.
//!
//! [`stepped`] has arguments of its own, and the environment sets the counts of [`moments`] and
//! [`fork`]; a filter by name selects: `cargo test --test kill -- stepped:: --path insert`.

mod altered;
mod fork;
mod moments;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stepped;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod stepped {
    //! A process is stepped through on Linux on x86-64 only.

    use ebbtide_testkit::skipped::skipped;
    use libtest_mimic::Trial;

    pub fn play_role() -> bool {
        false
    }

    pub fn trials() -> (Vec<Trial>, Vec<String>) {
        skipped("instructions are stepped through on Linux on x86-64 only");
        (Vec::new(), std::env::args().collect())
    }
}

fn main() -> ExitCode {
    if altered::play_role() || fork::play_role() || moments::play_role() || stepped::play_role() {
        return ExitCode::SUCCESS;
    }
    let (mut trials, rest) = stepped::trials();
    let claim = |name: String, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    trials.extend(moments::CLAIMS.map(|(name, run)| claim(format!("moments::{name}"), run)));
    trials.extend(altered::CLAIMS.map(|(name, run)| claim(format!("altered::{name}"), run)));
    trials.extend(fork::trials());
    libtest_mimic::run(&Arguments::from_iter(rest), trials).exit_code()
}
