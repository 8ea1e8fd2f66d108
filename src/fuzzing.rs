//! Entry points for fuzzers, built with `--cfg fuzzing` only: bytes in, nothing out, no panic.
//!
//! Checksums would reject nearly every input, so each entry point also tries the input with its
//! checksum corrected. The code behind the checksum must then reject it by its own checks.

use crate::format::header::{DURABLE, HEADER_BYTES, PAGE_BYTES, to_bytes, to_words};
use crate::format::names::FileName;
use crate::media::{Access, Media, Memory};
use crate::meta::Meta;
use crate::recovery::log_reader::LogReader;
use crate::recovery::make_durable::make_durable;
use crate::recovery::{KnownExtent, Listing};
use crate::snapshot::{SnapshotReader, seal_frames};
use crate::wal::log_record::{Decoded, Op, RECORD_BYTES, Record, sealed};
use crate::wal::segment::{Segment, SegmentHeader};
use ebbtide_core::block::store;
use std::path::Path;

const UUID: u128 = 0x0123_4567_89AB_CDEF;

/// Corrects the checksums in the file of this name: of its header, and of its records or frames.
pub fn seal(name: &str, bytes: &mut Vec<u8>) {
    match FileName::parse(name) {
        Some(FileName::Meta) => seal_text(bytes),
        Some(FileName::Segment { timeline, first }) => {
            seal_header(bytes);
            let records = bytes.get_mut(PAGE_BYTES as usize..).unwrap_or_default();
            for (at, record) in records.chunks_exact_mut(RECORD_BYTES as usize).enumerate() {
                let mut words = [0; 4];
                words.iter_mut().zip(to_words(record)).for_each(|(to, word)| *to = word);
                let lsn = first.wrapping_add(at as u64);
                record.copy_from_slice(&to_bytes(&sealed(words, timeline, lsn)));
            }
        }
        Some(FileName::Snapshot { .. }) => {
            const BYTES_WORD: usize = 8;
            let length = bytes.len() as u64;
            if let Some(word) = bytes.get_mut(BYTES_WORD * 8..BYTES_WORD * 8 + 8) {
                word.copy_from_slice(&length.to_le_bytes());
            }
            seal_header(bytes);
            seal_frames(bytes);
        }
        _ => seal_header(bytes),
    }
}

/// Replaces the last line of a text by one with the right checksum.
fn seal_text(bytes: &mut Vec<u8>) {
    const LINE: &[u8] = b"\nchecksum ";
    if let Some(at) = bytes.windows(LINE.len()).rposition(|line| line == LINE) {
        bytes.truncate(at + 1);
    }
    bytes.extend(format!("checksum {:08x}\n", crc32fast::hash(bytes)).bytes());
}

fn seal_header(bytes: &mut [u8]) {
    if let Some((header, sum)) =
        bytes.get_mut(..HEADER_BYTES).map(|header| header.split_at_mut(HEADER_BYTES - 8))
    {
        sum.copy_from_slice(&u64::from(crc32fast::hash(header)).to_le_bytes());
    }
}

/// Decodes `meta`, unchanged and with its checksum corrected. A file that decodes must decode to
/// the same after encoding.
pub fn meta(bytes: &[u8]) {
    let path = Path::new("meta");
    let _ = Meta::decode(bytes, path);
    let mut sealed = bytes.to_vec();
    seal_text(&mut sealed);
    if let Ok(meta) = Meta::decode(&sealed, path) {
        let again = meta.encode();
        let read = Meta::decode(&again, path).expect("what is written reads back");
        assert_eq!(read.encode(), again);
    }
}

/// Decodes the four words of a record and its slot, unchanged and with the checksum corrected.
pub fn record(bytes: &[u8]) {
    let words: Vec<u64> = to_words(bytes).collect();
    let &[a, b, c, d, timeline, lsn] = words.as_slice() else {
        return;
    };
    let words = [a, b, c, d];
    for words in [words, sealed(words, timeline, lsn)] {
        if let Decoded::Valid(record) = Record::decode(words, timeline, lsn) {
            let again = record.encode(timeline, lsn);
            assert_eq!(Record::decode(again, timeline, lsn), Decoded::Valid(record));
        }
    }
}

/// Creates a medium with one file of these bytes.
fn holding(name: &str, bytes: &[u8]) -> Memory {
    let memory = Memory::new();
    memory.make().expect("nothing fails");
    let (whole, rest) = bytes.split_at(bytes.len() / 8 * 8);
    let file = memory.create(name, bytes.len() as u64).expect("memory has room");
    if rest.is_empty() {
        let mapping = file.map(Access::Write).expect("whole words");
        let words = mapping.words().iter().zip(to_words(whole));
        words.filter(|(_, value)| *value != 0).for_each(|(word, value)| store(word, value));
    } else {
        file.write_at(bytes, 0).expect("it is as large");
    }
    memory
}

/// Returns a file whose first page is only its header, so that the fuzzer need not produce zeros.
/// The words of its name are filled in, and all checksums are right. `None` if there is no whole
/// header.
fn sealed_file(
    name: &FileName,
    magic: &[u8; 8],
    told: &[u8],
    words: &[(usize, u64)],
) -> Option<Vec<u8>> {
    let (header, rest) = told.split_at_checked(HEADER_BYTES)?;
    let mut file = header.to_vec();
    file.resize(PAGE_BYTES as usize, 0);
    file.extend(rest);
    let common = [
        (0, u64::from_le_bytes(*magic)),
        (1, DURABLE.written.into()),
        (2, UUID as u64),
        (3, (UUID >> 64) as u64),
    ];
    for &(word, value) in common.iter().chain(words) {
        file[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }
    seal(&name.to_string(), &mut file);
    Some(file)
}

/// Reads the file of a segment: any bytes, and a valid header with the start of the timeline and
/// the capacity from the bytes, and records with right checksums.
pub fn segment(bytes: &[u8]) {
    let name = FileName::Segment { timeline: 1, first: 1 };
    let sealed = sealed_file(&name, b"EBBTWAL\n", bytes, &[(4, 1), (6, 1)]);
    for bytes in [Some(bytes), sealed.as_deref()].into_iter().flatten() {
        let memory = holding(&name.to_string(), bytes);
        if let Ok(segment) = Segment::open(&memory, 1, 1, UUID, Access::Write) {
            for lsn in segment.first()..segment.end() {
                if segment.read(lsn) == Decoded::Empty {
                    segment.void(lsn);
                    assert_eq!(segment.read(lsn), Decoded::Valid(Record::new(Op::Void)));
                }
            }
            segment.dirty(0, u64::MAX);
        }
    }
}

/// Records in each segment of [`log`], and the maximum number of segments.
const RECORDS: u64 = 6;
const SEGMENTS: usize = 8;

/// Reads a log of several segments and timelines, with records, empty and other slots, and an image
/// that may contain its extent. The records read are unbroken, and are the same again after the
/// recovery base was made durable.
pub fn log(bytes: &[u8]) {
    let Some((&[form, tail, unfinished, from], mut places)) = bytes.split_first_chunk() else {
        return;
    };
    let memory = Memory::new();
    memory.make().expect("nothing fails");
    let (mut timeline, mut first, mut start) = (1, 1, 1);
    for _ in 0..SEGMENTS {
        let Some((&step, rest)) = places.split_first() else {
            break;
        };
        if step & 1 != 0 {
            // A timeline begins somewhere in the previous one, or beyond it.
            timeline += 1;
            start = 1 + u64::from(step >> 1) % first.max(RECORDS);
            first = start;
        }
        let header =
            SegmentHeader { uuid: UUID, timeline, timeline_start: start, first, capacity: RECORDS };
        if step < 0xF0 {
            let Ok(segment) = Segment::create(&memory, header, 0) else {
                break;
            };
            places = fill(&segment, timeline, rest);
        }
        first += RECORDS;
    }
    let (tail, unfinished) = (u64::from(tail), u64::from(unfinished));
    let known = match form % 4 {
        0 | 1 => KnownExtent::Nothing,
        2 => KnownExtent::WritersDied {
            timeline,
            tail,
            durable: tail / 2,
            unfinished: unfinished % 8,
        },
        _ => KnownExtent::WritersLive { timeline, durable: tail },
    };
    read_log(&memory, known, 1 + u64::from(from) % 8);
}

/// Fills a segment's slots from a few bytes each. Returns the remaining bytes.
fn fill<'a>(segment: &Segment, timeline: u64, mut places: &'a [u8]) -> &'a [u8] {
    for lsn in segment.first()..segment.end() {
        let Some((&[code, payload], rest)) = places.split_first_chunk() else {
            break;
        };
        places = rest;
        let word = u64::from(code & 0x8F) << 56 | u64::from(payload) << 32;
        let words = match code >> 4 & 7 {
            0 => [0; 4],
            1 => [0, 0, 0, word | 1],
            _ => sealed([payload.into(), lsn, timeline, word | 1], timeline, lsn),
        };
        for (to, word) in segment.slot(lsn).iter().zip(words) {
            store(to, word);
        }
    }
    places
}

fn read_log(memory: &Memory, known: KnownExtent, from: u64) {
    let listing = Listing::read(memory).expect("a directory");
    let Ok(history) = LogReader::open(memory, &listing, UUID) else {
        return;
    };
    let (mut last, mut visited) = (0, Vec::new());
    let read = history.read(memory, from, known, |timeline, lsn, _| {
        assert!(timeline >= last, "never back to a lower timeline");
        last = timeline;
        visited.push(lsn);
        Ok(())
    });
    let Ok(prefix) = read else { return };
    visited.extend(&prefix.gaps);
    visited.sort_unstable();
    assert!(visited.iter().copied().eq(from..prefix.stop), "unbroken: {visited:?}");
    if matches!(known, KnownExtent::WritersLive { .. }) {
        return;
    }
    make_durable(&history, memory, (from, 0), &prefix, &|| ()).expect("nothing fails");
    let again =
        history.read(memory, from, KnownExtent::Nothing, |_, _, _| Ok(())).expect("it is durable");
    assert_eq!((again.stop, again.gaps), (prefix.stop, vec![]));
}

/// Reads the file of a snapshot: any bytes, and a valid header with the counts from the bytes, and
/// frames with right checksums.
pub fn snapshot(bytes: &[u8]) {
    let name = FileName::Snapshot { start: 1 };
    let sealed = sealed_file(&name, b"EBBTSNP\n", bytes, &[(5, 1)]);
    for bytes in [Some(bytes), sealed.as_deref()].into_iter().flatten() {
        if let Ok(mut reader) = SnapshotReader::open(&holding(&name.to_string(), bytes), 1, UUID) {
            let _ = reader.frames(|_, _, words| {
                assert!(words.len() * 8 <= bytes.len(), "no more than the file holds");
                Ok(())
            });
        }
    }
}
