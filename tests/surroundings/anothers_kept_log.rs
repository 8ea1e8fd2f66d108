//! The kept log of a filter in a directory that was another one's.

use ebbtide::media::Disk;
use ebbtide::{AgePartitioned, Clock, Durability, Error, Filter, Keep, Options};
use ebbtide_testkit::failing::Failing;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

type Seen = Filter<AgePartitioned>;

fn options() -> Options {
    let options = Options::new().segment_bytes(4 << 10).stripes(4).clock(Clock::stream());
    options.durability(Durability::Never).background(false)
}

fn spec() -> AgePartitioned {
    AgePartitioned::last(10_000).fpr(1e-9)
}

fn insert(filter: &Seen, keys: Range<u64>) {
    for key in keys {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
}

/// Returns the names of the files that are only kept.
fn kept(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("kept-")).collect()
}

#[test]
fn the_kept_log_of_another_filter_is_not_removed_for_space_by_an_old_handle() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let mut has_failed = false;
    for call in 0.. {
        let media = Failing::new(Disk::new(&dir));
        let old: Seen =
            Filter::create_on(Arc::new(media.clone()), spec(), options()).expect("a filter");
        insert(&old, 0..700);
        for entry in fs::read_dir(&dir).expect("a directory") {
            fs::remove_file(entry.expect("an entry").path()).expect("removed");
        }
        let keeps = options().keep_log(Keep::Bytes(1 << 30));
        let filter: Seen = Filter::create(&dir, spec(), keeps).expect("a filter");
        for round in 0..3 {
            insert(&filter, round * 400..(round + 1) * 400);
            filter.checkpoint().expect("a snapshot");
        }
        let before = kept(&dir);
        assert!(before.len() > 2, "{before:?}");
        media.fail_after(call, ErrorKind::StorageFull);
        let error = old.checkpoint().expect_err("another filter is there");
        let is_over = media.clear_faults();
        assert!(matches!(error, Error::Retired { replaced: true, .. }) || !is_over, "{error}");
        assert_eq!(kept(&dir), before, "call {call}");
        drop((old, filter));
        fs::remove_dir_all(&dir).expect("removed");
        if is_over {
            assert!(has_failed, "no call failed");
            return;
        }
        has_failed = true;
    }
}
