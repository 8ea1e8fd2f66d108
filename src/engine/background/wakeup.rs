//! The wakeup of a filter's background tasks, and the interval of syncs that callers have
//! requested.

use crate::engine::background::threads::Registered;
use crate::options::Durability;
use crate::primitives::{Hint, Ordering};
use crate::wal::log_record::RECORD_BYTES;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The longest sleep between two looks at a filter that is in use; also the interval of heartbeats.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// The number of records after which an appender wakes the threads, at LSNs that are its multiples:
/// 128 KiB of log.
pub(crate) const RECORDS_PER_WAKEUP: u64 = (128 << 10) / RECORD_BYTES;

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
    pub(crate) fn wake(&self) {
        self.tasks.get().into_iter().flatten().for_each(Registered::wake);
    }

    /// Wakes the task of the log.
    pub(crate) fn wake_log(&self) {
        self.tasks.get().into_iter().for_each(|[log, _]| log.wake());
    }

    /// Requests syncs at least at this interval from now on.
    #[inline]
    pub(crate) fn request(&self, every: Duration) {
        let every = u64::try_from(every.as_micros()).unwrap_or(u64::MAX);
        if every < self.interval.get() {
            self.interval.lower(every);
            self.wake();
        }
        // SeqCst, as where it is set: either this sees the flag, or the task sees the record. (A
        // record's slot is reserved by an atomic operation, which is equivalent where it matters;
        // otherwise the sync comes at the next tick.)
        if self.resting.load(Ordering::SeqCst) && self.resting.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Returns the shortest interval that any caller requested, if there is one.
    pub(crate) fn interval(&self) -> Option<Duration> {
        let micros = self.interval.get();
        (micros != u64::MAX).then(|| Duration::from_micros(micros.max(100)))
    }

    /// Sets the tasks that are woken; a filter's tasks are registered once.
    pub(crate) fn begin(&self, tasks: [Registered; 2]) {
        let _ = self.tasks.set(tasks);
    }

    /// Runs the task of the log, or that of snapshots, once, for a schedule: always, or only if it
    /// is due. Returns the time until it is due; `None` if the filter has no such tasks, or they
    /// have ended.
    #[cfg(shuttle)]
    pub(crate) fn run_task(&self, is_log: bool, only_if_due: bool) -> Option<Duration> {
        let [log, snapshots] = self.tasks.get()?;
        let task = if is_log { log } else { snapshots };
        if only_if_due { task.run_if_due() } else { task.run() }
    }

    /// Returns the time until the task of the log is due, none of it if it is running; `None` if
    /// there is none.
    #[cfg(shuttle)]
    pub(crate) fn log_due(&self) -> Option<Duration> {
        let [log, _] = self.tasks.get()?;
        log.due()
    }

    /// Stops the tasks and waits until none of them is running.
    pub(crate) fn end(&self) {
        self.tasks.get().into_iter().flatten().for_each(Registered::remove);
    }

    /// Returns whether the task of the log may wait for the next tick, because nothing awaits a
    /// sync. If so, the next insert wakes it.
    pub(crate) fn rests(&self, has_undurable: impl FnOnce() -> bool) -> bool {
        // SeqCst: as in `request`.
        self.resting.store(true, Ordering::SeqCst);
        let rests = !has_undurable();
        if !rests {
            self.resting.store(false, Ordering::SeqCst);
        }
        rests
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::{Bloom, Filter, Options};
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn the_shortest_interval_asked_for_counts() {
        let wakeup = Wakeup::new(Durability::Never);
        assert_eq!(wakeup.interval(), None);
        let millis = Duration::from_millis;
        for (asked, counts) in [(20, 20), (30, 20), (20, 20), (5, 5)] {
            wakeup.request(millis(asked));
            assert_eq!(wakeup.interval(), Some(millis(counts)));
        }
        wakeup.request(Duration::MAX);
        assert_eq!(wakeup.interval(), Some(millis(5)));
        let wakeup = Wakeup::new(Durability::Never);
        // A multiple of 2^64 microseconds.
        wakeup.request(Duration::new(18_446_744_073_709, 551_616_000));
        assert_eq!(wakeup.interval(), None);
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
            let rests = || filter.engine().wakeup.resting.load(Ordering::SeqCst);
            wait("the task of the log rests", &rests);
            filter.insert(key.to_le_bytes()).expect("an insert");
            wait("the record is durable", &|| !filter.engine().commits.has_undurable());
        }
    }
}
