//! What happens to processes from outside, at moments that the schedule chooses: the clock jumps,
//! calls to the disk fail, the image is written back or lost, processes are killed, the disk begins
//! to lie, the power fails.

use crate::world::{World, lock};
use ebbtide::Error;
use ebbtide_testkit::crash::fault::{FAULTS, Fault, Plan};
use ebbtide_testkit::prefix::Checked;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::schedule::{panics, stage};
use std::time::Duration;

/// Which errors are allowed at the moment.
#[derive(Debug, Default, Clone, Copy)]
pub struct Weather {
    /// The fault of this round.
    pub fault: Option<Fault>,
    /// The faults that have struck a call in this round, by their places in [`FAULTS`].
    pub struck: u32,
    /// The system could not start a thread in this round.
    pub lacked_threads: bool,
    /// A read may have returned something else than what the disk holds.
    pub misreads: bool,
    /// A sync or the image may have failed since the filter was opened.
    pub may_poison: bool,
    /// Pages of the image are lost: until all have closed, nothing that is answered counts.
    pub lost: bool,
    /// The disk was full, at any time.
    pub was_full: bool,
    /// A sync of the directory failed, at any time. The power cuts here keep any of the names since
    /// the last sync; file systems keep their order, on which only the kept log depends
    /// (docs/protocols/kept-log.md).
    pub may_tear_kept: bool,
    /// The disk reports syncs that it does not do.
    pub lies: bool,
    /// The disk before the last power cut did.
    pub was_lied_to: bool,
    /// The power has failed in this round.
    pub is_cut: bool,
    /// The files are damaged, as they may be after lies.
    pub is_over: bool,
    /// Somebody has opened the filter.
    pub is_created: bool,
}

impl Weather {
    /// Returns whether the files may be damaged, as after lies of the disk.
    pub fn may_be_damaged(&self) -> bool {
        self.was_lied_to
    }

    /// Returns whether `verify` may call a file damaged.
    pub fn excuses(&self, file: &str) -> bool {
        self.was_lied_to || (self.may_tear_kept && file == "kept-*")
    }

    /// Returns whether log that was to be kept may be gone: a full disk takes it before anything
    /// fails.
    pub fn may_lack_past(&self) -> bool {
        self.was_lied_to || self.was_full || self.may_tear_kept
    }

    /// Returns whether an error may come from what happened to the disk.
    fn allows(&self, error: &Error) -> bool {
        match error {
            Error::Poisoned { .. } | Error::Retired { .. } => self.may_poison,
            Error::Io { source, .. } => {
                let causes =
                    |fault: Fault| fault.error().is_some_and(|error| error.kind() == source.kind());
                self.lost || self.lacked_threads || self.struck().any(causes)
            }
            // Its claim is on a lost page.
            Error::LeaseLost { .. } => self.lost,
            Error::Damaged { .. } => self.lost || self.misreads,
            Error::Core(_) => self.lost,
            // The directory is not complete yet, or cannot be looked at.
            Error::NotAFilter { .. } | Error::Exists { .. } | Error::Occupied { .. } => {
                self.struck != 0
            }
            _ => false,
        }
    }

    /// Returns the faults that have struck.
    fn struck(&self) -> impl Iterator<Item = Fault> + '_ {
        let all = FAULTS.iter().enumerate();
        all.filter(|(at, _)| self.struck >> at & 1 != 0).map(|(_, &fault)| fault)
    }

    /// Notes that this plan has struck, if it has.
    fn note(&mut self, plan: Option<Plan>) {
        let Some(plan) = plan.filter(Plan::has_struck) else { return };
        let place = FAULTS.iter().position(|&fault| fault == plan.fault);
        self.struck |= place.map_or(0, |place| 1 << place);
    }
}

impl World {
    /// Returns whether an error may come from what happened to the disk.
    pub fn may_fail_by(&self, error: &Error) -> bool {
        let planned = self.disk().planned();
        let mut weather = lock(&self.weather);
        weather.note(planned);
        weather.allows(error)
    }

    /// After the last round nothing fails any more, and nobody is alive.
    pub fn clear_up(&self) {
        heal(self);
        let mut weather = lock(&self.weather);
        let Weather { was_full, may_tear_kept, was_lied_to, lies, is_created, .. } = *weather;
        let was_lied_to = was_lied_to || lies;
        let left = Weather { was_full, may_tear_kept, is_created, ..Weather::default() };
        *weather = Weather { was_lied_to, lies, ..left };
    }
}

/// What happens to a world.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    Advance(Duration),
    SetWallAhead(Duration),
    SetWallBack(Duration),
    Fail(Plan),
    LackThreads,
    Panic,
    Heal,
    WriteBack,
    Lose,
    Lie,
    Kill(u64),
    CutPower,
}

/// Events, each with the steps and the time before it.
pub type Events = Vec<(u64, Duration, Event, Random)>;

/// Draws the events of a round.
pub fn draw(random: &mut Random, is_calm: bool) -> Events {
    let mut events = Vec::new();
    for _ in 0..random.below(5) {
        let event = match random.below(if is_calm { 8 } else { 20 }) {
            0..=3 => {
                let most = if random.below(4) == 0 { 3_600_000_000 } else { 150_000 };
                Event::Advance(Duration::from_micros(random.below(most)))
            }
            4 => {
                let most = if random.below(3) == 0 { 60_000_000 } else { 40_000 };
                let by = Duration::from_micros(random.below(most));
                if random.below(2) == 0 { Event::SetWallAhead(by) } else { Event::SetWallBack(by) }
            }
            5 => Event::Kill(random.below(3)),
            6 | 7 => Event::CutPower,
            8..=12 => {
                // What a failed sync loses of the log, the oracle does not know.
                let mut known = FAULTS.into_iter().filter(|&it| it != Fault::SyncDropsPages);
                let fault = known.nth(random.below(FAULTS.len() as u64 - 1) as usize);
                let fault = fault.unwrap_or(Fault::InputOutput);
                // As long as no call tells whether others live, everybody waits for them.
                let most = if random.below(3) == 0 { 1 + random.below(60) } else { 1 };
                Event::Fail(Plan::lasting(fault, 1 + random.below(20), most))
            }
            13 | 14 => Event::Heal,
            15 => Event::WriteBack,
            16 if random.below(2) == 0 => Event::Lose,
            17 if random.below(3) == 0 => Event::Lie,
            18 => Event::LackThreads,
            19 => Event::Panic,
            _ => Event::WriteBack,
        };
        let wait = Duration::from_micros(random.below(4) * random.below(30_000));
        let own = Random::new(random.below(u64::MAX));
        let most = 1 << random.below(13);
        events.push((random.below(most), wait, event, own));
    }
    events
}

/// Lets the events of a round happen to the processes in these lives.
pub fn run(world: &World, events: Events, lives: &[usize]) -> Checked<()> {
    for (steps, wait, event, mut random) in events {
        stage::pause(wait);
        for _ in 0..steps {
            stage::step();
        }
        world.trace(|| format!("{event:?}"));
        let disk = world.disk();
        match event {
            Event::Advance(by) => {
                world.advance(by);
                world.trace(|| format!("now {}", world.given_now()));
            }
            Event::SetWallAhead(by) => world.set_wall_ahead(by),
            Event::SetWallBack(by) => world.set_wall_back(by),
            Event::Fail(plan) => fail(world, plan),
            Event::LackThreads => {
                stage::lack_threads(true);
                lock(&world.weather).lacked_threads = true;
            }
            Event::Panic => {
                let most = 1 << random.below(12);
                match random.below(2) {
                    0 => panics::let_sync_panic(true),
                    _ => panics::let_call_panic(Some(random.below(most))),
                }
                // Whoever unwinds may hold a stripe.
                lock(&world.weather).may_poison = true;
            }
            Event::Heal => heal(world),
            Event::WriteBack => stage::at_once(|| disk.write_back()),
            Event::Lose => lose(world, &mut random)?,
            Event::Lie => {
                disk.lie();
                lock(&world.weather).lies = true;
                lock(&world.counts).lies += 1;
            }
            Event::Kill(number) => {
                if let Some(&life) = lives.get(number as usize) {
                    stage::kill(life);
                    lock(&world.counts).killed += 1;
                }
            }
            Event::CutPower => {
                lives.iter().copied().for_each(stage::kill);
                lock(&world.weather).is_cut = true;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Lets calls to the disk fail.
fn fail(world: &World, plan: Plan) {
    let mut weather = lock(&world.weather);
    weather.fault = Some(plan.fault);
    weather.misreads |= matches!(plan.fault, Fault::BitFlip | Fault::ReadEnds);
    weather.was_full |=
        matches!(plan.fault, Fault::NoSpace | Fault::QuotaExceeded | Fault::ShortWrite);
    weather.may_tear_kept |= plan.fault == Fault::DirectorySyncFails;
    weather.may_poison = true;
    drop(weather);
    note(world, world.disk().plan(Some(plan)));
}

/// Loses pages of the image.
fn lose(world: &World, random: &mut Random) -> Checked<()> {
    // In one step: what is written after it may rest on what is lost.
    let is_lost = world.ask(|oracle, disk| {
        let is_lost = disk.lose(random);
        if is_lost {
            oracle.lose_image(disk.has("tmp-0"));
            let mut weather = lock(&world.weather);
            (weather.lost, weather.may_poison) = (true, true);
        }
        Ok(is_lost)
    })?;
    if is_lost {
        lock(&world.counts).lost += 1;
        // The threads that look once a second are not there.
        stage::forgive();
    }
    Ok(())
}

/// Counts a fault that has struck.
fn note(world: &World, plan: Option<Plan>) {
    lock(&world.weather).note(plan);
    if plan.is_some_and(|plan| plan.has_struck()) {
        lock(&world.counts).faults += 1;
    }
}

/// No call to the disk fails any more. Errors from before may be still on their way.
pub fn heal(world: &World) {
    note(world, world.disk().plan(None));
    stage::lack_threads(false);
    panics::let_sync_panic(false);
    panics::let_call_panic(None);
}

/// Ends the faults of a round.
pub fn clear(world: &World) {
    let mut weather = lock(&world.weather);
    (weather.fault, weather.struck) = (None, 0);
    (weather.misreads, weather.lacked_threads) = (false, false);
}
