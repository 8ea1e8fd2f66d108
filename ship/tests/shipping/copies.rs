//! A follower's copy in a directory: whatever it is killed in, it is a prefix, continues where it
//! was, and is promoted without what is there being downloaded again.

use crate::faulty::{Client, Server};
use crate::sentences::assert_says;
use ebbtide::history::{At, Unlogged};
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Any, Durability, Filter, Keep, Options, Reader};
use ebbtide_ship::{Error, Follower, ShipOptions, Shipper, Store, assemble, verify};
use ebbtide_testkit::environment::{SEED, number};
use ebbtide_testkit::random::Random;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::{MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Kills by default.
const KILLS: u64 = 150;
pub const LAG: Duration = Duration::from_secs(600);

pub fn options() -> Options {
    let durability = Durability::Interval(Duration::from_secs(3600));
    Options::new().durability(durability).keep_log(Keep::Bytes(1 << 30))
}

fn ship() -> ShipOptions {
    ShipOptions { snapshot_log_bytes: 10_000, ..ShipOptions::default() }
}

/// A filter whose shipper has no faults.
pub struct Source {
    pub server: Arc<Server>,
    media: Arc<dyn Media>,
    pub filter: Filter<AgePartitioned>,
    pub shipper: Shipper,
    random: Random,
}

impl Source {
    pub async fn new(seed: u64) -> Self {
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let filter = Filter::create_on(media.clone(), AgePartitioned::last(300), options());
        let server = Server::new(seed);
        let store = store(Client::sound(&server));
        let shipper = Shipper::begin(store, media.clone(), ship()).await.expect("begun");
        let (filter, random) = (filter.expect("a filter"), Random::new(seed));
        Self { server, media, filter, shipper, random }
    }

    /// Has another shipper begin, as after a restart.
    async fn restart(&mut self) {
        let (store, media) = (store(Client::sound(&self.server)), self.media.clone());
        self.shipper = Shipper::begin(store, media, ship()).await.expect("begun");
    }

    /// Returns the digest of the filter as of when the record of this LSN was next.
    pub fn digest(&self, lsn: u64) -> u128 {
        let then = Reader::<Any>::at_on(self.media.clone(), At::Lsn(lsn - 1), Options::new());
        then.expect("the moment").digest().expect("a digest").value
    }

    /// Writes and ships for a while.
    pub async fn write(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            for _ in 0..self.random.below(80) {
                self.filter.insert(self.random.below(5000).to_le_bytes()).expect("an insert");
            }
            match self.random.below(40) {
                0..8 => drop(self.filter.checkpoint().expect("a checkpoint")),
                8 => self.filter.clear().expect("a clear"),
                9 => {
                    let spec = AgePartitioned::last(300 + self.random.below(100));
                    self.filter.alter(spec, Unlogged::Forget).expect("an alteration");
                }
                _ => {}
            }
            self.filter.sync().expect("a sync");
            self.shipper.round().await.expect("a round");
        }
    }
}

pub fn store(client: Client) -> Store {
    Store::of(Arc::new(client), "filters/a", "faulty:///filters/a").upload_bytes(5000)
}

/// Returns the digest of what a store has.
async fn fetched(store: &Store) -> (u64, u128) {
    let memory: Arc<dyn Media> = Arc::new(Memory::new());
    let lsn = assemble(store, memory.clone()).await.expect("a whole copy").lsn;
    let reader = Reader::<Any>::open_on(memory, Options::new()).expect("a reader");
    (lsn, reader.digest().expect("a digest").value)
}

fn directory(dir: &Path) -> Store {
    Store::open(dir.to_str().expect("text")).expect("a store")
}

fn directory_objects(dir: &Path) -> LocalFileSystem {
    LocalFileSystem::new_with_prefix(dir).expect("a store")
}

async fn names(list: BoxStream<'static, object_store::Result<ObjectMeta>>) -> Vec<String> {
    let found: Vec<_> = list.try_collect().await.expect("a list");
    found.iter().map(|meta| meta.location.to_string()).collect()
}

fn has_base(dir: &Path) -> bool {
    std::fs::read_dir(dir.join("base")).is_ok_and(|mut names| names.next().is_some())
}

#[tokio::test]
async fn a_follower_killed_at_any_call_leaves_a_prefix_and_continues_to_the_end() {
    let seed = number("EBBTIDE_SEED").unwrap_or(SEED);
    let kills = number("EBBTIDE_KILLS").unwrap_or(KILLS);
    let (mut done, mut compared) = (0, 0);
    for world in 0.. {
        if done >= kills {
            break;
        }
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        let mut source = Source::new(seed.wrapping_add(world)).await;
        for _ in 0..25 {
            source.write().await;
            let client = Client::faulty(&source.server, source.random.below(60));
            let work = async {
                // Errors of the store pass.
                let mut follower = loop {
                    match Follower::begin_in(store(client.clone()), &dir, LAG).await {
                        Ok(follower) => break follower,
                        Err(error @ Error::Store { .. }) => drop(error),
                        // By a stale list.
                        Err(Error::Object { expected, .. })
                            if ["a fetch can begin", "because there is"]
                                .iter()
                                .any(|words| expected.contains(words)) => {}
                        Err(error) => panic!("seed {seed}: {error}"),
                    }
                };
                loop {
                    match follower.look().await {
                        Ok(_) | Err(Error::Store { .. }) => tokio::task::yield_now().await,
                        Err(error) => panic!("seed {seed}: {error}"),
                    }
                }
            };
            client.run(work).await.unwrap_or(());
            done += 1;
            if has_base(&dir) {
                let (lsn, digest) = fetched(&directory(&dir)).await;
                assert_eq!(digest, source.digest(lsn), "seed {seed}, world {world}: LSN {lsn}");
                compared += 1;
            }
        }
        // Without faults it comes to the end, with nothing but what is needed.
        let sound = store(Client::sound(&source.server));
        let mut follower = Follower::begin_in(sound, &dir, LAG).await.expect("a follower");
        follower.look().await.expect("a look");
        let reached = (follower.answers().next_lsn(), source.shipper.is_pending());
        let expected = (source.shipper.confirmed(), false);
        if reached != expected {
            println!("the place: {:?}", names(source.server.objects.list(None)).await);
            println!("the copy: {:?}", names(directory_objects(&dir).list(None)).await);
        }
        assert_eq!(reached, expected, "seed {seed}, world {world}");
        drop(follower);
        verify(&directory(&dir), None).await.expect("sound");
        let leftover = std::fs::read_dir(&dir).expect("a list").map_while(Result::ok);
        let leftover =
            leftover.filter(|entry| entry.file_name().to_string_lossy().starts_with("partial-"));
        assert!(leftover.count() <= 1, "seed {seed}: downloads are left");
    }
    println!("seed {seed}: {done} kills of a follower, {compared} copies compared");
    assert!(compared > 0, "nothing was compared");
}

#[tokio::test]
async fn a_follower_that_often_falls_behind_a_store_with_faults_catches_up_each_time() {
    for in_directory in [true, false] {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        let mut source = Source::new(8).await;
        source.write().await;
        let client = || store(Client::faulty(&source.server, u64::MAX));
        let mut follower = loop {
            let begun = match in_directory {
                // A follower that allows no lag answers nothing, and looks for removals each time.
                true => Follower::begin_in(client(), &dir, Duration::ZERO).await,
                false => Follower::begin(client(), LAG).await,
            };
            match begun {
                Ok(follower) => break follower,
                Err(error) => drop(error),
            }
        };
        let (mut looks, mut failures) = (0, 0);
        for round in 0..60 {
            for _ in 0..round % 7 {
                source.write().await;
            }
            let least = looks + 1000;
            while follower.answers().next_lsn() < source.shipper.confirmed() {
                failures += u32::from(follower.look().await.is_err());
                looks += 1;
                assert!(looks < least, "round {round}: it does not catch up");
            }
            let answers = follower.answers();
            let lsn = answers.next_lsn();
            if follower.look().await.is_ok() && answers.next_lsn() == lsn {
                let (lsn, digest) = match in_directory {
                    true => fetched(&directory(&dir)).await,
                    false => {
                        let found = answers.ask(|reader| reader.digest()).expect("a digest");
                        (lsn, found.value)
                    }
                };
                assert_eq!(digest, source.digest(lsn), "round {round}");
            }
        }
        assert!(failures > 10, "{failures} of {looks} looks failed");
    }
}

/// Follows into a directory, and ends.
pub async fn follow(source: &Source, dir: &Path) {
    let store = store(Client::sound(&source.server));
    let mut follower = Follower::begin_in(store, dir, LAG).await.expect("a follower");
    follower.look().await.expect("a look");
    assert_eq!(follower.answers().next_lsn(), source.shipper.confirmed());
}

#[tokio::test]
async fn what_a_copy_cannot_be_is_said_in_one_sentence() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut source = Source::new(3).await;
    source.write().await;
    let place = || store(Client::sound(&source.server));
    let running = Follower::begin_in(place(), &dir, LAG).await.expect("a follower");
    let error = Follower::begin_in(place(), &dir, LAG).await.expect_err("two");
    assert_says(&error, &["found a follower that runs", "choose another directory"]);
    drop(running);
    let other = Store::of(Arc::new(Client::sound(&source.server)), "b", "faulty:///b");
    let error = Follower::begin_in(other, &dir, LAG).await.expect_err("another place");
    assert_says(&error, &["found a copy of faulty:///filters/a"]);
    let error = Follower::begin(directory(&dir), LAG).await.expect_err("a copy of a copy");
    assert_says(&error, &["a follower's copy of faulty:///filters/a", "use that place"]);
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    drop(Filter::create_on(media.clone(), AgePartitioned::last(9), options()));
    let begun = Shipper::begin(directory(&dir), media, ShipOptions::default()).await;
    assert_says(&begun.expect_err("a copy"), &["expected the place of a shipper"]);
    std::fs::create_dir(parent.path().join("mine")).expect("a directory");
    std::fs::write(parent.path().join("mine/notes.txt"), "mine").expect("a file");
    let mine = Follower::begin_in(place(), parent.path().join("mine"), LAG).await;
    assert_says(&mine.expect_err("occupied"), &["notes.txt", "expected an empty directory"]);
    let error = Reader::<Any>::open(&dir, Options::new()).expect_err("no filter yet");
    assert!(error.to_string().contains("filter"), "{error}");
}

#[tokio::test]
async fn a_copy_is_never_thrown_away_for_a_place_that_has_less() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut source = Source::new(4).await;
    for _ in 0..5 {
        source.write().await;
    }
    follow(&source, &dir).await;
    let before = fetched(&directory(&dir)).await;
    let objects = &source.server.objects;
    let all: Vec<_> = objects.list(None).try_collect().await.expect("a list");
    for object in all {
        objects.delete(&object.location).await.expect("a removal");
    }
    let place = store(Client::sound(&source.server));
    let error = Follower::begin_in(place, &dir, LAG).await.expect_err("nothing there");
    assert_says(&error, &["the link that was copied from there", "found none", "keep this copy"]);
    assert_eq!(fetched(&directory(&dir)).await, before);
}

#[tokio::test]
async fn a_follower_that_slept_until_its_links_were_removed_takes_the_newest_base() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut source = Source::new(5).await;
    source.write().await;
    follow(&source, &dir).await;
    for _ in 0..40 {
        source.write().await;
    }
    follow(&source, &dir).await;
    verify(&directory(&dir), None).await.expect("sound");
}

#[tokio::test]
async fn what_holds_the_secret_seed_is_of_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().expect("a directory");
    let mut source = Source::new(15).await;
    source.write().await;
    let below = parent.path().join("below");
    let (copy, place, there) = (below.join("copy"), below.join("place"), below.join("there"));
    follow(&source, &copy).await;
    let store = Store::open(place.to_str().expect("text")).expect("a place");
    drop(store);
    std::fs::create_dir(&there).expect("a directory");
    let mode = |dir: &Path| std::fs::metadata(dir).expect("it is there").permissions().mode();
    let before = mode(&there);
    Store::open(there.to_str().expect("text")).expect("a place");
    assert_eq!((mode(&copy) & 0o077, mode(&place) & 0o077), (0, 0));
    assert_eq!(mode(&there), before, "what is there stays as it is");
}

/// Returns whether the place has a link.
async fn has_link(source: &Source, number: u64) -> bool {
    let path = object_store::path::Path::from(format!("filters/a/chain/{number:020}"));
    source.server.objects.head(&path).await.is_ok()
}

/// Returns the number of the newest link.
async fn newest(source: &Source) -> u64 {
    let prefix = object_store::path::Path::from("filters/a/chain");
    let newest = names(source.server.objects.list(Some(&prefix))).await.into_iter().max();
    let newest = newest.expect("links");
    newest.rsplit('/').next().expect("a name").parse().expect("a number")
}

#[tokio::test]
async fn links_that_were_removed_unread_are_not_taken_for_the_end_of_the_chain() {
    for (in_directory, is_beginning) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let parent = tempfile::tempdir().expect("a directory");
        let mut source = Source::new(9).await;
        source.write().await;
        if is_beginning {
            source.restart().await;
        }
        let place = store(Client::sound(&source.server));
        let begun = match in_directory {
            true => Follower::begin_in(place, parent.path().join("new"), LAG).await,
            false => Follower::begin(place, LAG).await,
        };
        let mut follower = begun.expect("a follower");
        let next = newest(&source).await + 1;
        source.write().await;
        while has_link(&source, next).await {
            source.write().await;
        }
        assert_eq!(has_link(&source, next - 1).await, is_beginning, "it is never removed");
        follower.look().await.expect("a look");
        let found = follower.answers().next_lsn();
        assert_eq!(found, source.shipper.confirmed(), "{in_directory}, {is_beginning}");
    }
}

#[tokio::test]
async fn a_copy_has_the_snapshot_to_which_a_fetch_goes_after_a_restart_of_the_shipper() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut source = Source::new(11).await;
    source.write().await;
    let place = store(Client::sound(&source.server));
    let mut follower = Follower::begin_in(place, &dir, LAG).await.expect("a follower");
    // All of it comes at once: the alteration, its snapshot, a restart, and another snapshot.
    source.filter.alter(AgePartitioned::last(333), Unlogged::Forget).expect("an alteration");
    source.filter.insert("altered").expect("an insert");
    source.filter.sync().expect("a sync");
    source.shipper.round().await.expect("a round");
    source.restart().await;
    let begun = newest(&source).await;
    for key in 0..1000_u64 {
        source.filter.insert((8000 + key).to_le_bytes()).expect("an insert");
    }
    source.filter.checkpoint().expect("a checkpoint");
    source.shipper.round().await.expect("a round");
    assert!(newest(&source).await >= begun + 2, "log and a snapshot");
    follower.look().await.expect("a look");
    assert_eq!(follower.answers().next_lsn(), source.shipper.confirmed());
    let (lsn, digest) = fetched(&directory(&dir)).await;
    assert_eq!(digest, source.digest(lsn));
}

#[tokio::test]
async fn a_follower_that_starts_again_has_seen_the_end_before_it_answers() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut source = Source::new(10).await;
    source.write().await;
    follow(&source, &dir).await;
    source.filter.insert("one more").expect("an insert");
    source.filter.sync().expect("a sync");
    source.shipper.round().await.expect("a round");
    let place = store(Client::sound(&source.server));
    let follower = Follower::begin_in(place, &dir, LAG).await.expect("a follower");
    let found = follower.answers().ask(|reader| reader.contains("one more"));
    assert!(found.expect("an answer"));
}

#[tokio::test]
async fn a_damaged_copy_is_downloaded_again_where_it_is_damaged() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut source = Source::new(6).await;
    for _ in 0..10 {
        source.write().await;
    }
    follow(&source, &dir).await;
    for folder in ["chain", "snapshot"] {
        for entry in std::fs::read_dir(dir.join(folder)).expect("a list") {
            let path = entry.expect("an entry").path();
            let mut bytes = std::fs::read(&path).expect("a file");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&path, bytes).expect("a file");
        }
        follow(&source, &dir).await;
    }
    verify(&directory(&dir), None).await.expect("sound");
}

#[test]
fn a_directory_that_is_not_there_is_no_place_to_read_from_and_is_not_created() {
    let parent = tempfile::tempdir().expect("a directory");
    let mistyped = parent.path().join("mistyped");
    let path = mistyped.to_str().expect("text").to_owned();
    for url in [path.clone(), format!("file://{path}")] {
        assert!(Store::find(&url).expect("an answer").is_none());
        let error = Store::open_existing(&url).expect_err("refused");
        assert_says(&error, &[&url, "is not there", "correct the path"]);
        assert!(!mistyped.exists(), "{url}");
    }
    let error = Store::open_existing(&format!("{path}\u{1b}[31m\n")).expect_err("refused");
    assert_says(&error, &["mistyped\\u{1b}[31m\\n"]);
    directory(&mistyped);
    assert!(mistyped.is_dir(), "where a shipper may begin");
    assert!(Store::find(&path).expect("an answer").is_some());
    Store::open_existing(&path).expect("a store");
}

/// Returns the files below a directory, by their paths in it.
fn files_in(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["base", "chain", "snapshot"] {
        for entry in std::fs::read_dir(dir.join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            found.push(format!("{folder}/{}", name.to_str().expect("text")));
        }
    }
    found
}

#[tokio::test]
async fn what_a_killed_put_left_in_a_directory_is_removed_when_the_next_shipper_begins() {
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, place) = (parent.path().join("seen"), parent.path().join("store"));
    let filter =
        Filter::create(&dir, AgePartitioned::last(1000), Options::new()).expect("a filter");
    filter.insert("a").expect("an insert");
    filter.checkpoint().expect("a snapshot");
    let media: Arc<dyn Media> = Arc::new(ebbtide::media::Disk::new(&dir));
    let store = directory(&place);
    let begin = || Shipper::begin(store.clone(), media.clone(), ShipOptions::default());
    begin().await.expect("a shipper").round().await.expect("a round");
    let before = files_in(&place);
    // A put that ends with its process: neither finished nor aborted.
    let objects = directory_objects(&place);
    for name in ["chain/00000000000000000009", "base/00000000000000000009", "snapshot/x"] {
        let path = object_store::path::Path::from(name);
        let mut put = objects.put_multipart(&path).await.expect("a put");
        put.put_part(vec![7; 1000].into()).await.expect("a part");
        std::mem::forget(put);
    }
    let others = "snapshot/notes # of an operator";
    std::fs::write(place.join(others), "kept").expect("a file");
    assert_eq!(files_in(&place).len(), before.len() + 4, "they are there");
    begin().await.expect("a shipper").round().await.expect("a round");
    let after = files_in(&place);
    let is_left = |name: &&String| name.contains('#') && name.as_str() != others;
    assert_eq!(after.iter().find(is_left), None);
    assert!(after.contains(&others.to_owned()), "{after:?}");
    assert!(before.iter().all(|name| after.contains(name)), "{after:?}");
    std::fs::remove_file(place.join(others)).expect("removed");
    verify(&store, None).await.expect("a sound place");
}

#[tokio::test]
async fn files_of_others_in_the_folders_are_neither_links_nor_removed() {
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, place) = (parent.path().join("seen"), parent.path().join("store"));
    let filter =
        Filter::create(&dir, AgePartitioned::last(1000), Options::new()).expect("a filter");
    let media: Arc<dyn Media> = Arc::new(ebbtide::media::Disk::new(&dir));
    let store = directory(&place);
    let begin = || Shipper::begin(store.clone(), media.clone(), ShipOptions::default());
    begin().await.expect("a shipper").round().await.expect("a round");
    let others = ["0 notes", ".hidden", "00000000000000000001.old", "readme", "zzz"];
    let others = ["base", "chain", "snapshot"]
        .iter()
        .flat_map(|folder| others.map(|name| place.join(folder).join(name)));
    let others: Vec<_> = others.collect();
    std::fs::create_dir_all(place.join("snapshot")).expect("a folder");
    others.iter().for_each(|path| std::fs::write(path, "kept").expect("a file"));
    // Several bases, so that what is older is removed.
    for round in 0..4_u64 {
        for key in round * 5000..(round + 1) * 5000 {
            filter.insert(key.to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a snapshot");
        begin().await.expect("a shipper").round().await.expect("a round");
    }
    verify(&store, None).await.expect("a sound place");
    let copy = parent.path().join("copy");
    ebbtide_ship::fetch(&store, &copy, None).await.expect("a fetch");
    let copied = Filter::<AgePartitioned>::open(&copy, Options::new()).expect("a filter");
    assert!(copied.contains(19_999_u64.to_le_bytes()).expect("an answer"));
    for path in others {
        assert!(path.exists(), "{}", path.display());
    }
}
