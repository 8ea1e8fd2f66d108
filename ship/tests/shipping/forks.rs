//! A worker in a child of its process, which does not have its thread.

use ebbtide::{AgePartitioned, Durability, Filter, Options};
use ebbtide_ship::{ShipOptions, Store, Worker};
use ebbtide_testkit::child::{HANG, forked};
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn store() -> Store {
    Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7")
}

#[test]
fn a_worker_ends_at_once_in_a_forked_child_and_goes_on_in_its_own_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, options) = (dir.path().join("seen"), Options::new().durability(Durability::Always));
    let filter = Filter::create(&path, AgePartitioned::last(1000), options).expect("a filter");
    filter.insert("first").expect("an insert");
    let start = || Worker::start(&path, store(), ShipOptions::default(), HOUR).expect("a worker");
    type Use = fn(Worker);
    let uses: [(&str, Use); 6] = [
        ("drop", drop),
        ("stop", |worker| drop(worker.stop().expect_err("no thread"))),
        ("finish", |worker| drop(worker.finish().expect_err("no thread"))),
        ("flush", |worker| worker.flush(HOUR).expect_err("no thread").to_string().truncate(0)),
        ("wait", |worker| drop(worker.wait(u64::MAX, HOUR).expect_err("no thread"))),
        ("status", |worker| {
            let statuses = worker.statuses();
            assert!(worker.status().is_stopped && statuses().is_stopped);
            assert!(worker.status().failure.is_some_and(|failure| failure.contains("fork")));
        }),
    ];
    for (name, used) in uses {
        let mut own = Some(start());
        let ended = forked(|| used(own.take().expect("a worker")), HANG);
        assert_eq!(ended, Some(0), "{name}");
        let worker = own.expect("a worker");
        worker.flush(HANG).expect("shipped");
        assert!(!worker.stop().expect("a status").is_fenced);
    }
}
