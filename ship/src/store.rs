//! The objects of one shipped filter, by their names.
//!
//! `chain/<number>` are the links, `base/<number>` the numbers of links at which a fetch can begin,
//! `snapshot/…` the snapshots. It does not know what a link says.

use crate::client::client;
use crate::error::{Error, Result};
use crate::explain::{explain, is_of_bucket};
use crate::files::{create_private, io};
use crate::follow_file::copied_from;
use crate::place::{Place, unusable};
use crate::store_directory::{PUT_BACK, StoreDirectory};
use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetResultPayload, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use url::Url;

/// The longest time to wait for one answer of the store, or for the next piece of a long one. Its
/// client repeats what failed meanwhile.
const ANSWER: Duration = Duration::from_secs(60);
/// The slowest line for which a put waits longer, in bytes a second: half a megabit.
pub(crate) const SLOWEST: u64 = 1 << 16;
/// The length from which an object is uploaded in pieces, and of each of them.
const UPLOAD_BYTES: usize = 8 << 20;
/// Pieces that are uploaded at a time.
const UPLOADS: usize = 4;
/// The pieces of an object, at most: S3 takes no more.
const PARTS_MOST: u64 = 10_000;
/// The longest time to wait until an upload that has failed is taken back.
const ABORT: Duration = Duration::from_secs(10);

/// Names and values.
type Settings = Vec<(String, String)>;

/// A place in object storage for one filter.
#[derive(Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    url: String,
    upload_bytes: usize,
    /// What it is a follower's copy of.
    copied: Option<String>,
    /// Its directory, if it is one.
    dir: Option<StoreDirectory>,
    /// The bytes of uploads that are on their way at the same time, at most.
    uploading: Arc<AtomicU64>,
    /// Of what its client was made.
    settings: Option<Arc<(Url, Settings)>>,
}

/// An upload that shares the line with what is put beside it. Dropped, it does not any more.
struct Uploading {
    total: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Uploading {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("url", &self.url).finish_non_exhaustive()
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Returns the longest time to wait for the answer to a put of so many bytes.
fn time_to_put(bytes: u64) -> Duration {
    ANSWER + Duration::from_secs(bytes / SLOWEST)
}

/// The kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folder {
    /// Links.
    Chain,
    /// Numbers of links at which a fetch can begin.
    Base,
    /// Snapshots.
    Snapshot,
}

impl Folder {
    fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Base => "base",
            Self::Snapshot => "snapshot",
        }
    }

    /// Returns whether a name is one that objects of this folder have: a number of twenty digits,
    /// and of snapshots another one.
    fn may_contain(self, name: &str) -> bool {
        let (number, id) = name.split_at_checked(20).unwrap_or((name, ""));
        let is_number = number.len() == 20 && number.bytes().all(|digit| digit.is_ascii_digit());
        let is_id = |id: &str| id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_number
            && match self {
                Self::Chain | Self::Base => id.is_empty(),
                Self::Snapshot => id.strip_prefix('-').is_some_and(is_id),
            }
    }
}

/// The result of a put of a name that may exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The object is there.
    Done,
    /// Another one was there.
    Exists,
}

impl Store {
    /// Opens a place by its URL: `s3://bucket/prefix`, `gs://…`, `az://…` (as far as built),
    /// `file:///directory`, or the path of a directory, which is created if it is not there.
    /// Credentials and settings come from the environment, as `AWS_ACCESS_KEY_ID`,
    /// `AWS_ENDPOINT_URL`, never from the URL. To read a filter that was shipped, use
    /// [`Store::open_existing`].
    ///
    /// # Errors
    /// [`Error::Setting`] for a URL that cannot be used, with the reason.
    pub fn open(url: &str) -> Result<Self> {
        // Other programs may have variables of any bytes.
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::open_with(url, std::env::vars_os().filter_map(text))
    }

    /// As [`Store::open`], but creates nothing.
    ///
    /// # Errors
    /// As there, and for a directory that is not there.
    pub fn open_existing(url: &str) -> Result<Self> {
        Self::find(url)?.ok_or_else(|| Error::Setting {
            name: "URL",
            expected: "the place of a filter that was shipped",
            found: format!(
                "{url}, a directory that is not there; correct the path, or mount what has it"
            ),
        })
    }

    /// As [`Store::open`], but creates nothing; `None` for a directory that is not there.
    ///
    /// # Errors
    /// As there.
    pub fn find(url: &str) -> Result<Option<Self>> {
        match Place::of(url)? {
            Place::Directory(dir) if matches!(dir.try_exists(), Ok(false)) => Ok(None),
            _ => Self::open(url).map(Some),
        }
    }

    /// As [`Store::open`], with these settings in place of those of the environment.
    ///
    /// # Errors
    /// As there.
    pub fn open_with<N, V>(url: &str, settings: impl IntoIterator<Item = (N, V)>) -> Result<Self>
    where
        N: AsRef<str>,
        V: Into<String>,
    {
        let parsed = match Place::of(url)? {
            Place::Directory(dir) if url.contains("://") => {
                let opened = Self::of_directory(&dir)?;
                return Ok(Self { url: url.trim_end_matches('/').into(), ..opened });
            }
            Place::Directory(dir) => return Self::of_directory(&dir),
            Place::Remote(parsed) => parsed,
        };
        let settings = settings.into_iter().map(|(name, value)| {
            let name = name.as_ref().to_ascii_lowercase();
            (name, value.into())
        });
        let of_store = |(name, _): &(String, String)| {
            ["aws_", "google_", "azure_"].iter().any(|start| name.starts_with(start))
        };
        let settings: Settings = settings.filter(of_store).collect();
        let made = client(&parsed, settings.clone());
        let (objects, prefix) = made.map_err(|error| unusable(url, &error))?;
        let settings = Some(Arc::new((parsed, settings)));
        Ok(Self { settings, ..Self::of(objects, prefix.as_ref(), url) })
    }

    /// Opens a directory, which is created for its owner only if it is not there. What a put has
    /// confirmed is there after a power cut: the file and its name are synced.
    pub(crate) fn of_directory(dir: &FilePath) -> Result<Self> {
        let url = dir.display().to_string();
        let wrong = |error: &dyn fmt::Display| Error::Setting {
            name: "URL",
            expected: "a directory that can be read and written",
            found: format!("{url} ({error})"),
        };
        create_private(dir).map_err(|error| wrong(&error))?;
        let objects =
            LocalFileSystem::new_with_prefix(dir).map_err(|error| wrong(&error))?.with_fsync(true);
        let opened = StoreDirectory::of(dir).map_err(|error| wrong(&error))?;
        let (copied, dir) = (copied_from(dir)?, Some(opened));
        Ok(Self { copied, dir, ..Self::of(Arc::new(objects), "", &url) })
    }

    /// Uses a store of the program's own. `url` is for messages.
    #[must_use]
    pub fn of(objects: Arc<dyn ObjectStore>, prefix: &str, url: &str) -> Self {
        let (prefix, url) = (Path::from(prefix), url.trim_end_matches('/').into());
        let (copied, dir, uploading, settings) = (None, None, Arc::default(), None);
        Self { objects, prefix, url, upload_bytes: UPLOAD_BYTES, copied, dir, uploading, settings }
    }

    /// Returns the same place by a client of its own, if it was opened by its URL. A client may
    /// keep connections, which only the runtime serves that has opened them: while nobody runs
    /// that, they do not answer.
    pub(crate) fn with_own_client(&self) -> Self {
        // One of `memory:` has objects of its own.
        let settings = self.settings.as_deref().filter(|(url, _)| url.scheme() != "memory");
        let made = settings.and_then(|(url, settings)| client(url, settings.clone()).ok());
        let objects = made.map_or_else(|| self.objects.clone(), |(objects, _)| objects);
        Self { objects, ..self.clone() }
    }

    /// Sets the length from which a snapshot is uploaded in pieces, and that of a piece; by default
    /// 8 MiB. S3 refuses pieces below 5 MiB.
    #[must_use]
    pub fn upload_bytes(mut self, bytes: usize) -> Self {
        self.upload_bytes = bytes.max(1);
        self
    }

    fn path(&self, folder: Folder, name: &str) -> Path {
        self.prefix.clone().join(folder.name()).join(name)
    }

    /// Returns what it is called from any directory.
    pub(crate) fn place(&self) -> String {
        match std::path::absolute(&self.url) {
            Ok(path) if !self.url.contains("://") => path.display().to_string(),
            _ => self.url.clone(),
        }
    }

    /// Returns whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.dir.is_some()
    }

    /// Refuses a follower's copy, whose owner is another process.
    pub(crate) fn check_no_copy(&self) -> Result<()> {
        let Some(from) = &self.copied else { return Ok(()) };
        Err(Error::Setting {
            name: "URL",
            expected: "the place of a shipper",
            found: format!("{self}, a follower's copy of {from}: use that place"),
        })
    }

    /// Returns what messages call an object.
    pub(crate) fn name(&self, folder: Folder, name: &str) -> String {
        format!("{}/{}/{name}", self.url, folder.name())
    }

    /// Awaits an answer, for so long. That of a directory counts if it was there all the time.
    async fn answer<T>(
        &self,
        object: (Folder, &str),
        limit: (&'static str, Duration),
        answer: impl Future<Output = std::result::Result<T, StoreError>>,
    ) -> Result<T> {
        self.check_directory(object, limit.0).await?;
        let answer = self.within(object, limit, answer).await;
        self.check_directory(object, limit.0).await?;
        answer
    }

    /// Checks that its directory, if it has one, is the one that was opened.
    async fn check_directory(&self, object: (Folder, &str), action: &'static str) -> Result<()> {
        let Some(dir) = self.dir.clone() else { return Ok(()) };
        // The disk of another machine may not answer.
        let checked = tokio::task::spawn_blocking(move || dir.check());
        let checked = self.within(object, (action, ANSWER), async { Ok(checked.await) }).await?;
        let found = match checked {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(found)) => found,
            Err(error) => error.to_string(),
        };
        let object = self.name(object.0, object.1);
        Err(Error::Store { object, action, found, remedy: PUT_BACK, is_transient: true })
    }

    /// Awaits an answer, for so long.
    async fn within<T>(
        &self,
        (folder, name): (Folder, &str),
        (action, time): (&'static str, Duration),
        answer: impl Future<Output = std::result::Result<T, StoreError>>,
    ) -> Result<T> {
        let explained = |error: &StoreError| explain(self.name(folder, name), action, error);
        match tokio::time::timeout(time, answer).await {
            Ok(answer) => answer.map_err(|error| explained(&error)),
            Err(_) => Err(Error::Store {
                object: self.name(folder, name),
                action,
                found: format!("no answer within {} s", time.as_secs()),
                remedy: "look at the network and the store; a shipper tries again",
                is_transient: true,
            }),
        }
    }

    /// Reads an object; `None` if there is none.
    pub(crate) async fn get(&self, folder: Folder, name: &str) -> Result<Option<Bytes>> {
        self.read((folder, name), GetOptions::default()).await
    }

    /// Reads a part of an object.
    pub(crate) async fn get_part(
        &self,
        folder: Folder,
        name: &str,
        range: Range<u64>,
    ) -> Result<Option<Bytes>> {
        let range = Some(range.into());
        self.read((folder, name), GetOptions { range, ..GetOptions::default() }).await
    }

    async fn read(&self, object: (Folder, &str), options: GetOptions) -> Result<Option<Bytes>> {
        let path = self.path(object.0, object.1);
        let found = async {
            match self.objects.get_opts(&path, options).await {
                // Without a bucket nothing is known of the object.
                Err(error @ StoreError::NotFound { .. }) if !is_of_bucket(&error) => Ok(None),
                found => found.map(Some),
            }
        };
        let found = self.answer(object, ("read", ANSWER), found).await?;
        let Some(found) = found else { return Ok(None) };
        if let GetResultPayload::File(..) = found.payload {
            return self.answer(object, ("read", ANSWER), found.bytes()).await.map(Some);
        }
        // Reads at the same time share a line: each goes on as long as something comes.
        let pieces = self.pieces(object, "read", found.into_stream()).await?;
        match <[Bytes; 1]>::try_from(pieces) {
            Ok([whole]) => Ok(Some(whole)),
            Err(pieces) => Ok(Some(pieces.concat().into())),
        }
    }

    /// Awaits an answer that comes in pieces, for a while each.
    async fn pieces<T>(
        &self,
        object: (Folder, &str),
        action: &'static str,
        mut stream: impl Stream<Item = std::result::Result<T, StoreError>> + Unpin,
    ) -> Result<Vec<T>> {
        let mut pieces = Vec::new();
        while let Some(piece) = self.answer(object, (action, ANSWER), stream.try_next()).await? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    /// Puts an object whose name must be free.
    pub(crate) async fn put_new(&self, folder: Folder, name: &str, bytes: Bytes) -> Result<Put> {
        let path = self.path(folder, name);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let beside = self.uploading.load(Ordering::Relaxed);
        let time = time_to_put(beside.saturating_add(bytes.len() as u64));
        let put = async {
            match self.objects.put_opts(&path, PutPayload::from_bytes(bytes), options).await {
                Ok(_) => Ok(Put::Done),
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                    Ok(Put::Exists)
                }
                Err(error) => Err(error),
            }
        };
        self.answer((folder, name), ("put", time), put).await
    }

    /// Puts an object in place of what has the name.
    pub(crate) async fn put_over(&self, folder: Folder, name: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(folder, name);
        let time = time_to_put(bytes.len() as u64);
        let put = async { self.objects.put(&path, PutPayload::from_bytes(bytes)).await };
        self.answer((folder, name), ("put", time), put).await.map(drop)
    }

    /// Puts an object under a name that nobody else uses, from parts that `read` returns.
    pub(crate) async fn upload(
        &self,
        folder: Folder,
        name: &str,
        bytes: u64,
        mut read: impl FnMut(Range<u64>) -> Result<Bytes>,
    ) -> Result<()> {
        let path = self.path(folder, name);
        let _uploading = self.uploading(self.together(bytes).min(bytes));
        if bytes <= self.upload_bytes as u64 {
            return self.put_over(folder, name, read(0..bytes)?).await;
        }
        let begun = async { self.objects.put_multipart(&path).await };
        let mut upload = self.answer((folder, name), ("put", ANSWER), begun).await?;
        let put = self.put_parts((folder, name), &mut *upload, bytes, read).await;
        if put.is_err() {
            // A store may keep the parts of what is not finished, and charge for them.
            let _ = tokio::time::timeout(ABORT, upload.abort()).await;
        }
        put
    }

    /// Returns the length of a part of an object of this length.
    fn part(&self, bytes: u64) -> u64 {
        (self.upload_bytes as u64).max(bytes.div_ceil(PARTS_MOST))
    }

    /// Returns the bytes of the parts that are on their way at a time.
    fn together(&self, bytes: u64) -> u64 {
        self.part(bytes).saturating_mul(UPLOADS as u64)
    }

    fn uploading(&self, bytes: u64) -> Uploading {
        self.uploading.fetch_add(bytes, Ordering::Relaxed);
        Uploading { total: self.uploading.clone(), bytes }
    }

    /// Puts an object in parts, and finishes it.
    async fn put_parts(
        &self,
        of: (Folder, &str),
        upload: &mut dyn MultipartUpload,
        bytes: u64,
        mut read: impl FnMut(Range<u64>) -> Result<Bytes>,
    ) -> Result<()> {
        let part = self.part(bytes);
        // All that are on their way share the line.
        let time = time_to_put(self.together(bytes));
        let (mut at, mut parts) = (0, FuturesUnordered::new());
        loop {
            while at < bytes && parts.len() < UPLOADS {
                let end = bytes.min(at + part);
                parts.push(upload.put_part(PutPayload::from_bytes(read(at..end)?)));
                at = end;
            }
            if self.answer(of, ("put", time), parts.try_next()).await?.is_none() {
                break;
            }
        }
        self.answer(of, ("put", time), upload.complete()).await.map(drop)
    }

    /// Removes from a directory what puts have left that were killed: nobody else would. Only for
    /// its sole writer, because the put of another one fails.
    pub(crate) fn remove_unfinished(&self) -> Result<()> {
        let Some(dir) = self.dir.as_ref().map(StoreDirectory::path) else { return Ok(()) };
        for folder in [Folder::Chain, Folder::Base, Folder::Snapshot] {
            let folder = dir.join(folder.name());
            let failed = |error: &std::io::Error| io("remove unfinished puts from", &folder, error);
            let entries = match std::fs::read_dir(&folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries.map_err(|error| failed(&error))?,
            };
            for entry in entries {
                let entry = entry.map_err(|error| failed(&error))?;
                if !entry.file_name().to_str().is_some_and(is_staged) {
                    continue;
                }
                match std::fs::remove_file(entry.path()) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        return Err(failed(&error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Lists the objects of a folder, by name, from beyond one on; without those that others have
    /// put there.
    pub(crate) async fn list(
        &self,
        folder: Folder,
        after: Option<&str>,
    ) -> Result<Vec<(String, ObjectMeta)>> {
        let prefix = self.prefix.clone().join(folder.name());
        let stream = match after {
            Some(name) => self.objects.list_with_offset(Some(&prefix), &self.path(folder, name)),
            None => self.objects.list(Some(&prefix)),
        };
        let found = self.pieces((folder, ""), "list", stream).await?;
        let named = |meta: ObjectMeta| {
            let name = meta.location.filename().filter(|name| folder.may_contain(name))?;
            Some((name.to_owned(), meta))
        };
        let mut found: Vec<(String, ObjectMeta)> = found.into_iter().filter_map(named).collect();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// Removes objects, in this order as far as the store keeps one; what is gone already is fine.
    pub(crate) async fn remove(&self, folder: Folder, names: &[String]) -> Result<()> {
        let paths: Vec<_> = names.iter().map(|name| Ok(self.path(folder, name))).collect();
        let stream = self.objects.delete_stream(futures::stream::iter(paths).boxed());
        let removed = stream.map(|removed| match removed {
            Err(StoreError::NotFound { .. }) => Ok(()),
            removed => removed.map(drop),
        });
        let name = names.first().map_or("", String::as_str);
        self.pieces((folder, name), "remove", removed).await.map(drop)
    }
}

/// Returns whether a file is what a put of `object_store` into a directory writes before the object
/// gets its name: the name, `#` and a number.
fn is_staged(name: &str) -> bool {
    let staged = name.rsplit_once('#').filter(|(name, _)| !name.is_empty());
    staged.is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
