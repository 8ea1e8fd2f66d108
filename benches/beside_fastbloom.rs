//! One thread, 16 MiB, 64 columns: insert and contains beside `fastbloom::AtomicBloomFilter` with the same number of
//! bits and hashes.
//!
//! `cargo bench --bench beside_fastbloom` first prints ratios measured in pairs, which hold on a noisy machine, then
//! criterion's figures for each side.

use criterion::{Criterion, criterion_group, criterion_main};
use ebbtide::{AgePartitioned, Durability, Filter, Options};
use fastbloom::AtomicBloomFilter;
use std::hint::black_box;
use std::time::Instant;

/// A window for which 64 columns at FPR 0.001 take 16 MiB.
const WINDOW: u64 = 5_000_000;
/// Hash functions of both filters.
const HASHES: u32 = 12;
const BATCH: u64 = 250_000;
const PAIRS: usize = 41;

struct Pair {
    ours: Filter<AgePartitioned>,
    theirs: AtomicBloomFilter,
    _directory: tempfile::TempDir,
}

/// A 16-byte key; the same number gives the same key.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

impl Pair {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = Options::new().durability(Durability::Never);
        let spec = AgePartitioned::last(WINDOW).fpr(0.001);
        let ours =
            Filter::create(directory.path().join("filter"), spec, options).expect("a filter");
        let parameters = ours.parameters();
        assert_eq!(parameters.get("k"), Some("12"), "as many hashes as the other side");
        let words: usize =
            parameters.get("words").and_then(|words| words.parse().ok()).expect("words");
        let theirs = AtomicBloomFilter::with_num_bits(words * 64).hashes(HASHES);
        Self { ours, theirs, _directory: directory }
    }

    fn insert_ours(&self, from: u64) {
        for number in from..from + BATCH {
            self.ours.insert(key(number)).expect("an insert");
        }
    }

    fn insert_theirs(&self, from: u64) {
        for number in from..from + BATCH {
            self.theirs.insert(&key(number));
        }
    }

    fn contains_ours(&self, from: u64) -> u64 {
        let found = |number: &u64| self.ours.contains(key(*number)).expect("an answer");
        (from..from + BATCH).filter(found).count() as u64
    }

    fn contains_theirs(&self, from: u64) -> u64 {
        (from..from + BATCH).filter(|number| self.theirs.contains(&key(*number))).count() as u64
    }
}

fn nanoseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(name: &str, pairs: &[(f64, f64)]) {
    let mut ours: Vec<_> = pairs.iter().map(|pair| pair.0).collect();
    let mut theirs: Vec<_> = pairs.iter().map(|pair| pair.1).collect();
    let mut ratios: Vec<_> = pairs.iter().map(|pair| pair.0 / pair.1).collect();
    println!(
        "{name}: ebbtide {:.1} ns, fastbloom {:.1} ns, ratio {:.2} (medians of {} pairs)",
        median(&mut ours),
        median(&mut theirs),
        median(&mut ratios),
        pairs.len()
    );
}

fn in_pairs(_: &mut Criterion) {
    let pair = Pair::new();
    let (mut inserts, mut present, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = 0;
    // Until both have been written all over, and the older side has shifts to catch up with.
    for _ in 0..WINDOW / BATCH {
        pair.insert_ours(next);
        pair.insert_theirs(next);
        next += BATCH;
    }
    for round in 0..PAIRS as u64 {
        inserts.push((
            nanoseconds(|| pair.insert_ours(next)),
            nanoseconds(|| pair.insert_theirs(next)),
        ));
        present.push((
            nanoseconds(|| assert_eq!(pair.contains_ours(next), BATCH)),
            nanoseconds(|| assert_eq!(pair.contains_theirs(next), BATCH)),
        ));
        let unseen = (1 << 60) + round * BATCH;
        absent.push((
            nanoseconds(|| assert!(pair.contains_ours(unseen) < BATCH / 100)),
            nanoseconds(|| assert_eq!(pair.contains_theirs(next), BATCH)),
        ));
        next += BATCH;
    }
    report("insert", &inserts);
    report("contains, present keys", &present);
    report("contains, absent keys (fastbloom: present)", &absent);
}

fn each_side(criterion: &mut Criterion) {
    let pair = Pair::new();
    for start in 0..WINDOW / BATCH {
        pair.insert_ours(start * BATCH);
        pair.insert_theirs(start * BATCH);
    }
    let mut group = criterion.benchmark_group("16 MiB");
    let fresh = |next: &mut u64| {
        *next += 1;
        key(*next)
    };
    let mut next = WINDOW;
    group.bench_function("insert/ebbtide", |bencher| {
        bencher.iter(|| pair.ours.insert(fresh(&mut next)).is_ok());
    });
    let mut next = WINDOW;
    group.bench_function("insert/fastbloom", |bencher| {
        bencher.iter(|| pair.theirs.insert(&fresh(&mut next)));
    });
    let mut number = 0_u64;
    let mut recent = || {
        number = (number + 7919) % BATCH;
        key(WINDOW - BATCH + number)
    };
    group.bench_function("contains/ebbtide", |bencher| {
        bencher.iter(|| black_box(pair.ours.contains(recent())));
    });
    group.bench_function("contains/fastbloom", |bencher| {
        bencher.iter(|| black_box(pair.theirs.contains(&recent())));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50);
    targets = in_pairs, each_side
}
criterion_main!(benches);
