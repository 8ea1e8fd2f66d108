//! Kept files that are damaged, unreadable or something else cost questions about the past that
//! need them, and nothing else. What is asked of the past says what there is of it.

use crate::moments::options;
use ebbtide::history::{At, History, Unlogged};
use ebbtide::inspect::verify_on;
use ebbtide::media::{Access, Disk, Media};
use ebbtide::{AgePartitioned, Any, Counting, Error, Filter, Keep, Options, Reader};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A filter with kept log, in a directory of its own.
struct Kept {
    home: tempfile::TempDir,
    media: Arc<dyn Media>,
}

fn keeping() -> Options {
    options().keep_log(Keep::Bytes(1 << 40))
}

impl Kept {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let media: Arc<dyn Media> = Arc::new(Disk::new(home.path().join("filter")));
        let made = Self { home, media };
        let filter = Filter::create_on(made.media.clone(), AgePartitioned::last(2000), keeping());
        insert(&filter.expect("a filter").into_any(), 0..500);
        made
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("filter")
    }

    /// Opens the filter without a word about what it keeps.
    fn open(&self) -> Filter {
        Filter::open_on(self.media.clone(), options()).expect("a writer")
    }

    fn reader(&self) -> Reader<Any> {
        Reader::open_on(self.media.clone(), options()).expect("a reader")
    }

    fn at(&self, lsn: u64) -> Result<Reader<Any>, Error> {
        Reader::at_on(self.media.clone(), At::Lsn(lsn), options())
    }

    fn history(&self) -> History {
        History::open_on(self.media.clone()).expect("a log").with_undurable()
    }

    /// Returns the names of kept files of a role, the oldest first.
    fn names(&self, role: &str) -> Vec<String> {
        let mut names = self.media.list().expect("a directory");
        names.retain(|name| name.starts_with("kept-") && name.contains(role));
        names.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
        names
    }
}

fn insert(filter: &Filter, keys: Range<u64>) {
    for key in keys {
        filter.insert(key.to_le_bytes()).expect("an insert");
        if key % 100 == 99 {
            filter.checkpoint().expect("a checkpoint");
        }
    }
}

/// Returns the LSN in a file's name.
fn first(name: &str) -> u64 {
    name.rsplit('-').next().and_then(|lsn| lsn.parse().ok()).expect("an LSN")
}

/// What may lie in the place of a file.
const INSTEAD: [fn(&Path); 3] = [
    |path| fs::create_dir(path).expect("a directory"),
    |path| symlink("meta", path).expect("a link"),
    |path| {
        fs::write(path, b"x").expect("a file");
        // Has no effect on root.
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).expect("its mode");
    },
];

#[test]
fn whatever_lies_in_the_place_of_a_kept_file_writers_checkpoints_and_backups_continue() {
    for role in ["snap", "wal", "keep"] {
        for (number, instead) in INSTEAD.iter().enumerate() {
            let kept = Kept::new();
            let name = match role {
                "keep" => role.to_owned(),
                role => kept.names(role)[0].clone(),
            };
            let path = kept.dir().join(&name);
            fs::remove_file(&path).expect("a file");
            instead(&path);
            let filter = kept.open();
            insert(&filter, 500..900);
            assert!(filter.contains(899_u64.to_le_bytes()).expect("an answer"));
            filter.stat().expect("what is kept");
            let copy = kept.home.path().join("copy");
            filter.backup(&copy).unwrap_or_else(|error| panic!("{name}, {number}: {error}"));
            filter.alter(AgePartitioned::last(700), Unlogged::Forget).map_or_else(
                |error| assert!(error.to_string().contains(&name), "{number}: {error}"),
                drop,
            );
            // Also when all that is kept goes.
            drop(filter);
            if role != "keep" {
                let nothing = options().keep_log(Keep::Nothing);
                let filter: Filter = Filter::open_on(kept.media.clone(), nothing).expect("one");
                insert(&filter, 900..1200);
                let mut left = kept.names("");
                left.retain(|other| *other != name);
                assert!(left.is_empty(), "{name}, {number}: {left:?}");
            }
        }
    }
}

#[test]
fn a_question_that_needs_an_unreadable_kept_file_names_it() {
    let kept = Kept::new();
    let name = kept.names("wal")[0].clone();
    let path = kept.dir().join(&name);
    fs::remove_file(&path).expect("a file");
    fs::create_dir(&path).expect("a directory");
    for error in [
        kept.at(first(&name) + 1).expect_err("it is needed"),
        kept.history().read().expect_err("it is needed"),
    ] {
        assert!(error.to_string().contains(&name), "{error}");
    }
    let report = verify_on(&*kept.media).expect("a report");
    assert!(format!("{report:?}").contains(&name), "{report:?}");
}

#[test]
fn a_damaged_record_of_kept_log_hides_nothing_behind_it() {
    let kept = Kept::new();
    let names = kept.names("wal");
    let (bad, next) = (&names[0], first(&names[1]));
    let damaged = first(bad) + 10;
    let file = kept.media.open(bad, Access::Write).expect("kept log");
    file.write_at(&[0xFF; 8], 4096 + 10 * 32).expect("a damage");
    for lsn in damaged + 2..next + 20 {
        let mut history = kept.history().after(At::Lsn(lsn)).expect("sound log");
        let commit = history.read().expect("sound log").expect("an operation");
        assert!(commit.operations[0].lsn > lsn);
    }
    let error = kept.history().after(At::Lsn(damaged - 2)).and_then(|mut log| log.read());
    let error = error.expect_err("the record is needed").to_string();
    assert!(error.contains(bad) && error.contains("--keep-log nothing"), "{error}");
    assert!(!error.contains("acknowledged"), "{error}");
    let keys = [0_u64, 400].map(u64::to_le_bytes);
    let explained = kept.reader().explain(&keys, 10).expect("log behind it");
    assert!(!explained.log.is_complete && explained.log.first > damaged, "{:?}", explained.log);
    assert!(explained.keys[0].records.is_empty() && explained.keys[0].present);
    assert_eq!(explained.keys[1].records.len(), 1);
    // The log in use is another matter.
    let mut own = kept.media.list().expect("a directory");
    own.retain(|name| name.starts_with("wal-"));
    own.sort();
    let file = kept.media.open(&own[0], Access::Write).expect("log");
    file.write_at(&[0xFF; 8], 4096).expect("a damage");
    kept.reader().explain(&keys, 10).expect_err("the log is damaged");
}

#[test]
fn records_have_the_weight_that_they_had_when_they_were_written() {
    let kept = Kept::new();
    let filter = kept.open();
    for _ in 0..2 {
        filter.insert("five").expect("an insert");
    }
    filter.alter(Counting::capacity(4000), Unlogged::Refuse).expect("its log is kept");
    filter.remove("five").expect("a removal");
    let reader = kept.reader();
    let explained = reader.explain(&["five"], 10).expect("an explanation");
    let weights: Vec<_> = explained.keys[0].records.iter().map(|one| one.weight).collect();
    assert_eq!((weights, explained.keys[0].present), (vec![1, 1, 1], true));
}

#[test]
fn the_error_of_a_moment_that_is_not_kept_names_those_of_all_parameters() {
    let kept = Kept::new();
    let filter = kept.open();
    filter.alter(AgePartitioned::last(700), Unlogged::Forget).expect("its log is kept");
    let last = filter.digest().expect("a digest").lsn - 1;
    for error in [
        kept.at(1 << 40).expect_err("it has not come yet"),
        kept.history().after(At::Lsn(1 << 40)).expect_err("it has not come yet"),
    ] {
        let Error::NotKept { from: 0, end, lacks_keep_log: false, .. } = error else {
            panic!("{error:?}")
        };
        assert!(end > last && !error.to_string().contains("keep_log"), "{error}");
    }
}

/// Creates an empty segment under the former name of a kept one, as a creator does that was stopped
/// just before, while others have filled and kept theirs. Returns the name.
fn name_late(kept: &Kept, segment: &str) -> String {
    const PAGE: usize = 4096;
    let mut bytes = fs::read(kept.dir().join(segment)).expect("a kept segment");
    bytes[PAGE..].fill(0);
    let former = segment[segment.find("wal-").expect("a segment")..].to_owned();
    fs::write(kept.dir().join(&former), bytes).expect("space");
    former
}

#[test]
fn a_kept_segment_is_read_although_its_creator_named_an_empty_one_late() {
    let kept = Kept::new();
    let filter = kept.open();
    let segments = kept.names("wal");
    assert!(segments.len() > 2, "{segments:?}");
    let commits = || -> Vec<_> { kept.history().map(|read| read.expect("a commit")).collect() };
    for segment in segments {
        let state = || {
            let digest = kept.at(first(&segment) + 50).and_then(|reader| reader.digest());
            (digest.expect("a state").value, commits())
        };
        let before = state();
        let former = name_late(&kept, &segment);
        assert_eq!(state(), before, "{segment}");
        assert!(verify_on(&*kept.media).expect("a report").is_sound(), "{segment}");
        filter.checkpoint().expect("a checkpoint");
        assert_eq!(state(), before, "{segment}");
        let names = kept.media.list().expect("a directory");
        assert!(names.contains(&segment) && !names.contains(&former), "{names:?}");
    }
}

#[test]
fn an_empty_segment_that_was_named_after_the_kept_one_had_been_removed_is_not_kept() {
    let kept = Kept::new();
    let filter = kept.open();
    insert(&filter, 500..1500);
    let segments = kept.names("wal");
    let segment = &segments[1];
    let bytes = fs::read(kept.dir().join(segment)).expect("a segment");
    let is_older = |name: &String| first(name) <= first(segment);
    let older = segments.iter().filter(|name| is_older(name)).cloned();
    for name in older.chain(kept.names("snap").into_iter().filter(is_older)) {
        fs::remove_file(kept.dir().join(name)).expect("it is there");
    }
    let commits = || -> Vec<_> { kept.history().map(|read| read.expect("a commit")).collect() };
    let before = commits();
    fs::write(kept.dir().join(segment), bytes).expect("space");
    let former = name_late(&kept, segment);
    fs::remove_file(kept.dir().join(segment)).expect("it is there");
    insert(&filter, 1500..1700);
    let after = commits();
    assert_eq!((&after[..before.len()], after.len()), (&before[..], before.len() + 200));
    let names = kept.media.list().expect("a directory");
    assert!(!names.iter().any(|name| name.ends_with(&former)), "{names:?}");
    assert!(verify_on(&*kept.media).expect("a report").is_sound());
    filter.alter(AgePartitioned::last(700), Unlogged::Forget).expect("the log is read");
}

#[test]
fn what_is_kept_survives_an_opening_that_is_refused_for_its_parameters() {
    let kept = Kept::new();
    kept.open().checkpoint().expect("a snapshot");
    let before = kept.names("");
    assert!(!before.is_empty());
    let nothing = || options().keep_log(Keep::Nothing);
    let refused = Filter::open_as(kept.dir(), AgePartitioned::last(50), nothing());
    assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
    let refused = Filter::open_or_create(kept.dir(), AgePartitioned::last(50), nothing());
    assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
    assert_eq!(kept.names(""), before);
    assert_eq!(kept.reader().stat().expect("figures").keep_log, Keep::Bytes(1 << 40));
    let same = Filter::open_as(kept.dir(), AgePartitioned::last(2000), options());
    same.expect("it has these parameters").close().expect("closed");
    let missing = kept.home.path().join("missing");
    let refused = Filter::open_as(&missing, AgePartitioned::last(2000), options());
    assert!(matches!(refused, Err(Error::NotAFilter { .. })) && !missing.exists());
}
