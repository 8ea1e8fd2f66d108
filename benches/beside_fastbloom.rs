//! Compares windows with `fastbloom::AtomicBloomFilter` for insert and contains, and bulk calls
//! with single ones: `age-partitioned` with the same number of bits and hashes, `fingerprint` with
//! the same keys and rate, and its check-and-insert with that of `age-partitioned` for the same
//! window.
//!
//! `cargo bench --bench beside_fastbloom` uses 1 and 16 MiB; `EBBTIDE_MIB=1,16,256,1024` sets other
//! sizes. Each result is a ratio of two times measured in turns, and the median of the turns, which
//! is stable on a noisy machine. `EBBTIDE_MAX_LOAD=0.8` is the `max-load` of `fingerprint`. Nothing
//! is synced (`Durability::Never`); the log and checkpoints are written, beside the program or in
//! `EBBTIDE_BENCH_DIR`.
//!
//! `fastbloom`'s filter never forgets. It is asked while it holds as many keys as it was created
//! for, and inserts are into another one, which is cleared when it holds as many.

mod common;

use common::{directory, key};
use ebbtide::{AgePartitioned, Any, Checked, Durability, Filter, Fingerprint, Options, Spec};
use fastbloom::AtomicBloomFilter;
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

/// The number of hash functions of both filters.
const HASHES: u32 = 12;
/// The most operations of a turn.
const BATCH: u64 = 250_000;
const PAIRS: u64 = 21;
/// The number of keys of a bulk call.
const BULK: usize = 1_000;

fn keys(from: u64, count: u64) -> Vec<[u8; 16]> {
    (from..from + count).map(key).collect()
}

struct Pair {
    ours: Filter,
    /// Holds the keys from 0 to the window, and is only asked.
    theirs: AtomicBloomFilter,
    /// Takes inserts.
    filling: AtomicBloomFilter,
    /// The number of keys in `filling`.
    filled: Cell<u64>,
    window: u64,
    /// The operations of a turn.
    batch: u64,
    /// Another filter of ours, for the same window.
    other: Option<Filter>,
    _directory: tempfile::TempDir,
}

/// Creates a filter of this name.
fn created(directory: &tempfile::TempDir, name: &str, spec: impl Spec) -> Filter {
    let options = Options::new().durability(Durability::Never);
    let path = directory.path().join(name);
    drop(Filter::create(&path, spec, options.clone()).expect("a filter"));
    Filter::<Any>::open(&path, options).expect("a filter")
}

impl Pair {
    /// Creates filters of `age-partitioned` and theirs, of this size.
    fn of_columns(mib: u64) -> (Self, u64) {
        let directory = directory();
        // The window for which 64 columns at FPR 0.001 take this many bytes.
        let window = mib * 312_500;
        let ours = created(&directory, "filter", AgePartitioned::last(window).fpr(0.001));
        let parameters = ours.parameters();
        assert_eq!(parameters.get("k"), Some("12"), "the number of hashes of the other filter");
        let words: usize =
            parameters.get("words").and_then(|words| words.parse().ok()).expect("words");
        let theirs = || AtomicBloomFilter::with_num_bits(words * 64).hashes(HASHES);
        Self::filled(directory, window, ours, None, theirs)
    }

    /// Creates filters of `fingerprint`, of this size, theirs and `age-partitioned`.
    fn of_fingerprints(mib: u64) -> (Self, u64) {
        let directory = directory();
        // The window for which fingerprints at FPR 0.001 take this many bytes.
        let window = mib * 444_000;
        let mut spec = Fingerprint::last(window).fpr(0.001);
        if let Ok(load) = std::env::var("EBBTIDE_MAX_LOAD") {
            spec = spec.max_load(load.parse().expect("a share of slots"));
        }
        let ours = created(&directory, "filter", spec);
        let other = created(&directory, "other", AgePartitioned::last(window).fpr(0.001));
        let items = window as usize;
        let theirs = || AtomicBloomFilter::with_false_pos(0.001).expected_items(items);
        Self::filled(directory, window, ours, Some(other), theirs)
    }

    /// Fills the filters, so that every page is written and blocks of ours have to catch up.
    fn filled(
        directory: tempfile::TempDir,
        window: u64,
        ours: Filter,
        other: Option<Filter>,
        theirs: impl Fn() -> AtomicBloomFilter,
    ) -> (Self, u64) {
        let (batch, filled) = ((window / 8).min(BATCH), Cell::new(0));
        let (theirs, filling) = (theirs(), theirs());
        let pair =
            Self { ours, theirs, filling, filled, window, batch, other, _directory: directory };
        let mut next = 0;
        while next < window {
            let keys = keys(next, batch.min(window - next));
            for filter in [Some(&pair.ours), pair.other.as_ref()].into_iter().flatten() {
                filter.insert_all(&keys).expect("inserts");
            }
            for key in &keys {
                pair.theirs.insert(key);
            }
            next += keys.len() as u64;
        }
        (pair, next)
    }

    fn insert_ours(&self, keys: &[[u8; 16]]) {
        for key in keys {
            self.ours.insert(key).expect("an insert");
        }
    }

    fn insert_theirs(&self, keys: &[[u8; 16]]) {
        for key in keys {
            black_box(self.filling.insert(key));
        }
    }

    /// Makes room for the keys of a turn.
    fn make_room(&self) {
        if self.filled.get() + self.batch > self.window {
            self.filling.clear();
            self.filled.set(0);
        }
        self.filled.set(self.filled.get() + self.batch);
    }

    fn count_ours(&self, keys: &[[u8; 16]]) -> usize {
        keys.iter().filter(|key| self.ours.contains(key).expect("an answer")).count()
    }

    fn count_ours_in_bulk(&self, keys: &[[u8; 16]]) -> usize {
        let count = |keys: &[[u8; 16]]| {
            let answers = self.ours.contains_all(keys).expect("answers");
            answers.into_iter().filter(|&is_present| is_present).count()
        };
        keys.chunks(BULK).map(count).sum()
    }

    fn count_theirs(&self, keys: &[[u8; 16]]) -> usize {
        keys.iter().filter(|key| self.theirs.contains(*key)).count()
    }

    fn check_and_insert_all(&self, keys: &[[u8; 16]]) -> usize {
        let mut answers = Vec::with_capacity(BULK);
        let mut new = 0;
        for keys in keys.chunks(BULK) {
            answers.clear();
            self.ours.check_and_insert_all(keys, &mut answers).expect("answers");
            new += answers.iter().filter(|&&answer| answer == Checked::New).count();
        }
        new
    }
}

fn check_and_insert(filter: &Filter, keys: &[[u8; 16]]) -> usize {
    let new = |key: &&[u8; 16]| filter.check_and_insert(key).expect("an answer") == Checked::New;
    keys.iter().filter(new).count()
}

fn nanoseconds<T>(count: u64, work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_nanos() as f64 / count as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The two times of each turn, in nanoseconds per operation.
#[derive(Default)]
struct Times(Vec<(f64, f64)>);

impl Times {
    fn report(&self, mib: u64, what: &str) {
        let one = median(self.0.iter().map(|pair| pair.0));
        let other = median(self.0.iter().map(|pair| pair.1));
        let ratio = median(self.0.iter().map(|pair| pair.0 / pair.1));
        println!("| {mib} | {what} | {one:.0} | {other:.0} | {ratio:.2} |");
    }
}

fn beside(mib: u64, (pair, mut next): (Pair, u64)) {
    let [mut inserts, mut present, mut absent, mut presents, mut absents, mut bulk, mut checks] =
        [(); 7].map(|()| Times::default());
    let batch = pair.batch;
    let time = |work: &dyn Fn() -> usize| nanoseconds(batch, work);
    // Keys of theirs that are present, none asked twice within half of the window.
    let mut old = 0;
    for round in 0..PAIRS {
        let fresh = keys(next, batch);
        let held = keys(old, batch);
        old = if old + 2 * batch > pair.window { 0 } else { old + batch };
        let unseen = keys((1 << 60) + round * batch, batch);
        let (all, few) = (fresh.len(), unseen.len() / 100);
        pair.make_room();
        inserts.0.push((
            nanoseconds(batch, || pair.insert_ours(&fresh)),
            nanoseconds(batch, || pair.insert_theirs(&fresh)),
        ));
        let exact = |work: &dyn Fn() -> usize| nanoseconds(batch, || assert_eq!(work(), all));
        let ours = exact(&|| pair.count_ours(&fresh));
        let theirs = exact(&|| pair.count_theirs(&held));
        present.0.push((ours, theirs));
        presents.0.push((exact(&|| pair.count_ours_in_bulk(&fresh)), theirs));
        let rare = |work: &dyn Fn() -> usize| nanoseconds(batch, || assert!(work() < few));
        let ours = rare(&|| pair.count_ours(&unseen));
        let theirs = rare(&|| pair.count_theirs(&unseen));
        absent.0.push((ours, theirs));
        absents.0.push((rare(&|| pair.count_ours_in_bulk(&unseen)), theirs));
        let (one, other) = (keys(next + batch, batch), keys(next + 2 * batch, batch));
        let one_by_one = time(&|| check_and_insert(&pair.ours, &one));
        bulk.0.push((one_by_one, time(&|| pair.check_and_insert_all(&other))));
        if let Some(filter) = &pair.other {
            checks.0.push((one_by_one, time(&|| check_and_insert(filter, &one))));
            check_and_insert(filter, &other);
        }
        next += 3 * batch;
    }
    inserts.report(mib, "insert, fastbloom's");
    present.report(mib, "contains present keys, fastbloom's");
    absent.report(mib, "contains absent keys, fastbloom's");
    presents.report(mib, "contains 1,000 present keys at once, fastbloom's one by one");
    absents.report(mib, "contains 1,000 absent keys at once, fastbloom's one by one");
    bulk.report(mib, "check-and-insert one by one, 1,000 at once");
    if pair.other.is_some() {
        checks.report(mib, "check-and-insert, age-partitioned's");
    }
}

fn main() {
    let sizes = std::env::var("EBBTIDE_MIB").unwrap_or_else(|_| "1,16".to_owned());
    println!("| MiB | what, against what | ns | ns | ratio |\n|---|---|---|---|---|");
    for mib in sizes.split(',') {
        let mib = mib.trim().parse().expect("sizes in MiB, with commas between");
        beside(mib, Pair::of_columns(mib));
        println!("| {mib} | *fingerprint* | | | |");
        beside(mib, Pair::of_fingerprints(mib));
    }
}
