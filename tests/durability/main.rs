//! Operations acknowledged as durable survive power cuts, and a failed sync is never treated as a
//! success.
//!
//! Arguments, in addition to those of every test: `--images N` random crash images (default
//! 30,000), `--seed S`, `--from I` to continue where a run ended (images, small workloads, kinds),
//! `--only S:I` for a single image, `--all` to count failures instead of ending with the first;
//! `--workloads N` small workloads whose power cuts are enumerated completely (default 1), and
//! `--every N` to follow one in N first cuts with all second cuts (default 100); `--kinds N` kinds
//! in which every call fails (default 1), or one in `--calls N`; `--blind` to disable the ordering
//! monitor.

mod altered;
mod answers;
mod claims;
mod faults;
mod images;
mod kept;
mod made_copies;
mod removals;
mod settings;
mod small;
mod threads;
mod workload;
mod write_back;

use libtest_mimic::{Arguments, Trial};
use settings::Settings;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (settings, rest) = Settings::read();
    let arguments = Arguments::from_iter(rest);
    let mut trials: Vec<Trial> = claims::ALL
        .iter()
        .chain(&write_back::ALL)
        .chain(&kept::ALL)
        .chain(&made_copies::ALL)
        .chain(&altered::ALL)
        .chain(&answers::ALL)
        .chain(&removals::ALL)
        .map(|&(name, claim)| {
            Trial::test(name, move || {
                claim();
                Ok(())
            })
        })
        .collect();
    let claim = |name: &str, run: fn(&Settings) -> Result<(), String>| {
        let settings = settings.clone();
        Trial::test(name, move || run(&settings).map_err(Into::into))
    };
    trials.extend([
        claim(
            "whatever_a_power_cut_leaves_the_state_is_a_prefix_with_all_that_was_acknowledged",
            images::run,
        ),
        claim("of_a_small_workload_all_that_power_cuts_may_leave_recovers", small::run),
        claim(
            "any_call_to_the_medium_may_fail_and_nothing_that_returned_is_lost",
            faults::sweep_all,
        ),
        claim("whatever_threads_saw_acknowledged_survives_a_power_cut", threads::run),
    ]);
    libtest_mimic::run(&arguments, trials).exit_code()
}
