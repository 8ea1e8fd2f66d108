//! Opening after a clean close, and after the process was killed with records to replay.
//!
//! In each round a child of this program opens the filter (clean), inserts the records, none of
//! them in a snapshot, syncs, and is killed. Then this process opens and closes the filter. The
//! time of replay is the difference of the two openings.

use super::copies;
use super::large::{self, argument, head, key, row};
use super::measuring::{middle, seconds, touch};
use ebbtide::{Any, Filter, Options};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The role of a child: the directory of the filter, and the keys to insert.
pub struct Child {
    path: PathBuf,
    from: u64,
    records: u64,
}

impl Child {
    /// Returns the role, if this process is a child.
    pub fn from_arguments() -> Option<Self> {
        let path = argument("child", PathBuf::new());
        let from = argument("from", 0);
        (path != PathBuf::new()).then(|| Self { path, from, records: argument("records", 0) })
    }

    /// Inserts, prints the duration, and waits to be killed.
    pub fn run(self) {
        let begin = Instant::now();
        let filter = open(&self.path);
        let opened = begin.elapsed().as_secs_f64();
        let inserted = seconds(|| {
            for number in self.from..self.from + self.records {
                filter.insert(key(number)).expect("an insert");
            }
        });
        // The opening must not wait for the disk to write this process's data.
        filter.sync().expect("a sync");
        println!("{opened} {inserted}");
        loop {
            std::thread::park();
        }
    }
}

/// Options with explicit checkpoints only.
fn options() -> Options {
    Options::new().checkpoint_bytes(u64::MAX)
}

fn open(path: &Path) -> Filter<Any> {
    Filter::open(path, options()).expect("a filter")
}

/// The seconds of one round.
pub struct Round {
    /// Opening after a clean close.
    pub clean: f64,
    inserted: f64,
    /// Opening after a kill.
    pub crashed: f64,
    closed: f64,
    read: f64,
}

impl Round {
    fn replay(&self) -> f64 {
        self.crashed - self.clean
    }
}

/// Measures both openings of a filter that was closed after `from` inserts.
pub fn round(path: &Path, from: u64, records: u64) -> Round {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg("--child")
        .arg(path)
        .args(["--from", &from.to_string(), "--records", &records.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut line = String::new();
    let told = child.stdout.take().expect("a pipe");
    BufReader::new(told).read_line(&mut line).expect("a line");
    child.kill().expect("it is alive");
    child.wait().expect("it was ours");
    let mut told = line.split_whitespace().map(|word| word.parse::<f64>().expect("a number"));
    let mut next = || told.next().expect("two numbers");
    let (clean, inserted) = (next(), next());
    let begin = Instant::now();
    let filter = open(path);
    let crashed = begin.elapsed().as_secs_f64();
    assert_eq!(filter.stat().expect("figures").inserts, from + records, "nothing is lost");
    let closed = seconds(|| filter.close().expect("a clean close"));
    let read = seconds(|| copies::read(&newest_snapshot(path)));
    Round { clean, inserted, crashed, closed, read }
}

fn newest_snapshot(path: &Path) -> PathBuf {
    let files =
        std::fs::read_dir(path).expect("a directory").map(|entry| entry.expect("a file").path());
    let is_snapshot = |path: &PathBuf| path.to_string_lossy().contains("/snap-");
    files.filter(is_snapshot).max().expect("a clean close writes one")
}

/// Prints the table of a size.
pub fn run(rounds: usize, mib: u64, records: u64) {
    let directory = large::directory();
    let path = directory.path().join("filter");
    let filter = Filter::create(&path, large::spec("age-partitioned", mib), options());
    let filter = filter.expect("a filter");
    let mut from = touch(&filter, mib);
    filter.close().expect("a clean close");
    let mut measured = Vec::new();
    for _ in 0..rounds {
        measured.push(round(&path, from, records));
        from += records;
    }
    println!(
        "\nOpening at {mib} MiB, {records} records to replay after a crash, {rounds} rounds\n"
    );
    head(&["", "median"]);
    let each = |name: &str, figure: String| row([name.to_owned(), figure]);
    let gib = mib as f64 / 1024.0;
    let clean = middle(&measured, |round| round.clean);
    each("open, clean", format!("{clean:.3} s: {:.2} s a GiB", clean / gib));
    let beside = middle(&measured, |round| round.clean / round.read);
    each("beside a plain read of the snapshot", format!("{beside:.2} ×"));
    each("open after the crash", format!("{:.3} s", middle(&measured, |round| round.crashed)));
    let rate = |seconds: f64| format!("{:.2} million/s", records as f64 / seconds / 1e6);
    each("live inserts, one thread", rate(middle(&measured, |round| round.inserted)));
    each("replay", rate(middle(&measured, Round::replay)));
    let ratio = middle(&measured, |round| round.inserted / round.replay());
    each("replay beside live inserts", format!("{ratio:.2} ×"));
    let least = middle(&measured, |round| round.inserted / round.crashed);
    each("the same, with all else that the opening does", format!("{least:.2} ×"));
    each("close, with its snapshot", format!("{:.3} s", middle(&measured, |round| round.closed)));
}
