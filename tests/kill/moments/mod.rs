//! Processes killed at random moments lose no operation that had returned.
//!
//! A child opens (or creates) a filter and inserts. After each operation that returned, it writes a
//! note to a file, which survives its death. The parent kills it and checks that the filter
//! recovers to a prefix of the operations that contains every noted one. Each directory goes
//! through several kills in a row.
//!
//! `EBBTIDE_KILLS` sets the number of kills (default 200, and more for one thread of each kind),
//! `EBBTIDE_SEED` the seed; `EBBTIDE_KEEP` keeps the directories.

mod child;
mod scenes;
mod witness;

pub use child::patiently;

use child::Role;
use ebbtide_testkit::environment::{SEED, home, number, scaled};
use ebbtide_testkit::prefix::Oracle;
use ebbtide_testkit::random::Random;
use scenes::{ALL_EXACT, LOOSE, Scene, UNORDERED};
use std::path::Path;
use std::time::Duration;
use witness::{Alone, Witness};

/// The number of kills of each directory.
const KILLS_IN_A_ROW: u64 = 10;

/// Returns the number of rows for a share of all kills, at least one.
fn rows(tenths: u64) -> u64 {
    (number("EBBTIDE_KILLS").unwrap_or_else(|| scaled(200)) * tenths).div_ceil(10 * KILLS_IN_A_ROW)
}

fn seed() -> u64 {
    number("EBBTIDE_SEED").unwrap_or(SEED)
}

/// Draws a time up to 40 ms after the child begins to open the filter; every fourth within the few
/// milliseconds that opening takes.
fn moment(random: &mut Random) -> Duration {
    let most = if random.below(4) == 0 { 4_000 } else { 40_000 };
    Duration::from_micros(random.below(most))
}

/// Panics with the parameters that reproduce a failure.
fn told<T>(scene: &Scene, row: u64, kill: u64, checked: Result<T, String>) -> T {
    let seed = seed();
    checked.unwrap_or_else(|what| {
        panic!("scene `{}`, row {row}, kill {kill}, seed {seed}: {what}", scene.name)
    })
}

/// The claims of this module.
pub const CLAIMS: [(&str, fn()); 3] = [
    (
        "one_thread_killed_at_any_moment_loses_no_operation_that_had_returned",
        one_thread_killed_at_any_moment_loses_no_operation_that_had_returned,
    ),
    (
        "two_threads_killed_at_any_moment_lose_no_operation_that_had_returned",
        two_threads_killed_at_any_moment_lose_no_operation_that_had_returned,
    ),
    (
        "after_a_kill_every_snapshot_leads_to_the_same_state",
        after_a_kill_every_snapshot_leads_to_the_same_state,
    ),
];

/// Runs the role of this process until it is killed; returns false if it has none.
pub fn play_role() -> bool {
    Role::from_environment().map(Role::play).is_some()
}

fn one_thread_killed_at_any_moment_loses_no_operation_that_had_returned() {
    let mut kills = 0;
    // Each kind at least once.
    for row in 0..rows(5).max(ALL_EXACT.len() as u64) {
        let scene = &ALL_EXACT[row as usize % ALL_EXACT.len()];
        let home = home(false);
        let mut random = Random::new(seed() ^ row << 16);
        let (mut oracle, mut present) = (Oracle::new(Alone(scene)), 0);
        let mut starts = [Some(0), None];
        for kill in 0..KILLS_IN_A_ROW {
            let checked = child::kill(scene, home.path(), starts, moment(&mut random));
            let noted = told(scene, row, kill, checked);
            kills += 1;
            // Otherwise the next child checks only the number of operations, so that crashes follow
            // each other without a clean close.
            starts = [None; 2];
            if random.below(2) == 0 || kill + 1 == KILLS_IN_A_ROW {
                let range = present.max(noted[0])..=noted[0] + 1;
                let checked = witness::check_exact(&mut oracle, &filter_of(home.path()), range);
                present = told(scene, row, kill, checked);
                starts = [Some(present), None];
            }
        }
    }
    println!("{kills} kills of one thread, seed {}", seed());
}

fn two_threads_killed_at_any_moment_lose_no_operation_that_had_returned() {
    let mut kills = 0;
    for row in 0..rows(3) {
        let scene = &UNORDERED[row as usize % UNORDERED.len()];
        let home = home(false);
        let mut random = Random::new(seed() ^ row << 16 ^ 1);
        let mut witness = Witness::new(scene);
        for kill in 0..KILLS_IN_A_ROW {
            let starts = witness.fed().map(Some);
            let checked = child::kill(scene, home.path(), starts, moment(&mut random))
                .and_then(|noted| witness.check_unordered(&filter_of(home.path()), noted));
            told(scene, row, kill, checked);
            kills += 1;
        }
    }
    println!("{kills} kills of two threads, seed {}", seed());
}

fn after_a_kill_every_snapshot_leads_to_the_same_state() {
    let mut kills = 0;
    for row in 0..rows(2) {
        let scene = &LOOSE[row as usize % LOOSE.len()];
        let home = home(false);
        let mut random = Random::new(seed() ^ row << 16 ^ 2);
        let (mut before, mut counted) = ([0; 2], 0);
        for kill in 0..KILLS_IN_A_ROW {
            let starts = before.map(Some);
            let checked = child::kill(scene, home.path(), starts, moment(&mut random));
            let noted = told(scene, row, kill, checked);
            let done = noted[0] - before[0] + noted[1] - before[1];
            let checked = witness::check_loose(scene, &filter_of(home.path()), before, noted);
            let inserts = told(scene, row, kill, checked);
            let range = counted + done..=counted + done + 2;
            assert!(
                range.contains(&inserts),
                "scene `{}`, row {row}, kill {kill}: {inserts} inserts, expected {range:?}",
                scene.name
            );
            counted = inserts;
            // Operations that were in progress are skipped, whether recorded or not.
            before = noted.map(|noted| noted + 1);
            kills += 1;
        }
    }
    println!("{kills} kills of two threads with events, seed {}", seed());
}

fn filter_of(home: &Path) -> std::path::PathBuf {
    home.join("filter")
}
