//! A store in memory that does what a test says before each call.

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::fmt;
use std::sync::Arc;

/// The pieces in which an object comes.
const CHUNK: usize = 64 << 10;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A put of this many bytes, or of a part of an upload.
    Put(Path, u64),
    /// What was put, or uploaded, is there: before the answer.
    Done(Path),
    /// A get, before its first byte.
    Get(Path),
    /// The next bytes of a get.
    Chunk(u64),
    /// An upload in parts is taken back.
    Abort(Path),
    /// A list of what this begins.
    List(Path),
    /// A removal.
    Remove(Path),
}

type Script = dyn Fn(Call) -> BoxFuture<'static, Result<()>> + Send + Sync;

/// The store.
#[derive(Clone)]
pub struct Scripted {
    pub objects: Arc<InMemory>,
    script: Arc<Script>,
    /// Whether it puts an object also where there is one.
    pub replaces: bool,
}

impl Scripted {
    pub fn new(
        script: impl Fn(Call) -> BoxFuture<'static, Result<()>> + Send + Sync + 'static,
    ) -> Self {
        Self { objects: Arc::new(InMemory::new()), script: Arc::new(script), replaces: false }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

impl fmt::Display for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scripted store")
    }
}

#[derive(Debug)]
struct Upload {
    store: Scripted,
    path: Path,
    upload: Box<dyn MultipartUpload>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let call = Call::Put(self.path.clone(), data.content_length() as u64);
        let (before, put) = ((self.store.script)(call), self.upload.put_part(data));
        Box::pin(async move {
            before.await?;
            put.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.upload.complete().await?;
        (self.store.script)(Call::Done(self.path.clone())).await.map(|()| done)
    }

    async fn abort(&mut self) -> Result<()> {
        (self.store.script)(Call::Abort(self.path.clone())).await?;
        self.upload.abort().await
    }
}

#[async_trait]
impl ObjectStore for Scripted {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        (self.script)(Call::Put(path.clone(), payload.content_length() as u64)).await?;
        let options = if self.replaces { PutOptions::default() } else { options };
        let done = self.objects.put_opts(path, payload, options).await?;
        (self.script)(Call::Done(path.clone())).await.map(|()| done)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.objects.put_multipart_opts(path, options).await?;
        Ok(Box::new(Upload { store: self.clone(), path: path.clone(), upload }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        (self.script)(Call::Get(path.clone())).await?;
        let found = self.objects.get_opts(path, options).await?;
        let (meta, range) = (found.meta.clone(), found.range.clone());
        let attributes = found.attributes.clone();
        let (bytes, script) = (found.bytes().await?, self.script.clone());
        let starts = futures::stream::iter((0..bytes.len()).step_by(CHUNK));
        let chunks = starts.then(move |start| {
            let chunk = bytes.slice(start..bytes.len().min(start + CHUNK));
            let before = script(Call::Chunk(chunk.len() as u64));
            async move { before.await.map(|()| chunk) }
        });
        let payload = GetResultPayload::Stream(chunks.boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let script = self.script.clone();
        let paths = paths.then(move |path| {
            let script = script.clone();
            async move {
                let path = path?;
                script(Call::Remove(path.clone())).await.map(|()| path)
            }
        });
        self.objects.delete_stream(paths.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (objects, prefix) = (self.objects.clone(), prefix.cloned().unwrap_or_default());
        let before = (self.script)(Call::List(prefix.clone()));
        let listed = async move {
            match before.await {
                Ok(()) => objects.list(Some(&prefix)).collect().await,
                Err(error) => vec![Err(error)],
            }
        };
        futures::stream::once(listed).flat_map(futures::stream::iter).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
