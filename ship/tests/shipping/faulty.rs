//! A store that does what stores do at their worst, chosen by a seed: answers that are lost
//! although the put has happened, puts that happen later or twice, errors, delays, lists that lack
//! the newest objects or still have removed ones, uploads that end in the middle. And clients that
//! are killed at a call.

use async_trait::async_trait;
use bytes::Bytes;
use ebbtide_testkit::random::Random;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UploadPart,
};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// Calls for which lists may be stale.
const STALE_CALLS: u64 = 30;

/// What all clients share.
#[derive(Debug)]
pub struct Server {
    pub objects: InMemory,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    calls: u64,
    /// Puts that are on their way, of clients that do not wait for them.
    late: Vec<(Path, Bytes)>,
    /// Objects that came or went lately, and when.
    recent: Vec<(u64, ObjectMeta, bool)>,
    /// Faults that have happened, by name.
    counts: std::collections::BTreeMap<&'static str, u64>,
    /// Objects that cannot be read or put: those whose path contains this.
    refused: Option<&'static str>,
}

impl State {
    fn is(&mut self, name: &'static str, one_in: u64) -> bool {
        let is = self.random.below(one_in) == 0;
        *self.counts.entry(name).or_default() += u64::from(is);
        is
    }
}

impl Server {
    pub fn new(seed: u64) -> Arc<Self> {
        let state = State {
            random: Random::new(seed),
            calls: 0,
            late: Vec::new(),
            recent: Vec::new(),
            counts: std::collections::BTreeMap::new(),
            refused: None,
        };
        Arc::new(Self { objects: InMemory::new(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// Returns the number of calls of faulty clients.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Returns how often each fault has happened.
    pub fn counts(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.state().counts.clone()
    }

    /// From now on refuses to read or put objects whose path contains this, to all clients.
    pub fn refuse(&self, part: Option<&'static str>) {
        self.state().refused = part;
    }

    fn check(&self, path: &Path) -> Result<()> {
        match self.state().refused {
            Some(part) if path.as_ref().contains(part) => Err(fault("refused, 503")),
            _ => Ok(()),
        }
    }

    /// Lets some of the puts happen that are on their way.
    async fn let_happen(&self) {
        let due = {
            let mut state = self.state();
            let late = std::mem::take(&mut state.late);
            let (due, late) = late.into_iter().partition(|_| state.random.below(6) == 0);
            state.late = late;
            due
        };
        let due: Vec<(Path, Bytes)> = due;
        for (path, bytes) in due {
            let _ = self.create(&path, bytes).await;
        }
    }

    async fn create(&self, path: &Path, bytes: Bytes) -> Result<PutResult> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.objects.put_opts(path, PutPayload::from_bytes(bytes), options).await;
        if put.is_ok() {
            self.note(path, true).await;
        }
        put
    }

    async fn note(&self, path: &Path, came: bool) {
        if let Ok(meta) = self.objects.head(path).await {
            let mut state = self.state();
            let calls = state.calls;
            state.recent.retain(|(at, ..)| at + STALE_CALLS > calls);
            state.recent.push((calls, meta, came));
        }
    }
}

/// A client's connection. Once killed, its calls never return.
#[derive(Debug, Clone)]
pub struct Client(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    server: Arc<Server>,
    /// Calls before the client is killed.
    left: AtomicU64,
    is_faulty: bool,
    killed: Notify,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a faulty store")
    }
}

fn fault(text: &'static str) -> Error {
    Error::Generic { store: "faulty", source: text.into() }
}

impl Client {
    /// Connects, for this many calls.
    pub fn faulty(server: &Arc<Server>, calls: u64) -> Self {
        Self::of(server, calls, true)
    }

    /// Connects without faults.
    pub fn sound(server: &Arc<Server>) -> Self {
        Self::of(server, u64::MAX, false)
    }

    fn of(server: &Arc<Server>, calls: u64, is_faulty: bool) -> Self {
        let (left, killed) = (AtomicU64::new(calls), Notify::new());
        Self(Arc::new(Connection { server: server.clone(), left, is_faulty, killed }))
    }

    /// Runs a client's work, until it is done or the client is killed.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.0.killed.notified() => None,
            done = work => Some(done),
        }
    }

    /// Counts a call. Of the last one, `half` may still happen.
    async fn enter(&self, half: impl Future<Output = ()>) -> Result<()> {
        let server = &self.0.server;
        if !self.0.is_faulty {
            return Ok(());
        }
        let (delay, is_refused) = {
            let mut state = server.state();
            state.calls += 1;
            (state.random.below(4), state.is("refused", 12))
        };
        for _ in 0..delay {
            tokio::task::yield_now().await;
        }
        server.let_happen().await;
        let left = self.0.left.load(Ordering::Relaxed);
        self.0.left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 {
            let happens = server.state().random.below(2) == 0;
            if happens {
                half.await;
            }
            self.0.killed.notify_one();
            return std::future::pending().await;
        }
        if is_refused { Err(fault("refused, 503")) } else { Ok(()) }
    }

    /// Returns a bit that differs from client to client.
    pub fn is_odd(&self) -> bool {
        self.0.left.load(Ordering::Relaxed) % 2 == 1
    }

    fn is(&self, name: &'static str, one_in: u64) -> bool {
        self.0.is_faulty && self.0.server.state().is(name, one_in)
    }
}

/// An upload that may end in the middle.
#[derive(Debug)]
struct Upload {
    client: Client,
    upload: Box<dyn MultipartUpload>,
    path: Path,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        if self.client.is("part failed", 12) {
            return Box::pin(async { Err(fault("a part failed")) });
        }
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.client.enter(async {}).await?;
        let done = self.upload.complete().await?;
        self.client.0.server.note(&self.path, true).await;
        if self.client.is("answer of an upload lost", 8) {
            return Err(fault("timed out"));
        }
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

#[async_trait]
impl ObjectStore for Client {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let server = &self.0.server;
        server.check(path)?;
        let bytes: Bytes = payload.into();
        if !matches!(options.mode, PutMode::Create) {
            self.enter(async {}).await?;
            // What a store without atomic puts leaves.
            let partial = self.is("partial object", 12);
            let bytes = if partial { bytes.slice(..bytes.len() / 2) } else { bytes };
            let put = server.objects.put_opts(path, PutPayload::from_bytes(bytes), options).await;
            server.note(path, true).await;
            return if partial { Err(fault("connection reset")) } else { put };
        }
        let happens = async { drop(server.create(path, bytes.clone()).await) };
        self.enter(happens).await?;
        if self.is("late put", 12) {
            server.state().late.push((path.clone(), bytes));
            return Err(fault("timed out"));
        }
        let put = server.create(path, bytes.clone()).await;
        if self.is("answer lost", 10) {
            return Err(fault("timed out"));
        }
        if self.is("repeated by the client", 10) {
            return server.create(path, bytes).await;
        }
        put
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.server.check(path)?;
        self.enter(async {}).await?;
        let upload = self.0.server.objects.put_multipart_opts(path, options).await?;
        Ok(Box::new(Upload { client: self.clone(), upload, path: path.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.server.check(path)?;
        self.enter(async {}).await?;
        self.0.server.objects.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let client = self.clone();
        let removed = paths.then(move |path| {
            let client = client.clone();
            async move {
                let path = path?;
                client.enter(async {}).await?;
                client.0.server.note(&path, false).await;
                client.0.server.objects.delete(&path).await?;
                Ok(path)
            }
        });
        removed.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (client, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            if let Err(error) = client.enter(async {}).await {
                return vec![Err(error)];
            }
            let server = &client.0.server;
            let mut found: Vec<_> = server.objects.list(prefix.as_ref()).collect().await;
            let is_stale = client.is("stale list", 3);
            if is_stale {
                let mut state = server.state();
                for (_, meta, came) in state.recent.clone() {
                    let is_it = |found: &Result<ObjectMeta>| {
                        found.as_ref().is_ok_and(|found| found.location == meta.location)
                    };
                    if state.random.below(2) == 0 {
                        continue;
                    }
                    if came {
                        found.retain(|found| !is_it(found));
                    } else if !found.iter().any(is_it)
                        && prefix.as_ref().is_none_or(|prefix| meta.location.prefix_matches(prefix))
                    {
                        found.push(Ok(meta));
                    }
                }
            }
            found
        };
        futures::stream::once(listed).flat_map(futures::stream::iter).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.server.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.server.objects.copy_opts(from, to, options).await
    }
}
