//! Every damage to every file of a filter, for each end of its last handle.
//!
//! The accepted results are:
//! - the unchanged state; or
//! - an error, after which the filter opens with its unchanged state once the file is restored; or
//! - only after a power cut, and only if the log is damaged: a state with fewer inserts, but with
//!   all durable ones. There a power cut may remove the log's unsynced end. (If the whole newest
//!   segment is missing, its records are lost.)
//!
//! Some files are not needed, or are irreplaceable: for them only one of the first two results is
//! accepted.

use super::damage::{DAMAGES, Damage, ROLES, Role, heal, inflict};
use super::states::{ENDS, End, State, build, kinds, options, place};
use ebbtide::{Any, Error, Filter, inspect};
use std::path::Path;

/// The accepted result of one damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Accepted {
    Same,
    Refused,
    Either,
    /// Or fewer inserts, but all durable ones.
    Prefix,
    /// Or fewer inserts.
    Less,
}

fn accepted(role: Role, damage: Damage, end: End) -> Accepted {
    let no_file = matches!(damage, Damage::Directory | Damage::Symlink);
    match (role, damage) {
        (Role::Meta, _) => Accepted::Refused,
        (Role::Lock, _) if no_file => Accepted::Refused,
        // A rename cannot replace a directory; it can replace a link, which is not a filter's file.
        (Role::Live, Damage::Directory) => Accepted::Refused,
        // Its counters have no checksum. After a kill they determine the accepted gaps and may be
        // wrong.
        (Role::Live, Damage::Flipped(..)) => Accepted::Either,
        (Role::Lock | Role::Live | Role::Bank, _) => Accepted::Same,
        (Role::NewestSnapshot | Role::OlderSnapshot, _) if no_file => Accepted::Either,
        (Role::NewestSnapshot | Role::OlderSnapshot, _) => Accepted::Same,
        (Role::BothSnapshots, Damage::Flipped(..)) => Accepted::Either,
        // The log no longer begins with the first record.
        (Role::BothSnapshots, _) => Accepted::Refused,
        (Role::AllSegments, Damage::Removed) => Accepted::Refused,
        // A removed segment cannot be distinguished from one that was never created.
        (Role::NewestSegment, Damage::Removed) if end == End::PowerCut => Accepted::Less,
        _ if role.is_log() && end == End::PowerCut => Accepted::Prefix,
        _ => Accepted::Either,
    }
}

struct Case<'a> {
    state: &'a State,
    other: &'a State,
    role: Role,
    damage: Damage,
}

impl Case<'_> {
    fn what(&self) -> String {
        format!("{:?} {:?} after {:?}", self.role, self.damage, self.state.end)
    }

    /// Damages a filter and checks the result. Returns false if the damage is not possible.
    fn run(&self, home: &Path) -> bool {
        let (state, what) = (self.state, self.what());
        let files = self.role.files(state);
        assert!(!files.is_empty(), "{what}: no such file");
        state.lay(home);
        for name in &files {
            if !inflict(home, name, self.role, self.damage, self.other) {
                return false;
            }
        }
        let sound = inspect::verify(home).is_ok_and(|report| report.is_sound());
        let opened: Result<Filter, Error> = Filter::open(home, options());
        let accepted = accepted(self.role, self.damage, state.end);
        match opened {
            Ok(filter) => {
                let found = filter.digest().expect("a digest");
                let same =
                    found.value == state.digest.value && found.inserts == state.digest.inserts;
                let least = if accepted == Accepted::Less { 0 } else { state.durable };
                let prefix = (least..state.digest.inserts).contains(&found.inserts);
                assert!(accepted != Accepted::Refused, "{what}: it opened");
                let may = same || accepted >= Accepted::Prefix && prefix;
                let inserts = (found.inserts, state.digest.inserts, state.durable);
                assert!(may, "{what}: another state, inserts (found, all, durable) {inserts:?}");
                assert_closes(filter, self, &what);
            }
            Err(error) => {
                assert!(accepted != Accepted::Same, "{what}: {error}");
                assert!(!sound, "{what}: verify found no damage, but: {error}");
                assert_clear(&error, home, &what);
                for name in &files {
                    heal(home, name, state);
                }
                assert_same(home, state, &format!("{what}, healed after `{error}`"));
            }
        }
        true
    }
}

/// Checks that the filter closes. A checkpoint removes superfluous files and reports an error if it
/// cannot; by then the file is a temporary one.
fn assert_closes(filter: Filter, case: &Case<'_>, what: &str) {
    let stuck = case.role == Role::OlderSnapshot && case.damage == Damage::Directory;
    match filter.close() {
        Ok(()) => {}
        Err(error) if stuck => assert!(
            error.to_string().contains("remove") && error.to_string().contains("tmp-"),
            "{what}: {error}"
        ),
        Err(error) => panic!("{what}: an intact filter must close, but: {error}"),
    }
}

/// Checks that the error names the location, the expected and the found value, and the remedy.
fn assert_clear(error: &Error, home: &Path, what: &str) {
    let text = error.to_string();
    assert!(text.contains(&*home.to_string_lossy()), "{what}: where? {text}");
    match error {
        Error::Damaged { expected, found, remedy, .. } => {
            let parts = [expected.as_str(), found, remedy];
            assert!(parts.iter().all(|part| !part.is_empty()), "{what}: {text}");
            assert!(expected != found, "{what}: {text}");
        }
        Error::Version { expected, found, .. } => assert!(expected != found, "{what}: {text}"),
        Error::NotAFilter { .. } | Error::Io { .. } => {}
        other => panic!("{what}: not the error for a bad file: {other}"),
    }
}

fn assert_same(home: &Path, state: &State, what: &str) {
    let filter: Filter = match Filter::open(home, options()) {
        Ok(filter) => filter,
        Err(error) => panic!("{what}: {error}"),
    };
    let found = filter.digest().expect("a digest");
    assert_eq!(found.inserts, state.digest.inserts, "{what}");
    assert_eq!(found.value, state.digest.value, "{what}");
}

/// Runs cases in separate directories and reports all failures.
fn run_all<'a>(cases: impl Iterator<Item = Case<'a>>) -> usize {
    let place = place();
    let (mut ran, mut failed) = (0, Vec::new());
    for (number, case) in cases.enumerate() {
        let home = place.path().join(number.to_string());
        let run = std::panic::AssertUnwindSafe(|| case.run(&home));
        match std::panic::catch_unwind(run) {
            Ok(done) => ran += usize::from(done),
            Err(_) => failed.push(case.what()),
        }
        let _ = std::fs::remove_dir_all(&home);
    }
    assert!(failed.is_empty(), "{} failed, see above: {failed:#?}", failed.len());
    ran
}

fn states(kind: &Any) -> Vec<(State, State)> {
    ENDS.iter().map(|&end| (build(kind, end), build(kind, end))).collect()
}

#[test]
fn an_undamaged_filter_opens_unchanged_and_verifies() {
    for kind in kinds() {
        for (state, _) in states(&kind) {
            let place = place();
            let home = place.path().join("filter");
            state.lay(&home);
            let report = inspect::verify(&home).expect("a report");
            assert!(report.is_sound(), "{:?}: {report:#?}", state.end);
            assert_same(&home, &state, "undamaged");
        }
    }
}

#[test]
fn a_bad_file_gives_the_same_state_or_an_error_and_nothing_is_lost() {
    for kind in kinds() {
        let states = states(&kind);
        let cases = states.iter().flat_map(|(state, other)| {
            ROLES.iter().flat_map(move |&role| {
                DAMAGES.iter().map(move |&damage| Case { state, other, role, damage })
            })
        });
        assert!(run_all(cases) > 300, "too few cases are possible");
    }
}

#[test]
fn one_flipped_bit_anywhere_gives_the_same_state_or_an_error() {
    // Every byte of the first 200, and about 100 others spread over the file.
    let states = states(&kinds()[0]);
    let cases = states.iter().flat_map(|(state, other)| {
        ROLES.iter().flat_map(move |&role| {
            let length = role.files(state).iter().map(|name| state.files[name].len()).max();
            let length = length.unwrap_or(0);
            let rest = (200..length).step_by((length / 100) | 1);
            (0..200).chain(rest).map(move |at| {
                let damage = Damage::Flipped(at, at as u32 * 5 % 8);
                Case { state, other, role, damage }
            })
        })
    });
    assert!(run_all(cases) > 3000, "files are larger than that");
}

#[test]
fn inspecting_a_damaged_filter_changes_nothing() {
    let (state, other) = (build(&kinds()[0], End::Killed), build(&kinds()[0], End::Killed));
    let place = place();
    for (number, role) in ROLES.into_iter().enumerate() {
        let home = place.path().join(number.to_string());
        state.lay(&home);
        for name in role.files(&state) {
            inflict(&home, &name, role, Damage::Half, &other);
        }
        let before = contents(&home);
        let _ = inspect::verify(&home);
        let _ = inspect::wal(&home, |_| Ok(()));
        assert_eq!(contents(&home), before, "{role:?}");
    }
}

fn contents(home: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(home).expect("a directory");
    let mut all: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .map(|path| (path.display().to_string(), std::fs::read(&path).expect("a file")))
        .collect();
    all.sort();
    all
}

#[test]
fn a_filter_that_lost_its_meta_is_not_replaced_by_a_new_one() {
    // Not even if it was killed before its first snapshot.
    let place = place();
    for (name, keys) in [("killed early", 3_u64), ("killed later", 400)] {
        let home = place.path().join(name);
        let filter = Filter::create(&home, kinds()[0].clone(), options()).expect("a new filter");
        for key in 0..keys {
            filter.insert(key.to_le_bytes()).expect("an insert");
        }
        let copy = home.with_extension("copy");
        copy_files(&home, &copy);
        drop(filter);
        std::fs::rename(copy.join("meta"), place.path().join("meta")).expect("a file");
        let error = Filter::open_or_create(&copy, kinds()[0].clone(), options())
            .expect_err("the filter lost its meta");
        assert!(matches!(error, Error::Damaged { .. }), "{name}: {error}");
        std::fs::rename(place.path().join("meta"), copy.join("meta")).expect("a file");
        let filter: Filter = Filter::open(&copy, options()).expect("the same filter");
        assert_eq!(filter.digest().expect("a digest").inserts, keys, "{name}");
    }
}

#[test]
fn a_lost_log_of_the_last_timeline_is_noticed_even_if_an_older_timeline_has_log() {
    let place = place();
    let home = place.path().join("filter");
    let insert = |filter: &Filter, keys: std::ops::Range<u64>| {
        for key in keys {
            filter.insert(key.to_le_bytes()).expect("an insert");
        }
    };
    let filter = Filter::create(&home, kinds()[0].clone(), options()).expect("a new filter");
    insert(&filter, 0..50);
    // A copy has the files that a power cut leaves. It continues in its own timeline, without a
    // snapshot.
    let copy = place.path().join("copy");
    copy_files(&home, &copy);
    drop(filter);
    let filter: Filter = Filter::open(&copy, options()).expect("the same filter");
    insert(&filter, 50..100);
    filter.sync().expect("a sync");
    let again = place.path().join("again");
    copy_files(&copy, &again);
    drop(filter);
    let (lost, _) = contents(&again).pop().expect("the newest segment comes last");
    assert!(lost.contains("wal-000003-"), "{lost}");
    std::fs::rename(&lost, place.path().join("lost")).expect("a file");
    let error = Filter::<Any>::open(&again, options()).expect_err("50 durable inserts are missing");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(!inspect::verify(&again).expect("a report").is_sound());
    std::fs::rename(place.path().join("lost"), &lost).expect("a file");
    let filter: Filter = Filter::open(&again, options()).expect("nothing is lost");
    assert_eq!(filter.digest().expect("a digest").inserts, 100);
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new directory");
    for (path, bytes) in contents(from) {
        let name = Path::new(&path).file_name().expect("a name");
        std::fs::write(to.join(name), bytes).expect("a file");
    }
}

/// Turns one of the last inserts into the empty slot of a dead writer, and returns how many inserts
/// remain.
fn leave_a_hole(home: &Path, state: &State) -> u64 {
    let name = state.names("wal-").pop().expect("a log");
    let first: u64 = name[11..].parse().expect("a number");
    let mut log = std::fs::read(home.join(&name)).expect("a file");
    let place = |lsn: u64| 4096 + 32 * (lsn - first) as usize;
    // Byte 31 of a record: the operation, and two bits for the source of its time and for batches.
    let is_insert = |&lsn: &u64| log[place(lsn) + 31] & 0x3f == 1;
    // Of a batch, no record counts: an event, and this insert.
    let last = (first..state.digest.lsn).rev().filter(is_insert).nth(5);
    let at = place(last.expect("inserts"));
    log[at..at + 32].fill(0);
    std::fs::write(home.join(&name), log).expect("a file");
    let mut live = std::fs::read(home.join("live")).expect("a file");
    // The lock word of the first ordinary stripe: the second entry of the table in the fourth page.
    live[2048 + 64] = 3;
    std::fs::write(home.join("live"), live).expect("a file");
    state.digest.inserts - 1
}

#[test]
fn a_restored_copy_contains_the_records_after_the_empty_slot_of_a_dead_writer() {
    for kind in kinds() {
        let place = place();
        let [home, restored] = ["filter", "restored"].map(|name| place.path().join(name));
        let state = build(&kind, End::Killed);
        state.lay(&home);
        let left = leave_a_hole(&home, &state);
        let before = contents(&home);
        inspect::restore(&home, &restored).expect("the live image explains the hole");
        assert_eq!(contents(&home), before, "restore must not change its source");
        assert!(inspect::verify(&restored).expect("a report").is_sound());
        let [found, expected] = [&restored, &home].map(|home| {
            let filter: Filter = Filter::open(home, options()).expect("the same filter");
            filter.digest().expect("a digest")
        });
        assert_eq!(expected.inserts, left, "in place the gap is skipped");
        assert_eq!((found.value, found.inserts), (expected.value, expected.inserts));
    }
}

#[test]
fn another_format_version_is_reported_for_every_file() {
    let state = build(&kinds()[1], End::Killed);
    let place = place();
    let newer = |test: &str, names: &[String]| {
        let home = place.path().join(test);
        state.lay(&home);
        for name in names {
            let role = if name == "meta" { Role::Meta } else { Role::NewestSegment };
            assert!(inflict(&home, name, role, Damage::Version, &state), "{name}");
        }
        home
    };
    let is_version = |error: &Error, home: &Path, name: &str| match error {
        Error::Version { path, expected, found } => {
            *found == *expected + 1 && *path == home.join(name)
        }
        _ => false,
    };
    let (snapshots, banks) = (state.names("snap-"), state.names("live-"));
    for name in [state.names("wal-"), snapshots.clone(), vec!["meta".to_owned()]].concat() {
        let home = newer(&format!("with {name}"), std::slice::from_ref(&name));
        let report = inspect::verify(&home).expect("a report");
        let file = report.files.iter().find(|file| file.name == name).expect("each is listed");
        let damage = file.damage.first().expect("it cannot be read");
        assert!(is_version(damage, &home, &name), "{name}: {damage}");
        if !name.starts_with("snap-") {
            let error = Filter::<Any>::open(&home, options()).expect_err("it is needed");
            assert!(is_version(&error, &home, &name), "{name}: {error}");
        }
    }
    // One snapshot is dispensable; both are not.
    let home = newer("both", &snapshots);
    let error = Filter::<Any>::open(&home, options()).expect_err("snapshots are needed");
    assert!(snapshots.iter().any(|name| is_version(&error, &home, name)), "{error}");
    // Files that are recreated at each opening are not checked for their version.
    let home = newer("working image", &[banks, vec!["live".to_owned()]].concat());
    assert_same(&home, &state, "a newer working image");
}
