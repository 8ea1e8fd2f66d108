//! Compares windows with `fastbloom::AtomicBloomFilter` for insert and contains, and bulk calls
//! with single ones: `age-partitioned` with the same number of bits and hashes, `fingerprint` with
//! the same keys and rate, and its check-and-insert with that of `age-partitioned` for the same
//! window.
//!
//! `cargo bench --bench beside_fastbloom` uses 1 and 16 MiB; `EBBTIDE_MIB=1,16,256,1024` sets other
//! sizes. Each result is a ratio of two times measured in turns, and the median of the turns, which
//! is stable on a noisy machine. Nothing is synced (`Durability::Never`); the log and checkpoints
//! are written, beside the program or in `EBBTIDE_BENCH_DIR`.

mod common;

use common::{directory, key};
use ebbtide::{AgePartitioned, Any, Checked, Durability, Filter, Fingerprint, Options, Spec};
use fastbloom::AtomicBloomFilter;
use std::hint::black_box;
use std::time::Instant;

/// The number of hash functions of both filters.
const HASHES: u32 = 12;
const BATCH: u64 = 250_000;
const PAIRS: u64 = 21;
/// The number of keys of a bulk call.
const BULK: usize = 1_000;

fn keys(from: u64) -> Vec<[u8; 16]> {
    (from..from + BATCH).map(key).collect()
}

struct Pair {
    ours: Filter,
    theirs: AtomicBloomFilter,
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
        let theirs = AtomicBloomFilter::with_num_bits(words * 64).hashes(HASHES);
        Self { ours, theirs, other: None, _directory: directory }.filled(window)
    }

    /// Creates filters of `fingerprint`, of this size, theirs and `age-partitioned`.
    fn of_fingerprints(mib: u64) -> (Self, u64) {
        let directory = directory();
        // The window for which fingerprints at FPR 0.001 take this many bytes.
        let window = mib * 444_000;
        let ours = created(&directory, "filter", Fingerprint::last(window).fpr(0.001));
        let other = created(&directory, "other", AgePartitioned::last(window).fpr(0.001));
        let theirs = AtomicBloomFilter::with_false_pos(0.001).expected_items(window as usize);
        Self { ours, theirs, other: Some(other), _directory: directory }.filled(window)
    }

    /// Fills the filters, so that every page is written and blocks of ours have to catch up.
    fn filled(self, window: u64) -> (Self, u64) {
        let mut next = 0;
        while next < window {
            let keys = keys(next);
            for filter in [Some(&self.ours), self.other.as_ref()].into_iter().flatten() {
                filter.insert_all(&keys).expect("inserts");
            }
            for key in &keys {
                self.theirs.insert(key);
            }
            next += BATCH;
        }
        (self, next)
    }

    fn insert_ours(&self, keys: &[[u8; 16]]) {
        for key in keys {
            self.ours.insert(key).expect("an insert");
        }
    }

    fn insert_theirs(&self, keys: &[[u8; 16]]) {
        for key in keys {
            black_box(self.theirs.insert(key));
        }
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

fn nanoseconds<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_nanos() as f64 / BATCH as f64
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
    for round in 0..PAIRS {
        let fresh = keys(next);
        inserts.0.push((
            nanoseconds(|| pair.insert_ours(&fresh)),
            nanoseconds(|| pair.insert_theirs(&fresh)),
        ));
        let ours = nanoseconds(|| assert_eq!(pair.count_ours(&fresh), fresh.len()));
        let theirs = nanoseconds(|| assert_eq!(pair.count_theirs(&fresh), fresh.len()));
        present.0.push((ours, theirs));
        let ours = nanoseconds(|| assert_eq!(pair.count_ours_in_bulk(&fresh), fresh.len()));
        presents.0.push((ours, theirs));
        let unseen = keys((1 << 60) + round * BATCH);
        let few = unseen.len() / 100;
        let theirs = nanoseconds(|| assert!(pair.count_theirs(&unseen) < few));
        absent.0.push((nanoseconds(|| assert!(pair.count_ours(&unseen) < few)), theirs));
        absents.0.push((nanoseconds(|| assert!(pair.count_ours_in_bulk(&unseen) < few)), theirs));
        let (one, other) = (keys(next + BATCH), keys(next + 2 * BATCH));
        let one_by_one = nanoseconds(|| check_and_insert(&pair.ours, &one));
        bulk.0.push((one_by_one, nanoseconds(|| pair.check_and_insert_all(&other))));
        if let Some(filter) = &pair.other {
            checks.0.push((one_by_one, nanoseconds(|| check_and_insert(filter, &one))));
            check_and_insert(filter, &other);
        }
        next += 3 * BATCH;
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
