//! A consistent copy of a filter while others write.
//!
//! Writes a snapshot directly to the destination, and the records from its start to its end as one
//! segment. Together they are a filter: opening it replays them like any other. It keeps as much
//! log as the original does (the file `keep`), beginning with its own. Then each file is
//! copied once more ([`crate::admin::second_copies`]).

use crate::admin::second_copies::Second;
use crate::archive::keep_setting;
use crate::engine::Engine;
use crate::engine::checkpoints::backpressure::PATIENCE;
use crate::engine::checkpoints::checkpoint::Place;
use crate::engine::lifecycle::open::write_new;
use crate::engine::lifecycle::vacant_directory::check_vacant;
use crate::engine::stripes::Wait;
use crate::engine::temporary_files::{clear, write_file};
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::media::{Access, Media};
use crate::options::Keep;
use crate::snapshot::SnapshotHeader;
use crate::wal::segment::SegmentHeader;
use crate::wal::{Segment, slot};
use std::io::ErrorKind;
use std::sync::Arc;

const SNAPSHOT_TEMPORARY: u64 = 0;
const SEGMENT_TEMPORARY: u64 = 1;
const META_TEMPORARY: u64 = 2;
const KEEP_TEMPORARY: u64 = 3;

/// The number of times a copy starts over because checkpoints of other processes have removed log
/// that it needs.
const TRIES: u32 = 3;

/// Copies an open filter to a new directory, each file twice.
pub(crate) fn backup(engine: &Engine, to: &dyn Media) -> Result<()> {
    engine.shared.check_process()?;
    // A handle that is closed makes no directory.
    drop(engine.shared.enter()?);
    // Before leftovers are removed.
    check_no_second(to)?;
    write_new(to, |_locks| {
        // Another attempt may have died meanwhile.
        check_no_second(to)?;
        // The first error is the one to report.
        write_both(engine, to).inspect_err(|_| drop(clear(&Second(to))))
    })
}

/// Checks that the directory has no second copy of a backup that lost the first one: a restore
/// creates the filter from it.
fn check_no_second(to: &dyn Media) -> Result<()> {
    let second = Second(to);
    let path = second.path_of(FileName::Meta);
    match second.open(&FileName::Meta.to_string(), Access::Read) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(());
        }
        // Also what is no file is not ours to remove.
        Err(error) if error.kind() != ErrorKind::InvalidInput => {
            return Err(Error::io("open", path)(error));
        }
        _ => {}
    }
    // If the first copy is there, that is reported.
    check_vacant(to)?;
    Err(Error::Damaged {
        path,
        offset: 0,
        expected: "no file of this name, or `meta` beside it".to_owned(),
        found: "the second copy of a backup, without the first one".to_owned(),
        remedy: "a backup here would remove it: `ebbtide restore` creates the filter from it in \
                 another directory; back up to another directory, or remove this one",
    })
}

/// Writes both copies, `meta` of the first one last. On an error, some of it may be left.
fn write_both(engine: &Engine, to: &dyn Media) -> Result<()> {
    // Leftovers of an earlier attempt: without `meta` they belong to no filter.
    clear(&Second(to))?;
    copy_patiently(engine, to)?;
    // From here on the filter may be closed, or altered: nothing of it is read any more.
    let meta = &engine.shared.meta;
    Second(to).write(meta)?;
    write_file(to, META_TEMPORARY, &FileName::Meta.to_string(), &meta.encode())
}

/// Copies state and log, while closing the handle waits.
fn copy_patiently(engine: &Engine, to: &dyn Media) -> Result<()> {
    let _busy = engine.shared.enter()?;
    // Meanwhile other processes do not remove log, unless they urgently need space.
    let _writing = engine.checkpoints.begin_snapshot(PATIENCE)?;
    for _ in 0..TRIES {
        if copy_filter(engine, to)? {
            return copy_keep(engine, to);
        }
        clear(to)?;
    }
    let overtaken = std::io::Error::new(
        ErrorKind::Interrupted,
        "checkpoints removed the log under it; try again, or raise `checkpoint_bytes`",
    );
    Err(Error::io("back up", engine.path())(overtaken))
}

/// Copies how much log the filter keeps. That the file which says so cannot be read is no reason to
/// have no backup.
fn copy_keep(engine: &Engine, to: &dyn Media) -> Result<()> {
    match keep_setting::read(&*engine.shared.media) {
        Ok(Keep::Nothing) | Err(_) => Ok(()),
        Ok(keep) => {
            let text = keep_setting::encode(keep);
            write_file(to, KEEP_TEMPORARY, &FileName::Keep.to_string(), &text)
        }
    }
}

/// Copies state and log; returns false if log was removed that the copy needs.
fn copy_filter(engine: &Engine, to: &dyn Media) -> Result<bool> {
    // Held from the start: a process that has a segment mapped keeps its content, even if the
    // file is removed.
    let (_, mut held) = engine.log_space.map_log()?;
    let temporary = FileName::Temporary(SNAPSHOT_TEMPORARY).to_string();
    let snapshot = engine.checkpoints.copy_to(Place::Backup(to), &temporary, Wait::Always)?;
    let end = engine.header().allocated().read();
    match engine.shared.map_log(snapshot.start, end) {
        Err(error) if error.is_not_found() => {}
        mapped => held.extend(mapped?),
    }
    held.sort_by_key(|segment| segment.first());
    held.dedup_by_key(|segment| segment.first());
    let name = FileName::Snapshot { start: snapshot.start }.to_string();
    to.rename(&temporary, &name).map_err(Error::io("name", to.path().join(&name)))?;
    copy_log(engine, &held, to, &snapshot)
}

/// Copies the records that the snapshot needs; all are published, because the log is durable
/// through its end. Returns false if one of them is not in these segments, which are in the
/// order of their LSNs.
fn copy_log(
    engine: &Engine,
    held: &[Arc<Segment>],
    to: &dyn Media,
    snapshot: &SnapshotHeader,
) -> Result<bool> {
    let header = SegmentHeader {
        uuid: engine.shared.meta.log_uuid,
        timeline: snapshot.timeline,
        timeline_start: snapshot.start,
        first: snapshot.start,
        capacity: (snapshot.end - snapshot.start).max(1),
    };
    let segment = Segment::create(to, header, SEGMENT_TEMPORARY)?;
    let mut next = snapshot.start;
    for from in held {
        // Whoever has altered the filter waits for this handle to end.
        engine.shared.check_unaltered()?;
        if next < snapshot.end && from.first() > next {
            return Ok(false);
        }
        let upto = snapshot.end.min(from.end());
        for lsn in next..upto {
            let words = slot::words(from.slot(lsn));
            if words[3] == 0 {
                // Not the segment that held the record, but an empty one that received the name
                // of a removed one.
                return Ok(false);
            }
            slot::publish(segment.slot(lsn), words);
        }
        next = next.max(upto);
    }
    let name = FileName::Segment { timeline: header.timeline, first: header.first };
    segment.sync().map_err(Error::io("sync", to.path().join(name.to_string())))?;
    Ok(next == snapshot.end)
}

#[cfg(all(test, not(loom)))]
mod tests;
