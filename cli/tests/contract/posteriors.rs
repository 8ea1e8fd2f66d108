//! `posterior` and `decide`: probabilities from each form of prior, and the resulting answers.

use crate::support::{Place, ok, refused, run};
use serde_json::Value;

fn filter(place: &Place, name: &str, options: &[&str]) -> String {
    let dir = place.at(name);
    ok(&[&["create", &dir, "--hash-seed", "7", "--kind"], options].concat(), b"");
    dir
}

const LAST_1000: &[&str] = &["block-timing", "--window-items", "1000", "--fpr", "0.2"];
const LEAKY: &[&str] = &["bloom", "--capacity", "1000", "--fpr", "0.3"];

fn numbers(range: std::ops::Range<u64>) -> Vec<u8> {
    range.flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// Creates a filter that contains the keys 0 to 2999, each inserted once.
fn fed(place: &Place, options: &[&str]) -> String {
    let dir = filter(place, "filter", options);
    ok(&["insert", &dir], &numbers(0..3000));
    dir
}

/// Returns the posteriors of keys with these options.
fn posteriors(dir: &str, options: &[&str], keys: &[u8]) -> Vec<f64> {
    let outcome = ok(&[&["posterior", dir, "--json"], options].concat(), keys);
    outcome.json().iter().map(|line| line["posterior"].as_f64().expect("a number")).collect()
}

#[track_caller]
fn assert_same(left: &[f64], right: &[f64]) {
    assert_eq!(left.len(), right.len());
    assert!(
        left.iter().any(|p| (0.01..0.99).contains(p)),
        "too close to 0 or 1 to be compared: {left:?}"
    );
    for (left, right) in left.iter().zip(right) {
        assert!((left - right).abs() < 1e-9, "{left} and {right}");
    }
}

#[test]
fn a_posterior_is_near_one_for_keys_of_the_window_and_zero_for_expired_ones() {
    let place = Place::new();
    let dir = fed(&place, &["timing", "--window-items", "1000", "--fpr", "0.001"]);
    let outcome = ok(&["posterior", &dir, "--prior", "1e-4"], b"2999\n0\n2500\nnever\n");
    let lines: Vec<f64> = outcome.text().lines().map(|line| line.parse().expect(line)).collect();
    assert!(lines[0] > 0.99 && lines[2] > 0.99, "{lines:?}");
    assert_eq!((lines[1], lines[3]), (0.0, 0.0));
}

#[test]
fn text_has_six_digits_and_json_all() {
    let place = Place::new();
    let dir = fed(&place, LEAKY);
    let exact = posteriors(&dir, &["--prior", "1e-4"], b"7\n")[0];
    let text = ok(&["posterior", &dir, "--prior", "1e-4"], b"7\n").text().trim_end().to_owned();
    assert!(text.len() <= "0.123456".len(), "{text}");
    assert!((text.parse::<f64>().expect("a number") - exact).abs() < 1e-6, "{text} and {exact}");
    let hex = ok(&["posterior", &dir, "--prior", "1e-4", "--json"], b"\xff\n").json();
    assert_eq!(hex[0]["key_hex"], "ff");
}

#[test]
fn a_likelier_key_has_a_higher_posterior() {
    let place = Place::new();
    let dir = fed(&place, LEAKY);
    let [low, high] = ["1e-6", "1e-3"].map(|p| posteriors(&dir, &["--prior", p], b"7\n")[0]);
    assert!(low < high, "{low} and {high}");
    assert_eq!(posteriors(&dir, &["--prior", "0"], b"7\n"), [0.0]);
    assert_eq!(posteriors(&dir, &["--prior", "1"], b"7\n"), [1.0]);
}

#[test]
fn each_form_of_a_prior_is_the_number_it_stands_for() {
    let place = Place::new();
    let dir = fed(&place, LEAKY);
    let by_number = |p: f64, distinct: &str, key: &str| {
        let options = ["--prior", &p.to_string(), "--distinct", distinct];
        posteriors(&dir, &options, key.as_bytes())
    };
    let by = |options: &[&str], line: &str| posteriors(&dir, options, line.as_bytes());

    let uniform = by(&["--prior", "uniform:9000"], "17");
    assert_same(&uniform, &by_number(1.0 / 9000.0, "uniform:9000", "17"));

    let weight = |rank: u32| f64::from(rank).powf(-0.5);
    let sum: f64 = (1..=9000).map(weight).sum();
    let law = by(&["--prior", "power-law:9000:0.5"], "1700");
    assert_same(&law, &by_number(weight(1700) / sum, "power-law:9000:0.5", "1700"));
    let plain = by(&["--prior", "power-law:9000"], "1700");
    assert_same(&plain, &by(&["--prior", "power-law:9000:1"], "1700"));

    let table = place.file("table", b"17\t1\nother\t9999\n");
    let points = place.file("points", b"1\t1\n1000\t900\n100000\t20000\n");
    let repeats = format!("points:{points}");
    let prior = format!("table:{table}");
    let tabled = by(&["--prior", &prior, "--distinct", &repeats], "17");
    assert_same(&tabled, &by_number(1e-4, &repeats, "17"));

    let lined = by(&["--prior", "line", "--distinct", &repeats], "17\t0.0001");
    assert_same(&lined, &tabled);
}

#[test]
fn a_filter_that_counts_the_stream_serves_as_prior() {
    for kind in ["counting", "spectral", "dynamic-count"] {
        let place = Place::new();
        let dir = fed(&place, LEAKY);
        let counts = filter(&place, "counts", &[kind, "--capacity", "10000", "--fpr", "1e-6"]);
        ok(&["insert", &counts], &numbers(0..3000));
        ok(&["insert", &counts], b"17\n17\n");
        let prior = format!("counted:{counts}");
        let counted = posteriors(&dir, &["--prior", &prior], b"17\n18\nabsent\n");
        let number = |count: f64| ((count + 0.5) / 3003.0).to_string();
        let expected = [(3.0, "17"), (1.0, "18"), (0.0, "absent")]
            .map(|(count, key)| posteriors(&dir, &["--prior", &number(count)], key.as_bytes())[0]);
        assert_same(&counted, &expected);
    }
}

#[test]
fn a_key_that_a_table_does_not_have_counts_as_half_an_insert() {
    let place = Place::new();
    let dir = fed(&place, LEAKY);
    let prior = |name, table| format!("table:{}", place.file(name, table));
    let lines = prior("lines", b"7\t1999\n8\t1\n7\t0\n".as_slice());
    let all = ["--prior", &lines, "--distinct", "all"];
    let tabled = posteriors(&dir, &all, b"8\n9\nabsent\n");
    let one = posteriors(&dir, &["--prior", "0.0005"], b"8\n");
    let half = posteriors(&dir, &["--prior", "0.00025"], b"9\nabsent\n");
    assert_same(&tabled, &[one, half].concat());
    let ended = prior("ended", b"7\t1999\x008\t1\0".as_slice());
    let all = ["-0", "--prior", &ended, "--distinct", "all"];
    assert_same(&posteriors(&dir, &all, b"8\x009\0absent\0"), &tabled);
}

#[test]
fn a_decision_follows_the_penalties() {
    let place = Place::new();
    let dir = fed(&place, LEAKY);
    let prior = ["--prior", "3e-4"];
    let sure = posteriors(&dir, &prior, b"7\n")[0];
    assert!((0.1..0.9).contains(&sure), "{sure}");
    let decide = |false_positive: f64, false_negative: f64| {
        let (x, y) = (false_positive.to_string(), false_negative.to_string());
        let options = ["--false-positive", &x, "--false-negative", &y];
        let outcome = ok(&[&["decide", &dir], &prior[..], &options[..]].concat(), b"7\nabsent\n");
        outcome.text().to_owned()
    };
    // "Yes" costs x·(1 - sure) on average, "no" y·sure.
    let even = sure / (1.0 - sure);
    assert_eq!(decide(even * 0.99, 1.0).lines().next(), Some("1"));
    assert_eq!(decide(even * 1.01, 1.0).lines().next(), Some("0"));
    assert_eq!(decide(0.0, 1.0).lines().next(), Some("1"));
    assert_eq!(decide(1.0, 0.0).lines().next(), Some("0"));
}

#[test]
fn penalties_and_priors_stand_at_the_end_of_their_lines() {
    let place = Place::new();
    let dir = fed(&place, LEAKY);
    let lines = b"7\t1\t10\n7\t10\t1\nno\ttab\t1\t1\n";
    let outcome = ok(&["decide", &dir, "--prior", "3e-4", "--penalties", "--json"], lines).json();
    assert_eq!((&outcome[0]["present"], &outcome[1]["present"]), (&true.into(), &false.into()));
    assert_eq!(outcome[2]["key"], "no\ttab");
    assert!(outcome[0]["posterior"].is_number());

    let lines = b"7\t3e-4\t1\t10\n7\t1e-9\t1\t10\n7\t3e-4\t10\t1\n";
    let own = ["decide", &dir, "--prior", "line", "--penalties"];
    assert_eq!(ok(&own, lines).text(), "1\n0\n0\n");
    // Times in front, weights (which lookups ignore) between key and prior.
    let all = [&own[..], &["--event-time", "--weight", "--json"]].concat();
    let outcome = ok(&all, b"1700000000000\t7\t5\t3e-4\t1\t10\n").json();
    assert_eq!((&outcome[0]["key"], &outcome[0]["present"]), (&"7".into(), &true.into()));
}

#[test]
fn a_shorter_window_is_less_probable_and_a_longer_one_more() {
    let place = Place::new();
    let dir = fed(&place, LAST_1000);
    let within = |width: &str| {
        let options = ["--prior", "2e-4", "--window-items", width];
        posteriors(&dir, &options, &numbers(2600..2601))[0]
    };
    let widths = ["0", "100", "300", "600", "1000", "2000", "18446744073709551615"];
    let sure = widths.map(within);
    assert!(sure.windows(2).all(|pair| pair[0] <= pair[1]), "{sure:?}");
    assert_eq!(sure[0], 0.0);
    assert!(sure[1] < 0.5 * sure[4], "{sure:?}");
    assert_eq!(sure[4], posteriors(&dir, &["--prior", "2e-4"], &numbers(2600..2601))[0]);
}

#[test]
fn ages_are_printed_with_their_unit() {
    let place = Place::new();
    let dir = fed(&place, &["timing", "--window-items", "1000", "--fpr", "0.001"]);
    let ages = ["posterior", &dir, "--prior", "1e-4", "--ages"];
    let outcome = ok(&ages, b"2999\n2900\nnever\n");
    let lines: Vec<Vec<f64>> = outcome
        .text()
        .lines()
        .map(|line| line.split('\t').map(|field| field.parse().expect(line)).collect())
        .collect();
    assert_eq!((lines[0][1], lines[1][1]), (0.0, 99.0));
    assert!((99.0..=105.0).contains(&lines[1][2]), "{lines:?}");
    // An expired key was inserted before all that timers cover, on average 1/p inserts before that.
    assert!(lines[2][1] >= 1000.0 && (10_990.0..11_010.0).contains(&lines[2][2]), "{lines:?}");
    let json = ok(&[&ages[..], &["--json"]].concat(), b"2900\n").json();
    assert_eq!(json[0]["most_likely_age_items"], 99);
    assert!(json[0]["expected_age_items"].is_f64(), "{json:?}");
    let impossible = ["posterior", &dir, "--prior", "0", "--ages"];
    assert_eq!(ok(&impossible, b"2900\n").text(), "0\t-\t-\n");
    let json = ok(&[&impossible[..], &["--json"]].concat(), b"2900\n").json();
    assert_eq!(json[0]["expected_age_items"], Value::Null);
}

#[test]
fn both_forms_of_the_formulas_are_available() {
    let place = Place::new();
    let dir = fed(&place, LEAKY);
    let by =
        |form: &[&str]| posteriors(&dir, &[&["--prior", "uniform:3000"], form].concat(), b"7\n")[0];
    assert_eq!(by(&[]), by(&["--form", "refined"]));
    assert!(by(&["--form", "paper"]) < by(&[]) - 0.01);
}

#[test]
fn posteriors_and_decisions_change_nothing() {
    let place = Place::new();
    let dir = fed(&place, LAST_1000);
    let before = ok(&["digest", &dir], b"").stdout;
    ok(&["posterior", &dir, "--prior", "1e-4", "--ages"], &numbers(2000..3000));
    ok(
        &["decide", &dir, "--prior", "0.1", "--false-positive", "1", "--false-negative", "1"],
        b"7\n",
    );
    assert_eq!(ok(&["digest", &dir], b"").stdout, before);
}

#[test]
fn kinds_without_posteriors_are_refused_by_name() {
    for kind in [
        &["spectral", "--capacity", "1000"][..],
        &["decaying", "--capacity", "1000", "--lambda", "0.5", "--epoch", "60s"],
        &["stable", "--cells", "7000", "--max", "7", "-K", "4", "-P", "20"],
        &["dynamic-count", "--capacity", "1000"],
    ] {
        let place = Place::new();
        let dir = filter(&place, "filter", kind);
        let penalties = ["--false-positive", "1", "--false-negative", "1"];
        let decide = [&["decide", &dir, "--prior", "0.1"], &penalties[..]].concat();
        // Also without a key.
        for arguments in [&["posterior", &dir, "--prior", "0.1"], &decide[..]] {
            let sentence = refused(arguments, b"");
            assert!(sentence.contains(kind[0]) && sentence.contains("`posterior`"), "{sentence}");
        }
    }
}

#[test]
fn errors_in_the_options_are_reported_before_any_line() {
    let place = Place::new();
    let dir = filter(&place, "filter", LAST_1000);
    let bloom = filter(&place, "bloom", LEAKY);
    let missing = place.at("missing");
    let bad_table = place.file("bad", b"a\t1\nb\n");
    let empty = place.file("empty", b"");
    let (table, none) = (format!("table:{bad_table}"), format!("table:{empty}"));
    let (gone, filterless) = (format!("table:{missing}"), format!("counted:{missing}"));
    let decaying = ["decaying", "--capacity", "1000", "--lambda", "0.5", "--epoch", "60s"];
    let uncounted = format!("counted:{bloom}");
    let decayed = format!("counted:{}", filter(&place, "decaying", &decaying));
    let points = format!("points:{bad_table}");
    let rows: &[(&[&str], &str)] = &[
        (&[], "as good as its prior"),
        (&["--prior", "2"], "a probability from 0 to 1"),
        (&["--prior", "-1"], "a probability from 0 to 1"),
        (&["--prior", "NaN"], "a probability from 0 to 1"),
        (&["--prior", "uniform:0"], "at least one key"),
        (&["--prior", "uniform:few"], "uniform:U"),
        (&["--prior", "power-law:0"], "at least one key"),
        (&["--prior", "zipf:9"], "power-law:U[:EXPONENT]"),
        (&["--prior", &table], "bad, line 2: expected KEY<TAB>COUNT, found \"b\""),
        (&["--prior", &none], "counts: expected a sum of at least 1"),
        (&["--prior", &gone], "cannot read"),
        (&["--prior", &filterless], "not an ebbtide filter"),
        (&["--prior", &uncounted], "kind bloom"),
        (&["--prior", &decayed], "kind decaying"),
        (&["--prior", "0.1", "--window-items", "-1"], "--window-items"),
        (&["--prior", "power-law:9:-1"], "exponent: expected a number, 0 or more"),
        (&["--prior", "0.1", "--distinct", "some"], "points:FILE"),
        (&["--prior", "0.1", "--distinct", &points], "expected J<TAB>D, found \"a\\t1\""),
        (&["--prior", "0.1", "--rate", "0"], "inserts a second"),
        (&["--prior", "0.1", "--rate", "-3"], "inserts a second"),
        (&["--prior", "0.1", "--form", "best"], "refined, paper"),
        (&["--prior", "0.1", "--window", "10m"], "a number of inserts"),
        (&["--prior", "0.1", "--window", "long"], "90s, 10m or 24h"),
        (&["--prior", "0.1", "--window", "9s", "--window-items", "9"], "--window"),
    ];
    for (options, expected) in rows {
        let sentence = refused(&[&["posterior", &dir], *options].concat(), b"");
        assert!(sentence.contains(expected), "{options:?}: {sentence}");
        assert!(!sentence.contains("standard input"), "{sentence}");
    }
}

#[test]
fn errors_in_the_penalties_are_reported() {
    let place = Place::new();
    let dir = filter(&place, "filter", LAST_1000);
    let rows: &[(&[&str], &str)] = &[
        (&[], "--false-positive"),
        (&["--false-positive", "1"], "--false-negative"),
        (
            &["--false-positive", "1", "--false-negative", "-2"],
            "false-negative: expected a penalty",
        ),
        (
            &["--false-positive", "inf", "--false-negative", "2"],
            "false-positive: expected a penalty",
        ),
        (&["--false-positive", "dear", "--false-negative", "2"], "dear"),
        (&["--penalties", "--false-positive", "1", "--false-negative", "2"], "--penalties"),
    ];
    for (options, expected) in rows {
        let sentence = refused(&[&["decide", &dir, "--prior", "0.1"], *options].concat(), b"");
        assert!(sentence.contains(expected), "{options:?}: {sentence}");
    }
}

#[test]
fn a_malformed_line_is_named() {
    let place = Place::new();
    let dir = filter(&place, "filter", LAST_1000);
    let own = ["posterior", &dir, "--prior", "line"];
    let ranked = ["posterior", &dir, "--prior", "power-law:99"];
    let dear = ["decide", &dir, "--prior", "0.1", "--penalties"];
    let both = ["decide", &dir, "--prior", "line", "--penalties"];
    let rows: &[(&[&str], &str, &str)] = &[
        (&own, "a", "expected KEY<TAB>P, found \"a\""),
        (&own, "a\tlikely", "expected KEY<TAB>P"),
        (&own, "a\t1.1", "prior: expected a probability from 0 to 1, found 1.1"),
        (&own, "a\tNaN", "a probability from 0 to 1"),
        (&ranked, "0", "its rank, from 1 to 99, found \"0\""),
        (&ranked, "100", "its rank, from 1 to 99"),
        (&ranked, "first", "its rank, from 1 to 99, found \"first\""),
        (&dear, "a\t1", "expected KEY<TAB>FP<TAB>FN, found \"a\\t1\""),
        (&dear, "a\t1\t-1", "false-negative: expected a penalty, 0 or more, found -1"),
        (&both, "a\t1\t1", "expected KEY<TAB>P<TAB>FP<TAB>FN"),
    ];
    for (arguments, line, expected) in rows {
        let good = if arguments[0] == "decide" { "5\t0.1\t1\t1" } else { "5\t0.1" };
        let good = if arguments.contains(&"power-law:99") { "5" } else { good };
        let outcome = run(arguments, format!("{good}\n{line}\n{good}\n").as_bytes());
        assert_eq!(outcome.code, Some(2), "{arguments:?} {line:?}");
        // The answers to the lines before are printed.
        assert_eq!(outcome.lines().len(), 1, "{outcome:?}");
        let sentence = outcome.stderr;
        assert!(sentence.contains("standard input, line 2: "), "{sentence}");
        assert!(sentence.contains(expected), "{sentence}");
    }
}
