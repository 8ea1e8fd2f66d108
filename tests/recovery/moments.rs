//! A filter as of any moment of its past is the filter that it was then.
//!
//! Each kind runs random operations, batches with positions, clears, claims, checkpoints and
//! restarts, and its digest is noted after each. A reader as of each moment must have that digest.
//!
//! `EBBTIDE_EFFORT=1000 cargo test --test recovery moments` asks 10,000 moments.

use ebbtide::history::{At, History};
use ebbtide::inspect::{restore_at_on, verify_on};
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{
    AgePartitioned, Any, Claim, Clock, Code, Downtime, Durability, Error, Filter, Keep, Options,
    Reader, Timestamp,
};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Moments asked of each sample.
const MOMENTS: u64 = 42;
const OPERATIONS: u64 = 1500;
const START: u64 = 1_700_000_000_000_000;

/// A filter with all of its past.
pub struct Past {
    pub media: Arc<dyn Media>,
    filter: Option<Filter>,
    time: u64,
    /// LSN, digest, time, position of source 7; the first is the empty filter.
    pub moments: Vec<(u64, u128, u64, Option<u64>)>,
    /// LSNs within batches, and the number of moments before the batch.
    within: Vec<(u64, usize)>,
}

pub fn options() -> Options {
    Options::new()
        .hash_seed(7)
        .stripes(3)
        .segment_bytes(4 << 10)
        .durability(Durability::Never)
        .downtime(Downtime::Freeze)
        .background(false)
        .clock(Clock::stream())
}

impl Past {
    pub fn new(sample: &Sample, keep: Keep) -> Self {
        let media: Arc<dyn Media> = Arc::new(Memory::new());
        let options = options().keep_log(keep);
        let filter = Filter::create_on(media.clone(), sample.spec(), options).expect("a filter");
        let empty = filter.digest().expect("a digest");
        let moments = vec![(empty.lsn - 1, empty.value, 0, None)];
        Self { media, filter: Some(filter), time: START, moments, within: Vec::new() }
    }

    pub fn filter(&self) -> &Filter {
        self.filter.as_ref().expect("it is open")
    }

    /// Notes the present moment.
    fn note(&mut self) {
        let digest = self.filter().digest().expect("a digest");
        let position = self.filter().position(7).expect("an answer");
        self.moments.push((digest.lsn - 1, digest.value, self.time, position));
    }

    fn restart(&mut self) {
        self.filter.take().expect("it is open").close().expect("a close");
        self.filter = Some(Filter::open_on(self.media.clone(), options()).expect("a filter"));
        self.note();
    }

    fn batch(&mut self, sample: &Sample, number: u64, count: u64) {
        let before = self.moments.len();
        let first = self.filter().stat().expect("figures").lsn;
        let time = Timestamp::from_unix_micros(self.time);
        let mut batch = self.filter().batch();
        for at in 0..count {
            sample
                .add(&mut batch, 4 * at, time, |at| format!("batch {number} {at}"))
                .expect("room");
        }
        batch.set_position(7, number).expect("room");
        batch.commit().expect("a commit");
        drop(batch);
        self.note();
        let last = self.moments[before].0;
        self.within.extend((first..last).map(|lsn| (lsn, before)));
    }

    /// Runs the operations of a sample.
    pub fn run(&mut self, sample: &Sample, random: &mut Random) {
        for number in 0..OPERATIONS {
            self.time += random.below(20) * 1000;
            let call = self.filter().call().time(Timestamp::from_unix_micros(self.time));
            sample.operate(call, number, |number| format!("key {}", number % 400)).expect("done");
            self.note();
            if sample.is_removal(number + 1) {
                continue;
            }
            match random.below(120) {
                0 => self.restart(),
                1 | 2 => drop(self.filter().checkpoint().expect("a checkpoint")),
                3 => {
                    self.filter().clear().expect("a clear");
                    self.note();
                }
                4..=9 => self.batch(sample, number, 1 + random.below(5)),
                10..=14 => {
                    let key = format!("claimed {number}");
                    match self.filter().claim(&key, Duration::from_secs(9)).expect("an answer") {
                        Claim::Yours(lease) if random.below(2) == 0 => {
                            lease.confirm().expect("it is held");
                        }
                        // Released when it is dropped.
                        claim => drop(claim),
                    }
                    self.note();
                }
                _ => {}
            }
        }
    }

    fn at(&self, at: At) -> Result<Reader<Any>, Error> {
        Reader::at_on(self.media.clone(), at, options())
    }

    pub fn digest(&self, at: At) -> u128 {
        self.at(at).unwrap_or_else(|error| panic!("{at}: {error}")).digest().expect("one").value
    }
}

#[test]
fn a_filter_as_of_an_lsn_has_the_digest_that_it_had_then() {
    for (seed, sample) in SAMPLES.iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let mut past = Past::new(sample, Keep::Bytes(1 << 30));
        past.run(sample, &mut random);
        for _ in 0..scaled(MOMENTS) {
            let (lsn, digest, ..) = past.moments[random.below(past.moments.len() as u64) as usize];
            assert_eq!(past.digest(At::Lsn(lsn)), digest, "{} as of {lsn}", sample.name);
        }
        for _ in 0..scaled(MOMENTS) / 8 {
            let (lsn, before) = past.within[random.below(past.within.len() as u64) as usize];
            let digest = past.moments[before - 1].1;
            assert_eq!(past.digest(At::Lsn(lsn)), digest, "{} within {lsn}", sample.name);
        }
        // After it was closed, by readers that rebuild what the log says.
        past.filter.take().expect("it is open").close().expect("a close");
        for &(lsn, digest, ..) in [past.moments.first(), past.moments.last()].into_iter().flatten()
        {
            assert_eq!(past.digest(At::Lsn(lsn)), digest, "{} as of {lsn}", sample.name);
        }
        let end = past.moments.last().expect("moments").0 + 1000;
        let beyond = past.at(At::Lsn(end)).expect_err("it has not come yet");
        assert_eq!(beyond.code(), Code::NotKept, "{beyond}");
    }
}

#[test]
fn a_filter_as_of_a_position_is_what_it_was_before_the_source_went_beyond_it() {
    for sample in SAMPLES.iter().filter(|sample| sample.name.len() % 3 == 0) {
        let mut random = Random::new(sample.name.len() as u64);
        let mut past = Past::new(sample, Keep::Bytes(1 << 30));
        past.run(sample, &mut random);
        let positions = past.moments.iter().filter_map(|moment| moment.3);
        let (first, last) = (positions.clone().min(), positions.max());
        let (first, last) = (first.expect("batches"), last.expect("batches"));
        for _ in 0..scaled(MOMENTS) / 4 {
            let position = first + random.below(last - first);
            // Until the first moment beyond it. A clear takes no position away.
            let is_beyond = |found: Option<u64>| found.is_some_and(|found| found > position);
            let next =
                past.moments.iter().position(|moment| is_beyond(moment.3)).expect("the last");
            let (_, digest, _, found) = past.moments[next - 1];
            assert!(found.is_some_and(|found| found <= position));
            let at = At::Position { source: 7, position };
            assert_eq!(past.digest(at), digest, "{} as of {at}", sample.name);
        }
        // Before the source had one.
        let next = past.moments.iter().position(|moment| moment.3.is_some()).expect("a batch");
        for position in [0, first - 1] {
            let at = At::Position { source: 7, position };
            assert_eq!(past.digest(at), past.moments[next - 1].1, "{} as of {at}", sample.name);
        }
        let unknown = At::Position { source: 8, position: 1 };
        let error = past.at(unknown).expect_err("it has none");
        assert_eq!(error.code(), Code::NotKept);
        assert!(error.to_string().contains("position:8=1, which no commit has set"), "{error}");
    }
}

#[test]
fn a_filter_as_of_a_time_is_what_it_was_before_the_first_operation_after_it() {
    for sample in SAMPLES.iter().filter(|sample| sample.kind == "age-partitioned") {
        let mut random = Random::new(5);
        let mut past = Past::new(sample, Keep::Bytes(1 << 30));
        past.run(sample, &mut random);
        for _ in 0..scaled(MOMENTS) {
            let time = START + 1 + random.below(past.time - START);
            let last = past.moments.iter().rposition(|moment| moment.2 <= time).expect("the first");
            let at = At::Time(Timestamp::from_unix_micros(time));
            // What came at that time or before, and nothing that came after it.
            assert_eq!(past.digest(at), past.moments[last].1, "{} as of {at}", sample.name);
        }
        let early = At::Time(Timestamp::from_unix_micros(START - 1));
        let empty = past.digest(early);
        assert_eq!(empty, past.moments[0].1, "before everything it was empty");
        let future = Timestamp::from_unix_millis(Timestamp::now().as_unix_millis() + 3_600_000);
        assert_eq!(past.at(At::Time(future)).expect_err("not yet").code(), Code::NotKept);
    }
}

/// Returns a filter without its first log, in which the latest times and positions are: what is
/// left begins late, and then advances. Also returns its LSN before that.
fn with_late_log(media: &Arc<dyn Media>) -> (Filter, u64) {
    let spec = AgePartitioned::last(1000);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter").into_any();
    let write = |keys: std::ops::Range<u64>, second: u64, position: u64| {
        let time = Timestamp::from_unix_micros(START + second * 1_000_000);
        for key in keys {
            let mut batch = ebbtide::Batch::new(filter.call().time(time));
            batch.insert(key.to_le_bytes()).expect("room");
            batch.set_position(7, position).expect("room");
            batch.commit().expect("a commit");
        }
    };
    write(0..300, 100, 100);
    for round in 1..4 {
        write(300 * round..300 * (round + 1), 50, 100);
        filter.checkpoint().expect("a checkpoint");
    }
    let lsn = filter.digest().expect("a digest").lsn;
    write(1200..1210, 101, 101);
    (filter, lsn)
}

#[test]
fn a_moment_that_lies_in_removed_log_is_refused_also_if_the_log_after_it_begins_late() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let (filter, lsn) = with_late_log(&media);
    let opened = || History::open_on(media.clone()).expect("a log").with_undurable();
    assert!(opened().next_lsn() > 700, "its beginning is gone");
    let at = |at| Reader::<Any>::at_on(media.clone(), at, options());
    let second = |second: u64| At::Time(Timestamp::from_unix_micros(START + second * 1_000_000));
    let position = |position| At::Position { source: 7, position };
    for moment in [second(60), position(60), second(99), position(99)] {
        // Keys of later times are in every base.
        let error = at(moment).expect_err("it is gone");
        assert_eq!(error.code(), Code::NotKept, "{moment}");
        let names_lsn = error.to_string().contains("`lsn:N`");
        assert_eq!(names_lsn, matches!(moment, At::Time(_)), "{error}");
        let after = opened().after(moment).expect_err("operations between are gone");
        assert_eq!(after.code(), Code::NotKept, "{moment}");
    }
    let before = at(At::Lsn(lsn - 1)).expect("it is kept").digest().expect("a digest").value;
    for moment in [second(100), position(100)] {
        let found = at(moment).expect("it is kept").digest().expect("a digest").value;
        assert_eq!(found, before, "{moment}");
        assert_eq!(opened().after(moment).expect("it is kept").count(), 10, "{moment}");
    }
    assert_ne!(filter.digest().expect("a digest").value, before);
}

/// As a full disk leaves them: a snapshot, whose log is removed, and a newer one with its log.
#[test]
fn a_snapshot_without_its_log_is_no_beginning_of_the_past_and_no_cause_of_damage() {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let spec = AgePartitioned::last(10_000);
    let filter = Filter::create_on(media.clone(), spec, options()).expect("a filter").into_any();
    let at_second = |second: u64| Timestamp::from_unix_micros(START + second * 1_000_000);
    let write = |keys: std::ops::Range<u64>, second: u64| {
        let call = filter.call().time(at_second(second));
        keys.for_each(|key| assert!(call.insert(key.to_le_bytes()).expect("room")));
    };
    let names = |prefix: &str| {
        let mut names = media.list().expect("a directory");
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        names
    };
    write(0..300, 1);
    filter.checkpoint().expect("a checkpoint");
    write(300..1000, 2);
    write(1000..1300, 3);
    let end = filter.stat().expect("figures").lsn;
    filter.close().expect("a clean end");
    let log = names("wal-");
    let newest = log.len() - 1;
    log[..newest].iter().for_each(|name| media.remove(name).expect("it is there"));
    let opened = || History::open_on(media.clone()).expect("a log").with_undurable();
    let begin = opened().next_lsn();
    assert!(begin > 1000 && begin <= end, "{begin}, {end}");
    for at in [At::Time(at_second(1)), At::Time(at_second(2)), At::Lsn(400)] {
        let after = opened().after(at).expect_err("operations between are gone");
        assert_eq!(after.code(), Code::NotKept, "{at}");
        let error = Reader::<Any>::at_on(media.clone(), at, options()).expect_err("it is gone");
        assert_eq!(error.code(), Code::NotKept, "{at}: {error}");
    }
    assert_eq!(opened().after(At::Time(at_second(3))).expect("it is kept").count(), 0);
    // If the newest one is damaged, that is the cause.
    let snapshots = names("snap-");
    let [_, damaged] = &snapshots[..] else { panic!("{snapshots:?}") };
    let file = media.open(damaged, Access::Write).expect("it is there");
    let mut byte = [0];
    let middle = file.bytes().expect("a length") / 2;
    file.read_at(&mut byte, middle).expect("a byte");
    file.write_at(&[!byte[0]], middle).expect("a byte");
    let error = Filter::<Any>::open_on(media.clone(), options()).expect_err("it is damaged");
    assert!(error.to_string().contains(damaged.as_str()), "{error}");
}

#[test]
fn a_filter_restored_as_of_a_moment_is_what_it_was_then_and_continues_from_there() {
    for (seed, sample) in SAMPLES.iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let mut past = Past::new(sample, Keep::Bytes(1 << 30));
        past.run(sample, &mut random);
        for _ in 0..scaled(MOMENTS) / 8 {
            let (lsn, digest, ..) = past.moments[random.below(past.moments.len() as u64) as usize];
            let to: Arc<dyn Media> = Arc::new(Memory::new());
            let restored = restore_at_on(&*past.media, At::Lsn(lsn), &*to).expect("it is kept");
            assert_eq!(restored.lsn, lsn + 1);
            let filter: Filter = Filter::open_on(to, options()).expect("a filter");
            assert_eq!(filter.digest().expect("a digest").value, digest, "{}", sample.name);
            let call = filter.call().time(Timestamp::from_unix_micros(past.time));
            call.insert("afterwards").expect("an insert");
            assert_eq!(filter.digest().expect("a digest").inserts, restored.inserts + 1);
        }
    }
}

#[test]
fn damage_in_a_kept_file_is_reported_with_its_name_and_takes_only_moments_of_the_past_away() {
    let sample = &SAMPLES[1];
    let mut past = Past::new(sample, Keep::Bytes(1 << 30));
    past.run(sample, &mut Random::new(3));
    past.filter.take().expect("it is open").close().expect("a close");
    let names = past.media.list().expect("a directory");
    let second = names.iter().filter(|name| name.starts_with("kept-") && name.contains("-wal-"));
    let name = second.min().expect("kept log").clone();
    let file = past.media.open(&name, Access::Write).expect("it is there");
    let (early, late) = (past.moments[60].0, past.moments.last().expect("moments"));
    let before = &past.moments[past.moments.len() - 20];
    let moments = [At::Lsn(before.0), At::Time(Timestamp::from_unix_micros(before.2))];
    let after = |moment| {
        let history = History::open_on(past.media.clone()).expect("a log");
        history.after(moment).expect("it is kept").map(|of| of.expect("it is sound").lsn).collect()
    };
    let wanted: [Vec<u64>; 2] = moments.map(after);
    assert!(wanted.iter().all(|commits| commits.len() > 5), "{wanted:?}");
    // In a record, and in the header.
    for place in [4096 + 40 * 32, 0] {
        file.write_at(&[0xFF; 8], place).expect("space");
        let error = past.at(At::Lsn(early)).expect_err("it is damaged");
        let Error::Damaged { path, remedy, .. } = &error else { panic!("{error}") };
        assert!(path.ends_with(&name) && remedy.contains("--keep-log"), "{error}");
        assert_eq!(past.digest(At::Lsn(late.0)), late.1, "a later moment");
        let late_time = At::Time(Timestamp::from_unix_micros(late.2));
        assert_eq!(past.digest(late_time), late.1, "a later time");
        assert_eq!(moments.map(after), wanted, "what came after it");
    }
    let report = verify_on(&*past.media).expect("a report");
    let damaged = report.files.iter().filter(|file| !file.damage.is_empty());
    let damaged: Vec<_> = damaged.flat_map(|file| &file.damage).collect();
    assert!(damaged.iter().any(|error| error.to_string().contains(&name)), "{damaged:?}");
    // Recovery does not read it.
    let filter: Filter = Filter::open_on(past.media.clone(), options()).expect("a filter");
    assert_eq!(filter.digest().expect("a digest").value, late.1);
}

#[test]
fn a_moment_within_the_copy_of_a_snapshot_is_the_same_from_any_base() {
    let home = tempfile::tempdir().expect("a directory");
    let (dir, copy) = (home.path().join("filter"), home.path().join("copy"));
    let keeping = options().stripes(16).keep_log(Keep::Bytes(1 << 40));
    let spec = AgePartitioned::last(40_000);
    let filter = Filter::create(&dir, spec, keeping).expect("a filter");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = |from: u64| {
            let mut number = from;
            while !done.load(Ordering::Relaxed) {
                filter.insert(number.to_le_bytes()).expect("an insert");
                number += 1;
            }
        };
        scope.spawn(move || write(0));
        scope.spawn(move || write(1 << 32));
        for round in 1..7 {
            while filter.stat().expect("figures").inserts < round * 4000 {}
            filter.checkpoint().expect("a checkpoint");
        }
        done.store(true, Ordering::Relaxed);
    });
    filter.close().expect("a close");
    // Without any snapshot, all of the log is replayed.
    std::fs::create_dir(&copy).expect("a directory");
    let mut starts = Vec::new();
    for entry in std::fs::read_dir(&dir).expect("a directory") {
        let name = entry.expect("an entry").file_name().into_string().expect("letters");
        match name.split_once("snap-") {
            Some((_, start)) => starts.push(start.parse::<u64>().expect("an LSN")),
            None if name == "lock" => {}
            None => drop(std::fs::copy(dir.join(&name), copy.join(&name)).expect("space")),
        }
    }
    assert!(starts.len() > 2, "{starts:?}");
    let at = |dir: &Path, lsn| {
        let past = Reader::<Any>::at(dir, At::Lsn(lsn), Options::new().clock(Clock::stream()));
        past.unwrap_or_else(|error| panic!("{lsn}: {error}")).digest().expect("one").value
    };
    let mut random = Random::new(1);
    for start in starts {
        for lsn in [start, start + 1 + random.below(50), start + random.below(3000)] {
            // The last of them may not have been written.
            let lsn = lsn.min(filter_end(&copy));
            assert_eq!(at(&dir, lsn), at(&copy, lsn), "{start}: {lsn}");
        }
    }
}

fn filter_end(dir: &Path) -> u64 {
    let history = History::open(dir).expect("a filter").with_undurable();
    history.last().expect("operations").expect("no error").lsn
}
