//! What a shipper removes while its successor has begun.

use crate::scripted::{Call, Scripted};
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Durability, Filter, Options};
use ebbtide_ship::{ShipOptions, Shipper, Store};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use std::sync::{Arc, OnceLock};

#[tokio::test]
async fn a_snapshot_that_a_successor_uploads_meanwhile_stays_however_old_its_filter_is() {
    let objects = Arc::new(OnceLock::<Arc<InMemory>>::new());
    let late = Path::from("orders/snapshot/00000000000000000002-0123456789abcdef");
    let (uploaded, name) = (objects.clone(), late.clone());
    let scripted = Scripted::new(move |call| {
        let (uploaded, name) = (uploaded.clone(), name.clone());
        Box::pin(async move {
            if matches!(call, Call::List(of) if of.filename() == Some("snapshot"))
                && let Some(objects) = uploaded.get()
            {
                objects.put(&name, PutPayload::from_static(b"a snapshot")).await?;
            }
            Ok(())
        })
    });
    objects.set(scripted.objects.clone()).expect("not set");
    let store = Store::of(Arc::new(scripted.clone()), "orders", "scripted:///orders");
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let options = Options::new().durability(Durability::Always);
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options);
    let filter = filter.expect("a filter");
    let ship = ShipOptions { snapshot_log_bytes: 1000, ..ShipOptions::default() };
    let mut shipper = Shipper::begin(store, media, ship).await.expect("a shipper");
    for round in 0..8_u64 {
        for key in 0..1000 {
            filter.insert((round * 1000 + key).to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a checkpoint");
        shipper.round().await.expect("a round");
    }
    scripted.objects.head(&late).await.expect("the snapshot that is being uploaded");
}
