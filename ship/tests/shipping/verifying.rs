//! Verification beside a shipper that removes what is not needed any more.

use crate::copies::Source;
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
