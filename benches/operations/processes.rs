//! Concurrent processes: this program started again, with the filter's path in its environment.
//!
//! A worker reads from its standard input the operation and the start time, and prints the end
//! time, both by the clock that all processes of a machine share. It ends with its input.

use crate::subject::{Operation, Subject};
use ebbtide::{Filter, Options};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The environment variable that contains the filter's path for a worker.
const WORKER: &str = "EBBTIDE_BENCH_WORKER";

/// The time from an order to the common start: enough for all workers to have read their orders.
const LEAD: Duration = Duration::from_millis(2);

fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs the work and returns true if this process was started as a worker.
pub fn work_if_asked() -> bool {
    let path = std::env::var_os(WORKER);
    path.as_deref().map(work).is_some()
}

fn work(path: &OsStr) {
    let filter: Filter = Filter::open(path, Options::new()).expect("the filter");
    println!("ready");
    for order in stdin().lines() {
        let order = order.expect("an order");
        let mut words = order.split(' ');
        let name = words.next();
        let operation = Operation::ALL.into_iter().find(|operation| Some(operation.name()) == name);
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        let (first, count, start) = (number(), number(), Duration::from_nanos(number()));
        while now() < start {
            std::hint::spin_loop();
        }
        operation.expect("an operation").run(&filter, first..first + count);
        println!("{}", now().as_nanos());
        stdout().flush().expect("an answer");
    }
    filter.close().expect("closed");
}

struct Worker {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .env(WORKER, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut worker = Self { process, orders, answers };
        assert_eq!(worker.answer(), "ready");
        worker
    }

    fn order(&mut self, operation: Operation, first: u64, count: u64, start: Duration) {
        let orders = self.orders.as_mut().expect("a pipe");
        let start = start.as_nanos();
        writeln!(orders, "{} {first} {count} {start}", operation.name()).expect("a worker");
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        answer.trim_end().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A failed worker has printed its error.
        let _ = self.process.wait();
    }
}

/// Processes that have the same filter open.
pub struct Crew(Vec<Worker>);

impl Crew {
    pub fn start(path: &Path, workers: u64) -> Self {
        Self((0..workers).map(|_| Worker::start(path)).collect())
    }

    /// Returns the time from the common start to the end of the last; each does `count` operations.
    pub fn run(&mut self, operation: Operation, subject: &Subject, count: u64) -> Duration {
        let start = now() + LEAD;
        for worker in &mut self.0 {
            worker.order(operation, subject.take(count), count, start);
        }
        let ends = self.0.iter_mut().map(|worker| {
            Duration::from_nanos(worker.answer().parse().expect("the time of its end"))
        });
        ends.max().expect("a worker") - start
    }
}
