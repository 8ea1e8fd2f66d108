//! A follower's copy of the objects in a directory of this machine: after a restart it copies only
//! what is missing, and so does a promotion.
//!
//! Objects never change once they are in the store, so that it does not matter when one was
//! copied. Invariants: links are here without a gap from the base of the newest hint on; a hint is
//! here once all of its base is; the store has the chain that the copy is of, as a look at the
//! beginning shows, and each later link names the one before it. So a kill at any point leaves a
//! copy that is behind. What a power cut has damaged has a wrong digest, and is copied again.

use crate::assemble::nothing;
use crate::chain::{
    Base, Lengths, NewestBase, Seen, Tip, base_hints, has_link, is_stray, link_name, read_link,
    walk,
};
use crate::download::Download;
use crate::error::{Error, Result};
use crate::files::{beside, io, occupied};
use crate::follow_file;
use crate::link::{Begin, Content, Link, digest};
use crate::moment::Moment;
use crate::store::{Folder, Store};
use bytes::Bytes;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Links that are read one by one after each look, before a list says how many may be.
const SINGLE: u64 = 2;
/// How often a copy begins anew because what it reads is removed.
const TRIES: u32 = 3;
/// How long a follower may take to end. Until it calls `exec`, also a child that its process has
/// just forked holds the lock.
const ENDING: Duration = Duration::from_secs(2);
/// The time that is spent on parts of a snapshot after a look, at least; and how many bytes of them
/// come with each byte of links. A shipper puts the next snapshot once the log is as long as one.
const BUDGET: Duration = Duration::from_millis(100);
const PARTS_A_BYTE: u64 = 2;
/// The time that these bytes take at most, after which links are looked for, and parts come with
/// the next look: as much as has passed without parts, between these.
const OWED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

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
    newest_base: NewestBase,
    filter: Option<u128>,
    /// The base that is noted here next, with the number of its link.
    wanted: Option<(u64, Wanted)>,
    /// The link of a newer one. That which has begun comes first: otherwise none would, where
    /// snapshots come faster than their parts.
    newer: Option<u64>,
    /// Links whose snapshots are damaged in the store: an older or a later one will do.
    damaged: BTreeSet<u64>,
    /// Bytes of parts that are still to come with the links that have.
    owed: u64,
    /// When parts were downloaded last.
    renewed: Option<tokio::time::Instant>,
    /// The link in which the log at the end began, and that of the newest base that is noted here.
    /// If the log began later, a fetch from the copy goes to the newest base in it.
    began: u64,
    noted: u64,
    /// When a link last came, or a list has shown that none is missing; and for how long that
    /// suffices.
    certain: Option<Moment>,
    doubt: Duration,
    /// False while the copy begins anew, which an error may have interrupted.
    is_whole: bool,
    /// Locked.
    _alone: File,
}

/// Checks that nothing has the name that a promotion gives to the copy of this directory: a copy
/// there may be the only good one. A new copy would hide it, and its promotion remove it.
pub fn check_nothing_aside(dir: &Path) -> Result<()> {
    let aside = beside(dir, "following");
    match aside.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io("look at", &aside, &error)),
        // The last thing that a promotion removes.
        Ok(meta) if meta.is_dir() && occupied(&aside)?.is_none() => Ok(()),
        Ok(_) => {
            let found = "what a promotion has put there (`promote` continues it)".into();
            Err(Error::Occupied { path: aside.display().to_string(), found })
        }
    }
}

/// Marks a directory as a copy of this store, or checks that it is one; locks it.
pub async fn claim(remote: &Store, dir: &Path) -> Result<File> {
    remote.check_no_copy()?;
    let place = remote.place();
    let occupied = |found| Error::Occupied { path: dir.display().to_string(), found };
    match follow_file::copied_from(dir)? {
        Some(from) if from == place => {}
        Some(from) => return Err(occupied(format!("a copy of {from}"))),
        None => match follow_file::found_in(dir)? {
            Some(found) => return Err(occupied(found)),
            None => {
                check_nothing_aside(dir)?;
                follow_file::write(dir, &place)?;
            }
        },
    }
    let path = follow_file::path(dir);
    let file = File::open(&path).map_err(|error| io("open", &path, &error))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < ENDING => {
                tokio::time::sleep(ENDING / 100).await;
            }
            Err(TryLockError::WouldBlock) => return Err(occupied("a follower that runs".into())),
            Err(TryLockError::Error(error)) => return Err(io("lock", &path, &error)),
        }
    }
}

/// A base that is not noted yet.
#[derive(Debug)]
enum Wanted {
    Creation(Begin),
    Snapshot(Download),
}

impl Copy {
    /// Opens a copy in a directory, which may be new, and copies at least what makes it a whole
    /// filter. After `doubt` without a link it asks whether links were removed.
    pub async fn open(remote: Store, dir: &Path, doubt: Duration) -> Result<Self> {
        let alone = claim(&remote, dir).await?;
        let local = Store::of_directory(dir)?;
        local.remove_unfinished()?;
        let mut copy = Self {
            remote,
            local,
            dir: dir.to_path_buf(),
            tip: Tip::default(),
            newest_base: NewestBase::default(),
            filter: None,
            wanted: None,
            newer: None,
            damaged: BTreeSet::new(),
            owed: 0,
            renewed: None,
            began: 0,
            noted: 0,
            certain: None,
            doubt,
            is_whole: false,
            _alone: alone,
        };
        if !copy.resume().await? {
            copy.take_anew().await?;
        }
        Ok(copy)
    }

    /// Returns the copy, as a store that can be fetched from.
    pub fn local(&self) -> &Store {
        &self.local
    }

    /// Has the next look ask whether links were removed before they were copied.
    pub fn doubt(&mut self) {
        self.certain = None;
    }

    /// Returns the number of the newest link here. What is here leads to it, but perhaps not from
    /// every link that was here before.
    pub fn newest(&self) -> u64 {
        self.tip.number
    }

    /// Copies what has come since. Links that the store does not have any more are left out: then
    /// the copy begins anew.
    pub async fn look(&mut self) -> Result<()> {
        if !self.is_whole {
            return self.take_anew().await;
        }
        let Some(links) = self.copy_links().await? else { return self.take_anew().await };
        if links > 0 {
            self.certain = Some(Moment::now());
        }
        let is_end = self.newest_base.is_there(&self.remote).await?;
        if !is_end || self.certain.is_none_or(|certain| certain.elapsed() > self.doubt) {
            if self.is_left_behind().await? {
                return self.take_anew().await;
            }
            self.check_chain().await?;
            if !is_end && !has_link(&self.remote, self.tip.number).await? {
                // The list lacks what has replaced it; or somebody has removed it.
                return Err(self.removed());
            }
            self.certain = Some(Moment::now());
        }
        Ok(())
    }

    /// Spends a while on the next base, for one who has read all links here: those before it are
    /// removed.
    pub async fn renew_base(&mut self) -> Result<()> {
        let begun = tokio::time::Instant::now();
        let passed = self.renewed.map_or(Duration::ZERO, |renewed| begun - renewed);
        let most = passed.clamp(OWED.0, OWED.1);
        let limit = |owed| if owed > 0 { most } else { BUDGET };
        while self.is_due() && begun.elapsed() < limit(self.owed) {
            self.owed = self.owed.saturating_sub(self.download().await?);
        }
        self.renewed = Some(tokio::time::Instant::now());
        if !self.is_due() {
            self.owed = 0;
        }
        Ok(())
    }

    /// Returns whether a base is not noted yet.
    fn is_due(&self) -> bool {
        self.wanted.is_some() || self.newer.is_some()
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
            Ok(Some((noted, seen, tip))) => {
                self.noted = noted;
                (seen, tip)
            }
            Ok(None) | Err(Error::Object { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        (self.filter, self.tip, self.began) = (seen.filter, tip, seen.began());
        let newest = seen.bases.last().copied().unwrap_or_default();
        self.newest_base = NewestBase(newest);
        self.check_chain().await?;
        if self.is_left_behind().await? {
            return Ok(false);
        }
        // It may be here in part.
        if let Some((link, _)) = read_link(&self.local, newest).await? {
            self.want(&link)?;
        }
        self.is_whole = true;
        Ok(true)
    }

    /// Checks that the store has the chain that the copy is of, as far as one link shows it: the
    /// newest one here, the one after that, or the first, which is never removed.
    async fn check_chain(&self) -> Result<()> {
        let Tip { number, digest: own } = self.tip;
        let first = link_name(1);
        let found = self.remote.get(Folder::Chain, &link_name(number)).await?;
        let is_other = match found.map(|bytes| digest(&bytes)) {
            Some(found) if found == own => return Ok(()),
            // A beginning may have come when the link here was removed.
            Some(digest) => !is_stray(&self.remote, Tip { number, digest }).await?,
            None => false,
        };
        let is_it = if is_other {
            false
        } else if let Some((next, _)) = read_link(&self.remote, number + 1).await? {
            next.before == own
        } else {
            let there = self.remote.get(Folder::Chain, &first).await?;
            there.is_some() && there == self.local.get(Folder::Chain, &first).await?
        };
        if is_it {
            return Ok(());
        }
        let object = self.remote.name(Folder::Chain, &link_name(number));
        let expected = "the link that was copied from there, or a later one of its chain";
        Err(Error::object(object, expected, "none", REPLACED))
    }

    /// Reads the links here, from the newest base on, which is in the link that is returned first.
    async fn read_local(&self) -> Result<Option<(u64, Seen, Tip)>> {
        let hints = base_hints(&self.local).await?;
        let Some(&(number, _)) = hints.first() else { return Ok(None) };
        let Some((link, _)) = read_link(&self.local, number).await? else { return Ok(None) };
        let Some(base) = Base::of(&link) else { return Ok(None) };
        let (mut seen, from) = (Seen::from_base(&base), base.first_link(number));
        let take = |link| seen.take(&self.local, link).map(|()| true);
        let tip = walk(&self.local, (from, None), take).await?;
        Ok((tip.number >= number).then_some((number, seen, tip)))
    }

    /// Copies from the newest base of the store on whose snapshot is not damaged. What is here of
    /// it already stays. Until this is done, the copy has no hint.
    pub async fn take_anew(&mut self) -> Result<()> {
        self.damaged.clear();
        let (mut tries, mut failed) = (TRIES, None);
        while tries > 0 {
            let damaged = self.damaged.len();
            match self.take_newest().await {
                Ok(true) => return Ok(()),
                // Removed meanwhile: there is a newer base.
                Ok(false) => tries -= 1,
                Err(error @ Error::Object { .. }) => {
                    let error = failed.unwrap_or(error);
                    if self.damaged.len() == damaged {
                        return Err(error);
                    }
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.removed())
    }

    /// Copies from the newest base on that is not known to be damaged. Returns false if links that
    /// it needs were removed meanwhile.
    async fn take_newest(&mut self) -> Result<bool> {
        let (number, base) = self.remote_base().await?;
        self.is_whole = false;
        let hints = self.names(Folder::Base).await?;
        self.local.remove(Folder::Base, &hints).await?;
        let from = base.first_link(number);
        // By the first link it is known which chain it is.
        if from > 1
            && let Some(bytes) = self.remote.get(Folder::Chain, &link_name(1)).await?
        {
            self.local.put_over(Folder::Chain, &link_name(1), bytes).await?;
        }
        self.tip = Tip { number: from - 1, digest: 0 };
        self.newest_base = NewestBase::default();
        (self.wanted, self.newer, self.began, self.noted) = (None, None, 0, number);
        if self.copy_links().await?.is_none()
            || self.tip.number < number
            || self.is_left_behind().await?
        {
            return Ok(false);
        }
        while self.is_due() {
            self.download().await?;
        }
        if self.names(Folder::Base).await?.is_empty() {
            return Ok(false);
        }
        (self.certain, self.is_whole) = (Some(Moment::now()), true);
        self.owed = 0;
        Ok(true)
    }

    /// Creates the error for links that were removed, and for which there are no others yet.
    fn removed(&self) -> Error {
        Error::Store {
            object: self.remote.to_string(),
            action: "copy",
            found: "what it has is removed while it is read".into(),
            remedy: "it is tried again; if this stays, somebody has removed objects: keep the copy",
            is_transient: true,
        }
    }

    /// Returns the newest base of the store that is not known to be damaged, with the number of its
    /// link.
    async fn remote_base(&self) -> Result<(u64, Base)> {
        let mut numbers: Vec<u64> =
            base_hints(&self.remote).await?.into_iter().map(|(number, _)| number).collect();
        if numbers.is_empty() {
            let mut seen = Seen::default();
            let take = |link| seen.take(&self.remote, link).map(|()| true);
            walk(&self.remote, (1, None), take).await?;
            numbers.extend(seen.bases.iter().rev());
        }
        for number in numbers.into_iter().filter(|number| !self.damaged.contains(number)) {
            if let Some((link, _)) = read_link(&self.remote, number).await?
                && let Some(base) = Base::of(&link)
            {
                return Ok((number, base));
            }
        }
        Err(nothing(&self.remote, "a link at which a fetch can begin"))
    }

    /// Copies the links that follow. Returns their number; `None` if it has stopped before one
    /// whose snapshot the store does not have any more, or has damaged beside another one.
    async fn copy_links(&mut self) -> Result<Option<u64>> {
        let (mut links, mut lengths) = (0, None);
        loop {
            let next = self.tip.number + 1;
            let remote = self.remote.clone();
            if links == SINGLE {
                lengths = Some(Lengths::after(&remote, self.tip.number).await?);
            }
            let window = lengths.as_ref().map_or(1, |lengths| lengths.window(next));
            let reads = (next..next + window).map(|number| {
                let (remote, name) = (&remote, link_name(number));
                async move { remote.get(Folder::Chain, &name).await }
            });
            for read in join_all(reads).await {
                let Some(bytes) = read? else { return Ok(Some(links)) };
                if !self.take(bytes).await? {
                    return Ok(None);
                }
                links += 1;
            }
        }
    }

    /// Takes the next link. Returns false, and takes nothing, if it would need its snapshot, which
    /// the store does not have any more, or has damaged beside another one.
    async fn take(&mut self, bytes: Bytes) -> Result<bool> {
        let (number, digest) = (self.tip.number + 1, digest(&bytes));
        let name = link_name(number);
        let link = Link::decode(&self.remote.name(Folder::Chain, &name), &bytes)?;
        self.check_next(&link)?;
        let base = Base::of(&link);
        if let (true, Some(Base::Snapshot(snapshot))) = (self.began > self.noted, base) {
            let mut download = Download::begin(&self.remote, &self.dir, snapshot)?;
            while !download.is_whole() {
                let part = download.take_part(&self.remote).await;
                let is_damaged = matches!(part, Err(Error::Object { .. }));
                if is_damaged && self.has_other_base(number).await? {
                    return Ok(false);
                }
                if part?.is_none() {
                    return Ok(false);
                }
            }
            download.finish()?;
        }
        self.owed += bytes.len() as u64 * PARTS_A_BYTE;
        self.local.put_over(Folder::Chain, &name, bytes).await?;
        (self.tip, self.filter) = (Tip { number, digest }, Some(link.filter));
        self.newest_base.note(&link);
        if let Content::Begin(begin) = &link.content
            && !begin.continues
        {
            // One that continues leaves it: the log may still be that which a fetch goes to.
            self.began = number;
        }
        self.want(&link)?;
        Ok(true)
    }

    /// Returns whether the store has another base behind the beginning of the log at the end than
    /// that in this link: it leads to the same end.
    async fn has_other_base(&self, number: u64) -> Result<bool> {
        let hints = base_hints(&self.remote).await?;
        let is_other = |other: u64| other > self.began && other != number;
        Ok(hints.iter().any(|(other, _)| is_other(*other) && !self.damaged.contains(other)))
    }

    /// Checks that a link is the next one here.
    fn check_next(&self, link: &Link) -> Result<()> {
        let (number, before) = (self.tip.number + 1, self.tip.digest);
        let filter = self.filter.unwrap_or(link.filter);
        let is_next = before == 0 || link.before == before;
        if is_next && (link.number, link.filter) == (number, filter) {
            return Ok(());
        }
        let object = self.remote.name(Folder::Chain, &link_name(number));
        let expected = format!("link {number} of filter {filter:032x}, after {before:032x}");
        let (number, filter, before) = (link.number, link.filter, link.before);
        let found = format!("link {number} of {filter:032x}, after {before:032x}");
        Err(Error::object(object, expected, found, MIXED))
    }

    /// Has the base in a link noted, if there is one: next, or after that which has begun.
    fn want(&mut self, link: &Link) -> Result<()> {
        let Some(base) = Base::of(link) else { return Ok(()) };
        if self.damaged.contains(&link.number) {
            return Ok(());
        }
        // Also if this fails.
        self.newer = Some(link.number);
        // Of a log that began later all is here: a fetch goes there, and nothing comes before it.
        if self.began <= self.noted
            && let Some((_, Wanted::Snapshot(download))) = &self.wanted
            && download.has_begun()
        {
            return Ok(());
        }
        self.discard()?;
        let wanted = match base {
            Base::Creation(begin) => Wanted::Creation(begin),
            Base::Snapshot(snapshot) => {
                Wanted::Snapshot(Download::begin(&self.remote, &self.dir, snapshot)?)
            }
        };
        (self.wanted, self.newer) = (Some((link.number, wanted)), None);
        Ok(())
    }

    /// Has no base noted next, and removes what is here of a snapshot that is not whole.
    fn discard(&mut self) -> Result<()> {
        match self.wanted.take() {
            Some((_, Wanted::Snapshot(download))) => download.discard(),
            _ => Ok(()),
        }
    }

    /// Has the newer base noted next that has waited.
    async fn want_newer(&mut self) -> Result<()> {
        let Some(number) = self.newer else { return Ok(()) };
        let read = read_link(&self.local, number).await?;
        // Not before it was read: after an error it still waits.
        self.newer = None;
        match read {
            Some((link, _)) => self.want(&link),
            None => Ok(()),
        }
    }

    /// Downloads a part of the next base, or notes that it is whole. Returns the part's length.
    async fn download(&mut self) -> Result<u64> {
        let Some((number, wanted)) = &mut self.wanted else {
            return self.want_newer().await.map(|()| 0);
        };
        let number = *number;
        let base = match wanted {
            Wanted::Creation(begin) => Base::Creation(begin.clone()),
            Wanted::Snapshot(download) if download.is_whole() => Base::Snapshot(download.finish()?),
            Wanted::Snapshot(download) => {
                let error = match download.take_part(&self.remote).await {
                    Ok(Some(bytes)) => return Ok(bytes),
                    // The store has removed it, because there is a newer one, whose link comes.
                    Ok(None) => return self.discard().map(|()| 0),
                    Err(error @ Error::Object { .. }) => {
                        self.damaged.insert(number);
                        error
                    }
                    Err(error) => return Err(error),
                };
                if self.newer.is_none() && base_hints(&self.local).await?.is_empty() {
                    return Err(error);
                }
                // The base here stays until a newer one comes.
                return self.discard().map(|()| 0);
            }
        };
        self.wanted = None;
        let noted = self.note(number, &base).await;
        if noted.is_err() {
            // What is whole is not downloaded again.
            self.newer = self.newer.or(Some(number));
        }
        noted.map(|()| 0)
    }

    /// Notes that all of a base is here, and removes what is not needed for it.
    async fn note(&mut self, number: u64, base: &Base) -> Result<()> {
        let text = Bytes::from_static(b"a fetch can begin at the link of this number\n");
        self.local.put_over(Folder::Base, &link_name(number), text).await?;
        self.noted = number;
        // Those behind the end are from before links were left out.
        let (first, end) = (base.first_link(number), self.tip.number);
        let is_used = |number: u64| number == 1 || (first..=end).contains(&number);
        // Also newer ones: a list may lack the newest base.
        let mut hints = self.names(Folder::Base).await?;
        hints.retain(|name| *name != link_name(number));
        self.local.remove(Folder::Base, &hints).await?;
        let mut links = self.names(Folder::Chain).await?;
        links.retain(|name| name.parse().is_ok_and(|number: u64| !is_used(number)));
        self.local.remove(Folder::Chain, &links).await?;
        let mut snapshots = self.names(Folder::Snapshot).await?;
        snapshots.retain(|name| !matches!(base, Base::Snapshot(of) if of.name == *name));
        self.local.remove(Folder::Snapshot, &snapshots).await?;
        Download::remove_all(&self.dir)
    }

    async fn names(&self, folder: Folder) -> Result<Vec<String>> {
        Ok(self.local.list(folder, None).await?.into_iter().map(|(name, _)| name).collect())
    }
}

#[cfg(test)]
mod tests;
