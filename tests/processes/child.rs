//! The parent's side of a child: start, command, stop, kill.

use crate::reports;
use crate::settings::HANG;
use crate::worker::{ROLE, Role};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The result of a check.
pub type Checked<T> = Result<T, String>;

/// A running child.
#[derive(Debug)]
pub struct Child {
    /// The number of the child in the directory.
    pub number: u64,
    process: std::process::Child,
    /// The child itself, where `process` is only its launcher.
    inner: Option<Pid>,
    commands: ChildStdin,
    lines: Receiver<String>,
    opened: bool,
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Child {
    /// Starts a child; in a separate pid namespace if requested.
    pub fn start(role: &Role, namespace: bool) -> Checked<Self> {
        let file = std::env::current_exe().map_err(text)?;
        let said = role.said();
        let mut command = if namespace {
            let mut command = Command::new("unshare");
            // The messages of `unshare` about the child's death are not failures of a child.
            command.args(["--pid", "--fork", "--kill-child", "sh", "-c", "exec \"$0\" 2>>\"$1\""]);
            command.arg(file).arg(said).stderr(Stdio::null());
            command
        } else {
            let said = OpenOptions::new().append(true).create(true).open(said).map_err(text)?;
            let mut command = Command::new(file);
            command.stderr(said);
            command
        };
        let mut process = command
            .env(ROLE, role.text())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a child: {error}"))?;
        let (Some(commands), Some(out)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a child without pipes".to_owned());
        };
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.try_for_each(|line| tell.send(line))
        });
        let number = role.child;
        let mut child = Self { number, process, inner: None, commands, lines, opened: false };
        if namespace {
            child.inner = Some(child.here()?);
        }
        Ok(child)
    }

    /// Returns the process id of the child.
    pub fn pid(&self) -> Pid {
        self.inner.unwrap_or_else(|| Pid::from_child(&self.process))
    }

    /// Returns whether the child is in a separate namespace.
    pub fn is_apart(&self) -> bool {
        self.inner.is_some()
    }

    /// Returns the child's next line.
    fn line(&mut self, about: &str) -> Checked<String> {
        let what = match self.lines.recv_timeout(HANG) {
            Ok(line) => return Ok(line),
            Err(RecvTimeoutError::Timeout) => "hangs",
            Err(RecvTimeoutError::Disconnected) => "has ended",
        };
        let threads = reports::threads(self.pid());
        Err(format!("child {} {what}, asked to {about}{threads}", self.number))
    }

    /// Waits until the child runs, and returns its process id as seen from outside.
    fn here(&mut self) -> Checked<Pid> {
        let line = self.line("start")?;
        let number = line.strip_prefix("here ").and_then(|number| number.parse().ok());
        number.and_then(Pid::from_raw).ok_or(format!("a child printed {line:?} when it started"))
    }

    /// Waits until the child has the filter open.
    pub fn opened(&mut self) -> Checked<()> {
        if self.opened {
            return Ok(());
        }
        if self.inner.is_none() {
            self.here()?;
        }
        let line = self.line("open the filter")?;
        self.opened = true;
        if line == "open" { Ok(()) } else { Err(format!("child {} printed {line}", self.number)) }
    }

    /// Sends a command without waiting for the answer.
    pub fn tell(&mut self, command: &str) -> Checked<()> {
        self.opened()?;
        // If the child has ended, the missing answer reveals that.
        let _ = writeln!(self.commands, "{command}");
        Ok(())
    }

    /// Waits for the answer to a command.
    pub fn told(&mut self, command: &str) -> Checked<String> {
        let line = self.line(command)?;
        match line.strip_prefix("failed: ") {
            Some(what) => Err(format!("child {}, asked to {command}: {what}", self.number)),
            None => Ok(line),
        }
    }

    /// Sends a command and waits for the answer.
    pub fn ask(&mut self, command: &str) -> Checked<String> {
        self.tell(command)?;
        self.told(command)
    }

    /// Lets the child close the filter, and waits for its end.
    pub fn close(mut self) -> Checked<()> {
        let answer = self.ask("close")?;
        let status = self.ended()?;
        if answer == "closed" && status.success() {
            Ok(())
        } else {
            Err(format!("child {} answered {answer:?} when it closed, {status}", self.number))
        }
    }

    fn ended(&mut self) -> Checked<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < HANG {
            if let Some(status) = self.process.try_wait().map_err(text)? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Err(format!("child {} does not end{}", self.number, reports::threads(self.pid())))
    }

    /// Kills the child. Fails if it had ended before.
    pub fn kill(self) -> Checked<()> {
        self.signal(Signal::KILL)?;
        self.killed()
    }

    /// Waits for the end of a child that was killed.
    pub fn killed(mut self) -> Checked<()> {
        let status = self.ended()?;
        // Its launcher has several exit codes for a bad end; a child that fails also prints an
        // error.
        if status.signal() == Some(9) || self.inner.is_some() && !status.success() {
            Ok(())
        } else {
            Err(format!("child {} ended without a kill, {status}", self.number))
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Checked<()> {
        match kill_process(self.pid(), signal) {
            // The caller waits for the child next and detects there if it had ended.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(format!("cannot send {signal:?} to child {}: {error}", self.number)),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // After an error; otherwise it has ended already, and its process id may belong to another
        // process.
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.signal(Signal::KILL);
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
