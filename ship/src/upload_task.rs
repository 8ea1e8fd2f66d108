//! The upload of a snapshot, which may take long: a task puts it and reads it back, beside the
//! rounds that ship log. It puts no link, and so decides nothing.

use crate::error::{Error, Result};
use crate::link::Snapshot;
use crate::snapshot::{self, Condition};
use crate::store::{Folder, Store};
use ebbtide::inspect::{Origin, SnapshotFile};
use ebbtide::media::Media;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// The longest time to wait until a snapshot that gets no link is removed.
const REMOVAL: Duration = Duration::from_secs(10);
/// The pauses after failures of the same file: the first, and the longest. Each attempt reads and
/// uploads all of it.
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(120);
/// The longest one while nothing can be fetched without the snapshot: somebody may wait for it.
const MOST_IF_NEEDED: Duration = Duration::from_secs(10);

/// What a round does with the upload of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It leaves that to a task: a later round puts the link.
    Never,
    /// It ships the one that nothing newer can be fetched without, and no other; but what is
    /// uploaded gets its link.
    IfNeeded,
    Always,
}

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

/// What a file was found to be, with the digests of its parts.
type Found = Condition<Vec<u128>>;

/// What a task has done.
#[derive(Debug)]
struct Ended {
    /// What is in the store, and whether all of it is as it was put.
    snapshot: Option<Snapshot>,
    result: Result<()>,
    /// What the file was found to be.
    condition: Option<Found>,
}

/// A file whose upload has failed.
#[derive(Debug)]
struct Failed {
    file: SnapshotFile,
    /// What is in the store, but could not be read back.
    unread: Option<Snapshot>,
    /// What it was found to be: it is not checked again each time.
    condition: Option<Found>,
    /// How long it is not tried again, and since when.
    pause: Duration,
    since: Instant,
}

/// What is known of a file: what is in the store, but unread, and what it was found to be.
type Known = (Option<Snapshot>, Option<Found>);

/// The upload of one snapshot at a time. Dropped, it ends.
#[derive(Debug, Default)]
pub struct Upload {
    tasks: JoinSet<Ended>,
    file: Option<SnapshotFile>,
    ended: Option<Ended>,
    failed: Option<Failed>,
    has_failed: bool,
}

impl Upload {
    /// Returns whether a snapshot may be begun.
    pub fn is_idle(&mut self) -> bool {
        self.join();
        self.tasks.is_empty() && self.ended.is_none()
    }

    /// Returns whether a snapshot has ended that may get its link.
    pub fn is_ready(&mut self) -> bool {
        self.join();
        self.ended.as_ref().is_some_and(|ended| ended.result.is_ok() && ended.snapshot.is_some())
    }

    /// Notes what has ended.
    fn join(&mut self) {
        if self.ended.is_none() {
            self.ended = self.tasks.try_join_next().and_then(joined);
        }
    }

    /// Returns whether this file has failed, and waits until it is tried again.
    pub fn is_paused(&self, file: &SnapshotFile, is_needed: bool) -> bool {
        let most = if is_needed { MOST_IF_NEEDED } else { MOST };
        let waits = |failed: &Failed| {
            failed.file == *file && failed.since.elapsed() < failed.pause.min(most)
        };
        self.failed.as_ref().is_some_and(waits)
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
        self.failed.take_if(|failed| failed.file != job.file);
        let known = |failed: &mut Failed| (failed.unread.take(), failed.condition.clone());
        let known = self.failed.as_mut().map(known).unwrap_or_default();
        self.file = Some(job.file.clone());
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
        let Some(Ended { snapshot, result, condition }) = self.ended.take() else {
            return Ok(None);
        };
        self.has_failed = result.is_err();
        let before = self.failed.take().map_or(Duration::ZERO, |failed| failed.pause);
        let Err(error) = result else { return Ok(snapshot) };
        // What is damaged costs nothing, and is reported each time.
        let pause = match condition {
            Some(Condition::Damaged(_)) => Duration::ZERO,
            _ => (before * 2).clamp(FIRST, MOST),
        };
        let since = Instant::now();
        let failed = |file| Failed { file, unread: snapshot, condition, pause, since };
        self.failed = self.file.take().map(failed);
        Err(error)
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

/// Uploads a snapshot that is sound. What has failed leaves nothing in the store, if that answers.
async fn put(
    store: &Store,
    media: &Arc<dyn Media>,
    job: &Job,
    checked: &[u128],
) -> Result<Condition<Snapshot>> {
    let (of, parts) = ((&job.origin, &job.file), (job.from_link, job.id));
    let uploaded = snapshot::upload(store, media, of, parts, checked).await;
    if !matches!(uploaded, Ok(Condition::Sound(_))) {
        // It may be there although the store has said otherwise.
        remove(store, snapshot::object_name(job.file.start, job.id)).await;
    }
    uploaded
}

/// Checks a snapshot, puts it and reads it back, as far as that was not done.
async fn run(store: Store, media: Arc<dyn Media>, job: Job, (unread, condition): Known) -> Ended {
    let checked = match condition {
        Some(condition) => Ok(condition),
        None => snapshot::check(&media, &job.file).await,
    };
    let found = checked.as_ref().ok().cloned();
    let put = match checked {
        Ok(Condition::Sound(digests)) => match unread {
            Some(unread) => Ok(Condition::Sound(unread)),
            None => put(&store, &media, &job, &digests).await,
        },
        Ok(Condition::Gone) => Ok(Condition::Gone),
        Ok(Condition::Damaged(damage)) => Ok(Condition::Damaged(damage)),
        Err(error) => Err(error),
    };
    let snapshot = match put {
        Ok(Condition::Sound(snapshot)) => snapshot,
        // There is a newer one.
        Ok(Condition::Gone) => return Ended { snapshot: None, result: Ok(()), condition: None },
        Ok(Condition::Damaged(damage)) => {
            let error = snapshot::damaged(&*media, &job.file, damage.clone());
            let condition = Some(Condition::Damaged(damage));
            return Ended { snapshot: None, result: Err(error), condition };
        }
        Err(error) => return Ended { snapshot: None, result: Err(error), condition: found },
    };
    // What retention relies on is there.
    let read = snapshot::read(&store, &snapshot, |_, _| Ok(())).await;
    match read {
        Err(damage @ Error::Object { .. }) => {
            remove(&store, snapshot.name).await;
            Ended { snapshot: None, result: Err(damage), condition: found }
        }
        read => Ended { snapshot: Some(snapshot), result: read, condition: found },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::inspect::{origin_on, snapshots_on};
    use ebbtide::media::Memory;
    use ebbtide::{AgePartitioned, Durability, Filter, Options};
    use ebbtide_testkit::failing::Failing;
    use object_store::memory::InMemory;
    use std::io::ErrorKind;

    /// Uploads a snapshot whose medium fails once, at this call.
    async fn fail(upload: &mut Upload, media: &Failing<Memory>, job: &Job, call: u64) -> Error {
        let store = Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7");
        media.fail_after(call, ErrorKind::OutOfMemory);
        upload.begin(store, Arc::new(media.clone()), job.clone());
        upload.end().await;
        upload.take().expect_err("it fails")
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_failed_waits_twice_as_long_each_time_and_is_checked_once() {
        let memory = Memory::new();
        let options = Options::new().durability(Durability::Always);
        let spec = AgePartitioned::last(1000);
        let filter = Filter::create_on(Arc::new(memory.clone()), spec, options).expect("a filter");
        filter.insert("a key").expect("an insert");
        filter.checkpoint().expect("a checkpoint");
        let origin = origin_on(&memory).expect("a filter");
        let file = snapshots_on(&memory).expect("a list").remove(0);
        let job = Job { origin, file, from_link: 1, id: 7 };
        let (media, mut upload) = (Failing::new(memory), Upload::default());
        let (mut pause, moment, mut other) = (FIRST, Duration::from_millis(1), job.file.clone());
        other.start += 1;
        for _ in 0..10 {
            fail(&mut upload, &media, &job, 1).await;
            tokio::time::advance(pause - moment).await;
            assert!(upload.is_paused(&job.file, false), "{pause:?}");
            assert_eq!(upload.is_paused(&job.file, true), pause <= MOST_IF_NEEDED, "{pause:?}");
            assert!(!upload.is_paused(&other, false));
            tokio::time::advance(moment).await;
            assert!(!upload.is_paused(&job.file, false), "{pause:?}");
            pause = MOST.min(pause * 2);
        }
        assert_eq!(pause, MOST);
        // Once it is found sound, the first call opens it to upload it.
        let is_sound = |upload: &Upload| {
            let failed = upload.failed.as_ref().expect("it has failed");
            matches!(failed.condition, Some(Condition::Sound(_)))
        };
        let mut call = 1;
        while !is_sound(&upload) {
            call += 1;
            fail(&mut upload, &media, &job, call).await;
        }
        let error = fail(&mut upload, &media, &job, 1).await;
        assert!(matches!(error, Error::Store { action: "open", .. }), "{error}");
    }
}
