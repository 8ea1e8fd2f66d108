//! Runs the command and collects its results.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// The results of a finished command.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Outcome {
    /// Returns the output as lines, without newlines.
    pub fn lines(&self) -> Vec<&[u8]> {
        let text = self.stdout.strip_suffix(b"\n").unwrap_or(&self.stdout);
        if self.stdout.is_empty() {
            Vec::new()
        } else {
            text.split(|byte| *byte == b'\n').collect()
        }
    }

    /// Returns the output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("output is not UTF-8")
    }

    /// Returns the output as one JSON value per line.
    pub fn json(&self) -> Vec<serde_json::Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

/// Returns whether the tests were started with a stop signal ignored, as `nohup` does: the command
/// would keep ignoring it.
fn signals_are_ignored() -> bool {
    // One bit for each signal, the lowest for number 1.
    let ending = [1, 2, 15].map(|signal| 1_u64 << (signal - 1)).iter().sum::<u64>();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & ending != 0)
}

/// Returns the command, not yet started, with all three streams piped.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = if signals_are_ignored() {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_ebbtide")]);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_ebbtide"))
    };
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the command.
pub fn start(arguments: &[&str]) -> Child {
    command(arguments).spawn().expect("cannot start ebbtide")
}

/// Runs the command with this input.
pub fn run(arguments: &[&str], input: &[u8]) -> Outcome {
    let mut child = start(arguments);
    let mut stdin = child.stdin.take().expect("stdin");
    let input = input.to_vec();
    // A command that fails early does not read its input: ignore a broken pipe.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("wait");
    writer.join().expect("writer");
    Outcome {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs the command and expects success, without output on standard error.
pub fn ok(arguments: &[&str], input: &[u8]) -> Outcome {
    let outcome = run(arguments, input);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    outcome
}

/// Runs the command, expects exit code 2 with one sentence, and returns the sentence.
pub fn refused(arguments: &[&str], input: &[u8]) -> String {
    let outcome = run(arguments, input);
    assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
    let sentence = outcome.stderr.strip_suffix('\n').expect("a line");
    assert!(sentence.starts_with("ebbtide: "), "{sentence:?}");
    assert!(!sentence.contains('\n'), "more than one line: {sentence:?}");
    sentence.to_owned()
}

/// Sends a signal to a child.
pub fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.expect("kill runs").success());
}

/// A running command with pipes for keys and answers.
pub struct Talk {
    pub child: Child,
    pub stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Talk {
    pub fn new(arguments: &[&str]) -> Self {
        Self::of(&mut command(arguments))
    }

    /// Starts any program.
    pub fn of(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start");
        let stdin = child.stdin.take().expect("stdin");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (sender, answers) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok_and(|count| count > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, answers }
    }

    pub fn say(&mut self, text: &str) {
        self.stdin.write_all(text.as_bytes()).expect("write");
    }

    /// Returns the next line. Fails after a minute without one.
    pub fn hear(&mut self) -> String {
        self.answers.recv_timeout(Duration::from_secs(60)).expect("no answer in a minute")
    }

    /// Sends a line and returns the answer, without the newline.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(&format!("{line}\n"));
        self.hear().trim_end().to_owned()
    }

    /// Ends the input, expects success, and returns the remaining lines.
    pub fn finish(mut self) -> Vec<String> {
        drop(self.stdin);
        assert!(self.child.wait().expect("wait").success());
        self.answers.iter().collect()
    }

    /// Returns all further lines of a command that has ended.
    pub fn rest(self) -> String {
        self.answers.iter().collect()
    }

    /// As [`Talk::finish`], and expects no more lines.
    pub fn end(self) {
        assert_eq!(self.finish(), [""; 0]);
    }

    /// Kills the command and waits until it has ended.
    pub fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

/// A directory for filters, removed at the end.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        Self(TempDir::new().expect("temporary directory"))
    }

    /// Returns the path of an entry in it.
    pub fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Creates a file in it and returns its path.
    pub fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.at(name);
        std::fs::write(&path, bytes).expect("write");
        path
    }
}

/// Returns the path of a file of the project.
pub fn project_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Says that a test is left out here, and why: on a line of its own, also of a test that passes, of
/// which the harness shows only what is not printed by `println!`.
pub fn skipped(why: impl Display) {
    let _ = io::stdout().write_all(format!("\nskipped: {why}\n").as_bytes());
}

/// Returns the path of a real stream; if it is missing, says that the test is left out.
pub fn real_stream(name: &str) -> Option<PathBuf> {
    let path = project_file("../shared/data").join(name);
    if path.exists() {
        return Some(path);
    }
    skipped(format_args!("{} is not there", path.display()));
    None
}

/// Returns keys in a skewed order that is always the same: half of them are from the 50 most
/// frequent ones.
pub fn stream(count: usize, distinct: u64) -> Vec<String> {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut draw = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % bound
    };
    (0..count)
        .map(|_| {
            let bound = if draw(2) == 0 { 50 } else { distinct };
            format!("key-{}", draw(bound))
        })
        .collect()
}

/// Returns the keys as input, one per line.
pub fn input(keys: &[String]) -> Vec<u8> {
    keys.iter().flat_map(|key| [key.as_bytes(), b"\n"].concat()).collect()
}

/// Copies a directory with all that belongs to its files.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success());
}
