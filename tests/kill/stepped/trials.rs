//! The arguments, and a test for each scene.

use super::children::{Allowed, allowed};
use super::ptrace::stay_on_one_processor;
use super::run::{Company, Results, Settings, run};
use super::scenes::{Operation, Scene};
use super::{effort, table};
use ebbtide_testkit::skipped::skipped;
use libtest_mimic::Trial;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Default)]
struct Asked {
    every: Option<usize>,
    seed: Option<u64>,
    path: Option<String>,
    from: usize,
    kills: Option<usize>,
    each: bool,
    /// The arguments of the test harness.
    rest: Vec<String>,
}

fn asked() -> Asked {
    let mut asked = Asked::default();
    let mut arguments = std::env::args();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--every" => asked.every = Some(value().parse().expect("--every is a number")),
            "--seed" => asked.seed = Some(value().parse().expect("--seed is a number")),
            "--path" => asked.path = Some(value()),
            "--from" => asked.from = value().parse().expect("--from is a number"),
            "--kills" => asked.kills = Some(value().parse().expect("--kills is a number")),
            "--each" => asked.each = true,
            _ => asked.rest.push(argument),
        }
    }
    if let Some(path) = &asked.path {
        let all = table::killed().chain(table::stopped());
        let known = all.map(|scene| scene.path).collect::<Vec<_>>().join(", ");
        assert!(table::named(path).is_some(), "--path is one of {known}");
    }
    asked
}

/// Returns the positions of the survivor for a scene. A repairing victim needs another open handle,
/// and a recovering one none.
fn companies(scene: &Scene) -> &'static [Company] {
    match (scene.victims, scene.operation) {
        (1, _) => &[Company::Beside, Company::After],
        (_, Operation::Open) => &[Company::After],
        _ => &[Company::Beside],
    }
}

fn claim(scene: &Scene, company: Company) -> String {
    let path = scene.path;
    match (company, scene.victims) {
        (Company::Beside, 1) => {
            format!("a_process_killed_after_any_instruction_leaves_others_that_continue::{path}")
        }
        (Company::Beside, _) => {
            format!("who_repairs_after_a_kill_may_be_killed_after_any_instruction_too::{path}")
        }
        (Company::Stopped, _) => {
            format!("a_process_stopped_after_any_instruction_holds_up_its_own_stripe_only::{path}")
        }
        (Company::After, 1) => {
            format!("a_single_process_killed_after_any_instruction_recovers::{path}")
        }
        (Company::After, _) => {
            format!("who_recovers_after_a_kill_may_be_killed_after_any_instruction_too::{path}")
        }
    }
}

/// Returns the tests of the requested scenes, and the remaining arguments.
pub fn trials() -> (Vec<Trial>, Vec<String>) {
    let mut asked = asked();
    let rest = std::mem::take(&mut asked.rest);
    let allowed = allowed();
    if allowed == Allowed::Nothing {
        skipped("the system does not allow one process to trace another");
        return (Vec::new(), rest);
    }
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seed = asked.seed.unwrap_or_else(clock);
    let leaps = allowed == Allowed::Leaps;
    let Asked { every, from, kills, each, .. } = asked;
    let settings = Settings { every, seed, from, kills, leaps, each };
    let killed = table::killed()
        .flat_map(|scene| companies(scene).iter().map(move |&company| (scene, company)));
    let stopped = table::stopped().map(|scene| (scene, Company::Stopped));
    let all: Vec<_> = killed.chain(stopped).collect();
    let mut long: Vec<_> = all.iter().map(|(scene, _)| *scene).filter(|it| it.is_long()).collect();
    long.dedup_by_key(|scene| scene.path);
    let one = long[(seed % long.len() as u64) as usize].path;
    // With few kills most of the time goes into measuring paths: then a scene has one position of
    // the survivor, by the seed, too.
    let has_turn = |scene: &Scene, company: Company| {
        let turn =
            seed.wrapping_add(scene.path.len() as u64 + u64::from(company == Company::After));
        effort::is_more_than_a_sample() || companies(scene).len() < 2 || turn.is_multiple_of(2)
    };
    let wanted = all.into_iter().filter(|&(scene, company)| match &asked.path {
        Some(path) => path == scene.path,
        None if effort::is_whole() => true,
        None => {
            let is_stopped = company == Company::Stopped;
            (!scene.is_long() || scene.path == one) && (is_stopped || has_turn(scene, company))
        }
    });
    if asked.path.is_none() && !effort::is_whole() {
        let others = long.iter().map(|scene| scene.path).filter(|&path| path != one);
        skipped(format_args!(
            "{}: EBBTIDE_EFFORT is below 100, and they take longest; of these only {one}, \
             by the seed {seed}",
            others.collect::<Vec<_>>().join(", ")
        ));
        if !effort::is_more_than_a_sample() {
            skipped(format_args!("of each path one position of the survivor, by the seed {seed}"));
        }
    }
    let trial = |(turn, (scene, company)): (usize, (&'static Scene, Company))| {
        Trial::test(format!("stepped::{}", claim(scene, company)), move || {
            let test = || {
                stay_on_one_processor(turn);
                let start = Instant::now();
                let results = run(scene, company, settings)?;
                tell(scene, company, &results, settings, start);
                Ok(())
            };
            // In a thread of its own: other tests may use all processors.
            std::thread::scope(|scope| scope.spawn(test).join())
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    };
    (wanted.enumerate().map(trial).collect(), rest)
}

fn tell(scene: &Scene, company: Company, results: &Results, settings: Settings, start: Instant) {
    let Results { instructions, kills, counted, astray, ended, recovered, waits } = results;
    if company == Company::Stopped {
        println!(
            "{}: {instructions} instructions, {kills} stops ({astray} on another path), {ended} \
             reached the end, seed {}, {:.1} s: {waits}",
            scene.path,
            settings.seed,
            start.elapsed().as_secs_f64()
        );
        return;
    }
    println!(
        "{} ({company:?}): {instructions} instructions, {kills} kills ({counted} inserts present; \
         {astray} on another path), {ended} reached the end, recovered {} times and {} copies, \
         seed {}, {:.1} s",
        scene.path,
        recovered.0,
        recovered.1,
        settings.seed,
        start.elapsed().as_secs_f64()
    );
}
