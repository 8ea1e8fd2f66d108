//! Creating and opening.
//!
//! Opening always recovers: the live image is rebuilt from snapshot and log, the ground is made durable, a new
//! era begins. Whatever moment a creator or an opener dies at, the next one finds either the old filter or
//! the new one.

use super::checkpoint::Snapshots;
use super::commit::Committer;
use super::duties::Bell;
use super::engine::{Engine, TimeBase};
use crate::bytes::PAGE_BYTES;
use crate::cells::Layout;
use crate::error::{Error, Result};
use crate::kinds::Kind;
use crate::live::Bank;
use crate::media::{Access, Media};
use crate::meta::Meta;
use crate::names::FileName;
use crate::options::Options;
use crate::processes::slots::{self, Opening, Slot};
use crate::processes::stripe_lock::Owner;
use crate::processes::stripes::Stripes;
use crate::recovery::{Listing, Recovered, replay};
use crate::sync::Ordering;
use crate::wal::record::RECORD_BYTES;
use crate::wal::segment::SegmentHeader;
use crate::wal::{Log, Segment};
use std::sync::Arc;

/// The temporary names of the live image and of the rest, while a filter is created or opened.
const LIVE_DRAFT: u64 = 0;
const META_DRAFT: u64 = 1;
const SEGMENT_DRAFT: u64 = 2;
/// The first number for drafts of an open handle.
const FIRST_DRAFT: u64 = 3;

/// What all banks of a filter will share.
pub(super) fn layout(kind: &dyn Kind, options: &Options) -> Layout {
    let block_words = (options.block_bytes / 8) as u32;
    let stripes = options.stripes.unwrap_or_else(|| kind.default_stripes(block_words));
    Layout { stripes, block_words }
}

/// Bytes of memory that the first bank of a filter takes.
pub(super) fn first_bank_bytes(kind: &dyn Kind, layout: Layout) -> Result<u64> {
    Bank::bytes(layout, layout.geometry(kind.first_words()))
}

fn random() -> Result<u128> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::io("get random bytes for", "a new filter")(error.into()))?;
    Ok(u128::from_le_bytes(bytes))
}

impl Engine {
    /// Creates a filter where there is none.
    pub(super) fn create(
        media: Arc<dyn Media>,
        kind: Arc<dyn Kind>,
        options: Options,
    ) -> Result<Self> {
        options.check()?;
        let layout = layout(&*kind, &options);
        let memory = first_bank_bytes(&*kind, layout)?;
        let seed = match options.hash_seed {
            Some(seed) => seed,
            None => random()? as u64,
        };
        let meta = Meta {
            uuid: random()?,
            seed,
            layout,
            segment_records: options.segment_records(memory),
            durability: options.durability,
            downtime: options.downtime,
            max_lead: options.max_lead,
            kind,
        };
        write_new(&*media, |slot| {
            begin_log(&*media, &meta)?;
            let engine = Self::recover(media.clone(), meta, options, slot)?;
            write_meta(&engine)?;
            Ok(engine)
        })
    }

    /// Opens the filter that is there.
    pub(super) fn open(media: Arc<dyn Media>, options: Options) -> Result<Self> {
        // Before anything is written: opening what is no filter must not leave a lock file there.
        read_meta(&*media)?;
        let (slot, _opening) = take(&*media)?;
        let meta = read_meta(&*media)?;
        Self::recover(media, meta, options, slot)
    }

    /// Rebuilds the state and begins a new era on it. The caller has the filter alone.
    fn recover(media: Arc<dyn Media>, meta: Meta, options: Options, slot: Slot) -> Result<Self> {
        remove_drafts(&*media)?;
        let draft = FileName::Temporary(LIVE_DRAFT).to_string();
        let (recovered, log) = replay(&*media, &media, &meta, &draft, Access::Write)
            .and_then(|recovered| {
                let log = begin_era(&media, &meta, &recovered, &draft)?;
                Ok((recovered, log))
            })
            .inspect_err(|_| {
                // The first error is the one to report. Half an image would only take space.
                let _ = remove_drafts(&*media);
            })?;
        for name in recovered.leftovers(&*media)? {
            // No later reader looks at it; the next opening tries again.
            let _ = media.remove(&name);
        }
        let newest = recovered.listing.snapshots.iter().copied();
        let newest = newest.filter(|&start| start <= recovered.start).max().unwrap_or(0);
        let image = recovered.image;
        let term = image.header().slot_term(slot.index().into());
        let owner = Owner { slot: slot.index(), term: term.fetch_add(1, Ordering::Relaxed) + 1 };
        let last = image.header().time().load(Ordering::Relaxed) >> 1;
        Ok(Self {
            time_base: TimeBase::new(&options.clock, meta.downtime, last),
            stripes: Stripes::new(image.header().stripe_count(), owner),
            committer: Committer::default(),
            snapshots: Snapshots::new(
                newest,
                recovered.unsound.iter().map(|&(start, _)| start).collect(),
            ),
            bell: Bell::new(meta.durability),
            media,
            meta,
            options,
            image,
            log,
            _slot: slot,
        })
    }

    /// The last one out: makes everything durable, writes a snapshot, retires the image.
    pub(super) fn close(&self) -> Result<()> {
        self.commit_all()?;
        self.checkpoint()?;
        self.image.header().retire();
        Ok(())
    }
}

/// Lets `make` write a filter where there is none, `meta` last; it gets the slot, to hold or to keep. If it fails,
/// nothing is left behind.
pub(super) fn write_new<T>(media: &dyn Media, make: impl FnOnce(Slot) -> Result<T>) -> Result<T> {
    media.make().map_err(Error::io("make", media.path()))?;
    // Before the locks: a filter that is open there is said to exist, not to be locked.
    check_vacant(media)?;
    let (slot, _opening) = take(media)?;
    check_vacant(media)?;
    // What an earlier attempt left: without `meta` it is nobody's.
    clear(media)?;
    make(slot).inspect_err(|_| {
        // The first error is the one to report. Still under the opening byte: nobody else can have begun.
        let _ = clear(media);
    })
}

/// Reads `meta`; if it is missing, tells a filter that has lost it from a place without one.
pub(super) fn read_meta(media: &dyn Media) -> Result<Meta> {
    match Meta::read(media) {
        Err(nothing @ Error::NotAFilter { .. }) => match check_vacant(media) {
            Err(lost @ Error::Damaged { .. }) => Err(lost),
            _ => Err(nothing),
        },
        other => other,
    }
}

/// Makes sure that no filter is here: neither a whole one nor the rest of one whose `meta` was lost.
fn check_vacant(media: &dyn Media) -> Result<()> {
    let path = media.path().join(FileName::Meta.to_string());
    match media.open(&FileName::Meta.to_string(), Access::Read) {
        Ok(_) => {
            return Err(Error::Exists { path: media.path().to_path_buf() });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("open", path)(error)),
    }
    let listing = Listing::read(media)?;
    let mut ours = listing.snapshots.len();
    for &(era, first) in &listing.segments {
        // A creator that died leaves the empty segments of the first two eras and nothing else.
        if era > 2 || first > 1 || has_records(media, &FileName::Segment { era, first })? {
            ours += 1;
        }
    }
    if ours == 0 {
        return Ok(());
    }
    Err(Error::Damaged {
        path,
        offset: 0,
        expected: "the file `meta`".to_owned(),
        found: format!("none, but {ours} snapshots and log segments of a filter"),
        remedy: "restore `meta` from a backup, or create the new filter in another directory",
    })
}

/// Whether anything was ever written where a segment's first record lies.
fn has_records(media: &dyn Media, name: &FileName) -> Result<bool> {
    let name = name.to_string();
    let mut first = [0; RECORD_BYTES as usize];
    let read =
        media.open(&name, Access::Read).and_then(|file| file.read_at(&mut first, PAGE_BYTES));
    match read {
        Ok(()) => Ok(first.iter().any(|&byte| byte != 0)),
        // A creator's segments are whole, so this is the rest of another filter's.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(true),
        Err(error) => Err(Error::io("read", media.path().join(name))(error)),
    }
}

fn take(media: &dyn Media) -> Result<(Slot, Opening)> {
    slots::take(media)?.ok_or_else(|| Error::Locked { path: media.path().to_path_buf() })
}

/// The first era, which recovery will end at once: a filter always has a log.
fn begin_log(media: &dyn Media, meta: &Meta) -> Result<()> {
    let header = SegmentHeader { uuid: meta.uuid, era: 1, era_start: 1, first: 1, capacity: 1 };
    Segment::create(media, header, SEGMENT_DRAFT).map(|_| ())
}

/// Begins the era after the last on what was recovered: makes that ground durable, creates the era's first segment
/// where the log stopped, and gives the image its name.
fn begin_era(
    media: &Arc<dyn Media>,
    meta: &Meta,
    recovered: &Recovered,
    draft: &str,
) -> Result<Log> {
    recovered.history.secure(recovered.start, &recovered.prefix)?;
    let header = SegmentHeader {
        uuid: meta.uuid,
        era: recovered.image.header().identity().era,
        era_start: recovered.prefix.stop,
        first: recovered.prefix.stop,
        capacity: meta.segment_records,
    };
    let first = Segment::create(&**media, header, SEGMENT_DRAFT)?;
    let live = FileName::Live.to_string();
    let named = media.rename(draft, &live).and_then(|()| media.sync());
    named.map_err(Error::io("name", media.path().join(&live)))?;
    Ok(Log::new(media.clone(), first, meta.segment_records, FIRST_DRAFT))
}

/// Writes `meta`, which makes the directory a filter.
fn write_meta(engine: &Engine) -> Result<()> {
    write_file(&*engine.media, META_DRAFT, &FileName::Meta.to_string(), &engine.meta.encode())
}

/// Writes a small file so that it is there in full or not at all.
pub(super) fn write_file(media: &dyn Media, draft: u64, name: &str, bytes: &[u8]) -> Result<()> {
    let draft = FileName::Temporary(draft).to_string();
    let write = || {
        let file = media.create(&draft, 0)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        media.rename(&draft, name)?;
        media.sync()
    };
    write().map_err(Error::io("write", media.path().join(name)))
}

/// Removes files in the making, and the banks of an earlier image: nobody reads them again, and the new image needs
/// their space. (The file `live` stays: it explains holes in the log.)
fn remove_drafts(media: &dyn Media) -> Result<()> {
    let listing = Listing::read(media)?;
    for number in listing.temporaries {
        let name = FileName::Temporary(number).to_string();
        media.remove(&name).map_err(Error::io("remove", media.path().join(&name)))?;
    }
    for (era, bank) in listing.banks {
        // One that cannot be removed takes space and nothing else: the new image has other names.
        let _ = media.remove(&FileName::Bank { era, bank }.to_string());
    }
    Ok(())
}

/// Removes every file of ours but the lock.
fn clear(media: &dyn Media) -> Result<()> {
    let mut names = media.list().map_err(Error::io("list", media.path()))?;
    // `meta` first: without it the rest is no filter, at whatever moment we are cut off.
    names.sort_by_key(|name| FileName::parse(name) != Some(FileName::Meta));
    for name in names {
        if FileName::parse(&name).is_some_and(|file| file != FileName::Lock) {
            media.remove(&name).map_err(Error::io("remove", media.path().join(&name)))?;
        }
    }
    Ok(())
}
