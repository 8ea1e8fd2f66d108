//! The work of a child's threads until a command ends them, or a kill.

use crate::scenes::Scene;
use crate::witness::{ROUND, Returned, Tries, Try, key, pool_key};
use ebbtide::{Any, Checked, Durability, Filter};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The interval at which a fresh key is provided for all children to compete for.
const POOL_EVERY: Duration = Duration::from_micros(250);

/// The task of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Executes commands only.
    Idle,
    /// Both threads run operations of all kinds, and compete for the pool.
    Mixed,
    /// One thread inserts as fast as possible.
    Fast,
    /// One thread inserts durably and records the times.
    Always,
    /// One thread inserts, the other syncs and writes checkpoints.
    Writer,
    /// Opens and closes continuously.
    Churn,
}

impl Task {
    const ALL: [(&'static str, Self); 6] = [
        ("idle", Self::Idle),
        ("mixed", Self::Mixed),
        ("fast", Self::Fast),
        ("always", Self::Always),
        ("writer", Self::Writer),
        ("churn", Self::Churn),
    ];

    /// Returns the task of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(its, _)| *its == name).map(|&(_, task)| task)
    }

    /// Returns the name of the task.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|&&(_, task)| task == self).map_or("", |(name, _)| name)
    }

    /// Returns the number of threads that the task needs.
    pub fn threads(self) -> u64 {
        match self {
            Self::Idle | Self::Churn => 0,
            Self::Fast | Self::Always => 1,
            Self::Mixed | Self::Writer => 2,
        }
    }
}

/// The shared state of a child's threads.
#[derive(Debug)]
pub struct Worker {
    /// The filter's scene.
    pub scene: &'static Scene,
    /// The directory of the notes.
    pub home: PathBuf,
    /// The run's seed.
    pub seed: u64,
    /// The child's number.
    pub child: u64,
    /// The child's counts.
    pub returned: Returned,
    /// Set to end its threads between two operations.
    pub ending: AtomicBool,
    /// The durations of durable inserts.
    pub latencies: Mutex<Vec<Duration>>,
}

impl Worker {
    fn key(&self, thread: u64, operation: u64) -> [u8; 16] {
        key(self.seed, self.child, thread, operation)
    }

    /// Runs one operation of a thread's stream, and notes it.
    pub fn operate(
        &self,
        filter: &Filter<Any>,
        thread: u64,
        operation: u64,
        durability: Option<Durability>,
    ) {
        let key = self.key(thread, operation);
        let mut call = filter.call();
        if let Some(durability) = durability {
            call = call.durability(durability);
        }
        // Alternately, and with the opposite parity in the next round.
        if (operation + operation / ROUND).is_multiple_of(2) {
            let checked = call.check_and_insert(key).expect("an insert");
            let again = operation >= ROUND;
            let wrong = match checked {
                Checked::New => again && self.scene.keeps_all,
                Checked::Present => !again && self.scene.exact,
                Checked::TooLate => true,
            };
            assert!(!wrong, "operation {operation} of thread {thread} got {checked:?}");
        } else {
            assert!(call.insert(key).expect("an insert"), "operation {operation} came too late");
        }
        self.returned.note(thread, operation + 1);
        if self.scene.keeps_all && operation.is_multiple_of(16) {
            let earlier = self.key(thread, operation / 2);
            let there = filter.contains(earlier).expect("an answer");
            assert!(there, "operation {} of thread {thread} is missing", operation / 2);
        }
    }

    /// Returns the numbers of operations, until the threads must end.
    fn operations(&self) -> impl Iterator<Item = u64> {
        (0..).take_while(|_| !self.ending.load(Ordering::Relaxed))
    }

    /// Inserts until the end, and competes for each fresh pool key.
    fn mixed(&self, filter: &Filter<Any>, thread: u64) {
        let mut tries = Tries::new(&self.home, self.child, thread);
        let mut last = 0;
        for operation in self.operations() {
            let durability = (operation % 20_000 == 7).then_some(Durability::Always);
            self.operate(filter, thread, operation, durability);
            if thread == 1 && operation % 50_000 == 9_999 {
                filter.sync().expect("a sync");
            }
            let number = since_epoch().as_micros() / POOL_EVERY.as_micros();
            let number = number as u64 & (u64::MAX >> 2);
            if number != last {
                last = number;
                tries.note(number, || compete(filter, number));
            }
        }
    }

    fn always(&self, filter: &Filter<Any>, thread: u64) {
        for operation in self.operations() {
            let began = Instant::now();
            self.operate(filter, thread, operation, Some(Durability::Always));
            self.latencies.lock().expect("one thread").push(began.elapsed());
        }
    }

    /// Runs a thread of a task.
    pub fn run(&self, filter: &Filter<Any>, task: Task, thread: u64) {
        match (task, thread) {
            (Task::Mixed, _) => self.mixed(filter, thread),
            (Task::Always, _) => self.always(filter, thread),
            (Task::Writer, 1) => {
                for turn in self.operations() {
                    if turn % 2 == 0 {
                        filter.sync().expect("a sync");
                    } else {
                        filter.checkpoint().expect("a checkpoint");
                    }
                }
            }
            _ => {
                for operation in self.operations() {
                    self.operate(filter, thread, operation, None);
                }
            }
        }
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn compete(filter: &Filter<Any>, number: u64) -> Try {
    match filter.check_and_insert(pool_key(number)).expect("an insert") {
        Checked::New => Try::Won,
        _ => Try::Lost,
    }
}
