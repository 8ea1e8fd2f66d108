//! The threads of a process: those that open the filter, work on it and close it, and those in the
//! background.

use crate::tasks::{Act, Next, Task, without_checksums};
use crate::world::{Opened, World, lock};
use ebbtide::{Durability, Error, Filter};
use ebbtide_testkit::prefix::Checked;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::schedule::{panics, stage};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a thread does.
#[derive(Debug, Clone)]
pub struct Script {
    begins: Duration,
    acts: Vec<Act>,
    closes: bool,
    random: Random,
    is_first: bool,
}

impl Script {
    /// Draws what a thread of this number does in a round.
    pub fn draw(random: &mut Random, number: u64, favourite: Option<Act>) -> Self {
        let late = random.below(3) == 0;
        let begins = Duration::from_millis(if late { random.below(60) } else { 0 });
        let act = |random: &mut Random| match favourite {
            Some(favourite) if random.below(3) == 0 => favourite,
            _ => Act::draw(random),
        };
        let acts = (0..3 + random.below(14)).map(|_| act(random)).collect();
        let closes = random.below(4) == 0;
        let own = Random::new(random.below(u64::MAX));
        Self { begins, acts, closes, random: own, is_first: number == 0 }
    }
}

fn open_or_create(world: &World, life: usize) -> Result<Opened, Error> {
    let media = || world.place().of(life);
    let is_created = lock(&world.weather).is_created;
    match Filter::open_on(media(), world.options()) {
        // A filter that somebody has opened stays.
        Err(Error::NotAFilter { .. }) if !is_created => {}
        opened => return opened,
    }
    world.trace(|| format!("process {life} creates"));
    match Filter::create_on(media(), world.plan.spec.any(false), world.options()) {
        Err(Error::Exists { .. }) => Filter::open_on(media(), world.options()),
        created => created,
    }
}

/// Opens the filter, or creates it. Returns none if a fault or another process is in the way.
pub fn open(world: &World, life: usize) -> Checked<Option<Arc<Opened>>> {
    match open_or_create(world, life) {
        Ok(filter) => {
            world.ask(|oracle, disk| {
                disk.tell_created();
                oracle.opened();
                Ok(())
            })?;
            world.trace(|| format!("process {life} has opened"));
            lock(&world.counts).openings += 1;
            lock(&world.weather).is_created = true;
            let filter = Arc::new(filter);
            world.set_handle(life, Some(filter.clone()));
            Ok(Some(filter))
        }
        // Another process held the lock for a minute.
        Err(Error::Locked { .. }) => Ok(None),
        Err(error) if world.may_fail_by(&error) => {
            let error = without_checksums(&error.to_string());
            world.trace(|| format!("process {life} does not open: {error}"));
            lock(&world.counts).errors += 1;
            Ok(None)
        }
        Err(Error::Damaged { .. }) if lock(&world.weather).may_be_damaged() => {
            lock(&world.weather).is_over = true;
            Ok(None)
        }
        Err(error) => Err(format!("opening: {error}")),
    }
}

/// Runs a thread of a process.
pub fn run(world: &World, life: usize, script: &Script, working: &Mutex<u64>) -> Checked<()> {
    stage::pause(script.begins);
    if script.is_first && world.handle(life).is_none() {
        panics::survive(|| open(world, life)).transpose()?;
    }
    for _ in 0..200 {
        let Some(filter) = world.handle(life) else {
            stage::pause(Duration::from_millis(20));
            continue;
        };
        let mut task = Task::new(world, life, &filter, script.random.clone());
        for &act in &script.acts {
            // After a panic the thread continues, as one that catches it may.
            if panics::survive(|| task.act(act)).transpose()? == Some(Next::Stop) {
                break;
            }
        }
        break;
    }
    *lock(working) -= 1;
    if script.is_first && script.closes {
        while *lock(working) > 0 {
            stage::pause(Duration::from_millis(1));
        }
        close(world, life)?;
    }
    Ok(())
}

/// The longest wait of a background thread: a tick would let all patience of the others end.
const TICK: Duration = Duration::from_millis(20);

/// Runs a background thread of a process, as long as others of its threads work. What had returned
/// an interval before is durable once the thread of the log has run.
pub fn tend(world: &World, life: usize, is_log: bool, working: &Mutex<u64>) -> Checked<()> {
    let (mut ran, is_punctual) = (None, world.plan.is_punctual);
    let interval = match world.plan.durability {
        // Otherwise it may not have run.
        Durability::Interval(every) if is_log && !is_punctual => Some(every),
        _ => None,
    };
    while *lock(working) > 0 {
        let began = stage::now();
        let returned = match interval {
            Some(_) => world.ask(|oracle, _| Ok(oracle.returned()))?,
            None => 0,
        };
        // A task that panics is over.
        let run = |filter: Arc<Opened>| {
            panics::survive(|| filter.run_task(is_log, is_punctual)).flatten()
        };
        let due = world.handle(life).and_then(run);
        let is_synced = interval.zip(ran).is_some_and(|(every, ran)| began - ran >= every);
        // A sync that failed is left to callers, and a handle may not have noticed an alteration.
        let is_trusted = !lock(&world.weather).may_poison && !world.plan.alters();
        if due.is_some() && is_synced && is_trusted {
            world.ask(|oracle, disk| {
                oracle.acknowledge(returned, disk);
                Ok(())
            })?;
        }
        ran = due.map(|_| stage::now());
        stage::wait(due.unwrap_or(TICK).min(TICK));
    }
    Ok(())
}

/// Runs the thread of a process that syncs for tickets, as long as others of its threads work. Its
/// task runs only when it is due or was woken: so a wakeup that is lost is missed.
pub fn answer(world: &World, life: usize, working: &Mutex<u64>) -> Checked<()> {
    while *lock(working) > 0 {
        let due = world.handle(life).and_then(|filter| filter.run_syncs());
        stage::wait(due.unwrap_or(TICK).min(TICK));
    }
    Ok(())
}

/// Closes the handle of a process.
pub fn close(world: &World, life: usize) -> Checked<()> {
    // The handle stays in its place meanwhile: a dropped one closes, which a dead process cannot.
    let Some(filter) = world.handle(life) else { return Ok(()) };
    let returned = world.ask(|oracle, _| Ok(oracle.returned()))?;
    world.begin_closing(life);
    match panics::survive(|| filter.close()) {
        Some(Ok(())) => {
            world.ask(|oracle, disk| {
                // A handle that has not noticed an alteration closes what was before it.
                if !world.plan.alters() && !world.has_closers(life) {
                    oracle.acknowledge(returned, disk);
                }
                Ok(())
            })?;
            world.trace(|| format!("process {life} has closed"));
        }
        Some(Err(error)) if !world.may_fail_by(&error) => {
            return Err(format!("closing: {error}"));
        }
        Some(Err(_)) | None => {}
    }
    drop(filter);
    world.set_handle(life, None);
    Ok(())
}
