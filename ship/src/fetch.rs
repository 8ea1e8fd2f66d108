//! A filter from the store: the newest base that will do, and the log from there, as a directory.
//!
//! Whatever happens meanwhile, the target is a whole filter or none: every record and frame was
//! checked. Opening it is a recovery, which checks them again.

use crate::chain::{Base, NewestBase, Seen, base_hints, link_name, read_link, walk, walk_sound};
use crate::error::{Error, Result};
use crate::fetch_directory::{Mark, Target};
use crate::files::remove;
use crate::link::Content;
use crate::snapshot;
use crate::store::{Folder, Store};
use ebbtide::Error as Inner;
use ebbtide::history::{At, History};
use ebbtide::inspect::{Assembly, restore_at};
use ebbtide::media::{Disk, Media};
use std::path::Path;
use std::sync::Arc;

/// How often a fetch starts over because what it reads is removed: there is a newer base then.
const TRIES: u32 = 3;

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

/// Creates a filter in a directory, as the store has it: now, or at a moment that is kept there. It
/// keeps no log until it is opened with that option.
///
/// The directory is new, or there and empty (a mount point, or a link to a directory). It becomes a
/// filter once all of it is there; after a kill the same call begins again.
///
/// # Errors
/// [`Error::Occupied`] if the directory is not empty, [`Error::Object`] if the store has nothing
/// that can be fetched, or it is damaged; [`Error::Store`], [`Error::Filter`].
pub async fn fetch(store: &Store, dir: impl AsRef<Path>, at: Option<At>) -> Result<Fetched> {
    let (fetched, mark) = fetch_marked(store, dir.as_ref(), at).await?;
    mark.remove()?;
    Ok(fetched)
}

/// As [`fetch`], but leaves the mark of what is not finished.
pub(crate) async fn fetch_marked(
    store: &Store,
    dir: &Path,
    at: Option<At>,
) -> Result<(Fetched, Mark)> {
    let target = Target::begin(dir)?;
    let fetched = match at {
        None => assemble(store, Arc::new(Disk::new(target.whole()))).await?,
        Some(at) => fetch_moment(store, &target, at).await?,
    };
    Ok((fetched, target.name()?))
}

/// As [`fetch`], unless the directory has a filter already, or the store has none: then nothing is
/// done, and the result is `None`. For containers whose directory may be empty.
///
/// # Errors
/// As there.
pub async fn fetch_if_empty(store: &Store, dir: impl AsRef<Path>) -> Result<Option<Fetched>> {
    let dir = dir.as_ref();
    if dir.join("meta").exists() || is_empty(store).await? {
        return Ok(None);
    }
    fetch(store, dir, None).await.map(Some)
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

/// Restores a moment from the newest base that reaches it.
async fn fetch_moment(store: &Store, target: &Target, at: At) -> Result<Fetched> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let hints = base_hints(store).await?;
        // Why the oldest base that was tried does not have it: it has the most.
        let mut failed = None;
        for &(number, _) in &hints {
            match moment_from(store, number, target, at).await {
                Ok(Some(fetched)) => return Ok(fetched),
                Ok(None) => {}
                Err(error) if error.is_damage() => failed = Some(error),
                Err(error @ Error::Filter(Inner::NotKept { .. } | Inner::Parameter { .. })) => {
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if tries == 0 || base_hints(store).await? == hints {
            let none = || nothing(store, &format!("a snapshot from before {at}"));
            return Err(failed.unwrap_or_else(none));
        }
    }
}

/// Restores a moment from the base in this link; `None` if the link is gone, or too new.
async fn moment_from(
    store: &Store,
    number: u64,
    target: &Target,
    at: At,
) -> Result<Option<Fetched>> {
    // Of a time or a position only the log knows where it is.
    let most = if let At::Lsn(lsn) = at { lsn } else { u64::MAX };
    let base = read_link(store, number).await?.and_then(|(link, _)| Base::of(&link));
    let first = base.map_or(1, |base| base.end());
    if first > most.saturating_add(1) {
        return Ok(None);
    }
    let work = target.restored_from();
    remove(&work)?;
    let media = Arc::new(Disk::new(&work));
    let Some(assembled) = assemble_sound(store, media, number, Some(most)).await? else {
        return Ok(None);
    };
    let Assembled { fetched, damage, latest } = assembled;
    let next = || History::open(&work)?.after(at).map(|history| history.next_lsn());
    if let Some(damage) = damage {
        // The moment is there if what has happened next is before the damage.
        if !next().is_ok_and(|next| next < fetched.lsn) {
            return Err(damage);
        }
    }
    if let At::Time(time) = at
        && first > 1
        && latest.is_none_or(|latest| latest > time.as_unix_micros())
    {
        // What was before the snapshot may be later than this.
        if latest.is_none() {
            // The log may have no times at all, which is an error that says so.
            next()?;
        }
        return Ok(None);
    }
    let restored = restore_at(&work, at, target.whole())?;
    Ok(Some(Fetched { lsn: restored.lsn, ..fetched }))
}

pub(crate) fn nothing(store: &Store, expected: &str) -> Error {
    let remedy = "look at the URL; a shipper that has just begun is done when it has shipped a \
                  snapshot";
    Error::object(store.to_string(), expected, "none", remedy)
}

/// Puts the newest state together on a medium.
///
/// # Errors
/// As [`fetch`].
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
struct Assembled {
    fetched: Fetched,
    /// Why it has no more.
    damage: Option<Error>,
    /// The latest time in the links with records before the end of its snapshot; without one, in
    /// the first link behind that has a time. What was before is not later.
    latest: Option<u64>,
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
async fn assemble_sound(
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
    let (mut newest_base, mut latest) = (NewestBase::default(), None);
    let run = if matches!(base, Base::Creation(_)) { number } else { 0 };
    let (tip, damage) = walk_sound(store, (base.first_link(number), None), |link| {
        timeline = timeline.max(link.timeline);
        newest_base.note(&link);
        if let Content::Begin(_) = &link.content {
            // Perhaps of a machine that was lost before it has shipped anything.
            assembly.leave_out_timelines();
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
    let lsn = assembly.finish().map_err(|error| named(store, &base, error))?;
    let is_pending = seen.began() != run;
    let link = tip.number;
    let fetched = Fetched { lsn, timeline, link, bytes, is_pending, newest_base };
    Ok(Some(Assembled { fetched, damage, latest }))
}
