//! A moment of the past from the store: from the newest base that reaches it.
//!
//! What is returned is the moment. Of a time or a position only log shows where it is: it must have
//! a commit beyond it, or be the newest. So neither a later state is taken for it, nor one before a
//! part of the log that is missing.

use crate::assemble::{Assembled, Fetched, TRIES, assemble_sound, nothing};
use crate::chain::{Base, base_hints, link_name, read_link, walk};
use crate::error::{Error, Result};
use crate::fetch_directory::Target;
use crate::files::remove;
use crate::link::{Cause, Content};
use crate::store::{Folder, Store};
use ebbtide::history::{At, History};
use ebbtide::inspect::restore_at;
use ebbtide::media::Disk;
use ebbtide::{Error as Inner, Timestamp};
use std::sync::Arc;

const KEEP_MORE: &str = "let the shipper keep more (`--keep`), or ask for a later moment";
const NOT_YET: &str = "ask for an earlier moment, or once it is shipped";
const UNKNOWN: &str = "what happened in between is not known: ask for an earlier moment, or for a \
                       later one";
const DISCARDED: &str = "ask for an LSN below that, or for one that is shipped since, from the \
                         first snapshot behind it on";

/// Restores a moment from the newest base that reaches it.
pub(crate) async fn fetch_moment(store: &Store, target: &Target, at: At) -> Result<Fetched> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let hints = base_hints(store).await?;
        let mut search = Search { store, target, at, kept: Vec::new(), newest: None };
        // Why the oldest base that was tried does not have it: it has the most.
        let mut failed = None;
        for &(number, _) in &hints {
            match search.try_base(number).await {
                Ok(Tried::Found(fetched)) => return Ok(fetched),
                Ok(Tried::Without) => {}
                Ok(Tried::Behind(error)) => {
                    // The log of older ones has ended before.
                    failed.get_or_insert(error);
                    break;
                }
                Err(error) if error.is_damage() => failed = Some(error),
                Err(error @ Error::Filter(Inner::Parameter { .. })) => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        if tries == 0 || base_hints(store).await? == hints {
            return Err(failed.unwrap_or_else(|| search.not_kept()));
        }
    }
}

/// What a base has of a moment.
enum Tried {
    Found(Fetched),
    /// The link is gone, or the moment lies before it, or has not come yet.
    Without,
    /// The moment may lie behind all that follows the base, where the chain has begun anew.
    Behind(Error),
}

struct Search<'a> {
    store: &'a Store,
    target: &'a Target,
    at: At,
    /// The first and the last LSN that each base reaches, from the newest on. The last one is not
    /// known of a base that is too new.
    kept: Vec<(u64, Option<u64>)>,
    /// The newest base: its link, and the timeline of that.
    newest: Option<(u64, u64)>,
}

impl Search<'_> {
    /// Restores the moment from the base in this link.
    async fn try_base(&mut self, number: u64) -> Result<Tried> {
        let (store, at) = (self.store, self.at);
        // Of a time or a position only the log knows where it is.
        let most = if let At::Lsn(lsn) = at { lsn } else { u64::MAX };
        let link = read_link(store, number).await?.map(|(link, _)| link);
        if let (None, Some(link)) = (self.newest, &link) {
            self.newest = Some((number, link.timeline));
        }
        let base = link.as_ref().and_then(Base::of);
        let first = base.map_or(1, |base| base.end());
        if first > most.saturating_add(1) {
            self.kept.push((first - 1, None));
            return Ok(Tried::Without);
        }
        let work = self.target.restored_from();
        remove(&work)?;
        let media = Arc::new(Disk::new(&work));
        let Some(assembled) = assemble_sound(store, media, number, Some(most)).await? else {
            return Ok(Tried::Without);
        };
        let Assembled { fetched, damage, behind, latest, uses_time } = assembled;
        self.kept.push((first - 1, Some(fetched.lsn - 1)));
        let next = || match History::open(&work).and_then(|history| history.after(at)) {
            Err(Inner::NotKept { .. }) => Ok(None),
            history => history.map(|history| Some(history.next_lsn())),
        };
        if let At::Time(time) = at
            && first > 1
            && !uses_time
            && latest.is_none_or(|latest| latest > time.as_unix_micros())
        {
            // An alteration before the snapshot may be later than this: the snapshot has its time
            // only if the kind uses time.
            if latest.is_none() {
                // The log may have no times at all, which is an error that says so.
                next()?;
            }
            return Ok(Tried::Without);
        }
        match (behind, damage) {
            (None, None) => {}
            // It is there, or it is not.
            (Some(_), _) if matches!(at, At::Lsn(_)) => {}
            (Some((link, cause)), _) => match next()? {
                Some(next) if next < fetched.lsn => {}
                Some(_) => return Ok(Tried::Behind(self.begun_anew(link, cause, fetched.lsn))),
                None => return Ok(Tried::Without),
            },
            // The moment is there if what has happened next is before the damage.
            (None, Some(damage)) => match next() {
                Ok(Some(next)) if next < fetched.lsn => {}
                Ok(None) if !matches!(at, At::Lsn(_)) => return Ok(Tried::Without),
                _ => return Err(damage),
            },
        }
        if let At::Lsn(lsn) = at
            && next()?.is_some()
            && let Some((link, first)) = self.taken_over(&fetched, lsn).await?
        {
            return Ok(Tried::Behind(self.discarded(link, first)));
        }
        match restore_at(&work, at, self.target.whole()) {
            Err(Inner::NotKept { .. }) => Ok(Tried::Without),
            restored => Ok(Tried::Found(Fetched { lsn: restored?.lsn, ..fetched })),
        }
    }

    /// Returns the link, and its first LSN, by which a shipper has taken over behind this log,
    /// whose branch has another record of this LSN: from the newest base on, that is the filter.
    async fn taken_over(&self, fetched: &Fetched, lsn: u64) -> Result<Option<(u64, u64)>> {
        let Some((newest, timeline)) = self.newest else { return Ok(None) };
        // Each shipper begins a timeline.
        if newest <= fetched.link || timeline == fetched.timeline {
            return Ok(None);
        }
        let (mut begun, mut taken_over) = (None, None);
        walk(self.store, (fetched.link + 1, None), |link| {
            match &link.content {
                // A branch without a base is discarded itself.
                Content::Begin(begin) if begin.continues => begun = None,
                Content::Begin(begin) if begin.cause == Cause::TakenOver && begin.first <= lsn => {
                    begun = Some((link.number, begin.first));
                }
                Content::Snapshot(_) => taken_over = begun,
                _ => {}
            }
            Ok(taken_over.is_none() && link.number < newest)
        })
        .await?;
        Ok(taken_over)
    }

    /// Creates the error for an LSN of a branch that was discarded by this link.
    fn discarded(&self, link: u64, first: u64) -> Error {
        let object = self.store.name(Folder::Chain, &link_name(link));
        let found = format!("that another log was taken over here, from LSN {first} on");
        Error::object(object, format!("the log of {}", self.at), found, DISCARDED)
    }

    /// Creates the error for a moment that the log before this link does not show.
    fn begun_anew(&self, link: u64, cause: Cause, lsn: u64) -> Error {
        let object = self.store.name(Folder::Chain, &link_name(link));
        let cause = cause.name();
        let found = format!("that the log begins anew here ({cause}), after LSN {}", lsn - 1);
        Error::object(object, format!("log beyond {}", self.at), found, UNKNOWN)
    }

    /// Creates the error for a moment that no base reaches.
    fn not_kept(&self) -> Error {
        let expected = format!("a snapshot from before {}, and the log up to it", self.at);
        // Bases of the same log reach the same end.
        let mut ranges: Vec<(u64, Option<u64>)> = Vec::new();
        for &(first, last) in self.kept.iter().rev() {
            if ranges.last().is_none_or(|range| range.1 != last) {
                ranges.push((first, last));
            }
        }
        if ranges.is_empty() {
            return nothing(self.store, &expected);
        }
        let range = |&(first, last): &(u64, Option<u64>)| match last {
            Some(last) => format!("LSN {first} to {last}"),
            None => format!("LSN {first} and later"),
        };
        let found = ranges.iter().map(range).collect::<Vec<_>>().join(", ");
        let is_to_come = match self.at {
            At::Lsn(lsn) => ranges.iter().all(|range| range.1.is_some_and(|last| last < lsn)),
            At::Time(time) => time > Timestamp::now(),
            At::Position { .. } => false,
        };
        let remedy = if is_to_come { NOT_YET } else { KEEP_MORE };
        Error::object(self.store.to_string(), expected, found, remedy)
    }
}
