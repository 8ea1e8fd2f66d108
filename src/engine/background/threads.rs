//! The background threads of the process for log, snapshots and syncs: one of each, however many
//! filters it has open.
//!
//! Each worker has a list of tasks, one for each filter, and the times at which they are due. It
//! sleeps until the first of them is due, or until a task is woken. The thread of a worker starts
//! with its first task and ends with its last.
//!
//! Invariants: a forked child, which has none of the threads, creates workers of its own. A removed
//! task does not run any more; one that was dismissed may finish running. A worker never holds its
//! lock while it runs a task.

use crate::engine::background::task::{Task, Work};
use crate::platform::per_process::PerProcess;
use crate::platform::threads;
use crate::primitives::Instant;
use crate::primitives::mutex::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A task on the list of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Registered {
    worker: &'static Worker,
    task: u64,
}

impl Registered {
    /// Makes the task due now.
    pub(crate) fn wake(&self) {
        self.worker.wake(self.task);
    }

    /// Removes the task from the list, and waits until it has finished running.
    pub(crate) fn remove(&self) {
        self.worker.remove(self.task);
    }

    /// Removes the task from the list without waiting for it: what it runs may wait for the caller.
    pub(crate) fn dismiss(&self) {
        self.worker.dismiss(self.task);
    }
}

/// Registers a task with a worker of this process. It runs for the first time at once.
///
/// # Errors
/// The system's error if no thread can be started.
pub(crate) fn register(work: Work, task: Arc<dyn Task>) -> std::io::Result<Registered> {
    let workers = Workers::of_this_process();
    let worker = match work {
        Work::Log => &workers.log,
        Work::Snapshots => &workers.snapshots,
        Work::Syncs => &workers.syncs,
    };
    worker.add(task).map(|task| Registered { worker, task })
}

/// Returns the next tick of the period `every`. All filters share these ticks, so that a process
/// with many filters wakes once for all of them.
pub(crate) fn next_tick(now: Instant, every: Duration) -> Instant {
    let begun = Workers::of_this_process().begun;
    let passed = now.saturating_duration_since(begun).as_nanos();
    let left = every.as_nanos() - passed % every.as_nanos().max(1);
    now + Duration::from_nanos(left as u64)
}

/// The workers of a process.
#[derive(Debug)]
struct Workers {
    begun: Instant,
    log: Worker,
    snapshots: Worker,
    syncs: Worker,
}

static WORKERS: PerProcess<Workers> = PerProcess::new();

impl Workers {
    fn of_this_process() -> &'static Self {
        WORKERS.get(|| Self {
            begun: Instant::now(),
            log: Worker::new("ebbtide-log"),
            snapshots: Worker::new("ebbtide-snap"),
            syncs: Worker::new("ebbtide-sync"),
        })
    }
}

#[derive(Debug)]
struct Worker {
    name: &'static str,
    list: Mutex<List>,
    /// Notified when the list has changed, and when a task has finished running.
    changed: Condvar,
}

/// A task, and when it is due. A running task is not due, unless it was woken meanwhile.
struct Entry {
    task: Arc<dyn Task>,
    due: Option<Instant>,
}

#[derive(Default)]
struct List {
    tasks: BTreeMap<u64, Entry>,
    /// The due times of the tasks, in order; consistent with their entries.
    due: BTreeSet<(Instant, u64)>,
    last_task: u64,
    /// Those that are running: usually one; more while a thread that is to end runs its last one
    /// beside its successor.
    running: BTreeSet<u64>,
    thread: Option<JoinHandle<()>>,
    /// The number of the thread that serves the list; a thread that finds another number here
    /// ends.
    serving: u64,
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("List").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl List {
    /// Makes a task due at a time, unless it is due earlier. Returns false if that changes nothing.
    fn schedule(&mut self, task: u64, at: Instant) -> bool {
        let Some(entry) = self.tasks.get_mut(&task) else { return false };
        if entry.due.is_some_and(|before| before <= at) {
            return false;
        }
        if let Some(later) = entry.due.replace(at) {
            self.due.remove(&(later, task));
        }
        self.due.insert((at, task))
    }

    /// Takes the first task that is due; otherwise returns the time until one is.
    fn take_due(&mut self) -> Result<(u64, Arc<dyn Task>), Duration> {
        const LONG: Duration = Duration::from_secs(3600);
        let Some(&(at, task)) = self.due.first() else { return Err(LONG) };
        let left = at.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Err(left);
        }
        self.due.remove(&(at, task));
        let Some(entry) = self.tasks.get_mut(&task) else { return Err(Duration::ZERO) };
        entry.due = None;
        Ok((task, entry.task.clone()))
    }

    fn remove(&mut self, task: u64) {
        if let Some(Entry { due: Some(at), .. }) = self.tasks.remove(&task) {
            self.due.remove(&(at, task));
        }
    }
}

impl Worker {
    fn new(name: &'static str) -> Self {
        Self { name, list: Mutex::default(), changed: Condvar::default() }
    }

    fn add(&'static self, task: Arc<dyn Task>) -> std::io::Result<u64> {
        let mut list = self.list.lock();
        if list.thread.is_none() {
            list.serving += 1;
            let number = list.serving;
            list.thread = Some(threads::spawn(self.name, move || self.serve(number))?);
        }
        list.last_task += 1;
        let number = list.last_task;
        list.tasks.insert(number, Entry { task, due: None });
        list.schedule(number, Instant::now());
        self.changed.notify_all();
        Ok(number)
    }

    fn wake(&self, task: u64) {
        let mut list = self.list.lock();
        if list.schedule(task, Instant::now()) {
            self.changed.notify_all();
        }
    }

    fn remove(&self, task: u64) {
        let mut list = self.list.lock();
        list.remove(task);
        while list.running.contains(&task) {
            list = self.changed.wait(list);
        }
        let last = list.tasks.is_empty().then(|| list.thread.take()).flatten();
        drop(list);
        if let Some(thread) = last {
            self.changed.notify_all();
            // There is no result: a panic of a task has been reported on standard error.
            let _ = thread.join();
        }
    }

    fn dismiss(&self, task: u64) {
        let mut list = self.list.lock();
        list.remove(task);
        if list.tasks.is_empty() {
            // The thread ends when it has finished what it runs.
            list.thread = None;
            self.changed.notify_all();
        }
    }

    /// Runs due tasks until there is nothing left to serve.
    fn serve(&self, number: u64) {
        let mut list = self.list.lock();
        while list.serving == number && (list.thread.is_some() || !list.tasks.is_empty()) {
            let (task, run) = match list.take_due() {
                Ok(due) => due,
                Err(left) => {
                    list = self.changed.wait_for(list, left);
                    continue;
                }
            };
            list.running.insert(task);
            drop(list);
            // Forgotten, because to drop what a panic carries may panic, too, or use a filter.
            let next = catch_unwind(AssertUnwindSafe(|| run.run())).map_err(std::mem::forget);
            // Before the list is locked, because it may be the last reference to a filter.
            drop(run);
            list = self.list.lock();
            list.running.remove(&task);
            match next {
                Ok(next) => drop(list.schedule(task, next)),
                // A task that panics is removed: its filter continues without it, as far as it is
                // sound.
                Err(()) => list.remove(task),
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitives::Hint;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const LIMIT: Duration = Duration::from_secs(60);

    /// Counts its runs, and sends the number of each.
    struct Counting {
        runs: Hint,
        told: Mutex<Sender<u64>>,
        every: Duration,
    }

    impl Task for Counting {
        fn run(&self) -> Instant {
            let runs = self.runs.next() + 1;
            // The receiver may be gone.
            let _ = self.told.lock().send(runs);
            Instant::now() + self.every
        }
    }

    fn counting(every: Duration) -> (Arc<Counting>, std::sync::mpsc::Receiver<u64>) {
        let (told, heard) = channel();
        let told = Mutex::new(told);
        (Arc::new(Counting { runs: Hint::default(), told, every }), heard)
    }

    #[test]
    fn a_task_runs_at_once_then_when_due_and_whenever_it_is_woken() {
        let (task, heard) = counting(Duration::from_millis(1));
        let often = register(Work::Log, task.clone()).expect("a thread");
        for run in 1..4 {
            assert_eq!(heard.recv_timeout(LIMIT), Ok(run));
        }
        often.remove();
        let (task, heard) = counting(Duration::from_secs(3600));
        let seldom = register(Work::Log, task).expect("a thread");
        assert_eq!(heard.recv_timeout(LIMIT), Ok(1));
        for run in 2..50 {
            seldom.wake();
            assert_eq!(heard.recv_timeout(LIMIT), Ok(run), "woken");
        }
        seldom.remove();
        seldom.wake();
        assert!(heard.recv_timeout(Duration::from_millis(20)).is_err(), "it was removed");
    }

    #[test]
    fn a_removed_task_does_not_run_any_more_once_its_remover_returns() {
        struct Slow(Hint);
        impl Task for Slow {
            fn run(&self) -> Instant {
                self.0.next();
                std::thread::sleep(Duration::from_millis(5));
                self.0.next();
                Instant::now()
            }
        }
        for _ in 0..20 {
            let task = Arc::new(Slow(Hint::default()));
            let registered = register(Work::Snapshots, task.clone()).expect("a thread");
            std::thread::sleep(Duration::from_millis(2));
            registered.remove();
            let steps = task.0.get();
            assert_eq!(steps % 2, 0, "it is in the middle of a run");
            assert_eq!(Arc::strong_count(&task), 1);
        }
    }

    #[test]
    fn a_remover_waits_for_its_own_task_although_another_thread_serves_the_list_by_then() {
        struct Held(Mutex<Sender<()>>, Mutex<Receiver<()>>);
        impl Task for Held {
            fn run(&self) -> Instant {
                self.0.lock().send(()).expect("the test waits");
                self.1.lock().recv().expect("the test releases it");
                Instant::now() + Duration::from_secs(3600)
            }
        }
        let worker: &'static Worker = Box::leak(Box::new(Worker::new("ebbtide-test")));
        let ((tell, runs), (release, wait)) = (channel(), channel());
        let held = worker.add(Arc::new(Held(Mutex::new(tell), Mutex::new(wait))));
        let held = held.expect("a thread");
        assert_eq!(runs.recv_timeout(LIMIT), Ok(()));
        let (other, _) = counting(Duration::from_secs(3600));
        let other = worker.add(other).expect("it is served");
        let (removed, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                worker.remove(held);
                removed.send(()).expect("the test waits");
            });
            while worker.list.lock().tasks.contains_key(&held) {
                std::thread::yield_now();
            }
            scope.spawn(move || worker.remove(other));
            while worker.list.lock().thread.is_some() {
                std::thread::yield_now();
            }
            let (third, heard) = counting(Duration::from_secs(3600));
            let third = worker.add(third).expect("a second thread");
            assert_eq!(heard.recv_timeout(LIMIT), Ok(1), "nothing waits for the first thread");
            let early = told.recv_timeout(Duration::from_millis(50));
            release.send(()).expect("it waits");
            assert!(early.is_err(), "its task still runs");
            assert_eq!(told.recv_timeout(LIMIT), Ok(()));
            worker.remove(third);
        });
    }

    #[test]
    fn a_task_that_panics_is_off_the_list_and_the_others_continue() {
        struct Bad;
        struct PanicsAgain;
        impl Drop for PanicsAgain {
            fn drop(&mut self) {
                panic!("and so is this")
            }
        }
        impl Task for Bad {
            fn run(&self) -> Instant {
                std::panic::panic_any(PanicsAgain)
            }
        }
        let bad = Arc::new(Bad);
        let registered = register(Work::Log, bad.clone()).expect("a thread");
        let (task, heard) = counting(Duration::from_millis(1));
        let good = register(Work::Log, task).expect("a thread");
        for run in 1..20 {
            assert_eq!(heard.recv_timeout(LIMIT), Ok(run));
        }
        assert_eq!(Arc::strong_count(&bad), 1, "it is not kept");
        registered.remove();
        good.remove();
    }

    #[test]
    fn ticks_are_the_same_for_all_and_lie_ahead() {
        // Ticks are counted from the first use of the threads.
        Workers::of_this_process();
        let (now, every) = (Instant::now(), Duration::from_secs(1));
        let tick = next_tick(now, every);
        assert!(tick > now && tick <= now + every);
        assert_eq!(next_tick(tick - Duration::from_nanos(1), every), tick);
        assert_eq!(next_tick(tick, every), tick + every);
    }
}
