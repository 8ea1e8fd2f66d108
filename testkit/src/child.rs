//! Child processes of a test: this test binary, with a role in its environment.
//!
//! A module whose tests start children has a test `the_child_plays_its_role_when_it_is_one`. It
//! runs the [`role`] of the process, if there is one. A [`Child`] executes commands, line by line.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The environment variable with the role of a child.
const ROLE: &str = "EBBTIDE_ROLE";
/// The test of a module that a child runs.
const TEST: &str = "the_child_plays_its_role_when_it_is_one";
/// Marks the child's answers in the output of the test harness.
const MARK: &str = "answer: ";
/// A longer wait means that something hangs, even on a busy machine.
pub const HANG: Duration = Duration::from_secs(60);

/// Returns the file of this test binary.
pub fn program() -> PathBuf {
    std::env::current_exe().expect("this program's file")
}

/// Makes a command that runs this test binary run one test of a module only, in a role; `module` is
/// the caller's `module_path!()`.
pub fn give<'a>(command: &'a mut Command, module: &str, role: &str) -> &'a mut Command {
    give_to(command, module, TEST, role)
}

/// As [`give`], for a test of another name.
pub fn give_to<'a>(
    command: &'a mut Command,
    module: &str,
    test: &str,
    role: &str,
) -> &'a mut Command {
    // The harness omits the name of the binary.
    let test =
        module.split_once("::").map_or(test.to_owned(), |(_, path)| format!("{path}::{test}"));
    command.args(["--exact", &test, "--nocapture", "--test-threads=1"]).env(ROLE, role)
}

/// Returns the role of this process, if it is a child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A child that reads commands.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Child {
    /// Starts this binary in a role of a module.
    pub fn start(module: &str, role: &str) -> Self {
        Self::run(Command::new(program()), module, role)
    }

    /// Starts a command that runs this binary.
    pub fn run(mut command: Command, module: &str, role: &str) -> Self {
        give(&mut command, module, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a child");
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().expect("a pipe"));
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The harness does not end a line before the first answer.
                if let Some((_, answer)) = line.split_once(MARK)
                    && tell.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { process, stdin, answers }
    }

    /// Sends a command without waiting for the answer.
    pub fn tell(&mut self, command: &str) {
        let stdin = self.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{command}").expect("the child reads");
    }

    /// Waits for the next answer, to this command.
    pub fn answer(&mut self, command: &str) -> String {
        self.answers.recv_timeout(HANG).expect(command)
    }

    /// Sends a command and returns the answer. Fails after a minute without one.
    pub fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer(command)
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it lives");
    }

    /// Kills the child and waits until it has ended.
    pub fn kill(mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("it ends");
    }

    /// Lets the child end, and expects success.
    pub fn end(mut self) {
        self.stdin.take();
        assert!(self.process.wait().expect("it ends").success());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // After a failed test; otherwise the child has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers every line of the input.
pub fn play(mut answer: impl FnMut(&str) -> String) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        println!("{MARK}{}", answer(&line));
    }
}

/// Forks this process, and runs `work` in the child. Returns the child's exit code, 0 unless it
/// panicked; `None` if it had to be killed, because it did not end within the time.
///
/// # Panics
/// If the system refuses.
#[expect(unsafe_code, reason = "a child without another program is what is to be tested")]
pub fn forked(work: impl FnOnce(), time: Duration) -> Option<i32> {
    // SAFETY: of the locks of other threads the child needs the allocator's only, which the C
    // library keeps consistent in both processes; the child leaves by `_exit`.
    let pid = match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: it only ends the process.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => Pid::from_raw(pid).filter(|_| pid > 0).expect("a child"),
    };
    let begun = Instant::now();
    while begun.elapsed() < time {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG).expect("a child") {
            return status.exit_status();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(pid, Signal::KILL).expect("it is a child");
    waitpid(Some(pid), WaitOptions::empty()).expect("a child");
    None
}
