//! Verification beside a shipper that removes what is not needed any more.

use crate::copies::Source;
use crate::faulty::Client;
use async_trait::async_trait;
use ebbtide_ship::{Store, verify};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A store in which something happens between two calls.
#[derive(Debug)]
struct Changing {
    before: InMemory,
    after: InMemory,
    /// The number of calls before it happens.
    at: usize,
    calls: AtomicUsize,
}

impl fmt::Display for Changing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store that changes")
    }
}

impl Changing {
    fn now(&self) -> &InMemory {
        let is_before = self.calls.fetch_add(1, Ordering::Relaxed) < self.at;
        if is_before { &self.before } else { &self.after }
    }
}

#[async_trait]
impl ObjectStore for Changing {
    async fn put_opts(&self, at: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.now().put_opts(at, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.now().put_multipart_opts(at, how).await
    }

    async fn get_opts(&self, at: &Path, how: GetOptions) -> Result<GetResult> {
        self.now().get_opts(at, how).await
    }

    fn delete_stream(
        &self,
        at: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.now().delete_stream(at)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.now().list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.now().list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.now().copy_opts(from, to, how).await
    }
}

/// Returns what a shipper without faults ships to.
fn place(source: &Source) -> Store {
    Store::of(Arc::new(Client::sound(&source.server)), "filters/a", "faulty:///filters/a")
}

/// Returns a copy of all objects.
async fn copy(objects: &InMemory) -> InMemory {
    let copy = InMemory::new();
    let all: Vec<_> = objects.list(None).try_collect().await.expect("a list");
    for meta in all {
        let bytes = objects.get(&meta.location).await.expect("an object").bytes().await;
        copy.put(&meta.location, bytes.expect("bytes").into()).await.expect("a put");
    }
    copy
}

#[tokio::test]
async fn what_a_shipper_removes_during_a_verification_is_no_damage() {
    let mut source = Source::new(12).await;
    for _ in 0..10 {
        source.write().await;
    }
    let before = copy(&source.server.objects).await;
    // A snapshot or two, whose shipper removes those that `before` has.
    while copies_any(&before, &source.server.objects, "base").await {
        source.write().await;
    }
    let after = &source.server.objects;
    let mut removed = 0;
    for at in 0.. {
        let (before, after) = (copy(&before).await, copy(after).await);
        let changing = Arc::new(Changing { before, after, at, calls: AtomicUsize::new(0) });
        let store = Store::of(changing.clone(), "filters/a", "changing:///filters/a");
        let verified = verify(&store, None).await;
        let verified = verified.unwrap_or_else(|error| panic!("after {at} calls: {error}"));
        assert!(verified.bases > 0);
        if changing.calls.load(Ordering::Relaxed) <= at {
            break;
        }
        removed += 1;
    }
    assert!(removed > 5, "{removed}");
}

#[tokio::test]
async fn a_hint_that_comes_when_all_that_it_needs_was_removed_is_no_damage() {
    let mut source = Source::new(13).await;
    for _ in 0..10 {
        source.write().await;
    }
    let before = copy(&source.server.objects).await;
    while copies_any(&before, &source.server.objects, "base").await {
        source.write().await;
    }
    let (objects, store) = (&source.server.objects, place(&source));
    let sound = verify(&store, None).await.expect("sound");
    let prefix = Path::from("filters/a/base");
    let hints: Vec<_> = before.list(Some(&prefix)).try_collect().await.expect("a list");
    // Also that of the first link, which is never removed.
    let mut late: Vec<_> = hints.into_iter().map(|meta| meta.location).collect();
    late.push(prefix.join("00000000000000000001"));
    for hint in &late {
        objects.put(hint, "late".into()).await.expect("a put");
    }
    let verified = verify(&store, None).await.expect("no damage");
    assert_eq!((verified.links, verified.bases), (sound.links, sound.bases));
    for hint in &late {
        objects.delete(hint).await.expect("a removal");
    }
}

#[tokio::test]
async fn a_link_that_was_deleted_behind_the_first_base_is_damage() {
    let mut source = Source::new(14).await;
    for round in 0..5_u64 {
        for key in round * 200..(round + 1) * 200 {
            source.filter.insert(key.to_le_bytes()).expect("an insert");
        }
        if round == 4 {
            source.filter.checkpoint().expect("a checkpoint");
        }
        source.filter.sync().expect("a sync");
        source.shipper.round().await.expect("a round");
    }
    let store = place(&source);
    verify(&store, None).await.expect("sound");
    let second = Path::from("filters/a/chain/00000000000000000002");
    source.server.objects.delete(&second).await.expect("a removal");
    verify(&store, None).await.expect_err("damage");
}

/// Returns whether a store still has any object of a folder that another one had.
async fn copies_any(before: &InMemory, now: &InMemory, folder: &str) -> bool {
    let prefix = Path::from(format!("filters/a/{folder}"));
    let old: Vec<_> = before.list(Some(&prefix)).try_collect().await.expect("a list");
    for meta in old {
        if now.head(&meta.location).await.is_ok() {
            return true;
        }
    }
    false
}
