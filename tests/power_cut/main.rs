//! Operations acknowledged as durable survive a power cut of a real ext4.
//!
//! A workload runs on an ext4 whose every block write and flush is logged (`rig.sh`). For each
//! power cut the disk is rebuilt in a possible state at some position of the log ([`cut`]) and
//! mounted. The filter on it is opened and compared with the notes of the acknowledgements until
//! then ([`oracle`]). The test needs root, a few tools and kernel features; elsewhere it reports
//! what is missing and is skipped. README.md has the details.
//!
//! Arguments, in addition to those of every test: `--states N` power cuts (default 200), `--seed
//! S`, `--from N` the first one's number, `--kind NAME` one scene only, `--replay DIR` power cuts
//! of a recording that was kept after a failure.

mod block_log;
mod crew;
mod cut;
mod image;
mod notes;
mod oracle;
mod recording;
mod run;
mod scenes;
mod settings;
mod shelter;

use ebbtide_testkit::skipped::skipped;
use libtest_mimic::{Arguments, Trial};
use settings::Settings;
use std::path::PathBuf;
use std::process::ExitCode;

/// A claim, and its test in this directory.
type Claim = (&'static str, fn(&Settings, &std::path::Path) -> Result<(), String>);

const CLAIMS: [Claim; 2] = [
    ("acknowledged_operations_survive_a_power_cut_of_a_real_ext4", run::all),
    ("an_acknowledgement_before_its_flush_is_detected", run::early_acknowledgements),
];

fn main() -> ExitCode {
    if let Some(role) = crew::Role::from_environment() {
        role.play();
        return ExitCode::SUCCESS;
    }
    if !shelter::is_inside() {
        return shelter::enter();
    }
    match shelter::furnish() {
        Ok(home) => claims(home),
        Err(why) => {
            skipped(&why);
            ExitCode::SUCCESS
        }
    }
}

fn claims(home: PathBuf) -> ExitCode {
    let (settings, rest) = Settings::read();
    let mut arguments = Arguments::from_iter(rest);
    // They share mounts and the simulated boot id.
    arguments.test_threads = Some(1);
    let trials = CLAIMS.map(|(claim, show)| {
        let (settings, home) = (settings.clone(), home.clone());
        Trial::test(claim, move || Ok(show(&settings, &home)?))
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
