//! Snapshots as objects: uploaded in parts from a file of the filter, downloaded into another one.

use crate::error::{Error, Result, may_pass};
use crate::link::{Snapshot, digest};
use crate::store::{Folder, Store};
use bytes::Bytes;
use ebbtide::Error as Inner;
use ebbtide::inspect::{Origin, SnapshotFile, newest_timeline_on, verify_snapshot_on};
use ebbtide::media::{Access, Media, MediaFile};
use futures::StreamExt;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The length of a part, whose digest is in the link.
const PART_BYTES: u64 = 8 << 20;
/// The largest part that is read: more is not taken into memory at once.
const PART_BYTES_MOST: u64 = 256 << 20;
/// Parts that are read at a time.
const PARTS: usize = 8;
/// The longest time to wait for an answer about an upload that has failed.
const LOOK: Duration = Duration::from_secs(10);
pub const REMEDY: &str = "fetch an older state with `--at`, or ship the filter to a new prefix from a \
                      machine that has it";

fn read_file(
    media: &dyn Media,
    name: &str,
    file: &dyn MediaFile,
    range: Range<u64>,
) -> Result<Bytes> {
    let mut buffer = vec![0; (range.end - range.start) as usize];
    let read = file.read_at(&mut buffer, range.start);
    read.map_err(|source| local("read", media, name, &source))?;
    Ok(buffer.into())
}

/// Creates the error for a file of the machine.
pub fn local(action: &'static str, media: &dyn Media, name: &str, error: &std::io::Error) -> Error {
    let object = media.path().join(name).display().to_string();
    let remedy = "look at the disk of this machine";
    let (found, is_transient) = (error.to_string(), may_pass(error));
    Error::Store { object, action, found, remedy, is_transient }
}

/// Returns what the names of snapshots with this start begin with, in the order of starts.
pub fn snapshot_prefix(start: u64) -> String {
    format!("{start:020}-")
}

fn open(media: &dyn Media, file: &SnapshotFile) -> Result<Option<Box<dyn MediaFile>>> {
    match media.open(&file.name, Access::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        open => open.map(Some).map_err(|error| local("open", media, &file.name, &error)),
    }
}

/// Returns whether a file that was opened still has its name. It loses it to later checkpoints, or
/// on a full disk, where the engine writes another snapshot in its place: not before that.
fn is_named(media: &dyn Media, file: &SnapshotFile, opened: &dyn MediaFile) -> Result<bool> {
    let Some(found) = open(media, file)? else { return Ok(false) };
    let identity = |of: &dyn MediaFile| {
        of.identity().map_err(|error| local("look at", media, &file.name, &error))
    };
    Ok(identity(&*found)? == identity(opened)?)
}

fn digests_of(media: &dyn Media, file: &SnapshotFile, open: &dyn MediaFile) -> Result<Vec<u128>> {
    let starts = (0..file.bytes).step_by(PART_BYTES as usize);
    let range = |start| start..file.bytes.min(start + PART_BYTES);
    starts.map(|start| Ok(digest(&read_file(media, &file.name, open, range(start))?))).collect()
}

/// Returns the digests of the parts of a filter's snapshot; `None` if it is gone.
pub fn digests(media: &dyn Media, file: &SnapshotFile) -> Result<Option<Vec<u128>>> {
    let Some(open) = open(media, file)? else { return Ok(None) };
    let digests = digests_of(media, file, &*open);
    if is_named(media, file, &*open)? { digests.map(Some) } else { Ok(None) }
}

/// What a snapshot of a filter is found to be.
#[derive(Debug, Clone)]
pub enum Condition<T> {
    Sound(T),
    /// The file is not there any more.
    Gone,
    /// What is wrong with it.
    Damaged(String),
}

/// Does work with whole files, which takes long, beside the tasks of this thread.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => Err(Error::Store {
            object: "a snapshot".into(),
            action: "read",
            found: error.to_string(),
            remedy: "it is tried again",
            is_transient: true,
        }),
    })
}

fn check_file(media: &dyn Media, file: &SnapshotFile) -> Result<Condition<Vec<u128>>> {
    match verify_snapshot_on(media, file) {
        Ok(()) => {}
        Err(Inner::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(Condition::Gone);
        }
        // Another snapshot will be elsewhere on the disk.
        Err(Inner::Io { source, .. }) if !may_pass(&source) => {
            return Ok(Condition::Damaged(source.to_string()));
        }
        Err(Inner::Damaged { offset, expected, found, .. }) => {
            let found = format!("expected {expected} at byte {offset}, found {found}");
            return Ok(Condition::Damaged(found));
        }
        Err(error) => return Err(error.into()),
    }
    // Of the same bytes: the file still has its name.
    match digests(media, file) {
        Ok(Some(digests)) => Ok(Condition::Sound(digests)),
        Ok(None) => Ok(Condition::Gone),
        Err(Error::Store { found, is_transient: false, .. }) => Ok(Condition::Damaged(found)),
        Err(error) => Err(error),
    }
}

/// Checks all frames of a snapshot: what is damaged here would have the right digests in the store.
/// Returns the digests of its parts.
pub async fn check(media: &Arc<dyn Media>, file: &SnapshotFile) -> Result<Condition<Vec<u128>>> {
    let (medium, of) = (media.clone(), file.clone());
    match beside(move || check_file(&*medium, &of)).await? {
        // It was written over while it was read.
        Condition::Damaged(_) if open(&**media, file)?.is_none() => Ok(Condition::Gone),
        condition => Ok(condition),
    }
}

/// Creates the error for a snapshot of a filter that is damaged.
pub fn damaged(media: &dyn Media, file: &SnapshotFile, found: String) -> Error {
    Error::Store {
        object: media.path().join(&file.name).display().to_string(),
        action: "ship",
        found,
        remedy: "look at the disk, and write another snapshot (`ebbtide snapshot DIR`); log is \
                 shipped nevertheless",
        is_transient: true,
    }
}

/// Returns the name of the object of a snapshot with this start; `id` makes it unique.
pub fn object_name(start: u64, id: u64) -> String {
    format!("{}{id:016x}", snapshot_prefix(start))
}

/// Returns whether an object is there although its upload has failed: if only the answer was lost.
async fn has_end(store: &Store, name: &str, bytes: u64) -> bool {
    let last = store.get_part(Folder::Snapshot, name, bytes.saturating_sub(1)..bytes);
    matches!(tokio::time::timeout(LOOK, last).await, Ok(Ok(Some(_))))
}

/// Creates the error for an object that is not what was put, although the store has confirmed it.
pub fn not_as_put(object: String, expected: &str, found: &str) -> Error {
    Error::Store {
        object,
        action: "read back",
        found: format!("expected {expected}, found {found}"),
        remedy: "it gets no link, and is uploaded again; look at the store if it recurs",
        is_transient: true,
    }
}

/// Uploads a snapshot of a filter whose parts had these digests when it was checked. If they are
/// others by the end, or cannot be read, the object has nothing of value. `from_link` is the link
/// with the record of its start.
pub async fn upload(
    store: &Store,
    media: &Arc<dyn Media>,
    (origin, file): (&Origin, &SnapshotFile),
    (from_link, id): (u64, u64),
    checked: &[u128],
) -> Result<Condition<Snapshot>> {
    let Some(open) = open(&**media, file)? else { return Ok(Condition::Gone) };
    let (open, name): (Arc<dyn MediaFile>, _) = (open.into(), object_name(file.start, id));
    let mut is_read = true;
    let read = |range: Range<u64>| {
        let part = read_file(&**media, &file.name, &*open, range);
        is_read &= part.is_ok();
        part
    };
    let uploaded = store.upload(Folder::Snapshot, &name, file.bytes, read).await;
    let digests = match uploaded {
        Err(error) if !is_read => Err(error),
        // What is there, and how, is seen when it is read back.
        Err(error) if !has_end(store, &name, file.bytes).await => return Err(error),
        // Read again: what was uploaded is compared with it.
        _ => {
            let (media, of, open) = (media.clone(), file.clone(), open.clone());
            beside(move || digests_of(&*media, &of, &*open)).await
        }
    };
    let digests = match digests {
        Err(Error::Store { found, is_transient: false, .. }) => {
            return Ok(Condition::Damaged(found));
        }
        digests => digests?,
    };
    // Without its name it is as good, unless it was written over.
    if digests != checked {
        let is_named = is_named(&**media, file, &*open)?;
        let changed = || Condition::Damaged("other bytes than when it was checked".into());
        return Ok(if is_named { changed() } else { Condition::Gone });
    }
    // Those that were begun since the snapshot have given tokens of claims, too, perhaps without a
    // record that is ever shipped.
    let engine_timeline = newest_timeline_on(&**media)?.max(file.timeline);
    Ok(Condition::Sound(Snapshot {
        name,
        log: origin.log,
        engine_timeline,
        start: file.start,
        end: file.end,
        bytes: file.bytes,
        from_link,
        part_bytes: PART_BYTES,
        digests,
        meta: origin.meta.clone(),
    }))
}

/// Checks that the parts add up to the snapshot.
pub fn check_parts(store: &Store, snapshot: &Snapshot) -> Result<()> {
    // Parts of no bytes would be whole without one of the snapshot.
    let (expected, found) =
        (snapshot.bytes.div_ceil(snapshot.part_bytes.max(1)), snapshot.digests.len() as u64);
    if expected == found && (1..=PART_BYTES_MOST).contains(&snapshot.part_bytes) {
        return Ok(());
    }
    let object = store.name(Folder::Snapshot, &snapshot.name);
    let expected = format!("{expected} parts of 1 to {PART_BYTES_MOST} bytes");
    let found = format!("{found} of {}", snapshot.part_bytes);
    Err(Error::object(object, expected, found, REMEDY))
}

/// Reads a snapshot, checks the digest of each part, and passes it on with its offset, in any
/// order.
pub async fn read(
    store: &Store,
    snapshot: &Snapshot,
    mut take: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    check_parts(store, snapshot)?;
    let (name, part) = (&snapshot.name, snapshot.part_bytes);
    let object = || store.name(Folder::Snapshot, name);
    let parts = futures::stream::iter(snapshot.digests.iter().copied().enumerate());
    let mut parts = parts
        .map(|(at, digest)| async move {
            let start = at as u64 * part;
            let range = start..snapshot.bytes.min(start + part);
            (start, digest, store.get_part(Folder::Snapshot, name, range).await)
        })
        .buffer_unordered(PARTS);
    while let Some((start, expected, bytes)) = parts.next().await {
        let Some(bytes) = bytes? else {
            return Err(Error::object(object(), "a snapshot", "nothing", REMEDY));
        };
        let found = digest(&bytes);
        if found != expected {
            let expected = format!("{expected:032x} as the digest of the part at byte {start}");
            return Err(Error::object(object(), expected, format!("{found:032x}"), REMEDY));
        }
        take(start, &bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::inspect::{origin_on, snapshots_on};
    use ebbtide::media::Memory;
    use ebbtide::{AgePartitioned, Durability, Filter, Options};
    use ebbtide_testkit::failing::Failing;
    use object_store::memory::InMemory;

    #[tokio::test]
    async fn a_snapshot_that_cannot_be_read_counts_as_damaged_unless_that_may_pass() {
        let memory = Memory::new();
        let options = Options::new().durability(Durability::Always);
        let spec = AgePartitioned::last(1000);
        let filter = Filter::create_on(Arc::new(memory.clone()), spec, options).expect("a filter");
        filter.insert("a key").expect("an insert");
        filter.checkpoint().expect("a checkpoint");
        let origin = origin_on(&memory).expect("a filter");
        let file = snapshots_on(&memory).expect("a list").remove(0);
        let store = Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7");
        let failing = Failing::new(memory);
        let media: Arc<dyn Media> = Arc::new(failing.clone());
        let kinds = [(ErrorKind::Other, false), (ErrorKind::OutOfMemory, true)];
        for (kind, may_pass) in kinds {
            for call in 1.. {
                failing.fail_after(call, kind);
                let checked = check(&media, &file).await;
                if failing.clear_faults() {
                    assert!(matches!(checked, Ok(Condition::Sound(_))), "{checked:?}");
                    break;
                }
                match checked {
                    Err(error) => assert!(may_pass && error.is_transient(), "{error}"),
                    Ok(Condition::Damaged(_)) => assert!(!may_pass, "{kind}"),
                    checked => panic!("{kind}: {checked:?}"),
                }
            }
            let checked = digests(&*media, &file).expect("digests").expect("a file");
            // Of the calls of an upload the first one opens the file. It is read twice.
            for call in [2, 3] {
                failing.fail_after(call, kind);
                match upload(&store, &media, (&origin, &file), (1, call), &checked).await {
                    Err(error) => assert!(may_pass && error.is_transient(), "{error}"),
                    Ok(Condition::Damaged(_)) => assert!(!may_pass, "{kind}"),
                    uploaded => panic!("{kind}: {uploaded:?}"),
                }
            }
        }
    }
}
