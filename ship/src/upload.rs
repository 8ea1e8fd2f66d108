//! The upload of a snapshot, which may take long: a task puts it and reads it back, beside the
//! rounds that ship log. It puts no link, and so decides nothing.

use crate::error::{Error, Result};
use crate::link::Snapshot;
use crate::snapshot::{self, Condition};
use crate::store::{Folder, Store};
use ebbtide::inspect::{Origin, SnapshotFile};
use ebbtide::media::Media;
use std::sync::Arc;
use tokio::task::{JoinError, JoinSet};

/// The longest time to wait until a snapshot that gets no link is removed.
const REMOVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// What is to be uploaded.
#[derive(Debug, Clone)]
pub struct Job {
    pub origin: Origin,
    pub file: SnapshotFile,
    /// The link with the record of its start.
    pub from_link: u64,
    /// Makes its name unique.
    pub id: u64,
}

/// What a task has done.
#[derive(Debug)]
struct Ended {
    /// What is in the store, and whether all of it is as it was put.
    snapshot: Option<Snapshot>,
    result: Result<()>,
    /// What is wrong with the file.
    damage: Option<String>,
}

impl Ended {
    fn of(snapshot: Option<Snapshot>, result: Result<()>) -> Self {
        Self { snapshot, result, damage: None }
    }
}

/// The upload of one snapshot at a time. Dropped, it ends.
#[derive(Debug, Default)]
pub struct Upload {
    tasks: JoinSet<Ended>,
    file: Option<SnapshotFile>,
    ended: Option<Ended>,
    /// What is in the store, but could not be read back.
    unread: Option<(SnapshotFile, Snapshot)>,
    /// A file that is damaged, and how: it is not read again each time.
    damaged: Option<(SnapshotFile, String)>,
    has_failed: bool,
}

impl Upload {
    /// Returns whether a snapshot may be begun.
    pub fn is_idle(&mut self) -> bool {
        self.join();
        self.tasks.is_empty() && self.ended.is_none()
    }

    /// Notes what has ended.
    fn join(&mut self) {
        if self.ended.is_none() {
            self.ended = self.tasks.try_join_next().and_then(joined);
        }
    }

    /// Returns whether the last one that has ended has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns whether one is on its way.
    pub fn is_running(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Forgets that the last one has failed.
    pub fn clear_failure(&mut self) {
        self.has_failed = false;
    }

    /// Begins with a snapshot. What is in the store of it is only read back.
    pub fn begin(&mut self, store: Store, media: Arc<dyn Media>, job: Job) {
        let unread = self.unread.take().filter(|(file, _)| *file == job.file);
        let damaged = self.damaged.take_if(|(file, _)| *file == job.file);
        self.file = Some(job.file.clone());
        let known = (unread.map(|(_, snapshot)| snapshot), damaged.map(|(_, damage)| damage));
        self.tasks.spawn(run(store, media, job, known));
    }

    /// Waits until a snapshot that was begun has ended, or was lost with its runtime; without one,
    /// endlessly.
    pub async fn end(&mut self) {
        if self.ended.is_some() {
            return;
        }
        match self.tasks.join_next().await {
            Some(ended) => self.ended = joined(ended),
            None => std::future::pending().await,
        }
    }

    /// Returns the snapshot that has ended, once, if it may get its link; `None` if there is none.
    pub fn take(&mut self) -> Result<Option<Snapshot>> {
        self.join();
        let Some(Ended { snapshot, result, damage }) = self.ended.take() else { return Ok(None) };
        self.has_failed = result.is_err();
        match result {
            Ok(()) => Ok(snapshot),
            Err(error) => {
                let file = self.file.take();
                self.damaged = file.clone().zip(damage);
                self.unread = file.zip(snapshot);
                Err(error)
            }
        }
    }
}

/// Returns what a task has done; `None` if its runtime ended before it did, so that it is begun
/// again.
fn joined(task: std::result::Result<Ended, JoinError>) -> Option<Ended> {
    match task.map_err(JoinError::try_into_panic) {
        Ok(ended) => Some(ended),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => None,
    }
}

/// Removes a snapshot that gets no link, if the store does so soon.
async fn remove(store: &Store, name: String) {
    let names = [name];
    let removal = store.remove(Folder::Snapshot, &names);
    let _ = tokio::time::timeout(REMOVAL, removal).await;
}

/// Checks and uploads a snapshot, unless it is known what is wrong with it.
async fn put(
    store: &Store,
    media: &Arc<dyn Media>,
    job: &Job,
    damage: Option<String>,
) -> Result<Condition<Snapshot>> {
    let condition = match damage {
        Some(damage) => Condition::Damaged(damage),
        None => snapshot::check(media, &job.file).await?,
    };
    match condition {
        Condition::Sound(()) => {}
        Condition::Gone => return Ok(Condition::Gone),
        Condition::Damaged(damage) => return Ok(Condition::Damaged(damage)),
    }
    let (of, parts) = ((&job.origin, &job.file), (job.from_link, job.id));
    let uploaded = snapshot::upload(store, media, of, parts).await;
    if !matches!(uploaded, Ok(Condition::Sound(_))) {
        // It may be there although the store has said otherwise.
        remove(store, snapshot::object_name(job.file.start, job.id)).await;
    }
    uploaded
}

/// Puts a snapshot and reads it back; what is in the store already, or is damaged, is known.
async fn run(
    store: Store,
    media: Arc<dyn Media>,
    job: Job,
    (unread, damage): (Option<Snapshot>, Option<String>),
) -> Ended {
    let snapshot = match unread {
        Some(snapshot) => snapshot,
        None => match put(&store, &media, &job, damage).await {
            Ok(Condition::Sound(snapshot)) => snapshot,
            // There is a newer one.
            Ok(Condition::Gone) => return Ended::of(None, Ok(())),
            Ok(Condition::Damaged(damage)) => {
                let error = snapshot::damaged(&*media, &job.file, damage.clone());
                return Ended { snapshot: None, result: Err(error), damage: Some(damage) };
            }
            Err(error) => return Ended::of(None, Err(error)),
        },
    };
    // What retention relies on is there.
    let read = snapshot::read(&store, &snapshot, |_, _| Ok(())).await;
    match read {
        Err(damage @ Error::Object { .. }) => {
            remove(&store, snapshot.name).await;
            Ended::of(None, Err(damage))
        }
        read => Ended::of(Some(snapshot), read),
    }
}
