//! A filter in memory is the engine with one thread: same answers, same records, same digest.
//!
//! A filter on disk and a machine of the same kind, layout and seed get the same random operations:
//! inserts under every precondition, weights (some of several records), late keys, removals,
//! clears, and claims. A second machine applies the records of the first. A third is restored from
//! the pieces of the first halfway, and then decides for itself.
//!
//! `EBBTIDE_EFFORT=3000 cargo test --test answers machine_twin` runs 30,000 operations of each
//! filter.

use ebbtide::inspect::wal;
use ebbtide::kinds::posterior::PosteriorOptions;
use ebbtide::kinds::{Event, Precondition, Request};
use ebbtide::{
    Any, Call, Claim, Clock, Durability, Filter, Lease, ManualClock, Options, Parameters, Prior,
    Since, Timestamp, Within,
};
use ebbtide_core::claims::{Claimant, HeldClaim, LeaseTime};
use ebbtide_core::event;
use ebbtide_core::kind::MOST_WEIGHT;
use ebbtide_core::kinds::registry;
use ebbtide_core::log_record::{Op, Record};
use ebbtide_core::machine::{ClaimAnswer, Logged, Machine, MachineOptions};
use ebbtide_core::time::OperationTime;
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use std::fmt::{Debug, Display};
use std::path::Path;
use std::time::Duration;

/// Operations of each filter.
const OPERATIONS: u64 = 1000;
/// Keys of a stream: few, so that they repeat.
const KEYS: u64 = 300;
/// The first time of every stream, in microseconds.
const START: u64 = 1_700_000_000_000_000;
const SEED: u64 = 7;
/// Of claims: shorter than some pauses.
const LEASE: Duration = Duration::from_millis(500);

/// The source of times.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Times {
    /// They come with the keys, some of them late.
    Given,
    /// They come from a clock.
    Clock,
}

/// Each key has a probability of one in a thousand, at a thousand inserts per second.
struct Uniform;

impl Prior for Uniform {
    fn probability(&self, _: &[u8]) -> f64 {
        1e-3
    }

    fn inserts_per_second(&self) -> Option<f64> {
        Some(1e3)
    }
}

/// One write.
#[derive(Debug, Clone, Copy)]
enum Write {
    Insert,
    Check(Since),
    Count,
    UpTo(f64),
    Remove,
    Clear,
    Claim,
    /// With the token of a claim of the key.
    Confirm(u64),
    Release(u64),
    Extend(u64),
}

/// A record as both logs show it.
#[derive(Debug, PartialEq)]
struct Shown {
    operation: &'static str,
    time: u64,
    stream: bool,
    details: Vec<(&'static str, u64)>,
}

/// What a write answers, as text: floating-point numbers are shown in full.
type Answer = String;

fn shown<T: Debug, E: Display>(answer: Result<T, E>) -> Answer {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => error.to_string(),
    }
}

/// A filter and its twins.
struct Twins<'a> {
    sample: &'a Sample,
    times: Times,
    filter: Filter,
    hand: ManualClock,
    machine: Machine,
    follower: Machine,
    restored: Option<Machine>,
    records: Vec<Logged>,
    /// Keys that were claimed, and the tokens.
    claimed: Vec<([u8; 8], u64)>,
    random: Random,
    /// The time of the stream, or of the clock.
    now: u64,
}

impl<'a> Twins<'a> {
    fn new(sample: &'a Sample, times: Times, stripes: u32, dir: &Path) -> Self {
        let hand = ManualClock::new(Timestamp::from_unix_micros(START));
        let clock = match times {
            Times::Given => Clock::stream(),
            Times::Clock => Clock::from(hand.clone()),
        };
        let options = Options::new()
            .hash_seed(SEED)
            .stripes(stripes)
            .block_bytes(2048)
            .segment_bytes(4 << 20)
            .checkpoint_bytes(1 << 40)
            .durability(Durability::Never)
            .background(false)
            .clock(clock);
        let filter = Filter::create(dir, sample.spec(), options).expect("a filter");
        let pairs = sample.parameters.iter();
        let parameters = pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
        let kind = registry::build(sample.kind, &parameters).expect("a kind");
        let options = MachineOptions::new().stripes(stripes).block_bytes(2048);
        let machine = Machine::create(kind, &options, SEED.into(), 4711).expect("a machine");
        let follower = Machine::from_identity(&machine.identity()).expect("a twin");
        let random = Random::new(u64::from(stripes) << 8 | u64::from(times == Times::Clock));
        let (restored, records, claimed, now) = (None, Vec::new(), Vec::new(), START);
        Self {
            sample,
            times,
            filter,
            hand,
            machine,
            follower,
            restored,
            records,
            claimed,
            random,
            now,
        }
    }

    /// Lets time pass.
    fn advance(&mut self) {
        let pause = match self.random.below(300) {
            0 => 900_000,
            1..4 => 60_000,
            _ => self.random.below(2000),
        };
        self.now += pause;
        self.hand.advance(Duration::from_micros(pause));
    }

    /// Chooses the time of an operation: `None` by the clock.
    fn given(&mut self) -> Option<u64> {
        let late = match self.random.below(12) {
            0 => self.random.below(400_000),
            1 => self.random.below(20_000),
            _ => 0,
        };
        (self.times == Times::Given).then_some(self.now - late)
    }

    fn choose(&mut self) -> Write {
        let limit = match self.random.below(20) {
            0 => 5e7,
            _ => self.random.below(12) as f64,
        };
        match self.random.below(1000) {
            0 => Write::Clear,
            1..300 => Write::Insert,
            300..500 => Write::Check(Since::LastSeen),
            500..700 => Write::Check(Since::LastAccepted),
            700..800 => Write::Count,
            800..850 => Write::UpTo(limit),
            // Without a clock, leases have the system's.
            850..920 if self.times == Times::Clock => Write::Claim,
            _ => Write::Remove,
        }
    }

    /// Chooses what becomes of a claim, from time to time: with its key.
    fn choose_claim(&mut self) -> Option<([u8; 8], Write)> {
        if self.claimed.is_empty() || self.random.below(15) > 0 {
            return None;
        }
        let at = self.random.below(self.claimed.len() as u64) as usize;
        let (key, token) = self.claimed[at];
        let write = match self.random.below(4) {
            0 => Write::Release(token),
            1 => Write::Extend(token),
            _ => Write::Confirm(token),
        };
        Some((key, write))
    }

    /// Chooses a weight: of kinds that count now and then one that takes several records.
    fn weight(&mut self) -> u64 {
        let counts = self.sample.heaviest > 1 && self.machine.kind().counts().is_some();
        if counts && self.random.below(50) == 0 {
            return u64::from(MOST_WEIGHT) + self.random.below(1 << 26);
        }
        1 + self.random.below(self.sample.heaviest)
    }

    fn wall(&self) -> Option<u64> {
        (self.times == Times::Clock).then_some(self.now)
    }

    /// Performs one operation on the filter and its twins.
    fn operate(&mut self, number: u64) {
        self.advance();
        let (given, mut write) = (self.given(), self.choose());
        let mut key = self.random.below(KEYS).to_le_bytes();
        if let Some(chosen) = self.choose_claim() {
            (key, write) = chosen;
        }
        let weight = self.weight();
        let answer = on_filter(&self.filter, self.sample, write, &key, weight, given);
        let (hash, wall) = (self.machine.hash(&key), self.wall());
        let time = self.machine.time(wall, given).expect("a time");
        let weight = self.machine.kind().weight(weight as f64).unwrap_or(1);
        let before = self.records.len();
        let (records, now) = (&mut self.records, self.now);
        let by_machine =
            on_machine(&mut self.machine, write, hash, weight, (time, now), &mut |at| {
                records.push(at);
            });
        assert_eq!(answer, by_machine, "{self:?}: operation {number}, {write:?}");
        for logged in &self.records[before..] {
            self.follower.apply(logged).expect("the next record");
        }
        if let Some(restored) = &mut self.restored {
            let mut again = Vec::new();
            let by_restored =
                on_machine(restored, write, hash, weight, (time, now), &mut |at| again.push(at));
            assert_eq!(answer, by_restored, "operation {number}, {write:?}, restored");
            assert_eq!(again, self.records[before..], "operation {number}, {write:?}, restored");
        }
        if let Some(claim) = self.machine.claims().find(|claim| claim.hash == hash)
            && matches!(write, Write::Claim)
            && self.claimed.last() != Some(&(key, claim.token))
        {
            self.claimed.push((key, claim.token));
        }
        let key = self.random.below(KEYS + KEYS / 4).to_le_bytes();
        let given = given.map(|_| self.now);
        assert_eq!(
            asked_of_filter(&self.filter, &key, given),
            asked_of_machine(&self.machine, &key, self.now),
            "{self:?}: questions after operation {number}, {write:?}"
        );
    }

    /// Checks that all of them are in the same state.
    fn compare(&self) {
        let digest = self.filter.digest().expect("a digest");
        let stat = self.machine.stat(self.wall().unwrap_or(0), 1024);
        assert_eq!(self.machine.digest(), digest.value, "{self:?}");
        assert_eq!(self.follower.digest(), digest.value, "{self:?}");
        assert_eq!(self.follower.position(), self.machine.position());
        assert_eq!(stat.inserts, digest.inserts, "{self:?}");
        if let Some(restored) = &self.restored {
            assert_eq!(restored.position(), self.machine.position());
            assert!(restored.pieces().eq(self.machine.pieces()), "{self:?}: bit by bit");
        }
        let by_engine = self.filter.stat().expect("figures");
        let figures = |stat: &[(&str, u64)]| stat.iter().map(|f| f.1).collect::<Vec<_>>();
        let own = self.machine.figures();
        assert_eq!(figures(&own), figures(&by_engine.figures), "{self:?}");
        assert_eq!(
            (stat.step, stat.operations, stat.blocks, stat.banks, stat.fill.to_bits()),
            (
                by_engine.step,
                by_engine.operations,
                by_engine.blocks,
                by_engine.banks,
                by_engine.fill.to_bits()
            ),
            "{self:?}"
        );
    }

    /// Checks that the filter's log holds the machine's records.
    fn compare_records(&self, dir: &Path) {
        let uuid = self.machine.position().uuid;
        let mut ours = self.records.iter().map(|logged| {
            let record = logged.decode(uuid).expect("a record of this filter");
            (logged.lsn, shown_record(&record, self.machine.kind().weights().is_some()))
        });
        let (mut number, mut notes) = (0, 0);
        let visit = |entry: &ebbtide::inspect::Entry| {
            if ["durable", "heartbeat", "void"].contains(&entry.operation) {
                notes += 1;
                return Ok(());
            }
            let theirs = Shown {
                operation: entry.operation,
                time: entry.time.as_unix_micros(),
                stream: entry.is_stream_time(),
                details: entry.details(),
            };
            let theirs = (entry.lsn - notes, theirs);
            assert_eq!(ours.next(), Some(theirs), "{self:?}: record {number}");
            number += 1;
            Ok(())
        };
        wal(dir, visit).expect("a log");
        assert_eq!(number, self.records.len(), "{self:?}");
    }
}

impl Debug for Twins<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {:?}, {:?}", self.sample.name, self.times, self.machine.layout())
    }
}

fn shown_record(record: &Record, weighs: bool) -> Shown {
    let Record { op, argument, stream, payload, time, step, .. } = *record;
    let details = match (op, event::from_record(record)) {
        (Op::Insert | Op::Remove, _) => {
            let what = if weighs { "weight" } else { "new" };
            vec![("hash", payload), ("step", step), (what, argument.into())]
        }
        (_, Some(Event::Step { step, word, .. })) => vec![("step", step), ("word", word)],
        (_, Some(Event::OpenBank { id, geometry, since, .. })) => vec![
            ("bank", id.into()),
            ("since", since),
            ("blocks-per-stripe", geometry.blocks_per_stripe.into()),
            ("words", geometry.words_per_block.into()),
        ],
        (_, Some(Event::CloseBank { id, .. })) => vec![("bank", id.into())],
        (Op::Claim, _) => {
            let claim = HeldClaim::of_record(record);
            let lease = (claim.deadline - claim.since) / 1000;
            vec![("hash", payload), ("token", step), ("lease-ms", lease)]
        }
        (Op::Release, _) => vec![("hash", payload), ("token", step)],
        _ => Vec::new(),
    };
    Shown { operation: op.name(), time, stream, details }
}

fn timed<'a>(filter: &'a Filter, given: Option<u64>) -> Call<'a, Filter<Any>> {
    match given {
        Some(time) => filter.call().time(Timestamp::from_unix_micros(time)),
        None => filter.call(),
    }
}

fn on_filter(
    filter: &Filter,
    sample: &Sample,
    write: Write,
    key: &[u8],
    weight: u64,
    given: Option<u64>,
) -> Answer {
    let mut call = timed(filter, given);
    if sample.heaviest > 1 {
        call = call.weight(weight as f64);
    }
    match write {
        Write::Insert => shown(call.insert(key)),
        Write::Check(since) => shown(call.since(since).check_and_insert(key)),
        Write::Count => shown(call.insert_and_estimate(key)),
        Write::UpTo(limit) => shown(call.insert_up_to(key, limit)),
        Write::Remove => shown(call.remove(key)),
        Write::Clear => shown(filter.clear()),
        Write::Claim => match filter.claim(key, LEASE).expect("an answer") {
            Claim::Seen => "seen".to_owned(),
            Claim::InProgress { until } => format!("until {}", until.as_unix_micros()),
            Claim::Yours(lease) => format!("token {}", lease.into_token()),
        },
        Write::Confirm(token) => held(filter.resume_claim(key, token), |lease| lease.confirm()),
        Write::Release(token) => held(filter.resume_claim(key, token), |lease| lease.release()),
        Write::Extend(token) => held(filter.resume_claim(key, token), |lease| {
            lease.extend(LEASE).map(Timestamp::as_unix_micros)
        }),
    }
}

/// Returns what becomes of a claim; it is kept unless it has ended.
fn held<T: Debug>(lease: Lease<'_>, change: impl Fn(&Lease<'_>) -> ebbtide::Result<T>) -> Answer {
    let changed = change(&lease).map_err(|error| error.code());
    lease.into_token();
    shown(changed)
}

fn on_machine(
    machine: &mut Machine,
    write: Write,
    hash: u64,
    weight: u64,
    (time, now): (OperationTime, u64),
    log: &mut impl FnMut(Logged),
) -> Answer {
    let request = Request::insert(hash).weighing(weight);
    match write {
        Write::Insert => {
            let written = machine.write(&request, time, log);
            shown(written.map(|written| !written.checked.is_too_late()))
        }
        Write::Check(since) => {
            let written = machine.write(&request.under(Precondition::Present(since)), time, log);
            shown(written.map(|written| written.checked))
        }
        Write::Count => {
            let written = machine.write(&request.under(Precondition::Estimate), time, log);
            shown(written.map(|written| written.estimate.expect("it was asked for")))
        }
        Write::UpTo(limit) => shown(machine.insert_up_to((hash, weight), limit, time, log)),
        Write::Remove => shown(machine.remove((hash, weight), time, log)),
        Write::Clear => {
            // By the clock, or by the filter's latest time.
            let wall = (!time.stream).then_some(time.time).filter(|&time| time > 0);
            let time = machine.time(wall, None).expect("a time");
            machine.clear(time, log);
            shown(Ok::<_, String>(()))
        }
        Write::Claim => {
            // As the engine in the timeline of a new filter, which is 2.
            let (lease, above) = (LeaseTime::new(LEASE).expect("a lease"), 2 << 40);
            match machine.claim(&Claimant { hash, now, lease, above }, time, log).expect("room") {
                ClaimAnswer::Seen => "seen".to_owned(),
                ClaimAnswer::InProgress(until) => format!("until {until}"),
                ClaimAnswer::Yours(claim) => format!("token {}", claim.token),
            }
        }
        Write::Confirm(token) => ended(machine.confirm((hash, token), now, time, log)),
        Write::Release(token) => ended(Ok(machine.release((hash, token), now, log))),
        Write::Extend(token) => {
            let lease = LeaseTime::new(LEASE).expect("a lease");
            ended(machine.extend((hash, token), now, lease, log))
        }
    }
}

/// Returns what became of a claim.
fn ended<T: Debug>(changed: ebbtide_core::Result<T>) -> Answer {
    shown(changed.map_err(|error| ebbtide::Error::from(error).code()))
}

/// The answers to all questions about a key.
fn asked_of_filter(filter: &Filter, key: &[u8], given: Option<u64>) -> [Answer; 8] {
    let call = timed(filter, given);
    let window = call.window(Within::Items(100));
    [
        shown(call.contains(key)),
        shown(call.age(key)),
        shown(call.seen_within(key, Within::Items(50))),
        shown(call.seen_within(key, Within::micros(50_000))),
        shown(call.estimate(key)),
        shown(call.frequency(key)),
        shown(call.posterior(key, &Uniform)),
        shown(window.posterior(key, &Uniform)),
    ]
}

fn asked_of_machine(machine: &Machine, key: &[u8], now: u64) -> [Answer; 8] {
    let hash = machine.hash(key);
    let window = PosteriorOptions { window: Some(Within::Items(100)), ..Default::default() };
    [
        shown(Ok::<_, String>(machine.contains(hash, now))),
        shown(machine.age(hash, now)),
        shown(machine.seen_within(hash, now, Within::Items(50))),
        shown(machine.seen_within(hash, now, Within::micros(50_000))),
        shown(machine.estimate(hash, now)),
        shown(machine.frequency(hash, now)),
        shown(machine.posterior(key, now, PosteriorOptions::default(), &Uniform)),
        shown(machine.posterior(key, now, window, &Uniform)),
    ]
}

fn drive(times: Times, stripes: u32) {
    let operations = scaled(OPERATIONS);
    for sample in &SAMPLES {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("filter");
        let mut twins = Twins::new(sample, times, stripes, &dir);
        for number in 0..operations {
            if number == operations / 2 {
                twins.restored = Some(Machine::restore(twins.machine.pieces()).expect("a machine"));
            }
            twins.operate(number);
            if number % (operations / 8).max(1) == 0 {
                twins.compare();
            }
        }
        twins.compare();
        twins.compare_records(&dir);
    }
}

#[test]
fn with_given_times_a_machine_is_the_engine_with_one_stripe() {
    drive(Times::Given, 1);
}

#[test]
fn with_given_times_a_machine_is_the_engine_with_four_stripes() {
    drive(Times::Given, 4);
}

#[test]
fn with_a_clock_a_machine_is_the_engine_with_one_stripe() {
    drive(Times::Clock, 1);
}

#[test]
fn with_a_clock_a_machine_is_the_engine_with_four_stripes() {
    drive(Times::Clock, 4);
}
