//! A child process that executes commands, line by line: this test binary, with a role in its
//! environment.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const ROLE: &str = "EBBTIDE_TALKING_CHILD";
/// The test that a child runs; it calls [`role`] and does nothing without one.
const TEST: &str = "the_child_plays_its_role_when_it_is_one";
/// Marks the child's answers in the output of the test harness.
const MARK: &str = "answer: ";

/// A child that reads commands.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Child {
    /// Starts this binary in a role.
    pub fn start(role: &str) -> Self {
        Self::run(Command::new(std::env::current_exe().expect("a name")), role)
    }

    /// Starts a command that runs this binary.
    pub fn run(mut command: Command, role: &str) -> Self {
        command.args(["--exact", TEST, "--nocapture"]).env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
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

    /// Sends a command and returns the answer. Fails after a minute without one.
    pub fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answers.recv_timeout(Duration::from_secs(60)).expect(command)
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

/// Returns the role of this process, if it is a child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Answers every line of the input.
pub fn play(mut answer: impl FnMut(&str) -> String) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        println!("{MARK}{}", answer(&line));
    }
}
