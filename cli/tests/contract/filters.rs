//! Commands on a whole filter: create, stat, digest, verify, wal, snapshot, backup, restore, plan.

use crate::support::{Place, input, ok, refused, run, stream};
use std::fs;
use std::path::{Path, PathBuf};

const LAST_500: [&str; 6] =
    ["--kind", "age-partitioned", "--window-items", "500", "--fpr", "0.001"];

fn created(place: &Place, name: &str, seed: &str) -> String {
    let dir = place.at(name);
    ok(&[&["create", &dir, "--hash-seed", seed], &LAST_500[..]].concat(), b"");
    dir
}

fn digest(dir: &str) -> serde_json::Value {
    ok(&["digest", dir, "--json"], b"").json().remove(0)
}

#[test]
fn a_cleared_filter_contains_no_key_and_accepts_new_ones() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    ok(&["insert", &dir], b"a\nb\nc\n");
    assert_eq!(ok(&["clear", &dir], b"").text(), "cleared; 3 inserts removed\n");
    assert_eq!(ok(&["contains", &dir], b"a\nb\n").text(), "0\n0\n");
    ok(&["insert", &dir], b"b\n");
    assert_eq!(ok(&["contains", &dir], b"a\nb\n").text(), "0\n1\n");
    assert_eq!(ok(&["clear", &dir, "--json"], b"").json(), [serde_json::json!({ "inserts": 1 })]);
    assert!(ok(&["wal", &dir], b"").text().lines().any(|line| line.contains("clear")));
}

#[test]
fn a_clear_of_a_filter_to_which_nothing_has_happened_makes_no_line_of_an_old_log_too_late() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--window", "10m"], b"");
    ok(&["clear", &dir], b"");
    let log = "2020-11-24T10:00:00Z a\n2020-11-24T10:01:00Z b\n2020-11-24T10:02:00Z a\n\
               2020-11-24T10:15:00Z a\n";
    let dedup = ["dedup", "--time-field", "1", "--field", "2", "--stats", "--state", &dir];
    let outcome = run(&dedup, log.as_bytes());
    let stats = "lines read: 4, printed: 3, suppressed: 1, late: 0, bad: 0\n";
    assert!(outcome.code == Some(0) && outcome.stderr.ends_with(stats), "{outcome:?}");
    assert_eq!(outcome.text(), log.replace("2020-11-24T10:02:00Z a\n", ""));
}

#[test]
fn stat_in_json_has_the_members_of_the_contract() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    ok(&["insert", &dir], &input(&stream(2_000, 900)));
    let outcome = ok(&["stat", &dir, "--json"], b"").json();
    assert_eq!(outcome.len(), 1);
    let stat = outcome[0].as_object().expect("object");
    let members = [
        "kind",
        "parameters",
        "inserts",
        "operations",
        "lsn",
        "durable_lsn",
        "step",
        "time",
        "fill",
        "distinct_keys",
        "distinct_keys_error",
        "estimated_fpr",
        "planned_fpr",
        "saturated",
        "hash",
        "max_lead_seconds",
        "memory_bytes",
        "disk_bytes",
        "stripes",
        "blocks",
        "handles",
        "snapshots",
        "wal_segments",
        "claims",
        "oldest_claim_ms",
    ];
    for member in members {
        assert!(stat.contains_key(member), "no {member} in {stat:?}");
    }
    assert_eq!(stat["kind"], "age-partitioned");
    assert_eq!(stat["parameters"]["window-items"], 500);
    assert_eq!(stat["parameters"]["fpr"], 0.001);
    assert_eq!(stat["inserts"], 2_000);
    assert_eq!(stat["handles"], 0);
    assert!(stat["lsn"].as_u64() >= Some(2_000));
    assert!(stat["memory_bytes"].as_u64() > Some(0));
}

#[test]
fn stat_is_readable_without_json() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    let outcome = ok(&["stat", &dir], b"");
    let text = outcome.text();
    assert!(text.starts_with("kind "), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("inserts ") && line.ends_with(" 0")),
        "{text}"
    );
}

#[test]
fn equal_histories_have_equal_digests_even_if_the_filter_was_reopened() {
    let place = Place::new();
    let one = created(&place, "one", "7");
    let two = created(&place, "two", "7");
    let other = created(&place, "other", "8");
    let keys = stream(3_000, 2_000);
    ok(&["insert", &one, "--event-time"], &timed(&keys));
    for piece in timed(&keys).split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>().chunks(900)
    {
        ok(&["insert", &two, "--event-time"], &piece.concat());
    }
    ok(&["insert", &other, "--event-time"], &timed(&keys));
    assert_eq!(digest(&one)["digest"], digest(&two)["digest"]);
    assert_eq!(digest(&one)["inserts"], 3_000);
    assert!(digest(&one)["lsn"].is_u64());
    assert_ne!(digest(&one)["digest"], digest(&other)["digest"]);
    let text = ok(&["digest", &one], b"").text().to_owned();
    assert!(text.starts_with(digest(&one)["digest"].as_str().expect("hex")), "{text}");
}

/// Returns lines of the keys with increasing times.
fn timed(keys: &[String]) -> Vec<u8> {
    let lines: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(number, key)| format!("{}\t{key}", 1_700_000_000_000 + number as u64))
        .collect();
    input(&lines)
}

#[test]
fn verify_of_an_intact_filter_has_exit_code_0() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    ok(&["insert", &dir], &input(&stream(1_000, 900)));
    let text = ok(&["verify", &dir], b"").text().to_owned();
    assert!(text.contains("sound") && !text.contains("DAMAGED"), "{text}");
    for file in ok(&["verify", &dir, "--json"], b"").json() {
        assert_eq!(file["sound"], true, "{file}");
    }
}

#[test]
fn damage_is_named_with_exit_code_1() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    ok(&["insert", &dir], &input(&stream(1_000, 900)));
    ok(&["snapshot", &dir], b"");
    let snapshot = newest_snapshot(&dir);
    let mut bytes = fs::read(&snapshot).expect("read");
    // In a frame: most of the first page is unused.
    let frames = usize::midpoint(4096, bytes.len());
    bytes[frames] ^= 0x10;
    fs::write(&snapshot, bytes).expect("write");
    let outcome = run(&["verify", &dir], b"");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), ""));
    assert!(outcome.text().contains("DAMAGED"), "{}", outcome.text());
    let outcome = run(&["verify", &dir, "--json"], b"");
    assert_eq!(outcome.code, Some(1));
    let name = snapshot.file_name().and_then(|name| name.to_str()).expect("name").to_owned();
    let damaged = outcome.json().into_iter().find(|file| file["sound"] == false).expect("damage");
    assert_eq!(damaged["file"].as_str(), Some(name.as_str()));
    assert!(damaged["damage"][0]["message"].is_string(), "{damaged}");
}

fn newest_snapshot(dir: &str) -> PathBuf {
    let mut snapshots: Vec<_> = fs::read_dir(dir)
        .expect("directory")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snap-"))
        })
        .collect();
    snapshots.sort();
    snapshots.pop().expect("a snapshot")
}

#[test]
fn the_log_shows_the_inserts_in_order() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    ok(&["insert", &dir, "--event-time"], &timed(&stream(10, 9)));
    let entries = ok(&["wal", &dir, "--json"], b"").json();
    let lsns: Vec<_> = entries.iter().map(|entry| entry["lsn"].as_u64().expect("lsn")).collect();
    assert!(lsns.is_sorted_by(|left, right| left < right), "{lsns:?}");
    let times: Vec<_> = entries
        .iter()
        .filter(|entry| entry["operation"] == "insert")
        .map(|entry| entry["time"].as_u64().expect("time"))
        .collect();
    assert_eq!(times, (0..10).map(|number| 1_700_000_000_000 + number).collect::<Vec<_>>());
    let text = ok(&["wal", &dir], b"").text().to_owned();
    assert_eq!(text.lines().count(), entries.len());
    assert!(text.contains("2023-11-14T22:13:20.009"), "{text}");
}

#[test]
fn a_snapshot_changes_no_answer() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    ok(&["insert", &dir], b"a\nb\n");
    let before = digest(&dir);
    assert!(ok(&["snapshot", &dir, "--json"], b"").json()[0]["start_lsn"].is_u64());
    assert!(ok(&["snapshot", &dir], b"").text().contains("LSN"));
    assert_eq!(digest(&dir)["digest"], before["digest"]);
    assert_eq!(ok(&["contains", &dir], b"a\nc\n").stdout, b"1\n0\n");
}

#[test]
fn a_restored_backup_has_the_digest_of_the_filter() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    ok(&["insert", &dir], &input(&stream(2_000, 1_500)));
    let before = digest(&dir);
    let (copy, again) = (place.at("copy"), place.at("again"));
    ok(&["backup", &dir, &copy], b"");
    ok(&["insert", &dir], b"later\n");
    ok(&["restore", &copy, &again], b"");
    assert_eq!(digest(&again)["digest"], before["digest"]);
    assert_eq!(digest(&again)["inserts"], 2_000);
    assert_eq!(ok(&["contains", &again], b"later\n").stdout, b"0\n");
}

#[test]
fn existing_filters_are_never_overwritten() {
    let place = Place::new();
    let dir = created(&place, "filter", "7");
    let other = created(&place, "other", "7");
    ok(&["insert", &dir], b"a\n");
    let before = digest(&dir);
    assert!(refused(&[&["create", &dir], &LAST_500[..]].concat(), b"").contains(&dir));
    refused(&["backup", &other, &dir], b"");
    let copy = place.at("copy");
    ok(&["backup", &other, &copy], b"");
    refused(&["restore", &copy, &dir], b"");
    assert_eq!(digest(&dir)["digest"], before["digest"]);
}

#[test]
fn create_accepts_settings_and_refuses_wrong_ones() {
    let place = Place::new();
    let dir = place.at("filter");
    let settings = ["--stripes", "2", "--durability", "2s", "--block-bytes", "8KiB"];
    ok(
        &[
            &["create", &dir, "--kind", "bloom", "--capacity", "100000", "--fpr", "0.01"],
            &settings[..],
        ]
        .concat(),
        b"",
    );
    let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
    assert_eq!(stat["stripes"], 2);
    assert_eq!(stat["durability"], "2s");
    let refusals: [(&[&str], &str); 7] = [
        (&["--kind", "cuckoo", "--fpr", "0.1"], "cuckoo"),
        (&["--kind", "bloom", "--capacity", "10", "--fpr", "2"], "fpr"),
        (&["--kind", "bloom", "--capacity", "ten", "--fpr", "0.1"], "capacity"),
        (&["--kind", "bloom", "--fpr", "0.1"], "capacity"),
        (&["--kind", "bloom", "--capacity", "10", "--fpr", "0.1", "--window", "1s"], "window"),
        (&["--kind", "bloom", "--capacity", "10", "--fpr", "0.1", "--durability", "x"], "always"),
        (&["--kind", "bloom", "--capacity", "10", "--fpr", "0.1", "--block-bytes", "x"], "64KiB"),
    ];
    for (options, word) in refusals {
        let new = place.at("new");
        let sentence = refused(&[&["create", &new], options].concat(), b"");
        assert!(sentence.contains(word), "{sentence}");
        assert!(!Path::new(&new).exists(), "{options:?} left files behind");
    }
}

#[test]
fn a_plan_equals_the_created_filter_and_creates_nothing() {
    let place = Place::new();
    let dir = place.at("filter");
    let options = ["--kind", "age-partitioned", "--window-items", "100000", "--fpr", "0.001"];
    let plan = ok(&[&["plan", "--json"], &options[..]].concat(), b"").json().remove(0);
    ok(&[&["create", &dir], &options[..]].concat(), b"");
    let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
    assert_eq!(plan["parameters"], stat["parameters"]);
    assert_eq!(plan["blocks"], stat["blocks"]);
    assert_eq!(plan["stripes"], stat["stripes"]);
    assert!(plan["memory_bytes"].as_u64() > Some(0));
    assert!(plan["disk_bytes"].as_u64() > plan["memory_bytes"].as_u64());
    // A record of 32 bytes, and a share of a snapshot: a quarter of that.
    assert_eq!(plan["written_bytes"].as_f64(), Some(40.0), "{plan}");
    assert!(plan["bits_per_key"].as_f64() > Some(20.0), "{plan}");
    assert!(plan["fpr"].as_f64() <= Some(0.001), "{plan}");
}

#[test]
fn a_plan_of_a_rate_below_that_of_equal_hashes_says_what_can_be_kept() {
    let arguments = |fpr| ["plan", "--kind", "bloom", "--capacity", "1000", "--fpr", fpr];
    for fpr in ["1e-17", "1e-30", "1e-101", "1e-320"] {
        let refusal = refused(&arguments(fpr), b"");
        assert!(refusal.contains("more than 5.4e-17"), "{fpr}: {refusal}");
    }
    for fpr in ["1e-3", "1e-16"] {
        ok(&arguments(fpr), b"");
    }
}

#[test]
fn a_window_is_enough_for_a_plan() {
    let plan =
        |arguments: &[&str]| ok(&[&["plan", "--json"], arguments].concat(), b"").json().remove(0);
    assert_eq!(plan(&["--window", "10m", "--rate", "100"])["kind"], "fingerprint");
    assert_eq!(plan(&["--last", "1000", "--fpr", "0.01"])["kind"], "fingerprint");
    assert_eq!(
        plan(&["--last", "1000"]),
        plan(&["--kind", "fingerprint", "--window-items", "1000", "--fpr", "0.001"])
    );
    let outcome = ok(&["plan", "--window", "10m", "--rate", "100", "--fpr", "0.01"], b"");
    let text = outcome.text();
    for word in ["fingerprint", "10m", "memory", "disk", "FPR"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    assert!(refused(&["plan", "--fpr", "0.1"], b"").contains("--kind"));
}

#[test]
fn usage_errors_are_one_sentence_and_help_is_not_an_error() {
    refused(&["frobnicate"], b"");
    refused(&["create"], b"");
    refused(&["dedup", "--nonsense"], b"");
    refused(&["dedup", "--last", "10", "--batch", "0"], b"");
    refused(&["dedup", "--last", "10", "--since", "forever"], b"");
    for arguments in [&["--help"][..], &["--version"], &["dedup", "--help"], &["create", "--help"]]
    {
        assert!(!ok(arguments, b"").stdout.is_empty());
    }
    let bare = run(&[], b"");
    assert_eq!(bare.code, Some(2));
    assert!(bare.stderr.contains("dedup"), "{}", bare.stderr);
}
