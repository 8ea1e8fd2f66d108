//! The main harnesses, with counts so small that each takes some seconds.

use crate::command::{Command, Test};

/// What a mistake is tried on.
#[derive(Debug)]
pub struct Harness {
    /// As the table calls it.
    pub name: &'static str,
    pub command: Command,
}

const fn harness(name: &'static str, test: Test, arguments: &'static str) -> Harness {
    Harness { name, command: Command { test, arguments } }
}

/// All of them but two: loom's models take long and have mistakes of their own, as has
/// `tests/recovery/protocol`, which runs no code of the engine.
pub const HARNESSES: &[Harness] = &[
    harness(
        "unit tests",
        Test::Lib,
        "-q wal:: image:: locks:: recovery:: snapshot:: media:: platform:: engine:: admin:: meta:: \
         clock::",
    ),
    harness(
        "unit tests of the algorithms",
        Test::Core,
        "-q record:: block:: kinds::slice_columns kinds::age_partitioned kinds::counting \
         kinds::fingerprint::table",
    ),
    harness(
        "claims",
        Test::Of("durability"),
        "--skip whatever_a_power --skip of_a_small --skip any_call --skip whatever_threads",
    ),
    harness("power cuts", Test::Of("durability"), "whatever_a_power --images 6000 --seed 20261122"),
    harness("small workloads", Test::Of("durability"), "of_a_small --seed 20261122"),
    harness("faults", Test::Of("durability"), "any_call --calls 60 --seed 20261122"),
    harness("threads", Test::Of("durability"), "whatever_threads --seed 20261122"),
    harness("ext4", Test::Of("power_cut"), "what_was --states 16 --seed 20261122"),
    harness(
        "kill",
        Test::Of("kill"),
        "EBBTIDE_KILLS=40 EBBTIDE_SEED=20261122 -q moments:: --skip one_thread",
    ),
    harness(
        "processes",
        Test::Of("processes"),
        "EBBTIDE_CHURN_SECONDS=1 --kills 10 --seed 20261122 \
         --skip handles_of_many --skip free_again --skip namespaces",
    ),
    harness(
        "stepped",
        Test::Of("kill"),
        "stepped:: --every 250 --seed 20261122 --skip bank --skip checkpoint --skip stopped-append",
    ),
    harness("bad input", Test::Of("bad_input"), "-q --skip one_flipped_bit --skip wild_image"),
    harness(
        "salvage",
        Test::Of("recovery"),
        "-q salvage:: --skip after_any_single_damage --skip after_several_random_damages",
    ),
    harness(
        "recovery",
        Test::Of("recovery"),
        "-q restarts:: --skip repeated_opening --skip restart::",
    ),
    harness(
        "full disk",
        Test::Of("space"),
        "-q full_disk:: --skip any_single_failure --skip a_bank_allocated_in_vain",
    ),
    harness("tight disk", Test::Of("space"), "-q tight_disk:: --skip threads_write_without_limit"),
    harness(
        "attach",
        Test::Of("concurrency"),
        "-q attach:: --skip banks_that_one_handle --skip a_backup_by_one_handle",
    ),
    harness("fork", Test::Of("kill"), "-q fork::"),
    harness("concurrency", Test::Of("concurrency"), "-q threads::"),
    harness("world", Test::World, "whatever_a_seed --seconds 40 --seed 20261660"),
];
