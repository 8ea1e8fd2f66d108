//! The limit of memory of a window of time: kept by what `stat` says of the image, across restarts
//! and deaths, without the loss of a key.

use ebbtide::{
    Any, Clock, Durability, Error, Filter, Fingerprint, ManualClock, Options, Parameters,
    Timestamp, inspect,
};
use std::fs;
use std::path::Path;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(600);
const KEYS: u64 = 300_000;

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_unix_millis(1_700_000_000_000))
}

fn options(clock: &ManualClock) -> Options {
    Options::new()
        .hash_seed(7)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::from(clock.clone()))
}

fn parameters(bytes: u64) -> Parameters {
    Parameters::new().with("window", WINDOW.as_micros()).with("max-memory", bytes)
}

fn limited(kind: &str, bytes: u64) -> Any {
    Any::new(kind, parameters(bytes))
}

fn has(filter: &Filter, keys: std::ops::Range<u64>) -> bool {
    keys.step_by(7).all(|key| filter.contains(key.to_le_bytes()).expect("an answer"))
}

/// Copies the files that are on the disk, as a kill leaves them.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let name = entry.expect("an entry").file_name();
        let text = name.to_string_lossy();
        if text == "meta" || text.starts_with("wal-") || text.starts_with("snap-") {
            fs::copy(from.join(&name), to.join(&name)).expect("space");
        }
    }
}

#[test]
fn a_burst_beyond_the_limit_keeps_it_loses_no_key_and_is_over_a_window_later() {
    for (kind, most) in [("fingerprint", 256 << 10), ("time-limited", 400 << 10)] {
        let (home, clock) = (tempfile::tempdir().expect("a directory"), clock());
        let dir = home.path().join("filter");
        let create = Filter::create(&dir, limited(kind, most), options(&clock));
        let mut filter = create.expect("a filter");
        let calm = filter.stat().expect("a stat").memory_bytes;
        for key in 0..KEYS {
            filter.insert(key.to_le_bytes()).expect("an insert");
            if key % 1000 == 0 {
                clock.advance(Duration::from_millis(1));
                let bytes = filter.stat().expect("a stat").memory_bytes;
                assert!(bytes <= most, "{kind}: {bytes} of {most}");
            }
            if key == KEYS / 2 {
                // Killed, and opened elsewhere.
                let other = home.path().join("other");
                copy(&dir, &other);
                drop(filter);
                fs::remove_dir_all(&dir).expect("ours");
                fs::rename(&other, &dir).expect("ours");
                filter = Filter::<Any>::open(&dir, options(&clock)).expect("a filter");
            }
        }
        assert!(has(&filter, 0..KEYS), "{kind}: a key is gone");
        let stat = filter.stat().expect("a stat");
        assert!(stat.saturated, "{kind}: {stat:?}");
        assert!(stat.memory_bytes > most / 2, "{kind}: {stat:?}");
        filter.checkpoint().expect("a snapshot");
        filter.close().expect("a clean end");
        let filter = Filter::<Any>::open(&dir, options(&clock)).expect("a filter");
        assert!(has(&filter, 0..KEYS), "{kind}: a key is gone");
        assert!(filter.stat().expect("a stat").saturated, "{kind}");
        // Few keys come in the windows after it.
        for round in 0..200 {
            clock.advance(WINDOW / 100);
            (KEYS + 10 * round..KEYS + 10 * round + 10).for_each(|key| {
                filter.insert(key.to_le_bytes()).expect("an insert");
            });
        }
        let stat = filter.stat().expect("a stat");
        assert!(!stat.saturated && stat.estimated_fpr < 0.001, "{kind}: {stat:?}");
        assert!(stat.memory_bytes <= 2 * calm, "{kind}: {stat:?}, {calm} at first");
        assert!(has(&filter, KEYS + 1000..KEYS + 2000), "{kind}: a key is gone");
        assert!(inspect::verify(&dir).is_ok(), "{kind}");
    }
}

#[test]
fn a_burst_of_any_size_takes_memory_in_proportion_to_its_keys() {
    for (keys, most_bits) in [(10_000_u64, 70), (100_000, 40), (1_000_000, 40)] {
        let (home, clock) = (tempfile::tempdir().expect("a directory"), clock());
        let dir = home.path().join("filter");
        let filter = Filter::create(&dir, Fingerprint::window(WINDOW), options(&clock));
        let filter = filter.expect("a filter");
        let planned = filter.stat().expect("a stat").memory_bytes;
        for key in 0..keys {
            filter.insert(key.to_le_bytes()).expect("an insert");
            if key % (keys / 1000) == 0 {
                clock.advance(Duration::from_millis(1));
            }
        }
        let stat = filter.stat().expect("a stat");
        println!("{keys} keys: {} bits a key", stat.memory_bytes as f64 * 8.0 / keys as f64);
        assert!(stat.memory_bytes * 8 <= keys * most_bits, "{keys}: {stat:?}");
        assert!(stat.estimated_fpr < 0.0013, "{keys}: {stat:?}");
        for round in 0..130 {
            clock.advance(WINDOW / 100);
            filter.insert((round + keys).to_le_bytes()).expect("an insert");
        }
        let stat = filter.stat().expect("a stat");
        assert!(stat.memory_bytes <= planned, "{keys}: {stat:?}, planned {planned}");
    }
}

#[test]
fn a_limit_below_what_a_filter_begins_with_is_refused_and_so_is_another_limit_of_a_filter() {
    let (home, clock) = (tempfile::tempdir().expect("a directory"), clock());
    let dir = home.path().join("filter");
    for kind in ["fingerprint", "time-limited"] {
        let refused = Filter::create(&dir, limited(kind, 50_000), options(&clock));
        let error = refused.expect_err("too little").to_string();
        assert!(error.contains("max-memory") && error.contains("50000"), "{error}");
        let least: String = error.chars().skip_while(|c| !c.is_ascii_digit()).collect();
        let least = least.split(' ').next().and_then(|digits| digits.parse().ok());
        let least = least.unwrap_or_else(|| panic!("no number in {error}"));
        assert!(inspect::plan(kind, &parameters(least - 1), &options(&clock)).is_err());
        let filter = Filter::create(&dir, limited(kind, least), options(&clock)).expect(kind);
        assert!(filter.stat().expect("a stat").memory_bytes <= least, "{kind}");
        filter.close().expect("a clean end");
        let other = Filter::open_or_create(&dir, limited(kind, least + 1), options(&clock));
        assert!(matches!(other, Err(Error::Mismatch { .. })), "{other:?}");
        fs::remove_dir_all(&dir).expect("ours");
    }
    let items = Parameters::new().with("window-items", 1000).with("max-memory", 1 << 20);
    let refused = Filter::create(&dir, Any::new("fingerprint", items), options(&clock));
    assert!(refused.expect_err("fixed").to_string().contains("window of inserts"));
}
