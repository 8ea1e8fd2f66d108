//! Places for backups: what an attempt that was cut off may leave there, and what is rather left alone.

use super::{damage, digest, directory, insert, kinds, names, open, stream};
use ebbtide::Filter;
use std::fs;

#[test]
fn a_backup_is_made_where_one_was_cut_off_while_it_wrote_its_first_file() {
    for spec in kinds() {
        let home = directory();
        let filter = Filter::create(home.path().join("f"), spec, stream()).expect("a filter");
        insert(&filter, 0..300);
        let copy = home.path().join("copy");
        fs::create_dir(&copy).expect("a new directory");
        // It is made first, and stays.
        fs::write(copy.join("lock"), "").expect("a file");
        // Those that a backup itself uses, and one more; shorter and longer than what will be written.
        for (name, bytes) in [("tmp-0", 100_000), ("tmp-1", 0), ("tmp-2", 7), ("tmp-17", 1)] {
            fs::write(copy.join(name), vec![0xA5; bytes]).expect("a file");
        }
        filter.backup(&copy).expect("what has no name yet is nobody's");
        assert!(names(&copy, "tmp-").is_empty(), "the leftovers are gone");
        let found = digest(&open(&copy, stream()));
        let before = digest(&filter);
        assert_eq!((found.value, found.inserts), (before.value, before.inserts));
    }
}

#[test]
fn a_backup_is_refused_where_snapshots_or_records_lie_and_leaves_them_alone() {
    let home = directory();
    let filter = Filter::create(home.path().join("f"), kinds()[1].clone(), stream());
    let filter = filter.expect("a filter");
    insert(&filter, 0..300);
    let whole = home.path().join("whole");
    filter.backup(&whole).expect("a backup");
    // They may be all that is left of a filter that lost its `meta`.
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
    // Nothing has happened to the filter, nor to its lock.
    insert(&filter, 300..400);
    filter.backup(home.path().join("another")).expect("a backup");
}
