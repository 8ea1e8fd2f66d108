//! An opening on a disk so full that neither image nor segment fits: writes the state rebuilt in
//! memory as a snapshot instead, and removes the log below it.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::rare_space;
use crate::media::Media;
use crate::meta::Meta;
use crate::recovery::listing::Listing;
use crate::recovery::make_durable::make_durable;
use crate::recovery::removal::remove_for_good;
use crate::recovery::{Recovered, base::load_alone};
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::save::{self, State};
use crate::snapshot::{ChecksumSeed, SnapshotHeader};
use std::io;

/// Writes the state of a filter that no process has open as a snapshot, under the temporary name
/// with this number. Then removes the log below it and all older snapshots, under temporary names
/// with higher numbers. The last `live` stays, without the space of its claims: the next opener
/// needs its time bases and its table of sessions. Calls `advance` for each segment and block.
///
/// # Errors
/// [`Error::Io`], including a full disk: the temporary file is then removed, and the filter's state
/// is the same.
pub fn write_snapshot(
    home: &dyn Media,
    meta: &Meta,
    state: &Recovered,
    number: u64,
    advance: &dyn Fn(),
) -> Result<()> {
    // The log must reach through the end of every snapshot.
    make_durable(&state.history, home, (state.start, state.durable), &state.prefix, advance)?;
    rare_space::free_claims_of_last(home, meta.uuid);
    let temporary = FileName::Temporary(number).to_string();
    let start = state.prefix.stop;
    let name = FileName::Snapshot { start }.to_string();
    let written = write(home, meta, state, (&temporary, advance)).and_then(|()| {
        match home.rename_new(&temporary, &name) {
            // A sound one stays: replaced, a power cut might bring its name back without its
            // blocks (see [`removal`](crate::recovery::removal)).
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match load_alone(home, meta, start, advance) {
                    Ok(_) => home.remove(&temporary)?,
                    Err(_) => home.rename(&temporary, &name)?,
                }
            }
            named => named?,
        }
        home.sync()
    });
    if let Err(error) = written {
        // The first error is the one to report.
        let _ = home.remove(&temporary);
        return Err(Error::io("write", home.path().join(name))(error));
    }
    // Nothing is removed before its replacement was read.
    load_alone(home, meta, start, advance)?;
    let listing = Listing::of_filter(home, meta.log_uuid)?;
    let older = listing.snapshots.iter().filter(|&&older| older < start);
    let older = older.map(|&start| FileName::Snapshot { start });
    let segments = listing.segments_below(start).iter();
    let segments = segments.map(|&(timeline, first)| FileName::Segment { timeline, first });
    remove_for_good(home, older.chain(segments), number + 1..)
}

fn write(
    home: &dyn Media,
    meta: &Meta,
    state: &Recovered,
    (temporary, advance): (&str, &dyn Fn()),
) -> io::Result<()> {
    let (kind, image, stop) = (&*meta.kind, &state.image, state.prefix.stop);
    let timeline = state.history.last_timeline();
    let seed = ChecksumSeed::new(meta.log_uuid, timeline, stop);
    let mut writer = SnapshotWriter::create(home, temporary, seed)?;
    let state = State::copy(image).map_err(io::Error::from)?;
    save::save(&mut writer, (kind, image), &state, |_| Ok(()), advance)?;
    let (uuid, start, end) = (meta.log_uuid, stop, stop);
    writer.finish(SnapshotHeader { uuid, timeline, start, end, frames: 0, bytes: 0 }).map(|_| ())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::{Access, Memory};
    use crate::recovery::{KnownExtent, rebuild_in_memory};
    use crate::{Bloom, Filter, Options};
    use std::cell::Cell;
    use std::sync::Arc;

    /// Returns a filter with a key, and its medium.
    fn filled() -> (Filter<Bloom>, Arc<Memory>) {
        let media = Arc::new(Memory::new());
        let options = Options::new().background(false);
        let filter = Filter::create_on(media.clone(), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        assert!(filter.insert("key").expect("an insert"));
        (filter, media)
    }

    /// A power cut before the directory's sync could bring the name back, and the blocks of the
    /// file that it stood for were free by then.
    #[test]
    fn a_sound_snapshot_of_the_same_state_is_not_replaced() {
        for is_damaged in [false, true] {
            let (filter, media) = filled();
            let shared = &filter.engine().shared;
            shared.header().status().retire();
            let (meta, home): (_, &dyn Media) = (&shared.meta, &*media);
            let rebuilt = || {
                rebuild_in_memory(home, meta, KnownExtent::Nothing, &|| ()).expect("sound files")
            };
            // The log, the blocks that are written, and those that are read.
            let advanced = Cell::new(0);
            let advance = || advanced.set(advanced.get() + 1);
            write_snapshot(home, meta, &rebuilt(), 90, &advance).expect("space");
            let blocks = shared.image.banks().iter().map(|(_, bank)| bank.blocks()).sum::<u64>();
            assert!(advanced.get() > 2 * blocks, "{} of {blocks}", advanced.get());
            let state = rebuilt();
            let start = state.prefix.stop;
            let name = FileName::Snapshot { start }.to_string();
            let file = || home.open(&name, Access::Write).expect("it is there");
            let before = file().identity().expect("a number");
            if is_damaged {
                file().write_at(&[0; 8], 64).expect("a write");
            }
            write_snapshot(home, meta, &state, 90, &|| ()).expect("space");
            assert_eq!(file().identity().expect("a number") == before, !is_damaged);
            load_alone(home, meta, start, &|| ()).expect("a sound one");
        }
    }

    #[test]
    fn a_snapshot_in_the_space_of_the_log_removes_no_image() {
        for is_altered in [false, true] {
            let (filter, media) = filled();
            let shared = &filter.engine().shared;
            let status = shared.header().status();
            if is_altered {
                status.retire_to_alter()
            } else {
                status.retire()
            }
            let (meta, home): (_, &dyn Media) = (&shared.meta, &*media);
            let state =
                rebuild_in_memory(home, meta, KnownExtent::Nothing, &|| ()).expect("sound files");
            write_snapshot(home, meta, &state, 90, &|| ()).expect("space");
            let names = media.list().expect("a directory");
            assert!(names.iter().any(|name| name == "live"));
            assert!(names.iter().any(|name| name.starts_with("snap-")));
        }
    }
}
