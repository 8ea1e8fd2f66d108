//! A machine whose disk, with the file `ship`, was set back to a moment before.

use crate::machine::Machine;
use crate::sentences::assert_says;
use ebbtide::history::{At, Unlogged};
use ebbtide::inspect::restore_at_on;
use ebbtide::{AgePartitioned, Durability, Filter, Keep, Options};
use ebbtide_ship::{Error, ShipOptions, Shipper, Store};
use ebbtide_testkit::crash::disk::CrashDisk;
use object_store::memory::InMemory;
use std::sync::Arc;

fn store() -> Store {
    Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7")
}

fn options(keep: Keep) -> Options {
    // Small segments, so that checkpoints remove log.
    Options::new().durability(Durability::Always).keep_log(keep).segment_bytes(4096)
}

async fn begin(store: &Store, disk: &CrashDisk) -> ebbtide_ship::Result<Shipper> {
    let options = ShipOptions { snapshot_log_bytes: 1000, ..ShipOptions::default() };
    Shipper::begin(store.clone(), Arc::new(disk.clone()), options).await
}

fn insert(filter: &Filter<AgePartitioned>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
}

/// Ships a filter; returns it, its shipper, and its disk as it was meanwhile.
async fn shipped(store: &Store, keep: Keep) -> (Filter<AgePartitioned>, Shipper, CrashDisk) {
    let disk = CrashDisk::new();
    let filter =
        Filter::create_on(Arc::new(disk.clone()), AgePartitioned::last(1000), options(keep));
    let filter = filter.expect("a filter");
    insert(&filter, 0..100);
    let mut shipper = begin(store, &disk).await.expect("a shipper");
    filter.checkpoint().expect("a snapshot to begin with");
    shipper.round().await.expect("a round");
    let restored = disk.without_process();
    insert(&filter, 100..200);
    (filter, shipper, restored)
}

/// Begins to ship a disk that was set back, at once or after its writer has gone on.
async fn assert_refused(store: &Store, restored: &CrashDisk, keep: Keep, has_written: bool) {
    if has_written {
        let opened = Filter::<AgePartitioned>::open_on(Arc::new(restored.clone()), options(keep));
        let filter = opened.expect("the filter of then");
        for round in 0..8 {
            insert(&filter, round * 200..(round + 1) * 200);
            filter.checkpoint().expect("a checkpoint");
        }
    }
    let error = begin(store, restored).await.expect_err("refused");
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    if !has_written {
        let text = error.to_string();
        assert!(text.contains("another machine has shipped more"), "{text}");
    }
}

#[tokio::test]
async fn a_machine_that_was_set_back_to_before_an_alteration_is_refused() {
    for keep in [Keep::Nothing, Keep::Bytes(1 << 30)] {
        for has_written in [false, true] {
            let store = store();
            let (filter, mut shipper, restored) = shipped(&store, keep).await;
            let altered = filter.alter(AgePartitioned::last(2000), Unlogged::Forget);
            altered.expect("an alteration");
            shipper.round().await.expect("a round");
            assert!(!shipper.is_pending());
            assert_refused(&store, &restored, keep, has_written).await;
        }
    }
}

#[tokio::test]
async fn a_machine_that_was_set_back_to_before_its_filter_was_closed_is_refused() {
    for keep in [Keep::Nothing, Keep::Bytes(1 << 30)] {
        let store = store();
        let (filter, mut shipper, restored) = shipped(&store, keep).await;
        insert(&filter, 200..900);
        // Its last snapshot lies behind its last record.
        drop(filter);
        shipper.round().await.expect("a round");
        assert_refused(&store, &restored, keep, false).await;
    }
}

#[tokio::test]
async fn a_machine_that_was_set_back_within_one_beginning_is_refused() {
    for has_written in [false, true] {
        let store = store();
        let (_filter, mut shipper, restored) = shipped(&store, Keep::Nothing).await;
        shipper.round().await.expect("a round");
        assert_refused(&store, &restored, Keep::Nothing, has_written).await;
    }
}

#[tokio::test]
async fn a_directory_that_was_restored_under_its_shipper_is_refused() {
    let (store, machine, keep) = (store(), Machine::default(), Keep::Bytes(1 << 30));
    let disk = Arc::new(machine.disk());
    let filter = Filter::create_on(disk.clone(), AgePartitioned::last(1000), options(keep));
    let filter = filter.expect("a filter");
    let ship = ShipOptions::default();
    let begun = Shipper::begin(store.clone(), Arc::new(machine.clone()), ship.clone()).await;
    let mut shipper = begun.expect("a shipper");
    insert(&filter, 0..200);
    shipper.round().await.expect("a round");
    drop(filter);
    let restored = CrashDisk::new();
    restore_at_on(&*disk, At::Lsn(100), &restored).expect("restored");
    machine.set(restored);
    let disk = Arc::new(machine.disk());
    let filter = Filter::<AgePartitioned>::open_on(disk, options(keep)).expect("as it was");
    insert(&filter, 500..501);
    let error = shipper.round().await.expect_err("refused");
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_says(&error, &["another one in its place", "--take-over"]);
    // Nor after it has caught up.
    insert(&filter, 500..900);
    assert!(matches!(shipper.round().await, Err(Error::Refused { .. })));
    let begun = Shipper::begin(store, Arc::new(machine), ship).await;
    assert!(matches!(begun, Err(Error::Refused { .. })));
}
