//! A demonstration that runs in processes of its own, and is killed.

use ebbtide_testkit::child::HANG;
use ebbtide_testkit::environment;
use ebbtide_testkit::random::Random;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// The arguments that select a program.
pub const CLICK_AUDIT: &str = "click-audit";
pub const FLOOD: &str = "flood";

/// Returns the source of the moments at which processes are killed.
pub fn moments() -> Random {
    let seed = environment::number("EBBTIDE_SEED").unwrap_or(environment::SEED);
    println!("seed {seed}");
    Random::new(seed)
}

/// A running program, the first process of a group.
pub struct Program {
    process: Child,
    lines: Receiver<String>,
    /// What it has printed so far, as far as it was read.
    pub printed: Vec<String>,
    /// The processes that were killed alone.
    killed: Vec<i32>,
}

impl Program {
    /// Starts a program on a directory, with the requests that it generates.
    pub fn start(name: &str, dir: &Path) -> Self {
        Self::start_with(name, dir, None)
    }

    /// Starts a program on a directory, with the requests of a file.
    pub fn start_with(name: &str, dir: &Path, file: Option<&Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program's file"));
        command.arg(name).arg(dir).args(file).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().expect("a process");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let (pass, received) = channel();
        thread::spawn(move || {
            // Ends with the pipe, or with the receiver.
            lines.map_while(Result::ok).take_while(|line| pass.send(line.clone()).is_ok()).count()
        });
        Self { process, lines: received, printed: Vec::new(), killed: Vec::new() }
    }

    /// Reads a line; `None` at the end. Fails if none is printed for a minute.
    pub fn line(&mut self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.lines.recv_timeout(HANG) {
            Ok(line) => {
                self.printed.push(line.clone());
                Some(line)
            }
            Err(Disconnected) => None,
            Err(Timeout) => panic!("nothing was printed for {HANG:?}"),
        }
    }

    /// Returns whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("a status").is_none()
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Kills the program and all its processes, and returns what it has printed.
    pub fn kill_all(mut self) -> Vec<String> {
        kill_process_group(self.group(), Signal::KILL).expect("it is not waited for yet");
        self.process.wait().expect("it ends");
        while self.line().is_some() {}
        std::mem::take(&mut self.printed)
    }

    /// Kills the newest process of a role. Returns false if the program is ending, or if that
    /// process was killed before.
    pub fn kill_one(&mut self, role: &str) -> bool {
        // A stopped program waits for none of its processes, so their numbers remain theirs.
        kill_process_group(self.group(), Signal::STOP).expect("it is not waited for yet");
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(50)) {
            self.printed.push(line);
        }
        let id = |line: &String| line.strip_prefix("process ")?.strip_suffix(role)?.parse().ok();
        let newest: Option<i32> = self.printed.iter().rev().find_map(id);
        let is_ending = self.printed.iter().any(|line| line.ends_with(" rows"));
        let id = newest.filter(|id| !is_ending && !self.killed.contains(id));
        if let Some(id) = id {
            self.killed.push(id);
            let process = Pid::from_raw(id).expect("a process id");
            kill_process(process, Signal::KILL).expect("the program has not waited for it");
        }
        kill_process_group(self.group(), Signal::CONT).expect("it is not waited for yet");
        id.is_some()
    }

    /// Reads to the end, expects success, and returns what was printed.
    pub fn end(mut self) -> Vec<String> {
        while self.line().is_some() {}
        assert!(self.process.wait().expect("it ends").success(), "{:#?}", self.printed);
        std::mem::take(&mut self.printed)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After a failed test; otherwise the program has ended, and nothing has its number.
        if self.is_running() {
            let _ = kill_process_group(self.group(), Signal::KILL);
            let _ = self.process.wait();
        }
    }
}
