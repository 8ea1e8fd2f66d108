//! A standby: a copy in memory that applies links as they come and answers questions, and the
//! promotion of a copy to the writer.
//!
//! What is known of the shipper is what the store has. [`Answers::ask`] refuses when the follower
//! has not seen the end of the chain for too long. Whether the shipper is late is a figure of its
//! own.

use crate::chain::{Base, read_link};
use crate::error::{Error, Result};
use crate::fetch::{Fetched, assemble, fetch};
use crate::link::Content;
use crate::ship::{ShipOptions, Shipper};
use crate::store::{Folder, Store};
use ebbtide::media::{Disk, Media, Memory};
use ebbtide::{Any, Options, Reader, Standby};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// After so long without a link, a list shows whether links are missing.
const DOUBT: Duration = Duration::from_secs(60);
/// How often a promotion begins again because the writer has shipped more meanwhile.
const TRIES: u32 = 10;

#[derive(Debug)]
struct Shared {
    standby: RwLock<Standby>,
    /// When the end of the chain was last asked for, successfully.
    seen: Mutex<Instant>,
    max_lag: Duration,
}

/// Answers from a copy that a [`Follower`] keeps up to date; clones share it.
#[derive(Debug, Clone)]
pub struct Answers(Arc<Shared>);

impl Answers {
    /// Asks the copy.
    ///
    /// # Errors
    /// [`Error::Behind`] if it is older than allowed; [`Error::Filter`] of the question.
    pub fn ask<T>(&self, question: impl FnOnce(&Reader<Any>) -> ebbtide::Result<T>) -> Result<T> {
        let (lag, allowed) = (self.lag(), self.0.max_lag);
        if lag > allowed {
            return Err(Error::Behind { allowed, found: format!("{:.1} s", lag.as_secs_f64()) });
        }
        let standby = self.0.standby.read().unwrap_or_else(PoisonError::into_inner);
        Ok(standby.ask(question)?)
    }

    /// Returns how old the copy is at most, measured by what the store had.
    #[must_use]
    pub fn lag(&self) -> Duration {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Returns the LSN below which it has every operation.
    #[must_use]
    pub fn next_lsn(&self) -> u64 {
        self.0.standby.read().unwrap_or_else(PoisonError::into_inner).next_lsn()
    }
}

/// Follows a shipped filter.
#[derive(Debug)]
pub struct Follower {
    store: Store,
    shared: Arc<Shared>,
    /// The newest link that was read.
    link: u64,
    /// Whether links since belong to a state whose snapshot is not there yet.
    is_pending: bool,
    /// When a link last came, or a list has shown that none is missing.
    certain: Instant,
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
        let seen = Mutex::new(Instant::now());
        let (standby, fetched) = take(&store).await?;
        let shared = Arc::new(Shared { standby: RwLock::new(standby), seen, max_lag });
        let (link, is_pending, certain) = (fetched.link, fetched.is_pending, Instant::now());
        Ok(Self { store, shared, link, is_pending, certain })
    }

    /// Returns the answers, for other threads.
    #[must_use]
    pub fn answers(&self) -> Answers {
        Answers(self.shared.clone())
    }

    /// Applies what has come since, with one request for each link and one more. Returns the number
    /// of links. After an error that [is transient](Error::is_transient) the next call continues.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Object`], [`Error::Filter`].
    pub async fn look(&mut self) -> Result<u64> {
        let (mut links, mut begun) = (0, Instant::now());
        while let Some((link, _)) = read_link(&self.store, self.link + 1).await? {
            self.certain = Instant::now();
            let is_base = Base::of(&link).is_some();
            match &link.content {
                Content::Begin(begin) => {
                    let standby =
                        self.shared.standby.read().unwrap_or_else(PoisonError::into_inner);
                    self.is_pending = !(begin.continues && begin.first == standby.next_lsn());
                }
                Content::Log(piece, _) if !self.is_pending => {
                    let standby =
                        self.shared.standby.read().unwrap_or_else(PoisonError::into_inner);
                    standby.apply(piece)?;
                }
                Content::Log(..) | Content::Snapshot(_) => {}
            }
            self.link += 1;
            links += 1;
            if is_base && self.is_pending {
                self.take_anew().await?;
                begun = Instant::now();
            }
        }
        if self.certain.elapsed() > DOUBT {
            let after = crate::chain::link_name(self.link + 1);
            if !self.store.list(Folder::Chain, Some(&after)).await?.is_empty() {
                // Links that are not needed any more were removed before they were read here.
                self.take_anew().await?;
            }
            self.certain = Instant::now();
        }
        *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner) = begun;
        Ok(links)
    }

    async fn take_anew(&mut self) -> Result<()> {
        let (standby, fetched) = take(&self.store).await?;
        *self.shared.standby.write().unwrap_or_else(PoisonError::into_inner) = standby;
        (self.link, self.is_pending) = (fetched.link, fetched.is_pending);
        Ok(())
    }
}

/// Makes a new directory the writer: fetches the filter, and begins a timeline. On return every
/// shipper before is fenced, and the directory has all that they were confirmed.
///
/// # Errors
/// As [`fetch`](crate::fetch()) and [`Shipper::begin`]; [`Error::Refused`] if the writer ships more
/// each time: stop it first.
pub async fn promote(
    store: &Store,
    dir: impl AsRef<Path>,
    options: ShipOptions,
) -> Result<(Fetched, Shipper)> {
    let dir = dir.as_ref();
    let mut tries = TRIES;
    loop {
        let fetched = fetch(store, dir, None).await?;
        let media = Arc::new(Disk::new(dir));
        match Shipper::begin(store.clone(), media, options.clone()).await {
            Err(Error::Refused { .. }) if tries > 0 => {
                tries -= 1;
                crate::fetch::remove(dir)?;
            }
            begun => return Ok((fetched, begun?)),
        }
    }
}
