//! One world: the real engine in some processes on one simulated disk, with one clock, over some
//! boots of one machine. Everything in it follows from its seed.

use crate::claims;
use crate::faults::{self, Weather};
use crate::oracle::{Loss, Oracle, SEED};
use crate::plan::{Plan, Times};
use crate::processes;
use crate::report::Counts;
use crate::tickets::Tickets;
use ebbtide::{Any, Clock, Filter, ManualClock, Options, Timestamp, inspect};
use ebbtide_testkit::crash::choices::Chooser;
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::prefix::{Checked, text};
use ebbtide_testkit::random::{Random, mix};
use ebbtide_testkit::schedule::place::Place;
use ebbtide_testkit::schedule::{panics, stage};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// The lives of processes in a world; each life has a number.
pub const LIVES: usize = 96;
/// How far ahead of the clock keys may be.
pub const LEAD: Duration = Duration::from_secs(400 * 86_400);
/// The first time of every world, in microseconds.
const START: u64 = 1_700_000_000_000_000;

pub type Opened = Filter<Any>;

/// What the tasks of a world share.
pub struct World {
    pub me: Weak<Self>,
    pub plan: Plan,
    place: Mutex<Place<CrashDisk>>,
    hand: Mutex<ManualClock>,
    elapsed: Mutex<Duration>,
    /// The time that comes with keys.
    now: Mutex<u64>,
    /// How far the clock of the filter may be ahead of that time: as far as a key was, and after a
    /// reboot by as much as the wall clock was behind before.
    lead: Mutex<u64>,
    oracle: Mutex<Oracle>,
    pub weather: Mutex<Weather>,
    /// The handles, by life.
    handles: Vec<Mutex<Option<Arc<Opened>>>>,
    pub claims: Mutex<claims::Claims>,
    pub tickets: Mutex<Tickets>,
    /// For each life, the LSN behind the records of what has returned.
    pub written: Mutex<BTreeMap<usize, u64>>,
    /// For each life, the number of acts that have begun and not returned.
    pub acting: Mutex<BTreeMap<usize, u64>>,
    fresh: Mutex<u64>,
    pub counts: Mutex<Counts>,
    is_traced: bool,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("not poisoned")
}

/// A process in its life, with the number of its threads.
#[derive(Debug, Clone, Copy)]
struct Process {
    life: usize,
    threads: u64,
}

impl World {
    fn new(random: &mut Random, is_traced: bool, me: Weak<Self>) -> Self {
        let plan = Plan::draw(random);
        let oracle = Oracle::new(plan.spec, plan.layout);
        Self {
            me,
            place: Mutex::new(Place::new(CrashDisk::new(), None)),
            hand: Mutex::new(ManualClock::new(Timestamp::from_unix_micros(START))),
            elapsed: Mutex::default(),
            now: Mutex::new(START),
            lead: Mutex::default(),
            oracle: Mutex::new(oracle),
            weather: Mutex::default(),
            handles: (0..LIVES).map(|_| Mutex::default()).collect(),
            claims: Mutex::default(),
            tickets: Mutex::default(),
            written: Mutex::default(),
            acting: Mutex::default(),
            fresh: Mutex::new(1 << 20),
            counts: Mutex::default(),
            is_traced,
            plan,
        }
    }

    /// Prints a line of the trace, and adds it to the trace's hash.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        let line = line();
        let hash = line.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        stage::note(hash);
        if self.is_traced {
            println!("{:>9} {:>7}us {line}", stage::figures().steps, stage::now().as_micros());
        }
    }

    pub fn options(&self) -> Options {
        let clock = Clock::from(lock(&self.hand).clone());
        let (plan, layout) = (&self.plan, self.plan.layout);
        let options = plan.keeps.map_or(Options::new(), |keeps| Options::new().keep_log(keeps));
        options
            .hash_seed(SEED)
            .stripes(layout.stripes)
            .block_bytes(layout.block_bytes)
            .segment_bytes(plan.segment_bytes)
            .checkpoint_bytes(plan.checkpoint_bytes)
            .durability(plan.durability)
            .max_lead(LEAD)
            .background(plan.has_tasks)
            .clock(clock)
    }

    pub fn place(&self) -> Place<CrashDisk> {
        lock(&self.place).clone()
    }

    pub fn disk(&self) -> CrashDisk {
        lock(&self.place).medium.clone()
    }

    pub fn handle(&self, life: usize) -> Option<Arc<Opened>> {
        lock(&self.handles[life]).clone()
    }

    pub fn set_handle(&self, life: usize, filter: Option<Arc<Opened>>) {
        let before = std::mem::replace(&mut *lock(&self.handles[life]), filter);
        drop(before);
    }

    /// Looks at the oracle, which first reads the log, in one step.
    pub fn ask<T>(&self, look: impl FnOnce(&mut Oracle, &CrashDisk) -> Checked<T>) -> Checked<T> {
        stage::at_once(|| {
            let (disk, mut oracle) = (self.disk(), lock(&self.oracle));
            oracle.read(&disk)?;
            look(&mut oracle, &disk)
        })
    }

    /// An operation of a process has returned, whose records end before an LSN.
    pub fn note_written(&self, life: usize, end: u64) {
        let mut written = lock(&self.written);
        let before = written.entry(life).or_default();
        *before = end.max(*before);
    }

    /// Returns a key that nobody has used.
    pub fn fresh(&self) -> u64 {
        let mut fresh = lock(&self.fresh);
        *fresh += 1;
        *fresh
    }

    /// Returns the time that comes with the next key, if one does.
    pub fn time_of_key(&self, random: &mut Random) -> Option<Timestamp> {
        if self.plan.times == Times::Clock {
            return None;
        }
        let is_mixed = matches!(self.plan.times, Times::Mixed { .. });
        let step = Duration::from_micros(if is_mixed { random.below(15_000) } else { 3000 });
        lock(&self.hand).advance(step);
        *lock(&self.elapsed) += step;
        let now = {
            let mut now = lock(&self.now);
            *now += step.as_micros() as u64;
            *now
        };
        let time = match self.plan.times {
            Times::Mixed { one_in } if random.below(one_in) > 0 => return None,
            Times::Mixed { .. } => match random.below(6) {
                0 | 1 => now - random.below(500_000),
                2 => now + random.below(30_000),
                3 if random.below(8) == 0 => now + random.below(20_000_000),
                _ => now,
            },
            _ => now,
        };
        let mut lead = lock(&self.lead);
        *lead = time.saturating_sub(now).max(*lead);
        Some(Timestamp::from_unix_micros(time))
    }

    /// Returns a time that the filter has not passed.
    pub fn latest_possible(&self) -> u64 {
        self.given_now().max(lock(&self.oracle).latest()) + 1
    }

    /// Returns a time that neither keys nor the clock of the filter have passed.
    pub fn given_now(&self) -> u64 {
        *lock(&self.now) + *lock(&self.lead)
    }

    /// Returns how long the machine has run.
    pub fn elapsed(&self) -> Duration {
        *lock(&self.elapsed)
    }

    /// Lets the clock advance.
    pub fn advance(&self, by: Duration) {
        lock(&self.hand).advance(by);
        *lock(&self.elapsed) += by;
        *lock(&self.now) += by.as_micros() as u64;
        lock(&self.counts).passed += by;
    }

    /// Sets the wall clock forward alone, as an administrator may.
    pub fn set_wall_ahead(&self, by: Duration) {
        let mut now = lock(&self.now);
        *now += by.as_micros() as u64;
        lock(&self.hand).set_wall(Timestamp::from_unix_micros(*now));
    }

    /// Sets the wall clock back alone.
    pub fn set_wall_back(&self, by: Duration) {
        let by = by.as_micros() as u64;
        let wall = *lock(&self.now) - by;
        *lock(&self.lead) += by;
        lock(&self.hand).set_wall(Timestamp::from_unix_micros(wall));
    }

    /// Lets processes work beside each other until each has ended its script or died.
    fn round(self: &Arc<Self>, processes: &[Process], random: &mut Random) {
        stage::begin_round();
        let (mut threads, mut lives) = (Vec::new(), Vec::new());
        for &Process { life, threads: count } in processes {
            lives.push(life);
            let working = Arc::new(Mutex::new(count));
            for number in 0..count {
                let script = processes::Script::draw(random, number, self.plan.favourite);
                let (world, working) = (self.clone(), working.clone());
                threads.push(shuttle::thread::spawn(move || {
                    stage::perform(life, || processes::run(&world, life, &script, &working));
                }));
            }
            for is_log in [true, false].into_iter().filter(|_| self.plan.has_tasks) {
                let (world, working) = (self.clone(), working.clone());
                threads.push(shuttle::thread::spawn(move || {
                    stage::perform(life, || processes::tend(&world, life, is_log, &working));
                }));
            }
            if self.plan.has_tickets {
                let (world, working) = (self.clone(), working.clone());
                threads.push(shuttle::thread::spawn(move || {
                    stage::perform(life, || processes::answer(&world, life, &working));
                }));
            }
        }
        let script = faults::draw(random, self.plan.is_calm);
        let world = self.clone();
        // The last life is that of the machine, and never ends but with it.
        threads.push(shuttle::thread::spawn(move || {
            stage::perform(LIVES - 1, || faults::run(&world, script, &lives));
        }));
        for thread in threads {
            thread.join().expect("its panics are caught");
        }
        stage::end_round();
    }

    /// Drops the handles of dead processes; returns the lives of the others.
    pub fn bury(&self) -> Vec<(usize, Arc<Opened>)> {
        let mut left = Vec::new();
        for (life, handle) in self.handles.iter().enumerate() {
            let Some(filter) = lock(handle).take() else { continue };
            if stage::is_dead(life) {
                filter.forget_tickets();
                stage::release(life, filter);
            } else {
                *lock(handle) = Some(filter.clone());
                left.push((life, filter));
            }
        }
        self.bury_tickets();
        left
    }

    /// Ends all processes, without a last step.
    fn kill_all(&self) {
        (0..LIVES - 1).filter(|&life| lock(&self.handles[life]).is_some()).for_each(stage::kill);
        self.bury();
        self.forget_tickets();
    }

    /// The power fails: another disk is left, and the machine starts again.
    fn power_cut(&self, random: &mut Random) -> Checked<()> {
        self.kill_all();
        stage::lack_threads(false);
        panics::let_sync_panic(false);
        panics::let_call_panic(None);
        let weather = *lock(&self.weather);
        let is_lied_to = weather.lies || weather.was_lied_to;
        self.ask(|oracle, _| {
            oracle.cut(if is_lied_to { Loss::Anything } else { Loss::Undurable });
            Ok(())
        })?;
        let disk = self.disk();
        self.check_order(&disk)?;
        let tape = disk.end();
        let by = Chooser::chance(Random::new(random.below(u64::MAX))).shared();
        *lock(&self.place) = Place::new(CrashDisk::after_cut(&tape, tape.now, &by, true), None);
        self.trace(|| format!("the power fails; names left: {:?}", self.disk().names("")));
        let away = Duration::from_micros(random.below(3_000_000));
        let mut now = lock(&self.now);
        *now += away.as_micros() as u64;
        // A machine without a battery for its clock starts in the past.
        let behind = if random.below(5) == 0 { random.below(3_600_000_000) } else { 0 };
        *lock(&self.hand) = ManualClock::new(Timestamp::from_unix_micros(*now - behind));
        *lock(&self.lead) += behind;
        lock(&self.counts).power_cuts += 1;
        let (was_full, may_tear_kept) = (weather.was_full, weather.may_tear_kept);
        let is_created = weather.is_created && !is_lied_to;
        let next = Weather { was_lied_to: is_lied_to, was_full, is_created, ..Weather::default() };
        *lock(&self.weather) = Weather { may_tear_kept, ..next };
        lock(&self.claims).forget_keys();
        Ok(())
    }

    /// Opens the filter after the last round, and compares all that is left.
    fn end(&self, life: usize, random: &mut Random) -> Checked<()> {
        self.kill_all();
        self.clear_up();
        let Some(filter) = processes::open(self, life)? else {
            let is_over = lock(&self.weather).is_over;
            return if is_over { Ok(()) } else { Err("the last process cannot open".to_owned()) };
        };
        self.compare("the last process", &filter)?;
        self.compare_answers(&filter, random)?;
        self.compare_past(random)?;
        filter.close().map_err(text)?;
        self.closed()?;
        self.set_handle(life, None);
        drop(filter);
        let disk = self.disk();
        self.check_order(&disk)?;
        let report = inspect::verify_on(&disk).map_err(text)?;
        let weather = *lock(&self.weather);
        let mut damaged = report.files.iter().filter(|file| !file.damage.is_empty());
        let is_excused = damaged.all(|file| weather.excuses(&file.name));
        if is_excused { Ok(()) } else { Err(format!("{report:?}")) }
    }

    fn live(self: &Arc<Self>, random: &mut Random) -> Checked<()> {
        let mut next = 0;
        let plan = &self.plan;
        self.trace(|| format!("{plan:?}"));
        let mut processes: Vec<Process> = Vec::new();
        for _ in 0..2 + random.below(5) {
            processes.retain(|process| {
                !stage::is_dead(process.life) && self.handle(process.life).is_some()
            });
            while processes.len() < 1 + random.below(3) as usize && next < LIVES - 4 {
                processes.push(Process { life: next, threads: 1 + random.below(2) });
                next += 1;
            }
            self.round(&processes, random);
            if stage::failure().is_some() {
                return Ok(());
            }
            lock(&self.counts).rounds += 1;
            let is_cut = lock(&self.weather).is_cut;
            if is_cut || random.below(4) == 0 {
                self.power_cut(random)?;
            } else {
                self.judge(random)?;
            }
            if lock(&self.weather).is_over {
                return Ok(());
            }
        }
        self.end(LIVES - 3, random)
    }
}

/// Lets a world happen, in shuttle's first thread; the stage records a failure.
pub fn happen(seed: u64, is_traced: bool) -> Counts {
    let mut random = Random::new(mix(seed));
    let world = Arc::new_cyclic(|me| World::new(&mut random, is_traced, me.clone()));
    let is_mortal = world.plan.is_mortal;
    let deaths = (0..LIVES).map(|life| {
        let span = 16 << random.below(13);
        let dies = is_mortal && life < LIVES - 4 && random.below(5) < 2;
        dies.then(|| 1 + random.below(span))
    });
    let deaths = deaths.collect();
    let buried = world.clone();
    stage::begin(Random::new(random.below(u64::MAX)), deaths, move |life| {
        buried.place().bury(life);
    });
    stage::let_syncs_last(world.plan.sync_lasts);
    stage::watch(|| world.live(&mut random));
    if let (true, Some(failure)) = (is_traced, stage::failure()) {
        lock(&world.oracle).print();
        println!("{failure}");
    }
    stage::end(|life| {
        let filter = lock(&world.handles[life]).take();
        filter.inspect(|filter| filter.forget_tickets())
    });
    world.bury_tickets();
    let counts = *lock(&world.counts);
    Counts { passed: counts.passed + stage::now(), ..counts }
}
