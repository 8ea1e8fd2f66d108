//! What a shipper has read and not shipped.

use super::*;
use crate::assemble;
use ebbtide::history::Unlogged;
use ebbtide::media::Memory;
use ebbtide::{AgePartitioned, Any, Durability, Filter, Keep, Options, Reader};
use object_store::memory::InMemory;

#[tokio::test]
async fn what_was_read_before_an_alteration_and_not_shipped_is_forgotten() {
    for is_held in [false, true] {
        let store = Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7");
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let kept = Options::new().durability(Durability::Always).keep_log(Keep::Bytes(1 << 30));
        let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), kept);
        let filter = filter.expect("a filter");
        let insert = |key: u64| assert!(filter.insert(key.to_le_bytes()).is_ok());
        let begun = Shipper::begin(store.clone(), media.clone(), ShipOptions::default()).await;
        let mut shipper = begun.expect("a shipper");
        (0..100).for_each(insert);
        shipper.read_pieces().expect("the log");
        assert!(shipper.read.is_some());
        if is_held {
            // As after a put that has failed.
            shipper.held = shipper.read.take();
        }
        let window = AgePartitioned::last(2000);
        filter.alter(window, Unlogged::Refuse).expect("its log is kept");
        (100..200).for_each(insert);
        for _ in 0..2 {
            shipper.round().await.expect("a round");
        }
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        assemble(&store, copy.clone()).await.expect("a fetch");
        let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
        let (own, found) = (filter.digest().expect("a digest"), copied.digest().expect("a digest"));
        assert_eq!(own.value, found.value, "held: {is_held}");
    }
}
