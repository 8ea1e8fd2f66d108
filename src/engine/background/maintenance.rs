//! Background tasks: maintenance that will be due, done before any caller has to wait for it.
//!
//! The tasks are: allocating the next log segment, syncing at intervals, closing gaps, repairing
//! what dead processes left, heartbeats, checkpoints. The threads of
//! [`crate::engine::background::threads`], which all filters of the process share, run them. The
//! threads are optional: callers perform overdue maintenance themselves.

use crate::engine::Engine;
use crate::engine::background::task::{Task, Work};
use crate::engine::background::threads;
use crate::engine::background::wakeup::TICK;
use crate::engine::log::space::{LOOKAHEAD, PRESENT, Pace};
use crate::engine::write::stripe_0_records;
use crate::error::Error;
use crate::primitives::Instant;
use crate::primitives::mutex::Mutex;
use crate::telemetry::failed_in_background;
use crate::wal::log_record::RECORD_BYTES;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How early a task that is due about once per tick may run.
const EARLY: Duration = Duration::from_millis(50);

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
        let running = engine.shared.options.background;
        if running {
            let log = threads::register(Work::Log, Arc::new(LogTask::new(engine.clone())))?;
            let snapshots = SnapshotTask { engine: engine.clone() };
            let snapshots = threads::register(Work::Snapshots, Arc::new(snapshots));
            let snapshots = snapshots.inspect_err(|_| log.remove())?;
            engine.wakeup.begin([log, snapshots]);
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
            self.engine.wakeup.end();
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Writing is fast from this many records a second on: page faults would slow it.
const FAST: u64 = 100_000;

/// Allocates segments ahead, syncs at intervals, closes gaps, writes heartbeats.
struct LogTask {
    engine: Arc<Engine>,
    last: Mutex<Last>,
}

/// State that the task of the log keeps between runs.
struct Last {
    /// When it last ran.
    ran: Instant,
    /// When the log was last synced.
    synced: Instant,
    /// When it is tidied up next: at a tick, or slightly early.
    tidies: Instant,
    /// The end of the log.
    tail: u64,
    /// The number of records since the log was last synced.
    unsynced: u64,
    /// How long the last sync lasted.
    lasted: Duration,
    pace: Pace,
}

/// The most slots whose pages are made present before a sync that may last long: 8 MiB.
const PRESENT_MOST: u64 = (8 << 20) / RECORD_BYTES;

impl LogTask {
    fn new(engine: Arc<Engine>) -> Self {
        let (now, tail) = (Instant::now(), engine.header().tail().hint());
        let pace = Pace::new(now);
        let last = Last {
            ran: now,
            synced: now,
            tidies: now,
            tail,
            unsynced: 0,
            lasted: Duration::ZERO,
            pace,
        };
        Self { engine, last: Mutex::new(last) }
    }
}

impl LogTask {
    /// Allocates log ahead for this many records, and makes the pages of the first `present`
    /// present. Creates a segment that will be needed within `soon` records.
    fn allocate_ahead(&self, records: u64, present: u64, soon: u64) {
        let engine = &*self.engine;
        // A failure is only reported here: the next caller that needs the log allocates it, and
        // gets the error.
        let allocated = engine.log_space.allocate_ahead(records, present, soon);
        if allocated.as_ref().is_err_and(|error| error.is_full()) {
            engine.backpressure.restrain(true);
        }
        failed_in_background("allocation", engine.path(), allocated);
    }
}

impl Task for LogTask {
    fn run(&self) -> Instant {
        let engine = &*self.engine;
        if engine.header().is_altered() {
            // The handle opens the filter again when it is used.
            return threads::next_tick(Instant::now(), TICK);
        }
        // No other thread locks it.
        let mut last = self.last.lock();
        let Last { ran, synced, tidies, tail, unsynced, lasted, pace } = &mut *last;
        let now = Instant::now();
        let before = std::mem::replace(tail, engine.header().tail().hint());
        let written = tail.saturating_sub(before);
        *unsynced += written;
        let is_fast = *ran != now && written * 1_000_000 >= FAST * (now - *ran).as_micros() as u64;
        // A busy writer wakes this thread about once in 4096 records.
        let is_busy = is_fast && written >= PRESENT / 4;
        *ran = now;
        pace.take(written, now);
        let soon = pace.within(LOOKAHEAD);
        let mapped = engine.log_space.map_ahead();
        failed_in_background("mapping", engine.path(), mapped);
        if is_busy {
            self.allocate_ahead(PRESENT, PRESENT, soon);
        }
        let released = engine.commits.release_records();
        failed_in_background("release", engine.path(), released);
        if *tail == before {
            engine.log_space.release_ahead();
        }
        let interval = engine.wakeup.interval();
        // Slightly early at a tick, rather than shortly after it.
        let due = interval.is_some_and(|every| synced.elapsed() + EARLY.min(every / 2) >= every);
        if due {
            if !is_busy {
                // Now: writers may use up the allocated log during the sync.
                self.allocate_ahead(0, pace.within(3 * *lasted).min(PRESENT_MOST), soon);
            }
            *synced = Instant::now();
            let committed = engine.commits.commit_all();
            *lasted = synced.elapsed();
            failed_in_background("sync", engine.path(), committed);
        }
        if !is_busy {
            // As many pages as will be filled until the next sync: the system takes present pages
            // for changed, and may write them at any time.
            let present = match interval {
                None => written,
                Some(_) if due => std::mem::take(unsynced),
                Some(_) => 0,
            };
            self.allocate_ahead(PRESENT.min(2 * written), PRESENT.min(present), soon);
        }
        let early = Instant::now() + EARLY;
        if early >= *tidies {
            *tidies = threads::next_tick(early, TICK);
            tidy_log(engine);
        }
        let now = Instant::now();
        let tick = threads::next_tick(now, TICK);
        match interval {
            // Also between two ticks, at the first of which it was not due yet.
            Some(every) if !engine.wakeup.rests(|| engine.commits.has_undurable()) => {
                (*synced + every).clamp(now, tick)
            }
            _ => tick,
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
        let wanted = engine.backpressure.is_requested();
        // If it fails (a full disk) the log continues to grow, and the next attempt is at the next
        // tick.
        let written = engine.checkpoints.checkpoint_if_due();
        // The handle opens it again, with the checkpoint that the alteration has written.
        if !engine.header().is_altered() {
            failed_in_background("checkpoint", engine.path(), written);
        }
        // A request since then is for the next checkpoint.
        if wanted {
            engine.backpressure.end_wait();
        }
        // Here rather than in the log's task: the system frees the blocks of removed segments, and
        // no sync should wait for that.
        engine.log_space.unmap_durable();
        threads::next_tick(Instant::now(), TICK)
    }
}

/// Returns whether an image cannot be handed out by sockets here, and never will be.
fn has_no_sockets(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), InvalidFilename | InvalidInput | PermissionDenied | Unsupported)
}

/// Does the maintenance of the log task that is due once a second.
fn tidy_log(engine: &Engine) {
    // A failure is only reported here: the next caller that needs this does it, and gets the error.
    let path = engine.path();
    if let Err(gone) = engine.shared.check_directory() {
        return failed_in_background::<()>("place", path, Err(gone));
    }
    // Only other users, and other containers, need it.
    let slot = engine.shared.stripes.owner().slot;
    match engine.shared.image.files().hand_out_if_missing(slot) {
        Err(error) if has_no_sockets(&error) => {}
        handed_out => {
            let handed_out = handed_out.map_err(Error::io("hand out the image of", path));
            failed_in_background("attach", path, handed_out);
        }
    }
    // Whoever writes or asks next gets the error.
    let _ = engine.shared.check_image();
    failed_in_background("gaps", path, engine.commits.close_gaps());
    // Whoever needs such a stripe repairs it, or gets the error.
    let _ = engine.stripes.repair_all();
    if let Some(_stripe_0) = engine.stripes.lock_stripe_0() {
        // Under stripe 0, so that no sum from before a clear is announced after it.
        engine.header().counters().catch_up();
    }
    engine.time.tend();
    if engine.shared.has_heartbeats() {
        failed_in_background("heartbeat", path, stripe_0_records::heartbeat(&engine.writer));
    }
}

/// Runs each task once, for a schedule.
///
/// # Errors
/// As the first that fails; the threads would leave it to others.
#[cfg(shuttle)]
pub(crate) fn do_tasks(engine: &Engine) -> crate::error::Result<()> {
    engine.log_space.allocate_ahead(PRESENT, PRESENT, 0)?;
    engine.commits.release_records()?;
    engine.commits.commit_all()?;
    tidy_log(engine);
    match engine.checkpoints.checkpoint_if_due() {
        // Another owner keeps a stripe: the thread would try again later.
        Err(crate::error::Error::WouldWait { .. }) => Ok(()),
        written => written,
    }
}
