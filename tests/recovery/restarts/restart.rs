//! Random histories of operations, restarts and copies, compared with a filter that only runs the
//! operations.
//!
//! `EBBTIDE_CASES` sets the number of histories (default 16), `EBBTIDE_SEED` the seed.

use super::{copy, digest, directory, kinds, open, options};
use ebbtide::media::Memory;
use ebbtide::{Any, Clock, Filter, ManualClock, Options, Timestamp, inspect};
use ebbtide_testkit::environment::{SEED, number};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A step of a history.
#[derive(Debug, Clone)]
enum Step {
    Insert(u16),
    Check(u16),
    /// An insert with its own time, at this offset from now in milliseconds, not in the future: how
    /// long the filter then stays ahead of the clock depends on when it is closed (docs/time.md).
    InsertAt(u16, i64),
    Advance(u64),
    Checkpoint,
    Sync,
    Reopen,
    Crash,
    Backup,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..400_u16;
    let step = prop_oneof![
        40 => (key(), 1..60_u16).prop_map(|(key, count)| vec![Step::Insert(key); count as usize]),
        30 => prop::collection::vec(key().prop_map(Step::Insert), 1..80),
        20 => prop::collection::vec(key().prop_map(Step::Check), 1..30),
        10 => (key(), -600..=0_i64)
            .prop_map(|(key, from_now)| vec![Step::InsertAt(key, from_now)]),
        30 => (0..400_u64).prop_map(|millis| vec![Step::Advance(millis)]),
        8 => Just(vec![Step::Checkpoint]),
        4 => Just(vec![Step::Sync]),
        10 => Just(vec![Step::Reopen]),
        10 => Just(vec![Step::Crash]),
        4 => Just(vec![Step::Backup]),
    ];
    prop::collection::vec(step, 1..40).prop_map(|steps| steps.concat())
}

/// A filter that runs all steps, and one that only runs the operations.
struct Pair {
    home: tempfile::TempDir,
    moves: u32,
    dir: PathBuf,
    hand: ManualClock,
    now: u64,
    /// `None` only while it is closed.
    filter: Option<Filter>,
    witness: Filter,
    options: Options,
}

impl Pair {
    fn new(spec: &Any) -> Self {
        let home = directory();
        let dir = home.path().join("f");
        let now = 1_700_000_000_000;
        let hand = ManualClock::new(Timestamp::from_unix_millis(now));
        let options = options().clock(Clock::from(hand.clone()));
        let filter = Filter::create(&dir, spec.clone(), options.clone()).expect("a filter");
        let memory = Arc::new(Memory::new());
        let witness = Filter::create_on(memory, spec.clone(), options.clone()).expect("a filter");
        let mut pair =
            Self { home, moves: 0, dir, hand, now, filter: Some(filter), witness, options };
        // It starts the clock: from then on the filter's time is the clock's.
        pair.step(&Step::Insert(0));
        pair
    }

    fn filter(&self) -> &Filter {
        self.filter.as_ref().expect("it is open")
    }

    fn place(&mut self) -> PathBuf {
        self.moves += 1;
        self.home.path().join(self.moves.to_string())
    }

    /// Continues with the filter in another directory.
    fn move_to(&mut self, dir: PathBuf) {
        self.filter = None;
        self.dir = dir;
        self.filter = Some(open(&self.dir, self.options.clone()));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert(key) => {
                for filter in [self.filter(), &self.witness] {
                    filter.insert(key.to_le_bytes()).expect("an insert");
                }
            }
            Step::Check(key) => {
                let [one, other] = [self.filter(), &self.witness]
                    .map(|filter| filter.check_and_insert(key.to_le_bytes()).expect("an insert"));
                assert_eq!(one, other, "the answers for {key}");
            }
            Step::InsertAt(key, from_now) => {
                let time = Timestamp::from_unix_millis(self.now.saturating_add_signed(from_now));
                let [one, other] = [self.filter(), &self.witness].map(|filter| {
                    filter.call().time(time).insert(key.to_le_bytes()).expect("an insert")
                });
                assert_eq!(one, other, "whether {key} is in time");
            }
            Step::Advance(millis) => {
                self.now += millis;
                self.hand.advance(Duration::from_millis(millis));
            }
            Step::Checkpoint => drop(self.filter().checkpoint().map_err(|error| panic!("{error}"))),
            Step::Sync => self.filter().sync().expect("a sync"),
            Step::Reopen => self.move_to(self.dir.clone()),
            Step::Crash => {
                let place = self.place();
                copy(&self.dir, &place);
                self.move_to(place);
            }
            Step::Backup => {
                let (backup, place) = (self.place(), self.place());
                self.filter().backup(&backup).expect("a backup");
                inspect::restore(&backup, &place).expect("it is restored");
                self.move_to(place);
            }
        }
        if matches!(step, Step::Reopen | Step::Crash | Step::Backup) {
            self.compare();
        }
    }

    fn compare(&self) {
        let (one, other) = (digest(self.filter()), digest(&self.witness));
        assert_eq!((one.value, one.inserts), (other.value, other.inserts), "the digests");
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: number("EBBTIDE_CASES").unwrap_or(16) as u32,
        rng_seed: RngSeed::Fixed(number("EBBTIDE_SEED").unwrap_or(SEED)),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_restart_changes_no_answer(steps in steps(), kind in 0..3_usize) {
        let mut pair = Pair::new(&kinds()[kind]);
        for step in &steps {
            pair.step(step);
        }
        pair.compare();
    }
}
