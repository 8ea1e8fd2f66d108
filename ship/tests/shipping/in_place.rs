//! Fetches into a directory that is there already: a mount point, or the target of a link, which
//! cannot be replaced. Whatever interrupts them, it is a whole filter or none.

use crate::copies::Source;
use crate::faulty::Client;
use crate::sentences::assert_says;
use ebbtide::history::At;
use ebbtide::{Any, Options, Reader};
use ebbtide_ship::{ShipOptions, Store, fetch, fetch_if_empty, promote};
use std::path::Path;
use std::sync::Arc;

fn store(client: Client) -> Store {
    Store::of(Arc::new(client), "filters/a", "faulty:///filters/a").upload_bytes(5000)
}

async fn source(seed: u64) -> Source {
    let mut source = Source::new(seed).await;
    for _ in 0..5 {
        source.write().await;
    }
    source
}

fn digest(dir: &Path) -> (u64, u128) {
    let reader = Reader::<Any>::open(dir, Options::new()).expect("a reader");
    let digest = reader.digest().expect("a digest");
    (digest.lsn, digest.value)
}

/// Copies a directory as it is now, which is what a kill leaves.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a list").map_while(Result::ok) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(std::fs::copy(&path, &to).expect("a copy")),
        }
    }
}

/// Returns the number by which a file system is known, and a file in it.
fn identity(dir: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(dir).expect("a directory");
    (found.dev(), found.ino())
}

#[tokio::test]
async fn a_directory_that_is_there_is_filled_and_not_replaced() {
    let source = source(13).await;
    let store = store(Client::sound(&source.server));
    let lsn = source.shipper.confirmed();
    for at in [None, Some(At::Lsn(lsn - 1))] {
        let parent = tempfile::tempdir().expect("a directory");
        let (real, link) = (parent.path().join("volume"), parent.path().join("seen"));
        // As a file system has it that was just made.
        std::fs::create_dir_all(real.join("lost+found")).expect("a directory");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        let before = identity(&real);
        let fetched = fetch(&store, &link, at).await.expect("a fetch");
        assert_eq!((fetched.lsn, identity(&real)), (lsn, before), "{at:?}");
        assert_eq!(digest(&link), (lsn, source.digest(lsn)), "{at:?}");
        assert!(link.is_symlink() && real.join("lost+found").exists(), "{at:?}");
        let names = std::fs::read_dir(parent.path()).expect("a list").map_while(Result::ok);
        assert_eq!(names.count(), 2, "nothing is left beside it");
        let error = fetch(&store, &link, at).await.expect_err("occupied");
        assert_says(&error, &["found a filter", "choose another directory"]);
        assert!(fetch_if_empty(&store, &link).await.expect("an answer").is_none());
    }
}

#[tokio::test]
async fn a_fetch_in_place_that_was_killed_at_any_call_is_repeated() {
    let source = source(13).await;
    let lsn = source.shipper.confirmed();
    for at in [None, Some(At::Lsn(lsn - 1))] {
        let mut kills = 0;
        for calls in 0.. {
            let parent = tempfile::tempdir().expect("a directory");
            let (dir, left) = (parent.path().join("first"), parent.path().join("left"));
            std::fs::create_dir(&dir).expect("a directory");
            let client = Client::faulty(&source.server, calls);
            let faulty = store(client.clone());
            let mut first = Box::pin(fetch(&faulty, &dir, at));
            if let Some(Ok(_)) = client.run(&mut first).await {
                break;
            }
            kills += 1;
            copy(&dir, &left);
            drop(first);
            for dir in [&dir, &left] {
                assert!(!dir.join("meta").exists(), "{calls}: it is no filter yet");
                let sound = store(Client::sound(&source.server));
                fetch(&sound, dir, at).await.expect("a fetch");
                assert_eq!(digest(dir), (lsn, source.digest(lsn)), "{calls}");
            }
        }
        assert!(kills > 3, "{kills}");
    }
}

#[tokio::test]
async fn what_a_fetch_cannot_be_made_in_is_refused_before_the_download_and_stays() {
    let source = source(13).await;
    // Its first call is its end.
    let client = Client::faulty(&source.server, 0);
    let (store, parent) = (store(client.clone()), tempfile::tempdir().expect("a directory"));
    let mine = parent.path().join("mine");
    std::fs::create_dir_all(mine.join("fetching")).expect("a directory");
    let fetched = client.run(fetch(&store, &mine, None)).await.expect("no call");
    assert_says(&fetched.expect_err("occupied"), &["mine", "found the file fetching"]);
    assert!(mine.join("fetching").exists());
    let dangling = parent.path().join("dangling");
    std::os::unix::fs::symlink(parent.path().join("none"), &dangling).expect("a link");
    let fetched = client.run(fetch(&store, &dangling, None)).await.expect("no call");
    assert_says(&fetched.expect_err("a link to nothing"), &["dangling"]);
}

#[tokio::test]
async fn of_two_fetches_into_a_directory_one_is_refused() {
    let source = source(13).await;
    for is_there in [false, true] {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        if is_there {
            std::fs::create_dir(&dir).expect("a directory");
        }
        let sound = store(Client::sound(&source.server));
        // It waits for an answer that never comes.
        let waiting = store(Client::faulty(&source.server, 0));
        let mut first = Box::pin(fetch(&waiting, &dir, None));
        for _ in 0..100 {
            tokio::select! {
                biased;
                fetched = &mut first => panic!("{fetched:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        let error = fetch(&sound, &dir, None).await.expect_err("another one runs");
        assert_says(&error, &["found a fetch that runs"]);
        drop(first);
        fetch(&sound, &dir, None).await.expect("a fetch");
        let lsn = source.shipper.confirmed();
        assert_eq!(digest(&dir), (lsn, source.digest(lsn)), "{is_there}");
    }
}

#[tokio::test]
async fn a_promotion_without_a_copy_killed_at_any_call_is_repeated_until_it_is_done() {
    for is_there in [false, true] {
        let mut kills = 0;
        for calls in 0.. {
            // Other faults each time: with the same ones it might never end.
            let mut source = source(13 + calls).await;
            let parent = tempfile::tempdir().expect("a directory");
            let dir = parent.path().join("new");
            if is_there {
                std::fs::create_dir(&dir).expect("a directory");
            }
            let client = Client::faulty(&source.server, calls);
            let faulty = store(client.clone());
            let mut first = Box::pin(promote(&faulty, &dir, ShipOptions::default()));
            let is_done = matches!(client.run(&mut first).await, Some(Ok(_)));
            let left = tempfile::tempdir().expect("a directory");
            copy(parent.path(), left.path());
            drop(first);
            let dir = left.path().join("new");
            let sound = store(Client::sound(&source.server));
            if !is_done {
                kills += 1;
                // What is shipped meanwhile is in the filter.
                let _ = source.shipper.round().await;
                promote(&sound, &dir, ShipOptions::default()).await.expect("promoted");
            }
            let (lsn, _) = digest(&dir);
            assert!(lsn >= source.shipper.confirmed(), "{calls}");
            source.filter.insert("one more").expect("an insert");
            source.filter.sync().expect("a sync");
            assert!(source.shipper.round().await.expect_err("fenced").is_fenced(), "{calls}");
            let again = promote(&sound, &dir, ShipOptions::default()).await;
            assert_says(&again.expect_err("it is done"), &["found a filter"]);
            if is_done {
                break;
            }
        }
        assert!(kills > 5, "{kills}");
    }
}
