//! Several processes, one memory: a pool of workers removes the duplicates from one stream, one of them is
//! killed on the way, and in the end the books are balanced to the line.
//!
//! ```text
//! cargo run --release --example workers [FILE [WORKERS [DIR]]]
//! ```
//!
//! The stream is an access log, many days of it: the lines of `examples/requests.log` (or FILE) again for each day. The
//! question is whether a client, the first field of a line, was here on that day. The lines are dealt out to the
//! workers in turn, so the same client is at two of them at the same moment all the time. Each worker is a
//! process of its own (this program, started again) with its own handle of one filter in DIR. While it runs,
//! `ebbtide stat DIR` shows the handles, and any worker may be killed by hand as well.
//!
//! # What a killed worker takes with it
//!
//! An insert that has happened stays, whatever becomes of the process that made it. But between the insert and its
//! answer a worker can be killed. The parent gives all lines without an answer to the next worker; those whose insert
//! had happened come back as known, though nobody ever heard that they were new. So no line is accepted twice,
//! and a few may be accepted by nobody: *at most once*. Whoever would rather do a few twice than one never must take
//! every line that was sent again for new, whatever the filter says of it: *at least once*.
//!
//! How many answers were lost can be told afterwards. [`Since::LastAccepted`] inserts new keys only, so the filter's
//! count of inserts says how many keys were ever found new. Those that nobody heard of were lost; the distinct keys
//! that are missing even there are false positives.

#![forbid(unsafe_code)]

use ebbtide::{AgePartitioned, Checked, Filter, Options, Since};
use std::collections::HashSet;
use std::error::Error;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, thread};

/// Days of the stream.
const DAYS: usize = 100;

/// Lines that a worker gets at a time. All their answers can be lost, so this bounds the damage of a kill.
const BATCH: usize = 4_096;

/// The share of new lines that may be taken for known ones.
const FPR: f64 = 0.001;

/// What a worker answers to each line: a byte, for half of it cannot arrive.
const NEW: u8 = b'+';
const KNOWN: u8 = b'-';

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/requests.log");
    let file = arguments.next().map_or(log, PathBuf::from);
    if file == Path::new("--worker") {
        let dir = arguments.next().ok_or("--worker needs a directory")?;
        work(Path::new(&dir))?;
        return Ok(ExitCode::SUCCESS);
    }
    let workers =
        arguments.next().map_or_else(|| "4".into(), |count| count.to_string_lossy().into_owned());
    let workers = workers.parse::<NonZeroUsize>()?.get();
    let place = tempfile::tempdir()?;
    let dir = arguments.next().map_or_else(|| place.path().join("seen"), PathBuf::from);
    supervise(&stream(&file)?, workers, &dir)
}

/// The worker: opens the filter that others have open as well, and answers line by line.
fn work(dir: &Path) -> Result<()> {
    let seen: Filter<AgePartitioned> = Filter::open(dir, Options::new())?;
    let mut lines = BufReader::new(io::stdin().lock());
    let mut answers = BufWriter::new(io::stdout().lock());
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let key = line.strip_suffix(b"\n").unwrap_or(&line);
        // Question and insert are one step, among all processes: of two workers with the same key one is told `New`.
        let answer = match seen.call().since(Since::LastAccepted).check_and_insert(key)? {
            Checked::New => NEW,
            Checked::Present | Checked::TooLate => KNOWN,
        };
        answers.write_all(&[answer])?;
        line.clear();
        if lines.buffer().is_empty() {
            answers.flush()?;
        }
    }
    answers.flush()?;
    Ok(seen.close()?)
}

/// The keys of all days, in order.
fn stream(file: &Path) -> Result<Vec<String>> {
    let log = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let client = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let clients: Vec<_> = log.lines().map(client).collect();
    let day = |day| clients.iter().map(move |client| format!("{day} {client}"));
    Ok((0..DAYS).flat_map(day).collect())
}

/// The parent: makes the filter, has the stream worked off, and balances the books.
fn supervise(stream: &[String], workers: usize, dir: &Path) -> Result<ExitCode> {
    // The window holds them all, so that nothing is forgotten and this set is the exact answer.
    let distinct: HashSet<&str> = stream.iter().map(String::as_str).collect();
    let window = AgePartitioned::last(distinct.len().max(1) as u64).fpr(FPR);
    Filter::create(dir, window, Options::new())?.close()?;
    println!("{workers} workers on one filter in {}", dir.display());

    let lines = stream.iter().map(String::as_str);
    let shares: Vec<Vec<_>> =
        (0..workers).map(|first| lines.clone().skip(first).step_by(workers).collect()).collect();
    let heard = thread::scope(|scope| {
        let mut kill = Some(moment(stream.len() / workers / BATCH));
        let mut supervisors = Vec::new();
        for share in &shares {
            let kill = kill.take();
            supervisors.push(scope.spawn(move || look_after(dir, share, kill)));
        }
        let ends = supervisors.into_iter().map(|thread| thread.join().expect("no panic"));
        ends.collect::<Result<Vec<_>>>()
    })?;
    println!("{:>9} lines", stream.len());
    balance(&distinct, dir, &heard)
}

/// When to kill a worker: so long after it was handed the batch of this number. A batch in the middle third; most likely
/// the worker is busy with it.
fn moment(batches: usize) -> (usize, Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let batch = batches / 3 + now as usize / 1_000 % (batches / 3).max(1);
    (batch, Duration::from_nanos(u64::from(now % 300_000)))
}

/// What the parent heard of one share.
#[derive(Default)]
struct Heard<'a> {
    accepted: Vec<&'a str>,
    /// Lines that were sent again: it is not known what the killed worker had done with them.
    in_doubt: Vec<&'a str>,
}

/// Has one share worked off, by as many workers as it takes: one that was killed, by whomever, is replaced.
fn look_after<'a>(
    dir: &Path,
    share: &[&'a str],
    kill: Option<(usize, Duration)>,
) -> Result<Heard<'a>> {
    let mut heard = Heard::default();
    let mut worker = Worker::start(dir)?;
    for (number, batch) in share.chunks(BATCH).enumerate() {
        worker.tell(batch)?;
        if let Some((_, pause)) = kill.filter(|(batch, _)| *batch == number) {
            thread::sleep(pause);
            worker.process.kill()?;
            println!("killed a worker {pause:?} after it was handed batch {number}");
        }
        let mut rest = batch;
        loop {
            let answers = worker.hear(rest.len())?;
            let (answered, unanswered) = rest.split_at(answers.len());
            let new = answered.iter().zip(answers).filter(|(_, answer)| *answer == NEW);
            heard.accepted.extend(new.map(|(line, _)| *line));
            rest = unanswered;
            if rest.is_empty() {
                break;
            }
            worker.end()?;
            heard.in_doubt.extend(rest);
            worker = Worker::start(dir)?;
            worker.tell(rest)?;
        }
    }
    worker.end()?;
    Ok(heard)
}

/// A worker, seen from the parent.
struct Worker {
    process: Child,
    lines: ChildStdin,
    answers: ChildStdout,
}

impl Worker {
    fn start(dir: &Path) -> Result<Self> {
        let (mut command, pipe) = (Command::new(env::current_exe()?), Stdio::piped);
        let mut process = command.arg("--worker").arg(dir).stdin(pipe()).stdout(pipe()).spawn()?;
        let lines = process.stdin.take().ok_or("no pipe to the worker")?;
        let answers = process.stdout.take().ok_or("no pipe from the worker")?;
        Ok(Self { process, lines, answers })
    }

    /// Hands over lines. A worker that is dead does not take them: that shows when answers are missing.
    fn tell(&mut self, lines: &[&str]) -> Result<()> {
        match self.lines.write_all(format!("{}\n", lines.join("\n")).as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The answers to `count` lines, or fewer if the worker dies.
    fn hear(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut answers = Vec::with_capacity(count);
        self.answers.by_ref().take(count as u64).read_to_end(&mut answers)?;
        Ok(answers)
    }

    /// Ends a worker that has no more lines to come. To have been killed is no fault of its own.
    fn end(mut self) -> Result<()> {
        drop(self.lines);
        let status = self.process.wait()?;
        let was_killed = status.signal() == Some(9);
        let fault = || format!("a worker ended with {status}").into();
        (status.success() || was_killed).then_some(()).ok_or_else(fault)
    }
}

/// Compares what was heard and what the filter holds with the exact answer.
fn balance(distinct: &HashSet<&str>, dir: &Path, heard: &[Heard<'_>]) -> Result<ExitCode> {
    let seen: Filter<AgePartitioned> = Filter::open(dir, Options::new())?;
    let answers: usize = heard.iter().map(|share| share.accepted.len()).sum();
    let accepted: HashSet<&str> = heard.iter().flat_map(|share| share.accepted.clone()).collect();
    let in_doubt: HashSet<&str> = heard.iter().flat_map(|share| share.in_doubt.clone()).collect();
    let inserts = usize::try_from(seen.stat()?.inserts)?;

    let twice = answers - accepted.len();
    let lost = inserts.checked_sub(answers).ok_or("more keys were accepted than inserted")?;
    let suppressed = distinct.len().checked_sub(inserts).ok_or("a key was inserted twice")?;
    // Who was never accepted though no answer about it can be lost.
    let silent = distinct.difference(&accepted).filter(|key| !in_doubt.contains(*key)).count();
    let keys: Vec<_> = distinct.iter().collect();
    let forgotten = seen.contains_all(&keys)?.iter().filter(|present| !**present).count();
    seen.close()?;

    println!("{:>9} distinct, exactly", distinct.len());
    println!("{answers:>9} accepted as new");
    println!("{lost:>9} answers lost with the killed worker; {} were in doubt", in_doubt.len());
    println!("{suppressed:>9} false positives; one in {} is allowed", 1.0 / FPR);
    println!("{twice:>9} accepted twice");
    println!("{forgotten:>9} forgotten");

    // The number to expect, and five standard deviations: more by chance once in millions of runs.
    let expected = distinct.len() as f64 * FPR;
    let explained = suppressed as f64 <= expected + 5.0 * expected.sqrt() + 5.0;
    let balanced = twice == 0 && forgotten == 0 && lost <= in_doubt.len() && silent <= suppressed;
    Ok(if balanced && explained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
