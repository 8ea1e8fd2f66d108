//! Every operation by one thread: of two kinds at all sizes, and of all kinds at one.

use crate::subject::{Key, Kind, Lazy, Mebibytes, Subject, lazily};
use criterion::{Criterion, Throughput};
use ebbtide::Durability;
use ebbtide::kinds::registry::REGISTRY;
use std::hint::black_box;

/// Kinds that are measured at all sizes, with all their operations.
const CLOSELY: [&str; 2] = ["age-partitioned", "bloom"];
const SIZES: [Mebibytes; 4] = [Mebibytes(1), Mebibytes(16), Mebibytes(256), Mebibytes(1024)];
/// The size of the other kinds.
const SIZE: Mebibytes = Mebibytes(16);
/// The number of keys in a bulk operation.
const BATCH: usize = 1000;

pub fn all(criterion: &mut Criterion) {
    for kind in CLOSELY.map(Kind::named) {
        for size in SIZES {
            let mut bench = Bench::new(criterion, kind, size);
            bench.one_by_one();
            bench.check_and_insert();
            bench.in_bulk();
        }
    }
    for entry in REGISTRY.iter().filter(|entry| !CLOSELY.contains(&entry.name)) {
        Bench::new(criterion, Kind::named(entry.name), SIZE).one_by_one();
    }
}

/// The measurements of one filter, which is created at the first of them.
struct Bench<'a> {
    criterion: &'a mut Criterion,
    kind: Kind,
    size: Mebibytes,
    subject: Lazy,
}

impl<'a> Bench<'a> {
    fn new(criterion: &'a mut Criterion, kind: Kind, size: Mebibytes) -> Self {
        Self { criterion, kind, size, subject: lazily(kind, size, Durability::Never) }
    }

    /// Times a call of this many operations.
    fn measure(&mut self, name: &str, operations: usize, mut call: impl FnMut(&Subject)) {
        let mut group = self.criterion.benchmark_group(format!("{name}/{}", self.kind.name));
        group.throughput(Throughput::Elements(operations as u64));
        group.bench_function(self.size.to_string(), |bencher| {
            let subject = &*self.subject;
            bencher.iter(|| call(subject));
        });
        group.finish();
    }

    /// Lookups come first: they find the filter as it was filled.
    fn one_by_one(&mut self) {
        self.measure("contains-present", 1, |subject| {
            black_box(subject.filter.contains(subject.present()).expect("an answer"));
        });
        self.measure("contains-absent", 1, |subject| {
            black_box(subject.filter.contains(subject.absent()).expect("an answer"));
        });
        if self.kind.ages {
            self.measure("age", 1, |subject| {
                black_box(subject.filter.age(subject.present()).expect("an answer"));
            });
        }
        self.measure("insert", 1, |subject| {
            black_box(subject.call().insert(subject.fresh()).expect("an insert"));
        });
    }

    fn check_and_insert(&mut self) {
        self.measure("check-and-insert", 1, |subject| {
            black_box(subject.call().check_and_insert(subject.fresh()).expect("an insert"));
        });
    }

    fn in_bulk(&mut self) {
        let mut keys = [Key::default(); BATCH];
        self.measure("contains-all-present", BATCH, |subject| {
            keys.fill_with(|| subject.present());
            black_box(subject.filter.contains_all(&keys).expect("answers"));
        });
        self.measure("contains-all-absent", BATCH, |subject| {
            keys.fill_with(|| subject.absent());
            black_box(subject.filter.contains_all(&keys).expect("answers"));
        });
        self.measure("insert-all", BATCH, |subject| {
            keys.fill_with(|| subject.fresh());
            black_box(subject.filter.insert_all(&keys).expect("inserts"));
        });
        let mut answers = Vec::new();
        self.measure("check-and-insert-all", BATCH, |subject| {
            keys.fill_with(|| subject.fresh());
            answers.clear();
            subject.filter.check_and_insert_all(&keys, &mut answers).expect("inserts");
            black_box(&answers);
        });
        self.measure("batch", BATCH, |subject| {
            keys.fill_with(|| subject.fresh());
            answers.clear();
            let mut batch = subject.filter.batch();
            batch.check_and_insert_all(&keys, &mut answers).expect("answers");
            batch.commit().expect("a commit");
            black_box(&answers);
        });
    }
}
