//! Many worlds, one after the other, and what they add up to.

use crate::world;
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::schedule::stage::{self, Director};
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What has happened in one world, or in many.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Simulated time.
    pub passed: Duration,
    pub operations: u64,
    pub tickets: u64,
    pub rounds: u64,
    pub openings: u64,
    pub comparisons: u64,
    /// Moments of the past that were compared.
    pub moments: u64,
    pub power_cuts: u64,
    /// Processes killed at a step, or by an event.
    pub killed: u64,
    /// Panics: after a sync, in an algorithm, in a function that a ticket calls.
    pub panics: u64,
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

impl Counts {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        let pairs = [
            (&mut self.operations, other.operations),
            (&mut self.tickets, other.tickets),
            (&mut self.rounds, other.rounds),
            (&mut self.openings, other.openings),
            (&mut self.comparisons, other.comparisons),
            (&mut self.moments, other.moments),
            (&mut self.power_cuts, other.power_cuts),
            (&mut self.killed, other.killed),
            (&mut self.panics, other.panics),
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
        let mut settings = Self {
            seed: 20_261_127,
            worlds: None,
            seconds: scaled(25),
            is_traced: false,
            all: false,
        };
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

/// What came of one world.
#[derive(Debug)]
struct Happened {
    counts: Counts,
    /// The hash of its trace.
    trace: u64,
    failure: Option<String>,
}

/// Lets the world of a seed happen: in a thread of its own, for the engine keeps things by thread.
fn happen(seed: u64, is_traced: bool) -> Happened {
    let (send, receive) = mpsc::channel();
    let world = std::thread::spawn(move || {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::None;
        config.failure_persistence = shuttle::FailurePersistence::None;
        let mut is_due = true;
        let director = Director { more: Box::new(move || std::mem::take(&mut is_due)) };
        shuttle::Runner::new(director, config).run(move || {
            let counts = world::happen(seed, is_traced);
            let stage::Figures { steps, switches, killed, panics, trace } = stage::figures();
            let killed = counts.killed + killed;
            let counts = Counts { killed, panics, steps, switches, ..counts };
            let happened = Happened { counts, trace, failure: stage::failure() };
            // The receiver waits.
            let _ = send.send(happened);
        });
    });
    match receive.recv_timeout(LONGEST) {
        Ok(happened) => {
            // Its handles and files go with it.
            drop(world.join());
            happened
        }
        // A thread cannot be ended from outside: it is left behind.
        Err(_) => {
            let failure = Some("the world does not end".to_owned());
            Happened { counts: Counts::default(), trace: 0, failure }
        }
    }
}

/// What came of the worlds of a run.
#[derive(Debug, Default)]
struct Progress {
    worlds: u64,
    counts: Counts,
    failures: Vec<(u64, String)>,
}

/// Lets worlds happen as long as there is more to do.
fn run(settings: &Settings) -> Progress {
    let (began, mut progress) = (Instant::now(), Progress::default());
    loop {
        let is_due = match settings.worlds {
            Some(worlds) => progress.worlds < worlds,
            None => began.elapsed() < Duration::from_secs(settings.seconds),
        };
        if !is_due || !(progress.failures.is_empty() || settings.all) {
            return progress;
        }
        let seed = settings.seed + progress.worlds;
        let happened = happen(seed, settings.is_traced);
        progress.worlds += 1;
        progress.counts.add(&happened.counts);
        if let Some(sentence) = happened.failure {
            println!("--seed {seed} --worlds 1: {sentence}");
            progress.failures.push((seed, sentence));
        }
    }
}

fn whatever_a_seed_decides(settings: &Settings) -> Result<(), String> {
    let began = Instant::now();
    let Progress { worlds, counts, failures, .. } = run(settings);
    println!(
        "{worlds} worlds from seed {}: {:.1} simulated hours, {} operations in {} rounds, {} \
         tickets, {} openings, {} comparisons, {} moments of the past, {} power cuts, {} processes \
         killed, {} panics, {} faults, {} errors, {} write-backs lost, {} disks that lied, {} \
         steps, {} switches; {:.0} s",
        settings.seed,
        counts.passed.as_secs_f64() / 3600.0,
        counts.operations,
        counts.rounds,
        counts.tickets,
        counts.openings,
        counts.comparisons,
        counts.moments,
        counts.power_cuts,
        counts.killed,
        counts.panics,
        counts.faults,
        counts.errors,
        counts.lost,
        counts.lies,
        counts.steps,
        counts.switches,
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
    for seed in settings.seed..settings.seed + scaled(100) {
        if happen(seed, false).trace != happen(seed, false).trace {
            return Err(format!("two runs of seed {seed} differ"));
        }
    }
    Ok(())
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
