//! What a reader reads: the image of live processes, or a state that is rebuilt from the files.

use crate::admin::look::Look;
use crate::archive::At;
use crate::archive::past::{Past, of_whole_past};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::lifecycle::open::{ENDING_PAUSE, ENDING_TIME, for_reading, read_meta};
use crate::engine::lifecycle::options_match;
use crate::engine::time::time_over_reboots::continue_time;
use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::previous_image;
use crate::image::write_back_check::check_files;
use crate::image::{Control, Image};
use crate::locks::holder_names::locked;
use crate::locks::image_in_use::is_in_use;
use crate::locks::session_slots::Sessions;
use crate::media::{Access, Media, MediaFile, Memory};
use crate::meta::Meta;
use crate::options::{Downtime, Options};
use crate::primitives::{self, Hint, Instant};
use crate::recovery::{KnownExtent, rebuild_in_memory};
use std::sync::Arc;
use std::time::Duration;

/// The interval at which a reader checks whether its view is still the filter, if nothing in memory
/// indicates it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same interval for a private state, which is outdated as soon as a writer opens the filter.
const LOOK_SOON: Duration = Duration::from_millis(10);
/// The number of times a look starts over because live processes die, or listed files are removed.
pub(in crate::api) const TRIES: u32 = 5;

/// The state that a reader reads.
#[derive(Debug)]
pub(in crate::api) struct View {
    pub(in crate::api) engine: Engine,
    /// Whether the state is private to the reader, not that of live writers.
    pub(in crate::api) own: bool,
    /// Whether it is that of a moment of the past, which no writer changes.
    pub(in crate::api) is_past: bool,
    /// The timeline of the file `live`; `None` if there was none.
    timeline: Option<u64>,
    /// The file `meta`, kept open so that no other file gets its inode number.
    meta: Box<dyn MediaFile>,
    taken: Instant,
    /// When the view was last checked to be still the filter, in microseconds since it was taken.
    looked: Hint,
}

impl View {
    /// Attaches to live processes, or rebuilds the state that dead ones left.
    pub(in crate::api) fn take(
        media: &Arc<dyn Media>,
        options: &Options,
        wanted: Option<&'static str>,
    ) -> Result<Self> {
        // A reader follows the path: it reads the filter that has the path now.
        let media = &media.at_its_path().unwrap_or_else(|| media.clone());
        let view = look(&**media, |meta, look, living| {
            options_match::check(&**media, &meta, options)?;
            // Before anything else is read, so that a later replacement is noticed.
            let file = open_meta(&**media)?;
            match look.locks.take_if(|_| living) {
                Some(locks) => Self::attach(media, meta, file, options, locks),
                None => Self::rebuild(media, meta, file, options, look),
            }
        })?;
        view.engine.shared.check_kind(wanted)?;
        Ok(view)
    }

    fn attach(
        media: &Arc<dyn Media>,
        meta: Meta,
        file: Box<dyn MediaFile>,
        options: &Options,
        locks: Sessions,
    ) -> Result<Self> {
        let header = Control::attach(&**media, meta.uuid, Access::Read)?;
        let timeline = Some(header.identity().timeline);
        let image = Image::attach(media.clone(), header, meta.layout, &*meta.kind, Access::Read)?;
        let clocks = (options, &options.clock);
        let engine = for_reading(media.clone(), meta, clocks, Arc::new(locks), (image, false));
        Ok(Self::of(engine, false, timeline, file))
    }

    pub(in crate::api) fn rebuild(
        media: &Arc<dyn Media>,
        meta: Meta,
        file: Box<dyn MediaFile>,
        options: &Options,
        look: &Look,
    ) -> Result<Self> {
        let timeline = previous_image::timeline(&**media, meta.uuid)?;
        let recovered = rebuild_in_memory(&**media, &meta, look.known, &|| {})?;
        let image = recovered.image;
        // A reader syncs nothing: what dead writers had not made durable is not durable yet.
        let last_timeline = recovered.history.last_timeline();
        let durable = look.known.durable_before(recovered.prefix.stop, last_timeline);
        image.header().durable().begin_at(durable);
        // If no process has the filter open, its time may stand still.
        let stands_still = meta.downtime == Downtime::Freeze;
        Self::over(media, (meta, file), options, (image, timeline), (stands_still, false))
    }

    /// Rebuilds the state as of a moment of the past.
    pub(in crate::api) fn take_past(
        media: &Arc<dyn Media>,
        options: &Options,
        wanted: Option<&'static str>,
        at: At,
    ) -> Result<Self> {
        let view = look(&**media, |meta, look, _| {
            options_match::check(&**media, &meta, options)?;
            let file = open_meta(&**media)?;
            let timeline = previous_image::timeline(&**media, meta.uuid)?;
            let past = Past::of(&**media, &meta, look.known, at);
            let past = past.and_then(|past| past.rebuild(at));
            let (past, meta) =
                past.map_err(|error| of_whole_past((&**media, &meta, look.known), error))?;
            Self::over(media, (meta, file), options, (past.image, timeline), (true, true))
        })?;
        view.engine.shared.check_kind(wanted)?;
        Ok(Self { is_past: true, ..view })
    }

    /// Returns the view as one that stays, whatever happens to the files.
    pub(in crate::api) fn unchecked(self) -> Self {
        Self { is_past: true, ..self }
    }

    /// Creates the view of a private image.
    fn over(
        media: &Arc<dyn Media>,
        (meta, file): (Meta, Box<dyn MediaFile>),
        options: &Options,
        (image, timeline): (Image, Option<u64>),
        (stands_still, is_past): (bool, bool),
    ) -> Result<Self> {
        let (mut options, lease_clock) = (options.clone(), options.clock.clone());
        if stands_still {
            options = options.clock(Clock::stream());
        }
        continue_time(&**media, &meta, (&options.clock, &lease_clock), image.header())?;
        // A private image is not shared. (The filter may have no file `lock`: a copied one has
        // never been open.)
        let memory = Memory::new();
        memory.make().map_err(Error::io("make", memory.path()))?;
        let nobody = Arc::new(Sessions::open(&memory, Access::Write)?);
        let clocks = (&options, &lease_clock);
        let engine = for_reading(media.clone(), meta, clocks, nobody, (image, is_past));
        // The image is private: nobody else raises its time to that of keys.
        engine.time.tend();
        Ok(Self::of(engine, true, timeline, file))
    }

    fn of(engine: Engine, own: bool, timeline: Option<u64>, meta: Box<dyn MediaFile>) -> Self {
        let (is_past, taken, looked) = (false, Instant::now(), Hint::default());
        Self { engine, own, is_past, timeline, meta, taken, looked }
    }

    /// Returns whether the file `meta` is still the original one. An alteration replaces it. Any
    /// other file belongs to another filter, or to a backup of this one: with the same uuid, and
    /// perhaps with a timeline of the same number.
    fn has_its_meta(&self) -> Result<bool> {
        let media = &*self.media_at_path();
        let identity = |file: &dyn MediaFile| {
            file.identity()
                .map_err(Error::io("look at", media.path().join(FileName::Meta.to_string())))
        };
        Ok(identity(&*open_meta(media)?)? == identity(&*self.meta)?)
    }

    /// Returns whether the view still shows the filter's state, as of the latest check.
    pub(in crate::api) fn is_current(&self) -> Result<bool> {
        if self.is_past {
            return Ok(true);
        }
        if !self.own && self.engine.header().is_retired() {
            return Ok(false);
        }
        let now = self.taken.elapsed().as_micros() as u64;
        // At worst two threads check at once.
        let before = self.looked.get();
        let every = if self.own { LOOK_SOON } else { LOOK_EVERY };
        if u128::from(now.saturating_sub(before)) < every.as_micros() {
            return Ok(true);
        }
        let current = if self.own { self.is_own_current()? } else { self.is_shared_current()? };
        if current {
            self.looked.set(now);
        }
        Ok(current)
    }

    /// Returns the directory that has the filter's path now.
    fn media_at_path(&self) -> Arc<dyn Media> {
        self.engine.shared.media.at_its_path().unwrap_or_else(|| self.engine.shared.media.clone())
    }

    /// Returns whether no process has opened the filter since, or put another one in its place.
    fn is_own_current(&self) -> Result<bool> {
        let (media, uuid) = (&*self.media_at_path(), self.engine.shared.meta.uuid);
        Ok(read_meta(media)?.uuid == uuid
            && self.has_its_meta()?
            && previous_image::timeline(media, uuid)? == self.timeline)
    }

    /// Returns whether the image still belongs to the filter: false if the filter's files were
    /// replaced by those of another.
    fn is_shared_current(&self) -> Result<bool> {
        let (media, meta) = (&*self.media_at_path(), &self.engine.shared.meta);
        let shared = &self.engine.shared;
        if meta.downtime == Downtime::Freeze && !shared.has_other_handles()? {
            // The time of a filter that no process has open stands still, that of the image
            // advances.
            return Ok(false);
        }
        if matches!(self.has_its_meta(), Ok(false)) {
            return Ok(false);
        }
        // As long as handles live, they check, and must receive it.
        let image = &shared.image;
        let is_lost = || image.header().is_poisoned() || check_files(image).is_err();
        if !shared.has_other_handles()? && is_lost() {
            return Ok(false);
        }
        Ok(match previous_image::timeline(media, meta.uuid)? {
            Some(timeline) => self.timeline == Some(timeline),
            // Without its files, handles that have the filter open continue, and so does this
            // reader.
            None => read_meta(media).map_or(true, |found| found.uuid == meta.uuid),
        })
    }

    /// Returns whether an error means that another view must be taken.
    pub(in crate::api) fn is_over(&self, error: &Error) -> bool {
        // The process that retires an image removes its banks next.
        let retired = || !self.own && self.engine.header().is_retired();
        let is_over =
            || matches!(error, Error::Retired { .. }) || error.is_not_found() && retired();
        // No other view is of that moment.
        !self.is_past && is_over()
    }
}

/// Examines a filter's files, and retries if they changed meanwhile. Between one file and the next,
/// writers may remove files, replace an image, or replace the filter by another one.
pub(in crate::api) fn look<T>(
    media: &dyn Media,
    mut at: impl FnMut(Meta, &mut Look, bool) -> Result<T>,
) -> Result<T> {
    let (mut left, begun) = (TRIES, Instant::now());
    loop {
        left -= 1;
        let meta = read_meta(media)?;
        let mut look = Look::begin(media, &meta)?;
        let living = match (look.known, &look.locks) {
            (KnownExtent::WritersLive { .. }, _) => true,
            // Without an image nothing is recorded about live processes.
            (KnownExtent::Nothing, Some(locks)) => is_in_use(media, meta.uuid, locks)?,
            _ => false,
        };
        let seen = at(meta.clone(), &mut look, living);
        let is_altered = || read_meta(media).is_ok_and(|found| found.log_uuid != meta.log_uuid);
        match seen {
            _ if left > 0 && is_altered() => {}
            Err(Error::Damaged { .. }) if left > 0 && living => {}
            // The last process that has the image dies: see `open`.
            Err(error) if living && error.is_not_found() && begun.elapsed() < ENDING_TIME => {
                primitives::sleep(ENDING_PAUSE);
                left += 1;
            }
            Err(error) if left > 0 && error.is_not_found() => {}
            seen if living || !look.is_over(media, &meta)? => return seen,
            _ if left > 0 => {}
            _ => return Err(locked(media.path())),
        }
    }
}

pub(in crate::api) fn open_meta(media: &dyn Media) -> Result<Box<dyn MediaFile>> {
    let name = FileName::Meta.to_string();
    media.open(&name, Access::Read).map_err(Error::io("open", media.path().join(name)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::engine::lifecycle::open;
    use crate::engine::write::request::{Precondition, Request, Waits};
    use crate::engine::write::single::write;
    use crate::media::Memory;
    use crate::{Any, Durability, Options, Reader, Spec};
    use std::sync::Arc;

    #[test]
    fn a_reader_does_not_call_durable_what_dead_writers_had_not_made_durable() {
        let memory = Memory::new();
        let options = || Options::new().background(false).durability(Durability::Never);
        let kind = "bloom capacity=1000".parse::<Any>().expect("a spec").kind().expect("a kind");
        let engine = open::create(Arc::new(memory.clone()), kind, options()).expect("a filter");
        let insert = |key| {
            let request = Request::new(key, None, 1, Precondition::Nothing, Waits::Always);
            write(&engine.writer, &request).expect("an insert").lsn
        };
        let last = insert(1);
        engine.commits.commit_all().expect("a sync");
        let durable = engine.shared.durable();
        assert!(durable > last);
        let tail = insert(2) + 1;
        drop(engine);
        let reader = Reader::<Any>::open_on(Arc::new(memory), options()).expect("a filter");
        let stat = reader.stat().expect("figures");
        assert_eq!((stat.durable_lsn, stat.lsn), (durable, tail));
    }
}
