//! Directories that are not filters, and directories that cannot be written.

use super::states::{End, build, kinds, options, place};
use ebbtide::{Any, Error, Filter, inspect};
use ebbtide_testkit::mount::{run, unmount};
use ebbtide_testkit::skipped::skipped;
use std::fs;
use std::path::Path;

fn open(home: &Path) -> Result<Filter<Any>, Error> {
    Filter::open(home, options())
}

#[test]
fn a_directory_that_is_not_a_filter_is_refused_and_not_changed() {
    let place = place();
    let (missing, empty) = (place.path().join("missing"), place.path().join("empty"));
    let (file, foreign) = (place.path().join("file"), place.path().join("foreign"));
    fs::create_dir(&empty).expect("a new directory");
    fs::create_dir(&foreign).expect("a new directory");
    fs::write(&file, "text").expect("a file");
    fs::write(foreign.join("thesis.txt"), "text").expect("a file");
    for (home, found) in [
        (&missing, "nothing"),
        (&empty, "an empty directory"),
        (&file, "a file that is not a directory"),
        (&foreign, "a directory without one"),
    ] {
        let error = open(home).expect_err("there is no filter");
        let text = error.to_string();
        assert!(matches!(error, Error::NotAFilter { .. }), "{text}");
        assert!(text.contains(found) && text.contains(&*home.to_string_lossy()), "{text}");
        inspect::verify(home).expect_err("there is nothing to verify");
        inspect::wal(home, |_| Ok(())).expect_err("there is no log");
        let target = place.path().join("restored");
        inspect::restore(home, &target).expect_err("there is nothing to restore");
        assert!(!target.exists(), "a filter was created from {}", home.display());
    }
    assert!(!missing.exists(), "inspection created a directory");
    assert_eq!(fs::read_dir(&empty).expect("a directory").count(), 0);
    assert_eq!(fs::read_dir(&foreign).expect("a directory").count(), 1);
}

#[test]
fn a_filter_is_not_created_in_the_place_of_a_file_but_beside_foreign_files() {
    let place = place();
    let file = place.path().join("file");
    fs::write(&file, "text").expect("a file");
    for home in [file.clone(), file.join("below")] {
        let error = Filter::create(&home, kinds()[0].clone(), options()).expect_err("a file");
        assert!(error.to_string().contains(&*home.to_string_lossy()), "{error}");
    }
    assert_eq!(fs::read(&file).expect("a file"), b"text");
    let foreign = place.path().join("foreign");
    fs::create_dir(&foreign).expect("a new directory");
    fs::write(foreign.join("thesis.txt"), "text").expect("a file");
    let filter = Filter::create(&foreign, kinds()[0].clone(), options()).expect("room for both");
    filter.insert("key").expect("an insert");
    filter.close().expect("a clean end");
    assert_eq!(fs::read(foreign.join("thesis.txt")).expect("a file"), b"text");
    let filter = open(&foreign).expect("the same filter");
    assert!(filter.contains("key").expect("an answer"));
}

#[test]
fn a_filter_is_not_created_over_another() {
    let place = place();
    let home = place.path().join("filter");
    let state = build(&kinds()[0], End::Killed);
    state.lay(&home);
    let error = Filter::create(&home, kinds()[0].clone(), options()).expect_err("a filter exists");
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    let filter = open(&home).expect("it is still there");
    assert_eq!(filter.digest().expect("a digest").value, state.digest.value);
    let error = Filter::create(&home, kinds()[0].clone(), options()).expect_err("it is open");
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    let second = open(&home).expect("several handles may have it open");
    assert_eq!(second.digest().expect("a digest").value, state.digest.value);
}

#[test]
fn a_path_that_is_too_long_is_an_error() {
    let place = place();
    for home in [place.path().join("x".repeat(300)), place.path().join("y/".repeat(3000))] {
        for error in [
            open(&home).expect_err("too long"),
            Filter::create(&home, kinds()[0].clone(), options()).expect_err("too long"),
            Filter::open_or_create(&home, kinds()[0].clone(), options()).expect_err("too long"),
            inspect::verify(&home).expect_err("too long"),
        ] {
            assert!(matches!(error, Error::Io { .. }), "{error}");
        }
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_and_can_be_verified() {
    let state = build(&kinds()[0], End::Killed);
    let place = place();
    let home = place.path().join("filter");
    state.lay(&home);
    let path = home.to_string_lossy().into_owned();
    if !run("mount", &["--bind", &path, &path]) {
        skipped("mounting needs to be root in the initial namespace");
        return;
    }
    let read_only = run("mount", &["-o", "remount,ro,bind", &path]);
    let outcome = std::panic::catch_unwind(|| {
        assert!(read_only, "remounted");
        let error = open(&home).expect_err("read-only");
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().contains(&path), "{error}");
        let below = home.join("below");
        let error = Filter::create(&below, kinds()[0].clone(), options()).expect_err("read-only");
        assert!(matches!(error, Error::Io { .. }), "{error}");
        let report = inspect::verify(&home).expect("reading is enough to verify");
        assert!(report.is_sound(), "{report:#?}");
        let mut records = 0;
        let count = |_: &inspect::Entry| {
            records += 1;
            Ok(())
        };
        inspect::wal(&home, count).expect("reading is enough to read the log");
        assert!(records > 0);
    });
    assert!(unmount(&path), "unmounted");
    outcome.expect("see above");
    let filter = open(&home).expect("it can be written again");
    assert_eq!(filter.digest().expect("a digest").value, state.digest.value);
}
