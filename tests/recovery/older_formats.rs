//! Filters written by earlier versions of the format: each opens in its recorded state, and
//! verifies.
//!
//! `tests/fixtures/format-<version>/<name>/` contains the durable files of a filter (`meta`, log
//! segments, snapshots) as the engine of that version wrote them. The file `expected` contains what
//! that engine reported about it: digest, LSN, inserts, and estimates of keys.

use ebbtide::history::At;
use ebbtide::{
    Any, Bloom, Clock, Durability, Filter, Keep, ManualClock, Options, Parameters, Reader,
    Timestamp, inspect,
};
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The time at which the fixtures were made, in milliseconds.
const NOW: u64 = 1_700_000_000_000;
/// The oldest format that is read.
const OLDEST: u32 = 4;
/// The duration of a round of inserts on that clock.
const ROUND: Duration = Duration::from_secs(14);
/// The keys whose answers are compared; the last ones are in no fixture.
const KEYS: std::ops::Range<u64> = 0..1300;

fn options(clock: &ManualClock) -> Options {
    Options::new()
        .hash_seed(7)
        .stripes(2)
        .block_bytes(512)
        .segment_bytes(4096)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::from(clock.clone()))
}

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_unix_millis(NOW))
}

fn fixtures(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{version}"))
}

/// Returns the report about a filter.
fn told(filter: &Filter) -> String {
    let digest = filter.digest().expect("a digest");
    let mut text = format!("digest {digest}\nlsn {}\ninserts {}\n", digest.lsn, digest.inserts);
    let counts = filter.estimate(b"key").is_ok();
    for key in KEYS.step_by(13) {
        let count = if counts {
            filter.estimate(key.to_le_bytes()).expect("an estimate").count.to_string()
        } else {
            filter.contains(key.to_le_bytes()).expect("an answer").to_string()
        };
        writeln!(text, "key {key} {count}").expect("a string");
    }
    text
}

fn is_durable(name: &str) -> bool {
    name == "meta" || name.starts_with("wal-") || name.starts_with("snap-")
}

fn names(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    entries.map(|entry| name(entry).into_string().expect("letters")).collect()
}

/// Copies the durable files of a filter.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for name in names(from).into_iter().filter(|name| is_durable(name)) {
        fs::copy(from.join(&name), to.join(&name)).expect("space");
    }
}

fn insert(filter: &Filter, keys: std::ops::Range<u64>) {
    keys.for_each(|key| {
        filter.insert(key.to_le_bytes()).expect("an insert");
    });
}

/// Writes the fixtures of the current format.
#[test]
#[ignore = "writes the fixtures of a new format, once: name the version in EBBTIDE_FIXTURE"]
fn write_fixtures() {
    let version = std::env::var("EBBTIDE_FIXTURE").expect("a version").parse();
    let to = fixtures(version.expect("a number"));
    for (name, kind, parameters, clean) in [
        ("spectral-closed", "spectral", Parameters::new().with("capacity", 300), true),
        ("age-killed", "age-partitioned", Parameters::new().with("window-items", 700), false),
        (
            "time-killed",
            "time-limited",
            Parameters::new().with("window", 60_000_000).with("rate", "20"),
            false,
        ),
        (
            "window-killed",
            "fingerprint",
            Parameters::new().with("window", 60_000_000).with("rate", "1"),
            false,
        ),
    ] {
        let (home, clock) = (TempDir::new().expect("a directory"), clock());
        let (dir, to) = (home.path().join("filter"), to.join(name));
        let open = |dir: &Path| Filter::<Any>::open(dir, options(&clock)).expect("a filter");
        let filter = Filter::create(&dir, Any::new(kind, parameters), options(&clock));
        let mut filter = filter.expect("a filter");
        for round in 0..4 {
            insert(&filter, 300 * round..300 * (round + 1));
            clock.advance(ROUND);
            if round < 2 {
                filter.checkpoint().expect("a snapshot");
            }
            if round == 2 {
                // Another timeline: the files are copied as after a kill, and opened elsewhere.
                let other = home.path().join("other");
                copy(&dir, &other);
                drop(filter);
                fs::remove_dir_all(&dir).expect("ours");
                fs::rename(&other, &dir).expect("ours");
                filter = open(&dir);
            }
        }
        let expected = told(&filter);
        if clean {
            filter.close().expect("a clean end");
        }
        copy(&dir, &to);
        fs::write(to.join("expected"), expected).expect("space");
    }
}

/// Returns the versions before the one that is written, from the oldest that is read. Each has
/// fixtures, which are written before the version is raised.
fn older_versions() -> Range<u32> {
    let home = TempDir::new().expect("a directory");
    Filter::create(home.path().join("new"), Bloom::capacity(100), options(&clock()))
        .expect("a filter")
        .close()
        .expect("no error");
    let meta = fs::read_to_string(home.path().join("new/meta")).expect("text");
    let first = meta.lines().next().and_then(|line| line.strip_prefix("ebbtide meta "));
    let written = first.and_then(|version| version.parse().ok()).expect("a version");
    for version in OLDEST..written {
        assert!(
            fixtures(version).is_dir(),
            "format {version} has no fixtures: with a build of that format run EBBTIDE_FIXTURE=\
             {version} cargo test --test recovery write_fixtures -- --ignored"
        );
    }
    OLDEST..written
}

#[test]
fn filters_of_older_formats_open_as_they_were() {
    for version in older_versions() {
        let place = fixtures(version);
        let mut found = names(&place);
        found.sort();
        let expected = ["age-killed", "spectral-closed", "time-killed", "window-killed"];
        assert_eq!(found, expected[..if version == 4 { 3 } else { 4 }]);
        for name in found {
            let home = TempDir::new().expect("a directory");
            copy(&place.join(&name), home.path());
            let report = inspect::verify(home.path()).expect("a report");
            assert!(report.is_sound(), "{name}: {report:?}");
            let clock = clock();
            // The time of the last recorded answers.
            clock.advance(4 * ROUND);
            let filter = Filter::<Any>::open(home.path(), options(&clock)).expect(&name);
            let expected = fs::read_to_string(place.join(&name).join("expected"));
            similar(&told(&filter), &expected.expect("text"), &name);
            assert_eq!(filter.stat().expect("a stat").format, version, "{name}");
            // Two checkpoints leave no file of the old format, and `stat` says so, also later.
            for round in 100..102 {
                insert(&filter, 300 * round..300 * (round + 1));
                filter.checkpoint().expect("a snapshot");
            }
            let newest = newest_format();
            assert!(newest > version);
            assert_eq!(filter.stat().expect("a stat").format, newest, "{name}");
            filter.close().expect("a clean end");
            let again = Filter::<Any>::open(home.path(), options(&clock)).expect(&name);
            assert_eq!(again.stat().expect("a stat").format, newest, "{name}");
        }
    }
}

/// Returns the format that `stat` reports of a new filter.
fn newest_format() -> u32 {
    let home = TempDir::new().expect("a directory");
    let spec = Any::new("bloom", Parameters::new().with("capacity", 100));
    let filter = Filter::create(home.path().join("new"), spec, options(&clock()));
    filter.expect("a filter").stat().expect("a stat").format
}

/// Compares two reports, except for the LSN after the records of a clean close.
#[track_caller]
fn similar(found: &str, expected: &str, name: &str) {
    let without = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("lsn "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without(found), without(expected), "{name}");
}

#[test]
fn the_past_of_a_filter_that_was_upgraded_reaches_into_its_log_of_the_older_format() {
    for version in older_versions() {
        for name in names(&fixtures(version)) {
            let home = TempDir::new().expect("a directory");
            copy(&fixtures(version).join(&name), home.path());
            let clock = clock();
            clock.advance(4 * ROUND);
            let keeping = options(&clock).keep_log(Keep::Bytes(1 << 30));
            let filter = Filter::<Any>::open(home.path(), keeping).expect(&name);
            let mut moments = Vec::new();
            let mut note = |filter: &Filter| {
                let digest = filter.digest().expect("a digest");
                moments.push((digest.lsn - 1, digest.value));
            };
            note(&filter);
            for round in 100..104 {
                for key in 300 * round..300 * (round + 1) {
                    insert(&filter, key..key + 1);
                    note(&filter);
                }
                filter.checkpoint().expect("a snapshot");
            }
            // The log of both formats is there, and each moment since the opening.
            let kept = names(home.path()).iter().filter(|name| name.starts_with("kept-")).count();
            assert!(kept > 5, "{name}: {kept}");
            for (lsn, value) in moments.into_iter().step_by(97) {
                let past = Reader::<Any>::at(home.path(), At::Lsn(lsn), options(&clock));
                let past = past.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(past.digest().expect("a digest").value, value, "{name}: {lsn}");
            }
        }
    }
}
