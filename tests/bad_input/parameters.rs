//! Parameters of every kind that are out of bounds, unknown, or do not fit each other.

use super::states::place;
use ebbtide::{Any, Error, Filter, Options, Parameters, TimeLimited, inspect};
use std::time::Duration;

/// Kind, name and values, and parameters to be completed by.
type Row =
    (&'static str, &'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

const NO_RATE: &[&str] = &["0", "1", "-0.1", "1.5", "NaN", "inf", "-inf", "", "x", "1e-400", "0,1"];
const NO_COUNT: &[&str] = &["0", "-1", "18446744073709551616", "1.5", "", "x", "+", " 1"];
const ITEMS: &[(&str, &str)] = &[("window-items", "1000")];
const KEYS: &[(&str, &str)] = &[("capacity", "1000")];
const TIME: &[(&str, &str)] = &[("window", "60000000")];

const REFUSED: &[Row] = &[
    ("bloom", "capacity", NO_COUNT, &[]),
    ("bloom", "capacity", &["18446744073709551615", "70368744177665"], &[]),
    ("bloom", "fpr", NO_RATE, KEYS),
    ("bloom", "bits", NO_COUNT, KEYS),
    ("bloom", "bits", &["18446744073709551615"], KEYS),
    ("bloom", "k", NO_COUNT, KEYS),
    ("bloom", "k", &["65", "4294967297", "18446744073709551615"], KEYS),
    ("age-partitioned", "window-items", NO_COUNT, &[]),
    ("age-partitioned", "window-items", &["18446744073709551615", "281474976710657"], &[]),
    ("age-partitioned", "window-items", &["281474976710656"], &[("fpr", "1e-9")]),
    ("age-partitioned", "fpr", NO_RATE, ITEMS),
    ("age-partitioned", "k", NO_COUNT, &[("window-items", "1000"), ("l", "20")]),
    (
        "age-partitioned",
        "k",
        &["64", "4294967297", "18446744073709551615"],
        &[("window-items", "1000"), ("l", "1")],
    ),
    ("age-partitioned", "k", &["45", "63"], &[("window-items", "1000"), ("l", "20")]),
    ("age-partitioned", "l", NO_COUNT, &[("window-items", "1000"), ("k", "10")]),
    ("age-partitioned", "l", &["20"], &[("window-items", "10"), ("k", "10")]),
    ("age-partitioned", "columns", &["0", "1", "65", "4294967360", "-16"], ITEMS),
    ("age-partitioned", "words", NO_COUNT, ITEMS),
    ("age-partitioned", "words", &["18446744073709551615"], ITEMS),
    ("age-partitioned", "generation", NO_COUNT, ITEMS),
    ("age-partitioned", "generation", &["1", "1001", "18446744073709551615"], ITEMS),
    ("time-limited", "window", NO_COUNT, &[]),
    ("time-limited", "window", &["18446744073709551615", "1152921504606846977"], &[]),
    ("time-limited", "fpr", NO_RATE, TIME),
    ("time-limited", "rate", &["-1", "NaN", "inf", "-inf", "", "x", "1e308", "1e30"], TIME),
    ("time-limited", "rate", &["1"], &[("window", "1152921504606846976"), ("fpr", "1e-9")]),
    ("time-limited", "load", &["0", "-1", "NaN", "inf", "1.1", "x"], TIME),
    ("time-limited", "k", &["0", "64", "4294967297"], &[("window", "60000000"), ("l", "1")]),
    ("time-limited", "l", &["60"], &[("window", "60000000"), ("k", "10")]),
];

fn assert_parameter(error: &Error, what: &str) {
    let Error::Parameter { name, expected, found } = error else {
        panic!("{what}: {error}");
    };
    assert!(!name.is_empty() && !expected.is_empty(), "{what}: {error}");
    assert!(error.to_string().contains(found.as_str()), "{what}: {error}");
}

#[test]
fn values_out_of_bounds_are_refused_by_name_and_nothing_is_made() {
    let place = place();
    let home = place.path().join("filter");
    for &(kind, name, values, others) in REFUSED {
        for value in values {
            let mut parameters = Parameters::new().with(name, value);
            for (name, value) in others {
                parameters.set(name, value);
            }
            let what = format!("{kind} {parameters:?}");
            let spec = Any::new(kind, parameters.clone());
            match Filter::create(&home, spec, Options::new()) {
                Ok(_) => panic!("{what} was taken"),
                Err(error) => assert_parameter(&error, &what),
            }
            let error = inspect::plan(kind, &parameters, &Options::new()).expect_err("as above");
            assert_parameter(&error, &what);
            assert!(!home.exists(), "{what} left something behind");
        }
    }
}

#[test]
fn unknown_and_missing_names_are_refused() {
    for (kind, parameters) in [
        ("", Parameters::new()),
        ("Bloom", Parameters::new().with("capacity", 10)),
        ("nonsense", Parameters::new().with("capacity", 10)),
        ("bloom", Parameters::new()),
        ("bloom", Parameters::new().with("capacity", 10).with("window", 5)),
        ("bloom", Parameters::new().with("Capacity", 10)),
        ("age-partitioned", Parameters::new()),
        ("age-partitioned", Parameters::new().with("window-items", 10).with("capacity", 10)),
        ("age-partitioned", Parameters::new().with("window-items", 100).with("k", 10)),
        ("age-partitioned", Parameters::new().with("window-items", 100).with("l", 10)),
        ("time-limited", Parameters::new()),
        ("time-limited", Parameters::new().with("window", 100).with("", 5)),
        ("time-limited", Parameters::new().with("window", 100).with("k", 10)),
    ] {
        let error = inspect::plan(kind, &parameters, &Options::new()).expect_err("not so");
        assert_parameter(&error, &format!("{kind} {parameters:?}"));
    }
}

#[test]
fn the_largest_filters_are_planned_in_no_time_and_no_memory() {
    for (kind, name, value) in [
        ("bloom", "capacity", 1_u64 << 40),
        ("age-partitioned", "window-items", 1 << 40),
        ("time-limited", "window", 1 << 60),
    ] {
        let parameters = Parameters::new().with(name, value);
        let plan = inspect::plan(kind, &parameters, &Options::new()).expect("a plan");
        assert!(plan.memory_bytes > 0 && plan.disk_bytes > plan.memory_bytes);
        assert!(plan.fpr > 0.0 && plan.fpr < 1.0, "{kind}: {}", plan.fpr);
        let wide = Options::new().checkpoint_bytes(u64::MAX);
        let plan = inspect::plan(kind, &parameters, &wide).expect("a plan");
        assert_eq!(plan.disk_bytes, u64::MAX, "more than there is, not less");
    }
}

#[test]
fn the_smallest_filters_work() {
    let place = place();
    for (at, (kind, name)) in
        [("bloom", "capacity"), ("age-partitioned", "window-items"), ("time-limited", "window")]
            .into_iter()
            .enumerate()
    {
        let spec = Any::new(kind, Parameters::new().with(name, 1));
        let home = place.path().join(at.to_string());
        let filter = Filter::create(&home, spec, Options::new()).expect("a small filter");
        for key in 0..100_u32 {
            assert!(filter.insert(key.to_le_bytes()).expect("an insert"));
        }
        let before = filter.digest().expect("a digest");
        filter.close().expect("a clean end");
        let filter: Filter = Filter::open(&home, Options::new()).expect("the same filter");
        assert_eq!(filter.digest().expect("a digest").value, before.value, "{kind}");
    }
}

#[test]
fn a_window_longer_than_any_clock_is_refused() {
    let place = place();
    for window in [Duration::MAX, Duration::ZERO, Duration::from_nanos(1)] {
        let spec = TimeLimited::window(window);
        let error = Filter::create(place.path().join("filter"), spec, Options::new());
        assert_parameter(&error.expect_err("no such window"), &format!("{window:?}"));
    }
}
