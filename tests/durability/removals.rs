//! Nothing is removed on the strength of a snapshot that a power cut may take.

use crate::claims::{always, create, options, reopen};
use ebbtide::Durability;
use ebbtide::inspect::verify_on;
use ebbtide::media::Media;
use ebbtide_testkit::crash::choices::Chooser;
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::fault::{Fault, Plan};
use ebbtide_testkit::random::Random;

/// The claims, by name.
pub const ALL: [(&str, fn()); 3] = [
    ("a_checkpoint_relies_on_no_snapshot_whose_name_is_not_durable", nameless),
    ("a_snapshot_that_two_handles_write_is_never_renamed_over_by_the_second", twice),
    ("on_a_full_disk_no_file_is_removed_before_the_newest_snapshot_is_durable", full),
];

/// As by a handle that has named a snapshot and not synced the name yet, when another handle, whose
/// own snapshot is newer, removes what both make superfluous.
fn nameless() {
    let disk = CrashDisk::new();
    let filter = create(&disk, always());
    let fill = |keys: std::ops::Range<u64>| {
        keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
    };
    for first in [0, 200] {
        fill(first..first + 200);
        filter.checkpoint().expect("the disk is sound");
    }
    fill(400..600);
    // It gets its name, and nothing can be removed.
    disk.plan(Some(Plan::new(Fault::RenameFails, 2, true)));
    filter.checkpoint().expect_err("a removal begins with another name");
    disk.plan(None);
    let names = disk.names("snap-");
    let [_, second, _] = &names[..] else { panic!("{names:?}") };
    disk.rename(second, "tmp-99").expect("the disk is sound");
    disk.rename("tmp-99", second).expect("the disk is sound");
    // Nothing is new: only what is superfluous is removed.
    filter.checkpoint().expect("the disk is sound");
    assert_eq!(disk.names("snap-"), names[1..]);
    assert_eq!(disk.violations(), Vec::<String>::new());
}

/// A snapshot that loses its name to an equal one may come back by a power cut, without its blocks.
fn twice() {
    let disk = CrashDisk::new();
    let first = create(&disk, options().durability(Durability::Never));
    let second = reopen(&disk).expect("a filter");
    for key in 0..400_u64 {
        assert!(first.insert(key.to_le_bytes()).expect("an insert"));
    }
    let since = disk.tape().now;
    // Both have copied the state when the first sync of the log returns.
    disk.hold_log_syncs(true);
    std::thread::scope(|scope| {
        let begun = [&first, &second].map(|filter| scope.spawn(|| filter.checkpoint()));
        while disk.names("tmp-").len() < 2 {
            std::thread::yield_now();
        }
        disk.hold_log_syncs(false);
        for checkpoint in begun {
            checkpoint.join().expect("no panic").expect("the disk is sound");
        }
    });
    let names = disk.names("snap-");
    assert!(names.len() == 1, "{names:?}");
    let tape = disk.end();
    for at in tape.fullest().filter(|&at| at >= since) {
        for seed in 0..16 {
            let by = Chooser::chance(Random::new(at << 8 | seed)).shared();
            let left = CrashDisk::after_cut(&tape, at, &by, false);
            let report = verify_on(&left).expect("a filter");
            assert!(report.is_sound(), "cut at {at}, seed {seed}: {report:?}");
            left.end();
        }
    }
}

fn full() {
    const KEYS: u64 = 400;
    let mut cuts = 0;
    for calls in 0.. {
        let disk = CrashDisk::new();
        let filter = create(&disk, always());
        for key in 0..KEYS {
            assert!(filter.insert(key.to_le_bytes()).expect("the disk is sound"));
            if key % 150 == 140 {
                filter.checkpoint().expect("the disk is sound");
            }
        }
        disk.die_after(calls);
        filter.checkpoint().expect("the disk is sound");
        let Some(killed) = disk.left() else {
            assert!(calls > 15 && cuts > 100, "{calls} calls of a checkpoint, {cuts} cuts");
            return;
        };
        let died = killed.tape().now;
        // The next process on the living kernel finds the disk full, and then some space.
        killed.plan(Some(Plan::new(Fault::NoSpace, 1, false)));
        let next = reopen(&killed).expect("the older snapshot has space");
        let tape = killed.end();
        for at in tape.fullest().filter(|&at| at >= died) {
            for seed in 0..8 {
                let by = Chooser::chance(Random::new(calls << 8 | seed)).shared();
                let left = CrashDisk::after_cut(&tape, at, &by, false);
                let what = format!("died at call {calls}, cut at {at}, seed {seed}");
                let filter = reopen(&left).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(filter.digest().expect("a digest").inserts, KEYS, "{what}");
                cuts += 1;
                left.end();
            }
        }
        drop(next);
    }
}
