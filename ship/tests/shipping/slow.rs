//! A slow line between a shipper and its store.

use crate::scripted::{Call, Scripted};
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Any, Durability, Filter, Options, Reader};
use ebbtide_ship::{ShipOptions, Shipper, Store, assemble};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Half a megabit a second.
const BYTES_A_SECOND: u64 = 62_500;

/// Returns a store at the end of such a line, which carries one thing after the other.
fn store() -> Store {
    let free = Arc::new(Mutex::new(Instant::now()));
    let scripted = Scripted::new(move |call| {
        let bytes = match call {
            Call::Put(_, bytes) | Call::Chunk(bytes) => bytes,
            Call::Get(_) | Call::List(_) | Call::Abort(_) => 1000,
            Call::Done(_) | Call::Remove(_) => 0,
        };
        let free = free.clone();
        Box::pin(async move {
            let done = {
                let mut free = free.lock().expect("no panic");
                let takes = Duration::from_micros(bytes * 1_000_000 / BYTES_A_SECOND);
                *free = Instant::now().max(*free) + takes;
                *free
            };
            sleep_until(done).await;
            Ok(())
        })
    });
    Store::of(Arc::new(scripted), "orders/7", "scripted:///orders/7")
}

#[tokio::test(start_paused = true)]
async fn a_line_of_half_a_megabit_a_second_carries_what_an_outage_has_left_a_snapshot_and_a_fetch()
{
    let (store, media) = (store(), Arc::new(Memory::new()) as Arc<dyn Media>);
    let options = Options::new().durability(Durability::Interval(Duration::from_secs(3600)));
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(8_000_000), options);
    let filter = filter.expect("a filter");
    for start in (0..400_000_u64).step_by(1000) {
        let mut batch = filter.batch();
        for key in start..start + 1000 {
            batch.insert(key.to_le_bytes()).expect("a part of a batch");
        }
        batch.commit().expect("a batch");
    }
    filter.sync().expect("a sync");
    let ship = ShipOptions::default();
    let mut shipper = Shipper::begin(store.clone(), media, ship).await.expect("a shipper");
    let shipped = shipper.round().await.expect("the log");
    assert!(shipped.log_bytes > 12 << 20, "{shipped:?}");
    filter.checkpoint().expect("a checkpoint");
    filter.insert("behind the snapshot").expect("an insert");
    filter.sync().expect("a sync");
    let shipped = shipper.round().await.expect("a snapshot");
    assert!(shipped.snapshot_bytes > 16 << 20, "{shipped:?}");
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(&store, copy.clone()).await.expect("a fetch");
    let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
    let (own, found) = (filter.digest().expect("a digest"), copied.digest().expect("a digest"));
    assert_eq!(own.value, found.value);
}
