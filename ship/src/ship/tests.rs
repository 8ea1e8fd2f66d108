//! What a shipper has read and not shipped.

use super::*;
use crate::assemble;
use ebbtide::history::Unlogged;
use ebbtide::media::Memory;
use ebbtide::{AgePartitioned, Any, Durability, Filter, Keep, Options, Reader};
use object_store::memory::InMemory;

fn store() -> Store {
    Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7")
}

fn filter(media: Memory, keep: Keep) -> Filter<AgePartitioned> {
    // Small segments, so that checkpoints remove log.
    let options = Options::new().durability(Durability::Always).keep_log(keep).segment_bytes(4096);
    let filter = Filter::create_on(Arc::new(media), AgePartitioned::last(1000), options);
    filter.expect("a filter")
}

async fn begin(store: &Store, media: impl Media + 'static) -> Result<Shipper> {
    let options = ShipOptions { snapshot_log_bytes: 1000, ..ShipOptions::default() };
    Shipper::begin(store.clone(), Arc::new(media), options).await
}

/// Creates a filter whose log is kept, and begins to ship it.
async fn shipped(store: &Store) -> (Filter<AgePartitioned>, Shipper) {
    let media = Memory::new();
    let filter = filter(media.clone(), Keep::Bytes(1 << 30));
    (filter, begin(store, media).await.expect("a shipper"))
}

fn insert(filter: &Filter<AgePartitioned>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
}

fn alter(filter: &Filter<AgePartitioned>, window: u64) {
    let altered = filter.alter(AgePartitioned::last(window), Unlogged::Forget);
    altered.expect("an alteration");
}

/// Returns the digest of what is fetched.
async fn fetched(store: &Store) -> u128 {
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(store, copy.clone()).await.expect("a fetch");
    let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
    copied.digest().expect("a digest").value
}

fn digest_of(filter: &Filter<AgePartitioned>) -> u128 {
    filter.digest().expect("a digest").value
}

#[tokio::test]
async fn a_snapshot_that_an_alteration_writes_during_a_round_waits_for_its_beginning() {
    let store = store();
    let (filter, mut shipper) = shipped(&store).await;
    insert(&filter, 0..100);
    let (before, mut shipped) = (digest_of(&filter), Shipped::default());
    // A round during which the filter is altered.
    shipper.check_origin(&mut shipped).await.expect("as it was");
    alter(&filter, 2000);
    shipper.ship_log(&mut shipped).await.expect("the log from before");
    shipper.ship_snapshot(&mut shipped).await.expect("no snapshot of that log");
    assert_eq!(fetched(&store).await, before);
    shipper.round().await.expect("a round");
    assert_eq!(fetched(&store).await, digest_of(&filter));
}

#[tokio::test]
async fn what_was_read_before_an_alteration_and_not_shipped_is_forgotten() {
    for is_held in [false, true] {
        let store = store();
        let (filter, mut shipper) = shipped(&store).await;
        insert(&filter, 0..100);
        shipper.read_pieces().expect("the log");
        assert!(shipper.read.is_some());
        if is_held {
            // As after a put that has failed.
            shipper.held = shipper.read.take();
        }
        alter(&filter, 2000);
        insert(&filter, 100..200);
        for _ in 0..2 {
            shipper.round().await.expect("a round");
        }
        assert_eq!(fetched(&store).await, digest_of(&filter), "held: {is_held}");
    }
}
