//! One record: 32 bytes, four words, self-validating.
//!
//! | word | content |
//! |---|---|
//! | 0 | payload: the key's hash, or a word of the event |
//! | 1 | time, microseconds since the Unix epoch |
//! | 2 | step, or another word of the event |
//! | 3 | operation (8 bits: bits 6 and 7 are flags), argument (24), checksum (32) |
//!
//! Bit 7 of the operation says that the time came with the key, bit 6 that the record
//! [continues](Record::continues) in the next slot.
//!
//! The last word is never zero, and storing it publishes the record. Its checksum covers everything
//! else in the record and is seeded with timeline and LSN, so a record is valid only in its own
//! slot. The checksum of a VOID covers its own word only, because the other words may contain
//! anything that a dead writer left.

use crate::hash::{mix, short_checksum};

/// Words of a record.
pub const RECORD_WORDS: usize = 4;
/// Bytes of a record. Divides a 512-byte sector, so no record is torn across two.
pub const RECORD_BYTES: u64 = 32;

const _: () = assert!(RECORD_WORDS as u64 * 8 == RECORD_BYTES && 512 % RECORD_BYTES == 0);

/// The bits of an argument.
pub const ARGUMENT_BITS: u32 = 24;
/// The largest argument.
pub const ARGUMENT_MAX: u32 = (1 << ARGUMENT_BITS) - 1;

const STREAM: u8 = 0x80;
const CONTINUES: u8 = 0x40;

/// The operation of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// A key was inserted: payload is its hash, argument its weight or the number of new bits.
    Insert = 1,
    /// The filter entered a step: payload is the kind's word.
    Step = 2,
    /// A bank begins: payload its geometry, argument its number, step its first one.
    OpenBank = 3,
    /// A bank ends: argument is its number.
    CloseBank = 4,
    /// The filter was alive at this time (downtime policy `Freeze`).
    Heartbeat = 5,
    /// Everything below the LSN in the payload was durable when this was written.
    Durable = 6,
    /// Nothing: the reserved slot was never written.
    Void = 7,
    /// A key was removed: payload is its hash, argument its weight.
    Remove = 8,
    /// All keys were removed: the filter is as it was created, except for its time and the numbers
    /// of its banks.
    Clear = 9,
    /// The head of a batch of a format up to 5: the next `payload` records belong to it, and count
    /// only together. Later formats have records that [continue](Record::continues).
    Batch = 10,
    /// How far a source was read: `payload` is the source, `time` the position.
    Position = 11,
    /// A key is [claimed](crate::claims), or its claim renewed: payload is its hash, step the
    /// token, argument the lease.
    Claim = 12,
    /// A claim ends: payload is the key's hash, step the token.
    Release = 13,
}

impl Op {
    /// Returns the operation with this code, for records that have one; a VOID is recognised by its
    /// whole word.
    #[inline]
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Insert,
            2 => Self::Step,
            3 => Self::OpenBank,
            4 => Self::CloseBank,
            5 => Self::Heartbeat,
            6 => Self::Durable,
            8 => Self::Remove,
            9 => Self::Clear,
            10 => Self::Batch,
            11 => Self::Position,
            12 => Self::Claim,
            13 => Self::Release,
            _ => return None,
        })
    }

    /// Returns whether a record of this type has nothing to do with cells, state and time of the
    /// filter: a position or a claim. Replay applies it without the operations before it, and its
    /// time is not the filter's.
    #[must_use]
    pub fn is_apart(self) -> bool {
        match self {
            Self::Position | Self::Claim | Self::Release => true,
            Self::Insert
            | Self::Remove
            | Self::Step
            | Self::OpenBank
            | Self::CloseBank
            | Self::Heartbeat
            | Self::Clear
            | Self::Durable
            | Self::Void
            | Self::Batch => false,
        }
    }

    /// Returns the name in `ebbtide wal`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Step => "step",
            Self::OpenBank => "open-bank",
            Self::CloseBank => "close-bank",
            Self::Heartbeat => "heartbeat",
            Self::Durable => "durable",
            Self::Void => "void",
            Self::Remove => "remove",
            Self::Clear => "clear",
            Self::Batch => "batch",
            Self::Position => "position",
            Self::Claim => "claim",
            Self::Release => "release",
        }
    }
}

/// A record without its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The operation.
    pub op: Op,
    /// A small number, at most [`ARGUMENT_MAX`].
    pub argument: u32,
    /// Whether the time came with the key and not from a clock.
    pub stream: bool,
    /// Whether the record in the next slot belongs to the same batch. The records of a batch count
    /// only together.
    pub continues: bool,
    /// Word 0.
    pub payload: u64,
    /// Word 1.
    pub time: u64,
    /// Word 2.
    pub step: u64,
}

/// The decoded content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// Not published (yet).
    Empty,
    /// A valid record of this slot.
    Valid(Record),
    /// Anything else.
    Wrong,
}

#[inline]
fn checksum(words: [u64; 3], head: u32, timeline: u64, lsn: u64) -> u32 {
    let mut bytes = [0; 32];
    for (at, word) in words.iter().enumerate() {
        bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes[24..28].copy_from_slice(&head.to_le_bytes());
    short_checksum(&bytes, mix(lsn ^ timeline.rotate_left(40))) as u32
}

/// Returns the word that makes an empty slot a VOID.
#[must_use]
#[inline]
pub fn void_word(timeline: u64, lsn: u64) -> u64 {
    let head = u32::from(Op::Void as u8) << 24;
    u64::from(head) << 32 | u64::from(checksum([0; 3], head, timeline, lsn))
}

/// Corrects the checksum of these words for this slot; an empty slot stays empty.
#[cfg(fuzzing)]
#[must_use]
pub fn sealed(
    [a, b, c, last]: [u64; RECORD_WORDS],
    timeline: u64,
    lsn: u64,
) -> [u64; RECORD_WORDS] {
    let head = (last >> 32) as u32;
    let last = match last {
        0 => 0,
        _ if head >> 24 == u32::from(Op::Void as u8) => void_word(timeline, lsn),
        _ => u64::from(head) << 32 | u64::from(checksum([a, b, c], head, timeline, lsn)),
    };
    [a, b, c, last]
}

impl Record {
    /// Creates a record of this operation with all other fields zero.
    #[must_use]
    #[inline]
    pub const fn new(op: Op) -> Self {
        Self { op, argument: 0, stream: false, continues: false, payload: 0, time: 0, step: 0 }
    }

    /// Encodes the four words, for this slot. Payload, time and step are whole words; callers
    /// ensure that the argument is within bounds.
    #[must_use]
    #[inline]
    pub fn encode(&self, timeline: u64, lsn: u64) -> [u64; RECORD_WORDS] {
        debug_assert!(self.argument <= ARGUMENT_MAX, "{self:?}");
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let op = self.op as u8 | flag(self.stream, STREAM) | flag(self.continues, CONTINUES);
        let head = u32::from(op) << 24 | (self.argument & ARGUMENT_MAX);
        let words = [self.payload, self.time, self.step];
        let last = u64::from(head) << 32 | u64::from(checksum(words, head, timeline, lsn));
        [self.payload, self.time, self.step, last]
    }

    /// Decodes the words of a slot. Never panics, whatever they are.
    #[must_use]
    #[inline]
    pub fn decode(words: [u64; RECORD_WORDS], timeline: u64, lsn: u64) -> Decoded {
        let last = words[3];
        if last == 0 {
            return Decoded::Empty;
        }
        if last == void_word(timeline, lsn) {
            return Decoded::Valid(Self::new(Op::Void));
        }
        let head = (last >> 32) as u32;
        let sum = checksum([words[0], words[1], words[2]], head, timeline, lsn);
        if last as u32 != sum {
            return Decoded::Wrong;
        }
        let code = (head >> 24) as u8;
        match Op::from_code(code & !(STREAM | CONTINUES)) {
            None => Decoded::Wrong,
            Some(op) => Decoded::Valid(Self {
                op,
                argument: head & ARGUMENT_MAX,
                stream: code & STREAM != 0,
                continues: code & CONTINUES != 0,
                payload: words[0],
                time: words[1],
                step: words[2],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn insert(payload: u64, time: u64, step: u64, argument: u32, stream: bool) -> Record {
        Record { argument, stream, payload, time, step, ..Record::new(Op::Insert) }
    }

    proptest! {
        #[test]
        fn a_record_reads_back_in_its_own_place_only(
            payload: u64, time: u64, step: u64, argument in 0..=ARGUMENT_MAX, stream: bool,
            continues: bool, timeline in 1..1000_u64, lsn in 1..u64::MAX,
        ) {
            let record = Record { continues, ..insert(payload, time, step, argument, stream) };
            let words = record.encode(timeline, lsn);
            prop_assert_ne!(words[3], 0);
            prop_assert_eq!(Record::decode(words, timeline, lsn), Decoded::Valid(record));
            prop_assert_eq!(Record::decode(words, timeline, lsn + 1), Decoded::Wrong);
            prop_assert_eq!(Record::decode(words, timeline + 1, lsn), Decoded::Wrong);
        }

        #[test]
        fn one_flipped_bit_anywhere_is_noticed(
            payload: u64, time: u64, step: u64, word in 0..4_usize, bit in 0..64_u32,
        ) {
            let mut words = insert(payload, time, step, 7, false).encode(3, 9);
            words[word] ^= 1 << bit;
            prop_assert_eq!(Record::decode(words, 3, 9), Decoded::Wrong);
        }

        #[test]
        fn any_words_decode_without_a_panic(words: [u64; 4], timeline: u64, lsn: u64) {
            let _ = Record::decode(words, timeline, lsn);
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "argument: 16777216")]
    fn an_argument_that_is_too_large_is_a_mistake_of_ours() {
        let _ = insert(1, 2, 3, ARGUMENT_MAX + 1, false).encode(3, 9);
    }

    #[test]
    fn a_void_is_valid_over_whatever_a_dead_writer_left() {
        let words = [1, 2, 3, void_word(5, 77)];
        assert_eq!(Record::decode(words, 5, 77), Decoded::Valid(Record::new(Op::Void)));
        assert_eq!(Record::decode(words, 5, 78), Decoded::Wrong);
    }

    #[test]
    fn every_operation_reads_back_and_has_a_name_of_its_own() {
        let ops = [
            Op::Insert,
            Op::Step,
            Op::OpenBank,
            Op::CloseBank,
            Op::Heartbeat,
            Op::Durable,
            Op::Void,
            Op::Remove,
            Op::Clear,
            Op::Batch,
            Op::Position,
            Op::Claim,
            Op::Release,
        ];
        let names = ops.map(Op::name);
        let expected = [
            "insert",
            "step",
            "open-bank",
            "close-bank",
            "heartbeat",
            "durable",
            "void",
            "remove",
            "clear",
            "batch",
            "position",
            "claim",
            "release",
        ];
        assert_eq!(names, expected);
        for (code, op) in (1..).zip(ops) {
            assert_eq!(op as u8, code);
            let record = Record { argument: 5, payload: 6, ..Record::new(op) };
            let decoded = Record::decode(record.encode(3, 9), 3, 9);
            // A VOID is valid only by its own word.
            let expected = if op == Op::Void { Decoded::Wrong } else { Decoded::Valid(record) };
            assert_eq!(decoded, expected);
        }
        assert_eq!(void_word(3, 9) >> 32, u64::from(Op::Void as u8) << 24);
    }
}
