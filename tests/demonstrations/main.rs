//! The demonstrations in `examples/` hold what their pages in `docs/` say: killed in the middle and
//! started again they end as if nothing had happened, and their figures agree with exact counts.
//!
//! The programs are part of this binary. It runs one of them if its first argument is the name of
//! one, or the role of one of its processes. `EBBTIDE_SEED` sets the seed of the moments at which
//! processes are killed.

mod audited;
#[path = "../../examples/click_audit/main.rs"]
#[expect(dead_code, reason = "its main function is the example's")]
mod click_audit;
#[path = "../../examples/flood/main.rs"]
#[expect(dead_code, reason = "its main function is the example's")]
mod flood;
mod flooded;
mod program;

use libtest_mimic::{Arguments, Trial};
use std::env::args_os;

/// A claim, and its test.
type Claim = (&'static str, fn());

const CLAIMS: [Claim; 8] = [
    ("an_audit_killed_at_any_click_decides_as_if_it_had_not_been_killed", audited::killed),
    ("no_duplicate_passes_the_plain_question_and_prices_make_mistakes_cheaper", audited::balance),
    ("decisions_lost_in_a_power_cut_are_held_and_change_no_others", audited::lost_decisions),
    ("filters_that_lost_clicks_in_a_power_cut_receive_them_again", audited::lost_inserts),
    ("the_table_of_each_minute_agrees_with_exact_counts", flooded::exact),
    ("tables_after_kills_of_all_processes_are_those_of_an_undisturbed_run", flooded::all_killed),
    ("the_table_of_the_last_minute_is_printed_again_with_all_its_rows", flooded::ended_twice),
    ("tables_after_kills_of_a_writer_and_the_reader_are_the_same", flooded::one_killed),
];

fn main() {
    let name = args_os().nth(1).unwrap_or_default();
    let ended = match name.to_str() {
        Some(program::CLICK_AUDIT) => click_audit::run(args_os().skip(2)),
        Some(program::FLOOD) => flood::run(args_os().skip(2)),
        Some("--writer" | "--reader") => flood::run(args_os().skip(1)),
        _ => {
            let trials = CLAIMS.map(|(claim, show)| {
                Trial::test(claim, move || {
                    show();
                    Ok(())
                })
            });
            libtest_mimic::run(&Arguments::from_args(), trials.into()).exit()
        }
    };
    if let Err(error) = ended {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
