//! `distinct`: the number of distinct keys, of the window and of a part of it.

use crate::support::{Place, ok, refused};

/// Creates a filter in its own directory, with 20,000 inserts of 9,000 keys.
fn filter(options: &[&str]) -> (Place, String) {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&[&["create", &dir, "--hash-seed", "7"], options].concat(), b"");
    let keys: String = (0..20_000).map(|at| format!("{}\n", at % 9000)).collect();
    ok(&["insert", &dir], keys.as_bytes());
    (place, dir)
}

#[test]
fn a_window_of_inserts_tells_its_distinct_keys_with_their_error_and_reach() {
    let (_place, dir) = filter(&["--window-items", "14000"]);
    let whole = ok(&["distinct", &dir], b"").text().to_owned();
    let number: f64 = whole.split(' ').next().expect("a word").parse().expect("a number");
    assert!((8_990.0..=9_010.0).contains(&number), "{whole}");
    assert!(whole.contains(" distinct keys in the last 15000 inserts; standard error "), "{whole}");
    let answer = ok(&["distinct", &dir, "--last", "3k", "--json"], b"").json();
    assert_eq!(answer[0]["reach_inserts"], 3000);
    let keys = answer[0]["distinct_keys"].as_f64().expect("a number");
    let error = answer[0]["distinct_keys_error"].as_f64().expect("a number");
    assert!((keys - 3000.0).abs() <= 4.0 * error + 0.5, "{answer:?}");
    let stat = ok(&["stat", &dir, "--json"], b"").json();
    let known = stat[0]["distinct_keys"].as_f64().expect("a number");
    assert!((known - number).abs() <= 0.5, "{known}, {whole}");
    assert!(stat[0]["distinct_keys_error"].as_f64().expect("a number") < 10.0);
    assert!(ok(&["stat", &dir], b"").text().contains("distinct keys"));
    let metrics = ok(&["stat", &dir, "--format", "prometheus"], b"").text().to_owned();
    assert!(metrics.contains("\nebbtide_distinct_keys{filter="), "{metrics}");
    assert!(metrics.contains("\nebbtide_distinct_keys_standard_error{filter="), "{metrics}");
    let sentence = refused(&["distinct", &dir, "--within", "1m"], b"");
    assert!(sentence.contains("expected a number of inserts"), "{sentence}");
}

#[test]
fn a_window_of_time_is_asked_for_a_time() {
    let (_place, dir) = filter(&["--window", "1h"]);
    let answer = ok(&["distinct", &dir, "--within", "30m", "--json"], b"").json();
    let keys = answer[0]["distinct_keys"].as_f64().expect("a number");
    assert!((8_990.0..=9_010.0).contains(&keys), "{answer:?}");
    let reach = answer[0]["reach_seconds"].as_f64().expect("a number");
    assert!((1800.0..=2100.0).contains(&reach), "up to a 14th more: {answer:?}");
    let sentence = refused(&["distinct", &dir, "--last", "100"], b"");
    assert!(sentence.contains("expected a time"), "{sentence}");
}

#[test]
fn kinds_that_do_not_know_it_are_named() {
    let (_place, dir) = filter(&["--kind", "bloom", "--capacity", "20000"]);
    let whole = ok(&["distinct", &dir, "--json"], b"").json();
    let keys = whole[0]["distinct_keys"].as_f64().expect("a number");
    assert!((8_900.0..=9_100.0).contains(&keys), "{whole:?}");
    let sentence = refused(&["distinct", &dir, "--last", "100"], b"");
    assert!(sentence.contains("bloom") && sentence.contains("distinct_within"), "{sentence}");
    let (_place, dir) =
        filter(&["--kind", "stable", "--cells", "100000", "--max", "7", "-K", "5", "-P", "100"]);
    let sentence = refused(&["distinct", &dir], b"");
    assert!(sentence.contains("stable") && sentence.contains("distinct"), "{sentence}");
    assert!(ok(&["stat", &dir, "--json"], b"").json()[0]["distinct_keys"].is_null());
}
