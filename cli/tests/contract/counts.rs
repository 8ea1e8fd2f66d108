//! `remove` and `estimate`: kinds that count.

use crate::support::{Place, ok, refused, run};
use serde_json::Value;

/// The beginning of a minute long ago, in Unix milliseconds; decaying filters have epochs of one
/// minute.
const MINUTE: u64 = 28_333_333 * 60_000;

fn filter(options: &[&str]) -> (Place, String) {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&[&["create", &dir, "--hash-seed", "7", "--kind"], options].concat(), b"");
    (place, dir)
}

const COUNTING: &[&str] = &["counting", "--capacity", "1000", "--fpr", "0.001"];
const SPECTRAL: &[&str] = &["spectral", "--capacity", "1000", "--fpr", "0.001"];
const DYNAMIC: &[&str] = &["dynamic-count", "--capacity", "1000", "--fpr", "0.001"];
const REMOVABLE: [&[&str]; 3] = [COUNTING, SPECTRAL, DYNAMIC];

fn decaying(kind: &'static str) -> [&'static str; 9] {
    [kind, "--capacity", "1000", "--fpr", "0.001", "--lambda", "0.5", "--epoch", "1m"]
}

fn stat(dir: &str) -> Value {
    ok(&["stat", dir, "--json"], b"").json().remove(0)
}

/// Creates a filter whose key `full` was inserted more often than its counters can count, and `few`
/// once.
fn saturated() -> (Place, String) {
    let (place, dir) = filter(COUNTING);
    ok(&["insert", &dir, "--weight"], b"full\t100\nfew\t1\n");
    (place, dir)
}

#[test]
fn a_key_can_be_removed_as_often_as_it_was_inserted() {
    for kind in REMOVABLE {
        let (_place, dir) = filter(kind);
        ok(&["insert", &dir], b"a\nb\na\n");
        assert_eq!(ok(&["remove", &dir], b"a\nx\na\na\n").text(), "1\n0\n1\n0\n", "{kind:?}");
        assert_eq!(ok(&["contains", &dir], b"a\nb\n").text(), "0\n1\n", "{kind:?}");
        let json = ok(&["remove", &dir, "--json"], b"b\nb\n");
        assert_eq!(
            json.text(),
            "{\"key\":\"b\",\"removed\":true}\n{\"key\":\"b\",\"removed\":false}\n"
        );
        let stat = stat(&dir);
        assert_eq!(stat["inserts"], 3, "{kind:?}");
        assert_eq!(stat["operations"], 6, "a removal without effect is not an operation: {kind:?}");
    }
}

#[test]
fn removals_are_in_the_log_and_in_the_digest() {
    for kind in REMOVABLE {
        let (_place, dir) = filter(kind);
        ok(&["insert", &dir], b"a\n");
        let before = ok(&["digest", &dir, "--json"], b"").json().remove(0);
        ok(&["remove", &dir], b"a\nx\n");
        let after = ok(&["digest", &dir, "--json"], b"").json().remove(0);
        assert_ne!(before["digest"], after["digest"], "{kind:?}");
        assert_eq!(after["inserts"], 1, "{kind:?}");
        let log = ok(&["wal", &dir, "--json"], b"").json();
        assert_eq!(log.iter().filter(|entry| entry["operation"] == "remove").count(), 1);
        ok(&["verify", &dir], b"");
    }
}

#[test]
fn a_removal_takes_the_weight_of_its_line() {
    for kind in REMOVABLE {
        let (_place, dir) = filter(kind);
        ok(&["insert", &dir, "--weight"], b"a\t10\n");
        assert_eq!(ok(&["remove", &dir, "--weight"], b"a\t4\na\t7\na\t6\n").text(), "1\n0\n1\n");
        assert_eq!(ok(&["estimate", &dir], b"a\n").text(), "0\n", "{kind:?}");
    }
}

#[test]
fn minimal_increase_refuses_removals() {
    let (_place, dir) = filter(&[SPECTRAL, &["--policy", "mi"]].concat());
    ok(&["insert", &dir], b"a\n");
    let sentence = refused(&["remove", &dir], b"a\n");
    assert!(sentence.contains("spectral") && sentence.contains("remove"), "{sentence}");
    assert_eq!(ok(&["estimate", &dir], b"a\n").text(), "1\n");
}

#[test]
fn estimates_are_counts_of_inserts_and_checks() {
    for kind in REMOVABLE {
        let (_place, dir) = filter(kind);
        ok(&["insert", &dir], b"a\nb\na\n");
        ok(&["check", &dir], b"a\n");
        assert_eq!(ok(&["estimate", &dir], b"a\nx\nb\n").text(), "3\n0\n1\n", "{kind:?}");
        let json = ok(&["estimate", &dir, "--json"], b"a\nx\n").json();
        assert_eq!(json[0], serde_json::json!({"key": "a", "estimate": 3.0, "at_least": false}));
        assert_eq!(json[1], serde_json::json!({"key": "x", "estimate": 0.0, "at_least": false}));
    }
}

#[test]
fn an_estimate_that_is_a_lower_bound_is_noted() {
    let (_place, dir) = saturated();
    let outcome = run(&["estimate", &dir], b"full\nfew\n");
    assert_eq!((outcome.code, outcome.text()), (Some(0), "15+\n1\n"));
    assert!(outcome.stderr.contains("lower bounds") && outcome.stderr.contains(": 1\n"));
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    let answers = run(&["estimate", &dir, "--json"], b"full\nfew\n").json();
    assert_eq!((&answers[0]["estimate"], &answers[0]["at_least"]), (&15.0.into(), &true.into()));
    assert_eq!(answers[1]["at_least"], false);
    ok(&["estimate", &dir], b"few\n");
}

#[test]
fn wide_counters_count_large_numbers_exactly() {
    for kind in [SPECTRAL, DYNAMIC, &[COUNTING, &["--counter-bits", "32"]].concat()] {
        let (_place, dir) = filter(kind);
        ok(&["insert", &dir, "--weight"], b"a\t16777215\na\t16777215\n");
        assert_eq!(ok(&["estimate", &dir], b"a\n").text(), "33554430\n", "{kind:?}");
        // Two records of one operation.
        ok(&["insert", &dir, "--weight"], b"a\t16777216\nb\t7\n");
        assert_eq!(ok(&["estimate", &dir], b"a\nb\n").text(), "50331646\n7\n", "{kind:?}");
        ok(&["remove", &dir, "--weight"], b"a\t50331645\n");
        assert_eq!(ok(&["estimate", &dir], b"a\n").text(), "1\n", "{kind:?}");
    }
}

#[test]
fn decayed_counts_are_halved_with_each_epoch_and_end_at_zero() {
    for kind in ["decaying", "decaying-optimized"] {
        let (_place, dir) = filter(&decaying(kind));
        let at = |epoch: u64| MINUTE + epoch * 60_000;
        let insert = ["insert", &dir, "--event-time", "--weight"];
        ok(&insert, format!("{}\ta\t64\n", at(0)).as_bytes());
        let lines: String = (0..40).map(|epoch| format!("{}\ta\n", at(epoch))).collect();
        let outcome = ok(&["estimate", &dir, "--event-time"], lines.as_bytes());
        let estimates: Vec<f64> =
            outcome.text().lines().map(|line| line.parse().expect("a number")).collect();
        for (epoch, estimate) in estimates.iter().enumerate() {
            // Each epoch is a half-life here: nothing is rounded, and the last unit, 2^-8, decays
            // to nothing.
            let left = 64.0 / 2.0_f64.powi(epoch as i32);
            let expected = if left >= 1.0 / 256.0 { left } else { 0.0 };
            assert_eq!(*estimate, expected, "{kind}, epoch {epoch}");
        }
        let outcome = ok(&["estimate", &dir, "--event-time", "--normalised"], lines.as_bytes());
        for (normalised, estimate) in outcome.text().lines().zip(estimates) {
            assert_eq!(normalised.parse::<f64>().expect("a number"), estimate * 0.5, "{kind}");
        }
    }
}

#[test]
fn only_decaying_kinds_are_normalised() {
    for kind in REMOVABLE {
        let (_place, dir) = filter(kind);
        let sentence = refused(&["estimate", &dir, "--normalised"], b"a\n");
        assert!(sentence.contains(kind[0]) && sentence.contains("frequency"), "{sentence}");
    }
}

#[test]
fn stat_reports_the_metrics_of_a_kind() {
    let (_place, dir) = saturated();
    assert!(stat(&dir)["figures"]["saturated_cells"].as_u64() > Some(0), "{}", stat(&dir));
    let kinds: [(&[&str], &[&str]); 4] = [
        (SPECTRAL, &["expansions", "rebuilds", "rewritten_cells"]),
        (DYNAMIC, &["rebuilds", "rewritten_cells", "overflow_bits"]),
        (&decaying("decaying"), &["saturated"]),
        (&decaying("decaying-optimized"), &["pool_in_use", "pool_exhaustions", "saturated"]),
    ];
    for (kind, names) in kinds {
        let (_place, dir) = filter(kind);
        let figures = |dir: &str| {
            let stat = stat(dir);
            names.iter().map(|name| stat["figures"][name].as_u64()).collect::<Vec<_>>()
        };
        assert_eq!(figures(&dir), vec![Some(0); names.len()], "{kind:?}");
        ok(&["insert", &dir, "--weight"], b"a\t100000\nb\t3\n");
        let after = figures(&dir);
        assert!(after.iter().all(Option::is_some), "{kind:?}: {after:?}");
        if kind != decaying("decaying") {
            assert!(after.iter().any(|figure| *figure > Some(0)), "{kind:?}: {after:?}");
        }
        let text = ok(&["stat", &dir], b"").text().to_owned();
        assert!(text.lines().any(|line| line.starts_with(names[0])), "{text}");
    }
}

#[test]
fn stat_reports_the_draws_of_a_stable_filter() {
    let options = ["stable", "--cells", "4000", "--max", "3", "-K", "4", "-P", "10"];
    let (_place, dir) = filter(&options);
    ok(&["insert", &dir], b"a\nb\nc\n");
    // With one block, all pending draws are settled.
    assert_eq!(stat(&dir)["figures"]["draws"], 30);
}
