//! A shipper: what it knows of the chain's end, and the next links that it puts there.
//!
//! Invariants: it puts links at the number after the newest that it knows, and only if that number
//! is free; so what it was answered, or finds there as its own, is in the chain, and nobody has
//! begun after it. A link that may have been put is put again, the same bytes, before anything
//! else. [`Shipper::confirmed`] grows with links that are there.

use crate::beginning::{Beginning, anew, check_filter, check_snapshot, choose};
use crate::chain::{Base, Run, Tip, is_stray, link_name, read_chain, walk};
use crate::continuation::RECORD_BYTES;
use crate::error::{Error, Result};
use crate::link::{Cause, Content, Link, digest};
use crate::retention::Retention;
use crate::ship_file;
use crate::ship_options::ShipOptions;
use crate::snapshot::not_as_put;
use crate::store::{Folder, Put, Store};
use crate::totals::Shipped;
use crate::upload_task::{Job, Upload, Wait};
use bytes::Bytes;
use ebbtide::history::History;
use ebbtide::inspect::{Origin, Piece, SnapshotFile, origin_on, snapshots_on};
use ebbtide::media::Media;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The length of records from which on they are put in a link. It has at most twice as much, unless
/// a batch is longer: what a slow line takes in one request, and does not take again.
const LINK_BYTES: usize = 2 << 20;
/// The links of a round, at most: what else there is to be done is not left undone for longer.
const LINKS: u64 = 16;
/// How often a store that does not answer is asked whether it keeps shippers apart.
const PROBES: u32 = 4;
/// How long a shipper that has nothing to put does not look whether another one has begun.
const LOOK: Duration = Duration::from_secs(60);
/// How long heartbeats wait for something else to be shipped with.
const HEARTBEATS: Duration = Duration::from_secs(60);

/// Ships one filter. Dropped or killed at any point, it leaves a chain that another one continues.
pub struct Shipper {
    store: Store,
    media: Arc<dyn Media>,
    options: ShipOptions,
    /// A random number of its newest beginning, which its directory notes.
    id: u128,
    origin: Origin,
    timeline: u64,
    tip: Tip,
    history: History,
    run: Run,
    /// A link that may have been put, with its bytes.
    pending: Option<(Link, Bytes)>,
    /// Records that were read and are not in a link yet, and those of the next link.
    read: Option<Piece>,
    held: Option<Piece>,
    /// The length from which on they are put.
    link_bytes: usize,
    /// Whether the last round has shipped the log to its end, and what it waited for.
    has_reached_end: bool,
    upload: Upload,
    /// Bases whose hints are to be put.
    hints: Vec<u64>,
    confirmed: u64,
    /// A run needs its records below this LSN before it can replace the one before.
    floor: u64,
    retention: Retention,
    /// When it has last put a link, or has found that nobody else has.
    looked: Instant,
    /// When it has last put records, or has begun.
    put_records: Instant,
    gaps: u64,
    /// What it has put, also by rounds that have failed then.
    total: Shipped,
}

impl fmt::Debug for Shipper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shipper = f.debug_struct("Shipper");
        shipper.field("path", &self.media.path()).field("store", &self.store);
        shipper.field("timeline", &self.timeline).finish_non_exhaustive()
    }
}

fn now_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

impl Shipper {
    /// Begins a timeline: from the return on, every shipper before is fenced.
    ///
    /// # Errors
    /// [`Error::Refused`] if the directory cannot be shown to have what the store has, also because
    /// another shipper has taken over ([`Error::is_fenced`]);
    /// [`Error::Object`], [`Error::Store`], [`Error::Filter`].
    pub async fn begin(store: Store, media: Arc<dyn Media>, options: ShipOptions) -> Result<Self> {
        store.check_no_copy()?;
        let filter = origin_on(&*media)?.uuid;
        let (mut seen, mut tip) = read_chain(&store).await?;
        loop {
            let beginning = choose(&store, &media, filter, &seen, options.take_over)?;
            let Beginning { origin, begin, history } = beginning;
            let id = ship_file::random_id();
            ship_file::write(&*media, (id, tip.number + 1), seen.shipper)?;
            let mut shipper = Self {
                run: Run::new(0, begin.log, begin.first),
                floor: 0,
                retention: Retention::new(options.keep, &seen.numbers),
                timeline: seen.timeline + 1,
                store: store.clone(),
                media: media.clone(),
                options: options.clone(),
                id,
                origin,
                tip,
                history,
                pending: None,
                read: None,
                held: None,
                link_bytes: LINK_BYTES,
                has_reached_end: false,
                upload: Upload::default(),
                // Those of the others were put before it, and perhaps removed since.
                hints: seen.bases.last().copied().into_iter().collect(),
                confirmed: 0,
                looked: Instant::now(),
                put_records: Instant::now(),
                gaps: u64::from(begin.cause == Cause::Gap),
                total: Shipped::default(),
            };
            if let Some(run) = seen.whole().cloned() {
                shipper.floor = if begin.cause == Cause::TakenOver { 0 } else { run.next };
                shipper.confirmed = shipper.floor;
                if begin.continues {
                    shipper.run = run;
                }
            }
            match shipper.put(Content::Begin(begin)).await {
                // Another one was faster, or a late put has come: look at what it says.
                Err(Error::Fenced { .. }) => {
                    let from = (tip.number + 1, Some(tip.digest).filter(|_| tip.number > 0));
                    match walk(&store, from, |link| seen.take(&store, link).map(|()| true)).await {
                        // What follows it has been removed since.
                        Err(Error::Object { .. }) => (seen, tip) = read_chain(&store).await?,
                        walked => tip = walked?,
                    }
                }
                put => {
                    shipper.check_fence(put?).await?;
                    // Another shipper of the directory may have written the file at the same time.
                    if !ship_file::has(&*shipper.media, id)? {
                        ship_file::write(&*shipper.media, (id, shipper.tip.number), id)?;
                    }
                    if is_stray(&store, shipper.tip).await? {
                        (seen, tip) = read_chain(&store).await?;
                        continue;
                    }
                    // Whoever else still puts is fenced.
                    shipper.store.remove_unfinished()?;
                    return Ok(shipper);
                }
            }
        }
    }

    /// Returns the LSN below which a fetch yields every operation of the filter as it is now; 0 if
    /// nothing is shipped. After an alteration or a gap it stays until the new snapshot is there.
    #[must_use]
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Returns the number of its timeline.
    #[must_use]
    pub fn timeline(&self) -> u64 {
        self.timeline
    }

    /// Returns whether what was shipped last can be fetched only once a snapshot comes.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.run.base.is_none()
    }

    /// Returns how often log was removed before it was shipped: moments in between cannot be
    /// fetched.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Returns the LSN up to which it has read notes of the engine, which wait for something that
    /// matters; 0 if they do not.
    pub(crate) fn noted(&self) -> u64 {
        let notes = self.read.as_ref().filter(|read| self.held.is_none() && !read.has_changes());
        notes.filter(|_| !self.is_pending()).map_or(0, Piece::end)
    }

    /// Returns what it has put since it began, with that link.
    pub(crate) fn total(&self) -> Shipped {
        self.total
    }

    /// Waits until the upload of a snapshot has ended; without one, endlessly.
    pub(crate) async fn uploaded(&mut self) {
        self.upload.end().await;
    }

    /// Returns whether the last snapshot whose upload has ended could not be shipped.
    pub(crate) fn has_failed_upload(&self) -> bool {
        self.upload.has_failed()
    }

    /// Returns whether a snapshot is on its way.
    pub(crate) fn is_uploading(&self) -> bool {
        self.upload.is_running()
    }

    /// Returns whether the last round has left something: log that was durable when it began, if
    /// that was too much for one round, or the round has failed; or the snapshot that it waited
    /// for, if the engine has written another one over it. The next one continues.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.has_reached_end
    }

    /// Ships what has become durable since the last round, in at most 16 objects; if nothing has,
    /// no request, except once a minute whether another shipper has begun. (While a filter with
    /// [`Downtime::Freeze`](ebbtide::Downtime) is open, its time becomes durable each second.) Then,
    /// if it is time, a snapshot, and removes what is behind two of them.
    ///
    /// After an error that [is transient](Error::is_transient) the next call continues.
    ///
    /// # Errors
    /// [`Error::Fenced`] once another shipper has begun; [`Error::Store`], [`Error::Object`],
    /// [`Error::Refused`], [`Error::Filter`].
    pub async fn round(&mut self) -> Result<Shipped> {
        self.round_of(LINKS, Wait::Always).await
    }

    /// As [`Shipper::round`], with at most this many links of log, and this upload of a snapshot.
    pub(crate) async fn round_of(&mut self, links: u64, wait: Wait) -> Result<Shipped> {
        self.has_reached_end = false;
        self.finish_pending().await?;
        let before = self.total;
        self.check_origin().await?;
        self.ship_log(before.links + links, wait != Wait::Never).await?;
        self.put_hints().await?;
        // The log goes first.
        if wait != Wait::IfNeeded || self.is_pending() || self.upload.is_ready() {
            self.ship_snapshot(wait != Wait::Never && self.has_reached_end).await?;
        }
        self.put_hints().await?;
        let base = self.run.base.as_ref().map(|(number, _)| *number);
        let cleaned = self.retention.clean(&self.store, base).await;
        // Also if nothing can be removed, in any round.
        self.look().await?;
        cleaned?;
        Ok(self.total.since(before))
    }

    /// Looks from time to time whether another shipper has begun: while the filter is idle, no put
    /// shows it.
    async fn look(&mut self) -> Result<()> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        match self.check_next().await {
            // The next round looks again. Nothing is left undone, so this is no failure.
            Err(error) if error.is_transient() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.looked = Instant::now();
                Ok(())
            }
        }
    }

    /// Checks that the store refuses to put an object that is there: these bytes.
    async fn check_fence(&self, bytes: Bytes) -> Result<()> {
        let name = link_name(self.tip.number);
        let mut probes = 1;
        // The link is there: an answer that is lost says nothing about it.
        let put = loop {
            match self.store.put_new(Folder::Chain, &name, bytes.clone()).await {
                Err(error) if error.is_transient() && probes < PROBES => probes += 1,
                put => break put?,
            }
        };
        if put == Put::Exists {
            return Ok(());
        }
        Err(Error::Store {
            object: self.store.name(Folder::Chain, &name),
            action: "ship after",
            found: "the store has put it again although it was there".into(),
            remedy: "two shippers could not be kept apart: use a store that puts an object only \
                     if it is absent (If-None-Match)",
            is_transient: false,
        })
    }

    /// Returns an error if another shipper has begun.
    async fn check_next(&self) -> Result<()> {
        let number = self.tip.number + 1;
        match self.store.get(Folder::Chain, &link_name(number)).await? {
            Some(found) => Err(self.fenced(number, &found)),
            None => Ok(()),
        }
    }

    /// Notices that the filter was altered or replaced.
    async fn check_origin(&mut self) -> Result<()> {
        let now = origin_on(&*self.media)?;
        check_filter(&self.store, self.origin.uuid, &now)?;
        if !ship_file::has(&*self.media, self.id)? {
            // By its successors in this directory, if there are many.
            self.check_next().await?;
            return Err(Error::Refused {
                url: self.store.to_string(),
                expected: "the directory with which its shipper has begun".into(),
                found: "another one in its place".into(),
                remedy: "start the shipper again; to discard what only the store has, with \
                         `--take-over`",
                is_outdated: false,
            });
        }
        if now.log != self.origin.log {
            self.begin_anew(Cause::Altered).await?;
        }
        Ok(())
    }

    async fn begin_anew(&mut self, cause: Cause) -> Result<()> {
        let beginning = anew(&self.store, &self.media, self.origin.uuid, cause)?;
        if cause == Cause::Gap {
            check_snapshot(&self.store, &beginning)?;
        }
        // A number of its own: if the directory is set back to before, so is its note.
        let id = ship_file::random_id();
        ship_file::write(&*self.media, (id, self.tip.number + 1), self.id)?;
        self.id = id;
        // From here on this link is the next one that is put, and the state is that behind it.
        let Beginning { origin, begin, history } = beginning;
        (self.origin, self.history, self.read, self.held) = (origin, history, None, None);
        self.upload = Upload::default();
        self.timeline += 1;
        self.gaps += u64::from(cause == Cause::Gap);
        self.put(Content::Begin(begin)).await.map(drop)
    }

    /// Puts links, until what was durable when the round began is shipped, or it has put `most`.
    /// `is_last`: perhaps there is no later round, so that heartbeats do not wait.
    async fn ship_log(&mut self, most: u64, is_last: bool) -> Result<()> {
        loop {
            if self.total.links >= most {
                return Ok(());
            }
            match self.read_pieces() {
                Err(Error::Filter(ebbtide::Error::NotKept { .. })) => {
                    self.begin_anew(Cause::Gap).await?;
                    continue;
                }
                read => read?,
            }
            let (log, is_other) = (self.origin.log, |piece: &Piece| piece.log != self.origin.log);
            if self.read.as_ref().is_some_and(is_other) {
                // An alteration.
                self.check_origin().await?;
                if self.origin.log != log {
                    continue;
                }
                // What was read is ahead of `meta`: the next round sees it.
                break;
            }
            // Notes of the engine wait for something that matters, as long as there is room for it.
            // A first snapshot may need them. Heartbeats are the time of a filter.
            let is_needed = self.held.is_some() || self.run.base.is_none();
            let is_full = |piece: &Piece| piece.records.len() >= self.link_bytes;
            let may_beat = is_last || self.put_records.elapsed() >= HEARTBEATS;
            let is_due = |piece: &mut Piece| {
                is_needed
                    || is_full(piece)
                    || piece.has_changes()
                    || (may_beat && piece.has_heartbeats())
            };
            let Some(piece) = self.read.take_if(is_due) else { break };
            // It ends where the durable log did, after the begin of the round. What has come since
            // is for the next one: a filter that is always written would never end this one.
            let is_end = !is_full(&piece) && self.held.is_none();
            let latest = piece.latest_micros();
            self.put(Content::Log(piece, latest)).await?;
            if is_end {
                break;
            }
        }
        self.has_reached_end = true;
        Ok(())
    }

    /// Reads what comes next, as much as a link may have.
    fn read_pieces(&mut self) -> Result<()> {
        loop {
            let before = self.read.as_ref().map_or(0, |piece| piece.records.len());
            if before >= self.link_bytes {
                return Ok(());
            }
            let next = match self.held.take() {
                Some(next) => next,
                None => match self.history.read_piece()? {
                    Some(next) => next,
                    None => return Ok(()),
                },
            };
            let Some(read) = &mut self.read else {
                self.read = Some(next);
                continue;
            };
            if !read.append(&next) {
                // Of another timeline, or of another log.
                self.held = Some(next);
                return Ok(());
            }
        }
    }

    /// Ships the newest snapshot, if there is one and its time has come: begins its upload, or puts
    /// its link, if it is in the store. `waits`: until it is.
    async fn ship_snapshot(&mut self, waits: bool) -> Result<()> {
        if self.upload.is_idle() {
            // Log that is left goes over a slow line first, unless it is of no use without this.
            if self.is_behind() && !self.is_pending() {
                return Ok(());
            }
            let Some(file) = self.due_snapshot()? else {
                // What has failed is not tried again.
                self.upload.clear_failure();
                return Ok(());
            };
            if !waits && self.upload.is_paused(&file, self.is_pending()) {
                return Ok(());
            }
            // At least the newest records: by them a directory shows that it has what the chain
            // has.
            let mut links = self.run.links.iter().rev();
            let from = links.find(|&&(_, first)| first <= file.start);
            let from_link = from.map_or(self.tip.number + 1, |&(number, _)| number);
            let (origin, id) = (self.origin.clone(), ship_file::random_id() as u64);
            let job = Job { origin, file, from_link, id };
            self.upload.begin(self.store.clone(), self.media.clone(), job);
        }
        if waits {
            self.upload.end().await;
        }
        let snapshot = match self.upload.take() {
            // A successor may have removed it.
            Err(Error::Object { object, expected, found, .. }) => {
                self.check_next().await?;
                return Err(not_as_put(object, &expected, &found));
            }
            taken => taken?,
        };
        let Some(snapshot) = snapshot else {
            // Its file is gone: there is a newer one, which may need more log.
            self.has_reached_end &= !waits;
            return Ok(());
        };
        self.put(Content::Snapshot(snapshot)).await.map(drop)
    }

    fn due_snapshot(&self) -> Result<Option<SnapshotFile>> {
        let first = self.run.links.first().map_or(self.run.next, |&(_, first)| first);
        let found = snapshots_on(&*self.media)?.into_iter().next();
        // That of another log belongs to another `meta`: the filter is being altered.
        let is_shipped = |file: &SnapshotFile| {
            file.log == self.origin.log && file.start >= first && file.end <= self.run.next
        };
        let Some(file) = found.filter(is_shipped) else { return Ok(None) };
        if self.run.base.is_none() && self.run.next < self.floor {
            return Ok(None);
        }
        let is_due = self.run.base.as_ref().is_none_or(|(_, base)| {
            let (log, length) = (
                self.run.next - base.start(),
                match base {
                    Base::Creation(_) => 0,
                    Base::Snapshot(snapshot) => snapshot.bytes,
                },
            );
            let least = self.options.snapshot_log_bytes.max(length);
            file.start > base.start() && log * RECORD_BYTES > least
        });
        Ok(Some(file).filter(|_| is_due))
    }

    async fn put_hints(&mut self) -> Result<()> {
        while let Some(&number) = self.hints.last() {
            let text = Bytes::from_static(b"a fetch can begin at the link of this number\n");
            self.store.put_new(Folder::Base, &link_name(number), text).await?;
            self.hints.pop();
        }
        Ok(())
    }

    /// Puts a link at the end of the chain. Returns its bytes.
    async fn put(&mut self, content: Content) -> Result<Bytes> {
        // Without it a directory whose log is removed is refused: that is better than to ship
        // nothing now.
        let _ = ship_file::raise(&*self.media, self.tip.number + 1);
        let link = Link {
            number: self.tip.number + 1,
            before: self.tip.digest,
            timeline: self.timeline,
            shipper: self.id,
            written: now_micros(),
            filter: self.origin.uuid,
            content,
        };
        let bytes = Bytes::from(link.encode());
        self.pending = Some((link, bytes.clone()));
        self.finish_pending().await?;
        Ok(bytes)
    }

    /// Puts the link that may have been put, until it is known to be there.
    async fn finish_pending(&mut self) -> Result<()> {
        let Some((link, bytes)) = &self.pending else { return Ok(()) };
        let (number, name) = (link.number, link_name(link.number));
        if self.store.put_new(Folder::Chain, &name, bytes.clone()).await? == Put::Exists {
            match self.store.get(Folder::Chain, &name).await? {
                // Its own: only the answer was lost.
                Some(found) if found == *bytes => {}
                Some(found) => return Err(self.fenced(number, &found)),
                None => {
                    return Err(Error::Store {
                        object: self.store.name(Folder::Chain, &name),
                        action: "read",
                        found: "the store says that it exists, and that it does not".into(),
                        remedy: "it is tried again",
                        is_transient: true,
                    });
                }
            }
        }
        let Some((link, bytes)) = self.pending.take() else { return Ok(()) };
        self.tip = Tip { number, digest: digest(&bytes) };
        self.looked = Instant::now();
        self.note(link);
        Ok(())
    }

    fn fenced(&self, number: u64, found: &[u8]) -> Error {
        let object = self.store.name(Folder::Chain, &link_name(number));
        match Link::decode(&object, found) {
            Ok(link) => {
                let (timeline, own) = (link.timeline, self.timeline);
                let is_here = ship_file::has(&*self.media, link.shipper).unwrap_or(false);
                Error::Fenced { object, timeline, own, is_here }
            }
            Err(error) => error,
        }
    }

    /// Notes what a link says that is in the chain.
    fn note(&mut self, link: Link) {
        let base = Base::of(&link);
        self.total.links += 1;
        self.retention.note(link.number, matches!(link.content, Content::Begin(_)));
        match link.content {
            Content::Begin(begin) if !begin.continues => {
                self.floor = self.floor.max(self.confirmed);
                self.run = Run::new(link.number, begin.log, begin.first);
            }
            Content::Begin(_) => {}
            Content::Log(piece, _) => {
                self.total.log_bytes += piece.records.len() as u64;
                self.put_records = Instant::now();
                self.run.links.push((link.number, piece.first));
                self.run.next = piece.end();
            }
            Content::Snapshot(ref snapshot) => {
                self.total.snapshot_bytes += snapshot.bytes;
                self.run.links.retain(|&(number, _)| number >= snapshot.from_link);
            }
        }
        if let Some(base) = base {
            self.run.base = Some((link.number, base));
            self.hints.push(link.number);
            self.retention.begin();
        }
        if self.run.base.is_some() {
            self.confirmed = self.run.next;
        }
    }
}

#[cfg(test)]
mod tests;
