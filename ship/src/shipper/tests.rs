//! What a shipper has read and not shipped.

use super::*;
use crate::assemble;
use crate::chain::{base_hints, read_link};
use ebbtide::history::Unlogged;
use ebbtide::media::{Access, ByteLocks, MediaFile, Memory};
use ebbtide::{
    AgePartitioned, Any, Downtime, Durability, Filter, Keep, Options, Reader, TimeLimited,
};
use ebbtide_testkit::failing::Failing;
use object_store::memory::InMemory;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::thread::{ThreadId, current};

type Hook = Box<dyn FnMut() -> io::Result<()> + Send>;

/// A filter's medium as its shipper sees it: something else happens before its files are listed.
#[derive(Clone)]
struct Hooked {
    inner: Memory,
    before_list: Arc<Mutex<Option<Hook>>>,
    /// The threads that open files.
    opened: Arc<Mutex<Vec<ThreadId>>>,
    /// A file that the disk cannot read.
    unreadable: Arc<Mutex<Option<String>>>,
}

impl Hooked {
    fn new() -> Self {
        let (inner, before_list) = (Memory::new(), Arc::default());
        Self { inner, before_list, opened: Arc::default(), unreadable: Arc::default() }
    }

    /// Sets what happens when the files are listed this often from now on.
    fn at_list(&self, number: u32, then: impl FnOnce() -> io::Result<()> + Send + 'static) {
        let (mut left, mut then) = (number, Some(then));
        let hook = move || {
            left = u32::saturating_sub(left, 1);
            then.take_if(|_| left == 0).map_or(Ok(()), |then| then())
        };
        *self.before_list.lock().expect("no panic") = Some(Box::new(hook));
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Media for Hooked {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn make(&self) -> io::Result<()> {
        self.inner.make()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        if let Some(hook) = &mut *self.before_list.lock().expect("no panic") {
            hook()?;
        }
        self.inner.list()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        self.inner.create(name, bytes)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        self.opened.lock().expect("no panic").push(current().id());
        if self.unreadable.lock().expect("no panic").as_deref() == Some(name) {
            // EIO.
            return Err(io::Error::from_raw_os_error(5));
        }
        self.inner.open(name, access)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        self.inner.locks(name, access)
    }

    fn boot_id(&self) -> io::Result<u128> {
        self.inner.boot_id()
    }
}

fn store() -> Store {
    Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7")
}

fn filter(media: Memory, keep: Keep) -> Filter<AgePartitioned> {
    // Small segments, so that checkpoints remove log.
    let options = Options::new().durability(Durability::Always).keep_log(keep).segment_bytes(4096);
    let filter = Filter::create_on(Arc::new(media), AgePartitioned::last(1000), options);
    filter.expect("a filter")
}

async fn begin(store: &Store, media: impl Media + 'static) -> Result<Shipper> {
    let options = ShipOptions { snapshot_log_bytes: 1000, ..ShipOptions::default() };
    Shipper::begin(store.clone(), Arc::new(media), options).await
}

/// Creates a filter whose log is kept, and begins to ship it.
async fn shipped(store: &Store) -> (Filter<AgePartitioned>, Shipper) {
    let media = Memory::new();
    let filter = filter(media.clone(), Keep::Bytes(1 << 30));
    (filter, begin(store, media).await.expect("a shipper"))
}

fn insert(filter: &Filter<AgePartitioned>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
}

fn alter(filter: &Filter<AgePartitioned>, window: u64) {
    let altered = filter.alter(AgePartitioned::last(window), Unlogged::Forget);
    altered.expect("an alteration");
}

/// Returns the digest of what is fetched.
async fn fetched(store: &Store) -> u128 {
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(store, copy.clone()).await.expect("a fetch");
    let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
    copied.digest().expect("a digest").value
}

/// Returns kept log or none, each with the number of a list at which something happens.
fn cases() -> impl Iterator<Item = (Keep, u32)> {
    [Keep::Nothing, Keep::Bytes(1 << 30)]
        .into_iter()
        .flat_map(|keep| (1..12).map(move |at| (keep, at)))
}

fn digest_of(filter: &Filter<AgePartitioned>) -> u128 {
    filter.digest().expect("a digest").value
}

#[tokio::test]
async fn a_snapshot_that_an_alteration_writes_during_a_round_waits_for_its_beginning() {
    let store = store();
    let (filter, mut shipper) = shipped(&store).await;
    insert(&filter, 0..100);
    let before = digest_of(&filter);
    // A round during which the filter is altered.
    shipper.check_origin().await.expect("as it was");
    alter(&filter, 2000);
    shipper.ship_log(LINKS, false).await.expect("the log from before");
    shipper.ship_snapshot(true).await.expect("no snapshot of that log");
    assert_eq!(fetched(&store).await, before);
    shipper.round().await.expect("a round");
    assert_eq!(fetched(&store).await, digest_of(&filter));
}

#[tokio::test]
async fn what_was_read_before_an_alteration_and_not_shipped_is_forgotten() {
    for is_held in [false, true] {
        let store = store();
        let (filter, mut shipper) = shipped(&store).await;
        insert(&filter, 0..100);
        shipper.read_pieces().expect("the log");
        assert!(shipper.read.is_some());
        if is_held {
            // As after a put that has failed.
            shipper.held = shipper.read.take();
        }
        alter(&filter, 2000);
        insert(&filter, 100..200);
        for _ in 0..2 {
            shipper.round().await.expect("a round");
        }
        assert_eq!(fetched(&store).await, digest_of(&filter), "held: {is_held}");
    }
}

#[tokio::test]
async fn an_alteration_that_could_not_be_read_at_once_is_shipped_by_a_later_round() {
    for (keep, number) in cases() {
        let (store, media) = (store(), Hooked::new());
        let filter = filter(media.inner.clone(), keep);
        let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
        insert(&filter, 0..100);
        shipper.round().await.expect("a round");
        insert(&filter, 100..200);
        shipper.check_origin().await.expect("as it was");
        alter(&filter, 2000);
        media.at_list(number, || Err(io::Error::other("it fails once")));
        let _ = shipper.ship_log(LINKS, false).await;
        insert(&filter, 200..300);
        // One of them may fail.
        for _ in 0..3 {
            let _ = shipper.round().await;
        }
        shipper.round().await.expect("a round");
        assert_eq!(fetched(&store).await, digest_of(&filter), "{keep:?}, list {number}");
    }
}

#[tokio::test]
async fn too_many_open_files_too_little_memory_and_a_full_disk_pass_and_a_bad_disk_does_not() {
    // EMFILE, ENFILE, ENOMEM, ENOSPC, EDQUOT; EIO.
    for (code, may_pass) in
        [(24, true), (23, true), (12, true), (28, true), (122, true), (5, false)]
    {
        let (store, media) = (store(), Hooked::new());
        let filter = filter(media.inner.clone(), Keep::Nothing);
        let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
        insert(&filter, 0..100);
        media.at_list(1, move || Err(io::Error::from_raw_os_error(code)));
        let error = shipper.round().await.expect_err("it fails once");
        assert_eq!(error.is_transient(), may_pass, "{error}");
        shipper.round().await.expect("a round");
        assert_eq!(fetched(&store).await, digest_of(&filter));
        let error = crate::files::io("write", Path::new("x"), &io::Error::from_raw_os_error(code));
        assert_eq!(error.is_transient(), may_pass, "{error}");
    }
}

#[tokio::test]
async fn a_shipper_begins_while_the_filter_is_altered() {
    for (keep, number) in cases() {
        for (is_shipped, is_altered) in [(false, false), (true, false), (true, true)] {
            let (store, media) = (store(), Hooked::new());
            let filter = Arc::new(filter(media.inner.clone(), keep));
            insert(&filter, 0..100);
            let before = digest_of(&filter);
            if is_shipped {
                let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
                shipper.round().await.expect("a round");
            }
            if is_altered {
                alter(&filter, 1500);
            }
            let altered = filter.clone();
            media.at_list(number, move || {
                alter(&altered, 2000);
                Ok(())
            });
            let begun = begin(&store, media.clone()).await;
            *media.before_list.lock().expect("no panic") = None;
            let case = format!("{keep:?}, {is_shipped}, {is_altered}, list {number}");
            let mut shipper = begun.unwrap_or_else(|error| panic!("{case}: {error}"));
            if is_shipped {
                assert_eq!(fetched(&store).await, before, "{case}");
            }
            for _ in 0..2 {
                shipper.round().await.unwrap_or_else(|error| panic!("{case}: {error}"));
            }
            assert_eq!(fetched(&store).await, digest_of(&filter), "{case}");
        }
    }
}

#[tokio::test]
async fn a_damaged_snapshot_is_read_once_and_beside_the_thread_that_ships() {
    let (store, media) = (store(), Hooked::new());
    let filter = filter(media.inner.clone(), Keep::Nothing);
    let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
    insert(&filter, 0..100);
    filter.checkpoint().expect("a checkpoint");
    let snapshot = snapshots_on(&media).expect("a list").remove(0);
    let file = media.inner.open(&snapshot.name, Access::Write).expect("a snapshot");
    file.write_at(&[0x5a; 8], 5000).expect("damage");
    let mut failures = Vec::new();
    for _ in 0..2 {
        media.opened.lock().expect("no panic").clear();
        let error = shipper.round().await.expect_err("damage");
        let elsewhere = |id: &&ThreadId| **id != current().id();
        let reads = media.opened.lock().expect("no panic").iter().filter(elsewhere).count();
        failures.push((error.to_string(), error.is_transient(), reads));
    }
    let (text, ..) = &failures[0];
    assert_eq!(failures, [(text.clone(), true, 1), (text.clone(), true, 0)]);
    insert(&filter, 100..200);
    filter.checkpoint().expect("another one");
    assert!(shipper.round().await.expect("a round").snapshot_bytes > 0);
    assert_eq!(fetched(&store).await, digest_of(&filter));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_has_failed_is_not_uploaded_again_at_once_unless_the_round_waits_for_it() {
    let (store, media) = (store(), Failing::new(Memory::new()));
    let filter = filter(media.inner().clone(), Keep::Nothing);
    let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
    insert(&filter, 0..100);
    shipper.round().await.expect("the log");
    filter.checkpoint().expect("a checkpoint");
    // So that a round ships the log up to the snapshot's end: a note alone waits.
    insert(&filter, 100..101);
    shipper.round_of(LINKS, Wait::Never).await.expect("it begins");
    // Otherwise nothing ends.
    assert!(shipper.is_uploading());
    media.fail_after(1, io::ErrorKind::OutOfMemory);
    shipper.uploaded().await;
    let error = shipper.round_of(LINKS, Wait::Never).await.expect_err("it has failed");
    assert!(error.is_transient(), "{error}");
    shipper.round_of(LINKS, Wait::Never).await.expect("a round");
    assert!(!shipper.is_uploading() && shipper.has_failed_upload());
    assert!(shipper.round().await.expect("a round").snapshot_bytes > 0);
    assert_eq!(fetched(&store).await, digest_of(&filter));
}

#[tokio::test]
async fn a_last_round_ships_a_snapshot_only_if_nothing_is_fetched_without_it() {
    let store = store();
    let (filter, mut shipper) = shipped(&store).await;
    insert(&filter, 0..100);
    filter.checkpoint().expect("a checkpoint");
    for key in 100..102 {
        insert(&filter, key..key + 1);
        let round = shipper.round_of(LINKS, Wait::IfNeeded).await.expect("a round");
        assert!(round.links > 0 && round.snapshot_bytes == 0, "{round:?}");
        assert!(!shipper.is_uploading());
        assert_eq!(fetched(&store).await, digest_of(&filter));
    }
    alter(&filter, 2000);
    let round = shipper.round_of(LINKS, Wait::IfNeeded).await.expect("a round");
    assert!(round.snapshot_bytes > 0 && !shipper.is_pending(), "{round:?}");
    assert_eq!(fetched(&store).await, digest_of(&filter));
}

#[tokio::test]
async fn a_last_round_puts_the_link_of_a_snapshot_that_is_uploaded() {
    let store = store();
    let (filter, mut shipper) = shipped(&store).await;
    insert(&filter, 0..100);
    filter.checkpoint().expect("a checkpoint");
    shipper.round_of(LINKS, Wait::Never).await.expect("it begins");
    assert!(shipper.is_uploading());
    shipper.uploaded().await;
    insert(&filter, 100..101);
    let round = shipper.round_of(LINKS, Wait::IfNeeded).await.expect("a round");
    assert!(round.snapshot_bytes > 0, "{round:?}");
    assert_eq!(fetched(&store).await, digest_of(&filter));
}

#[tokio::test]
async fn what_a_round_has_put_before_it_failed_is_counted() {
    let (store, media) = (store(), Memory::new());
    let filter = filter(media.clone(), Keep::Nothing);
    let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
    insert(&filter, 0..100);
    filter.checkpoint().expect("a checkpoint");
    let snapshot = snapshots_on(&media).expect("a list").remove(0);
    let file = media.open(&snapshot.name, Access::Write).expect("a snapshot");
    file.write_at(&[0x5a; 8], 5000).expect("damage");
    let before = shipper.total();
    shipper.round().await.expect_err("damage");
    let shipped = shipper.total().since(before);
    assert_eq!((shipped.links, shipped.snapshot_bytes), (1, 0));
    assert!(shipped.log_bytes >= 100 * RECORD_BYTES, "{shipped:?}");
}

#[tokio::test]
async fn a_shipper_that_begins_with_a_gap_counts_it_and_has_confirmed_what_is_fetched() {
    let (store, media) = (store(), Memory::new());
    let filter = filter(media.clone(), Keep::Nothing);
    let mut first = begin(&store, media.clone()).await.expect("a shipper");
    insert(&filter, 0..100);
    first.round().await.expect("a round");
    let (before, confirmed) = (digest_of(&filter), first.confirmed());
    drop(first);
    for round in 1..9 {
        insert(&filter, round * 200..(round + 1) * 200);
        filter.checkpoint().expect("a checkpoint");
    }
    let mut second = begin(&store, media).await.expect("another one");
    assert_eq!((second.gaps(), second.confirmed(), second.is_pending()), (1, confirmed, true));
    assert_eq!(fetched(&store).await, before);
    second.round().await.expect("a round");
    assert_eq!((second.gaps(), second.is_pending()), (1, false));
    assert_eq!(fetched(&store).await, digest_of(&filter));
}

#[test]
fn a_snapshot_whose_runtime_has_ended_is_begun_again() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (store, media) = (store(), Memory::new());
    let filter = filter(media.clone(), Keep::Nothing);
    let mut shipper = runtime().block_on(begin(&store, media)).expect("a shipper");
    insert(&filter, 0..100);
    filter.checkpoint().expect("a checkpoint");
    for wait in [Wait::Never, Wait::Never, Wait::Always] {
        let round = runtime().block_on(shipper.round_of(LINKS, wait)).expect("a round");
        assert_eq!(round.snapshot_bytes > 0, wait == Wait::Always);
    }
    assert_eq!(runtime().block_on(fetched(&store)), digest_of(&filter));
}

#[tokio::test]
async fn a_shipper_that_has_shipped_nothing_is_continued_after_its_log_was_removed() {
    let (store, media) = (store(), Memory::new());
    let filter = filter(media.clone(), Keep::Nothing);
    drop(begin(&store, media.clone()).await.expect("a shipper"));
    for round in 0..8 {
        insert(&filter, round * 200..(round + 1) * 200);
        filter.checkpoint().expect("a checkpoint");
    }
    let mut shipper = begin(&store, media).await.expect("another one");
    shipper.round().await.expect("a round");
    assert_eq!(fetched(&store).await, digest_of(&filter));
}

#[tokio::test]
async fn a_restart_puts_back_no_hint_that_was_removed() {
    let (store, media) = (store(), Memory::new());
    let filter = filter(media.clone(), Keep::Bytes(1 << 30));
    let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
    insert(&filter, 0..100);
    filter.checkpoint().expect("a checkpoint");
    shipper.round().await.expect("a round");
    let first = base_hints(&store).await.expect("a list")[0].0;
    let (link, _) = read_link(&store, first).await.expect("read").expect("a link");
    // The third base needs a link before the first one, as if uploads had taken so long.
    for _ in 0..2 {
        shipper.put(link.content.clone()).await.expect("a put");
        shipper.round().await.expect("a round");
    }
    let before = base_hints(&store).await.expect("a list");
    let numbers: Vec<_> = before.iter().map(|&(number, _)| number).collect();
    assert_eq!(numbers, [first + 2, first + 1]);
    assert!(read_link(&store, first).await.expect("read").is_some());
    let mut shipper = begin(&store, media).await.expect("another one");
    shipper.round().await.expect("a round");
    assert_eq!(base_hints(&store).await.expect("a list"), before);
}

#[tokio::test]
async fn the_hint_of_the_newest_base_is_put_by_the_next_shipper() {
    let (store, media) = (store(), Memory::new());
    let filter = filter(media.clone(), Keep::Bytes(1 << 30));
    let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
    insert(&filter, 0..100);
    filter.checkpoint().expect("a checkpoint");
    shipper.round().await.expect("a round");
    let before = base_hints(&store).await.expect("a list");
    let newest = link_name(before[0].0);
    // As after a kill between the two puts.
    store.remove(Folder::Base, &[newest]).await.expect("a removal");
    let mut shipper = begin(&store, media).await.expect("another one");
    shipper.round().await.expect("a round");
    let numbers = |hints: Vec<(u64, i64)>| hints.into_iter().map(|(number, _)| number);
    let after = base_hints(&store).await.expect("a list");
    assert!(numbers(after).eq(numbers(before)));
}

#[tokio::test]
async fn what_follows_a_link_full_of_notes_of_the_engine_is_shipped() {
    let (store, media) = (store(), Memory::new());
    let options = Options::new().downtime(Downtime::Freeze);
    let spec = TimeLimited::window(Duration::from_secs(600)).rate(12.0);
    let filter = Filter::create_on(Arc::new(media.clone()), spec, options).expect("a filter");
    let mut shipper = begin(&store, media).await.expect("a shipper");
    shipper.link_bytes = 64;
    let lsn = || filter.stat().expect("figures").lsn;
    filter.insert("first").expect("an insert");
    let (before, begun) = (lsn(), std::time::Instant::now());
    // The heartbeats of an idle filter.
    while lsn() < before + 4 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no heartbeat: {} {before}", lsn());
        std::thread::sleep(Duration::from_millis(50));
        shipper.round().await.expect("a round");
    }
    filter.insert("behind them").expect("an insert");
    filter.sync().expect("a sync");
    for _ in 0..2 {
        shipper.round().await.expect("a round");
    }
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(&store, copy.clone()).await.expect("a fetch");
    let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
    assert!(copied.contains("behind them").expect("an answer"));
}

#[tokio::test]
async fn log_is_shipped_beside_a_snapshot_that_the_disk_cannot_read() {
    let (store, media) = (store(), Hooked::new());
    let filter = filter(media.inner.clone(), Keep::Nothing);
    let mut shipper = begin(&store, media.clone()).await.expect("a shipper");
    insert(&filter, 0..100);
    filter.checkpoint().expect("a checkpoint");
    let snapshot = snapshots_on(&media).expect("a list").remove(0);
    *media.unreadable.lock().expect("no panic") = Some(snapshot.name);
    for key in 100..102 {
        insert(&filter, key..key + 1);
        let round = shipper.round().await.expect("the log");
        assert!(round.links > 0 && round.snapshot_bytes == 0, "{round:?}");
        assert_eq!(fetched(&store).await, digest_of(&filter));
    }
    *media.unreadable.lock().expect("no panic") = None;
    assert!(shipper.round().await.expect("a round").snapshot_bytes > 0);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_alone_are_shipped_by_a_last_round_and_once_in_a_minute() {
    let (store, media) = (store(), Memory::new());
    let options = Options::new().downtime(Downtime::Freeze);
    let spec = TimeLimited::window(Duration::from_secs(600)).rate(12.0);
    let filter = Filter::create_on(Arc::new(media.clone()), spec, options).expect("a filter");
    let mut shipper = begin(&store, media).await.expect("a shipper");
    filter.insert("a key").expect("an insert");
    filter.sync().expect("a sync");
    shipper.round().await.expect("a round");
    for is_last in [false, true] {
        let (before, begun) = (shipper.confirmed(), std::time::Instant::now());
        while !shipper.read.as_ref().is_some_and(Piece::has_heartbeats) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no heartbeat: {before}");
            std::thread::sleep(Duration::from_millis(50));
            let round = shipper.round_of(LINKS, Wait::Never).await.expect("a round");
            assert_eq!(round.links, 0, "they wait");
        }
        let wait = if is_last { Wait::IfNeeded } else { Wait::Never };
        if !is_last {
            tokio::time::advance(HEARTBEATS).await;
        }
        assert_eq!(shipper.round_of(LINKS, wait).await.expect("a round").links, 1);
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        let lsn = assemble(&store, copy).await.expect("a fetch").lsn;
        assert!(lsn > before && lsn == shipper.confirmed(), "{lsn} {before}");
    }
}
