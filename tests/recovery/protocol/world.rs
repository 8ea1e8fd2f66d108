//! The state shared by all processes: memory and files; and its invariants.

use super::actor::Actor;

/// LSNs range from 1 to below this; a segment contains one record and is named by it.
pub const LSNS: usize = 6;
pub const STRIPES: usize = 2;
/// At most as many actors; those that a search does not need are dead.
pub const ACTORS: usize = 4;

/// The broken rules of the protocol.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Log is removed below the newest snapshot's start.
    pub by_newest: bool,
    /// Log is removed before the new snapshot has its name, as if it had it.
    pub tidy_first: bool,
    /// Segments are removed from the end on.
    pub descending: bool,
    /// A snapshot gets its name without a commit.
    pub without_commit: bool,
    /// Files are removed before the directory is synced.
    pub without_directory_sync: bool,
    /// A snapshot's start is read after the copying.
    pub late_start: bool,
    /// Stripes are copied without their lock.
    pub without_stripe: bool,
    /// Any error in opening a snapshot counts as damage.
    pub removes_unopened: bool,
    /// A commit that does not find a segment is abandoned.
    pub maps_once: bool,
    /// A takeover continues as if the stripe had been free.
    pub without_repair: bool,
    /// Other threads unmap segments that a repair has just mapped.
    pub repair_forgets: bool,
    /// A repair that does not find a segment is abandoned.
    pub repairs_once: bool,
    /// A takeover is not recorded among the slots that may stay empty.
    pub hole_uncounted: bool,
}

impl Rules {
    pub const PROPER: Self = Self {
        by_newest: false,
        tidy_first: false,
        descending: false,
        without_commit: false,
        without_directory_sync: false,
        late_start: false,
        without_stripe: false,
        removes_unopened: false,
        maps_once: false,
        without_repair: false,
        repair_forgets: false,
        repairs_once: false,
        hole_uncounted: false,
    };
}

/// A record's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    Empty,
    Void,
    /// A record of this stripe.
    Record(u8),
}

/// A stripe: its owner, and the LSN last applied and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stripe {
    pub owner: Option<u8>,
    pub applied: u8,
}

/// A snapshot: the end of the log when it was written, and the LSN of each stripe's copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Snapshot {
    pub end: u8,
    pub copies: [u8; STRIPES],
    /// Whether its name is on disk, not only in the kernel's memory.
    pub durable: bool,
}

/// The whole state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub tail: u8,
    pub durable: u8,
    /// The start of the newest snapshot, as in the header.
    pub base: u8,
    /// The number of slots that may be empty without a held stripe.
    pub unaccounted: u8,
    pub places: [Place; LSNS],
    pub stripes: [Stripe; STRIPES],
    /// The segments that have a name, as bits.
    pub segments: u16,
    /// The snapshots, by start.
    pub snapshots: [Option<Snapshot>; LSNS],
    pub actors: [Actor; ACTORS],
}

/// Returns the segments from one LSN up to another.
pub fn log(from: u8, to: u8) -> u16 {
    (from..to).map(|lsn| 1 << lsn).sum()
}

impl World {
    /// Creates a state with one record, durable and applied. Actors write, some of them waiting for
    /// durability, or run checkpoints.
    pub fn new<const N: usize>(actors: [Actor; N]) -> Self {
        let actors = std::array::from_fn(|at| actors.get(at).copied().unwrap_or(Actor::DEAD));
        let mut world = Self {
            tail: 2,
            durable: 2,
            base: 0,
            unaccounted: 0,
            places: [Place::Empty; LSNS],
            stripes: [Stripe::default(); STRIPES],
            segments: log(1, LSNS as u8),
            snapshots: [None; LSNS],
            actors,
        };
        world.places[1] = Place::Record(0);
        world.stripes[0].applied = 1;
        world
    }

    /// Returns the slots below the tail, from an LSN on, with their content.
    pub fn written(&self, from: u8) -> impl Iterator<Item = (u8, Place)> + '_ {
        (from..self.tail).map(|lsn| (lsn, self.places[lsn as usize]))
    }

    /// Returns the starts of snapshots, newest first.
    pub fn starts(&self) -> impl Iterator<Item = u8> + Clone {
        (1..LSNS as u8).rev().filter(|&start| self.snapshots[start as usize].is_some())
    }

    /// Returns a violation, if there is one: in the current state, after the death of all actors,
    /// or after a power cut.
    pub fn wrong(&self) -> Option<String> {
        self.wrong_in_memory().or_else(|| self.wrong_snapshots()).or_else(|| self.wrong_log())
    }

    fn wrong_in_memory(&self) -> Option<String> {
        for (index, stripe) in self.stripes.iter().enumerate().filter(|(_, s)| s.owner.is_none()) {
            let last =
                self.written(1).filter(|&(_, place)| place == Place::Record(index as u8)).last();
            if last.is_some_and(|(lsn, _)| lsn > stripe.applied) {
                return Some(format!("a record is not applied though stripe {index} is free"));
            }
        }
        // Recovery treats more gaps as damage.
        let holes = self.written(self.durable).filter(|&(_, place)| place == Place::Empty).count();
        let held = self.stripes.iter().filter(|stripe| stripe.owner.is_some()).count();
        let allowed = held + usize::from(self.unaccounted);
        (holes > allowed).then(|| format!("an unaccounted gap: {holes}, {allowed}"))
    }

    fn wrong_snapshots(&self) -> Option<String> {
        for start in self.starts() {
            let snapshot = self.snapshots[start as usize].as_ref()?;
            if snapshot.end > self.durable {
                return Some(format!("a snapshot is ahead of the log: {start}"));
            }
            for (lsn, place) in self.written(1).take_while(|&(lsn, _)| lsn < start) {
                if let Place::Record(stripe) = place
                    && snapshot.copies[usize::from(stripe)] < lsn
                {
                    return Some(format!("a snapshot lacks a record below its start: {start}"));
                }
            }
        }
        None
    }

    fn wrong_log(&self) -> Option<String> {
        let missing = |from: u8| log(from, self.tail) & !self.segments != 0;
        let starts = self.starts();
        // Recovery must work from both of the two newest snapshots, or from the newest and the
        // whole log.
        let second = starts.clone().nth(1).unwrap_or(1);
        if missing(second) {
            return Some(format!("log is missing from {second} on"));
        }
        let durable = |start: &u8| self.snapshots[usize::from(*start)].is_some_and(|s| s.durable);
        let first = starts.clone().find(durable).unwrap_or(1);
        if missing(first) {
            return Some(format!("log is missing after a power cut from {first} on"));
        }
        let run = self.segments >> self.segments.trailing_zeros();
        (run & (run + 1) != 0).then(|| "a gap in the remaining log".to_owned())
    }
}
