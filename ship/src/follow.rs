//! A standby: a copy in memory that applies links as they come and answers questions. It may also
//! copy the objects to a directory, so that it continues after a restart.
//!
//! What is known of the shipper is what the store has. [`Answers::ask`] refuses when the follower
//! has not seen the end of the chain for too long. Whether the shipper is late is a figure of its
//! own.

use crate::assemble::{Fetched, assemble};
use crate::chain::{Base, NewestBase, has_link, link_name, read_link};
use crate::error::{Error, Result};
use crate::link::{Content, Link};
use crate::local_copy::Copy;
use crate::moment::Moment;
use crate::store::{Folder, Store};
use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Options, Reader, Standby};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// After so long without a link, a list shows whether links were removed; sooner if the copy must
/// not be that old.
pub(crate) const DOUBT: Duration = Duration::from_secs(60);
/// What is said of an age that is not known.
const UNKNOWN: &str = "an unknown time";
const REMOVED: &str = "somebody has removed the objects: look for who has, and start again";

struct Shared {
    standby: RwLock<Standby>,
    /// When the copy last had all that the chain had; `None` if it never did.
    seen: Mutex<Option<Moment>>,
    max_lag: Duration,
}

/// Answers from a copy that a [`Follower`] keeps up to date; clones share it.
#[derive(Clone)]
pub struct Answers(Arc<Shared>);

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("next_lsn", &self.next_lsn()).finish_non_exhaustive()
    }
}

impl Answers {
    /// Asks the copy.
    ///
    /// # Errors
    /// [`Error::Behind`] if it is older than allowed; [`Error::Filter`] of the question.
    pub fn ask<T>(&self, question: impl FnOnce(&Reader<Any>) -> ebbtide::Result<T>) -> Result<T> {
        let (lag, allowed) = (self.lag(), self.0.max_lag);
        if lag > allowed {
            let known = |lag: Duration| format!("{:.1} s", lag.as_secs_f64());
            let found = Some(lag).filter(|&lag| lag < Duration::MAX);
            return Err(Error::Behind { allowed, found: found.map_or(UNKNOWN.into(), known) });
        }
        let standby = self.0.standby.read().unwrap_or_else(PoisonError::into_inner);
        Ok(standby.ask(question)?)
    }

    /// Returns how old the copy is at most, measured by what the store had. It also grows while a
    /// new chain, after an alteration or a gap, has no snapshot yet. A follower that was started in
    /// that period does not know it, and returns [`Duration::MAX`].
    #[must_use]
    pub fn lag(&self) -> Duration {
        let seen = *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.map_or(Duration::MAX, |seen| seen.elapsed())
    }

    /// Returns the LSN below which it has every operation.
    #[must_use]
    pub fn next_lsn(&self) -> u64 {
        self.0.standby.read().unwrap_or_else(PoisonError::into_inner).next_lsn()
    }
}

/// Follows a shipped filter.
pub struct Follower {
    /// What is followed: the place, or the copy of it.
    store: Store,
    copy: Option<Copy>,
    shared: Arc<Shared>,
    /// The newest link that was read.
    link: u64,
    /// Whether links since belong to a state whose snapshot is not there yet.
    is_pending: bool,
    newest_base: NewestBase,
    /// When a link last came, or a list has shown that none is missing.
    certain: Moment,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut follower = f.debug_struct("Follower");
        follower.field("store", &self.store).field("answers", &self.answers());
        follower.finish_non_exhaustive()
    }
}

async fn take(store: &Store) -> Result<(Standby, Fetched)> {
    let memory: Arc<dyn Media> = Arc::new(Memory::new());
    let fetched = assemble(store, memory.clone()).await?;
    Ok((Standby::open_on(memory, Options::new())?, fetched))
}

impl Follower {
    /// Fetches the filter into memory.
    ///
    /// # Errors
    /// As [`fetch`](crate::fetch()).
    pub async fn begin(store: Store, max_lag: Duration) -> Result<Self> {
        store.check_no_copy()?;
        Self::begin_at(store, None, max_lag, Moment::now()).await
    }

    /// As [`Follower::begin`], and keeps a copy of the objects in a directory: new, or of a
    /// follower of this place that has ended, however it has. What is there is not downloaded
    /// again, also by [`promote`](crate::promote()).
    ///
    /// # Errors
    /// As [`fetch`](crate::fetch()). [`Error::Occupied`] if the directory is something else, or of
    /// another follower that runs; [`Error::Object`] if the place does not have what was copied
    /// from it.
    pub async fn begin_in(store: Store, dir: impl AsRef<Path>, max_lag: Duration) -> Result<Self> {
        let begun = Moment::now();
        let doubt = max_lag.min(DOUBT);
        let mut copy = Copy::open(store.clone(), dir.as_ref(), doubt).await?;
        // Otherwise it would answer from what it had when the follower before ended.
        copy.look().await?;
        match Self::begin_at(copy.local().clone(), Some(copy), max_lag, begun).await {
            // A part of the copy is damaged.
            Err(error) if error.is_damage() => {
                let mut copy = Copy::open(store, dir.as_ref(), doubt).await?;
                copy.take_anew().await?;
                Self::begin_at(copy.local().clone(), Some(copy), max_lag, begun).await
            }
            begun => begun,
        }
    }

    async fn begin_at(
        store: Store,
        copy: Option<Copy>,
        max_lag: Duration,
        begun: Moment,
    ) -> Result<Self> {
        let (standby, fetched) = take(&store).await?;
        let Fetched { link, is_pending, newest_base, .. } = fetched;
        let seen = Mutex::new(Some(begun).filter(|_| !is_pending));
        let shared = Arc::new(Shared { standby: RwLock::new(standby), seen, max_lag });
        Ok(Self { store, copy, shared, link, is_pending, newest_base, certain: Moment::now() })
    }

    /// Returns the answers, for other threads.
    #[must_use]
    pub fn answers(&self) -> Answers {
        Answers(self.shared.clone())
    }

    /// Applies what has come since, with one request for each link and a few more. Returns the
    /// number of links. After an error that [is transient](Error::is_transient) the next call
    /// continues.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Object`], [`Error::Filter`].
    pub async fn look(&mut self) -> Result<u64> {
        let mut begun = Moment::now();
        let mut links = 0;
        if let Some(copy) = &mut self.copy {
            copy.look().await?;
        }
        while let Some((link, _)) = read_link(&self.store, self.link + 1).await? {
            self.certain = Moment::now();
            links += 1;
            if self.is_pending && Base::of(&link).is_some() {
                // Before the link counts as read: after an error the next call is here again.
                self.take_anew().await?;
                // The end of a copy is not that of the place.
                begun = if self.copy.is_none() { Moment::now() } else { begun };
            } else {
                self.apply(&link)?;
            }
        }
        if self.copy.as_ref().is_some_and(|copy| copy.newest() > self.link) {
            // Links were left out.
            self.take_anew().await?;
        }
        if self.copy.is_none()
            && (!self.newest_base.is_there(&self.store).await?
                || self.certain.elapsed() > self.shared.max_lag.min(DOUBT))
        {
            self.make_certain().await?;
        }
        // Otherwise what was read is not in the copy.
        if !self.is_pending {
            *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
        }
        if let Some(copy) = &mut self.copy {
            copy.renew_base().await?;
        }
        Ok(links)
    }

    /// Looks whether there are later links although the next one is missing.
    async fn make_certain(&mut self) -> Result<()> {
        let after = link_name(self.link + 1);
        if !self.store.list(Folder::Chain, Some(&after)).await?.is_empty() {
            // Links that are not needed any more were removed before they were read here.
            self.take_anew().await?;
        } else if !has_link(&self.store, self.link).await? {
            // The list may lack those that have replaced it.
            match self.take_anew().await {
                Err(Error::Object { .. }) => return Err(self.removed()),
                taken => taken?,
            }
        }
        self.certain = Moment::now();
        Ok(())
    }

    fn removed(&self) -> Error {
        let object = self.store.name(Folder::Chain, &link_name(self.link));
        Error::object(object, "the link that was read from there", "none", REMOVED)
    }

    /// Applies the next link.
    fn apply(&mut self, link: &Link) -> Result<()> {
        let standby = self.shared.standby.read().unwrap_or_else(PoisonError::into_inner);
        match &link.content {
            Content::Begin(begin) => {
                self.is_pending = !(begin.continues && begin.first == standby.next_lsn());
            }
            Content::Log(piece, _) if !self.is_pending => standby.apply(piece)?,
            Content::Log(..) | Content::Snapshot(_) => {}
        }
        self.link = link.number;
        self.newest_base.note(link);
        Ok(())
    }

    /// Takes the newest state in place of the copy. It is never an older one.
    async fn take_anew(&mut self) -> Result<()> {
        let (standby, fetched) = take(&self.store).await?;
        if fetched.link < self.link {
            return Err(self.removed());
        }
        *self.shared.standby.write().unwrap_or_else(PoisonError::into_inner) = standby;
        let Fetched { link, is_pending, newest_base, .. } = fetched;
        (self.link, self.is_pending, self.newest_base) = (link, is_pending, newest_base);
        Ok(())
    }
}
