//! The file and line that a message names when there are several inputs.

use crate::support::{Place, ok, run};
use std::time::{SystemTime, UNIX_EPOCH};

fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("clock");
    now.as_millis() as u64 - 60_000
}

/// Returns lines of these numbers with a time, each with its own key, for a file or for standard
/// input.
fn good(keys: std::ops::Range<u64>) -> String {
    let now = now_millis();
    keys.map(|key| format!("{now}\tkey {key}\n")).collect()
}

/// Runs `dedup` on these inputs, the third of which may be standard input; returns the number of
/// printed lines, and the message.
fn refused_by(files: &[&str], stdin: &str, batch: &str) -> (usize, String) {
    let arguments =
        ["dedup", "--window", "1h", "--hash-seed", "7", "--event-time", "--batch", batch];
    let outcome = run(&[&arguments[..], files].concat(), stdin.as_bytes());
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    (outcome.lines().len(), outcome.stderr)
}

#[test]
fn a_bad_line_is_named_by_its_own_file_and_counted_from_that_files_beginning() {
    let place = Place::new();
    let whole = place.file("whole", good(0..3).as_bytes());
    let unended = place.file("unended", good(10..14).trim_end().as_bytes());
    let empty = place.file("empty", b"");
    for (at, printed) in [(1, 0), (2, 1), (5, 4)] {
        let bad = good(20..20 + at - 1) + "bad\n" + &good(30..33);
        let file = place.file("bad", bad.as_bytes());
        for batch in ["1", "3", "1000"] {
            let named = |name: &str| format!("{name}, line {at}: ");
            let cases: [(&[&str], &str, usize, String); 6] = [
                (&[&file], "", 0, named(&file)),
                (&[&whole, &file], "", 3, named(&file)),
                (&[&unended, &file, &whole], "", 4, named(&file)),
                (&[&whole, &empty, &unended, &file], "", 7, named(&file)),
                (&[&whole, "-", &unended], &bad, 3, named("standard input")),
                (&[&unended, &whole, "-"], &bad, 7, named("standard input")),
            ];
            for (files, stdin, before, expected) in cases {
                let (lines, message) = refused_by(files, stdin, batch);
                let what = format!("{files:?}, batches of {batch}: {message}");
                assert!(message.contains(&expected), "expected {expected:?} of {what}");
                assert_eq!(lines, before + printed, "lines printed of {what}");
            }
        }
    }
}

#[test]
fn a_bad_line_far_behind_the_first_read_of_a_second_file_has_the_right_number() {
    let place = Place::new();
    let first = place.file("first", good(0..20_000).as_bytes());
    let second = good(20_000..50_000) + "bad\n";
    let second = place.file("second", second.as_bytes());
    let (lines, message) = refused_by(&[&first, &second], "", "700");
    assert!(message.contains(&format!("{second}, line 30001: ")), "{message}");
    // A few new keys are false positives.
    assert!((49_800..=50_000).contains(&lines), "{lines} lines printed");
}

#[test]
fn a_bad_line_of_an_inserted_file_is_named_and_the_lines_before_it_are_inserted() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--kind", "counting", "--capacity", "100"], b"");
    let file = place.file("weights", b"a\t1\nb\t2\nc\t1\nd\tmany\ne\t1\n");
    let outcome = run(&["insert", &dir, "--weight", &file], b"");
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(&format!("{file}, line 4: ")), "{}", outcome.stderr);
    let found = ok(&["contains", &dir], b"a\nb\nc\nd\ne\n");
    assert_eq!(found.lines().len(), 5);
    let there = found.lines().iter().filter(|line| line.starts_with(b"1")).count();
    assert_eq!(
        there,
        3,
        "the lines before are inserted, the lines after are not: {}",
        found.text()
    );
}

#[test]
fn a_parameter_is_named_by_the_option_that_sets_it_and_durations_have_units() {
    let place = Place::new();
    let (items, time, new) = (place.at("items"), place.at("time"), place.at("new"));
    ok(&["create", &items, "--last", "100"], b"");
    ok(&["create", &time, "--window", "10m"], b"");
    for (arguments, begin) in [
        (&["dedup", "--last", "0"][..], "--last: expected an integer from 1 to "),
        (&["plan", "--last", "4611686018427387905"], "--last: expected an integer from 1 to "),
        (&["create", &new, "--window-items", "0"], "--window-items: expected an integer from 1 "),
        (
            &["create", &new, "--kind", "timing"],
            "--last: expected how many inserts it looks back, ",
        ),
        (&["create", &new, "--kind", "two-buffer"], "--last: expected a number of inserts, "),
        (
            &["create", &new, "--kind", "time-limited"],
            "--window: expected a duration such as 10m, ",
        ),
        (&["create", &new, "--window", "0s"], "--window: expected a duration of at least 1us, "),
        (&["create", &new, "--window", "90000y"], "--window: expected a duration of at most 13"),
        (&["create", &new, "--last", "9", "--fpr", "7"], "--fpr: expected a number between 0 and "),
        (&["dedup", "--kind", "bloom", "--last", "9"], "--kind: expected parameters of bloom ("),
        (
            &["plan", "--kind", "decaying", "--capacity", "9"],
            "--epoch: expected how long an epoch lasts, such as 60s, ",
        ),
        (&["dedup", "--state", &items, "--last", "9"], &format!("{items}: expected --last 9, ")),
        (
            &["dedup", "--state", &items, "--window", "9m"],
            &format!("{items}: expected --window 9m"),
        ),
        (&["dedup", "--state", &time, "--fpr", "0.1"], "--fpr needs a window"),
        (&["distinct", &items, "--within", "50m"], "--within: expected a number of inserts, "),
        (&["distinct", &time, "--last", "9"], "--last: expected a time, "),
        (&["alter", &items, "--fpr", "7"], "--fpr: expected a number between 0 and 1, "),
    ] {
        let outcome = run(arguments, b"");
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {}", outcome.stderr);
        let sentence = outcome.stderr.strip_prefix("ebbtide: ").expect("a sentence");
        assert!(sentence.starts_with(begin), "{arguments:?}: {sentence}");
        for raw in ["parameter ", "microseconds", "000us"] {
            assert!(!sentence.contains(raw), "{arguments:?}: {sentence}");
        }
    }
}
