//! Checks at every moment of every recording that certain data is on disk before certain actions.
//!
//! The monitor reads the tape and uses the formats of segments and snapshots from `docs/format.md`,
//! but no code of the engine. A power cut at the moment of these actions must not lose the
//! following data:
//!
//! - An operation is acknowledged as durable: its record, and the name of its segment.
//! - A snapshot gets its name: all of its content, and the log from the newest snapshot before
//!   through its `end`, names included.
//! - A segment is removed: two snapshots, with their names, that begin at or after its end; or the
//!   first segment of a newer timeline that begins at or before it.
//! - A snapshot is removed: a newer snapshot, with its name.
//! - A segment or snapshot of another log is removed: a `meta` that does not name that log.
//! - A segment or `meta` gets its name: all of its content.
//! - An image gets its name: the first segment of its timeline, with its name, unless it shows that
//!   there is none yet.
//! - The first segment of a timeline gets its name: the names of `meta` and of all snapshots.
//!
//! A file that others read by its name is removed by renaming it to a temporary name. A file that
//! is removed while there is no `meta` belongs to no filter.

use crate::crash::tape::{Inode, SECTOR_BYTES, SECTOR_WORDS, Tape};
use std::sync::atomic::{AtomicBool, Ordering};

/// Disables the monitor, to find out which tests fail without it.
static BLIND: AtomicBool = AtomicBool::new(false);

/// Disables the monitor.
pub fn be_blind() {
    BLIND.store(true, Ordering::Relaxed);
}

/// Returns whether the monitor is disabled.
pub fn is_blind() -> bool {
    BLIND.load(Ordering::Relaxed)
}

const PAGE_BYTES: usize = 4096;
pub(super) const RECORD_WORDS: usize = 4;
const RECORDS_A_SECTOR: u64 = (SECTOR_WORDS / RECORD_WORDS) as u64;
const INSERT: u64 = 1;
const VOID: u64 = 7;
const REMOVE: u64 = 8;

/// A segment of the log in its current state.
struct Segment<'a> {
    name: &'a str,
    file: &'a Inode,
    timeline: u64,
    first: u64,
    capacity: u64,
    timeline_start: u64,
}

/// Returns the sector and the word of a record, in a segment that begins with this LSN.
pub(super) fn place(first: u64, lsn: u64) -> (usize, usize) {
    let at = lsn - first;
    let sector = PAGE_BYTES / SECTOR_BYTES + (at / RECORDS_A_SECTOR) as usize;
    (sector, (at % RECORDS_A_SECTOR) as usize * RECORD_WORDS)
}

/// Returns a word of the header in its current state.
pub(super) fn header(file: &Inode, word: usize) -> Option<u64> {
    Some(file.newest(0)?[word])
}

/// Returns the files whose names begin with `prefix`, with the rest of their names.
fn named<'a>(tape: &'a Tape, prefix: &str) -> Vec<(&'a str, &'a str, &'a Inode)> {
    let all = tape.names.iter().filter_map(|(name, course)| {
        let rest = name.strip_prefix(prefix)?;
        Some((name.as_str(), rest, &tape.inodes[&(*course.last())?]))
    });
    all.collect()
}

fn segments(tape: &Tape) -> Vec<Segment<'_>> {
    let all = named(tape, "wal-").into_iter();
    let all = all.filter(|(_, _, file)| !is_of_another_log(tape, file));
    let all = all.filter_map(|(name, rest, file)| {
        let (timeline, first) = rest.split_once('-')?;
        let (timeline, first) = (timeline.parse().ok()?, first.parse().ok()?);
        let [timeline_start, capacity] = [header(file, 5)?, header(file, 7)?];
        Some(Segment { name, file, timeline, first, capacity, timeline_start })
    });
    all.collect()
}

/// Returns the number of the log that a segment or a snapshot belongs to.
pub(super) fn log_of(file: &Inode) -> u128 {
    let [low, high] = [2, 3].map(|word| header(file, word).map_or(0, u128::from));
    high << 64 | low
}

/// Returns the number of the log that a `meta` names.
pub(super) fn log_of_meta(meta: &Inode) -> Option<u128> {
    let sectors = (0..).map_while(|sector| meta.newest(sector));
    let bytes = sectors.flat_map(|words| words.iter().flat_map(|word| word.to_le_bytes()));
    let bytes: Vec<u8> = bytes.collect();
    let text = String::from_utf8_lossy(&bytes);
    let value = |name| text.lines().find_map(|line| line.strip_prefix(name));
    u128::from_str_radix(value("log ").or_else(|| value("uuid "))?, 16).ok()
}

/// Returns whether a segment or a snapshot is certainly not of the filter's log: it is from before
/// an alteration, or of one that was not completed.
fn is_of_another_log(tape: &Tape, file: &Inode) -> bool {
    let left = tape.left_by_name("meta", tape.now);
    let mut logs = left.iter().map(|inode| log_of_meta(&tape.inodes[&(*inode)?]));
    !left.is_empty() && logs.all(|log| log.is_some_and(|log| log != log_of(file)))
}

/// Returns whether a name certainly refers to the same file after a cut now.
fn name_lasts(tape: &Tape, name: &str) -> bool {
    matches!(tape.left_by_name(name, tape.now)[..], [Some(_)])
}

/// Returns the starts of snapshots that survive a cut now. Two processes may have written the same
/// one, whose name then refers to either.
fn lasting_snapshots(tape: &Tape) -> Vec<u64> {
    let is_sound = |inode: &Option<u64>| {
        let file = inode.and_then(|inode| tape.inodes.get(&inode));
        file.is_some_and(|file| file.is_synced(tape.now) && !is_of_another_log(tape, file))
    };
    let lasting = named(tape, "snap-").into_iter().filter(|(name, ..)| {
        let left = tape.left_by_name(name, tape.now);
        !left.is_empty() && left.iter().all(is_sound)
    });
    lasting.filter_map(|(_, start, _)| start.parse().ok()).collect()
}

impl Segment<'_> {
    /// Returns the LSN after its last record, or the one at which a newer timeline begins.
    fn end(&self, all: &[Self]) -> u64 {
        let newer = all
            .iter()
            .filter(|other| other.timeline > self.timeline)
            .map(|other| other.timeline_start);
        newer.fold(self.first + self.capacity, u64::min)
    }

    /// Returns the four words of a record that certainly survive a cut now.
    fn certain(&self, lsn: u64, now: u64) -> Option<Vec<u64>> {
        let (sector, word) = self.place(lsn);
        self.file.certain(sector, word..word + RECORD_WORDS, now)
    }

    /// Returns whether a cut now certainly leaves a record, or a void: a writer that was too late
    /// may still change what stands before the last word of one.
    fn is_final(&self, lsn: u64, now: u64) -> bool {
        let (sector, word) = self.place(lsn);
        let last = self.file.certain(sector, word + 3..word + 4, now).map_or(0, |words| words[0]);
        last != 0 && (last >> 56 == VOID || self.certain(lsn, now).is_some())
    }

    fn place(&self, lsn: u64) -> (usize, usize) {
        place(self.first, lsn)
    }

    /// Returns the newest record of an operation at this time.
    fn operation_at(&self, time: u64) -> Option<u64> {
        let lsns = (self.first..self.first + self.capacity).rev();
        lsns.into_iter().find(|&lsn| {
            let (sector, word) = self.place(lsn);
            let words = self.file.newest(sector).map(|words| &words[word..word + RECORD_WORDS]);
            let code = |last: u64| last >> 56 & 0x3f;
            words.is_some_and(|words| words[1] == time && matches!(code(words[3]), INSERT | REMOVE))
        })
    }
}

/// Returns the segment with the record of the operation at a time, and the offset of the record's
/// last word, which publishes it.
pub fn publication(tape: &Tape, time: u64) -> Option<(String, u64)> {
    segments(tape).iter().rev().find_map(|segment| {
        let (sector, word) = segment.place(segment.operation_at(time)?);
        let offset = sector * SECTOR_BYTES + (word + RECORD_WORDS - 1) * 8;
        Some((segment.name.to_owned(), offset as u64))
    })
}

/// Checks that the operations of these times, acknowledged as durable, are on disk.
pub fn acknowledged(tape: &Tape, times: &[u64]) -> Result<(), String> {
    let all = segments(tape);
    for &time in times {
        let found = all.iter().rev();
        let mut found = found.filter_map(|segment| Some((segment, segment.operation_at(time)?)));
        // A snapshot may have made its segment superfluous.
        let Some((segment, lsn)) = found.next() else {
            if lasting_snapshots(tape).is_empty() {
                return Err(format!("the operation at {time} is durable and has no record"));
            }
            continue;
        };
        let name = segment.name;
        if segment.certain(lsn, tape.now).is_none() {
            return Err(format!("record {lsn} is durable and not synced in {name}"));
        }
        if !name_lasts(tape, name) {
            return Err(format!("record {lsn} is durable and the name {name} is not"));
        }
    }
    Ok(())
}

/// Checks a rename that is about to happen.
pub fn renamed(tape: &Tape, from: &str, to: &str) -> Result<(), String> {
    // This rename begins the removal of a file that others read.
    if to.starts_with("tmp-") {
        return removed(tape, from);
    }
    let Some(file) = tape.find(from).map(|inode| &tape.inodes[&inode]) else {
        return Ok(());
    };
    if to == "live" {
        let timeline = header(file, 4);
        // The allocated end of the log, and the start of the timeline.
        if header(file, 27) == header(file, 31) {
            return Ok(());
        }
        let all = segments(tape);
        let mut of_timeline = all.iter().filter(|segment| Some(segment.timeline) == timeline);
        let begun = of_timeline.any(|segment| {
            segment.first == segment.timeline_start
                && name_lasts(tape, segment.name)
                && segment.file.is_synced(tape.now)
        });
        return if begun {
            Ok(())
        } else {
            Err(format!("`live` of timeline {timeline:?} without its log"))
        };
    }
    if !file.is_synced(tape.now) {
        return Err(format!("{to} got its name before it was synced"));
    }
    if to.starts_with("wal-") && header(file, 5) == header(file, 6) {
        let others = named(tape, "snap-").into_iter().chain(named(tape, "meta"));
        let lost = others.map(|(name, ..)| name).find(|name| !name_lasts(tape, name));
        if let Some(name) = lost {
            return Err(format!("{to} begins a timeline, and the name {name} is not durable"));
        }
    }
    if to.starts_with("snap-") {
        let end = header(file, 6).unwrap_or_default();
        return log_lasts(tape, end).map_err(|what| format!("{to}: {what}"));
    }
    Ok(())
}

/// Checks that every record below `end` is on disk, from the start of the newest snapshot: older
/// records are not needed.
pub fn log_lasts(tape: &Tape, end: u64) -> Result<(), String> {
    let all = segments(tape);
    let start = lasting_snapshots(tape).into_iter().max().unwrap_or(0);
    for segment in &all {
        let upto = segment.end(&all).min(end);
        for lsn in segment.first.max(start)..upto {
            let what = match segment.is_final(lsn, tape.now) {
                false => "record",
                true if !name_lasts(tape, segment.name) => "the name of record",
                true => continue,
            };
            return Err(format!(
                "it ends at {end}, and {what} {lsn} in {} is not durable",
                segment.name
            ));
        }
    }
    Ok(())
}

/// Checks a removal that is about to happen.
pub fn removed(tape: &Tape, name: &str) -> Result<(), String> {
    if tape.find("meta").is_none() {
        return Ok(());
    }
    let snapshots = lasting_snapshots(tape);
    let inode = tape.find(name).and_then(|inode| tape.inodes.get(&inode));
    if inode.is_some_and(|inode| is_of_another_log(tape, inode)) {
        return Ok(());
    }
    if let Some(start) = name.strip_prefix("snap-") {
        let newer =
            snapshots.iter().filter(|&&other| start.parse().is_ok_and(|start| other > start));
        return if newer.count() > 0 {
            Ok(())
        } else {
            Err(format!("{name} was removed and no newer snapshot is durable"))
        };
    }
    let all = segments(tape);
    let Some(segment) = all.iter().find(|segment| segment.name == name) else {
        return Ok(());
    };
    let end = segment.end(&all);
    let covering = snapshots.iter().filter(|&&start| start >= end).count();
    let ended = all.iter().any(|other| {
        other.timeline > segment.timeline
            && other.timeline_start <= segment.first
            && name_lasts(tape, other.name)
    });
    if covering >= 2 || covering == 1 && tape.told.last().full || ended {
        return Ok(());
    }
    Err(format!(
        "{name}, which ends at {end}, was removed; durable snapshots start at {snapshots:?}"
    ))
}
