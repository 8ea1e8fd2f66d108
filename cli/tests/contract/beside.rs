//! Concurrent commands on one filter: beside a daemon, beside each other, and when one of them is
//! stopped or killed.

use crate::support::{Place, Talk, command, input, ok, refused, run, signal};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::thread;

/// Starts a daemon that keeps the filter open and reads a pipe. It has answered each key before it
/// receives the next.
fn daemon(state: &str) -> Talk {
    Talk::new(&["dedup", "--last", "100000", "--hash-seed", "7", "--state", state])
}

/// Creates a directory with a filter that a daemon has open, and inserts these keys.
fn beside_a_daemon(keys: &[&str]) -> (Place, String, Talk) {
    let place = Place::new();
    let state = place.at("state");
    let mut daemon = daemon(&state);
    for key in keys {
        assert_eq!(daemon.ask(key), *key);
    }
    (place, state, daemon)
}

fn stat(dir: &str) -> Value {
    ok(&["stat", dir, "--json"], b"").json().remove(0)
}

fn digest(dir: &str) -> Value {
    ok(&["digest", dir, "--json"], b"").json().remove(0)
}

fn contains(dir: &str, keys: &[u8]) -> String {
    ok(&["contains", dir], keys).text().replace('\n', "")
}

#[test]
fn a_daemon_and_commands_see_each_others_keys() {
    let (_place, state, mut daemon) = beside_a_daemon(&["a", "b"]);
    assert_eq!(contains(&state, b"a\nb\nc\n"), "110");
    assert_eq!(ok(&["check", &state], b"b\nc\n").stdout, b"1\n0\n");
    ok(&["insert", &state], b"d\n");
    // Neither `c` nor `d` is new to the daemon: the next line that it prints is another.
    daemon.say("c\nd\n");
    assert_eq!(daemon.ask("e"), "e");
    assert_eq!(contains(&state, b"d\ne\nf\n"), "110");
    daemon.end();
    assert_eq!(contains(&state, b"a\nb\nc\nd\ne\nf\n"), "111110");
}

#[test]
fn an_age_beside_a_daemon_counts_the_inserts_of_all() {
    let (_place, state, mut daemon) = beside_a_daemon(&["old"]);
    let filler: Vec<_> = (0..20_000).map(|number| format!("filler {number}")).collect();
    ok(&["insert", &state], &input(&filler));
    let ages = ok(&["age", &state], b"old\nabsent\n");
    let ages: Vec<_> = ages.text().lines().collect();
    // A lower bound, within a few generations of 100,000 / 52 inserts.
    let age: u64 = ages[0].parse().expect("an age");
    assert!((10_000..=20_001).contains(&age), "{age}");
    assert_eq!(ages[1], "-");
    assert_eq!(daemon.ask("new"), "new");
    daemon.end();
}

#[test]
fn stat_counts_the_live_handles_without_its_own() {
    let (_place, state, first) = beside_a_daemon(&["a"]);
    assert_eq!(stat(&state)["handles"], 1);
    let mut others: Vec<_> = (0..4).map(|_| Talk::new(&["check", &state])).collect();
    for other in &mut others {
        // It has answered, so it has the filter open.
        assert_eq!(other.ask("a"), "1");
    }
    assert_eq!(stat(&state)["handles"], 5);
    let text = ok(&["stat", &state], b"").text().to_owned();
    let is_handles = |line: &str| line.starts_with("handles ") && line.ends_with(" 5");
    assert!(text.lines().any(is_handles), "{text}");
    others.pop().expect("one").kill();
    others.pop().expect("one").end();
    assert_eq!(stat(&state)["handles"], 3);
    others.into_iter().for_each(Talk::end);
    first.end();
    let stat = stat(&state);
    assert_eq!(stat["handles"], 0);
    assert_eq!(stat["inserts"], 5);
}

#[test]
fn the_digest_beside_a_daemon_equals_the_digest_after_all_have_closed() {
    let (_place, state, mut daemon) = beside_a_daemon(&["a", "b"]);
    ok(&["insert", &state], b"c\nd\n");
    assert_eq!(daemon.ask("e"), "e");
    let beside = digest(&state);
    assert_eq!(beside["inserts"], 5);
    // The LSN may have advanced: syncs are recorded in the log, too.
    assert_eq!(digest(&state)["digest"], beside["digest"]);
    daemon.end();
    assert_eq!(digest(&state)["digest"], beside["digest"]);
}

#[test]
fn the_files_can_be_inspected_beside_a_daemon() {
    let (_place, state, mut daemon) = beside_a_daemon(&["a", "b"]);
    ok(&["insert", &state], b"c\n");
    let inserts = || {
        let entries = ok(&["wal", &state, "--json"], b"").json();
        let lsns: Vec<_> = entries.iter().map(|entry| entry["lsn"].as_u64()).collect();
        assert!(lsns.is_sorted_by(|left, right| left < right), "{lsns:?}");
        entries.iter().filter(|entry| entry["operation"] == "insert").count()
    };
    let verify = || {
        let text = ok(&["verify", &state], b"").text().to_owned();
        assert!(text.contains("sound") && !text.contains("DAMAGED"), "{text}");
        text
    };
    assert_eq!(inserts(), 3);
    assert!(verify().contains("3 inserts"), "{}", verify());
    assert_eq!(daemon.ask("d"), "d");
    assert_eq!(inserts(), 4);
    assert!(verify().contains("4 inserts"), "{}", verify());
    // Snapshots, and the log removal that follows them, do not affect the daemon.
    for key in ["e", "f", "g"] {
        assert!(ok(&["snapshot", &state], b"").text().contains("LSN"));
        assert_eq!(daemon.ask(key), key);
        assert!(verify().contains("inserts"));
    }
    assert_eq!(contains(&state, b"a\nb\nc\nd\ne\nf\ng\nh\n"), "11111110");
    daemon.end();
    verify();
}

#[test]
fn a_filter_can_be_verified_while_it_is_written() {
    let place = Place::new();
    let state = place.at("state");
    let keys: Vec<_> = (0..300_000).map(|number| format!("key {number}")).collect();
    let file = place.file("keys", &input(&keys));
    let dedup = ["dedup", "--last", "100000", "--state", &state, "--batch", "64", &file];
    let mut child = command(&dedup).stdin(Stdio::null()).spawn().expect("start");
    let mut printed = BufReader::new(child.stdout.take().expect("stdout")).lines();
    printed.next().expect("a line").expect("UTF-8");
    let reader = thread::spawn(move || printed.count());
    let mut rounds = 0;
    while child.try_wait().expect("wait").is_none() || rounds == 0 {
        for arguments in [&["verify", &state][..], &["wal", &state], &["digest", &state]] {
            ok(arguments, b"");
        }
        rounds += 1;
    }
    assert!(child.wait().expect("wait").success());
    assert!(reader.join().expect("reader") > 290_000);
    assert_eq!(stat(&state)["inserts"], 300_000);
}

#[test]
fn a_backup_beside_a_daemon_holds_what_was_answered_and_nothing_later() {
    let (place, state, mut daemon) = beside_a_daemon(&["a", "b"]);
    let (copy, again) = (place.at("copy"), place.at("again"));
    let before = digest(&state);
    ok(&["backup", &state, &copy], b"");
    assert_eq!(daemon.ask("later"), "later");
    assert_eq!(digest(&copy)["digest"], before["digest"]);
    assert_eq!(contains(&copy, b"a\nb\nlater\n"), "110");
    ok(&["restore", &copy, &again], b"");
    assert_eq!(digest(&again)["digest"], before["digest"]);
    daemon.end();
}

#[test]
fn restore_and_create_refuse_a_filter_in_use() {
    let (place, state, mut daemon) = beside_a_daemon(&["a"]);
    let copy = place.at("copy");
    let sentence = refused(&["restore", &state, &copy], b"");
    assert!(sentence.contains(&state) && sentence.contains("open"), "{sentence}");
    assert!(!Path::new(&copy).join("meta").exists());
    ok(&["backup", &state, &copy], b"");
    assert!(refused(&["restore", &copy, &state], b"").contains("already holds a filter"));
    let create = ["create", &state, "--kind", "bloom", "--capacity", "10", "--fpr", "0.1"];
    assert!(refused(&create, b"").contains("already holds a filter"));
    assert!(refused(&["dedup", "--last", "5", "--state", &state], b"").contains(&state));
    // The refused commands have changed nothing.
    daemon.say("a\n");
    assert_eq!(daemon.ask("b"), "b");
    daemon.end();
    assert_eq!(stat(&state)["inserts"], 3);
    ok(&["restore", &state, &place.at("rested")], b"");
}

#[test]
fn every_kind_is_shared_with_a_command_that_reads_a_pipe() {
    let kinds: [&[&str]; 3] = [
        &["--kind", "bloom", "--capacity", "1000", "--fpr", "0.001"],
        &["--kind", "age-partitioned", "--window-items", "1000", "--fpr", "0.001"],
        &["--kind", "time-limited", "--window", "1h", "--fpr", "0.001"],
    ];
    for kind in kinds {
        for durability in ["always", "never", "1s"] {
            let place = Place::new();
            let dir = place.at("filter");
            ok(&[&["create", &dir, "--hash-seed", "7"], kind].concat(), b"");
            let check = ["check", &dir, "--durability", durability];
            let mut both = [Talk::new(&check), Talk::new(&check)];
            for number in 0..40 {
                // The second process must see the insert of the first.
                let key = format!("key {number}");
                let (first, second) = (number % 2, (number + 1) % 2);
                assert_eq!(both[first].ask(&key), "0", "{kind:?} {durability}");
                assert_eq!(both[second].ask(&key), "1", "{kind:?} {durability}");
            }
            assert_eq!(contains(&dir, b"key 0\nkey 39\nkey 40\n"), "110", "{kind:?}");
            both.into_iter().for_each(Talk::end);
            assert_eq!(stat(&dir)["inserts"], 80);
        }
    }
}

#[test]
fn two_dedups_on_one_state_print_each_line_once() {
    let place = Place::new();
    let state = place.at("state");
    // No false positives are expected: 30,000 times 1e-9. Both commands start before the filter
    // exists.
    let dedup = ["dedup", "--last", "100000", "--fpr", "1e-9", "--state", &state, "--batch", "16"];
    let mut both = [Talk::new(&dedup), Talk::new(&dedup)];
    let mut printed = Vec::new();
    for (number, talk) in both.iter_mut().enumerate() {
        printed.push(talk.ask(&format!("hello {number}")) + "\n");
    }
    assert_eq!(stat(&state)["handles"], 2);
    let mut keys: Vec<_> = (0..30_000).map(|number| format!("key {number}\n")).collect();
    let forwards = keys.concat();
    keys.reverse();
    let backwards = keys.concat();
    thread::scope(|scope| {
        for (talk, lines) in both.iter_mut().zip([&forwards, &backwards]) {
            scope.spawn(|| talk.say(lines));
        }
    });
    printed.extend(both.into_iter().flat_map(Talk::finish));
    keys.extend(["hello 0\n".to_owned(), "hello 1\n".to_owned()]);
    keys.sort_unstable();
    printed.sort_unstable();
    assert_eq!(printed.len(), keys.len());
    assert!(printed == keys);
    assert_eq!(stat(&state)["inserts"], 60_002);
}

#[test]
fn a_stopped_idle_daemon_does_not_block_other_commands() {
    let (_place, state, mut daemon) = beside_a_daemon(&["a"]);
    signal(&daemon.child, "STOP");
    assert_eq!(ok(&["check", &state], b"a\nb\n").stdout, b"1\n0\n");
    ok(&["snapshot", &state], b"");
    assert_eq!(digest(&state)["inserts"], 3);
    assert_eq!(stat(&state)["handles"], 1);
    signal(&daemon.child, "CONT");
    daemon.say("b\n");
    assert_eq!(daemon.ask("c"), "c");
    daemon.end();
}

#[test]
fn when_a_daemon_is_killed_at_work_the_others_continue() {
    for wanted in [1, 700, 5_000, 20_000] {
        let place = Place::new();
        let state = place.at("state");
        let dedup = ["dedup", "--last", "100000", "--fpr", "1e-6", "--state", &state];
        ok(&dedup, b"first\n");
        let mut witness = Talk::new(&["check", &state]);
        assert_eq!(witness.ask("first"), "1");
        let keys: Vec<_> = (0..60_000).map(|number| format!("key {number}")).collect();
        let file = place.file("keys", &input(&keys));
        let arguments = [&dedup[..], &["--batch", "64", &file]].concat();
        let mut daemon = command(&arguments).stdin(Stdio::null()).spawn().expect("start");
        let mut stdout = BufReader::new(daemon.stdout.take().expect("stdout"));
        let mut heard = Vec::new();
        for _ in 0..wanted {
            stdout.read_until(b'\n', &mut heard).expect("read");
        }
        daemon.kill().expect("kill");
        daemon.wait().expect("wait");
        // Every printed line is in the filter, both for a handle that was open all the time and for
        // a later one.
        let text = String::from_utf8(heard).expect("UTF-8");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), wanted);
        for line in lines.iter().step_by(wanted / 50 + 1) {
            assert_eq!(witness.ask(line), "1", "{line}");
        }
        assert_eq!(witness.ask("second"), "0");
        assert!(!contains(&state, text.as_bytes()).contains('0'));
        assert_eq!(stat(&state)["handles"], 1);
        assert_eq!(run(&["verify", &state], b"").code, Some(0));
        assert_eq!(ok(&dedup, text.as_bytes()).stdout, b"");
        let beside = digest(&state);
        witness.end();
        assert_eq!(digest(&state)["digest"], beside["digest"]);
        assert_eq!(contains(&state, b"first\nsecond\n"), "11");
    }
}
