//! `insert`, `contains`, `check`, `age`: one answer per key, and the errors where there is none.

use crate::support::{Place, command, ok, refused, run};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

/// Creates a filter in its own directory.
fn filter(options: &[&str]) -> (Place, String) {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&[&["create", &dir, "--hash-seed", "7"], options].concat(), b"");
    (place, dir)
}

const LAST_100: [&str; 6] =
    ["--kind", "age-partitioned", "--window-items", "100", "--fpr", "0.001"];
const MINUTE: [&str; 6] = ["--kind", "time-limited", "--window", "60s", "--fpr", "0.001"];
const BLOOM: [&str; 6] = ["--kind", "bloom", "--capacity", "1000", "--fpr", "0.001"];

#[test]
fn every_kind_answers_in_input_order() {
    for kind in [LAST_100, MINUTE, BLOOM] {
        let (_place, dir) = filter(&kind);
        assert_eq!(ok(&["insert", &dir], b"a\nb\nc").stdout, b"");
        assert_eq!(ok(&["contains", &dir], b"b\nx\na\n\nc\n").stdout, b"1\n0\n1\n0\n1\n");
        assert_eq!(ok(&["check", &dir], b"x\nx\na\n").stdout, b"0\n1\n1\n");
        assert_eq!(ok(&["contains", &dir], b"x").stdout, b"1\n");
    }
}

#[test]
fn keys_come_from_a_file_or_from_standard_input() {
    let (place, dir) = filter(&LAST_100);
    let file = place.file("keys", b"a\nb\n");
    ok(&["insert", &dir, &file], b"");
    assert_eq!(ok(&["contains", &dir, &file], b"").stdout, b"1\n1\n");
    assert_eq!(ok(&["contains", &dir, "-"], b"b\nc\n").stdout, b"1\n0\n");
    assert_eq!(ok(&["contains", &dir, "-0"], b"b\0c\n\0").stdout, b"1\n0\n");
}

#[test]
fn checking_since_accepted_does_not_refresh() {
    let (_place, dir) = filter(&LAST_100);
    ok(&["check", &dir, "--since", "accepted"], b"a\na\na\n");
    let stat = ok(&["stat", &dir, "--json"], b"").json();
    assert_eq!(stat[0]["inserts"], 1);
    ok(&["check", &dir], b"a\na\n");
    let stat = ok(&["stat", &dir, "--json"], b"").json();
    assert_eq!(stat[0]["inserts"], 3);
}

#[test]
fn an_age_in_items_is_a_lower_bound() {
    let (_place, dir) = filter(&LAST_100);
    let keys: Vec<_> = (0..60).map(|number| format!("key {number}")).collect();
    ok(&["insert", &dir], keys.join("\n").as_bytes());
    let outcome = ok(&["age", &dir], [keys.join("\n"), "absent".into()].join("\n").as_bytes());
    let lines = outcome.text().lines().collect::<Vec<_>>();
    assert_eq!(lines[60], "-");
    for (number, line) in lines[..60].iter().enumerate() {
        let age: usize = line.parse().expect(line);
        assert!(age <= 60 - number, "key {number} has the reported age {age}");
    }
    assert!(
        lines[0].parse::<usize>().expect("age") > 20,
        "ages are too small to test anything: {lines:?}"
    );
}

#[test]
fn an_age_in_seconds_refers_to_the_time_of_its_line() {
    let (_place, dir) = filter(&MINUTE);
    let start = now_millis() - 3_600_000;
    ok(&["insert", &dir, "--event-time"], format!("{start}\ta\n").as_bytes());
    let lines = format!("{}\ta\n{}\ta\n{0}\tb\n", start + 30_000, start + 600_000);
    let outcome = ok(&["age", &dir, "--event-time"], lines.as_bytes());
    let answers = outcome.text().lines().collect::<Vec<_>>();
    assert_eq!(answers[1..], ["-", "-"]);
    let age: f64 = answers[0].parse().expect("seconds");
    assert!((20.0..=30.0).contains(&age), "{age}");
}

#[test]
fn a_lookup_does_not_advance_the_time() {
    let (_place, dir) = filter(&MINUTE);
    let start = now_millis() - 3_600_000;
    ok(&["insert", &dir, "--event-time"], format!("{start}\ta\n").as_bytes());
    let before = ok(&["digest", &dir], b"").stdout;
    ok(&["contains", &dir, "--event-time"], format!("{}\ta\n", start + 600_000).as_bytes());
    ok(&["contains", &dir], b"a\n");
    assert_eq!(ok(&["digest", &dir], b"").stdout, before);
    let again = ok(&["contains", &dir, "--event-time"], format!("{}\ta\n", start + 1).as_bytes());
    assert_eq!(again.stdout, b"1\n");
}

#[test]
fn answers_in_json_hold_the_key() {
    let (_place, dir) = filter(&LAST_100);
    let checked = ok(&["check", &dir, "--json"], b"a\n\xff\na\n");
    assert_eq!(
        checked.text(),
        "{\"key\":\"a\",\"present\":false}\n{\"key_hex\":\"ff\",\"present\":false}\n\
         {\"key\":\"a\",\"present\":true}\n"
    );
    let contained = ok(&["contains", &dir, "--json"], b"a\nb\n");
    assert_eq!(
        contained.text(),
        "{\"key\":\"a\",\"present\":true}\n{\"key\":\"b\",\"present\":false}\n"
    );
    let ages = ok(&["age", &dir, "--json"], b"a\nb\n").json();
    assert!(ages[0]["age_items"].is_u64(), "{ages:?}");
    assert!(ages[1]["age"].is_null(), "{ages:?}");
}

#[test]
fn an_age_in_json_names_its_unit() {
    let (_place, dir) = filter(&MINUTE);
    ok(&["insert", &dir], b"a\n");
    let ages = ok(&["age", &dir, "--json"], b"a\n").json();
    assert!(ages[0]["age_seconds"].is_number(), "{ages:?}");
}

#[test]
fn keys_too_late_to_insert_are_counted() {
    let (_place, dir) = filter(&MINUTE);
    let now = now_millis() - 1000;
    let lines = format!("{0}\ta\n{now}\tb\n{0}\tc\n", now - 3_600_000);
    let inserted = run(&["insert", &dir, "--event-time"], lines.as_bytes());
    assert_eq!(inserted.code, Some(0));
    assert!(inserted.stderr.contains("not inserted: 1"), "{}", inserted.stderr);
    let lines = format!("{now}\tb\n{}\td\n", now - 3_600_000);
    let checked = run(&["check", &dir, "--event-time", "--json"], lines.as_bytes());
    assert_eq!(
        checked.text(),
        "{\"key\":\"b\",\"present\":true}\n{\"key\":\"d\",\"present\":false,\"too_late\":true}\n"
    );
}

#[test]
fn every_durability_is_accepted() {
    for durability in ["always", "never", "250ms"] {
        let (_place, dir) = filter(&[&LAST_100[..], &["--durability", durability]].concat());
        ok(&["insert", &dir], b"a\n");
        let now = now_millis();
        let lines = format!("{}\tb\n{now}\tc\n", now - 10);
        ok(&["insert", &dir, "--event-time"], lines.as_bytes());
        for other in ["always", "never", "1s"] {
            let arguments = ["check", &dir, "--durability", other];
            assert_eq!(ok(&arguments, b"a\nb\nc\n").stdout, b"1\n1\n1\n");
        }
    }
}

#[test]
fn a_kind_without_ages_says_so() {
    let (_place, dir) = filter(&BLOOM);
    let sentence = refused(&["age", &dir], b"a\n");
    assert!(sentence.contains("bloom") && sentence.contains("age"), "{sentence}");
}

#[test]
fn a_directory_that_is_not_a_filter_is_named() {
    let place = Place::new();
    let missing = place.at("missing");
    let commands: [&[&str]; 9] = [
        &["insert", &missing],
        &["contains", &missing],
        &["check", &missing],
        &["age", &missing],
        &["stat", &missing],
        &["digest", &missing],
        &["verify", &missing],
        &["wal", &missing],
        &["snapshot", &missing],
    ];
    for command in commands {
        let sentence = refused(command, b"a\n");
        assert!(sentence.contains(&missing), "{sentence}");
    }
    assert!(!std::path::Path::new(&missing).exists());
}

fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_millis() as u64
}

#[test]
fn a_key_from_the_future_causes_a_warning_and_does_not_stop_the_clock() {
    let (_place, dir) = filter(&["--kind", "time-limited", "--window", "1s"]);
    let ahead = now_millis() + 1_800_000;
    ok(&["insert", &dir, "--event-time"], format!("{ahead}\tx\n").as_bytes());
    let check = || run(&["check", &dir], b"a\n");
    let first = check();
    assert_eq!((first.code, first.text()), (Some(0), "0\n"));
    let warned = &first.stderr;
    assert!(warned.contains("ahead of the clock") && warned.lines().count() == 1, "{warned}");
    let stat = run(&["stat", &dir, "--json"], b"");
    let lead = stat.json()[0]["clock_lead_ms"].as_u64().expect("a lead");
    assert!((60_000..1_900_000).contains(&lead), "{lead}");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(check().text(), "0\n", "it has expired, with the filter still 30 minutes ahead");
}

#[test]
fn a_key_that_could_not_be_read_is_not_present() {
    let (_place, dir) = filter(&LAST_100);
    ok(&["insert", &dir], b"a\n");
    let contains = ["contains", &dir, "--json-field", "id", "--skip-bad", "--key"];
    for (key, answer, code) in
        [("not json", "?\n", 1), (r#"{"id": "a"}"#, "1\n", 0), (r#"{"id": "b"}"#, "0\n", 1)]
    {
        let outcome = run(&[&contains[..], &[key]].concat(), b"");
        assert_eq!((outcome.text(), outcome.code), (answer, Some(code)), "{key}");
    }
}

/// Returns the exit code of a command whose output nobody reads.
fn code_unread(arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = command(arguments);
    command.stdin(Stdio::null()).stdout(writer).status().expect("it runs").code()
}

#[test]
fn an_answer_that_is_an_exit_code_is_given_also_if_nobody_reads_the_output() {
    let (place, dir) = filter(&LAST_100);
    ok(&["insert", &dir], b"a\n");
    assert_eq!(code_unread(&["contains", &dir, "--key", "a"]), Some(0));
    assert_eq!(code_unread(&["contains", &dir, "--key", "b"]), Some(1));
    assert_eq!(code_unread(&["verify", &dir]), Some(0));
    assert_eq!(code_unread(&["salvage", &dir, &place.at("saved"), "--json"]), Some(1));
    let meta = std::path::Path::new(&dir).join("meta");
    let mut bytes = std::fs::read(&meta).expect("a file");
    bytes[20] ^= 1;
    std::fs::write(meta, bytes).expect("space");
    assert_eq!(run(&["verify", &dir], b"").code, Some(1));
    assert_eq!(code_unread(&["verify", &dir]), Some(1));
    assert_eq!(code_unread(&["verify", &dir, "--json"]), Some(1));
}
