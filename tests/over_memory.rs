//! The whole engine in memory, in parts small enough for Miri, which follows every access but
//! supports few system calls. All handles see a file's words at one address here, so
//! ThreadSanitizer sees shared accesses, too, unlike for files that are mapped twice.

use ebbtide::media::{Access, Media, Memory};
use ebbtide::{Any, Clock, Digest, Durability, Error, Filter, Options, Reader, Timestamp};
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The number of operations of one thread in one filter; Miri takes some milliseconds for each.
const OPERATIONS: u64 = if cfg!(miri) { 8 } else { 400 };

fn options() -> Options {
    // Miri does not support the system clock that the default uses.
    let clock = Clock::stream();
    let sizes = Options::new().stripes(2).block_bytes(512).segment_bytes(4096);
    sizes.hash_seed(9).clock(clock).durability(Durability::Never).background(false)
}

fn create(sample: &Sample) -> (Memory, Filter) {
    let memory = Memory::new();
    let filter = Filter::create_on(Arc::new(memory.clone()), sample.spec(), options());
    (memory, filter.unwrap_or_else(|error| panic!("{}: {error}", sample.name)))
}

fn open(memory: &Memory) -> Result<Filter, Error> {
    Filter::open_on(Arc::new(memory.clone()), options())
}

/// Returns the state without the LSN, which the records of syncs advance.
fn state(digest: Result<Digest, Error>) -> (u128, u64) {
    let digest = digest.expect("a digest");
    (digest.value, digest.inserts)
}

/// Runs operation `number` of thread `thread`.
fn operate(filter: &Filter, sample: &Sample, thread: u64, number: u64) {
    let time = Timestamp::from_unix_micros(1_000_000 + 1000 * number);
    let key = |number: u64| (number << 8 | thread).to_le_bytes();
    let done = sample.operate(filter.call().time(time), number, key);
    done.unwrap_or_else(|error| panic!("{}, {number}: {error}", sample.name));
}

/// Copies the files with the selected names into a memory that no handle has open.
fn copy(from: &Memory, keep: impl Fn(&str) -> bool) -> Memory {
    let to = Memory::new();
    to.make().expect("a directory");
    for name in from.list().expect("a directory").iter().filter(|name| keep(name)) {
        let file = from.open(name, Access::Read).expect("a file");
        let mut bytes = vec![0; file.bytes().expect("a length") as usize];
        file.read_at(&mut bytes, 0).expect("bytes");
        let copied = to.create(name, 0).and_then(|file| file.write_at(&bytes, 0));
        copied.expect("memory has room");
    }
    to
}

fn is_found_as_it_was(sample: &Sample) {
    let (memory, filter) = create(sample);
    (0..OPERATIONS / 2).for_each(|number| operate(&filter, sample, 0, number));
    filter.checkpoint().expect("a checkpoint");
    (OPERATIONS / 2..OPERATIONS).for_each(|number| operate(&filter, sample, 0, number));
    let expected = state(filter.digest());
    let dead = copy(&memory, |_| true);
    let dark = copy(&memory, |name| !name.starts_with("live"));
    filter.close().expect("a clean end");
    for left in [memory, dead, dark] {
        let found = open(&left).expect("a filter");
        assert_eq!(state(found.digest()), expected, "{}", sample.name);
    }
}

/// Two threads per handle fill the filter, while a reader looks up keys.
fn two_handles_and_a_reader_share_every_word(sample: &Sample) {
    let (memory, ours) = create(sample);
    let theirs = open(&memory).expect("a second handle");
    let reader: Reader<Any> =
        Reader::open_on(Arc::new(memory.clone()), options()).expect("a reader");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let filter = if thread % 2 == 0 { &ours } else { &theirs };
            scope.spawn(move || {
                for number in 0..OPERATIONS {
                    operate(filter, sample, thread, number);
                    if number % 8 == 2 * thread {
                        filter.sync().expect("a sync");
                    }
                }
            });
        }
        scope.spawn(|| theirs.checkpoint().expect("a checkpoint"));
        scope.spawn(|| {
            for number in 0..OPERATIONS {
                for thread in 0..4 {
                    // The answer is undetermined; the point is a lookup while words change.
                    let key = (number << 8 | thread).to_le_bytes();
                    let _: bool = reader.contains(key).expect("an answer");
                }
            }
        });
    });
    let expected = state(ours.digest());
    assert_eq!(state(theirs.digest()), expected, "{}", sample.name);
    assert_eq!(state(reader.digest()), expected, "{}", sample.name);
    drop((ours, theirs, reader));
    let again = open(&memory).expect("a filter");
    assert_eq!(state(again.digest()), expected, "{}", sample.name);
}

fn background_threads_share_every_word() {
    let memory = Memory::new();
    let settings = options()
        .background(true)
        .checkpoint_bytes(2 << 10)
        .durability(Durability::Interval(Duration::from_micros(300)));
    let filter = Filter::create_on(Arc::new(memory), SAMPLES[0].spec(), settings);
    let filter = filter.expect("a filter");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let filter = &filter;
            scope.spawn(move || {
                for number in 0..OPERATIONS {
                    operate(filter, &SAMPLES[0], thread, number);
                }
            });
        }
    });
    filter.close().expect("a clean end");
}

fn flipped_bytes_are_refused_or_found_and_nothing_worse() {
    const FLIPS: u64 = if cfg!(miri) { 12 } else { 500 };
    let (memory, filter) = create(&SAMPLES[0]);
    (0..OPERATIONS / 2).for_each(|number| operate(&filter, &SAMPLES[0], 0, number));
    filter.checkpoint().expect("a checkpoint");
    (OPERATIONS / 2..OPERATIONS).for_each(|number| operate(&filter, &SAMPLES[0], 0, number));
    let mut random = Random::new(20_261_122);
    for _ in 0..FLIPS {
        let damaged = copy(&memory, |_| true);
        let mut names = damaged.list().expect("a directory");
        names.retain(|name| name != "lock");
        names.sort();
        let name = &names[random.below(names.len() as u64) as usize];
        let file = damaged.open(name, Access::Write).expect("a file");
        // The front of a file is read first.
        let at = random.below(file.bytes().expect("a length").min(512));
        let mut byte = [0];
        file.read_at(&mut byte, at).expect("a byte");
        file.write_at(&[byte[0] ^ 1 << random.below(8)], at).expect("a byte");
        if let Ok(filter) = open(&damaged) {
            // A bit flip in the live image may be in an unchecked word; then only memory safety is
            // required.
            let _ = filter.insert(b"another");
            let _ = filter.digest();
        }
    }
}

/// Returns a trial that fails by a panic.
fn claim(name: String, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

/// One trial for each kind, so that Miri can run a selection.
fn main() -> ExitCode {
    let mut trials = vec![
        claim("background threads share every word".into(), background_threads_share_every_word),
        claim(
            "flipped bytes are refused or tolerated, without undefined behaviour".into(),
            flipped_bytes_are_refused_or_found_and_nothing_worse,
        ),
    ];
    for sample in &SAMPLES {
        let after = format!("{}: intact after closing, a death, a power cut", sample.name);
        trials.push(claim(after, || is_found_as_it_was(sample)));
        let share = format!("{}: two handles and a reader share every word", sample.name);
        trials.push(claim(share, || two_handles_and_a_reader_share_every_word(sample)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
