//! Damage, and the provable prefix in spite of it, derived from the unchanged bytes.

use super::scenes::{Files, PAGE, RECORD, Scene};
use ebbtide_testkit::random::Random;

/// A damage to one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// A bit of the byte at this offset flips.
    Flip(usize),
    /// The file ends here.
    Cut(usize),
    /// The page with this offset reads as zeros.
    Zero(usize),
    /// The file is removed.
    Remove,
    /// This many extra bytes.
    Extend(usize),
}

impl Harm {
    /// Draws a damage at random.
    pub fn any(random: &mut Random, length: usize) -> Self {
        let at = random.below(length.max(1) as u64) as usize;
        match random.below(8) {
            0..4 => Self::Flip(at),
            4 => Self::Cut(at),
            5 => Self::Zero(at),
            6 => Self::Extend(1 + at % 5000),
            _ => Self::Remove,
        }
    }

    /// Applies the damage.
    pub fn inflict(self, files: &mut Files, name: &str) {
        let Some(bytes) = files.get_mut(name) else {
            return;
        };
        match self {
            Self::Flip(at) => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (at % 8);
                }
            }
            Self::Cut(at) => bytes.truncate(at),
            Self::Zero(at) => {
                let page = at / PAGE * PAGE..(at / PAGE + 1) * PAGE;
                bytes.iter_mut().enumerate().filter(|(at, _)| page.contains(at)).for_each(
                    |(_, byte)| {
                        *byte = 0;
                    },
                );
            }
            Self::Extend(more) => bytes.extend((0..more).map(|at| (at * 31 % 251) as u8)),
            Self::Remove => drop(files.remove(name)),
        }
    }
}

/// The original log, and its rest.
pub struct Oracle<'a> {
    scene: &'a Scene,
    files: &'a Files,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl<'a> Oracle<'a> {
    pub fn new(scene: &'a Scene, files: &'a Files) -> Self {
        Self { scene, files }
    }

    /// Returns the location of the record of an LSN: in the newest timeline that contains it.
    fn place(&self, lsn: u64) -> Option<(&'a str, usize)> {
        let mut log = self.scene.names("wal-").into_iter().rev();
        log.find_map(|name| {
            let bytes = &self.scene.files[name];
            let (first, places) = (number(bytes, 48), number(bytes, 56));
            let at = lsn.checked_sub(first).filter(|&at| at < places)?;
            Some((name, PAGE + RECORD * at as usize))
        })
    }

    /// Returns the record of an LSN, if none of its bytes has changed and its file is provably the
    /// filter's.
    fn record(&self, lsn: u64) -> Option<&'a [u8]> {
        let (name, at) = self.place(lsn)?;
        let (was, is) = (&self.scene.files[name], self.files.get(name)?);
        let found = is.get(at..at + RECORD)?;
        let ours = is[16..32] == was[16..32];
        (ours && *found == was[at..at + RECORD] && found[28..] != [0; 4]).then_some(found)
    }

    fn operation(&self, lsn: u64) -> Option<u8> {
        self.record(lsn).map(|record| record[31] & 0x3f)
    }

    /// Returns the first LSN that cannot be proved, from the best recovery base; `None` without
    /// any.
    pub fn stop(&self) -> Option<u64> {
        let snapshots = self.scene.names("snap-").into_iter().filter_map(|name| {
            let was = &self.scene.files[name];
            // The rest of a header's page is not read.
            let parts = |bytes: &'a [u8]| Some((bytes.get(..128)?, bytes.get(PAGE..)?));
            let same = self.files.get(name).is_some_and(|is| parts(is) == parts(was));
            same.then(|| (number(was, 40), number(was, 48)))
        });
        let bases = snapshots.chain([(1, 1)]);
        let stops = bases.filter_map(|(start, end)| {
            let stop = (start..).find(|&lsn| self.record(lsn).is_none()).expect("an end");
            (stop >= end).then(|| self.without_batch(stop))
        });
        stops.max().filter(|&stop| stop > 1)
    }

    /// A batch that lies across the end has not happened.
    fn without_batch(&self, mut stop: u64) -> u64 {
        while self.record(stop - 1).is_some_and(|record| record[31] & 0x40 != 0) {
            stop -= 1;
        }
        stop
    }

    /// Returns the number of intact operations from an LSN on, the first and the last.
    pub fn beyond(&self, from: u64) -> Option<(u64, u64, u64)> {
        let whole = |lsn: &u64| matches!(self.operation(*lsn), Some(1 | 8));
        let lsns: Vec<u64> = (from..self.scene.tail()).filter(whole).collect();
        Some((lsns.len() as u64, *lsns.first()?, *lsns.last()?))
    }
}
