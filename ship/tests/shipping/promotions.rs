//! The promotion of a follower's copy: it downloads only what is missing, and whatever it is killed
//! in, no copy is lost.

use crate::copies::{LAG, Source, follow, options, store};
use crate::faulty::Client;
use crate::sentences::assert_says;
use ebbtide::{Any, Filter};
use ebbtide_ship::{Error, Follower, ShipOptions, following, promote};
use ebbtide_testkit::environment::{SEED, number};
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};

#[tokio::test]
async fn a_promotion_of_a_copy_downloads_only_what_is_missing_and_fences_the_writer() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut source = Source::new(1).await;
    for _ in 0..10 {
        source.write().await;
    }
    follow(&source, &dir).await;
    assert_eq!(following(&dir).expect("a mark").as_deref(), Some("faulty:///filters/a"));
    // No fetch is possible from here on: the snapshots are gone.
    let objects = &source.server.objects;
    let prefix = object_store::path::Path::from("filters/a/snapshot");
    let snapshots: Vec<_> = objects.list(Some(&prefix)).try_collect().await.expect("a list");
    assert!(!snapshots.is_empty());
    for snapshot in snapshots {
        objects.delete(&snapshot.location).await.expect("a removal");
    }
    for key in 0..100_u64 {
        source.filter.insert((7000 + key).to_le_bytes()).expect("an insert");
    }
    source.filter.sync().expect("a sync");
    source.shipper.round().await.expect("a round");
    let sound = store(Client::sound(&source.server));
    let promoted = promote(&sound, &dir, ShipOptions::default()).await.expect("promoted");
    assert_eq!(promoted.0.lsn, source.shipper.confirmed());
    assert_eq!(following(&dir).expect("no mark"), None);
    let filter = Filter::<Any>::open(&dir, options()).expect("the filter");
    assert!(filter.contains(7099_u64.to_le_bytes()).expect("an answer"));
    source.filter.insert("one more").expect("an insert");
    source.filter.sync().expect("a sync");
    assert!(source.shipper.round().await.expect_err("fenced").is_fenced());
}

#[tokio::test]
async fn a_copy_that_a_promotion_has_put_aside_is_neither_hidden_nor_removed() {
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, aside) = (parent.path().join("new"), parent.path().join("new.following"));
    let mut source = Source::new(1).await;
    source.write().await;
    follow(&source, &dir).await;
    let client = Client::faulty(&source.server, 0);
    let killed = client.run(promote(&store(client.clone()), &dir, ShipOptions::default())).await;
    assert!(!matches!(killed, Some(Ok(_))));
    assert!(aside.exists() && !dir.exists());
    let sound = || store(Client::sound(&source.server));
    let refused = Follower::begin_in(sound(), &dir, LAG).await.map(|_| ()).expect_err("refused");
    assert_says(&refused, &["`promote` continues it"]);
    assert!(!dir.exists());
    // As an earlier version left it: a new copy beside the one that was put aside.
    std::fs::rename(&aside, parent.path().join("kept")).expect("renamed");
    follow(&source, &dir).await;
    std::fs::rename(parent.path().join("kept"), &aside).expect("renamed");
    let refused = promote(&sound(), &dir, ShipOptions::default()).await.map(|_| ());
    assert_says(&refused.expect_err("refused"), &["new.following"]);
    assert!(aside.join("follow").exists() && dir.join("follow").exists());
    std::fs::remove_dir_all(&dir).expect("removed");
    promote(&sound(), &dir, ShipOptions::default()).await.expect("promoted");
    assert!(!aside.exists());
}

#[tokio::test]
async fn a_promotion_killed_at_any_call_is_repeated_until_it_is_done() {
    let seed = number("EBBTIDE_SEED").unwrap_or(SEED);
    for calls in 0..12 {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        let mut source = Source::new(seed.wrapping_add(calls)).await;
        for _ in 0..5 {
            source.write().await;
        }
        follow(&source, &dir).await;
        source.write().await;
        let client = Client::faulty(&source.server, calls);
        let sound = store(Client::sound(&source.server));
        let faulty = store(client.clone());
        let first = client.run(promote(&faulty, &dir, ShipOptions::default())).await;
        if !matches!(first, Some(Ok(_))) {
            assert!(following(&dir).expect("a mark").is_some(), "{calls}: {first:?}");
            promote(&sound, &dir, ShipOptions::default()).await.expect("promoted");
        }
        let filter = Filter::<Any>::open(&dir, options()).expect("the filter");
        assert!(filter.stat().expect("figures").lsn >= source.shipper.confirmed());
        drop(filter);
        let again = promote(&sound, &dir, ShipOptions::default()).await;
        assert!(matches!(again, Err(Error::Occupied { .. })), "it is done");
    }
}

#[tokio::test]
async fn a_promotion_killed_while_it_removes_its_copy_is_repeated_or_known_to_be_done() {
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, aside) = (parent.path().join("new"), parent.path().join("new.following"));
    let mut source = Source::new(1).await;
    source.write().await;
    follow(&source, &dir).await;
    let says = std::fs::read(dir.join("follow")).expect("a file");
    let sound = store(Client::sound(&source.server));
    promote(&sound, &dir, ShipOptions::default()).await.expect("promoted");
    assert!(!aside.exists());
    let leave = || {
        std::fs::create_dir(&aside).expect("a directory");
        std::fs::write(aside.join("follow"), &says).expect("a file");
    };
    // Killed before it has removed the mark.
    leave();
    std::fs::create_dir(dir.join("ebbtide.fetching")).expect("the mark");
    assert!(following(&dir).expect("a mark").is_some());
    promote(&sound, &dir, ShipOptions::default()).await.expect("promoted");
    assert!(!aside.exists() && !dir.join("ebbtide.fetching").exists());
    // Killed behind that.
    leave();
    let again = promote(&sound, &dir, ShipOptions::default()).await;
    assert!(matches!(again, Err(Error::Occupied { .. })), "it is done");
    assert!(!aside.exists() && following(&dir).expect("no mark").is_none());
    // Killed before it has removed the directory.
    std::fs::create_dir(&aside).expect("a directory");
    std::fs::rename(&dir, parent.path().join("moved")).expect("renamed");
    follow(&source, &dir).await;
    promote(&sound, &dir, ShipOptions::default()).await.expect("promoted");
    assert!(!aside.exists());
}
