//! A follower's copy of the objects in a directory of this machine: after a restart it copies only
//! what is missing, and so does a promotion.
//!
//! Objects never change once they are in the store, so that it does not matter when one was
//! copied. Invariants: links are here without a gap from the base of the newest hint on; a hint is
//! here once all of its base is; the newest link here is in the store, byte for byte, as a look at
//! the beginning shows, and each later one names the one before it. So a kill at any point leaves a
//! copy that is behind. What a power cut has damaged has a wrong digest, and is copied again.

use crate::chain::{Base, Seen, Tip, base_hints, link_name, read_link, walk};
use crate::download::Download;
use crate::error::{Error, Result};
use crate::fetch::{io, nothing};
use crate::link::{Link, digest};
use crate::mark;
use crate::store::{Folder, Store};
use bytes::Bytes;
use futures::future::join_all;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Links that are read at a time, at most.
const READ_AHEAD: u64 = 16;
/// After so long without a link, a list shows whether links are missing.
const DOUBT: Duration = Duration::from_secs(60);
/// The time that a look spends on parts of a snapshot.
const BUDGET: Duration = Duration::from_millis(100);

const MIXED: &str = "the objects of two filters are mixed here: ship to another prefix";
const REPLACED: &str = "somebody has removed or replaced what was copied from there: keep this \
                        copy (`ebbtide fetch COPY NEW` makes a filter of it), and follow into a \
                        new directory";

/// A copy, held by one process at a time.
#[derive(Debug)]
pub struct Copy {
    remote: Store,
    local: Store,
    dir: PathBuf,
    tip: Tip,
    filter: Option<u128>,
    /// The newest snapshot that is not here as a whole, with the number of its link.
    wanted: Option<(u64, Download)>,
    /// When a link last came, or a list has shown that none is missing.
    certain: Instant,
    /// Locked.
    _alone: File,
}

/// Marks a directory as a copy of this store, or checks that it is one; locks it.
fn claim(remote: &Store, dir: &Path) -> Result<File> {
    remote.check_no_copy()?;
    let place = remote.to_string();
    let occupied = |found| Error::Occupied { path: dir.display().to_string(), found };
    match mark::copied_from(dir)? {
        Some(from) if from == place => {}
        Some(from) => return Err(occupied(format!("a copy of {from}"))),
        None => match mark::found_in(dir)? {
            Some(found) => return Err(occupied(found)),
            None => mark::write(dir, &place)?,
        },
    }
    let path = mark::path(dir);
    let file = File::open(&path).map_err(|error| io("open", &path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(occupied("a follower that runs".into())),
        Err(TryLockError::Error(error)) => Err(io("lock", &path, &error)),
    }
}

impl Copy {
    /// Opens a copy in a directory, which may be new, and copies at least what makes it a whole
    /// filter.
    pub async fn open(remote: Store, dir: &Path) -> Result<Self> {
        let alone = claim(&remote, dir)?;
        let local = Store::of_directory(dir)?;
        let (dir, tip, certain) = (dir.to_path_buf(), Tip::default(), Instant::now());
        let (filter, wanted) = (None, None);
        let mut copy = Self { remote, local, dir, tip, filter, wanted, certain, _alone: alone };
        if !copy.resume().await? {
            copy.take_anew().await?;
        }
        Ok(copy)
    }

    /// Returns the copy, as a store from which can be fetched.
    pub fn local(&self) -> &Store {
        &self.local
    }

    /// Copies what has come since. Returns whether links were left out, because the store does not
    /// have them any more: whoever follows the copy begins anew.
    pub async fn look(&mut self) -> Result<bool> {
        if self.copy_links().await? > 0 {
            self.certain = Instant::now();
        }
        if self.certain.elapsed() > DOUBT {
            if self.is_left_behind().await? {
                self.take_anew().await?;
                return Ok(true);
            }
            self.certain = Instant::now();
        }
        let begun = Instant::now();
        while self.wanted.is_some() && begun.elapsed() < BUDGET {
            self.download().await?;
        }
        Ok(false)
    }

    /// Returns whether the link after the newest one here was removed from the store.
    async fn is_left_behind(&self) -> Result<bool> {
        let name = link_name(self.tip.number);
        let is_newer = !self.remote.list(Folder::Chain, Some(&name)).await?.is_empty();
        // It may have been put just now.
        Ok(is_newer && read_link(&self.remote, self.tip.number + 1).await?.is_none())
    }

    /// Continues with what is here. Returns false if that is no whole filter, or the store has
    /// removed what follows it.
    async fn resume(&mut self) -> Result<bool> {
        let (seen, tip) = match self.read_local().await {
            Ok(Some(found)) => found,
            Ok(None) | Err(Error::Object { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        (self.filter, self.tip) = (seen.filter, tip);
        let name = link_name(tip.number);
        let replaced = |found| {
            let object = self.remote.name(Folder::Chain, &name);
            Error::object(object, "the link that was copied from there", found, REPLACED)
        };
        match self.remote.get(Folder::Chain, &name).await? {
            Some(found) if digest(&found) == tip.digest => {}
            Some(_) => return Err(replaced("another one")),
            None if self.is_left_behind().await? => return Ok(false),
            None => return Err(replaced("nothing")),
        }
        // Its snapshot may be here in part.
        let newest = seen.bases.last().copied().unwrap_or_default();
        if let Some((link, _)) = read_link(&self.local, newest).await? {
            self.want(&link)?;
        }
        Ok(true)
    }

    /// Reads the links here, from the newest base on.
    async fn read_local(&self) -> Result<Option<(Seen, Tip)>> {
        let hints = base_hints(&self.local).await?;
        let Some(&(number, _)) = hints.first() else { return Ok(None) };
        let Some((link, _)) = read_link(&self.local, number).await? else { return Ok(None) };
        let Some(base) = Base::of(&link) else { return Ok(None) };
        let (mut seen, from) = (Seen::from_base(&base), base.first_link(number));
        let take = |link| seen.take(&self.local, link).map(|()| true);
        let tip = walk(&self.local, (from, None), take).await?;
        Ok(Some((seen, tip)).filter(|(_, tip)| tip.number >= number))
    }

    /// Copies from the newest base of the store on. What is here of it already stays.
    pub async fn take_anew(&mut self) -> Result<()> {
        let (number, base) = self.remote_base().await?;
        let from = base.first_link(number);
        // By the first link it is known that there is a chain.
        if from > 1
            && let Some(bytes) = self.remote.get(Folder::Chain, &link_name(1)).await?
        {
            self.local.put_over(Folder::Chain, &link_name(1), bytes).await?;
        }
        (self.tip, self.wanted) = (Tip { number: from - 1, digest: 0 }, None);
        self.copy_links().await?;
        while self.wanted.is_some() {
            self.download().await?;
        }
        self.certain = Instant::now();
        Ok(())
    }

    /// Returns the newest base of the store, with the number of its link.
    async fn remote_base(&self) -> Result<(u64, Base)> {
        let mut numbers: Vec<u64> =
            base_hints(&self.remote).await?.into_iter().map(|(number, _)| number).collect();
        if numbers.is_empty() {
            let mut seen = Seen::default();
            let take = |link| seen.take(&self.remote, link).map(|()| true);
            walk(&self.remote, (1, None), take).await?;
            numbers.extend(seen.bases.iter().rev());
        }
        for number in numbers {
            if let Some((link, _)) = read_link(&self.remote, number).await?
                && let Some(base) = Base::of(&link)
            {
                return Ok((number, base));
            }
        }
        Err(nothing(&self.remote, "a link at which a fetch can begin"))
    }

    /// Copies the links that follow. Returns their number.
    async fn copy_links(&mut self) -> Result<u64> {
        let (mut links, mut ahead) = (0, 1);
        loop {
            let next = self.tip.number + 1;
            let remote = self.remote.clone();
            let reads = (next..next + ahead).map(|number| {
                let (remote, name) = (&remote, link_name(number));
                async move { remote.get(Folder::Chain, &name).await }
            });
            for read in join_all(reads).await {
                let Some(bytes) = read? else { return Ok(links) };
                self.take(bytes).await?;
                links += 1;
            }
            ahead = (ahead * 2).min(READ_AHEAD);
        }
    }

    /// Takes the next link.
    async fn take(&mut self, bytes: Bytes) -> Result<()> {
        let name = link_name(self.tip.number + 1);
        let object = self.remote.name(Folder::Chain, &name);
        let link = Link::decode(&object, &bytes)?;
        let expected = (self.tip.number + 1, self.filter.unwrap_or(link.filter));
        let is_next = self.tip.digest == 0 || link.before == self.tip.digest;
        if (link.number, link.filter) != expected || !is_next {
            let found = format!("link {} of {:032x}", link.number, link.filter);
            let expected = format!(
                "link {} of filter {:032x}, after {:032x}",
                expected.0, expected.1, self.tip.digest
            );
            return Err(Error::object(object, expected, found, MIXED));
        }
        let number = link.number;
        let digest = digest(&bytes);
        self.local.put_over(Folder::Chain, &name, bytes).await?;
        (self.tip, self.filter) = (Tip { number, digest }, Some(link.filter));
        self.want(&link)?;
        if let Some(base @ Base::Creation(_)) = Base::of(&link) {
            self.note(number, &base).await?;
        }
        Ok(())
    }

    /// Notes the snapshot of a link, as the next one to be downloaded.
    fn want(&mut self, link: &Link) -> Result<()> {
        if let Some(Base::Snapshot(snapshot)) = Base::of(link) {
            self.wanted = Some((link.number, Download::begin(&self.remote, &self.dir, snapshot)?));
        }
        Ok(())
    }

    /// Downloads a part of the newest snapshot, or notes that it is whole.
    async fn download(&mut self) -> Result<()> {
        let Some((number, download)) = &mut self.wanted else { return Ok(()) };
        if !download.is_whole() {
            return match download.take_part(&self.remote).await {
                // The store has removed it, because there is a newer one, whose link comes.
                Ok(false) if !base_hints(&self.local).await?.is_empty() => {
                    self.wanted = None;
                    Ok(())
                }
                Ok(false) => Err(download.missing()),
                taken => taken.map(drop),
            };
        }
        let (number, base) = (*number, Base::Snapshot(download.finish()?));
        self.wanted = None;
        self.note(number, &base).await
    }

    /// Notes that all of a base is here, and removes what is not needed for it.
    async fn note(&mut self, number: u64, base: &Base) -> Result<()> {
        let text = Bytes::from_static(b"a fetch can begin at the link of this number\n");
        self.local.put_over(Folder::Base, &link_name(number), text).await?;
        let first = base.first_link(number);
        let is_old = |name: &String, below| {
            name.parse().is_ok_and(|found: u64| found < below && found != 1)
        };
        let mut hints = self.names(Folder::Base).await?;
        hints.retain(|name| name.parse().is_ok_and(|found: u64| found < number));
        self.local.remove(Folder::Base, &hints).await?;
        let mut links = self.names(Folder::Chain).await?;
        links.retain(|name| is_old(name, first));
        self.local.remove(Folder::Chain, &links).await?;
        let mut snapshots = self.names(Folder::Snapshot).await?;
        snapshots.retain(|name| !matches!(base, Base::Snapshot(of) if of.name == *name));
        self.local.remove(Folder::Snapshot, &snapshots).await?;
        Download::remove_others(&self.dir, self.wanted.as_ref().map(|(_, download)| download))
    }

    async fn names(&self, folder: Folder) -> Result<Vec<String>> {
        Ok(self.local.list(folder, None).await?.into_iter().map(|(name, _)| name).collect())
    }
}
