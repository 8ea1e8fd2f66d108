//! Several processes on one filter, killed, stopped and replaced at random moments.
//!
//! The parent only directs: every process that opens a filter in use is a child, this binary with a
//! role in its environment ([`worker::Role`]). Children note each operation after it has returned,
//! in files that survive them ([`witness`]). [`crew::Crew::check`] then compares the remaining
//! files with the notes.
//!
//! `--kills N` (or `EBBTIDE_KILLS`) sets the number of kills of the soak, to which the other scenes
//! are proportioned; `--seed N` (`EBBTIDE_SEED`) the seed; `--keep` (`EBBTIDE_KEEP`) keeps the
//! directories. `EBBTIDE_PROCESSES` is the number of processes of the soak (8),
//! `EBBTIDE_CHURN_SECONDS` the duration of the churn.

mod child;
mod churn;
mod crew;
mod desk;
mod handles;
mod namespaces;
mod reports;
mod scenes;
mod settings;
mod soak;
mod stopped;
mod takeover;
mod witness;
mod work;
mod worker;

use libtest_mimic::{Arguments, Trial};
use settings::Settings;

/// A claim, and its test.
type Claim = (&'static str, fn(&Settings) -> Result<(), String>);

const CLAIMS: [Claim; 11] = [
    (
        "handles_of_many_processes_up_to_the_last_slot_open_and_the_next_is_refused_with_a_reason",
        handles::all,
    ),
    ("processes_that_create_the_same_filter_at_once_all_get_it", churn::creation),
    ("opening_and_closing_at_any_moment_never_fails_and_loses_nothing", churn::churn),
    ("killed_processes_lose_nothing_and_survivors_have_the_state_of_a_replay", soak::lasting),
    ("after_kills_small_windows_have_the_state_of_a_replay", soak::forgetting),
    ("a_stripe_of_a_killed_process_is_free_again_in_a_small_filter", takeover::small),
    ("a_stripe_of_a_killed_process_is_free_again_in_a_large_filter", takeover::large),
    ("a_stopped_process_is_not_repaired_and_continues", stopped::continues),
    ("durable_inserts_of_others_continue_while_a_writer_is_stopped", stopped::durable),
    ("a_stopped_process_may_be_killed", stopped::killed),
    ("processes_of_two_pid_namespaces_detect_each_others_deaths", namespaces::all),
];

fn main() {
    if let Some(role) = worker::Role::from_environment() {
        return role.play();
    }
    let (settings, rest) = Settings::read();
    let mut arguments = Arguments::from_iter(rest);
    // The tests share the machine's cores with their children.
    arguments.test_threads = Some(1);
    let trials = CLAIMS.map(|(claim, show)| {
        let settings = settings.clone();
        Trial::test(claim, move || {
            let seed = settings.seed;
            show(&settings).map_err(|what| format!("seed {seed}: {what}").into())
        })
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}
