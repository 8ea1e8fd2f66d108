//! What the positions of a filter record about the output and the inputs of `dedup --output`.
//!
//! Positions are numbered from the upper end: programs of the user number theirs from 0. Six of
//! them concern the whole, four each input, and the last one the times of lines. An input that is
//! not there has identity 0.

use crate::failure::{Failure, Result};
use crate::trail::Trail;
use ebbtide::{Any, Batch, Filter, Timestamp};

const OUTPUT_FILE: u64 = u64::MAX;
const OUTPUT_LENGTH: u64 = u64::MAX - 1;
/// 0: the positions are as described here. In states of earlier versions, the inode of the input
/// that was read last; the next three are the offset in it, its lines and a checksum there. A state
/// of this version is refused by the earlier ones, because no file has the inode 0.
const LAYOUT: u64 = u64::MAX - 2;
const SEEN: u64 = u64::MAX - 3;
const FORGOTTEN: u64 = u64::MAX - 4;
const OUTPUT_CHECK: u64 = u64::MAX - 5;
/// The first position of the first input.
const INPUTS: u64 = u64::MAX - 6;

/// The inputs that a filter has positions for.
pub const MOST_INPUTS: usize = 62;

/// The latest time of lines. The filter's own may be earlier, if keys that are present are not
/// inserted, or that of a clock.
const LATEST: u64 = INPUTS - WORDS * MOST_INPUTS as u64;

const IDENTITY: u64 = 0;
const OFFSET: u64 = 1;
const LINES: u64 = 2;
const CHECK: u64 = 3;
const WORDS: u64 = 4;

/// The bits of an offset; those above are flags.
const OFFSET_BITS: u32 = 48;
const COMPLETE: u64 = 1 << OFFSET_BITS;
const TORN: u64 = 2 << OFFSET_BITS;
const LEFT_OUT: u64 = 4 << OFFSET_BITS;
const ABANDONED: u64 = 8 << OFFSET_BITS;
/// The bits of a line's number; those above are of the file's name.
const LINES_BITS: u32 = 40;

/// The output as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The identity of the file; in states of earlier versions its inode.
    pub file: u64,
    pub length: u64,
    /// The [check](Trail::check) at this length; `None` in states of earlier versions.
    pub check: Option<u64>,
}

/// An input, and how far it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The identity of the file.
    pub identity: u64,
    /// The bytes that were read, after decompression.
    pub offset: u64,
    /// The number of the next line.
    pub lines: u64,
    /// The [check](Trail::check) at the offset.
    pub check: u64,
    /// The [hash](name_hash) of the file's name.
    pub name: u64,
    /// Whether the file was read to its end after a newer one had followed it: it may disappear.
    pub is_complete: bool,
    /// Whether its unfinished last line was taken as a line.
    pub is_torn: bool,
    /// Whether it is no input: it is recorded to be recognised under other names. It may disappear.
    pub is_left_out: bool,
    /// Whether it was gone and that was accepted. Its place is kept: it may appear again.
    pub is_abandoned: bool,
}

/// The identity of no file: what had this entry's identity has other content now.
pub const NO_FILE: u64 = 1;

impl Entry {
    /// Returns the entry of a file that has not been read.
    pub fn new(identity: u64, name: &[u8]) -> Self {
        let check = Trail::default().check();
        let name = name_hash(name);
        Self {
            identity,
            offset: 0,
            lines: 0,
            check,
            name,
            is_complete: false,
            is_torn: false,
            is_left_out: false,
            is_abandoned: false,
        }
    }

    /// Moves the entry to this place.
    pub fn advance(&mut self, trail: &Trail) {
        (self.offset, self.lines, self.check) = (trail.offset(), trail.next_line(), trail.check());
    }

    fn words(&self) -> Result<[u64; 4]> {
        if self.offset >> OFFSET_BITS != 0 {
            return Err(Failure::Error(format!(
                "expected an input of less than {} bytes, found one that was read to byte {}; \
                 split it",
                1_u64 << OFFSET_BITS,
                self.offset
            )));
        }
        let complete = if self.is_complete { COMPLETE } else { 0 };
        let torn = if self.is_torn { TORN } else { 0 };
        let left_out = if self.is_left_out { LEFT_OUT } else { 0 };
        let lines = self.lines.min((1 << LINES_BITS) - 1);
        let abandoned = if self.is_abandoned { ABANDONED } else { 0 };
        let place = self.offset | complete | torn | left_out | abandoned;
        Ok([self.identity, place, lines | self.name << LINES_BITS, self.check])
    }

    fn from_words([identity, place, lines, check]: [u64; 4]) -> Option<Self> {
        (identity != 0).then_some(Self {
            identity,
            offset: place & ((1 << OFFSET_BITS) - 1),
            lines: lines & ((1 << LINES_BITS) - 1),
            check,
            name: lines >> LINES_BITS,
            is_complete: place & COMPLETE != 0,
            is_torn: place & TORN != 0,
            is_left_out: place & LEFT_OUT != 0,
            is_abandoned: place & ABANDONED != 0,
        })
    }
}

/// Returns 24 bits of a hash of a file's name.
pub fn name_hash(name: &[u8]) -> u64 {
    u64::from(crc32fast::hash(name) >> 8)
}

/// The inputs as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inputs {
    /// The newest time at which a file had been written when the last run began, in nanoseconds
    /// since the Unix epoch. What a run has not seen was written later.
    pub seen: u64,
    /// The same time, of the last run that removed an input from this table; 0 before the first.
    pub forgotten: u64,
    pub entries: Vec<Option<Entry>>,
}

impl Inputs {
    /// Returns whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    /// Returns the entries with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// Adds the positions of all that differ from `before`.
    pub fn set(&self, before: &Self, batch: &mut Batch<'_>) -> Result<()> {
        batch.set_position(LAYOUT, 0)?;
        batch.set_position(SEEN, self.seen)?;
        batch.set_position(FORGOTTEN, self.forgotten)?;
        for slot in 0..self.entries.len().max(before.entries.len()) {
            let of = |inputs: &Self| inputs.entries.get(slot).copied().flatten();
            match (of(self), of(before)) {
                (now, then) if now == then => {}
                (Some(entry), _) => set_entry(batch, slot, &entry)?,
                (None, _) => batch.set_position(source(slot, IDENTITY), 0)?,
            }
        }
        Ok(())
    }
}

fn source(slot: usize, word: u64) -> u64 {
    INPUTS - WORDS * slot as u64 - word
}

/// Adds the positions of an input.
pub fn set_entry(batch: &mut Batch<'_>, slot: usize, entry: &Entry) -> Result<()> {
    for (word, value) in [IDENTITY, OFFSET, LINES, CHECK].into_iter().zip(entry.words()?) {
        batch.set_position(source(slot, word), value)?;
    }
    Ok(())
}

/// Adds the positions of the output.
pub fn set_output(batch: &mut Batch<'_>, file: u64, trail: &Trail) -> Result<()> {
    batch.set_position(OUTPUT_FILE, file)?;
    batch.set_position(OUTPUT_LENGTH, trail.offset())?;
    Ok(batch.set_position(OUTPUT_CHECK, trail.check())?)
}

/// Adds the position of the latest accepted time.
pub fn set_latest(batch: &mut Batch<'_>, latest: Timestamp) -> Result<()> {
    Ok(batch.set_position(LATEST, latest.as_unix_micros())?)
}

/// Returns the latest accepted time; `None` if no run has recorded it.
pub fn latest(filter: &Filter<Any>) -> Result<Option<Timestamp>> {
    Ok(filter.position(LATEST)?.map(Timestamp::from_unix_micros))
}

/// The place that a run of an earlier version has reached in its last input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldPlace {
    pub inode: u64,
    pub offset: u64,
    pub lines: u64,
    /// The checksum of the last bytes in front of the offset.
    pub check: u64,
}

/// What is recorded about inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    Inputs(Inputs),
    /// By an earlier version.
    Old(OldPlace),
}

/// Reads the positions of a filter.
pub fn read(filter: &Filter<Any>) -> Result<(Option<Output>, Recorded)> {
    let all = filter.positions()?;
    let of = |wanted| all.iter().find(|(source, _)| *source == wanted).map(|(_, value)| *value);
    let is_old = of(LAYOUT).is_some_and(|layout| layout != 0);
    let check = of(OUTPUT_CHECK).filter(|_| of(LAYOUT) == Some(0));
    let output = of(OUTPUT_FILE).zip(of(OUTPUT_LENGTH));
    let output = output.map(|(file, length)| Output { file, length, check });
    if is_old {
        let old = [LAYOUT, SEEN, FORGOTTEN, OUTPUT_CHECK].map(|source| of(source).unwrap_or(0));
        let [inode, offset, lines, check] = old;
        return Ok((output, Recorded::Old(OldPlace { inode, offset, lines, check })));
    }
    let entry = |slot| {
        let word = |word| of(source(slot, word)).unwrap_or(0);
        Entry::from_words([word(IDENTITY), word(OFFSET), word(LINES), word(CHECK)])
    };
    let inputs = Inputs {
        seen: of(SEEN).unwrap_or(0),
        forgotten: of(FORGOTTEN).unwrap_or(0),
        entries: (0..MOST_INPUTS).map(entry).collect(),
    };
    Ok((output, Recorded::Inputs(inputs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_four_words_and_back() {
        for (offset, lines, bits) in [(0, 0, 0), (7, 2, 1), ((1 << 48) - 1, (1 << 40) - 1, 15)] {
            let mut entry = Entry::new(9, b"h.log");
            (entry.offset, entry.lines, entry.check) = (offset, lines, u64::MAX);
            (entry.is_complete, entry.is_torn) = (bits & 1 != 0, bits & 2 != 0);
            (entry.is_left_out, entry.is_abandoned) = (bits & 4 != 0, bits & 8 != 0);
            assert_eq!(Entry::from_words(entry.words().expect("its words")), Some(entry));
        }
        assert_eq!(Entry::from_words([0, 7, 8, 9]), None);
        let long = Entry { offset: 1 << 48, ..Entry::new(9, b"h.log") };
        assert!(long.words().is_err());
    }

    #[test]
    fn the_positions_of_all_inputs_fit_and_do_not_overlap() {
        let last = source(MOST_INPUTS - 1, CHECK);
        assert_eq!(u64::MAX - last + 1, 6 + 4 * 62);
        assert_eq!(LATEST, last - 1);
        assert!(u64::MAX - LATEST < 256 && source(1, IDENTITY) == source(0, CHECK) - 1);
    }
}
