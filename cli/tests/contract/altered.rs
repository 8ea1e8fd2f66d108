//! `alter` of a filter where it is, and `plan --alter`.

use crate::looks::listing;
use crate::support::{Place, Talk, ok, refused, run};
use ebbtide::{Any, Filter, Options};
use std::ops::Range;

fn lines(keys: Range<u64>) -> Vec<u8> {
    keys.map(|key| format!("{key}\n")).collect::<String>().into_bytes()
}

/// Returns how many of these keys are in a filter.
fn present(dir: &str, keys: Range<u64>) -> usize {
    ok(&["contains", dir], &lines(keys)).text().lines().filter(|answer| *answer == "1").count()
}

/// Returns the value of a parameter of a filter.
fn parameter(dir: &str, name: &str) -> String {
    let stat = ok(&["stat", dir, "--json"], b"").json().remove(0);
    stat["parameters"][name].to_string()
}

/// Creates a filter that has had more than its log has.
fn outlived(place: &Place, keep: &[&str]) -> String {
    let dir = place.at("outlived");
    let create = ["create", &dir, "--last", "100", "--fpr", "1e-9", "--segment-bytes", "4KiB"];
    ok(&[&create[..], keep].concat(), b"");
    for round in 0..6 {
        ok(&["insert", &dir], &lines(round * 300..(round + 1) * 300));
        ok(&["snapshot", &dir], b"");
    }
    dir
}

#[test]
fn a_window_is_made_wider_and_has_again_what_had_left_it() {
    let place = Place::new();
    let dir = place.at("seen");
    ok(&["create", &dir, "--last", "100", "--fpr", "1e-9", "--keep-log", "1h"], b"");
    ok(&["insert", &dir], &lines(0..1000));
    assert_eq!(present(&dir, 0..40), 0, "they have left the window");
    assert!(refused(&["alter", &dir], b"").contains("nothing to alter"));
    let told = ok(&["alter", &dir, "--last", "5000"], b"");
    let begin = format!("{dir} is fingerprint fpr=0.000000001 window-items=5000 from LSN ");
    assert!(told.text().starts_with(&begin), "{}", told.text());
    let rest = " on, with 1000 operations; writers were stopped for ";
    assert!(told.text().contains(rest), "{}", told.text());
    assert_eq!(told.lines().len(), 1);
    assert_eq!(present(&dir, 0..1000), 1000);
    ok(&["insert", &dir], &lines(1000..1010));
    assert_eq!(present(&dir, 0..1010), 1010);
    assert_eq!(run(&["verify", &dir], b"").code, Some(0));
    // As JSON, and narrower.
    let told = ok(&["alter", &dir, "--last", "100", "--json"], b"").json().remove(0);
    assert_eq!((&told["kind"], &told["operations"]), (&"fingerprint".into(), &1010.into()));
    assert_eq!(told["parameters"]["window-items"], 100);
    assert_eq!(told["whole"], true);
    assert!(told["lsn"].as_u64() > Some(1010) && told["stopped_seconds"].as_f64() > Some(0.0));
    assert!(told["since"].is_u64(), "{told}");
    assert_eq!((present(&dir, 0..40), present(&dir, 950..1010)), (0, 60));
}

#[test]
fn handles_and_processes_that_have_it_open_continue() {
    let place = Place::new();
    let dir = place.at("seen");
    ok(&["create", &dir, "--last", "100", "--fpr", "1e-9", "--keep-log", "1h"], b"");
    let seen = Filter::<Any>::open(&dir, Options::new()).expect("a filter");
    let mut other = Talk::new(&["check", &dir]);
    for key in 0..500_u64 {
        assert!(seen.insert(key.to_string()).expect("an insert"));
    }
    assert_eq!((other.ask("0"), other.ask("499")), ("0".to_owned(), "1".to_owned()));
    assert_eq!(other.ask("one more"), "0");
    ok(&["alter", &dir, "--last", "5000"], b"");
    for key in 500..600_u64 {
        assert!(seen.insert(key.to_string()).expect("an insert"));
    }
    assert_eq!(seen.parameters().get("window-items"), Some("5000"));
    assert!(seen.contains("7").expect("an answer"));
    assert_eq!((other.ask("7"), other.ask("599"), other.ask("new")), {
        let [yes, no] = ["1", "0"].map(str::to_owned);
        (yes.clone(), yes, no)
    });
    other.end();
    assert!(seen.contains("new").expect("an answer"));
    seen.close().expect("closed");
    assert_eq!(present(&dir, 0..600), 600);
}

#[test]
fn what_is_not_named_stays_unless_the_kind_is() {
    let place = Place::new();
    let dir = place.at("seen");
    let create = ["create", &dir, "--window", "10m", "--rate", "50", "--fpr", "0.01"];
    ok(&[&create[..], &["--keep-log", "24h"]].concat(), b"");
    ok(&["insert", &dir], &lines(0..100));
    let is = |arguments: &[&str], wanted: &str| {
        let told = ok(&[&["alter", &dir], arguments].concat(), b"");
        let begin = format!("{dir} is {wanted} from LSN ");
        assert!(told.text().starts_with(&begin), "{}", told.text());
        assert_eq!(present(&dir, 0..100), 100);
    };
    is(&["--fpr", "1e-4"], "fingerprint fpr=0.0001 rate=50 window=10m");
    is(&["--window", "1h"], "fingerprint fpr=0.0001 rate=50 window=1h");
    is(&["--kind", "time-limited", "--window", "2h"], "time-limited fpr=0.001 window=2h");
    is(&["--rate", "9"], "time-limited fpr=0.001 rate=9 window=2h");
    let refusal = refused(&["alter", &dir, "--capacity", "9"], b"");
    assert!(refusal.contains("parameters of time-limited"), "{refusal}");
    let refusal = refused(&["alter", &dir, "-K", "9", "--kind", "stable"], b"");
    assert!(refusal.contains("cells"), "{refusal}");
    let refusal = refused(&["alter", &dir, "--kind", "timing", "--window", "1h"], b"");
    assert!(!refusal.contains("defaults"), "{refusal}");
    is(&["--kind", "fingerprint", "--last", "1000"], "fingerprint fpr=0.001 window-items=1000");
    assert_eq!(run(&["verify", &dir], b"").code, Some(0));
}

#[test]
fn a_filter_without_kept_log_is_altered_only_if_it_may_forget() {
    let place = Place::new();
    let dir = outlived(&place, &[]);
    // Also if it shall keep its log from now on.
    for more in [&[][..], &["--keep-log", "1h"]] {
        let refusal = refused(&[&["alter", &dir, "--last", "5000"], more].concat(), b"");
        for part in ["begins at LSN ", "what was inserted before", "--forget"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        assert_eq!(parameter(&dir, "window-items"), "100");
    }
    let told = ok(&["alter", &dir, "--last", "5000", "--forget"], b"");
    assert!(told.text().contains(", earlier ones are forgotten; "), "{}", told.text());
    assert!(told.text().contains(" operations since 20"), "{}", told.text());
    assert_eq!((present(&dir, 0..100), present(&dir, 1790..1800)), (0, 10));
}

#[test]
fn a_filter_keeps_log_from_an_alteration_on() {
    let place = Place::new();
    let dir = outlived(&place, &[]);
    let alter = ["alter", &dir, "--last", "5000", "--forget", "--keep-log", "24h", "--json"];
    let told = ok(&alter, b"").json().remove(0);
    assert_eq!(told["whole"], false);
    let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
    assert_eq!(stat["keep_log"].as_str(), Some("86400s"), "{stat}");
    ok(&["insert", &dir], &lines(0..100));
    ok(&["alter", &dir, "--last", "6000", "--forget"], b"");
    assert_eq!((present(&dir, 0..100), present(&dir, 1790..1800)), (100, 10));
}

#[test]
fn a_plan_of_an_alteration_has_figures_and_changes_nothing() {
    let place = Place::new();
    let dir = place.at("seen");
    ok(&["create", &dir, "--last", "1000", "--keep-log", "1h", "--hash-seed", "7"], b"");
    ok(&["insert", &dir], &lines(0..500));
    let before = listing(&dir);
    let table = ok(&["plan", "--alter", &dir, "--last", "1M"], b"");
    for row in [
        "before            fingerprint fpr=0.001 window-items=1000",
        "after             fingerprint fpr=0.001 window-items=1000000",
        "forgotten         nothing",
        "time              about ",
        "writers stopped   about ",
        "memory meanwhile  ",
        "disk meanwhile    ",
    ] {
        assert!(table.text().contains(row), "{row}: {}", table.text());
    }
    let plan = ok(&["plan", "--alter", &dir, "--last", "1M", "--json"], b"").json().remove(0);
    let number = |name: &str| plan[name].as_f64().unwrap_or_else(|| panic!("{name}: {plan}"));
    assert!(number("records") >= 500.0);
    assert!((2e6..4e6).contains(&number("memory_after_bytes")), "{plan}");
    assert!(number("memory_before_bytes") < 1e5, "{plan}");
    assert!(number("memory_bytes") > 2.0 * number("memory_after_bytes"));
    assert!((number("disk_bytes") - number("memory_after_bytes")).abs() < 0.5);
    assert!((0.001..1.0).contains(&number("stopped_seconds")), "{plan}");
    assert!(number("seconds") > number("stopped_seconds"));
    assert_eq!((&plan["whole"], &plan["must_forget"]), (&true.into(), &false.into()));
    assert_eq!(listing(&dir), before);
    // The same while somebody writes.
    let mut writer = Talk::new(&["check", &dir]);
    assert_eq!(writer.ask("new"), "0");
    assert!(ok(&["plan", "--alter", &dir, "--fpr", "1e-4"], b"").text().contains("fpr=0.0001"));
    writer.end();
    // It is for existing filters, and their settings stay.
    assert!(refused(&["plan", "--alter", &dir], b"").contains("nothing to alter"));
    refused(&["plan", "--alter", &place.at("none"), "--last", "9"], b"");
    let with_setting = ["plan", "--alter", &dir, "--last", "9", "--durability", "always"];
    assert!(refused(&with_setting, b"").contains("cannot be used with"));
}

#[test]
fn a_plan_says_what_an_alteration_would_forget() {
    let place = Place::new();
    let dir = outlived(&place, &[]);
    let table = ok(&["plan", "--alter", &dir, "--last", "5000"], b"");
    for part in ["forgotten         what came before LSN ", "needs --forget"] {
        assert!(table.text().contains(part), "{part}: {}", table.text());
    }
    let plan = ok(&["plan", "--alter", &dir, "--last", "5000", "--json"], b"").json().remove(0);
    assert_eq!((&plan["whole"], &plan["must_forget"]), (&false.into(), &true.into()));
    assert!(plan["from_lsn"].as_u64() > Some(1) && plan["since"].is_u64(), "{plan}");
}

#[test]
fn a_refused_alteration_leaves_the_log_that_is_kept() {
    let place = Place::new();
    let dir = outlived(&place, &[]);
    let alter = ["alter", &dir, "--last", "1000000"];
    // It keeps its log only now, so that an alteration would forget what was before.
    ok(&["insert", &dir, "--keep-log", "24h", "--key", "a"], b"");
    for _ in 0..3 {
        ok(&["insert", &dir], &lines(0..300));
        ok(&["snapshot", &dir], b"");
    }
    let names = || {
        let names = std::fs::read_dir(&dir).expect("a directory").flatten();
        names.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"kept-")).count()
    };
    let before = names();
    assert!(before > 0);
    for less in ["nothing", "1h", "4KiB"] {
        let refusal = refused(&[&alter[..], &["--keep-log", less]].concat(), b"");
        assert!(refusal.contains("--forget"), "{refusal}");
        ok(&["snapshot", &dir], b"");
        assert!(names() >= before, "{less}: {} of {before}", names());
        let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
        assert_eq!(stat["keep_log"].as_str(), Some("86400s"), "{less}: {stat}");
    }
    ok(&[&alter[..], &["--keep-log", "nothing", "--forget"]].concat(), b"");
    let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
    assert_eq!(stat["keep_log"].as_str(), Some("nothing"), "{stat}");
}
