//! Tickets: what threads do with them, and what is known of each until it is answered.
//!
//! Each ticket that is not dropped is answered once. It is answered well only if its records are on
//! the disk at that moment, and with an error only if a fault of the round can be its cause. When
//! nobody is in a call, and the tasks that sync sleep, none is left.

use crate::oracle::Written;
use crate::processes;
use crate::tasks::{Act, CHECKED, Next, SHARED, Task};
use crate::world::{Opened, World, lock};
use ebbtide::{Checked as Answer, Error, Since, Ticket};
use ebbtide_core::log_record::Op;
use ebbtide_testkit::prefix::Checked;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::schedule::{panics, stage};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// What becomes of a ticket.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// It is dropped, perhaps after it was polled.
    Drop {
        polled: bool,
    },
    /// A thread blocks until it is answered.
    Wait,
    /// A thread awaits it for a while; then it is kept.
    Await,
    /// It is polled, and kept for whoever comes.
    Keep,
    Call(Callback),
}

/// What the function that a ticket calls does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callback {
    Nothing,
    Acts,
    Closes,
    Panics,
}

impl Fate {
    pub fn draw(random: &mut Random) -> Self {
        match random.below(16) {
            0 | 1 => Self::Drop { polled: random.below(4) > 0 },
            2 => Self::Wait,
            3..=5 => Self::Await,
            6..=9 => Self::Keep,
            10..=12 => Self::Call(Callback::Nothing),
            13 => Self::Call(Callback::Panics),
            14 if random.below(4) == 0 => Self::Call(Callback::Closes),
            _ => Self::Call(Callback::Acts),
        }
    }
}

/// How often a thread that awaits a ticket looks whether it was woken, and for how many times.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u64 = 60;

/// A task that syncs and is due within this time has its turn before tickets are missed: it never
/// waits for longer, except for whoever wakes it.
const SOON: Duration = Duration::from_secs(60);
/// More turns than a task that syncs needs, of which each answers a ticket.
const TURNS: u64 = 10_000;

/// What a waker wakes.
#[derive(Debug, Default)]
struct Signal(AtomicBool);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is known of a ticket that is not answered.
#[derive(Debug, Clone, Copy)]
struct Issued {
    life: usize,
    answer: Answer,
    /// The LSN behind its records.
    end: u64,
}

/// A ticket that somebody may poll.
#[derive(Debug)]
struct Awaited {
    life: usize,
    number: u64,
    ticket: Ticket<Answer>,
    signal: Arc<Signal>,
}

/// The tickets of a world.
#[derive(Debug, Default)]
pub struct Tickets {
    last: u64,
    waiting: BTreeMap<u64, Issued>,
    /// Those that were polled, and that no thread awaits.
    kept: Vec<Awaited>,
    /// What nobody waits for any more, because the ticket was dropped or has another waker: the
    /// waker must be gone.
    over: Vec<(usize, Arc<Signal>)>,
    /// As `over`, of tickets that were answered: the task that syncs may have yet to forget it.
    answered: Vec<(usize, Arc<Signal>)>,
    /// How many calls have begun to close the handle of a process.
    closers: BTreeMap<usize, u64>,
}

impl Task<'_> {
    /// Does something whose durability is awaited with a ticket.
    pub fn issue(&mut self, checks: bool, fate: Fate) -> Checked<Next> {
        if self.random.below(2) == 0 {
            self.resume()?;
        }
        let (world, life, count) = (self.world, self.life, 1 + self.random.below(2));
        let keys: Vec<u64> = match checks {
            true => vec![CHECKED + self.random.below(SHARED)],
            false => (0..count).map(|_| world.fresh()).collect(),
        };
        let time = world.time_of_key(&mut self.random);
        let (begun, written) = world.ask(|oracle, _| {
            let written: Vec<Written> =
                keys.iter().map(|&key| (Op::Insert, oracle.hash(key))).collect();
            Ok((oracle.begin(&written, checks), written))
        })?;
        let issued = self.filter.issue(|call| {
            let call = time.map_or(call, |time| call.time(time));
            if checks {
                return call.since(Since::LastAccepted).check_and_insert(keys[0].to_le_bytes());
            }
            let mut all = true;
            for key in &keys {
                all &= call.insert(key.to_le_bytes())?;
            }
            Ok(if all { Answer::New } else { Answer::TooLate })
        });
        // A part may have happened.
        let is_over = issued.is_err() && keys.len() > 1 || crate::tasks::is_over(&issued);
        let Some(ticket) = self.came(issued)? else {
            if is_over {
                return Ok(Next::Stop);
            }
            return world.ask(|oracle, _| {
                oracle.fail(&written);
                Ok(Next::Continue)
            });
        };
        let answer = *ticket.answer();
        let is_trusted = self.keeps() && !lock(&world.weather).lost;
        let end = world.ask(|oracle, _| match answer {
            Answer::New => {
                oracle.end(begun, &written).inspect(|&end| world.note_written(life, end))
            }
            Answer::Present => {
                oracle.fail(&written);
                Ok(oracle.first_insert(written[0].1).filter(|_| is_trusted).unwrap_or(0))
            }
            _ => Ok(0),
        })?;
        let number = {
            let mut tickets = lock(&world.tickets);
            tickets.last += 1;
            let number = tickets.last;
            tickets.waiting.insert(number, Issued { life, answer, end });
            number
        };
        lock(&world.counts).tickets += 1;
        world.trace(|| format!("ticket {number} of process {life}: {answer:?}, up to {end}"));
        if ticket.is_durable() {
            world.ask(|oracle, disk| {
                oracle.acknowledge(end, disk);
                Ok(())
            })?;
        }
        self.end(Awaited { life, number, ticket, signal: Arc::default() }, fate)?;
        Ok(Next::Continue)
    }

    /// Lets a ticket meet its fate.
    fn end(&mut self, awaited: Awaited, fate: Fate) -> Checked<()> {
        let (world, number) = (self.world, awaited.number);
        match fate {
            Fate::Drop { polled: false } => world.discard(awaited),
            Fate::Drop { polled: true } => {
                if let Some(awaited) = world.poll(awaited)? {
                    world.discard(awaited);
                }
            }
            Fate::Wait => {
                let Some(answer) = panics::survive(|| awaited.ticket.wait()) else {
                    lock(&world.tickets).waiting.remove(&number);
                    return Ok(());
                };
                world.answered(number, &answer)?;
            }
            Fate::Await => {
                if let Some(awaited) = world.poll(awaited)? {
                    self.wait_for(awaited)?;
                }
            }
            Fate::Keep => {
                if let Some(awaited) = world.poll(awaited)? {
                    lock(&world.tickets).kept.push(awaited);
                }
            }
            Fate::Call(callback) => {
                let tell = self.callback(number, callback);
                // It may be called at once.
                panics::survive(|| awaited.ticket.on_durable(tell));
            }
        }
        Ok(())
    }

    /// Does something with a ticket that was kept.
    fn resume(&mut self) -> Checked<()> {
        let world = self.world;
        let mut tickets = lock(&world.tickets);
        let Some(index) = tickets.kept.iter().position(|kept| kept.life == self.life) else {
            return Ok(());
        };
        let awaited = tickets.kept.swap_remove(index);
        drop(tickets);
        let number = awaited.number;
        world.trace(|| format!("again ticket {number}"));
        match self.random.below(3) {
            0 => world.discard(awaited),
            1 => self.wait_for(awaited)?,
            // With another waker.
            _ => {
                if let Some(awaited) = world.poll(awaited)? {
                    lock(&world.tickets).kept.push(awaited);
                }
            }
        }
        Ok(())
    }

    /// Awaits a ticket that was polled.
    fn wait_for(&self, mut awaited: Awaited) -> Checked<()> {
        for _ in 0..LOOKS {
            if awaited.signal.0.load(Ordering::Relaxed) {
                let Some(pending) = self.world.poll(awaited)? else { return Ok(()) };
                awaited = pending;
            }
            stage::pause(LOOK);
        }
        lock(&self.world.tickets).kept.push(awaited);
        Ok(())
    }

    /// Returns the function that a ticket calls.
    fn callback(
        &mut self,
        number: u64,
        callback: Callback,
    ) -> impl FnOnce(Result<Answer, Error>) + Send + 'static {
        let (world, life) = (self.world.me.clone(), self.life);
        let random = Random::new(self.random.below(u64::MAX));
        move |answer| {
            let Some(world) = world.upgrade().filter(|_| !stage::is_dead(life)) else { return };
            stage::watch(|| {
                let called = || world.called(number, life, callback, random, &answer);
                panics::survive(called).unwrap_or(Ok(()))
            });
            if callback == Callback::Panics {
                panics::panic_on_purpose();
            }
        }
    }
}

impl World {
    /// A ticket has called its function.
    fn called(
        &self,
        number: u64,
        life: usize,
        callback: Callback,
        mut random: Random,
        answer: &Result<Answer, Error>,
    ) -> Checked<()> {
        self.answered(number, answer)?;
        match callback {
            Callback::Nothing | Callback::Panics => {}
            Callback::Acts => {
                let Some(filter) = self.handle(life) else { return Ok(()) };
                let acts: Vec<Act> =
                    (0..1 + random.below(2)).map(|_| Act::draw(&mut random)).collect();
                let mut task = Task::new(self, life, &filter, random);
                for act in acts {
                    // It must not wait for another ticket that the same thread would answer.
                    let awaits = matches!(act, Act::Issue { fate: Fate::Await, .. });
                    if !awaits && task.act(act)? == Next::Stop {
                        break;
                    }
                }
            }
            Callback::Closes => processes::close(self, life)?,
        }
        Ok(())
    }

    /// A ticket is answered.
    fn answered(&self, number: u64, answer: &Result<Answer, Error>) -> Checked<()> {
        let Some(issued) = lock(&self.tickets).waiting.remove(&number) else {
            return Err(format!("ticket {number} is answered again, or was dropped"));
        };
        let is_well = answer.is_ok();
        self.trace(|| format!("ticket {number} is answered, well: {is_well}"));
        match answer {
            Ok(answer) if *answer == issued.answer => self.ask(|oracle, disk| {
                oracle.acknowledge(issued.end, disk);
                Ok(())
            }),
            Err(error) if self.allows(issued.life, error) => {
                lock(&self.counts).errors += 1;
                Ok(())
            }
            _ => Err(format!("ticket {number}, {issued:?}: {answer:?}")),
        }
    }

    /// Returns whether a ticket may have this error: closing a handle answers each well, unless
    /// that fails.
    fn allows(&self, life: usize, error: &Error) -> bool {
        let weather = *lock(&self.weather);
        let may_fail = weather.may_poison || weather.fault.is_some() || weather.lost;
        match error {
            Error::Closed { .. } => may_fail && self.is_closing(life),
            error => self.may_fail_by(error),
        }
    }

    /// Polls a ticket with a new waker. Returns it if it is not answered.
    fn poll(&self, awaited: Awaited) -> Checked<Option<Awaited>> {
        let Awaited { life, number, mut ticket, signal: before } = awaited;
        let signal = Arc::new(Signal::default());
        let waker = Waker::from(signal.clone());
        let polled = Future::poll(Pin::new(&mut ticket), &mut Context::from_waker(&waker));
        drop(waker);
        match polled {
            Poll::Pending => {
                lock(&self.tickets).over.push((life, before));
                Ok(Some(Awaited { life, number, ticket, signal }))
            }
            Poll::Ready(answer) => {
                lock(&self.tickets).answered.extend([(life, before), (life, signal)]);
                self.answered(number, &answer)?;
                Ok(None)
            }
        }
    }

    /// Drops a ticket.
    fn discard(&self, awaited: Awaited) {
        lock(&self.tickets).waiting.remove(&awaited.number);
        let Awaited { life, ticket, signal, .. } = awaited;
        drop(ticket);
        lock(&self.tickets).over.push((life, signal));
    }

    /// Counts a call that begins to close a handle.
    pub fn begin_closing(&self, life: usize) {
        *lock(&self.tickets).closers.entry(life).or_default() += 1;
    }

    /// Returns whether a handle is closed, or about to be.
    pub fn is_closing(&self, life: usize) -> bool {
        lock(&self.tickets).closers.contains_key(&life)
    }

    /// Returns whether several calls have closed a handle: if the first of them fails, the others
    /// succeed.
    pub fn has_closers(&self, life: usize) -> bool {
        lock(&self.tickets).closers.get(&life).is_some_and(|&closers| closers > 1)
    }

    /// Drops the tickets of dead processes.
    pub fn bury_tickets(&self) {
        let mut tickets = lock(&self.tickets);
        tickets.waiting.retain(|_, issued| !stage::is_dead(issued.life));
        tickets.over.retain(|&(life, _)| !stage::is_dead(life));
        tickets.answered.retain(|&(life, _)| !stage::is_dead(life));
        let (gone, kept) = std::mem::take(&mut tickets.kept)
            .into_iter()
            .partition::<Vec<_>, _>(|kept| stage::is_dead(kept.life));
        tickets.kept = kept;
        drop(tickets);
        gone.into_iter().for_each(|awaited| stage::release(awaited.life, awaited));
    }

    /// All processes have ended, also those that had closed their handles.
    pub fn forget_tickets(&self) {
        let before = std::mem::take(&mut *lock(&self.tickets));
        lock(&self.tickets).last = before.last;
    }

    /// Polls the tickets whose wakers were called. Returns whether there are any.
    fn poll_woken(&self) -> Checked<bool> {
        let mut tickets = lock(&self.tickets);
        let (woken, kept) = std::mem::take(&mut tickets.kept)
            .into_iter()
            .partition::<Vec<_>, _>(|kept| kept.signal.0.load(Ordering::Relaxed));
        tickets.kept = kept;
        drop(tickets);
        let is_any = !woken.is_empty();
        for awaited in woken {
            if let Some(pending) = self.poll(awaited)? {
                lock(&self.tickets).kept.push(pending);
            }
        }
        Ok(is_any)
    }

    /// Nobody is in a call. Lets the tasks that sync have their turn, as far as they are due; then
    /// every ticket must be answered.
    pub fn settle_tickets(&self, left: &[(usize, Arc<Opened>)]) -> Checked<()> {
        check_gone(&lock(&self.tickets).over)?;
        for (_, filter) in left {
            for _ in 0..TURNS {
                let due = filter.run_syncs().filter(|&due| due < SOON);
                if !self.poll_woken()? && due.is_none() {
                    break;
                }
                stage::pause(due.unwrap_or_default());
            }
        }
        self.poll_woken()?;
        let mut tickets = lock(&self.tickets);
        if let Some((number, issued)) = tickets.waiting.iter().next() {
            return Err(format!("ticket {number} is not answered: {issued:?}"));
        }
        check_gone(&std::mem::take(&mut tickets.answered))?;
        check_gone(&std::mem::take(&mut tickets.over))
    }
}

/// Checks that no waker of these is left.
fn check_gone(over: &[(usize, Arc<Signal>)]) -> Checked<()> {
    match over.iter().find(|(_, signal)| Arc::strong_count(signal) > 1) {
        Some((life, _)) => Err(format!("process {life} keeps the waker of a ticket that is over")),
        None => Ok(()),
    }
}
