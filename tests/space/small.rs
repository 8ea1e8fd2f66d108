//! Small filters: what one of 1,000 keys takes of a disk, and that its log, which gets its space in
//! pieces, loses nothing wherever the disk is full or a process dies.

use ebbtide::media::{Access, Media, Memory};
use ebbtide::{AgePartitioned, Bloom, Durability, Filter, Fingerprint, Keep, Options};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the live image has the word of whoever allocates log, and the end that is allocated.
const GROWING: usize = 48;
const ALLOCATED: usize = 27;

/// What a directory and everything in it occupies, each with its name.
fn occupied(directory: &Path) -> Vec<(u64, String)> {
    let of = |path: &Path| fs::metadata(path).expect("it is there").blocks() * 512;
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| {
        let path = entry.expect("an entry").path();
        (of(&path), path.file_name().expect("a name").to_string_lossy().into_owned())
    });
    entries.chain([(of(directory), ".".to_owned())]).collect()
}

fn assert_small(directory: &Path, when: &str) {
    let files = occupied(directory);
    let bytes: u64 = files.iter().map(|(bytes, _)| bytes).sum();
    assert!(bytes <= 64 << 10, "{bytes} bytes {when}: {files:?}");
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "space is not given back"
)]
fn a_filter_of_a_thousand_keys_takes_at_most_64_kib_of_disk_open_and_closed() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let make = |name: &str| home.path().join(name);
    let window = Filter::create(make("window"), AgePartitioned::last(1_000), Options::new());
    let bloom = Filter::create(make("bloom"), Bloom::capacity(1_000), Options::new());
    let prints = Filter::create(make("prints"), Fingerprint::last(1_000), Options::new());
    let (window, bloom) = (window.expect("a filter"), bloom.expect("a filter"));
    let prints = prints.expect("a filter");
    for key in 0..1_000_u64 {
        window.insert(key.to_le_bytes()).expect("an insert");
        bloom.insert(key.to_le_bytes()).expect("an insert");
        prints.insert(key.to_le_bytes()).expect("an insert");
    }
    let small = |when: &str| {
        ["window", "bloom", "prints"].into_iter().for_each(|name| assert_small(&make(name), when));
    };
    window.sync().and_then(|()| bloom.sync()).and_then(|()| prints.sync()).expect("a sync");
    small("with its keys");
    // The background threads have looked at them, and found nobody busy.
    std::thread::sleep(Duration::from_millis(2500));
    small("when nobody inserts");
    window.close().and_then(|()| bloom.close()).and_then(|()| prints.close()).expect("clean ends");
    small("closed");
}

fn options() -> Options {
    Options::new().hash_seed(7).durability(Durability::Never).background(false)
}

fn made(memory: &Memory) -> Filter<Bloom> {
    let media = Arc::new(memory.clone());
    Filter::create_on(media, Bloom::capacity(1_000), options()).expect("a filter")
}

fn opened(memory: &Memory) -> Filter<Bloom> {
    Filter::open_on(Arc::new(memory.clone()), options()).expect("the filter")
}

/// The only segment: its bytes, and how many of them have their space.
fn log(memory: &Memory) -> (Vec<u8>, u64) {
    let names = memory.list().expect("a directory");
    let mut logs = names.iter().filter(|name| name.starts_with("wal-"));
    let name = logs.next().expect("a segment");
    assert_eq!(logs.next(), None);
    let file = memory.open(name, Access::Write).expect("it is there");
    let mut bytes = vec![0; file.bytes().expect("a length") as usize];
    file.read_at(&mut bytes, 0).expect("its bytes");
    (bytes, file.allocated_bytes().expect("a length"))
}

fn used(memory: &Memory) -> u64 {
    let bytes = |name: &String| {
        memory.open(name, Access::Read).and_then(|file| file.allocated_bytes()).expect("a file")
    };
    memory.list().expect("a directory").iter().map(bytes).sum()
}

#[test]
fn the_first_position_takes_space_and_where_there_is_none_its_batch_fails_as_a_whole() {
    let memory = Memory::new();
    let filter = made(&memory);
    filter.insert(b"before").expect("an insert");
    let before = used(&memory);
    let commit = |filter: &Filter<Bloom>, key: &[u8], source: u64| {
        let mut batch = filter.batch();
        batch.insert(key).expect("an operation");
        batch.set_position(source, 7).expect("a source");
        batch.commit().map(drop)
    };
    memory.set_capacity(before);
    let error = commit(&filter, b"full", 0).expect_err("no space for positions");
    assert!(error.is_full(), "{error}");
    assert!(!filter.contains(b"full").expect("an answer"));
    assert_eq!(filter.positions().expect("positions"), []);
    memory.set_capacity(u64::MAX);
    commit(&filter, b"roomy", 0).expect("space for positions");
    let after = used(&memory);
    assert!(after > before, "{after}");
    memory.set_capacity(after);
    (1..20).for_each(|source| commit(&filter, b"roomy", source).expect("they have their space"));
    assert_eq!(used(&memory), after);
    memory.set_capacity(u64::MAX);
    (20..256).for_each(|source| commit(&filter, b"roomy", source).expect("space for log"));
    drop(filter);
    let filter = opened(&memory);
    assert_eq!(filter.positions().expect("positions").len(), 256);
    commit(&filter, b"again", 300).expect_err("256 are the most");
    commit(&filter, b"again", 200).expect("one that there is");
    assert!(filter.contains(b"again").expect("an answer"));
}

#[test]
fn where_a_piece_of_the_log_finds_no_space_the_insert_fails_and_nothing_is_lost() {
    let memory = Memory::new();
    let filter = made(&memory);
    let (mut key, mut pieces) = (0_u64, 0);
    loop {
        memory.set_capacity(used(&memory));
        let error = loop {
            match filter.insert(key.to_le_bytes()) {
                Ok(_) => key += 1,
                Err(error) => break error,
            }
        };
        assert!(error.is_full(), "{error}");
        assert_eq!(filter.stat().expect("figures").inserts, key);
        let (bytes, allocated) = log(&memory);
        let written = bytes.iter().rposition(|&byte| byte != 0).expect("records") as u64 + 1;
        // But for what a log beyond 256 KiB keeps for other handles.
        let kept = if allocated > 260 << 10 { bytes.len() as u64 / 8 } else { 0 };
        let unused = allocated - written;
        assert!(unused <= kept, "{unused} of {allocated}: up to the last byte, and no further");
        if allocated == bytes.len() as u64 {
            break;
        }
        pieces += 1;
        memory.set_capacity(u64::MAX);
        filter.insert(key.to_le_bytes()).expect("there is space again");
        key += 1;
    }
    assert!(pieces > 8, "{pieces}");
    let before = filter.digest().expect("a digest");
    drop(filter);
    memory.set_capacity(u64::MAX);
    assert_eq!(opened(&memory).digest().expect("a digest").value, before.value);
}

#[test]
fn who_dies_between_allocating_a_piece_and_saying_so_holds_up_nobody() {
    // In all of a segment, or in a piece of it.
    for whole in [false, true] {
        let memory = Memory::new();
        let filter = made(&memory);
        (0..100_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        let image = memory.open("live", Access::Write).and_then(|file| file.map(Access::Write));
        let image = image.expect("the live image");
        let word = |at: usize| &image.words()[at];
        let order = std::sync::atomic::Ordering::Relaxed;
        let (bytes, allocated) = log(&memory);
        let name = memory.list().expect("a directory");
        let name = name.iter().find(|name| name.starts_with("wal-")).expect("a segment");
        let file = memory.open(name, Access::Write).expect("it is there");
        let upto = if whole { bytes.len() as u64 } else { allocated + (8 << 10) };
        file.allocate(allocated..upto).expect("space");
        // It has the turn, and will not end it.
        word(GROWING).fetch_or(1, order);
        let end = word(ALLOCATED).load(order);
        (100..3_000_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        assert!(word(ALLOCATED).load(order) > end);
        let before = filter.digest().expect("a digest");
        // A copy of what all processes leave when they are killed, which has no holes.
        let left = Memory::new();
        left.make().expect("nothing fails yet");
        for name in memory.list().expect("a directory") {
            let file = memory.open(&name, Access::Read).expect("it is there");
            let mut bytes = vec![0; file.bytes().expect("a length") as usize];
            file.read_at(&mut bytes, 0).expect("its bytes");
            let copy = left.create(&name, bytes.len() as u64).expect("space");
            copy.write_at(&bytes, 0).expect("space");
        }
        assert_eq!(opened(&left).digest().expect("a digest").value, before.value);
        drop(filter);
        assert_eq!(opened(&memory).digest().expect("a digest").value, before.value);
    }
}

#[test]
fn two_handles_that_extend_the_log_at_once_lose_nothing() {
    const KEYS: u64 = 60_000;
    let place = tempfile::tempdir().expect("a temporary directory");
    let first = Filter::create(place.path(), Bloom::capacity(100_000), options());
    let first = first.expect("a filter");
    let second = Filter::<Bloom>::open(place.path(), options()).expect("the same one");
    std::thread::scope(|scope| {
        for (half, filter) in [(0, &first), (1, &second)] {
            scope.spawn(move || {
                for key in 0..KEYS / 2 {
                    filter.insert((2 * key + half).to_le_bytes()).expect("an insert");
                }
            });
        }
    });
    let before = first.digest().expect("a digest");
    assert_eq!((before.inserts, first.stat().expect("figures").wal_segments), (KEYS, 2));
    drop((first, second));
    let filter = Filter::<Bloom>::open(place.path(), options()).expect("what was left");
    assert_eq!(filter.digest().expect("a digest").value, before.value);
    assert!((0..KEYS).all(|key| filter.contains(key.to_le_bytes()).expect("an answer")));
}

#[test]
fn a_keep_log_that_found_no_space_beside_other_handles_is_written_by_the_next_opening() {
    let memory = Memory::new();
    let _open = made(&memory);
    let keeping = || {
        let options = options().keep_log(Keep::Bytes(1 << 30));
        Filter::<Bloom>::open_on(Arc::new(memory.clone()), options)
    };
    let left = || {
        let names = memory.list().expect("a directory");
        names.into_iter().filter(|name| name.starts_with("tmp-")).collect::<Vec<_>>()
    };
    memory.set_capacity(0);
    let error = keeping().expect_err("no space for the setting");
    assert!(error.is_full(), "{error}");
    assert_eq!(left(), [""; 0]);
    memory.set_capacity(u64::MAX);
    // Earlier builds wrote the setting under this name, and may have died there.
    memory.create("tmp-3", 0).expect("a file");
    drop(keeping().expect("a handle"));
    assert!(memory.open("keep", Access::Read).is_ok());
    assert_eq!(left(), ["tmp-3"]);
}

#[test]
fn on_a_full_disk_a_clear_and_a_new_amount_take_the_space_of_kept_log() {
    let memory = Memory::new();
    let media = || Arc::new(memory.clone());
    let keeping = options().keep_log(Keep::Bytes(1 << 30)).segment_bytes(16 << 10);
    let filter = Filter::create_on(media(), Bloom::capacity(1_000), keeping).expect("a filter");
    for round in 0..8_u64 {
        for key in 0..1_000 {
            filter.insert((round << 32 | key).to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a checkpoint");
    }
    let is_kept = |name: &&String| name.starts_with("kept-");
    let kept = || memory.list().expect("a directory").iter().filter(is_kept).count();
    let clear = || filter.clear();
    let set = || {
        let options = options().keep_log(Keep::Bytes(1 << 20));
        Filter::<Bloom>::open_on(media(), options).map(drop)
    };
    for take in [&clear as &dyn Fn() -> ebbtide::Result<()>, &set] {
        let before = kept();
        assert!(before > 0, "log is kept");
        memory.set_capacity(used(&memory));
        take().expect("the space of kept log");
        memory.set_capacity(u64::MAX);
        assert!((1..before).contains(&kept()), "the oldest, and no more than is needed");
    }
}
