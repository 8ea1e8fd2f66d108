//! What may be removed from the store: everything that is older than what the snapshot before the
//! newest needs (or an older one that is to be kept), and snapshots that no link names. Never a
//! beginning: as long as it is there, the shipper before it is fenced.
//!
//! Whoever removes may have been fenced meanwhile, by a shipper whose filter is older. So nothing
//! is removed that was put after the base that stays: numbers of links and times of the store rise
//! from shipper to shipper, LSNs need not.
//!
//! Nothing here is decided by this machine's clock: ages are differences of the store's times.

use crate::chain::{Base, base_hints, link_name, read_link};
use crate::error::{Error, Result};
use crate::link::Content;
use crate::snapshot::snapshot_prefix;
use crate::store::{Folder, Store};
use std::collections::BTreeMap;
use std::time::Duration;

/// The oldest hints that stay besides those kept for their age.
const BASES: usize = 2;

/// The removal of what is not needed any more, after each new base.
#[derive(Debug)]
pub struct Retention {
    keep: Duration,
    is_due: bool,
    /// Links that are known, and whether they are beginnings.
    known: BTreeMap<u64, bool>,
}

impl Retention {
    pub fn new(keep: Duration, known: &[(u64, bool)]) -> Self {
        Self { keep, is_due: false, known: known.iter().copied().collect() }
    }

    /// Notes a link that is in the chain.
    pub fn note(&mut self, number: u64, is_begin: bool) {
        self.known.insert(number, is_begin);
    }

    /// Notes that there is a new base.
    pub fn begin(&mut self) {
        self.is_due = true;
    }

    /// Removes what is not needed, if there is a new base since the last time. `newest` is that
    /// base: its parts were read back.
    pub async fn clean(&mut self, store: &Store, newest: Option<u64>) -> Result<()> {
        let Some(newest) = newest.filter(|_| self.is_due) else { return Ok(()) };
        let hints = base_hints(store).await?;
        // A list that does not have it yet is of no use; the next base cleans up.
        if let Some(latest) = hints.iter().find(|(number, _)| *number == newest) {
            let most = i64::try_from(self.keep.as_micros()).unwrap_or(i64::MAX);
            let is_old = |&(_, time): &(u64, i64)| latest.1.saturating_sub(time) >= most;
            let ours = hints.iter().filter(|(number, _)| *number <= newest);
            // The newest that is old enough serves all later moments.
            let oldest = ours.skip(BASES - 1).find(|hint| is_old(hint));
            if let Some(&oldest) = oldest {
                match self.remove_before(store, oldest, &hints).await {
                    // It is not known what a damaged base needs: the next one cleans up.
                    Err(Error::Object { .. }) => {}
                    removed => removed?,
                }
            }
        }
        self.is_due = false;
        Ok(())
    }

    /// Removes what the base in link `oldest`, whose hint was put then, and later ones do not need.
    async fn remove_before(
        &mut self,
        store: &Store,
        (oldest, put): (u64, i64),
        hints: &[(u64, i64)],
    ) -> Result<()> {
        let Some((link, _)) = read_link(store, oldest).await? else { return Ok(()) };
        let Some(base) = Base::of(&link) else { return Ok(()) };
        let mut needed = Vec::new();
        for &(number, _) in hints.iter().filter(|(number, _)| *number >= oldest) {
            if let Some((link, _)) = read_link(store, number).await?
                && let Some(Base::Snapshot(snapshot)) = Base::of(&link)
            {
                needed.push(snapshot.name);
            }
        }
        let old = |(number, _): &&(u64, i64)| *number < oldest;
        let names: Vec<_> =
            hints.iter().filter(old).map(|(number, _)| link_name(*number)).collect();
        // All before any link: by them followers see that links were removed.
        store.remove(Folder::Base, &names).await?;
        // Listed before the links are removed, which others may name.
        let snapshots = store.list(Folder::Snapshot, None).await?;
        let links = self.links_before(store, base.first_link(oldest)).await?;
        store.remove(Folder::Chain, &links).await?;
        // One that is newer may be about to get its link, of another shipper.
        let first = snapshot_prefix(base.start());
        let old = snapshots.into_iter().filter(|(name, meta)| {
            *name < first && meta.last_modified.timestamp_micros() < put && !needed.contains(name)
        });
        let unnamed: Vec<_> = old.map(|(name, _)| name).collect();
        store.remove(Folder::Snapshot, &unnamed).await
    }

    /// Returns the links below a number, without beginnings: they keep shippers out that come back
    /// after a long time, whose next number is that of a beginning.
    async fn links_before(&mut self, store: &Store, from: u64) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (name, _) in store.list(Folder::Chain, None).await? {
            let Ok(number) = name.parse::<u64>() else { continue };
            if number >= from {
                break;
            }
            let is_begin = match self.known.get(&number) {
                Some(&is_begin) => is_begin,
                None => match read_link(store, number).await {
                    Ok(Some((link, _))) => matches!(link.content, Content::Begin(_)),
                    // What is damaged may be a beginning.
                    Ok(None) | Err(Error::Object { .. }) => continue,
                    Err(error) => return Err(error),
                },
            };
            self.known.insert(number, is_begin);
            if !is_begin {
                names.push(name);
            }
        }
        // Those of beginnings stay, so that they are not read again.
        self.known.retain(|&number, is_begin| number >= from || *is_begin);
        Ok(names)
    }
}
