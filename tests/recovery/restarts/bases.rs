//! Two recovery bases exist at all times: if the newest snapshot is damaged, the older one (or,
//! without one, the log from its beginning) leads to the same state.

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

/// Copies the files that a power cut would leave: snapshots, log, `meta`. If a file disappears
/// meanwhile, a checkpoint is removing files; the copy is then repeated.
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
    panic!("the files of {} never stop changing", from.display());
}

/// Damages the newest snapshot, at another place for each `number`: a second damage of the same
/// bit would repair it. Returns false if there is none.
fn damage_newest(dir: &Path, number: u64) -> bool {
    let Some(newest) = names(dir, "snap-").pop() else { return false };
    let path = dir.join(newest);
    let bytes = fs::metadata(&path).expect("a file").len();
    flip(&path, 4096 + (bytes - 4096) / 2 + 7 * number % ((bytes - 4096) / 2));
    true
}

/// A filter, and its history.
struct History {
    home: tempfile::TempDir,
    dir: PathBuf,
    filter: Option<Filter>,
    options: Options,
    keys: u64,
    moves: u32,
    /// The steps so far, for messages.
    done: Vec<String>,
    /// Whether one base was damaged without a checkpoint since: then there may be only one.
    short: bool,
    /// The number of damages so far.
    damages: u64,
}

impl History {
    fn new(spec: ebbtide::Any, options: Options) -> Self {
        let home = directory();
        let dir = home.path().join("0");
        let filter = Filter::create(&dir, spec, options.clone()).expect("a filter");
        let done = Vec::new();
        Self {
            home,
            dir,
            filter: Some(filter),
            options,
            keys: 0,
            moves: 0,
            done,
            short: false,
            damages: 0,
        }
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

    /// Simulates a power cut after all writes: copies the files without the live image.
    fn crash(&mut self) {
        self.moves += 1;
        let next = self.home.path().join(self.moves.to_string());
        copy_lasting(&self.dir, &next);
        self.filter = None;
        self.dir = next;
        self.open();
    }

    /// Damages the newest snapshot while no handle has the filter open.
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
        self.damages += 1;
        self.short |= damage_newest(&self.dir, self.damages);
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

    /// Checks that both bases lead to the current state.
    fn check(&self, seed: u64) {
        let expected = digest(self.filter());
        for newest_damaged in [false, true] {
            let copied = self.home.path().join("copy");
            copy_lasting(&self.dir, &copied);
            if newest_damaged && (self.short || !damage_newest(&copied, 0)) {
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
fn after_any_history_both_bases_lead_to_the_same_state() {
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
                // The next accident comes after each close, too.
                history.damage(round % 2 == 0);
                history.done.push("the newest snapshot damaged again".to_owned());
                history.check(log_after);
            }
        }
    }
}

/// Checkpoints run whenever they are due, log is removed beside inserts, and the files are checked
/// at any moment.
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
        assert!(history.keys < 4000 || !first.ends_with("-0000000000000001"), "no log was removed");
    }
}
