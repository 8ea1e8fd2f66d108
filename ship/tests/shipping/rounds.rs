//! What a round does while the filter is written, and with a snapshot that the store does not take
//! or return.

use crate::scripted::{Call, Scripted};
use ebbtide::inspect::snapshots_on;
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{AgePartitioned, Durability, Filter, Options};
use ebbtide_ship::{ShipOptions, Shipper, Store, verify};
use futures::TryStreamExt;
use futures::future::BoxFuture;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutPayload, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

fn refused() -> StoreError {
    StoreError::Generic { store: "scripted", source: "refused".into() }
}

/// Returns whether it is called for a snapshot.
fn is_of_snapshot(path: &Path) -> bool {
    path.as_ref().starts_with("orders/snapshot/")
}

/// A shipper whose filter has a snapshot that is due.
struct Due {
    filter: Arc<Filter<AgePartitioned>>,
    media: Memory,
    shipper: Shipper,
    store: Store,
    objects: Arc<InMemory>,
    calls: Arc<Mutex<Vec<Call>>>,
}

type Answer = BoxFuture<'static, Result<()>>;

impl Due {
    /// `script` says what happens before each call, by the objects that are there; the snapshot is
    /// uploaded in parts of this length.
    async fn new(
        part: usize,
        script: impl Fn(&Arc<InMemory>, &Call) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let there = Arc::new(OnceLock::<Arc<InMemory>>::new());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (objects, noted) = (there.clone(), calls.clone());
        let scripted = Scripted::new(move |call| {
            let answer = script(objects.get().expect("set"), &call);
            noted.lock().expect("no panic").push(call);
            answer
        });
        let objects = scripted.objects.clone();
        there.set(objects.clone()).expect("not set");
        let store = Store::of(Arc::new(scripted), "orders", "scripted:///orders");
        let store = store.upload_bytes(part);
        let memory = Memory::new();
        let media: Arc<dyn Media> = Arc::new(memory.clone());
        let options = Options::new().durability(Durability::Always);
        let filter = Filter::create_on(media.clone(), AgePartitioned::last(10_000), options);
        let filter = Arc::new(filter.expect("a filter"));
        let ship = ShipOptions { snapshot_log_bytes: 1, ..ShipOptions::default() };
        let shipper = Shipper::begin(store.clone(), media, ship).await.expect("a shipper");
        for key in 0..100_u64 {
            filter.insert(key.to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a checkpoint");
        Self { filter, media: memory, shipper, store, objects, calls }
    }

    /// Returns how often this was called for a snapshot.
    fn count(&self, is_it: impl Fn(&Call) -> bool) -> usize {
        self.calls.lock().expect("no panic").iter().filter(|call| is_it(call)).count()
    }

    async fn snapshots(&self) -> Vec<Path> {
        let prefix = Path::from("orders/snapshot");
        let found = self.objects.list(Some(&prefix)).map_ok(|meta| meta.location);
        found.try_collect().await.expect("a list")
    }
}

fn is_put(call: &Call) -> bool {
    matches!(call, Call::Put(path, _) if is_of_snapshot(path))
}

fn is_done(call: &Call) -> bool {
    matches!(call, Call::Done(path) if is_of_snapshot(path))
}

fn is_get(call: &Call) -> bool {
    matches!(call, Call::Get(path) if is_of_snapshot(path))
}

/// Returns a script that does this at the first calls of a kind.
fn at_first(
    times: u64,
    is_it: fn(&Call) -> bool,
    then: impl Fn(&Arc<InMemory>, &Call) -> Answer + Send + Sync + 'static,
) -> impl Fn(&Arc<InMemory>, &Call) -> Answer + Send + Sync + 'static {
    let called = AtomicU64::new(0);
    move |objects, call| {
        if is_it(call) && called.fetch_add(1, Ordering::Relaxed) < times {
            return then(objects, call);
        }
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_snapshot_that_could_not_be_read_back_is_not_uploaded_again() {
    let script = at_first(2, is_get, |_, _| Box::pin(async { Err(refused()) }));
    let mut due = Due::new(1 << 20, script).await;
    for _ in 0..2 {
        assert!(due.shipper.round().await.expect_err("refused").is_transient());
    }
    let shipped = due.shipper.round().await.expect("a round");
    assert!(shipped.snapshot_bytes > 0, "{shipped:?}");
    assert_eq!((due.count(is_put), due.snapshots().await.len()), (1, 1));
    verify(&due.store, None).await.expect("sound");
}

#[tokio::test]
async fn a_snapshot_that_is_not_what_was_uploaded_is_removed_and_gets_no_link() {
    let script = at_first(1, is_get, |objects, call| {
        let Call::Get(path) = call else { panic!("{call:?}") };
        let (objects, path) = (objects.clone(), path.clone());
        Box::pin(async move {
            let found = objects.get(&path).await?.bytes().await?;
            let damaged = vec![7; found.len()];
            objects.put(&path, PutPayload::from(damaged)).await.map(drop)
        })
    });
    let mut due = Due::new(1 << 20, script).await;
    let error = due.shipper.round().await.expect_err("damage");
    // A store may do that once.
    assert!(error.is_transient() && error.to_string().contains("cannot read back"), "{error}");
    assert!(due.snapshots().await.is_empty());
    assert!(due.shipper.round().await.expect("a round").snapshot_bytes > 0);
    verify(&due.store, None).await.expect("sound");
}

#[tokio::test]
async fn a_snapshot_that_is_written_over_while_it_is_uploaded_gets_no_link() {
    let medium = Arc::new(OnceLock::<Memory>::new());
    let found = medium.clone();
    let script = at_first(1, is_put, move |_, _| {
        // As the engine does on a full disk, after it has written a newer one.
        let media = found.get().expect("set");
        let snapshot = snapshots_on(media).expect("a list").remove(0);
        media.rename(&snapshot.name, "temporary").expect("a rename");
        let file = media.open("temporary", Access::Write).expect("a file");
        file.write_at(&vec![7; snapshot.bytes as usize], 0).expect("a write");
        media.remove("temporary").expect("a removal");
        Box::pin(async { Ok(()) })
    });
    let mut due = Due::new(1000, script).await;
    medium.set(due.media.clone()).expect("not set");
    let shipped = due.shipper.round().await.expect("a round");
    assert_eq!((shipped.snapshot_bytes, due.count(is_put) > 1), (0, true));
    assert!(due.snapshots().await.is_empty());
    assert!(due.shipper.is_behind(), "the next round ships the newer one");
    due.filter.insert("another").expect("an insert");
    due.filter.checkpoint().expect("another one");
    assert!(due.shipper.round().await.expect("a round").snapshot_bytes > 0);
    assert!(!due.shipper.is_behind());
    verify(&due.store, None).await.expect("sound");
}

#[tokio::test]
async fn an_upload_that_outlasts_two_checkpoints_gets_its_link() {
    let written = Arc::new(OnceLock::<Arc<Filter<AgePartitioned>>>::new());
    let writer = written.clone();
    let script = at_first(1, is_put, move |_, _| {
        let filter = writer.get().expect("set");
        for key in 0..2_u64 {
            filter.insert(key.to_be_bytes()).expect("an insert");
            filter.checkpoint().expect("a checkpoint");
        }
        Box::pin(async { Ok(()) })
    });
    let mut due = Due::new(1000, script).await;
    written.set(due.filter.clone()).expect("not set");
    let uploaded = snapshots_on(&due.media).expect("a list").remove(0);
    let shipped = due.shipper.round().await.expect("a round");
    let left = snapshots_on(&due.media).expect("a list");
    assert!(left.iter().all(|file| file.name != uploaded.name), "{left:?}");
    assert_eq!(shipped.snapshot_bytes, uploaded.bytes);
    assert_eq!(due.snapshots().await.len(), 1);
    verify(&due.store, None).await.expect("sound");
}

#[tokio::test]
async fn who_is_fenced_while_its_snapshot_is_read_back_says_so_although_it_was_removed() {
    let script = at_first(1, is_get, |objects, call| {
        let Call::Get(path) = call else { panic!("{call:?}") };
        let (objects, path) = (objects.clone(), path.clone());
        Box::pin(async move {
            objects.delete(&path).await?;
            let link = |number| Path::from(format!("orders/chain/{number:020}"));
            let first = objects.get(&link(1)).await?.bytes().await?;
            // The beginning of another one, as far as this one can see.
            objects.put(&link(3), PutPayload::from_bytes(first)).await.map(drop)
        })
    });
    let mut due = Due::new(1 << 20, script).await;
    let error = due.shipper.round().await.expect_err("fenced");
    assert!(error.is_fenced(), "{error}");
}

#[tokio::test]
async fn a_snapshot_that_is_in_the_store_gets_its_link_although_the_answer_was_lost() {
    for part in [1 << 20, 1000] {
        let script = at_first(1, is_done, |_, _| Box::pin(async { Err(refused()) }));
        let mut due = Due::new(part, script).await;
        assert!(due.shipper.round().await.expect("a round").snapshot_bytes > 0);
        assert_eq!(due.snapshots().await.len(), 1);
        verify(&due.store, None).await.expect("sound");
    }
}

#[tokio::test]
async fn what_an_upload_may_have_left_that_has_failed_is_removed() {
    // The answer is lost, and so is the next one, that it is there.
    let is_lost = |call: &Call| is_done(call) || is_get(call);
    let script = at_first(2, is_lost, |_, _| Box::pin(async { Err(refused()) }));
    let mut due = Due::new(1 << 20, script).await;
    assert!(due.shipper.round().await.expect_err("refused").is_transient());
    assert!(due.snapshots().await.is_empty());
    assert!(due.shipper.round().await.expect("a round").snapshot_bytes > 0);
    assert_eq!(due.snapshots().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upload_in_parts_that_fails_or_hangs_is_taken_back() {
    let fails = |_: &Arc<InMemory>, _: &Call| -> Answer { Box::pin(async { Err(refused()) }) };
    let hangs = |_: &Arc<InMemory>, _: &Call| -> Answer { Box::pin(std::future::pending()) };
    let is_abort = |call: &Call| matches!(call, Call::Abort(path) if is_of_snapshot(path));
    for then in [fails, hangs] {
        let mut due = Due::new(1000, at_first(1, is_put, then)).await;
        assert!(due.shipper.round().await.expect_err("refused").is_transient());
        assert_eq!(due.count(is_abort), 1);
        assert!(due.shipper.round().await.expect("a round").snapshot_bytes > 0);
        assert_eq!((due.count(is_abort), due.snapshots().await.len()), (1, 1));
    }
}

#[tokio::test]
async fn a_snapshot_has_at_most_ten_thousand_parts() {
    let mut due = Due::new(1, |_, _| Box::pin(async { Ok(()) })).await;
    let bytes = due.shipper.round().await.expect("a round").snapshot_bytes;
    let parts = due.count(is_put);
    assert!(bytes > 10_000 && parts > 5000 && parts <= 10_000, "{parts} parts, {bytes} bytes");
    verify(&due.store, None).await.expect("sound");
}

#[tokio::test]
async fn a_round_ends_although_something_becomes_durable_during_each_put() {
    let written = Arc::new(OnceLock::<Filter<AgePartitioned>>::new());
    let (writer, puts) = (written.clone(), AtomicU64::new(0));
    let scripted = Scripted::new(move |call| {
        if let (Call::Put(path, _), Some(filter)) = (call, writer.get())
            && path.as_ref().starts_with("orders/chain/")
        {
            let put = puts.fetch_add(1, Ordering::Relaxed);
            assert!(put < 100, "it makes no end");
            filter.insert(put.to_le_bytes()).expect("an insert");
        }
        Box::pin(async { Ok(()) })
    });
    let store = Store::of(Arc::new(scripted), "orders", "scripted:///orders");
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let options = Options::new().durability(Durability::Always);
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options);
    let filter = filter.expect("a filter");
    let begun = Shipper::begin(store, media, ShipOptions::default()).await;
    let mut shipper = begun.expect("a shipper");
    filter.insert("first").expect("an insert");
    written.set(filter).expect("not set");
    let shipped = shipper.round().await.expect("a round");
    assert!(shipped.links == 1 && !shipper.is_behind(), "{shipped:?}");
    let shipped = shipper.round().await.expect("a round");
    assert!(shipped.links == 1 && !shipper.is_behind(), "{shipped:?}");
}
