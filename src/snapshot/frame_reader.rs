//! Reading a snapshot: nothing is passed on before its checksum is verified.

use crate::error::{Error, Result};
use crate::format::header::{DURABLE, HEADER_BYTES, Header, PAGE_BYTES, to_words};
use crate::format::names::{FileName, TIMELINE_MAX};
use crate::media::{Access, Media, MediaFile};
use crate::snapshot::format::{FRAME_WORDS, MAGIC, REMEDY};
use crate::snapshot::{ChecksumSeed, Content, Frame, SnapshotHeader};
use crate::wal::segment::LSN_MAX;
use ebbtide_core::block::{Layout, OWN_WORDS};
use std::path::PathBuf;

/// The largest payload of a frame: the largest block with its kind's words.
const PAYLOAD_WORDS_MAX: u64 = (OWN_WORDS + Layout::MOST_BLOCK_WORDS as usize) as u64;
/// Bytes read ahead.
const BUFFER_BYTES: usize = 1 << 20;

/// An open snapshot whose header is sound.
#[derive(Debug)]
pub struct SnapshotReader {
    file: Box<dyn MediaFile>,
    path: PathBuf,
    header: SnapshotHeader,
    version: u32,
    seed: ChecksumSeed,
    buffer: Vec<u8>,
    /// The file offset of the buffer.
    buffer_at: u64,
}

impl SnapshotReader {
    /// Opens the snapshot with this start and checks its header against the file, its name and the
    /// filter.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], [`Error::Version`].
    pub fn open(media: &dyn Media, start: u64, uuid: u128) -> Result<Self> {
        let name = FileName::Snapshot { start }.to_string();
        let path = media.path().join(&name);
        let file = media.open(&name, Access::Read).map_err(Error::io("open", &path))?;
        let bytes = file.bytes().map_err(Error::io("measure", &path))?;
        let mut first = vec![0; HEADER_BYTES.min(usize::try_from(bytes).unwrap_or(usize::MAX))];
        file.read_at(&mut first, 0).map_err(Error::io("read", &path))?;
        let words = Header::decode(&first, MAGIC, DURABLE, &path, REMEDY)?;
        let (version, header) = (words.version, SnapshotHeader::from_words(words));
        let seed = ChecksumSeed::of_version(version, header.uuid, header.timeline, header.start);
        let (buffer, buffer_at) = (Vec::new(), 0);
        let reader = Self { file, path, header, version, seed, buffer, buffer_at };
        if header.uuid != uuid {
            let expected = format!("a snapshot of filter {uuid:032x}");
            return Err(reader.damaged(16, expected, format!("one of {:032x}", header.uuid)));
        }
        let in_reason = header.end <= LSN_MAX && header.timeline <= TIMELINE_MAX;
        if header.start != start || header.end < start || !in_reason {
            let expected = format!(
                "start {start} as in the name, a possible end not before it, a possible timeline"
            );
            let found =
                format!("start {}, end {}, timeline {}", header.start, header.end, header.timeline);
            return Err(reader.damaged(40, expected, found));
        }
        if header.bytes != bytes {
            let expected = format!("{} bytes", header.bytes);
            return Err(reader.damaged(bytes.min(header.bytes), expected, format!("{bytes}")));
        }
        Ok(reader)
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// Returns the version of the snapshot's format.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn damaged(&self, offset: u64, expected: String, found: String) -> Error {
        Error::Damaged { path: self.path.clone(), offset, expected, found, remedy: REMEDY }
    }

    /// Returns `length` bytes of the file at `offset`; the caller ensures that they lie within it.
    fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let buffered = self.buffer_at..=self.buffer_at + self.buffer.len() as u64;
        if !(buffered.contains(&offset) && buffered.contains(&(offset + length as u64))) {
            let rest = self.header.bytes - offset;
            let size = (BUFFER_BYTES.max(length) as u64).min(rest) as usize;
            self.buffer.resize(size, 0);
            self.buffer_at = offset;
            self.file.read_at(&mut self.buffer, offset).map_err(Error::io("read", &self.path))?;
        }
        let at = (offset - self.buffer_at) as usize;
        Ok(&self.buffer[at..at + length])
    }

    /// Passes on every frame with its payload, in the order of the file.
    ///
    /// # Errors
    /// [`Error::Damaged`] at the first frame that is not sound, [`Error::Io`], and errors of
    /// `visit`.
    pub fn frames(
        &mut self,
        mut visit: impl FnMut(&Self, &Frame, &[u64]) -> Result<()>,
    ) -> Result<()> {
        let mut offset = PAGE_BYTES;
        let mut words = Vec::new();
        for _ in 0..self.header.frames {
            let frame = self.frame(&mut offset, &mut words)?;
            visit(self, &frame, &words)?;
        }
        if offset != self.header.bytes {
            let expected = format!("the end after {} frames", self.header.frames);
            return Err(self.damaged(
                offset,
                expected,
                format!("more, up to {}", self.header.bytes),
            ));
        }
        Ok(())
    }

    /// Returns the latest time in the sums of the stripes, as
    /// [`OperationTime::word`](ebbtide_core::time::OperationTime::word).
    ///
    /// # Errors
    /// [`Error::Damaged`] at the first frame up to them that is not sound, or if there are none;
    /// [`Error::Io`].
    pub fn latest_time(&mut self) -> Result<u64> {
        let (mut offset, mut words, mut latest) = (PAGE_BYTES, Vec::new(), None);
        for _ in 0..self.header.frames {
            let frame = self.frame(&mut offset, &mut words)?;
            match (frame.content, &*words) {
                (Content::Stripe, &[_, time, _]) => latest = latest.max(Some(time)),
                // They lie together, before all blocks.
                (Content::Block, _) if latest.is_some() => break,
                _ => {}
            }
        }
        let none = || self.damaged(offset, "the sums of a stripe".into(), "none".into());
        latest.ok_or_else(none)
    }

    fn frame(&mut self, offset: &mut u64, words: &mut Vec<u64>) -> Result<Frame> {
        let at = *offset;
        let rest = self.header.bytes.saturating_sub(at);
        let head_bytes = FRAME_WORDS * 8;
        if rest < head_bytes as u64 {
            return Err(self.damaged(at, "another frame".into(), format!("{rest} bytes")));
        }
        let mut head = [0; FRAME_WORDS];
        for (to, word) in head.iter_mut().zip(to_words(self.bytes(at, head_bytes)?)) {
            *to = word;
        }
        let [content, bank, index, lsn, length, checksum] = head;
        let Some(content) = Content::of_number(content) else {
            let expected = format!("a frame of content 1 to {}", Content::ALL.len());
            return Err(self.damaged(at, expected, content.to_string()));
        };
        if bank > u32::MAX.into() {
            let expected = "a bank's number in 32 bits".to_owned();
            return Err(self.damaged(at + 8, expected, bank.to_string()));
        }
        let fits = length <= PAYLOAD_WORDS_MAX && length * 8 <= rest - head_bytes as u64;
        if !fits {
            let expected = format!("at most {} words of payload", PAYLOAD_WORDS_MAX);
            return Err(self.damaged(at + 32, expected, length.to_string()));
        }
        let frame = Frame { content, bank: bank as u32, index, lsn };
        let seed = self.seed;
        let payload = self.bytes(at + head_bytes as u64, length as usize * 8)?;
        let expected = seed.checksum(&frame, at, payload);
        words.clear();
        words.extend(to_words(payload));
        if expected != checksum {
            return Err(self.damaged(
                at + 40,
                format!("checksum {}", digits(expected)),
                digits(checksum),
            ));
        }
        *offset = at + head_bytes as u64 + length * 8;
        Ok(frame)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::snapshot::frame_writer::SnapshotWriter;

    const HEADER: SnapshotHeader =
        SnapshotHeader { uuid: 7, timeline: 1, start: 5, end: 9, frames: 0, bytes: 0 };
    const FRAME: Frame = Frame { content: Content::Block, bank: u32::MAX, index: 2, lsn: 3 };

    /// Creates a medium with a snapshot of frames with these numbers of words.
    fn made(header: SnapshotHeader, lengths: &[usize]) -> Memory {
        let memory = Memory::new();
        memory.make().expect("nothing fails yet");
        let name = FileName::Snapshot { start: 5 }.to_string();
        let mut writer =
            SnapshotWriter::create(&memory, &name, ChecksumSeed::new(7, header.timeline, 5))
                .expect("space");
        for &length in lengths {
            writer.frame(&FRAME, &vec![7; length]).expect("space");
        }
        writer.finish(header).expect("space");
        memory
    }

    fn read(memory: &Memory, frames: u64) -> Result<Vec<usize>> {
        let mut reader = SnapshotReader::open(memory, 5, 7)?;
        reader.header.frames += frames;
        let mut lengths = Vec::new();
        reader.frames(|_, frame, words| {
            assert_eq!(*frame, FRAME);
            lengths.push(words.len());
            Ok(())
        })?;
        Ok(lengths)
    }

    #[track_caller]
    fn assert_damaged<T: std::fmt::Debug>(result: Result<T>, at: u64) {
        let error = result.expect_err("damage");
        assert!(matches!(error, Error::Damaged { offset, .. } if offset == at), "{error}");
    }

    #[test]
    fn frames_of_any_length_up_to_the_largest_block_are_read_back() {
        let most = PAYLOAD_WORDS_MAX as usize;
        let lengths = [16, most, 0];
        assert_eq!(read(&made(HEADER, &lengths), 0).expect("no damage"), lengths);
        assert_damaged(read(&made(HEADER, &[most + 1]), 0), PAGE_BYTES + 32);
    }

    #[test]
    fn a_frame_of_another_snapshot_in_its_place_is_damage() {
        let name = |start| FileName::Snapshot { start }.to_string();
        let written = |uuid, timeline, start| {
            let memory = Memory::new();
            memory.make().expect("nothing fails yet");
            let seed = ChecksumSeed::new(uuid, timeline, start);
            let mut writer = SnapshotWriter::create(&memory, &name(start), seed).expect("space");
            (0..3).for_each(|at| writer.frame(&FRAME, &[at; 16]).expect("space"));
            let header = SnapshotHeader { uuid, timeline, start, end: 99, ..HEADER };
            writer.finish(header).expect("space");
            memory
        };
        let (length, ours) = (8 * (FRAME_WORDS + 16), (7, 1, 5));
        let place = PAGE_BYTES + length as u64;
        for (uuid, timeline, start) in [ours, (7, 1, 6), (7, 2, 5), (8, 1, 5), (7 | 1 << 64, 1, 5)]
        {
            let (memory, other) = (written(7, 1, 5), written(uuid, timeline, start));
            let mut frame = vec![0; length];
            let file = other.open(&name(start), Access::Read).expect("it is there");
            file.read_at(&mut frame, place).expect("it is there");
            let file = memory.open(&name(5), Access::Write).expect("it is there");
            file.write_at(&frame, place).expect("it is there");
            let read = SnapshotReader::open(&memory, 5, 7).expect("a sound header");
            let frames = { read }.frames(|_, _, _| Ok(()));
            if (uuid, timeline, start) == ours {
                frames.expect("the very frame");
            } else {
                assert_damaged(frames, place + 40);
            }
        }
    }

    #[test]
    fn a_frame_that_cannot_be_is_damage_where_it_is_wrong() {
        let damages =
            [(0, 9, 0), (1, 1 << 32, 8), (3, 4, 40), (4, 17, 32), (4, u64::MAX, 32), (5, 1, 40)];
        for (word, value, place) in damages {
            let memory = made(HEADER, &[16]);
            let file = memory.open(&FileName::Snapshot { start: 5 }.to_string(), Access::Write);
            let bytes = u64::to_le_bytes(value);
            file.and_then(|file| file.write_at(&bytes, PAGE_BYTES + 8 * word)).expect("space");
            assert_damaged(read(&memory, 0), PAGE_BYTES + place);
        }
        let end = PAGE_BYTES + 8 * (FRAME_WORDS as u64 + 16);
        assert_damaged(read(&made(HEADER, &[16]), 1), end);
        assert_damaged(read(&made(SnapshotHeader { end: 4, ..HEADER }, &[]), 0), 40);
        assert_damaged(read(&made(SnapshotHeader { timeline: u64::MAX, ..HEADER }, &[]), 0), 40);
    }
}

/// Writes the checksum of a frame: its 32 bits, without the bit that makes it differ from zero. A
/// word without that bit is no checksum, and is written whole.
fn digits(checksum: u64) -> String {
    match checksum >> 32 {
        1 => format!("{:08x}", checksum & u64::from(u32::MAX)),
        _ => format!("{checksum:016x}"),
    }
}
