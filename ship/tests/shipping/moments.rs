//! Moments of the past, of a store in which something is damaged: what does not need the damaged
//! object is fetched, and nothing is fetched that is not the moment.

use crate::sentences::assert_says;
use ebbtide::history::At;
use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Digest, Durability, Filter, Keep, Options, Reader, TimeLimited, Timestamp};
use ebbtide_ship::{Error, ShipOptions, Shipper, Store, fetch};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;
use std::time::Duration;

/// A moment that was noted, between two commits.
#[derive(Debug)]
struct Moment {
    time: Timestamp,
    lsn: u64,
    /// The newest link then.
    link: String,
}

struct Shipped {
    objects: Arc<InMemory>,
    store: Store,
    /// The filter, with all of its log.
    media: Arc<dyn Media>,
    moments: Vec<Moment>,
    parent: tempfile::TempDir,
}

impl Shipped {
    /// Ships six moments, each with a snapshot.
    async fn new() -> Self {
        let objects = Arc::new(InMemory::new());
        let store = Store::of(objects.clone(), "orders", "memory:///orders");
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let kept = Keep::Bytes(1 << 30);
        let options = Options::new().durability(Durability::Always).keep_log(kept);
        let spec = TimeLimited::window(Duration::from_secs(600)).rate(12.0);
        let filter = Filter::create_on(media.clone(), spec, options).expect("a filter");
        let keep = Duration::from_secs(3600);
        let ship = ShipOptions { snapshot_log_bytes: 1000, keep, ..ShipOptions::default() };
        let begun = Shipper::begin(store.clone(), media.clone(), ship).await;
        let mut shipper = begun.expect("a shipper");
        let parent = tempfile::tempdir().expect("a directory");
        let mut shipped = Self { objects, store, media, moments: Vec::new(), parent };
        for round in 0..6_u64 {
            for key in 0..1000 {
                filter.insert((round * 1000 + key).to_le_bytes()).expect("an insert");
            }
            filter.checkpoint().expect("a checkpoint");
            shipper.round().await.expect("a round");
            std::thread::sleep(Duration::from_millis(5));
            let link = shipped.names("chain").await.pop().expect("a link");
            let (time, lsn) = (Timestamp::now(), shipper.confirmed() - 1);
            shipped.moments.push(Moment { time, lsn, link });
            std::thread::sleep(Duration::from_millis(5));
        }
        shipped
    }

    /// Returns the paths of the objects in a folder.
    async fn names(&self, folder: &str) -> Vec<String> {
        let prefix = Path::from(format!("orders/{folder}"));
        let found: Vec<_> = self.objects.list(Some(&prefix)).try_collect().await.expect("a list");
        let mut names: Vec<_> = found.iter().map(|meta| meta.location.to_string()).collect();
        names.sort();
        names
    }

    async fn damage(&self, name: &str) {
        let path = Path::from(name);
        let found = self.objects.get(&path).await.expect("an object").bytes().await;
        let mut bytes = found.expect("bytes").to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        self.objects.put(&path, bytes.into()).await.expect("a put");
    }

    async fn fetch(&self, at: At) -> Result<Digest, Error> {
        let dir = self.parent.path().join("new");
        let fetched = fetch(&self.store, &dir, Some(at)).await.map(|_| {
            let reader = Reader::<Any>::open(&dir, Options::new()).expect("a reader");
            reader.digest().expect("a digest")
        });
        let left = std::fs::read_dir(self.parent.path()).expect("a list");
        for entry in left.map_while(Result::ok) {
            std::fs::remove_dir_all(entry.path()).expect("removed");
        }
        fetched
    }

    /// Checks that the first moments are fetched, by time and by LSN.
    async fn assert_has(&self, moments: usize) {
        for (at, moment) in self.moments[..moments].iter().enumerate() {
            for wanted in [At::Time(moment.time), At::Lsn(moment.lsn)] {
                let found = self.fetch(wanted).await;
                let found = found.unwrap_or_else(|error| panic!("{at}, {wanted}: {error}"));
                let own = Reader::<Any>::at_on(self.media.clone(), wanted, Options::new());
                let own = own.and_then(|reader| reader.digest()).expect("the moment");
                let lsns = (found.lsn, own.lsn);
                assert_eq!(found.value, own.value, "{at}, {wanted}: {lsns:?}, {moment:?}");
            }
        }
    }

    /// Checks that a moment is refused with the name of an object.
    async fn assert_lacks(&self, moment: usize, object: &str) {
        let moment = &self.moments[moment];
        for wanted in [At::Time(moment.time), At::Lsn(moment.lsn)] {
            assert_says(&self.fetch(wanted).await.expect_err("damage"), &[object]);
        }
    }
}

#[tokio::test]
async fn a_time_is_fetched_from_the_base_that_reaches_it() {
    let shipped = Shipped::new().await;
    shipped.assert_has(6).await;
    assert!(shipped.names("snapshot").await.len() > 3);
}

#[tokio::test]
async fn a_damaged_snapshot_takes_no_moment_away() {
    let shipped = Shipped::new().await;
    let mut snapshots = shipped.names("snapshot").await;
    shipped.damage(&snapshots.pop().expect("a snapshot")).await;
    shipped.assert_has(6).await;
    shipped.damage(&snapshots.pop().expect("a snapshot")).await;
    shipped.assert_has(6).await;
}

#[tokio::test]
async fn a_damaged_link_takes_only_later_moments_away() {
    for is_missing in [false, true] {
        let shipped = Shipped::new().await;
        // The log of the last moment but one, then that of the one before.
        for last in [4, 3] {
            let before = &shipped.moments[last - 1].link;
            let links = shipped.names("chain").await;
            let next = links.iter().find(|name| *name > before).expect("a link").clone();
            match is_missing {
                true => shipped.objects.delete(&Path::from(next.as_str())).await.expect("removed"),
                false => shipped.damage(&next).await,
            }
            // By time it must be shown that nothing before the damage belongs to it.
            shipped.assert_has(last - 1).await;
            shipped.assert_lacks(last, &next).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_link_of_a_snapshot_takes_no_earlier_moment_away() {
    let shipped = Shipped::new().await;
    let base = shipped.names("base").await.pop().expect("a base").replace("/base/", "/chain/");
    shipped.damage(&base).await;
    shipped.assert_has(5).await;
}

#[tokio::test]
async fn a_time_before_the_oldest_snapshot_is_refused() {
    let shipped = Shipped::new().await;
    // As retention does.
    let mut bases = shipped.names("base").await;
    bases.truncate(bases.len() - 2);
    for base in bases {
        shipped.objects.delete(&Path::from(base)).await.expect("removed");
    }
    let error = shipped.fetch(At::Time(shipped.moments[0].time)).await.expect_err("not kept");
    assert_says(&error, &["memory:///orders", "expected a snapshot from before"]);
    let last = shipped.moments.last().expect("a moment");
    shipped.fetch(At::Time(last.time)).await.expect("it is kept");
}
