//! Checks before a filter is created: the directory has no filter, not even one without `meta`, and
//! no foreign file under a name that a filter's file would take.

use crate::error::{Error, Result};
use crate::format::header::{self, PAGE_BYTES};
use crate::format::names::FileName;
use crate::media::{Access, Media, MediaFile};
use crate::primitives;
use crate::recovery::Listing;
use crate::wal::log_record::RECORD_BYTES;
use std::io::ErrorKind;
use std::time::Duration;

/// How often a file without a header is examined again before it is taken for a foreign one.
const LOOKS: u32 = 100;
/// The pause before each of these examinations.
const PAUSE: Duration = Duration::from_millis(1);

/// Checks that there is no filter here: neither a whole one nor one whose `meta` was lost.
pub fn check_vacant(media: &dyn Media) -> Result<()> {
    let path = media.path().join(FileName::Meta.to_string());
    check_no_meta(media)?;
    let listing = Listing::read(media)?;
    // A creator that met a full disk leaves a snapshot, too: of the state before the first record.
    let mut ours = listing.snapshots.iter().filter(|&&start| start > 1).count();
    ours += listing.kept().count();
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
        remedy: "without it nothing can be saved: copy `meta` from any backup of this filter \
                 that was made since it was last altered; or create the new filter in another \
                 directory; if a backup or a restore into this one was killed, remove the \
                 directory and repeat it",
    })
}

/// Checks that no foreign file has a name of a filter's file: those are removed to make room for a
/// filter. The leftovers of a creator that died lie beside an empty file `lock`, which it creates
/// first; the content of the other files is unknown after a power cut.
///
/// A process that still has a removed filter open may create a temporary file here. The file is
/// empty, or zero, until the process writes its header; it may also disappear again.
pub fn check_ours(media: &dyn Media) -> Result<()> {
    // Before checking for the file `lock`: if it is missing, these files existed without it.
    let names = media.list().map_err(Error::io("list", media.path()))?;
    let is_empty = |file: Box<dyn MediaFile>| file.bytes().map(|bytes| bytes == 0);
    let lock = FileName::Lock.to_string();
    match media.open(&lock, Access::Read).and_then(is_empty) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        // It is missing, or no file.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {}
        Err(error) => return Err(Error::io("open", media.path().join(lock))(error)),
    }
    for name in names.iter().filter(|name| FileName::parse(name).is_some()) {
        let mut looks = 0;
        loop {
            match found_in(media, name)? {
                Found::Nothing | Found::OurFile => break,
                Found::Zeros if looks < LOOKS => primitives::sleep(PAUSE),
                Found::Zeros | Found::ForeignFile => {
                    return Err(Error::Occupied { path: media.path().join(name) });
                }
            }
            looks += 1;
        }
    }
    Ok(())
}

/// What a name refers to, judged by the first bytes of the file.
enum Found {
    /// The file was removed meanwhile.
    Nothing,
    /// A file with the magic of a filter's file.
    OurFile,
    /// A file of zero bytes only, or none: it may not have its header yet.
    Zeros,
    /// Anything else.
    ForeignFile,
}

fn found_in(media: &dyn Media, name: &str) -> Result<Found> {
    let mut start = [0; header::MAGIC_BYTES];
    let read = media.open(name, Access::Read).and_then(|file| {
        let length = file.bytes()?.min(start.len() as u64) as usize;
        file.read_at(&mut start[..length], 0)
    });
    match read {
        Ok(()) if header::is_magic(&start) => Ok(Found::OurFile),
        Ok(()) if start == [0; header::MAGIC_BYTES] => Ok(Found::Zeros),
        Ok(()) => Ok(Found::ForeignFile),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
        // Not a regular file.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(Found::ForeignFile),
        Err(error) => Err(Error::io("read", media.path().join(name))(error)),
    }
}

fn check_no_meta(media: &dyn Media) -> Result<()> {
    let name = FileName::Meta.to_string();
    match media.open(&name, Access::Read) {
        Ok(_) => Err(Error::Exists { path: media.path().to_path_buf() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
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
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(true),
        // The process that is creating the filter just removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("read", media.path().join(name))(error)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;

    #[test]
    fn a_snapshot_of_the_state_before_the_first_record_is_no_filter_without_its_meta() {
        let memory = Memory::new();
        memory.make().expect("a directory");
        let create = |start| {
            let name = FileName::Snapshot { start }.to_string();
            memory.create(&name, 4096).expect("a file");
        };
        create(1);
        check_vacant(&memory).expect("a creator died");
        let kept = FileName::Snapshot { start: 1 }.kept(7).expect("a snapshot").to_string();
        memory.create(&kept, 4096).expect("a file");
        check_vacant(&memory).expect_err("what was kept is all that is left of a filter");
        memory.remove(&kept).expect("it is there");
        create(2);
        let error = check_vacant(&memory).expect_err("a filter lost its meta");
        assert!(
            matches!(&error, Error::Damaged { found, .. } if found.contains("1 snap")),
            "{error}"
        );
    }
}
