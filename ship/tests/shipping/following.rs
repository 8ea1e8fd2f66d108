//! A follower answers as the filter does, over everything that can happen to it, and refuses when
//! it knows too little.

use crate::faulty::{Client, Server};
use ebbtide::history::Unlogged;
use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Durability, Filter, Keep, Options, TimeLimited};
use ebbtide_ship::{Error, Follower, ShipOptions, Shipper, Store, promote};
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;

fn store() -> Store {
    Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7")
}

fn options() -> Options {
    let durability = Durability::Interval(Duration::from_secs(3600));
    Options::new().durability(durability).keep_log(Keep::Bytes(1 << 30))
}

/// A kind whose banks come and go.
fn spec(window: u64) -> TimeLimited {
    TimeLimited::window(Duration::from_millis(window)).rate(20_000.0)
}

#[tokio::test]
async fn a_follower_has_the_digest_of_the_filter_after_each_look() {
    let (store, media) = (store(), Arc::new(Memory::new()) as Arc<dyn Media>);
    let filter = Filter::create_on(media.clone(), spec(200), options()).expect("a filter");
    let ship = ShipOptions { snapshot_log_bytes: 10_000, ..ShipOptions::default() };
    let mut shipper = Shipper::begin(store.clone(), media.clone(), ship).await.expect("begun");
    shipper.round().await.expect("a round");
    let mut follower = Follower::begin(store, Duration::from_secs(600)).await.expect("a follower");
    let answers = follower.answers();
    for round in 0..30_u64 {
        for key in 0..200_u64 {
            filter.insert((round * 200 + key).to_le_bytes()).expect("an insert");
        }
        match round {
            7 => filter.clear().expect("a clear"),
            12 => drop(filter.alter(spec(300), Unlogged::Forget).expect("an alteration")),
            r if r % 5 == 0 => drop(filter.checkpoint().expect("a checkpoint")),
            // Generations end.
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
        filter.sync().expect("a sync");
        shipper.round().await.expect("a round");
        follower.look().await.expect("a look");
        assert_eq!(answers.next_lsn(), shipper.confirmed(), "round {round}");
        let own = filter.digest().expect("a digest");
        let found = answers.ask(|reader| reader.digest()).expect("an answer");
        assert_eq!(own.value, found.value, "round {round}");
    }
    let last = (29 * 200 + 199_u64).to_le_bytes();
    assert!(answers.ask(|reader| reader.contains(last)).is_ok());
}

#[tokio::test]
async fn beyond_max_lag_a_follower_refuses_in_one_sentence() {
    let (store, media) = (store(), Arc::new(Memory::new()) as Arc<dyn Media>);
    drop(Filter::create_on(media.clone(), spec(200), options()).expect("a filter"));
    let begun = Shipper::begin(store.clone(), media, ShipOptions::default()).await;
    begun.expect("begun").round().await.expect("a round");
    let follower = Follower::begin(store, Duration::ZERO).await.expect("a follower");
    let error = follower.answers().ask(|reader| reader.contains("a")).expect_err("refused");
    assert!(matches!(error, Error::Behind { .. }), "{error}");
    assert!(error.to_string().contains("expected a copy that is at most 0ns behind"), "{error}");
}

#[tokio::test]
async fn a_promoted_copy_has_all_that_was_confirmed_and_fences_the_writer() {
    let parent = tempfile::tempdir().expect("a directory");
    let (store, media) = (store(), Arc::new(Memory::new()) as Arc<dyn Media>);
    let filter = Filter::create_on(media.clone(), spec(60_000), options()).expect("a filter");
    let begun = Shipper::begin(store.clone(), media, ShipOptions::default()).await;
    let mut before = begun.expect("begun");
    filter.insert("order 17").expect("an insert");
    filter.sync().expect("a sync");
    before.round().await.expect("a round");
    let dir = parent.path().join("promoted");
    let (fetched, mut shipper) =
        promote(&store, &dir, ShipOptions::default()).await.expect("promoted");
    assert_eq!(fetched.lsn, before.confirmed());
    filter.insert("order 18").expect("an insert");
    filter.sync().expect("a sync");
    assert!(before.round().await.expect_err("fenced").is_fenced());
    let promoted = Filter::<Any>::open(&dir, options()).expect("the filter");
    assert!(promoted.contains("order 17").expect("an answer"));
    assert!(!promoted.contains("order 18").expect("an answer"));
    promoted.insert("order 19").expect("an insert");
    promoted.sync().expect("a sync");
    assert!(shipper.round().await.expect("a round").links > 0);
}

/// A filter, a shipper of it, and its place, which can refuse.
struct Place {
    server: Arc<Server>,
    filter: Filter<TimeLimited>,
    shipper: Shipper,
}

impl Place {
    async fn new() -> Self {
        let server = Server::new(3);
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let filter = Filter::create_on(media.clone(), spec(60_000), options()).expect("a filter");
        filter.insert("before").expect("an insert");
        filter.sync().expect("a sync");
        let store = Self::store(&server);
        let begun = Shipper::begin(store, media, ShipOptions::default()).await;
        let mut shipper = begun.expect("begun");
        shipper.round().await.expect("a round");
        Self { server, filter, shipper }
    }

    fn store(server: &Arc<Server>) -> Store {
        Store::of(Arc::new(Client::sound(server)), "filters/a", "faulty:///filters/a")
    }

    async fn follower(&self) -> Follower {
        let store = Self::store(&self.server);
        Follower::begin(store, Duration::from_secs(600)).await.expect("a follower")
    }

    /// Alters the filter, so that its chain begins anew.
    fn alter(&self) {
        self.filter.alter(spec(90_000), Unlogged::Forget).expect("an alteration");
        self.filter.insert("after").expect("an insert");
        self.filter.sync().expect("a sync");
    }
}

#[tokio::test]
async fn a_new_snapshot_that_could_not_be_read_is_taken_by_the_next_look() {
    let mut place = Place::new().await;
    let mut follower = place.follower().await;
    place.alter();
    place.shipper.round().await.expect("a round");
    place.server.refuse(Some("/snapshot/"));
    for _ in 0..3 {
        let error = follower.look().await.expect_err("no snapshot can be read");
        assert!(error.is_transient(), "{error}");
    }
    place.server.refuse(None);
    follower.look().await.expect("a look");
    let answers = follower.answers();
    assert_eq!(answers.next_lsn(), place.shipper.confirmed());
    assert!(answers.ask(|reader| reader.contains("after")).expect("an answer"));
}

#[tokio::test]
async fn a_follower_without_the_snapshot_of_an_alteration_grows_old() {
    let mut place = Place::new().await;
    let mut follower = place.follower().await;
    let answers = follower.answers();
    place.alter();
    place.server.refuse(Some("/snapshot/"));
    place.shipper.round().await.expect_err("no snapshot can be put");
    let mut lag = answers.lag();
    assert!(follower.look().await.expect("a look") > 0, "the alteration was shipped");
    for _ in 0..3 {
        assert!(answers.lag() >= lag, "what was shipped is not in its answers");
        lag = answers.lag();
        follower.look().await.expect("a look");
    }
    // Nor does one that begins now know how old its copy is.
    place.server.refuse(None);
    let late = place.follower().await.answers();
    let error = late.ask(|reader| reader.contains("after")).expect_err("it is older than known");
    assert!(matches!(error, Error::Behind { .. }), "{error}");
    place.shipper.round().await.expect("a round");
    let begun = std::time::Instant::now();
    follower.look().await.expect("a look");
    assert!(answers.lag() <= begun.elapsed());
    assert!(answers.ask(|reader| reader.contains("after")).expect("an answer"));
}
