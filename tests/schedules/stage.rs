//! Who goes on, who waits, who dies: every step of a schedule is chosen here, by chance.
//!
//! The threads of a schedule are shuttle's: coroutines of one thread of the system. Before each step on shared words and
//! before each call to the medium the engine asks here. Mostly the same thread goes on; when it is another's turn, shuttle
//! switches to the one that is chosen. A thread that waits may be chosen, too: then its time is up, however little the
//! others have done meanwhile.
//!
//! A process dies when it has taken so many steps. From then on none of its steps has an effect, and its threads unwind
//! when they come on next, up to where they began.

use crate::policy::Policy;
use crate::random::Random;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// More steps than any schedule takes that comes to an end. A reader looks a thousand times whether somebody repairs what it waits
/// for, some hundred steps each.
const MOST_STEPS: u64 = 4_000_000;
/// Longer than anything waits that comes to an end.
const LONGEST_TIME: Duration = Duration::from_secs(600);
/// Whoever has not waited for so many steps lets others go on.
const LONGEST_RUN: u64 = 20_000;

/// What a thread unwinds with whose process is dead.
struct Killed;

/// A process of a schedule.
struct Life {
    /// It dies when it takes the step after so many.
    left: u64,
    dead: bool,
}

/// What a thread is doing.
#[derive(Debug, Clone, Copy)]
pub enum Doing {
    /// It can take its next step.
    Works,
    /// It waits until this time, or until somebody wakes it, where that may be.
    Waits(Duration, bool),
}

struct Inner {
    random: Random,
    policy: Policy,
    lives: Vec<Life>,
    /// By the number that shuttle gives them.
    threads: Vec<Doing>,
    failure: Option<String>,
    bury: Box<dyn Fn(usize)>,
}

struct Stage {
    inner: RefCell<Option<Inner>>,
    /// Whose step is next; nobody's while nothing is chosen.
    process: Cell<Option<usize>>,
    thread: Cell<usize>,
    /// In a call to the medium, which is one step.
    within: Cell<bool>,
    woken: Cell<bool>,
    now: Cell<Duration>,
    steps: Cell<u64>,
    switches: Cell<u64>,
    killed: Cell<u64>,
    /// How many steps the thread whose turn it is was given, and how many of them it has not taken.
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

    /// Ends a thread whose process is dead. Destructors that run meanwhile get false: what they do must not be.
    fn end(&self) -> bool {
        if std::thread::panicking() {
            return false;
        }
        resume_unwind(Box::new(Killed))
    }

    #[inline]
    fn step(&self) -> bool {
        let left = self.left.get();
        if left > 0 && !self.within.get() {
            self.left.set(left - 1);
            return true;
        }
        self.decide()
    }

    /// The step after those that were given.
    #[cold]
    fn decide(&self) -> bool {
        let Some(process) = self.process.get().filter(|_| !self.within.get()) else {
            return true;
        };
        if self.is_dead(process) {
            return self.end();
        }
        if std::thread::panicking() {
            return true; // a mistake was found, and shuttle cannot switch now
        }
        self.settle();
        if self.steps.get() > MOST_STEPS {
            fail("it does not come to an end".to_owned());
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

    /// Counts the steps that were taken of those that were given.
    fn settle(&self) {
        let taken = self.given.get() - self.left.get();
        self.steps.set(self.steps.get() + taken);
        if let Some(process) = self.process.get() {
            self.with_inner(|inner| inner.lives[process].left -= taken);
        }
        self.given.set(0);
        self.left.set(0);
    }

    /// Gives the thread that goes on so many steps, if its process lives so long.
    fn give(&self) {
        let Some(process) = self.process.get() else { return };
        let steps = self.with_inner(|inner| {
            let life = &inner.lives[process];
            let turn = inner.policy.length_of_turn(self.steps.get(), &mut inner.random);
            if life.dead { 0 } else { turn.min(life.left).min(LONGEST_RUN) }
        });
        self.given.set(steps);
        self.left.set(steps);
    }

    /// Lets the one who is chosen go on, until we are chosen again; true if we were woken.
    fn switch(&self, doing: Doing) -> bool {
        let process = self.process.get();
        self.settle();
        self.with_inner(|inner| inner.threads[self.thread.get()] = doing);
        shuttle::thread::yield_now();
        self.process.set(process);
        self.give();
        let woken = self.woken.get();
        if process.is_some_and(|process| self.is_dead(process)) {
            self.end();
        }
        woken
    }

    fn pause(&self, time: Duration, may_wake: bool) -> bool {
        match self.process.get() {
            None => {
                self.now.set(self.now.get() + time);
                assert!(
                    self.now.get() < LONGEST_TIME,
                    "whoever looks at what is left waits for ever"
                );
                false
            }
            Some(process) if self.is_dead(process) => {
                self.end();
                false
            }
            Some(_) if std::thread::panicking() => false,
            Some(_) => self.switch(Doing::Waits(self.now.get() + time, may_wake)),
        }
    }

    fn choose(&self, runnable: &[usize]) -> usize {
        let chosen = self.with_inner(|inner| {
            let most = runnable.iter().copied().max().unwrap_or(0);
            if inner.threads.len() <= most {
                inner.threads.resize(most + 1, Doing::Works);
            }
            // The first thread is nobody's: it only begins the others and waits for their end.
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
        chosen
    }
}

/// Has the engine ask here before each step, for good.
pub fn install() {
    ebbtide::scheduled::install(ebbtide::scheduled::Harness {
        step,
        pause: |time, may_wake| STAGE.with(|stage| stage.pause(time, may_wake)),
        now: || STAGE.with(|stage| stage.now.get()),
    });
}

/// A step is next. False if the process is dead: then it must not be.
pub fn step() -> bool {
    STAGE.with(Stage::step)
}

/// Waits.
pub fn pause(time: Duration) {
    STAGE.with(|stage| stage.pause(time, false));
}

/// Does several steps in one.
pub fn at_once<T>(act: impl FnOnce() -> T) -> T {
    STAGE.with(|stage| {
        let before = stage.within.replace(true);
        let result = act();
        stage.within.set(before);
        result
    })
}

/// Begins a schedule: which process dies after how many of its steps, and what its death does to others' view of it.
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
    });
}

/// Runs a thread of a process, as far as it comes. Its failure is that of the schedule.
pub fn perform(process: usize, act: impl FnOnce() -> Result<(), String>) {
    STAGE.with(|stage| {
        stage.process.set(Some(process));
        stage.give();
        watch(|| act().map_err(|sentence| format!("process {process}: {sentence}")));
        stage.settle();
        stage.process.set(None);
    });
}

/// Runs what may fail: then the schedule has.
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

/// Lets go of what a process had: as itself, if it is dead.
pub fn let_go<T>(process: usize, of: T) {
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
            // Nothing of it happens from here on, so its locks may go.
            stage.inner.borrow().as_ref().inspect(|inner| (inner.bury)(process));
        }
    });
}

/// Ends the schedule: whoever is left dies, and what each had goes.
pub fn end<T>(of: impl Fn(usize) -> T) {
    for process in 0..STAGE.with(|stage| stage.with_inner(|inner| inner.lives.len())) {
        kill(process);
        let_go(process, of(process));
    }
}

/// Whether a process has died.
pub fn is_dead(process: usize) -> bool {
    STAGE.with(|stage| stage.is_dead(process))
}

/// The schedule has failed: the first reason is kept, and everybody dies.
pub fn fail(sentence: String) {
    let lives = STAGE.with(|stage| {
        stage.with_inner(|inner| {
            inner.failure.get_or_insert(sentence);
            inner.lives.len()
        })
    });
    (0..lives).for_each(kill);
}

/// Why the schedule failed, if it did.
pub fn failure() -> Option<String> {
    STAGE.with(|stage| stage.with_inner(|inner| inner.failure.clone()))
}

/// What happened in a schedule.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    pub steps: u64,
    pub switches: u64,
    pub killed: u64,
}

/// What has happened in the schedule so far.
pub fn figures() -> Figures {
    STAGE.with(|stage| Figures {
        steps: stage.steps.get(),
        switches: stage.switches.get(),
        killed: stage.killed.get(),
    })
}

/// What shuttle asks whose turn it is.
pub struct Director {
    /// Schedules to come.
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
        0 // nobody asks shuttle for chance
    }
}
