//! Decides at random at every step of a schedule which thread runs, which waits, and which process
//! dies.
//!
//! The threads of a schedule are shuttle's: coroutines of one thread of the system. Before each
//! step on shared words and before each call to the medium the engine calls this module. Mostly the
//! same thread continues; at a change of turn, shuttle switches to the chosen thread. A waiting
//! thread may be chosen, too: its wait then times out, however little progress the others have
//! made.
//!
//! A process dies when it has taken a given number of steps. From then on none of its steps has an
//! effect. When its threads run next, they unwind to their beginnings.

use crate::random::{Random, mix};
use crate::schedule::panics;
use crate::schedule::policy::{Doing, Policy};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// More steps than any terminating schedule takes. A reader checks a thousand times whether the
/// changes that it waits for have been repaired, with some hundred steps each.
const MOST_STEPS: u64 = 4_000_000;
/// A longer time than any terminating wait.
const LONGEST_TIME: Duration = Duration::from_secs(600);
/// How long a round may last whose processes may die of waiting.
const PATIENCE: Duration = Duration::from_secs(60);
/// A thread that has not waited for this many steps lets others run.
const LONGEST_RUN: u64 = 20_000;

/// The payload with which the threads of a dead process unwind.
struct Killed;

/// A process of a schedule.
struct Life {
    /// The number of steps until it dies.
    left: u64,
    dead: bool,
}

struct Inner {
    random: Random,
    policy: Policy,
    lives: Vec<Life>,
    /// The threads, by the number that shuttle assigns.
    threads: Vec<Doing>,
    failure: Option<String>,
    bury: Box<dyn Fn(usize)>,
}

struct Stage {
    inner: RefCell<Option<Inner>>,
    /// The process of the next step; `None` while none is chosen.
    process: Cell<Option<usize>>,
    thread: Cell<usize>,
    /// Whether the thread is in a call to the medium, which is one step.
    within: Cell<bool>,
    woken: Cell<bool>,
    now: Cell<Duration>,
    steps: Cell<u64>,
    switches: Cell<u64>,
    killed: Cell<u64>,
    /// The number of steps, and the time, at which the present round began.
    round: Cell<(u64, Duration)>,
    /// Whether a process that takes too many steps, or waits too long, in this round only dies.
    forgives: Cell<bool>,
    /// Whether the system starts no threads.
    lacks_threads: Cell<bool>,
    /// How long a sync lasts.
    sync_lasts: Cell<Duration>,
    /// What code said that has panicked without purpose; the engine may have caught it.
    panicked: RefCell<Option<String>>,
    /// A hash of all that was decided and noted.
    trace: Cell<u64>,
    /// The number of steps granted to the running thread, and the number remaining.
    given: Cell<u64>,
    left: Cell<u64>,
}

thread_local! {
    static STAGE: Stage = const { Stage {
        inner: RefCell::new(None),
        process: Cell::new(None),
        thread: Cell::new(0),
        within: Cell::new(false),
        woken: Cell::new(false),
        now: Cell::new(Duration::ZERO),
        steps: Cell::new(0),
        switches: Cell::new(0),
        killed: Cell::new(0),
        round: Cell::new((0, Duration::ZERO)),
        forgives: Cell::new(false),
        lacks_threads: Cell::new(false),
        sync_lasts: Cell::new(Duration::ZERO),
        panicked: RefCell::new(None),
        trace: Cell::new(0),
        given: Cell::new(0),
        left: Cell::new(0),
    } };
}

impl Stage {
    fn with_inner<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(self.inner.borrow_mut().as_mut().expect("a schedule has begun"))
    }

    fn is_dead(&self, process: usize) -> bool {
        self.with_inner(|inner| inner.lives[process].dead)
    }

    fn is_alive(&self) -> bool {
        self.process.get().is_some_and(|process| !self.is_dead(process))
    }

    /// Ends a thread whose process is dead. Destructors that run meanwhile get false: their steps
    /// must have no effect.
    fn end(&self) -> bool {
        if std::thread::panicking() {
            return false;
        }
        resume_unwind(Box::new(Killed))
    }

    #[inline]
    fn step(&self) -> bool {
        if self.within.get() {
            return true;
        }
        if panics::is_exposed() {
            panics::approach(|| self.is_alive());
        }
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            return true;
        }
        self.decide()
    }

    /// Takes the step after the granted ones.
    #[cold]
    fn decide(&self) -> bool {
        let Some(process) = self.process.get() else { return true };
        if self.is_dead(process) {
            return self.end();
        }
        if std::thread::panicking() {
            return true; // a mistake was found, and shuttle cannot switch now
        }
        self.settle();
        if self.steps.get() - self.round.get().0 > MOST_STEPS {
            if !self.forgives.get() {
                fail("the schedule does not terminate".to_owned());
            }
            kill(process);
            return self.end();
        }
        if self.with_inner(|inner| inner.lives[process].left == 0) {
            self.killed.set(self.killed.get() + 1);
            kill(process);
            return self.end();
        }
        self.with_inner(|inner| inner.policy.turn_is_over(self.thread.get()));
        self.switch(Doing::Works);
        true
    }

    /// Counts the steps that were taken of those granted.
    fn settle(&self) {
        let taken = self.given.get() - self.left.get();
        self.steps.set(self.steps.get() + taken);
        if let Some(process) = self.process.get() {
            self.with_inner(|inner| inner.lives[process].left -= taken);
        }
        self.given.set(0);
        self.left.set(0);
    }

    /// Grants steps to the running thread, as far as its process lives.
    fn give(&self) {
        let Some(process) = self.process.get() else { return };
        let steps = self.with_inner(|inner| {
            let life = &inner.lives[process];
            let steps = self.steps.get() - self.round.get().0;
            let turn = inner.policy.length_of_turn(steps, &mut inner.random);
            if life.dead { 0 } else { turn.min(life.left).min(LONGEST_RUN) }
        });
        self.given.set(steps);
        self.left.set(steps);
    }

    /// Lets the chosen thread run, until this one is chosen again; returns true if it was woken.
    fn switch(&self, doing: Doing) -> bool {
        let (process, is_exposed) = (self.process.get(), panics::is_exposed());
        self.settle();
        self.with_inner(|inner| inner.threads[self.thread.get()] = doing);
        shuttle::thread::yield_now();
        self.process.set(process);
        panics::set_exposed(is_exposed);
        self.give();
        let woken = self.woken.get();
        if process.is_some_and(|process| self.is_dead(process)) {
            self.end();
        }
        woken
    }

    /// Returns the time of this round.
    fn waited(&self) -> Duration {
        self.now.get() - self.round.get().1
    }

    fn pause(&self, time: Duration, may_wake: bool) -> bool {
        match self.process.get() {
            None => {
                self.now.set(self.now.get() + time);
                assert!(self.waited() < LONGEST_TIME, "a witness waits without end");
                false
            }
            Some(process) if self.is_dead(process) => {
                self.end();
                false
            }
            Some(_) if std::thread::panicking() => false,
            Some(process) if self.forgives.get() && self.waited() > PATIENCE => {
                kill(process);
                self.end();
                false
            }
            Some(_) => self.switch(Doing::Waits(self.now.get() + time, may_wake)),
        }
    }

    fn choose(&self, runnable: &[usize]) -> usize {
        let chosen = self.with_inner(|inner| {
            let most = runnable.iter().copied().max().unwrap_or(0);
            if inner.threads.len() <= most {
                inner.threads.resize(most + 1, Doing::Works);
            }
            // The first thread belongs to no process: it only starts the others and waits for their
            // end.
            if runnable.contains(&0) {
                return 0;
            }
            let chosen =
                inner.policy.choose(runnable, self.thread.get(), &inner.threads, &mut inner.random);
            if let Doing::Waits(until, may_wake) = inner.threads[chosen] {
                self.woken.set(may_wake && inner.random.below(4) == 0);
                if !self.woken.get() {
                    self.now.set(self.now.get().max(until));
                }
            }
            inner.threads[chosen] = Doing::Works;
            chosen
        });
        self.thread.set(chosen);
        self.switches.set(self.switches.get() + 1);
        self.note(
            chosen as u64 ^ self.steps.get() << 8 ^ (self.now.get().as_micros() as u64) << 32,
        );
        chosen
    }

    fn note(&self, what: u64) {
        self.trace.set(mix(self.trace.get().rotate_left(1) ^ mix(what)));
    }
}

/// Makes the engine call this module before each step, permanently. From then on a panic is the
/// failure of its schedule, also if the engine catches it.
pub fn install() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Not while a thread ends.
        let _ = STAGE.try_with(|stage| {
            stage.panicked.borrow_mut().get_or_insert_with(|| format!("a panic: {panic}"));
        });
        report(panic);
    }));
    ebbtide::scheduled::install(ebbtide::scheduled::Harness {
        step,
        pause: |time, may_wake| STAGE.with(|stage| stage.pause(time, may_wake)),
        now: || STAGE.with(|stage| stage.now.get()),
        may_start: || STAGE.with(|stage| !stage.lacks_threads.get()),
    });
}

/// Takes a step. Returns false if the process is dead: then the step must have no effect.
pub fn step() -> bool {
    STAGE.with(Stage::step)
}

/// Waits.
pub fn pause(time: Duration) {
    STAGE.with(|stage| stage.pause(time, false));
}

/// Waits, at most for this time: the thread may be woken.
pub fn wait(time: Duration) {
    STAGE.with(|stage| stage.pause(time, true));
}

/// Runs several steps as one.
pub fn at_once<T>(act: impl FnOnce() -> T) -> T {
    STAGE.with(|stage| {
        let before = stage.within.replace(true);
        let result = act();
        stage.within.set(before);
        result
    })
}

/// Begins a schedule: after how many steps each process dies, and the effect of its death on the
/// view of others.
pub fn begin(mut random: Random, deaths: Vec<Option<u64>>, bury: impl Fn(usize) + 'static) {
    STAGE.with(|stage| {
        let lives =
            deaths.iter().map(|death| Life { left: death.unwrap_or(u64::MAX), dead: false });
        let policy = Policy::choose_one(&mut random);
        let inner = Inner {
            random,
            policy,
            lives: lives.collect(),
            threads: Vec::new(),
            failure: None,
            bury: Box::new(bury),
        };
        *stage.inner.borrow_mut() = Some(inner);
        stage.process.set(None);
        stage.now.set(Duration::from_secs(1));
        stage.steps.set(0);
        stage.switches.set(0);
        stage.killed.set(0);
        stage.round.set((0, stage.now.get()));
        stage.forgives.set(false);
        stage.lacks_threads.set(false);
        stage.sync_lasts.set(Duration::ZERO);
        stage.panicked.replace(None);
        stage.trace.set(0);
    });
    panics::reset();
}

/// Begins another round of a schedule: draws a policy, and grants the steps and the time of a
/// schedule anew.
pub fn begin_round() {
    STAGE.with(|stage| {
        stage.settle();
        stage.round.set((stage.steps.get(), stage.now.get()));
        stage.forgives.set(false);
        stage.with_inner(|inner| inner.policy = Policy::choose_one(&mut inner.random));
    });
}

/// Ends a round: how long a witness waits counts from here.
pub fn end_round() {
    STAGE.with(|stage| stage.round.set((stage.steps.get(), stage.now.get())));
}

/// Lets processes that take too many steps, or wait too long, in this round die, instead of ending
/// the schedule.
pub fn forgive() {
    STAGE.with(|stage| stage.forgives.set(true));
}

/// Decides whether the engine can start threads from now on.
pub fn lack_threads(lacks: bool) {
    STAGE.with(|stage| stage.lacks_threads.set(lacks));
}

/// Decides how long a sync lasts from now on; others run meanwhile.
pub fn let_syncs_last(time: Duration) {
    STAGE.with(|stage| stage.sync_lasts.set(time));
}

/// Lets the time of a sync pass.
pub fn pass_sync() {
    let time = STAGE.with(|stage| stage.sync_lasts.get());
    if !time.is_zero() {
        pause(time);
    }
}

/// Returns whether the thread that runs belongs to a process that lives.
pub(super) fn is_alive() -> bool {
    STAGE.with(Stage::is_alive)
}

/// Adds what was observed to the trace.
pub fn note(what: u64) {
    STAGE.with(|stage| stage.note(what));
}

/// Returns the time of the schedule.
pub fn now() -> Duration {
    STAGE.with(|stage| stage.now.get())
}

/// Runs a thread of a process, as far as it gets. Its failure is that of the schedule.
pub fn perform(process: usize, act: impl FnOnce() -> Result<(), String>) {
    STAGE.with(|stage| {
        stage.process.set(Some(process));
        panics::set_exposed(false);
        stage.give();
        watch(|| act().map_err(|sentence| format!("process {process}: {sentence}")));
        stage.settle();
        stage.process.set(None);
    });
}

/// Runs code whose failure is that of the schedule.
pub fn watch(act: impl FnOnce() -> Result<(), String>) {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => {}
        Ok(Err(sentence)) => fail(sentence),
        Err(payload) if payload.is::<Killed>() => {}
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.into()));
            fail(format!("a panic: {}", text.unwrap_or_default()));
        }
    }
}

/// Drops the resources of a process: in its own name, without effects if it is dead.
pub fn release<T>(process: usize, of: T) {
    perform(process, || {
        drop(of);
        Ok(())
    });
}

/// Ends a process.
pub fn kill(process: usize) {
    STAGE.with(|stage| {
        let was = stage.with_inner(|inner| std::mem::replace(&mut inner.lives[process].dead, true));
        if !was {
            stage.settle();
            // No step of it has an effect from here on, so its locks may be released.
            stage.inner.borrow().as_ref().inspect(|inner| (inner.bury)(process));
        }
    });
}

/// Ends the schedule: the remaining processes die, and their resources are dropped.
pub fn end<T>(of: impl Fn(usize) -> T) {
    for process in 0..STAGE.with(|stage| stage.with_inner(|inner| inner.lives.len())) {
        kill(process);
        release(process, of(process));
    }
}

/// Returns whether a process has died.
pub fn is_dead(process: usize) -> bool {
    STAGE.with(|stage| stage.is_dead(process))
}

/// Records the failure of the schedule: the first reason is kept, and all processes die.
pub fn fail(sentence: String) {
    let lives = STAGE.with(|stage| {
        stage.with_inner(|inner| {
            inner.failure.get_or_insert(sentence);
            inner.lives.len()
        })
    });
    (0..lives).for_each(kill);
}

/// Returns why the schedule failed, if it did.
pub fn failure() -> Option<String> {
    STAGE.with(|stage| {
        let failure = stage.with_inner(|inner| inner.failure.clone());
        failure.or_else(|| stage.panicked.borrow().clone())
    })
}

/// The statistics of a schedule.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// Steps on shared words, and calls to the medium.
    pub steps: u64,
    /// How often a thread was chosen.
    pub switches: u64,
    /// Processes that died at a step.
    pub killed: u64,
    /// Panics on purpose.
    pub panics: u64,
    /// A hash of all that was decided and noted: equal for equal runs.
    pub trace: u64,
}

/// Returns the statistics of the schedule so far.
pub fn figures() -> Figures {
    STAGE.with(|stage| Figures {
        steps: stage.steps.get(),
        switches: stage.switches.get(),
        killed: stage.killed.get(),
        panics: panics::count(),
        trace: stage.trace.get(),
    })
}

/// The scheduler that shuttle uses.
pub struct Director {
    /// Whether to run another schedule.
    pub more: Box<dyn FnMut() -> bool>,
}

impl Scheduler for Director {
    fn new_execution(&mut self) -> Option<Schedule> {
        (self.more)().then(|| Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        _current: Option<TaskId>,
        _is_yielding: bool,
    ) -> Option<TaskId> {
        let numbers: Vec<usize> = runnable.iter().map(|task| task.id().into()).collect();
        let begun = STAGE.with(|stage| stage.inner.borrow().is_some());
        // Before a schedule has begun there is its first thread only.
        let chosen = if begun { STAGE.with(|stage| stage.choose(&numbers)) } else { numbers[0] };
        Some(TaskId::from(chosen))
    }

    fn next_u64(&mut self) -> u64 {
        0 // no code uses shuttle's random numbers
    }
}
