//! The child's side: answers the commands of the parent.

use crate::settings::HANG;
use crate::witness::{self, ROUND, Returned, THREADS, key, pool_key};
use crate::work::Worker;
use crate::worker::Role;
use ebbtide::{Any, Digest, Filter, Result};
use ebbtide_testkit::random::{Random, mix};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time after a kill in which inserts are checked for a gap.
const AFTERMATH: Duration = Duration::from_millis(30);

/// The number of keys inserted concurrently to test whether others make progress.
pub const PROBES: u64 = 128;

/// Answers commands.
pub struct Desk {
    filter: Arc<Filter<Any>>,
    /// Additional handles.
    more: Vec<Filter<Any>>,
    worker: Arc<Worker>,
    /// The worker threads.
    threads: Vec<JoinHandle<()>>,
    /// The number of operations done on command in the threads' streams; only a child without that
    /// thread receives such commands.
    operations: [u64; 2],
    /// The number of keys that belong to no stream.
    others: u64,
    role: Role,
}

impl Desk {
    /// Creates the desk of a child that has the filter open and its threads at work.
    pub fn new(
        role: Role,
        filter: Arc<Filter<Any>>,
        worker: Arc<Worker>,
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        Self { filter, more: Vec::new(), worker, threads, operations: [0; 2], others: 0, role }
    }

    /// Executes a command line.
    pub fn answer(&mut self, line: &str) -> Result<String> {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = rest.parse::<u64>().unwrap_or(0);
        Ok(match command {
            "end" => {
                self.end();
                "ended".to_owned()
            }
            "insert" => self.insert()?,
            "digest" => {
                let Digest { value, inserts, .. } = self.filter.digest()?;
                format!("{value:032x} after {inserts} inserts")
            }
            "stat" => self.filter.stat()?.handles.to_string(),
            "check" => self.check(number)?,
            "checkpoint" => self.filter.checkpoint()?.to_string(),
            "fill" => self.fill(number)?,
            "probe" => self.probe(number),
            "kill" => self.kill(number),
            "latencies" => self.latencies(),
            "handles" => self.handles(number)?,
            "release" => {
                self.more.pop().map_or(Ok(()), |filter| filter.close())?;
                "released".to_owned()
            }
            other => format!("failed: no command {other}"),
        })
    }

    fn other_key(&mut self) -> Vec<u8> {
        self.others += 1;
        let child = self.role.child.to_le_bytes();
        [b"other".as_slice(), &child, &self.others.to_le_bytes()].concat()
    }

    /// Inserts many keys at once, each in its own thread, and returns how many inserts completed
    /// within the time, or, on a busy machine, until half of them have. The remaining inserts must
    /// return later, or this child cannot end its threads.
    fn probe(&mut self, milliseconds: u64) -> String {
        let returned = Arc::new(AtomicU64::new(0));
        for _ in 0..PROBES {
            let (filter, returned, key) = (self.filter.clone(), returned.clone(), self.other_key());
            self.threads.push(std::thread::spawn(move || {
                filter.insert(&key).expect("an insert");
                returned.fetch_add(1, Ordering::Relaxed);
                assert!(filter.contains(&key).expect("an answer"), "a probe is not there");
            }));
        }
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(milliseconds));
        // The parent waits for longer.
        while returned.load(Ordering::Relaxed) < PROBES / 2 && began.elapsed() < HANG / 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        returned.load(Ordering::Relaxed).to_string()
    }

    /// Inserts a new key, which must be present immediately afterwards.
    fn insert(&mut self) -> Result<String> {
        let began = Instant::now();
        let key = self.other_key();
        self.filter.insert(&key)?;
        let there = self.filter.contains(&key)?;
        // An insert that took longer than the window may have lost its key.
        let late = self.role.scene.window.is_some_and(|window| began.elapsed() >= window);
        Ok(if there || late { "inserted" } else { "failed: a new key is missing" }.to_owned())
    }

    /// Checks that every key of children up to `children` is present whose operation has returned,
    /// and that each pool key has one winner.
    fn check(&self, children: u64) -> Result<String> {
        let (role, mut keys) = (&self.role, 0_u64);
        for child in 0..children {
            let returned = Returned::new(&role.home, child);
            for thread in 0..THREADS {
                let count = returned.read(thread);
                for operation in 0..count.min(ROUND) {
                    keys += 1;
                    if !self.filter.contains(key(role.seed, child, thread, operation))? {
                        return Ok(format!(
                            "failed: operation {operation} of thread {thread} of child {child} had \
                             returned ({count} had) and is not there"
                        ));
                    }
                }
            }
        }
        let pool = if role.scene.keeps_all {
            witness::pool(&role.home).expect("notes")
        } else {
            HashMap::new()
        };
        for (number, answers) in pool {
            if !answers.is_fair(role.scene.exact) {
                return Ok(format!("failed: key {number} of the pool: {answers:?}"));
            }
            keys += 1;
            if answers.is_there() && !self.filter.contains(pool_key(number))? {
                return Ok(format!("failed: key {number} of the pool is missing: {answers:?}"));
            }
        }
        Ok(format!("{keys} keys"))
    }

    fn fill(&mut self, count: u64) -> Result<String> {
        let mut random = Random::new(self.role.seed ^ mix(self.others));
        self.others += 1;
        let keys = (0..count).map(|_| random.below(u64::MAX).to_le_bytes()).collect::<Vec<_>>();
        Ok(self.filter.insert_all(&keys)?.to_string())
    }

    /// Kills a process while inserting, and returns the longest time from the kill until an insert
    /// returned, in nanoseconds.
    fn kill(&mut self, pid: u64) -> String {
        let mut operation = self.operations[0];
        let mut insert = || {
            self.worker.operate(&self.filter, 0, operation, None);
            operation += 1;
        };
        let began = Instant::now();
        let contend = Duration::from_micros(500 + mix(self.role.seed ^ pid) % 3000);
        while began.elapsed() < contend {
            insert();
        }
        let killed = Instant::now();
        let pid = Pid::from_raw(pid as i32).expect("a process");
        kill_process(pid, Signal::KILL).expect("a kill");
        let (mut last, mut longest) = (killed, Duration::ZERO);
        while killed.elapsed() < AFTERMATH {
            insert();
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        self.operations[0] = operation;
        longest.as_nanos().to_string()
    }

    /// Writes the times of durable inserts to a file, and returns their number.
    fn latencies(&self) -> String {
        let times = self.worker.latencies.lock().expect("a list");
        let bytes: Vec<u8> =
            times.iter().flat_map(|time| (time.as_nanos() as u64).to_le_bytes()).collect();
        let name = format!("latencies-{}", self.role.child);
        std::fs::write(self.role.home.join(name), bytes).expect("a file");
        times.len().to_string()
    }

    /// Opens more handles and inserts with each.
    fn handles(&mut self, count: u64) -> Result<String> {
        for _ in 0..count {
            let filter = match self.role.open() {
                Ok(filter) => filter,
                Err(error) => return Ok(format!("refused after {}: {error}", self.more.len())),
            };
            self.worker.operate(&filter, 1, self.operations[1], None);
            self.operations[1] += 1;
            self.more.push(filter);
        }
        Ok(format!("{} more", self.more.len()))
    }

    /// Ends the threads. The handle stays open.
    fn end(&mut self) {
        self.worker.ending.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread that fails ends the process");
        }
    }

    /// Closes all handles.
    pub fn close(mut self) -> Result<()> {
        self.end();
        self.more.drain(..).try_for_each(|filter| filter.close())?;
        Arc::into_inner(self.filter).expect("the threads have ended").close()
    }
}
