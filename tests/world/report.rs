//! Many worlds, one after the other, and what they add up to.

use crate::world;
use ebbtide_testkit::schedule::stage::{self, Director};
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What has happened in one world, or in many.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Simulated time.
    pub passed: Duration,
    pub operations: u64,
    pub rounds: u64,
    pub openings: u64,
    pub comparisons: u64,
    pub power_cuts: u64,
    /// Processes killed at a step, or by an event.
    pub killed: u64,
    /// Calls to the disk that failed, kinds of it not counted.
    pub faults: u64,
    /// Errors that callers got.
    pub errors: u64,
    /// Write-backs that failed.
    pub lost: u64,
    /// Disks that began to lie.
    pub lies: u64,
    pub steps: u64,
    pub switches: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        let pairs = [
            (&mut self.operations, other.operations),
            (&mut self.rounds, other.rounds),
            (&mut self.openings, other.openings),
            (&mut self.comparisons, other.comparisons),
            (&mut self.power_cuts, other.power_cuts),
            (&mut self.killed, other.killed),
            (&mut self.faults, other.faults),
            (&mut self.errors, other.errors),
            (&mut self.lost, other.lost),
            (&mut self.lies, other.lies),
            (&mut self.steps, other.steps),
            (&mut self.switches, other.switches),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
    }
}

/// The amount of work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The first seed.
    seed: u64,
    /// The number of worlds; none until the time is up.
    worlds: Option<u64>,
    seconds: u64,
    is_traced: bool,
    /// Count failures instead of ending with the first.
    all: bool,
}

impl Settings {
    /// Returns the settings, and the remaining arguments.
    fn read() -> (Self, Vec<String>) {
        let mut settings =
            Self { seed: 20_261_127, worlds: None, seconds: 10, is_traced: false, all: false };
        let mut rest = Vec::new();
        let mut arguments = std::env::args();
        while let Some(name) = arguments.next() {
            let mut value = || {
                let text = arguments.next().unwrap_or_default();
                text.parse().unwrap_or_else(|_| panic!("{name} needs a number, found {text:?}"))
            };
            match name.as_str() {
                "--seed" => settings.seed = value(),
                "--worlds" => settings.worlds = Some(value()),
                "--seconds" => settings.seconds = value(),
                "--trace" => settings.is_traced = true,
                "--all" => settings.all = true,
                _ => rest.push(name),
            }
        }
        (settings, rest)
    }
}

/// A world that takes so long does not end; most take a tenth of a second.
const LONGEST: Duration = Duration::from_secs(60);

/// What came of the worlds of a run.
#[derive(Debug, Default)]
struct Progress {
    worlds: u64,
    /// The seed of the present world, and since when.
    present: Option<(u64, Instant)>,
    tally: Tally,
    /// The hash of each trace.
    traces: Vec<u64>,
    failures: Vec<(u64, String)>,
}

/// Lets the worlds of these seeds happen, as long as there is more to do.
fn run(settings: &Settings, worlds: Option<u64>) -> Progress {
    let began = Instant::now();
    let progress = Arc::new(Mutex::new(Progress::default()));
    let more = {
        let (progress, settings) = (progress.clone(), settings.clone());
        move || {
            let progress = progress.lock().expect("not poisoned");
            let is_due = match worlds {
                Some(worlds) => progress.worlds < worlds,
                None => began.elapsed() < Duration::from_secs(settings.seconds),
            };
            is_due && (progress.failures.is_empty() || settings.all)
        }
    };
    let (seen, is_over) = (progress.clone(), Arc::new(AtomicBool::new(false)));
    let watched = is_over.clone();
    std::thread::spawn(move || watch(&seen, &watched));
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::None;
    config.failure_persistence = shuttle::FailurePersistence::None;
    let (happened, settings) = (progress.clone(), settings.clone());
    shuttle::Runner::new(Director { more: Box::new(more) }, config).run(move || {
        let seed = settings.seed + happened.lock().expect("not poisoned").worlds;
        happened.lock().expect("not poisoned").present = Some((seed, Instant::now()));
        let tally = world::happen(seed, settings.is_traced);
        let figures = stage::figures();
        let mut progress = happened.lock().expect("not poisoned");
        progress.worlds += 1;
        progress.traces.push(figures.trace);
        let killed = tally.killed + figures.killed;
        let (steps, switches) = (figures.steps, figures.switches);
        progress.tally.add(&Tally { killed, steps, switches, ..tally });
        if let Some(sentence) = stage::failure() {
            println!("--seed {seed} --worlds 1: {sentence}");
            progress.failures.push((seed, sentence));
        }
    });
    is_over.store(true, Ordering::Relaxed);
    std::mem::take(&mut *progress.lock().expect("not poisoned"))
}

/// Ends the program if a world does not end: its coroutines cannot be ended from outside.
fn watch(progress: &Mutex<Progress>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        let present = progress.lock().expect("not poisoned").present;
        if let Some((seed, _)) = present.filter(|(_, since)| since.elapsed() > LONGEST) {
            println!("--seed {seed} --worlds 1: the world does not end");
            std::process::exit(1);
        }
    }
}

fn whatever_a_seed_decides(settings: &Settings) -> Result<(), String> {
    let began = Instant::now();
    let Progress { worlds, tally, failures, .. } = run(settings, settings.worlds);
    println!(
        "{worlds} worlds from seed {}: {:.1} simulated hours, {} operations in {} rounds, {} \
         openings, {} comparisons, {} power cuts, {} processes killed, {} faults, {} errors, {} \
         write-backs lost, {} disks that lied, {} steps, {} switches; {:.0} s",
        settings.seed,
        tally.passed.as_secs_f64() / 3600.0,
        tally.operations,
        tally.rounds,
        tally.openings,
        tally.comparisons,
        tally.power_cuts,
        tally.killed,
        tally.faults,
        tally.errors,
        tally.lost,
        tally.lies,
        tally.steps,
        tally.switches,
        began.elapsed().as_secs_f64()
    );
    match failures.first() {
        None => Ok(()),
        Some((seed, sentence)) => Err(format!(
            "{} worlds failed; {sentence}; again: --seed {seed} --worlds 1",
            failures.len()
        )),
    }
}

fn two_runs_are_equal(settings: &Settings) -> Result<(), String> {
    const WORLDS: u64 = 25;
    let settings = Settings { is_traced: false, all: true, ..settings.clone() };
    let [one, other] = [(); 2].map(|()| run(&settings, Some(WORLDS)).traces);
    match one.iter().zip(&other).position(|(one, other)| one != other) {
        None => Ok(()),
        Some(at) => Err(format!("two runs of seed {} differ", settings.seed + at as u64)),
    }
}

/// Runs all claims.
pub fn main() -> ExitCode {
    stage::install();
    let (settings, rest) = Settings::read();
    let claim = |name: &str, run: fn(&Settings) -> Result<(), String>| {
        let settings = settings.clone();
        Trial::test(name, move || run(&settings).map_err(Into::into))
    };
    let trials = vec![
        claim("whatever_a_seed_decides_the_filter_is_what_its_log_says", whatever_a_seed_decides),
        claim("two_runs_of_one_seed_are_equal", two_runs_are_equal),
    ];
    libtest_mimic::run(&Arguments::from_iter(rest), trials).exit_code()
}
