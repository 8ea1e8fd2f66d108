//! Log, checkpoints and deaths: the protocol between processes, explored exhaustively.
//!
//! Loom runs the real code through all interleavings of a few loads and stores. Errors between a
//! checkpoint, the removal of log and the death of a process take hundreds of steps of four actors
//! and the directory's files, too many for loom. This is therefore a model of the protocol in
//! `docs/protocols/checkpoint.md`, with one step for each effect that other actors can observe, and
//! a search through all states within small bounds. Weak memory is not modelled here; `tests/loom`
//! does that.
//!
//! Each rule of the protocol can be broken ([`Rules`]), and the search must then find the
//! violation.

mod actor;
mod search;
mod world;

use actor::Actor;
use search::{Found, explore};
use world::{Rules, World};

/// Two checkpointers that may overtake each other in any way, one of them running twice, and a
/// writer.
fn checkpoints(rules: Rules) -> Found {
    let actors = [
        Actor::writer(&[1, 0], true, true),
        Actor::checkpointer(2, true),
        Actor::checkpointer(1, true),
    ];
    explore(&World::new(actors), rules)
}

/// Two writers, one of which may die while the other runs, and one checkpoint of each of two
/// processes. (Actors that repair and remove files die in the other search.)
fn takeovers(rules: Rules) -> Found {
    let (first, second) = (Actor::writer(&[0, 1], false, true), Actor::writer(&[1], false, false));
    explore(
        &World::new([first, second, Actor::checkpointer(1, false), Actor::checkpointer(1, false)]),
        rules,
    )
}

#[track_caller]
fn finds(found: &Found, what: &str) {
    let wrong = found.wrong.as_ref().expect("the planted bug is found");
    assert!(wrong.starts_with(what), "{found}");
}

#[test]
fn no_acknowledged_record_is_lost_by_checkpoints_that_overlap_and_die() {
    let found = checkpoints(Rules::PROPER);
    assert!(found.wrong.is_none(), "{found}");
    println!("{} states", found.states);
}

#[test]
fn no_record_is_lost_and_no_log_is_missing_for_a_takeover() {
    let found = takeovers(Rules::PROPER);
    assert!(found.wrong.is_none(), "{found}");
    println!("{} states", found.states);
}

#[test]
fn a_planted_removal_by_the_newest_start_is_found() {
    let found = checkpoints(Rules { by_newest: true, ..Rules::PROPER });
    finds(&found, "log is missing");
}

#[test]
fn a_planted_removal_before_the_rename_is_found() {
    let found = checkpoints(Rules { tidy_first: true, ..Rules::PROPER });
    finds(&found, "log is missing");
}

#[test]
fn a_planted_removal_from_the_end_is_found() {
    let found = checkpoints(Rules { descending: true, ..Rules::PROPER });
    finds(&found, "a gap");
}

#[test]
fn a_planted_snapshot_ahead_of_the_durable_log_is_found() {
    let found = checkpoints(Rules { without_commit: true, ..Rules::PROPER });
    finds(&found, "a snapshot is ahead");
}

#[test]
fn a_planted_rename_without_a_sync_of_the_directory_is_found() {
    let found = checkpoints(Rules { without_directory_sync: true, ..Rules::PROPER });
    finds(&found, "log is missing after a power cut");
}

#[test]
fn a_planted_start_that_is_read_late_is_found() {
    let found = checkpoints(Rules { late_start: true, ..Rules::PROPER });
    finds(&found, "a snapshot lacks");
}

#[test]
fn a_planted_copy_without_the_stripe_is_found() {
    let found = checkpoints(Rules { without_stripe: true, ..Rules::PROPER });
    finds(&found, "a snapshot lacks");
}

#[test]
fn a_planted_removal_of_snapshots_that_could_not_be_opened_is_found() {
    let found = checkpoints(Rules { removes_unopened: true, ..Rules::PROPER });
    finds(&found, "log is missing");
}

#[test]
fn a_planted_commit_that_does_not_look_again_is_found() {
    let found = checkpoints(Rules { maps_once: true, ..Rules::PROPER });
    finds(&found, "a commit misses");
}

#[test]
fn a_planted_takeover_without_repair_is_found() {
    let found = takeovers(Rules { without_repair: true, ..Rules::PROPER });
    finds(&found, "a record is not applied");
}

#[test]
fn a_planted_repair_whose_segments_are_released_is_found() {
    let found = takeovers(Rules { repair_forgets: true, ..Rules::PROPER });
    finds(&found, "a record is not applied");
}

#[test]
fn a_planted_repair_that_does_not_look_again_is_found() {
    let found = takeovers(Rules { repairs_once: true, ..Rules::PROPER });
    finds(&found, "a repair misses");
}

#[test]
fn a_planted_takeover_that_does_not_account_for_the_hole_is_found() {
    let found = takeovers(Rules { hole_uncounted: true, ..Rules::PROPER });
    finds(&found, "an unaccounted gap");
}
