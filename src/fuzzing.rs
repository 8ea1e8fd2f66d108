//! Doors for fuzzers, built with `--cfg fuzzing` only: bytes in, nothing out, no panic.
//!
//! Checksums would stop nearly every input at the door, so each door also lets in input with its checksum put
//! right. What lies behind must then refuse it by its own means.

use crate::bytes::{FORMAT_VERSION, HEADER_BYTES, PAGE_BYTES, to_words};
use crate::media::{Access, Media, Memory};
use crate::meta::Meta;
use crate::names::FileName;
use crate::snapshot::SnapshotReader;
use crate::wal::record::{Decoded, Record};
use crate::wal::segment::{Segment, SegmentHeader};
use std::path::Path;

const UUID: u128 = 0x0123_4567_89AB_CDEF;

/// `meta`, as it is and with its checksum put right. What reads must read back from what it writes.
pub fn meta(bytes: &[u8]) {
    let path = Path::new("meta");
    let _ = Meta::decode(bytes, path);
    let mut sealed = bytes.to_vec();
    sealed.extend(format!("checksum {:08x}\n", crc32fast::hash(bytes)).bytes());
    if let Ok(meta) = Meta::decode(&sealed, path) {
        let again = meta.encode();
        let read = Meta::decode(&again, path).expect("what is written reads back");
        assert_eq!(read.encode(), again);
    }
}

/// The four words of a record and its place.
pub fn record(bytes: &[u8]) {
    let words: Vec<u64> = to_words(bytes).collect();
    let &[a, b, c, d, era, lsn] = words.as_slice() else {
        return;
    };
    if let Decoded::Valid(record) = Record::decode([a, b, c, d], era, lsn) {
        let again = record.encode(era, lsn);
        assert_eq!(Record::decode(again, era, lsn), Decoded::Valid(record));
    }
}

/// A medium with one file of these bytes.
fn holding(name: &str, bytes: &[u8]) -> Memory {
    let memory = Memory::new();
    let written = memory
        .make()
        .and_then(|()| memory.create(name, 0))
        .and_then(|file| file.write_at(bytes, 0));
    written.expect("memory has room");
    memory
}

/// The file of a segment: any bytes, then records behind a right header.
pub fn segment(bytes: &[u8]) {
    let name = FileName::Segment { era: 1, first: 1 }.to_string();
    let open = |bytes: &[u8]| {
        let opened = Segment::open(&holding(&name, bytes), 1, 1, UUID, Access::Read);
        if let Ok(segment) = opened {
            for lsn in segment.first()..segment.end() {
                let _ = segment.read(lsn);
            }
        }
    };
    open(bytes);
    let memory = holding("records", bytes);
    let header = SegmentHeader {
        uuid: UUID,
        era: 1,
        era_start: 1,
        first: 1,
        capacity: (bytes.len() as u64 / 32).max(1),
    };
    let created = Segment::create(&memory, header, 0);
    drop(created.expect("memory has room"));
    let file = memory.open(&name, Access::Write).expect("it is there");
    file.write_at(&bytes[..bytes.len() / 32 * 32], PAGE_BYTES).expect("it is as large");
    let segment = Segment::open(&memory, 1, 1, UUID, Access::Read).expect("its header is right");
    for lsn in segment.first()..segment.end() {
        let _ = segment.read(lsn);
    }
}

/// The file of a snapshot: any bytes, then the same with the checksum of its header put right.
pub fn snapshot(bytes: &[u8]) {
    let name = FileName::Snapshot { start: 1 }.to_string();
    let read = |bytes: &[u8]| {
        if let Ok(mut reader) = SnapshotReader::open(&holding(&name, bytes), 1, UUID) {
            let _ = reader.frames(|_, _, words| {
                assert!(words.len() * 8 <= bytes.len(), "no more than the file holds");
                Ok(())
            });
        }
    };
    read(bytes);
    let at = HEADER_BYTES - 8;
    if bytes.len() >= HEADER_BYTES {
        let mut sealed = bytes.to_vec();
        let length = sealed.len() as u64;
        for (word, value) in
            [(0, u64::from_le_bytes(*b"EBBTSNP\n")), (1, FORMAT_VERSION.into()), (2, UUID as u64)]
        {
            sealed[word * 8..word * 8 + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        for (word, value) in [(3, (UUID >> 64) as u64), (5, 1), (8, length)] {
            sealed[word * 8..word * 8 + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        let sum = u64::from(crc32fast::hash(&sealed[..at]));
        sealed[at..at + 8].copy_from_slice(&sum.to_le_bytes());
        read(&sealed);
    }
}
