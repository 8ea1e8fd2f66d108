//! Whether a directory has what was shipped last: only then may its shipper continue the chain.

use crate::chain::{Base, Run};
use crate::error::{Error, Result};
use crate::link::Snapshot;
use crate::log::open_log;
use crate::snapshot;
use crate::store::Store;
use ebbtide::inspect::{Piece, SnapshotFile, snapshots_on};
use ebbtide::media::Media;
use std::sync::Arc;

/// The length of a record.
pub(crate) const RECORD_BYTES: u64 = 32;

const LACKS: &str = "another machine has shipped more: fetch into a new directory, and use that; \
                     to discard what only the store has, ship with `--take-over`";
pub(crate) const UNKNOWN: &str = "if this directory is the only one in use, ship with \
                                  `--take-over`; keep log (`--keep-log 1h`) so that it can be \
                                  shown after the next pause";

/// Returns whether two pieces hold the same records, whatever their timelines.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    // The last four bytes but four of a record are its checksum, which depends on the timeline.
    let content = |record: &[u8]| (record[..24].to_vec(), record[28..].to_vec());
    a.len() == b.len()
        && a.chunks_exact(32).zip(b.chunks_exact(32)).all(|(a, b)| content(a) == content(b))
}

/// Checks that the directory has what a run ends with.
pub(crate) fn shows(store: &Store, media: &Arc<dyn Media>, run: &Run) -> Result<()> {
    match (&run.last, &run.base) {
        (last, Some((_, Base::Snapshot(snapshot)))) if snapshot.start == run.next => {
            // No records follow it: either will do.
            let by_records = last.as_ref().map(|last| shows_records(store, media, last));
            if let Some(Ok(())) = by_records {
                return Ok(());
            }
            match (shows_snapshot(store, media, snapshot), by_records) {
                (Err(unknown), Some(Err(Error::Refused { remedy: UNKNOWN, .. }))) => Err(unknown),
                (Err(_), Some(Err(lacks))) => Err(lacks),
                (by_snapshot, _) => by_snapshot,
            }
        }
        (Some(last), _) => shows_records(store, media, last),
        // Nothing was shipped but a beginning.
        (None, _) => Ok(()),
    }
}

/// Returns whether neither log nor snapshots of the directory reach this LSN, so that it is an
/// older state.
fn ends_below(media: &Arc<dyn Media>, files: &[SnapshotFile], lsn: u64) -> Result<bool> {
    let is_beyond = files.iter().any(|file| file.end >= lsn);
    match open_log(media, lsn - 1) {
        Err(ebbtide::Error::NotKept { end, .. }) => Ok(end < lsn && !is_beyond),
        opened => Ok(opened.map(|_| false)?),
    }
}

/// Checks that the directory has this snapshot, which no records follow.
fn shows_snapshot(store: &Store, media: &Arc<dyn Media>, snapshot: &Snapshot) -> Result<()> {
    let files = snapshots_on(&**media)?;
    let of_start = files.iter().find(|file| file.start == snapshot.start);
    let is_other = match of_start {
        Some(file) if file.bytes == snapshot.bytes => match snapshot::digests(&**media, file)? {
            Some(digests) if digests == snapshot.digests => return Ok(()),
            digests => digests.is_some(),
        },
        of_start => of_start.is_some(),
    };
    // One that has lost its name meanwhile, as by a checkpoint, shows nothing.
    let lacks = is_other || ends_below(media, &files, snapshot.end)?;
    Err(Error::Refused {
        url: store.to_string(),
        expected: format!("the snapshot from LSN {} to {}", snapshot.start, snapshot.end),
        found: if is_other { "another one of this LSN" } else { "none of this LSN" }.into(),
        remedy: if lacks { LACKS } else { UNKNOWN },
        is_outdated: lacks,
    })
}

/// Checks that the directory has these records, the newest of the chain.
fn shows_records(store: &Store, media: &Arc<dyn Media>, last: &Piece) -> Result<()> {
    let refused = |found: String, remedy| Error::Refused {
        url: store.to_string(),
        expected: format!("the records of LSN {} to {}", last.first, last.end() - 1),
        found,
        remedy,
        is_outdated: remedy == LACKS,
    };
    let mut at = last.first;
    'open: loop {
        let mut history = match open_log(media, at - 1) {
            // The rest of them is as good.
            Err(ebbtide::Error::NotKept { from, end, .. })
                if from >= at && from + 1 < last.end() && last.end() <= end =>
            {
                at = from + 1;
                continue;
            }
            Err(ebbtide::Error::NotKept { from, end, .. }) => {
                let found = match end {
                    end if end > from + 1 => format!("those of LSN {} to {}", from + 1, end - 1),
                    end => format!("none below LSN {end}"),
                };
                let remedy = if end < last.end() { LACKS } else { UNKNOWN };
                return Err(refused(found, remedy));
            }
            // What is not durable was not shipped from here.
            opened => opened?,
        };
        while at < last.end() {
            let piece = match history.read_piece() {
                // Removed meanwhile, by a checkpoint or an alteration.
                Err(ebbtide::Error::NotKept { .. }) => continue 'open,
                read => read?,
            };
            let Some(piece) = piece else {
                return Err(refused(format!("only those up to {}", at - 1), LACKS));
            };
            let skip = (at.saturating_sub(piece.first) * RECORD_BYTES) as usize;
            let from = ((at - last.first) * RECORD_BYTES) as usize;
            let own = piece.records.get(skip..).unwrap_or_default();
            let rest = &last.records[from..];
            let length = own.len().min(rest.len());
            if piece.log != last.log || length == 0 || !is_same(&own[..length], &rest[..length]) {
                return Err(refused(format!("other records from LSN {at} on"), LACKS));
            }
            at += length as u64 / RECORD_BYTES;
        }
        return Ok(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::inspect::origin_on;
    use ebbtide::media::Memory;
    use ebbtide::{AgePartitioned, Durability, Filter, Options};
    use ebbtide_testkit::failing::Failing;
    use object_store::memory::InMemory;
    use std::io::ErrorKind;

    #[test]
    fn a_snapshot_that_loses_its_name_while_it_is_looked_at_is_no_sign_of_another_shipper() {
        let memory = Memory::new();
        let options = Options::new().durability(Durability::Always);
        let spec = AgePartitioned::last(1000);
        let filter = Filter::create_on(Arc::new(memory.clone()), spec, options).expect("a filter");
        filter.insert("a key").expect("an insert");
        filter.checkpoint().expect("a checkpoint");
        let file = snapshots_on(&memory).expect("a list").remove(0);
        let digests = snapshot::digests(&memory, &file).expect("digests").expect("a file");
        let origin = origin_on(&memory).expect("a filter");
        let snapshot = Snapshot {
            name: "a".into(),
            log: origin.log,
            engine_timeline: file.timeline,
            start: file.start,
            end: file.end,
            bytes: file.bytes,
            from_link: 1,
            part_bytes: file.bytes,
            digests,
            meta: origin.meta,
        };
        let store = Store::of(Arc::new(InMemory::new()), "orders/7", "memory:///orders/7");
        let failing = Failing::new(memory);
        let media: Arc<dyn Media> = Arc::new(failing.clone());
        for call in 1.. {
            failing.fail_after(call, ErrorKind::NotFound);
            let shown = shows_snapshot(&store, &media, &snapshot);
            if failing.clear_faults() {
                shown.expect("it is there");
                break;
            }
            let is_outdated = matches!(shown, Err(Error::Refused { is_outdated: true, .. }));
            assert!(!is_outdated, "call {call}: {shown:?}");
        }
    }
}
