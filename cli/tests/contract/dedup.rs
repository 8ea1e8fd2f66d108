//! `dedup`: the lines that it prints, and how it reads them.

use crate::exact::{Since, judge};
use crate::support::{Place, input, ok, refused, run, stream};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs `dedup --last 1000` with more options.
fn dedup(more: &[&str], input: &[u8]) -> Vec<u8> {
    ok(&[&["dedup", "--last", "1000", "--hash-seed", "7"], more].concat(), input).stdout
}

fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_millis() as u64
}

#[test]
fn no_line_in_the_window_is_printed_and_few_new_ones_are_suppressed() {
    let keys = stream(30_000, 20_000);
    let keys: Vec<_> = keys.iter().map(String::as_bytes).collect();
    for since in [Since::LastSeen, Since::Accepted] {
        let judgement = judge(&keys, 2_000, since, &[]);
        judgement.assert_within_promise();
        assert!(
            judgement.surely_new > 1_000,
            "too few surely new lines in the stream: {judgement:?}"
        );
    }
}

#[test]
fn the_batch_size_changes_no_answer() {
    let keys = stream(5_000, 3_000);
    let keys: Vec<_> = keys.iter().map(String::as_bytes).collect();
    let whole = judge(&keys, 500, Since::LastSeen, &[]);
    for batch in ["1", "7", "100000"] {
        assert_eq!(judge(&keys, 500, Since::LastSeen, &["--batch", batch]), whole);
    }
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let input = input(&stream(20_000, 15_000));
    let arguments = ["dedup", "--last", "1000", "--fpr", "0.05", "--hash-seed", "11"];
    assert_eq!(ok(&arguments, &input).stdout, ok(&arguments, &input).stdout);
}

#[test]
fn new_lines_are_printed_in_input_order() {
    assert_eq!(dedup(&[], b"c\na\nb\na\nc\nd\n"), b"c\na\nb\nd\n");
}

#[test]
fn a_carriage_return_belongs_to_the_line() {
    assert_eq!(dedup(&[], b"a\r\na\na\r\n"), b"a\r\na\n");
}

#[test]
fn lines_can_end_with_nul() {
    assert_eq!(dedup(&["-0"], b"a\nb\0c\0a\nb\0"), b"a\nb\0c\0");
}

#[test]
fn the_last_line_needs_no_newline() {
    assert_eq!(dedup(&[], b"a\nb"), b"a\nb\n");
    assert_eq!(dedup(&[], b"a\na"), b"a\n");
    assert_eq!(dedup(&[], b""), b"");
}

#[test]
fn keys_are_raw_bytes() {
    assert_eq!(dedup(&[], b"\xff\xfe\n\0\n\n\xff\xfe\n\0\n\n"), b"\xff\xfe\n\0\n\n");
}

#[test]
fn a_long_line_is_one_key() {
    let long = vec![b'x'; 3 << 20];
    let input = [&long[..], b"\n", &long[1..], b"\n", &long[..], b"\n"].concat();
    assert_eq!(dedup(&[], &input).len(), 2 * long.len() + 1);
}

#[test]
fn a_field_is_blank_separated_and_counted_from_one() {
    let lines = b"1 alice\n2  bob\n3\talice x\n 4 bob\n5 carol\n";
    assert_eq!(dedup(&["--field", "2"], lines), b"1 alice\n2  bob\n5 carol\n");
    assert!(refused(&["dedup", "--last", "9", "--field", "0"], b"").contains("--field"));
}

#[test]
fn lines_without_the_field_share_the_empty_key() {
    assert_eq!(dedup(&["--field", "2"], b"a\nb x\nc\n\nd y\n"), b"a\nb x\nd y\n");
}

#[test]
fn files_are_read_in_order_and_each_ends_its_last_line() {
    let place = Place::new();
    let one = place.file("one", b"a\nb");
    let two = place.file("two", b"b\nc");
    assert_eq!(dedup(&[&one, "-", &two], b"x\na\n"), b"a\nb\nx\nc\n");
}

#[test]
fn a_missing_file_is_reported_before_any_input_is_read() {
    let place = Place::new();
    let one = place.file("one", b"a\n");
    let missing = place.at("missing");
    let outcome = run(&["dedup", "--last", "10", &one, &missing], b"");
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains(&missing), "{}", outcome.stderr);
    assert!(outcome.stdout.is_empty());
}

#[test]
fn with_since_accepted_a_frequent_key_is_printed_again_after_the_window() {
    // Filler keys are always new. A hot key occurs every 10 lines; the window is 40.
    let lines: Vec<_> = (0..2_000)
        .map(|number| if number % 10 == 0 { "hot".into() } else { format!("filler {number}") })
        .collect();
    let count = |since: &str| {
        let arguments = ["dedup", "--last", "40", "--since", since, "--hash-seed", "7"];
        let outcome = ok(&arguments, &input(&lines));
        outcome.lines().iter().filter(|line| **line == b"hot").count()
    };
    assert_eq!(count("last-seen"), 1);
    assert!(count("accepted") > 10);
}

#[test]
fn event_time_is_the_clock_and_is_printed_with_the_line() {
    let start = now_millis() - 3_600_000;
    let at = |seconds: u64, key: &str| format!("{}\t{key}", start + seconds * 1000);
    let lines = [
        at(0, "a"),
        at(1, "b"),
        at(30, "a"),
        at(85, "a"),
        at(400, "a"),
        at(401, "b"),
        at(401, "a"),
    ];
    let arguments = ["dedup", "--window", "60s", "--event-time", "--hash-seed", "7"];
    let expected = [at(0, "a"), at(1, "b"), at(400, "a"), at(401, "b")];
    assert_eq!(ok(&arguments, &input(&lines)).stdout, input(&expected));
}

#[test]
fn a_field_of_event_lines_is_counted_behind_the_time() {
    let lines = format!("{0}\tx k\n{0}\ty k\n", now_millis() - 1000);
    let arguments = ["dedup", "--window", "60s", "--event-time", "--field", "2"];
    assert_eq!(ok(&arguments, lines.as_bytes()).lines().len(), 1);
}

#[test]
fn an_event_line_without_a_time_is_named_and_the_lines_before_it_are_processed() {
    let place = Place::new();
    let now = now_millis() - 1000;
    let file = place.file("events", format!("{now}\ta\n{now}\tb\nbad\n{now}\tc\n").as_bytes());
    let state = place.at("state");
    let arguments = ["dedup", "--window", "1h", "--event-time", "--state", &state];
    let outcome = run(&[&arguments[..], &[&file]].concat(), b"");
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains(&format!("{file}, line 3: ")), "{}", outcome.stderr);
    assert_eq!(outcome.lines().len(), 2);
    let again = ok(&arguments, format!("{now}\ta\n{now}\tb\n{now}\tc\n").as_bytes());
    assert_eq!(again.stdout, format!("{now}\tc\n").as_bytes());
}

#[test]
fn a_time_far_ahead_of_the_clock_is_refused_with_its_line() {
    let now = now_millis();
    let lines = format!("{now}\ta\n{}\tb\n", now + 86_400_000);
    let arguments = ["dedup", "--window", "60s", "--event-time"];
    let outcome = run(&arguments, lines.as_bytes());
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("standard input, line 2: "), "{}", outcome.stderr);
    assert_eq!(outcome.lines().len(), 1);
}

#[test]
fn lines_too_late_to_judge_are_printed_and_counted() {
    let now = now_millis() - 1000;
    let lines = format!("{}\ta\n{now}\tb\n{0}\ta\n", now - 3_600_000);
    let outcome = run(&["dedup", "--window", "60s", "--event-time"], lines.as_bytes());
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.lines().len(), 3);
    assert!(outcome.stderr.contains("printed unchecked: 1"), "{}", outcome.stderr);
}

#[test]
fn the_state_is_kept_between_runs() {
    let place = Place::new();
    let state = place.at("state");
    let arguments = ["dedup", "--last", "1000", "--state", &state];
    assert_eq!(ok(&arguments, b"a\nb\n").stdout, b"a\nb\n");
    assert_eq!(ok(&arguments, b"b\nc\na\n").stdout, b"c\n");
}

#[test]
fn runs_over_pieces_print_what_one_run_prints() {
    let place = Place::new();
    let state = place.at("state");
    let keys = stream(9_000, 6_000);
    let last = ["dedup", "--last", "700", "--hash-seed", "3"];
    let whole = ok(&last, &input(&keys)).stdout;
    let mut pieces = Vec::new();
    for piece in keys.chunks(3_500) {
        let arguments = [&last[..], &["--state", &state]].concat();
        pieces.extend(ok(&arguments, &input(piece)).stdout);
    }
    assert_eq!(pieces, whole);
}

#[test]
fn a_state_that_exists_needs_no_window_and_refuses_another() {
    let place = Place::new();
    let state = place.at("state");
    ok(&["dedup", "--last", "1000", "--state", &state], b"a\n");
    assert_eq!(ok(&["dedup", "--state", &state], b"a\nb\n").stdout, b"b\n");
    for other in [["--last", "999"], ["--window", "10s"]] {
        let arguments = [&["dedup", "--state", &state][..], &other].concat();
        assert!(refused(&arguments, b"").contains(&state));
    }
}

#[test]
fn without_a_state_a_window_must_be_given_and_only_one() {
    let place = Place::new();
    let state = place.at("state");
    for arguments in [&["dedup"][..], &["dedup", "--state", &state], &["dedup", "--fpr", "0.1"]] {
        let sentence = refused(arguments, b"a\n");
        assert!(sentence.contains("--window") && sentence.contains("--last"), "{sentence}");
    }
    refused(&["dedup", "--last", "5", "--window", "5s"], b"");
}

#[test]
fn parameters_out_of_bounds_are_refused() {
    for bad in [["--last", "0"], ["--window", "0s"], ["--window", "soon"], ["--last", "-1"]] {
        refused(&[&["dedup"], &bad[..]].concat(), b"a\n");
    }
    for fpr in ["0", "1", "1.5", "NaN", "x"] {
        refused(&["dedup", "--last", "10", "--fpr", fpr], b"a\n");
    }
}

#[test]
fn with_and_without_a_state_the_same_lines_are_printed() {
    let place = Place::new();
    let keys = stream(30_000, 8_000);
    let plain: String = keys.iter().map(|key| format!("{key}\n")).collect();
    let millis = |at: usize| 1_700_000_000_000 + at * 10;
    let timed = keys.iter().enumerate();
    let timed: String = timed.map(|(at, key)| format!("{}\t{key}\n", millis(at))).collect();
    let timed_options = ["--window", "50s", "--event-time"];
    let cases: [(&[&str], &str); 7] = [
        (&["--last", "3000"], &plain),
        (&["--last", "3000", "--fpr", "1e-6", "--stripes", "4"], &plain),
        (&["--last", "3000", "--hash", "keyed", "--since", "accepted"], &plain),
        (&["--last", "3000", "--kind", "age-partitioned", "--invert"], &plain),
        (&["--last", "3000", "--kind", "two-buffer"], &plain),
        (&timed_options, &timed),
        (&[&timed_options[..], &["--kind", "time-limited"]].concat(), &timed),
    ];
    for (number, (options, input)) in cases.into_iter().enumerate() {
        let run = |more: &[&str]| {
            let all = [&["dedup", "--hash-seed", "5"], options, more].concat();
            ok(&all, input.as_bytes()).stdout
        };
        let state = place.at(&format!("state-{number}"));
        let without = run(&[]);
        assert!(without.len() > 1000 && without.len() < input.len(), "{options:?}");
        assert_eq!(without, run(&["--state", &state]), "{options:?}");
    }
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "the memory that is available is not known"
)]
fn without_memory_for_the_filter_a_run_without_a_state_is_refused_in_one_sentence() {
    let sentence = refused(&["dedup", "--last", "1e12"], b"a\n");
    assert!(sentence.contains("memory"), "{sentence}");
}

#[test]
fn at_least_once_gives_the_same_answers_as_the_default_order() {
    let keys = stream(20_000, 15_000);
    let keys: Vec<_> = keys.iter().map(String::as_bytes).collect();
    for since in [Since::LastSeen, Since::Accepted] {
        // One window is shorter than a batch, one is longer.
        for window in [50, 5_000] {
            let judgement = judge(&keys, window, since, &["--at-least-once"]);
            judgement.assert_within_promise();
            assert!(
                judgement.surely_new > 500,
                "too few surely new lines in the stream: {judgement:?}"
            );
        }
    }
    let twice = [&b"a\n"[..]; 2_000].concat();
    assert_eq!(dedup(&["--at-least-once"], &twice), b"a\n");
}

/// The window is shorter than most of these batches, and keys come back just beyond it. Whatever
/// the way to the output, and the batch, the lines are those of checking line by line.
#[test]
fn every_way_to_the_output_prints_the_same_lines_whatever_the_batch() {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/requests.log");
    let run = ["dedup", "--last", "1000", "--field", "1", "--hash-seed", "7"];
    let expected = ok(&[&run[..], &["--batch", "1", log]].concat(), b"").stdout;
    let lines = expected.iter().filter(|&&byte| byte == b'\n').count();
    // An exact window of 1,000 lines has 2,533, one that is a 14th longer 2,500.
    assert!((2490..=2533).contains(&lines), "{lines} lines");
    for batch in ["7", "1000", "1024", "4000", "70000"] {
        let place = Place::new();
        let [state, output] = ["state", "output"].map(|name| place.at(name));
        let run = [&run[..], &["--batch", batch, log]].concat();
        assert!(ok(&run, b"").stdout == expected, "--batch {batch}");
        let more = [&run[..], &["--at-least-once"]].concat();
        assert!(ok(&more, b"").stdout == expected, "--at-least-once --batch {batch}");
        let more = [&run[..], &["--state", &state, "--output", &output]].concat();
        ok(&more, b"");
        let written = std::fs::read(&output).expect("an output");
        assert!(written == expected, "--output --batch {batch}");
    }
}

#[test]
fn without_a_state_what_concerns_its_files_is_refused_and_not_ignored() {
    for (option, value) in [("--durability", "always"), ("--image", "memory"), ("--keep-log", "1h")]
    {
        let sentence = refused(&["dedup", "--last", "9", option, value], b"a\n");
        assert!(sentence.contains(&format!("{option} needs --state DIR")), "{sentence}");
    }
}

#[test]
fn a_run_that_cannot_begin_leaves_no_state() {
    let place = Place::new();
    let (state, gone) = (place.at("state"), place.at("gone"));
    let (file, output) = (place.file("keys", b"a\n"), place.at("output"));
    for more in [
        &[&gone[..]][..],
        &["--delimiter", ",", &file],
        &["--csv-field", "a", "--delimiter", ",,", &file],
        &["--time-field", "time", &file],
        &["--output", &output, &gone],
        &["--output", &output, &file, "--leave-out", &gone],
        &["--output", &output, "--delimiter", ",", &file],
        &["--output", &output, "/dev/null"],
    ] {
        refused(&[&["dedup", "--state", &state, "--last", "100"], more].concat(), b"");
        assert!(!std::path::Path::new(&state).exists(), "{more:?}");
    }
}

#[test]
fn what_is_not_given_is_that_of_the_filter_of_earlier_runs() {
    let place = Place::new();
    let dir = place.at("state");
    ok(&["create", &dir, "--kind", "timing", "--last", "100", "--fpr", "1e-5"], b"");
    let dedup = ["dedup", "--state", &dir];
    for (number, given) in [
        &[][..],
        &["--last", "100"],
        &["--last", "100", "--fpr", "0.00001"],
        &["--last", "100", "--kind", "timing"],
        &["--last", "100", "--keep-log", "1h"],
    ]
    .into_iter()
    .enumerate()
    {
        let line = format!("{number}\n");
        assert_eq!(ok(&[&dedup[..], given].concat(), line.as_bytes()).text(), line, "{given:?}");
        assert_eq!(ok(&[&dedup[..], given].concat(), line.as_bytes()).text(), "", "{given:?}");
    }
    for (given, expected) in [
        (&["--last", "99"][..], "expected --last 99, found 100; leave --last out"),
        (&["--window", "1h"], "expected --window 1h, found nothing; leave --window out"),
        (&["--last", "100", "--fpr", "0.001"], "expected --fpr 0.001, found 0.00001; leave --fpr"),
        (
            &["--last", "100", "--kind", "fingerprint"],
            "expected --kind fingerprint, found timing; leave --kind out",
        ),
    ] {
        let sentence = refused(&[&dedup[..], given].concat(), b"a\n");
        assert!(sentence.contains(expected), "{sentence}");
    }
    let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
    assert_eq!(stat["keep_log"].as_str(), Some("3600s"), "{stat}");
}

#[test]
fn a_run_with_an_output_that_is_refused_leaves_the_kept_log() {
    let place = Place::new();
    let (dir, out, other) = (place.at("state"), place.at("out"), place.file("other", b"x\n"));
    let log = place.file("log", b"a\nb\n");
    let dedup = |out: &str, more: &[&str]| {
        run(&[&["dedup", "--state", &dir, "--output", out, &log], more].concat(), b"")
    };
    assert_eq!(dedup(&out, &["--last", "100", "--keep-log", "1h"]).code, Some(0));
    let kept = || ok(&["stat", &dir, "--json"], b"").json().remove(0)["keep_log"].clone();
    let refusal = dedup(&other, &["--keep-log", "nothing"]);
    assert!(refusal.stderr.contains("--adopt-output"), "{}", refusal.stderr);
    assert_eq!(kept().as_str(), Some("3600s"));
    assert_eq!(dedup(&out, &["--keep-log", "nothing"]).code, Some(0));
    assert_eq!(kept().as_str(), Some("nothing"));
}
