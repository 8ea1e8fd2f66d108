//! Every kind gives the digest and the answers recorded in `golden.txt`, on every architecture.
//!
//! A difference means that a filter of an earlier build gets another state or other answers, or
//! that a new filter gets other parameters. If that is intended, `EBBTIDE_RECORD=1 cargo test
//! --test answers golden` writes the file, and the commit states the reason.
//!
//! The results of `exp`, `ln` and `pow` may differ between platforms in their last bit. They affect
//! parameters at creation, which `meta` stores, and posteriors, but never the state. The filters
//! are therefore created from the recorded parameters, and a separate test checks that planners
//! choose the same ones. A posterior may differ from the recorded one by a millionth of it.

use ebbtide::{
    Any, Clock, Durability, Error, Filter, KeyHash, Options, Parameters, Prior, Result, Timestamp,
};
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The number of operations, one per millisecond: ten windows or more of each filter that has a
/// window.
const OPERATIONS: u64 = 3000;
/// The number of keys whose presence is recorded: half of them inserted recently, half never.
const ASKED: u64 = 256;
/// The number of keys whose other answers are recorded.
const ASKED_MORE: u64 = 8;
/// The relative tolerance of a recorded probability.
const TOLERANCE: f64 = 1e-6;

/// Each key has a probability of one in a thousand, at a thousand inserts per second.
struct Uniform;

impl Prior for Uniform {
    fn probability(&self, _: &[u8]) -> f64 {
        1e-3
    }

    fn inserts_per_second(&self) -> Option<f64> {
        Some(1e3)
    }
}

/// The recorded values of one filter, by name.
type Record = BTreeMap<String, String>;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers/golden.txt")
}

fn is_recording() -> bool {
    std::env::var_os("EBBTIDE_RECORD").is_some()
}

fn options(function: KeyHash) -> Options {
    Options::new()
        .key_hash(function)
        .hash_seed(20_261_122)
        .stripes(4)
        .block_bytes(4096)
        .segment_bytes(16 << 10)
        .clock(Clock::stream())
        .durability(Durability::Never)
        .background(false)
}

/// Returns the filters: each sample, and one with the other hash function.
fn subjects() -> Vec<(String, &'static Sample, KeyHash)> {
    let with = |function: KeyHash, note: &'static str| {
        move |sample: &'static Sample| (format!("{}{note}", sample.name), sample, function)
    };
    let fast = SAMPLES.iter().map(with(KeyHash::Fast, ""));
    fast.chain(SAMPLES.iter().take(1).map(with(KeyHash::Keyed, ", keyed"))).collect()
}

fn key(number: u64) -> String {
    format!("key {number}")
}

/// Runs the operations; one in four uses the key of the operation with half its number.
fn operate(filter: &Filter, sample: &Sample) {
    for number in 0..OPERATIONS {
        let time = Timestamp::from_unix_millis(1_700_000_000_000 + number);
        let again = |number: u64| key(if number % 4 == 1 { number / 2 } else { number });
        let done = sample.operate(filter.call().time(time), number, again);
        done.unwrap_or_else(|error| panic!("{}, {number}: {error}", sample.name));
    }
}

/// Returns the answers to one kind of lookup for some keys, in one line; `None` if the kind does
/// not support it.
fn answers<T>(ask: impl Fn(&str) -> Result<T>, show: impl Fn(T) -> String) -> Option<String> {
    let mut all = Vec::new();
    for number in 0..ASKED_MORE {
        match ask(&key(asked(number * ASKED / ASKED_MORE))) {
            Ok(answer) => all.push(show(answer)),
            Err(Error::Unsupported { .. }) => return None,
            Err(error) => panic!("key {number}: {error}"),
        }
    }
    Some(all.join(" "))
}

/// Returns the number of a key to look up: from the last one inserted backwards, and as many never
/// inserted.
fn asked(number: u64) -> u64 {
    OPERATIONS - ASKED / 2 + number
}

fn presences(filter: &Filter) -> String {
    let is_there = |number| filter.contains(key(asked(number))).expect("an answer");
    let digit = |at: u64| (0..4).fold(0, |digit, bit| digit << 1 | u32::from(is_there(at + bit)));
    (0..ASKED).step_by(4).filter_map(|at| char::from_digit(digit(at), 16)).collect()
}

/// Returns the parameters, the digest and the answers of a filter.
fn observe(sample: &Sample, parameters: &Parameters, function: KeyHash) -> Record {
    let home = tempfile::tempdir().expect("a directory");
    let spec = Any::new(sample.kind, parameters.clone());
    let filter = Filter::create(home.path().join("filter"), spec, options(function));
    let filter = filter.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
    operate(&filter, sample);
    let digest = filter.digest().expect("a digest");
    let settled = filter.parameters();
    let pairs = settled.iter().map(|(name, value)| format!("{name}={value}"));
    let lines = [
        ("parameters", Some(pairs.collect::<Vec<_>>().join(" "))),
        ("digest", Some(digest.to_string())),
        ("inserts", Some(digest.inserts.to_string())),
        ("present", Some(presences(&filter))),
        ("ages", answers(|key| filter.age(key), |age| format!("{age:?}"))),
        ("estimates", answers(|key| filter.estimate(key), |found| found.count.to_string())),
        ("frequencies", answers(|key| filter.frequency(key), |found| found.count.to_string())),
        ("posteriors", answers(|key| filter.posterior(key, &Uniform), |p| format!("{p:.9e}"))),
    ];
    filter.close().expect("a clean end");
    let lines = lines.into_iter().filter_map(|(name, line)| Some((name.to_owned(), line?)));
    lines.collect()
}

/// Returns the records of the fixture, by the filter's name.
fn recorded() -> BTreeMap<String, Record> {
    let text = std::fs::read_to_string(fixture()).expect("tests/answers/golden.txt");
    let mut all: BTreeMap<String, Record> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("  ").and_then(|line| line.split_once(": ")) {
            Some((word, value)) => {
                all.entry(name.clone()).or_default().insert(word.to_owned(), value.to_owned());
            }
            None => name = line.to_owned(),
        }
    }
    all
}

/// Returns the parameters that the planner of a kind chooses.
fn planned(sample: &Sample, function: KeyHash) -> Parameters {
    let home = tempfile::tempdir().expect("a directory");
    let filter = Filter::create(home.path().join("filter"), sample.spec(), options(function));
    filter.unwrap_or_else(|error| panic!("{}: {error}", sample.name)).parameters()
}

/// Writes the fixture.
fn record() {
    let mut text =
        "# The recorded answers of every kind; tests/answers/golden.rs checks them and can record \
         them again.\n"
            .to_owned();
    for (name, sample, function) in subjects() {
        writeln!(text, "\n{name}").expect("a string has room");
        for (word, value) in observe(sample, &planned(sample, function), function) {
            writeln!(text, "  {word}: {value}").expect("a string has room");
        }
    }
    std::fs::write(fixture(), text).expect("a writable fixture");
}

/// Returns an entry of a record.
fn word<'a>(record: &'a Record, word: &str) -> &'a str {
    record.get(word).map_or("nothing", String::as_str)
}

/// Returns whether two lines of numbers are equal within the tolerance.
fn are_near(expected: &str, found: &str) -> bool {
    let numbers = |line: &str| line.split(' ').map(|word| word.parse().ok()).collect();
    let (Some(expected), Some(found)): (Option<Vec<f64>>, Option<Vec<f64>>) =
        (numbers(expected), numbers(found))
    else {
        return false;
    };
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * a.abs();
    expected.len() == found.len() && expected.iter().zip(&found).all(is_near)
}

fn fail_if_any(differences: &[String]) {
    assert!(
        differences.is_empty(),
        "{}\nIf this is intended: EBBTIDE_RECORD=1 cargo test --test answers golden, and \
         state the reason in the commit",
        differences.join("\n")
    );
}

#[test]
fn every_kind_gives_the_digest_and_the_answers_recorded() {
    if is_recording() {
        record();
    }
    let recorded = recorded();
    let mut differences = Vec::new();
    for (name, sample, function) in subjects() {
        let Some(expected) = recorded.get(&name) else {
            differences.push(format!("{name}: nothing is recorded"));
            continue;
        };
        let pairs = word(expected, "parameters").split(' ').filter_map(|pair| pair.split_once('='));
        let parameters = pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
        let found = observe(sample, &parameters, function);
        let mut words: Vec<&String> = expected.keys().chain(found.keys()).collect();
        words.sort_unstable();
        words.dedup();
        for what in words {
            let (expected, found) = (word(expected, what), word(&found, what));
            if expected != found && !(what == "posteriors" && are_near(expected, found)) {
                differences.push(format!(
                    "{name}, {what}:\n    recorded {expected}\n    found    {found}"
                ));
            }
        }
    }
    fail_if_any(&differences);
}

#[test]
fn every_planner_chooses_the_parameters_recorded() {
    if is_recording() {
        return;
    }
    let recorded = recorded();
    let mut differences = Vec::new();
    for (name, sample, function) in subjects() {
        let found = planned(sample, function);
        let pairs: Vec<String> =
            found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (expected, found) = (
            recorded.get(&name).map_or("nothing", |record| word(record, "parameters")),
            pairs.join(" "),
        );
        if expected != found {
            differences.push(format!("{name}:\n    recorded {expected}\n    planned  {found}"));
        }
    }
    fail_if_any(&differences);
}

#[test]
fn the_fixture_names_no_filter_that_is_not_tested() {
    if is_recording() {
        return;
    }
    let known: Vec<String> = subjects().into_iter().map(|(name, ..)| name).collect();
    for name in recorded().keys() {
        assert!(known.contains(name), "{name} is recorded, but not tested");
    }
}
