//! The upload of a snapshot, which may take long: a task puts it and reads it back, beside the
//! rounds that ship log. It puts no link, and so decides nothing.

use crate::error::{Error, Result};
use crate::link::Snapshot;
use crate::snapshot;
use crate::store::{Folder, Store};
use ebbtide::inspect::{Origin, SnapshotFile};
use ebbtide::media::Media;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The longest time to wait until a snapshot that is damaged is removed.
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

/// What a task has done: what is in the store, and whether all of it is as it was put.
type Ended = (Option<Snapshot>, Result<()>);

/// The upload of one snapshot at a time. Dropped, it ends.
#[derive(Debug, Default)]
pub struct Upload {
    tasks: JoinSet<Ended>,
    file: Option<SnapshotFile>,
    ended: Option<Ended>,
    /// What is in the store, but could not be read back.
    unread: Option<(SnapshotFile, Snapshot)>,
    has_failed: bool,
}

impl Upload {
    /// Returns whether a snapshot may be begun.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.ended.is_none()
    }

    /// Returns whether the last one that has ended has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Forgets that the last one has failed.
    pub fn clear_failure(&mut self) {
        self.has_failed = false;
    }

    /// Begins with a snapshot. What is in the store of it is only read back.
    pub fn begin(&mut self, store: Store, media: Arc<dyn Media>, job: Job) {
        let unread = self.unread.take().filter(|(file, _)| *file == job.file);
        self.file = Some(job.file.clone());
        self.tasks.spawn(run(store, media, job, unread.map(|(_, snapshot)| snapshot)));
    }

    /// Waits until a snapshot that was begun has ended; without one, endlessly.
    pub async fn end(&mut self) {
        if self.ended.is_some() {
            return;
        }
        match self.tasks.join_next().await {
            Some(Ok(ended)) => self.ended = Some(ended),
            // It is never cancelled but with this.
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => std::future::pending().await,
        }
    }

    /// Returns the snapshot that has ended, once, if it may get its link; `None` if there is none.
    pub fn take(&mut self) -> Result<Option<Snapshot>> {
        if self.ended.is_none()
            && let Some(joined) = self.tasks.try_join_next()
        {
            match joined {
                Ok(ended) => self.ended = Some(ended),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        let Some((snapshot, result)) = self.ended.take() else { return Ok(None) };
        self.has_failed = result.is_err();
        match result {
            Ok(()) => Ok(snapshot),
            Err(error) => {
                self.unread = self.file.take().zip(snapshot);
                Err(error)
            }
        }
    }
}

async fn run(store: Store, media: Arc<dyn Media>, job: Job, unread: Option<Snapshot>) -> Ended {
    let snapshot = match unread {
        Some(snapshot) => snapshot,
        None => {
            let (of, parts) = ((&job.origin, &job.file), (job.from_link, job.id));
            match snapshot::upload(&store, &*media, of, parts).await {
                Ok(Some(snapshot)) => snapshot,
                // The file is gone: there is a newer one.
                Ok(None) => return (None, Ok(())),
                Err(error) => return (None, Err(error)),
            }
        }
    };
    // What retention relies on is there.
    let read = snapshot::read(&store, &snapshot, |_, _| Ok(())).await;
    match read {
        Err(damage @ Error::Object { .. }) => {
            let names = [snapshot.name];
            let removal = store.remove(Folder::Snapshot, &names);
            let _ = tokio::time::timeout(REMOVAL, removal).await;
            (None, Err(damage))
        }
        read => (Some(snapshot), read),
    }
}
