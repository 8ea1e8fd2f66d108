//! The pieces of a value: those of its filter (`ebbtide_core::machine`). Those of a filter that is
//! being altered are a head of 32 bytes, the pieces of the current filter, and those of the former.
//!
//! | offset | content of the head |
//! |---|---|
//! | 0 | `EBBTALT` and a line feed |
//! | 8 | format version |
//! | 16 | one more than the time of the current filter's first operation, if it is known; else 0 |
//! | 24 | checksum: XXH3 of the bytes before |

use crate::former::{Former, may_follow};
use ebbtide_core::hash::short_checksum;
use ebbtide_core::kind::Micros;
use ebbtide_core::machine::{Machine, PieceCursor, Restore};
use ebbtide_core::time::LATEST;
use ebbtide_core::{Error, Result as Decided};

const MAGIC: &[u8; 8] = b"EBBTALT\n";
const VERSION: u64 = 1;
const HEAD: usize = 32;

/// What the pieces of a filter that is being altered begin with.
#[derive(Debug, Clone, Copy)]
struct Head {
    began: Option<Micros>,
}

impl Head {
    fn of(former: &Former) -> Self {
        Self { began: former.began() }
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.began.map_or(0, |began| began + 1).to_le_bytes());
        bytes.extend(short_checksum(&bytes, 0).to_le_bytes());
        bytes
    }

    fn decode(piece: &[u8]) -> Decided<Self> {
        let (words, rest) = piece.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [_, version, began, sum] = words[..] else { return Err(damaged("32 bytes")) };
        if !rest.is_empty() || sum != short_checksum(&piece[..HEAD - 8], 0) {
            return Err(damaged("32 bytes with their checksum"));
        }
        if version != VERSION {
            return Err(Error::Version { expected: VERSION as u32, found: version });
        }
        if began > LATEST + 1 {
            return Err(damaged("a time"));
        }
        Ok(Self { began: began.checked_sub(1) })
    }
}

fn damaged(expected: &str) -> Error {
    let what = "the head of a filter that is being altered".to_owned();
    Error::Damaged { what, expected: expected.to_owned(), found: "something else".to_owned() }
}

/// A value whose pieces come one by one.
pub struct Import {
    /// Of a filter that is being altered.
    head: Option<Head>,
    /// Its current filter, if all pieces of that have come.
    current: Option<Machine>,
    /// The filter of which pieces come, if one has come.
    restore: Option<Restore>,
    /// The number of the next piece.
    number: u32,
}

impl Import {
    /// Begins with the first piece.
    ///
    /// # Errors
    /// As [`Restore::begin`].
    pub fn begin(first: &[u8]) -> Decided<Self> {
        let (mut head, mut restore) = (None, None);
        if first.starts_with(MAGIC) {
            head = Some(Head::decode(first)?);
        } else {
            restore = Some(Restore::begin(first)?);
        }
        Ok(Self { head, current: None, restore, number: 1 })
    }

    /// Returns whether it is a filter that is being altered.
    pub fn is_altered(&self) -> bool {
        self.head.is_some()
    }

    /// Adds the next piece, if what the filters will need (see [`Import::planned_bytes`]) is
    /// admitted when a piece begins one.
    ///
    /// # Errors
    /// As [`Restore::begin`], and those of `admit`: then nothing has changed.
    pub fn add<E: From<Error>>(
        &mut self,
        piece: &[u8],
        admit: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(restore) = &mut self.restore {
            restore.add(piece)?;
        } else {
            let begun = Restore::begin(piece)?;
            if let Some(current) = &self.current {
                let checked = may_follow(current.as_identity(), begun.as_identity());
                checked.map_err(|why| Error::Damaged {
                    what: "a filter that is being altered".to_owned(),
                    expected: "two filters that follow each other".to_owned(),
                    found: why.to_owned(),
                })?;
            }
            admit(self.planned_bytes() + begun.planned_bytes())?;
            self.restore = Some(begun);
        }
        self.number += 1;
        if self.head.is_some() && self.current.is_none() && self.is_sealed() {
            self.current = self.restore.take().map(Restore::finish).transpose()?;
        }
        Ok(())
    }

    fn is_sealed(&self) -> bool {
        self.restore.as_ref().is_some_and(Restore::is_complete)
    }

    /// Returns the number of the next piece; the first one has 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether the last piece has been added.
    pub fn is_complete(&self) -> bool {
        self.is_sealed() && (self.head.is_none() || self.current.is_some())
    }

    /// Returns the bytes that the filters will need, as far as pieces have come.
    pub fn planned_bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, Machine::planned_bytes);
        current + self.restore.as_ref().map_or(0, Restore::planned_bytes)
    }

    /// Returns the bytes of memory that are allocated.
    pub fn memory_bytes(&self) -> usize {
        let current = self.current.as_ref().map_or(0, Machine::memory_bytes);
        size_of_val(self) + current + self.restore.as_ref().map_or(0, Restore::memory_bytes)
    }

    /// Returns the pieces that were added, without the last one.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let head = self.head.into_iter().map(Head::encode);
        let current = self.current.iter().flat_map(Machine::pieces);
        head.chain(current).chain(self.restore.iter().flat_map(Restore::pieces))
    }

    /// Returns the filter, and the former one if it is being altered.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the last piece is missing.
    pub fn finish(self) -> Decided<(Machine, Option<Former>)> {
        let last = self.restore.ok_or_else(|| damaged("its last piece"))?.finish()?;
        let Some(head) = self.head else { return Ok((last, None)) };
        let current = self.current.ok_or_else(|| damaged("its current filter"))?;
        let former = Former::new(last, &current, head.began).map_err(damaged)?;
        Ok((current, Some(former)))
    }
}

/// What comes next of the pieces of a value.
#[derive(Debug, Clone)]
enum Next {
    Head,
    Current(PieceCursor),
    Former(PieceCursor),
    Nothing,
}

/// A place between two pieces of a value that is ready. It is valid until the value changes.
#[derive(Debug, Clone)]
pub struct Place(Next);

impl Place {
    /// Returns the place before the first piece: the head, of a filter that is being altered.
    pub fn first(is_altered: bool) -> Self {
        let current = Next::Current(PieceCursor::new());
        Self(if is_altered { Next::Head } else { current })
    }

    /// Returns whether all pieces have been returned.
    pub fn is_done(&self) -> bool {
        matches!(self.0, Next::Nothing)
    }

    /// Returns the next piece, if there is one; the place is behind it then.
    pub fn piece(&mut self, machine: &Machine, former: Option<&Former>) -> Option<Vec<u8>> {
        let (piece, next) = match &self.0 {
            Next::Head => (Head::of(former?).encode(), Next::Current(PieceCursor::new())),
            Next::Current(cursor) => {
                let (piece, cursor) = piece_at(machine, cursor)?;
                let after = || former.map_or(Next::Nothing, |_| Next::Former(PieceCursor::new()));
                (piece, if cursor.is_done() { after() } else { Next::Current(cursor) })
            }
            Next::Former(cursor) => {
                let (piece, cursor) = piece_at(former?.machine(), cursor)?;
                (piece, if cursor.is_done() { Next::Nothing } else { Next::Former(cursor) })
            }
            Next::Nothing => return None,
        };
        *self = Self(next);
        Some(piece)
    }
}

/// The places in front of the pieces of a value that were returned, and of the next one: whoever
/// asks for pieces, in any order, each is made at most once more for the sake of later ones.
#[derive(Debug, Default)]
pub struct Places {
    /// The number that differs after each change of the value.
    chain: u64,
    /// By the number of the piece.
    places: Vec<Place>,
}

impl Places {
    /// Returns the piece of this number of a value with this chain, and whether it is the last one;
    /// `None` beyond it. `make` returns the next piece at a place, as [`Place::piece`].
    pub fn piece(
        &mut self,
        (chain, number): (u64, u32),
        is_altered: bool,
        mut make: impl FnMut(&mut Place) -> Option<Vec<u8>>,
    ) -> Option<(Vec<u8>, bool)> {
        if self.places.is_empty() || self.chain != chain {
            *self = Self { chain, places: vec![Place::first(is_altered)] };
        }
        loop {
            let last = self.places.len() - 1;
            let at = last.min(number as usize);
            let mut place = self.places[at].clone();
            let (piece, is_last) = (make(&mut place)?, place.is_done());
            if at == last && !is_last {
                self.places.push(place);
            }
            if at == number as usize {
                return Some((piece, is_last));
            }
            if is_last {
                return None;
            }
        }
    }
}

fn piece_at(machine: &Machine, cursor: &PieceCursor) -> Option<(Vec<u8>, PieceCursor)> {
    let mut pieces = machine.pieces_from(cursor);
    let piece = pieces.next()?;
    Some((piece, pieces.cursor().clone()))
}

/// Returns the pieces of a filter, and of the former one if it is being altered.
pub fn of<'a>(
    machine: &'a Machine,
    former: Option<&'a Former>,
) -> impl Iterator<Item = Vec<u8>> + 'a {
    let head = former.map(|former| Head::of(former).encode());
    let before = former.into_iter().flat_map(|former| former.machine().pieces());
    head.into_iter().chain(machine.pieces()).chain(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::Parameters;
    use ebbtide_core::kinds::registry;
    use ebbtide_core::machine::MachineOptions;

    #[test]
    fn exports_at_the_same_time_make_each_piece_once() {
        let kind = registry::build("bloom", &Parameters::new().with("capacity", 3_000_000));
        let options = MachineOptions::new();
        let mut machine =
            Machine::create(kind.expect("a kind"), &options, 1, 2).expect("a machine");
        let time = machine.time(Some(1), None).expect("a time");
        for key in 0..1000_u32 {
            let hash = machine.hash(&key.to_le_bytes());
            machine.insert(hash, time, &mut |_| {}).expect("an insert");
        }
        let expected: Vec<_> = of(&machine, None).collect();
        let count = expected.len() as u32;
        assert!(count > 4, "{count} pieces");
        let (mut places, mut made) = (Places::default(), 0);
        let mut piece = |chain, number| {
            places.piece((chain, number), false, |place| {
                made += 1;
                place.piece(&machine, None)
            })
        };
        // Two exports in step, one behind them, and one that begins in the middle.
        let numbers = (0..count).flat_map(|at| [at, at, at / 2, count / 2 + at / 2]);
        let numbers: Vec<_> = numbers.collect();
        for &number in &numbers {
            let (found, is_last) = piece(7, number).expect("a piece");
            assert!(found == expected[number as usize], "piece {number}");
            assert_eq!(is_last, number + 1 == count);
        }
        assert!(piece(7, count).is_none() && piece(7, u32::MAX).is_none());
        // A value that has changed is another one.
        assert!(piece(8, 1).expect("a piece").0 == expected[1]);
        // Those on the way to the middle; beyond the end the last one, twice; two after the change.
        assert_eq!(made, numbers.len() as u32 + count / 2 - 1 + 2 + 2);
    }
}
