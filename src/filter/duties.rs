//! The background thread: what is due sooner or later, done before anyone has to wait for it.
//!
//! Allocating the next log segment, syncing at intervals, closing holes, heartbeats, checkpoints. None of
//! this is an office: whoever needs something that is overdue does it without the thread.

use super::engine::Engine;
use crate::error::Result;
use crate::options::{Downtime, Durability};
use crate::sync::Ordering;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Shortest;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest the thread sleeps; also the distance of heartbeats.
const BEAT: Duration = Duration::from_secs(1);

/// How the thread is woken.
#[derive(Debug)]
pub struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
    /// The shortest interval that anyone asked for, in microseconds.
    shortest: Shortest,
}

#[derive(Debug, Default)]
struct BellState {
    rung: bool,
    stop: bool,
}

impl Bell {
    /// A bell for a filter of this durability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        let shortest = match durability {
            Durability::Interval(every) => every,
            Durability::Always | Durability::Never => Duration::MAX,
        };
        let shortest = Shortest::new(u64::try_from(shortest.as_micros()).unwrap_or(u64::MAX));
        Self {
            state: Mutex::default(),
            rung: Condvar::new(),
            shortest,
        }
    }

    /// Wakes the thread: a new segment has been entered.
    pub(super) fn ring(&self) {
        self.state.lock().rung = true;
        self.rung.notify_one();
    }

    /// Asks for syncs at least so often from now on.
    #[inline]
    pub(super) fn request(&self, every: Duration) {
        let every = every.as_micros() as u64;
        if every < self.shortest.load(Ordering::Relaxed) {
            self.shortest.fetch_min(every, Ordering::Relaxed);
            self.ring();
        }
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.rung.notify_one();
    }

    fn interval(&self) -> Option<Duration> {
        let micros = self.shortest.load(Ordering::Relaxed);
        (micros != u64::MAX).then(|| Duration::from_micros(micros.max(100)))
    }

    /// Sleeps until rung or for this long. False when it is time to stop.
    fn wait(&self, most: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.rung && !state.stop {
            self.rung.wait_for(&mut state, most);
        }
        state.rung = false;
        !state.stop
    }
}

/// The running thread; dropping it stops it.
#[derive(Debug)]
pub struct Duties {
    engine: Arc<Engine>,
    thread: Option<JoinHandle<()>>,
}

impl Duties {
    /// Starts the thread, if the handle wants one.
    ///
    /// # Errors
    /// The system's refusal of a thread.
    pub fn start(engine: Arc<Engine>) -> std::io::Result<Self> {
        let mut duties = Self {
            engine: engine.clone(),
            thread: None,
        };
        if engine.options.background {
            let builder = std::thread::Builder::new().name("ebbtide".to_owned());
            duties.thread = Some(builder.spawn(move || run(&engine))?);
        }
        Ok(duties)
    }

    /// Stops the thread and waits for it.
    pub fn stop(&mut self) {
        self.engine.bell.stop();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say: a panic in it is reported on standard error and poisons nothing.
            let _ = thread.join();
        }
    }
}

impl Drop for Duties {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(engine: &Engine) {
    let (mut synced, mut beat) = (Instant::now(), Instant::now());
    loop {
        let interval = engine.bell.interval();
        let next = interval.map_or(BEAT, |every| {
            every.saturating_sub(synced.elapsed()).min(BEAT)
        });
        if !engine.bell.wait(next) {
            return;
        }
        // A duty that fails is left to whoever needs it, who then gets the error.
        let _ = engine.allocate_ahead();
        if interval.is_some_and(|every| synced.elapsed() >= every) {
            synced = Instant::now();
            let _ = engine.commit_all();
        }
        if beat.elapsed() >= BEAT {
            beat = Instant::now();
            engine.close_holes();
            if engine.meta.downtime == Downtime::Freeze && engine.meta.kind.uses_time() {
                let _ = engine.heartbeat();
            }
        }
        let due = engine.options.checkpoint_due(engine.image.memory_bytes());
        if engine.log_bytes_since_snapshot() > due && !engine.image.header().is_poisoned() {
            let _ = engine.checkpoint();
        }
    }
}

impl Engine {
    /// Makes sure that a whole segment lies ready behind the one in use, with its pages present.
    fn allocate_ahead(&self) -> Result<()> {
        let tail = self.image.header().tail().load(Ordering::Relaxed);
        let end = self.log.mapped_end();
        if tail + self.meta.segment_records > end {
            let new_end = self.log.grow(end)?;
            if let Some(segment) = self.log.segment(new_end - 1) {
                segment.populate();
            }
        }
        Ok(())
    }
}
