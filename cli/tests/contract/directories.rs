//! Where the inputs of `dedup --output` are: bare names, several directories, links. A file belongs
//! to the rotation of an input beside it, however that one is spelled.

use crate::exactly_once::Place;
use crate::support::{Outcome, command, skipped};
use ebbtide::{Any, Filter, Options};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// Runs in the directory of the inputs, with these words behind the options that all runs have.
fn dedup(place: &Place, words: &[&str]) -> Outcome {
    let first = ["dedup", "--last", "1000", "--hash-seed", "7", "--state", "state"];
    let all = [&first[..], &["--output", "out"], words].concat();
    let output = command(&all).current_dir(place.path("")).output().expect("it runs");
    Outcome {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs, and returns the output.
fn reads(place: &Place, words: &[&str]) -> String {
    let outcome = dedup(place, words);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{words:?}");
    output(place)
}

fn refuses(place: &Place, words: &[&str]) -> String {
    let outcome = dedup(place, words);
    assert_eq!(outcome.code, Some(2), "{words:?}: {outcome:?}, output {:?}", output(place));
    outcome.stderr
}

fn output(place: &Place) -> String {
    fs::read_to_string(place.path("out")).unwrap_or_default()
}

fn rename(place: &Place, from: &str, to: &str) {
    fs::rename(place.path(from), place.path(to)).expect("renamed");
}

/// Waits until the clock of the files has advanced: names with dates are ordered by their times.
fn tick() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Returns the inputs that a refusal asks for, in its order.
fn order(sentence: &str) -> Vec<&str> {
    let (_, order) = sentence.split_once("in this order: ").expect(sentence);
    let (order, _) = order.split_once(", or").expect(sentence);
    order.split(' ').collect()
}

/// Returns the ways to name this file from its directory.
fn spellings(place: &Place, name: &str) -> [String; 4] {
    let above = place.path("");
    let above = above.trim_end_matches('/').rsplit('/').next().expect("a name");
    [name.to_owned(), format!("./{name}"), format!("../{above}/{name}"), place.path(name)]
}

/// Another user, whose directory has files that only root may read.
struct Other {
    place: Place,
}

impl Other {
    /// Prints that the test is skipped if it cannot act as another user.
    fn new() -> Option<Self> {
        let user = Self { place: Place::new() };
        user.may_read("", 0o777);
        let copied = fs::copy(env!("CARGO_BIN_EXE_ebbtide"), user.place.path("ebbtide"));
        copied.expect("a copy");
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let probe = || user.command(&["--version"]).output();
        let is_able = is_root && probe().is_ok_and(|output| output.status.success());
        if !is_able {
            skipped("this needs root, setpriv, and a directory that others can access");
        }
        is_able.then_some(user)
    }

    fn may_read(&self, name: &str, mode: u32) {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.place.path(name), mode).expect("a mode");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(self.place.path("ebbtide")).args(words).current_dir(self.place.path(""));
        command
    }

    /// As [`dedup`], by the other user.
    fn dedup(&self, words: &[&str]) -> Outcome {
        let first = ["dedup", "--last", "1000", "--state", "state", "--output", "out"];
        let output = self.command(&[&first[..], words].concat()).output().expect("it runs");
        Outcome {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

#[test]
fn an_unread_part_is_named_however_the_input_is_spelled() {
    for spelling in 0..4 {
        let place = Place::new();
        let log = &*spellings(&place, "h.log")[spelling];
        place.write("h.log", b"one\n");
        reads(&place, &[log]);
        rename(&place, "h.log", "h.log-20261101");
        place.write("h.log-20261102", b"two\n");
        tick();
        place.write("h.log", b"three\n");
        let sentence = refuses(&place, &[log]);
        assert!(sentence.contains("no run has read"), "{sentence}");
        assert!(sentence.contains("h.log-20261102"), "{sentence}");
        assert_eq!(reads(&place, &order(&sentence)), "one\ntwo\nthree\n");

        let place = Place::new();
        let log = &*spellings(&place, "h.log")[spelling];
        place.write("h.log.1", b"one\n");
        place.write("h.log", b"two\n");
        let sentence = refuses(&place, &[log]);
        assert!(sentence.contains("no run has read"), "{sentence}");
        assert_eq!(reads(&place, &order(&sentence)), "one\ntwo\n");
        rename(&place, "h.log", "h.log.3");
        place.write("h.log.2", b"three\n");
        place.write("h.log.1", b"four\n");
        place.write("h.log", b"five\n");
        let sentence = refuses(&place, &[log]);
        assert!(sentence.contains("no run has read"), "{sentence}");
        assert_eq!(reads(&place, &order(&sentence)), "one\ntwo\nthree\nfour\nfive\n");
    }
}

#[test]
fn one_directory_in_two_spellings_is_one_directory() {
    let place = Place::new();
    place.write("a.log", b"one\n");
    place.write("b.log", b"");
    let b = place.path("b.log");
    reads(&place, &["./a.log", &b]);
    rename(&place, "a.log", "a.log-20261101");
    place.write("a.log-20261102", b"two\n");
    place.write("a.log", b"three\n");
    let sentence = refuses(&place, &["a.log", &b]);
    assert!(sentence.contains("no run has read a.log-20261102"), "{sentence}");
}

/// Two directories with an input of the same name each, of which one line was read.
fn two_directories() -> Place {
    let place = Place::new();
    for (directory, line) in [("s1", b"a\n"), ("s2", b"b\n")] {
        fs::create_dir(place.path(directory)).expect("a directory");
        place.write(&format!("{directory}/h.log"), line);
    }
    assert_eq!(reads(&place, &["s1/h.log", "s2/h.log"]), "a\nb\n");
    place
}

#[test]
fn a_part_that_is_gone_is_missed_although_another_directory_has_one_of_its_name() {
    let place = two_directories();
    rename(&place, "s1/h.log", "s1/h.log.1");
    place.write("s1/h.log", b"a2\n");
    rename(&place, "s2/h.log", "s2/h.log.2");
    place.write("s2/h.log", b"d\n");
    let sentence = refuses(&place, &["s1/h.log", "s2/h.log"]);
    assert!(sentence.contains("s2/h.log.1 is not there"), "{sentence}");
}

#[test]
fn two_rotations_in_one_of_two_directories_are_read() {
    let place = two_directories();
    rename(&place, "s2/h.log", "s2/h.log.2");
    place.write("s2/h.log.1", b"c\n");
    place.write("s2/h.log", b"d\n");
    let sentence = refuses(&place, &["s1/h.log", "s2/h.log"]);
    assert!(sentence.contains("no run has read s2/h.log.1"), "{sentence}");
    let all = ["s1/h.log", "s2/h.log.2", "s2/h.log.1", "s2/h.log"];
    assert_eq!(reads(&place, &all), "a\nb\nc\nd\n");
}

#[test]
fn a_log_of_another_directory_ends_no_unfinished_line() {
    let place = two_directories();
    rename(&place, "s1/h.log", "s1/h.log.1");
    place.write("s1/h.log", b"");
    place.append("s1/h.log.1", b"hal");
    // The writer of the first log still has the file that was renamed.
    let outcome = dedup(&place, &["s1/h.log", "s2/h.log"]);
    assert!(outcome.stderr.contains("3 bytes behind byte 2 are left"), "{outcome:?}");
    place.append("s1/h.log.1", b"f\n");
    assert_eq!(reads(&place, &["s1/h.log", "s2/h.log"]), "a\nb\nhalf\n");
}

#[test]
fn parts_in_a_directory_of_their_own_are_read_with_the_log() {
    let place = Place::new();
    fs::create_dir(place.path("old")).expect("a directory");
    place.write("h.log", b"a\n");
    reads(&place, &["h.log"]);
    rename(&place, "h.log", "old/h.log.2");
    place.append("old/h.log.2", b"hal");
    place.write("h.log", b"c\n");
    let sentence = refuses(&place, &["old/h.log.2", "h.log"]);
    assert!(sentence.contains("old/h.log.1 is not there"), "{sentence}");
    place.write("old/h.log.1", b"b\n");
    // The live log is newer than both.
    place.append("h.log", b"d\n");
    let all = ["old/h.log.2", "old/h.log.1", "h.log"];
    assert_eq!(reads(&place, &all), "a\nhal\nb\nc\nd\n");
}

#[test]
fn a_part_in_a_directory_of_its_own_is_not_passed_over() {
    let place = Place::new();
    fs::create_dir(place.path("old")).expect("a directory");
    place.write("h.log", b"one\n");
    reads(&place, &["h.log"]);
    tick();
    rename(&place, "h.log", "old/h.log.2");
    place.write("old/h.log.1", b"two\n");
    tick();
    place.write("h.log", b"three\n");
    let sentence = refuses(&place, &["old/h.log.2", "h.log"]);
    assert!(sentence.contains("no run has read old/h.log.1"), "{sentence}");
    assert_eq!(reads(&place, &order(&sentence)), "one\ntwo\nthree\n");
}

#[test]
fn of_three_rotations_into_another_directory_no_part_is_passed_over() {
    for old in ["old", "../archive"] {
        let place = Place::new();
        let log = "log/h.log";
        let part = |number: u64| format!("log/{old}/h.log.{number}");
        fs::create_dir(place.path("log")).expect("a directory");
        fs::create_dir(place.path(&format!("log/{old}"))).expect("a directory");
        place.write(&part(1), b"one\n");
        place.write(log, b"two\n");
        assert_eq!(reads(&place, &[&part(1), log]), "one\ntwo\n");
        tick();
        rename(&place, &part(1), &part(4));
        rename(&place, log, &part(3));
        place.write(&part(2), b"three\n");
        place.write(&part(1), b"four\n");
        tick();
        place.write(log, b"five\n");
        let sentence = refuses(&place, &[&part(1), log]);
        assert!(sentence.contains("old/h.log.2") || sentence.contains("archive/h.log.2"));
        assert_eq!(reads(&place, &order(&sentence)), "one\ntwo\nthree\nfour\nfive\n");
    }
}

#[test]
fn a_directory_that_cannot_be_listed_is_named() {
    let Some(user) = Other::new() else { return };
    let place = &user.place;
    fs::create_dir(place.path("log")).expect("a directory");
    place.write("log/h.log", b"one\n");
    user.may_read("log/h.log", 0o644);
    user.may_read("log", 0o711);
    let outcome = user.dedup(&["log/h.log"]);
    let is_named = outcome.stderr.contains("cannot list log,");
    assert!(outcome.code == Some(2) && is_named, "{outcome:?}");
    user.may_read("log", 0o755);
    assert_eq!(user.dedup(&["log/h.log"]).code, Some(0));
}

#[test]
fn a_file_of_another_log_that_may_not_be_read_is_no_obstacle() {
    let Some(user) = Other::new() else { return };
    let place = &user.place;
    place.write("app.log", b"one\n");
    user.may_read("app.log", 0o644);
    for name in ["app-audit.log", "app-audit.log.1", "app-audit.log.2.gz"] {
        place.write(name, b"secret\n");
        user.may_read(name, 0o600);
    }
    assert_eq!(user.dedup(&["app.log"]).code, Some(0));
    place.append("app.log", b"two\n");
    fs::copy(place.path("app.log"), place.path("app.log.1")).expect("a copy");
    user.may_read("app.log.1", 0o644);
    place.write("app.log", b"3\n");
    let outcome = user.dedup(&["app.log"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(output(place), "one\ntwo\n3\n");
    // A part of the log is one.
    place.append("app.log", b"four\n");
    rename(place, "app.log.1", "app.log.2");
    fs::copy(place.path("app.log"), place.path("app.log.1")).expect("a copy");
    user.may_read("app.log.1", 0o600);
    place.write("app.log", b"5\n");
    let outcome = user.dedup(&["app.log"]);
    let is_named = outcome.stderr.contains("app.log.1");
    assert!(outcome.code == Some(2) && is_named, "{outcome:?}");
}

#[test]
fn a_part_of_the_log_that_may_not_be_read_is_named_and_may_be_left_out() {
    let Some(user) = Other::new() else { return };
    let place = &user.place;
    place.write("h.log.5.gz", b"secret");
    user.may_read("h.log.5.gz", 0o600);
    tick();
    place.write("h.log", b"one\n");
    user.may_read("h.log", 0o644);
    let outcome = user.dedup(&["h.log"]);
    let is_named = outcome.stderr.contains("--leave-out h.log.5.gz");
    assert!(outcome.code == Some(2) && is_named, "{outcome:?}");
    let outcome = user.dedup(&["--leave-out", "h.log.5.gz", "h.log"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    // It is no obstacle later, also when an input is searched for.
    rename(place, "h.log.5.gz", "h.log.6.gz");
    place.append("h.log", b"two\n");
    assert_eq!(user.dedup(&["h.log"]).code, Some(0));
    fs::copy(place.path("h.log"), place.path("h.log.1")).expect("a copy");
    place.write("h.log", b"3\n");
    let outcome = user.dedup(&["h.log"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(output(place), "one\ntwo\n3\n");
    // Another one is new, and the input that is searched for may be in it.
    rename(place, "h.log.1", "h.log.2");
    place.append("h.log", b"four\n");
    place.write("h.log.1", &place.read("h.log"));
    user.may_read("h.log.1", 0o600);
    place.write("h.log", b"5\n");
    let outcome = user.dedup(&["h.log"]);
    let is_named = outcome.stderr.contains("--leave-out h.log.1");
    assert!(outcome.code == Some(2) && is_named, "{outcome:?}");
    let outcome = user.dedup(&["--leave-out", "h.log.1", "--accept-missing", "h.log"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(output(place), "one\ntwo\n3\n5\n");
}

#[test]
fn a_part_that_may_be_a_log_that_was_empty_and_may_not_be_read_is_named() {
    let Some(user) = Other::new() else { return };
    let place = &user.place;
    place.write("h.log.1", b"one\n");
    place.write("h.log", b"");
    for name in ["h.log.1", "h.log"] {
        user.may_read(name, 0o644);
    }
    let outcome = user.dedup(&["h.log.1", "h.log"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    rename(place, "h.log.1", "h.log.2");
    place.write("h.log.1", b"two\n");
    user.may_read("h.log.1", 0o600);
    // The log was copied and truncated; the log is another file.
    for is_renamed in [false, true] {
        if is_renamed {
            place.write("next", b"three\n");
            user.may_read("next", 0o644);
            rename(place, "next", "h.log");
        }
        let outcome = user.dedup(&["h.log"]);
        let is_named = outcome.stderr.contains("--leave-out h.log.1");
        assert!(outcome.code == Some(2) && is_named, "{outcome:?}");
    }
    // The permission is the other remedy.
    user.may_read("h.log.1", 0o644);
    let outcome = user.dedup(&["h.log"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(output(place), "one\ntwo\nthree\n");
}

#[test]
fn a_link_to_the_newest_of_a_series_passes_over_no_part() {
    let place = Place::new();
    place.write("app-1.log", b"one\n");
    symlink("app-1.log", place.path("current.log")).expect("a link");
    reads(&place, &["current.log"]);
    place.append("app-1.log", b"more of one\n");
    tick();
    place.write("app-2.log", b"two\n");
    tick();
    place.write("app-3.log", b"three\n");
    fs::remove_file(place.path("current.log")).expect("removed");
    symlink("app-3.log", place.path("current.log")).expect("a link");
    let sentence = refuses(&place, &["current.log"]);
    assert!(sentence.contains("no run has read") && sentence.contains("app-2.log"), "{sentence}");
    assert_eq!(reads(&place, &order(&sentence)), "one\nmore of one\ntwo\nthree\n");
    place.append("app-3.log", b"four\n");
    assert_eq!(reads(&place, &["current.log"]), "one\nmore of one\ntwo\nthree\nfour\n");
}

#[test]
fn a_link_into_another_directory_is_followed_through_rotations_there() {
    let place = Place::new();
    fs::create_dir(place.path("pods")).expect("a directory");
    place.write("pods/0.log", b"one\n");
    symlink("pods/0.log", place.path("c.log")).expect("a link");
    reads(&place, &["c.log"]);
    place.append("pods/0.log", b"two\n");
    rename(&place, "pods/0.log", "pods/0.log.20261128-100000");
    place.write("pods/0.log", b"three\n");
    assert_eq!(reads(&place, &["c.log"]), "one\ntwo\nthree\n");
    rename(&place, "pods/0.log", "pods/0.log.20261128-110000");
    place.write("pods/0.log.20261128-120000", b"four\n");
    place.write("pods/0.log", b"five\n");
    let sentence = refuses(&place, &["c.log"]);
    assert!(sentence.contains("pods/0.log.20261128-120000"), "{sentence}");
}

#[test]
fn the_words_that_a_refusal_says_are_those_of_the_files_whatever_their_names_are() {
    for name in [&b"-h.log"[..], b"h\n'\\.log", b"h \xff.log", "h\u{202e}\u{1b}[1m.log".as_bytes()]
    {
        let place = Place::new();
        let file = |ending: &str| OsString::from_vec([name, ending.as_bytes()].concat());
        for (ending, line) in [(".1", "one\n"), ("", "two\n")] {
            fs::write(Path::new(&place.path("")).join(file(ending)), line).expect("space");
        }
        let run = |words: &str| {
            let dedup = "dedup --last 100 --state state --output out";
            let script = format!("{} {dedup} {words}", env!("CARGO_BIN_EXE_ebbtide"));
            let mut shell = Command::new("bash");
            shell.args(["-c", &script, "bash"]).arg(file("")).current_dir(place.path(""));
            let output = shell.output().expect("bash runs");
            (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
        };
        let (code, said) = run("-- \"$1\"");
        assert_eq!(code, Some(2), "{said}");
        let words = said.split_once("in this order: ").and_then(|(_, of)| of.split_once(", or"));
        let (words, _) = words.expect(&said);
        assert_eq!(run(words), (Some(0), String::new()), "{words}");
        assert_eq!(output(&place), "one\ntwo\n");
    }
}

/// Returns what earlier versions have recorded as the identity of a file.
fn identity_of_former_versions(file: &fs::Metadata) -> u64 {
    let born = file.created().expect("a time").duration_since(UNIX_EPOCH).expect("after 1970");
    let born = u64::try_from(born.as_nanos()).expect("before 2554");
    [file.dev(), file.ino(), born].into_iter().fold(0, |hash: u64, word| {
        let hash = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    })
}

#[test]
fn a_short_log_is_found_when_its_device_has_another_number_and_in_states_of_former_versions() {
    for is_former in [false, true] {
        let place = Place::new();
        place.write("h.log", b"one\n");
        let file = fs::metadata(place.path("h.log")).expect("a file");
        if file.created().is_err() {
            skipped("files have no time of creation here");
            return;
        }
        reads(&place, &["h.log"]);
        let filter = Filter::<Any>::open(place.path("state"), Options::new()).expect("the state");
        let source = u64::MAX - 6;
        let recorded = filter.position(source).expect("positions").expect("an input");
        // The upper 16 bits are of the device.
        let other = recorded ^ 0xabcd << 48;
        let identity = if is_former { identity_of_former_versions(&file) } else { other };
        let mut batch = filter.batch();
        batch.set_position(source, identity).expect("a position");
        batch.commit().expect("space");
        filter.close().expect("closed");
        place.append("h.log", b"two\n");
        assert_eq!(reads(&place, &["h.log"]), "one\ntwo\n");
        let filter = Filter::<Any>::open(place.path("state"), Options::new()).expect("the state");
        assert_eq!(filter.position(source).expect("positions"), Some(recorded));
    }
}
