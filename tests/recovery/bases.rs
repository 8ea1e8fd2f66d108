//! There are two bases to recover from at all times: if the newest snapshot turns out to be damaged, the older one (or, where
//! there is none, the log from its beginning) leads to the same state.

use super::{digest, directory, flip, insert, kinds, names, open, stream};
use ebbtide::{Filter, Options};
use std::fs;
use std::path::{Path, PathBuf};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % limit
    }
}

/// Copies what a power cut would leave: snapshots, log, `meta`. A file that goes meanwhile belongs to a checkpoint that removes
/// it, so all is copied again.
fn copy_lasting(from: &Path, to: &Path) {
    let lasting = || -> Vec<String> {
        let kept =
            |name: &String| name.starts_with("snap-") || name.starts_with("wal-") || name == "meta";
        names(from, "").into_iter().filter(kept).collect()
    };
    for _ in 0..1000 {
        let _ = fs::remove_dir_all(to);
        fs::create_dir(to).expect("a new directory");
        let listed = lasting();
        let copy = |name: &String| fs::copy(from.join(name), to.join(name)).is_ok();
        if listed.iter().all(copy) && lasting() == listed {
            return;
        }
    }
    panic!("the files of {} never stand still", from.display());
}

/// Damages the newest snapshot in the middle; false if there is none.
fn damage_newest(dir: &Path) -> bool {
    let Some(newest) = names(dir, "snap-").pop() else { return false };
    let path = dir.join(newest);
    let bytes = fs::metadata(&path).expect("a file").len();
    flip(&path, 4096 + (bytes - 4096) / 2);
    true
}

/// A filter, and what has happened to it.
struct History {
    home: tempfile::TempDir,
    dir: PathBuf,
    filter: Option<Filter>,
    options: Options,
    keys: u64,
    moves: u32,
    /// What was done, for messages.
    done: Vec<String>,
    /// One base was damaged, and there has been no checkpoint since: there need not be two.
    short: bool,
}

impl History {
    fn new(spec: ebbtide::Any, options: Options) -> Self {
        let home = directory();
        let dir = home.path().join("0");
        let filter = Filter::create(&dir, spec, options.clone()).expect("a filter");
        let done = Vec::new();
        Self { home, dir, filter: Some(filter), options, keys: 0, moves: 0, done, short: false }
    }

    fn filter(&self) -> &Filter {
        self.filter.as_ref().expect("it is open")
    }

    fn insert(&mut self, count: u64) {
        insert(self.filter(), self.keys..self.keys + count);
        self.keys += count;
    }

    fn close(&mut self) {
        self.filter.take().expect("it is open").close().expect("a clean close");
        self.short = false;
    }

    fn open(&mut self) {
        self.filter = Some(open(&self.dir, self.options.clone()));
    }

    /// As after a power cut when all was written back: the files without the live image, elsewhere.
    fn crash(&mut self) {
        self.moves += 1;
        let next = self.home.path().join(self.moves.to_string());
        copy_lasting(&self.dir, &next);
        self.filter = None;
        self.dir = next;
        self.open();
    }

    /// The newest snapshot is damaged while nobody has the filter open.
    fn damage(&mut self, clean: bool) {
        if clean {
            self.close();
        } else {
            self.moves += 1;
            let next = self.home.path().join(self.moves.to_string());
            copy_lasting(&self.dir, &next);
            self.filter = None;
            self.dir = next;
        }
        self.short |= damage_newest(&self.dir);
        self.open();
    }

    fn step(&mut self, random: &mut Random) {
        let what = match random.below(12) {
            0..=3 => {
                let count = 1 + random.below(300);
                self.insert(count);
                format!("{count} inserts")
            }
            4 | 5 => {
                self.filter().checkpoint().expect("a checkpoint");
                self.short = false;
                "a checkpoint".to_owned()
            }
            6 => {
                self.filter().sync().expect("a sync");
                "a sync".to_owned()
            }
            7 | 8 => {
                self.close();
                self.open();
                "closed and opened".to_owned()
            }
            9 => {
                self.crash();
                "a crash".to_owned()
            }
            10 if !self.short => {
                self.damage(true);
                "the newest snapshot damaged after a clean close".to_owned()
            }
            11 if !self.short => {
                self.damage(false);
                "the newest snapshot damaged after a crash".to_owned()
            }
            _ => return,
        };
        self.done.push(what);
    }

    /// Makes sure that both bases lead to the state that there is.
    fn check(&self, seed: u64) {
        let expected = digest(self.filter());
        for newest_damaged in [false, true] {
            let copied = self.home.path().join("copy");
            copy_lasting(&self.dir, &copied);
            if newest_damaged && (self.short || !damage_newest(&copied)) {
                continue;
            }
            let what = || {
                let done = self.done.join(", ");
                let files = [names(&copied, "snap-"), names(&copied, "wal-")].concat();
                format!("seed {seed}, newest damaged: {newest_damaged}, after {done}: {files:?}")
            };
            let found = Filter::<ebbtide::Any>::open(&copied, self.options.clone());
            let found = found.unwrap_or_else(|error| panic!("{}: {error}", what()));
            let found = digest(&found);
            let (found, expected) =
                ((found.value, found.inserts), (expected.value, expected.inserts));
            assert_eq!(found, expected, "{}", what());
        }
    }
}

#[test]
fn both_bases_lead_to_the_same_state_whatever_has_happened() {
    for seed in 0..20 {
        let spec = kinds()[seed as usize % kinds().len()].clone();
        let mut history = History::new(spec, stream());
        let mut random = Random(seed);
        for _ in 0..25 {
            history.step(&mut random);
            history.check(seed);
        }
    }
}

#[test]
fn after_a_damaged_snapshot_a_clean_close_without_an_insert_leaves_two_bases() {
    for spec in kinds() {
        for log_after in [0, 1, 200] {
            let mut history = History::new(spec.clone(), stream());
            for _ in 0..3 {
                history.insert(300);
                history.filter().checkpoint().expect("a checkpoint");
            }
            history.insert(log_after);
            history.damage(false);
            history.done.push(format!("{log_after} inserts, the newest snapshot damaged"));
            for round in 0..3 {
                history.close();
                history.open();
                history.done.push(format!("clean close {round}"));
                history.check(log_after);
            }
        }
    }
}

/// Checkpoints come whenever they are due, log is removed beside inserts, and the files are looked at anywhen.
#[test]
fn a_busy_filter_has_two_bases_at_any_moment() {
    for (at, spec) in kinds().into_iter().enumerate() {
        let options = stream().background(true).checkpoint_bytes(64 << 10);
        let mut history = History::new(spec, options);
        let mut random = Random(at as u64);
        for round in 0..12 {
            let count = 1 + random.below(4000);
            history.insert(count);
            history.done.push(format!("{count} inserts"));
            history.check(at as u64);
            if round % 5 == 4 {
                history.crash();
                history.done.push("a crash".to_owned());
            }
        }
        let first = names(&history.dir, "wal-").remove(0);
        assert!(history.keys < 4000 || !first.ends_with("-0000000000000001"), "log was removed");
    }
}
