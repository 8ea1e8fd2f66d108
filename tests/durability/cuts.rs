//! Power cuts at random calls, one after another, also while the filter recovers from the one before.

use crate::crash::{CrashDisk, Left, THREADS};
use crate::options;
use crate::random::Random;
use ebbtide::media::Memory;
use ebbtide::{Any, Bloom, Durability, Error, Filter, Options, Parameters, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

fn cuts() -> u64 {
    number("EBBTIDE_CUTS", 600)
}

fn seed() -> u64 {
    number("EBBTIDE_SEED", 0x0EBB)
}

/// Small windows, so that shifts and banks come between the cuts.
fn spec(row: u64) -> Any {
    match row % 3 {
        0 => Any::new("bloom", Parameters::new().with("capacity", 1000)),
        1 => Any::new("age-partitioned", Parameters::new().with("window-items", 100)),
        _ => Any::new(
            "time-limited",
            Parameters::new().with("window", 20_000).with("rate", 1).with("fpr", 0.01),
        ),
    }
}

fn insert(filter: &Filter, number: u64, durability: Durability) -> Result<bool, Error> {
    // In turns fast and slow.
    let micros =
        number / 200 * 20_200 + if number % 200 < 100 { number % 100 } else { number % 200 * 100 };
    let call = filter.call().time(Timestamp::from_unix_micros(1_000_000 + micros));
    call.durability(durability).insert((number % 700).to_le_bytes())
}

/// Inserts until the power is gone. Every seventh insert or so is durable, and with it all before it.
fn work(disk: &CrashDisk, filter: &Filter, mut number: u64, random: &mut Random) -> Left {
    loop {
        if let Some(left) = disk.left() {
            return left;
        }
        match random.below(60) {
            0 => drop(filter.checkpoint().expect("a checkpoint")),
            1 => {
                filter.sync().expect("a sync");
                disk.acknowledge(0, number);
            }
            // Between two calls the power goes, too.
            2 if random.below(4) == 0 => return disk.without_power(random),
            chance => {
                let durable = chance % 7 == 0;
                let durability = if durable { Durability::Always } else { Durability::Never };
                insert(filter, number, durability).expect("an insert");
                number += 1;
                if durable {
                    disk.acknowledge(0, number);
                }
            }
        }
    }
}

fn open(disk: &CrashDisk, row: u64) -> Filter {
    let media = Arc::new(disk.clone());
    let settings = options().durability(Durability::Never);
    match Filter::open_on(media.clone(), settings.clone()) {
        Err(Error::NotAFilter { .. }) => Filter::create_on(media, spec(row), settings),
        other => other,
    }
    .unwrap_or_else(|error| panic!("row {row}, seed {}: {error}", seed()))
}

#[test]
fn after_power_cuts_in_a_row_the_state_is_a_prefix_with_all_that_was_acknowledged() {
    const IN_A_ROW: u64 = 12;
    let mut in_recovery = 0;
    for row in 0..cuts() * 3 / 4 / IN_A_ROW {
        let mut random = Random::new(seed() ^ row << 20);
        let mut witness = Witness::new(row);
        let (mut disk, mut acknowledged) = (CrashDisk::new(), 0);
        for cut in 0..IN_A_ROW {
            disk.acknowledge(0, acknowledged);
            let most = [30, 300][random.below(2) as usize];
            let after = random.below(most);
            disk.cut_after(after, Random::new(random.below(u64::MAX)));
            let filter = open(&disk, row);
            let place = format!("row {row}, cut {cut}, seed {}", seed());
            let found = filter.digest().expect("a digest");
            assert!(
                found.inserts >= acknowledged,
                "{place}: {acknowledged} acknowledged, {found:?}"
            );
            let left = match disk.left() {
                Some(left) => {
                    in_recovery += 1;
                    left
                }
                None => {
                    // What has been recovered is durable, or nothing could be built on it.
                    disk.acknowledge(0, found.inserts);
                    witness.check(&filter, &place);
                    work(&disk, &filter, witness.fed, &mut random)
                }
            };
            acknowledged = left.acknowledged[0];
            drop(filter);
            disk = left.disk;
        }
    }
    println!("{} cuts, seed {}; {in_recovery} while recovering", cuts() * 3 / 4, seed());
}

/// A filter in memory that is fed the same operations and never crashes.
struct Witness {
    row: u64,
    filter: Filter,
    fed: u64,
}

impl Witness {
    fn new(row: u64) -> Self {
        let settings: Options = options().durability(Durability::Never);
        let filter = Filter::create_on(Arc::new(Memory::new()), spec(row), settings);
        let filter = filter.expect("a filter in memory");
        Self { row, filter, fed: 0 }
    }

    fn feed(&mut self, upto: u64) {
        for number in self.fed..upto {
            insert(&self.filter, number, Durability::Never).expect("an insert");
        }
        self.fed = upto;
    }

    fn agrees(&self, found: &Filter) -> bool {
        let [ours, theirs] = [&self.filter, found].map(|filter| filter.digest().expect("a digest"));
        (ours.value, ours.inserts) == (theirs.value, theirs.inserts)
    }

    /// Checks that the recovered filter holds a prefix of the operations.
    fn check(&mut self, found: &Filter, place: &str) {
        let inserts = found.digest().expect("a digest").inserts;
        if inserts < self.fed {
            *self = Self::new(self.row);
        }
        self.feed(inserts);
        if !self.agrees(found) {
            // The log may end between an event and the insert that it came before: that one finds nothing due then.
            insert(found, inserts, Durability::Never).expect("an insert");
            self.feed(inserts + 1);
            assert!(self.agrees(found), "{place}: the digest is that of no prefix near {inserts}");
        }
    }
}

#[test]
fn whatever_threads_were_told_is_durable_survives_a_power_cut() {
    for cut in 0..cuts() / 4 {
        let mut random = Random::new(seed() ^ cut << 20 ^ 1);
        let disk = CrashDisk::new();
        let spec = Bloom::capacity(10_000).fpr(1e-6);
        let settings = options().durability(Durability::Always);
        let filter = Filter::create_on(Arc::new(disk.clone()), spec, settings).expect("a filter");
        disk.cut_after(random.below(200), Random::new(random.below(u64::MAX)));
        let over = AtomicBool::new(false);
        let left = std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (disk, filter, over) = (&disk, &filter, &over);
                scope.spawn(move || {
                    for number in 0.. {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        filter.insert(key(thread, number)).expect("an insert");
                        disk.acknowledge(thread, number + 1);
                        if thread == 0 && number % 40 == 39 {
                            filter.checkpoint().expect("a checkpoint");
                        }
                    }
                });
            }
            let left = loop {
                match disk.left() {
                    Some(left) => break left,
                    None => std::thread::yield_now(),
                }
            };
            over.store(true, Ordering::Relaxed);
            left
        });
        let found: Filter<Bloom> = Filter::open_on(Arc::new(left.disk), options())
            .unwrap_or_else(|error| panic!("cut {cut}, seed {}: {error}", seed()));
        for (thread, &count) in left.acknowledged.iter().enumerate() {
            for number in 0..count {
                let there = found.contains(key(thread, number)).expect("a query");
                assert!(there, "cut {cut}, seed {}: {number} of thread {thread}", seed());
            }
        }
    }
    println!("{} cuts under {THREADS} threads, seed {}", cuts() / 4, seed());
}

fn key(thread: usize, number: u64) -> [u8; 16] {
    (u128::from(number) << 8 | thread as u128).to_le_bytes()
}
