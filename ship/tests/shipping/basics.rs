//! What is shipped is fetched, with every event in between.

use crate::faulty::{Client, Server};
use ebbtide::history::At;
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Any, Durability, Filter, Options, Reader};
use ebbtide_ship::{Error, ShipOptions, Shipper, Store, assemble, fetch, verify};
use object_store::memory::InMemory;
use std::sync::Arc;

fn store() -> Store {
    Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7")
}

fn options() -> Options {
    Options::new().durability(Durability::Always)
}

fn keys(filter: &Filter<AgePartitioned>, keys: std::ops::Range<u64>) {
    for key in keys {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
}

async fn begin(store: &Store, media: &Arc<dyn Media>) -> ebbtide_ship::Result<Shipper> {
    Shipper::begin(store.clone(), media.clone(), ShipOptions::default()).await
}

#[tokio::test]
async fn a_fetched_filter_has_the_digest_of_the_shipped_one() {
    let (store, media) = (store(), Arc::new(Memory::new()) as Arc<dyn Media>);
    let spec = AgePartitioned::last(1000);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    let mut shipper = begin(&store, &media).await.expect("a shipper");
    for round in 0..20 {
        keys(&filter, round * 500..round * 500 + 500);
        if round == 10 {
            filter.clear().expect("a clear");
        }
        if round % 3 == 0 {
            filter.checkpoint().expect("a checkpoint");
        }
        shipper.round().await.expect("a round");
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        let fetched = assemble(&store, copy.clone()).await.expect("a fetch");
        assert_eq!(fetched.lsn, shipper.confirmed());
        let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
        let (own, found) = (filter.digest().expect("a digest"), copied.digest().expect("a digest"));
        assert_eq!(own.value, found.value, "{round}");
    }
    assert_eq!(shipper.round().await.expect("a round").links, 0);
    let verified = verify(&store, None).await.expect("sound");
    assert_eq!(verified.digest.value, filter.digest().expect("a digest").value);
}

#[tokio::test]
async fn of_two_shippers_the_first_stops_and_a_copy_that_is_behind_is_refused() {
    let (store, media) = (store(), Arc::new(Memory::new()) as Arc<dyn Media>);
    let spec = AgePartitioned::last(1000);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    keys(&filter, 0..100);
    let mut first = begin(&store, &media).await.expect("a shipper");
    first.round().await.expect("a round");
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(&store, copy.clone()).await.expect("a fetch");
    let moved = Filter::<AgePartitioned>::open_on(copy.clone(), options()).expect("the copy");
    let mut second = begin(&store, &copy).await.expect("a second shipper");
    keys(&moved, 100..200);
    second.round().await.expect("a round");
    keys(&filter, 300..400);
    let error = first.round().await.expect_err("fenced");
    assert!(matches!(error, Error::Fenced { timeline: 2, own: 1, .. }), "{error}");
    let error = begin(&store, &media).await.expect_err("refused");
    assert!(matches!(error, Error::Refused { .. }) && error.is_fenced(), "{error}");
    filter.checkpoint().expect("a snapshot to begin with");
    let taken = ShipOptions { take_over: true, ..ShipOptions::default() };
    let mut third = Shipper::begin(store.clone(), media.clone(), taken).await.expect("allowed");
    third.round().await.expect("a round");
    assert!(second.round().await.is_ok_and(|shipped| shipped.links == 0), "nothing to put");
    keys(&moved, 500..501);
    assert!(second.round().await.expect_err("fenced").is_fenced());
}

#[tokio::test]
async fn a_copy_that_was_taken_over_with_fewer_records_than_were_discarded_is_sound() {
    let (store, media) = (store(), Arc::new(Memory::new()) as Arc<dyn Media>);
    let spec = AgePartitioned::last(1000);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    keys(&filter, 0..100);
    let mut first = begin(&store, &media).await.expect("a shipper");
    first.round().await.expect("a round");
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(&store, copy.clone()).await.expect("a fetch");
    let moved = Filter::<AgePartitioned>::open_on(copy.clone(), options()).expect("the copy");
    keys(&moved, 100..300);
    let mut second = begin(&store, &copy).await.expect("a second shipper");
    second.round().await.expect("a round");
    keys(&filter, 700..702);
    filter.checkpoint().expect("a snapshot to begin with");
    let keep = std::time::Duration::from_secs(3600);
    let options = ShipOptions { take_over: true, keep, snapshot_log_bytes: 1000 };
    let taken = Shipper::begin(store.clone(), media.clone(), options).await;
    let mut taken = taken.expect("allowed");
    taken.round().await.expect("a round");
    assert!(taken.confirmed() < second.confirmed(), "the discarded branch is longer");
    let verified = verify(&store, None).await.expect("sound");
    assert_eq!(verified.digest.value, filter.digest().expect("a digest").value);
    // Snapshots of one branch are compared as before.
    let before = verified.compared;
    for round in 1..4 {
        keys(&filter, round * 2000..(round + 1) * 2000);
        filter.checkpoint().expect("a checkpoint");
        taken.round().await.expect("a round");
    }
    let verified = verify(&store, None).await.expect("sound");
    assert!(verified.compared > before, "{verified:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shipper_of_an_idle_filter_notices_within_a_minute_that_it_was_replaced() {
    let (store, media) = (store(), Arc::new(Memory::new()) as Arc<dyn Media>);
    let spec = AgePartitioned::last(1000);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    keys(&filter, 0..100);
    let mut first = begin(&store, &media).await.expect("a shipper");
    first.round().await.expect("a round");
    let minute = std::time::Duration::from_secs(60);
    for _ in 0..3 {
        tokio::time::advance(minute).await;
        assert_eq!(first.round().await.expect("nobody else").links, 0);
    }
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(&store, copy.clone()).await.expect("a fetch");
    let _moved = Filter::<AgePartitioned>::open_on(copy.clone(), options()).expect("the copy");
    begin(&store, &copy).await.expect("a second shipper");
    tokio::time::advance(minute).await;
    let error = first.round().await.expect_err("fenced");
    assert!(matches!(error, Error::Fenced { timeline: 2, own: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_moment_is_fetched_from_the_base_that_reaches_it() {
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, url) = (parent.path().join("seen"), parent.path().join("store"));
    let store = Store::open(url.to_str().expect("text")).expect("a store");
    let filter =
        Filter::create(&dir, AgePartitioned::last(1000), Options::new()).expect("a filter");
    let media: Arc<dyn Media> = Arc::new(ebbtide::media::Disk::new(&dir));
    let long = ShipOptions { keep: std::time::Duration::from_secs(3600), ..Default::default() };
    let mut shipper = Shipper::begin(store.clone(), media, long).await.expect("a shipper");
    let mut moments = Vec::new();
    for round in 0..8 {
        keys(&filter, round * 20_000..(round + 1) * 20_000);
        filter.sync().expect("a sync");
        filter.checkpoint().expect("a checkpoint");
        shipper.round().await.expect("a round");
        let digest = filter.digest().expect("a digest");
        // Notes of the engine may have come since.
        moments.push((shipper.confirmed() - 1, digest.value));
    }
    for (at, (lsn, digest)) in moments.into_iter().enumerate() {
        let copy = parent.path().join(format!("copy-{at}"));
        let fetched = fetch(&store, &copy, Some(At::Lsn(lsn))).await.expect("a fetch");
        assert_eq!(fetched.lsn, lsn + 1);
        let copied = Reader::<Any>::open(&copy, Options::new()).expect("a reader");
        assert_eq!(copied.digest().expect("a digest").value, digest);
    }
    let error = fetch(&store, &dir, None).await.expect_err("occupied");
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
    let verified = verify(&store, Some(&dir)).await.expect("sound");
    assert!(verified.compared > 2, "{verified:?}");
}

#[tokio::test]
async fn a_round_in_which_nothing_has_changed_asks_the_store_nothing() {
    let server = Server::new(7);
    let client = Client::faulty(&server, u64::MAX);
    let store = Store::of(Arc::new(client), "a", "faulty:///a");
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options());
    let filter = filter.expect("a filter");
    keys(&filter, 0..100);
    let mut shipper = loop {
        if let Ok(shipper) = begin(&store, &media).await {
            break shipper;
        }
    };
    // Until no fault has left anything to be done.
    while shipper.round().await.is_err() || shipper.round().await.is_err() {}
    let before = server.calls();
    for _ in 0..100 {
        assert_eq!(shipper.round().await.expect("a round").links, 0);
    }
    assert_eq!(server.calls(), before);
    keys(&filter, 100..101);
    while shipper.round().await.is_err() {}
    assert!(server.calls() > before);
}
