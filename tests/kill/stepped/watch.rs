//! Detects hangs: a step that takes too long is reported, and the test ends.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The time within which the survivor must answer: twice the patience of `wave.rs`, which is part
/// of it.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Watched {
    until: Option<Instant>,
    doing: String,
    processes: Vec<u32>,
    over: bool,
}

/// Watches one scene; its thread ends with it.
#[derive(Debug, Default)]
pub struct Watch(Arc<Mutex<Watched>>);

impl Watch {
    /// Starts watching.
    pub fn start() -> Self {
        let watch = Self::default();
        let watched = watch.0.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(100));
                let watched = watched.lock().expect("no panic while locked");
                if watched.over {
                    return;
                }
                if watched.until.is_some_and(|until| until < Instant::now()) {
                    report(&watched);
                    std::process::abort();
                }
            }
        });
        watch
    }

    /// Runs a step that these processes may prevent from ending.
    pub fn over<T>(&self, doing: String, processes: &[u32], act: impl FnOnce() -> T) -> T {
        {
            let mut watched = self.0.lock().expect("no panic while locked");
            watched.until = Some(Instant::now() + PATIENCE);
            watched.doing = doing;
            watched.processes = processes.to_vec();
        }
        let done = act();
        self.0.lock().expect("no panic while locked").until = None;
        done
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ok(mut watched) = self.0.lock() {
            watched.over = true;
        }
    }
}

fn report(watched: &Watched) {
    eprintln!("hangs for {PATIENCE:?}: {}", watched.doing);
    for process in watched.processes.iter().chain([&std::process::id()]) {
        for file in ["status", "wchan", "syscall", "stack"] {
            let text = fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
            let lines = text.lines().filter(|line| file != "status" || telling(line));
            for line in lines {
                eprintln!("  {process} {file}: {line}");
            }
        }
    }
    eprintln!("  the directory is kept");
}

fn telling(line: &str) -> bool {
    ["State", "TracerPid", "Threads", "SigPnd"].iter().any(|start| line.starts_with(start))
}
