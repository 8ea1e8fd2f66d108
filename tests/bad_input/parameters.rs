//! Parameters of every kind that are out of bounds, unknown, or contradictory.

use super::states::place;
use ebbtide::kinds::registry::REGISTRY;
use ebbtide::{Any, Error, Filter, Options, Parameters, TimeLimited, inspect};
use std::time::Duration;

/// Kind, name and values, and the other parameters.
type Row =
    (&'static str, &'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

const NO_RATE: &[&str] = &["0", "1", "-0.1", "1.5", "NaN", "inf", "-inf", "", "x", "1e-400", "0,1"];
const NO_COUNT: &[&str] = &["0", "-1", "18446744073709551616", "1.5", "", "x", "+", " 1"];
const NO_SHARE: &[&str] = &["-0.1", "1.1", "NaN", "inf", "-inf", "", "x", "0,5"];
const ITEMS: &[(&str, &str)] = &[("window-items", "1000")];
const SLOTLESS: &[(&str, &str)] = &[("window-items", "1000"), ("bits", "12"), ("generations", "7")];
const BITLESS: &[(&str, &str)] = &[("window-items", "1000"), ("slots", "4"), ("generations", "7")];
const AGELESS: &[(&str, &str)] = &[("window-items", "1000"), ("slots", "4"), ("bits", "12")];
const KEYS: &[(&str, &str)] = &[("capacity", "1000")];
const TIME: &[(&str, &str)] = &[("window", "60000000")];
const DECAY: &[(&str, &str)] = &[("capacity", "1000"), ("lambda", "0.9"), ("epoch", "60000000")];
const POLYNOMIAL: &[(&str, &str)] = &[
    ("capacity", "1000"),
    ("epoch", "1"),
    ("decay", "polynomial"),
    ("exponent", "1"),
    ("horizon", "100"),
];
const EXPONENT: &[(&str, &str)] =
    &[("capacity", "1000"), ("epoch", "1"), ("decay", "polynomial"), ("exponent", "1")];
const HORIZON: &[(&str, &str)] =
    &[("capacity", "1000"), ("epoch", "1"), ("decay", "polynomial"), ("horizon", "100")];
const TABLE: &[(&str, &str)] = &[("capacity", "1000"), ("epoch", "1"), ("decay", "weights")];
const RING: &[(&str, &str)] =
    &[("capacity", "1000"), ("epoch", "60000000"), ("decay", "linear"), ("counter-bits", "16")];
const CELLS: &[(&str, &str)] = &[("cells", "1000"), ("max", "7"), ("K", "4"), ("P", "10")];

/// Kinds with windows, or with capacity.
const WINDOWS: &[Row] = &[
    ("bloom", "capacity", NO_COUNT, &[]),
    ("bloom", "capacity", &["18446744073709551615", "70368744177665"], &[]),
    ("bloom", "fpr", NO_RATE, KEYS),
    ("bloom", "fpr", &["1e-17"], KEYS),
    ("bloom", "bits", NO_COUNT, KEYS),
    ("bloom", "bits", &["18446744073709551615"], KEYS),
    ("bloom", "k", NO_COUNT, KEYS),
    ("bloom", "k", &["65", "4294967297", "18446744073709551615"], KEYS),
    ("age-partitioned", "window-items", NO_COUNT, &[]),
    ("age-partitioned", "window-items", &["18446744073709551615", "281474976710657"], &[]),
    ("age-partitioned", "window-items", &["281474976710656"], &[("fpr", "1e-4")]),
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
    ("fingerprint", "window-items", NO_COUNT, &[]),
    ("fingerprint", "window-items", &["18446744073709551615", "281474976710657"], &[]),
    ("fingerprint", "window-items", &["281474976710656"], &[("fpr", "1e-8")]),
    ("fingerprint", "fpr", NO_RATE, ITEMS),
    ("fingerprint", "fpr", &["1e-15"], ITEMS),
    ("fingerprint", "slots", NO_COUNT, SLOTLESS),
    ("fingerprint", "slots", &["1", "9", "4294967300"], SLOTLESS),
    ("fingerprint", "slots", &["4"], ITEMS),
    ("fingerprint", "bits", NO_COUNT, BITLESS),
    ("fingerprint", "bits", &["3", "33", "4294967308"], BITLESS),
    ("fingerprint", "generations", NO_COUNT, AGELESS),
    ("fingerprint", "generations", &["63", "4294967303"], AGELESS),
    ("fingerprint", "window", NO_COUNT, &[]),
    ("fingerprint", "window", &["18446744073709551615", "1152921504606846977"], &[]),
    ("fingerprint", "window", &["1000"], ITEMS),
    ("fingerprint", "rate", &["-1", "NaN", "inf", "-inf", "", "x", "1e308", "1e30"], TIME),
    ("fingerprint", "rate", &["1"], ITEMS),
    ("fingerprint", "words", &["1"], TIME),
    ("fingerprint", "words", NO_COUNT, ITEMS),
    ("fingerprint", "words", &["18446744073709551615"], ITEMS),
    ("time-limited", "window", NO_COUNT, &[]),
    ("time-limited", "window", &["18446744073709551615", "1152921504606846977"], &[]),
    ("time-limited", "fpr", NO_RATE, TIME),
    ("time-limited", "rate", &["-1", "NaN", "inf", "-inf", "", "x", "1e308", "1e30"], TIME),
    ("time-limited", "rate", &["1"], &[("window", "1152921504606846976"), ("fpr", "1e-9")]),
    ("time-limited", "columns", &["0", "48", "128", "-16", "", "x"], TIME),
    ("time-limited", "aim", &["", "x", "Worst"], TIME),
    ("time-limited", "load", &["0", "-1", "NaN", "inf", "1.1", "x"], TIME),
    ("time-limited", "k", &["0", "64", "4294967297"], &[("window", "60000000"), ("l", "1")]),
    ("time-limited", "l", &["60"], &[("window", "60000000"), ("k", "10")]),
    ("timing", "window-items", NO_COUNT, &[]),
    ("timing", "window-items", &["18446744073709551615"], &[]),
    ("timing", "fpr", NO_RATE, ITEMS),
    ("timing", "bits", &["0", "1", "65", "-1", "x", ""], ITEMS),
    // Too few for the window.
    ("timing", "bits", &["2", "9"], ITEMS),
    ("timing", "k", NO_COUNT, ITEMS),
    ("timing", "k", &["65", "4294967297"], ITEMS),
    ("timing", "timers", NO_COUNT, ITEMS),
    ("timing", "timers", &["18446744073709551615"], ITEMS),
    ("timing", "padding", &["-1", "1.5", "", "x", "18446744073709551615"], ITEMS),
    ("timing", "block-size", &["1"], ITEMS),
    ("block-timing", "window-items", NO_COUNT, &[]),
    ("block-timing", "fpr", NO_RATE, ITEMS),
    ("block-timing", "block-size", NO_COUNT, ITEMS),
    ("block-timing", "block-size", &["18446744073709551615"], ITEMS),
    ("block-timing", "bits", &["2"], &[("window-items", "1000"), ("block-size", "100")]),
    ("double-buffering", "window-items", NO_COUNT, &[]),
    ("double-buffering", "window-items", &["18446744073709551615"], &[]),
    ("double-buffering", "fpr", NO_RATE, ITEMS),
    ("double-buffering", "bits", NO_COUNT, ITEMS),
    ("double-buffering", "bits", &["18446744073709551615"], ITEMS),
    ("double-buffering", "k", NO_COUNT, ITEMS),
    ("double-buffering", "k", &["65", "4294967297"], ITEMS),
    ("two-buffer", "window-items", NO_COUNT, &[]),
    ("two-buffer", "window-items", &["35184372088832"], &[("fpr", "1e-5")]),
    ("two-buffer", "fpr", NO_RATE, ITEMS),
    ("two-buffer", "bits", NO_COUNT, ITEMS),
    ("two-buffer", "k", NO_COUNT, ITEMS),
];

/// Kinds that count, with or without decay.
const COUNTERS: &[Row] = &[
    ("counting", "capacity", NO_COUNT, &[]),
    ("counting", "capacity", &["18446744073709551615", "70368744177665"], &[]),
    ("counting", "fpr", NO_RATE, KEYS),
    ("counting", "cells", NO_COUNT, KEYS),
    ("counting", "cells", &["18446744073709551615", "70368744177665"], KEYS),
    // Allowed, but too many bits.
    ("counting", "cells", &["70368744177664"], &[("capacity", "1000"), ("counter-bits", "32")]),
    ("counting", "k", NO_COUNT, KEYS),
    ("counting", "k", &["65", "4294967297"], KEYS),
    ("counting", "counter-bits", NO_COUNT, KEYS),
    ("counting", "counter-bits", &["33", "4294967300"], KEYS),
    ("spectral", "capacity", NO_COUNT, &[]),
    ("spectral", "fpr", NO_RATE, KEYS),
    ("spectral", "cells", NO_COUNT, KEYS),
    ("spectral", "cells", &["18446744073709551615", "70368744177664"], KEYS),
    ("spectral", "k", NO_COUNT, KEYS),
    ("spectral", "k", &["65", "4294967297"], KEYS),
    ("spectral", "policy", &["", "x", "MS", "minimum-selection", "ms "], KEYS),
    ("dynamic-count", "capacity", NO_COUNT, &[]),
    ("dynamic-count", "fpr", NO_RATE, KEYS),
    ("dynamic-count", "cells", NO_COUNT, KEYS),
    ("dynamic-count", "cells", &["18446744073709551615", "70368744177664"], KEYS),
    ("dynamic-count", "k", NO_COUNT, KEYS),
    ("dynamic-count", "k", &["65", "4294967297"], KEYS),
    ("dynamic-count", "mean-count", &["0", "0.9", "-1", "NaN", "inf", "4294967297", "x", ""], KEYS),
    ("dynamic-count", "lambda", NO_SHARE, KEYS),
    ("decaying", "capacity", NO_COUNT, &[("lambda", "0.9"), ("epoch", "60000000")]),
    ("decaying", "fpr", NO_RATE, DECAY),
    ("decaying", "cells", NO_COUNT, DECAY),
    ("decaying", "cells", &["70368744177664"], DECAY),
    ("decaying", "k", NO_COUNT, DECAY),
    ("decaying", "k", &["65"], DECAY),
    ("decaying", "lambda", NO_RATE, &[("capacity", "1000"), ("epoch", "60000000")]),
    ("decaying", "epoch", NO_COUNT, &[("capacity", "1000"), ("lambda", "0.9")]),
    ("decaying", "decay", &["", "x", "Linear", "polyexponential"], DECAY),
    ("decaying", "exponent", &["0", "-1", "9", "NaN", "inf", "", "x"], HORIZON),
    ("decaying", "horizon", NO_COUNT, EXPONENT),
    ("decaying", "horizon", &["1048577"], EXPONENT),
    ("decaying", "excess", NO_RATE, POLYNOMIAL),
    ("decaying", "terms", &["", "x", "1:1", "0.1:0.5", "1:0.5,1:0.5", "1:0.5,"], POLYNOMIAL),
    ("decaying", "fraction-bits", &["0", "33"], POLYNOMIAL),
    ("decaying", "weights", &["", "x", "0", "2", "0.5,1", "1,", "NaN", "-1"], TABLE),
    ("decaying", "fraction-bits", &["-1", "1.5", "", "x", "63", "4294967300"], DECAY),
    ("decaying", "counter-bits", &["0", "9", "65", "4294967304", "-1", "x"], DECAY),
    ("decaying", "window-epochs", &["10"], DECAY),
    ("decaying", "window-epochs", NO_COUNT, RING),
    ("decaying", "window-epochs", &["257", "18446744073709551615"], RING),
    ("decaying", "lambda", &["0.9"], RING),
    (
        "decaying",
        "counter-bits",
        &["65"],
        &[("capacity", "1000"), ("epoch", "1"), ("decay", "linear"), ("window-epochs", "1")],
    ),
    ("decaying-optimized", "capacity", NO_COUNT, &[("lambda", "0.9"), ("epoch", "60000000")]),
    ("decaying-optimized", "fpr", NO_RATE, DECAY),
    ("decaying-optimized", "cells", NO_COUNT, DECAY),
    ("decaying-optimized", "cells", &["70368744177664"], DECAY),
    ("decaying-optimized", "k", NO_COUNT, DECAY),
    ("decaying-optimized", "k", &["65"], DECAY),
    ("decaying-optimized", "lambda", NO_RATE, &[("capacity", "1000"), ("epoch", "60000000")]),
    ("decaying-optimized", "epoch", NO_COUNT, &[("capacity", "1000"), ("lambda", "0.9")]),
    ("decaying-optimized", "fraction-bits", &["-1", "1.5", "", "x", "63", "4294967300"], DECAY),
    ("decaying-optimized", "counter-bits", &["0", "11", "65", "4294967308", "x"], DECAY),
    ("decaying-optimized", "front", &["", "x", "Plain"], DECAY),
    ("decaying-optimized", "front-bits", &["-1", "0", "x", "18446744073709551615"], DECAY),
    ("decaying-optimized", "front-k", NO_COUNT, DECAY),
    ("decaying-optimized", "front-k", &["65"], DECAY),
    ("decaying-optimized", "front-keys", NO_COUNT, DECAY),
    ("decaying-optimized", "error", NO_RATE, DECAY),
    ("decaying-optimized", "pool", &["-0.1", "4.1", "NaN", "inf", "-inf", "", "x"], DECAY),
    ("decaying-optimized", "decay", &["exponential"], DECAY),
];

/// Kinds with random decay.
const RANDOM_DECAY: &[Row] = &[
    ("stable", "cells", NO_COUNT, &[("max", "7"), ("K", "4"), ("P", "10")]),
    (
        "stable",
        "cells",
        &["18446744073709551615", "8796093022209"],
        &[("max", "7"), ("K", "4"), ("P", "10")],
    ),
    ("stable", "max", NO_COUNT, &[("cells", "1000"), ("K", "4"), ("P", "10")]),
    ("stable", "max", &["256", "4294967297"], &[("cells", "1000"), ("K", "4"), ("P", "10")]),
    ("stable", "K", NO_COUNT, &[("cells", "1000"), ("P", "10")]),
    ("stable", "K", &["65", "4294967297"], &[("cells", "1000"), ("P", "10")]),
    ("stable", "P", NO_COUNT, &[("cells", "1000")]),
    ("stable", "P", &["1048577", "4294967297"], &[("cells", "1000")]),
    ("stable", "fpr", NO_RATE, CELLS),
    ("stable", "fpr", NO_RATE, &[("cells", "1000")]),
    ("stable", "importance-max", &["7"], CELLS),
    ("importance-2c", "cells", NO_COUNT, &[("max", "7"), ("K", "4"), ("P", "10")]),
    ("importance-2c", "importance-max", &["0", "-1", "NaN", "inf", "-inf", "", "x"], CELLS),
    ("importance-mc", "max", NO_COUNT, &[("cells", "1000"), ("K", "4"), ("P", "10")]),
    ("importance-mc", "importance-max", &["0", "-1", "NaN", "inf", "-inf", "", "x"], CELLS),
    ("importance-h", "P", NO_COUNT, &[("cells", "1000")]),
    ("importance-h", "fpr", NO_RATE, CELLS),
    ("importance-h", "importance-max", &["0", "-1", "NaN", "inf", "-inf", "", "x"], CELLS),
];

fn assert_parameter(error: &Error, what: &str) {
    let Error::Parameter { name, expected, found } = error else {
        panic!("{what}: {error}");
    };
    assert!(!name.is_empty() && !expected.is_empty(), "{what}: {error}");
    assert!(error.to_string().contains(found.as_str()), "{what}: {error}");
}

#[test]
fn values_out_of_bounds_are_refused_by_name_and_create_no_files() {
    let place = place();
    let home = place.path().join("filter");
    for &(kind, name, values, others) in [WINDOWS, COUNTERS, RANDOM_DECAY].into_iter().flatten() {
        for value in values {
            let mut parameters = Parameters::new().with(name, value);
            for (name, value) in others {
                parameters.set(name, value);
            }
            let what = format!("{kind} {parameters:?}");
            let spec = Any::new(kind, parameters.clone());
            match Filter::create(&home, spec, Options::new()) {
                Ok(_) => panic!("{what} was accepted"),
                Err(error) => assert_parameter(&error, &what),
            }
            let error = inspect::plan(kind, &parameters, &Options::new()).expect_err("as above");
            assert_parameter(&error, &what);
            assert!(!home.exists(), "{what} left files behind");
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
        ("counting", Parameters::new()),
        ("counting", Parameters::new().with("capacity", 10).with("bits", 100)),
        ("spectral", Parameters::new().with("capacity", 10).with("mean-count", 2)),
        ("dynamic-count", Parameters::new().with("capacity", 10).with("policy", "ms")),
        ("decaying", Parameters::new()),
        ("decaying", Parameters::new().with("capacity", 10).with("lambda", 0.5)),
        ("decaying", Parameters::new().with("capacity", 10).with("epoch", 1)),
        ("decaying", Parameters::new().with("lambda", 0.5).with("epoch", 1)),
        ("decaying-optimized", Parameters::new().with("capacity", 10).with("epoch", 1)),
        ("timing", Parameters::new().with("window-items", 10).with("block-size", 1)),
        ("block-timing", Parameters::new().with("window-items", 10).with("cells", 100)),
        ("stable", Parameters::new()),
        ("stable", Parameters::new().with("cells", 10).with("k", 4)),
        ("stable", Parameters::new().with("cells", 10).with("Max", 4)),
        ("importance-2c", Parameters::new().with("max", 7)),
        ("double-buffering", Parameters::new().with("window-items", 10).with("l", 4)),
        ("two-buffer", Parameters::new().with("capacity", 10)),
    ] {
        let error = inspect::plan(kind, &parameters, &Options::new()).expect_err("not so");
        assert_parameter(&error, &format!("{kind} {parameters:?}"));
    }
}

/// The largest or the smallest parameters of a kind.
type Extreme = (&'static str, &'static [(&'static str, &'static str)]);

const LARGEST: &[Extreme] = &[
    ("bloom", &[("capacity", "1099511627776")]),
    ("counting", &[("capacity", "549755813888")]),
    ("spectral", &[("capacity", "34359738368")]),
    ("spectral", &[("capacity", "34359738368"), ("policy", "rm")]),
    ("dynamic-count", &[("capacity", "34359738368"), ("mean-count", "4294967296")]),
    (
        "decaying",
        &[("capacity", "34359738368"), ("lambda", "0.999999"), ("epoch", "18446744073709551615")],
    ),
    (
        "decaying",
        &[
            ("capacity", "1048576"),
            ("epoch", "1"),
            ("decay", "sliding-window"),
            ("window-epochs", "256"),
        ],
    ),
    ("decaying-optimized", &[("capacity", "34359738368"), ("lambda", "1e-9"), ("epoch", "1")]),
    ("timing", &[("window-items", "1073741824")]),
    ("block-timing", &[("window-items", "34359738368")]),
    ("age-partitioned", &[("window-items", "1099511627776")]),
    ("time-limited", &[("window", "1152921504606846976")]),
    ("fingerprint", &[("window-items", "1099511627776")]),
    ("fingerprint", &[("window", "1152921504606846976"), ("fpr", "0.000001")]),
    ("stable", &[("cells", "8796093022208"), ("max", "255"), ("K", "64"), ("P", "1048576")]),
    ("importance-2c", &[("cells", "8796093022208"), ("importance-max", "1e308"), ("P", "1048576")]),
    (
        "importance-mc",
        &[("cells", "8796093022208"), ("importance-max", "5e-324"), ("P", "1048576")],
    ),
    ("importance-h", &[("cells", "8796093022208"), ("max", "255"), ("P", "1048576")]),
    ("double-buffering", &[("window-items", "1099511627776")]),
    ("two-buffer", &[("window-items", "1099511627776")]),
];

const SMALLEST: &[Extreme] = &[
    ("bloom", &[("capacity", "1")]),
    ("bloom", &[("capacity", "1"), ("bits", "1"), ("k", "1")]),
    ("counting", &[("capacity", "1")]),
    ("counting", &[("capacity", "1"), ("cells", "1"), ("k", "1"), ("counter-bits", "1")]),
    ("spectral", &[("capacity", "1")]),
    ("spectral", &[("capacity", "1"), ("cells", "1"), ("k", "1"), ("policy", "mi")]),
    ("spectral", &[("capacity", "1"), ("cells", "1"), ("k", "64"), ("policy", "rm")]),
    ("dynamic-count", &[("capacity", "1"), ("mean-count", "1"), ("lambda", "0")]),
    ("dynamic-count", &[("capacity", "1"), ("cells", "1"), ("k", "1"), ("lambda", "1")]),
    ("decaying", &[("capacity", "1"), ("lambda", "1e-300"), ("epoch", "1")]),
    (
        "decaying",
        &[
            ("capacity", "1"),
            ("cells", "1"),
            ("k", "1"),
            ("lambda", "0.5"),
            ("epoch", "1000"),
            ("fraction-bits", "0"),
            ("counter-bits", "2"),
        ],
    ),
    (
        "decaying",
        &[
            ("capacity", "1"),
            ("epoch", "1"),
            ("decay", "linear"),
            ("window-epochs", "1"),
            ("counter-bits", "1"),
        ],
    ),
    ("decaying-optimized", &[("capacity", "1"), ("lambda", "0.5"), ("epoch", "1")]),
    (
        "decaying-optimized",
        &[
            ("capacity", "1"),
            ("cells", "1"),
            ("k", "1"),
            ("lambda", "0.5"),
            ("epoch", "1"),
            ("pool", "0"),
            ("front", "none"),
            ("fraction-bits", "0"),
        ],
    ),
    ("timing", &[("window-items", "1")]),
    ("timing", &[("window-items", "1"), ("timers", "1"), ("k", "1"), ("padding", "0")]),
    ("block-timing", &[("window-items", "1")]),
    ("block-timing", &[("window-items", "1"), ("block-size", "1000")]),
    ("age-partitioned", &[("window-items", "1")]),
    ("time-limited", &[("window", "1")]),
    ("fingerprint", &[("window-items", "1")]),
    ("fingerprint", &[("window-items", "1"), ("words", "1")]),
    ("fingerprint", &[("window", "1"), ("rate", "0")]),
    ("stable", &[("cells", "1"), ("max", "1"), ("K", "1"), ("P", "1")]),
    ("importance-2c", &[("cells", "1"), ("max", "1"), ("K", "1"), ("P", "1")]),
    ("importance-mc", &[("cells", "1"), ("max", "1"), ("K", "64"), ("P", "1")]),
    ("importance-h", &[("cells", "1"), ("max", "255"), ("K", "1"), ("P", "1000")]),
    ("double-buffering", &[("window-items", "1")]),
    ("double-buffering", &[("window-items", "1"), ("bits", "1"), ("k", "1")]),
    ("two-buffer", &[("window-items", "1")]),
    ("two-buffer", &[("window-items", "1"), ("bits", "1"), ("k", "64")]),
];

fn of(pairs: &[(&str, &str)]) -> Parameters {
    pairs.iter().fold(Parameters::new(), |all, (name, value)| all.with(name, value))
}

#[test]
fn every_kind_has_a_row_of_extremes() {
    for entry in REGISTRY {
        for extremes in [LARGEST, SMALLEST] {
            assert!(extremes.iter().any(|(kind, _)| *kind == entry.name), "{}", entry.name);
        }
    }
}

#[test]
fn planning_the_largest_filters_needs_little_time_and_memory() {
    for (kind, parameters) in LARGEST {
        let parameters = of(parameters);
        let plan = inspect::plan(kind, &parameters, &Options::new()).expect("a plan");
        assert!(plan.memory_bytes > 0 && plan.disk_bytes > plan.memory_bytes, "{kind}");
        assert!(plan.fpr > 0.0 && plan.fpr <= 1.0, "{kind}: {}", plan.fpr);
        let wide = Options::new().checkpoint_bytes(u64::MAX);
        let plan = inspect::plan(kind, &parameters, &wide).expect("a plan");
        assert_eq!(plan.disk_bytes, u64::MAX, "the sum saturates");
    }
}

#[test]
fn the_smallest_filters_work() {
    let place = place();
    for (at, (kind, parameters)) in SMALLEST.iter().enumerate() {
        let what = format!("{kind} {parameters:?}");
        let plan = inspect::plan(kind, &of(parameters), &Options::new()).expect(&what);
        assert!(plan.fpr > 0.0 && plan.fpr <= 1.0, "{what}: {}", plan.fpr);
        let home = place.path().join(at.to_string());
        let spec = Any::new(kind, of(parameters));
        let filter = Filter::create(&home, spec, Options::new()).expect(&what);
        for key in 0..100_u32 {
            assert!(filter.insert(key.to_le_bytes()).expect("an insert"), "{what}");
        }
        filter.contains(7_u32.to_le_bytes()).expect("an answer");
        let stat = filter.stat().expect("figures");
        assert!((0.0..=1.0).contains(&stat.estimated_fpr), "{what}: {}", stat.estimated_fpr);
        assert!((0.0..=1.0).contains(&stat.fill), "{what}: {}", stat.fill);
        let before = filter.digest().expect("a digest");
        filter.close().expect("a clean end");
        let filter: Filter = Filter::open(&home, Options::new()).expect("the same filter");
        assert_eq!(filter.digest().expect("a digest").value, before.value, "{what}");
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
