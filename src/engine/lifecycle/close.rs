//! Closing a handle that other threads of the process may still hold.
//!
//! First the handle is marked: operations that begin later fail. Then the operations in progress
//! are waited for. Only then is the session released, because other processes treat a handle
//! without one as dead. The mappings stay until the handle is dropped, so queries in progress need
//! not be waited for.

use crate::engine::Engine;
use crate::engine::background::maintenance::Tasks;
use crate::engine::log::group_commit::again_if_unread;
use crate::engine::shared::Shared;
use crate::engine::write::stripe_0_records;
use crate::error::Result;
use crate::locks::stripe_lock;
use crate::primitives;
use crate::recovery::log_reader::LogReader;
use crate::recovery::{Listing, free_log};
use crate::telemetry::{Timed, Work};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The pause of the closing thread between checks for operations in progress.
const PAUSE: Duration = Duration::from_micros(200);

/// How long closing waits, without progress, for a handle that opens, recovers or closes the
/// filter. Then it ends, because the next opener can complete what is left undone.
const CLOSING_TIME: Duration = Duration::from_secs(10);

/// Waits until every operation that began before the handle was marked has ended.
fn wait_for_operations(shared: &Shared) {
    let (header, ours) = (shared.header(), shared.stripes.owner());
    while shared.closing.is_busy() {
        primitives::sleep(PAUSE);
    }
    // Stripe 0 last: a batch that holds others takes it although the handle is marked, and releases
    // it last.
    for index in (1..header.stripe_count()).chain([0]) {
        // A later lock sees the mark; an earlier one that this handle still holds is visible. If
        // that page of the image is lost, an old lock may be visible too: then the check fails, and
        // the wait ends.
        let word = header.stripe(index).lock_word();
        while stripe_lock::holder_in_order(word) == Some(ours) && shared.check_image().is_ok() {
            primitives::sleep(PAUSE);
        }
    }
}

/// Makes all records durable. The last handle also writes a snapshot and retires the image.
pub(crate) fn finish(engine: &Engine) -> Result<()> {
    let header = engine.header();
    if header.is_altered() {
        // Whoever altered the filter has made everything durable.
        return Ok(());
    }
    match again_if_unread(|| engine.commits.commit_all()) {
        // As above: it was altered meanwhile.
        Err(_) if header.is_altered() => return Ok(()),
        committed => committed?,
    }
    // The caller releases it together with the session slot.
    let entered = engine.shared.slots.wait_opening(CLOSING_TIME)?;
    if entered && !header.is_altered() && !engine.shared.has_other_handles()? {
        engine.time.tend();
        if engine.shared.has_heartbeats() {
            // Time stands still from here on, also where no thread has written heartbeats. As each
            // heartbeat, this one may take the oldest kept log on a full disk; without space time
            // stands still from the last record on. The checkpoint makes it durable.
            let _ = stripe_0_records::heartbeat(&engine.writer);
        }
        engine.checkpoints.checkpoint()?;
        // The tail in it decides which log is freed, and its ends where the next opener reads to.
        engine.shared.check_image()?;
        header.retire();
        free_rest_of_log(&engine.shared);
    }
    Ok(())
}

/// Frees the log's unwritten space: the image is retired, and this handle is the last.
fn free_rest_of_log(shared: &Shared) {
    let tail = shared.header().tail().read();
    let (timeline, uuid) = (shared.header().identity().timeline, shared.meta.log_uuid);
    // Errors are ignored, because only space is at stake.
    let Ok(mut listing) = Listing::read(&*shared.media) else { return };
    listing.segments.retain(|&(of, _)| of == timeline);
    if let Ok(history) = LogReader::open(&*shared.media, &listing, uuid) {
        free_log::free_ends(&*shared.media, &history, tail);
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

    /// Closes the handle, unless that was done; see [`Filter::close`](crate::Filter::close). For a
    /// caller without a lock.
    pub(crate) fn close(&self) -> Result<()> {
        answering(|unanswered| self.close_within(unanswered))
    }

    /// As [`Opened::close`], within [`answering`].
    pub(crate) fn close_within(&self, unanswered: &mut Unanswered) -> Result<()> {
        // Before any lock: in a forked child it may be held by a thread that does not exist there.
        self.engine.shared.check_process()?;
        let closer = self.engine.shared.closing.exclude();
        if !self.engine.shared.closing.mark() {
            return Ok(());
        }
        // From here on nobody else answers them, also if this ends by a panic.
        unanswered.0 = Some(self.engine.clone());
        let mut work = Timed::begin(Work::Close, self.engine.path());
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).stop();
        self.engine.tickets.stop();
        wait_for_operations(&self.engine.shared);
        let closed = work.result(finish(&self.engine));
        work.note("lsn", self.engine.header().tail().read());
        if self.engine.header().is_altered() {
            // Nobody writes any more. The engine stays as long as the handle, which continues with
            // another one, and files that were removed take space as long as they are mapped.
            self.engine.log_space.unmap_below(u64::MAX);
        }
        self.engine.shared.image.files().stop_handing_out();
        // The first error is the one to report.
        let released = self.engine.shared.slots.release();
        drop(closer);
        closed.and(released)
    }
}

/// The engine of a handle that was closed, whose tickets must be answered.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Option<Arc<Engine>>);

/// Calls a function that may close a handle, and answers the handle's tickets afterwards, also if
/// it panics. The wakers and callbacks that run then may use and close the filter, so no lock may
/// be held: the function takes its locks itself.
pub(crate) fn answering<T>(close: impl FnOnce(&mut Unanswered) -> T) -> T {
    let mut unanswered = Unanswered::default();
    let closed = catch_unwind(AssertUnwindSafe(|| close(&mut unanswered)));
    if let Some(engine) = unanswered.0 {
        engine.tickets.end();
    }
    closed.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A process of a schedule died while it dropped a handle: no step of it has an effect any
        // more, so to wait for one would last forever.
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        if self.engine.shared.check_process().is_ok() {
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
    use crate::engine::lifecycle::alter::Alteration;
    use crate::engine::stripes::Wait;
    use crate::engine::write::request::Waits;
    use crate::error::Error;
    use crate::history::Unlogged;
    use crate::locks::session_slots::Sessions;
    use crate::locks::stripe_lock::{Acquired, Owner, WAITERS};
    use crate::media::{Access, Memory};
    use crate::{Bloom, Durability, Filter, Options};
    use ebbtide_core::block::load;
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
        load(engine.header().stripe(1).lock_word())
    }

    /// Closes the filter in another thread while something is `held`, which closing must wait for.
    fn waits_for<T>(filter: &Filter<Bloom>, held: T) {
        std::thread::scope(|scope| {
            let (done, closed) = mpsc::channel();
            scope.spawn(move || done.send(filter.close()));
            assert!(closed.recv_timeout(A_WHILE).is_err(), "an operation is under way");
            assert!(filter.engine().shared.is_closed(), "no other begins");
            assert!(filter.engine().shared.slots.own().is_some(), "others must take it for alive");
            drop(held);
            closed.recv_timeout(AT_MOST).expect("it comes to an end").expect("no error");
            assert_eq!(filter.engine().shared.slots.own(), None);
        });
    }

    #[test]
    fn closing_waits_for_whoever_holds_a_stripe() {
        let filter = made().0;
        waits_for(&filter, filter.engine().stripes.acquire(1, Wait::Always).expect("a stripe"));
        let filter = made().0;
        waits_for(&filter, filter.engine().stripes.acquire(0, Wait::Always).expect("a stripe"));
    }

    #[test]
    fn closing_waits_for_a_batch_that_takes_stripe_0_although_the_handle_is_marked() {
        let filter = made().0;
        let engine = filter.engine();
        let mut held = Vec::new();
        held.push(engine.stripes.acquire(1, Wait::Always).expect("a stripe"));
        std::thread::scope(|scope| {
            let (done, closed) = mpsc::channel();
            let closing = &filter;
            scope.spawn(move || done.send(closing.close()));
            while !engine.shared.is_closed() {
                std::thread::yield_now();
            }
            // It waits for stripe 1 by then.
            std::thread::sleep(A_WHILE);
            held.push(engine.stripes.acquire(0, Wait::Briefly).expect("stripe 0"));
            held.remove(0);
            assert!(closed.recv_timeout(A_WHILE).is_err(), "stripe 0 is held");
            assert!(engine.shared.slots.own().is_some(), "others must take it for alive");
            held.clear();
            closed.recv_timeout(AT_MOST).expect("it comes to an end").expect("no error");
        });
    }

    #[test]
    fn a_clear_and_closing_beside_it_both_come_to_an_end() {
        let filter = Arc::new(made().0);
        let held = filter.engine().stripes.acquire(1, Wait::Always).expect("a stripe");
        let (done, ended) = mpsc::channel();
        let (clearing, cleared) = (filter.clone(), done.clone());
        std::thread::spawn(move || cleared.send(clearing.clear().is_ok()));
        while !filter.engine().shared.closing.is_busy() {
            std::thread::yield_now();
        }
        let closing = filter.clone();
        std::thread::spawn(move || done.send(closing.close().is_ok()));
        while !filter.engine().shared.is_closed() {
            std::thread::yield_now();
        }
        drop(held);
        for _ in 0..2 {
            assert_eq!(ended.recv_timeout(AT_MOST), Ok(true), "both end, and well");
        }
    }

    #[test]
    fn closing_waits_for_an_operation_that_is_counted() {
        let filter = made().0;
        waits_for(&filter, filter.engine().shared.enter().expect("it is open"));
    }

    #[test]
    fn whoever_waits_for_anothers_stripe_returns_when_the_handle_is_closed() {
        const LIVING: Owner = Owner { slot: 1, incarnation: 5 };
        let insert = |filter: &Filter<Bloom>| filter.insert("a").map(drop);
        let digest = |filter: &Filter<Bloom>| filter.digest().map(drop);
        for call in [insert as fn(&Filter<Bloom>) -> Result<()>, digest] {
            let (filter, memory) = made();
            let engine = filter.engine();
            let slots = Sessions::open(&*memory, Access::Write).expect("the lock file");
            assert_eq!(slots.take().expect("no error"), Some(1));
            assert_eq!((0..5).map(|_| engine.header().incarnation(1).raise()).max(), Some(5));
            assert!(stripe_lock::try_lock(engine.header().stripe(1).lock_word(), LIVING));
            std::thread::scope(|scope| {
                let (done, answered) = mpsc::channel();
                let calling = &filter;
                scope.spawn(move || done.send(call(calling)));
                while word(engine) & WAITERS == 0 {
                    std::thread::yield_now();
                }
                filter.close().expect("it is not waited for");
                let answer = answered.recv_timeout(AT_MOST).expect("the waiter returns");
                assert!(matches!(answer, Err(Error::Closed { .. })), "{answer:?}");
            });
            assert_eq!(stripe_lock::holder(word(engine)), Some(LIVING));
            assert!(!engine.header().is_poisoned() && !engine.header().is_retired());
        }
    }

    #[test]
    fn a_stripe_taken_too_late_is_free_again_or_left_to_be_repaired() {
        let filter = made().0;
        let engine = filter.engine();
        filter.close().expect("a clean end");
        let refused = engine.stripes.acquire(1, Wait::Operation(Waits::Always));
        assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
        assert_eq!(word(engine), 0);
        let dead = Owner { slot: 9, incarnation: 1 };
        let guard = engine.shared.stripes.try_lock(engine.header(), 1).expect("it is free");
        let error = engine.stripes.come_too_late(guard, Acquired::TakenOver(dead));
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        assert_eq!(stripe_lock::holder(word(engine)), Some(dead));
        assert!(!engine.header().is_poisoned());
    }

    #[test]
    fn closing_does_not_wait_for_a_stripe_that_was_taken_over_too_late() {
        let filter = Arc::new(made().0);
        let engine = filter.engine();
        // Dead: the slot is this handle's own now.
        let dead = Owner { incarnation: 0, ..engine.shared.stripes.owner() };
        let guard = engine.shared.stripes.try_lock(engine.header(), 1).expect("it is free");
        let error = engine.stripes.come_too_late(guard, Acquired::TakenOver(dead));
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        let ((done, closed), closing) = (mpsc::channel(), filter.clone());
        std::thread::spawn(move || done.send(closing.close()));
        closed.recv_timeout(AT_MOST).expect("it comes to an end").expect("no error");
        assert!(engine.header().is_retired(), "a snapshot with all stripes was written");
        assert!(!engine.header().is_poisoned());
    }

    #[test]
    fn a_closed_handle_takes_no_stripe_to_unmap_log_and_asks_for_no_checkpoint() {
        let memory = Arc::new(Memory::new());
        let options = || Options::new().segment_bytes(4096).durability(Durability::Never);
        let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options());
        let filter = filter.expect("a filter");
        let _other = Filter::<Bloom>::open_on(memory, options()).expect("another handle");
        (0..1000_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        filter.close().expect("a clean end");
        let engine = filter.engine();
        assert!(engine.shared.log.has_below(engine.shared.durable()), "there is log to unmap");
        engine.log_space.unmap_durable();
        assert!(engine.shared.log.has_below(engine.shared.durable()), "nothing was unmapped");
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let full = Error::Io { path: "log".into(), action: "write", source: full };
        let parts = (&*engine.shared, &*engine.backpressure);
        let made = crate::engine::write::full_disk_while_writing::make_space(
            parts,
            full,
            &mut Default::default(),
        );
        assert!(matches!(made, Err(Error::Closed { .. })), "{made:?}");
        assert!(!engine.backpressure.is_requested());
    }

    #[test]
    fn an_alteration_of_a_handle_that_is_closed_meanwhile_takes_no_stripe() {
        let filter = made().0;
        let engine = filter.engine();
        let kind = engine.shared.meta.kind.clone();
        let alteration = Alteration::begin(engine, kind).expect("nobody else alters it");
        let paused = alteration.pause_writers().expect("the handle is open");
        drop(paused);
        filter.close().expect("a clean end");
        let refused = alteration.pause_writers().map(drop);
        assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
        let refused = alteration.stop_writers().map(drop);
        assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
        assert_eq!(word(engine), 0);
        assert!(!engine.header().is_poisoned());
    }

    #[test]
    fn the_engines_that_a_handle_had_before_alterations_have_no_log_mapped() {
        let (filter, memory) = made();
        let options = Options::new().background(false);
        let other = Filter::<Bloom>::open_on(memory, options).expect("another handle");
        let mut engines = Vec::new();
        for round in 1..4_u64 {
            for (at, handle) in (0..).zip([&filter, &other]) {
                assert!(handle.insert((2 * round + at).to_le_bytes()).expect("an insert"));
                engines.push(handle.engine().clone());
            }
            let altered = filter.alter(Bloom::capacity(1000 + round), Unlogged::Forget);
            altered.expect("an alteration");
        }
        // The other one notices the last alteration now.
        other.contains("a key").expect("an answer");
        assert!(engines.iter().all(|engine| !engine.shared.log.has_below(u64::MAX)));
        assert!(filter.engine().shared.log.has_below(u64::MAX));
    }

    #[test]
    fn a_query_that_meets_what_closing_left_reports_that_the_handle_is_closed() {
        let [(closed, _), (retired, _)] = [made(), made()];
        closed.close().expect("a clean end");
        retired.engine().header().retire();
        // What a query asks that had begun before: it found the handle open.
        let [closed, retired] = [&closed, &retired].map(|filter| {
            assert!(filter.engine().header().is_retired());
            filter.engine().shared.ended()
        });
        assert!(matches!(closed, Error::Closed { .. }), "{closed:?}");
        assert!(matches!(retired, Error::Retired { .. }), "{retired:?}");
    }

    #[test]
    fn a_record_that_closing_made_durable_counts_as_committed() {
        let filter = made().0;
        filter.insert("a").expect("an insert");
        let engine = filter.engine();
        let target = engine.header().tail().hint();
        filter.close().expect("a clean end");
        engine.commits.commit_applied(target).expect("it is durable");
    }
}
