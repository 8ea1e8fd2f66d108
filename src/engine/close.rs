//! Closing a handle that other threads of the process may still hold.
//!
//! First the handle is marked: operations that begin later fail. Then the operations in progress
//! are waited for. Only then is the session released, because other processes treat a handle
//! without one as dead. The mappings stay until the handle is dropped, so queries in progress need
//! not be waited for.
//!
//! Operations that change a block are found by the stripe they hold, because counting them would
//! cost each of them too much. All others are counted.

use crate::engine::Engine;
use crate::engine::background::Tasks;
use crate::error::{Error, Result};
use crate::locks::robust_word;
use crate::sync::{self, AtomicU64, Mutex, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The pause of the closing thread between checks for operations in progress.
const PAUSE: Duration = Duration::from_micros(200);

/// Whether a handle is closed, and the operations that must end first.
#[derive(Debug, Default)]
pub struct Closing {
    /// 1 from the beginning of closing.
    closed: AtomicU64,
    /// The number of operations in progress, except those found by their stripe and queries.
    busy: AtomicU64,
    /// Held by the thread that closes.
    turn: Mutex<()>,
}

/// An operation that closing waits for.
#[derive(Debug)]
pub(crate) struct Busy<'a>(&'a Closing);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // Release: pairs with the SeqCst load in `wait_for_operations`, which is an Acquire.
        self.0.busy.fetch_sub(1, Ordering::Release);
    }
}

impl Engine {
    /// Returns whether the handle is closed, or about to be. Exact under a stripe and after
    /// [`Engine::enter`], otherwise a hint.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: under a stripe the Acquire of its lock sees what `wait_for_operations` did
        // before its Release.
        self.closing.closed.load(Ordering::Relaxed) != 0
    }

    /// Creates the error for a closed handle.
    #[cold]
    pub(crate) fn closed(&self) -> Error {
        Error::Closed { path: self.media.path().to_path_buf() }
    }

    /// Checks that this process opened the handle, and has not closed it.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.check_process()?;
        if self.is_closed() { Err(self.closed()) } else { Ok(()) }
    }

    /// Begins an operation that closing waits for.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::Closed`].
    pub(crate) fn enter(&self) -> Result<Busy<'_>> {
        self.check_process()?;
        // SeqCst, here and below: either `close` sees this operation, or the operation sees that
        // the handle is closed.
        self.closing.busy.fetch_add(1, Ordering::SeqCst);
        let busy = Busy(&self.closing);
        if self.closing.closed.load(Ordering::SeqCst) != 0 {
            return Err(self.closed());
        }
        Ok(busy)
    }

    /// As [`Engine::commit`], for a record that is applied. Closing makes it durable too.
    pub(crate) fn commit_applied(&self, target: u64) -> Result<()> {
        match self.enter() {
            Ok(_busy) => self.commit(target),
            Err(Error::Closed { .. }) => {
                drop(self.closing.turn.lock());
                if self.durable() >= target { Ok(()) } else { Err(self.closed()) }
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until every operation that began before the handle was marked has ended.
    fn wait_for_operations(&self) {
        let (header, ours) = (self.image.header(), self.stripes.owner());
        while self.closing.busy.load(Ordering::SeqCst) != 0 {
            sync::sleep(PAUSE);
        }
        for index in 0..header.stripe_count() {
            // A later lock sees the mark; an earlier one that this handle still holds is visible.
            let word = header.stripe(index).lock_word();
            while robust_word::holder_in_order(word) == Some(ours) {
                sync::sleep(PAUSE);
            }
        }
    }
}

/// Keeps a handle open until it is closed or dropped.
#[derive(Debug)]
pub(crate) struct Opened {
    /// A mutex of the standard library, so that a forked child can take the content without a
    /// lock. It is never contended.
    tasks: std::sync::Mutex<Tasks>,
    engine: Arc<Engine>,
}

impl Opened {
    /// Creates it for a handle with these background threads.
    pub(crate) fn new(engine: Arc<Engine>, tasks: Tasks) -> Self {
        Self { tasks: std::sync::Mutex::new(tasks), engine }
    }

    /// Closes the handle, unless that was done; see [`Filter::close`](crate::Filter::close).
    pub(crate) fn close(&self) -> Result<()> {
        // Before any lock: in a forked child it may be held by a thread that does not exist there.
        self.engine.check_process()?;
        let _turn = self.engine.closing.turn.lock();
        if self.engine.closing.closed.fetch_or(1, Ordering::SeqCst) != 0 {
            return Ok(());
        }
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).stop();
        self.engine.wait_for_operations();
        let closed = self.engine.close();
        // The first error is the one to report.
        let released = self.engine.slots.release();
        closed.and(released)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.engine.check_process().is_ok() {
            // Callers that need the error call `close`; the log is complete anyway.
            let _ = self.close();
        } else {
            // A forked child: neither the threads nor the mappings exist here, and the locks are
            // the parent's.
            self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner).abandon();
            std::mem::forget(self.engine.clone());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::locks::robust_word::{Acquired, Owner, WAITERS};
    use crate::locks::session::Sessions;
    use crate::media::{Access, Memory};
    use crate::{Bloom, Durability, Filter, Options};
    use std::sync::mpsc;

    /// A time for checks that something does not happen yet, and that it happens.
    const A_WHILE: Duration = Duration::from_millis(30);
    const AT_MOST: Duration = Duration::from_secs(60);

    fn made() -> (Filter<Bloom>, Arc<Memory>) {
        let memory = Arc::new(Memory::new());
        let options =
            Options::new().hash_seed(7).stripes(1).durability(Durability::Never).background(false);
        let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options);
        (filter.expect("a filter"), memory)
    }

    fn word(engine: &Engine) -> u64 {
        engine.image.header().stripe(1).lock_word().load(Ordering::Relaxed)
    }

    /// Closes the filter in another thread while something is `held`, which closing must wait for.
    fn waits_for<T>(filter: &Filter<Bloom>, held: T) {
        std::thread::scope(|scope| {
            let (done, closed) = mpsc::channel();
            scope.spawn(move || done.send(filter.close()));
            assert!(closed.recv_timeout(A_WHILE).is_err(), "an operation is under way");
            assert!(filter.engine.is_closed(), "no other begins");
            assert!(filter.engine.slots.own().is_some(), "others must take it for alive");
            drop(held);
            closed.recv_timeout(AT_MOST).expect("it comes to an end").expect("no error");
            assert_eq!(filter.engine.slots.own(), None);
        });
    }

    #[test]
    fn closing_waits_for_whoever_holds_a_stripe() {
        let filter = made().0;
        waits_for(&filter, filter.engine.lock(1));
        let filter = made().0;
        waits_for(&filter, filter.engine.lock(0));
    }

    #[test]
    fn closing_waits_for_an_operation_that_is_counted() {
        let filter = made().0;
        waits_for(&filter, filter.engine.enter().expect("it is open"));
    }

    #[test]
    fn who_waits_for_anothers_stripe_gives_up_when_the_handle_is_closed() {
        const LIVING: Owner = Owner { slot: 1, term: 5 };
        let (filter, memory) = made();
        let engine = &filter.engine;
        let slots = Sessions::open(&*memory, Access::Write).expect("the lock file");
        assert_eq!(slots.take().expect("no error"), Some(1));
        assert_eq!((0..5).map(|_| engine.image.header().incarnation(1).raise()).max(), Some(5));
        assert!(robust_word::try_lock(engine.image.header().stripe(1).lock_word(), LIVING));
        std::thread::scope(|scope| {
            let (done, answered) = mpsc::channel();
            let inserting = &filter;
            scope.spawn(move || done.send(inserting.insert("a")));
            while word(engine) & WAITERS == 0 {
                std::thread::yield_now();
            }
            filter.close().expect("it is not waited for");
            let answer = answered.recv_timeout(AT_MOST).expect("it gives up");
            assert!(matches!(answer, Err(Error::Closed { .. })), "{answer:?}");
        });
        assert_eq!(robust_word::holder(word(engine)), Some(LIVING));
        assert!(!engine.image.header().is_poisoned() && !engine.image.header().is_retired());
    }

    #[test]
    fn a_stripe_taken_too_late_is_free_again_or_left_to_be_repaired() {
        let filter = made().0;
        let engine = &filter.engine;
        filter.close().expect("a clean end");
        assert!(matches!(engine.lock_unless_closed(1), Err(Error::Closed { .. })));
        assert_eq!(word(engine), 0);
        let dead = Owner { slot: 9, term: 1 };
        let guard = engine.stripes.try_lock(engine.image.header(), 1).expect("it is free");
        let error = engine.come_too_late(guard, Acquired::TakenOver(dead));
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        assert_eq!(robust_word::holder(word(engine)), Some(engine.stripes.owner()));
        assert!(!engine.image.header().is_poisoned());
    }

    #[test]
    fn a_record_that_closing_made_durable_counts_as_committed() {
        let filter = made().0;
        filter.insert("a").expect("an insert");
        let engine = &filter.engine;
        let target = engine.image.header().tail().hint();
        filter.close().expect("a clean end");
        engine.commit_applied(target).expect("it is durable");
        let beyond = engine.commit_applied(engine.durable() + 1);
        assert!(matches!(beyond, Err(Error::Closed { .. })), "{beyond:?}");
    }
}
