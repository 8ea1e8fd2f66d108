//! Times in front of keys: units, dates, bad lines, and the largest lead.

use crate::support::{Place, ok, refused, run};
use std::time::{SystemTime, UNIX_EPOCH};

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_secs()
}

/// Returns the arguments of `dedup` for lines with times.
fn timed(more: &[&str]) -> Vec<String> {
    let dedup = ["dedup", "--window", "60s", "--event-time", "--hash-seed", "7"];
    dedup.iter().chain(more).map(|text| (*text).to_owned()).collect()
}

fn strings(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn times_are_read_in_the_given_unit() {
    for (unit, factor) in [("s", 1), ("ms", 1_000), ("us", 1_000_000)] {
        let at = |second: u64| (1_700_000_000 + second) * factor;
        let lines: String = [0, 30, 80, 400].map(|second| format!("{}\ta\n", at(second))).concat();
        // Each line refreshes the key; only the last one comes after its window.
        let expected = format!("{}\ta\n{}\ta\n", at(0), at(400));
        let arguments = timed(&["--time-unit", unit]);
        let outcome = ok(&strings(&arguments), lines.as_bytes());
        assert_eq!(outcome.text(), expected, "{unit}");
    }
}

#[test]
fn seconds_may_have_decimals_and_dates_a_zone() {
    let arguments = timed(&["--time-unit", "s"]);
    let lines = b"1700000000.250\ta\n2023-11-14T22:13:30Z\ta\n2023-11-14T23:13:40.5+01:00\ta\n\
                  2023-11-14T22:15:40Z\ta\n";
    let expected = "1700000000.250\ta\n2023-11-14T22:15:40Z\ta\n";
    assert_eq!(ok(&strings(&arguments), lines).text(), expected);
}

#[test]
fn a_date_without_a_zone_and_a_time_without_a_key_are_named() {
    for (line, unit, form) in [
        ("2023-11-14T22:13:30\ta", "ms", "the time has no zone; give --utc"),
        ("2023-11-14T22:13:30x\ta", "ms", "UNIX_MILLIS<TAB>KEY"),
        ("1700000000", "s", "UNIX_SECONDS<TAB>KEY"),
        ("1.5\ta", "us", "UNIX_MICROS<TAB>KEY"),
    ] {
        let arguments = timed(&["--time-unit", unit]);
        let sentence = refused(&strings(&arguments), line.as_bytes());
        assert!(sentence.contains("line 1: ") && sentence.contains(form), "{sentence}");
    }
}

#[test]
fn seconds_read_as_milliseconds_are_an_error_and_no_line_is_printed() {
    let lines = b"1700000000\tx\n1700000030\ty\n";
    for more in [&[][..], &["--skip-bad"], &["--at-least-once"], &["--time-unit", "ms"]] {
        let outcome = run(&strings(&timed(more)), lines);
        assert_eq!((outcome.code, outcome.text()), (Some(2), ""), "{more:?}");
        let sentence = "ebbtide: standard input, line 1: time 1700000000 (1970-01-20T16:13:20Z) \
                        looks like seconds but is read as milliseconds; give --time-unit s\n";
        assert_eq!(outcome.stderr, sentence);
    }
    // Once a time was taken, another unit is a mistake of the line.
    let mixed = b"1700000000000\tx\n1700000001\ty\n1700000002000\tz\n";
    let sentence = refused(&strings(&timed(&[])), mixed);
    assert!(sentence.contains("line 2: time 1700000001"), "{sentence}");
    let outcome = run(&strings(&timed(&["--skip-bad"])), mixed);
    assert_eq!(outcome.text(), "1700000000000\tx\n1700000002000\tz\n");
    assert!(outcome.stderr.contains("bad lines skipped: 1, "), "{}", outcome.stderr);
}

#[test]
fn a_wrong_unit_is_an_error_in_every_run_and_not_in_the_first_alone() {
    let place = Place::new();
    let state = place.at("state");
    let with = |more: &[&str]| timed(&[&["--state", &state, "--skip-bad"], more].concat());
    ok(&strings(&with(&["--time-unit", "s"])), b"1700000000\tx\n");
    let later = b"1700000030\ty\n1700000031\tz\n";
    let sentence = refused(&strings(&with(&["--time-unit", "ms"])), later);
    assert!(sentence.contains("line 1: ") && sentence.ends_with("give --time-unit s"));
    // No line was left out.
    let right = ok(&strings(&with(&["--time-unit", "s"])), later);
    assert_eq!(right.stdout, later);
}

#[test]
fn every_unit_taken_for_every_other_is_an_error_that_names_the_right_one() {
    let units = ["s", "ms", "us", "ns"];
    let numbers = ["1700000000", "1700000000000", "1700000000000000", "1700000000000000000"];
    for (at, unit) in units.iter().enumerate() {
        for (of, number) in numbers.iter().enumerate() {
            let arguments = timed(&["--time-unit", unit]);
            let outcome = run(&strings(&arguments), format!("{number}\tx\n").as_bytes());
            if at == of {
                assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
            } else {
                let hint = format!("give --time-unit {}\n", units[of]);
                assert_eq!((outcome.code, outcome.text()), (Some(2), ""), "{number} in {unit}");
                assert!(outcome.stderr.ends_with(&hint), "{}", outcome.stderr);
            }
        }
    }
}

#[test]
fn a_time_too_far_ahead_is_reported_in_the_unit_of_the_input() {
    let ahead = (now_seconds() + 86_400) * 1000;
    let arguments = timed(&[]);
    let sentence = refused(&strings(&arguments), format!("{ahead}\ta\n").as_bytes());
    assert!(sentence.contains(&format!("time {ahead} (20")), "{sentence}");
    assert!(sentence.contains("--max-lead") && !sentence.contains("µs"), "{sentence}");
    // Milliseconds read as seconds lie far ahead; the error suggests the likelier unit.
    let arguments = timed(&["--time-unit", "s"]);
    let sentence = refused(&strings(&arguments), b"1700000000000\ta\n");
    assert!(sentence.contains("--time-unit ms"), "{sentence}");
    for at_least_once in [&["--at-least-once"][..], &[]] {
        let outcome = run(&strings(&timed(at_least_once)), format!("{ahead}\ta\n").as_bytes());
        assert_eq!(
            (outcome.code, outcome.text()),
            (Some(2), ""),
            "the line was printed before it was refused"
        );
    }
}

#[test]
fn a_larger_lead_is_accepted_at_creation_and_cannot_change_later() {
    let place = Place::new();
    let state = place.at("state");
    let line = format!("{}\ta\n", (now_seconds() + 7_200) * 1000);
    let with_state = ["--state", &state];
    refused(&strings(&timed(&[])), line.as_bytes());
    let larger = timed(&[&["--max-lead", "3h"], &with_state[..]].concat());
    assert_eq!(ok(&strings(&larger), line.as_bytes()).text(), line);
    // From now on the filter's time is ahead, and each command warns about it.
    let warned = |arguments: &[&str], input: &[u8]| {
        let outcome = run(arguments, input);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains("ahead of the clock"), "{outcome:?}");
        outcome
    };
    let stat = warned(&["stat", &state, "--json"], b"").json();
    assert_eq!(stat[0]["max_lead_seconds"], 10_800.0);
    // The lead is fixed in the filter: the next run may repeat it or omit it, but not change it.
    for same in [larger, timed(&with_state)] {
        assert_eq!(warned(&strings(&same), line.as_bytes()).text(), "");
    }
    let other = timed(&[&["--max-lead", "5h"], &with_state[..]].concat());
    let sentence = refused(&strings(&other), line.as_bytes());
    assert!(sentence.contains("max-lead 5h") && sentence.contains("found 3h"), "{sentence}");
}

#[test]
fn bad_lines_can_be_skipped_and_are_counted() {
    let now = now_seconds() * 1000;
    let far = now + 86_400_000;
    let lines = format!("{now}\ta\nbad\n{now}\tb\n{far}\tc\n{now}\ta\nnone\n{now}\td\n");
    let expected = format!("{now}\ta\n{now}\tb\n{now}\td\n");
    for more in [&["--skip-bad"][..], &["--skip-bad", "--at-least-once"]] {
        let outcome = run(&strings(&timed(more)), lines.as_bytes());
        assert_eq!((outcome.code, outcome.text()), (Some(0), expected.as_str()), "{more:?}");
        let first = "ebbtide: bad lines skipped: 3, the first is standard input, line 2: expected \
                     UNIX_MILLIS<TAB>KEY";
        assert!(outcome.stderr.starts_with(first), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn answers_and_lines_stay_aligned_where_bad_lines_are_skipped() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--kind", "counting", "--capacity", "100"], b"");
    let weighed = ["--weight", "--skip-bad"];
    let insert = [&["insert", &dir], &weighed[..]].concat();
    let outcome = run(&insert, b"a\t3\nb\nc\t0\nd\t2\n");
    assert_eq!((outcome.code, outcome.text()), (Some(0), ""));
    assert!(outcome.stderr.contains("bad lines skipped: 2, "), "{}", outcome.stderr);
    let check = [&["check", &dir], &weighed[..]].concat();
    let lines = b"a\t1\nx\nd\t1\n";
    assert_eq!(run(&check, lines).text(), "1\n?\n1\n");
    let answers = run(&[&check[..], &["--json"]].concat(), lines).json();
    assert_eq!(answers[1]["line"], 2);
    assert!(answers[1]["error"].as_str().expect("text").contains("KEY<TAB>NUMBER"));
    assert_eq!(answers.len(), 3);
    let estimate = [&["estimate", &dir], &weighed[..]].concat();
    assert_eq!(run(&estimate, lines).text(), "5\n?\n4\n");
}

#[test]
fn at_least_once_prints_the_same_lines_of_events_in_the_same_order() {
    // Half of the lines are late, some by more than the window: those are printed unchecked.
    let start = (now_seconds() - 100_000) * 1000;
    let line = |number: u64| {
        let behind = if number.is_multiple_of(2) { (number * 7_919) % 90_000 } else { 0 };
        format!("{}\tkey {}\n", start + 100_000 + number * 500 - behind, (number * 31) % 97)
    };
    let lines: String = (0..3_000).map(line).collect();
    let usual = run(&strings(&timed(&["--fpr", "1e-9"])), lines.as_bytes());
    let other = run(&strings(&timed(&["--fpr", "1e-9", "--at-least-once"])), lines.as_bytes());
    assert_eq!((usual.code, other.code), (Some(0), Some(0)));
    let first = usual.lines().iter().zip(other.lines()).position(|(one, other)| *one != other);
    assert_eq!((first, other.lines().len()), (None, usual.lines().len()));
    assert!(
        usual.stderr.contains("printed unchecked: "),
        "no late lines in the stream: {}",
        usual.stderr
    );
    assert_eq!(other.stderr, usual.stderr);
}

#[test]
fn a_time_that_the_filter_refuses_is_no_latest_time_for_the_steps_after_it() {
    let lines = b"2050-01-01T00:00:00Z\ta\n2020-01-01T00:00:00Z\tb\n2024-01-01T00:00:00Z\tc\n\
                  2020-01-01T00:00:01Z\tb\n";
    let place = Place::new();
    let file = place.file("lines", lines);
    let (state, output) = (place.at("state"), place.at("output"));
    let (least, exact) = (place.at("least"), place.at("exact"));
    let arguments =
        ["dedup", "--window", "1h", "--event-time", "--max-step", "1h", "--skip-bad", &file];
    for more in [
        &[][..],
        &["--state", &state],
        &["--state", &least, "--at-least-once"],
        &["--state", &exact, "--output", &output],
    ] {
        let run = run(&[&arguments[..], more].concat(), b"");
        assert_eq!(run.code, Some(0), "{more:?}: {run:?}");
        let printed = std::fs::read_to_string(&output).unwrap_or_default() + run.text();
        assert_eq!(printed, "2020-01-01T00:00:00Z\tb\n", "{more:?}: {run:?}");
        assert!(run.stderr.contains("lines skipped: 2"), "{more:?}: {run:?}");
    }
}

#[test]
fn a_suppressed_line_that_is_not_inserted_is_a_step_for_the_next_run_too() {
    let place = Place::new();
    let (state, output) = (place.at("state"), place.at("output"));
    let (once, least) = (place.at("once"), place.at("least"));
    let arguments =
        ["dedup", "--window", "30h", "--event-time", "--max-step", "1h", "--since", "accepted"];
    // Only the first one is inserted; the filter's time stays there.
    let first = "2020-01-01T00:00:00Z\ta\n2020-01-01T00:50:00Z\ta\n2020-01-01T01:40:00Z\ta\n";
    let second = "2020-01-01T02:30:00Z\ta\n2020-01-01T02:40:00Z\tb\n";
    let file = place.file("lines", first.as_bytes());
    let exact = [&arguments[..], &["--state", &state, "--output", &output, &file]].concat();
    ok(&exact, b"");
    std::fs::write(&file, [first, second].concat()).expect("space");
    ok(&exact, b"");
    let printed = std::fs::read_to_string(&output).expect("an output");
    assert_eq!(printed, "2020-01-01T00:00:00Z\ta\n2020-01-01T02:40:00Z\tb\n");
    // The steps of later runs are still measured.
    let far = "2020-01-01T03:50:00Z\tc\n";
    std::fs::write(&file, [first, second, far].concat()).expect("space");
    let sentence = refused(&exact, b"");
    assert!(sentence.contains("is 1h 10m ahead of the latest one"), "{sentence}");
    for (state, more) in [(&once, &[][..]), (&least, &["--at-least-once"])] {
        let run = [&arguments[..], &["--state", state], more].concat();
        assert_eq!(ok(&run, first.as_bytes()).text(), "2020-01-01T00:00:00Z\ta\n");
        assert_eq!(ok(&run, second.as_bytes()).text(), "2020-01-01T02:40:00Z\tb\n");
    }
}

#[test]
fn a_time_in_another_unit_that_is_the_first_new_one_blocks_no_run_with_an_output() {
    let place = Place::new();
    let (state, output) = (place.at("state"), place.at("output"));
    let file = place.file("lines", b"1700000000000\tx\n");
    let with = ["--state", &state, "--output", &output, "--skip-bad", &file];
    let arguments = timed(&with);
    ok(&strings(&arguments), b"");
    let more = "1700000000000\tx\n1700000001\ty\n1700000002000\tz\n";
    std::fs::write(&file, more).expect("space");
    let outcome = run(&strings(&arguments), b"");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("bad lines skipped: 1, "), "{}", outcome.stderr);
    let printed = std::fs::read_to_string(&output).expect("an output");
    assert_eq!(printed, "1700000000000\tx\n1700000002000\tz\n");
    // As long as no time was taken, the option is wrong, also if bad lines were recorded.
    let (state, output) = (place.at("other state"), place.at("other output"));
    std::fs::write(&file, "a line without a time\n").expect("space");
    let with = ["--state", &state, "--output", &output, "--skip-bad", &file];
    let arguments = timed(&with);
    assert_eq!(run(&strings(&arguments), b"").code, Some(0));
    std::fs::write(&file, "a line without a time\n1700000001\ty\n").expect("space");
    let sentence = refused(&strings(&arguments), b"");
    assert!(sentence.ends_with("give --time-unit s"), "{sentence}");
}
