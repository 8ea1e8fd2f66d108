//! Targets of backups: the files that an interrupted attempt may leave there, and the files that a
//! backup must not touch.

use super::{change, damage, digest, directory, insert, kinds, names, open, stream};
use ebbtide::{Bloom, Error, Filter, Options, inspect};
use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn a_backup_is_refused_where_only_the_second_copies_of_another_are_left_and_changes_nothing() {
    for (keys, is_copied) in [(0..300, false), (0..300, true), (0..0, false)] {
        let home = directory();
        let filter = Filter::create(home.path().join("f"), kinds()[1].clone(), stream());
        let filter = filter.expect("a filter");
        insert(&filter, keys.clone());
        let expected = digest(&filter).value;
        let backup = home.path().join("backup");
        filter.backup(&backup).expect("a backup");
        let firsts = ["meta", "snap-", "wal-"].map(|prefix| names(&backup, prefix).remove(0));
        firsts.iter().for_each(|name| fs::remove_file(backup.join(name)).expect("it is there"));
        if is_copied {
            fs::remove_file(backup.join("lock")).expect("it is there");
        }
        let left = names(&backup, "second-");
        for _ in 0..2 {
            let error = filter.backup(&backup).expect_err("the only copy of a filter");
            let text = error.to_string();
            assert!(matches!(error, Error::Damaged { .. }), "{text}");
            assert!(text.contains("second-meta") && text.contains("`ebbtide restore`"), "{text}");
            assert_eq!(names(&backup, "second-"), left);
        }
        let restored = home.path().join("restored");
        inspect::restore(&backup, &restored).expect("the second copy is whole");
        assert_eq!(digest(&open(&restored, stream())).value, expected);
        // A filter that is there is reported as before.
        let whole = home.path().join("whole");
        filter.backup(&whole).expect("a backup");
        let error = filter.backup(&whole).expect_err("there is one");
        assert!(matches!(error, Error::Exists { .. }), "{error}");
        // What `meta` does not accompany is no copy.
        fs::remove_file(backup.join("second-meta")).expect("it is there");
        filter.backup(&backup).expect("leftovers of an attempt");
        assert!(inspect::verify(&backup).expect("a report").is_sound());
    }
}

/// Returns offsets of every part of a file of this length: its header, frames or lines, and end.
fn offsets(bytes: u64) -> Vec<u64> {
    let spread = (0..6).map(|part| bytes * part / 6);
    let parts = [0, 9, 17, 70, 95, 4096, 4103, 4120, 4136, 4144, 4150, bytes - 1];
    let mut all: Vec<_> = parts.into_iter().chain(spread).filter(|&at| at < bytes).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn a_backup_with_one_wrong_byte_in_any_file_is_restored_in_full() {
    let home = directory();
    let filter = Filter::create(home.path().join("f"), kinds()[1].clone(), stream());
    let filter = filter.expect("a filter");
    insert(&filter, 0..300);
    let (backup, restored) = (home.path().join("backup"), home.path().join("restored"));
    filter.backup(&backup).expect("a backup");
    let expected = digest(&filter);
    let files: Vec<_> = names(&backup, "").into_iter().filter(|name| name != "lock").collect();
    assert_eq!(files.len(), 6, "each of three files twice: {files:?}");
    for (at, name) in files.iter().enumerate() {
        let path = backup.join(name);
        for offset in offsets(fs::metadata(&path).expect("a file").len()) {
            let bit = 1 << ((at as u64 + offset) % 8);
            change(&path, offset, |bytes| bytes[0] ^= bit);
            inspect::restore(&backup, &restored).unwrap_or_else(|error| {
                panic!("{name} at {offset}: {error}");
            });
            let found = digest(&open(&restored, stream()));
            assert_eq!(found.value, expected.value, "{name} at {offset}");
            fs::remove_dir_all(&restored).expect("it is there");
            change(&path, offset, |bytes| bytes[0] ^= bit);
        }
        // Nor is a file needed that is missing as a whole, if another says what it was.
        if name == "meta" {
            let bytes = fs::read(&path).expect("a file");
            fs::remove_file(&path).expect("it is there");
            inspect::restore(&backup, &restored).expect("the second copy has one");
            fs::remove_dir_all(&restored).expect("it is there");
            fs::write(&path, bytes).expect("space");
        }
    }
    assert!(inspect::verify(&backup).expect("a report").is_sound());
    change(&backup.join("second-meta"), 3, |bytes| bytes[0] ^= 1);
    assert!(!inspect::verify(&backup).expect("a report").is_sound(), "of both copies");
}

#[test]
fn a_backup_that_was_opened_and_changed_is_never_restored_as_it_was_before() {
    let home = directory();
    let filter = Filter::create(home.path().join("f"), kinds()[1].clone(), stream());
    let filter = filter.expect("a filter");
    insert(&filter, 0..300);
    let backup = home.path().join("backup");
    filter.backup(&backup).expect("a backup");
    let opened = open(&backup, stream());
    insert(&opened, 300..400);
    let later = digest(&opened);
    opened.close().expect("a clean end");
    let restored = home.path().join("restored");
    inspect::restore(&backup, &restored).expect("it is sound");
    assert_eq!(digest(&open(&restored, stream())).value, later.value);
    for name in names(&backup, "snap-") {
        change(&backup.join(name), 4200, |bytes| bytes[0] ^= 1);
    }
    change(&backup.join("meta"), 20, |bytes| bytes[0] ^= 1);
    let again = home.path().join("again");
    let error = inspect::restore(&backup, &again).expect_err("it is damaged");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// Makes a backup of a filter with some keys. Returns its digest.
fn made_backup(home: &Path) -> (PathBuf, u128) {
    let filter = Filter::create(home.join("f"), kinds()[1].clone(), stream()).expect("a filter");
    insert(&filter, 0..300);
    let backup = home.join("backup");
    filter.backup(&backup).expect("a backup");
    (backup, digest(&filter).value)
}

/// Puts something in the place of a file, or nothing.
type Damage = fn(&Path);

const DAMAGES: [(&str, Damage); 4] = [
    ("nothing", |_| {}),
    ("a directory", |path| fs::create_dir(path).expect("space")),
    ("no bytes", |path| fs::write(path, "").expect("space")),
    #[cfg(unix)]
    ("a link", |path| std::os::unix::fs::symlink("/nothing", path).expect("space")),
    #[cfg(not(unix))]
    ("one byte", |path| fs::write(path, "1").expect("space")),
];

#[cfg(unix)]
#[test]
fn a_backup_that_lost_meta_is_restored_with_the_permissions_of_the_group() {
    use std::os::unix::fs::PermissionsExt;
    let home = directory();
    let [dir, backup, restored] = ["dir", "backup", "restored"].map(|name| home.path().join(name));
    let options = Options::new().mode(0o660).background(false);
    let filter = Filter::create(&dir, Bloom::capacity(1000), options).expect("a filter");
    filter.backup(&backup).expect("a backup");
    fs::remove_file(backup.join("meta")).expect("it is there");
    inspect::restore(&backup, &restored).expect("a copy");
    let found = fs::metadata(restored.join("meta")).expect("a file").permissions().mode();
    assert_eq!(found & 0o777, 0o660);
}

#[test]
fn a_backup_that_lost_its_first_files_is_restored_from_the_second_ones() {
    let home = directory();
    let (backup, expected) = made_backup(home.path());
    let restored = home.path().join("restored");
    let saved = home.path().join("saved");
    let all = &["meta", "snap-", "wal-"][..];
    for lost in [&all[..1], &all[1..2], &all[2..], &all[1..], &all[..2], all] {
        let lost: Vec<_> = lost.iter().flat_map(|prefix| names(&backup, prefix)).collect();
        for (what, damage) in DAMAGES {
            for name in &lost {
                fs::rename(backup.join(name), home.path().join(name)).expect("it is there");
                damage(&backup.join(name));
            }
            let context = format!("{what} in the place of {lost:?}");
            let error = inspect::salvage(&backup, &saved).expect_err("there is a better way");
            assert!(error.to_string().contains("`ebbtide restore`"), "{context}: {error}");
            assert!(!saved.exists(), "{context}");
            let report = inspect::verify(&backup).expect("a report");
            // Without `meta` nothing else is read.
            let named = if lost[0] == "meta" { 1 } else { lost.len() };
            for name in &lost[..named] {
                let is_named =
                    report.files.iter().any(|file| file.name == *name && !file.damage.is_empty());
                assert!(is_named, "{context}: {report:?}");
            }
            let second = |name: &str| name.starts_with("second copy: ");
            let mut seconds = report.files.iter().filter(|file| second(&file.name));
            assert!(seconds.all(|file| file.damage.is_empty()), "{context}: {report:?}");
            inspect::restore(&backup, &restored)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(digest(&open(&restored, stream())).value, expected, "{context}");
            fs::remove_dir_all(&restored).expect("it is there");
            for name in &lost {
                let path = backup.join(name);
                let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
                fs::rename(home.path().join(name), path).expect("it was moved");
            }
        }
    }
    assert!(inspect::verify(&backup).expect("a report").is_sound());
}

#[test]
fn a_backup_without_its_second_files_is_restored_but_not_sound() {
    let home = directory();
    let (backup, expected) = made_backup(home.path());
    for prefix in ["second-snap-", "second-wal-"] {
        for name in names(&backup, prefix) {
            fs::remove_file(backup.join(&name)).expect("it is there");
            let report = inspect::verify(&backup).expect("a report");
            let copy = name.replace("second-", "second copy: ");
            let named =
                report.files.iter().find(|file| file.name == copy && !file.damage.is_empty());
            let damage = &named.unwrap_or_else(|| panic!("{name}: {report:?}")).damage[0];
            assert!(damage.to_string().contains(&name), "{damage}");
        }
    }
    let restored = home.path().join("restored");
    inspect::restore(&backup, &restored).expect("the first copy is whole");
    assert_eq!(digest(&open(&restored, stream())).value, expected);
    // Once it is opened for writing, there is nothing to be copied.
    open(&backup, stream()).close().expect("a clean end");
    assert!(inspect::verify(&backup).expect("a report").is_sound());
}

#[test]
fn a_backup_that_was_opened_and_lost_files_since_is_never_restored_as_it_was_before() {
    for prefixes in [&["snap-"][..], &["wal-"], &["snap-", "wal-"], &["meta", "snap-", "wal-"]] {
        let home = directory();
        let (backup, _) = made_backup(home.path());
        let opened = open(&backup, stream());
        insert(&opened, 300..400);
        let later = digest(&opened).value;
        opened.close().expect("a clean end");
        for name in prefixes.iter().flat_map(|prefix| names(&backup, prefix)) {
            fs::remove_file(backup.join(name)).expect("it is there");
        }
        let restored = home.path().join("restored");
        if inspect::restore(&backup, &restored).is_ok() {
            assert_eq!(digest(&open(&restored, stream())).value, later, "{prefixes:?}");
        }
        let report = inspect::verify(&backup);
        let seconds = |report: inspect::Report| {
            report.files.iter().any(|file| file.name.starts_with("second copy"))
        };
        assert!(!report.is_ok_and(seconds), "{prefixes:?}");
    }
}

#[test]
fn damage_in_a_second_copy_is_reported_with_the_name_of_that_file() {
    for prefix in ["second-meta", "second-snap-", "second-wal-"] {
        let home = directory();
        let (backup, _) = made_backup(home.path());
        let name = names(&backup, prefix).remove(0);
        change(&backup.join(&name), 40, |bytes| bytes[0] ^= 1);
        let report = inspect::verify(&backup).expect("a report");
        let mut damage = report.files.iter().flat_map(|file| &file.damage).peekable();
        assert!(damage.peek().is_some(), "{name}: {report:?}");
        for error in damage {
            assert!(error.to_string().contains(&format!("/{name} ")), "{error}");
        }
    }
}
