//! A filter takes the space that was planned.

use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Timestamp, inspect};
use ebbtide_testkit::samples::SAMPLES;

fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .clock(Clock::stream())
        .durability(Durability::Never)
        .background(false)
}

#[test]
fn a_filter_takes_the_planned_space_from_the_start_unless_it_grows() {
    let place = tempfile::tempdir().expect("a directory");
    for sample in &SAMPLES {
        let pairs = sample.parameters.iter();
        let parameters = pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
        let plan = inspect::plan(sample.kind, &parameters, &options()).expect("a plan");
        let home = place.path().join(sample.name);
        let filter = Filter::create(&home, sample.spec(), options()).expect("a filter");
        let stat = filter.stat().expect("figures");
        assert_eq!(plan.parameters, stat.parameters, "{}", sample.name);
        assert_eq!((plan.blocks, plan.stripes), (stat.blocks, stat.stripes), "{}", sample.name);
        for number in 0..200 {
            let call = filter.call().time(Timestamp::from_unix_millis(1_700_000_000_000 + number));
            sample.operate(call, number, |number| format!("key {number}")).expect("an operation");
        }
        let later = filter.stat().expect("figures").memory_bytes;
        if ["spectral", "dynamic-count"].contains(&sample.kind) {
            assert!(stat.memory_bytes < plan.memory_bytes, "{}", sample.name);
            assert!(stat.memory_bytes < later, "{}", sample.name);
        } else {
            assert_eq!(stat.memory_bytes, plan.memory_bytes, "{}", sample.name);
            // A time-limited filter grows by banks of another size.
            assert!(stat.memory_bytes == later || sample.kind == "time-limited", "{}", sample.name);
        }
        filter.close().expect("a clean end");
    }
}

#[test]
fn kinds_that_grow_take_the_planned_space_at_capacity() {
    const KEYS: u32 = 60_000;
    let base = || Parameters::new().with("capacity", KEYS).with("fpr", 0.001);
    let rows = [
        ("dynamic-count", base(), 2),
        ("dynamic-count", base().with("mean-count", 20), 20),
        ("spectral", base(), 2),
        ("spectral", base().with("policy", "rm"), 2),
    ];
    let place = tempfile::tempdir().expect("a directory");
    for (at, (kind, parameters, times)) in rows.into_iter().enumerate() {
        let plan = inspect::plan(kind, &parameters, &options()).expect("a plan");
        let home = place.path().join(at.to_string());
        let spec = Any::new(kind, parameters.clone());
        let filter = Filter::create(&home, spec, options()).expect("a filter");
        let keys: Vec<_> = (0..KEYS).map(u32::to_le_bytes).collect();
        filter.call().weight(f64::from(times)).insert_all(&keys).expect("inserts");
        let taken = filter.stat().expect("figures").memory_bytes;
        // Space is allocated in pages, 4 KiB of about 30 KiB per block, and a block's largest
        // counter varies by one bit of 5 or 8.
        let share = taken as f64 / plan.memory_bytes as f64;
        assert!((0.8..1.25).contains(&share), "{kind} {parameters:?}: {share}");
        // The limit of its growth is far larger.
        assert!(plan.memory_bytes < u64::from(KEYS) * 14 * 8, "{kind}: {}", plan.memory_bytes);
        filter.close().expect("a clean end");
    }
}
