//! Each thing that goes wrong is one sentence that names the object, what was expected, what was
//! found, and what to do.

use crate::scripted::Scripted;
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{AgePartitioned, Any, Durability, Filter, Options, Reader};
use ebbtide_ship::{Error, ShipOptions, Shipper, Store, assemble, fetch, fetch_if_empty, verify};
use ebbtide_testkit::random::Random;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use std::sync::Arc;

struct Shipped {
    objects: Arc<InMemory>,
    store: Store,
    media: Arc<dyn Media>,
    filter: Filter<AgePartitioned>,
    shipper: Shipper,
}

/// Ships a filter in some links and a snapshot.
async fn shipped() -> Shipped {
    let objects = Arc::new(InMemory::new());
    let store = Store::of(objects.clone(), "orders", "memory:///orders");
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let options = Options::new().durability(Durability::Always);
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), options);
    let filter = filter.expect("a filter");
    let ship = ShipOptions { snapshot_log_bytes: 1000, ..ShipOptions::default() };
    let shipper = Shipper::begin(store.clone(), media.clone(), ship).await.expect("a shipper");
    let mut shipped = Shipped { objects, store, media, filter, shipper };
    for round in 0..6_u64 {
        for key in 0..100 {
            shipped.filter.insert((round * 100 + key).to_le_bytes()).expect("an insert");
        }
        if round == 3 {
            shipped.filter.checkpoint().expect("a checkpoint");
        }
        shipped.shipper.round().await.expect("a round");
    }
    shipped
}

impl Shipped {
    fn path(number: u64) -> Path {
        Path::from(format!("orders/chain/{number:020}"))
    }

    async fn bytes(&self, number: u64) -> Vec<u8> {
        let found = self.objects.get(&Self::path(number)).await.expect("a link");
        found.bytes().await.expect("its bytes").to_vec()
    }

    async fn put(&self, number: u64, bytes: Vec<u8>) {
        self.objects.put(&Self::path(number), bytes.into()).await.expect("a put");
    }

    /// Writes as much as needs another snapshot, and one.
    fn checkpoint(&self) {
        for key in 1000..9000_u64 {
            self.filter.insert(key.to_le_bytes()).expect("an insert");
        }
        self.filter.checkpoint().expect("a checkpoint");
    }

    /// Checks that what is fetched is the filter.
    async fn assert_fetched(&self) {
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        assemble(&self.store, copy.clone()).await.expect("a fetch");
        let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
        let (own, found) = (self.filter.digest(), copied.digest());
        assert_eq!(own.expect("a digest").value, found.expect("a digest").value);
    }

    async fn fetch(&self) -> Error {
        assemble(&self.store, Arc::new(Memory::new())).await.expect_err("an error")
    }
}

/// Checks that a message has these words, and is one sentence.
pub fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[tokio::test]
async fn a_deleted_link_is_named_and_never_taken_for_the_end() {
    let shipped = shipped().await;
    shipped.objects.delete(&Shipped::path(6)).await.expect("a removal");
    let error = shipped.fetch().await;
    let object = "memory:///orders/chain/00000000000000000006";
    assert_says(&error, &[object, "expected a link", "found nothing", "--at"]);
    assert!(verify(&shipped.store, None).await.is_err());
}

#[tokio::test]
async fn a_damaged_link_is_named_wherever_a_byte_is_wrong() {
    let shipped = shipped().await;
    let sound = shipped.bytes(6).await;
    for at in [0, 20, sound.len() / 2, sound.len() - 45, sound.len() - 3] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        shipped.put(6, bytes).await;
        let error = shipped.fetch().await;
        assert_says(&error, &["chain/00000000000000000006", "expected", "found"]);
    }
    shipped.put(6, sound[..sound.len() / 2].to_vec()).await;
    assert_says(&shipped.fetch().await, &["chain/00000000000000000006", "digest"]);
    shipped.put(6, shipped.bytes(5).await).await;
    assert_says(&shipped.fetch().await, &["expected link 6", "found link 5"]);
}

#[tokio::test]
async fn a_shipper_that_begins_names_the_damaged_link_also_if_older_ones_were_removed() {
    let mut shipped = shipped().await;
    for round in 6..10_u64 {
        for key in 0..100 {
            shipped.filter.insert((round * 100 + key).to_le_bytes()).expect("an insert");
        }
        if round < 9 {
            shipped.filter.checkpoint().expect("a checkpoint");
        }
        shipped.shipper.round().await.expect("a round");
    }
    assert!(shipped.objects.head(&Shipped::path(2)).await.is_err(), "it is not needed");
    let mut newest = 3;
    while shipped.objects.head(&Shipped::path(newest + 1)).await.is_ok() || newest < 9 {
        newest += 1;
    }
    let mut bytes = shipped.bytes(newest).await;
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    shipped.put(newest, bytes).await;
    let begun = Shipper::begin(shipped.store, shipped.media, ShipOptions::default()).await;
    let object = format!("chain/{newest:020}: expected `digest");
    assert_says(&begun.expect_err("damage"), &[&object]);
}

#[tokio::test]
async fn a_second_shipper_of_a_directory_does_not_stop_its_writers() {
    let mut shipped = shipped().await;
    let (store, media) = (shipped.store.clone(), shipped.media.clone());
    let second = Shipper::begin(store, media, ShipOptions::default()).await;
    second.expect("another one").round().await.expect("a round");
    shipped.filter.insert("one more").expect("an insert");
    let error = shipped.shipper.round().await.expect_err("fenced");
    assert!(error.is_fenced() && matches!(error, Error::Fenced { is_here: true, .. }), "{error}");
    assert_says(&error, &["another shipper of this directory", "let only one of them run"]);
    assert!(!error.to_string().contains("stop the writers"), "{error}");
}

#[tokio::test]
async fn a_store_that_replaces_what_is_there_is_refused() {
    let mut store = Scripted::new(|_| Box::pin(async { Ok(()) }));
    store.replaces = true;
    let store = Store::of(Arc::new(store), "orders", "scripted:///orders");
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), AgePartitioned::last(1000), Options::new());
    drop(filter.expect("a filter"));
    let begun = Shipper::begin(store, media, ShipOptions::default()).await;
    let error = begun.expect_err("refused");
    assert!(!error.is_transient(), "{error}");
    assert_says(&error, &["scripted:///orders/chain/00000000000000000001", "If-None-Match"]);
}

#[tokio::test]
async fn a_damaged_snapshot_leaves_the_way_over_the_one_before_and_verify_names_it() {
    let shipped = shipped().await;
    let snapshots = futures::TryStreamExt::try_collect::<Vec<_>>(object_store::ObjectStore::list(
        &*shipped.objects,
        Some(&Path::from("orders/snapshot")),
    ));
    let snapshots = snapshots.await.expect("a list");
    assert_eq!(snapshots.len(), 1);
    let path = &snapshots[0].location;
    let found = shipped.objects.get(path).await.expect("a snapshot").bytes().await.expect("bytes");
    let mut bytes = found.to_vec();
    bytes[5000] ^= 1;
    // The other one has lost its last part, which is all of it.
    let cases = [(bytes, "digest of the part at byte 0"), (Vec::new(), "found a shorter one")];
    for (damaged, words) in cases {
        shipped.objects.put(path, damaged.into()).await.expect("a put");
        let fetched = assemble(&shipped.store, Arc::new(Memory::new())).await.expect("by the log");
        assert_eq!(fetched.lsn, shipped.shipper.confirmed());
        let error = verify(&shipped.store, None).await.expect_err("damage");
        assert_says(&error, &["snapshot/", words, "--at"]);
    }
}

/// Returns the name of the newest snapshot in a filter's directory.
fn newest_snapshot(media: &dyn Media) -> String {
    let names = media.list().expect("names").into_iter();
    names.filter(|name| name.starts_with("snap-")).max().expect("a snapshot")
}

#[tokio::test]
async fn a_snapshot_that_is_damaged_in_its_directory_is_not_shipped_and_log_is() {
    let mut shipped = shipped().await;
    shipped.checkpoint();
    let name = newest_snapshot(&*shipped.media);
    let file = shipped.media.open(&name, Access::Write).expect("the snapshot");
    let mut byte = [0];
    file.read_at(&mut byte, 5000).expect("a byte");
    file.write_at(&[byte[0] ^ 1], 5000).expect("a byte");
    for _ in 0..2 {
        let error = shipped.shipper.round().await.expect_err("damage");
        assert_says(&error, &[&name, "cannot ship", "at byte", "write another snapshot"]);
        assert!(error.is_transient(), "{error}");
        shipped.assert_fetched().await;
        shipped.filter.insert("one more").expect("an insert");
    }
    shipped.checkpoint();
    let round = shipped.shipper.round().await.expect("a round");
    assert!(round.snapshot_bytes > 0, "{round:?}");
    shipped.assert_fetched().await;
    verify(&shipped.store, None).await.expect("sound");
}

#[tokio::test]
async fn a_snapshot_that_was_damaged_when_it_was_shipped_leaves_the_way_over_the_one_before() {
    let mut shipped = shipped().await;
    shipped.checkpoint();
    let round = shipped.shipper.round().await.expect("a round");
    assert!(round.snapshot_bytes > 0, "{round:?}");
    let list = |folder: &str| {
        let prefix = Path::from(format!("orders/{folder}"));
        let objects = shipped.objects.clone();
        async move {
            let found = object_store::ObjectStore::list(&*objects, Some(&prefix));
            let found = futures::TryStreamExt::try_collect::<Vec<_>>(found).await;
            found.expect("a list").into_iter().map(|meta| meta.location).max().expect("an object")
        }
    };
    let (object, link) = (list("snapshot").await, list("chain").await);
    let found = shipped.objects.get(&object).await.expect("a snapshot").bytes().await;
    let mut bytes = found.expect("bytes").to_vec();
    let digest = |bytes: &[u8]| xxhash_rust::xxh3::xxh3_128(bytes);
    let before = digest(&bytes).to_le_bytes();
    bytes[5000] ^= 1;
    let after = digest(&bytes).to_le_bytes();
    shipped.objects.put(&object, bytes.into()).await.expect("a put");
    // With the right digests in the link, as if those were the bytes of the file.
    let number: u64 = link.filename().expect("a name").parse().expect("a number");
    let mut bytes = shipped.bytes(number).await;
    let at = bytes.windows(16).position(|found| found == before).expect("the digest");
    bytes[at..at + 16].copy_from_slice(&after);
    bytes.truncate(bytes.len() - 40);
    let sealed = digest(&bytes);
    bytes.extend_from_slice(format!("digest {sealed:032x}\n").as_bytes());
    shipped.put(number, bytes).await;
    shipped.assert_fetched().await;
    let parent = tempfile::tempdir().expect("a directory");
    let moment = ebbtide::history::At::Lsn(shipped.shipper.confirmed() - 1);
    let fetched = fetch(&shipped.store, parent.path().join("new"), Some(moment)).await;
    assert_eq!(fetched.expect("by the log").lsn, shipped.shipper.confirmed());
    let error = verify(&shipped.store, None).await.expect_err("damage");
    let name = object.filename().expect("a name");
    assert_says(&error, &["memory:///orders/snapshot/", name, "at byte", "--at"]);
}

#[tokio::test]
async fn a_place_whose_first_link_was_deleted_is_not_taken_for_an_empty_one() {
    let shipped = shipped().await;
    shipped.objects.delete(&Shipped::path(1)).await.expect("a removal");
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let fetched = fetch_if_empty(&shipped.store, &dir).await.expect("a fetch");
    assert_eq!(fetched.expect("a filter").lsn, shipped.shipper.confirmed());
    for hint in 1..12 {
        let _ = shipped.objects.delete(&Path::from(format!("orders/base/{hint:020}"))).await;
    }
    let other = parent.path().join("other");
    let error = fetch_if_empty(&shipped.store, &other).await.expect_err("a link is missing");
    assert_says(&error, &["chain/00000000000000000001", "expected a link", "found nothing"]);
    assert!(!other.exists());
}

#[test]
fn a_url_with_a_secret_is_refused_without_it() {
    for url in [
        "s3://KEY:SECRET@bucket/seen",
        "s3://SECRET@bucket/seen",
        "s3://KEY:SEC/SECRET@bucket/seen",
        "https://host/seen?sig=SECRET",
        "https://a:SECRET@host/seen?sig=SECRET",
    ] {
        let found = Store::find(url).map(|found| found.expect("no directory"));
        for opened in [Store::open(url), Store::open_existing(url), found] {
            let error = opened.expect_err("refused");
            assert!(!error.to_string().contains("SECRET"), "{error}");
            assert_says(&error, &["the setting `URL`", "/seen"]);
        }
    }
    let store = Store::open_with("s3://bucket/user@host", [("AWS_REGION", "us-east-1")]);
    store.expect("a name with @");
}

#[test]
fn a_url_that_says_more_than_a_place_is_refused_without_what_may_be_a_secret() {
    for url in ["s3://KEY:SEC#SECRET@bucket/seen", "s3://KEY:A@SEC#x@bucket/seen"] {
        let error = Store::open(url).expect_err("refused");
        assert!(!error.to_string().contains("SEC"), "{error}");
    }
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("seen").display().to_string();
    for place in ["s3://bucket/seen", &format!("file://{path}")] {
        for end in ["#a", "?a", "?a#b"] {
            let url = format!("{place}{end}");
            for opened in [Store::open(&url).map(Some), Store::find(&url)] {
                let error = opened.expect_err("two filters would share a place");
                assert_says(&error, &["the setting `URL`", "query and fragment", "/seen"]);
            }
        }
    }
    assert!(!parent.path().join("seen").exists());
    // In a name they are characters like others.
    Store::open(&format!("{path}#a")).expect("a directory");
    assert!(Store::find(&format!("file://{path}%23a")).expect("an answer").is_some());
}

#[test]
fn a_scheme_without_both_slashes_behind_it_is_not_taken_for_a_directory() {
    for url in [
        "s3:/bucket/seen",
        "s3:bucket/seen",
        "file:/seen",
        "file:on/seen",
        "a+b-c.1:/seen",
        "s3:/KEY:SECRET@bucket/seen",
    ] {
        for opened in [Store::open(url).map(Some), Store::find(url)] {
            let error = opened.expect_err("refused");
            assert!(!error.to_string().contains("SECRET"), "{error}");
            assert_says(&error, &["the setting `URL`", "`://`", "`./`", "/seen"]);
        }
    }
    for directory in ["./s3:/bucket/seen", "a b:/seen", "1s:/seen", ":/seen", "s4:bucket/seen"] {
        assert!(Store::find(directory).expect("an answer").is_none(), "{directory}");
    }
}

#[tokio::test]
async fn another_filters_prefix_is_refused_with_both_numbers() {
    let shipped = shipped().await;
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let other = Filter::create_on(media.clone(), AgePartitioned::last(1000), Options::new());
    drop(other.expect("another filter"));
    let begun = Shipper::begin(shipped.store.clone(), media, ShipOptions::default()).await;
    let error = begun.expect_err("refused");
    assert_says(
        &error,
        &["memory:///orders", "expected filter", "found filter", "a prefix of its own"],
    );
}

#[tokio::test]
async fn nothing_to_fetch_and_a_directory_that_is_not_empty_are_said() {
    let store = Store::of(Arc::new(InMemory::new()), "none", "memory:///none");
    let error = assemble(&store, Arc::new(Memory::new())).await.expect_err("nothing");
    assert_says(&error, &["memory:///none", "expected a shipped filter", "found none", "URL"]);
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("a file");
    let error = fetch(&store, dir.path(), None).await.expect_err("occupied");
    assert_says(&error, &["notes.txt", "expected an empty directory", "choose another"]);
}

#[tokio::test]
async fn a_link_of_a_later_version_asks_for_a_later_program() {
    let shipped = shipped().await;
    let sound = shipped.bytes(6).await;
    let text = b"ebbtide link 2\n";
    let end = sound.len() - 40;
    let mut bytes = [text, &sound[text.len()..end]].concat();
    let digest = xxhash_rust::xxh3::xxh3_128(&bytes);
    bytes.extend_from_slice(format!("digest {digest:032x}\n").as_bytes());
    shipped.put(6, bytes).await;
    assert_says(
        &shipped.fetch().await,
        &["expected version 1", "found version 2", "use a version"],
    );
}

#[tokio::test]
async fn a_timeline_beyond_reason_is_damage() {
    let shipped = shipped().await;
    let newest = 8;
    let sound = shipped.bytes(newest).await;
    let (text, content) = sound[..sound.len() - 40].split_at(300);
    let text = String::from_utf8_lossy(text);
    let text = text.replace("\ntimeline 1\n", &format!("\ntimeline {}\n", u64::MAX));
    let mut bytes = [text.as_bytes(), content].concat();
    let digest = xxhash_rust::xxh3::xxh3_128(&bytes);
    bytes.extend_from_slice(format!("digest {digest:032x}\n").as_bytes());
    shipped.put(newest, bytes).await;
    let begun = Shipper::begin(shipped.store, shipped.media, ShipOptions::default()).await;
    assert_says(&begun.expect_err("damage"), &["as `timeline`", "found 18446744073709551615"]);
}

/// Answers each call with an error that a real store gives.
#[test]
fn what_a_store_says_is_explained() {
    use ebbtide_ship::explain;
    use object_store::Error as StoreError;
    let generic = |text: &str| StoreError::Generic { store: "S3", source: text.to_owned().into() };
    let system = |code: i32| {
        let source = std::io::Error::from_raw_os_error(code).into();
        StoreError::Generic { store: "LocalFileSystem", source }
    };
    let answer = |status: &str, code: &str| {
        format!("Server returned non-2xx status code: {status}: <Error><Code>{code}</Code>")
    };
    let denied = |text: &str| StoreError::PermissionDenied {
        path: "chain/1".into(),
        source: text.to_owned().into(),
    };
    // As a directory wraps it when a file that is whole gets its name.
    #[derive(Debug)]
    struct Naming(std::io::Error);
    impl std::fmt::Display for Naming {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Unable to rename file: {}", self.0)
        }
    }
    impl std::error::Error for Naming {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let naming = |code: i32| {
        let source = Naming(std::io::Error::from_raw_os_error(code)).into();
        StoreError::Generic { store: "LocalFileSystem", source }
    };
    let refused = answer("403 Forbidden", "InvalidAccessKeyId") + "<Message>no such key</Message>";
    // The names of objects and prefixes are no reasons.
    let request = "Error performing PUT http://host/quota-507/StorageFull/chain/0000000507 in 1s";
    let cases = [
        (
            denied(&answer("403 Forbidden", "RequestTimeTooSkewed")),
            "the clock of this machine",
            false,
        ),
        (denied(&answer("403 Forbidden", "SignatureDoesNotMatch")), "the credentials", false),
        (
            denied(&refused),
            "put s3://bucket/chain/1: InvalidAccessKeyId: no such key: the credentials",
            false,
        ),
        (
            generic("Server returned non-2xx status code: 507 Insufficient Storage: "),
            "the store is full",
            true,
        ),
        (system(28), "No space left on device (os error 28): the store is full", true),
        (system(122), "the store is full", true),
        (system(13), "the credentials", false),
        (system(1), "the credentials", false),
        (naming(13), "the credentials", false),
        (naming(1), "the file system of this directory has no hard links", false),
        (naming(95), "the file system of this directory has no hard links", false),
        (naming(28), "the store is full", true),
        (generic("error sending request: connection refused"), "tries again", true),
        (generic(&format!("{request} - HTTP error: timeout")), "look at the network", true),
        (denied(&format!("{request} - Server returned 403")), "the credentials", false),
        (generic(&answer("404 Not Found", "NoSuchBucket")), "no such bucket", false),
        (
            generic(
                "DeleteObjects request failed for key quota/1: Access Denied (code: AccessDenied)",
            ),
            "remove s3://bucket/chain/1: AccessDenied: the credentials",
            false,
        ),
    ];
    for (error, words, is_passing) in cases {
        let action = if words.starts_with("remove") { "remove" } else { "put" };
        let error = explain("s3://bucket/chain/1".into(), action, &error);
        assert_says(&error, &["s3://bucket/chain/1", words]);
        assert_eq!(error.is_transient(), is_passing, "{error}");
    }
}

#[tokio::test]
async fn a_shipper_whose_directory_became_another_filter_stops() {
    let mut shipped = shipped().await;
    drop(shipped.filter);
    for name in shipped.media.list().expect("names") {
        shipped.media.remove(&name).expect("a removal");
    }
    let other = Filter::create_on(shipped.media.clone(), AgePartitioned::last(9), Options::new());
    drop(other.expect("another filter"));
    let error = shipped.shipper.round().await.expect_err("refused");
    assert_says(&error, &["expected filter", "found filter"]);
}

#[tokio::test]
async fn any_bytes_behind_a_right_digest_are_an_error_or_a_filter_and_never_a_panic() {
    let shipped = shipped().await;
    let mut random = Random::new(7);
    let last = 9;
    for round in 0..2000_u64 {
        let number = 1 + random.below(last);
        let Ok(found) = shipped.objects.get(&Shipped::path(number)).await else { continue };
        let sound = found.bytes().await.expect("its bytes").to_vec();
        let mut bytes = sound[..sound.len() - 40].to_vec();
        for _ in 0..1 + random.below(3) {
            // Mostly in the lines.
            let most = if random.below(4) == 0 { bytes.len() } else { bytes.len().min(420) };
            let at = random.below(most as u64) as usize;
            match random.below(4) {
                0 => bytes[at] = b'0' + random.below(10) as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b'0' + random.below(10) as u8),
            }
        }
        let digest = xxhash_rust::xxh3::xxh3_128(&bytes);
        bytes.extend_from_slice(format!("digest {digest:032x}\n").as_bytes());
        shipped.put(number, bytes).await;
        if let Err(error) = assemble(&shipped.store, Arc::new(Memory::new())).await {
            assert!(!error.to_string().is_empty(), "{round}");
        }
        let begun =
            Shipper::begin(shipped.store.clone(), shipped.media.clone(), ShipOptions::default());
        // What it puts behind the damage is taken back.
        drop(begun.await);
        for later in last + 1..last + 4 {
            let _ = shipped.objects.delete(&Shipped::path(later)).await;
        }
        shipped.put(number, sound).await;
    }
}
