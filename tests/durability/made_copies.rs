//! New filters that are made of the files of others, by a restore, a restore to a moment and a
//! salvage: whoever dies meanwhile, whatever fails, and when the power fails, there is the whole
//! filter or none.

use crate::claims::options;
use ebbtide::history::At;
use ebbtide::inspect::{restore_at_on, restore_on, salvage_on};
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{Any, Bloom, Durability, Error, Filter, Keep, Options, Reader};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::failing::Failing;
use ebbtide_testkit::random::Random;
use std::io::ErrorKind;
use std::sync::Arc;

/// The claims, by name.
pub const ALL: [(&str, fn()); 3] = [
    ("a_new_filter_whose_maker_died_is_whole_or_none", killed),
    ("a_new_filter_that_was_returned_survives_a_power_cut", cut),
    ("a_new_filter_that_could_not_be_made_is_none_and_can_be_made_again", failed),
];

/// The LSN of a moment of the source.
const MOMENT: u64 = 700;

/// A way to make a filter of the files of another.
struct Way {
    name: &'static str,
    make: fn(&dyn Media, &dyn Media) -> ebbtide::Result<()>,
    source: Arc<dyn Media>,
    /// The digest of what is made.
    value: u128,
}

fn settings() -> Options {
    options().segment_bytes(4 << 10).durability(Durability::Never).keep_log(Keep::Bytes(1 << 30))
}

/// A closed filter with log of several segments behind its newest snapshot.
fn source() -> (Arc<dyn Media>, u128) {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let filter = Filter::create_on(media.clone(), Bloom::capacity(2000), settings());
    let filter = filter.expect("a filter");
    for key in 0..1000_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
        if key % 300 == 299 {
            filter.checkpoint().expect("a checkpoint");
        }
    }
    let value = filter.digest().expect("a digest").value;
    // As if its process had died: without a last snapshot.
    let copy: Arc<dyn Media> = Arc::new(Memory::new());
    for name in media.list().expect("a directory") {
        if name.starts_with("live") || name == "lock" || name.starts_with("tmp") {
            continue;
        }
        let from = media.open(&name, Access::Read).expect("a file");
        let mut bytes = vec![0; from.bytes().expect("its length") as usize];
        from.read_at(&mut bytes, 0).expect("its content");
        copy.make().expect("memory");
        copy.create(&name, 0).and_then(|to| to.write_at(&bytes, 0)).expect("room");
    }
    (copy, value)
}

fn ways() -> Vec<Way> {
    let (whole, value) = source();
    let past = Reader::<Any>::at_on(whole.clone(), At::Lsn(MOMENT), Options::new());
    let past = past.expect("it is kept").digest().expect("a digest").value;
    let (damaged, _) = source();
    let mut snapshots = damaged.list().expect("a directory");
    snapshots.retain(|name| name.starts_with("snap-"));
    snapshots.sort();
    let newest = damaged.open(&snapshots[snapshots.len() - 1], Access::Write).expect("a file");
    let last = newest.bytes().expect("its length") - 8;
    newest.write_at(&[0x5a; 8], last).expect("a damage");
    let restore_at: fn(&dyn Media, &dyn Media) -> ebbtide::Result<()> =
        |from, to| restore_at_on(from, At::Lsn(MOMENT), to).map(drop);
    vec![
        Way { name: "restore", make: restore_on, source: whole.clone(), value },
        Way { name: "restore to a moment", make: restore_at, source: whole, value: past },
        Way {
            name: "salvage",
            make: |from, to| salvage_on(from, to).map(|saved| drop(saved.expect("a damage"))),
            source: damaged,
            value,
        },
    ]
}

impl Way {
    /// Checks that there is the whole filter, or none.
    fn check(&self, left: Arc<dyn Media>, has_meta: bool, what: &str) -> bool {
        let what = format!("{}, {what}", self.name);
        match Filter::<Bloom>::open_on(left, options()) {
            Ok(filter) => {
                assert_eq!(filter.digest().expect("a digest").value, self.value, "{what}");
                true
            }
            Err(Error::NotAFilter { .. } | Error::Damaged { .. }) if !has_meta => false,
            Err(error) => panic!("{what}: {error}"),
        }
    }

    fn check_disk(&self, left: &CrashDisk, what: &str) -> bool {
        let has_meta = !left.names("meta").is_empty();
        self.check(Arc::new(left.clone()), has_meta, what)
    }
}

fn killed() {
    for way in ways() {
        let (mut deaths, mut whole) = (0, 0);
        for calls in 0..1000 {
            let disk = CrashDisk::new();
            disk.die_after(calls);
            let made = (way.make)(&*way.source, &disk);
            let Some(left) = disk.left() else {
                made.expect("nobody died");
                break;
            };
            deaths += 1;
            for seed in 0..scaled(8) {
                let cut = left.without_power(Random::new(mixed(calls, seed)));
                let what = format!("dead after {calls} calls, and a power cut, {seed}");
                whole += u64::from(way.check_disk(&cut, &what));
            }
            let what = format!("dead after {calls} calls");
            if !way.check_disk(&left, &what) {
                // Snapshots and log may be those of a filter that has lost its `meta`.
                match (way.make)(&*way.source, &left) {
                    Ok(()) => assert!(way.check_disk(&left, &what), "{}, {what}", way.name),
                    Err(Error::Damaged { .. }) => {}
                    Err(error) => panic!("{}, {what}, again: {error}", way.name),
                }
            }
        }
        assert!(deaths > 20 && whole > 0, "{}: {deaths} deaths, {whole} whole", way.name);
    }
}

fn mixed(calls: u64, seed: u64) -> u64 {
    ebbtide_testkit::random::mix(calls << 32 | seed)
}

fn cut() {
    for way in ways() {
        let disk = CrashDisk::new();
        (way.make)(&*way.source, &disk).unwrap_or_else(|error| panic!("{}: {error}", way.name));
        for seed in 0..scaled(200) {
            let left = disk.without_power(Random::new(seed));
            assert!(way.check_disk(&left, &format!("a power cut, {seed}")), "{}", way.name);
        }
    }
}

fn failed() {
    for way in ways() {
        for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
            let mut failures = 0;
            for call in 1..1000 {
                let media = Failing::new(Memory::new());
                media.fail_after(call, kind);
                let made = (way.make)(&*way.source, &media);
                if media.clear_faults() {
                    made.unwrap_or_else(|error| panic!("{}: {error}", way.name));
                    break;
                }
                let what = format!("{kind:?} at call {call}");
                if let Err(error) = made {
                    failures += 1;
                    let left = Filter::<Bloom>::open_on(Arc::new(media.clone()), options());
                    assert!(
                        matches!(left, Err(Error::NotAFilter { .. })),
                        "{}, {what}: {left:?}, {error}",
                        way.name
                    );
                    let again = (way.make)(&*way.source, &media);
                    again.unwrap_or_else(|error| panic!("{}, {what}, again: {error}", way.name));
                }
                assert!(way.check(Arc::new(media.clone()), true, &what));
            }
            assert!(failures > 10, "{}: {failures}", way.name);
        }
    }
}
