//! Altering a filter: it continues with other parameters, in a new image and a new log. What is
//! refused, and the steps from the caller's view, are in `api::alter`.
//!
//! The protocol is in `docs/protocols/alter.md`. Whoever alters a filter makes its new state in
//! memory, while others write. Then it holds all stripes and the opening byte, adds what was
//! written meanwhile, and writes the state as a snapshot of a new log. It retires the image, so
//! that all handles open the filter again, and replaces `meta`: from then on the new log is the
//! filter's.

use crate::archive::keep_setting;
use crate::archive::log_before_alteration::{next_log, remove_unfinished};
use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::engine::lifecycle::closed_mark::Busy;
use crate::engine::lifecycle::open::{check_space, first_bank_bytes, layout, random, recover};
use crate::engine::lifecycle::snapshot_of_memory;
use crate::engine::shared::Local;
use crate::engine::temporary_files::{put_in_place, write_content};
use crate::engine::write::stripe_0_records::append_heartbeat;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::locks::handle_stripes::StripeGuard;
use crate::locks::holder_names::locked;
use crate::locks::session_slots::{SLOTS, Sessions};
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::options::{Keep, Options};
use crate::primitives;
use crate::recovery::{KnownExtent, Listing};
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::{ChecksumSeed, SnapshotHeader};
use crate::wal::Segment;
use crate::wal::segment::SegmentHeader;
use ebbtide_core::block::Layout;
use ebbtide_core::identity::{self, Identity};
use ebbtide_core::kind::Kind;
use ebbtide_core::machine::Machine;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The pause before the opening byte is tried again.
const PAUSE: Duration = Duration::from_millis(2);

/// An alteration that this handle has begun, and no other can.
#[derive(Debug)]
pub(crate) struct Alteration<'e> {
    engine: &'e Engine,
    /// Holds the byte without which others cannot alter the filter. Becomes the session of the new
    /// engine.
    slots: Sessions,
    meta: Meta,
}

/// All stripes of a filter that is being altered: nobody writes.
#[derive(Debug)]
pub(crate) struct Stopped<'e> {
    held: Vec<StripeGuard<'e, Local>>,
    /// The first LSN of the new log: all records below are final and durable.
    pub(crate) lsn: u64,
    /// Closing waits. Dropped last: a handle that has ended holds no stripe.
    _busy: Busy<'e>,
}

/// Returns the layout of a filter after an alteration: that of a new one, unless it was chosen at
/// creation.
fn layout_after(before: &Meta, kind: &dyn Kind) -> Layout {
    let options = Options::new();
    let is_default = layout(&*before.kind, &options) == before.layout;
    if is_default { layout(kind, &options) } else { before.layout }
}

/// Returns the `meta` that a filter would have with another kind.
///
/// # Errors
/// [`Error::Parameter`] for parameters that cannot be.
pub(crate) fn meta_after(before: &Meta, kind: Arc<dyn Kind>) -> Result<Meta> {
    let layout = layout_after(before, &*kind);
    identity::check_max_memory(&*kind, layout)?;
    let memory = first_bank_bytes(&*before.kind, before.layout)?;
    let was_default = Options::is_default_segment(before.segment_records, memory);
    let default = Options::new().segment_records(first_bank_bytes(&*kind, layout)?);
    Ok(Meta {
        log_uuid: next_log(before.log_uuid, random()? as u64),
        segment_records: if was_default { default } else { before.segment_records },
        identity: Identity { layout, kind, ..before.identity.clone() },
        ..before.clone()
    })
}

/// Checks that `meta` can have a second name, under which it stays when it is replaced: otherwise
/// there would be a moment without any `meta`.
fn check_links(media: &dyn Media, temporary: u64) -> Result<()> {
    let (meta, temporary) = (FileName::Meta.to_string(), FileName::Temporary(temporary));
    let temporary = temporary.to_string();
    match media.link_new(&meta, &temporary) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            let remedy = "altering a filter needs that: move it to a file system with hard links, \
                          or make a new filter from its log";
            let error = io::Error::new(error.kind(), format!("{error}; {remedy}"));
            Err(Error::io("link", media.path().join(meta))(error))
        }
        linked => linked
            .and_then(|()| media.remove(&temporary))
            .map_err(Error::io("link", media.path().join(meta))),
    }
}

/// Checks that this process can have an image of this many bytes beside what it has. Returns
/// whether it would lie beside the log.
fn check_memory(media: &dyn Media, bytes: u64) -> Result<bool> {
    let live = media.path().join(FileName::Live.to_string());
    media.check_memory(bytes).map_err(Error::io("map", live))
}

impl<'e> Alteration<'e> {
    /// Begins to give a filter another kind.
    ///
    /// # Errors
    /// [`Error::Locked`] while another handle alters it; [`Error::Parameter`]; [`Error::Io`], also
    /// if the disk has no room for a snapshot.
    pub(crate) fn begin(engine: &'e Engine, kind: Arc<dyn Kind>) -> Result<Self> {
        let shared = &engine.shared;
        shared.check_directory()?;
        shared.check_writable()?;
        let media = &*shared.media;
        let meta = meta_after(&shared.meta, kind)?;
        // Checked now, as for a new filter: otherwise a full disk would be noticed only when the
        // writers are stopped.
        if meta.kind.growth().is_none() {
            let bytes = first_bank_bytes(&*meta.kind, meta.layout)?;
            check_space(media, bytes)?;
            // An image beside the log takes as much again as the snapshot.
            if check_memory(media, bytes)? {
                check_space(media, bytes.saturating_mul(2))?;
            }
        }
        let slots = Sessions::open(media, Access::Write)?;
        if !slots.try_alteration()? {
            return Err(locked(media.path()));
        }
        check_free_slot(&slots, media)?;
        check_links(media, shared.log.next_temporary())?;
        Ok(Self { engine, slots, meta })
    }

    /// Returns the parameters that the filter will have.
    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Returns the end of the log now.
    pub(crate) fn tail(&self) -> u64 {
        self.engine.header().tail().hint()
    }

    /// Returns the extent of the log, for a caller that keeps others from writing.
    pub(crate) fn extent(&self) -> KnownExtent {
        let header = self.engine.header();
        let (timeline, durable) = (header.identity().timeline, header.durable().read());
        KnownExtent::WritersLive { timeline, durable }
    }

    /// Checks that this process can have the altered filter's image beside what it has: once the
    /// filter is altered, it is too late.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn check_memory(&self, machine: &Machine) -> Result<()> {
        check_memory(&*self.engine.shared.media, machine.planned_bytes()).map(drop)
    }

    /// Keeps all others from writing, and this handle from being closed, until the result is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Io`].
    pub(crate) fn pause_writers(&self) -> Result<impl Sized + use<'e>> {
        let busy = self.engine.shared.enter()?;
        // Dropped in this order: a handle that has ended holds no stripe.
        Ok((self.engine.stripes.lock_all()?, busy))
    }

    /// Keeps all others from writing and opening the filter. What they have written is durable.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Io`], [`Error::Poisoned`], [`Error::Retired`].
    pub(crate) fn stop_writers(&self) -> Result<Stopped<'e>> {
        let writer = &self.engine.writer;
        loop {
            let busy = writer.shared.enter()?;
            let mut held = writer.stripes.lock_all()?;
            writer.shared.check_writable()?;
            let end = writer.shared.log.mapped_end();
            // Not waited for while all stripes are held, because the holder of the byte may need
            // one.
            if !self.slots.try_opening()? {
                drop(held);
                primitives::sleep(PAUSE);
                continue;
            }
            // While the filter can still stay as it is.
            check_free_slot(&self.slots, &*writer.shared.media)?;
            // A heartbeat, so that no snapshot of the former log starts where the new log does. It
            // records the time up to which the filter has aged, and when it was altered.
            let stripe_0 = held.last_mut();
            let now = writer.time.of_alteration();
            if let Some(Ok(lsn)) = stripe_0.map(|held| append_heartbeat(writer, held, now)) {
                let lsn = lsn.saturating_add(1);
                writer.commits.commit(lsn)?;
                writer.shared.check_writable()?;
                return Ok(Stopped { held, lsn, _busy: busy });
            }
            drop(held);
            self.slots.end_opening()?;
            writer.log_space.extend(end)?;
        }
    }

    /// Lets others write again without an alteration.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn resume_writers(&self, stopped: Stopped<'e>) -> Result<()> {
        drop(stopped.held);
        self.slots.end_opening()
    }

    /// Replaces this filter's state by that of a filter in memory that has all operations. Returns
    /// the new engine.
    ///
    /// # Errors
    /// [`Error::Io`] and others. If this fails before `meta` is replaced, the filter is unchanged.
    /// In both cases its handles reopen it if necessary.
    pub(crate) fn finish(self, stopped: Stopped<'e>, machine: Machine) -> Result<Engine> {
        let (engine, meta) = (self.engine, self.meta);
        let shared = &engine.shared;
        let media = shared.media.clone();
        // Nobody changes it any more: the opening byte is held until the former log is put away.
        let keep = keep_setting::wished(&*media);
        let numbers = || std::iter::repeat_with(|| shared.log.next_temporary());
        remove_unfinished(&*media, &shared.meta, numbers())?;
        let lsn = stopped.lsn;
        let written = write_log(engine, &self.slots, &meta, &machine, lsn);
        let second = Timestamp::now().as_unix_millis() / 1000;
        // The former `meta` stays, under another name: until the new one has its name durably, a
        // power cut may bring the former one back, which must not have lost its blocks by then.
        let former = match keep {
            Keep::Nothing => FileName::Temporary(shared.log.next_temporary()),
            _ => FileName::KeptMeta { since: second, until: lsn },
        };
        let former = former.to_string();
        let (name, temporary) = (FileName::Meta.to_string(), shared.log.next_temporary());
        let prepared = written.and_then(|()| {
            // While the filter can still stay as it is, if the disk is full.
            write_content(&*media, temporary, &name, &meta.encode())?;
            let linked = media.link_new(&name, &former).and_then(|()| media.sync());
            linked.map_err(Error::io("link", media.path().join(&name)))?;
            shared.check_directory()
        });
        if let Err(error) = prepared {
            // The first error is the one to report. What is left, the next opener removes.
            let _ = media.remove(&former);
            let _ = media.remove(&FileName::Temporary(temporary).to_string());
            let _ = remove_unfinished(&*media, &shared.meta, numbers());
            return Err(error);
        }
        drop(machine);
        // From here on no handle writes here any more, whoever takes the stripes.
        shared.header().status().retire_to_alter();
        replace_meta(&*media, temporary, &former)?;
        drop(stopped.held);
        let banks = shared.header().state();
        shared.image.files().free(banks.banks().map(|bank| bank.id));
        self.slots.end_alteration()?;
        // Recovery keeps or removes the log from before.
        let made = recover(media, meta, shared.options.for_reopening(), Arc::new(self.slots))?;
        made.shared.slots.end_opening()?;
        Ok(made)
    }
}

/// Checks that a handle of the altered filter can have a session slot: those of the former one keep
/// theirs until they are used.
fn check_free_slot(slots: &Sessions, media: &dyn Media) -> Result<()> {
    if slots.has_free_slot()? {
        return Ok(());
    }
    Err(Error::Crowded { path: media.path().to_path_buf(), most: SLOTS })
}

/// Gives the new `meta` its name. If the directory cannot be synced then, the former one gets its
/// name back: the next opener would take the new one for durable, and a power cut might undo it.
fn replace_meta(media: &dyn Media, temporary: u64, former: &str) -> Result<()> {
    let name = FileName::Meta.to_string();
    put_in_place(media, temporary, &name).inspect_err(|_| {
        // The new one keeps a name until that is durable. If it was not renamed, it still has this
        // name, and nothing is undone.
        let linked = media.link_new(&name, &FileName::Temporary(temporary).to_string());
        // The first error is the one to report.
        let _ = linked.and_then(|()| media.rename(former, &name)).and_then(|()| media.sync());
    })
}

/// Writes the first segment of a new log, and a snapshot at its beginning.
fn write_log(
    engine: &Engine,
    slots: &Sessions,
    meta: &Meta,
    machine: &Machine,
    lsn: u64,
) -> Result<()> {
    let (shared, uuid) = (&engine.shared, meta.log_uuid);
    let media = &*shared.media;
    let now = shared.header().identity().timeline;
    let listing = Listing::of_filter(media, shared.meta.log_uuid)?;
    let timeline = listing.next_timeline(now, media.path())?;
    let header = SegmentHeader { uuid, timeline, timeline_start: lsn, first: lsn, capacity: 1 };
    drop(Segment::create(media, header, shared.log.next_temporary())?);
    let temporary = FileName::Temporary(shared.log.next_temporary()).to_string();
    let name = FileName::Snapshot { start: lsn }.to_string();
    let seed = ChecksumSeed::new(uuid, timeline, lsn);
    let failed = || Error::io("write", media.path().join(&name));
    let written = SnapshotWriter::create(media, &temporary, seed).and_then(|mut writer| {
        let before = (shared.header(), shared.uses_time);
        snapshot_of_memory::save(&mut writer, machine, before, lsn - 1, || slots.note_progress())?;
        let (start, end) = (lsn, lsn);
        writer.finish(SnapshotHeader { uuid, timeline, start, end, frames: 0, bytes: 0 }).map(drop)
    });
    let named = written.map_err(failed()).and_then(|()| {
        // A page of `live` that was lost before its positions and claims were copied is reported by
        // now.
        shared.check_copied(&[])?;
        let named = media.rename_new(&temporary, &name).and_then(|()| media.sync());
        named.map_err(failed())
    });
    named.inspect_err(|_| {
        // The first error is the one to report.
        let _ = media.remove(&temporary);
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::archive::At;
    use crate::inspect::verify_on;
    use crate::media::Memory;
    use crate::{Any, Bloom, Filter, Reader, Spec};

    #[test]
    fn log_that_is_to_be_kept_since_an_alteration_began_is_kept_with_its_parameters() {
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let options = || Options::new().background(false);
        let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options());
        let filter = filter.expect("a filter");
        (0..50_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        let before = filter.digest().expect("a digest");
        let engine = filter.engine().clone();
        let kind = Bloom::capacity(2000).kind().expect("a kind");
        let alteration = Alteration::begin(&engine, kind).expect("nobody else alters it");
        let keeps = options().keep_log(Keep::For(Duration::from_secs(86_400)));
        let other = Filter::<Bloom>::open_on(media.clone(), keeps).expect("a filter");
        let stopped = alteration.stop_writers().expect("they stop");
        let machine = Machine::new(alteration.meta().identity.clone()).expect("a machine");
        let made = alteration.finish(stopped, machine).expect("room");
        filter.current.replace(&engine, made).expect("it is open");
        assert!(!other.contains(7_u64.to_le_bytes()).expect("an answer"), "the new one is empty");
        let report = verify_on(&*media).expect("it is there");
        assert!(report.is_sound(), "{report:?}");
        let past = Reader::<Any>::at_on(media, At::Lsn(before.lsn - 1), options());
        let found = past.expect("it is kept").digest().expect("a digest");
        assert_eq!(found.value, before.value);
    }
}
