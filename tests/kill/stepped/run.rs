//! One scene: kill after kill, or stop after stop, in one directory.

use super::aim;
use super::children::{Answer, Plan, Survivor, Victim};
use super::copies::Copied;
use super::effort::spaced;
use super::ptrace::Stop;
use super::scenes::{BATCH, Operation, Scene};
use super::stopped::Waits;
use super::watch::Watch;
use ebbtide::Filter;
use ebbtide_testkit::random::Random;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

/// The number of kills between two deaths of the survivor, after which the directory itself is
/// recovered.
const KILLS_IN_A_ROW: u64 = 64;
/// The number of kills between two recoveries of a copy. Before the copy the survivor syncs, which
/// fills the gaps that victims left in the log: only `live` explains them, and a copy of `live` is
/// not accepted.
const COPY: u64 = 8;
/// The number of kills between two checkpoints.
const CHECKPOINT: u64 = 16;
/// The number of kills between two after which the survivor dies, too, before it has inserted
/// anything.
const AT_ONCE: u64 = 7;
/// The largest number of single steps if there is an address to run to.
const FAR: usize = 4000;
/// The default number of stops in a scene.
const STOPS: usize = 16;
/// The number of rounds in which a repairing process is killed too, if all were requested.
const ROUNDS: usize = 200;

/// The relation of the survivor to the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// The survivor has the filter open, and repairs.
    Beside,
    /// The survivor opens the filter afterwards, and recovers.
    After,
    /// The survivor has the filter open, and the victim is only stopped: the survivor works
    /// meanwhile, and later the victim resumes.
    Stopped,
}

/// The settings from the arguments.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The number of instructions from kill to kill; by scene, if not given.
    pub every: Option<usize>,
    /// The seed of all random choices.
    pub seed: u64,
    /// The first kill to run, to continue an earlier run.
    pub from: usize,
    /// The number of kills; all, if not given, or pairs by scene.
    pub kills: Option<usize>,
    /// Whether addresses are the same in every child.
    pub leaps: bool,
    /// Whether to print each stop.
    pub each: bool,
}

/// The addresses of an operation's instructions: before the first, after the first, ...
#[derive(Debug, Default)]
pub struct Way {
    pub places: Vec<u64>,
    /// For each number of instructions, how often the child will have reached its address by then;
    /// 0 where a repeated instruction (`rep movs`) makes that ambiguous.
    times: Vec<u32>,
    /// The numbers after which the address differs from the one before: not within a repeated
    /// instruction.
    points: Vec<usize>,
}

impl Way {
    fn new(places: Vec<u64>) -> Self {
        let repeated: HashSet<u64> =
            places.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        let mut counts = HashMap::new();
        let mut time = |place: &u64| {
            let count = counts.entry(*place).or_insert(0);
            *count += 1;
            if repeated.contains(place) { 0 } else { *count }
        };
        let times = places.iter().map(&mut time).collect();
        let points = (1..places.len()).filter(|&at| places[at - 1] != places[at]).collect();
        Self { places, times, points }
    }

    /// Returns the best number of instructions, not above `count`, to run to with the breakpoint
    /// before single-stepping the rest; a stop costs about as much as a step. Zero if
    /// single-stepping from the start is at least as fast.
    fn best(&self, count: usize) -> usize {
        let stops = |at: usize| self.times[at] as usize + count - at;
        let candidates = count.saturating_sub(FAR)..=count.min(self.times.len() - 1);
        let best = candidates.filter(|&at| self.times[at] > 0).min_by_key(|&at| stops(at));
        best.filter(|&at| stops(at) < count).unwrap_or(0)
    }
}

/// The goal of a victim.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// To the end, recording the path.
    End,
    /// This many instructions.
    After(usize),
}

/// The results of a scene.
#[derive(Debug, Default)]
pub struct Results {
    /// The number of instructions of the operation.
    pub instructions: usize,
    /// The number of victims killed during it.
    pub kills: u64,
    /// Of these, the number whose insert is present.
    pub counted: u64,
    /// Of these, the number at an address that differs from the first measurement after as many
    /// instructions.
    pub astray: u64,
    /// The durations of inserts beside stopped victims.
    pub waits: Waits,
    /// The number of victims that reached the end of a shorter path.
    pub ended: u64,
    /// The number of recoveries of the directory, and of copies.
    pub recovered: (u64, u64),
}

pub struct Run<'a> {
    pub scene: &'static Scene,
    company: Company,
    pub settings: Settings,
    watch: &'a Watch,
    pub dir: PathBuf,
    pub survivor: Option<Survivor>,
    /// The number of the next insert.
    pub next: u64,
    /// The number of inserts after the last answer.
    pub inserts: u64,
    /// The number of records since the beginning of the timeline, after the last answer.
    place: u64,
    timeline_start: u64,
    /// The paths of the operation, and of the repairing ones.
    pub ways: Vec<Way>,
    pub results: Results,
}

/// Runs a scene.
pub fn run(scene: &'static Scene, company: Company, settings: Settings) -> Result<Results, String> {
    let home = home();
    let watch = Watch::start();
    let dir = home.path().join("filter");
    let mut run = Run {
        scene,
        company,
        settings,
        watch: &watch,
        dir,
        survivor: None,
        next: 0,
        inserts: 0,
        place: 0,
        timeline_start: 1,
        ways: Vec::new(),
        results: Results::default(),
    };
    run.begin()?;
    let every = settings.every.unwrap_or_else(|| spaced(scene.every));
    let goals = run.goals(every)?;
    for (at, goals) in goals.iter().enumerate() {
        let said = match company {
            Company::Stopped => run.stop(at as u64, goals[0]),
            Company::Beside | Company::After => run.kill(at as u64, goals),
        };
        said.map_err(|what| {
            let seed = settings.seed;
            format!("`{}` {company:?}, {goals:?}, seed {seed}: {what}", scene.path)
        })?;
    }
    run.recover()?;
    Ok(run.results)
}

/// Creates a directory in memory if possible, unless the environment names one: these tests kill
/// processes, not machines.
fn home() -> tempfile::TempDir {
    let named = std::env::var_os("TMPDIR").map(PathBuf::from);
    let memory = named.unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let mut builder = tempfile::Builder::new();
    let builder = builder
        .prefix("ebbtide-stepped-")
        .disable_cleanup(std::env::var_os("EBBTIDE_KEEP").is_some());
    let made = builder.tempdir_in(memory).or_else(|_| builder.tempdir());
    made.expect("a temporary directory")
}

fn told(error: ebbtide::Error) -> String {
    error.to_string()
}

impl Run<'_> {
    fn begin(&mut self) -> Result<(), String> {
        let filter =
            Filter::create(&self.dir, self.scene.spec(), self.scene.options()).map_err(told)?;
        for number in 0..100 {
            self.scene.insert(&filter, number).map_err(told)?;
        }
        self.next = 100;
        // The first claim allocates the table, which would be most of its path.
        if self.scene.operation.is_of_claims() {
            self.scene.claim(&filter, 100).map_err(told)?;
            self.scene.end_claim(&filter, 100).map_err(told)?;
        }
        filter.close().map_err(told)
    }

    /// Measures the paths, and returns the goals of the victims of each round.
    fn goals(&mut self, every: usize) -> Result<Vec<Vec<Goal>>, String> {
        // A repairing process takes the longer path after a death in the middle.
        let mut middles = Vec::new();
        for at in 0..self.scene.victims as usize {
            self.kill(1, &[&middles[..], &[Goal::End]].concat())?;
            middles.push(Goal::After(self.ways[at].places.len() / 2));
        }
        let mut random = Random::new(self.settings.seed);
        let (from, kills) = (self.settings.from, self.settings.kills);
        if self.scene.victims > 1 {
            let mut pick =
                |way: &Way| Goal::After(way.points[random.below(way.points.len() as u64) as usize]);
            let rounds = from + kills.unwrap_or(ROUNDS.div_ceil(every));
            let all = (0..rounds).map(|_| self.ways.iter().map(&mut pick).collect());
            return Ok(all.skip(from).collect());
        }
        let stopped = self.company == Company::Stopped;
        let spread = self.ways[0].points.len().div_ceil(STOPS).max(1);
        let every = if stopped { self.settings.every.unwrap_or(spread).max(1) } else { every };
        let start = random.below(every as u64) as usize;
        let points = self.ways[0].points.iter().skip(start).step_by(every);
        let points = points.skip(from).take(kills.unwrap_or(usize::MAX));
        // One victim that has not begun, for comparison.
        let points = points.chain(stopped.then_some(&0));
        Ok(points.map(|&point| vec![Goal::After(point)]).collect())
    }

    pub fn doing<T>(&self, what: &str, pids: &[u32], act: impl FnOnce() -> T) -> T {
        let what =
            format!("{} {:?}: {what}; in {}", self.scene.path, self.company, self.dir.display());
        self.watch.over(what, pids, act)
    }

    /// Sends a command to the survivor, starting it if necessary.
    pub fn ask(
        &mut self,
        what: &str,
        ask: impl FnOnce(&mut Survivor) -> Result<Answer, String>,
    ) -> Result<Answer, String> {
        let begins = self.survivor.is_none();
        let mut survivor = match self.survivor.take() {
            Some(survivor) => survivor,
            None => Survivor::start(self.scene, &self.dir)?,
        };
        let first = if begins {
            let first =
                self.doing("the survivor opens", &[survivor.id()], || survivor.count(0..0))?;
            Some(first)
        } else {
            None
        };
        if let (Some(first), Company::Beside | Company::Stopped) = (&first, self.company) {
            self.timeline_start = first.lsn;
        }
        let pids = [survivor.id()];
        let answer = self.doing(what, &pids, || ask(&mut survivor))?;
        self.survivor = Some(survivor);
        self.place = answer.lsn.saturating_sub(self.timeline_start);
        Ok(answer)
    }

    /// Runs one round: the victims in turn, then the survivor.
    fn kill(&mut self, round: u64, goals: &[Goal]) -> Result<(), String> {
        let (earlier, done) = self.prepare()?;
        let tested = self.victims(earlier, goals)?;
        if round.is_multiple_of(AT_ONCE) && self.company == Company::Beside {
            // Without an insert in between, the state that the survivor saw equals the state that
            // recovery derives from the files.
            self.recover()?;
            self.ask("insert the victims' keys", |survivor| survivor.insert(tested.clone()))?;
            self.ask("end the victims' claims", |survivor| survivor.end_claims(tested))?;
            return Ok(());
        }
        let warmed = goals.len() as u64;
        let expected = self.inserts + done + warmed;
        self.check_survivor(expected, tested, round.is_multiple_of(2))?;
        if round.is_multiple_of(KILLS_IN_A_ROW) {
            // Without a sync before: the gaps of the kills since the last one are still there.
            return self.recover();
        }
        if round.is_multiple_of(COPY) || self.company == Company::After {
            self.compare()?;
        }
        if round.is_multiple_of(CHECKPOINT) {
            self.ask("checkpoint", Survivor::checkpoint)?;
        }
        if self.company == Company::After {
            self.survivor.take().expect("it has just answered").kill();
        }
        Ok(())
    }

    /// Makes the inserts before the operation: returns those left to the victim, and the total
    /// number.
    pub fn prepare(&mut self) -> Result<(Range<u64>, u64), String> {
        let beside = self.company != Company::After;
        if beside {
            self.inserts = self.ask("look", |survivor| survivor.count(0..0))?.inserts;
        } else {
            // A victim that opens the filter begins a timeline.
            let copied = Copied::of(self.scene, &self.dir).map_err(told)?;
            self.inserts = copied.filter.digest().map_err(told)?.inserts;
            self.place = 0;
        }
        if beside && self.scene.aim.needs_copies() {
            self.ask("sync", Survivor::sync)?;
        }
        let before = aim::before(self.scene, &self.dir, self.next, self.place)?;
        let mut earlier = before.clone();
        if beside {
            self.ask("fill", |survivor| survivor.insert(before.clone()))?;
            earlier = before.end..before.end;
        }
        let done = before.end - before.start;
        self.next = before.end;
        Ok((earlier, done))
    }

    /// Runs the victims. All reach their operations before the first continues, because their
    /// preparation needs locks that others may hold when they die. Returns the numbers of the
    /// inserts under test.
    fn victims(&mut self, before: Range<u64>, goals: &[Goal]) -> Result<Range<u64>, String> {
        let count = goals.len() as u64;
        let first_tested = self.next + count;
        if self.scene.operation == Operation::Open {
            self.fill_for_others(before.start..first_tested)?;
        }
        let mut victims = Vec::new();
        for at in 0..count {
            let before = if at == 0 { before.clone() } else { self.next..self.next };
            let tested = first_tested + at * self.scene.operation.keys();
            let plan = Plan { before, warm: self.next + at, tested };
            let mut victim = Victim::start(self.scene, &self.dir, &plan)?;
            self.doing("a victim opens", &[victim.tracee.id()], || victim.stand())?;
            victims.push(victim);
        }
        let keys = self.scene.operation.keys();
        self.next += (1 + keys) * count;
        for (at, (victim, &goal)) in victims.iter_mut().zip(goals).enumerate() {
            self.advance(victim, at, goal)?;
            victim.tracee.kill();
        }
        Ok(first_tested..first_tested + keys * count)
    }

    /// Makes the warm-up inserts of a victim that only opens the filter. No other handle has it
    /// open then, except the survivor's.
    fn fill_for_others(&mut self, numbers: Range<u64>) -> Result<(), String> {
        // This keeps the paths of all rounds about equally long.
        self.ask("checkpoint before opening", Survivor::checkpoint)?;
        self.ask("fill before opening", |survivor| survivor.insert(numbers))?;
        if self.company == Company::After {
            self.survivor.take().expect("it has just answered").kill();
        }
        Ok(())
    }

    pub fn advance(&mut self, victim: &mut Victim, at: usize, goal: Goal) -> Result<(), String> {
        let tracee = &mut victim.tracee;
        let failed = |error: std::io::Error| format!("cannot step: {error}");
        let mut done = 0;
        let mut places = vec![tracee.place().map_err(failed)?];
        if let Goal::After(count) = goal
            && let Some(way) = self.ways.get(at).filter(|_| self.settings.leaps)
        {
            let best = way.best(count);
            match tracee.run_to(way.places[best], if best > 0 { way.times[best] } else { 0 }) {
                Ok(Stop::Breakpoint) => done = best,
                Ok(Stop::Mark) => {
                    self.results.ended += 1;
                    return Ok(());
                }
                other => return Err(format!("while running to {best} instructions: {other:?}")),
            }
        }
        loop {
            if matches!(goal, Goal::After(count) if done >= count) {
                let place = tracee.place().map_err(failed)?;
                self.results.kills += 1;
                self.results.astray += u64::from(self.ways[at].places.get(done) != Some(&place));
                return Ok(());
            }
            match tracee.step().map_err(failed)? {
                Stop::Step => done += 1,
                Stop::Mark => break,
                other => return Err(format!("after {done} instructions: {other:?}")),
            }
            if matches!(goal, Goal::End) {
                places.push(tracee.place().map_err(failed)?);
            }
        }
        if matches!(goal, Goal::After(_)) {
            self.results.ended += 1;
        } else {
            self.results.instructions = self.results.instructions.max(done);
            self.ways.truncate(at);
            self.ways.push(Way::new(places));
        }
        Ok(())
    }

    /// Checks the abilities and the view of the survivor. A digest takes all stripes, and so
    /// repairs them: with `at_once`, the survivor inserts before any.
    fn check_survivor(
        &mut self,
        expected: u64,
        tested: Range<u64>,
        at_once: bool,
    ) -> Result<(), String> {
        let count = tested.end - tested.start;
        let other = self.next;
        self.next += 1;
        let mut glanced = 0;
        self.ask("query for the victims' keys, insert another one", |survivor| {
            glanced = survivor.glance(tested.clone())?;
            if !at_once {
                survivor.count(0..0)?;
            }
            survivor.insert(other..other + 1)
        })?;
        let seen = self.ask("query after that", |survivor| survivor.count(tested.clone()))?;
        let most = if self.scene.operation.inserts() > 0 { count } else { 0 };
        // A process that died during a clear has cleared all or nothing.
        let cleared = self.scene.operation == Operation::Clear && seen.inserts == 1;
        let counted = if cleared { 0 } else { seen.inserts.wrapping_sub(expected + 1) };
        if counted > most {
            let inserts = seen.inserts;
            return Err(format!("{inserts} inserts, expected {} and up to {most}", expected + 1));
        }
        self.check_batches(&tested, counted, seen.position)?;
        self.check_claims(&tested, counted, seen.claims)?;
        if self.scene.keeps > 0 && seen.present < counted.max(glanced) {
            return Err(format!(
                "{glanced} of the victims' keys were present at first, then {}, of which {counted} \
                 are counted",
                seen.present
            ));
        }
        self.results.counted += counted;
        let again = self.ask("insert the victims' keys", |survivor| survivor.insert(tested))?;
        if again.inserts != seen.inserts + count {
            return Err(format!("{} inserts, expected {count} after {seen:?}", again.inserts));
        }
        self.inserts = again.inserts;
        self.find_latest()
    }

    /// Checks that a batch counts with all of its keys and its position, or not at all.
    fn check_batches(
        &self,
        tested: &Range<u64>,
        counted: u64,
        position: u64,
    ) -> Result<(), String> {
        if self.scene.operation != Operation::Batch {
            return Ok(());
        }
        let batches = counted / BATCH;
        let last = (tested.start + BATCH..=tested.end).step_by(BATCH as usize);
        let positions: Vec<u64> = last.collect();
        // The last of the batches that count has set it.
        let is_set = positions.contains(&position);
        if !counted.is_multiple_of(BATCH) || (batches > 0) != is_set {
            return Err(format!(
                "{counted} keys of batches of {BATCH} at {tested:?}, and position {position}"
            ));
        }
        Ok(())
    }

    /// Checks that each victim's key is either claimed or confirmed, or free if the victim may have
    /// freed it or not yet claimed it; and ends the claims.
    fn check_claims(
        &mut self,
        tested: &Range<u64>,
        counted: u64,
        claims: u64,
    ) -> Result<(), String> {
        let victims = tested.end - tested.start;
        let is_right = match self.scene.operation {
            Operation::Claim | Operation::Release => claims <= victims,
            Operation::Confirm => claims + counted == victims,
            Operation::Extend => claims == victims,
            _ => claims == 0,
        };
        let keys = tested.clone();
        let ended = self.ask("end the victims' claims", |survivor| survivor.end_claims(keys))?;
        if !is_right || ended.present != claims || ended.claims != 0 {
            return Err(format!(
                "{claims} claims and {counted} keys of {victims} victims; {} claims were ended",
                ended.present
            ));
        }
        Ok(())
    }

    /// Checks that the latest keys are present.
    pub fn find_latest(&mut self) -> Result<(), String> {
        let latest = self.scene.latest(self.next);
        let wanted = latest.end - latest.start;
        let found = self.ask("query for the latest keys", |survivor| survivor.count(latest))?;
        if found.present != wanted {
            return Err(format!("{} of the {wanted} latest keys are present", found.present));
        }
        Ok(())
    }

    /// Checks that the live state equals the state that recovery derives from the files.
    pub fn compare(&mut self) -> Result<(), String> {
        let live = self.ask("the digest after a sync", Survivor::sync)?;
        let copied = Copied::of(self.scene, &self.dir).map_err(told)?;
        let found = copied.filter.digest().map_err(told)?;
        self.results.recovered.1 += 1;
        same(&live, &found)
            .map_err(|what| format!("a copy in {}: {what}", copied.place().display()))
    }

    /// Kills the survivor and recovers the directory itself.
    fn recover(&mut self) -> Result<(), String> {
        let live = self.ask("the digest", |survivor| survivor.count(0..0))?;
        self.survivor.take().expect("it has just answered").kill();
        let filter = self.doing("open after every process was killed", &[], || {
            self.scene.open(&self.dir).map_err(told)
        })?;
        self.results.recovered.0 += 1;
        same(&live, &filter.digest().map_err(told)?)?;
        filter.close().map_err(told)
    }
}

fn same(live: &Answer, found: &ebbtide::Digest) -> Result<(), String> {
    if live.digest == found.to_string() && live.inserts == found.inserts {
        return Ok(());
    }
    Err(format!("live state {live:?}, recovered state {found:?}"))
}
