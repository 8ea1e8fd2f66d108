//! Background tasks: maintenance that will be due, done before any caller has to wait for it.
//!
//! The tasks are: allocating the next log segment, syncing at intervals, closing gaps, repairing
//! what dead processes left, heartbeats, checkpoints. The threads of
//! [`crate::engine::task_threads`], which all filters of the process share, run them. The threads
//! are optional: callers perform overdue maintenance themselves.

use crate::engine::Engine;
use crate::engine::task_threads::{self, Registered, Task, Work};
use crate::error::Result;
use crate::options::{Downtime, Durability};
use crate::sync::mutex::Mutex;
use crate::sync::{Hint, Ordering};
use crate::wal::record::RECORD_BYTES;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The longest sleep of a thread; also the interval of heartbeats.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// How early a task that is due about once per tick may run.
const EARLY: Duration = Duration::from_millis(50);

/// The number of records after which an appender wakes the threads, at LSNs that are its multiples:
/// 128 KiB of log.
pub(crate) const RECORDS_A_RING: u64 = (128 << 10) / RECORD_BYTES;
/// The slots ahead of the tail whose pages are made present: enough until the thread has woken up
/// and made more.
const PRESENT: u64 = 2 * RECORDS_A_RING;

/// When only this fraction of a segment is left, the next one is allocated for any filter.
const NEARLY_FULL: u64 = 8;

/// Wakes the tasks of a filter.
#[derive(Debug)]
pub struct Wakeup {
    /// Unset if the filter has no background tasks.
    tasks: OnceLock<[Registered; 2]>,
    /// The shortest interval that any caller requested, in microseconds.
    interval: Hint,
    /// The log is durable to its end, and the task of the log waits for the next tick: an insert
    /// wakes it.
    resting: AtomicBool,
}

impl Wakeup {
    /// Creates the wakeup of a filter with this durability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        let micros = match durability {
            Durability::Interval(every) => u64::try_from(every.as_micros()).unwrap_or(u64::MAX),
            Durability::Always | Durability::Never => u64::MAX,
        };
        Self {
            tasks: OnceLock::new(),
            interval: Hint::new(micros),
            resting: AtomicBool::new(false),
        }
    }

    /// Wakes the tasks: the log has grown.
    pub(crate) fn ring(&self) {
        self.tasks.get().into_iter().flatten().for_each(Registered::wake);
    }

    /// Requests syncs at least at this interval from now on.
    #[inline]
    pub(crate) fn request(&self, every: Duration) {
        let every = every.as_micros() as u64;
        if every < self.interval.get() {
            self.interval.lower(every);
            self.ring();
        }
        // SeqCst, as where it is set: either this sees the flag, or the task sees the record. (A
        // record's slot is reserved by an atomic operation, which is equivalent where it matters;
        // otherwise the sync comes at the next tick.)
        if self.resting.load(Ordering::SeqCst) && self.resting.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    fn interval(&self) -> Option<Duration> {
        let micros = self.interval.get();
        (micros != u64::MAX).then(|| Duration::from_micros(micros.max(100)))
    }
}

/// The background tasks of a filter; dropping this stops them.
#[derive(Debug)]
pub struct Tasks {
    engine: Arc<Engine>,
    running: bool,
}

impl Tasks {
    /// Starts the tasks, if the handle wants them: one for the log, and one for checkpoints, so
    /// that no sync waits for them.
    ///
    /// # Errors
    /// The system's error if no thread can be started.
    pub fn start(engine: Arc<Engine>) -> std::io::Result<Self> {
        let running = engine.options.background;
        if running {
            let log = task_threads::register(Work::Log, Arc::new(LogTask::new(engine.clone())))?;
            let snapshots = SnapshotTask { engine: engine.clone() };
            let snapshots = task_threads::register(Work::Snapshots, Arc::new(snapshots));
            let snapshots = snapshots.inspect_err(|_| log.remove())?;
            // An engine is started once.
            let _ = engine.bell.tasks.set([log, snapshots]);
        }
        Ok(Self { engine, running })
    }

    /// Abandons the tasks: they run in the parent of this process, if anywhere.
    pub fn abandon(&mut self) {
        self.running = false;
    }

    /// Stops the tasks and waits until none of them is running.
    pub fn stop(&mut self) {
        if std::mem::take(&mut self.running) {
            self.engine.bell.tasks.get().into_iter().flatten().for_each(Registered::remove);
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Allocates segments ahead, syncs at intervals, closes gaps, writes heartbeats.
struct LogTask {
    engine: Arc<Engine>,
    last: Mutex<Last>,
}

/// State that the task of the log keeps between runs.
struct Last {
    /// When the log was last synced.
    synced: Instant,
    /// When it was last tidied up.
    tidied: Instant,
    /// The end of the log.
    tail: u64,
}

impl LogTask {
    fn new(engine: Arc<Engine>) -> Self {
        let (now, tail) = (Instant::now(), engine.image.header().tail().hint());
        Self { engine, last: Mutex::new(Last { synced: now, tidied: now, tail }) }
    }
}

impl Task for LogTask {
    fn run(&self) -> Instant {
        let engine = &*self.engine;
        // No other thread locks it.
        let mut last = self.last.lock();
        let Last { synced, tidied, tail } = &mut *last;
        let before = std::mem::replace(tail, engine.image.header().tail().hint());
        // Twice the number of records since the last run, so that a filter with few inserts keeps
        // few pages.
        let ahead = PRESENT.min(2 * tail.saturating_sub(before));
        // A failed task is left to the caller that needs it, which then gets the error.
        if engine.allocate_ahead(ahead).is_err_and(|error| error.is_full()) {
            engine.restrain_writers();
        }
        let _ = engine.let_go_of_records();
        if *tail == before {
            engine.let_go_of_ahead();
        }
        let interval = engine.bell.interval();
        // Slightly early at a tick, rather than shortly after it.
        let due = interval.is_some_and(|every| synced.elapsed() + EARLY.min(every / 2) >= every);
        if due {
            *synced = Instant::now();
            let _ = engine.commit_all();
        }
        if tidied.elapsed() + EARLY >= BEAT {
            *tidied = Instant::now();
            engine.tidy_log();
        }
        let now = Instant::now();
        let beat = task_threads::next_beat(now, BEAT);
        match interval {
            Some(every) if every < BEAT && !engine.may_rest() => (*synced + every).clamp(now, beat),
            _ => beat,
        }
    }
}

/// Writes a checkpoint whenever enough log has accumulated.
struct SnapshotTask {
    engine: Arc<Engine>,
}

impl Task for SnapshotTask {
    fn run(&self) -> Instant {
        let engine = &*self.engine;
        let wanted = engine.is_checkpoint_wanted();
        // If it fails (a full disk) the log continues to grow, and the next attempt is at the next
        // tick.
        let _ = engine.checkpoint_if_due();
        // A request since then is for the next checkpoint.
        if wanted {
            engine.end_wait_for_checkpoint();
        }
        task_threads::next_beat(Instant::now(), BEAT)
    }
}

impl Engine {
    /// Returns whether the log is durable to its end. If so, the next insert wakes the task of the
    /// log.
    fn may_rest(&self) -> bool {
        self.bell.resting.store(true, Ordering::SeqCst);
        let rests = !self.has_undurable();
        if !rests {
            self.bell.resting.store(false, Ordering::SeqCst);
        }
        rests
    }

    /// Does the maintenance of the log task that is due once a second.
    fn tidy_log(&self) {
        // A failed task is left to the caller that needs it, which then gets the error.
        if self.check_place().is_err() {
            return;
        }
        let _ = self.close_holes();
        self.repair_all();
        if let Some(_events) = self.lock_events() {
            // Under stripe 0, because a clear subtracts counts.
            self.image.header().counters().catch_up();
        }
        self.let_go_of_log();
        self.tend_time();
        if self.meta.downtime == Downtime::Freeze && self.uses_time {
            let _ = self.heartbeat();
        }
    }

    /// Runs each task once, for a schedule.
    ///
    /// # Errors
    /// As the first that fails; the threads would leave it to others.
    #[cfg(shuttle)]
    pub(crate) fn do_tasks(&self) -> Result<()> {
        self.allocate_ahead(PRESENT)?;
        self.let_go_of_records()?;
        self.commit_all()?;
        self.tidy_log();
        self.checkpoint_if_due()
    }

    /// Releases the pages that were made present ahead, of a log without recent records.
    fn let_go_of_ahead(&self) {
        let mut at = self.image.header().tail().hint();
        while let Some(segment) = self.log.segment(at) {
            segment.release(at, segment.end());
            at = segment.end();
        }
    }

    /// Makes the pages of the next `ahead` records present, and allocates log ahead. If about as
    /// many records were written as a busy writer writes between two wakeups, allocates a whole
    /// segment, or twice what the timeline has if that is less. Otherwise writers allocate
    /// pieces themselves. Only the next segment, which takes longer, is then allocated ahead,
    /// when the last one is nearly full.
    fn allocate_ahead(&self, ahead: u64) -> Result<()> {
        let header = self.image.header();
        // While writers wait for a checkpoint it may need the space.
        if header.refuses() || self.is_checkpoint_wanted() {
            return Ok(());
        }
        let (tail, mapped) = (header.tail().hint(), self.log.mapped_end());
        let (is_busy, capacity) = (ahead >= PRESENT / 2, self.log.capacity());
        let grown = mapped.saturating_sub(header.timeline_start());
        let wanted = match grown.is_multiple_of(capacity) {
            _ if is_busy => grown.saturating_mul(2),
            true => ahead.max(capacity / NEARLY_FULL),
            false => 0,
        };
        let wanted = tail.saturating_add(wanted.min(capacity));
        // Beyond the allocated end, a page that is made present would take space.
        let (mut at, upto) = (tail, tail.saturating_add(ahead).min(mapped));
        while at < upto
            && let Some(segment) = self.log.segment(at)
        {
            segment.populate(at, upto);
            at = segment.end();
        }
        while self.log.mapped_end() < wanted {
            self.make_room(self.log.mapped_end())?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::{Bloom, Filter, Options};

    #[test]
    fn the_shortest_interval_asked_for_counts() {
        let bell = Wakeup::new(Durability::Never);
        assert_eq!(bell.interval(), None);
        let millis = Duration::from_millis;
        for (asked, counts) in [(20, 20), (30, 20), (20, 20), (5, 5)] {
            bell.request(millis(asked));
            assert_eq!(bell.interval(), Some(millis(counts)));
        }
    }

    #[test]
    fn an_insert_after_a_rest_is_synced_at_its_interval() {
        let every = Duration::from_millis(5);
        let options = Options::new().durability(Durability::Interval(every));
        let filter = Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        let wait = |what: &str, until: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !until() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for key in 0..20_u64 {
            let rests = || filter.engine.bell.resting.load(Ordering::SeqCst);
            wait("the task of the log rests", &rests);
            filter.insert(key.to_le_bytes()).expect("an insert");
            wait("the record is durable", &|| !filter.engine.has_undurable());
        }
    }

    /// Returns the KiB of memory that the log in this directory takes in this process.
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
        // In each segment, the header's page, and the page that is being written.
        assert!(log_kib(place.path()) <= 4 * 4);
        engine.allocate_ahead(PRESENT).expect("there is space");
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
            (0..3).for_each(|_| engine.allocate_ahead(PRESENT).expect("there is space"));
            engine.log.mapped_end()
        };
        assert_eq!(ahead(0..10), first + records);
        assert_eq!(ahead(10..20), first + records);
        assert_eq!(ahead(20..records + 1), first + 2 * records);
        engine.image.header().poison();
        assert_eq!(ahead(0..0), first + 2 * records);
    }
}
