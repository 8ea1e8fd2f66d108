//! Creating and opening.
//!
//! While others have the filter open, an opener joins them: it attaches to their image. The first
//! opener recovers: it rebuilds the image from snapshot and log, makes the recovery base durable,
//! and begins a new timeline. The last handle that closes writes a snapshot. All of this happens
//! under the opening byte. Whenever a creator or an opener dies, the next opener finds either the
//! old filter or the new one.

use crate::engine::Engine;
use crate::engine::background::Wakeup;
use crate::engine::checkpoint::Snapshots;
use crate::engine::close::Closing;
use crate::engine::group_commit::GroupCommit;
use crate::engine::time::{TimeBase, continue_time};
use crate::error::{Error, Result};
use crate::format::header::{self, PAGE_BYTES};
use crate::format::names::FileName;
use crate::image::{Bank, BankForm, Control, Image};
use crate::locks::robust_word::{self, Owner};
use crate::locks::session::{SLOTS, Sessions};
use crate::locks::stripes::Stripes;
use crate::media::{Access, Media, MediaFile};
use crate::meta::Meta;
use crate::options::Options;
use crate::platform::fork::Guard;
use crate::recovery::history::History;
use crate::recovery::removal::{self, remove_for_good};
use crate::recovery::{Listing, LogExtent, Recovered, rebuild, replay, trim};
use crate::sync::{AtomicU64, Ordering};
use crate::wal::log::next_end;
use crate::wal::record::RECORD_BYTES;
use crate::wal::segment::SegmentHeader;
use crate::wal::{Log, Segment};
use ebbtide_core::block::Layout;
use ebbtide_core::hash::KeyHasher;
use ebbtide_core::kind::{Kind, Micros};
use std::sync::Arc;
use std::time::Duration;

/// The temporary names of the image and of other files, while a filter is created or opened.
const LIVE_TEMPORARY: u64 = 0;
const META_TEMPORARY: u64 = 1;
const SEGMENT_TEMPORARY: u64 = 2;
/// The lowest of the temporary names for files that an opener removes.
const LEFTOVER_TEMPORARY: u64 = 16;
/// The high half of a handle's temporary numbers is its slot plus one; in those above it is 0.
const SLOT_TEMPORARIES: u32 = 32;

/// An opener writes a snapshot if more timelines than this have log since the newest one.
const TIMELINES_MOST: u64 = 16;
/// Segments of log beyond what makes a checkpoint due, at which an opener writes one.
const SEGMENTS_BESIDE: u64 = 3;

/// The time to wait for handles that open, recover or close the filter, since their last progress.
const OPENING_TIME: Duration = Duration::from_secs(60);
/// The same time when closing: the next opener can complete what is left undone.
const CLOSING_TIME: Duration = Duration::from_secs(10);

/// Returns the layout that all banks of a filter will share.
pub(crate) fn layout(kind: &dyn Kind, options: &Options) -> Layout {
    let block_words = (options.block_bytes / 8) as u32;
    let stripes = options.stripes.unwrap_or_else(|| kind.default_stripes(block_words));
    Layout { stripes, block_words }
}

/// Returns the bytes of memory that the first bank of a filter takes.
pub(crate) fn first_bank_bytes(kind: &dyn Kind, layout: Layout) -> Result<u64> {
    Bank::bytes(layout, kind.geometry(layout), BankForm::of(kind))
}

fn random() -> Result<u128> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::io("get random bytes for", "a new filter")(error.into()))?;
    Ok(u128::from_le_bytes(bytes))
}

impl Engine {
    /// Creates a filter where there is none.
    pub(crate) fn create(
        media: Arc<dyn Media>,
        kind: Arc<dyn Kind>,
        options: Options,
    ) -> Result<Self> {
        options.check()?;
        let layout = layout(&*kind, &options);
        let memory = first_bank_bytes(&*kind, layout)?;
        let function = options.key_hash.unwrap_or_default();
        let hasher = match options.hash_seed {
            Some(seed) => KeyHasher::from_seed(function, seed),
            None => KeyHasher::new(function, random()?),
        };
        let meta = Meta {
            uuid: random()?,
            hasher,
            layout,
            segment_records: options.segment_records(memory),
            durability: options.durability,
            downtime: options.downtime,
            max_lead: options.max_lead,
            kind,
        };
        write_new(&*media, |slots| {
            begin_log(&*media, &meta)?;
            let engine = Self::recover(media.clone(), meta, options, slots)?;
            engine.check_place()?;
            write_meta(&engine)?;
            engine.slots.end_opening()?;
            Ok(engine)
        })
    }

    /// Opens an existing filter.
    pub(crate) fn open(media: Arc<dyn Media>, options: Options) -> Result<Self> {
        // Before anything is written: a directory without a filter must not get a lock file.
        read_meta(&*media)?;
        let slots = Arc::new(enter(&*media)?);
        let meta = read_meta(&*media)?;
        let engine = if slots.anyone_else()? {
            Self::attach(media, meta, options, slots)?
        } else {
            Self::recover(media, meta, options, slots)?
        };
        engine.slots.end_opening()?;
        Ok(engine)
    }

    /// Joins the handles that have the filter open. If they all die meanwhile, their image lives
    /// on.
    fn attach(
        media: Arc<dyn Media>,
        meta: Meta,
        options: Options,
        slots: Arc<Sessions>,
    ) -> Result<Self> {
        let header = Control::attach(&*media, meta.uuid, Access::Write)?;
        let image = Image::attach(media.clone(), header, meta.layout, &*meta.kind, Access::Write)?;
        image.header().check(media.path())?;
        let engine = Self::assemble(media, meta, options, slots, image)?;
        engine.check_writable()?;
        engine.check_locks()?;
        engine.map_log()?;
        Ok(engine)
    }

    /// Checks that this handle, which is new, holds no stripe: the wait for it would never end.
    fn check_locks(&self) -> Result<()> {
        let (header, ours) = (self.image.header(), self.stripes.owner());
        let holder =
            |at| robust_word::holder(header.stripe(at).lock_word().load(Ordering::Relaxed));
        let mut holders = (0..header.stripe_count()).filter_map(holder);
        match holders.find(|of| of.slot == ours.slot && of.term >= ours.term) {
            Some(found) => {
                let (expected, found) = (format!("no stripe of {ours:?}"), format!("{found:?}"));
                Err(header.damaged(self.media.path(), expected, found))
            }
            None => Ok(()),
        }
    }

    /// Rebuilds the state and begins a new timeline on it. The caller has the filter alone.
    fn recover(
        media: Arc<dyn Media>,
        meta: Meta,
        options: Options,
        slots: Arc<Sessions>,
    ) -> Result<Self> {
        if let Some(left) = Control::open_previous(&*media, meta.uuid, Access::Write)? {
            // No process that writes to it should be left; otherwise it notices.
            left.retire();
        }
        remove_temporaries(&*media)?;
        let temporary = FileName::Temporary(LIVE_TEMPORARY).to_string();
        let known = LogExtent::of_the_dead(&*media, meta.uuid)?;
        let begin = || {
            let advance = || slots.note_progress();
            let recovered = replay(&*media, &media, &meta, &temporary, known, &advance)?;
            begin_timeline(&*media, &slots, &meta, &options, &recovered, &temporary)?;
            Ok(recovered)
        };
        // The first error is the one to report. Half an image would only take space.
        let clear = |_: &Error| drop(remove_temporaries(&*media));
        let (recovered, full) = match begin().inspect_err(clear) {
            Err(error) if error.is_full() => {
                let begin = || begin().inspect_err(clear);
                (begin_in_space_of_log(&*media, &meta, (known, &slots), error, begin)?, true)
            }
            begun => (begun?, false),
        };
        // No later reader needs them; the next opening tries again.
        let _ = remove_for_good(&*media, recovered.leftovers(&*media)?, LEFTOVER_TEMPORARY..);
        trim::free_ends(&*media, &recovered.history, recovered.prefix.stop);
        // If it cannot be measured, a later opener does so.
        let gathered = recovered.gathered(&*media).unwrap_or_default();
        let engine = Self::assemble(media, meta, options, slots, recovered.image)?;
        // If that was a snapshot, it has just been read.
        engine.snapshots.proven.lock().push(recovered.start);
        engine.map_log()?;
        if full || engine.is_crowded(gathered) {
            // Before log takes the freed space. If even that is too little, writers get the error.
            let _ = engine.checkpoint_anew();
        }
        Ok(engine)
    }

    /// Returns whether the log since the newest snapshot has so many timelines, or takes so many
    /// bytes, that an opener should write a checkpoint: earlier handles died before they did.
    fn is_crowded(&self, (timelines, bytes): (u64, u64)) -> bool {
        let segment = first_segment(&self.meta, &self.image).bytes();
        let most = self.options.checkpoint_due(self.image.memory_bytes());
        timelines > TIMELINES_MOST
            || bytes > most.saturating_add(segment.saturating_mul(SEGMENTS_BESIDE))
    }

    /// Creates a handle on an image, in a session slot of its own.
    fn assemble(
        media: Arc<dyn Media>,
        meta: Meta,
        options: Options,
        slots: Arc<Sessions>,
        image: Image,
    ) -> Result<Self> {
        let header = image.header();
        let Some(slot) = slots.take()? else {
            return Err(Error::Crowded { path: media.path().to_path_buf(), most: SLOTS });
        };
        // Release: pairs with the Acquire of `judge`: its readers treat older incarnations as dead.
        let term = header.slot_term(slot.into()).fetch_add(1, Ordering::AcqRel).saturating_add(1);
        if term >= Owner::TERMS {
            let (expected, found) = (format!("a term below {}", Owner::TERMS), term.to_string());
            return Err(header.damaged(media.path(), expected, found));
        }
        remove_temporaries_of(&*media, slot)?;
        let time_base = TimeBase::new(header, &meta, &options.clock, Access::Write);
        let first = first_segment(&meta, &image);
        let temporary = (u64::from(slot) + 1) << SLOT_TEMPORARIES;
        let engine = Self {
            time_base,
            stripes: Stripes::new(header.stripe_count(), Owner { slot, term }),
            log: Log::new(media.clone(), first, temporary, Access::Write),
            committer: GroupCommit::default(),
            snapshots: Snapshots::default(),
            bell: Wakeup::new(meta.durability),
            given_up: AtomicU64::new(0),
            uses_time: meta.kind.uses_time(),
            counts_inserts: meta.kind.counts_inserts(),
            grace: meta.kind.events().map_or(Micros::MAX, |events| events.grace()),
            access: Access::Write,
            guard: Guard::new(),
            closing: Closing::default(),
            media,
            meta,
            options,
            image,
            slots,
        };
        engine.tend_time();
        Ok(engine)
    }

    /// Makes all records durable. The last handle also writes a snapshot and retires the image.
    pub(crate) fn close(&self) -> Result<()> {
        self.commit_all()?;
        // The caller releases it together with the session slot.
        let entered = self.slots.wait_opening(Access::Write, CLOSING_TIME)?;
        if entered && !self.slots.anyone_else()? {
            self.tend_time();
            self.checkpoint()?;
            self.image.header().retire();
            self.free_rest_of_log();
        }
        Ok(())
    }

    /// Frees the log's unwritten space: the image is retired, and this handle is the last.
    fn free_rest_of_log(&self) {
        let tail = self.image.header().tail().load(Ordering::Acquire);
        let (timeline, uuid) = (self.image.header().identity().timeline, self.meta.uuid);
        // Errors are ignored, because only space is at stake.
        let Ok(mut listing) = Listing::read(&*self.media) else { return };
        listing.segments.retain(|&(of, _)| of == timeline);
        if let Ok(history) = History::open(&*self.media, &listing, uuid) {
            trim::free_ends(&*self.media, &history, tail);
        }
    }
}

/// Begins a timeline although there was no space (the error `full`). Frees, in turn, log that no
/// timeline needs, the fallback base, and at last all log, once the state is written as a snapshot.
fn begin_in_space_of_log(
    media: &dyn Media,
    meta: &Meta,
    (known, slots): (LogExtent, &Sessions),
    full: Error,
    begin: impl Fn() -> Result<Recovered>,
) -> Result<Recovered> {
    let proven = rebuild(media, meta, known, &|| slots.note_progress())?;
    trim::free_ends(media, &proven.history, u64::MAX);
    // Errors are ignored, because only space is at stake.
    let _ = trim::free_unwritten(media, &proven.history, proven.prefix.stop);
    proven.give_up_second_ground(media, LEFTOVER_TEMPORARY..)?;
    match begin() {
        Err(error) if error.is_full() => {}
        begun => return begun,
    }
    let proven = rebuild(media, meta, known, &|| slots.note_progress())?;
    // Nothing is removed that only looks damaged, or that an older snapshot would need instead.
    if !proven.unsound.is_empty() {
        return Err(full);
    }
    match trim::write_snapshot(media, meta, &proven, LEFTOVER_TEMPORARY) {
        Err(error) if error.is_full() => return Err(full),
        written => written?,
    }
    drop(proven);
    begin()
}

/// Returns the header of the first segment of an image's timeline.
pub(crate) fn first_segment(meta: &Meta, image: &Image) -> SegmentHeader {
    let header = image.header();
    let start = header.timeline_start().load(Ordering::Relaxed);
    // A private image of a reader has no log.
    let capacity = match header.segment_records().load(Ordering::Relaxed) {
        0 => meta.segment_records,
        records => records,
    };
    SegmentHeader {
        uuid: meta.uuid,
        timeline: header.identity().timeline,
        timeline_start: start,
        first: start,
        capacity,
    }
}

/// Returns the slots of a new timeline's segments: as chosen at creation, or the present default
/// for a filter that has outgrown that.
fn segment_records(meta: &Meta, image: &Image) -> u64 {
    let first = first_bank_bytes(&*meta.kind, meta.layout).unwrap_or_default();
    let chosen = meta.segment_records;
    if !Options::is_default_segment(chosen, first) {
        return chosen;
    }
    let banks = image.memory_bytes().saturating_sub(image.header().bytes());
    chosen.max(Options::default_segment_bytes(banks) / RECORD_BYTES)
}

/// Calls `make` to write a filter where there is none, `meta` last; it receives the locks, to hold
/// or to keep. If it fails, nothing is left behind.
pub(crate) fn write_new<T>(
    media: &dyn Media,
    make: impl FnOnce(Arc<Sessions>) -> Result<T>,
) -> Result<T> {
    media.make().map_err(Error::io("make", media.path()))?;
    // Before the locks: a filter that is open there is reported as existing, not as locked.
    check_vacant(media)?;
    check_ours(media)?;
    let slots = Arc::new(enter(media)?);
    check_vacant(media)?;
    // The files of a filter were removed, except `lock`, while processes still have it open.
    if slots.anyone_else()? {
        return Err(Error::Locked { path: media.path().to_path_buf() });
    }
    // Leftovers of an earlier attempt: without `meta` they belong to no filter.
    clear(media)?;
    make(slots.clone()).inspect_err(|_| {
        // The first error is the one to report. No other creator can have begun: the byte is held.
        let _ = clear(media);
    })
}

/// Reads `meta`; if it is missing, distinguishes a filter without it from no filter.
pub(crate) fn read_meta(media: &dyn Media) -> Result<Meta> {
    match Meta::read(media) {
        Err(nothing @ Error::NotAFilter { .. }) => match check_vacant(media) {
            Err(lost @ Error::Damaged { .. }) => Err(lost),
            _ => Err(nothing),
        },
        other => other,
    }
}

/// Checks that there is no filter here: neither a whole one nor one whose `meta` was lost.
fn check_vacant(media: &dyn Media) -> Result<()> {
    let path = media.path().join(FileName::Meta.to_string());
    check_no_meta(media)?;
    let listing = Listing::read(media)?;
    let mut ours = listing.snapshots.len();
    for &(timeline, first) in &listing.segments {
        // A creator that died leaves only the empty segments of the first two timelines.
        if timeline > 2 || first > 1 || has_records(media, &FileName::Segment { timeline, first })?
        {
            ours += 1;
        }
    }
    if ours == 0 {
        return Ok(());
    }
    // The listed files may be those of a filter created meanwhile.
    check_no_meta(media)?;
    Err(Error::Damaged {
        path,
        offset: 0,
        expected: "the file `meta`".to_owned(),
        found: format!("none, but {ours} snapshots and log segments of a filter"),
        remedy: "without it nothing can be saved: copy `meta` from any backup of this filter, however old, for it never \
                 changes; or create the new filter in another directory",
    })
}

/// Checks that no foreign file has a name of a filter's file: those are removed to make room for a
/// filter. The leftovers of a creator that died lie beside an empty file `lock`, which it creates
/// first; the content of the other files is unknown after a power cut.
fn check_ours(media: &dyn Media) -> Result<()> {
    // Before checking for the file `lock`: if it is missing, these files existed without it.
    let names = media.list().map_err(Error::io("list", media.path()))?;
    let is_empty = |file: Box<dyn MediaFile>| file.bytes().map(|bytes| bytes == 0);
    let lock = FileName::Lock.to_string();
    if media.open(&lock, Access::Read).and_then(is_empty).unwrap_or(false) {
        return Ok(());
    }
    for name in names.iter().filter(|name| FileName::parse(name).is_some()) {
        let mut start = [0; header::MAGIC_BYTES];
        let read = media.open(name, Access::Read).and_then(|file| {
            let length = file.bytes()?.min(start.len() as u64) as usize;
            file.read_at(&mut start[..length], 0)
        });
        let path = || media.path().join(name);
        match read {
            Ok(()) if header::is_magic(&start) => {}
            // Not a regular file.
            Err(error) if error.kind() != std::io::ErrorKind::InvalidInput => {
                return Err(Error::io("read", path())(error));
            }
            _ => return Err(Error::Occupied { path: path() }),
        }
    }
    Ok(())
}

fn check_no_meta(media: &dyn Media) -> Result<()> {
    let name = FileName::Meta.to_string();
    match media.open(&name, Access::Read) {
        Ok(_) => Err(Error::Exists { path: media.path().to_path_buf() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("open", media.path().join(name))(error)),
    }
}

/// Returns whether anything was ever written to the slot of a segment's first record.
fn has_records(media: &dyn Media, name: &FileName) -> Result<bool> {
    let name = name.to_string();
    let mut first = [0; RECORD_BYTES as usize];
    let read =
        media.open(&name, Access::Read).and_then(|file| file.read_at(&mut first, PAGE_BYTES));
    match read {
        Ok(()) => Ok(first.iter().any(|&byte| byte != 0)),
        // A creator's segments are whole, so this is the rest of another filter's.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(true),
        // The process that is creating the filter just removed it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("read", media.path().join(name))(error)),
    }
}

/// Opens the lock file and takes the opening byte: no other handle opens, recovers or closes the
/// filter until the opening is ended, or the locks dropped.
pub(crate) fn enter(media: &dyn Media) -> Result<Sessions> {
    loop {
        let slots = Sessions::open(media, Access::Write).map_err(|error| removed(media, error))?;
        if !slots.wait_opening(Access::Write, OPENING_TIME)? {
            return Err(Error::Locked { path: media.path().to_path_buf() });
        }
        // Otherwise the file was removed meanwhile, and other processes may use a new one by now.
        if slots.is_current() {
            return Ok(slots);
        }
    }
}

/// Converts the error if an existing directory was removed, so that it can take no file any more.
fn removed(media: &dyn Media, error: Error) -> Error {
    if !error.is_not_found() {
        return error;
    }
    Error::Retired { path: media.path().to_path_buf(), replaced: true }
}

/// Creates the first timeline, which recovery will end at once: a filter always has a log.
fn begin_log(media: &dyn Media, meta: &Meta) -> Result<()> {
    let header =
        SegmentHeader { uuid: meta.uuid, timeline: 1, timeline_start: 1, first: 1, capacity: 1 };
    Segment::create(media, header, SEGMENT_TEMPORARY).map(|_| ())
}

/// Begins the next timeline on the recovered state: makes the recovery base durable including its
/// names, creates the timeline's first segment where the log stopped, and gives the image its name.
fn begin_timeline(
    media: &dyn Media,
    slots: &Sessions,
    meta: &Meta,
    options: &Options,
    recovered: &Recovered,
    temporary: &str,
) -> Result<()> {
    recovered.history.secure(media, recovered.start, &recovered.prefix)?;
    // The names too: the process that created them may have died before the directory was synced.
    // Otherwise a new timeline could outlive `meta`.
    media.sync().map_err(Error::io("sync", media.path()))?;
    let header = recovered.image.header();
    // Relaxed, all of them: no other process has the image.
    let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
    set(header.timeline_start(), recovered.prefix.stop);
    set(header.segment_records(), segment_records(meta, &recovered.image));
    let first = first_segment(meta, &recovered.image);
    let upto = next_end(&first, first.first, first.first);
    let places = upto - first.first;
    drop(Segment::create_if(media, first, places, SEGMENT_TEMPORARY, &|| true)?);
    set(header.allocated(), upto);
    let sound = recovered.listing.snapshots.iter().filter(|&&start| start <= recovered.start);
    set(header.snapshot(), sound.copied().max().unwrap_or(0));
    for (word, (start, _)) in header.unsound().iter().zip(&recovered.unsound) {
        set(word, *start);
    }
    continue_time(media, meta, &options.clock, header)?;
    // Recovery may have taken long: never replace the image of a filter that is here by now.
    if !slots.is_current() {
        return Err(Error::Retired { path: media.path().to_path_buf(), replaced: true });
    }
    let live = FileName::Live.to_string();
    let named = media.rename(temporary, &live).and_then(|()| media.sync());
    named.map_err(Error::io("name", media.path().join(&live)))
}

/// Writes `meta`, which makes the directory a filter.
fn write_meta(engine: &Engine) -> Result<()> {
    write_file(&*engine.media, META_TEMPORARY, &FileName::Meta.to_string(), &engine.meta.encode())
}

/// Writes a small file atomically: it exists in full or not at all.
pub(crate) fn write_file(
    media: &dyn Media,
    temporary: u64,
    name: &str,
    bytes: &[u8],
) -> Result<()> {
    let temporary = FileName::Temporary(temporary).to_string();
    let write = || {
        let file = media.create(&temporary, 0)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        media.rename(&temporary, name)?;
        media.sync()
    };
    write().map_err(Error::io("write", media.path().join(name)))
}

/// Removes temporary files, and the banks of an earlier image: they are never read again, and the
/// new image needs their space. (The file `live` stays: it accounts for gaps in the log.)
fn remove_temporaries(media: &dyn Media) -> Result<()> {
    let listing = Listing::read(media)?;
    // A file that cannot be removed only takes space: a caller that needs its name gets the error.
    let _ = removal::remove_temporaries(media, &listing.temporaries);
    for (timeline, bank) in listing.banks {
        // Likewise: the new image has other names.
        let _ = media.remove(&FileName::Bank { timeline, bank }.to_string());
    }
    Ok(())
}

/// Removes the temporary files of the handle that had a slot before.
fn remove_temporaries_of(media: &dyn Media, slot: u16) -> Result<()> {
    let mut temporaries = Listing::read(media)?.temporaries;
    temporaries.retain(|number| number >> SLOT_TEMPORARIES == u64::from(slot) + 1);
    // A file that cannot be removed takes space; its number is skipped.
    let _ = removal::remove_temporaries(media, &temporaries);
    Ok(())
}

/// Removes every file of the filter except the lock.
pub(crate) fn clear(media: &dyn Media) -> Result<()> {
    let names = media.list().map_err(Error::io("list", media.path()))?;
    let ours = names.iter().filter_map(|name| FileName::parse(name));
    let ours: Vec<_> = ours.filter(|&file| file != FileName::Lock).collect();
    if ours.is_empty() {
        return Ok(());
    }
    // `meta` first, and durably: without it the rest is no filter, wherever this is interrupted.
    // Synced even if it is missing: the process that removed it may have died before the sync.
    remove_for_good(media, [FileName::Meta], LEFTOVER_TEMPORARY..)?;
    media.sync().map_err(Error::io("sync", media.path()))?;
    let rest = |file: &FileName| !matches!(file, FileName::Meta | FileName::Temporary(_));
    remove_for_good(media, ours.into_iter().filter(rest), LEFTOVER_TEMPORARY..)?;
    removal::remove_temporaries(media, &Listing::read(media)?.temporaries)
}
