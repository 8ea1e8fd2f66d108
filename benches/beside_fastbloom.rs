//! Compares 64 columns with `fastbloom::AtomicBloomFilter` for insert and contains, with the same
//! number of bits and hashes, and bulk calls with single ones.
//!
//! `cargo bench --bench beside_fastbloom` uses 1 and 16 MiB; `EBBTIDE_MIB=1,16,256,1024` sets other
//! sizes. Each result is a ratio of two times measured in turns, and the median of the turns, which
//! is stable on a noisy machine. Nothing is synced (`Durability::Never`); the log and checkpoints
//! are written, beside the program or in `EBBTIDE_BENCH_DIR`.

mod common;

use common::{directory, key};
use ebbtide::{AgePartitioned, Checked, Durability, Filter, Options};
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
    ours: Filter<AgePartitioned>,
    theirs: AtomicBloomFilter,
    _directory: tempfile::TempDir,
}

impl Pair {
    /// Creates both filters with this size, with every page written, and shifts pending in the
    /// blocks of ours.
    fn new(mib: u64) -> (Self, u64) {
        let directory = directory();
        // The window for which 64 columns at FPR 0.001 take this many bytes.
        let window = mib * 312_500;
        let options = Options::new().durability(Durability::Never);
        let spec = AgePartitioned::last(window).fpr(0.001);
        let ours =
            Filter::create(directory.path().join("filter"), spec, options).expect("a filter");
        let parameters = ours.parameters();
        assert_eq!(parameters.get("k"), Some("12"), "the number of hashes of the other filter");
        let words: usize =
            parameters.get("words").and_then(|words| words.parse().ok()).expect("words");
        let theirs = AtomicBloomFilter::with_num_bits(words * 64).hashes(HASHES);
        let pair = Self { ours, theirs, _directory: directory };
        let mut next = 0;
        while next < window {
            let keys = keys(next);
            pair.ours.insert_all(&keys).expect("inserts");
            for key in &keys {
                pair.theirs.insert(key);
            }
            next += BATCH;
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
            black_box(self.theirs.insert(key));
        }
    }

    fn count_ours(&self, keys: &[[u8; 16]]) -> usize {
        keys.iter().filter(|key| self.ours.contains(key).expect("an answer")).count()
    }

    fn count_theirs(&self, keys: &[[u8; 16]]) -> usize {
        keys.iter().filter(|key| self.theirs.contains(*key)).count()
    }

    fn check_and_insert(&self, keys: &[[u8; 16]]) -> usize {
        let new =
            |key: &&[u8; 16]| self.ours.check_and_insert(key).expect("an answer") == Checked::New;
        keys.iter().filter(new).count()
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

fn beside(mib: u64) {
    let (pair, mut next) = Pair::new(mib);
    let [mut inserts, mut present, mut absent, mut bulk] = [(); 4].map(|()| Times::default());
    for round in 0..PAIRS {
        let fresh = keys(next);
        inserts.0.push((
            nanoseconds(|| pair.insert_ours(&fresh)),
            nanoseconds(|| pair.insert_theirs(&fresh)),
        ));
        let ours = nanoseconds(|| assert_eq!(pair.count_ours(&fresh), fresh.len()));
        let theirs = nanoseconds(|| assert_eq!(pair.count_theirs(&fresh), fresh.len()));
        present.0.push((ours, theirs));
        let unseen = keys((1 << 60) + round * BATCH);
        let missing = nanoseconds(|| assert!(pair.count_ours(&unseen) < unseen.len() / 100));
        absent.0.push((missing, theirs));
        let (one, other) = (keys(next + BATCH), keys(next + 2 * BATCH));
        bulk.0.push((
            nanoseconds(|| pair.check_and_insert(&one)),
            nanoseconds(|| pair.check_and_insert_all(&other)),
        ));
        next += 3 * BATCH;
    }
    inserts.report(mib, "insert, fastbloom's");
    present.report(mib, "contains present keys, fastbloom's");
    absent.report(mib, "contains absent keys, fastbloom's of present ones");
    bulk.report(mib, "check-and-insert one by one, 1,000 at once");
}

fn main() {
    let sizes = std::env::var("EBBTIDE_MIB").unwrap_or_else(|_| "1,16".to_owned());
    println!("| MiB | what, against what | ns | ns | ratio |\n|---|---|---|---|---|");
    for mib in sizes.split(',') {
        beside(mib.trim().parse().expect("sizes in MiB, with commas between"));
    }
}
