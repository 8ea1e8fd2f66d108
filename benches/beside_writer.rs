//! How long a single insert takes beside a bulk writer: another process that inserts as fast as it
//! can, into the same filter and, in turns, into another one on the same disk.
//!
//! `cargo bench --bench beside_writer` prints percentiles of `fingerprint` and `age-partitioned`
//! with a million keys. The single inserts come every half millisecond. `EBBTIDE_ROUNDS` (3) and
//! `EBBTIDE_SECONDS` (5) set the turns; files are as for the other benches. Run it on a busy
//! machine as well: programs that keep the processors and the disk busy decide the longest waits.

mod common;

use common::{directory, key};
use ebbtide::{AgePartitioned, Any, Filter, Fingerprint, Options, Spec};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const KEYS: u64 = 1_000_000;
/// The time between two single inserts.
const PAUSE: Duration = Duration::from_micros(500);
/// The environment variable with the path of the filter into which this program, started again,
/// inserts until its input ends.
const BULK: &str = "EBBTIDE_BULK";

fn created(path: &Path, spec: impl Spec) {
    drop(Filter::create(path, spec, Options::new()).expect("a filter"));
}

fn open(path: &Path) -> Filter {
    Filter::<Any>::open(path, Options::new()).expect("a filter")
}

/// Inserts new keys until the input ends.
fn write_in_bulk(path: &Path) {
    let filter = open(path);
    let stop = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let first = u64::from(std::process::id()) << 32;
    for number in first.. {
        filter.insert(key(number)).expect("an insert");
        if number % 256 == 0 && stop.is_finished() {
            return;
        }
    }
}

fn bulk_writer(path: &Path) -> Child {
    let program = std::env::current_exe().expect("a path");
    let mut command = Command::new(program);
    command.env(BULK, path).stdin(Stdio::piped()).spawn().expect("a process")
}

/// Returns the times of single inserts while a bulk writer runs.
fn single_inserts(filter: &Filter, beside: &Path, first: u64, time: Duration) -> Vec<Duration> {
    let mut writer = bulk_writer(beside);
    // Until it is at work.
    std::thread::sleep(Duration::from_millis(300));
    let (start, mut times) = (Instant::now(), Vec::new());
    for number in first.. {
        let begin = Instant::now();
        filter.insert(key(number)).expect("an insert");
        times.push(begin.elapsed());
        if start.elapsed() >= time {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    drop(writer.stdin.take());
    assert!(writer.wait().expect("its end").success(), "the bulk writer failed");
    times
}

fn print(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let [median, p99, p999] = [0.5, 0.99, 0.999].map(at);
    let (longest, count) = (at(1.0), times.len());
    print!("{name:36} p50 {median:8.1?}, p99 {p99:8.1?}, ");
    println!("p99.9 {p999:8.1?}, longest {longest:8.1?}, of {count}");
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn main() {
    if let Some(path) = std::env::var_os(BULK) {
        return write_in_bulk(Path::new(&path));
    }
    let (rounds, seconds) = (number("EBBTIDE_ROUNDS", 3), number("EBBTIDE_SECONDS", 5));
    for kind in ["fingerprint", "age-partitioned"] {
        let directory = directory();
        let paths = ["one", "other"].map(|name| directory.path().join(name));
        for path in &paths {
            match kind {
                "fingerprint" => created(path, Fingerprint::last(KEYS).fpr(0.001)),
                _ => created(path, AgePartitioned::last(KEYS).fpr(0.001)),
            }
        }
        let filter = open(&paths[0]);
        for round in 0..rounds {
            for (beside, name) in [(1, "another filter"), (0, "the same filter")] {
                let first = (2 * round + beside as u64 + 1) << 56;
                let time = Duration::from_secs(seconds);
                let times = single_inserts(&filter, &paths[beside], first, time);
                print(&format!("{kind}, a writer on {name}"), times);
            }
        }
    }
}
