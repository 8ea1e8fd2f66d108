//! The steps of a process. It may die before each step, and sleep for any time.

use super::world::{LSNS, Place, Rules, STRIPES, Snapshot, World, log};

/// The position of an actor, with its local data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
    Idle,
    Dead,
    /// Wants a stripe.
    Lock {
        stripe: u8,
        job: Job,
    },
    /// Took a stripe over: reads the start of the newest snapshot.
    Base {
        stripe: u8,
        job: Job,
    },
    /// Maps the log from there.
    Map {
        stripe: u8,
        job: Job,
        from: u8,
    },
    /// Applies the records that it finds.
    Apply {
        stripe: u8,
        job: Job,
        from: u8,
    },
    /// Holds the stripe.
    Held {
        stripe: u8,
        job: Job,
    },
    Publish {
        stripe: u8,
        lsn: u8,
    },
    Count {
        stripe: u8,
        lsn: u8,
    },
    Unlock {
        stripe: u8,
        lsn: u8,
    },
    /// Has copied all stripes.
    End {
        start: u8,
        copies: [u8; STRIPES],
    },
    Commit {
        target: u8,
        then: Then,
    },
    /// Has read the durable end, and before that the tail.
    MapLog {
        target: u8,
        from: u8,
        upto: u8,
        then: Then,
    },
    Sync {
        target: u8,
        upto: u8,
        then: Then,
    },
    Rename {
        temporary: Temporary,
    },
    SyncDirectory {
        start: u8,
    },
    Raise {
        start: u8,
    },
    List {
        own: u8,
        then: Next,
    },
    /// Processes the snapshots that it has listed.
    Snapshots {
        listed: u16,
        segments: u16,
        kept: u8,
        least: u8,
        own: u8,
        then: Next,
    },
    /// Processes the segments that it has listed.
    Segments {
        listed: u16,
        least: u8,
        then: Next,
    },
}

/// The purpose of a stripe's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Job {
    Insert,
    Copy { start: u8, copies: [u8; STRIPES] },
}

/// The step after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    Acknowledge,
    Name(Temporary),
}

/// The step after the removal of old files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Next {
    Nothing,
    Name(Temporary),
}

/// A snapshot without its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Temporary {
    start: u8,
    end: u8,
    copies: [u8; STRIPES],
}

/// A thread in its own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Actor {
    pub at: At,
    /// The stripes of the remaining records.
    inserts: &'static [u8],
    /// Whether it waits for them to be durable.
    waits: bool,
    /// The remaining checkpoints.
    checkpoints: u8,
    dies: bool,
}

impl Actor {
    pub const DEAD: Self =
        Self { at: At::Dead, inserts: &[], waits: false, checkpoints: 0, dies: false };

    pub fn writer(inserts: &'static [u8], waits: bool, dies: bool) -> Self {
        Self { at: At::Idle, inserts, waits, checkpoints: 0, dies }
    }

    pub fn checkpointer(checkpoints: u8, dies: bool) -> Self {
        Self { at: At::Idle, inserts: &[], waits: true, checkpoints, dies }
    }
}

/// The result of a step, or the violation in it.
type Step = Result<World, String>;

/// Returns every step that some actor can take.
pub fn steps(world: &World, rules: Rules) -> Vec<Step> {
    let mut all = Vec::new();
    for me in 0..world.actors.len() {
        let at = world.actors[me].at;
        // An idle actor that dies does nothing more, which leaves the other actors all their steps.
        if world.actors[me].dies && !matches!(at, At::Dead | At::Idle) {
            all.push(Ok(to(world.clone(), me, At::Dead)));
        }
        if let Some(step) = step(world.clone(), me, at, rules) {
            all.push(step);
        }
        if let At::Snapshots { listed, .. } = at
            && listed != 0
            && rules.removes_unopened
        {
            all.push(Ok(tidy_snapshot(world.clone(), me, at, false, rules)));
        }
        if let At::Apply { stripe, job, from } = at
            && rules.repair_forgets
        {
            let from = from.max(world.durable);
            all.push(Ok(apply(world.clone(), me, stripe, job, from, rules)));
        }
    }
    all
}

fn to(mut world: World, me: usize, at: At) -> World {
    let durable = world.durable;
    let actor = &mut world.actors[me];
    // A change that is final and invisible to other actors is not a separate step: fewer states.
    let at = match at {
        At::Commit { target, then: Then::Acknowledge } if durable >= target => At::Idle,
        At::Commit { target, then: Then::Name(temporary) } if durable >= target => {
            At::Rename { temporary }
        }
        At::Segments { listed, least, then } if listed & log(1, least) == 0 => done(then),
        at => at,
    };
    actor.at = at;
    // An actor without further work is equivalent to a dead one: fewer states.
    match at {
        At::Idle if actor.inserts.is_empty() && actor.checkpoints == 0 => actor.at = At::Dead,
        At::Dead => (actor.inserts, actor.checkpoints) = (&[], 0),
        _ => {}
    }
    world
}

/// Returns the single step that an actor takes if nothing fails; `None` if it waits or is done.
fn step(mut world: World, me: usize, at: At, rules: Rules) -> Option<Step> {
    let next = match at {
        At::Dead => return None,
        At::Idle => begin(&mut world, me, rules)?,
        At::Lock { stripe, job } => return lock(world, me, stripe, job, rules).map(Ok),
        At::Base { stripe, job } => {
            let from = (world.stripes[usize::from(stripe)].applied + 1).max(world.base);
            At::Map { stripe, job, from }
        }
        At::Map { stripe, job, from } => {
            if log(from, LSNS as u8) & !world.segments == 0 {
                At::Apply { stripe, job, from }
            } else if world.base > from && !rules.repairs_once {
                At::Base { stripe, job }
            } else {
                return Some(Err(format!("a repair misses log from {from} on")));
            }
        }
        At::Apply { stripe, job, from } => {
            return Some(Ok(apply(world, me, stripe, job, from, rules)));
        }
        At::Held { stripe, job: Job::Copy { start, copies } } => {
            world.stripes[usize::from(stripe)].owner = None;
            copy(&world, stripe, start, copies)
        }
        At::Held { .. } | At::Publish { .. } | At::Count { .. } | At::Unlock { .. } => {
            insert(&mut world, me, at)?
        }
        At::End { start, copies } => end(&world, start, copies, rules),
        At::Commit { .. } | At::MapLog { .. } | At::Sync { .. } => commit(&mut world, at, rules)?,
        At::Rename { temporary: Temporary { start, end, copies } } => {
            world.snapshots[usize::from(start)] = Some(Snapshot { end, copies, durable: false });
            let next = At::SyncDirectory { start };
            // Power cuts are left to the search in which all actors die: fewer states.
            if !world.actors[me].dies {
                return step(world, me, next, rules);
            }
            next
        }
        At::SyncDirectory { start } => {
            if !rules.without_directory_sync {
                world.snapshots.iter_mut().flatten().for_each(|snapshot| snapshot.durable = true);
            }
            At::Raise { start }
        }
        At::Raise { start } => {
            world.base = world.base.max(start);
            At::List { own: 0, then: Next::Nothing }
        }
        At::List { own, then } => {
            let listed = world.starts().map(|start| 1 << start).sum::<u16>();
            let listed = if own > 0 { listed | 1 << own } else { listed };
            At::Snapshots { listed, segments: world.segments, kept: 0, least: 0, own, then }
        }
        At::Snapshots { .. } => return Some(Ok(tidy_snapshot(world, me, at, true, rules))),
        At::Segments { listed, least, then } => {
            tidy_segment(&mut world, listed, least, then, rules)
        }
    };
    if let At::MapLog { from: 0, .. } = next {
        return Some(Err("a commit misses log that is not durable".to_owned()));
    }
    Some(Ok(to(world, me, next)))
}

/// An insert, from the acquisition of its stripe.
fn insert(world: &mut World, me: usize, at: At) -> Option<At> {
    Some(match at {
        At::Held { stripe, job: Job::Insert } => match reserve(world) {
            Some(lsn) => At::Publish { stripe, lsn },
            None => At::Unlock { stripe, lsn: 0 },
        },
        At::Publish { stripe, lsn } => match world.places[usize::from(lsn)] {
            Place::Empty => {
                world.places[usize::from(lsn)] = Place::Record(stripe);
                At::Count { stripe, lsn }
            }
            // A walker voided the slot: the record goes to another slot.
            _ => At::Held { stripe, job: Job::Insert },
        },
        At::Count { stripe, lsn } => {
            world.stripes[usize::from(stripe)].applied = lsn;
            At::Unlock { stripe, lsn }
        }
        At::Unlock { stripe, lsn } => {
            world.stripes[usize::from(stripe)].owner = None;
            match world.actors[me].waits {
                true => At::Commit { target: lsn + 1, then: Then::Acknowledge },
                false => At::Idle,
            }
        }
        _ => return None,
    })
}

/// Reads the end of the log, once all stripes are copied.
fn end(world: &World, start: u8, copies: [u8; STRIPES], rules: Rules) -> At {
    let temporary = Temporary {
        start: if rules.late_start { world.tail } else { start },
        end: world.tail,
        copies,
    };
    let then = if rules.tidy_first { Next::Name(temporary) } else { Next::Nothing };
    match (rules.without_commit, rules.tidy_first) {
        (true, _) => At::Rename { temporary },
        (_, true) => At::List { own: temporary.start, then },
        _ => At::Commit { target: temporary.end, then: Then::Name(temporary) },
    }
}

fn begin(world: &mut World, me: usize, rules: Rules) -> Option<At> {
    let changed = world.stripes.iter().map(|stripe| stripe.applied).max().unwrap_or(0);
    let (tail, base) = (world.tail, world.base);
    let actor = &mut world.actors[me];
    if let Some((&stripe, rest)) = actor.inserts.split_first() {
        actor.inserts = rest;
        return Some(At::Lock { stripe, job: Job::Insert });
    }
    if actor.checkpoints == 0 || changed == 0 || changed < base {
        return None;
    }
    actor.checkpoints -= 1;
    let (start, copies) = (tail, [0; STRIPES]);
    if rules.without_stripe {
        return Some(At::Held { stripe: 0, job: Job::Copy { start, copies } });
    }
    Some(At::Lock { stripe: 0, job: Job::Copy { start, copies } })
}

fn lock(mut world: World, me: usize, stripe: u8, job: Job, rules: Rules) -> Option<World> {
    let index = usize::from(stripe);
    if let (true, Job::Copy { start, copies }) = (rules.without_stripe, job) {
        let next = copy(&world, stripe, start, copies);
        return Some(to(world, me, next));
    }
    let next = match (world.stripes[index].owner, job) {
        // No actor observes that an immortal one holds a stripe: fewer states.
        (None, Job::Copy { start, copies }) if !world.actors[me].dies => {
            let next = copy(&world, stripe, start, copies);
            return Some(to(world, me, next));
        }
        (None, _) => At::Held { stripe, job },
        (Some(owner), _) if world.actors[usize::from(owner)].at != At::Dead => return None,
        (Some(_), _) if rules.without_repair => {
            world.unaccounted += 1;
            At::Held { stripe, job }
        }
        (Some(_), _) => At::Base { stripe, job },
    };
    world.stripes[index].owner = Some(me as u8);
    Some(to(world, me, next))
}

/// Copies a stripe, and continues with the next.
fn copy(world: &World, stripe: u8, start: u8, mut copies: [u8; STRIPES]) -> At {
    copies[usize::from(stripe)] = world.stripes[usize::from(stripe)].applied;
    match stripe + 1 {
        next if usize::from(next) < STRIPES => {
            At::Lock { stripe: next, job: Job::Copy { start, copies } }
        }
        _ => At::End { start, copies },
    }
}

fn apply(mut world: World, me: usize, stripe: u8, job: Job, from: u8, rules: Rules) -> World {
    let last = world.written(from).filter(|&(_, place)| place == Place::Record(stripe)).last();
    let applied = &mut world.stripes[usize::from(stripe)].applied;
    *applied = last.map_or(*applied, |(lsn, _)| lsn.max(*applied));
    if !rules.hole_uncounted {
        world.unaccounted += 1;
    }
    to(world, me, At::Held { stripe, job })
}

fn reserve(world: &mut World) -> Option<u8> {
    let lsn = world.tail;
    world.tail = (usize::from(lsn) < LSNS - 1).then_some(lsn + 1)?;
    Some(lsn)
}

fn commit(world: &mut World, at: At, rules: Rules) -> Option<At> {
    Some(match at {
        At::Commit { target, then } if world.durable >= target => match then {
            Then::Acknowledge => At::Idle,
            Then::Name(temporary) => At::Rename { temporary },
        },
        At::Commit { target, then } => {
            At::MapLog { target, from: world.durable, upto: world.tail, then }
        }
        At::MapLog { target, from, upto, then } => {
            if log(from, LSNS as u8) & !world.segments == 0 {
                At::Sync { target, upto, then }
            } else if world.durable > from && !rules.maps_once {
                At::MapLog { target, from: world.durable, upto, then }
            } else {
                At::MapLog { target, from: 0, upto, then }
            }
        }
        At::Sync { target, upto, then } => {
            let below = &mut world.places[1..usize::from(upto)];
            below
                .iter_mut()
                .filter(|place| **place == Place::Empty)
                .for_each(|place| *place = Place::Void);
            world.durable = world.durable.max(upto);
            At::Commit { target, then }
        }
        _ => return None,
    })
}

fn done(then: Next) -> At {
    match then {
        Next::Nothing => At::Idle,
        Next::Name(temporary) => At::Commit { target: temporary.end, then: Then::Name(temporary) },
    }
}

/// Checks the newest snapshot left in the listing. `opens` is false if the system refuses to open
/// it.
fn tidy_snapshot(mut world: World, me: usize, at: At, opens: bool, rules: Rules) -> World {
    let At::Snapshots { listed, segments, kept, least, own, then } = at else { return world };
    let Some(start) = listed.checked_ilog2().map(|start| start as u8) else {
        // With fewer than two snapshots the whole log is the fallback base.
        let next =
            if kept < 2 { done(then) } else { At::Segments { listed: segments, least, then } };
        return to(world, me, next);
    };
    let listed = listed & !(1 << start);
    let there = world.snapshots[usize::from(start)].is_some() || start == own;
    let next = if there && opens && kept < 2 {
        let least = if rules.by_newest && kept > 0 { least } else { start };
        At::Snapshots { listed, segments, kept: kept + 1, least, own, then }
    } else if world.snapshots[usize::from(start)].take().is_some() {
        At::Snapshots { listed, segments, kept, least, own, then }
    } else {
        done(then)
    };
    to(world, me, next)
}

fn tidy_segment(world: &mut World, listed: u16, least: u8, then: Next, rules: Rules) -> At {
    let superfluous = listed & log(1, least);
    if superfluous == 0 {
        return done(then);
    }
    let bit = if rules.descending {
        1 << superfluous.ilog2()
    } else {
        superfluous & superfluous.wrapping_neg()
    };
    if world.segments & bit == 0 {
        // Another process is removing files.
        return done(then);
    }
    world.segments &= !bit;
    At::Segments { listed: listed & !bit, least, then }
}
