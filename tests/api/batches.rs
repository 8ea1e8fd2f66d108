//! Batches: nothing before the commit, all after it, and errors that leave nothing behind.

use ebbtide::media::Memory;
use ebbtide::{
    AgePartitioned, Batch, Bloom, Call, Checked, Clock, Code, Counting, Durability, Entry, Error,
    Filter, Fingerprint, ManualClock, Options, Reader, Since, TimeLimited, Timestamp, inspect,
};
use ebbtide_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options() -> Options {
    Options::new().hash_seed(7).stripes(4).block_bytes(2048).durability(Durability::Never)
}

fn on_memory() -> (Filter<Fingerprint>, Arc<Memory>) {
    let memory = Arc::new(Memory::new());
    let options = options().background(false).segment_bytes(4 << 10);
    let filter = Filter::create_on(memory.clone(), Fingerprint::last(2000), options);
    (filter.expect("a filter"), memory)
}

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

#[test]
fn a_committed_batch_is_empty_and_can_be_filled_again() {
    let (filter, _memory) = on_memory();
    let mut batch = filter.batch();
    for round in 0..3_u64 {
        assert!(batch.check_and_insert(key(round)).expect("an answer").is_new());
        assert!(batch.check_and_insert(key(round)).expect("an answer").is_present());
        batch.set_position(1, round).expect("a position");
        batch.commit().expect("a commit");
        assert!(batch.is_empty());
        assert_eq!(filter.position(1).expect("a filter"), Some(round));
    }
    batch.insert("dropped").expect("room");
    batch.set_position(2, 9).expect("a position");
    batch.clear();
    batch.commit().expect("nothing");
    assert!(!filter.contains("dropped").expect("an answer"));
    assert_eq!(filter.positions().expect("a filter"), [(1, 2)]);
    assert_eq!(filter.stat().expect("figures").inserts, 6);
}

#[test]
fn nothing_of_a_batch_is_seen_before_its_commit_and_all_of_it_after() {
    let (filter, _) = on_memory();
    let before = filter.digest().expect("a digest").value;
    let mut batch = filter.batch();
    for number in 0..300 {
        assert_eq!(batch.check_and_insert(key(number)).expect("an answer"), Checked::New);
    }
    batch.set_position(1, 300).expect("room");
    assert_eq!(filter.digest().expect("a digest").value, before);
    assert_eq!((filter.position(1).expect("an answer"), batch.len()), (None, 300));
    let dropped = filter.batch();
    drop(dropped);
    batch.commit().expect("a commit");
    assert!((0..300).all(|number| filter.contains(key(number)).expect("an answer")));
    assert_eq!(filter.position(1).expect("an answer"), Some(300));
    assert_eq!(filter.stat().expect("figures").inserts, 300);
    filter.batch().commit().expect("an empty one");
}

#[test]
fn a_batch_answers_from_the_filter_and_from_its_own_keys() {
    let (filter, _) = on_memory();
    filter.insert(key(1)).expect("an insert");
    let mut batch = filter.batch();
    let mut ask = |number| batch.check_and_insert(key(number)).expect("an answer");
    let answers = [1, 2, 2, 3, 1].map(&mut ask);
    use Checked::{New, Present};
    assert_eq!(answers, [Present, New, Present, New, Present]);
    assert_eq!(batch.len(), 5, "a key that is seen again is renewed");
    let mut batch = Batch::new(filter.call().since(Since::LastAccepted));
    let mut answers = Vec::new();
    batch.check_and_insert_all(&[1, 2, 2, 3, 1].map(key), &mut answers).expect("answers");
    assert_eq!((&answers[..], batch.len()), (&[Present, New, Present, New, Present][..], 2));
    batch.commit().expect("a commit");
    assert_eq!(filter.stat().expect("figures").inserts, 3);
}

#[test]
fn an_own_key_is_forgotten_within_the_batch_as_outside_of_one() {
    let options = || options().clock(Clock::stream()).max_lead(Duration::from_secs(1 << 40));
    let made = |_| Arc::new(Memory::new());
    let [one, other] = [(); 2].map(made);
    let timed = Filter::create_on(one, TimeLimited::window(Duration::from_secs(10)), options());
    let timed = timed.expect("a filter");
    let mut batch = timed.batch();
    let mut at = |seconds: u64| {
        let time = Timestamp::from_unix_micros(1_700_000_000_000_000 + seconds * 1_000_000);
        batch.check_and_insert_entry(&Entry::new("a key").time(time)).expect("an answer")
    };
    assert_eq!(
        [0, 9, 30, 31].map(&mut at),
        [true, false, true, false].map(|new| { if new { Checked::New } else { Checked::Present } })
    );
    let counted = Filter::create_on(other, AgePartitioned::last(100), options());
    let counted = counted.expect("a filter");
    let mut batch = counted.batch();
    assert!(batch.check_and_insert("a key").expect("an answer").is_new());
    for number in 0..200 {
        batch.insert(key(number)).expect("room");
    }
    assert!(batch.check_and_insert("a key").expect("an answer").is_new());
    batch.commit().expect("a commit longer than the window");
    assert!(counted.contains(key(199)).expect("an answer"));
    assert!(!counted.contains(key(2)).expect("an answer"), "it has left the window");
}

#[test]
fn a_key_that_another_caller_inserts_before_the_commit_makes_it_fail_with_nothing_written() {
    let (filter, _) = on_memory();
    let mut batch = filter.batch();
    for number in 0..10 {
        batch.check_and_insert(key(number)).expect("an answer");
    }
    batch.set_position(1, 10).expect("room");
    filter.insert(key(7)).expect("an insert");
    let before = filter.digest().expect("a digest").value;
    let error = batch.commit().expect_err("a conflict");
    assert!(matches!(error, Error::Conflict { operation: 7, .. }), "{error}");
    assert_eq!((error.code(), error.code().number()), (Code::Conflict, 21));
    assert!(error.to_string().contains("operation 7"), "{error}");
    assert_eq!(filter.digest().expect("a digest").value, before);
    assert_eq!(filter.position(1).expect("an answer"), None);
    // Other keys of the same stripes do not matter.
    let mut batch = filter.batch();
    batch.check_and_insert(key(20)).expect("an answer");
    (100..200).for_each(|number| assert!(filter.insert(key(number)).is_ok()));
    batch.commit().expect("a commit");
}

#[test]
fn of_overlapping_batches_of_many_threads_each_key_is_new_in_one() {
    let filter = Arc::new(on_memory().0);
    let new: Mutex<BTreeMap<u64, u64>> = Mutex::default();
    let conflicts = Mutex::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (filter, new, conflicts) = (filter.clone(), &new, &conflicts);
            scope.spawn(move || {
                for round in 0..60_u64 {
                    // All of these threads want about the same keys.
                    let keys = (0..12).map(|at| round * 8 + (at * 5 + thread) % 12);
                    let keys: Vec<u64> = keys.collect();
                    loop {
                        let mut batch = Batch::new(filter.call().since(Since::LastAccepted));
                        let mut mine = Vec::new();
                        for &number in &keys {
                            let checked = batch.check_and_insert(key(number));
                            if checked.expect("an answer").is_new() {
                                mine.push(number);
                            }
                        }
                        batch.set_position(thread, round).expect("room");
                        match batch.commit() {
                            Ok(()) => {
                                let mut new = new.lock().expect("no panic");
                                mine.into_iter().for_each(|key| *new.entry(key).or_default() += 1);
                                break;
                            }
                            Err(Error::Conflict { .. }) => {
                                *conflicts.lock().expect("no panic") += 1;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    let new = new.into_inner().expect("no panic");
    assert_eq!(new.len() as u64, filter.stat().expect("figures").inserts);
    assert!(new.values().all(|&times| times == 1), "{new:?}");
    assert_eq!(filter.positions().expect("positions").len(), 4);
}

#[test]
fn positions_outlive_restarts_snapshots_backups_and_clears_and_are_part_of_the_digest() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let [dir, copy, restored] = ["filter", "copy", "restored"].map(|name| place.path().join(name));
    let filter = Filter::create(&dir, Bloom::capacity(1000), options()).expect("a filter");
    let set = |source: u64, position| {
        let mut batch = filter.batch();
        batch.set_position(source, position).expect("room");
        batch.insert(key(source)).expect("room");
        batch.commit().expect("a commit");
    };
    set(3, 1);
    let first = filter.digest().expect("a digest").value;
    set(3, 2);
    set(u64::MAX, 0);
    set(0, u64::MAX);
    let expected = [(0, u64::MAX), (3, 2), (u64::MAX, 0)];
    assert_ne!(filter.digest().expect("a digest").value, first);
    assert_eq!(filter.positions().expect("positions"), expected);
    filter.checkpoint().expect("a checkpoint");
    set(3, 2);
    filter.clear().expect("a clear");
    assert_eq!(filter.positions().expect("positions"), expected, "it forgets keys only");
    let reader = Reader::<Bloom>::open(&dir, Options::new()).expect("a reader");
    assert_eq!(reader.positions().expect("positions"), expected);
    filter.backup(&copy).expect("a backup");
    let digest = filter.digest().expect("a digest").value;
    filter.close().expect("a clean end");
    assert_eq!(reader.position(3).expect("a position"), Some(2));
    inspect::restore(&copy, &restored).expect("a restored filter");
    for dir in [&dir, &copy, &restored] {
        let filter = Filter::<Bloom>::open(dir, Options::new()).expect("the filter");
        assert_eq!(filter.positions().expect("positions"), expected);
        assert_eq!(filter.digest().expect("a digest").value, digest);
    }
}

#[test]
fn what_is_too_much_for_a_batch_or_a_filter_is_refused_before_anything_is_written() {
    let (filter, _) = on_memory();
    let mut batch = filter.batch();
    for number in 0..Batch::<Fingerprint>::MOST_OPERATIONS as u64 {
        batch.insert(key(number)).expect("room");
    }
    let error = batch.insert("one more").expect_err("it is full");
    assert!(matches!(error, Error::Parameter { name: "batch", .. }), "{error}");
    batch.commit().expect("as many as it can have, over several segments and generations");
    assert_eq!(filter.stat().expect("figures").inserts, 1 << 16);
    let mut batch = filter.batch();
    (0..256).for_each(|source| batch.set_position(source, 1).expect("room"));
    let error = batch.set_position(256, 1).expect_err("it is full");
    assert!(matches!(error, Error::Parameter { name: "position", .. }), "{error}");
    batch.set_position(255, 2).expect("a source that it has");
    batch.commit().expect("a commit");
    let mut batch = filter.batch();
    batch.insert("a key").expect("room");
    batch.set_position(256, 1).expect("room in the batch");
    let error = batch.commit().expect_err("no room in the filter");
    assert!(matches!(error, Error::Parameter { name: "position", .. }), "{error}");
    assert!(!filter.contains("a key").expect("an answer"));
    assert_eq!(filter.position(255).expect("an answer"), Some(2));
}

#[test]
fn on_a_full_disk_a_commit_changes_nothing_and_can_be_repeated() {
    let (filter, memory) = on_memory();
    (0..50).for_each(|number| assert!(filter.insert(key(number)).is_ok()));
    let before = filter.digest().expect("a digest").value;
    memory.set_capacity(0);
    let commit = || {
        let mut batch = filter.batch();
        (1000..4000).for_each(|number| batch.insert(key(number)).expect("room"));
        batch.set_position(1, 4000).expect("room");
        batch.commit()
    };
    let error = commit().expect_err("no space for the log");
    assert!(error.is_full(), "{error}");
    assert_eq!(filter.digest().expect("a digest").value, before);
    memory.set_capacity(u64::MAX);
    commit().expect("there is space again");
    assert!(filter.contains(key(3999)).expect("an answer"));
}

#[test]
fn after_a_commit_that_failed_a_batch_still_sees_its_own_keys() {
    let (filter, memory) = on_memory();
    let mut batch = filter.batch();
    (0..600).for_each(|number| batch.insert(key(number)).expect("room"));
    memory.set_capacity(0);
    let error = batch.commit().expect_err("no space for the log");
    assert!(error.is_full(), "{error}");
    assert_eq!(batch.check_and_insert(key(0)).expect("an answer"), Checked::Present);
    assert_eq!(batch.check_and_insert("another").expect("an answer"), Checked::New);
    assert_eq!(batch.check_and_insert("another").expect("an answer"), Checked::Present);
    memory.set_capacity(u64::MAX);
    batch.commit().expect("there is space again");
    assert_eq!(filter.stat().expect("figures").inserts, 603);
}

#[test]
fn a_commit_that_does_not_wait_allocates_neither_a_bank_nor_room_for_positions() {
    let hand = ManualClock::new(Timestamp::from_unix_micros(1 << 50));
    let options = options().background(false).clock(Clock::from(hand.clone()));
    let spec = Fingerprint::window(Duration::from_secs(600)).rate(1.0);
    let filter = Filter::create_on(Arc::new(Memory::new()), spec, options).expect("a filter");
    filter.insert("a key").expect("an insert");
    let commit = |call: Call<'_, Filter<Fingerprint>>, source: Option<u64>, keys: Range<u64>| {
        let mut batch = Batch::new(call);
        keys.for_each(|number| batch.insert(key(number)).expect("room"));
        source.into_iter().for_each(|source| batch.set_position(source, 1).expect("room"));
        batch.commit()
    };
    let quick = filter.call().without_waiting();
    let error = commit(quick, Some(1), 0..1).expect_err("there is no position yet");
    assert!(matches!(error, Error::WouldWait { .. }), "{error}");
    commit(quick, None, 0..1).expect("a commit");
    commit(filter.call(), Some(1), 1..2).expect("it waits");
    commit(quick, Some(2), 2..3).expect("there is room for positions now");
    // Far more than expected: the filter grows.
    let banks = || filter.stat().expect("figures").banks;
    let (mut refused, mut most) = (0, banks());
    for step in 1..100_u64 {
        hand.advance(Duration::from_secs(30));
        let (before, keys) = (banks(), step * 300..(step + 1) * 300);
        match commit(quick, Some(2), keys.clone()) {
            Err(Error::WouldWait { .. }) => {
                refused += 1;
                assert_eq!(banks(), before);
                commit(filter.call(), Some(2), keys).expect("it waits");
            }
            committed => {
                committed.expect("a commit");
                assert!(banks() <= before, "a bank was allocated");
            }
        }
        most = most.max(banks());
    }
    assert!(refused > 0 && most > 1, "{refused} commits were refused, {most} banks");
}

#[test]
fn a_key_too_far_ahead_is_refused_when_it_is_added() {
    let options = options().max_lead(Duration::from_secs(60));
    let filter = Filter::create_on(Arc::new(Memory::new()), Fingerprint::last(100), options);
    let filter = filter.expect("a filter");
    let mut batch = filter.batch();
    batch.insert("now").expect("room");
    let later = Timestamp::from_unix_micros(Timestamp::now().as_unix_micros() + 3_600_000_000);
    let entry = Entry::new("later").time(later);
    assert!(matches!(batch.insert_entry(&entry), Err(Error::TimeAhead { .. })));
    assert!(matches!(batch.check_and_insert_entry(&entry), Err(Error::TimeAhead { .. })));
    assert_eq!(batch.len(), 1);
    batch.commit().expect("a commit");
    assert!(filter.contains("now").expect("an answer"));
}

#[test]
fn a_batch_obeys_the_settings_of_its_call() {
    let memory = Arc::new(Memory::new());
    let filter = Filter::create_on(memory, Counting::capacity(1000), options()).expect("a filter");
    let mut batch = Batch::new(filter.call().times(3).durability(Durability::Always));
    batch.insert("three").expect("room");
    batch.insert_entry(&Entry::new("one").times(1)).expect("room");
    batch.commit().expect("a commit");
    let stat = filter.stat().expect("figures");
    assert!(stat.durable_lsn >= stat.lsn - 1, "all but the note of the sync: {stat:?}");
    let counts = ["three", "one"].map(|key| filter.estimate(key).expect("an estimate").count);
    assert_eq!(counts, [3.0, 1.0]);
    let call = filter.call().durability(Durability::Always).without_waiting();
    let mut refused = Batch::new(call);
    refused.insert("a key").expect("room");
    assert!(matches!(refused.commit(), Err(Error::WouldWait { .. })));
    assert_eq!(refused.len(), 1, "as it was");
    let ticket = filter.issue(|call| {
        let mut batch = Batch::new(call);
        batch.insert("later")?;
        batch.commit()
    });
    let ticket = ticket.expect("it is done");
    assert!(filter.contains("later").expect("an answer"));
    ticket.wait().expect("durable");
    filter.close().expect("a clean end");
    let mut late = filter.batch();
    assert!(matches!(late.check_and_insert("a key"), Err(Error::Closed { .. })));
    late.insert("a key").expect("it is only noted");
    assert!(matches!(late.commit(), Err(Error::Closed { .. })));
}

#[test]
fn a_window_in_items_is_not_stretched_by_a_batch() {
    let spec = Fingerprint::last(1000).fpr(1e-9);
    let filter = Filter::create_on(Arc::new(Memory::new()), spec, options()).expect("a filter");
    for number in 0..1000 {
        filter.insert(key(number)).expect("an insert");
    }
    let mut batch = filter.batch();
    for number in 1000..1900 {
        assert!(batch.check_and_insert(key(number)).expect("an answer").is_new());
    }
    // Each was inserted 1,900 inserts ago.
    for number in 0..100 {
        assert!(batch.check_and_insert(key(number)).expect("an answer").is_new(), "{number}");
    }
    assert!(batch.check_and_insert(key(1001)).expect("an answer").is_present());
    batch.commit().expect("a commit");
}

#[test]
fn one_batch_is_used_for_a_hundred_thousand_operations() {
    const KEYS: u64 = 3000;
    let spec = Bloom::capacity(KEYS).fpr(1e-9);
    let filter = Filter::create_on(Arc::new(Memory::new()), spec, options()).expect("a filter");
    let (mut committed, mut inserts) = (BTreeSet::new(), 0);
    let (mut random, mut done) = (Random::new(7), 0);
    let mut batch = Batch::new(filter.call().since(Since::LastAccepted));
    while done < 100_000 {
        let most = if random.below(50) == 0 { 5000 } else { 60 };
        let length = 1 + random.below(most);
        let mut new = BTreeSet::new();
        for _ in 0..length {
            let number = random.below(KEYS);
            let is_new = !committed.contains(&number) && new.insert(number);
            let checked = batch.check_and_insert(key(number)).expect("an answer");
            assert_eq!(checked.is_new(), is_new, "key {number}, after {done} operations");
        }
        done += length;
        assert_eq!(batch.len(), new.len());
        if random.below(4) == 0 {
            batch.clear();
            continue;
        }
        batch.set_position(1, done).expect("room");
        batch.commit().expect("a commit");
        assert!(batch.is_empty());
        inserts += new.len() as u64;
        committed.append(&mut new);
    }
    assert_eq!(filter.stat().expect("figures").inserts, inserts);
    assert!(committed.iter().all(|&number| filter.contains(key(number)).expect("an answer")));
}

/// Others write between the answers and the commit, into the same stripes, and steps of the window
/// are due to both.
#[test]
fn a_batch_that_is_committed_long_after_it_was_filled_does_not_move_the_clock() {
    let start = Timestamp::from_unix_millis(1_700_000_000_000);
    let (hand, minute) = (ManualClock::new(start), Duration::from_secs(60));
    let options = options().background(false).clock(Clock::from(hand.clone()));
    let spec = TimeLimited::window(minute);
    let filter = Filter::create_on(Arc::new(Memory::new()), spec, options).expect("a filter");
    for round in 0..4_u64 {
        let mut batch = filter.batch();
        batch.insert(key(2 * round)).expect("room");
        hand.advance(minute);
        // By another caller, at a later time of the same clock.
        filter.insert(key(2 * round + 1)).expect("an insert");
        batch.commit().expect("a commit");
    }
    filter.insert("last").expect("an insert");
    assert_eq!(filter.stat().expect("figures").time, Some(start + 4 * minute));
}

#[test]
fn a_batch_beside_another_writer_fails_only_for_keys_that_the_other_has_inserted() {
    let spec = Fingerprint::last(200).fpr(1e-9);
    let filter = Filter::create_on(Arc::new(Memory::new()), spec, options()).expect("a filter");
    let (mut random, mut others) = (Random::new(11), 1 << 32..);
    for round in 0..200_u64 {
        let mut batch = filter.batch();
        for place in 0..400_u64 {
            // Own keys, which the batch forgets as others write.
            batch.check_and_insert(key((round << 16) + place % 180)).expect("an answer");
            if random.below(3) == 0 {
                filter.insert(key(others.next().expect("a number"))).expect("an insert");
            }
        }
        let taken = (round << 16) + 399 % 180;
        if round % 2 == 0 {
            batch.commit().expect("no key of the batch was inserted by another caller");
            assert!(filter.contains(key(taken)).expect("an answer"));
            continue;
        }
        let mut batch = filter.batch();
        assert!(batch.check_and_insert(key(1 << 40 | round)).expect("an answer").is_new());
        filter.insert(key(1 << 40 | round)).expect("an insert");
        assert!(matches!(batch.commit(), Err(Error::Conflict { operation: 0, .. })));
    }
}

/// Operations of which a batch does not decide again all that came before the next question.
fn filled<'f, K>(filter: &'f Filter<K>) -> Batch<'f, K> {
    let mut batch = filter.batch();
    (0..9).for_each(|own| batch.insert(key(1000 + own)).expect("an insert"));
    assert_eq!(batch.check_and_insert(key(2000)).expect("a question"), Checked::New);
    batch
}

#[test]
fn a_key_that_another_caller_inserts_after_a_clear_or_a_step_is_new_for_one_of_them() {
    let media = Arc::new(Memory::new());
    let filter = Filter::create_on(media, Bloom::capacity(1000), options()).expect("a filter");
    let mut batch = filled(&filter);
    assert!(filter.check_and_insert(key(8)).expect("an insert").is_new());
    filter.clear().expect("a clear");
    assert!(filter.check_and_insert(key(7)).expect("an insert").is_new());
    assert_eq!(batch.check_and_insert(key(7)).expect("a question"), Checked::Present);
    assert_eq!(batch.check_and_insert(key(8)).expect("a question"), Checked::New, "it was cleared");
    batch.commit().expect("a commit");
    // Those of the batch, of which one is present, and one beside it.
    assert_eq!(filter.stat().expect("figures").inserts, 13);

    // A burst, for which a bank is opened.
    let clock = ManualClock::new(Timestamp::from_unix_micros(1 << 50));
    let spec = TimeLimited::window(Duration::from_secs(600)).rate(1.0);
    let at = options().clock(clock.clone().into());
    let filter = Filter::create_on(Arc::new(Memory::new()), spec, at).expect("a filter");
    filter.insert(key(8)).expect("an insert");
    let (mut batch, before) = (filled(&filter), filter.stat().expect("figures").memory_bytes);
    let mut keys = 10_000_u64..;
    while filter.stat().expect("figures").memory_bytes == before {
        clock.advance(Duration::from_millis(1));
        keys.by_ref().take(10).for_each(|other| assert!(filter.insert(key(other)).is_ok()));
    }
    assert!(filter.check_and_insert(key(7)).expect("an insert").is_new());
    let answer = batch.check_and_insert(key(7)).expect("a question");
    let committed = batch.commit();
    match answer {
        Checked::New => assert!(matches!(committed, Err(Error::Conflict { .. })), "{committed:?}"),
        answer => assert_eq!((answer, committed.is_ok()), (Checked::Present, true)),
    }
}

#[test]
fn inserts_of_others_while_a_batch_is_filled_advance_its_window() {
    let spec = Fingerprint::last(100).fpr(1e-9);
    let filter = Filter::create_on(Arc::new(Memory::new()), spec, options()).expect("a filter");
    filter.insert("early").expect("an insert");
    let mut batch = Batch::new(filter.call().since(Since::LastAccepted));
    assert!(batch.check_and_insert("own").expect("an answer").is_new());
    assert!(batch.check_and_insert("early").expect("an answer").is_present());
    for number in 0..200 {
        filter.insert(key(number)).expect("an insert");
    }
    assert!(batch.check_and_insert("early").expect("an answer").is_new());
    // Inserted by others while the batch is filled.
    assert!(batch.check_and_insert(key(199)).expect("an answer").is_present());
    filter.clear().expect("a clear");
    for number in 1000..1010 {
        assert!(batch.check_and_insert(key(number)).expect("an answer").is_new());
    }
    batch.commit().expect("a commit");
    assert!(filter.contains("early").expect("an answer"));
    assert!(filter.contains(key(1009)).expect("an answer"));
}

#[test]
fn operations_that_are_too_late_are_counted_once_at_the_commit() {
    let clock = Clock::stream();
    let spec = TimeLimited::window(Duration::from_secs(10));
    let filter = Filter::create_on(Arc::new(Memory::new()), spec, options().clock(clock));
    let filter = filter.expect("a filter");
    let at =
        |seconds: u64| Timestamp::from_unix_micros(1_700_000_000_000_000 + seconds * 1_000_000);
    let mut batch = filter.batch();
    let new = batch.check_and_insert_entry(&Entry::new("now").time(at(1000)));
    assert!(new.expect("an answer").is_new());
    let late = Entry::new("late").time(at(10));
    assert!(batch.check_and_insert_entry(&late).expect("an answer").is_too_late());
    batch.insert_entry(&late).expect("room");
    assert_eq!(batch.len(), 2);
    assert_eq!(filter.stat().expect("figures").refused, 0);
    batch.commit().expect("a commit");
    let stat = filter.stat().expect("figures");
    assert_eq!((stat.inserts, stat.refused), (1, 2));
    assert!(batch.check_and_insert_entry(&late).expect("an answer").is_too_late());
    assert!(batch.is_empty(), "there is nothing to write");
    batch.commit().expect("a commit");
    assert_eq!(filter.stat().expect("figures").refused, 3);
}
