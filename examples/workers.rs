//! Several processes share one filter: a pool of workers removes the duplicates from one stream,
//! one worker is killed on the way, and at the end every line is accounted for.
//!
//! ```text
//! cargo run --release --example workers [FILE [WORKERS [DIR]]]
//! ```
//!
//! The stream is an access log of many days: the lines of `examples/requests.log` (or FILE),
//! repeated for each day. The filter answers whether a client, the first field of a line, was seen
//! on that day. The workers receive the lines in turn, so two of them often process the same client
//! at the same moment. Each worker is a process (this program, started again) with its own handle
//! of one filter in DIR. During the run, `ebbtide stat DIR` shows the handles, and any worker may
//! be killed by hand as well.
//!
//! # What a killed worker loses
//!
//! An insert that has happened stays, even if its process dies. But a worker can be killed between
//! the insert and its answer. The parent sends all unanswered lines to the next worker. Lines whose
//! insert had happened are then answered as known, although their answer "new" was lost. So no line
//! is accepted twice, and a few lines may never be accepted: *at most once*. For *at least once*,
//! accept every line that was sent again as new, whatever the filter answers; a few lines may then
//! be accepted twice.
//!
//! The number of lost answers can be computed afterwards. [`Since::LastAccepted`] inserts new keys
//! only, so the filter's count of inserts equals the number of keys that were found new. The
//! difference to the answers received is the number of lost answers. The distinct keys missing even
//! from the inserts are false positives.

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

/// The number of days of the stream.
const DAYS: usize = 100;

/// The number of lines that a worker receives at a time. A kill can lose all their answers, so this
/// bounds its damage.
const BATCH: usize = 4_096;

/// The false-positive rate.
const FPR: f64 = 0.001;

/// The answer of a worker to a line: one byte, so it cannot arrive incomplete.
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

/// Runs a worker: opens the filter that other processes have open as well, and answers line by
/// line.
fn work(dir: &Path) -> Result<()> {
    let seen: Filter<AgePartitioned> = Filter::open(dir, Options::new())?;
    let mut lines = BufReader::new(io::stdin().lock());
    let mut answers = BufWriter::new(io::stdout().lock());
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let key = line.strip_suffix(b"\n").unwrap_or(&line);
        // Check and insert are one atomic step among all processes: of two workers with the same
        // key one receives `New`.
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

/// Returns the keys of all days, in order.
fn stream(file: &Path) -> Result<Vec<String>> {
    let log = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let client = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let clients: Vec<_> = log.lines().map(client).collect();
    let day = |day| clients.iter().map(move |client| format!("{day} {client}"));
    Ok((0..DAYS).flat_map(day).collect())
}

/// Runs the parent: creates the filter, has the stream processed, and accounts for every line.
fn supervise(stream: &[String], workers: usize, dir: &Path) -> Result<ExitCode> {
    // The window holds all keys, so that none expires and this set is the exact answer.
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

/// Returns when to kill a worker: this time after it was handed the batch of this number. The batch
/// is in the middle third; most likely the worker is processing it.
fn moment(batches: usize) -> (usize, Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let batch = batches / 3 + now as usize / 1_000 % (batches / 3).max(1);
    (batch, Duration::from_nanos(u64::from(now % 300_000)))
}

/// The answers that the parent received for one share.
#[derive(Default)]
struct Heard<'a> {
    accepted: Vec<&'a str>,
    /// Lines that were sent again: the parent cannot determine what the killed worker had done
    /// with them.
    in_doubt: Vec<&'a str>,
}

/// Has one share processed by as many workers as necessary: a killed worker, whatever killed it, is
/// replaced.
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

    /// Sends lines. A dead worker does not take them; the missing answers reveal that.
    fn tell(&mut self, lines: &[&str]) -> Result<()> {
        match self.lines.write_all(format!("{}\n", lines.join("\n")).as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns the answers to `count` lines, or fewer if the worker dies.
    fn hear(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut answers = Vec::with_capacity(count);
        self.answers.by_ref().take(count as u64).read_to_end(&mut answers)?;
        Ok(answers)
    }

    /// Ends a worker that receives no more lines. It is no fault if a signal has ended it.
    fn end(mut self) -> Result<()> {
        drop(self.lines);
        let status = self.process.wait()?;
        let was_killed = status.signal().is_some();
        let fault = || format!("a worker ended with {status}").into();
        (status.success() || was_killed).then_some(()).ok_or_else(fault)
    }
}

/// Compares the answers and the contents of the filter with the exact answer.
fn balance(distinct: &HashSet<&str>, dir: &Path, heard: &[Heard<'_>]) -> Result<ExitCode> {
    let seen: Filter<AgePartitioned> = Filter::open(dir, Options::new())?;
    let answers: usize = heard.iter().map(|share| share.accepted.len()).sum();
    let accepted: HashSet<&str> = heard.iter().flat_map(|share| share.accepted.clone()).collect();
    let in_doubt: HashSet<&str> = heard.iter().flat_map(|share| share.in_doubt.clone()).collect();
    let inserts = usize::try_from(seen.stat()?.inserts)?;

    let twice = answers - accepted.len();
    let lost = inserts.checked_sub(answers).ok_or("more keys were accepted than inserted")?;
    let suppressed = distinct.len().checked_sub(inserts).ok_or("a key was inserted twice")?;
    // Keys that were never accepted although no answer about them can be lost.
    let silent = distinct.difference(&accepted).filter(|key| !in_doubt.contains(*key)).count();
    let keys: Vec<_> = distinct.iter().collect();
    let forgotten = seen.contains_all(&keys)?.iter().filter(|present| !**present).count();
    seen.close()?;

    println!("{:>9} distinct, exactly", distinct.len());
    println!("{answers:>9} accepted as new");
    println!("{lost:>9} answers lost with the killed worker; {} were in doubt", in_doubt.len());
    println!("{suppressed:>9} false positives; one in {} is allowed", 1.0 / FPR);
    println!("{twice:>9} accepted twice");
    println!("{forgotten:>9} missing from the filter");

    // The expected number and five standard deviations: exceeded by chance once in millions of
    // runs.
    let expected = distinct.len() as f64 * FPR;
    let explained = suppressed as f64 <= expected + 5.0 * expected.sqrt() + 5.0;
    let balanced = twice == 0 && forgotten == 0 && lost <= in_doubt.len() && silent <= suppressed;
    Ok(if balanced && explained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
