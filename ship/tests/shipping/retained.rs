//! What a shipper removes while its successor begins, or has begun, and beside links that are
//! damaged; and what followers see of a removal.

use crate::scripted::{Call, Scripted};
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Any, Durability, Filter, Keep, Options, Reader};
use ebbtide_ship::{Follower, ShipOptions, Shipper, Store, assemble, verify};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutPayload};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

fn ship() -> ShipOptions {
    ShipOptions { snapshot_log_bytes: 1000, ..ShipOptions::default() }
}

fn link(number: u64) -> Path {
    Path::from(format!("orders/chain/{number:020}"))
}

/// A filter whose log is kept, and its shipper.
struct Place {
    objects: Arc<InMemory>,
    store: Store,
    media: Arc<dyn Media>,
    filter: Filter<AgePartitioned>,
    shipper: Shipper,
    keys: u64,
}

impl Place {
    async fn new() -> Self {
        let objects = Arc::new(InMemory::new());
        let store = Store::of(objects.clone(), "orders", "memory:///orders");
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let kept = Keep::Bytes(1 << 30);
        let options = Options::new().durability(Durability::Always).keep_log(kept);
        let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options);
        let filter = filter.expect("a filter");
        let begun = Shipper::begin(store.clone(), media.clone(), ship()).await;
        let mut shipper = begun.expect("a shipper");
        // The first base is the creation.
        shipper.round().await.expect("a round");
        Self { objects, store, media, filter, shipper, keys: 0 }
    }

    /// Returns the numbers in a folder, in their order.
    async fn numbers(&self, folder: &str) -> Vec<u64> {
        let prefix = Path::from(format!("orders/{folder}"));
        let found: Vec<_> = self.objects.list(Some(&prefix)).try_collect().await.expect("a list");
        let number = |path: &Path| path.filename().and_then(|name| name.parse().ok());
        let mut found: Vec<u64> =
            found.iter().map(|meta| number(&meta.location).expect("a number")).collect();
        found.sort_unstable();
        found
    }

    async fn newest(&self, folder: &str) -> u64 {
        self.numbers(folder).await.pop().unwrap_or(0)
    }

    async fn has_link(&self, number: u64) -> bool {
        self.objects.head(&link(number)).await.is_ok()
    }

    /// Writes and ships until there is a new base. Returns the number of its link.
    async fn base(&mut self) -> u64 {
        let before = self.newest("base").await;
        for _ in 0..10 {
            for _ in 0..1000 {
                self.filter.insert(self.keys.to_le_bytes()).expect("an insert");
                self.keys += 1;
            }
            self.filter.checkpoint().expect("a checkpoint");
            self.shipper.round().await.expect("a round");
            let newest = self.newest("base").await;
            if newest > before {
                return newest;
            }
        }
        panic!("no base comes");
    }

    /// Ships bases until this link is removed.
    async fn remove(&mut self, number: u64) {
        for _ in 0..10 {
            if !self.has_link(number).await {
                return;
            }
            self.base().await;
        }
        panic!("link {number} stays");
    }

    /// Has another shipper begin, as after a restart.
    async fn restart(&mut self) {
        let begun = Shipper::begin(self.store.clone(), self.media.clone(), ship()).await;
        self.shipper = begun.expect("a shipper");
    }

    async fn damage(&self, number: u64) {
        self.objects.put(&link(number), "damaged".into()).await.expect("a put");
    }

    /// Checks that what is fetched is the filter, and that the rest is sound.
    async fn assert_is_whole(&self) {
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        assemble(&self.store, copy.clone()).await.expect("a fetch");
        let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
        let own = self.filter.digest().expect("a digest");
        assert_eq!(copied.digest().expect("a digest").value, own.value);
        verify(&self.store, None).await.expect("sound");
    }
}

#[tokio::test]
async fn a_shipper_that_can_remove_nothing_notices_that_it_was_replaced() {
    let mut place = Place::new().await;
    place.base().await;
    place.base().await;
    let sound = place.store.clone();
    let mut scripted = Scripted::new(|call| {
        let source = "refused".into();
        let refused = StoreError::Generic { store: "scripted", source };
        Box::pin(async move { if matches!(call, Call::Remove(_)) { Err(refused) } else { Ok(()) } })
    });
    scripted.objects = place.objects.clone();
    place.store = Store::of(Arc::new(scripted), "orders", "scripted:///orders");
    place.restart().await;
    for key in 0..8000_u64 {
        place.filter.insert(key.to_be_bytes()).expect("an insert");
    }
    place.filter.checkpoint().expect("a checkpoint");
    for _ in 0..2 {
        let error = place.shipper.round().await.expect_err("nothing is removed");
        assert!(error.is_transient() && error.to_string().contains("cannot remove"), "{error}");
    }
    let begun = Shipper::begin(sound, place.media.clone(), ship()).await;
    begun.expect("another shipper");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    let error = place.shipper.round().await.expect_err("fenced");
    assert!(error.is_fenced(), "{error}");
}

/// Has a shipper begin whose put takes long. Its number is used meanwhile, by another beginning or
/// by log, and that is removed, but for the beginning.
async fn begin_late(is_begun: bool) {
    let mut place = Place::new().await;
    place.base().await;
    let number = place.newest("chain").await + 1;
    let (reached, resumed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (pause, resume, is_over) = (reached.clone(), resumed.clone(), AtomicBool::new(false));
    let mut scripted = Scripted::new(move |call| {
        let is_it = matches!(&call, Call::Put(of, _) if *of == link(number))
            && !is_over.swap(true, Ordering::Relaxed);
        let (pause, resume) = (pause.clone(), resume.clone());
        Box::pin(async move {
            if is_it {
                pause.notify_one();
                resume.notified().await;
            }
            Ok(())
        })
    });
    scripted.objects = place.objects.clone();
    let store = Store::of(Arc::new(scripted), "orders", "scripted:///orders");
    let begun = Shipper::begin(store, place.media.clone(), ship());
    let meanwhile = async {
        reached.notified().await;
        if is_begun {
            place.restart().await;
        }
        place.base().await;
        assert!(place.has_link(number).await, "the beginning of a third one, or log");
        place.remove(number + u64::from(is_begun)).await;
        resumed.notify_one();
    };
    let (begun, ()) = tokio::join!(begun, meanwhile);
    let mut successor = begun.expect("a shipper");
    place.filter.insert("the last").expect("an insert");
    successor.round().await.expect("a round");
    assert!(place.shipper.round().await.expect_err("fenced").is_fenced());
    assert!(place.has_link(number).await, "a beginning stays, also one that nobody reads");
    place.assert_is_whole().await;
}

#[tokio::test]
async fn a_beginning_whose_number_was_used_and_removed_meanwhile_is_put_at_the_end_again() {
    begin_late(false).await;
}

#[tokio::test]
async fn a_beginning_whose_number_another_one_has_got_is_put_at_the_end_although_links_are_removed()
{
    begin_late(true).await;
}

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

#[tokio::test]
async fn a_damaged_link_of_a_base_delays_the_removal_and_does_not_stop_the_shipper() {
    let mut place = Place::new().await;
    let first = place.base().await;
    let damaged = place.base().await;
    place.damage(damaged).await;
    // It would be the oldest that stays.
    let third = place.base().await;
    assert!(place.has_link(first).await, "it is not known what is needed");
    place.base().await;
    let hints = place.numbers("base").await;
    assert_eq!(hints.first(), Some(&third), "{hints:?}");
    assert!(!place.has_link(first).await && !place.has_link(damaged).await);
    place.assert_is_whole().await;
}

#[tokio::test]
async fn a_damaged_link_that_is_not_known_stays_and_does_not_stop_the_shipper() {
    let mut place = Place::new().await;
    for _ in 0..3 {
        place.base().await;
    }
    let hints = place.numbers("base").await;
    let older = hints[hints.len() - 2];
    // It begins with the newest base, and so does not read the one before.
    place.restart().await;
    place.damage(older).await;
    assert!(place.has_link(older - 1).await, "the log of that base");
    place.base().await;
    assert!(place.has_link(older).await && !place.has_link(older - 1).await);
    place.assert_is_whole().await;
}

#[tokio::test]
async fn a_link_that_a_removal_has_left_is_not_taken_for_the_end_of_the_chain() {
    for in_directory in [false, true] {
        let parent = tempfile::tempdir().expect("a directory");
        let lag = Duration::from_secs(600);
        let mut place = Place::new().await;
        place.base().await;
        place.filter.insert("behind the base").expect("an insert");
        place.shipper.round().await.expect("a round");
        let begun = match in_directory {
            true => Follower::begin_in(place.store.clone(), parent.path().join("new"), lag).await,
            false => Follower::begin(place.store.clone(), lag).await,
        };
        let mut follower = begun.expect("a follower");
        let newest = place.newest("chain").await;
        let found = place.objects.get(&link(newest)).await.expect("a link").bytes().await;
        place.base().await;
        place.remove(newest + 1).await;
        assert!(!place.has_link(newest).await, "it is removed, too");
        // As after a kill during the removal, whose order a store does not keep.
        place.objects.put(&link(newest), found.expect("bytes").into()).await.expect("a put");
        follower.look().await.expect("a look");
        let lsn = follower.answers().next_lsn();
        assert_eq!(lsn, place.shipper.confirmed(), "in a directory: {in_directory}");
    }
}
