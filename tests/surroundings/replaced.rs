//! Filters whose directory is moved, removed or replaced while processes have it open: their
//! handles get an error, or continue in the moved directory, and do not touch a filter that takes
//! its place. Also tests the owner of new files.

use ebbtide::history::{History, Unlogged};
use ebbtide::{
    AgePartitioned, Checked, Clock, Durability, Error, Filter, ImagePlace, Keep, Options, Reader,
    inspect,
};
use ebbtide_testkit::random::Random;
use ebbtide_testkit::skipped::skipped;
use ebbtide_testkit::{child, environment};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

type Seen = Filter<AgePartitioned>;

fn options(background: bool) -> Options {
    let options = Options::new().segment_bytes(4 << 10).stripes(4).clock(Clock::stream());
    options.durability(Durability::Never).background(background)
}

fn spec() -> AgePartitioned {
    AgePartitioned::last(10_000).fpr(1e-9)
}

fn create(dir: &Path) -> Seen {
    Filter::create(dir, spec(), options(true)).unwrap_or_else(|error| panic!("{error}"))
}

/// Creates a filter in a directory that was just emptied. A file of an old handle may appear
/// between the check and the creation of `meta`, within microseconds; creation then reports it.
/// (As a foreign one if the old handle is stopped for long before it writes the file's header.)
fn create_anew(dir: &Path) -> Seen {
    for _ in 0..3 {
        match Filter::create(dir, spec(), options(true)) {
            Ok(filter) => return filter,
            Err(Error::Damaged { .. } | Error::Occupied { .. }) => {
                take_away(dir, Taken::Emptied);
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("late files in every attempt");
}

fn insert(filter: &Seen, keys: std::ops::Range<u64>) -> Result<(), Error> {
    keys.into_iter().try_for_each(|key| filter.insert(key.to_le_bytes()).map(|_| ()))
}

fn has(filter: &Seen, keys: std::ops::Range<u64>) -> bool {
    keys.into_iter().all(|key| filter.contains(key.to_le_bytes()).expect("an answer"))
}

/// Uses a handle whose directory now belongs to another filter.
fn straggle(filter: Seen, random: &mut Random) -> Result<(), Error> {
    for _ in 0..4 {
        match random.below(4) {
            0 => insert(&filter, 50_000..50_000 + random.below(600))?,
            1 => filter.sync()?,
            2 => drop(filter.checkpoint()?),
            _ => filter.clear()?,
        }
    }
    if random.below(2) == 0 { filter.close() } else { Ok(()) }
}

/// The ways in which the directory is taken away from open handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Removed,
    Emptied,
    Moved,
}

fn take_away(dir: &Path, how: Taken) {
    match how {
        // An old handle's new file may appear during the removal; repeat it then.
        Taken::Removed => while fs::remove_dir_all(dir).is_err() {},
        Taken::Emptied => {
            let left =
                || fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("one").path());
            // As above.
            while left().map(fs::remove_file).count() > 0 {}
        }
        Taken::Moved => {
            let away = dir.with_extension("old");
            let _ = fs::remove_dir_all(&away);
            fs::rename(dir, away).expect("moved");
        }
    }
}

#[test]
fn a_filter_in_the_place_of_another_stays_intact_beside_old_handles() {
    let rounds = environment::number("EBBTIDE_ROUNDS").unwrap_or(60);
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let mut random = Random::new(15);
    let mut refused = BTreeMap::new();
    for round in 0..rounds {
        let how = [Taken::Removed, Taken::Emptied, Taken::Moved][random.below(3) as usize];
        let mut left: Vec<Seen> = vec![create(&dir)];
        for _ in 0..random.below(2) {
            left.push(Filter::open(&dir, options(random.below(2) == 0)).expect("a filter"));
        }
        insert(&left[0], 0..random.below(700)).expect("inserted");
        if random.below(2) == 0 {
            left[0].checkpoint().expect("a snapshot");
        }
        take_away(&dir, how);
        let straggler = left.pop().expect("one");
        // One old handle works while the new filter is created, the others after.
        let mut other = Random::new(round);
        let racing = std::thread::spawn(move || straggle(straggler, &mut other));
        let filter = create_anew(&dir);
        let keys = 100..100 + random.below(500);
        insert(&filter, keys.clone()).expect("inserted");
        let mut ends = vec![racing.join().expect("no panic")];
        ends.extend(left.into_iter().map(|straggler| straggle(straggler, &mut random)));
        for end in ends {
            match end {
                Ok(()) => *refused.entry((format!("{how:?}"), "continued")).or_insert(0) += 1,
                Err(Error::Retired { replaced, .. }) => {
                    assert!(replaced && how != Taken::Moved, "round {round}, {how:?}");
                    *refused.entry((format!("{how:?}"), "told")).or_insert(0) += 1;
                }
                // During the removal of its files, which are named.
                Err(Error::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && how != Taken::Moved => {}
                Err(error) => panic!("round {round}, {how:?}: {error}"),
            }
        }
        let what = format!("round {round}, {how:?}, seed 15");
        assert!(has(&filter, keys.clone()), "{what}");
        assert_eq!(filter.stat().expect("figures").inserts, keys.end - keys.start, "{what}");
        let digest = filter.digest().expect("a digest").value;
        if random.below(2) == 0 {
            filter.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        } else {
            drop(filter);
        }
        let report = inspect::verify(&dir).expect("a report");
        assert!(report.is_sound(), "{what}: {report:?}");
        let again =
            Filter::open(&dir, options(true)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found: Seen = again;
        assert_eq!(found.digest().expect("a digest").value, digest, "{what}");
        drop(found);
        fs::remove_dir_all(&dir).expect("removed");
    }
    println!("{refused:?}");
    assert!(refused.keys().any(|(_, what)| *what == "told"));
}

#[test]
fn a_handle_that_finds_log_of_another_filter_reports_that_its_own_was_replaced() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let filter: Seen = Filter::create(&dir, spec(), options(false)).expect("a filter");
    let open = || -> Seen { Filter::open(&dir, options(false)).expect("the filter") };
    let behind = [open(), open(), open()];
    insert(&filter, 0..1000).expect("it extends the log, which the others have not mapped");
    take_away(&dir, Taken::Emptied);
    let other = Filter::create(&dir, spec(), options(false)).expect("another filter");
    insert(&other, 0..1000).expect("its log has the same names");
    let digest = other.digest().expect("a digest").value;
    let ends = [
        insert(&behind[0], 0..1000),
        behind[1].sync(),
        behind[2].backup(place.path().join("copy")).map(|_| ()),
    ];
    for end in ends {
        assert!(matches!(end, Err(Error::Retired { replaced: true, .. })), "{end:?}");
    }
    assert_eq!(other.digest().expect("a digest").value, digest);
    other.close().expect("closed");
    assert!(inspect::verify(&dir).expect("a report").is_sound());
}

#[test]
fn a_moved_filter_continues_in_its_new_directory() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (dir, away) = (place.path().join("seen"), place.path().join("away"));
    let filter = create(&dir);
    insert(&filter, 0..300).expect("inserted");
    fs::rename(&dir, &away).expect("moved");
    insert(&filter, 300..900).expect("segments are made where it is now");
    filter.checkpoint().expect("a snapshot");
    assert!(!dir.exists());
    let other: Seen = Filter::open(&away, options(false)).expect("it joins");
    assert!(has(&other, 0..900));
    filter.close().expect("closed");
    other.close().expect("closed");
    assert!(inspect::verify(&away).expect("a report").is_sound());
}

#[test]
fn a_handle_of_a_removed_filter_gets_an_error_and_creates_no_file() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let filter = create(&dir);
    insert(&filter, 0..10).expect("inserted");
    fs::remove_dir_all(&dir).expect("removed");
    let error = filter.sync().expect_err("its files are gone");
    assert!(matches!(error, Error::Retired { replaced: true, .. }), "{error}");
    assert!(error.to_string().contains("was removed or replaced"), "{error}");
    let told = insert(&filter, 10..11).expect_err("later inserts are refused");
    assert!(matches!(told, Error::Retired { .. }), "{told}");
    assert!(filter.close().is_err() && !dir.exists());
}

#[test]
fn positions_and_claims_of_a_removed_filter_are_no_answer() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let filter = create(&dir);
    let mut batch = filter.batch();
    batch.set_position(1, 7).and_then(|()| batch.commit()).expect("a position");
    filter.claim("key", Duration::from_secs(60)).map(drop).expect("a claim");
    assert_eq!(filter.position(1).expect("a position"), Some(7));
    fs::remove_dir_all(&dir).expect("removed");
    let other = create(&dir);
    let error = filter.sync().expect_err("another filter is there");
    assert!(matches!(error, Error::Retired { replaced: true, .. }), "{error}");
    let ends = [
        filter.position(1).map(drop),
        filter.positions().map(drop),
        filter.claims().map(drop),
        filter.contains("key").map(drop),
    ];
    for end in ends {
        assert!(matches!(end, Err(Error::Retired { replaced: true, .. })), "{end:?}");
    }
    assert_eq!(other.positions().expect("an answer"), []);
}

#[test]
fn a_reader_follows_the_path_to_the_current_filter() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let filter = create(&dir);
    insert(&filter, 0..10).expect("inserted");
    let reader = Reader::<AgePartitioned>::open(&dir, options(false)).expect("a reader");
    assert!(reader.contains(3_u64.to_le_bytes()).expect("an answer"));
    drop(filter);
    fs::remove_dir_all(&dir).expect("removed");
    let filter = create(&dir);
    insert(&filter, 20..30).expect("inserted");
    let begun = std::time::Instant::now();
    while !reader.contains(23_u64.to_le_bytes()).expect("an answer") {
        assert!(begun.elapsed().as_secs() < 30, "it still shows the removed filter");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!reader.contains(3_u64.to_le_bytes()).expect("an answer"));
}

#[test]
fn log_and_snapshots_of_another_filter_are_named_and_ignored() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (dir, other) = (place.path().join("seen"), place.path().join("other"));
    let filter = create(&other);
    for round in 0..3 {
        insert(&filter, round * 400..(round + 1) * 400).expect("inserted");
        filter.checkpoint().expect("a snapshot");
    }
    insert(&filter, 1200..2000).expect("inserted");
    let filter = create(&dir);
    insert(&filter, 5000..5050).expect("inserted");
    let digest = filter.digest().expect("a digest").value;
    drop(filter);
    let mut put = 0;
    for entry in fs::read_dir(&other).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = name.starts_with("wal-") || name.starts_with("snap-");
        // Also at the names of the filter's own next segments.
        if is_ours && !dir.join(&name).exists() {
            fs::copy(entry.path(), dir.join(&name)).expect("copied");
            put += 1;
        }
    }
    assert!(put > 3, "{put} files");
    let report = inspect::verify(&dir).expect("a report");
    assert!(report.is_sound(), "{report:?}");
    let named = report.files.iter().filter(|file| file.detail.contains("of another filter"));
    assert_eq!(named.count(), put);
    let filter: Seen = Filter::open(&dir, options(true)).expect("it opens");
    assert_eq!(filter.digest().expect("a digest").value, digest);
    insert(&filter, 6000..9000).expect("inserted");
    assert!(has(&filter, 5000..5050) && has(&filter, 6000..9000));
    filter.close().expect("closed");
    let filter: Seen = Filter::open(&dir, options(true)).expect("it opens");
    assert!(has(&filter, 6000..9000) && !has(&filter, 0..10));
}

/// Returns name, owner, group and mode of every file but temporary ones, which a background thread
/// may just be making: a file gets its owner before its name.
fn owners(dir: &Path) -> Vec<(String, u32, u32, u32)> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let is_temporary =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("tmp-");
    let entries = entries.filter(|entry| !is_temporary(entry));
    let owner = |entry: fs::DirEntry| {
        let metadata = entry.metadata().expect("it is there");
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
    };
    entries.map(owner).collect()
}

#[test]
fn files_created_by_root_belong_to_the_owner_of_the_filter() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    create(&dir).close().expect("closed");
    const NOBODY: u32 = 65534;
    for path in fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("one").path()) {
        if chown(path, Some(NOBODY), Some(NOBODY)).is_err() {
            skipped("only root can give files away");
            return;
        }
    }
    let filter: Seen = Filter::open(&dir, options(true)).expect("a filter");
    insert(&filter, 0..1000).expect("inserted");
    filter.checkpoint().expect("a snapshot");
    // A filter of another owner, in the same process.
    let of_root = create(&place.path().join("of root"));
    for (name, user, group, mode) in owners(&place.path().join("of root")) {
        let expected = if name.starts_with("attach-") { 0o666 } else { 0o600 };
        assert_eq!((user, group, mode), (0, 0, expected), "{name}, of root");
    }
    of_root.close().expect("closed");
    for (name, user, group, mode) in owners(&dir) {
        let expected = if name.starts_with("attach-") { 0o666 } else { 0o600 };
        assert_eq!((user, group, mode), (NOBODY, NOBODY, expected), "{name}, open");
    }
    filter.close().expect("closed");
    for (name, user, group, _) in owners(&dir) {
        assert_eq!((user, group), (NOBODY, NOBODY), "{name}, closed");
    }
}

#[test]
fn a_filter_shared_by_a_group_stays_shared_for_any_umask() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let shared = options(true).mode(0o660);
    let filter: Seen = Filter::create(&dir, spec(), shared).expect("a filter");
    insert(&filter, 0..1000).expect("inserted");
    filter.checkpoint().expect("a snapshot");
    for (name, _, _, mode) in owners(&dir) {
        // Whoever reaches the directory may ask at a socket.
        let expected = if name.starts_with("attach-") { 0o666 } else { 0o660 };
        assert_eq!(mode, expected, "{name}");
    }
    let mode = fs::metadata(&dir).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o070, 0o070, "the group may create files there");
}

#[test]
fn a_temporary_file_of_an_old_handle_does_not_keep_a_new_filter_from_its_directory() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path().join("seen");
    let filter = create(&dir);
    insert(&filter, 0..10).expect("inserted");
    let header = fs::read(dir.join("live")).expect("the image");
    // An old handle has created the file, and writes its header or removes it a little later.
    for removed in [false, true] {
        take_away(&dir, Taken::Emptied);
        let file = dir.join("tmp-4294967298");
        fs::write(&file, [0; 4096]).expect("created");
        let (late, start) = (file.clone(), header.clone());
        let straggler = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            if removed { fs::remove_file(late) } else { fs::write(late, start) }
        });
        let created = Seen::create(&dir, spec(), options(true)).unwrap_or_else(|e| panic!("{e}"));
        // Creation removes what it finds; the file may also be gone before it is examined.
        let _ = straggler.join().expect("no panic");
        insert(&created, 0..100).expect("inserted");
        assert!(has(&created, 0..100));
    }
}

#[test]
fn foreign_files_with_a_filters_names_are_refused_and_not_changed() {
    for name in ["live", "live-000009-0000", "tmp-7", "lock"] {
        let place = tempfile::tempdir().expect("a temporary directory");
        let path = place.path().join(name);
        fs::write(&path, "not a filter's file").expect("written");
        let error =
            Seen::create(place.path(), spec(), options(false)).expect_err("it is in the way");
        assert!(error.to_string().contains(name), "{name}: {error}");
        assert_eq!(fs::read(&path).expect("it is there"), b"not a filter's file", "{name}");
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(place.path().join("tmp-3")).expect("a directory");
    fs::write(place.path().join("live"), "mine").expect("written");
    Seen::create(place.path(), spec(), options(false)).expect_err("both are in the way");
    assert_eq!(fs::read(place.path().join("live")).expect("it is there"), b"mine");
}

/// Runs a test as a separate process of this binary, for properties of a process: working directory
/// and descriptors. Its role is a directory.
fn in_a_process_of_its_own(test: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(child::program());
    let role = home.path().display().to_string();
    let output = child::give_to(&mut command, module_path!(), test, &role).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{test}: {}", String::from_utf8_lossy(&output.stderr));
    home
}

fn role() -> Option<PathBuf> {
    child::role().map(PathBuf::from)
}

#[test]
fn a_working_directory_that_changes_does_not_matter() {
    let Some(home) = role() else {
        in_a_process_of_its_own("a_working_directory_that_changes_does_not_matter");
        return;
    };
    std::env::set_current_dir(&home).expect("it is there");
    let filter = create(Path::new("seen"));
    let reader = Reader::<AgePartitioned>::open("seen", options(false)).expect("a reader");
    fs::create_dir(home.join("elsewhere")).expect("a directory");
    std::env::set_current_dir(home.join("elsewhere")).expect("it is there");
    insert(&filter, 0..1000).expect("inserted");
    filter.checkpoint().expect("a snapshot");
    filter.close().expect("closed");
    assert!(reader.contains(7_u64.to_le_bytes()).expect("an answer"));
    assert_eq!(fs::read_dir(home.join("elsewhere")).expect("a directory").count(), 0);
}

#[test]
fn a_program_without_standard_streams_does_not_print_into_a_filters_file() {
    let Some(home) = role() else {
        let test = "a_program_without_standard_streams_does_not_print_into_a_filters_file";
        let home = in_a_process_of_its_own(test);
        let dir = home.path().join("seen");
        assert!(inspect::verify(&dir).expect("a report").is_sound());
        let filter: Seen = Filter::open(&dir, options(false)).expect("a filter");
        assert!(has(&filter, 0..1000));
        return;
    };
    let close = |stream| {
        // SAFETY: from here on this process uses the standard streams only to show that they are
        // harmless.
        #[expect(unsafe_code, reason = "the claim is about descriptors that were closed")]
        unsafe {
            libc::close(stream)
        }
    };
    let kept = [0, 1, 2].map(|stream| rustix::io::fcntl_dupfd_cloexec(borrowed(stream), 100));
    let kept = kept.map(|kept| kept.expect("a descriptor"));
    let _closed = [0, 1, 2].map(close);
    let filter = Filter::create(home.join("seen"), spec(), options(false)).expect("a filter");
    insert(&filter, 0..1000).expect("inserted");
    // One whose image is in memory, which a thread hands out.
    let in_memory = options(false).image(ImagePlace::Memory);
    let large = Filter::create(home.join("large"), spec(), in_memory).expect("a filter");
    for stream in [0, 1, 2] {
        assert!(rustix::io::fcntl_getfd(borrowed(stream)).is_err(), "{stream} is in use");
        let _ = rustix::io::write(borrowed(stream), b"a message on a standard stream");
    }
    assert_eq!(filter.check_and_insert(5_u64.to_le_bytes()).expect("inserted"), Checked::Present);
    large.close().expect("closed");
    filter.close().expect("closed");
    for (stream, kept) in [0, 1, 2].into_iter().zip(&kept) {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "the test harness gets its streams back")]
        unsafe {
            libc::dup2(std::os::fd::AsRawFd::as_raw_fd(kept), stream)
        };
    }
}

fn borrowed(stream: i32) -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: the descriptor is only queried or written to; a number that is not in use gives an
    // error.
    #[expect(unsafe_code, reason = "standard streams that may be closed have no safe owner")]
    unsafe {
        std::os::fd::BorrowedFd::borrow_raw(stream)
    }
}

/// The ways in which a directory loses its filter under a reader of the log.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Gone {
    Moved,
    Removed,
    RestoredBeside,
    RestoredInside,
    Altered,
}

#[test]
fn a_reader_of_a_log_notices_that_the_filter_was_removed_or_replaced() {
    const KEPT: u64 = 40;
    let end = Duration::from_secs(60);
    for how in
        [Gone::Moved, Gone::Removed, Gone::RestoredBeside, Gone::RestoredInside, Gone::Altered]
    {
        let place = tempfile::tempdir().expect("a temporary directory");
        let [dir, copy] = ["seen", "copy"].map(|name| place.path().join(name));
        let keeping = options(true).keep_log(Keep::Bytes(1 << 30));
        let filter = Filter::create(&dir, spec(), keeping).expect("a filter");
        insert(&filter, 0..KEPT).expect("inserted");
        let mut history = History::open(&dir).expect("a log").with_undurable();
        let mut count = 0;
        while history.read().expect("no error").is_some() {
            count += 1;
        }
        assert_eq!(count, KEPT);
        let altered = (how == Gone::Altered)
            .then(|| filter.alter(spec().fpr(1e-6), Unlogged::Forget).expect("altered"));
        filter.close().expect("closed");
        if matches!(how, Gone::RestoredBeside | Gone::RestoredInside) {
            inspect::restore(&dir, &copy).expect("a copy");
        }
        match how {
            Gone::Removed => fs::remove_dir_all(&dir).expect("removed"),
            Gone::Moved => take_away(&dir, Taken::Moved),
            Gone::RestoredBeside => {
                take_away(&dir, Taken::Moved);
                fs::rename(&copy, &dir).expect("in its place");
            }
            // As a restored backup: with the same uuid, and in the same directory.
            Gone::RestoredInside => {
                take_away(&dir, Taken::Emptied);
                inspect::restore(&copy, &dir).expect("in its place");
            }
            Gone::Altered => {}
        }
        let begun = Instant::now();
        let read = loop {
            match history.wait(Duration::from_millis(100)) {
                Ok(None) if begun.elapsed() < end && altered.is_none() => {}
                Ok(None) if begun.elapsed() < Duration::from_secs(3) => {}
                read => break read,
            }
        };
        match (how, read) {
            (Gone::Moved | Gone::Removed, Err(Error::NotAFilter { .. })) => {}
            (
                Gone::RestoredBeside | Gone::RestoredInside,
                Err(Error::Retired { replaced: true, .. }),
            ) => {}
            (Gone::Altered, Ok(None)) => {
                insert(&Filter::open(&dir, options(false)).expect("it"), 0..1).expect("inserted");
                assert!(history.wait(end).expect("no error").is_some());
            }
            (_, read) => panic!("{how:?}: {read:?}"),
        }
    }
}
