//! A filter put together from the objects: the newest base that will do, and the log from there.
//!
//! Every record and frame is checked before it is there; opening it is a recovery, which checks
//! them again. It does not know which directory it is.

use crate::chain::{Base, NewestBase, Seen, base_hints, link_name, read_link, walk, walk_sound};
use crate::error::{Error, Result};
use crate::link::{Cause, Content};
use crate::snapshot;
use crate::store::{Folder, Store};
use ebbtide::Error as Inner;
use ebbtide::inspect::Assembly;
use ebbtide::media::Media;
use std::sync::Arc;

/// How often a fetch starts over because what it reads is removed: there is a newer base then.
pub(crate) const TRIES: u32 = 3;

/// What was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fetched {
    /// The LSN that the next record gets: the filter has every operation below.
    pub lsn: u64,
    /// The timeline of the newest link that was read.
    pub timeline: u64,
    /// That link.
    pub link: u64,
    /// The bytes of snapshot and log that were read.
    pub bytes: u64,
    /// Whether the chain has begun anew since, after an alteration or a gap, and the snapshot of
    /// that is not there yet.
    pub is_pending: bool,
    /// By which a follower sees whether links that follow were removed.
    pub(crate) newest_base: NewestBase,
}

/// Returns whether the store has no object of a chain.
///
/// # Errors
/// [`Error::Store`], also for a bucket that does not exist.
pub async fn is_empty(store: &Store) -> Result<bool> {
    // The first link is a beginning, and never removed; but somebody may have deleted it.
    let has_first = read_link(store, 1).await?.is_some();
    Ok(!has_first && store.list(Folder::Chain, None).await?.is_empty())
}

pub(crate) fn nothing(store: &Store, expected: &str) -> Error {
    let remedy = "look at the URL; a shipper that has just begun is done when it has shipped a \
                  snapshot";
    Error::object(store.to_string(), expected, "none", remedy)
}

/// Puts the newest state together on a medium.
///
/// # Errors
/// As [`fetch`](crate::fetch()).
pub async fn assemble(store: &Store, media: Arc<dyn Media>) -> Result<Fetched> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let hints = base_hints(store).await?;
        let mut failed = None;
        for &(number, _) in &hints {
            match assemble_from(store, media.clone(), number, None).await {
                Ok(Some(fetched)) => return Ok(fetched),
                // An older base may be whole, and leads to the same state.
                Err(error) if error.is_damage() => failed = failed.or(Some(error)),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        match failed {
            _ if tries > 0 && base_hints(store).await? != hints => {}
            Some(error) => return Err(error),
            None => return first_base(store, media).await,
        }
    }
}

/// Assembles from the newest base of a chain that has no hint yet.
async fn first_base(store: &Store, media: Arc<dyn Media>) -> Result<Fetched> {
    if is_empty(store).await? {
        return Err(nothing(store, "a shipped filter"));
    }
    let mut seen = Seen::default();
    walk(store, (1, None), |link| seen.take(store, link).map(|()| true)).await?;
    let newest = seen.bases.last().copied();
    let newest = newest.ok_or_else(|| nothing(store, "a link at which a fetch can begin"))?;
    let fetched = assemble_from(store, media, newest, None).await?;
    fetched.ok_or_else(|| nothing(store, "a link at which a fetch can begin"))
}

/// Puts the state together from the base in this link on; `None` if the link is gone. Without
/// `most`, the newest state, even if a newer base has begun anew; else no further than the link
/// with the record of this LSN.
pub(crate) async fn assemble_from(
    store: &Store,
    media: Arc<dyn Media>,
    number: u64,
    most: Option<u64>,
) -> Result<Option<Fetched>> {
    match assemble_sound(store, media, number, most).await? {
        Some(Assembled { damage: Some(damage), .. }) => Err(damage),
        found => Ok(found.map(|found| found.fetched)),
    }
}

/// A filter that was put together.
pub(crate) struct Assembled {
    pub(crate) fetched: Fetched,
    /// Why it has no more.
    pub(crate) damage: Option<Error>,
    /// The link by which the chain has begun anew behind it, and why.
    pub(crate) behind: Option<(u64, Cause)>,
    /// The latest time in the links with records before the end of its snapshot; without one, in
    /// the first link behind that has a time. What was before is not later.
    pub(crate) latest: Option<u64>,
    /// Whether its kind uses time.
    pub(crate) uses_time: bool,
}

/// Names the object of a snapshot that was damaged before it was shipped.
fn named(store: &Store, base: &Base, error: Inner) -> Error {
    match (base, error) {
        (Base::Snapshot(of), Inner::Damaged { offset, expected, found, .. }) => {
            let object = store.name(Folder::Snapshot, &of.name);
            let expected = format!("{expected} at byte {offset}");
            Error::object(object, expected, found, snapshot::REMEDY)
        }
        (_, error) => error.into(),
    }
}

/// As [`assemble_from`], but with `most` also what comes before a damaged link, with that error.
pub(crate) async fn assemble_sound(
    store: &Store,
    media: Arc<dyn Media>,
    number: u64,
    most: Option<u64>,
) -> Result<Option<Assembled>> {
    let Some((link, _)) = read_link(store, number).await? else { return Ok(None) };
    let Some(base) = Base::of(&link) else {
        let remedy = "the objects of two filters are mixed here: ship to another prefix";
        let object = store.name(Folder::Chain, &link_name(number));
        return Err(Error::object(object, "a base, as its hint says", "another link", remedy));
    };
    let (meta, timeline) = match &base {
        Base::Creation(begin) => (&begin.meta, 1),
        Base::Snapshot(snapshot) => (&snapshot.meta, snapshot.engine_timeline),
    };
    let mut assembly = Assembly::begin_on(media.clone(), meta, timeline)?;
    let mut bytes = 0;
    if let Base::Snapshot(of) = &base {
        snapshot::check_parts(store, of)?;
        let file = assembly.snapshot(of.start, of.bytes)?;
        let failed = |error| snapshot::local("write", &*media, &of.name, &error);
        snapshot::read(store, of, |at, part| file.write_at(part, at).map_err(failed)).await?;
        file.sync().map_err(failed)?;
        bytes += of.bytes;
    }
    let mut seen = Seen::from_base(&base);
    let (mut timeline, mut is_reached) = (link.timeline, false);
    let (mut newest_base, mut latest, mut behind) = (NewestBase::default(), None, None);
    let run = if matches!(base, Base::Creation(_)) { number } else { 0 };
    let (tip, damage) = walk_sound(store, (base.first_link(number), None), |link| {
        timeline = timeline.max(link.timeline);
        newest_base.note(&link);
        let mut begun = None;
        if let Content::Begin(begin) = &link.content {
            // Perhaps of a machine that was lost before it has shipped anything.
            assembly.leave_out_timelines();
            begun = Some((link.number, begin.cause));
        }
        if let Content::Log(piece, time) = &link.content
            && seen.began() == run
        {
            if *time > 0 && (piece.first < base.end() || latest.is_none()) {
                latest = latest.max(Some(*time));
            }
            bytes += piece.records.len() as u64;
            if piece.end() > base.start() {
                assembly.add(piece)?;
            }
            is_reached = most.is_some_and(|most| piece.end() > most);
        }
        seen.take(store, link)?;
        // What has begun anew may be discarded again.
        behind = behind.or(begun).filter(|_| seen.began() != run);
        // Otherwise to the end of the chain: what began anew may be whole, and lack only its hint.
        Ok(!is_reached)
    })
    .await?;
    // Without the link of the base, less is there than the snapshot needs.
    let is_needed = most.is_none() || tip.number < number;
    let damage = match damage {
        Some(damage) if is_needed => return Err(damage),
        damage => damage,
    };
    let newest = seen.whole().filter(|newest| newest.began != run);
    let newer = newest.and_then(|newest| newest.base.as_ref()).map(|&(newer, _)| newer);
    if let (Some(newer), None) = (newer, most) {
        drop(assembly);
        return Box::pin(assemble_sound(store, media, newer, most)).await;
    }
    if tip.number < number && !is_reached {
        return Ok(None);
    }
    let uses_time = assembly.uses_time();
    let lsn = assembly.finish().map_err(|error| named(store, &base, error))?;
    let (link, is_pending) = (tip.number, behind.is_some());
    let fetched = Fetched { lsn, timeline, link, bytes, is_pending, newest_base };
    Ok(Some(Assembled { fetched, damage, behind, latest, uses_time }))
}
