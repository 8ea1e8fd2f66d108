//! Power cuts: the position in the log, and the writes that had reached the disk by then.
//!
//! All writes up to the last flush have. Of each sector written since, the disk may have the
//! content of the flush, or any of the later writes: a disk has a cache, writes from it in any
//! order, and writes whole sectors.

use crate::block_log::BlockLog;
use crate::image::Image;
use crate::notes::Noted;
use ebbtide_testkit::random::Random;
use std::fmt;

/// The second sector of ext4's superblock. It has the same fate as the first: ext4 cannot mount a
/// torn superblock.
const SUPERBLOCK_END: u64 = 3;

/// The fate of the writes since the last flush.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// None reached the disk.
    Lost,
    /// All reached the disk.
    Kept,
    /// This many of eight writes reached it, each completely.
    Writes(u64),
    /// This many of eight sectors reached it.
    Sectors(u64),
}

/// A power cut.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The number of entries logged before it.
    pub issued: usize,
    fate: Fate,
    /// Decides the fate of each write or sector.
    random: Random,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut after {} entries, {:?}", self.issued, self.fate)
    }
}

impl Cut {
    /// Draws a power cut of a recording: often right after an acknowledgement or before a flush, or
    /// while the filter was opened, closed or copied.
    pub fn any(log: &BlockLog, noted: &Noted, random: &mut Random) -> Self {
        let last = log.entries().len();
        let issued = match random.below(20) {
            0..6 => {
                let positions = noted.positions();
                let position = positions[random.below(positions.len() as u64) as usize];
                log.entries_at(position) + random.below(4) as usize
            }
            6..11 => {
                let moments = &noted.moments;
                let from = random.below(moments.len() as u64) as usize;
                let upto = moments.get(from + 1).map_or(last, |&next| log.entries_at(next));
                let from = log.entries_at(moments[from]);
                from + random.below((upto - from) as u64 + 1) as usize
            }
            11..17 => {
                let after = usize::from(random.below(4) == 0);
                busiest_flush(log, random) + after
            }
            _ => random.below(last as u64 + 1) as usize,
        };
        let share = [1, 4, 7][random.below(3) as usize];
        let fate = match random.below(8) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            2..5 => Fate::Writes(share),
            _ => Fate::Sectors(share),
        };
        Self::new(issued.min(last), fate, random)
    }

    fn new(issued: usize, fate: Fate, random: &mut Random) -> Self {
        let random = Random::new(random.below(u64::MAX));
        Self { issued, fate, random }
    }

    /// Returns the entries that no flush covers.
    pub fn open(&self, log: &BlockLog) -> std::ops::Range<usize> {
        let issued = &log.entries()[..self.issued];
        let flushed = issued.iter().rposition(|entry| entry.flush).map_or(0, |flush| flush + 1);
        flushed..self.issued
    }

    /// Applies those unflushed writes that reached the disk.
    pub fn tear(&self, log: &BlockLog, image: &mut Image) {
        let mut random = self.random.clone();
        let mut chosen = |share| random.below(8) < share;
        for entry in &log.entries()[self.open(log)] {
            let mut kept = match self.fate {
                Fate::Lost => false,
                Fate::Kept => true,
                Fate::Writes(share) | Fate::Sectors(share) => chosen(share),
            };
            for (sector, bytes) in log.sectors(entry) {
                if let Fate::Sectors(share) = self.fate
                    && sector != SUPERBLOCK_END
                {
                    kept = chosen(share);
                }
                if kept {
                    image.set(sector, bytes);
                }
            }
        }
    }
}

/// Draws a flush, preferably one that covers many writes; returns how many entries came before it.
fn busiest_flush(log: &BlockLog, random: &mut Random) -> usize {
    let entries = log.entries().iter().enumerate();
    let flushes: Vec<usize> = entries.filter(|(_, entry)| entry.flush).map(|(at, _)| at).collect();
    let covered = |at: usize| flushes[at] - if at == 0 { 0 } else { flushes[at - 1] };
    let tried = [(); 4].map(|()| random.below(flushes.len() as u64) as usize);
    let busiest = tried.into_iter().max_by_key(|&at| covered(at)).expect("four");
    flushes[busiest]
}

/// Applies whole entries.
pub fn replay(log: &BlockLog, entries: std::ops::Range<usize>, image: &mut Image) {
    for entry in &log.entries()[entries] {
        for (sector, bytes) in log.sectors(entry) {
            image.set(sector, bytes);
        }
    }
}
