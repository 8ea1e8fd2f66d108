//! `salvage`: recovers the longest provable prefix into a new directory and reports what is lost.

use crate::support::{Place, Talk, input, ok, refused, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn files(dir: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| (name(&entry), fs::read(entry.path()).expect("read"))).collect()
}

fn named(dir: &str, start: &str) -> Vec<String> {
    files(dir).into_keys().filter(|name| name.starts_with(start)).collect()
}

fn flip(dir: &str, name: &str, at: usize) {
    let path = Path::new(dir).join(name);
    let mut bytes = fs::read(&path).expect("read");
    bytes[at] ^= 0x20;
    fs::write(path, bytes).expect("write");
}

/// Returns keys of these numbers, a millisecond apart.
fn keys(numbers: std::ops::Range<u64>) -> Vec<u8> {
    let lines: Vec<_> =
        numbers.map(|number| format!("{}\tkey-{number}", 1_700_000_000_000 + number)).collect();
    input(&lines)
}

/// Creates a filter and inserts the numbers up to each of these ends, with one command each.
fn filter(place: &Place, name: &str, ends: &[u64]) -> String {
    let dir = place.at(name);
    ok(&["create", &dir, "--kind", "bloom", "--capacity", "1000", "--hash-seed", "7"], b"");
    let mut start = 0;
    for &end in ends {
        ok(&["insert", &dir, "--event-time"], &keys(start..end));
        start = end;
    }
    dir
}

fn digest(dir: &str) -> Value {
    ok(&["digest", dir, "--json"], b"").json().remove(0)["digest"].clone()
}

/// A filter of 300 inserts that refuses to open.
struct Damaged {
    dir: String,
    /// The segment that contains the first damaged record, and its offset.
    log: String,
    offset: usize,
    /// The LSNs of its last 51 inserts, the first of which is damaged.
    lsns: Vec<u64>,
}

/// Damages the newest snapshot, and the 250th insert, which is in the log that the older snapshot
/// needs.
fn damaged(place: &Place) -> Damaged {
    let dir = filter(place, "filter", &[200, 300]);
    let entries = ok(&["wal", &dir, "--json"], b"").json();
    let inserts = entries.iter().filter(|entry| entry["operation"] == "insert");
    let lsns: Vec<_> = inserts.map(|entry| entry["lsn"].as_u64().expect("a number")).collect();
    let lsns = lsns[lsns.len() - 51..].to_vec();
    let first = |name: &str| name[11..].parse::<u64>().expect("a number");
    let log = named(&dir, "wal-").into_iter().rfind(|name| first(name) <= lsns[0]);
    let log = log.expect("a segment");
    let offset = 4096 + 32 * (lsns[0] - first(&log)) as usize;
    flip(&dir, &named(&dir, "snap-")[1], 5000);
    flip(&dir, &log, offset + 3);
    let sentence = refused(&["insert", &dir], b"key\n");
    assert!(sentence.contains("`ebbtide salvage`") && sentence.contains(&log), "{sentence}");
    Damaged { dir, log, offset, lsns }
}

#[test]
fn salvage_reports_in_sentences_what_is_recovered_and_lost() {
    let place = Place::new();
    let (Damaged { dir, log, lsns, .. }, dest) = (damaged(&place), place.at("saved"));
    let before = files(&dir);
    let outcome = run(&["salvage", &dir, &dest], b"");
    assert_eq!((outcome.code, outcome.text()), (Some(0), ""));
    assert_eq!(files(&dir), before, "the damaged filter is unchanged");
    let lines: Vec<_> = outcome.stderr.lines().collect();
    let [saved, bad, lost, durable, beyond] = lines[..] else {
        panic!("{lines:?}");
    };
    let older = named(&dir, "snap-")[0][5..].trim_start_matches('0').to_owned();
    let stop = lsns[0];
    let expected = format!(
        "ebbtide: saved in {dest}: every record up to LSN {}, 249 inserts in all, by the snapshot \
         of LSN {older} and the log from there",
        stop - 1
    );
    assert_eq!(saved, expected);
    assert!(bad.starts_with("ebbtide: damaged: ") && bad.contains("snap-"), "{bad}");
    let expected = format!("ebbtide: lost: the records from LSN {stop} up to LSN ");
    assert!(lost.starts_with(&expected) && lost.contains(&log), "{lost}");
    assert!(
        lost.ends_with(&format!("expected record {stop} with its checksum, found other bytes"))
    );
    assert!(durable.starts_with("ebbtide: acknowledged as durable: up to LSN "), "{durable}");
    assert!(durable.ends_with("some of it is lost"), "{durable}");
    let expected = format!(
        "ebbtide: not saved: 50 readable operations after the damage, LSN {} to {}, of times \
         2023-11-14T22:13:20.250",
        lsns[1], lsns[50]
    );
    assert!(beyond.starts_with(&expected), "{beyond}");
    assert_eq!(digest(&dest), digest(&filter(&place, "again", &[249])));
    // The new filter accepts inserts.
    ok(&["insert", &dest, "--event-time"], &keys(249..300));
    assert_eq!(digest(&dest), digest(&filter(&place, "whole", &[300])));
    assert_eq!(run(&["verify", &dest], b"").code, Some(0));
}

#[test]
fn the_report_in_json_is_one_object() {
    let place = Place::new();
    let (Damaged { dir, log, offset, lsns }, dest) = (damaged(&place), place.at("saved"));
    let outcome = ok(&["salvage", &dir, &dest, "--json"], b"");
    let [told] = &outcome.json()[..] else {
        panic!("{outcome:?}");
    };
    let lsn = lsns[0];
    assert_eq!(told["lsn"], lsn);
    assert_eq!((&told["saved"], &told["inserts"]), (&true.into(), &249.into()));
    assert!(told["snapshot"].as_u64() < Some(lsn), "{told}");
    assert!(told["durable_lsn"].as_u64() > Some(lsns[50]), "{told}");
    assert_eq!(told["damaged"].as_array().map(Vec::len), Some(1));
    let lost = &told["lost"];
    assert_eq!(lost["first_lsn"].as_u64(), Some(lsn));
    assert!(lost["end_lsn"].as_u64() > Some(lsns[50]), "{told}");
    assert_eq!(lost["cause"]["offset"], offset);
    assert_eq!(lost["cause"]["path"], format!("{dir}/{log}"));
    for member in ["message", "expected", "found"] {
        assert!(lost["cause"][member].is_string(), "{told}");
    }
    let beyond = serde_json::json!({
        "operations": 50, "first_lsn": lsns[1], "last_lsn": lsns[50],
        "first_time": 1_700_000_000_250_u64, "last_time": 1_700_000_000_299_u64,
    });
    assert_eq!(told["beyond"], beyond);
}

#[test]
fn damage_without_loss_is_reported() {
    let place = Place::new();
    let (dir, dest) = (filter(&place, "filter", &[200, 300]), place.at("saved"));
    flip(&dir, &named(&dir, "snap-")[0], 5000);
    let outcome = run(&["salvage", &dir, &dest], b"");
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.stderr.contains("ebbtide: lost: nothing"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("all of it is saved"), "{}", outcome.stderr);
    assert_eq!(digest(&dest), digest(&dir));
}

#[test]
fn an_intact_filter_gives_exit_code_1_and_nothing_is_written() {
    let place = Place::new();
    let (dir, dest) = (filter(&place, "filter", &[200]), place.at("saved"));
    let outcome = run(&["salvage", &dir, &dest], b"");
    assert_eq!((outcome.code, outcome.text()), (Some(1), ""));
    let expected = format!(
        "ebbtide: nothing that {dir} needs is damaged: it opens as it is, and nothing was written\n"
    );
    assert_eq!(outcome.stderr, expected);
    let outcome = run(&["salvage", &dir, &dest, "--json"], b"");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), ""));
    assert_eq!(outcome.json(), [serde_json::json!({ "saved": false, "damaged": [] })]);
    assert!(!Path::new(&dest).exists());
}

#[test]
fn if_nothing_can_be_recovered_one_sentence_gives_the_reason_and_the_remedy() {
    let place = Place::new();
    let dest = place.at("saved");
    let dir = filter(&place, "filter", &[200]);
    let copy = place.at("copy");
    ok(&["backup", &dir, &copy], b"");
    ok(&["insert", &dir, "--event-time"], &keys(200..300));
    let meta = Path::new(&dir).join("meta");
    let good = fs::read(&meta).expect("read");
    flip(&dir, "meta", 30);
    let sentence = refused(&["salvage", &dir, &dest], b"");
    assert!(sentence.contains("/meta is damaged at byte"), "{sentence}");
    let remedy = "without it nothing can be saved: copy `meta` from any backup of this filter";
    assert!(sentence.contains(remedy), "{sentence}");
    fs::remove_file(&meta).expect("a file");
    let sentence = refused(&["salvage", &dir, &dest], b"");
    assert!(sentence.contains(remedy) && sentence.contains("found none"), "{sentence}");
    // Follow the advice of the message.
    fs::copy(Path::new(&copy).join("meta"), &meta).expect("a copy");
    assert_eq!(fs::read(&meta).expect("read"), good);
    assert_eq!(run(&["salvage", &dir, &dest], b"").code, Some(1), "the filter is intact again");
    for name in named(&dir, "snap-") {
        fs::remove_file(Path::new(&dir).join(name)).expect("a file");
    }
    let log = named(&dir, "wal-").remove(0);
    flip(&dir, &log, 16);
    let sentence = refused(&["salvage", &dir, &dest], b"");
    assert!(sentence.contains(&log) && sentence.contains("nothing can be saved"), "{sentence}");
    assert!(!Path::new(&dest).exists());
    refused(&["salvage", &place.at("missing"), &dest], b"");
}

#[test]
fn salvage_refuses_a_source_in_use_and_an_existing_destination() {
    let place = Place::new();
    let (state, dest) = (place.at("state"), place.at("saved"));
    let mut daemon = Talk::new(&["dedup", "--last", "1000", "--state", &state]);
    assert_eq!(daemon.ask("a"), "a");
    let sentence = refused(&["salvage", &state, &dest], b"");
    assert!(sentence.contains(&state) && sentence.contains("open"), "{sentence}");
    let dir = damaged(&place).dir;
    assert!(refused(&["salvage", &dir, &state], b"").contains("already holds a filter"));
    assert!(refused(&["salvage", &dir, &dir], b"").contains("already holds a filter"));
    assert!(!Path::new(&dest).exists());
    daemon.end();
}
