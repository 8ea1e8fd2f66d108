//! A shipper in a thread of its own: for programs that write the filter, and for the command.
//!
//! It never stops silently: what it does is in [`Status`], a stop for good in [`Worker::wait`] and
//! [`Worker::stop`] as well. For others it notes at its begin and after each round how far it is,
//! in the filter's directory ([`Standing`]).

use crate::error::{Error, Result};
use crate::home_process::Home;
use crate::pace::Pace;
use crate::ship_options::ShipOptions;
use crate::shipped_file::Standing;
use crate::shipper::Shipper;
use crate::status::Status;
use crate::store::Store;
use crate::totals::Shipped;
use crate::upload_task::Wait;
use ebbtide::media::{Disk, Media};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The default interval, between the beginnings of two rounds that ship something.
pub const EVERY: Duration = Duration::from_secs(10);
/// The pause after a round that failed, for those who wait for the next one.
const PAUSE: Duration = Duration::from_secs(1);

struct Shared {
    wish: watch::Sender<Wish>,
    status: Mutex<(Status, Option<Error>)>,
    changed: Condvar,
    /// Rounds that have begun.
    begun: AtomicU64,
    /// The newest of them that has shipped everything.
    done: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Status, Option<Error>)> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for this, unless more was asked for. All that ask before a round begins get that one.
    fn ask(&self, wish: Wish) {
        self.wish.send_if_modified(|asked| {
            let is_more = wish > *asked;
            *asked = wish.max(*asked);
            is_more
        });
    }

    /// Returns what was asked for; what a round fulfils is done with.
    fn take_wish(&self) -> Wish {
        let mut taken = Wish::Nothing;
        self.wish.send_if_modified(|asked| {
            taken = *asked;
            if taken == Wish::Ship {
                *asked = Wish::Nothing;
            }
            false
        });
        taken
    }

    /// Waits until something was asked for that is at least this.
    async fn wait_for(&self, wish: Wish) {
        // It is there as long as `self` is.
        let _ = self.wish.subscribe().wait_for(|asked| *asked >= wish).await;
    }
}

/// What a worker is asked for, each more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Nothing,
    /// A round.
    Ship,
    /// A last round, with the snapshot that is due.
    Finish,
    /// A last round.
    Stop,
    /// None any more, and an end of the one that runs.
    End,
}

impl Wish {
    fn wait(self) -> Wait {
        match self {
            Self::Finish => Wait::Always,
            Self::Stop => Wait::IfNeeded,
            _ => Wait::Never,
        }
    }
}

/// A running shipper. Dropped, it ends without a last round, and waits for no answer of the store;
/// [`Worker::stop`] makes one.
/// In a forked child there is no worker: what asks for it fails, and the status says so.
pub struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    home: Home,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Worker {
    /// Begins to ship a filter, at this interval. On return every shipper before is fenced.
    ///
    /// The worker has a runtime of its own, and a client of its own of a store that was opened by
    /// its URL. One of [`Store::of`] is used as it is: it must answer although no other runtime
    /// runs in which it was used before.
    ///
    /// # Errors
    /// As [`Shipper::begin`].
    pub fn start(
        dir: impl AsRef<Path>,
        store: Store,
        options: ShipOptions,
        every: Duration,
    ) -> Result<Self> {
        let dir = dir.as_ref().to_path_buf();
        let (begun, first) = channel();
        let spawned = std::thread::Builder::new().name("ebbtide-ship".into());
        let thread = spawned.spawn(move || work(dir, store, options, every, &begun));
        let thread = Some(thread.map_err(|error| setting("thread", &error))?);
        let shared = first.recv().map_err(|error| setting("thread", &error))??;
        let home = Home::of(&shared.lock().0);
        Ok(Self { shared, thread, home })
    }

    /// Returns what it has done.
    #[must_use]
    pub fn status(&self) -> Status {
        self.home.status(|| self.shared.lock().0.clone())
    }

    /// Returns what yields the status also once the worker has ended, with an error or without.
    pub fn statuses(&self) -> impl Fn() -> Status + use<> {
        let (shared, home) = (self.shared.clone(), self.home.clone());
        move || home.status(|| shared.lock().0.clone())
    }

    /// Ships now, and waits until a fetch yields every operation that is durable now
    /// ([`Filter::sync`](ebbtide::Filter::sync)).
    ///
    /// # Errors
    /// The error with which the worker has stopped, such as [`Error::Fenced`]: do not acknowledge
    /// what was done. [`Error::Store`] after this time; what it is waiting for may still be
    /// shipped.
    pub fn flush(&self, time: Duration) -> Result<()> {
        self.home.check()?;
        // The next round to begin reads everything that is durable now. Partner: the fence in
        // `work_on`. Either this sees that a round has begun, or that round sees what is durable.
        fence(Ordering::SeqCst);
        let wanted = self.shared.begun.load(Ordering::Relaxed) + 1;
        self.wait_until(time, |shared, _| shared.done.load(Ordering::Relaxed) >= wanted)
    }

    /// Ships now, and waits until a fetch yields every operation below this LSN: for an operation
    /// that is one more than its own ([`Ticket::lsn`](ebbtide::Ticket::lsn)). It must be durable.
    ///
    /// # Errors
    /// As [`Worker::flush`].
    pub fn wait(&self, lsn: u64, time: Duration) -> Result<()> {
        self.home.check()?;
        self.wait_until(time, |_, status| status.confirmed >= lsn && !status.is_pending)
    }

    fn wait_until(&self, time: Duration, is_done: impl Fn(&Shared, &Status) -> bool) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(100);
        let (begun, mut asked) = (Instant::now(), None::<Instant>);
        let mut status = self.shared.lock();
        while !is_done(&self.shared, &status.0) {
            if status.0.is_stopped {
                return Err(stopped(&mut status));
            }
            if asked.is_none_or(|asked| asked.elapsed() > LOOK) {
                self.shared.ask(Wish::Ship);
                asked = Some(Instant::now());
            }
            let Some(left) = time.checked_sub(begun.elapsed()) else {
                let failure = status.0.failure.clone();
                let found = format!("what is below LSN {} after {time:?}", status.0.confirmed);
                return Err(Error::Store {
                    object: "the operations so far".into(),
                    action: "ship",
                    found: failure.unwrap_or(found),
                    remedy: "wait longer; are they durable?",
                    is_transient: true,
                });
            };
            let waited = self.shared.changed.wait_timeout(status, left.min(LOOK));
            status = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Ships what is durable, and stops. The upload of a snapshot is waited for only if nothing
    /// newer can be fetched without it ([`Status::is_pending`]); otherwise the next shipper begins
    /// it.
    ///
    /// # Errors
    /// The error of the last round.
    pub fn stop(self) -> Result<Status> {
        self.end(Wish::Stop)
    }

    /// As [`Worker::stop`], but also waits until the snapshot that is due is shipped: for whoever
    /// ships from time to time, and would otherwise ship none.
    ///
    /// # Errors
    /// As there.
    pub fn finish(self) -> Result<Status> {
        self.end(Wish::Finish)
    }

    fn end(mut self, wish: Wish) -> Result<Status> {
        self.home.check()?;
        self.shared.ask(wish);
        if let Some(thread) = self.thread.take() {
            // A panic is in the status.
            let _ = thread.join();
        }
        let mut status = self.shared.lock();
        match status.1.take() {
            Some(error) => Err(error),
            None => Ok(status.0.clone()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // To wait for it, or to detach it, is undefined.
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.ask(Wish::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn setting(name: &'static str, error: &dyn std::fmt::Display) -> Error {
    Error::Setting { name, expected: "one can be started", found: error.to_string() }
}

fn stopped(status: &mut (Status, Option<Error>)) -> Error {
    let of_status = |status: &Status| Error::Store {
        object: "the filter".into(),
        action: "ship",
        found: status.failure.clone().unwrap_or_else(|| "the shipper has stopped".into()),
        remedy: "start another one",
        is_transient: false,
    };
    match status.1.take() {
        Some(Error::Fenced { object, timeline, own, is_here }) => {
            status.1 = Some(Error::Fenced { object: object.clone(), timeline, own, is_here });
            Error::Fenced { object, timeline, own, is_here }
        }
        other => {
            status.1 = other;
            of_status(&status.0)
        }
    }
}

fn work(
    dir: PathBuf,
    store: Store,
    options: ShipOptions,
    every: Duration,
    begun: &Sender<Result<Arc<Shared>>>,
) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            work_on(&runtime, (dir, store, options), every, begun);
            // A call of the system may hang, as on a disk of another machine.
            runtime.shutdown_background();
        }
        Err(error) => drop(begun.send(Err(setting("runtime", &error)))),
    }
}

fn work_on(
    runtime: &Runtime,
    (dir, store, options): (PathBuf, Store, ShipOptions),
    every: Duration,
    begun: &Sender<Result<Arc<Shared>>>,
) {
    let media = Arc::new(Disk::new(dir));
    let mut pace = Pace::new(every);
    let every = pace.every();
    let mut notes = Notes { media: media.clone(), url: store.to_string(), every, gaps: 0 };
    let store = store.with_own_client();
    let mut shipper = match runtime.block_on(Shipper::begin(store, media, options)) {
        Ok(shipper) => shipper,
        // The caller waits for it.
        Err(error) => return drop(begun.send(Err(notes.counted(error)))),
    };
    let (status, changed) = (Mutex::new((notes.begin(&shipper), None)), Condvar::new());
    let (begun_rounds, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let wish = watch::Sender::new(Wish::Nothing);
    let shared = Arc::new(Shared { wish, status, changed, begun: begun_rounds, done });
    let _ = begun.send(Ok(shared.clone()));
    // Also if the thread panics, those who wait must learn it.
    let _stop = Stopping(&shared, &notes);
    let mut pauses = (Duration::ZERO, Duration::ZERO);
    loop {
        runtime.block_on(async {
            tokio::select! {
                () = next_round(&shared, pauses) => {}
                // After a failure it waits like everything else.
                () = shipper.uploaded(), if pauses.0.is_zero() => {}
            }
        });
        // Who asks from here on gets another round.
        let wish = shared.take_wish();
        let number = shared.begun.fetch_add(1, Ordering::Relaxed) + 1;
        // Before what is durable is read. Partner: the fence in `Worker::flush`.
        fence(Ordering::SeqCst);
        let (begun, is_last) = (Instant::now(), wish >= Wish::Finish);
        let round = runtime.block_on(async {
            tokio::select! {
                biased;
                () = shared.wait_for(Wish::End) => None,
                // Of one link, so that the status is never older than that takes.
                round = shipper.round_of(1, wish.wait()) => Some(round),
            }
        });
        // Ended like one that was killed.
        let Some(round) = round else { return };
        // Whatever else has failed: this can be fetched.
        if !shipper.is_behind() && !shipper.is_pending() {
            shared.done.fetch_max(number, Ordering::Relaxed);
        }
        let has_failed = round.is_err();
        let is_behind = !has_failed && shipper.is_behind();
        let has_shipped = round.as_ref().is_ok_and(|shipped| shipped.links > 0);
        let continues = note(&shared, (&shipper, &notes), (round, begun), is_last);
        if !continues || (is_last && !is_behind) {
            return;
        }
        let pause = pace.pause(begun, Instant::now(), has_shipped);
        // A store that refuses is not asked more often than one that takes what comes.
        pauses = match (has_failed, is_behind) {
            (true, _) => (every.min(PAUSE), every),
            (false, true) => (Duration::ZERO, Duration::ZERO),
            (false, false) => (Duration::ZERO, pause),
        };
    }
}

/// Waits until the next round is due: at once if it is the last one; if somebody waits for it,
/// after the first of these pauses; else after the second.
async fn next_round(shared: &Shared, (least, most): (Duration, Duration)) {
    let asked = async {
        tokio::time::sleep(least).await;
        shared.wait_for(Wish::Ship).await;
    };
    tokio::select! {
        () = shared.wait_for(Wish::Finish) => {}
        () = asked => {}
        () = tokio::time::sleep(most) => {}
    }
}

/// What is noted in the filter's directory for others.
struct Notes {
    media: Arc<Disk>,
    url: String,
    every: Duration,
    /// Those before its shipper.
    gaps: u64,
}

impl Notes {
    /// Returns what the shipper before has noted, if it has shipped to the same place.
    fn before(&self) -> Option<Standing> {
        let noted = Standing::read(self.media.path()).ok().flatten();
        noted.filter(|noted| noted.url == self.url)
    }

    /// Returns the status at the begin. The last success and the last link are those that were
    /// noted, so that a start is none, and totals continue.
    fn begin(&mut self, shipper: &Shipper) -> Status {
        let mut status = Status::of(shipper);
        if let Some(noted) = self.before() {
            let now = status.succeeded_at;
            status.succeeded_at = noted.succeeded.min(now);
            status.completed_at = noted.completed.min(now);
            status.progressed_at = noted.progressed.max(noted.succeeded).min(now);
            self.gaps = noted.gaps;
            (status.gaps, status.failures) =
                (noted.gaps.saturating_add(status.gaps), noted.failures);
        }
        // So that the next shipper finds it, however early this one ends.
        let _ = self.write(&status);
        status
    }

    /// Notes that a shipper could not begin, if one has before, and returns the error. Without the
    /// note it is not counted.
    fn counted(&self, error: Error) -> Error {
        if let Some(noted) = self.before() {
            let counted = Standing { failures: noted.failures.saturating_add(1), ..noted };
            let _ = counted.write(&*self.media);
        }
        error
    }

    fn write(&self, status: &Status) -> Result<()> {
        let standing = Standing {
            url: self.url.clone(),
            timeline: status.timeline,
            confirmed: status.confirmed,
            every: self.every,
            succeeded: status.succeeded_at,
            progressed: status.progressed_at,
            completed: status.completed_at,
            noted: status.noted_lsn,
            gaps: status.gaps,
            failures: status.failures,
            failure: status.failure.clone(),
            is_uploading: status.is_uploading && !status.is_stopped,
            is_stopped: status.is_stopped,
        };
        standing.write(&*self.media)
    }
}

/// Marks the status as that of a worker that has stopped, also by a panic.
struct Stopping<'a>(&'a Shared, &'a Notes);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        let mut locked = self.0.lock();
        let (status, kept) = &mut *locked;
        status.is_stopped = true;
        if std::thread::panicking() {
            let error = Error::Store {
                object: "the filter".into(),
                action: "ship",
                found: "the thread of the shipper has panicked".into(),
                remedy: "start another one, and report what it wrote to standard error",
                is_transient: false,
            };
            status.failure = Some(error.to_string());
            *kept = Some(error);
        }
        let noted = status.clone();
        drop(locked);
        self.0.changed.notify_all();
        // Without the note it counts as stalled after a while.
        let _ = self.1.write(&noted);
    }
}

/// Notes the result of a round. Returns whether there may be another one.
fn note(
    shared: &Shared,
    (shipper, notes): (&Shipper, &Notes),
    (round, begun): (Result<Shipped>, Instant),
    is_last: bool,
) -> bool {
    let mut locked = shared.lock();
    let (status, kept) = &mut *locked;
    let now = Instant::now();
    if status.is_pending && status.is_uploading {
        status.tried += now - status.noted;
    }
    status.noted = now;
    (status.confirmed, status.timeline) = (shipper.confirmed(), shipper.timeline());
    status.gaps = notes.gaps.saturating_add(shipper.gaps());
    status.is_pending = shipper.is_pending();
    status.noted_lsn = shipper.noted();
    let total = shipper.total();
    let has_grown = total.links > status.links;
    (status.links, status.bytes) = (total.links, total.log_bytes + total.snapshot_bytes);
    status.is_uploading = shipper.is_uploading();
    let is_failing = round.is_err() || shipper.has_failed_upload();
    // A snapshot that fails delays no log, unless nothing can be fetched without it.
    let is_late = shipper.is_behind() || (is_failing && shipper.is_pending());
    // However much is left; but links are of no use without a snapshot that fails.
    if has_grown && !(is_failing && shipper.is_pending()) {
        status.tried = Duration::ZERO;
        (status.progressed, status.progressed_at) = (now, SystemTime::now());
    }
    if !is_late {
        status.tried = Duration::ZERO;
        status.succeeded = begun;
        status.succeeded_at = SystemTime::now() - begun.elapsed();
        if !status.is_pending {
            status.completed_at = status.succeeded_at;
        }
    }
    let continues = match round {
        Ok(_) => {
            status.failure.take_if(|_| !is_failing);
            true
        }
        Err(error) => {
            status.failures = status.failures.saturating_add(1);
            status.failure = Some(error.to_string());
            status.is_fenced = error.is_fenced_from_elsewhere();
            let continues = error.is_transient();
            if !continues || is_last {
                *kept = Some(error);
            }
            continues
        }
    };
    let noted = status.clone();
    drop(locked);
    shared.changed.notify_all();
    // Nobody waits for the disk.
    if let Err(error) = notes.write(&noted) {
        // What is shipped is shipped nevertheless.
        shared.lock().0.failure.get_or_insert(error.to_string());
    }
    continues
}
