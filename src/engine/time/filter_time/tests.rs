//! Wrong clocks: the wall clock steps, the elapsed time does not.

use crate::engine::Engine;
use crate::engine::lifecycle::{close, open};
use crate::engine::time::filter_time::*;
use crate::engine::write::request::{Checked, Given, Precondition, Request, Since, Waits};
use crate::engine::write::single::write;
use crate::engine::write::stripe_0_records;
use crate::format::names::FileName;
use crate::media::{Access, Media, Memory};
use crate::options::{Downtime, Options};
use crate::{ManualClock, Timestamp};
use ebbtide_core::kind::Parameters;
use proptest::prelude::*;
use std::sync::Arc;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: u64 = 3600;
const WINDOW: u64 = 60;
/// The window plus the granularity of expiry.
const GONE: u64 = WINDOW + WINDOW / 2;
/// The time at which the tests begin.
const START: u64 = 1_700_000_000;

/// The way in which a filter ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
}

const ENDS: [End; 2] = [End::Closed, End::Killed];

/// A machine with a filter of the last minute.
struct Machine {
    memory: Memory,
    hand: ManualClock,
    engine: Option<Engine>,
    /// The reading of the wall clock.
    wall: u64,
}

fn stamp(seconds: u64) -> Timestamp {
    Timestamp::from_unix_millis(seconds * 1000)
}

fn hash(key: u64) -> u64 {
    ebbtide_core::hash::mix(key + 1)
}

impl Machine {
    fn new(wall: u64, downtime: Downtime) -> Self {
        let (memory, hand) = (Memory::new(), ManualClock::new(stamp(wall)));
        let parameters = Parameters::new().with("window", WINDOW * 1_000_000).with("fpr", 1e-6);
        let kind =
            ebbtide_core::kinds::registry::build("time-limited", &parameters).expect("a kind");
        let options = Self::options(&hand).downtime(downtime).max_lead(2 * HOUR as u32 * SECOND);
        let engine = open::create(Arc::new(memory.clone()), kind, options);
        Self { memory, hand, engine: Some(engine.expect("a filter")), wall }
    }

    fn options(hand: &ManualClock) -> Options {
        let options = Options::new().background(false).segment_bytes(4 << 10).stripes(2);
        options.clock(Clock::from(hand.clone()))
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it is open")
    }

    fn end(&mut self, end: End) {
        if let Some(engine) = self.engine.take()
            && end == End::Closed
        {
            close::finish(&engine).expect("a clean close");
        }
    }

    fn open_with(&mut self, options: Options) {
        let engine = open::open(Arc::new(self.memory.clone()), options, &|_| Ok(()));
        self.engine = Some(engine.expect("it opens"));
    }

    fn open(&mut self) {
        self.open_with(Self::options(&self.hand));
    }

    fn reopen(&mut self, end: End) {
        self.end(end);
        self.open();
    }

    /// Lets seconds pass.
    fn pass(&mut self, seconds: u64) {
        self.wall += seconds;
        self.hand.advance(seconds as u32 * SECOND);
    }

    /// Sets the wall clock to another time; no time passes.
    fn step_to(&mut self, wall: u64) {
        self.wall = wall;
        self.hand.set_wall(stamp(wall));
    }

    /// Reboots the machine with this wall clock. An image of an earlier boot is not used, nor one
    /// with another inode.
    fn reboot(&mut self, end: End, wall: u64) {
        self.end(end);
        let live = FileName::Live.to_string();
        let file = self.memory.open(&live, Access::Read).expect("the image stays");
        let mut bytes = vec![0; file.bytes().expect("a length") as usize];
        file.read_at(&mut bytes, 0).expect("bytes");
        let copy = self.memory.create("copy", bytes.len() as u64).expect("a copy");
        copy.write_at(&bytes, 0).expect("bytes");
        self.memory.rename("copy", &live).expect("another inode");
        (self.hand, self.wall) = (ManualClock::new(stamp(wall)), wall);
    }

    fn write(&self, key: u64, time: Option<u64>) -> Checked {
        let (time, ask) =
            (time.map(|time| time * 1_000_000), Precondition::Present(Since::LastSeen));
        let request = Request::new(hash(key), time, 1, ask, Waits::Always);
        write(&self.engine().writer, &request).expect("an insert").checked
    }

    fn insert(&self, key: u64) {
        self.write(key, None);
    }

    fn has(&self, key: u64) -> bool {
        self.engine().queries.contains(hash(key), Given::default()).expect("an answer")
    }

    fn lead(&self) -> Option<u64> {
        self.engine().time.clock_lead().map(|lead| lead.as_secs())
    }
}

/// Returns wall clocks that are right, hours ahead and behind, and years.
fn walls() -> impl Iterator<Item = u64> {
    [0, 600, 5 * HOUR, 90_000 * HOUR].into_iter().flat_map(|by| [START + by, START - by])
}

#[test]
fn within_a_boot_no_step_of_the_wall_clock_is_noticed_open_or_closed() {
    for (end, first, then) in
        ENDS.into_iter().flat_map(|end| walls().map(move |then| (end, START, then)))
    {
        let mut machine = Machine::new(first, Downtime::Age);
        machine.insert(1);
        for closed in [false, true] {
            // Ahead or back while it is open, then while it is closed.
            if closed {
                machine.end(end);
                machine.step_to(then);
                machine.open();
            } else {
                machine.step_to(then);
                machine.reopen(end);
                machine.step_to(first);
            }
            machine.insert(10);
            machine.pass(WINDOW - 20);
            machine.reopen(end);
            assert!(machine.has(10), "{end:?}, {then}, {closed}: it is in the window");
            machine.end(end);
            machine.pass(50);
            machine.open();
            assert!(!machine.has(10), "{end:?}, {then}, {closed}: downtime counts");
            assert!(!machine.has(1));
        }
        machine.insert(11);
        machine.pass(GONE);
        assert!(!machine.has(11), "{end:?}, {then}: time continues");
    }
}

#[test]
fn a_clock_that_was_behind_at_the_opening_and_put_right_costs_no_key_at_the_next() {
    for end in ENDS {
        let mut machine = Machine::new(START - 600, Downtime::Age);
        machine.insert(0);
        machine.step_to(START);
        machine.insert(1);
        machine.pass(1);
        machine.reopen(end);
        assert!(machine.has(1));
        // Nor after a reboot: the filter's lag is stored.
        machine.insert(2);
        machine.engine().time.tend();
        machine.reboot(end, START + 31);
        machine.open();
        assert!(machine.has(2), "{end:?}: 30 seconds old");
        assert_eq!(machine.lead(), None, "behind is not ahead");
        machine.reboot(end, START + 100);
        machine.open();
        assert!(!machine.has(2), "{end:?}: 99 seconds old");
    }
}

#[test]
fn a_filter_ahead_of_the_clock_says_so_and_forgets_all_the_same_also_over_reboots() {
    for (end, ahead) in ENDS.into_iter().flat_map(|end| [(end, 5 * HOUR), (end, 90_000 * HOUR)]) {
        let mut machine = Machine::new(START + ahead, Downtime::Age);
        machine.insert(0);
        assert_eq!(machine.lead(), None);
        // At the first boot with the right clock, the downtime is unknown.
        machine.reboot(end, START);
        machine.open();
        assert_eq!(machine.lead(), Some(ahead));
        assert_eq!(
            machine.engine().stat().expect("a stat").clock_lead.map(|it| it.as_secs()),
            machine.lead()
        );
        assert!(machine.has(0));
        for boot in 1..4 {
            machine.insert(boot);
            machine.reboot(end, machine.wall + WINDOW - 20);
            machine.open();
            assert!(machine.has(boot), "{end:?}, {ahead}, {boot}");
            machine.reboot(end, machine.wall + 50);
            machine.open();
            assert!(!machine.has(boot), "{end:?}, {ahead}, {boot}: off for longer than the window");
            assert_eq!(machine.lead(), Some(ahead));
        }
        machine.insert(9);
        machine.pass(GONE);
        assert!(!machine.has(9), "it forgets while it is open");
    }
}

#[test]
fn a_key_from_the_future_takes_the_clock_with_it() {
    for (end, restart) in ENDS.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let mut machine = Machine::new(START, Downtime::Age);
        machine.write(0, Some(START + HOUR));
        for round in 1..4 {
            assert_eq!(machine.write(round, None), Checked::New);
            machine.pass(WINDOW - 20);
            if restart {
                machine.reopen(end);
            }
            assert_eq!(machine.write(100 * round, None), Checked::New);
            assert!(machine.has(round), "{end:?}, {restart}, {round}");
            machine.end(end);
            machine.pass(50);
            machine.open();
            assert!(!machine.has(round), "{end:?}, {restart}, {round}");
            assert_eq!(machine.write(round, None), Checked::New);
            // And once more while clocks are running already.
            machine.write(0, Some(machine.wall + HOUR + 60 * round));
            assert_eq!(machine.lead(), Some(HOUR + 60 * round));
        }
    }
}

#[test]
fn keys_from_the_past_are_where_the_clock_continues_and_until_then_time_stands() {
    for downtime in [Downtime::Age, Downtime::Freeze] {
        let mut machine = Machine::new(START, downtime);
        let past = START - 1_000 * HOUR;
        for end in ENDS {
            machine.write(1, Some(past));
            machine.pass(HOUR);
            stripe_0_records::heartbeat(&machine.engine().writer).expect("none is due");
            assert!(machine.has(1), "{downtime:?}, {end:?}: no key has come since");
            machine.reopen(end);
            assert!(machine.has(1), "{downtime:?}, {end:?}: nor while it was closed");
            machine.reboot(end, machine.wall + HOUR);
            machine.open();
            assert!(machine.has(1), "{downtime:?}, {end:?}: nor over a reboot");
        }
        machine.insert(2);
        machine.pass(WINDOW - 20);
        assert!(machine.has(1) && machine.has(2), "{downtime:?}");
        machine.pass(50);
        assert!(!machine.has(1) && !machine.has(2), "{downtime:?}: a clock moves it now");
        let latest = machine.engine().time.latest();
        assert_eq!(latest, Stamp { time: past * 1_000_000 + 1, stream: false });
    }
}

#[test]
fn a_frozen_filter_stands_still_while_closed_whatever_the_clock_does() {
    for (end, then) in ENDS.into_iter().flat_map(|end| walls().map(move |then| (end, then))) {
        let mut machine = Machine::new(START, Downtime::Freeze);
        for round in 1..3 {
            machine.insert(round);
            machine.pass(WINDOW - 20);
            stripe_0_records::heartbeat(&machine.engine().writer).expect("a heartbeat");
            machine.end(end);
            machine.pass(10 * HOUR);
            machine.step_to(then);
            if round == 2 {
                machine.reboot(end, then);
            }
            machine.open();
            assert!(machine.has(round), "{end:?}, {then}, {round}");
            machine.pass(50);
            assert!(!machine.has(round), "{end:?}, {then}, {round}: time passes while it is open");
        }
    }
}

#[test]
fn a_look_without_a_clock_in_between_changes_nothing() {
    for end in ENDS {
        let mut machine = Machine::new(START, Downtime::Age);
        machine.insert(1);
        machine.end(end);
        for _ in 0..2 {
            machine.open_with(Machine::options(&machine.hand).clock(Clock::stream()));
            assert!(machine.has(1));
            machine.end(end);
        }
        machine.step_to(START + HOUR);
        machine.pass(WINDOW - 20);
        machine.open();
        assert!(machine.has(1), "{end:?}");
        machine.pass(50);
        assert!(!machine.has(1), "{end:?}");
    }
}

#[test]
fn handles_whose_clocks_measure_differently_have_bases_of_their_own() {
    let machine = Machine::new(START, Downtime::Age);
    machine.insert(1);
    let other = ManualClock::new(stamp(START + 3));
    let open = |hand: &ManualClock| {
        open::open(Arc::new(machine.memory.clone()), Machine::options(hand), &|_| Ok(()))
            .expect("it opens")
    };
    let [same, own] = [open(&machine.hand), open(&other)];
    other.advance(50 * SECOND);
    assert_eq!(same.time.now().time, START * 1_000_000);
    assert_eq!(own.time.now().time, (START + 53) * 1_000_000);
    machine.hand.advance(20 * SECOND);
    assert_eq!(same.time.now().time, (START + 20) * 1_000_000);
    own.time.tend();
    assert_eq!(
        clock_offset::noted(machine.engine().header()),
        Some(0),
        "noted by the image's clock only"
    );
}

#[test]
fn a_time_near_the_epoch_is_a_base_like_any_other() {
    for first in [0, 5] {
        let mut machine = Machine::new(START, Downtime::Age);
        machine.pass(HOUR);
        machine.write(1, Some(first));
        machine.pass(HOUR);
        assert!(machine.has(1), "{first}: no clock moves it yet");
        machine.insert(2);
        machine.pass(WINDOW - 20);
        assert!(machine.has(1) && machine.has(2), "{first}");
        let now = machine.engine().time.now().time;
        assert_eq!(now / 1_000_000, first + WINDOW - 20);
        machine.pass(50);
        assert!(!machine.has(1) && !machine.has(2), "{first}");
    }
}

#[test]
fn the_time_for_which_a_frozen_filter_was_open_counts_also_without_heartbeats_of_a_thread() {
    let mut machine = Machine::new(START, Downtime::Freeze);
    machine.insert(1);
    machine.pass(2 * WINDOW);
    assert!(!machine.has(1));
    machine.reopen(End::Closed);
    assert!(!machine.has(1), "it was open until its window was over");
    machine.insert(2);
    machine.pass(WINDOW - 20);
    machine.reopen(End::Closed);
    machine.pass(HOUR);
    machine.reopen(End::Closed);
    assert!(!machine.has(2), "it was open for an hour");
}

/// An event on a machine within one boot.
#[derive(Debug, Clone)]
enum Happening {
    Pass(u64),
    Step(i64),
    Insert,
    Restart(End, u64),
    LookWithoutClock(End),
}

fn happening() -> impl Strategy<Value = Happening> {
    let end = || prop_oneof![Just(End::Closed), Just(End::Killed)];
    prop_oneof![
        4 => Just(Happening::Insert),
        3 => (0..40_u64).prop_map(Happening::Pass),
        2 => (-100_000..100_000_i64).prop_map(Happening::Step),
        2 => (end(), 0..40_u64).prop_map(|(end, off)| Happening::Restart(end, off)),
        1 => end().prop_map(Happening::LookWithoutClock),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// By the true elapsed time: a key is present for all of the window, and gone at the next
    /// operation with a time after window and granularity.
    #[test]
    fn keys_live_by_true_time_whatever_the_wall_clock_does(
        all in proptest::collection::vec(happening(), 1..60), first in -100_000..100_000_i64,
    ) {
        let mut machine = Machine::new(START.saturating_add_signed(first), Downtime::Age);
        let (mut now, mut inserted) = (0, Vec::<u64>::new());
        for happening in all {
            match happening {
                Happening::Pass(seconds) => {
                    machine.pass(seconds);
                    now += seconds;
                }
                Happening::Step(by) => machine.step_to(machine.wall.saturating_add_signed(by)),
                Happening::Insert => {
                    machine.insert(inserted.len() as u64);
                    inserted.push(now);
                }
                Happening::Restart(end, off) => {
                    machine.end(end);
                    machine.pass(off);
                    now += off;
                    machine.open();
                }
                Happening::LookWithoutClock(end) => {
                    machine.end(end);
                    machine.open_with(Machine::options(&machine.hand).clock(Clock::stream()));
                    machine.reopen(end);
                }
            }
            for (key, &at) in inserted.iter().enumerate() {
                let (key, age) = (key as u64, now - at);
                prop_assert!(age >= WINDOW || machine.has(key), "lost at {age} s");
                prop_assert!(age <= GONE || !machine.has(key), "still there at {age} s");
            }
        }
    }
}
