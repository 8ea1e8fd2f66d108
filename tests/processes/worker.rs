//! A child: opens the filter, lets its threads work, and executes the parent's commands, line by
//! line.
//!
//! It prints `here <pid>` before it opens the filter (the process id as in the parent's `/proc`),
//! `open` when it has it open, and one line for each command. It ends with its parent, whose end
//! closes its input.

use crate::desk::Desk;
use crate::scenes::Scene;
use crate::settings::filter_of;
use crate::witness::Returned;
use crate::work::{Task, Worker};
use ebbtide::{Any, Filter, Result};
use ebbtide_testkit::random::{Random, mix};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// The environment variable that contains the role of a child.
pub const ROLE: &str = "EBBTIDE_PROCESS";

/// The role of a child.
#[derive(Debug)]
pub struct Role {
    /// The filter.
    pub scene: &'static Scene,
    /// The child's number, unique in a directory.
    pub child: u64,
    /// The run's seed.
    pub seed: u64,
    /// The child's task.
    pub task: Task,
    /// The directory with filter and notes.
    pub home: PathBuf,
}

impl Role {
    /// Returns the text of the environment variable.
    pub fn text(&self) -> String {
        let Self { scene, child, seed, task, home } = self;
        format!("{}\n{child}\n{seed}\n{}\n{}", scene.name, task.name(), home.display())
    }

    /// Returns the file for the errors of children.
    pub fn said(&self) -> PathBuf {
        Self::said_in(&self.home)
    }

    /// Returns that file of a directory.
    pub fn said_in(home: &Path) -> PathBuf {
        home.join("said")
    }

    /// Returns the role, if this process is a child.
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

    /// Runs the role to its end: a kill, a command, or the parent's death.
    pub fn play(self) {
        // A failing thread must also stop the others. Nothing is unwound, as in a kill.
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
    // If the parent no longer reads, the input ends as well.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
