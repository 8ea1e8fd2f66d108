//! Statistics of many measurements, and the state of a process that hangs.

use rustix::process::Pid;
use std::path::Path;
use std::time::Duration;

/// Durations of one kind.
#[derive(Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds a duration.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Returns how many durations are longer.
    pub fn above(&self, limit: Duration) -> usize {
        self.0.iter().filter(|&&time| time > limit).count()
    }

    /// Returns the count, and the 50th, 99th and 100th percentile.
    pub fn figures(&mut self) -> String {
        self.0.sort_unstable();
        let Some(&most) = self.0.last() else {
            return "none".to_owned();
        };
        let at = |percent: usize| self.0[(self.0.len() - 1) * percent / 100];
        format!("{} times, p50 {:?}, p99 {:?}, max {most:?}", self.0.len(), at(50), at(99))
    }
}

/// Returns the system call in which each thread of a process waits.
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
