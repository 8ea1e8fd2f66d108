//! A filter that was altered in use is one that had its parameters from the beginning.

use crate::moments::options;
use ebbtide::history::{At, Change, History, Unlogged};
use ebbtide::inspect::verify_on;
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{
    AgePartitioned, Any, Bloom, Claim, Clock, Code, Filter, Fingerprint, Keep, ManualClock,
    Options, Parameters, Reader, TimeLimited, Timestamp,
};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::sync::Arc;
use std::time::Duration;

const START: u64 = 1_700_000_000_000_000;

fn kept() -> Options {
    options().keep_log(Keep::Bytes(1 << 40)).checkpoint_bytes(32 << 10)
}

fn memory() -> Arc<dyn Media> {
    Arc::new(Memory::new())
}

/// Returns the parameter that is altered, with its new value.
fn other(sample: &Sample) -> Option<(&'static str, &'static str)> {
    Some(match sample.kind {
        "age-partitioned" | "fingerprint" | "time-limited" => ("fpr", "0.0001"),
        "bloom" | "counting" | "spectral" | "dynamic-count" => ("capacity", "900"),
        "timing" | "block-timing" => ("fpr", "0.002"),
        _ => return None,
    })
}

fn with(sample: &Sample, (name, value): (&str, &str)) -> Any {
    let pairs = sample.parameters.iter().filter(|(of, _)| *of != name);
    let all = pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
    Any::new(sample.kind, all.with(name, value))
}

fn operate(filter: &Filter, sample: &Sample, number: u64, time: u64) {
    let call = filter.call().time(Timestamp::from_unix_micros(time));
    sample.operate(call, number, |number| format!("key {}", number % 300)).expect("done");
}

fn digest(filter: &Filter) -> u128 {
    filter.digest().expect("a digest").value
}

#[test]
fn an_altered_filter_is_one_that_had_its_parameters_from_the_beginning() {
    let mut tried = 0;
    for (seed, sample) in SAMPLES.iter().enumerate() {
        let Some(pair) = other(sample) else { continue };
        tried += 1;
        let media = memory();
        let spec = || with(sample, pair);
        let first = Filter::create_on(media.clone(), sample.spec(), kept()).expect("a filter");
        let second: Filter = Filter::open_on(media.clone(), options()).expect("a filter");
        // With the layout that it will have.
        let wanted = Filter::create_on(memory(), spec(), kept()).expect("a filter");
        let (mut random, mut time) = (Random::new(seed as u64), START);
        let total = scaled(1500);
        for number in 0..total {
            if number == total / 2 {
                let altered = first.alter(spec(), Unlogged::Refuse).expect("its log is kept");
                assert!(altered.is_whole, "{}", sample.name);
                assert_eq!(altered.operations, number, "{}", sample.name);
                assert_eq!(digest(&second), digest(&wanted), "{} then", sample.name);
            }
            if number % 400 == 399 {
                second.checkpoint().expect("a checkpoint");
            }
            time += random.below(3000);
            let handle = if number % 2 == 0 { &first } else { &second };
            operate(handle, sample, number, time);
            operate(&wanted, sample, number, time);
        }
        for number in 0..300 {
            let key = format!("key {number}");
            let answers = [&first, &second, &wanted];
            let answers = answers.map(|of| of.contains(&key).expect("an answer"));
            assert!(answers.iter().all(|&answer| answer == answers[2]), "{}: {key}", sample.name);
        }
        assert_eq!(digest(&first), digest(&wanted), "{}", sample.name);
        assert_eq!(first.parameters(), wanted.parameters(), "{}", sample.name);
        first.close().expect("a close");
        drop(second);
        let report = verify_on(&*media).expect("it is there");
        assert!(report.is_sound(), "{}: {report:?}", sample.name);
        let again: Filter = Filter::open_on(media, options()).expect("a filter");
        assert_eq!(digest(&again), digest(&wanted), "{} opened again", sample.name);
    }
    assert!(tried > 8, "{tried}");
}

/// Key, count of a sample that alters a filter now and then, and notes moments.
struct Altering {
    media: Arc<dyn Media>,
    filter: Filter,
    /// LSN, digest, kind parameter, time.
    moments: Vec<(u64, u128, String, u64)>,
}

impl Altering {
    fn note(&mut self, time: u64) {
        let digest = self.filter.digest().expect("a digest");
        let parameters = format!("{:?}", self.filter.parameters());
        self.moments.push((digest.lsn - 1, digest.value, parameters, time));
    }
}

fn windows(number: u64) -> AgePartitioned {
    AgePartitioned::last(200 + 100 * (number % 5)).fpr(0.01 / (1 + number % 3) as f64)
}

/// Runs inserts with clears, positions, checkpoints and alterations.
fn altering(seed: u64, alterations: u64) -> Altering {
    let (media, mut random) = (memory(), Random::new(seed));
    let options = kept().checkpoint_bytes(16 << 10);
    let filter = Filter::create_on(media.clone(), windows(0), options).expect("a filter");
    let mut made = Altering { media, filter: filter.into_any(), moments: Vec::new() };
    let mut time = START;
    for alteration in 1..=alterations {
        for _ in 0..300 + random.below(300) {
            let before = time;
            time += random.below(2000);
            let at = Timestamp::from_unix_micros(time);
            let call = made.filter.call().time(at);
            match random.below(100) {
                // Neither has a time.
                0 => {
                    made.filter.clear().expect("a clear");
                    time = before;
                }
                1 => {
                    made.filter.checkpoint().expect("a checkpoint");
                    time = before;
                }
                2..5 => {
                    let mut batch = ebbtide::Batch::new(call);
                    batch.insert(random.below(500).to_le_bytes()).expect("room");
                    batch.set_position(7, time).expect("room");
                    batch.commit().expect("a commit");
                }
                _ => drop(call.insert(random.below(500).to_le_bytes()).expect("an insert")),
            }
            made.note(time);
        }
        let altered = made.filter.alter(windows(alteration), Unlogged::Refuse);
        assert!(altered.expect("its log is kept").is_whole);
        made.note(time);
    }
    made
}

#[test]
fn a_moment_before_an_alteration_is_what_the_filter_was_with_its_parameters_of_then() {
    for seed in 0..scaled(4) {
        let made = altering(seed, 4);
        let mut random = Random::new(seed);
        for _ in 0..scaled(60) {
            let at = random.below(made.moments.len() as u64) as usize;
            let (lsn, digest, parameters, _) = &made.moments[at];
            let reader: Reader =
                Reader::at_on(made.media.clone(), At::Lsn(*lsn), options()).expect("it is kept");
            assert_eq!(reader.digest().expect("a digest").value, *digest, "{lsn} of {seed}");
            assert_eq!(format!("{:?}", reader.parameters()), *parameters, "{lsn}");
        }
        // Before the first operation of a later time, and of a later position.
        for (at, pair) in made.moments.windows(2).enumerate() {
            let (before, after) = (&pair[0], &pair[1]);
            if before.3 < after.3 && at % 37 == 3 {
                let time = At::Time(Timestamp::from_unix_micros(before.3));
                let reader: Reader =
                    Reader::at_on(made.media.clone(), time, options()).expect("it is kept");
                let digest = reader.digest().expect("a digest").value;
                assert_eq!(digest, before.1, "{at} of {seed}: {before:?}, {after:?}");
            }
        }
        let report = verify_on(&*made.media).expect("it is there");
        assert!(report.is_sound(), "{report:?}");
    }
}

#[test]
fn the_history_of_an_altered_filter_has_each_operation_once_also_for_a_reader_that_follows() {
    let media = memory();
    let filter = Filter::create_on(media.clone(), windows(0), kept()).expect("a filter");
    let hash = |number: u64| filter.key_hash(number.to_le_bytes());
    let mut follower = History::open_on(media.clone()).expect("a log").with_undurable();
    let (mut followed, mut next) = (Vec::new(), 0_u64);
    let hashes = |commit: ebbtide::history::Commit| {
        let of = |change| match change {
            Change::Insert { hash, .. } => hash,
            other => panic!("{other:?}"),
        };
        commit.operations.into_iter().map(move |operation| of(operation.change))
    };
    for alteration in 1..5 {
        for _ in 0..200 {
            filter.insert(next.to_le_bytes()).expect("an insert");
            next += 1;
        }
        if alteration != 2 {
            while let Some(commit) = follower.read().expect("it is kept") {
                followed.extend(hashes(commit));
            }
        }
        filter.alter(windows(alteration), Unlogged::Refuse).expect("its log is kept");
        if alteration == 3 {
            filter.checkpoint().expect("a checkpoint");
        }
    }
    filter.insert(next.to_le_bytes()).expect("an insert");
    while let Some(commit) = follower.read().expect("it is kept") {
        followed.extend(hashes(commit));
    }
    let wanted: Vec<u64> = (0..=next).map(hash).collect();
    assert_eq!(followed, wanted);
    let read = History::open_on(media.clone()).expect("a log").with_undurable();
    let read: Vec<u64> = read.flat_map(|commit| hashes(commit.expect("it is kept"))).collect();
    assert_eq!(read, wanted);
    let lsn = filter.digest().expect("a digest").lsn;
    let after = History::open_on(media).expect("a log").with_undurable();
    let after = after.after(At::Lsn(lsn - 2)).expect("it is kept");
    assert_eq!(after.count(), 1, "the last insert");
}

#[test]
fn positions_claims_batches_and_tickets_live_on_through_an_alteration() {
    let media = memory();
    let spec = Fingerprint::last(400);
    let filter = Filter::create_on(media.clone(), spec, kept()).expect("a filter");
    let mut batch = filter.batch();
    assert!(batch.check_and_insert("in a batch").expect("an answer").is_new());
    batch.set_position(3, 77).expect("room");
    let Ok(Claim::Yours(lease)) = filter.claim("claimed", Duration::from_secs(600)) else {
        panic!("nobody has it")
    };
    let token = lease.token();
    let ticket = filter.issue(|call| call.insert("with a ticket")).expect("an insert");
    filter.alter(Fingerprint::last(900), Unlogged::Refuse).expect("its log is kept");
    assert!(ticket.is_durable() && ticket.wait().expect("it is durable"));
    batch.commit().expect("nobody has inserted the key");
    assert_eq!(filter.position(3).expect("an answer"), Some(77));
    assert!(filter.contains("in a batch").expect("an answer"));
    let claims = filter.claims().expect("an answer");
    assert_eq!(claims.iter().map(|claim| claim.token).collect::<Vec<_>>(), [token]);
    let other: Filter<Fingerprint> = Filter::open_on(media, options()).expect("a filter");
    assert!(matches!(other.claim("claimed", Duration::from_secs(1)), Ok(Claim::InProgress { .. })));
    lease.confirm().expect("it is held");
    assert!(other.contains("claimed").expect("an answer"));
    // A key that another handle inserted meanwhile is not answered as new twice.
    let mut batch = other.batch();
    assert!(batch.check_and_insert("twice").expect("an answer").is_new());
    filter.insert("twice").expect("an insert");
    filter.alter(Fingerprint::last(500), Unlogged::Refuse).expect("its log is kept");
    let refused = batch.commit().expect_err("it is not new any more");
    assert_eq!(refused.code(), Code::Conflict);
}

#[test]
fn a_handle_of_another_kind_gets_an_error_with_the_new_one_and_any_continues() {
    let (media, clock) = (memory(), ManualClock::new(Timestamp::from_unix_micros(START)));
    let options = || kept().clock(Clock::from(clock.clone()));
    let typed = Filter::create_on(media.clone(), windows(0), options()).expect("a filter");
    let any: Filter = Filter::open_on(media.clone(), options()).expect("a filter");
    let reader: Reader = Reader::open_on(media.clone(), options()).expect("a filter");
    let mut random = Random::new(3);
    let wanted =
        Filter::create_on(memory(), TimeLimited::window(Duration::from_secs(60)), options());
    let wanted = wanted.expect("a filter");
    for _ in 0..2000 {
        clock.advance(Duration::from_millis(random.below(100)));
        let key = random.below(1500).to_le_bytes();
        typed.insert(key).expect("an insert");
        wanted.insert(key).expect("an insert");
    }
    let altered = any.alter(TimeLimited::window(Duration::from_secs(60)), Unlogged::Refuse);
    altered.expect("its log is kept");
    let error = typed.insert("a").expect_err("it is of another kind");
    assert_eq!(error.code(), Code::Mismatch);
    assert!(error.to_string().contains("time-limited"), "{error}");
    assert_eq!(any.kind(), "time-limited");
    for key in 0..1500_u64 {
        let wanted = wanted.contains(key.to_le_bytes()).expect("an answer");
        assert_eq!(any.contains(key.to_le_bytes()).expect("an answer"), wanted, "{key}");
        assert_eq!(reader.contains(key.to_le_bytes()).expect("an answer"), wanted, "{key}");
    }
    assert_eq!(digest(&any), wanted.digest().expect("a digest").value);
}

#[test]
fn without_a_kept_log_what_would_be_lost_is_an_error_unless_it_may_be_forgotten() {
    let media = memory();
    let options = options().checkpoint_bytes(8 << 10);
    let filter = Filter::create_on(media.clone(), Bloom::capacity(3000), options).expect("one");
    for round in 0..4_u64 {
        for number in 0..200 {
            filter.insert((round * 200 + number).to_le_bytes()).expect("an insert");
        }
        filter.checkpoint().expect("a checkpoint");
    }
    let first = History::open_on(media.clone()).expect("a log").next_lsn();
    assert!(first > 200, "{first}");
    let before = filter.digest().expect("a digest").value;
    let error = filter.alter(Bloom::capacity(5000), Unlogged::Refuse).expect_err("much is gone");
    assert_eq!(error.code(), Code::NotKept);
    assert!(error.to_string().contains(&format!("{}", first - 1)), "{error}");
    assert_eq!(filter.digest().expect("a digest").value, before, "nothing has happened");
    let altered = filter.alter(Bloom::capacity(5000), Unlogged::Forget).expect("an alteration");
    assert!(!altered.is_whole && altered.operations < 700, "{altered:?}");
    assert!(filter.contains(799_u64.to_le_bytes()).expect("an answer"));
    let known = (0..800_u64).filter(|key| filter.contains(key.to_le_bytes()).expect("an answer"));
    assert_eq!(known.count() as u64, altered.operations, "no more than the log had");
    // Nothing of the time before is left.
    filter.checkpoint().expect("a checkpoint");
    let names = media.list().expect("a directory");
    assert!(names.iter().all(|name| !name.starts_with("kept-")), "{names:?}");
    let report = verify_on(&*media).expect("it is there");
    let others = report.files.iter().filter(|file| file.detail.contains("another filter"));
    assert_eq!(others.count(), 0, "{report:?}");
}

#[test]
fn a_short_log_that_has_the_new_window_is_enough_also_if_it_is_read_at_once() {
    let media = memory();
    let options = options().checkpoint_bytes(8 << 10);
    let spec = AgePartitioned::last(1000);
    let filter = Filter::create_on(media.clone(), spec, options).expect("a filter").into_any();
    for key in 0..800_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
        if key % 200 == 199 {
            filter.checkpoint().expect("a checkpoint");
        }
    }
    for key in 800..900_u64 {
        filter.insert(key.to_le_bytes()).expect("an insert");
    }
    let first = History::open_on(media).expect("a log").next_lsn();
    assert!(first > 200, "{first}");
    let error = filter.alter(AgePartitioned::last(2000), Unlogged::Refuse).expect_err("not whole");
    assert_eq!(error.code(), Code::NotKept);
    let altered = filter.alter(AgePartitioned::last(50), Unlogged::Refuse).expect("it is there");
    assert!(!altered.is_whole && altered.operations >= 100, "{altered:?}");
    let found = (850..900_u64).filter(|key| filter.contains(key.to_le_bytes()).expect("an answer"));
    assert_eq!(found.count(), 50);
}

#[test]
fn parameters_for_which_the_disk_has_no_room_are_refused_before_anything_is_written() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("seen");
    let filter = Filter::create(&dir, Bloom::capacity(1000), kept()).expect("a filter");
    filter.insert("a").expect("an insert");
    let error = filter.alter(Bloom::capacity(4 << 40), Unlogged::Refuse).expect_err("terabytes");
    assert_eq!(error.code(), Code::FullDisk, "{error}");
    assert!(filter.contains("a").expect("an answer"));
    filter.insert("b").expect("an insert");
    filter.close().expect("a clean end");
    let report = ebbtide::inspect::verify(&dir).expect("it is there");
    assert!(report.files.iter().all(|file| file.damage.is_empty()), "{report:?}");
}

#[test]
fn log_of_another_number_that_begins_within_the_log_is_in_nobodys_way() {
    // As an alteration leaves it whose process died.
    let (media, foreign) = (memory(), memory());
    let filter = Filter::create_on(media.clone(), windows(0), kept()).expect("a filter");
    let insert = |keys: std::ops::Range<u64>| {
        keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
    };
    insert(0..300);
    drop(Filter::create_on(foreign.clone(), windows(0), kept()).expect("a filter"));
    let names = foreign.list().expect("a directory");
    let name = names.iter().find(|name| name.starts_with("wal-")).expect("a segment");
    let file = foreign.open(name, Access::Read).expect("a segment");
    let mut bytes = vec![0; file.bytes().expect("a length") as usize];
    file.read_at(&mut bytes, 0).expect("its bytes");
    let left = media.create("wal-000077-0000000000000150", bytes.len() as u64).expect("room");
    left.write_at(&bytes, 0).expect("room");
    let read = |from| {
        let history = History::open_on(media.clone()).expect("a log").with_undurable();
        let history = history.after(At::Lsn(from)).expect("it is there");
        history.map(|commit| commit.expect("it is there").operations.len()).sum::<usize>()
    };
    let last = filter.digest().expect("a digest").lsn - 1;
    assert_eq!(read(last), 0);
    assert!(read(last - 20) > 10, "events are among them");
    insert(300..700);
    assert_eq!(read(last), 400);
    let altered = filter.alter(windows(1), Unlogged::Refuse).expect("its log is kept");
    assert_eq!(altered.operations, 700);
}

#[test]
fn a_handle_that_nobody_uses_after_an_alteration_is_in_nobodys_way() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    // Also where the cells lie in memory that ends with its last process.
    for (round, size) in [1000, 1_000_000_u64].into_iter().enumerate() {
        let dir = dir.with_extension(round.to_string());
        let spec = |more: u64| AgePartitioned::last(size + more);
        let idle = Filter::create(&dir, spec(0), kept()).expect("a filter");
        let used: Filter<AgePartitioned> = Filter::open(&dir, options()).expect("a filter");
        let reader: Reader = Reader::open(&dir, options()).expect("a filter");
        let insert = |filter: &Filter<AgePartitioned>, keys: std::ops::Range<u64>| {
            keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
        };
        let has = |filter: &Filter<AgePartitioned>, key: u64| {
            filter.contains(key.to_le_bytes()).expect("an answer")
        };
        insert(&idle, 0..300);
        used.alter(spec(1), Unlogged::Refuse).expect("its log is kept");
        insert(&used, 300..400);
        // As the last one that uses the filter: the next opening has nothing to replay.
        used.close().expect("a close");
        let report = ebbtide::inspect::verify(&dir).expect("it is there");
        assert!(report.is_sound(), "{report:?}");
        let state = report.files.iter().find(|file| file.name == ".").expect("a state");
        let lsn = |text: &str| {
            let number = text.split_once(' ').map_or(text, |(number, _)| number);
            number.parse::<u64>().expect("a number")
        };
        let from = |word: &str| {
            let found = state.detail.split_once(word).unwrap_or_else(|| panic!("{state:?}"));
            lsn(found.1)
        };
        // At most a note follows.
        assert!(from("state at LSN ") <= from("replayed from LSN ") + 1, "{}", state.detail);
        assert!(reader.contains(399_u64.to_le_bytes()).expect("an answer"));
        let open_again = || -> (Filter<AgePartitioned>, Duration) {
            let begun = std::time::Instant::now();
            let next = Filter::open(&dir, options()).expect("a filter");
            (next, begun.elapsed())
        };
        // Looking for the memory of the image would take five seconds each time; on a busy machine
        // an opening may.
        let (mut next, mut lasted) = open_again();
        for _ in 0..9 {
            if lasted < Duration::from_secs(4) {
                break;
            }
            next.close().expect("a close");
            (next, lasted) = open_again();
        }
        assert!(lasted < Duration::from_secs(4), "ten times {lasted:?} or so");
        insert(&next, 400..500);
        assert!((0..500).all(|key| has(&next, key)));
        // Now it is used.
        assert!((0..500).all(|key| has(&idle, key)));
        insert(&idle, 500..501);
        assert!(has(&next, 500) && !has(&next, 501));
        next.close().expect("a close");
        assert!(has(&idle, 500));
        drop(idle);
        let last: Filter<AgePartitioned> = Filter::open(&dir, options()).expect("a filter");
        assert!((0..501).all(|key| has(&last, key)));
    }
}

#[test]
fn a_handle_that_is_closed_beside_an_alteration_reports_no_error() {
    let media = memory();
    let made = Filter::create_on(media.clone(), windows(0), kept()).expect("a filter");
    for round in 1..scaled(30) {
        let handles: Vec<Filter> =
            (0..3).map(|_| Filter::open_on(media.clone(), options()).expect("a filter")).collect();
        std::thread::scope(|scope| {
            for handle in &handles {
                scope.spawn(|| {
                    handle.insert(round.to_le_bytes()).expect("an insert");
                    handle.close().expect("a close");
                });
            }
            let altered = made.alter(windows(round), Unlogged::Refuse);
            assert!(altered.expect("its log is kept").is_whole);
        });
        assert!(made.contains(round.to_le_bytes()).expect("an answer"));
    }
}

#[test]
fn whatever_a_handle_is_asked_first_after_an_alteration_it_answers_for_the_new_filter() {
    type Look = fn(&Filter) -> String;
    let looks: [Look; 8] = [
        |filter| filter.stat().expect("figures").inserts.to_string(),
        |filter| filter.digest().expect("a digest").value.to_string(),
        |filter| filter.parameters().get("window-items").expect("a window").to_owned(),
        |filter| filter.details().expect("figures").allocated_lsn.to_string(),
        |filter| format!("{:?}", filter.position(3).expect("an answer")),
        |filter| format!("{:?}", filter.claims().expect("an answer").len()),
        |filter| filter.durable_upto().expect("no error").to_string(),
        |filter| filter.contains("later").expect("an answer").to_string(),
    ];
    for look in looks {
        let media = memory();
        let used = Filter::create_on(media.clone(), windows(0), kept()).expect("a filter");
        let idle: Filter = Filter::open_on(media.clone(), options()).expect("a filter");
        used.insert("before").expect("an insert");
        let before = look(&idle);
        used.alter(windows(1), Unlogged::Refuse).expect("its log is kept");
        let mut batch = used.batch();
        batch.insert("later").expect("room");
        batch.set_position(3, 9).expect("room");
        batch.commit().expect("a commit");
        let claim = used.claim("claimed", Duration::from_secs(600)).expect("an answer");
        assert!(matches!(claim, Claim::Yours(_)));
        used.sync().expect("a sync");
        let after = look(&idle);
        assert_ne!(before, after);
        let fresh: Filter = Filter::open_on(media, options()).expect("a filter");
        assert_eq!(after, look(&fresh));
    }
}

#[test]
fn as_of_the_lsn_of_an_alteration_a_filter_has_the_new_parameters() {
    let media = memory();
    let filter = Filter::create_on(media.clone(), windows(0), kept()).expect("a filter");
    (0..300_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    let altered = filter.alter(windows(1), Unlogged::Refuse).expect("its log is kept");
    let window = |lsn| {
        let at = Reader::<Any>::at_on(media.clone(), At::Lsn(lsn), options()).expect("it is kept");
        at.parameters().get("window-items").map(str::to_owned)
    };
    assert_eq!(window(altered.lsn - 1).as_deref(), Some("200"));
    assert_eq!(window(altered.lsn).as_deref(), Some("300"));
    filter.insert("behind it").expect("an insert");
    filter.sync().expect("a sync");
    assert_eq!(window(altered.lsn).as_deref(), Some("300"), "with records behind it");
    assert_eq!(window(altered.lsn + 1).as_deref(), Some("300"));
}

#[test]
fn an_alteration_loses_no_past_if_nobody_can_read_how_much_is_wished() {
    let media = memory();
    let filter = Filter::create_on(media.clone(), windows(0), kept()).expect("a filter");
    (0..300_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    let before = filter.digest().expect("a digest");
    let keep = media.open("keep", Access::Write).expect("the file with the wish");
    keep.write_at(b"?", 12).expect("a damage");
    assert_eq!(filter.stat().expect("figures").keep_log, Keep::Bytes(u64::MAX));
    filter.alter(windows(1), Unlogged::Refuse).expect("its log is there");
    let past = Reader::<Any>::at_on(media, At::Lsn(before.lsn - 1), options());
    let found = past.expect("it is kept").digest().expect("a digest");
    assert_eq!(found.value, before.value);
}
