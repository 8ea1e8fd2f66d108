//! `explain`: which records of the log are the reason of an answer.

use crate::every_kind::{ROWS, TIME, timed};
use crate::support::{Place, Talk, input, ok, refused, run};
use serde_json::Value;

fn explained(dir: &str, more: &[&str], keys: &[&str]) -> Vec<Value> {
    let keys: Vec<_> = keys.iter().map(|&key| key.to_owned()).collect();
    ok(&[&["explain", dir, "--json"], more].concat(), &input(&keys)).json()
}

#[test]
fn the_records_of_a_key_are_found_in_filters_of_every_kind() {
    for row in ROWS {
        let place = Place::new();
        let dir = row.create(&place);
        let what = format!("{} {:?}", row.kind, row.options);
        ok(&["insert", &dir, "--event-time"], &timed(&["a", "b", "a", "c"]));
        let before = ok(&["digest", &dir], b"").stdout;
        let all = explained(&dir, &[], &["a", "c", "x"]);
        let of = |at: usize, name: &str| all[at][name].clone();
        assert_eq!([of(0, "present"), of(1, "present"), of(2, "present")], [true, true, false]);
        assert_eq!([of(0, "inserts"), of(1, "inserts"), of(2, "inserts")], [2, 1, 0], "{what}");
        assert_eq!(of(0, "reason"), "inserted", "{what}");
        assert_eq!(of(2, "reason"), "never-inserted", "{what}");
        let records = all[0]["records"].as_array().expect("records");
        let ago: Vec<_> = records.iter().map(|record| record["inserts_ago"].clone()).collect();
        assert_eq!(ago, [3, 1], "{what}");
        assert!(records[0]["lsn"].as_u64() < records[1]["lsn"].as_u64(), "{what}");
        for record in records {
            assert_eq!(record["time"], TIME, "{what}");
            assert_eq!(record["operation"], "insert", "{what}");
        }
        assert_eq!(of(0, "log_inserts"), 4, "{what}");
        assert_eq!(of(0, "log_complete"), true, "{what}");
        let blocks = all[0]["blocks"].as_array().expect("blocks");
        assert!(!blocks.is_empty(), "{what}");
        assert!(blocks.iter().all(|block| block["block"].as_u64() < block["blocks"].as_u64()));
        assert_eq!(all[0][row.age.unwrap_or("age")].is_number(), row.age.is_some(), "{what}");
        assert_eq!(all[0]["estimate"].is_number(), row.counts, "{what}");
        ok(&["explain", &dir, "a"], b"");
        assert_eq!(ok(&["digest", &dir], b"").stdout, before, "{what}");
    }
}

#[test]
fn a_removed_key_differs_from_one_that_never_came() {
    let place = Place::new();
    let dir = place.at("filter");
    let kept = ["--keep-log", "1h"];
    ok(&[&["create", &dir, "--kind", "counting", "--capacity", "100"], &kept[..]].concat(), b"");
    ok(&["insert", &dir, "--weight"], b"a\t3\nb\t1\n");
    ok(&["remove", &dir], b"b\n");
    let all = explained(&dir, &[], &["a", "b", "c"]);
    let reasons: Vec<_> = all.iter().map(|one| one["reason"].clone()).collect();
    assert_eq!(reasons, ["inserted", "removed", "never-inserted"]);
    assert_eq!(all[0]["records"][0]["weight"], 3);
    assert_eq!(
        (&all[1]["removals"], &all[1]["records"][1]["operation"]),
        (&1.into(), &"remove".into())
    );
    // A removed key that is still found shares its counters with other keys.
    let tiny = place.at("tiny");
    let few = ["--kind", "counting", "--capacity", "100", "--cells", "64", "--k", "1"];
    let options = ["--hash-seed", "7", "--counter-bits", "8"];
    ok(&[&["create", &tiny], &options[..], &few, &kept].concat(), b"");
    let keys: Vec<_> = (0..2_000).map(|key| format!("key-{key}")).collect();
    ok(&["insert", &tiny], &input(&keys));
    ok(&["insert", &tiny, "--key", "removed"], b"");
    ok(&["remove", &tiny, "--key", "removed"], b"");
    let removed = &explained(&tiny, &[], &["removed"])[0];
    assert_eq!(removed["present"], true);
    assert_eq!(removed["log_complete"], true);
    assert_eq!(removed["reason"], "false-positive", "{removed}");
    let sentence = removed["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("and all its inserts were removed again: it"), "{sentence}");
    ok(&["clear", &dir], b"");
    let all = explained(&dir, &[], &["a"]);
    assert_eq!((&all[0]["reason"], &all[0]["inserts"]), (&"never-inserted".into(), &0.into()));
    assert_eq!(all[0]["log_complete"], true);
}

#[test]
fn an_expired_key_is_explained_by_its_window() {
    let place = Place::new();
    let items = place.at("items");
    let age_partitioned = ["--kind", "age-partitioned", "--last", "100"];
    ok(&[&["create", &items, "--hash-seed", "7"], &age_partitioned[..]].concat(), b"");
    let keys: Vec<_> = (0..500).map(|key| format!("key-{key}")).collect();
    ok(&["insert", &items], &input(&keys));
    let all = explained(&items, &[], &["key-0", "key-499"]);
    assert_eq!([&all[0]["reason"], &all[1]["reason"]], ["expired", "inserted"]);
    assert_eq!(all[0]["records"][0]["inserts_ago"], 499);
    let sentence = all[0]["sentence"].as_str().expect("a sentence");
    assert!(sentence.ends_with("499 inserts ago, before the last 100 inserts: it has expired"));
    let time = place.at("time");
    ok(&["create", &time, "--kind", "time-limited", "--window", "60s"], b"");
    let lines = format!("{TIME}\told\n{}\tnew\n", TIME + 600_000);
    ok(&["insert", &time, "--event-time"], lines.as_bytes());
    let all = explained(&time, &[], &["old", "new"]);
    assert_eq!([&all[0]["reason"], &all[1]["reason"]], ["expired", "inserted"]);
    assert_eq!(all[0]["records"][0]["seconds_ago"], 600.0);
}

/// Returns a filter whose log no longer begins at its first record, with a window that reaches
/// beyond it, and the keys in the order of their inserts.
fn trimmed(place: &Place) -> (String, Vec<String>) {
    let dir = place.at("filter");
    let kind = ["--kind", "block-timing", "--window-items", "40000", "--fpr", "0.05"];
    let settings = ["--hash-seed", "7", "--segment-bytes", "64KiB", "--durability", "never"];
    ok(&[&["create", &dir], &kind[..], &settings].concat(), b"");
    let keys: Vec<_> = (0..40_000).map(|key| format!("key-{key}")).collect();
    for part in keys.chunks(8_000) {
        ok(&["insert", &dir], &input(part));
        ok(&["snapshot", &dir], b"");
    }
    (dir, keys)
}

#[test]
fn without_a_record_the_evidence_tells_old_keys_from_false_positives() {
    let place = Place::new();
    let (dir, keys) = trimmed(&place);
    let old: Vec<_> = keys[1_000..1_400].iter().map(String::as_str).collect();
    let without = explained(&dir, &[], &old);
    assert_eq!(without[0]["log_complete"], false, "the log was not trimmed: {}", without[0]);
    let first = without[0]["log_first_lsn"].as_u64().expect("an LSN");
    for one in &without {
        assert_eq!((&one["present"], &one["reason"]), (&true.into(), &"before-log".into()));
        assert!(one["false_positive_probability"].is_null());
        let sentence = one["sentence"].as_str().expect("a sentence");
        assert!(sentence.contains(&format!("before LSN {first}, or is a false")), "{sentence}");
    }
    let absent: Vec<_> = (0..20_000).map(|key| format!("absent-{key}")).collect();
    let absent: Vec<_> = absent.iter().map(String::as_str).collect();
    let prior = ["--prior", "uniform:80000"];
    let probability = |one: &Value| one["false_positive_probability"].as_f64();
    let of_absent = explained(&dir, &prior, &absent);
    let found: Vec<_> = of_absent.iter().filter(|one| one["present"] == true).collect();
    assert!(found.len() > 100, "{} false positives", found.len());
    let mean = |all: &mut dyn Iterator<Item = Option<f64>>| {
        let all: Vec<f64> = all.map(|one| one.expect("a probability")).collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    let of_old = mean(&mut explained(&dir, &prior, &old).iter().map(probability));
    let of_found = mean(&mut found.iter().map(|one| probability(one)));
    assert!(of_old < of_found, "{of_old} and {of_found}");
    // A new key: in the log.
    let new = explained(&dir, &[], &[&keys[39_999]]);
    assert_eq!(new[0]["reason"], "inserted");
}

#[test]
fn a_false_positive_is_certain_where_the_log_is_complete() {
    let place = Place::new();
    let dir = place.at("filter");
    let kind = ["--kind", "bloom", "--capacity", "1000", "--fpr", "0.2", "--hash-seed", "7"];
    ok(&[&["create", &dir], &kind[..]].concat(), b"");
    let keys: Vec<_> = (0..1_000).map(|key| format!("key-{key}")).collect();
    ok(&["insert", &dir], &input(&keys));
    let absent: Vec<_> = (0..100).map(|key| format!("absent-{key}")).collect();
    let absent: Vec<_> = absent.iter().map(String::as_str).collect();
    let all = explained(&dir, &[], &absent);
    let present: Vec<_> = all.iter().filter(|one| one["present"] == true).collect();
    assert!(!present.is_empty());
    assert!(present.iter().all(|one| one["reason"] == "false-positive"));
    assert!(present.iter().all(|one| one["false_positive_probability"] == 1.0));
}

#[test]
fn explanations_follow_a_writer_that_has_the_filter_open() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "1000", "--hash-seed", "7"], b"");
    let mut writer = Talk::new(&["check", &dir]);
    for round in 0..20 {
        let key = format!("key {round}");
        assert_eq!(writer.ask(&key), "0");
        let all = explained(&dir, &[], &[&key, "never"]);
        assert_eq!(all[0]["reason"], "inserted", "{}", all[0]);
        assert_eq!(all[0]["records"][0]["inserts_ago"], 0);
        assert_eq!(all[1]["reason"], "never-inserted", "{}", all[1]);
    }
    writer.end();
}

#[test]
fn keys_before_a_bad_line_are_explained() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "1000"], b"");
    ok(&["insert", &dir], b"a\n");
    let lines = b"{\"k\": \"a\"}\n{\"k\": \"b\"}\nbad\n{\"k\": \"c\"}\n";
    let outcome = run(&["explain", &dir, "--json-field", "k", "--json"], lines);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("line 3: "), "{}", outcome.stderr);
    let keys: Vec<_> = outcome.json().iter().map(|one| one["key"].clone()).collect();
    assert_eq!(keys, ["a", "b"]);
}

#[test]
fn a_skipped_line_is_answered_in_its_place() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "1000"], b"");
    ok(&["insert", &dir], b"a\n");
    let lines = b"bad\n{\"k\": \"a\"}\n{\"k\": 3\n{\"n\": 1}\n{\"k\": \"b\"}\n";
    let explain = ["explain", &dir, "--json-field", "k", "--skip-bad"];
    let outcome = run(&[&explain[..], &["--json"]].concat(), lines);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.stderr.contains("bad lines skipped: 3, "), "{}", outcome.stderr);
    let all = outcome.json();
    let answers: Vec<_> = all.iter().map(|one| (&one["key"], &one["line"])).collect();
    let (none, a, b) = (&Value::Null, &"a".into(), &"b".into());
    let numbers = [1, 3, 4].map(Value::from);
    let [first, third, fourth] = &numbers;
    assert_eq!(answers, [(none, first), (a, none), (none, third), (none, fourth), (b, none)]);
    assert!(all.iter().all(|one| one["error"].is_string() == one["line"].is_number()));
    let outcome = run(&explain, lines);
    let blocks: Vec<_> = outcome.text().split("\n\n").collect();
    let begins =
        ["bad: ?\n  why      ", "a: present\n", "{\"k\": 3: ?\n", "{\"n\": 1}: ?\n", "b: "];
    assert_eq!(blocks.len(), begins.len(), "{}", outcome.text());
    for (block, begin) in blocks.iter().zip(begins) {
        assert!(block.replace('\\', "").starts_with(begin), "{block}");
    }
}

#[test]
fn a_rate_and_repeats_without_a_prior_are_refused() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "1000"], b"");
    for more in [["--rate", "5"], ["--distinct", "uniform:9"]] {
        for command in ["explain", "posterior"] {
            let sentence = refused(&[&[command, &dir, "--key", "a"], &more[..]].concat(), b"");
            assert!(sentence.contains("--prior is missing"), "{sentence}");
        }
        ok(&[&["explain", &dir, "a", "--prior", "0.5"], &more[..]].concat(), b"");
    }
}

#[test]
fn keys_come_as_arguments_from_files_and_from_lines() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "1000"], b"");
    ok(&["insert", &dir], b"a\na\na\n");
    let text = ok(&["explain", &dir, "a", "b\n"], b"").text().to_owned();
    assert!(text.starts_with("a: present\n  why      record LSN "), "{text}");
    assert!(text.contains("\n\nb\\n: absent\n"), "{text}");
    let file = place.file("keys", b"{\"k\": \"a\"}\n");
    let all = ok(&["explain", &dir, "--file", &file, "--json-field", "k", "--json"], b"").json();
    assert_eq!((&all[0]["key"], &all[0]["inserts"]), (&"a".into(), &3.into()));
    let few = ok(&["explain", &dir, "--key", "a", "--records", "1"], b"").text().to_owned();
    assert!(few.contains("not shown: 2 older records\n"), "{few}");
    let none = ok(&["explain", &dir, "--key", "a", "--records", "0"], b"").text().to_owned();
    assert!(none.contains("not shown: 3 older records\n"), "{none}");
    assert!(none.contains("why      record LSN 3 inserted it 0 inserts ago, 1 insert after"));
    refused(&["explain", &dir, "a", "--prior", "line"], b"");
    refused(&["explain", &dir, "a", "--file", &file], b"");
    refused(&["explain", &place.at("missing"), "a"], b"");
}
