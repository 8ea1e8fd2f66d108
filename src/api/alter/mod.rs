//! Giving a filter other parameters, while it is in use.

pub mod planned_alteration;
pub(crate) mod refill;
pub(in crate::api) mod take_over;

use crate::api::alter::refill::{Refill, time_at_start};
use crate::api::alter::take_over::{LatestByClock, has_removals};
use crate::api::handle::Filter;
use crate::api::history::read_log::History;
use crate::archive::keep_setting::keeps_nothing;
use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::engine::lifecycle::alter::{Alteration, Stopped};
use crate::error::{Error, Result};
use crate::meta::Meta;
use crate::primitives::{self, Instant};
use crate::recovery::KnownExtent;
use ebbtide_core::kind::Kind;
use ebbtide_core::machine::Machine;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Records that are left to read when the writers are stopped.
const REST: u64 = 1 << 12;
/// For how long writers are kept from writing in the first turn, if the log grows as fast as it is
/// read.
const TURN: Duration = Duration::from_millis(10);
/// The bounds of a turn. The next one is longer by a quarter if what is left has not shrunk by one
/// part in [`SHRINKS_BY`], and otherwise shorter.
const TURNS_LAST: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// As many turns as this read almost two thirds of what is left.
const SHRINKS_BY: u64 = 256;
/// The time between two turns.
const WRITERS_TURN: Duration = Duration::from_millis(25);
/// The most turns.
const TURNS: u32 = 3000;

/// What [`Filter::alter`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Altered {
    /// The LSN of the alteration. As of it the filter has the new parameters, as of the one before
    /// the former ones.
    pub lsn: u64,
    /// Insertions and removals in the log that the filter has taken: all but those of keys that
    /// were too late for it, or not there.
    pub operations: u64,
    /// Whether the log reaches back to the creation of the filter. Otherwise the filter does not
    /// know any more what was inserted before.
    pub is_whole: bool,
    /// The time of the first operation in the log, if it has one.
    pub since: Option<Timestamp>,
    /// For how long writers were stopped at the end.
    pub stopped: Duration,
}

/// What happens to keys of which the log has no record any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unlogged {
    /// If some of them would be in the new window, the filter stays as it is, and the error says
    /// so. A filter without a window has all keys that were ever inserted. After a clear that is in
    /// the log, nothing from before is missing. It also stays as it is
    /// if the log has removals, since the last clear, and the new kind cannot remove keys.
    #[default]
    Refuse,
    /// They are forgotten. So are removals, if the new kind cannot remove keys: removed keys are in
    /// the filter again.
    Forget,
}

/// See [`Filter::alter`].
pub(crate) fn alter_filter<K>(
    filter: &Filter<K>,
    kind: &Arc<dyn Kind>,
    unlogged: Unlogged,
) -> Result<Altered> {
    loop {
        // Another handle may alter it now.
        filter.run(|engine| {
            engine.shared.check_usable()?;
            engine.shared.check_unaltered()
        })?;
        let engine = filter.engine().clone();
        let altered = alter(&engine, kind.clone(), unlogged);
        let is_gone = engine.header().is_altered();
        match altered {
            Ok((altered, made)) => {
                filter.current.replace(&engine, made)?;
                return Ok(altered);
            }
            // Another thread of this handle may have closed the engine, to open the next one.
            Err(Error::Retired { replaced: false, .. } | Error::Closed { .. }) if is_gone => {}
            // Another thread has closed the handle meanwhile.
            Err(Error::Retired { .. }) => return Err(engine.shared.ended()),
            Err(error) => return Err(error),
        }
    }
}

/// Alters the filter of an engine. Returns the new engine as well.
fn alter(engine: &Engine, kind: Arc<dyn Kind>, unlogged: Unlogged) -> Result<(Altered, Engine)> {
    check_weights(engine.path(), &engine.shared.meta, &*kind)?;
    let alteration = Alteration::begin(engine, kind)?;
    let media = &engine.shared.media;
    let mut history = History::open_on(media.clone())?.with_undurable();
    let first = history.next_lsn();
    let is_whole = first == 1;
    // Before others remove more of the log.
    let begins = time_at_start(&**media, &history.revision, first)?;
    let latest = LatestByClock::new(engine.shared.options.clock.clone(), engine.time.latest());
    let begins = begins.map(|begins| latest.of(&*history.revision.meta.kind, begins));
    let mut refill = Refill::new(Machine::new(alteration.meta().identity.clone())?, latest);
    catch_up(&alteration, &mut history, &mut refill)?;
    if !is_whole && unlogged == Unlogged::Refuse && !refill.has_its_window(begins) {
        return Err(unkept(engine, first, alteration.tail()));
    }
    check_removals(&refill, unlogged)?;
    alteration.check_memory(refill.machine())?;
    let stopped = alteration.stop_writers()?;
    let begun = Instant::now();
    let rest = read_rest((&alteration, &stopped), &mut history, &mut refill)
        .and_then(|()| check_removals(&refill, unlogged));
    if let Err(error) = rest {
        // The first error is the one to report.
        let _ = alteration.resume_writers(stopped);
        return Err(error);
    }
    let (lsn, operations, since) = (stopped.lsn - 1, refill.operations, refill.since);
    let made = alteration.finish(stopped, refill.into_machine())?;
    Ok((Altered { lsn, operations, is_whole, since, stopped: begun.elapsed() }, made))
}

/// Checks that weights mean the same afterwards.
pub(in crate::api) fn check_weights(path: &Path, meta: &Meta, kind: &dyn Kind) -> Result<()> {
    let weighs = meta.kind.counts().is_none() && meta.kind.weights().is_some();
    let is_same = meta.kind.name() == kind.name() && meta.kind.parameters() == kind.parameters();
    if !weighs || is_same {
        return Ok(());
    }
    Err(Error::Mismatch {
        path: path.to_path_buf(),
        what: "importances".to_owned(),
        expected: format!("kind {} as it is", meta.kind.name()),
        found: format!("kind {} with other parameters", kind.name()),
    })
}

/// Checks that no removed key would be in the filter again.
fn check_removals(refill: &Refill, unlogged: Unlogged) -> Result<()> {
    if unlogged == Unlogged::Refuse && refill.keeps_removed {
        let or = "; or alter it nevertheless with `Unlogged::Forget` (`--forget`): removed keys \
                  are in it again then";
        return Err(has_removals(refill.machine().kind(), or));
    }
    Ok(())
}

/// Creates the error for a log that begins within the new window.
fn unkept(engine: &Engine, first: u64, end: u64) -> Error {
    let path = engine.path().to_path_buf();
    let lacks_keep_log = keeps_nothing(&*engine.shared.media);
    let (wanted, from) = ("the whole new window".to_owned(), first - 1);
    Error::NotKept { path, wanted, from, end, lacks_keep_log }
}

/// Reads the log while others write, until little is left.
fn catch_up(alteration: &Alteration<'_>, history: &mut History, refill: &mut Refill) -> Result<()> {
    let left = |history: &History| alteration.tail().saturating_sub(history.next_lsn());
    // At least once: whether the log has the new window is known by what was read.
    loop {
        let before = left(history);
        let upto = alteration.tail();
        read(history, refill, None, |history| history.next_lsn() < upto)?;
        if left(history) <= REST || left(history) > before / 2 {
            break;
        }
    }
    // Others write as fast as this reads: in turns.
    let (mut turn, mut wanted) = (TURN, left(history));
    for _ in 0..TURNS {
        let paused = alteration.pause_writers()?;
        let begun = Instant::now();
        let wants = |history: &History| left(history) > 0 && begun.elapsed() < turn;
        read(history, refill, Some(alteration.extent()), wants)?;
        drop(paused);
        if left(history) <= REST {
            break;
        }
        let begun = Instant::now();
        let wants = |history: &History| left(history) > REST && begun.elapsed() < WRITERS_TURN;
        read(history, refill, None, wants)?;
        primitives::sleep(WRITERS_TURN.saturating_sub(begun.elapsed()));
        let is_slow = left(history) > wanted;
        turn = if is_slow { turn * 5 / 4 } else { turn * 4 / 5 };
        turn = turn.clamp(TURNS_LAST.0, TURNS_LAST.1);
        wanted = left(history) - left(history) / SHRINKS_BY;
    }
    Ok(())
}

/// Reads what is left once writers are stopped.
fn read_rest(
    (alteration, stopped): (&Alteration<'_>, &Stopped<'_>),
    history: &mut History,
    refill: &mut Refill,
) -> Result<()> {
    let wants = |history: &History| history.next_lsn() < stopped.lsn;
    read(history, refill, Some(alteration.extent()), wants)?;
    // Every record below is durable: reading that ends before has not found them.
    if wants(history) { Err(history.ended_at(stopped.lsn)) } else { Ok(()) }
}

/// Reads operations as long as there are any and more are wanted.
fn read(
    history: &mut History,
    refill: &mut Refill,
    alone: Option<KnownExtent>,
    wants: impl Fn(&History) -> bool,
) -> Result<()> {
    while wants(history) {
        let operations = history.read_operations(alone)?;
        if operations.is_empty() {
            break;
        }
        refill.take_all(operations, &*history.revision.meta.kind)?;
    }
    Ok(())
}
