//! Measures the duration of each single insert, while segments change, checkpoints are written and
//! generations shift.
//!
//! `cargo bench --bench latency -- [--kind age-partitioned] [--mib 256] [--seconds 60] [--threads
//! 1] [--durability interval|never|always] [--operation insert|check] [--checkpoint-mib LOG]`
//!
//! Turns of a second of inserts alternate with a second of a *control* on the same threads: stores
//! to random words of a block of an array of the same size, as many as take as long as an insert
//! (under `always`: a write of 32 bytes and `fdatasync`). The tail of the control is the machine's.
//! This program starts the checkpoints, so that it has their begin and end; nothing else about them
//! differs. By default there is one for as much log as the filter has memory, as often as the
//! engine itself would write them.

#[path = "../common/mod.rs"]
mod common;
#[path = "../large/mod.rs"]
mod large;

mod control;
mod seen;

use control::Control;
use ebbtide::{Any, Durability, Filter, Options, inspect};
use large::{MIB, argument, head, key};
use seen::{Seen, Tasks};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The duration of a turn of inserts or control.
const TURN: Duration = Duration::from_secs(1);
/// The number of inserts that determine the usual duration of one.
const CALIBRATION: u64 = 100_001;
/// The bytes of a record in the log.
const RECORD: u64 = 32;

/// The arguments.
struct Wanted {
    kind: String,
    mib: u64,
    seconds: u64,
    threads: u64,
    durability: Durability,
    check: bool,
}

impl Wanted {
    fn read() -> Self {
        let durability = match argument("durability", "interval".to_owned()).as_str() {
            "interval" => Durability::Interval(Duration::from_secs(1)),
            "never" => Durability::Never,
            "always" => Durability::Always,
            other => panic!("--durability {other}: interval, never or always"),
        };
        Self {
            kind: argument("kind", "age-partitioned".to_owned()),
            mib: argument("mib", 256),
            seconds: argument("seconds", 60),
            threads: argument("threads", 1),
            durability,
            check: argument("operation", "insert".to_owned()) == "check",
        }
    }
}

/// The state shared by the threads.
struct Shared {
    wanted: Wanted,
    filter: Filter<Any>,
    /// The number of inserts of each thread.
    made: Vec<Counter>,
    checkpoint_runs: AtomicBool,
    start: Instant,
    /// The number of inserts before the measurement.
    warm: u64,
    /// The number of inserts in a generation, if shifts depend on it and a single thread can
    /// predict them.
    generation: Option<u64>,
}

/// A number that does not share its cache lines.
#[repr(align(128))]
struct Counter(AtomicU64);

impl Shared {
    fn made(&self) -> u64 {
        self.made.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() >= Duration::from_secs(self.wanted.seconds)
    }

    fn insert(&self, number: u64) {
        if self.wanted.check {
            self.filter.check_and_insert(key(number)).expect("an insert");
        } else {
            self.filter.insert(key(number)).expect("an insert");
        }
    }

    /// Inserts until the turn ends.
    fn insert_for(&self, thread: u64, seen: &mut Seen, turn_ends: Instant) {
        let made = &self.made[thread as usize].0;
        let mut number = made.load(Ordering::Relaxed);
        let tasks = Tasks::now();
        loop {
            let before = self.checkpoint_runs.load(Ordering::Relaxed);
            let begin = Instant::now();
            self.insert(self.warm + number * self.wanted.threads + thread);
            let end = Instant::now();
            let beside = before || self.checkpoint_runs.load(Ordering::Relaxed);
            let nanos = (end - begin).as_nanos() as u64;
            seen.insert.note(nanos, beside);
            if self.generation.is_some_and(|length| (self.warm + number).is_multiple_of(length)) {
                seen.shift.record(nanos).expect("less than a minute");
            }
            number += 1;
            made.store(number, Ordering::Relaxed);
            if end >= turn_ends {
                break;
            }
        }
        seen.insert.tasks += tasks.until_now();
    }

    /// Runs the control's work until the turn ends.
    fn control_for(&self, control: &mut Control, seen: &mut Seen, turn_ends: Instant) {
        let tasks = Tasks::now();
        loop {
            let before = self.checkpoint_runs.load(Ordering::Relaxed);
            let begin = Instant::now();
            control.work();
            let end = Instant::now();
            let beside = before || self.checkpoint_runs.load(Ordering::Relaxed);
            seen.control.note((end - begin).as_nanos() as u64, beside);
            if end >= turn_ends {
                break;
            }
        }
        seen.control.tasks += tasks.until_now();
    }

    /// A measuring thread: alternates between both.
    fn measure(&self, thread: u64, mut control: Control) -> Seen {
        let mut seen = Seen::new();
        let mut turn_ends = self.start;
        while !self.is_over() {
            turn_ends += TURN;
            self.insert_for(thread, &mut seen, turn_ends);
            turn_ends += TURN;
            self.control_for(&mut control, &mut seen, turn_ends);
        }
        seen
    }

    /// Writes a checkpoint whenever enough log has accumulated; returns their number, and the
    /// seconds in them.
    fn checkpoints(&self, log_bytes: u64) -> (u64, f64) {
        let (mut count, mut seconds, mut last) = (0, 0.0, 0);
        while !self.is_over() {
            std::thread::sleep(Duration::from_millis(2));
            let made = self.made();
            if (made - last) * RECORD < log_bytes {
                continue;
            }
            let begin = Instant::now();
            self.checkpoint_runs.store(true, Ordering::Relaxed);
            self.filter.checkpoint().expect("a checkpoint");
            self.checkpoint_runs.store(false, Ordering::Relaxed);
            (count, seconds, last) = (count + 1, seconds + begin.elapsed().as_secs_f64(), made);
        }
        (count, seconds)
    }
}

/// Creates a filter all of whose pages have been touched; returns it with the number of inserts
/// that took.
fn warm_filter(wanted: &Wanted, directory: &std::path::Path) -> (Filter<Any>, u64) {
    let options = Options::new().durability(wanted.durability).checkpoint_bytes(u64::MAX);
    let spec = large::spec(&wanted.kind, wanted.mib);
    let filter = Filter::create(directory.join("filter"), spec, options).expect("a filter");
    // Enough to touch nearly every page, if each insert touched one.
    let inserts = wanted.mib * MIB / 4096 * 4;
    let quick = filter.call().durability(Durability::Never);
    let mut next = 0;
    while next < inserts {
        let keys: Vec<_> = (next..inserts.min(next + 1000)).map(key).collect();
        quick.insert_all(&keys).expect("inserts");
        next += keys.len() as u64;
    }
    filter.checkpoint().expect("a checkpoint");
    (filter, inserts)
}

/// Returns the median duration of an insert, to make the control as long.
fn usual_nanos(shared: &Shared) -> f64 {
    let quick = shared.filter.call().durability(Durability::Never);
    large::median((shared.warm..shared.warm + CALIBRATION).map(|number| {
        let begin = Instant::now();
        quick.insert(key(number)).expect("an insert");
        begin.elapsed().as_nanos() as f64
    }))
}

fn print_head(shared: &Shared, log_bytes: u64) {
    let wanted = &shared.wanted;
    let timer = large::median((0..100_001).map(|_| {
        let begin = Instant::now();
        (Instant::now() - begin).as_nanos() as f64
    }));
    println!(
        "{}, {} MiB, {}, {} threads, durability {}, a checkpoint every {} MiB of log, {} s; the \
         clock itself takes {timer:.0} ns\n",
        wanted.kind,
        wanted.mib,
        if wanted.check { "check-and-insert" } else { "insert" },
        wanted.threads,
        wanted.durability,
        log_bytes / MIB,
        wanted.seconds,
    );
}

fn main() {
    let wanted = Wanted::read();
    let plan = inspect::plan(
        &wanted.kind,
        ebbtide::Spec::parameters(&large::spec(&wanted.kind, wanted.mib)),
        &Options::new(),
    );
    let log_bytes = plan.expect("a plan").memory_bytes.max(MIB);
    let log_bytes = argument("checkpoint-mib", log_bytes / MIB) * MIB;
    let directory = large::directory();
    let (filter, warm) = warm_filter(&wanted, directory.path());
    let generation = filter.parameters().get("generation").and_then(|text| text.parse().ok());
    let mut shared = Shared {
        made: (0..wanted.threads).map(|_| Counter(AtomicU64::new(0))).collect(),
        checkpoint_runs: AtomicBool::new(false),
        start: Instant::now(),
        generation: generation.filter(|_| wanted.threads == 1),
        warm,
        filter,
        wanted,
    };
    let usual = usual_nanos(&shared);
    shared.warm += CALIBRATION;
    print_head(&shared, log_bytes);
    let control = |thread| match shared.wanted.durability {
        Durability::Always => Control::syncs(directory.path(), thread),
        _ => Control::stores(shared.wanted.mib * MIB, usual, thread),
    };
    let controls: Vec<_> = (0..shared.wanted.threads).map(control).collect();
    let stolen = seen::stolen();
    shared.start = Instant::now();
    let (seen, (checkpoints, busy)) = std::thread::scope(|scope| {
        let shared = &shared;
        let measure = |(thread, control)| scope.spawn(move || shared.measure(thread, control));
        let threads: Vec<_> = (0..).zip(controls).map(measure).collect();
        let checkpoints = shared.checkpoints(log_bytes);
        let seen = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        (seen.reduce(Seen::add).expect("a thread"), checkpoints)
    });
    let stolen = seen::stolen() - stolen;
    head(&["", "count", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
    seen.print();
    println!(
        "\n{} inserts, {:.1} MiB of log each second of inserts; {checkpoints} checkpoints, \
         {busy:.1} s in all; {stolen:.1} s of processors stolen",
        shared.made(),
        (shared.made() * RECORD / MIB) as f64 / (shared.wanted.seconds as f64 / 2.0),
    );
    seen.print_tasks();
}
