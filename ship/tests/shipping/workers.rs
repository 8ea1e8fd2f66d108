//! The thread of a shipper whose store does not answer, refuses, or panics.

use crate::scripted::{Call, Scripted};
use ebbtide::history::Unlogged;
use ebbtide::media::Memory;
use ebbtide::{AgePartitioned, Any, Durability, Filter, Options, Reader};
use ebbtide_ship::{ShipOptions, Standing, Status, Store, Worker, assemble};
use futures::future::BoxFuture;
use object_store::Error;
use object_store::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);
/// After this time what a test waits for does not come.
const LIMIT: Duration = Duration::from_secs(120);
const SOUND: u8 = 0;
const SILENT: u8 = 1;
const REFUSING: u8 = 2;
const PANICKING: u8 = 3;
const HANGING: u8 = 4;

struct Shipped {
    _dir: TempDir,
    _filter: Filter<AgePartitioned>,
    worker: Worker,
    mode: Arc<AtomicU8>,
    puts: Arc<AtomicU64>,
    store: Store,
}

/// Starts a worker that has shipped everything, and makes its store so.
fn shipped(mode: u8) -> Shipped {
    let (is, puts) = (Arc::new(AtomicU8::new(SOUND)), Arc::new(AtomicU64::new(0)));
    let (as_set, counted) = (is.clone(), puts.clone());
    let store = Scripted::new(move |call| {
        let Call::Put(..) = call else { return Box::pin(async { Ok(()) }) };
        counted.fetch_add(1, Ordering::Relaxed);
        match as_set.load(Ordering::Relaxed) {
            SILENT => Box::pin(std::future::pending()),
            REFUSING => {
                let refused = Error::Generic { store: "scripted", source: "refused".into() };
                Box::pin(async { Err(refused) })
            }
            PANICKING => panic!("the store of a test"),
            HANGING => Box::pin(async {
                // A disk of another machine, which is not reached.
                let call = || std::thread::sleep(Duration::from_secs(120));
                tokio::task::spawn_blocking(call).await.expect("no panic");
                Ok(())
            }),
            _ => Box::pin(async { Ok(()) }),
        }
    });
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::new().durability(Durability::Always);
    let filter = Filter::create(dir.path().join("seen"), AgePartitioned::last(1000), options);
    let filter = filter.expect("a filter");
    let store = Store::of(Arc::new(store), "orders/7", "scripted:///orders/7");
    let worker =
        Worker::start(dir.path().join("seen"), store.clone(), ShipOptions::default(), HOUR);
    let worker = worker.expect("a worker");
    filter.insert("first").expect("an insert");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    is.store(mode, Ordering::Relaxed);
    puts.store(0, Ordering::Relaxed);
    filter.insert("second").expect("an insert");
    Shipped { _dir: dir, _filter: filter, worker, mode: is, puts, store }
}

type Answer = BoxFuture<'static, object_store::Result<()>>;

/// A filter in a directory, whose store does what a test says before each call.
struct Scene {
    dir: TempDir,
    filter: Arc<Filter<AgePartitioned>>,
    store: Store,
}

impl Scene {
    fn new(script: impl Fn(Call) -> Answer + Send + Sync + 'static) -> Self {
        Self::with(Options::new(), script)
    }

    fn with(options: Options, script: impl Fn(Call) -> Answer + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let options = options.durability(Durability::Always);
        let filter = Filter::create(dir.path().join("seen"), AgePartitioned::last(1000), options);
        let store = Arc::new(Scripted::new(script));
        let store = Store::of(store, "orders/7", "scripted:///orders/7");
        Self { dir, filter: Arc::new(filter.expect("a filter")), store }
    }

    /// Starts a worker whose snapshots are due at once.
    fn start(&self) -> Worker {
        let ship = ShipOptions { snapshot_log_bytes: 1, ..ShipOptions::default() };
        let (dir, store) = (self.dir.path().join("seen"), self.store.clone());
        Worker::start(dir, store, ship, HOUR).expect("a worker")
    }
}

/// Flushes, until the status is so.
fn flush_until(worker: &Worker, is_it: impl Fn(&Status) -> bool) -> Status {
    let begun = Instant::now();
    loop {
        let status = worker.status();
        if is_it(&status) {
            return status;
        }
        assert!(begun.elapsed() < LIMIT, "{status:?}");
        // Without a snapshot that is needed it ends with an error.
        let _ = worker.flush(Duration::from_millis(100));
    }
}

fn is_in(path: &Path, folder: &str) -> bool {
    path.parts().any(|part| part.as_ref() == folder)
}

#[test]
fn what_a_worker_ships_to_a_store_in_memory_is_there_for_its_program() {
    let store = Store::open("memory:///orders/7").expect("a store");
    let scene = Scene { store, ..Scene::new(|_| Box::pin(async { Ok(()) })) };
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    worker.stop().expect("a last round");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let copy = scene.dir.path().join("copy");
    let fetched =
        runtime.expect("a runtime").block_on(ebbtide_ship::fetch(&scene.store, &copy, None));
    fetched.expect("it is there");
    let copy: Filter<AgePartitioned> = Filter::open(&copy, Options::new()).expect("a filter");
    assert!(copy.contains("first").expect("an answer"));
}

#[test]
fn a_worker_beside_a_writer_that_never_pauses_flushes_and_stops() {
    let written = Arc::new(OnceLock::<Arc<Filter<AgePartitioned>>>::new());
    let (writer, puts) = (written.clone(), AtomicU64::new(0));
    let scene = Scene::new(move |call| {
        if let (Call::Put(path, _), Some(filter)) = (call, writer.get())
            && is_in(&path, "chain")
        {
            let put = puts.fetch_add(1, Ordering::Relaxed);
            assert!(put < 100, "it makes no end");
            filter.insert(put.to_le_bytes()).expect("an insert");
        }
        Box::pin(async { Ok(()) })
    });
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    written.set(scene.filter.clone()).expect("not set");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    worker.stop().expect("a last round");
}

fn refuse_snapshots(call: Call) -> Answer {
    match call {
        Call::Put(path, _) if is_in(&path, "snapshot") => {
            let refused = Error::Generic { store: "scripted", source: "refused".into() };
            Box::pin(async { Err(refused) })
        }
        _ => Box::pin(async { Ok(()) }),
    }
}

#[test]
fn what_is_shipped_is_flushed_although_no_snapshot_can_be_put() {
    let scene = Scene::new(refuse_snapshots);
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    scene.filter.checkpoint().expect("a checkpoint");
    scene.filter.insert("second").expect("an insert");
    worker.flush(Duration::from_secs(10)).expect("the log is shipped");
    // Although further rounds have shipped log.
    let failed = flush_until(&worker, |status| status.failure.is_some()).failures;
    let begun = Instant::now();
    while worker.status().failures < failed + 2 {
        assert!(begun.elapsed() < LIMIT, "{:?}", worker.status());
        worker.flush(Duration::from_secs(10)).expect("the log is shipped");
        assert!(worker.status().failure.is_some());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_snapshot_that_nothing_is_fetched_without_is_waited_for_while_it_is_tried_again() {
    let is_refused = Arc::new(AtomicBool::new(true));
    let refuses = is_refused.clone();
    let scene = Scene::new(move |call| match call {
        Call::Put(path, _) if is_in(&path, "snapshot") && !refuses.load(Ordering::Relaxed) => {
            let refuses = refuses.clone();
            Box::pin(async move {
                while !refuses.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(Error::Generic { store: "scripted", source: "refused".into() })
            })
        }
        call => refuse_snapshots(call),
    });
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    let altered = scene.filter.alter(AgePartitioned::last(2000), Unlogged::Forget);
    altered.expect("an alteration");
    let wait_for = |is_it: fn(&Status) -> bool| {
        flush_until(&worker, |status| status.is_pending && is_it(status))
    };
    let failed = wait_for(|status| status.failure.is_some() && !status.is_uploading);
    assert!(failed.is_stalled(Duration::ZERO), "{failed:?}");
    is_refused.store(false, Ordering::Relaxed);
    let tried = wait_for(|status| status.failure.is_some() && status.is_uploading);
    assert!(!tried.is_stalled(Duration::ZERO), "{tried:?}");
    // Between two tries the time does not count that they took.
    let long = Duration::from_millis(100);
    flush_until(&worker, |status| status.tried > long);
    is_refused.store(true, Ordering::Relaxed);
    let mut between = wait_for(|status| status.failure.is_some() && !status.is_uploading);
    assert!(between.tried > long && between.is_stalled(Duration::ZERO), "{between:?}");
    between.tried = HOUR;
    assert!(!between.is_stalled(Duration::ZERO), "{between:?}");
}

#[test]
fn log_that_is_shipped_is_not_late_because_no_snapshot_can_be_put() {
    let scene = Scene::new(refuse_snapshots);
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    scene.filter.checkpoint().expect("a checkpoint");
    scene.filter.insert("second").expect("an insert");
    let flush = || worker.flush(Duration::from_secs(10)).expect("the log is shipped");
    flush_until(&worker, |status| status.failure.is_some());
    for key in 0..5_u64 {
        let before = worker.status().succeeded;
        scene.filter.insert(key.to_le_bytes()).expect("an insert");
        // A round is noted in the status before the next one begins.
        flush();
        flush();
        let status = worker.status();
        assert!(status.succeeded > before && status.failure.is_some(), "{status:?}");
    }
}

#[test]
fn a_shipper_that_is_started_again_has_succeeded_when_the_one_before_did() {
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let taken = left.clone();
    let scene = Scene::new(move |call| match call {
        Call::Put(path, _) if is_in(&path, "chain") => {
            let order = Ordering::Relaxed;
            let is_taken = taken.fetch_update(order, order, |left| left.checked_sub(1)).is_ok();
            let refused = Error::Generic { store: "scripted", source: "refused".into() };
            Box::pin(async move { if is_taken { Ok(()) } else { Err(refused) } })
        }
        _ => Box::pin(async { Ok(()) }),
    });
    let noted = || {
        let noted = Standing::read(scene.dir.path().join("seen")).expect("a file");
        noted.expect("a note").succeeded
    };
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    worker.stop().expect("a last round");
    let before = noted();
    scene.filter.insert("second").expect("an insert");
    // A beginning is put twice, to see that it is there; then nothing is.
    left.store(2, Ordering::Relaxed);
    let worker = scene.start();
    worker.flush(Duration::from_secs(1)).expect_err("refused");
    assert_eq!((worker.status().succeeded_at, noted()), (before, before));
    left.store(u64::MAX, Ordering::Relaxed);
    // A round is noted in the status before the next one begins.
    for _ in 0..2 {
        worker.flush(Duration::from_secs(60)).expect("shipped");
    }
    assert!(worker.status().succeeded_at > before);
}

#[test]
fn a_shipper_begins_although_the_answers_about_its_link_are_lost() {
    let puts = AtomicU64::new(0);
    let scene = Scene::new(move |call| match call {
        Call::Put(path, _) if is_in(&path, "chain") => {
            let is_lost = (1..4).contains(&puts.fetch_add(1, Ordering::Relaxed));
            let lost = Error::Generic { store: "scripted", source: "no answer".into() };
            Box::pin(async move { if is_lost { Err(lost) } else { Ok(()) } })
        }
        _ => Box::pin(async { Ok(()) }),
    });
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    worker.flush(Duration::from_secs(60)).expect("shipped");
}

#[test]
fn log_is_shipped_while_a_snapshot_is_uploaded_for_hours() {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let scene = Scene::new(move |call| match call {
        Call::Put(path, _) if is_in(&path, "snapshot") => {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
        _ => Box::pin(async { Ok(()) }),
    });
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    scene.filter.checkpoint().expect("a checkpoint");
    for key in 0..10_u64 {
        scene.filter.insert(key.to_le_bytes()).expect("an insert");
        worker.flush(Duration::from_secs(10)).expect("the log is shipped");
    }
    let status = worker.status();
    assert_eq!((status.failures, asked.load(Ordering::Relaxed)), (0, 1), "{status:?}");
    drop(worker);
}

#[test]
fn a_worker_that_stops_does_not_wait_for_a_snapshot_that_is_uploaded_for_hours() {
    let scene = Scene::new(|call| match call {
        Call::Put(path, _) if is_in(&path, "snapshot") => Box::pin(std::future::pending()),
        _ => Box::pin(async { Ok(()) }),
    });
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    scene.filter.checkpoint().expect("a checkpoint");
    // Up to the end of the snapshot: a note alone is not shipped.
    scene.filter.insert("behind it").expect("an insert");
    let before = flush_until(&worker, |status| status.is_uploading).confirmed;
    scene.filter.insert("second").expect("an insert");
    let (ended, end) = channel();
    std::thread::spawn(move || ended.send(worker.stop()).is_ok());
    // Less than an answer may take.
    let stopped = end.recv_timeout(Duration::from_secs(40)).expect("the end of the worker");
    let status = stopped.expect("a last round");
    assert!(status.is_stopped && status.confirmed > before, "{status:?}");
}

#[test]
fn a_worker_that_finishes_ships_the_snapshot_that_is_due() {
    let bases = Arc::new(AtomicU64::new(0));
    let counted = bases.clone();
    let scene = Scene::new(move |call| {
        let is_base = matches!(call, Call::Put(path, _) if is_in(&path, "base"));
        counted.fetch_add(u64::from(is_base), Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    });
    // Begun before there is a snapshot, so that none is needed.
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    scene.filter.checkpoint().expect("a checkpoint");
    scene.filter.insert("behind it").expect("an insert");
    worker.finish().expect("a last round");
    assert_eq!(bases.load(Ordering::Relaxed), 2, "the creation and the snapshot");
}

#[test]
fn the_status_after_a_last_round_that_failed_counts_what_it_has_put() {
    let scene = Scene::new(refuse_snapshots);
    let worker = scene.start();
    assert!(worker.status().links > 0, "the one by which it began");
    scene.filter.insert("first").expect("an insert");
    scene.filter.checkpoint().expect("a checkpoint");
    scene.filter.insert("second").expect("an insert");
    let durable = scene.filter.durable_upto().expect("an LSN");
    let status = worker.statuses();
    worker.finish().expect_err("the snapshot is refused");
    let status = status();
    assert!(status.is_stopped && status.failures > 0 && status.links > 1, "{status:?}");
    assert!(status.confirmed >= durable, "{status:?}");
}

/// Drops a worker whose store does not answer in this way.
fn assert_ends(mode: u8) {
    let shipped = shipped(mode);
    shipped.worker.flush(Duration::from_secs(1)).expect_err("no answer");
    assert_eq!(shipped.puts.load(Ordering::Relaxed), 1);
    let (ended, end) = channel();
    let worker = shipped.worker;
    std::thread::spawn(move || {
        drop(worker);
        let _ = ended.send(());
    });
    // Less than an answer may take.
    end.recv_timeout(Duration::from_secs(40)).expect("the end of the worker");
}

#[test]
fn a_worker_whose_store_does_not_answer_ends_when_it_is_dropped() {
    assert_ends(SILENT);
}

#[test]
fn a_worker_whose_call_of_the_system_hangs_ends_when_it_is_dropped() {
    assert_ends(HANGING);
}

#[test]
fn who_waits_for_a_store_that_refuses_neither_hurries_it_nor_delays_the_end() {
    let shipped = shipped(REFUSING);
    shipped.worker.flush(Duration::from_secs(3)).expect_err("refused");
    let asked = shipped.puts.load(Ordering::Relaxed);
    assert!((1..10).contains(&asked), "{asked} times");
    shipped.worker.stop().expect_err("refused");
    // A round may run, and the last one.
    let more = shipped.puts.load(Ordering::Relaxed) - asked;
    assert!((1..3).contains(&more), "{more} times");
}

#[test]
fn a_worker_that_was_waited_for_in_vain_stops_with_everything_shipped() {
    let shipped = shipped(REFUSING);
    shipped.worker.flush(Duration::from_secs(1)).expect_err("refused");
    shipped.mode.store(SOUND, Ordering::Relaxed);
    let status = shipped.worker.stop().expect("a last round");
    assert!(status.is_stopped && status.failure.is_none(), "{status:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let (runtime, copy) = (runtime.expect("a runtime"), Arc::new(Memory::new()));
    runtime.block_on(assemble(&shipped.store, copy.clone())).expect("a fetch");
    let copied = Reader::<Any>::open_on(copy, Options::new()).expect("a reader");
    assert!(copied.contains("second").expect("an answer"));
}

#[test]
fn a_worker_that_panics_is_an_error() {
    let shipped = shipped(PANICKING);
    let error = shipped.worker.flush(Duration::from_secs(60)).expect_err("it has ended");
    assert!(error.to_string().contains("panic"), "{error}");
    let status = shipped.worker.status();
    assert!(status.is_stopped, "{status:?}");
    assert!(status.failure.is_some_and(|failure| failure.contains("panic")));
    let error = shipped.worker.stop().expect_err("it has panicked");
    assert!(error.to_string().contains("panic") && !error.is_transient(), "{error}");
}

#[test]
fn a_worker_that_puts_links_is_not_stalled_although_puts_fail_in_between() {
    // The beginning, the test of the fence, and one link of the log.
    let left = AtomicU64::new(3);
    // Without a snapshot.
    let scene = Scene::with(Options::new().background(false), move |call| match call {
        Call::Put(path, _) if is_in(&path, "chain") => {
            let order = Ordering::Relaxed;
            let is_taken = left.fetch_update(order, order, |left| left.checked_sub(1)).is_ok();
            let refused = Error::Generic { store: "scripted", source: "refused".into() };
            Box::pin(async move { if is_taken { Ok(()) } else { Err(refused) } })
        }
        _ => Box::pin(async { Ok(()) }),
    });
    // More than a link has.
    for start in (0..140_000_u64).step_by(2000) {
        let mut batch = scene.filter.batch();
        for key in start..start + 2000 {
            batch.insert(key.to_le_bytes()).expect("a part of a batch");
        }
        batch.commit().expect("a batch");
    }
    let worker = scene.start();
    let mut status = flush_until(&worker, |status| status.failure.is_some());
    assert!(status.links == 2 && status.bytes >= 2 << 20, "{status:?}");
    assert!(!status.is_pending && status.progressed > status.succeeded, "{status:?}");
    let noted = Standing::read(scene.dir.path().join("seen")).expect("read").expect("a file");
    assert!(noted.progressed > noted.succeeded, "{noted:?}");
    assert!(!status.is_stalled(HOUR));
    let long_ago = |of: Instant| of.checked_sub(2 * HOUR);
    let Some(before) = long_ago(status.succeeded) else { return };
    status.succeeded = before;
    assert!(!status.is_stalled(HOUR), "a link was put since");
    status.progressed = before;
    assert!(status.is_stalled(HOUR));
}

#[test]
fn failures_are_counted_over_restarts_also_those_to_begin() {
    let is_refused = Arc::new(AtomicBool::new(false));
    let refuses = is_refused.clone();
    let scene = Scene::new(move |call| match call {
        Call::Put(path, _) if is_in(&path, "chain") && refuses.load(Ordering::Relaxed) => {
            let refused = Error::Generic { store: "scripted", source: "refused".into() };
            Box::pin(async { Err(refused) })
        }
        call => refuse_snapshots(call),
    });
    let mut counted = 0;
    for _ in 0..3 {
        let worker = scene.start();
        assert!(worker.status().failures >= counted);
        scene.filter.insert("a key").expect("an insert");
        scene.filter.checkpoint().expect("a checkpoint");
        scene.filter.insert("behind it").expect("an insert");
        let status = worker.statuses();
        worker.finish().expect_err("the snapshot is refused");
        assert!(status().failures > counted, "{:?}", status());
        counted = status().failures;
    }
    is_refused.store(true, Ordering::Relaxed);
    let dir = scene.dir.path().join("seen");
    for _ in 0..3 {
        let begun = Worker::start(&dir, scene.store.clone(), ShipOptions::default(), HOUR);
        let error = begun.map(|_| ()).expect_err("refused");
        counted += 1;
        assert_eq!(Status::not_begun(&dir, "scripted:///orders/7", &error).failures, counted);
    }
}

#[test]
fn what_waits_for_a_snapshot_is_not_shipped_for_as_long_as_that_takes() {
    let scene = Scene::new(|call| match call {
        Call::Put(path, _) if is_in(&path, "snapshot") => Box::pin(std::future::pending()),
        _ => Box::pin(async { Ok(()) }),
    });
    let worker = scene.start();
    scene.filter.insert("first").expect("an insert");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    let altered = scene.filter.alter(AgePartitioned::last(2000), Unlogged::Forget);
    altered.expect("an alteration");
    scene.filter.insert("behind it").expect("an insert");
    flush_until(&worker, |status| status.is_uploading && status.is_pending);
    // Rounds succeed meanwhile.
    flush_until(&worker, |status| {
        status.succeeded_at > status.completed_at + Duration::from_millis(300)
    });
    let noted = Standing::read(scene.dir.path().join("seen")).expect("read").expect("a file");
    let lsn = Standing::end(&scene.filter.stat().expect("figures"));
    assert!(noted.unshipped_records(lsn) > 0, "{noted:?}, {lsn}");
    let since = noted.completed;
    assert_eq!(noted.unshipped_for(lsn, since + 7 * HOUR), 7 * HOUR);
}

#[test]
fn of_an_idle_filter_all_of_which_is_shipped_no_record_is_not() {
    // Behind each sync comes a note of how far the log is durable.
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::new().background(false).durability(Durability::Interval(HOUR));
    let seen = dir.path().join("seen");
    let filter = Filter::create(&seen, AgePartitioned::last(1000), options).expect("a filter");
    let store = Scripted::new(|_| Box::pin(async { Ok(()) }));
    let store = Store::of(Arc::new(store), "orders/7", "scripted:///orders/7");
    let worker = Worker::start(&seen, store, ShipOptions::default(), HOUR).expect("a worker");
    filter.insert("a key").expect("an insert");
    filter.sync().expect("a sync");
    worker.flush(Duration::from_secs(60)).expect("shipped");
    for syncs in 0..2 {
        let stat = filter.stat().expect("figures");
        assert!(stat.lsn > stat.durable_lsn, "{syncs}: no note");
        worker.flush(Duration::from_secs(60)).expect("shipped");
        let noted = Standing::read(&seen).expect("read").expect("a file");
        assert_eq!(noted.unshipped_records(Standing::end(&stat)), 0, "{syncs}: {noted:?}");
        filter.sync().expect("a sync");
    }
    filter.insert("another key").expect("an insert");
    filter.insert("one more").expect("an insert");
    let noted = Standing::read(&seen).expect("read").expect("a file");
    let end = Standing::end(&filter.stat().expect("figures"));
    assert!(noted.unshipped_records(end) >= 2, "{noted:?}, {end}");
    worker.stop().expect("a last round");
}
