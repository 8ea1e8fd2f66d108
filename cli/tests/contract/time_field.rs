//! Times in a part of a line: where they are, in which forms, zones and years, and steps ahead that
//! are too large.

use crate::support::{Place, command, refused, run};
use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 2024-11-24T09:00:00Z, and the seconds after it at which the key `a` comes: only the first and
/// the last come a window of 60 s or more after the one before. `b` comes once.
const START: u64 = 1_732_438_800;
const SECONDS: [(u64, &str); 6] =
    [(0, "a"), (30, "a"), (31, "b"), (80, "a"), (400, "a"), (401, "b")];
const NEW: [usize; 4] = [0, 2, 4, 5];

/// Runs `dedup` on lines that `line` writes for seconds since [`START`] and a key, and expects the
/// lines that a window in these times lets through. Returns what is on standard error.
fn suppresses(more: &[&str], line: impl Fn(u64, &str) -> String) -> String {
    let lines: Vec<String> = SECONDS.iter().map(|&(at, key)| line(at, key)).collect();
    let dedup = ["dedup", "--window", "60s", "--hash-seed", "7"];
    let arguments = [&dedup[..], more].concat();
    let outcome = run(&arguments, (lines.join("\n") + "\n").as_bytes());
    let expected: String = NEW.iter().map(|&at| lines[at].clone() + "\n").collect();
    assert_eq!((outcome.code, outcome.text()), (Some(0), &expected[..]), "{more:?}: {outcome:?}");
    outcome.stderr
}

/// Returns hours, minutes and seconds as `09:01:02`, with this many hours added.
fn clock(at: u64, ahead: u64) -> String {
    format!("{:02}:{:02}:{:02}", 9 + ahead, at / 60, at % 60)
}

#[test]
fn the_time_of_an_access_log_is_its_fourth_and_fifth_field() {
    let line = |at: u64, key: &str| {
        format!("{key} - - [24/Nov/2024:{} +0100] \"GET / HTTP/1.1\" 200 {at}", clock(at, 1))
    };
    let said = suppresses(&["--field", "1", "--time-field", "4"], line);
    let sentence = "ebbtide: standard input, line 1: times are read as the form of access logs \
                    (24/Nov/2026:10:00:00 +0100)\n";
    assert_eq!(said, sentence);
}

/// A form of time: its name, the options that it takes, and how it writes a second of the log.
type Form = (&'static str, &'static [&'static str], fn(u64) -> String);

#[test]
fn each_form_of_time_gives_the_same_answers() {
    let fields = ["--field", "1", "--time-field", "2"];
    let times: [Form; 15] = [
        ("seconds", &[], |at| (START + at).to_string()),
        ("seconds", &[], |at| format!("{}.250", START + at)),
        ("milliseconds", &[], |at| (START + at).to_string() + "000"),
        ("microseconds", &[], |at| (START + at).to_string() + "000000"),
        ("nanoseconds", &[], |at| (START + at).to_string() + "000000000"),
        ("nanoseconds", &["--time-unit", "ns"], |at| (START + at).to_string() + "000000000"),
        ("ISO 8601", &[], |at| format!("2024-11-24T{}Z", clock(at, 0))),
        ("ISO 8601", &[], |at| format!("[2024-11-24 {}.123+01:00]", clock(at, 1))),
        ("ISO 8601", &["--utc"], |at| format!("2024-11-24 {},123", clock(at, 0))),
        ("ISO 8601", &["--zone", "-0230"], |at| {
            let at = at + 30 * 60;
            format!("2024-11-24T{:02}:{:02}:{:02}", 6 + at / 3600, at / 60 % 60, at % 60)
        }),
        ("ISO 8601", &["--zone", "Europe/Berlin"], |at| format!("2024/11/24 {}", clock(at, 1))),
        ("RFC 2822", &[], |at| format!("Sun, 24 Nov 2024 {} +0000", clock(at, 0))),
        ("RFC 2822", &[], |at| format!("\"Sun, 24 Nov 2024 {} GMT\"", clock(at, 0))),
        ("access logs", &[], |at| format!("[24/Nov/2024:{} +0100]", clock(at, 1))),
        ("ctime", &["--utc"], |at| format!("[Sun Nov 24 {}.000001 2024]", clock(at, 0))),
    ];
    for (name, more, time) in times {
        let said = suppresses(&[&fields[..], more].concat(), |at, key| {
            format!("{key} {} the rest", time(at))
        });
        assert!(said.contains(name) && said.lines().count() == 1, "{name}: {said}");
        // The same between tabs, in JSON, and in CSV with the time in quotes.
        let tabs = [&fields[..], more, &["--delimiter", r"\t"]].concat();
        suppresses(&tabs, |at, key| format!("{key}\t{}\trest", time(at)));
        let plain = |at: u64| time(at).replace('"', "");
        let json = [&["--json-field", "k.id", "--time-field", "/t"], more].concat();
        suppresses(&json, |at, key| {
            format!("{{\"t\": \"{}\", \"k\": {{\"id\": \"{key}\"}}}}", plain(at))
        });
        let lines: String =
            SECONDS.iter().map(|&(at, key)| format!("\"{}\",{key}\n", plain(at))).collect();
        let csv = ["dedup", "--window", "60s", "--csv-field", "k", "--time-field", "t"];
        let outcome = run(&[&csv, more].concat(), format!("t,k\n{lines}").as_bytes());
        assert_eq!((outcome.code, outcome.lines().len()), (Some(0), 1 + NEW.len()), "{outcome:?}");
    }
}

#[test]
fn numbers_of_json_are_times_and_the_key_may_be_the_whole_line() {
    let json = ["--json-field", "id", "--time-field", "at"];
    suppresses(&json, |at, key| format!("{{\"id\": \"{key}\", \"at\": {}}}", START + at));
    // The whole line is the key: lines at different times are different ones.
    let lines = format!("{START} a\n{START} a\n{} a\n", START + 1);
    let outcome = run(&["dedup", "--window", "60s", "--time-field", "1"], lines.as_bytes());
    assert_eq!(outcome.lines().len(), 2, "{outcome:?}");
}

#[test]
fn a_time_without_a_zone_needs_one_and_a_wrong_one_is_refused() {
    let fields = ["dedup", "--window", "60s", "--field", "1", "--time-field", "2"];
    let sentence = refused(&fields, b"a 2024-11-24T09:00:00 x\n");
    assert!(sentence.contains("line 1: the time has no zone; give --utc, or --zone"), "{sentence}");
    let outcome = run(&[&fields[..], &["--zone", "Mars/Olympus"]].concat(), b"");
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("such as Europe/Berlin"), "{}", outcome.stderr);
    for options in [
        &["--utc"][..],
        &["--zone", "+01:00"],
        &["--max-step", "1h"],
        &["--time-unit", "s"],
        &["--time-field", "2", "--event-time"],
        &["--time-field", "2", "--utc", "--zone", "+01:00"],
        &["--time-field", "when"],
        &["--time-field", "0"],
        &["--time-field", "a..b", "--json-field", "id"],
    ] {
        refused(&[&["dedup", "--window", "60s"], options].concat(), b"");
    }
}

#[test]
fn a_line_without_a_time_is_a_bad_line_and_the_lines_around_it_are_answered() {
    let lines = "a 1732438800\nnothing\nb soon\nc 7\nd 1732438801\na 1732438802\n";
    let fields = ["dedup", "--window", "60s", "--field", "1", "--time-field", "2"];
    let sentence = run(&fields, lines.as_bytes()).stderr;
    assert!(sentence.contains("line 2: expected a time, such as 2026-"), "{sentence}");
    let outcome = run(&[&fields[..], &["--skip-bad"]].concat(), lines.as_bytes());
    assert_eq!((outcome.code, outcome.text()), (Some(0), "a 1732438800\nd 1732438801\n"));
    assert!(outcome.stderr.contains("bad lines skipped: 3, "), "{}", outcome.stderr);
}

/// Returns the local time of syslog in UTC for seconds since the Unix epoch.
fn syslog(seconds: u64) -> String {
    let date = humantime(seconds);
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month: usize = date[5..7].parse().expect("a month");
    let day: u8 = date[8..10].parse().expect("a day");
    format!("{} {day:>2} {}", &months[3 * month - 3..3 * month], &date[11..19])
}

/// Formats seconds since the Unix epoch as `date` does.
fn humantime(seconds: u64) -> String {
    let date = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%S"])
        .output()
        .expect("date runs");
    String::from_utf8(date.stdout).expect("text")
}

#[test]
fn syslog_is_read_over_the_end_of_a_year_by_the_time_of_its_file() {
    // 2024-01-01T00:00:00Z; the window of 60 s reaches over it, and also over no other boundary.
    let new_year = 1_704_067_200;
    let place = Place::new();
    let times = [new_year - 90, new_year - 20, new_year + 10, new_year + 200];
    let lines: Vec<String> = times.iter().map(|at| syslog(*at) + " host a\n").collect();
    let file = place.file("syslog", lines.concat().as_bytes());
    let modified = UNIX_EPOCH + Duration::from_secs(new_year + 300);
    File::options().write(true).open(&file).and_then(|it| it.set_modified(modified)).expect("set");
    let arguments =
        ["dedup", "--window", "60s", "--field", "5", "--time-field", "1", "--utc", &file];
    let outcome = run(&arguments, b"");
    let expected = [0, 1, 3].map(|at| lines[at].clone()).concat();
    assert_eq!((outcome.code, outcome.text()), (Some(0), &expected[..]), "{outcome:?}");
    assert!(!outcome.stderr.contains("older than the window"), "{}", outcome.stderr);
}

#[test]
fn syslog_on_standard_input_is_of_the_last_twelve_months() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_secs();
    // The second is older by eleven months, and so not ahead by one.
    for (seconds, late) in [(now - 5, false), (now - 330 * 86_400, true)] {
        let lines = format!("{} a\n{} b\n", syslog(now - 5), syslog(seconds));
        let arguments = ["dedup", "--window", "60s", "--field", "4", "--time-field", "1", "--utc"];
        let outcome = run(&arguments, lines.as_bytes());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(outcome.stderr.contains("printed unchecked: 1"), late, "{outcome:?}");
        assert_eq!(outcome.lines().len(), 2, "{outcome:?}");
    }
}

#[test]
fn a_time_ahead_by_more_than_the_step_is_a_bad_line_and_ends_nothing() {
    let at = |seconds: u64, key: &str| format!("{} {key}\n", START + seconds);
    let year = 365 * 86_400;
    let lines = [at(0, "a"), at(year, "x"), at(5, "b"), at(6, "a"), at(100, "a"), at(3700, "c")];
    let lines = lines.concat();
    let fields = ["dedup", "--window", "60s", "--field", "2", "--time-field", "1"];
    let without = run(&fields, lines.as_bytes());
    assert!(without.stderr.contains("printed unchecked: "), "the wrong time does no harm");
    let step = [&fields[..], &["--max-step", "1h"]].concat();
    let outcome = run(&step, lines.as_bytes());
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains("line 2: time 2025-11-24T09:00:00Z is 365 days ahead"),
        "{outcome:?}"
    );
    assert!(outcome.stderr.contains("--max-step 1h"), "{outcome:?}");
    let skipping = [&step[..], &["--skip-bad", "--stats"]].concat();
    let expected = [at(0, "a"), at(5, "b"), at(100, "a"), at(3700, "c")].concat();
    for more in [&[][..], &["--at-least-once"]] {
        let outcome = run(&[&skipping[..], more].concat(), lines.as_bytes());
        assert_eq!((outcome.code, outcome.text()), (Some(0), &expected[..]), "{more:?}");
        assert!(outcome.stderr.contains("late: 0, bad: 1\n"), "{}", outcome.stderr);
    }
    // Exactly the step is taken, a microsecond more is not.
    let edge = format!("{START} a\n{} b\n", START + 3600);
    assert_eq!(run(&step, edge.as_bytes()).code, Some(0));
    let over = format!("{START} a\n{}.000001 b\n", START + 3600);
    assert_eq!(run(&step, over.as_bytes()).code, Some(2));
}

#[test]
fn the_next_run_of_a_state_knows_the_latest_time_of_the_last_one() {
    let place = Place::new();
    let state = place.at("state");
    let fields = ["--window", "60s", "--field", "2", "--time-field", "1", "--max-step", "1h"];
    let arguments = [&["dedup", "--skip-bad", "--state", &state], &fields[..]].concat();
    let first = run(&arguments, format!("{START} a\n").as_bytes());
    assert_eq!(first.lines().len(), 1, "{first:?}");
    let wrong = format!("{} x\n{} a\n{} b\n", START + 86_400, START + 5, START + 6);
    let second = run(&arguments, wrong.as_bytes());
    assert_eq!(second.text(), format!("{} b\n", START + 6), "{second:?}");
    assert!(second.stderr.contains("bad lines skipped: 1, "), "{}", second.stderr);
}

#[test]
fn a_file_read_with_the_clock_as_its_time_causes_a_warning_and_other_inputs_do_not() {
    let place = Place::new();
    let log = place.file("access.log", format!("a {START}\nb {}\n", START + 1).as_bytes());
    let dedup = ["dedup", "--window", "60s", "--field", "1"];
    let warned = run(&[&dedup[..], &[&log]].concat(), b"");
    assert_eq!((warned.code, warned.lines().len()), (Some(0), 2));
    assert!(warned.stderr.starts_with(&format!("ebbtide: {log} is a file, ")), "{warned:?}");
    assert!(warned.stderr.contains("window of 1m") && warned.stderr.contains("--time-field"));
    // Standard input may be a file as well.
    let mut redirected = command(&dedup);
    let input = File::open(&log).expect("open");
    let output = redirected.stdin(input).output().expect("run");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.starts_with("ebbtide: standard input is a file"), "{stderr}");
    assert_eq!(run(&dedup, b"a\nb\n").stderr, "", "a pipe");
    assert_eq!(run(&["dedup", "--last", "9", "--field", "1", &log], b"").stderr, "", "no clock");
    let timed = run(&[&dedup[..], &["--time-field", "2", &log]].concat(), b"").stderr;
    assert!(!timed.contains("is a file") && timed.contains("seconds since"), "{timed}");
}

#[test]
fn a_window_of_the_log_example_is_that_of_its_times() {
    // Exact answers, by a program of a few lines, in place of the filter.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/requests.log");
    let text = std::fs::read_to_string(path).expect("the example");
    let mut last = std::collections::HashMap::new();
    let exact = text
        .lines()
        .filter(|line| {
            let client = line.split(' ').next().expect("a client");
            let time = line.split(['[', ']']).nth(1).expect("a time");
            let parts: Vec<u64> =
                time[12..20].split(':').map(|part| part.parse().expect("digits")).collect();
            let days: u64 = time[..2].parse().expect("a day");
            let at = ((days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
            last.insert(client, at).is_none_or(|before| at - before > 3600)
        })
        .count();
    let arguments = ["dedup", "--window", "1h", "--field", "1", "--time-field", "4", path];
    let outcome = run(&arguments, b"");
    let found = outcome.lines().len();
    assert!(outcome.code == Some(0) && exact > 1000, "{exact}: {}", outcome.stderr);
    // The window is up to a 14th longer, and one new key in a thousand is suppressed.
    assert!((exact * 95 / 100..=exact + 5).contains(&found), "{found}, exact {exact}");
}

#[test]
fn a_number_or_a_word_behind_a_time_is_not_its_zone() {
    for data in [["+21", "+09"], ["+2100", "-1234"], ["Z", "EST"], ["UT", "-05"]] {
        for [date, fields] in [["2026-11-24 10:00:", "1"], ["[24/Nov/2026:10:00:", "1"]] {
            let line = |second: u8, data: &str| format!("{date}{second:02} {data} s1\n");
            let lines = [line(0, data[0]), line(10, data[1]), line(20, data[1])].concat();
            let key = if date.contains('-') { "4" } else { "3" };
            let dedup =
                ["dedup", "--window", "1h", "--field", key, "--time-field", fields, "--utc"];
            let outcome = run(&dedup, lines.as_bytes());
            assert_eq!((outcome.code, outcome.lines().len()), (Some(0), 1), "{data:?} {outcome:?}");
            assert!(outcome.stderr.contains("in the zone UTC"), "{}", outcome.stderr);
        }
    }
}

#[test]
fn an_offset_in_hours_and_minutes_is_the_zone_also_where_one_is_given_for_times_without() {
    let lines = "2026-11-24 10:00:00 +0100 a\n2026-11-24 10:00:00 +0000 a\n";
    let dedup = ["dedup", "--window", "30m", "--field", "4", "--time-field", "1", "--utc"];
    assert_eq!(run(&dedup, lines.as_bytes()).lines().len(), 2);
}

#[test]
fn a_time_field_far_beyond_the_line_is_not_searched_for() {
    let dedup = ["dedup", "--window", "1h", "--time-field", "1e15"];
    assert!(refused(&dedup, b"a b\n").contains("line 1: expected a time"));
}

#[test]
fn syslog_in_a_file_that_is_standard_input_is_of_the_year_of_that_file() {
    // In the middle of 2022: the clock would say another year.
    let at = 1_656_000_000;
    let place = Place::new();
    let file = place.file("syslog", format!("{} host a\n", syslog(at)).as_bytes());
    let modified = UNIX_EPOCH + Duration::from_secs(at + 300);
    File::options().write(true).open(&file).and_then(|it| it.set_modified(modified)).expect("set");
    let state = place.at("state");
    let arguments = [
        "dedup",
        "--window",
        "60s",
        "--field",
        "5",
        "--time-field",
        "1",
        "--utc",
        "--state",
        &state,
    ];
    let mut child = command(&arguments);
    let outcome = child.stdin(File::open(&file).expect("a file")).output().expect("it runs");
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    let stat = run(&["stat", &state, "--json"], b"").json();
    assert_eq!(stat[0]["time"], at * 1000);
}
