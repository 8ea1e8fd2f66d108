//! A place in a directory that is away for a while, as when its file system is not mounted.

use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Durability, Filter, Options};
use ebbtide_ship::{Error, Follower, ShipOptions, Shipper, Store, Worker, fetch};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(3600);

fn options() -> Options {
    Options::new().durability(Durability::Always)
}

fn spec() -> AgePartitioned {
    AgePartitioned::last(1000)
}

/// Returns a directory for a test, a place in it, and where that is while it is away.
fn place() -> (TempDir, PathBuf, PathBuf) {
    let home = tempfile::tempdir().expect("a directory");
    let (place, away) = (home.path().join("place"), home.path().join("away"));
    (home, place, away)
}

fn store(place: &Path) -> Store {
    Store::open(place.to_str().expect("a name")).expect("a store")
}

#[tokio::test]
async fn a_directory_that_is_away_for_a_while_gets_every_link_once_it_is_back() {
    for has_another in [false, true] {
        let (home, place, away) = place();
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let options = options().background(false);
        let filter = Filter::create_on(media.clone(), spec(), options).expect("a filter");
        filter.insert("before").expect("an insert");
        let store = store(&place);
        let begun = Shipper::begin(store.clone(), media.clone(), ShipOptions::default()).await;
        let mut shipper = begun.expect("a shipper");
        shipper.round().await.expect("a round");
        let mut follower = Follower::begin(store.clone(), LONG).await.expect("a copy");
        let confirmed = shipper.confirmed();
        filter.insert("meanwhile").expect("an insert");
        fs::rename(&place, &away).expect("away");
        if has_another {
            fs::create_dir(&place).expect("a directory");
        }
        for _ in 0..3 {
            let error = shipper.round().await.expect_err("nowhere");
            assert!(error.is_transient() && error.to_string().contains("mount"), "{error}");
            let error = follower.look().await.expect_err("nothing is known");
            assert!(error.is_transient(), "{error}");
        }
        assert_eq!(shipper.confirmed(), confirmed);
        match has_another {
            true => fs::remove_dir(&place).expect("empty"),
            false => assert!(!place.exists()),
        }
        fs::rename(&away, &place).expect("back");
        shipper.round().await.expect("a round");
        follower.look().await.expect("a look");
        let copy = home.path().join("copy");
        let fetched = fetch(&store, &copy, None).await.expect("a fetch");
        assert_eq!(fetched.lsn, shipper.confirmed());
        let copy = Filter::<AgePartitioned>::open(&copy, Options::new()).expect("a filter");
        for key in ["before", "meanwhile"] {
            assert!(copy.contains(key).expect("an answer"), "{key}");
        }
    }
}

#[test]
fn a_filter_that_was_shipped_begins_no_chain_in_a_directory_that_has_none() {
    let (home, place, away) = place();
    let seen = home.path().join("seen");
    let filter = Filter::create(&seen, spec(), options()).expect("a filter");
    filter.insert("a key").expect("an insert");
    let start = || Worker::start(&seen, store(&place), ShipOptions::default(), LONG);
    let worker = start().expect("a worker");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    drop(worker);
    fs::rename(&place, &away).expect("away");
    let error = start().map(drop).expect_err("the place is away");
    assert!(matches!(error, Error::Refused { is_outdated: false, .. }), "{error}");
    assert!(error.to_string().contains("mount what has it"), "{error}");
    assert!(!place.join("chain").exists());
    fs::remove_dir_all(&place).expect("empty folders");
    fs::rename(&away, &place).expect("back");
    start().expect("it continues").flush(Duration::from_secs(60)).expect("shipped");
    // It is gone for good.
    fs::remove_dir_all(&place).expect("removed");
    fs::remove_file(seen.join("shipped")).expect("a file");
    start().expect("it begins anew").flush(Duration::from_secs(60)).expect("shipped");
}
