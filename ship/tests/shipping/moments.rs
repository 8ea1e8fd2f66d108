//! Moments of the past, of a store in which something is damaged: what does not need the damaged
//! object is fetched, and nothing is fetched that is not the moment.

use crate::sentences::assert_says;
use ebbtide::history::{At, Unlogged};
use ebbtide::media::{Media, Memory};
use ebbtide::{
    AgePartitioned, Any, Digest, Durability, Filter, Keep, Options, Reader, Spec, TimeLimited,
    Timestamp,
};
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
    /// The LSN below which everything is shipped.
    end: u64,
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
        let mut shipped = Self { objects, store, media, moments: Vec::new(), end: 0, parent };
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
            shipped.end = shipper.confirmed();
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
    let first = &shipped.moments[0];
    for at in [At::Time(first.time), At::Lsn(first.lsn)] {
        let error = shipped.fetch(at).await.expect_err("not kept");
        let expected = format!("memory:///orders: expected a snapshot from before {at}");
        assert_says(&error, &[&expected, "found LSN ", "--keep", "a later moment"]);
        assert!(!error.to_string().contains("fetching"), "{error}");
    }
    let last = shipped.moments.last().expect("a moment");
    shipped.fetch(At::Time(last.time)).await.expect("it is kept");
    let hour = 3_600_000_000;
    let to_come = Timestamp::from_unix_micros(last.time.as_unix_micros() + hour);
    for at in [At::Time(to_come), At::Lsn(1 << 40)] {
        let error = shipped.fetch(at).await.expect_err("it has not come yet");
        let last = format!(" to {}: ask for an earlier moment", shipped.end - 1);
        assert_says(&error, &["memory:///orders: expected ", "found LSN ", &last]);
    }
}

/// A filter that is shipped, and what is fetched of its past.
struct Place<S> {
    objects: Arc<InMemory>,
    store: Store,
    media: Arc<dyn Media>,
    filter: Filter<S>,
    shipper: Shipper,
    parent: tempfile::TempDir,
}

impl<S: Spec> Place<S> {
    async fn new(spec: S, kept: Keep) -> Self {
        let objects = Arc::new(InMemory::new());
        let store = Store::of(objects.clone(), "orders", "memory:///orders");
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        // Small segments, so that checkpoints remove log.
        let options = Options::new().durability(Durability::Always).keep_log(kept);
        let options = options.segment_bytes(4096);
        let filter = Filter::create_on(media.clone(), spec, options).expect("a filter");
        let keep = Duration::from_secs(3600);
        let ship = ShipOptions { snapshot_log_bytes: 1000, keep, ..ShipOptions::default() };
        let begun = Shipper::begin(store.clone(), media.clone(), ship).await;
        let shipper = begun.expect("a shipper");
        let parent = tempfile::tempdir().expect("a directory");
        Self { objects, store, media, filter, shipper, parent }
    }

    /// Inserts this key, and sets the position to it.
    fn insert(&self, key: u64) {
        let mut batch = self.filter.batch();
        batch.insert(key.to_le_bytes()).expect("a part of a batch");
        batch.set_position(7, key).expect("a part of a batch");
        batch.commit().expect("a batch");
    }

    async fn ship(&mut self) {
        self.shipper.round().await.expect("a round");
    }

    /// Returns the newest link.
    async fn link(&self) -> String {
        let prefix = Path::from("orders/chain");
        let found: Vec<_> = self.objects.list(Some(&prefix)).try_collect().await.expect("a list");
        found.iter().map(|meta| meta.location.to_string()).max().expect("a link")
    }

    /// Returns what is fetched of a moment.
    async fn fetch(&self, at: At) -> Result<Reader<Any>, Error> {
        // It goes with its parent.
        let dir = tempfile::tempdir_in(self.parent.path()).expect("a directory").keep();
        fetch(&self.store, &dir, Some(at)).await?;
        Ok(Reader::<Any>::open(&dir, Options::new()).expect("a reader"))
    }

    /// Checks that of a moment the keys up to this one are fetched.
    async fn assert_has(&self, at: At, last: u64) {
        let found = self.fetch(at).await.unwrap_or_else(|error| panic!("{at}: {error}"));
        let has = [last, last + 1].map(|key| found.contains(key.to_le_bytes()).expect("an answer"));
        assert_eq!(has, [true, false], "{at}: {last}");
    }

    /// Checks that a moment is refused with the name of the link in which the log begins anew.
    async fn assert_lacks(&self, at: At, begin: &str) {
        let error = self.fetch(at).await.map(|_| ()).expect_err("it is not known");
        assert_says(&error, &[begin, &at.to_string(), "ask for"]);
    }
}

/// Returns the time between two commits, whose times come from a clock with ticks.
fn between() -> At {
    let tick = Duration::from_millis(20);
    std::thread::sleep(tick);
    let now = At::Time(Timestamp::now());
    std::thread::sleep(tick);
    now
}

/// Returns the link after this one.
fn next_link(link: &str) -> String {
    let (folder, number) = link.rsplit_once('/').expect("a folder");
    format!("{folder}/{:020}", number.parse::<u64>().expect("a number") + 1)
}

async fn a_gap_hides_its_moments<S: Spec>(spec: S) {
    let mut place = Place::new(spec, Keep::Nothing).await;
    place.insert(1);
    let first = between();
    place.insert(2);
    place.ship().await;
    let begin = next_link(&place.link().await);
    let mut lost = vec![between()];
    for round in 0..8 {
        (0..200).for_each(|key| place.insert(3 + round * 200 + key));
        place.filter.checkpoint().expect("a checkpoint");
        lost.push(between());
    }
    // Behind the snapshot.
    lost.pop();
    place.insert(1603);
    place.ship().await;
    assert_eq!(place.shipper.gaps(), 1);
    let last = between();
    place.insert(1604);
    place.ship().await;
    place.assert_has(first, 1).await;
    for at in lost {
        place.assert_lacks(at, &begin).await;
    }
    place.assert_has(last, 1603).await;
    let position = |position| At::Position { source: 7, position };
    place.assert_has(position(1), 1).await;
    for lost in [2, 700] {
        place.assert_lacks(position(lost), &begin).await;
    }
    place.assert_has(position(1603), 1603).await;
}

#[tokio::test]
async fn a_time_and_a_position_in_a_gap_are_refused_and_never_taken_for_the_moment_before_it() {
    a_gap_hides_its_moments(TimeLimited::window(Duration::from_secs(600)).rate(12.0)).await;
    a_gap_hides_its_moments(AgePartitioned::last(10_000)).await;
}

#[tokio::test]
async fn a_time_behind_an_alteration_is_fetched_with_its_parameters() {
    let spec = |seconds| TimeLimited::window(Duration::from_secs(seconds)).rate(12.0);
    let mut place = Place::new(spec(600), Keep::Bytes(1 << 30)).await;
    place.insert(1);
    let first = between();
    place.insert(2);
    place.ship().await;
    let begin = next_link(&place.link().await);
    // What the shipper has not read by the alteration may have been followed by more.
    let unknown = between();
    place.filter.alter(spec(1200), Unlogged::Forget).expect("an alteration");
    let altered = between();
    place.insert(3);
    let last = between();
    place.insert(4);
    place.ship().await;
    place.ship().await;
    for (at, key) in [(first, 1), (altered, 2), (last, 3)] {
        place.assert_has(at, key).await;
        let digest = |reader: Reader<Any>| reader.digest().expect("a digest").value;
        let own = Reader::<Any>::at_on(place.media.clone(), at, Options::new()).expect("kept");
        assert_eq!(digest(place.fetch(at).await.expect("a fetch")), digest(own), "{at}");
    }
    place.assert_lacks(unknown, &begin).await;
}

#[tokio::test]
async fn a_time_about_an_alteration_whose_time_is_not_known_is_refused() {
    let mut place = Place::new(AgePartitioned::last(1000), Keep::Nothing).await;
    place.insert(1);
    let first = between();
    place.insert(2);
    place.ship().await;
    let begin = next_link(&place.link().await);
    let before = between();
    place.filter.alter(AgePartitioned::last(2000), Unlogged::Forget).expect("an alteration");
    let after = between();
    place.insert(3);
    place.ship().await;
    place.ship().await;
    let last = between();
    place.assert_has(first, 1).await;
    place.assert_lacks(before, &begin).await;
    place.assert_lacks(after, &begin).await;
    place.assert_has(last, 3).await;
}
