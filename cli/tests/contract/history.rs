//! `history` prints the operations of the log, and with `--follow` those that come.

use crate::support::{Place, Talk, ok, refused, run, signal, start};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Small segments, so that the log soon has many.
const SEGMENTS: [&str; 2] = ["--segment-bytes", "4KiB"];
const LIMIT: Duration = Duration::from_secs(60);

fn made(place: &Place, options: &[&str]) -> String {
    let dir = place.at("filter");
    ok(&[&["create", &dir, "--hash-seed", "7"], &SEGMENTS[..], options].concat(), b"");
    dir
}

fn keeping(place: &Place) -> String {
    made(place, &["--last", "100000", "--keep-log", "1GiB"])
}

/// Returns keys, one per line.
fn keys(numbers: std::ops::Range<u32>) -> Vec<u8> {
    numbers.flat_map(|number| format!("key {number}\n").into_bytes()).collect()
}

/// Returns the operations, and asserts that each comes once, in order, in its commit.
fn operations(dir: &str, options: &[&str]) -> Vec<Value> {
    let all = ok(&[&["history", dir, "--format", "json"], options].concat(), b"").json();
    assert!(all.is_sorted_by(|one, next| number(one, "lsn") < number(next, "lsn")), "{all:?}");
    assert!(all.iter().all(|one| number(one, "lsn") <= number(one, "commit")), "{all:?}");
    all
}

fn number(operation: &Value, name: &str) -> u64 {
    operation[name].as_u64().expect(name)
}

/// Returns the hashes of the keys of these lines.
fn hashes(lines: &[u8]) -> Vec<Value> {
    let place = Place::new();
    let dir = made(&place, &["--last", "100000", "--keep-log", "1GiB"]);
    ok(&["insert", &dir], lines);
    operations(&dir, &[]).into_iter().map(|operation| operation["hash"].clone()).collect()
}

#[test]
fn the_operations_of_several_runs_come_once_and_in_order() {
    let place = Place::new();
    let dir = keeping(&place);
    for run in 0..5 {
        ok(&["insert", &dir], &keys(run * 300..(run + 1) * 300));
        ok(&["snapshot", &dir], b"");
    }
    let all = operations(&dir, &[]);
    let found: Vec<_> = all.iter().map(|operation| operation["hash"].clone()).collect();
    assert_eq!(found, hashes(&keys(0..1500)));
    for operation in &all {
        assert_eq!((&operation["operation"], number(operation, "weight")), (&"insert".into(), 1));
    }
    let timelines: Vec<_> = all.iter().map(|operation| number(operation, "timeline")).collect();
    assert!(timelines.is_sorted(), "{timelines:?}");
    let text = ok(&["history", &dir], b"");
    let lines = text.text().lines().zip(&all);
    for (line, operation) in lines {
        let words: Vec<_> = line.split_whitespace().collect();
        let hash = operation["hash"].as_str().expect("a hash");
        let [lsn, timeline] = ["lsn", "timeline"].map(|name| number(operation, name).to_string());
        assert_eq!([words[0], words[1], words[3]], [&lsn, &timeline, "insert"], "{line}");
        assert_eq!(words[4..], ["hash", hash, "weight", "1"], "{line}");
    }
    assert_eq!(text.lines().len(), all.len());
}

#[test]
fn after_a_moment_come_the_operations_that_had_not_happened_then() {
    let place = Place::new();
    let dir = keeping(&place);
    ok(&["insert", &dir], &keys(0..300));
    ok(&["insert", &dir], &keys(300..600));
    let all = operations(&dir, &[]);
    for at in [0, 1, 299, 300, 599] {
        let after = format!("lsn:{}", number(&all[at], "lsn"));
        assert_eq!(operations(&dir, &["--after", &after]), all[at + 1..], "{after}");
    }
    assert_eq!(operations(&dir, &["--after", "lsn:0"]), all);
    let sentence = refused(&["history", &dir, "--after", "2100-01-01T00:00:00Z"], b"");
    assert!(sentence.contains("which has not come yet"), "{sentence}");
    assert!(!sentence.contains("--keep-log"), "it has all that there was: {sentence}");
    let sentence = refused(&["history", &dir, "--after", "lsn:1000000"], b"");
    assert!(sentence.contains("the log does not reach lsn:1000000"), "{sentence}");
    assert!(!sentence.contains("--keep-log"), "it has all that there was: {sentence}");
    let sentence = refused(&["history", &dir, "--after", "yesterday"], b"");
    assert!(sentence.contains("lsn:N, position:SOURCE=N, or a time"), "{sentence}");
}

#[test]
fn every_operation_has_its_details_and_those_of_a_batch_are_marked() {
    let place = Place::new();
    let dir = made(&place, &["--kind", "counting", "--capacity", "1000", "--keep-log", "1GiB"]);
    ok(&["insert", &dir, "--weight"], b"a\t3\n");
    ok(&["remove", &dir], b"a\n");
    ok(&["clear", &dir], b"");
    let all = operations(&dir, &[]);
    let names: Vec<_> = all.iter().map(|one| one["operation"].as_str().expect("a name")).collect();
    assert_eq!(names, ["insert", "remove", "clear"]);
    assert_eq!((number(&all[0], "weight"), number(&all[1], "weight")), (3, 1));
    assert_eq!(all[0]["hash"], all[1]["hash"]);

    let place = Place::new();
    let dir = made(&place, &["--window", "1h", "--keep-log", "1GiB"]);
    ok(&["run", "--claim", "job", "--lease", "90s", &dir, "--", "true"], b"");
    let all = operations(&dir, &[]);
    let names: Vec<_> = all.iter().map(|one| one["operation"].as_str().expect("a name")).collect();
    assert_eq!(names, ["claim", "insert", "release"]);
    assert_eq!(number(&all[0], "lease_ms"), 90_000);
    assert_eq!(all[0]["token"], all[2]["token"]);
    assert_eq!(all[1]["commit"], all[2]["lsn"], "confirmed and released at once");
    let text = ok(&["history", &dir], b"");
    let marked: Vec<_> =
        text.text().lines().map(|line| line.ends_with("with the one before")).collect();
    assert_eq!(marked, [false, false, true], "{}", text.text());
    assert!(text.text().lines().next().expect("a line").ends_with("lease 1m 30s"));
    let after = format!("lsn:{}", number(&all[1], "commit"));
    assert_eq!(operations(&dir, &["--after", &after]), [Value::Null; 0]);
}

/// Checks new keys in a process, a key at a time, and kills it if `is_killed`.
fn write(dir: &str, numbers: std::ops::Range<u32>, is_killed: bool) {
    let mut writer = Talk::new(&["check", dir]);
    for number in numbers {
        assert_eq!(writer.ask(&format!("key {number}")), "0");
    }
    if is_killed { writer.kill() } else { writer.end() }
}

#[test]
fn followed_beside_writers_that_are_killed_each_key_comes_once() {
    for options in [&[][..], &["--undurable"]] {
        let place = Place::new();
        let dir = keeping(&place);
        let follow = ["history", &dir, "--follow", "--format", "json"];
        let mut follower = Talk::new(&[&follow[..], options].concat());
        for (writer, is_killed) in [true, true, false, true, false].into_iter().enumerate() {
            let first = 200 * writer as u32;
            write(&dir, first..first + 200, is_killed);
        }
        let heard: Vec<String> = (0..1000).map(|_| follower.hear()).collect();
        signal(&follower.child, "TERM");
        let status = follower.child.wait().expect("wait");
        assert_eq!(status.signal(), Some(15));
        assert_eq!(follower.rest(), "", "{options:?}");
        let heard: Vec<Value> =
            heard.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(heard, operations(&dir, &[]), "{options:?}");
        let found: Vec<_> = heard.iter().map(|operation| operation["hash"].clone()).collect();
        assert_eq!(found, hashes(&keys(0..1000)), "{options:?}");
    }
}

#[test]
fn what_is_not_durable_comes_only_when_asked_for() {
    let place = Place::new();
    let dir = made(&place, &["--last", "1000", "--durability", "never"]);
    let mut writer = Talk::new(&["check", &dir]);
    assert_eq!(writer.ask("a"), "0");
    assert_eq!(operations(&dir, &[]).len(), 0);
    assert_eq!(operations(&dir, &["--undurable"]).len(), 1);
    writer.end();
}

#[test]
fn a_command_that_fell_behind_ends_with_the_reason() {
    let place = Place::new();
    let dir = made(&place, &["--last", "100000"]);
    let mut follower = Talk::new(&["history", &dir, "--follow"]);
    ok(&["insert", &dir], b"first\n");
    assert!(follower.hear().contains("insert"));
    signal(&follower.child, "STOP");
    for run in 0..5 {
        ok(&["insert", &dir], &keys(run * 1000..(run + 1) * 1000));
        ok(&["snapshot", &dir], b"");
    }
    signal(&follower.child, "CONT");
    assert_eq!(follower.child.wait().expect("wait").code(), Some(2));
    let sentence = refused(&["history", &dir, "--after", "lsn:3"], b"");
    assert!(sentence.contains("the log does not reach lsn:3: it has LSN "), "{sentence}");
}

#[test]
fn following_ends_when_its_reader_does() {
    let place = Place::new();
    let dir = keeping(&place);
    let mut follower = start(&["history", &dir, "--follow"]);
    drop(follower.stdout.take());
    let began = Instant::now();
    while follower.try_wait().expect("wait").is_none() {
        assert!(began.elapsed() < LIMIT, "it still runs");
        sleep(Duration::from_millis(5));
    }
    assert_eq!(follower.wait().expect("wait").code(), Some(0));
    assert_eq!(run(&["history", &place.at("nothing"), "--follow"], b"").code, Some(2));
}

#[test]
fn an_amount_of_log_without_a_unit_or_of_zero_is_refused_and_removes_no_past() {
    let place = Place::new();
    let dir = made(&place, &["--last", "100000", "--keep-log", "1h"]);
    ok(&["insert", &dir], b"a\n");
    let new = place.at("new");
    for (keep, expected) in [
        ("24", "expected a unit after 24: a time such as 24h, a size such as 24GiB, or nothing"),
        ("0", "expected a unit after 0"),
        ("1_000", "expected a unit after 1_000"),
        ("0s", "expected more than zero, or nothing"),
        ("0B", "expected more than zero, or nothing"),
        ("much", "expected nothing, a time such as 24h, or a size such as 10GiB"),
    ] {
        let create = ["create", &new, "--last", "5", "--keep-log", keep];
        let alter = ["alter", &dir, "--last", "200000", "--keep-log", keep];
        for arguments in [&create[..], &["insert", &dir, "--keep-log", keep], &alter] {
            let sentence = refused(arguments, b"b\n");
            assert!(sentence.contains(expected), "{keep}: {sentence}");
        }
    }
    ok(&["insert", &dir], b"c\n");
    assert_eq!(ok(&["contains", &dir, "--at", "lsn:1", "--with-keys"], b"a\n").lines().len(), 1);
    for keep in ["nothing", "64MiB", "24h", "1 GiB"] {
        ok(&["insert", &dir, "--keep-log", keep], b"");
    }
}
