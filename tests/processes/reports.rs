//! Figures of many measurements, and what a process that hangs is doing.

use rustix::process::Pid;
use std::path::Path;
use std::time::Duration;

/// Times of one sort.
#[derive(Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// One more.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// How many are longer.
    pub fn above(&self, limit: Duration) -> usize {
        self.0.iter().filter(|&&time| time > limit).count()
    }

    /// How many, and the 50th, 99th and 100th percentile.
    pub fn figures(&mut self) -> String {
        self.0.sort_unstable();
        let Some(&most) = self.0.last() else {
            return "none".to_owned();
        };
        let at = |percent: usize| self.0[(self.0.len() - 1) * percent / 100];
        format!("{} times, p50 {:?}, p99 {:?}, max {most:?}", self.0.len(), at(50), at(99))
    }
}

/// What each thread of a process waits for.
pub fn threads(pid: Pid) -> String {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let mut text = String::new();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()))
        .into_iter()
        .flatten()
        .flatten();
    for task in tasks {
        let [name, waits, call, status] =
            ["comm", "wchan", "syscall", "status"].map(|file| read(&task.path().join(file)));
        let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or_default();
        text += &format!("\n  {name}: {state}, waits in {waits}, system call {call}");
    }
    text
}
