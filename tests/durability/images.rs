//! Random crash images: many cuts of each of many recorded workloads, and cuts of the recoveries
//! that follow.

use crate::settings::Settings;
use crate::workload::{Size, USUAL, Workload, caught};
use ebbtide_testkit::crash::choices::Chooser;
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::tape::Tape;
use ebbtide_testkit::random::{Random, mix};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The number of images of each workload.
const EACH: u64 = 500;
/// The largest number of consecutive cuts.
const IN_A_ROW: u64 = 4;
/// The workload between two cuts.
const BETWEEN: Size = Size {
    lives: 1,
    steps: 40,
    checkpoints: 40,
    full: 20,
    syncs: 60,
    calls: 0,
    burst: 20,
    unsynced: u64::MAX,
};
const PROGRESS: Duration = Duration::from_secs(10);

/// The results of a run.
#[derive(Debug, Default, Clone, Copy)]
struct Results {
    images: u64,
    /// Cuts of the recovery from another image.
    again: u64,
    workloads: u64,
    /// Images without a filter.
    early: u64,
    /// Images with a damaged newest snapshot.
    damaged: u64,
    /// The number of segments, banks and snapshots in the recordings.
    files: [u64; 3],
}

impl Results {
    fn add(&mut self, other: &Self) {
        self.images += other.images;
        self.again += other.again;
        self.workloads += other.workloads;
        self.early += other.early;
        self.damaged += other.damaged;
        for (all, some) in self.files.iter_mut().zip(other.files) {
            *all += some;
        }
    }
}

/// Flips a bit at the end of the newest snapshot, if there is one: nothing may be lost by that.
fn damage_newest_snapshot(disk: &CrashDisk) -> bool {
    let newest = disk.names("snap-").pop();
    let Some(newest) = newest else { return false };
    let content = disk.content(&newest);
    let last = content.len() - 1;
    disk.overwrite(&newest, last as u64, &[content[last] ^ 1]);
    true
}

/// Cuts the power once, and possibly again while the filter recovers or after it resumed.
fn image(workload: &mut Workload, tape: &Arc<Tape>, number: u64) -> Result<Results, String> {
    let mut random = workload.random(number + 1);
    let (mut tape, mut results) = (tape.clone(), Results::default());
    for cut in 0..IN_A_ROW {
        let at = 1 + random.below(tape.now);
        let told = *tape.told.at(at);
        let chance = Chooser::chance(Random::new(random.below(u64::MAX)));
        let again = cut + 1 < IN_A_ROW && random.below(8) == 0;
        let disk = CrashDisk::after_cut(&tape, at, &chance.shared(), again);
        results.images += 1;
        results.again += u64::from(cut > 0);
        if !again && random.below(16) == 0 && !told.full && damage_newest_snapshot(&disk) {
            results.damaged += 1;
        }
        let place = |what: String| format!("cut {cut} at {at} of {}: {what}", tape.now);
        let found = workload.recover(&disk, told.durable[0], &told).map_err(place)?;
        results.early += u64::from(found.is_none());
        if !again {
            disk.end();
            return Ok(results);
        }
        let filter = match found {
            Some((filter, number)) => {
                if random.below(2) == 0 {
                    workload.live(&disk, &filter, number, &mut random, BETWEEN).map_err(place)?;
                }
                filter
            }
            None => workload.create(&disk).map_err(|error| place(error.to_string()))?,
        };
        workload.sound(&disk).map_err(place)?;
        tape = disk.end();
        // The process ends with the power: its open files must not change the disk.
        drop(filter);
    }
    Ok(results)
}

/// Records a workload and checks these images, up to the first that fails.
fn images(seed: u64, number: u64, which: impl Iterator<Item = u64>) -> (Results, Option<Failure>) {
    let mut workload = Workload::new(mix(seed), number);
    let named = format!("{} ({:?})", workload.sample.name, workload.habit);
    let mut results = Results { workloads: 1, ..Results::default() };
    let tape = match caught(|| workload.record(USUAL)) {
        Ok(tape) => tape,
        Err(what) => {
            return (results, Some((number * EACH, format!("{named}, recording: {what}"))));
        }
    };
    results.files = ["wal-", "live-", "snap-"].map(|prefix| tape.count(prefix));
    for number in which {
        match caught(|| image(&mut workload, &tape, number)) {
            Ok(one) => results.add(&one),
            Err(what) => return (results, Some((number, format!("{named}, {what}")))),
        }
    }
    (results, None)
}

/// The number of an image, and the failure.
type Failure = (u64, String);

/// The state shared by the threads.
#[derive(Debug, Default)]
struct Shared {
    next: AtomicU64,
    failed: AtomicBool,
    results: Mutex<Results>,
    failures: Mutex<Vec<Failure>>,
}

/// Checks all requested images, on all processors.
pub fn run(settings: &Settings) -> Result<(), String> {
    let (seed, start) = (settings.seed, Instant::now());
    if let Some((seed, image)) = settings.only {
        let (_, failure) = images(seed, image / EACH, std::iter::once(image));
        return failure.map_or(Ok(()), |(_, what)| Err(what));
    }
    let workloads = settings.from / EACH..(settings.from + settings.images).div_ceil(EACH);
    let shared = Shared { next: AtomicU64::new(workloads.start), ..Shared::default() };
    let work = || {
        loop {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            if number >= workloads.end || shared.failed.load(Ordering::Relaxed) {
                return;
            }
            let (results, failure) = images(seed, number, number * EACH..(number + 1) * EACH);
            shared.results.lock().expect("no panic").add(&results);
            if let Some(failure) = failure {
                shared.failed.store(!settings.all, Ordering::Relaxed);
                shared.failures.lock().expect("no panic").push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = settings.threads();
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut told = Instant::now();
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if told.elapsed() > PROGRESS {
                told = Instant::now();
                let done = shared.results.lock().expect("no panic").images;
                // All images before these are complete.
                let from = shared.next.load(Ordering::Relaxed).saturating_sub(threads) * EACH;
                println!(
                    "{done} images in {:.0} s; continue with --from {from} --seed {seed}",
                    start.elapsed().as_secs_f64()
                );
            }
        }
    });
    let results = *shared.results.lock().expect("no panic");
    println!(
        "{} crash images, {} of them of recoveries, {} before there was a filter, {} with a \
         damaged snapshot; {} workloads with {} segments, {} banks and {} snapshots, \
         seed {seed}, {:.1} s",
        results.images,
        results.again,
        results.early,
        results.damaged,
        results.workloads,
        results.files[0],
        results.files[1],
        results.files[2],
        start.elapsed().as_secs_f64()
    );
    let mut failures = std::mem::take(&mut *shared.failures.lock().expect("no panic"));
    failures.sort();
    match failures.first() {
        None => Ok(()),
        Some((image, what)) => Err(format!(
            "{} failures, the first after {} images: --only {seed}:{image}: {what}",
            failures.len(),
            results.images
        )),
    }
}
