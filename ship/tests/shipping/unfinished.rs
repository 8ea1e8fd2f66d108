//! A writer that dies within a batch leaves LSNs whose records never count. A chain that ends there
//! is continued at the next LSN.

use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Bloom, Durability, Filter, Keep, Options, Reader};
use ebbtide_ship::{ShipOptions, Shipper, Store, assemble, verify};
use ebbtide_testkit::crash::disk::CrashDisk;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;

fn store() -> Store {
    Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7")
}

fn options() -> Options {
    let durability = Durability::Interval(Duration::from_secs(3600));
    Options::new().background(false).durability(durability).keep_log(Keep::Bytes(1 << 30))
}

fn open(disk: &CrashDisk) -> Filter<Bloom> {
    Filter::open_on(Arc::new(disk.clone()), options()).expect("a filter")
}

async fn begin(store: &Store, disk: &CrashDisk) -> Shipper {
    let options = ShipOptions::default();
    let begun = Shipper::begin(store.clone(), Arc::new(disk.clone()), options).await;
    begun.expect("a shipper")
}

fn insert(filter: &Filter<Bloom>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
}

/// Ships to the end, and checks that what is fetched is the filter, which is closed.
async fn check(store: &Store, shipper: &mut Shipper, disk: &CrashDisk) {
    shipper.round().await.expect("a round");
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(store, copy.clone()).await.expect("a fetch");
    let digest = |media: Arc<dyn Media>| {
        let reader = Reader::<Any>::open_on(media, Options::new()).expect("a reader");
        reader.digest().expect("a digest").value
    };
    let own = digest(Arc::new(disk.clone()));
    assert_eq!(digest(copy), own);
    assert_eq!(verify(store, None).await.expect("sound").digest.value, own);
}

#[tokio::test]
async fn a_shipper_that_starts_after_a_death_within_a_batch_continues_the_chain() {
    for published in 0..4 {
        let (store, disk) = (store(), CrashDisk::new());
        let spec = Bloom::capacity(10_000);
        let filter = Filter::create_on(Arc::new(disk.clone()), spec, options());
        let filter = filter.expect("a filter");
        insert(&filter, 0..10);
        let next = filter.digest().expect("a digest").lsn;
        let mut batch = filter.batch();
        (0..5_u64).for_each(|key| batch.insert((100 + key).to_le_bytes()).expect("room"));
        batch.commit().expect("a commit");
        let end = filter.digest().expect("a digest").lsn;
        // As if its writer had not published it yet when what is before was made durable.
        disk.overwrite("live", 192, &next.to_le_bytes());
        let mut shipper = begin(&store, &disk).await;
        shipper.round().await.expect("a round");
        assert_eq!(shipper.confirmed(), next, "the chain ends where the batch begins");
        let left = disk.without_process();
        left.unpublish_slots(next + published..end);
        let filter = open(&left);
        insert(&filter, 10..20);
        drop(filter);
        let mut shipper = begin(&store, &left).await;
        assemble(&store, Arc::new(Memory::new())).await.expect("a fetch");
        check(&store, &mut shipper, &left).await;
        // The newest records of the chain are those behind the batch, and what is in its place.
        let mut shipper = begin(&store, &left).await;
        insert(&open(&left), 20..30);
        check(&store, &mut shipper, &left).await;
    }
}
