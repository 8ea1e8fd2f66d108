//! How a timeline begins: where the chain ends, or anew with the newest snapshot of the directory.

use crate::chain::Seen;
use crate::continuation::{UNKNOWN, shows};
use crate::error::{Error, Result};
use crate::link::{Begin, Cause};
use crate::log::open_log;
use crate::ship_file;
use crate::shipped_file::Standing;
use crate::store::Store;
use ebbtide::history::History;
use ebbtide::inspect::{Origin, origin_on, snapshots_on};
use ebbtide::media::Media;
use std::sync::Arc;

const OVERTAKEN: &str = "fetch into a new directory, and use that; to go on here, and discard what only \
                         the store has, ship with `--take-over`";

/// How often the newest snapshot is looked for beside checkpoints and alterations.
const TRIES: u32 = 10;

const OTHER_FILTER: &str = "ship it to a prefix of its own";

/// The beginning of a timeline: `meta`, the link, and the log from the LSN in it on.
pub struct Beginning {
    pub origin: Origin,
    pub begin: Begin,
    pub history: History,
}

/// Refuses another filter than this one.
pub fn check_filter(store: &Store, filter: u128, found: &Origin) -> Result<()> {
    if found.uuid == filter {
        return Ok(());
    }
    Err(Error::Refused {
        url: store.to_string(),
        expected: format!("filter {filter:032x}"),
        found: format!("filter {:032x}", found.uuid),
        remedy: OTHER_FILTER,
        is_outdated: false,
    })
}

fn no_snapshot(store: &Store) -> Error {
    Error::Refused {
        url: store.to_string(),
        expected: "a directory with a snapshot, because it cannot continue the log".into(),
        found: "none".into(),
        remedy: "write one: `ebbtide snapshot DIR`",
        is_outdated: false,
    }
}

/// Begins a timeline that does not continue the chain, with this filter as it is now.
pub fn anew(
    store: &Store,
    media: &Arc<dyn Media>,
    filter: u128,
    cause: Cause,
) -> Result<Beginning> {
    let mut tries = TRIES;
    let (origin, history) = loop {
        let origin = origin_on(&**media)?;
        check_filter(store, filter, &origin)?;
        let newest = snapshots_on(&**media)?.into_iter().next();
        // The first log of a filter is read from its creation on, each other one from a snapshot.
        let start = match newest {
            Some(ref file) if file.log == origin.log => Some(file.start),
            None if origin.log == origin.uuid => Some(1),
            _ => None,
        };
        match start.map(|start| open_log(media, start - 1)) {
            // A checkpoint, or an alteration, has removed log or snapshot meanwhile.
            None | Some(Err(ebbtide::Error::NotKept { .. })) if tries > 0 => tries -= 1,
            // Or there is one, which the disk cannot read.
            Some(Err(ebbtide::Error::NotKept { .. })) if newest.is_none() => {
                return Err(no_snapshot(store));
            }
            None => return Err(no_snapshot(store)),
            Some(opened) => break (origin, opened?),
        }
    };
    let (log, first) = (origin.log, history.next_lsn());
    let begin = Begin { cause, log, first, continues: false, meta: origin.meta.clone() };
    Ok(Beginning { origin, begin, history })
}

/// Decides how this filter begins after these links.
pub fn choose(
    store: &Store,
    media: &Arc<dyn Media>,
    filter: u128,
    seen: &Seen,
    take_over: bool,
) -> Result<Beginning> {
    let origin = origin_on(&**media)?;
    check_filter(store, seen.filter.unwrap_or(filter), &origin)?;
    if seen.filter.is_none() {
        check_new(store, media)?;
        return anew(store, media, filter, Cause::Created);
    }
    if !take_over {
        check_latest(store, media, seen)?;
    }
    // Of what nobody can fetch nothing was confirmed.
    let Some(run) = seen.whole() else { return anew(store, media, filter, Cause::Started) };
    let newest = seen.numbers.last().map_or(0, |&(number, _)| number);
    let mut cause = match shows(store, media, run) {
        Err(Error::Refused { .. }) if take_over => Cause::TakenOver,
        // Nobody else has shipped since this directory did, nor it itself in a later state.
        Err(Error::Refused { remedy: UNKNOWN, .. })
            if ship_file::has_put(&**media, seen.shipper, newest)? =>
        {
            Cause::Gap
        }
        shown => shown.map(|()| Cause::Started)?,
    };
    if cause == Cause::Started && run.log == origin.log {
        match open_log(media, run.next - 1) {
            // It was removed before it was shipped.
            Err(ebbtide::Error::NotKept { .. }) => cause = Cause::Gap,
            opened => {
                let (log, history) = (origin.log, opened?);
                let (first, meta) = (history.next_lsn(), origin.meta.clone());
                if first == run.next {
                    let begin = Begin { cause, log, first, continues: true, meta };
                    return Ok(Beginning { origin, begin, history });
                }
                // No reader would take it.
                if !take_over {
                    return Err(Error::Refused {
                        url: store.to_string(),
                        expected: format!("log that continues at LSN {}", run.next),
                        found: format!("log that continues at LSN {first}"),
                        remedy: UNKNOWN,
                        is_outdated: false,
                    });
                }
                cause = Cause::TakenOver;
            }
        }
    }
    let beginning = anew(store, media, filter, cause)?;
    check_snapshot(store, &beginning)?;
    Ok(beginning)
}

/// Refuses a directory without a chain as the place of a filter that was shipped there: it is away,
/// as before a mount, and a chain that begins now would be in its way.
fn check_new(store: &Store, media: &Arc<dyn Media>) -> Result<()> {
    // One that cannot be read says nothing.
    let noted = Standing::read(media.path()).ok().flatten();
    let was_shipped = |noted: Standing| noted.url == store.to_string() && noted.confirmed > 0;
    if !store.is_directory() || !noted.is_some_and(was_shipped) {
        return Ok(());
    }
    Err(Error::Refused {
        url: store.to_string(),
        expected: "the chain that this directory has shipped".into(),
        found: "none".into(),
        remedy: "mount what has it; if it is gone for good, remove the file `shipped` from the \
                 filter's directory",
        is_outdated: false,
    })
}

/// Refuses a directory that has put links of this chain if another one has begun since: also where
/// that has shipped no records yet, it may have taken some, and given greater tokens of claims.
fn check_latest(store: &Store, media: &Arc<dyn Media>, seen: &Seen) -> Result<()> {
    let has = |shippers: &[u128]| ship_file::has_any(&**media, shippers);
    if has(&[seen.shipper])? || !has(&seen.shippers)? {
        return Ok(());
    }
    Err(Error::Refused {
        url: store.to_string(),
        expected: "this directory's shipper as the last one that has begun".into(),
        found: format!("that one of another directory has begun timeline {}", seen.timeline),
        remedy: OVERTAKEN,
        is_outdated: true,
    })
}

/// Refuses a beginning that continues no log, but would be a fetch's from the creation on.
pub fn check_snapshot(store: &Store, beginning: &Beginning) -> Result<()> {
    if beginning.begin.first == 1 { Err(no_snapshot(store)) } else { Ok(()) }
}
