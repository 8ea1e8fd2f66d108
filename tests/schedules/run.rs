//! Many schedules, one after the other.

use crate::play;
use crate::settings::Settings;
use crate::starts::{self, Start};
use ebbtide_testkit::random::{Random, mix};
use ebbtide_testkit::schedule::place::Planted;
use ebbtide_testkit::schedule::stage::{self, Director};
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// The largest number of schedules in which a planted mistake must be detected.
const ENOUGH: u64 = 20_000;

/// The number of schedules that are played twice.
const REPEATED: usize = 200;

/// The progress of a run.
#[derive(Debug, Default)]
struct Progress {
    /// The schedule that failed, and the reason.
    failed: Option<(u64, String)>,
    steps: u64,
    switches: u64,
    killed: u64,
}

/// What came of one schedule.
#[derive(Debug)]
struct Played {
    figures: stage::Figures,
    failure: Option<String>,
}

/// Plays one schedule, in a thread of its own: the engine keeps things by thread, which would
/// depend on the schedules before it.
fn schedule(all: &Arc<Vec<Start>>, (seed, number): (u64, u64), planted: Option<Planted>) -> Played {
    let (send, receive) = mpsc::channel();
    let all = all.clone();
    let schedule = std::thread::spawn(move || {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::None;
        config.failure_persistence = shuttle::FailurePersistence::None;
        let mut is_due = true;
        let director = Director { more: Box::new(move || std::mem::take(&mut is_due)) };
        shuttle::Runner::new(director, config).run(move || {
            let mut random = Random::new(mix(seed) ^ mix(!number));
            let start = &all[random.below(all.len() as u64) as usize];
            play::play(start, random, planted);
            // The receiver waits.
            let _ = send.send(Played { figures: stage::figures(), failure: stage::failure() });
        });
    });
    let ended = schedule.join();
    receive.recv().unwrap_or_else(|_| panic!("schedule {number} of seed {seed}: {ended:?}"))
}

/// Plays the schedules of a seed until one fails.
fn schedules(seed: u64, from: u64, count: u64, planted: Option<Planted>) -> Progress {
    let all = Arc::new(starts::all().expect("memory is large"));
    let mut progress = Progress::default();
    for number in from..from + count {
        let Played { figures, failure } = schedule(&all, (seed, number), planted);
        progress.steps += figures.steps;
        progress.switches += figures.switches;
        progress.killed += figures.killed;
        if let Some(sentence) = failure {
            progress.failed = Some((number, sentence));
            return progress;
        }
        if (number + 1).is_multiple_of(100_000) {
            eprintln!("{} schedules, seed {seed}", number + 1);
        }
    }
    progress
}

fn whatever_the_schedule(settings: &Settings) -> Result<(), String> {
    let start = Instant::now();
    let Settings { seed, from, count } = *settings;
    let progress = schedules(seed, from, count, None);
    if let Some((number, sentence)) = progress.failed {
        return Err(format!("{sentence}; again: --seed {seed} --from {number} --count 1"));
    }
    println!(
        "{count} schedules from {from}, seed {seed}: {} steps, {} switches, {} processes killed, \
         {:.0} s",
        progress.steps,
        progress.switches,
        progress.killed,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Plays the first schedules again, in the opposite order.
fn a_schedule_repeats(settings: &Settings) -> Result<(), String> {
    let all = Arc::new(starts::all().expect("memory is large"));
    let trace = |number| schedule(&all, (settings.seed, number), None).figures.trace;
    let numbers: Vec<u64> = (settings.from..).take(REPEATED).collect();
    let first: Vec<_> = numbers.iter().map(|&number| trace(number)).collect();
    for (&number, first) in numbers.iter().zip(first).rev() {
        if trace(number) != first {
            return Err(format!("--seed {} --from {number} --count 1 differs", settings.seed));
        }
    }
    Ok(())
}

fn planted_mistake(settings: &Settings, planted: Planted) -> Result<(), String> {
    let progress = schedules(settings.seed, 0, ENOUGH, Some(planted));
    let (number, sentence) = progress.failed.ok_or("not found")?;
    println!("{planted:?}: found by schedule {number}: {sentence}");
    Ok(())
}

/// Runs all claims.
pub fn run() -> ExitCode {
    stage::install();
    let (settings, rest) = Settings::read();
    let claim = |name: &str, run: fn(&Settings) -> Result<(), String>| {
        let settings = settings.clone();
        Trial::test(name, move || run(&settings).map_err(Into::into))
    };
    let trials = vec![
        claim("in_every_schedule_no_operation_that_returned_is_lost", whatever_the_schedule),
        claim("a_schedule_is_a_function_of_seed_and_number", a_schedule_repeats),
        claim("a_system_that_judges_live_processes_dead_is_detected", |settings| {
            planted_mistake(settings, Planted::FalseDeath)
        }),
        claim("a_system_that_lets_two_open_at_once_is_detected", |settings| {
            planted_mistake(settings, Planted::TwoOpen)
        }),
        claim("a_system_that_replaces_names_is_detected", |settings| {
            planted_mistake(settings, Planted::NamesReplaced)
        }),
        claim("a_segment_removed_too_early_is_detected", |settings| {
            planted_mistake(settings, Planted::OneSegmentTooMany)
        }),
    ];
    libtest_mimic::run(&Arguments::from_iter(rest), trials).exit_code()
}
