//! Several processes on one filter, killed, stopped and replaced at random moments.
//!
//! The parent only directs: everything that opens a filter in use is a child, this same binary with a role in its
//! environment ([`worker::Role`]). Children note each operation after it has returned, in files that survive
//! them ([`witness`]). [`crew::Crew::check`] then holds what is left against the notes.
//!
//! `--kills N` (or `EBBTIDE_KILLS`) sets the number of kills of the soak, to which the other scenes are proportioned;
//! `--seed N` (`EBBTIDE_SEED`) the seed; `--keep` (`EBBTIDE_KEEP`) keeps the directories. `EBBTIDE_PROCESSES`
//! is how many processes the soak uses (8), `EBBTIDE_CHURN_SECONDS` how long the churn lasts.

mod child;
mod churn;
#[path = "../common/copies.rs"]
mod copies;
mod crew;
mod desk;
#[path = "../common/effort.rs"]
mod effort;
mod handles;
mod namespaces;
#[path = "../common/random.rs"]
mod random;
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

/// A claim, and what it needs to be shown.
type Claim = (&'static str, fn(&Settings) -> Result<(), String>);

const CLAIMS: [Claim; 11] = [
    ("handles_of_many_processes_up_to_the_last_slot_open_and_the_next_is_told_why", handles::all),
    ("processes_that_create_the_same_filter_at_once_all_get_it", churn::creation),
    ("opening_and_closing_at_any_moment_never_fails_and_loses_nothing", churn::churn),
    ("killed_processes_lose_nothing_and_survivors_leave_what_replay_leaves", soak::lasting),
    ("killed_processes_leave_small_windows_as_replay_leaves_them", soak::forgetting),
    ("a_stripe_of_a_killed_process_is_free_again_in_a_small_filter", takeover::small),
    ("a_stripe_of_a_killed_process_is_free_again_in_a_large_filter", takeover::large),
    ("a_stopped_process_is_not_repaired_and_goes_on", stopped::goes_on),
    ("durable_inserts_of_others_go_on_while_a_writer_is_stopped", stopped::durable),
    ("a_stopped_process_may_be_killed", stopped::killed),
    ("processes_of_two_pid_namespaces_know_each_others_deaths", namespaces::all),
];

fn main() {
    if let Some(role) = worker::Role::from_environment() {
        return role.play();
    }
    let (settings, rest) = Settings::read();
    let mut arguments = Arguments::from_iter(rest);
    // They share the machine's cores with their children.
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
