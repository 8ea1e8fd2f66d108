//! The click audit.

use crate::click_audit::audit::{self, COMPLAINT, Decision, Entry, Plain};
use crate::click_audit::balance::{self, Balance, Mistakes};
use crate::click_audit::clicks::{self, Click};
use crate::program::{CLICK_AUDIT, Program, moments};
use ebbtide::{Any, Filter, Options};
use ebbtide_testkit::child::HANG;
use ebbtide_testkit::copies::copy_files;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const WINDOW: u64 = 24 * 3600 * 1_000_000;

/// What an audit leaves: its ledger, and the states and the numbers of inserts of its filters.
#[derive(Debug, PartialEq)]
struct Left {
    ledger: Vec<u8>,
    filters: [(u128, u64); 2],
}

impl Left {
    fn compare(&self, undisturbed: &Self) {
        assert_eq!(self.filters, undisturbed.filters, "the filters differ: window and counts");
        assert!(self.ledger == undisturbed.ledger, "the ledgers differ");
    }
}

fn left(dir: &Path) -> Left {
    let filters = ["window", "counts"].map(|name| {
        let filter = Filter::<Any>::open(dir.join(name), Options::new()).expect("a filter");
        let state =
            (filter.digest().expect("a state").value, filter.stat().expect("figures").inserts);
        filter.close().expect("space");
        state
    });
    Left { ledger: fs::read(dir.join("ledger")).expect("a ledger"), filters }
}

/// Waits until the ledger has this many bytes; returns false if the audit ended before.
fn wait(program: &mut Program, dir: &Path, bytes: u64) -> bool {
    let start = Instant::now();
    let length = || fs::metadata(dir.join("ledger")).map_or(0, |file| file.len());
    while length() < bytes {
        assert!(start.elapsed() < HANG, "the ledger does not grow");
        if !program.is_running() {
            return false;
        }
        sleep(Duration::from_micros(200));
    }
    true
}

/// Runs the audit in this process, undisturbed.
fn undisturbed(dir: &Path, clicks: &[Click]) -> Vec<Entry> {
    audit::run(dir, clicks).expect("an audit")
}

pub fn killed() {
    let place = tempfile::tempdir().expect("a directory");
    let (whole, killed) = (place.path().join("whole"), place.path().join("killed"));
    let clicks = clicks::generate();
    undisturbed(&whole, &clicks);
    let expected = left(&whole);
    let line = expected.ledger.len() as u64 / clicks.len() as u64;
    let mut random = moments();
    let mut moments: Vec<u64> = (0..8).map(|_| random.below(clicks.len() as u64)).collect();
    moments.sort_unstable();
    let mut kills = 0;
    for moment in moments {
        let mut program = Program::start(CLICK_AUDIT, &killed);
        // A part of a line, so that the moment is not always between two clicks.
        if wait(&mut program, &killed, moment * line + random.below(line)) {
            kills += 1;
        }
        program.kill_all();
    }
    assert!(kills >= 4, "only {kills} of 8 kills were in time");
    let printed = Program::start(CLICK_AUDIT, &killed).end();
    assert!(!printed[0].starts_with("0 of"), "it does not begin again: {}", printed[0]);
    left(&killed).compare(&expected);
}

/// Returns for each click whether its key came within the window before, from sorted times.
fn duplicates(clicks: &[Click]) -> Vec<bool> {
    let mut times: HashMap<&str, Vec<u64>> = HashMap::new();
    for click in clicks {
        times.entry(&click.key).or_default().push(click.time);
    }
    let mut met: HashMap<&str, usize> = HashMap::new();
    let mut found = Vec::new();
    for click in clicks {
        let (times, index) = (&times[&*click.key], met.entry(&click.key).or_default());
        found.push(*index > 0 && times[*index] - times[*index - 1] < WINDOW);
        *index += 1;
    }
    found
}

pub fn balance() {
    let place = tempfile::tempdir().expect("a directory");
    let clicks = clicks::generate();
    let entries = undisturbed(&place.path().join("audit"), &clicks);
    let found = balance::balance(&clicks, &entries);
    let duplicates = duplicates(&clicks);
    let cost = |refuse: &dyn Fn(&Entry) -> bool| {
        let mut mistakes = Mistakes::default();
        for ((click, entry), &is_duplicate) in clicks.iter().zip(&entries).zip(&duplicates) {
            if is_duplicate && !refuse(entry) {
                mistakes.paid += 1;
                mistakes.cents += u64::from(click.cents) + u64::from(COMPLAINT);
            } else if !is_duplicate && refuse(entry) {
                mistakes.refused += 1;
                mistakes.cents += u64::from(click.cents);
            }
        }
        mistakes
    };
    let expected = Balance {
        duplicates: duplicates.iter().filter(|&&is| is).count() as u64,
        held: 0,
        no_filter: cost(&|_| false),
        plain: cost(&|entry| entry.plain != Plain::New),
        counted: cost(&|entry| entry.plain == Plain::Seen),
        decided: cost(&|entry| entry.decision == Decision::Refuse),
    };
    assert_eq!(found, expected);
    assert!(found.duplicates > 20_000, "the clicks have duplicates: {}", found.duplicates);
    assert_eq!((found.plain.paid, found.counted.paid), (0, 0), "no false negatives");
    let cents = [&found.no_filter, &found.plain, &found.counted, &found.decided].map(|m| m.cents);
    // 25, 2.5 and 1.5 times, with room for other hashing and other plans of the window.
    assert!(cents[0] > 5 * cents[1], "{cents:?}");
    assert!(cents[1] * 10 > 15 * cents[3], "{cents:?}");
    assert!(cents[2] * 10 > 11 * cents[3], "{cents:?}");
}

/// Runs an audit and kills it after about this share of the clicks. Returns the number of lines of
/// its ledger.
fn part(dir: &Path, clicks: &[Click], line: usize, share: f64) -> usize {
    let lines = (clicks.len() as f64 * share) as u64;
    let mut program = Program::start(CLICK_AUDIT, dir);
    assert!(wait(&mut program, dir, lines * line as u64), "it ended before it was killed");
    program.kill_all();
    fs::metadata(dir.join("ledger")).expect("a ledger").len() as usize / line
}

/// The bytes of a line of the ledger.
fn line(entries: usize, dir: &Path) -> usize {
    fs::read(dir.join("ledger")).expect("a ledger").len() / entries
}

pub fn lost_decisions() {
    const LOST: usize = 1000;
    let place = tempfile::tempdir().expect("a directory");
    let (whole, cut) = (place.path().join("whole"), place.path().join("cut"));
    let clicks = clicks::generate();
    let expected = undisturbed(&whole, &clicks);
    let line = line(expected.len(), &whole);
    let lines = part(&cut, &clicks, line, 0.3);
    let ledger = fs::OpenOptions::new().write(true).open(cut.join("ledger")).expect("a ledger");
    // And a part of a line.
    ledger.set_len(((lines - LOST) * line - 3) as u64).expect("a shorter file");
    Program::start(CLICK_AUDIT, &cut).end();
    let found = audit::read(&cut).expect("a ledger");
    assert_eq!(found.len(), expected.len());
    let held: Vec<usize> =
        (0..found.len()).filter(|&at| found[at].decision == Decision::Held).collect();
    // The last click of the ledger may not have been inserted before the kill.
    assert!((LOST..=LOST + 1).contains(&held.len()), "{} decisions are held", held.len());
    assert_eq!(held[0], lines - LOST - 1);
    assert_eq!(held[held.len() - 1] + 1 - held[0], held.len(), "they follow each other");
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!(found == expected || held.contains(&at), "click {at} is decided otherwise");
    }
}

pub fn lost_inserts() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    let (whole, cut, early) = (path("whole"), path("cut"), path("early"));
    let clicks = clicks::generate();
    let line = line(undisturbed(&whole, &clicks).len(), &whole);
    let before = part(&cut, &clicks, line, 0.3);
    fs::create_dir(&early).expect("a directory");
    for name in ["window", "counts"] {
        copy_files(&cut.join(name), &early.join(name)).expect("copies");
    }
    let after = part(&cut, &clicks, line, 0.4);
    assert!(after > before + 1000, "{before} and {after} lines");
    // Of the ledger everything reached the disk, of the counts the older state.
    fs::remove_dir_all(cut.join("counts")).expect("an old state");
    copy_files(&early.join("counts"), &cut.join("counts")).expect("the older state");
    Program::start(CLICK_AUDIT, &cut).end();
    left(&cut).compare(&left(&whole));
}
