//! Many schedules, one after the other.

use crate::play;
use crate::settings::Settings;
use crate::starts::{self, Start};
use ebbtide_testkit::random::{Random, mix};
use ebbtide_testkit::schedule::place::Planted;
use ebbtide_testkit::schedule::stage::{self, Director};
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The largest number of schedules in which a planted mistake must be detected.
const ENOUGH: u64 = 20_000;

/// The progress of a run.
#[derive(Debug, Default)]
struct Progress {
    /// The next schedule.
    next: u64,
    end: u64,
    /// The schedule that failed, and the reason.
    failed: Option<(u64, String)>,
    steps: u64,
    switches: u64,
    killed: u64,
}

/// Plays the schedules of a seed until one fails.
fn schedules(seed: u64, from: u64, count: u64, planted: Option<Planted>) -> Progress {
    let all: Vec<Start> = starts::all().expect("memory is large");
    let progress = Progress { next: from, end: from + count, ..Progress::default() };
    let progress = Arc::new(Mutex::new(progress));
    let more = {
        let progress = progress.clone();
        move || {
            let progress = progress.lock().expect("not poisoned");
            progress.failed.is_none() && progress.next < progress.end
        }
    };
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::None;
    config.failure_persistence = shuttle::FailurePersistence::None;
    let played = progress.clone();
    shuttle::Runner::new(Director { more: Box::new(more) }, config).run(move || {
        let number = played.lock().expect("not poisoned").next;
        let mut random = Random::new(mix(seed) ^ mix(!number));
        let start = &all[random.below(all.len() as u64) as usize];
        play::play(start, random, planted);
        let mut played = played.lock().expect("not poisoned");
        played.failed = stage::failure().map(|sentence| (number, sentence));
        let figures = stage::figures();
        played.steps += figures.steps;
        played.switches += figures.switches;
        played.killed += figures.killed;
        played.next += 1;
        if played.next.is_multiple_of(100_000) {
            eprintln!("{} schedules, seed {seed}", played.next);
        }
    });
    std::mem::take(&mut *progress.lock().expect("not poisoned"))
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
