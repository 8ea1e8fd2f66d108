//! How long single inserts take, each one measured, while segments change, checkpoints are written and generations shift.
//!
//! `cargo bench --bench latency -- [--kind age-partitioned] [--mib 256] [--seconds 60] [--threads 1]
//! [--durability interval|never|always] [--operation insert|check] [--checkpoint-mib LOG]`
//!
//! Turns of a second of inserts and a second of a *control*, on the same threads: stores to random words of a block of an array of
//! the same size, as many as take as long as an insert (under `always`: a write of 32 bytes and `fdatasync`). What its tail shows is
//! the machine's. The checkpoints are begun by this program, so that their begin and end are known; nothing else about them differs.
//! By default one comes for as much log as the filter has memory, as often as the engine itself would write them.

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

/// How long a turn of inserts or control lasts.
const TURN: Duration = Duration::from_secs(1);
/// Inserts that tell how long one usually takes.
const CALIBRATION: u64 = 100_001;
/// Bytes of a record in the log.
const RECORD: u64 = 32;

/// What is asked for.
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

/// What the threads share.
struct Shared {
    wanted: Wanted,
    filter: Filter<Any>,
    /// How many inserts each thread has made.
    made: Vec<Counter>,
    checkpoint_runs: AtomicBool,
    start: Instant,
    /// Inserts there were before.
    warm: u64,
    /// Inserts in a generation, where shifts come by their number and one thread alone knows it.
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

    /// Does the control's work until the turn ends.
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

    /// A measuring thread: turns of both.
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

    /// Writes a checkpoint whenever enough log has gathered; returns how many, and seconds in them.
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

/// A filter all of whose pages have been touched, with how many inserts that took.
fn warm_filter(wanted: &Wanted, directory: &std::path::Path) -> (Filter<Any>, u64) {
    let options = Options::new().durability(wanted.durability).checkpoint_bytes(u64::MAX);
    let spec = large::spec(&wanted.kind, wanted.mib);
    let filter = Filter::create(directory.join("filter"), spec, options).expect("a filter");
    // As many as touch nearly every page, were there one in each.
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

/// The middle of the times of an insert, to make the control as long.
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
        "{}, {} MiB, {}, {} threads, durability {}, a checkpoint every {} MiB of log, {} s; the clock itself takes {timer:.0} ns\n",
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
        "\n{} inserts, {:.1} MiB of log each second of inserts; {checkpoints} checkpoints, {busy:.1} s in all; {stolen:.1} s of processors stolen",
        shared.made(),
        (shared.made() * RECORD / MIB) as f64 / (shared.wanted.seconds as f64 / 2.0),
    );
    seen.print_tasks();
}
