//! All that a power cut may leave of a small workload, at every moment, and of every recovery from it.
//!
//! Between two syncs what a cut may leave only grows, so what it may leave at any moment it may leave right before the next
//! sync, too, or at the end, where at least as much has been acknowledged. All ways of leaving it are gone through there: for
//! each name each of its files since the directory was synced, for each length each since the file was, for each
//! sector that the recovery reads each version since then, and each mixture of words of the newest with the one before if at
//! most four differ. (Sectors that nobody reads make no difference. Of versions that agree in what is read one is taken.)
//! Where those are more than [`MOST`], mixtures are left out first, then versions between the oldest and the newest, and then
//! chance chooses so many; the tally says how often.

use crate::choices::{Chooser, Detail};
use crate::disk::{CrashDisk, Decider};
use crate::random::{Random, mix};
use crate::settings::Settings;
use crate::tape::{Moment, Tape};
use crate::workload::{Size, Workload, caught};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Ways that all are gone through.
const MOST: u128 = 4096;
/// Sectors of files that are read after a cut and are not on the disk for certain.
const DIRTY: usize = 12;
/// The sample of this kind.
const TIME_LIMITED: u64 = 11;
const SMALL: Size =
    Size { lives: 3, steps: 60, checkpoints: 40, syncs: 250, calls: 150, burst: 60, unsynced: 120 };

/// What was gone through.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    /// Moments before a sync, of workloads and of recoveries.
    moments: [u64; 2],
    /// Images, of workloads and of recoveries.
    images: [u64; 2],
    /// Moments with mixtures of words, with versions, with subsets only, with a sample.
    details: [u64; 4],
    /// The most dirty sectors.
    dirty: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        for at in 0..2 {
            self.moments[at] += other.moments[at];
            self.images[at] += other.images[at];
        }
        for (all, some) in self.details.iter_mut().zip(other.details) {
            *all += some;
        }
        self.dirty = self.dirty.max(other.dirty);
    }
}

/// A cut after so many others.
struct Cut<'a> {
    tape: &'a Arc<Tape>,
    at: Moment,
    depth: usize,
    every: u64,
}

impl Cut<'_> {
    /// One way: recovers, and if that is wanted cuts the recovery in all ways.
    fn one(&self, workload: &mut Workload, by: &Decider, tally: &mut Tally) -> Result<(), String> {
        let again = self.depth == 0 && tally.images[0].is_multiple_of(self.every);
        let told = *self.tape.told.at(self.at);
        let disk = CrashDisk::after_cut(self.tape, self.at, by, again);
        tally.images[self.depth] += 1;
        let place = |what| format!("cut at {} of {}: {what}", self.at, self.tape.now);
        let found = workload.recover(&disk, told.durable[0], &told).map_err(place)?;
        workload.sound(&disk).map_err(place)?;
        let tape = disk.end();
        drop(found);
        if again {
            for at in tape.fullest() {
                let next = Cut { tape: &tape, at, depth: 1, every: 1 };
                next.all(workload, tally).map_err(place)?;
            }
        }
        Ok(())
    }

    /// All ways, as closely as there are not too many.
    fn all(&self, workload: &mut Workload, tally: &mut Tally) -> Result<(), String> {
        tally.moments[self.depth] += 1;
        for (which, detail) in
            [Detail::Torn, Detail::Versions, Detail::Subsets].into_iter().enumerate()
        {
            let by = Arc::new(Mutex::new(Chooser::first(detail)));
            let next = || by.lock().expect("no panic").next();
            self.one(workload, &by, tally)?;
            if by.lock().expect("no panic").ways() > MOST {
                continue;
            }
            tally.details[which] += 1;
            while next() {
                self.one(workload, &by, tally)?;
            }
            return Ok(());
        }
        tally.details[3] += 1;
        for sample in 0..MOST as u64 {
            let random = Random::new(mix(self.at << 16 ^ sample));
            self.one(workload, &Arc::new(Mutex::new(Chooser::chance(random))), tally)?;
        }
        Ok(())
    }
}

fn workload(seed: u64, number: u64, every: u64) -> Result<Tally, String> {
    // The first is one whose banks open and close.
    let mut workload = Workload::new(mix(seed ^ 2), number + TIME_LIMITED);
    let mut tally = Tally::default();
    let tape = workload.record(SMALL)?;
    // The image and its banks are never synced, and read after a cut for nothing but the era in the image's header.
    let counts =
        |name: &str| name.starts_with("wal-") || name.starts_with("snap-") || name == "meta";
    for at in tape.fullest() {
        tally.dirty = tally.dirty.max(tape.dirty(at, counts));
        if tally.dirty > DIRTY {
            return Err(format!("{} sectors are dirty at {at}: that is not small", tally.dirty));
        }
        let cut = Cut { tape: &tape, at, depth: 0, every };
        cut.all(&mut workload, &mut tally)?;
    }
    Ok(tally)
}

/// Goes through small workloads, on all processors.
pub fn run(settings: &Settings) -> Result<(), String> {
    let (seed, start) = (settings.seed, Instant::now());
    let (next, outcome) = (AtomicU64::new(0), Mutex::new((Tally::default(), Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..settings.threads() {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= settings.workloads {
                        return;
                    }
                    let gone = caught(|| workload(seed, number, settings.every));
                    let mut outcome = outcome.lock().expect("no panic");
                    match gone {
                        Ok(tally) => outcome.0.add(&tally),
                        Err(what) => {
                            outcome.1.push(format!("workload {number}, seed {seed}: {what}"))
                        }
                    }
                }
            });
        }
    });
    let (tally, failures) = outcome.into_inner().expect("no panic");
    let Tally { moments, images, details, dirty } = tally;
    println!(
        "{} workloads, seed {seed}: {} images at {} moments, {} images of {} moments of recoveries from one in {}; \
         {} moments with mixtures, {} with versions, {} with subsets only, {} by chance; at most {dirty} dirty sectors; {:.1} s",
        settings.workloads,
        images[0],
        moments[0],
        images[1],
        moments[1],
        settings.every,
        details[0],
        details[1],
        details[2],
        details[3],
        start.elapsed().as_secs_f64()
    );
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}
