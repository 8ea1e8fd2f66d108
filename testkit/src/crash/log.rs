//! The log as the tape of a disk shows it, read by `docs/format.md` and not by code of the engine.

use crate::crash::monitor::{RECORD_WORDS, header, log_of, log_of_meta, place};
use crate::crash::tape::Tape;
use std::collections::BTreeMap;

/// The first word of a segment.
const MAGIC: u64 = u64::from_le_bytes(*b"EBBTWAL\n");

/// A slot of the log that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its position.
    pub lsn: u64,
    /// The timeline that it was written in.
    pub timeline: u64,
    /// Its words.
    pub words: [u64; RECORD_WORDS],
}

/// What a tape shows of a log.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// All timelines whose segments have names, and where each began.
    pub timelines: BTreeMap<u64, u64>,
    /// The slots, in no order. Each LSN is that of the newest timeline that has it.
    pub slots: Vec<Slot>,
}

/// Reads the slots from an LSN on, also of segments that have been removed. Those that a power cut
/// left are the tape before's. An alteration writes log that counts only once there is a `meta`
/// with its number.
pub(crate) fn read(tape: &Tape, from: u64) -> Found {
    let mut found = Found::default();
    let mut segments = Vec::new();
    let metas = tape.names.get("meta").into_iter().flat_map(|course| course.all());
    let logs: Vec<u128> =
        metas.flatten().filter_map(|inode| log_of_meta(&tape.inodes[inode])).collect();
    for (name, course) in &tape.names {
        let Some((timeline, first)) = name.strip_prefix("wal-").and_then(|rest| {
            let (timeline, first) = rest.split_once('-')?;
            Some((timeline.parse::<u64>().ok()?, first.parse::<u64>().ok()?))
        }) else {
            continue;
        };
        for inode in course.all().flatten() {
            let Some(file) = tape.inodes.get(inode) else { continue };
            if file.was_left() || header(file, 0) != Some(MAGIC) {
                continue;
            }
            if !logs.is_empty() && !logs.contains(&log_of(file)) {
                continue;
            }
            if let (Some(start), Some(capacity)) = (header(file, 5), header(file, 7)) {
                found.timelines.insert(timeline, start);
                segments.push((timeline, first, capacity, file));
            }
        }
    }
    for (timeline, first, capacity, file) in segments {
        let newer = found.timelines.range(timeline + 1..).map(|(_, &start)| start);
        let end = newer.fold(first.saturating_add(capacity), u64::min);
        for lsn in first.max(from)..end {
            let (sector, word) = place(first, lsn);
            let words = file.newest(sector).map(|words| &words[word..word + RECORD_WORDS]);
            if let Some(&[a, b, c, d]) = words
                && d != 0
            {
                found.slots.push(Slot { lsn, timeline, words: [a, b, c, d] });
            }
        }
    }
    found
}
