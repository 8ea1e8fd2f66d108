//! Creating and opening.
//!
//! While others have the filter open, an opener joins them: it attaches to their image. The first
//! opener recovers: it rebuilds the image from snapshot and log, makes the recovery base durable,
//! and begins a new timeline. The last handle that closes writes a snapshot. All of this happens
//! under the opening byte. Whenever a creator or an opener dies, the next opener finds either the
//! old filter or the new one.

use crate::archive::keep_setting;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::checkpoints::due;
use crate::engine::lifecycle::vacant_directory::{check_ours, check_vacant};
use crate::engine::lifecycle::{full_disk_at_open, options_match};
use crate::engine::log::space::next_end;
use crate::engine::shared::Shared;
use crate::engine::temporary_files::{
    LEFTOVER_TEMPORARY, LIVE_TEMPORARY, SEGMENT_TEMPORARY, SLOT_TEMPORARIES, clear,
    put_former_away, remove_temporaries, remove_temporaries_of, write_file,
};
use crate::engine::time::lease_time::LeaseBase;
use crate::engine::time::time_over_reboots::{TimeBase, continue_time};
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::previous_image;
use crate::image::{Bank, BankForm, Control, Image};
use crate::locks::holder_names::locked;
use crate::locks::image_in_use::is_in_use;
use crate::locks::session_slots::{SLOTS, Sessions};
use crate::locks::stripe_lock::{self, Owner};
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::options::Options;
#[cfg(not(shuttle))]
use crate::platform::system;
use crate::primitives::{self, Instant, patience};
use crate::recovery::make_durable::{self, make_durable};
use crate::recovery::removal::remove_for_good;
use crate::recovery::{KnownExtent, Recovered, free_log, rebuild};
use crate::telemetry::{Timed, Work};
use crate::wal::log_record::RECORD_BYTES;
use crate::wal::segment::SegmentHeader;
use crate::wal::{Log, Segment};
use ebbtide_core::block::Layout;
use ebbtide_core::hash::KeyHasher;
use ebbtide_core::identity::{self, Identity};
use ebbtide_core::kind::Kind;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The temporary name of `meta` while a filter is created.
const META_TEMPORARY: u64 = 1;

/// The time to wait for handles that open, recover or close the filter, since their last progress.
const OPENING_TIME: Duration = Duration::from_secs(60);

/// How long an opener tries again while an ending handle has released the image, but not its
/// session yet.
pub(crate) const ENDING_TIME: Duration = patience(Duration::from_secs(5));

/// The pause between two of these attempts.
pub(crate) const ENDING_PAUSE: Duration = patience(Duration::from_millis(1));

/// Returns the layout that all banks of a filter will share.
pub(crate) fn layout(kind: &dyn Kind, options: &Options) -> Layout {
    identity::layout(kind, options.stripes, options.block_bytes)
}

/// Returns the bytes of memory that the first bank of a filter takes.
pub(crate) fn first_bank_bytes(kind: &dyn Kind, layout: Layout) -> Result<u64> {
    Bank::bytes(layout, kind.geometry(layout), BankForm::of(kind))
}

#[cfg(shuttle)]
pub(crate) fn random() -> Result<u128> {
    Ok(crate::primitives::scheduled::random())
}

#[cfg(not(shuttle))]
pub(crate) fn random() -> Result<u128> {
    let mut bytes = [0; 16];
    system::random(&mut bytes).map_err(Error::io("get random bytes for", "a new filter"))?;
    Ok(u128::from_le_bytes(bytes))
}

/// Creates a filter where there is none.
pub(crate) fn create(
    media: Arc<dyn Media>,
    kind: Arc<dyn Kind>,
    options: Options,
) -> Result<Engine> {
    create_with(media, kind, options, None)
}

/// As [`create`], with a hash of keys that another filter has.
pub(crate) fn create_with(
    media: Arc<dyn Media>,
    kind: Arc<dyn Kind>,
    options: Options,
    hasher: Option<KeyHasher>,
) -> Result<Engine> {
    options.check()?;
    let path = media.path().to_path_buf();
    let mut work = Timed::begin(Work::Open, &path);
    work.note("created", 1);
    let layout = layout(&*kind, &options);
    identity::check_max_memory(&*kind, layout)?;
    let memory = first_bank_bytes(&*kind, layout)?;
    let function = options.key_hash.unwrap_or_default();
    let hasher = match (hasher, options.hash_seed) {
        (Some(hasher), _) => hasher,
        (None, Some(seed)) => KeyHasher::from_seed(function, seed),
        (None, None) => KeyHasher::new(function, random()?),
    };
    let max_lead = options.max_lead_or_default();
    let uuid = random()?;
    let meta = Meta {
        identity: Identity { uuid, hasher, layout, max_lead, kind },
        log_uuid: uuid,
        segment_records: options.segment_records(memory),
        durability: options.durability_or_default(),
        downtime: options.downtime.unwrap_or_default(),
    };
    work.result(write_new(&*media, |slots| {
        // Blocks that grow, and their snapshots, take only the space of their content.
        if meta.kind.growth().is_none() {
            check_space(&*media, memory)?;
        }
        begin_log(&*media, &meta)?;
        let engine = recover(media.clone(), meta, options, slots)?;
        engine.shared.check_directory()?;
        write_keep(&engine)?;
        write_meta(&engine)?;
        engine.shared.slots.end_opening()?;
        Ok(engine)
    }))
}

/// Checks that a snapshot of a new or altered filter's memory could be written: a filter that can
/// never be saved is refused at once.
pub(crate) fn check_space(media: &dyn Media, bytes: u64) -> Result<()> {
    let live = media.path().join(FileName::Live.to_string());
    match media.has_space(bytes) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let sentence = format!("expected {bytes} bytes of free space for what is stored of it");
            let full = io::Error::new(io::ErrorKind::StorageFull, sentence);
            Err(Error::io("allocate", live)(full))
        }
        Err(error) => Err(Error::io("measure the space for", live)(error)),
    }
}

/// Opens an existing filter, if `check` accepts it: one that is refused stays as it is, with all
/// the log that it keeps.
///
/// # Errors
/// Those of `check`, and as `Filter::open`.
pub(crate) fn open(
    media: Arc<dyn Media>,
    options: Options,
    check: &dyn Fn(&Meta) -> Result<()>,
) -> Result<Engine> {
    // Before anything is written: a directory without a filter must not get a lock file.
    options.check()?;
    let matches = |meta: &Meta| {
        options_match::check(&*media, meta, &options)?;
        check(meta)
    };
    matches(&read_meta(&*media)?)?;
    let path = media.path().to_path_buf();
    let mut work = Timed::begin(Work::Open, &path);
    let open = || {
        let slots = Arc::new(enter(&*media)?);
        let meta = read_meta(&*media)?;
        // Another one may have been created, or this one altered.
        matches(&meta)?;
        let begun = Instant::now();
        let engine = loop {
            if !is_in_use(&*media, meta.uuid, &slots)? {
                break recover(media.clone(), meta, options.clone(), slots)?;
            }
            match attach(media.clone(), meta.clone(), options.clone(), slots.clone()) {
                // The last process that had the image has closed it, or is dying: the system closes
                // the file of its banks before the lock file, which ends its session.
                Err(error) if error.is_not_found() && begun.elapsed() < ENDING_TIME => {
                    primitives::sleep(ENDING_PAUSE);
                }
                attached => break attached?,
            }
        };
        write_keep(&engine)?;
        engine.shared.slots.end_opening()?;
        Ok(engine)
    };
    work.result(open())
}

/// Opens a filter that was altered again, for a handle that requires a kind, or any.
///
/// # Errors
/// [`Error::Mismatch`] if it is of another kind now, and as [`open`].
pub(crate) fn open_again(before: &Shared, wanted: Option<&'static str>) -> Result<Engine> {
    let path = before.path();
    open(before.media.clone(), before.options.for_reopening(), &|found| {
        let found = found.kind.name();
        match wanted {
            Some(wanted) if wanted != found => {
                Err(options_match::mismatch(path, "kind, since it was altered,", wanted, found))
            }
            _ => Ok(()),
        }
    })
}

/// Joins the handles that have the filter open. If they all die meanwhile, their image lives
/// on.
fn attach(
    media: Arc<dyn Media>,
    meta: Meta,
    options: Options,
    slots: Arc<Sessions>,
) -> Result<Engine> {
    let header = Control::attach(&*media, meta.uuid, Access::Write)?;
    let image = Image::attach(media.clone(), header, meta.layout, &*meta.kind, Access::Write)?;
    image.header().check(media.path())?;
    let engine = assemble(media, meta, options, slots, image)?;
    engine.shared.check_image()?;
    engine.shared.check_writable()?;
    check_locks(&engine)?;
    engine.log_space.map_log()?;
    Ok(engine)
}

/// Checks that this handle, which is new, holds no stripe: the wait for it would never end.
fn check_locks(engine: &Engine) -> Result<()> {
    let (header, ours) = (engine.header(), engine.shared.stripes.owner());
    let holder = |at| stripe_lock::holder_now(header.stripe(at).lock_word());
    let mut holders = (0..header.stripe_count()).filter_map(holder);
    match holders.find(|of| of.slot == ours.slot && of.incarnation >= ours.incarnation) {
        Some(found) => {
            let (expected, found) = (format!("no stripe of {ours:?}"), format!("{found:?}"));
            Err(header.damaged(engine.path(), expected, found))
        }
        None => Ok(()),
    }
}

/// Rebuilds the state and begins a new timeline on it. The caller has exclusive access.
pub(crate) fn recover(
    media: Arc<dyn Media>,
    meta: Meta,
    options: Options,
    slots: Arc<Sessions>,
) -> Result<Engine> {
    if let Some(left) = previous_image::open(&*media, meta.uuid, Access::Write)? {
        // No process that writes to it should be left; otherwise it notices.
        left.retire();
    }
    remove_temporaries(&*media)?;
    let temporary = FileName::Temporary(LIVE_TEMPORARY).to_string();
    let known = KnownExtent::of_the_dead(&*media, meta.uuid)?;
    let path = media.path().to_path_buf();
    let work = Timed::begin(Work::Recovery, &path);
    let begin = || {
        let advance = || slots.note_progress();
        let recovered = rebuild(&*media, &media, &meta, &temporary, (known, true), &advance)?;
        begin_timeline(&*media, &slots, &meta, &options, (&recovered, known), &temporary)?;
        Ok(recovered)
    };
    // The first error is the one to report. Half an image would only take space.
    let clear = |_: &Error| drop(remove_temporaries(&*media));
    let (recovered, full) = match begin().inspect_err(clear) {
        Err(error) if error.is_full() => {
            let begin = || begin().inspect_err(clear);
            (
                full_disk_at_open::begin_in_space_of_log(
                    &*media,
                    &meta,
                    (known, &slots),
                    error,
                    begin,
                )?,
                true,
            )
        }
        begun => (begun?, false),
    };
    note_recovery(work, &recovered);
    // If it fails, the next opening tries again.
    let _ = put_former_away(&*media, &meta);
    // No later reader needs them; the next opening tries again.
    let _ = remove_for_good(&*media, recovered.leftovers(&*media)?, LEFTOVER_TEMPORARY..);
    let mut gathered = (0, 0);
    free_log::free_ends(&*media, &recovered.history, recovered.prefix.stop);
    if !recovered.is_all_in_snapshot(known) {
        // If it cannot be measured, a later opener does so.
        let measured =
            free_log::gathered(&*media, &recovered.history, &recovered.prefix, recovered.start);
        gathered = measured.unwrap_or_default();
    }
    let engine = assemble(media, meta, options, slots, recovered.image)?;
    // If that was a snapshot, it has just been read.
    engine.checkpoints.reclaim.note_proven(recovered.start);
    engine.log_space.map_log()?;
    if full || due::is_crowded(&engine.shared, gathered) {
        // Before log takes the freed space. If even that is too little, writers get the error.
        let _ = engine.checkpoints.checkpoint_anew();
    }
    Ok(engine)
}

/// Ends the report of a recovery.
fn note_recovery(work: Timed<'_>, recovered: &Recovered) {
    work.note("start_lsn", recovered.start);
    work.note("stop_lsn", recovered.prefix.stop);
    work.note("records", recovered.prefix.records);
    work.note("damaged_snapshots", recovered.unsound.len() as u64);
    work.end();
}

/// Creates a handle on an image, in a session slot of its own.
fn assemble(
    media: Arc<dyn Media>,
    meta: Meta,
    options: Options,
    slots: Arc<Sessions>,
    image: Image,
) -> Result<Engine> {
    let header = image.header();
    // Before the slot is taken: whoever finds it held finds that it is one of this image.
    let mut incarnation = 0;
    let raise = |slot: u16| incarnation = header.incarnation(slot.into()).raise();
    let Some(slot) = slots.take_registered(raise)? else {
        return Err(Error::Crowded { path: media.path().to_path_buf(), most: SLOTS });
    };
    if incarnation >= Owner::INCARNATIONS {
        let (expected, found) =
            (format!("an incarnation below {}", Owner::INCARNATIONS), incarnation.to_string());
        return Err(header.damaged(media.path(), expected, found));
    }
    remove_temporaries_of(&*media, slot)?;
    image.files().hand_out(image.header(), slot);
    let time_base = TimeBase::new(header, &meta, &options.clock, Access::Write);
    let leases = LeaseBase::new(header, &options.clock, Access::Write);
    let first = first_segment(&meta, &image);
    let temporary = (u64::from(slot) + 1) << SLOT_TEMPORARIES;
    let log = Log::new(media.clone(), first, temporary, Access::Write);
    let (files, owner) = ((media, Access::Write), Owner { slot, incarnation });
    let shared = Shared::new(files, (meta, options), (image, log), (owner, slots));
    let engine = Engine::new(shared, (time_base, leases));
    engine.time.tend();
    Ok(engine)
}

/// Creates a handle that only reads an image: that of live writers, or a private one, perhaps of
/// the past. `lease_clock`: that of the handle, although the filter's time may stand still.
pub(crate) fn for_reading(
    media: Arc<dyn Media>,
    meta: Meta,
    (options, lease_clock): (&Options, &Clock),
    slots: Arc<Sessions>,
    (image, is_past): (Image, bool),
) -> Engine {
    let time_base = TimeBase::new(image.header(), &meta, &options.clock, Access::Read);
    let leases = match is_past {
        true => LeaseBase::of_past(image.header()),
        false => LeaseBase::new(image.header(), lease_clock, Access::Read),
    };
    // This handle locks only a private state, which no other process locks.
    let owner = Owner { slot: 0, incarnation: 1 };
    let log = Log::new(media.clone(), first_segment(&meta, &image), 0, Access::Read);
    let settings = (meta, options.clone());
    Engine::new(
        Shared::new((media, Access::Read), settings, (image, log), (owner, slots)),
        (time_base, leases),
    )
}

/// Returns the header of the first segment of an image's timeline.
pub(crate) fn first_segment(meta: &Meta, image: &Image) -> SegmentHeader {
    let header = image.header();
    let start = header.timeline_start();
    // A private image of a reader has no log.
    let capacity = match header.segment_records() {
        0 => meta.segment_records,
        records => records,
    };
    SegmentHeader {
        uuid: meta.log_uuid,
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
    check_no_filter(media)?;
    check_ours(media)?;
    let slots = Arc::new(enter(media)?);
    check_vacant(media)?;
    // The files of a filter were removed, except `lock`, while processes still have it open.
    if slots.anyone_else()? {
        return Err(locked(media.path()));
    }
    // Leftovers of an earlier attempt: without `meta` they belong to no filter.
    clear(media)?;
    make(slots.clone()).inspect_err(|_| {
        // The first error is the one to report. No other creator can have begun: the byte is held.
        let _ = clear(media);
    })
}

/// As [`check_vacant`], but a copy that is being made, whose `meta` comes last, is not a filter
/// that has lost it.
///
/// # Errors
/// [`Error::Locked`] while a backup, a restore or a salvage writes there, and as [`check_vacant`].
fn check_no_filter(media: &dyn Media) -> Result<()> {
    match check_vacant(media) {
        Err(Error::Damaged { .. }) => {}
        checked => return checked,
    }
    let is_being_made = Sessions::open(media, Access::Read)
        .and_then(|slots| slots.is_being_opened())
        .unwrap_or(false);
    // It may have ended before the question.
    if is_being_made { Err(locked(media.path())) } else { check_vacant(media) }
}

/// Reads `meta`; if it is missing, distinguishes a filter without it from no filter.
pub(crate) fn read_meta(media: &dyn Media) -> Result<Meta> {
    match Meta::read(media) {
        Err(nothing @ Error::NotAFilter { .. }) => match check_no_filter(media) {
            Err(lost @ (Error::Damaged { .. } | Error::Locked { .. })) => Err(lost),
            // Written meanwhile.
            Err(Error::Exists { .. }) => Meta::read(media),
            _ => Err(nothing),
        },
        other => other,
    }
}

/// Opens the lock file and takes the opening byte: no other handle opens, recovers or closes the
/// filter until the opening is ended, or the locks dropped.
pub(crate) fn enter(media: &dyn Media) -> Result<Sessions> {
    loop {
        let slots = Sessions::open(media, Access::Write).map_err(|error| removed(media, error))?;
        if !slots.wait_opening(OPENING_TIME)? {
            return Err(locked(media.path()));
        }
        // If it is not, the file was removed, and other processes may use a new one by now.
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
    let header = SegmentHeader {
        uuid: meta.log_uuid,
        timeline: 1,
        timeline_start: 1,
        first: 1,
        capacity: 1,
    };
    Segment::create(media, header, SEGMENT_TEMPORARY).map(|_| ())
}

/// Begins the next timeline on the recovered state: makes the recovery base durable including its
/// names, creates the timeline's first segment where the log stopped, and gives the image its
/// `temporary` name. If the base is a durable snapshot and nothing else, all of that is left to the
/// first record ([`LogSpace::extend`](crate::engine::log::space::LogSpace::extend)): many filters
/// are opened and never written to, and each sync takes as long as the rest of the opening.
fn begin_timeline(
    media: &dyn Media,
    slots: &Sessions,
    meta: &Meta,
    options: &Options,
    (recovered, known): (&Recovered, KnownExtent),
    temporary: &str,
) -> Result<()> {
    if let KnownExtent::Nothing = known {
        let files = (&recovered.history, &recovered.listing);
        make_durable::sync_copies(media, files, &|| slots.note_progress())?;
    }
    let is_done = recovered.is_all_in_snapshot(known);
    let sync_names = || media.sync().map_err(Error::io("sync", media.path()));
    let (header, stop) = (recovered.image.header(), recovered.prefix.stop);
    header.begin_timeline(stop, segment_records(meta, &recovered.image));
    header.allocated().begin_at(stop);
    if !is_done {
        let from = (recovered.start, recovered.durable);
        let advance = || slots.note_progress();
        make_durable(&recovered.history, media, from, &recovered.prefix, &advance)?;
        // The names too: the process that created them may have died before the directory was
        // synced. Without this sync, a new timeline could outlive `meta`.
        sync_names()?;
        let first = first_segment(meta, &recovered.image);
        let upto = next_end(&first, stop);
        drop(Segment::create_if(media, first, upto - stop, SEGMENT_TEMPORARY, &|| true)?);
        sync_names()?;
        header.allocated().begin_at(upto);
    }
    let sound = recovered.listing.snapshots.iter().filter(|&&start| start <= recovered.start);
    header.snapshot().begin_at(sound.copied().max().unwrap_or(0));
    header.unsound().begin_with(recovered.unsound.iter().map(|&(start, _)| start));
    continue_time(media, meta, (&options.clock, &options.clock), header)?;
    // Recovery may have taken long: never replace the image of a filter that is here by now.
    if !slots.is_current() {
        return Err(Error::Retired { path: media.path().to_path_buf(), replaced: true });
    }
    let live = FileName::Live.to_string();
    let sync = || if is_done { Ok(()) } else { media.sync() };
    let named = media.rename(temporary, &live).and_then(|()| sync());
    named.map_err(Error::io("name", media.path().join(&live)))
}

/// Writes how much log is kept, if the handle sets it and it is not so yet.
fn write_keep(engine: &Engine) -> Result<()> {
    let media = &*engine.shared.media;
    let Some(keep) = engine.shared.options.keep_log else { return Ok(()) };
    // Also a file that cannot be read is replaced.
    if keep_setting::read(media).is_ok_and(|found| found == keep) {
        return Ok(());
    }
    let name = FileName::Keep.to_string();
    // Others may have the filter open, so that no opener removes what is left under a fixed name.
    let write = || {
        let temporary = engine.shared.log.next_temporary();
        write_file(media, temporary, &name, &keep_setting::encode(keep))
    };
    let mut written = write();
    // On a full disk it may be what makes space.
    while written.as_ref().is_err_and(Error::is_full) && engine.shared.remove_oldest_kept()? {
        written = write();
    }
    written
}

/// Writes `meta`, which makes the directory a filter.
fn write_meta(engine: &Engine) -> Result<()> {
    write_file(
        &*engine.shared.media,
        META_TEMPORARY,
        &FileName::Meta.to_string(),
        &engine.shared.meta.encode(),
    )
}
