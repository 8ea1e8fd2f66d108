//! Which test catches which mistake.

use crate::command::{Command, Test};
use ebbtide::Mistake;
use ebbtide::Mistake as M;

/// Those that are planted in CI: one for each of the twelve likeliest bugs, among those that are caught soon.
pub const IN_CI: [Mistake; 12] = [
    M::GroundNotSecured,
    M::HolesNotVoided,
    M::RemovedByNewest,
    M::SnapshotNameNotSynced,
    M::SnapshotAheadOfLog,
    M::SyncErrorSwallowed,
    M::StripeZeroUnrepaired,
    M::StoppedTakenForDead,
    M::EventBeforeRecord,
    M::NotTakenBack,
    M::OpeningByteIgnored,
    M::SegmentLengthTrusted,
];

const DURABILITY: Test = Test::Of("durability");
const STEPPED: Test = Test::Of("stepped");
const RECOVERY: Test = Test::Of("recovery");
const PROCESSES: Test = Test::Of("processes");
const FULL_DISK: Test = Test::Of("full_disk");
const ATTACH: Test = Test::Of("attach");

const IMAGES: &str = "whatever_a_power --images 3000 --seed 20261122";
const CLAIM_OF_A_CUT: &str = "a_power_cut_loses_no_more";
const FAILED_SYNC: &str = "after_a_failed_sync";
const EMPTY_PLACE: &str = "the_empty_slot_of_its_writer";
const THREADS: &str = "whatever_threads --seed 20261122";
const SILENCE: &str = "--path silence --every 100 --seed 20261122";
const INSERT: &str = "EBBTIDE_EFFORT=400 --path insert --seed 20261122";
const COUNT: &str = "EBBTIDE_EFFORT=400 --path count --seed 20261122";

/// The test that must fail with each.
const CATCHERS: &[(Mistake, Test, &str)] = &[
    (M::GroundNotSecured, DURABILITY, "recovered_records_are_durable"),
    (M::NamesNotSecured, DURABILITY, "where_a_creator_died"),
    (M::OldRecordsJoin, STEPPED, SILENCE),
    (M::RebootUnnoticed, DURABILITY, IMAGES),
    (M::ChecksumIgnored, DURABILITY, "a_wrong_record_below_the_tail"),
    (M::DurableNoteUnread, RECOVERY, "a_damaged_record_below_a_durable_note"),
    (M::HolePassed, DURABILITY, THREADS),
    (M::LostPlaceKept, STEPPED, "EBBTIDE_EFFORT=400 --path stopped-insert --seed 20261122"),
    (M::HolesNotVoided, DURABILITY, EMPTY_PLACE),
    (M::HeldStripesUncounted, DURABILITY, EMPTY_PLACE),
    (M::NoteUncounted, STEPPED, "EBBTIDE_EFFORT=400 --path sync --seed 20261122"),
    (M::RepairLeavesHole, STEPPED, INSERT),
    (M::RemovedByNewest, RECOVERY, "if_the_newest_snapshot_is_damaged"),
    (M::RemovedWithOneSnapshot, RECOVERY, "without_sound_snapshots"),
    (
        M::SnapshotStartsLate,
        Test::Of("kill"),
        "EBBTIDE_KILLS=40 EBBTIDE_SEED=20261122 -q --skip one_thread",
    ),
    (M::RemovedBeforeNamed, DURABILITY, IMAGES),
    (M::SnapshotNameNotSynced, DURABILITY, IMAGES),
    (M::SnapshotNotSynced, DURABILITY, IMAGES),
    (M::SegmentNotSynced, DURABILITY, IMAGES),
    (M::SegmentNameNotSynced, DURABILITY, IMAGES),
    (M::FoundSegmentTrusted, DURABILITY, "a_segment_whose_creator_failed"),
    (M::MetaNotSynced, DURABILITY, IMAGES),
    (M::SnapshotAheadOfLog, DURABILITY, "a_checkpoint_is_never_ahead"),
    (M::SyncSkipped, DURABILITY, CLAIM_OF_A_CUT),
    (M::SyncErrorSwallowed, DURABILITY, FAILED_SYNC),
    (M::SyncRetried, DURABILITY, FAILED_SYNC),
    (M::PoisonKept, ATTACH, "after_a_failed_sync_every_handle"),
    (M::FailureDiesWithLeader, ATTACH, "overtaking_a_leader"),
    (M::OnlyLastSegmentSynced, DURABILITY, CLAIM_OF_A_CUT),
    (M::DurableBeforeSync, DURABILITY, "while_a_sync_is_under_way"),
    (M::SyncDoesNothing, DURABILITY, CLAIM_OF_A_CUT),
    (M::AlwaysOneShort, DURABILITY, IMAGES),
    (M::IntervalIgnored, DURABILITY, "at_an_interval"),
    (M::PresentNotSettled, DURABILITY, "a_durable_answer_present"),
    (M::TurnNeverOvertaken, STEPPED, "EBBTIDE_EFFORT=400 --path stopped-sync --seed 20261122"),
    (M::TakenOverUnrepaired, STEPPED, COUNT),
    (M::StripeZeroUnrepaired, STEPPED, SILENCE),
    (M::EventUnannounced, STEPPED, SILENCE),
    (M::EventUnconfirmed, STEPPED, SILENCE),
    (M::OddBlocksLeft, STEPPED, COUNT),
    (M::StoppedTakenForDead, PROCESSES, "a_stopped_process_is_not_repaired"),
    (M::TermIgnored, Test::Lib, "the_living_keep_their_stripes"),
    (M::DoubtMeansDead, Test::Lib, "a_refusal_of_the_system"),
    (M::ForkKeepsLocks, Test::Of("fork"), "-q"),
    (M::ForkUnnoticed, Test::Of("fork"), "-q"),
    (M::EventBeforeRecord, STEPPED, SILENCE),
    (M::EventsNotHeldBack, RECOVERY, "a_shift_whose_insert_was_never_recorded"),
    (M::TimeReadAtReplay, DURABILITY, "whatever_a_power --from 5500 --images 500 --seed 20261122"),
    (M::ChangedBeforeRecord, FULL_DISK, "inserts_into_a_full_log"),
    (M::TimeUntold, Test::Lib, "a_key_that_comes_while_an_earlier_event"),
    (M::GenerationOneOff, Test::Lib, "kinds::age_partitioned"),
    (M::StaleColumnsKept, Test::Lib, "kinds::age_partitioned"),
    (M::AppliedAgain, Test::Of("kill"), "EBBTIDE_KILLS=200 EBBTIDE_SEED=20261122 two_threads"),
    (M::NotTakenBack, STEPPED, COUNT),
    (M::UndoOverflowForgotten, STEPPED, "--path halving --every 100 --seed 20261122"),
    (M::SumsInOneCopy, STEPPED, COUNT),
    (M::QueryUnchecked, Test::Of("concurrency"), "keys_are_found_while_their_block"),
    (M::OpeningByteIgnored, PROCESSES, "processes_that_create"),
    (M::ClosedBesideOpener, PROCESSES, "EBBTIDE_CHURN_SECONDS=2 opening_and_closing"),
    (M::CopiedImageBelieved, RECOVERY, "beyond_the_last_durable_note"),
    (M::SegmentLengthTrusted, RECOVERY, "a_missing_or_short_segment"),
    (M::FrameLengthTrusted, Test::Of("bad_input"), "one_flipped_bit_anywhere"),
    (M::SecondGroundGivenUpUnproven, Test::Of("tight_disk"), "no_snapshot_is_overwritten"),
    (M::SpaceNotAllocated, FULL_DISK, "a_real_file_system_that_is_full"),
    (M::RoomNotAllocated, FULL_DISK, "a_block_without_space"),
    (M::PublishRelaxed, Test::Loom, "a_slot_becomes_a_whole_record"),
    (M::UnlockRelaxed, Test::Loom, "stripe_lock"),
    (M::MarkUnfenced, Test::Loom, "a_block_that_did_not_change"),
];

/// The test that must fail.
///
/// # Panics
/// If none is named.
pub fn catcher(mistake: Mistake) -> Command {
    let found = CATCHERS.iter().find(|(caught, ..)| *caught == mistake);
    let (_, test, arguments) = found.unwrap_or_else(|| panic!("no test is named for {mistake:?}"));
    Command { test: *test, arguments }
}
