//! Enumerates everything that a power cut may leave of a small workload, at every moment, and of
//! every recovery from it.
//!
//! Between two syncs the set of possible results only grows. A result that is possible at any
//! moment is therefore possible right before the next sync, or at the end, when at least as much
//! has been acknowledged. All results are enumerated at those moments: for each name each of its
//! files since the directory was synced, for each length each value since the file was synced, and
//! for each sector that the recovery reads each version since then, with each mixture of words of
//! the newest version with the one before if at most four differ. (Sectors that are never read make
//! no difference. Of versions that agree in the words read, one is used.) If there are more than
//! [`MOST`] results, mixtures are omitted first, then versions between the oldest and the newest,
//! and then a random selection is used; the results report how often.

use crate::settings::Settings;
use crate::workload::{Size, Workload, caught};
use ebbtide_testkit::crash::choices::{Chooser, Decider, Detail};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::tape::{Moment, Tape};
use ebbtide_testkit::random::mix;
use ebbtide_testkit::samples::index_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The largest number of results that are enumerated completely.
const MOST: u128 = 4096;
/// The largest number of sectors of files that are read after a cut and are not certainly on disk.
const DIRTY: usize = 12;
/// The number of draws of a workload, of which one must be small.
const DRAWS: u64 = 200;
const SMALL: Size = Size {
    lives: 3,
    steps: 60,
    checkpoints: 40,
    full: 20,
    syncs: 250,
    calls: 150,
    burst: 60,
    unsynced: 120,
};

/// The results of a run.
#[derive(Debug, Default, Clone, Copy)]
struct Results {
    /// Moments before a sync, of workloads and of recoveries.
    moments: [u64; 2],
    /// Images, of workloads and of recoveries.
    images: [u64; 2],
    /// Moments with mixtures of words, with versions, with subsets only.
    details: [u64; 3],
    /// The largest number of dirty sectors.
    dirty: usize,
    /// Completed workloads, and draws that were too large.
    workloads: [u64; 2],
}

impl Results {
    fn add(&mut self, other: &Self) {
        for at in 0..2 {
            self.moments[at] += other.moments[at];
            self.images[at] += other.images[at];
        }
        for (all, some) in self.details.iter_mut().zip(other.details) {
            *all += some;
        }
        self.dirty = self.dirty.max(other.dirty);
        for (all, some) in self.workloads.iter_mut().zip(other.workloads) {
            *all += some;
        }
    }
}

/// The reason why a workload is not enumerated completely.
enum Ended {
    /// The workload is too large.
    Large,
    /// A failure.
    Wrong(String),
}

impl From<String> for Ended {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

/// A cut after this many others.
struct Cut<'a> {
    tape: &'a Arc<Tape>,
    at: Moment,
    depth: usize,
    every: u64,
}

impl Cut<'_> {
    /// Checks one result: recovers, and cuts the recovery in all ways if requested.
    fn one(
        &self,
        workload: &mut Workload,
        by: &Decider,
        results: &mut Results,
    ) -> Result<(), Ended> {
        let again = self.depth == 0 && results.images[0].is_multiple_of(self.every);
        let told = *self.tape.told.at(self.at);
        let disk = CrashDisk::after_cut(self.tape, self.at, by, again);
        results.images[self.depth] += 1;
        let place = |what| format!("cut at {} of {}: {what}", self.at, self.tape.now);
        let found = workload.recover(&disk, told.durable[0], &told).map_err(place)?;
        workload.sound(&disk).map_err(place)?;
        let tape = disk.end();
        drop(found);
        if again {
            for at in tape.fullest() {
                let next = Cut { tape: &tape, at, depth: 1, every: 1 };
                next.all(workload, results).map_err(|ended| match ended {
                    Ended::Wrong(what) => Ended::Wrong(place(what)),
                    Ended::Large => Ended::Large,
                })?;
            }
        }
        Ok(())
    }

    /// Checks all results, in as much detail as their number permits.
    fn all(&self, workload: &mut Workload, results: &mut Results) -> Result<(), Ended> {
        results.moments[self.depth] += 1;
        for (which, detail) in
            [Detail::Torn, Detail::Versions, Detail::Subsets].into_iter().enumerate()
        {
            let by = Chooser::first(detail).shared();
            let next = || by.lock().advance();
            self.one(workload, &by, results)?;
            if by.lock().ways() > MOST {
                continue;
            }
            let mut gone = 1;
            // The first result determines their number, unless others read more.
            while gone <= MOST && next() {
                self.one(workload, &by, results)?;
                gone += 1;
            }
            if gone <= MOST {
                results.details[which] += 1;
                return Ok(());
            }
        }
        Err(Ended::Large)
    }
}

/// Enumerates a workload, or finds that it is too large.
fn explore(workload: &mut Workload, every: u64) -> Result<Results, Ended> {
    let mut results = Results::default();
    let tape = workload.record(SMALL)?;
    // The image and its banks are never synced; after a cut only the timeline in the image's header
    // is read.
    let counts =
        |name: &str| name.starts_with("wal-") || name.starts_with("snap-") || name == "meta";
    results.dirty = tape.fullest().map(|at| tape.dirty(at, counts)).max().unwrap_or(0);
    if results.dirty > DIRTY {
        return Err(Ended::Large);
    }
    for at in tape.fullest() {
        let cut = Cut { tape: &tape, at, depth: 0, every };
        cut.all(workload, &mut results)?;
    }
    Ok(results)
}

/// Draws the workload of this number until it is small, and enumerates it.
fn workload(seed: u64, number: u64, every: u64) -> Result<Results, String> {
    for draw in 0..DRAWS {
        // The first workload is one whose banks open and close.
        let number = number + index_of("time-limited") as u64;
        let mut workload = Workload::new(mix(seed ^ 2).wrapping_add(draw), number);
        match explore(&mut workload, every) {
            Ok(results) => return Ok(Results { workloads: [1, draw], ..results }),
            Err(Ended::Large) => {}
            Err(Ended::Wrong(what)) => return Err(format!("draw {draw}: {what}")),
        }
    }
    Err(format!("none of {DRAWS} draws is small"))
}

/// Enumerates small workloads, on all processors.
pub fn run(settings: &Settings) -> Result<(), String> {
    let (seed, start) = (settings.seed, Instant::now());
    let last = settings.from + settings.workloads;
    let (next, outcome) =
        (AtomicU64::new(settings.from), Mutex::new((Results::default(), Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..settings.threads() {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= last {
                        return;
                    }
                    let gone = caught(|| workload(seed, number, settings.every));
                    let mut outcome = outcome.lock().expect("no panic");
                    match gone {
                        Ok(results) => outcome.0.add(&results),
                        Err(what) => {
                            outcome.1.push(format!("workload {number}, seed {seed}: {what}"))
                        }
                    }
                }
            });
        }
    });
    let (results, failures) = outcome.into_inner().expect("no panic");
    let Results { moments, images, details, dirty, workloads } = results;
    println!(
        "{} workloads from number {}, seed {seed} ({} draws were too large): {} images at {} \
         moments, {} images of {} moments of recoveries from one in {}; {} moments with mixtures, \
         {} with versions, {} with subsets only; at most {dirty} dirty sectors; {:.1} s",
        workloads[0],
        settings.from,
        workloads[1],
        images[0],
        moments[0],
        images[1],
        moments[1],
        settings.every,
        details[0],
        details[1],
        details[2],
        start.elapsed().as_secs_f64()
    );
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}
