//! Four processes use a filter that two of them alter, and are killed at any moment.
//!
//! Each child inserts keys of its own, notes each that has returned, and asks for earlier ones. Two
//! of them give the filter another kind and other parameters, again and again. The parent kills
//! one after the other, mostly within an alteration, and starts it again. No child may get an
//! error, and each key that was noted must be there: for the other children, for a child that
//! opens the filter, and for the parent, which opens it when all are dead.
//!
//! `EBBTIDE_ALTERED_KILLS` sets the number of kills (default 200).

use crate::moments::patiently;
use ebbtide::history::Unlogged;
use ebbtide::inspect::verify;
use ebbtide::{Any, Durability, Error, Filter, Keep, Options, Parameters};
use ebbtide_testkit::child::{HANG, program};
use ebbtide_testkit::environment::{SEED, home, number, scaled};
use ebbtide_testkit::random::{Random, mix};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "EBBTIDE_ALTERED_CHILD";
const CHILDREN: u64 = 4;
/// The first children, which alter the filter.
const ALTERING: u64 = 2;
/// Kills of each directory: the log, which each alteration reads, grows.
const KILLS_IN_A_ROW: u64 = 50;
/// Kills after which all children die.
const ALL_DIE: u64 = 10;

/// The claims of this module.
pub const CLAIMS: [(&str, fn()); 1] = [(
    "processes_killed_while_a_filter_is_altered_lose_nothing_and_the_others_continue",
    processes_killed_while_a_filter_is_altered_lose_nothing_and_the_others_continue,
)];

fn options() -> Options {
    // Small segments and checkpoints, so that files come and go.
    Options::new()
        .durability(Durability::Never)
        .segment_bytes(64 << 10)
        .checkpoint_bytes(256 << 10)
        .keep_log(Keep::Bytes(1 << 40))
}

/// Returns one of several kinds, whose windows have room for all keys.
fn spec(number: u64) -> Any {
    let window = (300_000 + 100_000 * (number % 4)).to_string();
    let fpr = if number.is_multiple_of(2) { "0.001" } else { "0.0001" };
    let (kind, size) = match number % 3 {
        0 => ("fingerprint", "window-items"),
        1 => ("age-partitioned", "window-items"),
        _ => ("bloom", "capacity"),
    };
    Any::new(kind, Parameters::new().with(size, window).with("fpr", fpr))
}

fn key(child: u64, number: u64) -> [u8; 8] {
    (child << 48 | number).to_le_bytes()
}

/// What children tell the parent: for each the number of keys that are inserted, whether it alters
/// the filter now, and how often it has.
struct Notes(File);

impl Notes {
    fn open(home: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(home.join("notes")).expect("a file for notes");
        if file.metadata().expect("an open file").len() == 0 {
            file.set_len(3 * 8 * CHILDREN).expect("room for notes");
        }
        Self(file)
    }

    fn set(&self, what: u64, child: u64, value: u64) {
        let at = (what * CHILDREN + child) * 8;
        self.0.write_all_at(&value.to_le_bytes(), at).expect("a note");
    }

    fn get(&self, what: u64, child: u64) -> u64 {
        let mut bytes = [0; 8];
        let at = (what * CHILDREN + child) * 8;
        self.0.read_exact_at(&mut bytes, at).expect("a note");
        u64::from_le_bytes(bytes)
    }
}

const INSERTED: u64 = 0;
const ALTERS: u64 = 1;
const ALTERED: u64 = 2;

/// Plays the role of this process until it is killed; returns false if it has none.
pub fn play_role() -> bool {
    let Ok(text) = std::env::var(ROLE) else { return false };
    let (child, home) = text.split_once('\n').expect("a role");
    let child: u64 = child.parse().expect("a number");
    let home = PathBuf::from(home);
    let (dir, notes) = (home.join("filter"), Notes::open(&home));
    let open = || Filter::<Any>::open_or_create(&dir, spec(0), options());
    let filter = match patiently(open) {
        // It was altered since.
        Err(Error::Mismatch { .. }) => patiently(|| Filter::open(&dir, options())),
        opened => opened,
    };
    let filter = filter.expect("it opens");
    std::thread::scope(|scope| {
        if child < ALTERING {
            scope.spawn(|| alter(&filter, &notes, child));
        }
        insert(&filter, &notes, child);
    });
    true
}

fn insert(filter: &Filter, notes: &Notes, child: u64) {
    let first = notes.get(INSERTED, child);
    for number in first.. {
        match number % 50 {
            // A batch of one.
            7 => {
                let mut batch = filter.batch();
                batch.insert(key(child, number)).expect("room");
                batch.commit().expect("a commit");
            }
            _ => assert!(filter.insert(key(child, number)).expect("an insert")),
        }
        notes.set(INSERTED, child, number + 1);
        let earlier = mix(number) % (number + 1);
        assert!(filter.contains(key(child, earlier)).expect("an answer"), "{earlier} is lost");
        let other = mix(number) % CHILDREN;
        let theirs = notes.get(INSERTED, other);
        if theirs > 0 {
            let asked = mix(number + 1) % theirs;
            let is_there = filter.contains(key(other, asked)).expect("an answer");
            assert!(is_there, "{asked} of {other} is lost for {child}");
        }
        if number % 16 == 0 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

fn alter(filter: &Filter, notes: &Notes, child: u64) {
    for round in notes.get(ALTERED, child).. {
        notes.set(ALTERS, child, 1);
        match filter.alter(spec(child + round), Unlogged::Refuse) {
            Ok(altered) => {
                assert!(altered.is_whole, "{altered:?}");
                notes.set(ALTERED, child, round + 1);
            }
            // The other one does.
            Err(Error::Locked { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        notes.set(ALTERS, child, 0);
        std::thread::sleep(Duration::from_millis(3));
    }
}

struct Child(std::process::Child);

impl Child {
    fn start(home: &Path, child: u64) -> Self {
        let mut command = Command::new(program());
        command.env(ROLE, format!("{child}\n{}", home.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(command.spawn().expect("a child"))
    }

    /// Kills the child, and expects that it lived.
    fn kill(mut self, what: &str) {
        let _ = self.0.kill();
        let status = self.0.wait().expect("it ends");
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("text");
        let killed = status.signal() == Some(9);
        assert!(killed && !said.contains("panicked"), "{what}: {status}: {said}");
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that a filter that no process has open is one of all kinds and has all noted keys.
fn check(home: &Path, notes: &Notes, what: &str) {
    let dir = home.join("filter");
    let filter: Filter = patiently(|| Filter::open(&dir, options())).expect("it opens");
    for child in 0..CHILDREN {
        for number in 0..notes.get(INSERTED, child) {
            let is_there = filter.contains(key(child, number)).expect("an answer");
            assert!(is_there, "{what}: {number} of {child} is lost");
        }
    }
    let digest = filter.digest().expect("a digest");
    filter.close().expect("a close");
    let report = verify(&dir).expect("it is there");
    assert!(report.is_sound(), "{what}: {report:?}");
    let again: Filter = patiently(|| Filter::open(&dir, options())).expect("it opens");
    assert_eq!(again.digest().expect("a digest").value, digest.value, "{what}");
}

fn row(seed: u64, kills: u64) -> (u64, u64) {
    let home = home(false);
    let (notes, mut random) = (Notes::open(home.path()), Random::new(seed));
    let start = |child| Child::start(home.path(), child);
    let mut children: Vec<_> = (0..CHILDREN).map(start).collect();
    let mut within = 0;
    for kill in 1..=kills {
        let what = format!("seed {seed}, kill {kill}");
        let victim = random.below(CHILDREN);
        if victim < ALTERING {
            // Within an alteration.
            let begun = Instant::now();
            while notes.get(ALTERS, victim) == 0 && begun.elapsed() < HANG {
                assert!(children[victim as usize].lives(), "{what}: {victim} has ended");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        within += u64::from(notes.get(ALTERS, victim) == 1);
        let killed = std::mem::replace(&mut children[victim as usize], start(victim));
        notes.set(ALTERS, victim, 0);
        killed.kill(&format!("{what}: {victim}"));
        for (number, child) in children.iter_mut().enumerate() {
            if !child.lives() {
                let child = std::mem::replace(child, start(number as u64));
                child.kill(&format!("{what}: {number}, beside"));
            }
        }
        if kill % ALL_DIE == 0 {
            children.drain(..).zip(0..).for_each(|(child, number): (_, u64)| {
                child.kill(&format!("{what}: all, {number}"));
            });
            (0..CHILDREN).for_each(|child| notes.set(ALTERS, child, 0));
            check(home.path(), &notes, &what);
            children.extend((0..CHILDREN).map(start));
        }
    }
    let altered = (0..ALTERING).map(|child| notes.get(ALTERED, child)).sum();
    for (number, child) in children.into_iter().enumerate() {
        child.kill(&format!("seed {seed}: the end, {number}"));
    }
    check(home.path(), &notes, &format!("seed {seed}: the end"));
    (within, altered)
}

fn processes_killed_while_a_filter_is_altered_lose_nothing_and_the_others_continue() {
    let kills = number("EBBTIDE_ALTERED_KILLS").unwrap_or_else(|| scaled(200));
    let seed = number("EBBTIDE_SEED").unwrap_or(SEED);
    let rows = kills.div_ceil(KILLS_IN_A_ROW);
    let made = (0..rows).map(|at| row(seed ^ at << 16, KILLS_IN_A_ROW.min(kills)));
    let (within, altered) = made.fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    println!("{kills} kills, {within} within an alteration, {altered} alterations, seed {seed}");
    assert!(within > kills / 10 && altered > 0, "{within} kills within {altered} alterations");
}
