//! A chain with a branch that nobody can fetch: reader and shipper agree on what is continued.

use crate::scripted::{Call, Scripted};
use crate::sentences::assert_says;
use ebbtide::history::At;
use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Bloom, Durability, Filter, Keep, Options, Reader};
use ebbtide_ship::{Error, Follower, ShipOptions, Shipper, Store, assemble, fetch, verify};
use ebbtide_testkit::crash::disk::CrashDisk;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;

fn options() -> Options {
    // A sync notes how far the log is durable, behind the records.
    let durability = Durability::Interval(Duration::from_secs(3600));
    Options::new().background(false).durability(durability).keep_log(Keep::Bytes(1 << 30))
}

fn store(objects: Arc<InMemory>) -> Store {
    Store::of(objects, "orders/7", "memory:///orders/7")
}

/// Returns a store that takes no snapshots: whoever ships there dies before the link of one.
fn without_snapshots(objects: &Arc<InMemory>) -> Store {
    let mut scripted = Scripted::new(|call| match call {
        Call::Put(path, _) if path.as_ref().contains("/snapshot/") => {
            let refused =
                object_store::Error::Generic { store: "scripted", source: "refused".into() };
            Box::pin(async { Err(refused) })
        }
        _ => Box::pin(async { Ok(()) }),
    });
    scripted.objects = objects.clone();
    Store::of(Arc::new(scripted), "orders/7", "scripted:///orders/7")
}

/// Inserts keys until this LSN is the next one.
fn insert_up_to(filter: &Filter<Bloom>, keys: u64, lsn: u64) {
    for key in 0.. {
        let next = filter.digest().expect("a digest").lsn;
        if next == lsn {
            return filter.sync().expect("a sync");
        }
        assert!(next < lsn, "{next} is beyond {lsn}");
        filter.insert((keys + key).to_le_bytes()).expect("an insert");
    }
}

async fn ship(store: &Store, disk: &CrashDisk, take_over: bool) -> Shipper {
    let options = ShipOptions { take_over, ..ShipOptions::default() };
    let begun = Shipper::begin(store.clone(), Arc::new(disk.clone()), options).await;
    begun.expect("a shipper")
}

#[tokio::test]
async fn a_branch_without_a_snapshot_that_ends_at_the_same_lsn_is_not_continued() {
    // Whether the branch ends where the chain does, or before or behind it.
    for end in [1000, 999, 1001] {
        let objects = Arc::new(InMemory::new());
        let (sound, disk) = (store(objects.clone()), CrashDisk::new());
        let spec = Bloom::capacity(10_000);
        let filter = Filter::create_on(Arc::new(disk.clone()), spec, options()).expect("a filter");
        insert_up_to(&filter, 0, 500);
        filter.checkpoint().expect("a snapshot");
        let restored = disk.without_process();
        let mut shipper = ship(&sound, &disk, false).await;
        insert_up_to(&filter, 1 << 20, 1000);
        shipper.round().await.expect("a round");
        assert_eq!(shipper.confirmed(), 1000);
        let mut follower = Follower::begin(sound.clone(), Duration::MAX).await.expect("a copy");
        let other = Filter::<Bloom>::open_on(Arc::new(restored.clone()), options());
        let other = other.expect("as it was");
        let mut branch = ship(&without_snapshots(&objects), &restored, true).await;
        insert_up_to(&other, 1 << 30, end);
        branch.round().await.expect_err("no snapshot");
        assert!(branch.is_pending());
        follower.look().await.expect("links");
        // Its operator knows that the branch is given up.
        let mut shipper = ship(&sound, &disk, true).await;
        insert_up_to(&filter, 1 << 21, 1100);
        shipper.round().await.expect("a round");
        assert_eq!(shipper.confirmed(), 1100);
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        let fetched = assemble(&sound, copy.clone()).await.expect("a fetch");
        assert_eq!(fetched.lsn, shipper.confirmed(), "{end}");
        let own = filter.digest().expect("a digest").value;
        let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
        assert_eq!(copied.digest().expect("a digest").value, own);
        assert_eq!(verify(&sound, None).await.expect("sound").digest.value, own);
        follower.look().await.expect("links");
        let followed = follower.answers().ask(|copy| copy.digest()).expect("an answer");
        assert_eq!(followed.value, own);
    }
}

#[tokio::test]
async fn an_lsn_of_a_branch_that_a_take_over_has_discarded_is_never_fetched_from_it() {
    let store = store(Arc::new(InMemory::new()));
    let disk = CrashDisk::new();
    let spec = Bloom::capacity(10_000);
    let filter = Filter::create_on(Arc::new(disk.clone()), spec, options()).expect("a filter");
    insert_up_to(&filter, 0, 500);
    filter.checkpoint().expect("a snapshot");
    let restored = disk.without_process();
    let mut shipper = ship(&store, &disk, false).await;
    insert_up_to(&filter, 1 << 20, 1000);
    shipper.round().await.expect("a round");
    let parent = tempfile::tempdir().expect("a directory");
    let fetched = async |lsn, name: &str| {
        let dir = parent.path().join(name);
        fetch(&store, &dir, Some(At::Lsn(lsn))).await?;
        let copy = Reader::<Any>::open(&dir, Options::new()).expect("a reader");
        Ok::<_, Error>(copy.digest().expect("a digest").value)
    };
    let old = fetched(800, "old").await.expect("it is kept");
    let other = Filter::<Bloom>::open_on(Arc::new(restored.clone()), options());
    let other = other.expect("as it was");
    let mut branch = ship(&store, &restored, true).await;
    // Until the other branch has a base, this one is the filter.
    assert_eq!(fetched(800, "pending").await.expect("it is kept"), old);
    insert_up_to(&other, 1 << 30, 700);
    branch.round().await.expect("a round");
    assert_eq!(branch.confirmed(), 700);
    let error = fetched(800, "discarded").await.expect_err("not shipped yet");
    assert_says(&error, &["the log of lsn:800", "taken over", "from LSN ", "ask for an LSN below"]);
    let found = fetched(699, "new").await.expect("it is kept");
    assert_eq!(found, other.digest().expect("a digest").value);
    insert_up_to(&other, 1 << 31, 1000);
    branch.round().await.expect("a round");
    assert_ne!(fetched(800, "shipped").await.expect("it is kept"), old);
}
