//! `--weight`: lines that end in a count or an importance.

use crate::support::{Place, input, ok, refused, run};

fn filter(place: &Place, name: &str, options: &[&str]) -> String {
    let dir = place.at(name);
    ok(&[&["create", &dir, "--hash-seed", "7", "--kind"], options].concat(), b"");
    dir
}

const COUNTERS: [&[&str]; 5] = [
    &["counting", "--capacity", "1000", "--counter-bits", "8"],
    &["spectral", "--capacity", "1000"],
    &["dynamic-count", "--capacity", "1000"],
    &["decaying", "--capacity", "1000", "--lambda", "0.5", "--epoch", "8760h"],
    &["decaying-optimized", "--capacity", "1000", "--lambda", "0.5", "--epoch", "8760h"],
];
const IMPORTANCE: [&str; 3] = ["importance-2c", "importance-mc", "importance-h"];

/// Otherwise a filter that several runs have changed has the log of the last ones only.
const KEPT: [&str; 2] = ["--keep-log", "1h"];

/// Returns the options of a small filter of levels 1 to 7, for importances up to 100. In the last
/// kind each draw finds a cell above zero, in the other kinds only some draws do.
fn graded(kind: &'static str) -> [&'static str; 11] {
    let draws = if kind == "importance-h" { "3" } else { "20" };
    [kind, "--cells", "7000", "--max", "7", "-K", "4", "-P", draws, "--importance-max", "100"]
}

fn weights(dir: &str) -> Vec<u64> {
    let log = ok(&["wal", dir, "--json"], b"").json();
    log.iter().filter_map(|entry| entry["weight"].as_u64()).collect()
}

fn digest(dir: &str) -> serde_json::Value {
    ok(&["digest", dir, "--json"], b"").json()[0]["digest"].take()
}

#[test]
fn a_weight_counts_as_that_number_of_inserts() {
    for kind in COUNTERS {
        let place = Place::new();
        let dir = filter(&place, "filter", &[kind, &KEPT[..]].concat());
        // The text between the first and the last tab belongs to the key.
        ok(&["insert", &dir, "--weight"], b"a\t20\nb\tc\t3\na\t22\n\t5\n");
        ok(&["check", &dir, "--weight"], b"d\t6.0\nd\t1e1\n");
        let outcome = ok(&["estimate", &dir], b"a\nb\tc\n\nd\nb\n");
        let counts = outcome.text().lines().map(|line| line.parse::<f64>().expect("a number"));
        // Decaying kinds round fractions up, by less than 1/256 per insert.
        assert_eq!(counts.map(f64::floor).collect::<Vec<_>>(), [42.0, 3.0, 5.0, 16.0, 0.0]);
        assert_eq!(weights(&dir), [20, 3, 22, 5, 6, 10], "{kind:?}");
    }
}

#[test]
fn times_stand_in_front_and_weights_behind() {
    for kind in COUNTERS {
        let place = Place::new();
        let dir = filter(&place, "filter", kind);
        let lines = b"1700000000000\ta\t4\n1700000000001\tb\tc\t2\n";
        ok(&["insert", &dir, "--event-time", "--weight"], lines);
        assert_eq!(weights(&dir), [4, 2], "{kind:?}");
        let log = ok(&["wal", &dir, "--json"], b"").json();
        let times: Vec<_> = log
            .iter()
            .filter(|entry| entry["operation"] == "insert")
            .map(|entry| entry["time"].as_u64())
            .collect();
        assert_eq!(times, [Some(1_700_000_000_000), Some(1_700_000_000_001)], "{kind:?}");
        let arguments = ["estimate", &dir, "--event-time"];
        let outcome = ok(&arguments, b"1700000000001\ta\n1700000000001\tb\tc\n1700000000001\tb\n");
        let counts = outcome.text().lines().map(|line| line.parse::<f64>().expect("a number"));
        assert_eq!(counts.map(f64::floor).collect::<Vec<_>>(), [4.0, 2.0, 0.0], "{kind:?}");
    }
}

#[test]
fn an_importance_becomes_a_level() {
    for kind in IMPORTANCE {
        let place = Place::new();
        let dir = filter(&place, "filter", &graded(kind));
        ok(&["insert", &dir, "--weight"], b"a\t0\nb\t14\nc\t14.3\nd\t50\ne\t100\nf\t1e9\n");
        // The level is the importance times 7 / 100, rounded up, from 1 to 7.
        assert_eq!(weights(&dir), [1, 1, 2, 4, 7, 7], "{kind}");
        assert_eq!(ok(&["contains", &dir], b"e\nf\nx\n").text(), "1\n1\n0\n", "{kind}");
    }
}

#[test]
fn the_highest_importance_defaults_to_the_highest_level() {
    for kind in IMPORTANCE {
        let place = Place::new();
        let options = [kind, "--cells", "7000", "--max", "7", "-K", "4", "-P", "20"];
        let dir = filter(&place, "filter", &[&options[..], &KEPT].concat());
        ok(&["insert", &dir, "--weight"], b"a\t3\nb\t2.5\nc\t8\n");
        ok(&["insert", &dir], b"d\n");
        // A key without a weight has the lowest level.
        assert_eq!(weights(&dir), [3, 3, 7, 1], "{kind}");
    }
}

#[test]
fn important_keys_stay_longer() {
    for kind in IMPORTANCE {
        let place = Place::new();
        let keep = |weight: u32| {
            let dir = filter(&place, &weight.to_string(), &graded(kind));
            let name = |number| format!("key {number}");
            let keys: Vec<_> = (0..200).map(name).collect();
            let lines: Vec<_> = keys.iter().map(|key| format!("{key}\t{weight}")).collect();
            ok(&["insert", &dir, "--weight"], &input(&lines));
            let others: Vec<_> = (0..600).map(|number| format!("other {number}\t1")).collect();
            ok(&["insert", &dir, "--weight"], &input(&others));
            let answers = ok(&["contains", &dir], &input(&keys));
            answers.text().lines().filter(|line| *line == "1").count()
        };
        // The next 600 inserts lower a cell about twice, in the last kind at most four times. Cells
        // at 7 nearly all remain above 0; of four cells that began at 1 or 3, one has probably
        // reached 0.
        let (important, unimportant) = (keep(100), keep(1));
        assert!(important > unimportant + 50, "{kind}: {important} and {unimportant}");
    }
}

#[test]
fn equal_levels_are_equal_states() {
    for kind in IMPORTANCE {
        let place = Place::new();
        let [one, two] = [("one", 90), ("two", 99)].map(|(name, importance)| {
            let dir = filter(&place, name, &graded(kind));
            let line = format!("1700000000000\ta\t{importance}\n");
            ok(&["insert", &dir, "--event-time", "--weight"], line.as_bytes());
            dir
        });
        assert_eq!(digest(&one), digest(&two), "{kind}");
    }
}

#[test]
fn a_line_without_a_weight_is_named_with_its_file() {
    for kind in [COUNTERS[0], COUNTERS[3], &graded("importance-mc")] {
        let place = Place::new();
        let dir = filter(&place, "filter", kind);
        let malformed: [&[u8]; 6] = [b"c", b"c\t", b"c\tx", b"c\t1 ", b"c\t0x1", b""];
        for line in malformed {
            let file = place.file("keys", &[b"a\t1\nb\t2\n", line, b"\nd\t1\n"].concat());
            let sentence = refused(&["insert", &dir, &file, "--weight"], b"");
            assert!(sentence.contains(&format!("{file}, line 3: ")), "{sentence}");
            assert!(sentence.contains("KEY<TAB>NUMBER"), "{sentence}");
        }
        // The lines before were inserted each time, the line after never.
        let stat = ok(&["stat", &dir, "--json"], b"").json();
        assert_eq!(stat[0]["inserts"], 12, "{kind:?}");
        let sentence = refused(&["insert", &dir, "--weight"], b"c\n");
        assert!(sentence.contains("standard input, line 1: "), "{sentence}");
    }
}

#[test]
fn an_invalid_weight_is_named_with_its_line() {
    let counts: &[&str] = &["0", "-1", "1.5", "1099511562241", "NaN", "inf", "1e30"];
    let importances: &[&str] = &["-1", "NaN", "inf", "-inf", "-1e-9"];
    let rows = COUNTERS.map(|kind| (kind.to_vec(), counts)).into_iter();
    let rows = rows.chain(IMPORTANCE.map(|kind| (graded(kind).to_vec(), importances)));
    for (kind, numbers) in rows {
        let place = Place::new();
        let dir = filter(&place, "filter", &kind);
        for number in numbers {
            let file = place.file("keys", format!("a\t1\nb\t{number}\n").as_bytes());
            let sentence = refused(&["insert", &dir, &file, "--weight"], b"");
            assert!(sentence.contains(&format!("{file}, line 2: ")), "{kind:?}: {sentence}");
            assert!(sentence.contains("weight"), "{kind:?}: {sentence}");
        }
        assert_eq!(ok(&["contains", &dir], b"b\n").text(), "0\n", "{kind:?}");
    }
}

#[test]
fn both_a_time_and_a_weight_are_needed_where_both_are_announced() {
    let place = Place::new();
    let dir = filter(&place, "filter", COUNTERS[1]);
    let insert = ["insert", &dir, "--event-time", "--weight"];
    for (line, expected) in [
        ("a\t3", "UNIX_MILLIS<TAB>KEY"),
        ("1700000000000", "UNIX_MILLIS<TAB>KEY"),
        ("1700000000000\ta", "KEY<TAB>NUMBER"),
        ("1700000000000\ta\tb", "KEY<TAB>NUMBER"),
    ] {
        let sentence = refused(&insert, line.as_bytes());
        assert!(sentence.contains(expected) && sentence.contains("line 1"), "{sentence}");
    }
    // The first of two numbers is the time, the second the weight of the empty key.
    ok(&insert, b"1700000000000\t\t3\n");
    assert_eq!(weights(&dir), [3]);
}

#[test]
fn weights_are_refused_by_kinds_without_weights() {
    for kind in [
        &["bloom", "--capacity", "1000"][..],
        &["timing", "--window-items", "1000"],
        &["stable", "--cells", "7000", "--max", "7", "-K", "4", "-P", "20"],
        &["two-buffer", "--window-items", "1000"],
    ] {
        let place = Place::new();
        let dir = filter(&place, "filter", kind);
        let outcome = run(&["insert", &dir, "--weight"], b"a\t3\n");
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("takes no weights"), "{}", outcome.stderr);
        assert_eq!(ok(&["contains", &dir], b"a\n").text(), "0\n");
    }
}

/// Returns the lines of `dedup` with this state, for these options and lines.
fn dedup(place: &Place, dir: &str, options: &[&str], lines: &[u8]) -> crate::support::Outcome {
    let file = place.file("lines", lines);
    run(&[&["dedup", "--state", dir, "--weight"], options, &[&file]].concat(), b"")
}

#[test]
fn dedup_counts_weights_however_it_writes_its_lines() {
    let place = Place::new();
    let output = place.at("output");
    for (at, options) in
        [&[][..], &["--at-least-once"], &["--output", &output]].into_iter().enumerate()
    {
        let dir = filter(&place, &at.to_string(), COUNTERS[0]);
        let outcome = dedup(&place, &dir, options, b"a\t7\nb\t3\na\t2\n");
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{options:?}");
        assert_eq!(ok(&["estimate", &dir], b"a\nb\n").text(), "9\n3\n", "{options:?}");
        let new = if outcome.stdout.is_empty() {
            std::fs::read(&output).expect("the output")
        } else {
            outcome.stdout
        };
        assert_eq!(new, b"a\t7\nb\t3\n", "{options:?}");
        let wrong = dedup(&place, &dir, options, b"a\t7\nb\t3\na\t2\nc\t-1\nd\t1\n");
        assert_eq!(wrong.code, Some(2), "{options:?}");
        assert!(wrong.stderr.contains("line 4: ") && wrong.stderr.contains("weight"), "{wrong:?}");
    }
}

#[test]
fn dedup_refuses_weights_for_a_filter_without_them() {
    let place = Place::new();
    let (state, output) = (place.at("state"), place.at("output"));
    let file = place.file("lines", b"a\t7\n");
    for options in [
        &[][..],
        &["--state", &state],
        &["--state", &state, "--at-least-once"],
        &["--state", &state, "--output", &output],
    ] {
        let words = [&["dedup", "--last", "100", "--weight"], options, &[&file]].concat();
        let sentence = refused(&words, b"");
        assert!(sentence.contains("takes no weights"), "{options:?}: {sentence}");
    }
}

#[test]
fn weights_that_take_more_room_than_one_step_has_leave_no_line_out() {
    let place = Place::new();
    // A line takes 257 records of the 65,536 of a batch.
    let kind = ["counting", "--capacity", "1000", "--counter-bits", "32"];
    let lines: String = (0..300).map(|key| format!("{key}\t1000000000000\n")).collect();
    let dir = filter(&place, "printed", &kind);
    let printed = dedup(&place, &dir, &["--at-least-once"], lines.as_bytes());
    assert_eq!((printed.code, printed.text()), (Some(0), &lines[..]), "{}", printed.stderr);
    assert_eq!(ok(&["contains", &dir], b"0\n299\n300\n").text(), "1\n1\n0\n");
    let (dir, output) = (filter(&place, "written", &kind), place.at("output"));
    let writing = ["--output", &output, "--skip-bad"];
    let outcome = dedup(&place, &dir, &writing, lines.as_bytes());
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("a smaller --batch"), "{outcome:?}");
    let outcome =
        dedup(&place, &dir, &[&writing[..], &["--batch", "100"]].concat(), lines.as_bytes());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(&output).expect("the output"), lines);
}
