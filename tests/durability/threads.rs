//! Power cuts of a filter that several threads insert into, in every second round with background
//! threads.
//!
//! The machine determines the order of the threads. The seed therefore determines the cuts of a
//! recording, but not the recording.

use crate::claims::options;
use crate::settings::Settings;
use ebbtide::{Bloom, Durability, Filter, Timestamp};
use ebbtide_testkit::crash::choices::Chooser;
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::tape::{THREADS, Tape};
use ebbtide_testkit::random::Random;
use futures::executor::block_on;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: u64 = 60;
/// The number of cuts of each round.
const CUTS: u64 = 50;
/// The number of inserts of each thread.
const INSERTS: u64 = 60;

fn key(thread: usize, number: u64) -> [u8; 16] {
    (u128::from(number) << 8 | thread as u128).to_le_bytes()
}

fn record(round: u64) -> Result<Arc<Tape>, String> {
    let disk = CrashDisk::new();
    let spec = Bloom::capacity(10_000).fpr(1e-6);
    // Separate threads sync at intervals, create segments in advance and write checkpoints.
    let background = round % 2 == 1;
    let durability = if background {
        Durability::Interval(Duration::from_micros(300))
    } else {
        Durability::Never
    };
    let settings =
        options().durability(durability).background(background).checkpoint_bytes(2 << 10);
    let filter = Filter::create_on(Arc::new(disk.clone()), spec, settings).expect("a filter");
    disk.tell_created();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (disk, filter) = (&disk, &filter);
            scope.spawn(move || {
                let time = |number| 1_000_000 + number * THREADS as u64 + thread as u64;
                let mut tickets = VecDeque::new();
                for number in 0..INSERTS {
                    let (time, stamp) = (time(number), Timestamp::from_unix_micros(time(number)));
                    // In some rounds operations are awaited, some of them at a time.
                    if round % 5 == 4 {
                        let insert =
                            filter.issue(|call| call.time(stamp).insert(key(thread, number)));
                        tickets.push_back((number, time, insert.expect("an insert")));
                        let ahead = [0, 7][thread % 2];
                        while tickets.len() > if number + 1 == INSERTS { 0 } else { ahead } {
                            let (number, time, ticket) = tickets.pop_front().expect("one");
                            block_on(ticket).expect("durable");
                            disk.tell_durable(thread, number + 1, &[time]);
                        }
                        continue;
                    }
                    let call = filter.call().time(stamp);
                    // In some rounds most records become durable only by syncs of other threads, or
                    // by the checkpoints.
                    let durable = round % 4 < 2 || thread == 0 && number % 20 == 0;
                    let call = if durable { call.durability(Durability::Always) } else { call };
                    call.insert(key(thread, number)).expect("an insert");
                    if durable {
                        disk.tell_durable(thread, number + 1, &[time]);
                    }
                    if thread == 0 && number % 10 == 9 {
                        filter.checkpoint().expect("a checkpoint");
                    }
                }
            });
        }
    });
    let violations = disk.violations();
    let tape = disk.end();
    if violations.is_empty() { Ok(tape) } else { Err(violations.join("; ")) }
}

fn cut(tape: &Arc<Tape>, random: &mut Random) -> Result<(), String> {
    let at = 1 + random.below(tape.now);
    let told = *tape.told.at(at);
    let chance = Chooser::chance(Random::new(random.below(u64::MAX)));
    let disk = CrashDisk::after_cut(tape, at, &chance.shared(), false);
    let found: Filter<Bloom> = match Filter::open_on(Arc::new(disk.clone()), options()) {
        Ok(found) => found,
        Err(ebbtide::Error::NotAFilter { .. }) if !told.created => return Ok(()),
        Err(error) => return Err(format!("cut at {at}: {error}")),
    };
    for (thread, &count) in told.durable.iter().enumerate() {
        for number in 0..count {
            if !found.contains(key(thread, number)).map_err(|error| error.to_string())? {
                return Err(format!("cut at {at}: insert {number} of thread {thread} is missing"));
            }
        }
    }
    disk.end();
    Ok(())
}

/// Records rounds and cuts each of them many times.
pub fn run(settings: &Settings) -> Result<(), String> {
    for round in 0..ROUNDS {
        let seed = settings.seed;
        let failed = |what| format!("round {round}, seed {seed}: {what}");
        let tape = record(round).map_err(failed)?;
        let mut random = Random::new(seed ^ round << 20 ^ 1);
        (0..CUTS).try_for_each(|_| cut(&tape, &mut random)).map_err(failed)?;
    }
    println!("{} cuts under {THREADS} threads, seed {}", ROUNDS * CUTS, settings.seed);
    Ok(())
}
