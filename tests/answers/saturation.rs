//! A filter that is fuller than planned reports it; a filter that is as full as planned does not.

use ebbtide::kinds::registry::REGISTRY;
use ebbtide::media::Memory;
use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Stat, Timestamp};
use std::sync::Arc;

/// The number of keys to plan for: the capacity, the window, or the keys within the window's time.
const PLANNED: u64 = 4000;

/// The effect of an endless stream of new keys on a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flood {
    /// No key expires: the filter fills up.
    Fills,
    /// Old keys expire as fast as new ones arrive, or the filter grows.
    Bears,
}

use Flood::{Bears, Fills};

const KEYS: &[(&str, &str)] = &[("capacity", "4000"), ("fpr", "0.001")];
const DECAY: &[(&str, &str)] =
    &[("capacity", "4000"), ("fpr", "0.001"), ("lambda", "0.5"), ("epoch", "60000000")];
const ITEMS: &[(&str, &str)] = &[("window-items", "4000"), ("fpr", "0.001")];
/// `P` follows from `fpr`.
const CELLS: &[(&str, &str)] = &[("cells", "60000"), ("max", "3"), ("K", "5"), ("fpr", "0.01")];

type Row = (&'static str, &'static [(&'static str, &'static str)], Flood);

const ROWS: &[Row] = &[
    ("bloom", KEYS, Fills),
    ("bloom", &[("capacity", "4000"), ("bits", "80000"), ("k", "3")], Fills),
    ("counting", KEYS, Fills),
    ("spectral", KEYS, Fills),
    ("spectral", &[("capacity", "4000"), ("fpr", "0.001"), ("policy", "mi")], Fills),
    ("spectral", &[("capacity", "4000"), ("fpr", "0.001"), ("policy", "rm")], Fills),
    ("dynamic-count", KEYS, Fills),
    ("decaying", DECAY, Fills),
    ("decaying-optimized", DECAY, Fills),
    ("timing", ITEMS, Bears),
    ("block-timing", ITEMS, Bears),
    ("age-partitioned", ITEMS, Bears),
    ("age-partitioned", &[("window-items", "4000"), ("k", "10"), ("l", "20")], Bears),
    ("fingerprint", ITEMS, Bears),
    ("fingerprint", &[("window-items", "4000"), ("fpr", "0.000001")], Bears),
    ("fingerprint", &[("window", "4000000"), ("fpr", "0.001"), ("rate", "1000")], Bears),
    ("time-limited", &[("window", "4000000"), ("fpr", "0.001"), ("rate", "1000")], Bears),
    ("double-buffering", ITEMS, Bears),
    ("two-buffer", ITEMS, Bears),
    ("stable", CELLS, Bears),
    ("importance-2c", CELLS, Bears),
    ("importance-mc", CELLS, Bears),
    ("importance-h", CELLS, Bears),
];

/// A filter in memory, and the position of its stream.
struct Fed {
    filter: Filter,
    kind: &'static str,
    keys: u64,
}

impl Fed {
    fn new((kind, parameters, _): Row) -> Self {
        let parameters =
            parameters.iter().fold(Parameters::new(), |all, (name, value)| all.with(name, value));
        let options = Options::new().hash_seed(7).durability(Durability::Never).background(false);
        let spec = Any::new(kind, parameters);
        let filter =
            Filter::create_on(Arc::new(Memory::new()), spec, options.clock(Clock::stream()));
        Self { filter: filter.expect("a filter"), kind, keys: 0 }
    }

    /// Inserts new keys, one per millisecond, with importances spread evenly over the levels.
    fn insert(&mut self, keys: u64) {
        for key in self.keys..self.keys + keys {
            let call = self.filter.call().time(at(key));
            let call = if self.kind.starts_with("importance") {
                call.weight((key % 4) as f64)
            } else {
                call
            };
            call.insert(key.to_le_bytes()).expect("an insert");
        }
        self.keys += keys;
    }

    fn stat(&self) -> Stat {
        self.filter.stat().expect("figures")
    }
}

fn at(key: u64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + key)
}

#[test]
fn no_kind_is_saturated_at_its_planned_fill_and_those_that_fill_up_are_beyond_it() {
    for entry in REGISTRY {
        assert!(ROWS.iter().any(|(kind, ..)| *kind == entry.name), "{}", entry.name);
    }
    for &row in ROWS {
        let mut fed = Fed::new(row);
        for quarter in 0..=4 {
            let stat = fed.stat();
            assert!(!stat.saturated, "{row:?} after {quarter} quarters: {stat:?}");
            if quarter < 4 {
                fed.insert(PLANNED / 4);
            }
        }
        for _ in 0..8 {
            fed.insert(PLANNED / 2);
            let stat = fed.stat();
            // At 1.5 times the planned keys all kinds that fill up exceed twice the planned rate,
            // even with few hash functions.
            assert_eq!(stat.saturated, row.2 == Fills, "{row:?} after {} keys: {stat:?}", fed.keys);
        }
    }
}

#[test]
fn repeated_keys_do_not_fill_a_filter() {
    for &row in ROWS.iter().filter(|row| row.2 == Fills) {
        let mut fed = Fed::new(row);
        for _ in 0..10 {
            fed.keys = 0;
            fed.insert(PLANNED / 2);
        }
        let stat = fed.stat();
        assert!(!stat.saturated, "{row:?}: {stat:?}");
    }
}

#[test]
fn a_decaying_filter_that_was_flooded_recovers() {
    for &row in ROWS.iter().filter(|row| row.0.starts_with("decaying")) {
        let mut fed = Fed::new(row);
        fed.insert(4 * PLANNED);
        assert!(fed.stat().saturated, "{row:?}");
        // An hour is sixty epochs, each of which halves all counts.
        let later = fed.filter.call().time(at(3_600_000));
        later.insert("later").expect("an insert");
        assert!(!fed.stat().saturated, "{row:?}: {:?}", fed.stat());
    }
}

#[test]
fn a_time_limited_filter_adapts_to_a_hundredfold_rate() {
    let row = ROWS.iter().find(|row| row.0 == "time-limited").expect("a row");
    let fed = Fed::new(*row);
    for key in 0..400_000_u64 {
        let time = Timestamp::from_unix_micros(1_700_000_000_000_000 + key * 10);
        fed.filter.call().time(time).insert(key.to_le_bytes()).expect("an insert");
    }
    assert!(!fed.stat().saturated, "{:?}", fed.stat());
}

#[test]
fn many_late_keys_of_one_time_do_not_overfill_a_time_limited_filter() {
    let row = ROWS.iter().find(|row| row.0 == "time-limited").expect("a row");
    let mut fed = Fed::new(*row);
    fed.insert(PLANNED / 2);
    // Two hundred times the capacity of a generation, with times one second in the past.
    let (late, never) = (PLANNED..PLANNED + 20_000, 1_000_000..1_100_000_u64);
    let call = fed.filter.call().time(at(PLANNED / 4));
    for key in late.clone() {
        call.insert(key.to_le_bytes()).expect("an insert");
    }
    let there = |key: &u64| fed.filter.contains(key.to_le_bytes()).expect("an answer");
    assert!(late.clone().all(|key| there(&key)));
    let (found, estimated) = (never.filter(there).count(), fed.stat().estimated_fpr);
    assert!(estimated < 0.001, "{estimated}");
    // Of 100,000; five standard deviations and a fifth.
    let expected = 1e5 * estimated;
    assert!(
        (found as f64 - expected).abs() < 0.2 * expected + 5.0 * expected.max(1.0).sqrt(),
        "{found}, not {expected}"
    );
}

#[test]
fn important_keys_saturate_an_importance_aware_filter_and_unimportant_ones_do_not() {
    for &row in ROWS.iter().filter(|row| row.0.starts_with("importance")) {
        // The plan assumes that all levels are equally frequent.
        for (importance, saturated) in [(3.0, true), (0.0, false)] {
            let fed = Fed::new(row);
            for key in 0..4 * PLANNED {
                let call = fed.filter.call().time(at(key)).weight(importance);
                call.insert(key.to_le_bytes()).expect("an insert");
            }
            assert_eq!(fed.stat().saturated, saturated, "{row:?}: {:?}", fed.stat());
        }
    }
}
