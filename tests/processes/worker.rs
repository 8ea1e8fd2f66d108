//! A child: opens the filter, lets its threads work, and does what the parent asks, line by line.
//!
//! It prints `here <pid>` before it opens the filter (the process number as the parent's `/proc` has it), `open` when it
//! has it open, and one line for each question. It dies with its parent, whose end closes its input.

use crate::desk::Desk;
use crate::random::{Random, mix};
use crate::scenes::Scene;
use crate::settings::filter_of;
use crate::witness::Returned;
use crate::work::{Task, Worker};
use ebbtide::{Any, Filter, Result};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// The variable that says that this process is a child, and which.
pub const ROLE: &str = "EBBTIDE_PROCESS";

/// What a child is told at its start.
#[derive(Debug)]
pub struct Role {
    /// The filter.
    pub scene: &'static Scene,
    /// Its number, never used twice in a directory.
    pub child: u64,
    /// The run's seed.
    pub seed: u64,
    /// What it is for.
    pub task: Task,
    /// The directory with filter and notes.
    pub home: PathBuf,
}

impl Role {
    /// As the variable's text.
    pub fn text(&self) -> String {
        let Self { scene, child, seed, task, home } = self;
        format!("{}\n{child}\n{seed}\n{}\n{}", scene.name, task.name(), home.display())
    }

    /// Where children write what they cannot cope with.
    pub fn said(&self) -> PathBuf {
        Self::said_in(&self.home)
    }

    /// The same, by the directory.
    pub fn said_in(home: &Path) -> PathBuf {
        home.join("said")
    }

    /// The role, if this process is a child.
    pub fn from_environment() -> Option<Self> {
        let text = std::env::var(ROLE).ok()?;
        let mut parts = text.split('\n');
        Some(Self {
            scene: Scene::named(parts.next()?)?,
            child: parts.next()?.parse().ok()?,
            seed: parts.next()?.parse().ok()?,
            task: Task::named(parts.next()?)?,
            home: parts.next()?.into(),
        })
    }

    /// Opens the filter, or creates it.
    pub fn open(&self) -> Result<Filter<Any>> {
        Filter::open_or_create(filter_of(&self.home), self.scene.spec(), self.scene.options())
    }

    /// Plays it to the end, which is a kill, a command or the parent's death.
    pub fn play(self) {
        // A thread that fails must not leave the others to go on. Nothing is unwound, as in a kill.
        let child = self.child;
        std::panic::set_hook(Box::new(move |what| {
            eprintln!("child {child}: {what}");
            std::process::exit(101);
        }));
        let outside = std::fs::read_link("/proc/self").unwrap_or_default();
        say(&format!("here {}", outside.display()));
        if self.task == Task::Churn {
            return self.churn();
        }
        let filter = Arc::new(self.open().expect("the filter opens"));
        say("open");
        let worker = Arc::new(self.worker());
        let threads = (0..self.task.threads()).map(|thread| {
            let (worker, filter, task) = (worker.clone(), filter.clone(), self.task);
            std::thread::spawn(move || worker.run(&filter, task, thread))
        });
        let threads = threads.collect();
        let mut desk = Desk::new(self, filter, worker, threads);
        for line in std::io::stdin().lock().lines() {
            let line = line.expect("a command");
            if line == "close" {
                match desk.close() {
                    Ok(()) => say("closed"),
                    Err(error) => say(&format!("failed: {error}")),
                }
                break;
            }
            say(&desk.answer(&line).unwrap_or_else(|error| format!("failed: {error}")));
        }
        std::process::exit(0);
    }

    fn worker(&self) -> Worker {
        Worker {
            scene: self.scene,
            home: self.home.clone(),
            seed: self.seed,
            child: self.child,
            returned: Returned::new(&self.home, self.child),
            ending: AtomicBool::new(false),
            latencies: Mutex::default(),
        }
    }

    /// Opens, inserts a few keys, and closes or drops, until the parent closes the input.
    fn churn(self) {
        std::thread::spawn(|| {
            // There are no commands: this waits for the end.
            let _ = std::io::stdin().lines().count();
            std::process::exit(0);
        });
        let worker = self.worker();
        let mut random = Random::new(self.seed ^ mix(self.child));
        let mut operation = 0;
        loop {
            let filter = self.open().expect("the filter opens");
            for _ in 0..random.below(20) {
                worker.operate(&filter, 0, operation, None);
                operation += 1;
            }
            match random.below(3) {
                0 => drop(filter),
                _ => filter.close().expect("the filter closes"),
            }
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If nobody listens the input ends too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
