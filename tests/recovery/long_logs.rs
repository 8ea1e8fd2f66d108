//! Logs that several threads replay.

use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Timestamp, inspect};
use ebbtide_testkit::copies::copy_files;
use ebbtide_testkit::samples::SAMPLES;

/// More operations than several threads gather at once, and a part.
const OPERATIONS: u64 = 70_000;

fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::stream())
}

/// Makes a filter, operates on it, and compares it with one that is recovered from its files.
fn replays(name: &str, (spec, stripes): (Any, u32), operate: impl Fn(&Filter, u64)) {
    let home = tempfile::tempdir().expect("a directory");
    let (dir, copy) = (home.path().join("filter"), home.path().join("copy"));
    let filter = Filter::create(&dir, spec, options().stripes(stripes)).expect("a filter");
    (0..OPERATIONS).for_each(|number| operate(&filter, number));
    filter.sync().expect("a sync");
    let (digest, stat) = (filter.digest().expect("a digest"), filter.stat().expect("figures"));
    copy_files(&dir, &copy).expect("space");
    let recovered: Filter = Filter::open(&copy, options()).expect("it is whole");
    assert_eq!(recovered.digest().expect("a digest"), digest, "{name}");
    let replayed = recovered.stat().expect("figures");
    assert_eq!(replayed.operations, stat.operations, "{name}");
    assert_eq!(replayed.operations, OPERATIONS, "{name}: each operation once");
    drop(recovered);
    assert!(inspect::verify(&copy).expect("a report").is_sound(), "{name}");
}

#[test]
fn a_long_log_of_any_kind_is_replayed_to_the_state_that_wrote_it() {
    for sample in &SAMPLES {
        replays(sample.name, (sample.spec(), 16), |filter, number| {
            let time = Timestamp::from_unix_millis(1_700_000_000_000 + number);
            let call = filter.call().time(time);
            sample.operate(call, number, |number| format!("key {number}")).expect("an operation");
        });
    }
}

#[test]
fn a_long_log_of_a_filter_larger_than_the_caches_is_replayed_block_by_block_to_its_state() {
    let parameters = Parameters::new().with("window-items", 2_000_000);
    for kind in ["fingerprint", "age-partitioned"] {
        // Of stripes with many blocks, which several ranges share.
        replays(kind, (Any::new(kind, parameters.clone()), 3), |filter, number| {
            filter.insert(number.to_le_bytes()).expect("an insert");
        });
    }
}

/// Each bank divides the keys among blocks of its own, so that no order of the log by block is one
/// in all banks.
#[test]
fn a_long_log_of_several_banks_larger_than_the_caches_is_replayed_to_its_state() {
    let home = tempfile::tempdir().expect("a directory");
    let (dir, copy) = (home.path().join("filter"), home.path().join("copy"));
    let spec = Any::new("fingerprint", Parameters::new().with("window", 600_000_000));
    let filter = Filter::create(&dir, spec, options().stripes(3)).expect("a filter");
    let time = |key: u64| Timestamp::from_unix_millis(1_700_000_000_000 + key / 100);
    // The first half of the keys of each piece were inserted before: they are renewed.
    for piece in 0..1600_u64 {
        let keys: Vec<_> = (piece * 512..(piece + 2) * 512).map(u64::to_le_bytes).collect();
        let call = filter.call().time(time(piece * 1024));
        call.insert_all(&keys).expect("space");
    }
    filter.sync().expect("a sync");
    let stat = filter.stat().expect("figures");
    assert!(stat.memory_bytes > 2 << 20 && stat.banks > 2, "{stat:?}");
    copy_files(&dir, &copy).expect("space");
    let recovered: Filter = Filter::open(&copy, options()).expect("it is whole");
    assert_eq!(recovered.digest().expect("a digest"), filter.digest().expect("a digest"));
}
