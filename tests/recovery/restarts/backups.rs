//! Targets of backups: the files that an interrupted attempt may leave there, and the files that a
//! backup must not touch.

use super::{damage, digest, directory, insert, kinds, names, open, stream};
use ebbtide::Filter;
use std::fs;

#[test]
fn a_backup_succeeds_where_another_was_interrupted_in_its_first_file() {
    for spec in kinds() {
        let home = directory();
        let filter = Filter::create(home.path().join("f"), spec, stream()).expect("a filter");
        insert(&filter, 0..300);
        let copy = home.path().join("copy");
        fs::create_dir(&copy).expect("a new directory");
        // A backup creates it first, and it stays.
        fs::write(copy.join("lock"), "").expect("a file");
        // The temporary names that a backup uses, and one more; shorter and longer than the files
        // to write.
        for (name, bytes) in [("tmp-0", 100_000), ("tmp-1", 0), ("tmp-2", 7), ("tmp-17", 1)] {
            fs::write(copy.join(name), vec![0xA5; bytes]).expect("a file");
        }
        filter.backup(&copy).expect("temporary files are no obstacle");
        assert!(names(&copy, "tmp-").is_empty(), "the leftovers are gone");
        let found = digest(&open(&copy, stream()));
        let before = digest(&filter);
        assert_eq!((found.value, found.inserts), (before.value, before.inserts));
    }
}

#[test]
fn a_backup_is_refused_where_snapshots_or_log_exist_and_does_not_change_them() {
    let home = directory();
    let filter = Filter::create(home.path().join("f"), kinds()[1].clone(), stream());
    let filter = filter.expect("a filter");
    insert(&filter, 0..300);
    let whole = home.path().join("whole");
    filter.backup(&whole).expect("a backup");
    // They may be the only rest of a filter that lost its `meta`.
    for prefix in ["snap-", "wal-"] {
        let copy = home.path().join(prefix);
        fs::create_dir(&copy).expect("a new directory");
        let name = names(&whole, prefix).remove(0);
        let bytes = fs::read(whole.join(&name)).expect("a file");
        fs::write(copy.join(&name), &bytes).expect("a file");
        fs::write(copy.join("tmp-0"), "something").expect("a file");
        for _ in 0..2 {
            let found = damage(filter.backup(&copy));
            assert!(found.path.ends_with("meta"), "{found:?}");
            assert_eq!(fs::read(copy.join(&name)).expect("it is still there"), bytes);
            assert!(copy.join("tmp-0").exists(), "nothing was touched");
        }
    }
    // The filter and its lock are unaffected.
    insert(&filter, 300..400);
    filter.backup(home.path().join("another")).expect("a backup");
}
