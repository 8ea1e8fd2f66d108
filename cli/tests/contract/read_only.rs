//! Users who may read a filter's files but not write them: lookups work, nothing is changed.

use crate::support::{Outcome, Place, Talk, ok, skipped};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// The user id of `nobody`, on every distribution.
const OTHER: &str = "65534";

/// Another user, with a copy of the command and a filter of ours that this user may read.
struct Other {
    place: Place,
    state: String,
}

impl Other {
    /// Prints that the test is skipped if it cannot act as another user.
    fn new() -> Option<Self> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if !is_root {
            skipped("only root can act as another user");
            return None;
        }
        let place = Place::new();
        // The other user may have no access to the build directory.
        fs::copy(env!("CARGO_BIN_EXE_ebbtide"), place.at("ebbtide")).expect("a copy");
        let state = place.at("state");
        let other = Self { place, state };
        allow_reading(&other.place.at("."));
        let probe = other.command(&["--version"]).stdin(Stdio::null()).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            skipped("setpriv is not there, or the other user cannot access the command");
            return None;
        }
        Some(other)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={OTHER}")).arg(format!("--regid={OTHER}"));
        command.args(["--clear-groups", "--", &self.place.at("ebbtide")]).args(arguments);
        command
    }

    /// Runs the command as the other user, with keys from a file.
    fn run(&self, arguments: &[&str]) -> Outcome {
        allow_reading(&self.state);
        let output = self.command(arguments).stdin(Stdio::null()).output().expect("run");
        Outcome {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn ok(&self, arguments: &[&str]) -> Outcome {
        let outcome = self.run(arguments);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        outcome
    }

    /// Creates a file of keys that the other user may read.
    fn keys(&self, lines: &str) -> String {
        let path = self.place.file("keys", lines.as_bytes());
        allow_reading(&path);
        path
    }

    /// Starts a daemon that has the filter open and has inserted `a` and `b`.
    fn daemon(&self) -> Talk {
        let dedup = ["dedup", "--last", "1000", "--hash-seed", "7", "--state", &self.state];
        let mut daemon = Talk::new(&dedup);
        for key in ["a", "b"] {
            assert_eq!(daemon.ask(key), key);
        }
        daemon
    }

    /// Runs all lookups and inspections on a filter that contains `a` and `b`.
    fn asks_everything(&self) -> Value {
        let (state, keys) = (self.state.as_str(), self.keys("a\nabsent\nb\n"));
        assert_eq!(self.ok(&["contains", state, &keys]).stdout, b"1\n0\n1\n");
        let ages = self.ok(&["age", state, &keys]);
        let ages: Vec<_> = ages.text().lines().collect();
        assert!(ages[0].parse::<u64>().is_ok_and(|age| age <= 2), "{ages:?}");
        assert_eq!(ages[1], "-");
        let stat = self.ok(&["stat", state, "--json"]).json().remove(0);
        assert_eq!((&stat["inserts"], &stat["kind"]), (&2.into(), &"fingerprint".into()));
        assert!(self.ok(&["stat", state]).text().starts_with("kind "));
        let text = self.ok(&["verify", state]).text().to_owned();
        assert!(text.contains("sound") && !text.contains("DAMAGED"), "{text}");
        let entries = self.ok(&["wal", state, "--json"]).json();
        let inserts = entries.iter().filter(|entry| entry["operation"] == "insert");
        assert_eq!(inserts.count(), 2);
        let digest = self.ok(&["digest", state, "--json"]).json().remove(0);
        assert_eq!(digest["inserts"], 2);
        digest
    }

    /// Checks that every command that changes the filter is refused.
    fn is_refused_changes(&self) {
        let keys = self.keys("a\nnew\n");
        for arguments in [
            &["insert", &self.state, &keys][..],
            &["check", &self.state, &keys],
            &["dedup", "--state", &self.state, &keys],
            &["snapshot", &self.state],
        ] {
            let outcome = self.run(arguments);
            assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
            assert_eq!(outcome.stdout, b"", "{arguments:?}");
            let sentence = outcome.stderr.trim_end();
            assert!(
                sentence.starts_with("ebbtide: ") && sentence.contains(&self.state),
                "{sentence}"
            );
            assert!(!sentence.contains('\n'), "{sentence}");
        }
    }
}

/// Does the same as `chmod -R a+rX`.
fn allow_reading(path: &str) {
    let done = Command::new("chmod").args(["-R", "a+rX", path]).status();
    assert!(done.expect("chmod runs").success());
}

/// Returns every file of a filter with its bytes.
fn files(dir: &str) -> BTreeMap<String, Vec<u8>> {
    let entries =
        fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    entries.map(|path| (name(&path), fs::read(&path).expect("read"))).collect()
}

#[test]
fn a_reader_beside_a_writer_sees_the_changes_of_the_writer() {
    let Some(other) = Other::new() else { return };
    let mut daemon = other.daemon();
    let digest = other.asks_everything();
    let stat = other.ok(&["stat", &other.state, "--json"]).json().remove(0);
    assert!(stat["handles"].as_u64() >= Some(1), "{stat}");
    other.is_refused_changes();
    assert_eq!(ok(&["digest", &other.state, "--json"], b"").json()[0]["digest"], digest["digest"]);
    // The reader has changed nothing, and sees the next key as well.
    daemon.say("a\nb\n");
    assert_eq!(daemon.ask("c"), "c");
    let keys = other.keys("c\nd\n");
    assert_eq!(other.ok(&["contains", &other.state, &keys]).stdout, b"1\n0\n");
    daemon.end();
}

#[test]
fn a_reader_after_the_last_writer_sees_the_same_and_changes_no_byte() {
    let Some(other) = Other::new() else { return };
    other.daemon().end();
    let before = files(&other.state);
    let digest = other.asks_everything();
    other.is_refused_changes();
    assert!(files(&other.state) == before, "a reader has changed files");
    assert_eq!(ok(&["digest", &other.state, "--json"], b"").json()[0]["digest"], digest["digest"]);
}

#[test]
fn a_reader_after_a_killed_writer_sees_all_that_was_answered_and_changes_no_byte() {
    let Some(other) = Other::new() else { return };
    other.daemon().kill();
    let before = files(&other.state);
    let digest = other.asks_everything();
    other.is_refused_changes();
    assert!(files(&other.state) == before, "a reader has changed files");
    assert_eq!(ok(&["digest", &other.state, "--json"], b"").json()[0]["digest"], digest["digest"]);
    // A process with write access continues from there.
    let mut daemon = Talk::new(&["dedup", "--state", &other.state]);
    daemon.say("a\nb\n");
    assert_eq!(daemon.ask("c"), "c");
    daemon.end();
}

#[test]
fn users_with_read_access_only_can_compute_posteriors() {
    let Some(other) = Other::new() else { return };
    let state = other.state.as_str();
    let leaky = ["--kind", "bloom", "--capacity", "1000", "--fpr", "0.3", "--hash-seed", "7"];
    ok(&[&["create", state], &leaky[..]].concat(), b"");
    let seen: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    ok(&["insert", state], seen.join("\n").as_bytes());
    allow_reading(state);
    let before = files(state);
    let keys = other.keys("17\nabsent\nnever\n");
    let prior = ["--prior", "uniform:3000", "--json", &keys];
    let penalties = ["--false-positive", "2", "--false-negative", "1"];
    let told = [
        other.ok(&[&["posterior", state, "--ages"], &prior[..]].concat()).stdout,
        other.ok(&[&["decide", state], &prior[..], &penalties[..]].concat()).stdout,
    ];
    assert!(files(state) == before, "a reader has changed files");
    let expected = [
        ok(&[&["posterior", state, "--ages"], &prior[..]].concat(), b"").stdout,
        ok(&[&["decide", state], &prior[..], &penalties[..]].concat(), b"").stdout,
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_damaged_filter_that_may_only_be_read_is_salvaged_without_a_trace() {
    let Some(other) = Other::new() else { return };
    other.daemon().end();
    let mut daemon = Talk::new(&["dedup", "--state", &other.state]);
    assert_eq!(daemon.ask("c"), "c");
    daemon.end();
    let newest = files(&other.state).into_keys().rfind(|name| name.starts_with("snap-"));
    let newest = Path::new(&other.state).join(newest.expect("a snapshot"));
    let mut bytes = fs::read(&newest).expect("read");
    bytes[5000] ^= 1;
    fs::write(&newest, bytes).expect("write");
    // A directory in which the other user may create files.
    let open = other.place.at("open");
    fs::create_dir(&open).expect("a new directory");
    assert!(Command::new("chmod").args(["0777", &open]).status().expect("chmod runs").success());
    let before = files(&other.state);
    let dest = format!("{open}/saved");
    let told = other.ok(&["salvage", &other.state, &dest, "--json"]).json().remove(0);
    assert_eq!((&told["inserts"], &told["lost"]), (&3.into(), &Value::Null));
    assert!(files(&other.state) == before, "salvage has changed files");
    let keys = other.keys("a\nc\nd\n");
    assert_eq!(other.ok(&["contains", &dest, &keys]).stdout, b"1\n1\n0\n");
}

#[test]
fn a_new_filter_in_the_directory_of_another_user_stays_its_makers() {
    let Some(other) = Other::new() else { return };
    let at = |name: &str| other.place.at(name);
    ok(&["create", &other.state, "--last", "100", "--keep-log", "1h"], b"");
    let parent = at("shared");
    let new = format!("{parent}/new");
    fs::create_dir_all(&new).expect("a directory");
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    mode(&parent, 0o777);
    mode(&new, 0o775);
    other.ok(&["alter", &other.state, &new, "--last", "200"]);
    let made = fs::metadata(&new).expect("a directory");
    assert_eq!(made.uid().to_string(), OTHER);
    assert_eq!(made.mode() & 0o7777, 0o705, "it is for no other group");
    assert_eq!(fs::read_dir(&parent).expect("a directory").count(), 1, "nothing is left");
}
