//! Backpressure: writers wait for a checkpoint if the log grows faster than checkpoints remove it,
//! or if the disk is full.
//!
//! They wait within bounds, because a stopped process may delay a checkpoint. What a checkpoint
//! removes if there is no space for it is described in
//! [`reclaim_disk`](crate::engine::checkpoints::reclaim_disk).

use crate::engine::background::wakeup::Wakeup;
use crate::engine::checkpoints::due;
use crate::engine::shared::Shared;
use crate::primitives::{self, Hint, Instant, patience};
use crate::telemetry::{self, Timed, Work};
use crate::wal::log_record::RECORD_BYTES;
use std::sync::Arc;
use std::time::Duration;

/// Waiting writers, and callers that asked for a checkpoint or a backup, stop waiting once a
/// checkpoint has shown no progress for this long. A requested checkpoint waits for another one
/// half as long.
pub(crate) const PATIENCE: Duration = patience(Duration::from_secs(1));

/// While writers should wait, a handle may still write, after each snapshot, one in this many of
/// the records that make a checkpoint due.
const ALLOWED_SHARE: u64 = 32;
/// The pause of a waiting writer between checks for the checkpoint.
const PAUSE: Duration = Duration::from_millis(1);

/// The backpressure of a handle.
#[derive(Debug)]
pub struct Backpressure {
    shared: Arc<Shared>,
    wakeup: Arc<Wakeup>,
    /// The LSN from which writers may be made to wait again.
    restrained_from: Hint,
    /// The records that this handle has written although writers should wait.
    passed: Hint,
    /// One more than the start of the newest snapshot when `passed` was last cleared.
    passed_after: Hint,
}

impl Backpressure {
    /// Creates the backpressure of a handle.
    pub(crate) fn new(shared: Arc<Shared>, wakeup: Arc<Wakeup>) -> Self {
        let [restrained_from, passed, passed_after] = std::array::from_fn(|_| Hint::default());
        Self { shared, wakeup, restrained_from, passed, passed_after }
    }

    /// Returns whether writers, of all handles, should wait for a checkpoint.
    #[inline]
    pub(crate) fn is_requested(&self) -> bool {
        self.shared.header().checkpoint_request().is_open()
    }

    /// Returns whether a record may be written although writers should wait: the handle has written
    /// few of them since the newest snapshot. So a handle that inserts a key now and then does not
    /// wait for a checkpoint that another one's records require, however late that is.
    #[inline]
    pub(crate) fn lets_write(&self) -> bool {
        !self.is_requested() || self.passes()
    }

    #[cold]
    fn passes(&self) -> bool {
        let newest = self.shared.header().snapshot().hint() + 1;
        // At worst some records more pass.
        if self.passed_after.get() != newest {
            self.passed_after.set(newest);
            self.passed.set(0);
        }
        let allowed = due::bytes(&self.shared) / RECORD_BYTES / ALLOWED_SHARE;
        self.passed.next() < allowed
    }

    /// Returns whether a record found no space.
    pub(crate) fn lacks_space(&self) -> bool {
        self.shared.header().checkpoint_request().lacks_space()
    }

    /// Requests a checkpoint from the background thread, and makes writers wait for it. Returns
    /// false if there is no such thread.
    #[cold]
    pub(crate) fn request(&self, lacks_space: bool) -> bool {
        let has_thread = self.shared.options.background;
        if has_thread {
            self.shared.header().checkpoint_request().open(lacks_space);
            self.wakeup.wake();
        }
        has_thread
    }

    /// Returns the progress of the requested checkpoint.
    pub(crate) fn progress(&self) -> u64 {
        self.shared.header().checkpoint_request().progress()
    }

    /// Shows progress of a checkpoint that writers may wait for.
    pub(crate) fn note_progress(&self) {
        self.shared.header().checkpoint_request().advance();
    }

    /// Ends the wait, after the checkpoint was written, or failed: writers continue.
    pub(crate) fn end_wait(&self) {
        self.shared.header().checkpoint_request().close();
    }

    /// Waits for the requested checkpoint, as long as it progresses. The caller holds no stripe,
    /// because the checkpoint needs all of them.
    #[cold]
    pub(crate) fn wait(&self) {
        let _waited = Timed::begin(Work::Backpressure, self.shared.path());
        // Who requested it may have died since, and its threads too; those of other processes look
        // once a second.
        self.wakeup.wake();
        let (mut seen, mut since) = (self.progress(), Instant::now());
        while seen != 0 && !self.shared.header().refuses() {
            primitives::sleep(PAUSE);
            let now = self.progress();
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() >= PATIENCE {
                telemetry::stalled("a checkpoint", self.shared.path());
                return self.end_wait();
            }
        }
    }

    /// Requests a checkpoint, because there is far too much log since the last one, or no space for
    /// more. Does not repeat the request before as much log has been added as makes a checkpoint
    /// due: if no checkpoint succeeds, writers wait once per such amount.
    #[cold]
    pub(crate) fn restrain(&self, lacks_space: bool) {
        let tail = self.shared.header().tail().hint();
        let from = &self.restrained_from;
        let seen = from.get();
        let next = tail.saturating_add(due::bytes(&self.shared) / RECORD_BYTES);
        // One of the threads that see it does it.
        if tail >= seen && from.replace(seen, next) {
            self.request(lacks_space);
        }
    }
}

/// A caller's waits for a checkpoint, on a full disk.
#[derive(Debug, Default)]
pub(crate) struct Waited {
    /// The newest snapshot when the last wait began.
    newest: u64,
    /// How many waits began with that snapshot.
    times: u32,
}

impl Waited {
    /// Twice: the checkpoint that ends the first wait may have begun before it, and then removes
    /// less log.
    const MOST: u32 = 2;

    /// Returns whether the caller has waited for any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.times > 0
    }

    pub(crate) fn may_repeat(&self, newest: u64) -> bool {
        self.newest != newest || self.times < Self::MOST
    }

    pub(crate) fn note(&mut self, newest: u64) {
        self.times = if self.newest == newest { self.times + 1 } else { 1 };
        self.newest = newest;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::background::task::{self, Task};
    use crate::engine::background::threads;
    use crate::media::Memory;
    use crate::{Bloom, Durability, Filter, Options};
    use std::sync::mpsc::{self, Sender};

    /// Creates a filter for which a checkpoint is due after 2048 records.
    fn made(background: bool) -> Filter<Bloom> {
        let options = Options::new()
            .segment_bytes(16 << 10)
            .checkpoint_bytes(64 << 10)
            .durability(Durability::Never)
            .background(background);
        Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options)
            .expect("a filter")
    }

    fn insert(filter: &Filter<Bloom>, keys: std::ops::Range<u64>) {
        keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    }

    /// The records that a handle may write without waiting, of such a filter.
    const ALLOWED: u64 = 2048 / ALLOWED_SHARE;

    #[test]
    fn a_handle_writes_a_few_records_after_each_snapshot_without_waiting_and_no_more() {
        let filter = made(false);
        let (engine, quick) = (&filter.engine(), filter.call().without_waiting());
        for snapshot in 0..3_u64 {
            engine.header().checkpoint_request().open(false);
            let keys = (snapshot << 32..).map(|key: u64| quick.insert(key.to_le_bytes()));
            let inserted = keys.take_while(Result::is_ok).count() as u64;
            assert_eq!(inserted, ALLOWED, "after snapshot {snapshot}");
            filter.checkpoint().expect("a checkpoint");
            engine.backpressure.end_wait();
        }
        // However much log there is.
        insert(&filter, 1..3 * 2048 + 1);
        engine.header().checkpoint_request().open(false);
        let keys = (1_u64 << 40..).map(|key: u64| quick.insert(key.to_le_bytes()));
        assert_eq!(keys.take_while(Result::is_ok).count() as u64, ALLOWED);
    }

    #[test]
    fn a_waiter_continues_when_the_checkpoint_is_there_or_patience_ends() {
        let filter = made(false);
        let engine = filter.engine();
        let start = Instant::now();
        engine.header().checkpoint_request().open(false);
        insert(&filter, 0..ALLOWED + 1);
        assert!(start.elapsed() >= PATIENCE && !engine.backpressure.is_requested());
        let start = Instant::now();
        engine.header().checkpoint_request().open(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                insert(&filter, 100..101);
                Instant::now()
            });
            primitives::sleep(Duration::from_millis(30));
            let ended = Instant::now();
            engine.backpressure.end_wait();
            let continued = waiting.join().expect("no panic");
            assert!(continued >= ended || start.elapsed() >= PATIENCE);
        });
    }

    #[test]
    fn a_waiter_wakes_the_threads_of_its_own_process_since_others_may_be_dead() {
        struct Telling(crate::primitives::mutex::Mutex<Sender<()>>);
        impl Task for Telling {
            fn run(&self) -> Instant {
                // The receiver may be gone.
                let _ = self.0.lock().send(());
                Instant::now() + Duration::from_secs(3600)
            }
        }
        let filter = made(false);
        let engine = filter.engine();
        let (told, heard) = mpsc::channel();
        let task = Arc::new(Telling(crate::primitives::mutex::Mutex::new(told)));
        let register = |work| threads::register(work, task.clone()).expect("a thread");
        engine.wakeup.begin([task::Work::Log, task::Work::Snapshots].map(register));
        (0..2).for_each(|_| heard.recv().expect("each runs at once"));
        engine.header().checkpoint_request().open(false);
        insert(&filter, 0..ALLOWED + 1);
        let limit = Duration::from_secs(60);
        (0..2).for_each(|_| heard.recv_timeout(limit).expect("each is woken"));
        engine.wakeup.end();
    }

    #[test]
    fn without_background_threads_nobody_is_waited_for() {
        let filter = made(false);
        assert!(
            !filter.engine().backpressure.request(true)
                && !filter.engine().backpressure.is_requested()
        );
    }

    #[test]
    fn writers_wait_for_a_snapshot_that_does_not_progress_until_another_is_written_beside_it() {
        let filter = made(true);
        let writing = filter.engine().checkpoints.begin_snapshot(Duration::ZERO).expect("no error");
        let start = Instant::now();
        insert(&filter, 0..9000);
        assert!(start.elapsed() >= PATIENCE / 2, "four times what makes a checkpoint due");
        assert!(filter.engine().header().snapshot().hint() > 0);
        drop(writing);
        insert(&filter, 9000..100_000);
    }

    #[test]
    fn a_checkpoint_is_wanted_again_only_after_as_much_as_makes_one_due() {
        let filter = made(true);
        let engine = filter.engine();
        let _writing = engine.checkpoints.begin_snapshot(Duration::ZERO).expect("no error");
        engine.backpressure.restrain(false);
        assert!(engine.backpressure.is_requested());
        engine.backpressure.end_wait();
        engine.backpressure.restrain(false);
        assert!(!engine.backpressure.is_requested());
        insert(&filter, 0..2047);
        engine.backpressure.restrain(false);
        assert!(!engine.backpressure.is_requested());
        insert(&filter, 2047..2048);
        engine.backpressure.restrain(false);
        assert!(engine.backpressure.is_requested());
    }

    #[test]
    fn only_a_request_for_space_removes_what_an_older_snapshot_needs() {
        let filter = made(false);
        for keys in [0..5000, 5000..10_000] {
            insert(&filter, keys);
            filter.checkpoint().expect("a checkpoint");
        }
        let engine = filter.engine();
        let files = || engine.shared.media.list().expect("the files").len();
        let before = files();
        for lacks_space in [false, true] {
            engine.header().checkpoint_request().open(lacks_space);
            engine.checkpoints.checkpoint_if_due().expect("nothing to write");
            engine.backpressure.end_wait();
            assert_eq!(files() < before, lacks_space);
        }
    }

    #[test]
    fn a_caller_without_space_waits_for_two_checkpoints_after_each_snapshot() {
        let mut waited = Waited::default();
        assert!(!waited.any());
        for newest in [0, 7, 9] {
            for _ in 0..2 {
                assert!(waited.may_repeat(newest));
                waited.note(newest);
                assert!(waited.any());
            }
            assert!(!waited.may_repeat(newest));
        }
    }
}
