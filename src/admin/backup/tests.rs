//! A backup contains all log that its snapshot needs, or fails.

use crate::admin::backup::*;
use crate::history::Unlogged;
use crate::media::{Access, ByteLocks, MediaFile, Memory};
use crate::recovery::Listing;
use crate::snapshot::SnapshotReader;
use crate::wal::log_record::Decoded;
use crate::{Any, Bloom, Durability, Filter, Options, inspect};
use std::io;
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// Records of a segment.
const SEGMENT: u64 = 128;

fn options() -> Options {
    let options = Options::new().hash_seed(7).stripes(2).segment_bytes(SEGMENT * 32);
    options.durability(Durability::Never).background(false)
}

fn made() -> (Filter<Bloom>, Arc<Memory>) {
    let memory = Arc::new(Memory::new());
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(1000), options());
    (filter.expect("a filter"), memory)
}

fn insert(filter: &Filter<Bloom>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
}

/// Creates a destination for the copy.
fn place() -> Memory {
    let to = Memory::new();
    to.make().expect("a directory");
    to
}

/// Returns five segments of log with all records from `start` to `end`.
fn log(filter: &Filter<Bloom>) -> (Vec<Arc<Segment>>, SnapshotHeader) {
    let engine = &filter.engine();
    insert(filter, 0..5 * SEGMENT);
    filter.sync().expect("a sync");
    let first = engine.header().timeline_start();
    let held = engine.shared.log.map(first, first + 5 * SEGMENT).expect("all are there");
    assert_eq!(held.len(), 5);
    let (start, end) = (first + 20, first + 5 * SEGMENT - 20);
    let (uuid, timeline) = (engine.shared.meta.uuid, engine.header().identity().timeline);
    (held, SnapshotHeader { uuid, timeline, start, end, frames: 0, bytes: 0 })
}

#[test]
fn a_copy_of_the_log_is_whole_if_and_only_if_no_segment_that_it_needs_is_missing() {
    let (filter, _memory) = made();
    let (held, header) = log(&filter);
    let copied = |held: &[Arc<Segment>], header: &SnapshotHeader| {
        copy_log(filter.engine(), held, &place(), header).expect("space")
    };
    assert!(copied(&held, &header));
    for missing in 0..held.len() {
        let mut held = held.clone();
        let without = held.remove(missing);
        assert!(!copied(&held, &header), "without segment {missing}");
        // Another one twice in its place: the same number of records, but different ones.
        let other = held[missing % held.len()].clone();
        held.push(other);
        held.sort_by_key(|segment| segment.first());
        assert!(!copied(&held, &header), "another one in the place of segment {missing}");
        let (start, end) = (header.start, header.end);
        for (start, end) in [(without.end(), end), (start, without.first())] {
            let needed = start < end && held.iter().any(|segment| segment.holds(start));
            if needed && !(start..end).any(|lsn| without.holds(lsn)) {
                let header = SnapshotHeader { start, end, ..header };
                assert!(copied(&held, &header), "segment {missing} is not needed");
            }
        }
    }
}

/// A handle that stopped while it created a segment may name it after others have filled and
/// removed theirs.
#[test]
fn an_empty_place_in_the_log_is_a_gap() {
    let (filter, _memory) = made();
    let (held, header) = log(&filter);
    for at in 0..held.len() {
        let mut held = held.clone();
        let elsewhere = place();
        held[at] = Arc::new(Segment::create(&elsewhere, *held[at].header(), 0).expect("space"));
        let whole = copy_log(filter.engine(), &held, &place(), &header).expect("space");
        assert!(!whole, "segment {at} is empty");
    }
}

#[test]
fn each_record_of_the_copy_is_the_one_of_the_log() {
    let (filter, _memory) = made();
    let (held, header) = log(&filter);
    let to = place();
    assert!(copy_log(filter.engine(), &held, &to, &header).expect("space"));
    let copy = Segment::open(&to, header.timeline, header.start, header.uuid, Access::Read);
    let copy = copy.expect("a segment");
    assert_eq!((copy.first(), copy.end()), (header.start, header.end));
    for lsn in header.start..header.end {
        let of = held.iter().find(|segment| segment.holds(lsn)).expect("it is held");
        let (Decoded::Valid(found), Decoded::Valid(record)) = (copy.read(lsn), of.read(lsn)) else {
            panic!(
                "record {lsn} is {:?} in the copy, {:?} in the log",
                copy.read(lsn),
                of.read(lsn)
            );
        };
        assert_eq!(found, record, "record {lsn}");
    }
}

/// An action while a copy is written.
type Meanwhile = Box<dyn FnMut() + Send>;

/// A destination for a copy. Whenever a file with such a name is created there, an action on the
/// filter runs.
struct Busy {
    inner: Memory,
    begins: String,
    meanwhile: Mutex<Meanwhile>,
}

impl std::fmt::Debug for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Busy").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Media for Busy {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn make(&self) -> io::Result<()> {
        self.inner.make()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn MediaFile>> {
        if name.starts_with(&self.begins) {
            (self.meanwhile.lock().expect("no panic"))();
        }
        self.inner.create(name, bytes)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn MediaFile>> {
        self.inner.open(name, access)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn locks(&self, name: &str, access: Access) -> io::Result<Box<dyn ByteLocks>> {
        self.inner.locks(name, access)
    }

    fn boot_id(&self) -> io::Result<u128> {
        self.inner.boot_id()
    }
}

/// Makes a backup while another handle fills several segments. The first `times` times, all
/// segments that are durable by then are removed, as two checkpoints of another process would do.
/// Returns the outcome, the destination, and the number of keys.
fn copied_while_log_is_removed(times: u32) -> (Result<()>, Memory, u64) {
    let (filter, memory) = made();
    insert(&filter, 0..1000);
    let other = Filter::<Bloom>::open_on(memory.clone(), options()).expect("it joins");
    let keys = Arc::new(Mutex::new(1000));
    let (counted, mut left) = (keys.clone(), times);
    let meanwhile: Meanwhile = Box::new(move || {
        let mut next = counted.lock().expect("no panic");
        insert(&other, *next..*next + 3 * SEGMENT);
        *next += 3 * SEGMENT;
        other.sync().expect("a sync");
        if left > 0 {
            left -= 1;
            let durable = other.engine().shared.durable();
            for (timeline, first) in Listing::read(&*memory).expect("a directory").segments {
                if first + SEGMENT <= durable {
                    memory
                        .remove(&FileName::Segment { timeline, first }.to_string())
                        .expect("a file");
                }
            }
        }
    });
    let begins = FileName::Temporary(SNAPSHOT_TEMPORARY).to_string();
    let to = Busy { inner: place(), begins, meanwhile: Mutex::new(meanwhile) };
    let made = backup(filter.engine(), &to);
    let keys = *keys.lock().expect("no panic");
    (made, to.inner, keys)
}

#[test]
fn a_filter_that_is_altered_or_closed_while_files_are_copied_once_more_waits_for_no_backup() {
    let (sender, done) = mpsc::channel();
    let copies = move || {
        for closes in [false, true] {
            let (filter, memory) = made();
            insert(&filter, 0..100);
            let filter = Arc::new(filter.into_any());
            let other = Filter::<Any>::open_on(memory, options()).expect("it joins");
            let same = filter.clone();
            let mut runs = 0;
            let meanwhile: Meanwhile = Box::new(move || {
                runs += 1;
                if runs == 1 && closes {
                    same.close().expect("a clean end");
                } else if runs == 1 {
                    other.alter(Bloom::capacity(2000), Unlogged::Forget).expect("an alteration");
                    assert!(same.contains(7_u64.to_le_bytes()).expect("an answer"));
                }
            });
            let to =
                Busy { inner: place(), begins: "second-".into(), meanwhile: Mutex::new(meanwhile) };
            filter.backup_on(&to).expect("a backup");
            let copy =
                Filter::<Bloom>::open_on(Arc::new(to.inner), options()).expect("it is whole");
            assert!(copy.contains(7_u64.to_le_bytes()).expect("an answer"));
            sender.send(()).expect("it is waited for");
        }
    };
    let copying = std::thread::spawn(copies);
    for _ in 0..2 {
        done.recv_timeout(Duration::from_secs(120)).expect("it does not wait");
    }
    copying.join().expect("no panic");
}

#[test]
fn a_backup_under_which_log_was_removed_begins_anew_and_has_all() {
    for times in 0..TRIES {
        let (made, to, keys) = copied_while_log_is_removed(times);
        made.unwrap_or_else(|error| panic!("removed {times} times: {error}"));
        let copy = Filter::<Bloom>::open_on(Arc::new(to), options());
        let copy = copy.unwrap_or_else(|error| panic!("removed {times} times: {error}"));
        assert_eq!(copy.digest().expect("a digest").inserts, keys, "removed {times} times");
        for key in 0..keys {
            assert!(copy.contains(key.to_le_bytes()).expect("an answer"), "key {key}");
        }
    }
}

#[test]
fn a_backup_under_which_log_is_removed_again_and_again_fails_and_leaves_nothing() {
    let (made, to, _) = copied_while_log_is_removed(u32::MAX);
    let Err(error @ Error::Io { .. }) = made else { panic!("{made:?}") };
    assert!(error.to_string().contains("checkpoints removed the log under it"), "{error}");
    let left: Vec<_> = to.list().expect("a directory");
    assert!(left.iter().all(|name| name == "lock"), "{left:?}");
}

#[test]
fn a_backup_beside_inserts_in_its_log_has_what_its_snapshot_has_not() {
    let (made, to, keys) = copied_while_log_is_removed(0);
    made.expect("a backup");
    let listing = Listing::read(&to).expect("a directory");
    assert_eq!((listing.snapshots.len(), listing.segments.len()), (1, 1));
    // Keys inserted meanwhile are in the log of the copy, and the snapshot's header says so.
    let uuid = crate::meta::Meta::read(&to).expect("meta").uuid;
    let snapshot = SnapshotReader::open(&to, listing.snapshots[0], uuid);
    let header = *snapshot.expect("a snapshot").header();
    assert!(header.end - header.start >= 3 * SEGMENT, "{header:?} of {keys} keys");
    assert_eq!(listing.segments, [(header.timeline, header.start)]);
    assert!(inspect::verify_on(&to).expect("a report").is_sound());
}
