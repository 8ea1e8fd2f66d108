//! `demo`: a tour in a temporary directory. It runs what it shows, by this very program, so its
//! output is what a reader gets who types the same.

use super::temporary::Temporary;
use crate::args::Demo;
use crate::failure::{Failure, Result};
use crate::output::Output;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The lines of the stream.
const LINES: u64 = 10_000;
/// The lines that the killed run gets.
const BEFORE: u64 = 6_000;
/// The messages among which the second delivery of a message comes.
const NEAR: u64 = 400;
/// The longest time that the killed run may take for its lines.
const LIMIT: Duration = Duration::from_secs(60);
/// The time to read a character of text, on a terminal.
const PER_CHARACTER: Duration = Duration::from_millis(45);

/// Shows the tour.
pub fn demo(arguments: &Demo) -> Result<ExitCode> {
    let dir = Temporary::new("ebbtide-demo-")?;
    let mut tour = Tour::new(dir, io::stdout().is_terminal() && !arguments.fast)?;
    tour.deduplicate()?;
    tour.kill_and_resume()?;
    tour.explain()?;
    tour.say(
        "That was the tour. Its directory is removed. `ebbtide dedup --help` has more about the \
         main job, and `ebbtide --help` lists the other commands.",
    )?;
    Ok(ExitCode::SUCCESS)
}

fn failed(error: &io::Error) -> Failure {
    Failure::Error(format!("the tour cannot continue: {error}"))
}

/// The tour: a directory of its own, and the path by which its commands find this program.
struct Tour {
    dir: Temporary,
    path: String,
    output: Output,
    pauses: bool,
}

impl Tour {
    fn new(dir: Temporary, pauses: bool) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let programs = dir.path().join("bin");
        let made = fs::create_dir(&programs)
            .and_then(|()| symlink(program, programs.join("ebbtide")))
            .and_then(|()| fs::write(dir.path().join("messages.jsonl"), messages()));
        made.map_err(|error| failed(&error))?;
        let others = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{others}", programs.display());
        Ok(Self { dir, path, output: Output::new()?, pauses })
    }

    fn deduplicate(&mut self) -> Result<()> {
        self.say(
            "A tour of ebbtide: about two minutes, in a temporary directory. A service gets \
             messages, and some of them are delivered a second time:",
        )?;
        self.run("head -n 3 messages.jsonl")?;
        self.say(
            "dedup prints each message whose id was not among those of the last 5,000 messages. \
             It stores no ids, but about three bytes for each:",
        )?;
        self.run(
            "ebbtide dedup --last 5000 --json-field id --hash-seed 1 --stats messages.jsonl \
             > once.jsonl",
        )
    }

    fn kill_and_resume(&mut self) -> Result<()> {
        self.say(
            "No second delivery within the window is printed. Of the new messages, one in 1,000 \
             may be suppressed too, a false positive (--fpr sets the rate). With --state the \
             memory outlives the run. Here a run gets 6,000 messages, waits for more, and is \
             killed:",
        )?;
        self.show(
            "(head -n 6000 messages.jsonl; cat) | ebbtide dedup --last 5000 --json-field id \
             --hash-seed 1 --state seen > first.jsonl &",
        )?;
        let mut child = self.start_first()?;
        let waited = self.wait_for_last_line(&mut child);
        self.show("kill -9 $!")?;
        child.kill().map_err(|error| failed(&error))?;
        let status = child.wait().map_err(|error| failed(&error))?;
        waited?;
        self.output.text(&format!("ended by signal {}", status.signal().unwrap_or(0)))?;
        self.say("The next run gets the rest, and continues with the same memory:")?;
        self.run(
            "tail -n +6001 messages.jsonl | ebbtide dedup --json-field id --state seen \
             > second.jsonl",
        )?;
        self.say("Both runs together have printed what one run printed, byte for byte:")?;
        self.run("cat first.jsonl second.jsonl | cmp - once.jsonl && echo the same")
    }

    fn explain(&mut self) -> Result<()> {
        self.say(
            "The memory is a filter. It answers whether an id is in the window, and how many \
             inserts ago it came, at least; - means that it is not there:",
        )?;
        self.run(&format!(
            "ebbtide age seen --with-keys --key {} --key {} --key unknown",
            id(LINES - 1),
            id(BEFORE - 1)
        ))?;
        self.say(
            "Why was a message suppressed? explain looks the id up in the log of the filter. \
             Here the second delivery came soon after the first:",
        )?;
        self.run(&format!("ebbtide explain seen {}", id(repeated())))?;
        self.say("And this id came too long ago, so that its message would be printed again:")?;
        self.run(&format!("ebbtide explain seen {}", id(0)))
    }

    /// Starts the run that will be killed. Its input stays open.
    fn start_first(&self) -> Result<Child> {
        let start = || {
            let mut child = Command::new(self.dir.path().join("bin/ebbtide"))
                .args(["dedup", "--last", "5000", "--json-field", "id", "--hash-seed", "1"])
                .args(["--state", "seen"])
                .current_dir(self.dir.path())
                .stdin(Stdio::piped())
                .stdout(File::create(self.first())?)
                .spawn()?;
            let lines: Vec<_> = messages().split_inclusive('\n').map(str::to_owned).collect();
            let first = lines[..BEFORE as usize].concat();
            if let Some(stdin) = &mut child.stdin {
                stdin.write_all(first.as_bytes())?;
            }
            Ok(child)
        };
        start().map_err(|error| failed(&error))
    }

    fn first(&self) -> PathBuf {
        self.dir.path().join("first.jsonl")
    }

    /// Waits until the run has printed the last line that it got, which is a new one.
    fn wait_for_last_line(&self, child: &mut Child) -> Result<()> {
        let began = Instant::now();
        let last = message(BEFORE - 1);
        while !ends_with(&self.first(), &last) {
            let has_ended = !matches!(child.try_wait(), Ok(None));
            if has_ended || began.elapsed() > LIMIT {
                return Err(failed(&io::Error::other("the run that is to be killed has failed")));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Prints a paragraph, and leaves time to read it.
    fn say(&mut self, text: &str) -> Result<()> {
        let mut line = String::new();
        let mut lines = Vec::new();
        for word in text.split(' ') {
            if line.len() + word.len() > 90 {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        lines.push(line);
        self.output.text(&format!("\n{}\n", lines.join("\n")))?;
        self.pause(text.len())
    }

    /// Prints a command.
    fn show(&mut self, command: &str) -> Result<()> {
        self.output.text(&format!("$ {command}"))?;
        self.pause(command.len())
    }

    /// Prints a command, runs it, and prints its output.
    fn run(&mut self, command: &str) -> Result<()> {
        self.show(command)?;
        let ran = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .current_dir(self.dir.path())
            .env("PATH", &self.path)
            .env_remove("EBBTIDE_DIR")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(&error))?;
        let printed = ran.stdout.strip_suffix(b"\n").unwrap_or(&ran.stdout);
        if !printed.is_empty() {
            self.output.line(printed, b'\n')?;
        }
        if !ran.status.success() {
            self.output.flush()?;
            return Err(failed(&io::Error::other(format!("`{command}` has failed"))));
        }
        self.pause(printed.len() / 2)
    }

    fn pause(&mut self, characters: usize) -> Result<()> {
        self.output.flush()?;
        if self.pauses {
            let count = u32::try_from(characters).unwrap_or(u32::MAX);
            sleep(PER_CHARACTER.saturating_mul(count));
        }
        Ok(())
    }
}

fn ends_with(path: &Path, line: &str) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.ends_with(line.as_bytes()))
}

/// Returns the number of the message of a line: usually a new one, sometimes the second delivery
/// of one of the last [`NEAR`].
fn number(line: u64) -> u64 {
    // A multiplicative hash: the same lines in every run.
    let draw = (line.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 40;
    if line <= NEAR || line + 1 == BEFORE || line + 1 == LINES || !draw.is_multiple_of(7) {
        return line;
    }
    let first = line - 1 - draw / 7 % NEAR;
    if number(first) == first { first } else { line }
}

/// Returns the last message that is delivered a second time.
fn repeated() -> u64 {
    let mut deliveries = (0..LINES).rev().map(|line| (line, number(line)));
    deliveries.find(|(line, number)| line != number).map_or(0, |(_, number)| number)
}

fn id(number: u64) -> String {
    format!("m-{:05}", 10_007 + number * 7 % 90_000)
}

fn message(line: u64) -> String {
    let number = number(line);
    format!("{{\"id\": \"{}\", \"text\": \"order {number}\"}}\n", id(number))
}

fn messages() -> String {
    (0..LINES).map(message).collect()
}
