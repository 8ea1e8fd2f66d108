//! Claims and their tokens over a fail-over.

use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Claim, Durability, Filter, Options};
use ebbtide_ship::{ShipOptions, Shipper, Store, assemble};
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;

fn options() -> Options {
    Options::new().background(false).durability(Durability::Always)
}

fn open(media: &Arc<dyn Media>) -> Filter<AgePartitioned> {
    Filter::open_on(media.clone(), options()).expect("a filter")
}

/// Ships what is durable.
async fn ship(store: &Store, media: &Arc<dyn Media>, take_over: bool) -> Shipper {
    let options = ShipOptions { take_over, ..ShipOptions::default() };
    let begun = Shipper::begin(store.clone(), media.clone(), options).await;
    let mut shipper = begun.expect("a shipper");
    shipper.round().await.expect("a round");
    shipper
}

/// Claims a key, and returns the token.
fn claim(filter: &Filter<AgePartitioned>, key: &str) -> u64 {
    match filter.claim(key, Duration::from_secs(3600)).expect("an answer") {
        Claim::Yours(lease) => lease.into_token(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_token_is_given_twice_although_a_claim_was_not_shipped_before_a_fail_over() {
    // Openings that have shipped nothing, and whether the fetch begins with a snapshot.
    for (openings, has_snapshot) in [(0, false), (0, true), (1, false), (5, true), (40, false)] {
        let objects = Arc::new(InMemory::new());
        let store = Store::of(objects, "orders/7", "memory:///orders/7");
        let mut media: Arc<dyn Media> = Arc::new(Memory::new());
        let spec = AgePartitioned::last(1000);
        let made = Filter::create_on(media.clone(), spec, options()).expect("a filter");
        made.insert("a key").expect("an insert");
        drop(made);
        let mut latest = 0;
        for machine in 0..4 {
            let mut filter = open(&media);
            let ship = ShipOptions { snapshot_log_bytes: 0, ..ShipOptions::default() };
            let begun = Shipper::begin(store.clone(), media.clone(), ship).await;
            let mut shipper = begun.expect("a shipper");
            if has_snapshot {
                filter.checkpoint().expect("a checkpoint");
            }
            let mut claimed = |filter: &Filter<AgePartitioned>, what: &str| {
                let token = claim(filter, &format!("{what}, after {latest}"));
                assert!(token > latest, "{openings} {has_snapshot} {what}: {token}, {latest}");
                latest = token;
            };
            claimed(&filter, "shipped");
            // Some machines are lost before they have shipped anything.
            if machine != 1 {
                filter.sync().expect("a sync");
            }
            shipper.round().await.expect("a round");
            claimed(&filter, "lost");
            for _ in 0..openings {
                drop(filter);
                filter = open(&media);
                claimed(&filter, "also lost");
            }
            let copy: Arc<dyn Media> = Arc::new(Memory::new());
            assemble(&store, copy.clone()).await.expect("a fetch");
            media = copy;
        }
    }
}

#[tokio::test]
async fn no_token_is_given_twice_although_a_machine_that_took_over_was_lost_with_its_claims() {
    let store = Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7");
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let spec = AgePartitioned::last(1000);
    let mut filter = Filter::create_on(media.clone(), spec, options()).expect("a filter");
    filter.insert("a key").expect("an insert");
    filter.checkpoint().expect("a checkpoint");
    let mut shipper = ship(&store, &media, false).await;
    let mut latest = 0;
    for machine in 0..4 {
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        assemble(&store, copy.clone()).await.expect("a fetch");
        // The copy lacks this, so that its shipper begins anew, with the snapshot that was fetched.
        filter.insert(format!("beside machine {machine}")).expect("an insert");
        shipper.round().await.expect("a round");
        filter = open(&copy);
        shipper = ship(&store, &copy, true).await;
        let token = claim(&filter, &format!("lost with machine {machine}"));
        assert!(token > latest, "{machine}: {token}, {latest}");
        latest = token;
    }
}

#[tokio::test]
async fn a_machine_that_wakes_up_is_fenced_also_if_the_one_after_it_has_shipped_nothing_yet() {
    for has_snapshot in [false, true] {
        let store = Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7");
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let spec = AgePartitioned::last(1000);
        let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter");
        filter.insert("a key").expect("an insert");
        if has_snapshot {
            filter.checkpoint().expect("a checkpoint");
        }
        drop(ship(&store, &media, false).await);
        let begin = async |media: &Arc<dyn Media>, take_over| {
            let options = ShipOptions { take_over, ..ShipOptions::default() };
            Shipper::begin(store.clone(), media.clone(), options).await
        };
        // The same machine may begin again.
        begin(&media, false).await.expect("a shipper");
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        assemble(&store, copy.clone()).await.expect("a fetch");
        let mut next = begin(&copy, false).await.expect("a shipper");
        let error = begin(&media, false).await.expect_err("another one has begun");
        assert!(error.is_fenced(), "{has_snapshot}: {error}");
        next.round().await.expect("nobody has begun after it");
        begin(&copy, false).await.expect("the newest one");
        begin(&media, true).await.expect("its operator wants that");
        assert!(begin(&copy, false).await.expect_err("and knows what follows").is_fenced());
    }
}
