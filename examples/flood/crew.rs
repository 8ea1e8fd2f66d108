//! The processes of a run: two writers and a reader, and their supervisor.
//!
//! The supervisor passes each minute to the writers, waits for both, and has the reader estimate
//! the rates. A writer that dies is replaced. Its successor continues with the request after the
//! last one that is in the filter, which [`resume`] determines from the filter alone: its number of
//! inserts gives the minute, and the records of its log, each with the time of its request, show
//! how far either writer was. A run whose processes were all killed begins in the same way.
//!
//! The requests of one minute may be inserted in any order: all of them belong to the same epoch,
//! and additions commute. Therefore the tables do not depend on the speed of the writers, nor on
//! kills.

use super::board::{Bounds, Exact, Rate, Summary};
use super::requests::{MINUTE, Minute, Request};
use super::{Result, work};
use ebbtide::{Decaying, Filter, inspect};
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const WRITERS: usize = 2;

/// How long a new run waits for the processes of a killed one, which end with their input.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many requests of a minute each writer has inserted.
type Done = [usize; WRITERS];

/// Returns the requests of a minute that one writer inserts.
fn share(minute: &[Request], writer: usize) -> impl Iterator<Item = &Request> {
    minute.iter().skip(writer).step_by(WRITERS)
}

/// A process of the crew.
struct Worker {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(role: &str, dir: &Path) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(role).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let requests = process.stdin.take().ok_or("no pipe to the process")?;
        let answers = BufReader::new(process.stdout.take().ok_or("no pipe from the process")?);
        println!("process {}: {}", process.id(), role.trim_start_matches('-'));
        Ok(Self { process, requests, answers })
    }

    /// Sends a request, and returns the answer; `None` if the process has died.
    fn ask(&mut self, request: &str) -> Result<Option<String>> {
        match self.requests.write_all(request.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(None),
            sent => sent?,
        }
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.strip_suffix('\n').map(str::to_owned))
    }

    /// Waits for the end of a process that receives no more requests. One that was killed is no
    /// error.
    fn end(mut self) -> Result<()> {
        drop(self.requests);
        let status = self.process.wait()?;
        let fault = || format!("a process ended with {status}").into();
        (status.success() || status.signal().is_some()).then_some(()).ok_or_else(fault)
    }
}

/// All processes, and the sources that they watch.
struct Crew {
    rates: PathBuf,
    /// The file with the names of the watched sources.
    names: PathBuf,
    writers: [Option<Worker>; WRITERS],
    reader: Option<Worker>,
    watched: BTreeSet<String>,
}

/// Processes the minutes that are not in the filter yet, and prints a table of each.
pub fn supervise(dir: &Path, minutes: &[Minute]) -> Result<()> {
    let (rates, names) = (dir.join("rates"), dir.join("watched"));
    fs::create_dir_all(dir)?;
    let filter = Filter::open_or_create(&rates, work::spec(), work::options())?;
    let bounds = Bounds::new(&filter.parameters())?;
    filter.close()?;
    let (first, done) = resume(&rates, minutes, 0)?;
    let watched = watched_in(first, &fs::read_to_string(&names).unwrap_or_default());
    let mut crew = Crew { rates, names, writers: [None, None], reader: None, watched };

    let (mut exact, mut summary) = (Exact::default(), Summary::default());
    println!("{first} of {} minutes are complete", minutes.len());
    for (number, minute) in minutes.iter().enumerate() {
        exact.add(minute);
        if number >= first {
            crew.insert(minutes, number, if number == first { done } else { [0; WRITERS] })?;
            summary.print(minute, &exact, &bounds, &crew.rates(number, minute)?);
        }
    }
    summary.end();
    let workers = crew.writers.into_iter().flatten().chain(crew.reader);
    workers.into_iter().try_for_each(Worker::end)
}

impl Crew {
    /// Has the writers insert a minute, of which they have done a part.
    fn insert(&mut self, minutes: &[Minute], number: usize, mut done: Done) -> Result<()> {
        loop {
            for writer in &mut self.writers {
                if writer.is_none() {
                    *writer = Some(Worker::start("--writer", &self.rates)?);
                }
            }
            let answers = self.share_out(&minutes[number], done)?;
            for found in answers.iter().flatten() {
                self.watched.extend(found.split_whitespace().map(str::to_owned));
            }
            if answers.iter().all(Option::is_some) {
                return Ok(());
            }
            for (writer, answer) in self.writers.iter_mut().zip(&answers) {
                if answer.is_none() {
                    writer.take().map_or(Ok(()), Worker::end)?;
                }
            }
            let living = self.writers.iter().flatten().count();
            let (minute, found) = resume(&self.rates, minutes, living)?;
            // The minute before, if nothing of this one has been inserted.
            done = if minute == number { found } else { [0; WRITERS] };
            println!("a writer was killed, after {} requests of the minute", total(done));
        }
    }

    /// Sends the shares of a minute to all writers at once, and waits for their answers.
    fn share_out(&mut self, minute: &[Request], done: Done) -> Result<[Option<String>; WRITERS]> {
        let mut answers = [const { None }; WRITERS];
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, writer) in self.writers.iter_mut().enumerate() {
                let count = share(minute, number).count();
                let mut request = format!("share {count} {}\n", done[number]);
                for Request { time, source } in share(minute, number) {
                    let _ = writeln!(request, "{time} {source}");
                }
                threads.push(scope.spawn(move || match writer {
                    Some(writer) => writer.ask(&request),
                    None => Ok(None),
                }));
            }
            for (answer, thread) in answers.iter_mut().zip(threads) {
                *answer = thread.join().map_err(|_| "a thread of the supervisor panicked")??;
            }
            Ok(answers)
        })
    }

    /// Returns the rates of all watched sources at the end of a minute, and stops watching those
    /// that have become slow.
    fn rates(&mut self, number: usize, minute: &[Request]) -> Result<Vec<(String, Rate)>> {
        let end = (minute[0].time / MINUTE + 1) * MINUTE - 1;
        let mut request = format!("rates {} {end}\n", self.watched.len());
        self.watched.iter().for_each(|source| request.extend([source, "\n"]));
        let answer = loop {
            let reader = match &mut self.reader {
                Some(reader) => reader,
                none => none.insert(Worker::start("--reader", &self.rates)?),
            };
            if let Some(answer) = reader.ask(&request)? {
                break answer;
            }
            self.reader.take().map_or(Ok(()), Worker::end)?;
            println!("the reader was killed");
        };
        let rates: Option<Vec<Rate>> = answer.split_whitespace().map(Rate::parse).collect();
        let rates = rates.filter(|rates| rates.len() == self.watched.len());
        let rates = rates.ok_or("the reader's answer has not a rate for each source")?;
        let rates: Vec<_> = std::mem::take(&mut self.watched).into_iter().zip(rates).collect();
        let fast = rates.iter().filter(|(_, rate)| rate.at_least || rate.count >= super::WATCHED);
        self.watched = fast.map(|(source, _)| source.clone()).collect();
        self.save(number, &rates)?;
        Ok(rates)
    }

    /// Stores the names of the watched sources, for a run that continues this one: the number of
    /// the minute, and of its sources first those that are watched on.
    fn save(&self, number: usize, rates: &[(String, Rate)]) -> Result<()> {
        let mut names = format!("{number} {}\n", self.watched.len());
        let slow = rates.iter().map(|(name, _)| name).filter(|name| !self.watched.contains(*name));
        names.extend(self.watched.iter().chain(slow).flat_map(|name| [name.as_str(), "\n"]));
        let new = self.names.with_extension("new");
        fs::write(&new, names)?;
        Ok(fs::rename(new, &self.names)?)
    }
}

/// Returns the sources to watch in a minute, from the names stored at the end of a minute. If it is
/// the same one, because nothing of the next is in the filter, its table is printed again and has
/// those, too, that have become slow in it.
fn watched_in(number: usize, stored: &str) -> BTreeSet<String> {
    let mut lines = stored.lines();
    let head = lines.next().and_then(|head| head.split_once(' '));
    let fast = head.and_then(|(minute, fast)| Some((minute.parse().ok()?, fast.parse().ok()?)));
    let (minute, fast): (usize, usize) = fast.unwrap_or((number, usize::MAX));
    lines.take(if minute == number { usize::MAX } else { fast }).map(str::to_owned).collect()
}

fn total(done: Done) -> usize {
    done.iter().sum()
}

/// Returns the minute in which the filter's requests end, and how many of it each writer has
/// inserted. `living` is the number of processes that have the filter open and do nothing.
fn resume(dir: &Path, minutes: &[Minute], living: usize) -> Result<(usize, Done)> {
    let filter: Filter<Decaying> = Filter::open(dir, work::options())?;
    // Writers of a killed supervisor end when they have read what it sent.
    let start = Instant::now();
    while filter.stat()?.handles as usize > living + 1 {
        if start.elapsed() > PATIENCE {
            let dir = dir.display();
            return Err(format!("other processes write to {dir}: end them first").into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    // A digest takes all stripes, so what a killed process left is repaired and counted.
    let mut left = usize::try_from(filter.digest()?.inserts)?;
    let mut number = 0;
    while minutes.get(number).is_some_and(|minute| left > minute.len()) {
        left -= minutes[number].len();
        number += 1;
    }
    let minute =
        minutes.get(number).ok_or("DIR has more requests than FILE: pass the same file")?;
    let whole: Done = std::array::from_fn(|writer| share(minute, writer).count());
    if left == 0 || left == minute.len() {
        return Ok((number, if left == 0 { [0; WRITERS] } else { whole }));
    }
    let mut times = HashSet::new();
    inspect::wal(dir, |entry| {
        if entry.operation == "insert" {
            times.insert(entry.time.as_unix_micros());
        }
        Ok(())
    })?;
    let done = split(minute, &times, left);
    filter.close()?;
    let unclear = || format!("the log does not show which of {left} requests are inserted").into();
    done.map(|done| (number, done)).ok_or_else(unclear)
}

/// Returns how many requests of a minute each writer has inserted: `left` in all, among them those
/// at these times. Each writer inserts in order. Records that a checkpoint has made superfluous
/// may be missing from the log, the oldest first.
fn split(minute: &[Request], times: &HashSet<u64>, left: usize) -> Option<Done> {
    let found: [Option<usize>; WRITERS] = std::array::from_fn(|writer| {
        let shared: Vec<_> = share(minute, writer).collect();
        shared.iter().rposition(|request| times.contains(&request.time)).map(|last| last + 1)
    });
    let done = match found {
        [Some(one), None] => [one, left.checked_sub(one)?],
        [None, Some(other)] => [left.checked_sub(other)?, other],
        [one, other] => [one?, other?],
    };
    let fits = (0..WRITERS).all(|writer| done[writer] <= share(minute, writer).count());
    (fits && total(done) == left).then_some(done)
}
