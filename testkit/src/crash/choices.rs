//! Chooses the result of a power cut among the possible ones: at random, or one after the other
//! until all have been tried.

use crate::crash::tape::{Moment, SECTOR_WORDS, Sector};
use crate::random::Random;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// The bias of random choices.
#[derive(Debug, Clone, Copy)]
enum Leaning {
    Even,
    /// Mostly the newest: a disk that was nearly idle.
    New,
    /// Mostly the oldest: the kernel wrote nothing back.
    Old,
    /// The oldest or the newest.
    Ends,
}

/// The detail in which all results are enumerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// For each sector the last synced and the newest version: every subset of the dirty sectors.
    Subsets,
    /// Also all versions between.
    Versions,
    /// Also every mixture of words of the newest version with the one before, if at most four
    /// differ: a record is four words.
    Torn,
}

/// The words of the newest version that may each be old: sixteen mixtures.
const TORN_WORDS: usize = 4;

/// Decides the open choices.
#[derive(Debug)]
pub enum Chooser {
    /// At random.
    Chance(Chance),
    /// One result of all.
    Way(Way),
}

/// Decides the results of a cut; shared with the caller that advances to the next result.
pub type Decider = Arc<Mutex<Chooser>>;

/// Random choices.
#[derive(Debug)]
pub struct Chance {
    random: Random,
    leaning: Leaning,
}

/// One path through all choices: the selection at each, and the number of options.
#[derive(Debug)]
pub struct Way {
    steps: Vec<(usize, usize)>,
    at: usize,
    detail: Detail,
}

impl Chooser {
    /// Creates a random chooser.
    pub fn chance(mut random: Random) -> Self {
        let leaning = match random.below(6) {
            0 | 1 => Leaning::Even,
            2 | 3 => Leaning::New,
            4 => Leaning::Old,
            _ => Leaning::Ends,
        };
        Self::Chance(Chance { random, leaning })
    }

    /// Returns the first result of all: the oldest version of everything.
    pub fn first(detail: Detail) -> Self {
        Self::Way(Way { steps: Vec::new(), at: 0, detail })
    }

    /// Shares the chooser between the disk of a cut and its caller.
    pub fn shared(self) -> Decider {
        Arc::new(Mutex::new(self))
    }

    /// Advances to the next result; returns false if there is none.
    pub fn advance(&mut self) -> bool {
        let Self::Way(way) = self else {
            return true;
        };
        way.steps.truncate(way.at);
        way.at = 0;
        while let Some((taken, of)) = way.steps.pop() {
            if taken + 1 < of {
                way.steps.push((taken + 1, of));
                return true;
            }
        }
        false
    }

    /// Returns the number of results, if all had the same choices as this one.
    pub fn ways(&self) -> u128 {
        match self {
            Self::Chance(_) => u128::MAX,
            Self::Way(way) => {
                let each = way.steps[..way.at].iter().map(|&(_, of)| of as u128);
                each.fold(1, u128::saturating_mul)
            }
        }
    }

    /// Chooses one of `of` options, ascending by age.
    pub fn pick(&mut self, of: usize) -> usize {
        if of < 2 {
            return 0;
        }
        match self {
            Self::Chance(chance) => chance.pick(of),
            Self::Way(way) => way.pick(of),
        }
    }

    /// Returns the content of a sector with these possible versions, oldest first; `asked` are the
    /// words that the caller needs.
    pub fn sector(&mut self, versions: &[(Moment, Sector)], asked: Range<usize>) -> Sector {
        if let [(_, only)] = versions {
            return only.clone();
        }
        match self {
            Self::Chance(chance) => chance.sector(versions),
            Self::Way(way) => way.sector(versions, asked),
        }
    }
}

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    fn pick(&mut self, of: usize) -> usize {
        let leaning = self.leaning;
        match leaning {
            Leaning::New if self.below(8) > 0 => of - 1,
            Leaning::Old if self.below(8) > 0 => 0,
            Leaning::Ends => self.below(2) * (of - 1),
            _ => self.below(of),
        }
    }

    fn sector(&mut self, versions: &[(Moment, Sector)]) -> Sector {
        let version = self.pick(versions.len());
        if version == 0 || self.below(6) > 0 {
            return versions[version].1.clone();
        }
        // The sector was being written: each eight bytes are new or have their former value.
        let mut torn = *versions[version].1;
        let before = &versions[self.below(version)].1;
        for (word, old) in torn.iter_mut().zip(before.iter()) {
            if *word != *old && self.below(2) == 0 {
                *word = *old;
            }
        }
        torn.into()
    }
}

impl Way {
    fn pick(&mut self, of: usize) -> usize {
        if self.at == self.steps.len() {
            self.steps.push((0, of));
        }
        let (taken, of_then) = self.steps[self.at];
        assert_eq!(of, of_then, "the same path must lead to the same choices");
        self.at += 1;
        taken
    }

    fn sector(&mut self, versions: &[(Moment, Sector)], asked: Range<usize>) -> Sector {
        let all = versions.iter().map(|(_, version)| version.clone());
        let mut may_be: Vec<Sector> = all.collect();
        let newest = may_be.len() - 1;
        match self.detail {
            Detail::Subsets => drop(may_be.drain(1..newest)),
            Detail::Versions => {}
            Detail::Torn => may_be.extend(torn(&versions[newest - 1].1, &versions[newest].1)),
        }
        // Versions that are equal in these words are omitted.
        let mut kept: Vec<Sector> = Vec::with_capacity(may_be.len());
        for one in may_be.into_iter().rev() {
            if !kept.iter().any(|other| other[asked.clone()] == one[asked.clone()]) {
                kept.push(one);
            }
        }
        kept.reverse();
        let taken = if kept.len() > 1 { self.pick(kept.len()) } else { 0 };
        kept.swap_remove(taken)
    }
}

/// Returns all mixtures of two versions that differ in few words.
fn torn(old: &Sector, new: &Sector) -> Vec<Sector> {
    let differ: Vec<usize> = (0..SECTOR_WORDS).filter(|&at| old[at] != new[at]).collect();
    if differ.len() > TORN_WORDS {
        return Vec::new();
    }
    let mixture = |which: u32| {
        let mut words = **new;
        let old_ones = differ.iter().enumerate().filter(|(bit, _)| which >> bit & 1 == 1);
        old_ones.for_each(|(_, &at)| words[at] = old[at]);
        words.into()
    };
    (1..(1_u32 << differ.len()) - 1).map(mixture).collect()
}
