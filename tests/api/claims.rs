//! Claims: one holder of a key at a time, and a key is in the window once its work is confirmed.

use ebbtide::history::At;
use ebbtide::media::Memory;
use ebbtide::{
    AgePartitioned, Any, Bloom, Checked, Claim, Clock, Code, Durability, Error, Filter, Lease,
    ManualClock, Options, Reader, TimeLimited, Timestamp,
};
use ebbtide_core::claims::MOST_CLAIMS;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::SAMPLES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);
const START: u64 = 1_700_000_000_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(START + millis)
}

fn options(clock: &ManualClock) -> Options {
    Options::new()
        .hash_seed(7)
        .stripes(4)
        .segment_bytes(64 << 10)
        .durability(Durability::Never)
        .clock(Clock::from(clock.clone()))
        .background(false)
}

fn made() -> (Filter<Bloom>, Arc<Memory>, ManualClock) {
    let (memory, clock) = (Arc::new(Memory::new()), ManualClock::new(at(0)));
    let filter = Filter::create_on(memory.clone(), Bloom::capacity(100_000), options(&clock));
    (filter.expect("a filter"), memory, clock)
}

fn reopened(memory: &Arc<Memory>, clock: &ManualClock) -> Filter<Bloom> {
    Filter::open_on(memory.clone(), options(clock)).expect("it opens")
}

fn claimed<'a, K>(filter: &'a Filter<K>, key: &str) -> Lease<'a, K> {
    match filter.claim(key, LEASE).expect("an answer") {
        Claim::Yours(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn in_progress<K>(filter: &Filter<K>, key: &str) -> Timestamp {
    match filter.claim(key, LEASE).expect("an answer") {
        Claim::InProgress { until } => until,
        other => panic!("{other:?}"),
    }
}

fn is_seen<K>(filter: &Filter<K>, key: &str) -> bool {
    matches!(filter.claim(key, LEASE).expect("an answer"), Claim::Seen)
}

#[test]
fn a_claimed_key_is_in_the_window_once_its_work_is_confirmed_and_not_before() {
    let (filter, ..) = made();
    let lease = claimed(&filter, "a");
    assert!(!filter.contains("a").expect("an answer"));
    assert_eq!(in_progress(&filter, "a"), at(30_000));
    lease.confirm().expect("it is held");
    assert!(filter.contains("a").expect("an answer") && is_seen(&filter, "a"));
    assert!(matches!(lease.confirm(), Err(Error::LeaseLost { .. })), "only once");
    assert_eq!(filter.stat().expect("figures").inserts, 1);
}

#[test]
fn a_lease_that_is_dropped_or_released_gives_the_key_to_the_next_at_once() {
    let (filter, ..) = made();
    let first = claimed(&filter, "a").token();
    let second = claimed(&filter, "a");
    assert!(second.token() > first);
    assert!(second.release().expect("no error"));
    assert!(!second.release().expect("no error"), "it was released");
    let third = claimed(&filter, "a");
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _lease = third;
        panic!("the handler fails");
    }));
    assert!(unwound.is_err());
    claimed(&filter, "a").confirm().expect("it is held");
}

#[test]
fn a_handler_that_comes_back_too_late_can_neither_confirm_nor_renew_nor_release() {
    let (filter, _, clock) = made();
    let late = claimed(&filter, "a");
    clock.advance(LEASE);
    assert!(matches!(late.confirm(), Err(Error::LeaseLost { .. })), "nobody else has it yet");
    let next = claimed(&filter, "a");
    for refused in [late.confirm(), late.extend(LEASE).map(drop)] {
        assert_eq!(refused.expect_err("too late").code(), Code::LeaseLost);
    }
    assert!(!late.release().expect("no error"));
    drop(late);
    assert!(!filter.contains("a").expect("an answer"));
    next.confirm().expect("it is held");
}

#[test]
fn a_renewed_lease_ends_later_and_keeps_its_token() {
    let (filter, _, clock) = made();
    let lease = claimed(&filter, "a");
    clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(lease.extend(LEASE).expect("it is held"), at(59_999));
    clock.advance(LEASE - Duration::from_millis(1));
    in_progress(&filter, "a");
    let open = filter.claims().expect("claims");
    assert_eq!((open.len(), open[0].token), (1, lease.token()));
    assert_eq!(open[0].age, 2 * (LEASE - Duration::from_millis(1)));
    assert_eq!(open[0].remaining, Duration::from_millis(1));
    lease.confirm().expect("it is held");
    assert!(filter.claims().expect("claims").is_empty());
}

#[test]
fn a_claim_passes_from_one_handle_to_another_by_its_token() {
    let (filter, memory, clock) = made();
    let token = claimed(&filter, "a").into_token();
    in_progress(&filter, "a");
    let other = reopened(&memory, &clock);
    let wrong = other.resume_claim("a", token + 1);
    assert!(matches!(wrong.confirm(), Err(Error::LeaseLost { .. })));
    let of_another_key = other.resume_claim("b", token);
    assert!(matches!(of_another_key.confirm(), Err(Error::LeaseLost { .. })));
    let lease = other.resume_claim("a", token);
    assert!(matches!(filter.call().confirm(&lease), Err(Error::Parameter { .. })));
    lease.confirm().expect("it is held");
    assert!(is_seen(&filter, "a"));
}

#[test]
fn a_call_renews_and_ends_claims_of_its_handle_only() {
    let (filter, memory, clock) = made();
    let quick = filter.call().without_waiting();
    let lease = claimed(&filter, "a");
    clock.advance(Duration::from_secs(1));
    assert_eq!(quick.extend(&lease, LEASE).expect("it is held"), at(31_000));
    assert!(quick.release(&lease).expect("no error") && !quick.release(&lease).expect("no error"));
    claimed(&filter, "a").into_token();
    assert!(quick.end_claim("a").expect("no error") && !quick.end_claim("a").expect("no error"));
    let lease = claimed(&filter, "a");
    let other = reopened(&memory, &clock);
    let refused =
        [other.call().release(&lease).map(drop), other.call().extend(&lease, LEASE).map(drop)];
    assert!(refused.iter().all(|refused| matches!(refused, Err(Error::Parameter { .. }))));
    lease.confirm().expect("it is held");
}

#[test]
fn claims_survive_closing_and_snapshots_and_the_loss_of_the_image() {
    let (filter, memory, clock) = made();
    let tokens = ["a", "b", "c"].map(|key| claimed(&filter, key).into_token());
    filter.checkpoint().expect("a snapshot");
    clock.advance(Duration::from_secs(10));
    let renewed = filter.resume_claim("b", tokens[1]);
    renewed.extend(LEASE).expect("it is held");
    renewed.into_token();
    let later = claimed(&filter, "d").into_token();
    let (digest, open) = (filter.digest().expect("a digest").value, filter.claims());
    let open = open.expect("claims");
    filter.close().expect("closed");
    drop(filter);
    let filter = reopened(&memory, &clock);
    assert_eq!(filter.digest().expect("a digest").value, digest);
    assert_eq!(filter.claims().expect("claims"), open);
    clock.advance(Duration::from_secs(20));
    // "a" and "c" are over; "b" and "d" are not.
    for (key, token, is_held) in [
        ("a", tokens[0], false),
        ("b", tokens[1], true),
        ("c", tokens[2], false),
        ("d", later, true),
    ] {
        let lease = filter.resume_claim(key, token);
        assert_eq!(lease.confirm().is_ok(), is_held, "{key}");
        std::mem::forget(lease);
    }
    assert!(claimed(&filter, "a").token() > later);
}

#[test]
fn a_lease_is_as_long_as_it_was_given_whatever_becomes_of_the_wall_clock() {
    for hours in [-48, -5, 5, 48_i64] {
        let (filter, memory, clock) = made();
        let stepped = Timestamp::from_unix_millis((START as i64 + hours * 3_600_000) as u64);
        let token = claimed(&filter, "a").into_token();
        clock.set_wall(stepped);
        clock.advance(Duration::from_secs(29));
        assert_eq!(in_progress(&filter, "a").since(stepped), LEASE, "by the wall as it is");
        filter.close().expect("closed");
        drop(filter);
        // In the same boot.
        let filter = reopened(&memory, &clock);
        in_progress(&filter, "a");
        clock.advance(Duration::from_secs(1));
        assert!(filter.resume_claim("a", token).confirm().is_err());
        let token = claimed(&filter, "a").into_token();
        filter.close().expect("closed");
        drop(filter);
        // After a reboot, with a wall clock that is wrong by as much: the lease is over, or ends
        // after no more than its length.
        let rebooted = ManualClock::new(stepped);
        let filter = reopened(&memory, &rebooted);
        let continues = matches!(filter.claim("a", LEASE), Ok(Claim::InProgress { .. }));
        assert_eq!(continues, hours < 0);
        rebooted.advance(LEASE);
        assert!(filter.resume_claim("a", token).confirm().is_err());
        claimed(&filter, "a").confirm().expect("it is held");
    }
}

#[test]
fn a_batch_confirms_claims_with_its_positions_or_does_nothing() {
    let (filter, _, clock) = made();
    let mut batch = filter.batch();
    batch.confirm(claimed(&filter, "a")).expect("room");
    batch.insert("b").expect("room");
    batch.set_position(3, 9).expect("room");
    assert!(!filter.contains("a").expect("an answer"));
    in_progress(&filter, "a");
    batch.commit().expect("both are held");
    assert!(is_seen(&filter, "a") && is_seen(&filter, "b"));
    assert_eq!(filter.position(3).expect("an answer"), Some(9));
    assert!(filter.claims().expect("claims").is_empty(), "the batch ended it");
    // One of two claims is over.
    batch.confirm(claimed(&filter, "c")).expect("room");
    clock.advance(LEASE);
    batch.confirm(claimed(&filter, "d")).expect("room");
    batch.set_position(3, 10).expect("room");
    let before = filter.digest().expect("a digest").value;
    assert!(matches!(batch.commit(), Err(Error::LeaseLost { .. })));
    assert_eq!(filter.digest().expect("a digest").value, before);
    in_progress(&filter, "d");
    batch.clear();
    assert!(filter.claims().expect("claims").is_empty());
    // Dropped.
    let mut batch = filter.batch();
    batch.confirm(claimed(&filter, "d")).expect("room");
    drop(batch);
    assert!(filter.claims().expect("claims").is_empty());
    let (other, ..) = made();
    let foreign = filter.batch().confirm(claimed(&other, "e"));
    assert!(matches!(foreign, Err(Error::Parameter { .. })));
}

#[test]
fn the_first_claim_takes_its_space_or_changes_nothing() {
    let (filter, memory, clock) = made();
    let bytes = filter.stat().expect("figures").memory_bytes;
    filter.insert("before").expect("an insert");
    memory.set_capacity(0);
    let digest = filter.digest().expect("a digest").value;
    let refused = filter.claim("a", LEASE).expect_err("no space");
    assert!(refused.is_full(), "{refused}");
    assert_eq!(filter.digest().expect("a digest").value, digest);
    assert!(is_seen(&filter, "before"));
    let refused = filter.call().without_waiting().claim("a", LEASE).map(drop);
    assert!(matches!(refused, Err(Error::WouldWait { .. })));
    memory.set_capacity(u64::MAX);
    let lease = claimed(&filter, "a");
    assert!(filter.stat().expect("figures").memory_bytes >= bytes + (4 << 20));
    lease.confirm().expect("it is held");
    drop(lease);
    // And again when it is rebuilt.
    claimed(&filter, "b").into_token();
    filter.close().expect("closed");
    drop(filter);
    in_progress(&reopened(&memory, &clock), "b");
}

#[test]
fn a_filter_holds_65536_claims_and_no_more_and_makes_room_when_their_time_is_over() {
    let (filter, memory, clock) = made();
    let key = |number: usize| format!("key {number}");
    for number in 0..MOST_CLAIMS {
        let long = if number < 10 { 100 * LEASE } else { LEASE };
        let Claim::Yours(lease) = filter.claim(key(number), long).expect("room") else {
            panic!("{number}");
        };
        lease.into_token();
    }
    let refused = filter.claim("one more", LEASE).expect_err("it is full");
    assert_eq!(refused.code(), Code::ClaimsFull);
    assert!(refused.to_string().contains("65536"), "{refused}");
    assert_eq!(filter.stat().expect("figures").claims, MOST_CLAIMS as u64);
    let before = filter.digest().expect("a digest").value;
    filter.checkpoint().expect("a snapshot");
    filter.close().expect("closed");
    drop(filter);
    let filter = reopened(&memory, &clock);
    assert_eq!(filter.digest().expect("a digest").value, before);
    assert!(filter.claim("one more", LEASE).is_err());
    clock.advance(LEASE);
    let lease = claimed(&filter, "one more");
    in_progress(&filter, &key(3));
    lease.confirm().expect("it is held");
    let held = filter.claims().expect("claims").len();
    assert_eq!(held, 10, "the long ones");
}

#[test]
fn a_clear_keeps_claims_and_an_operator_can_end_them() {
    let (filter, ..) = made();
    let lease = claimed(&filter, "a");
    claimed(&filter, "b").into_token();
    filter.clear().expect("cleared");
    in_progress(&filter, "b");
    lease.confirm().expect("it is held");
    assert!(is_seen(&filter, "a"));
    assert!(filter.end_claim("b").expect("no error"));
    assert!(!filter.end_claim("b").expect("no error"));
    claimed(&filter, "b").confirm().expect("it is held");
}

#[test]
fn leases_out_of_bounds_are_refused() {
    let (filter, ..) = made();
    for wrong in [Duration::ZERO, Duration::from_secs(98 * 86_400)] {
        let refused = filter.claim("a", wrong);
        assert!(matches!(refused, Err(Error::Parameter { .. })), "{wrong:?}");
    }
    assert!(filter.claims().expect("claims").is_empty());
}

#[test]
fn of_many_threads_one_gets_each_key_and_works_on_it_alone() {
    let filter = Filter::create_on(
        Arc::new(Memory::new()),
        AgePartitioned::last(100_000),
        Options::new().durability(Durability::Never).stripes(4),
    );
    let filter = filter.expect("a filter");
    let (keys, threads) = (300_u32, 6);
    let at_work: Vec<AtomicU32> = (0..keys).map(|_| AtomicU32::new(0)).collect();
    let done: Vec<AtomicU32> = (0..keys).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (filter, at_work, done) = (&filter, &at_work, &done);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut rest: BTreeSet<u32> = (0..keys).collect();
                while let Some(&key) =
                    rest.iter().nth(random.below(rest.len().max(1) as u64) as usize)
                {
                    match filter.claim(key.to_le_bytes(), LEASE).expect("an answer") {
                        Claim::Seen => drop(rest.remove(&key)),
                        Claim::InProgress { .. } => std::thread::yield_now(),
                        Claim::Yours(lease) => {
                            let before = at_work[key as usize].fetch_add(1, Ordering::SeqCst);
                            assert_eq!(before, 0, "two work on key {key}");
                            let fails = random.below(3) == 0;
                            at_work[key as usize].fetch_sub(1, Ordering::SeqCst);
                            if !fails {
                                done[key as usize].fetch_add(1, Ordering::SeqCst);
                                lease.confirm().expect("it is held");
                            }
                        }
                    }
                }
            });
        }
    });
    let done: BTreeSet<u32> = done.iter().map(|done| done.load(Ordering::SeqCst)).collect();
    assert_eq!(done, BTreeSet::from([1]), "each key is done once");
    assert_eq!(filter.stat().expect("figures").inserts, u64::from(keys));
}

/// What a filter of which no key expires must answer.
#[derive(Default)]
struct Model {
    seen: BTreeSet<u64>,
    /// Token and deadline by key.
    claims: BTreeMap<u64, (u64, u64)>,
    /// The keys and tokens of all claims.
    given: Vec<(u64, u64)>,
    /// Milliseconds.
    elapsed: u64,
}

impl Model {
    fn holds(&self, key: u64, token: u64) -> bool {
        let held = self.claims.get(&key);
        held.is_some_and(|&(is, until)| is == token && until > self.elapsed)
    }

    fn held(&self) -> u64 {
        self.claims.values().filter(|(_, until)| *until > self.elapsed).count() as u64
    }

    /// Claims a key of a filter, and checks the answer.
    fn claim(&mut self, filter: &Filter<Bloom>, key: u64) {
        let before = self.claims.get(&key).copied();
        let is_held = before.is_some_and(|(_, until)| until > self.elapsed);
        match filter.claim(key.to_le_bytes(), LEASE).expect("an answer") {
            Claim::Seen => assert!(self.seen.contains(&key)),
            Claim::InProgress { .. } => assert!(!self.seen.contains(&key) && is_held),
            Claim::Yours(lease) => {
                assert!(!self.seen.contains(&key) && !is_held);
                let token = lease.into_token();
                assert!(self.given.iter().all(|&(_, before)| before < token));
                self.claims.insert(key, (token, self.elapsed + 30_000));
                self.given.push((key, token));
            }
        }
    }

    /// Does something with a claim that was given before, and may have ended.
    fn use_claim(&mut self, filter: &Filter<Bloom>, (key, token): (u64, u64), choice: u64) {
        let held = self.holds(key, token);
        let lease = filter.resume_claim(key.to_le_bytes(), token);
        let was_held = match choice {
            0 | 1 => lease.confirm().is_ok(),
            2 => lease.release().expect("no error"),
            _ => lease.extend(LEASE).is_ok(),
        };
        lease.into_token();
        assert_eq!(was_held, held);
        match choice {
            _ if !held => {}
            0 | 1 => {
                self.claims.remove(&key);
                self.seen.insert(key);
            }
            2 => drop(self.claims.remove(&key)),
            _ => drop(self.claims.insert(key, (token, self.elapsed + 30_000))),
        }
    }
}

#[test]
fn claims_do_what_a_simple_model_of_them_does_through_restarts_and_steps_of_the_clock() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (mut filter, memory, clock) = made();
        let mut model = Model::default();
        for step in 0..400 {
            let key = random.below(12);
            match random.below(12) {
                0..=3 => model.claim(&filter, key),
                4..=7 if !model.given.is_empty() => {
                    let of = model.given[random.below(model.given.len() as u64) as usize];
                    model.use_claim(&filter, of, random.below(4));
                }
                8 => {
                    let checked = filter.check_and_insert(key.to_le_bytes()).expect("an answer");
                    assert_eq!(checked, Checked::of(!model.seen.insert(key)));
                }
                9 => {
                    let by = random.below(20_000);
                    clock.advance(Duration::from_millis(by));
                    model.elapsed += by;
                }
                10 => clock.set_wall(at(random.below(1 << 40))),
                _ => {
                    if random.below(2) == 0 {
                        filter.checkpoint().expect("a snapshot");
                    }
                    let before = filter.digest().expect("a digest").value;
                    filter.close().expect("closed");
                    drop(filter);
                    filter = reopened(&memory, &clock);
                    assert_eq!(filter.digest().expect("a digest").value, before);
                }
            }
            let claims = filter.stat().expect("figures").claims;
            assert_eq!(claims, model.held(), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn claims_of_every_kind_are_confirmed_through_the_steps_of_its_window_as_in_memory() {
    for sample in &SAMPLES {
        let kind = sample.name;
        let (memory, clock) = (Arc::new(Memory::new()), ManualClock::new(at(0)));
        let options = options(&clock).hash_seed(7).block_bytes(1024).stripes(2);
        let filter = Filter::create_on(memory.clone(), sample.spec(), options.clone());
        let filter = filter.unwrap_or_else(|error| panic!("{kind}: {error}"));
        let mut false_positives = 0;
        for number in 0..200_u32 {
            clock.advance(Duration::from_millis(100));
            let key = format!("key {number}");
            let Claim::Yours(lease) = filter.claim(&key, LEASE).expect("an answer") else {
                false_positives += 1;
                continue;
            };
            in_progress(&filter, &key);
            if number % 7 == 3 {
                drop(lease);
                continue;
            }
            lease.confirm().unwrap_or_else(|error| panic!("{kind}, {number}: {error}"));
            assert!(is_seen(&filter, &key), "{kind}, {number}");
        }
        assert!(false_positives < 20, "{kind}: {false_positives}");
        let digest = filter.digest().expect("a digest").value;
        drop(filter);
        let filter = Filter::<Any>::open_on(memory, options).expect("it opens");
        assert_eq!(filter.digest().expect("a digest").value, digest, "{kind}");
    }
}

#[test]
fn a_filter_of_event_times_gives_leases_by_the_machines_clock() {
    let clock = ManualClock::new(at(0));
    let window = TimeLimited::window(Duration::from_secs(60));
    let filter = Filter::create_on(Arc::new(Memory::new()), window, options(&clock));
    let filter = filter.expect("a filter");
    let long_ago = Timestamp::from_unix_millis(1000);
    let by_event = |millis| filter.call().time(long_ago + Duration::from_millis(millis));
    let Claim::Yours(lease) = by_event(0).claim("a", LEASE).expect("an answer") else {
        panic!("it is new")
    };
    by_event(50_000).insert("b").expect("an insert");
    in_progress(&filter, "a");
    by_event(50_000).confirm(&lease).expect("it is held");
    assert!(matches!(by_event(51_000).claim("a", LEASE), Ok(Claim::Seen)));
    assert!(matches!(by_event(150_000).claim("a", LEASE), Ok(Claim::Yours(_))));
    let Claim::Yours(lease) = by_event(150_000).claim("d", LEASE).expect("an answer") else {
        panic!("it is new")
    };
    let mut batch = filter.batch();
    batch.confirm_at(lease, long_ago + Duration::from_millis(150_000)).expect("room");
    batch.commit().expect("it is held");
    assert!(matches!(by_event(209_000).claim("d", LEASE), Ok(Claim::Seen)));
    // Too late to be remembered: the claim ends, and the key is not in the window.
    by_event(500_000).insert("b").expect("an insert");
    let Claim::Yours(late) = by_event(0).claim("c", LEASE).expect("an answer") else {
        panic!("it is new")
    };
    by_event(0).confirm(&late).expect("it is held");
    assert!(filter.claims().expect("claims").is_empty());
    assert!(!by_event(0).contains("c").expect("an answer"));
}

#[test]
fn a_claim_with_a_time_that_its_confirmation_would_refuse_is_refused_before_the_work() {
    let clock = ManualClock::new(at(0));
    let window = TimeLimited::window(Duration::from_secs(60));
    let options = options(&clock).max_lead(Duration::from_secs(3600));
    let filter = Filter::create_on(Arc::new(Memory::new()), window, options).expect("a filter");
    filter.insert("a").expect("an insert");
    let ahead = filter.call().time(at(2 * 3_600_000)).claim("a", LEASE);
    assert!(matches!(ahead, Err(Error::TimeAhead { .. })), "{ahead:?}");
    assert!(filter.claims().expect("claims").is_empty());
    let allowed = filter.call().time(at(3_500_000)).claim("a", LEASE);
    assert!(matches!(allowed, Ok(Claim::Yours(_))), "{allowed:?}");
}

#[test]
fn a_claim_that_is_confirmed_twice_in_a_batch_is_not_inserted() {
    let (filter, ..) = made();
    let token = claimed(&filter, "a").into_token();
    let mut batch = filter.batch();
    for _ in 0..2 {
        batch.confirm(filter.resume_claim("a", token)).expect("room");
    }
    assert!(matches!(batch.commit(), Err(Error::LeaseLost { .. })));
    assert_eq!(filter.stat().expect("figures").inserts, 0);
    assert_eq!(filter.claims().expect("claims").len(), 1, "nothing has happened");
    drop(batch);
    claimed(&filter, "a").confirm().expect("it is held");
}

#[test]
fn a_state_of_the_past_has_the_claims_of_then() {
    let (filter, memory, clock) = made();
    claimed(&filter, "a").into_token();
    let lsn = filter.stat().expect("figures").lsn - 1;
    clock.advance(2 * LEASE);
    claimed(&filter, "b").confirm().expect("it is held");
    assert_eq!(filter.stat().expect("figures").claims, 0);
    let past = Reader::<Any>::at_on(memory, At::Lsn(lsn), options(&clock)).expect("a moment");
    assert_eq!(past.stat().expect("figures").claims, 1);
}
