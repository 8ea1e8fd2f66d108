//! Runs one peer on one stream once, in a separate process, so that its memory is its own and no
//! cache of another peer is warm.
//!
//! The parent ([`Order::run`]) starts the program again with a hidden command, which executes the
//! order ([`Order::obey`]) and prints its [`Sample`].

use crate::peers::{Awaited, Durability, Entry, FPR, GROUP, Key, Peer, Result, Setup};
use crate::resources::{allocated, resident};
use crate::stream::{distinct, unseen_keys};
use futures::executor::block_on;
use futures::future::join_all;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// The time after its checkpoint in which a peer may release unneeded resources.
const REST: Duration = Duration::from_secs(2);

/// The number of keys looked up again after the run, or for the first time.
const AGAIN: usize = 10_000;

/// The order of a process.
#[derive(Debug, Clone, clap::Args)]
pub struct Order {
    pub peer: String,
    /// The file that contains the keys of the stream, 16 bytes each.
    pub keys: PathBuf,
    /// The number of distinct keys.
    pub distinct: usize,
    pub durability: Durability,
    pub writers: usize,
    /// The time when writers that wait for syncs stop, if their keys last that long.
    pub seconds: u64,
    /// An empty directory for the peer.
    pub dir: PathBuf,
}

/// The result of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub operations: u64,
    /// From the first writer's start to the last one's end.
    pub nanoseconds: f64,
    /// Bytes of memory when the last operation had returned.
    pub memory: f64,
    /// Bytes of memory after a checkpoint.
    pub at_rest: f64,
    /// Bytes of disk after a checkpoint.
    pub disk: f64,
}

impl Sample {
    /// Returns elapsed nanoseconds per operation, over all writers.
    pub fn each(&self) -> f64 {
        self.nanoseconds / self.operations as f64
    }

    fn line(&self) -> String {
        let Self { operations, nanoseconds, memory, at_rest, disk } = self;
        format!("{operations} {nanoseconds} {memory} {at_rest} {disk}")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let operations = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse().ok();
        let (nanoseconds, memory) = (number()?, number()?);
        Some(Self { operations, nanoseconds, memory, at_rest: number()?, disk: number()? })
    }
}

/// The result of one writer.
struct Written {
    begun: Instant,
    ended: Instant,
    new: u64,
    /// The number of processed keys of its share.
    done: usize,
}

/// The result of all writers.
struct Run {
    nanoseconds: f64,
    new: u64,
    /// The number of processed keys of each writer's share.
    done: Vec<usize>,
}

/// A peer for which no key is new. A run on it allocates all the memory of a run, including
/// threads, except the peer's.
struct Nobody;

impl Peer for Nobody {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        Ok(u64::from(keys.is_empty()))
    }
}

impl Order {
    /// Executes the order in a separate process.
    pub fn run(&self) -> Result<Sample> {
        let words: [OsString; 8] = [
            "measure".into(),
            self.peer.clone().into(),
            self.keys.clone().into(),
            self.distinct.to_string().into(),
            self.durability.to_string().into(),
            self.writers.to_string().into(),
            self.seconds.to_string().into(),
            self.dir.clone().into(),
        ];
        // The running binary, even if it has been rebuilt since.
        let output =
            Command::new("/proc/self/exe").args(words).stderr(Stdio::inherit()).output()?;
        let line = String::from_utf8_lossy(&output.stdout);
        let sample = if output.status.success() { Sample::parse(&line) } else { None };
        sample.ok_or_else(|| format!("{} failed: {}", self.peer, output.status).into())
    }

    /// Executes the order in this process.
    pub fn obey(&self) -> Result<()> {
        let entry = Entry::named(&self.peer).ok_or("no peer of this name")?;
        // No other allocation is made here: freed memory would hide a part of the peer's.
        let bytes = fs::read(&self.keys)?;
        let (keys, _) = bytes.as_chunks();
        self.drive(&Nobody, keys)?;
        let own = std::process::id();
        let empty = resident(own)?;
        let (dir, durability, writers) = (&*self.dir, self.durability, self.writers);
        let mut peer = (entry.open)(&Setup { dir, durability, writers, keys: self.distinct })?;
        let process = peer.server().unwrap_or(own);
        let empty = if process == own { empty } else { resident(process)? } as f64;

        let run = self.drive(&*peer, keys)?;
        let memory = resident(process)? as f64 - empty;
        let operations = run.done.iter().sum::<usize>() as u64;
        let nanoseconds = run.nanoseconds;
        let mut sample = Sample { operations, nanoseconds, memory, at_rest: 0.0, disk: 0.0 };
        if self.durability == Durability::None {
            peer.checkpoint()?;
            thread::sleep(REST);
            sample.at_rest = resident(process)? as f64 - empty;
            sample.disk = allocated(&self.dir)? as f64;
        }
        self.check(entry, &*peer, keys, &run)?;
        println!("{}", sample.line());
        Ok(())
    }

    /// Returns the share of each writer.
    fn shares<'a>(&self, keys: &'a [Key]) -> impl Iterator<Item = &'a [Key]> + Clone {
        keys.chunks(keys.len().div_ceil(self.writers).max(1))
    }

    /// Runs all writers concurrently, and waits for them.
    fn drive(&self, peer: &dyn Peer, keys: &[Key]) -> Result<Run> {
        let shares = self.shares(keys);
        let start = Barrier::new(shares.clone().count());
        let start = &start;
        let writers: Vec<_> = match peer.tasks() {
            Some(peer) => self.drive_tasks(peer, shares.collect()),
            None => thread::scope(|scope| {
                let write = |share| scope.spawn(move || self.write(peer, share, start));
                let writers: Vec<_> = shares.map(write).collect();
                writers.into_iter().map(thread::ScopedJoinHandle::join).collect()
            }),
        };
        let mut run = Run { nanoseconds: 0.0, new: 0, done: Vec::new() };
        let mut span: Option<(Instant, Instant)> = None;
        for writer in writers {
            let writer = writer.map_err(|_| "a writer panicked")??;
            let (first, last) = span.unwrap_or((writer.begun, writer.ended));
            span = Some((first.min(writer.begun), last.max(writer.ended)));
            run.new += writer.new;
            run.done.push(writer.done);
        }
        run.nanoseconds = span.map_or(0.0, |(first, last)| (last - first).as_nanos() as f64);
        Ok(run)
    }

    /// Runs a task for each share, on two threads.
    fn drive_tasks(
        &self,
        peer: &dyn Awaited,
        shares: Vec<&[Key]>,
    ) -> Vec<thread::Result<Result<Written>>> {
        let halves = shares.chunks(shares.len().div_ceil(2).max(1));
        thread::scope(|scope| {
            let run = |shares: &[&[Key]]| {
                let tasks = shares.iter().map(|share| self.write_awaiting(peer, share));
                block_on(join_all(tasks))
            };
            let threads: Vec<_> = halves.map(|half| scope.spawn(move || run(half))).collect();
            let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
            joined
                .flat_map(|half| match half {
                    Ok(written) => written.into_iter().map(Ok).collect(),
                    Err(panic) => vec![Err(panic)],
                })
                .collect()
        })
    }

    /// Runs one writer that awaits each operation.
    async fn write_awaiting(&self, peer: &dyn Awaited, share: &[Key]) -> Result<Written> {
        let limit = Duration::from_secs(self.seconds);
        let begun = Instant::now();
        let (mut new, mut done) = (0, 0);
        for key in share {
            new += u64::from(peer.check_and_insert(key).await?);
            done += 1;
            if begun.elapsed() >= limit {
                break;
            }
        }
        Ok(Written { begun, ended: Instant::now(), new, done })
    }

    /// Runs one writer, after all have started.
    fn write(&self, peer: &dyn Peer, share: &[Key], start: &Barrier) -> Result<Written> {
        // The number of keys between checks of the clock.
        let (step, limit) = match self.durability {
            Durability::None => (GROUP, Duration::MAX),
            Durability::Always => (1, Duration::from_secs(self.seconds)),
        };
        start.wait();
        let begun = Instant::now();
        let (mut new, mut done) = (0, 0);
        for keys in share.chunks(step) {
            new += peer.check_and_insert(keys)?;
            done += keys.len();
            if begun.elapsed() >= limit {
                break;
            }
        }
        Ok(Written { begun, ended: Instant::now(), new, done })
    }

    /// Checks the answers: there must be as many new keys as distinct ones, and none may be new
    /// again. Filters may report some new keys as present and then do not insert them; even when
    /// they are full, no more than their rate allows.
    fn check(&self, entry: &Entry, peer: &dyn Peer, keys: &[Key], run: &Run) -> Result<()> {
        let shares = self.shares(keys).zip(&run.done);
        let done: Vec<Key> = shares.flat_map(|(share, &done)| &share[..done]).copied().collect();
        let (name, distinct) = (entry.name, distinct(&done) as u64);
        let allowed = if entry.filter { false_positives(distinct) } else { 0 };
        if run.new > distinct || run.new + allowed < distinct {
            let new = run.new;
            return Err(format!("{name}: {new} of {distinct} keys were reported as new").into());
        }
        let again = peer.check_and_insert(&done[..done.len().min(AGAIN)])?;
        if again > allowed {
            return Err(format!("{name}: {again} keys were new a second time").into());
        }
        if entry.filter && self.durability == Durability::None {
            // Few, because they fill it beyond its plan.
            let unseen = unseen_keys(AGAIN.min(done.len() / 50));
            let asked = unseen.len() as u64;
            let known = asked - peer.check_and_insert(&unseen)?;
            if known > false_positives(asked) {
                return Err(format!(
                    "{name}: {known} of {asked} new keys were reported as present"
                )
                .into());
            }
        }
        Ok(())
    }
}

/// Returns how many of these new keys a full filter may report as present: its rate, and five
/// deviations.
fn false_positives(keys: u64) -> u64 {
    let expected = keys as f64 * FPR;
    (expected + 5.0 * expected.sqrt()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_comes_back_from_its_line() {
        let sample =
            Sample { operations: 3, nanoseconds: 1.5, memory: -4096.0, at_rest: 0.0, disk: 8192.0 };
        assert_eq!(Sample::parse(&sample.line()), Some(sample));
        assert_eq!(Sample::parse("3 1.5 2"), None);
    }

    #[test]
    fn few_keys_are_allowed_few_false_positives() {
        assert_eq!(false_positives(1_000_000), 1159);
        assert_eq!(false_positives(0), 0);
    }
}
