//! Who floods us now.

use crate::flood::requests::{MINUTE, Request, generate};
use crate::flood::{LAMBDA, WATCHED};
use crate::program::{FLOOD, Program, moments};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// A row: source, estimated rate, its bounds, exact rate.
type Row = (String, [f64; 4]);

/// The tables by their headings, in order of time.
type Tables = BTreeMap<String, Vec<Row>>;

fn heading(line: &str) -> bool {
    line.as_bytes().get(2) == Some(&b':') && line.ends_with(" requests")
}

/// Adds the tables that were printed. Those printed again must be equal, except for the last one of
/// a killed run, which may be cut off.
fn tables(printed: &[String], killed: bool, all: &mut Tables) {
    let starts: Vec<usize> = (0..printed.len()).filter(|&line| heading(&printed[line])).collect();
    for (number, &start) in starts.iter().enumerate() {
        let row = |line: &String| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[source, a, b, c, d] = words.as_slice() else { panic!("{line}") };
            (source.to_owned(), [a, b, c, d].map(|text| text.parse().expect("a number")))
        };
        let is_cut = killed && number + 1 == starts.len();
        let rows = printed.get(start + 2..).unwrap_or_default();
        let rows = rows.iter().take_while(|line| line.starts_with("  "));
        let is_whole = |line: &&String| !is_cut || line.split_whitespace().count() == 5;
        let rows: Vec<Row> = rows.take_while(is_whole).map(row).collect();
        let before = all.insert(printed[start].clone(), rows.clone());
        let agrees = |before: Vec<Row>| is_cut || rows.starts_with(&before);
        assert!(before.is_none_or(agrees), "{} differs", printed[start]);
    }
}

fn undisturbed() -> (Tables, Vec<String>) {
    let place = tempfile::tempdir().expect("a directory");
    let printed = Program::start(FLOOD, &place.path().join("flood")).end();
    let mut all = Tables::new();
    tables(&printed, false, &mut all);
    assert_eq!(all.len(), 30, "a table for each minute");
    (all, printed)
}

/// Returns the exact rates of all sources at the end of a minute: each request's weight, added up.
fn rates(requests: &[Request], minute: u64) -> HashMap<&str, f64> {
    let mut rates = HashMap::new();
    for request in requests.iter().filter(|request| request.time / MINUTE <= minute) {
        let age = minute - request.time / MINUTE;
        *rates.entry(request.source.as_str()).or_default() +=
            (1.0 - LAMBDA) * LAMBDA.powi(age as i32);
    }
    rates
}

pub fn exact() {
    /// Rates are printed with two digits.
    const DIGITS: f64 = 0.005_001;
    let (all, printed) = undisturbed();
    let requests = generate();
    for ((heading, rows), minute) in all.iter().zip(requests[0].time / MINUTE..) {
        let now = requests.iter().filter(|request| request.time / MINUTE == minute).count();
        assert!(heading.ends_with(&format!(" {now} requests")), "{heading}");
        let exact = rates(&requests, minute);
        for (source, [rate, least, most, shown]) in rows {
            let rate_exactly = exact[source.as_str()];
            assert!((shown - rate_exactly).abs() < DIGITS, "{heading}: {source}");
            assert!(
                (least - DIGITS..=most + DIGITS).contains(&rate_exactly),
                "{heading}: {source}"
            );
            assert!(*rate >= rate_exactly - DIGITS, "{heading}: {source} is undercounted");
        }
        // Nobody is missing who is above the last row by more than it is overcounted.
        let last = rows.last().map_or(0.0, |row| row.1[0]);
        let limit = if rows.len() == 10 { last } else { WATCHED };
        for (source, &rate) in &exact {
            let is_listed = rows.iter().any(|row| row.0 == *source);
            assert!(rate < limit + DIGITS || is_listed, "{heading}: {source} is missing");
        }
    }
    let flooding: Vec<_> = all.values().filter(|rows| rows[0].0.starts_with("203.0.")).collect();
    assert!(flooding.len() > 15, "floods are on top while they last");
    let rows: usize = all.values().map(Vec::len).sum();
    assert!(rows > 250, "{rows} rows");
    let last = &printed[printed.len() - 3..];
    assert!(last[1].starts_with("0 exact rates outside their bounds"), "{last:?}");
}

pub fn all_killed() {
    let (expected, _) = undisturbed();
    let mut random = moments();
    // On a busy machine a run may end before it is killed often enough.
    for _ in 0..10 {
        let place = tempfile::tempdir().expect("a directory");
        let dir = place.path().join("flood");
        let mut found = Tables::new();
        let mut kills = 0;
        for _ in 0..6 {
            let mut program = Program::start(FLOOD, &dir);
            for _ in 0..=random.below(3) {
                while program.line().is_some_and(|line| !heading(&line)) {}
            }
            sleep(Duration::from_micros(random.below(10_000)));
            let printed = program.kill_all();
            kills += usize::from(!printed.iter().any(|line| line.ends_with(" rows")));
            tables(&printed, true, &mut found);
        }
        let printed = Program::start(FLOOD, &dir).end();
        assert!(!printed[0].starts_with("0 of"), "it continues: {}", printed[0]);
        tables(&printed, false, &mut found);
        compare(&found, &expected);
        if kills > 1 {
            return;
        }
    }
    panic!("in ten runs no run was killed in time");
}

pub fn one_killed() {
    let (expected, _) = undisturbed();
    let mut random = moments();
    // On a busy machine a run may end before it is killed often enough.
    for _ in 0..10 {
        let place = tempfile::tempdir().expect("a directory");
        let mut program = Program::start(FLOOD, &place.path().join("flood"));
        let mut kills = [0, 0];
        for turn in 0..6 {
            while program.line().is_some_and(|line| !heading(&line)) {}
            sleep(Duration::from_micros(random.below(5_000)));
            let reader = usize::from(turn % 3 == 2);
            kills[reader] += usize::from(program.kill_one([": writer", ": reader"][reader]));
        }
        let printed = program.end();
        let count = |text| printed.iter().filter(|line| line.starts_with(text)).count();
        assert!(count("a writer was killed") <= kills[0], "{printed:#?}");
        let mut found = Tables::new();
        tables(&printed, false, &mut found);
        compare(&found, &expected);
        if count("a writer was killed") > 1 && count("the reader was killed") > 0 {
            return;
        }
    }
    panic!("in ten runs no process was killed in time");
}

/// Five sources are fast in the first minute, and slow in the third.
pub fn ended_twice() {
    let place = tempfile::tempdir().expect("a directory");
    let (dir, file) = (place.path().join("flood"), place.path().join("log"));
    let mut log = String::new();
    for (minute, requests) in [(0, 100), (1, 0), (2, 1)] {
        for source in 1..=5 {
            let request = format!("10.0.0.{source} - - [02/Jun/2025:00:0{minute}:06 +0000] ...\n");
            log.push_str(&request.repeat(requests));
        }
        log.push_str(&format!("10.0.0.9 - - [02/Jun/2025:00:0{minute}:07 +0000] ...\n"));
    }
    fs::write(&file, log).expect("a file");
    let mut all = Tables::new();
    for run in 0..2 {
        tables(&Program::start_with(FLOOD, &dir, Some(&file)).end(), false, &mut all);
        let rows: Vec<usize> = all.values().map(Vec::len).collect();
        assert_eq!(rows, [5, 5, 5], "after {run} runs before");
    }
}

fn compare(found: &Tables, expected: &Tables) {
    for (heading, rows) in expected {
        assert_eq!(found.get(heading), Some(rows), "{heading}");
    }
}
