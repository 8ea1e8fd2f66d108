//! An inherited handle of every kind: some read words to find what they prefetch, and a child has
//! no mapping.

use super::{assert_forked, fork, options};
use ebbtide::{Any, Error, Filter, Parameters};
use ebbtide_testkit::samples::SAMPLES;
use std::path::Path;

pub fn reads_nothing(home: &Path) {
    let small = SAMPLES.iter().map(|sample| sample.spec());
    // Only memory that no cache holds is prefetched for single inserts.
    let large = ["spectral", "dynamic-count", "counting"]
        .map(|kind| Any::new(kind, Parameters::new().with("capacity", 300_000)));
    for (number, spec) in small.chain(large).enumerate() {
        let dir = home.join(number.to_string());
        let filter = Filter::create(&dir, spec, options()).expect("a filter");
        filter.insert_all(&["a", "b"]).expect("inserts");
        let keys: Vec<_> = (0..100_u64).map(u64::to_le_bytes).collect();
        fork(|| {
            assert_forked(filter.insert("a"), "insert");
            assert_forked(filter.insert_all(&keys), "insert_all");
            assert_forked(filter.check_and_insert("a"), "check_and_insert");
            assert_forked(filter.check_and_insert_all(&keys, &mut Vec::new()), "checks");
            assert_forked(filter.contains("a"), "contains");
            assert_forked(filter.contains_all(&keys), "contains_all");
            // Of a kind that does not count, or forgets otherwise.
            let is_refused =
                |result| matches!(result, Err(Error::Forked { .. } | Error::Unsupported { .. }));
            assert!(is_refused(filter.estimate_all(&keys).map(|_| ())), "estimate_all");
            assert!(is_refused(filter.remove("a").map(|_| ())), "remove");
        })
        .ends();
        filter.close().expect("a clean end");
    }
}
