//! The background threads: what is due sooner or later, done before anyone has to wait for it.
//!
//! Allocating the next log segment, syncing at intervals, closing holes, repairing what dead processes left, heartbeats,
//! checkpoints. None of this is an office: whoever needs something that is overdue does it without them.

use super::engine::Engine;
use crate::error::Result;
use crate::options::{Downtime, Durability};
use crate::planted::Mistake;
use crate::sync::{AtomicU64, Ordering};
use crate::wal::record::RECORD_BYTES;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest a thread sleeps; also the distance of heartbeats.
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// Whoever appends a record whose LSN is a multiple of this wakes the threads: after 128 KiB of log.
pub(super) const RECORDS_A_RING: u64 = (128 << 10) / RECORD_BYTES;
/// The places whose pages are made present ahead of the tail: enough until the thread has woken up and come to it.
const PRESENT: u64 = 2 * RECORDS_A_RING;

/// How the threads are woken.
#[derive(Debug)]
pub struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
    /// The shortest interval that anyone asked for, in microseconds.
    interval: AtomicU64,
}

#[derive(Debug, Default)]
struct BellState {
    /// How often it was rung.
    rings: u64,
    stop: bool,
}

impl Bell {
    /// A bell for a filter of this durability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        let micros = match durability {
            Durability::Interval(every) => u64::try_from(every.as_micros()).unwrap_or(u64::MAX),
            Durability::Always | Durability::Never => u64::MAX,
        };
        Self { state: Mutex::default(), rung: Condvar::new(), interval: AtomicU64::new(micros) }
    }

    /// Wakes the threads: the log has grown.
    pub(super) fn ring(&self) {
        self.state.lock().rings += 1;
        self.rung.notify_all();
    }

    /// Asks for syncs at least so often from now on.
    #[inline]
    pub(super) fn request(&self, every: Duration) {
        let every = every.as_micros() as u64;
        // Relaxed: only the number itself matters.
        if every < self.interval.load(Ordering::Relaxed) {
            self.interval.fetch_min(every, Ordering::Relaxed);
            self.ring();
        }
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.rung.notify_all();
    }

    fn interval(&self) -> Option<Duration> {
        let micros = self.interval.load(Ordering::Relaxed);
        (micros != u64::MAX).then(|| Duration::from_micros(micros.max(100)))
    }

    /// Sleeps for so long, or until it is rung more often than the caller has `heard`. False when it is time to stop.
    fn wait(&self, most: Duration, heard: &mut u64) -> bool {
        let mut state = self.state.lock();
        if state.rings == *heard && !state.stop {
            self.rung.wait_for(&mut state, most);
        }
        *heard = state.rings;
        !state.stop
    }
}

/// The running threads; dropping this stops them.
#[derive(Debug)]
pub struct Duties {
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
}

impl Duties {
    /// Starts the threads, if the handle wants them: one that never waits for long, and one that writes
    /// checkpoints, so that no sync waits for those.
    ///
    /// # Errors
    /// The system's refusal of a thread.
    pub fn start(engine: Arc<Engine>) -> std::io::Result<Self> {
        let mut duties = Self { engine, threads: Vec::new() };
        if duties.engine.options.background {
            duties.spawn("ebbtide-log", tend_log)?;
            duties.spawn("ebbtide-snap", write_checkpoints)?;
        }
        Ok(duties)
    }

    fn spawn(&mut self, name: &str, run: fn(&Engine)) -> std::io::Result<()> {
        let engine = self.engine.clone();
        let builder = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(builder.spawn(move || run(&engine))?);
        Ok(())
    }

    /// Leaves the threads alone: they run in the parent of this process, if anywhere.
    pub fn abandon(&mut self) {
        self.threads.drain(..).for_each(std::mem::forget);
    }

    /// Stops the threads and waits for them.
    pub fn stop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.engine.bell.stop();
        for thread in self.threads.drain(..) {
            // It has nothing to say: a panic in it has been reported on standard error.
            let _ = thread.join();
        }
    }
}

impl Drop for Duties {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Allocates segments ahead, syncs at intervals, closes holes, writes heartbeats.
fn tend_log(engine: &Engine) {
    let (mut synced, mut beat, mut heard) = (Instant::now(), Instant::now(), 0);
    loop {
        let interval = engine.bell.interval();
        let next = interval.map_or(BEAT, |every| every.saturating_sub(synced.elapsed()).min(BEAT));
        if !engine.bell.wait(next, &mut heard) {
            return;
        }
        // A duty that fails is left to whoever needs it, who then gets the error.
        if engine.allocate_ahead().is_err_and(|error| error.is_full()) {
            engine.restrain_writers();
        }
        let _ = engine.let_go_of_records();
        let due = interval.is_some_and(|every| synced.elapsed() >= every);
        if due && !Mistake::IntervalIgnored.is_planted() {
            synced = Instant::now();
            let _ = engine.commit_all();
        }
        if beat.elapsed() >= BEAT {
            beat = Instant::now();
            engine.tidy_log();
        }
    }
}

/// Writes a checkpoint whenever enough log has gathered.
fn write_checkpoints(engine: &Engine) {
    let mut heard = 0;
    while engine.bell.wait(BEAT, &mut heard) {
        let wanted = engine.is_checkpoint_wanted();
        // If it fails (a full disk) the log goes on growing, and the next one is tried at the next beat.
        let _ = engine.checkpoint_if_due();
        // One that is wanted only since then is the next one.
        if wanted {
            engine.end_wait_for_checkpoint();
        }
    }
}

impl Engine {
    /// What `ebbtide-log` does once a second.
    fn tidy_log(&self) {
        // A duty that fails is left to whoever needs it, who then gets the error.
        let _ = self.close_holes();
        self.repair_all();
        self.image.header().tally().catch_up();
        self.let_go_of_log();
        if self.meta.downtime == Downtime::Freeze && self.uses_time {
            let _ = self.heartbeat();
        }
    }

    /// One round of all that the threads do, for a schedule.
    ///
    /// # Errors
    /// As the first that fails; the threads would leave it to others.
    #[cfg(shuttle)]
    pub(super) fn do_duties(&self) -> Result<()> {
        self.allocate_ahead()?;
        self.let_go_of_records()?;
        self.commit_all()?;
        self.tidy_log();
        self.checkpoint_if_due()
    }

    /// Makes sure that the pages are present that the next records go to, and that a whole segment lies ready behind the one in
    /// use.
    fn allocate_ahead(&self) -> Result<()> {
        let header = self.image.header();
        // While writers wait for a checkpoint it may need the space.
        if header.refuses() || self.is_checkpoint_wanted() {
            return Ok(());
        }
        let (tail, mapped) = (header.tail().load(Ordering::Relaxed), self.log.mapped_end());
        let (mut at, upto) = (tail, tail.saturating_add(PRESENT));
        while at < upto
            && let Some(segment) = self.log.segment(at)
        {
            segment.populate(at, upto);
            at = segment.end();
        }
        if tail.saturating_add(self.log.capacity()) > mapped {
            self.make_room(mapped)?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::{Bloom, Filter, Options};

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_shortest_interval_asked_for_counts_and_only_a_shorter_one_rings() {
        let bell = Bell::new(Durability::Never);
        assert_eq!(bell.interval(), None);
        let millis = Duration::from_millis;
        for (asked, counts, rings) in [(20, 20, 1), (30, 20, 1), (20, 20, 1), (5, 5, 2)] {
            bell.request(millis(asked));
            assert_eq!(bell.interval(), Some(millis(counts)));
            assert_eq!(bell.state.lock().rings, rings, "after {asked} ms");
        }
    }

    #[test]
    fn who_waits_sleeps_until_the_bell_is_rung_or_stopped() {
        let (bell, mut heard) = (Bell::new(Durability::Always), 0);
        let (start, short) = (Instant::now(), Duration::from_millis(20));
        assert!(bell.wait(short, &mut heard));
        assert!(start.elapsed() >= short, "nobody rang");
        bell.ring();
        assert!(bell.wait(HOUR, &mut heard), "rung before the wait");
        assert_eq!(heard, 1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut heard = 1;
                bell.wait(HOUR, &mut heard) && heard == 2
            });
            bell.ring();
            assert!(waiting.join().expect("no panic"));
            let waiting = scope.spawn(|| bell.wait(HOUR, &mut 2));
            bell.stop();
            assert!(!waiting.join().expect("no panic"));
        });
        assert!(!bell.wait(HOUR, &mut 2), "stopped before the wait");
    }

    /// The KiB of memory that the log in this directory takes in this process.
    fn log_kib(directory: &std::path::Path) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
        let directory = directory.to_str().expect("a name of letters");
        let (mut inside, mut sum) = (false, 0);
        for line in maps.lines() {
            if let Some(kib) = line.strip_prefix("Rss:") {
                let kib = kib.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
                sum += if inside { kib } else { 0 };
            } else if line.split(' ').next().is_some_and(|word| word.contains('-')) {
                // The addresses of another mapping, and its file.
                inside = line.contains(directory) && line.contains("/wal-");
            }
        }
        sum
    }

    #[test]
    fn of_the_log_only_the_end_and_the_pages_ahead_stay_in_memory() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let options = Options::new().background(false).segment_bytes(1 << 20);
        let durability = Durability::Never;
        let filter =
            Filter::create(place.path(), Bloom::capacity(1000), options.durability(durability))
                .expect("a filter");
        let engine = &filter.engine;
        let insert = |keys: std::ops::Range<u64>| {
            keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
        };
        // Through two segments, into the third.
        insert(0..70_000);
        assert!(log_kib(place.path()) > 70_000 / 32);
        engine.let_go_of_records().expect("no error");
        // Of each segment the header's page, and the page that is being written.
        assert!(log_kib(place.path()) <= 4 * 4);
        engine.allocate_ahead().expect("there is space");
        let ahead = PRESENT * RECORD_BYTES / 1024;
        let present = log_kib(place.path());
        assert!((ahead..ahead + 6 * 4).contains(&present), "{present} KiB");
        insert(70_000..70_100);
        filter.sync().expect("the records are in the file");
    }

    #[test]
    fn one_whole_segment_lies_ready_and_no_more() {
        let options = Options::new().background(false).segment_bytes(4 << 10);
        let filter = Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options)
            .expect("a filter");
        let engine = &filter.engine;
        let (records, first) = (engine.meta.segment_records, engine.log.mapped_end());
        let ahead = |inserts: std::ops::Range<u64>| {
            for key in inserts {
                filter.insert(key.to_le_bytes()).expect("an insert");
            }
            (0..3).for_each(|_| engine.allocate_ahead().expect("there is space"));
            engine.log.mapped_end()
        };
        assert_eq!(ahead(0..10), first + records);
        assert_eq!(ahead(10..20), first + records);
        assert_eq!(ahead(20..records + 1), first + 2 * records);
        engine.image.header().poison();
        assert_eq!(ahead(0..0), first + 2 * records);
    }
}
