//! Inserts concurrent with an event of another thread.

use crate::engine::Engine;
use crate::engine::lifecycle::open;
use crate::engine::write::request::{Given, Precondition, Waits};
use crate::engine::write::single::*;
use crate::image::apply_record;
use crate::media::Memory;
use crate::wal::log_record::ARGUMENT_MAX;
use crate::{Durability, Filter, Options, TimeLimited, Timestamp};
use ebbtide_core::event;
use ebbtide_core::kind::{Event, Micros};
use std::sync::Arc;
use std::{thread::sleep, time::Duration};

const WINDOW: Duration = Duration::from_secs(64);

/// Creates a time-limited filter; also returns the time of its first keys.
fn made() -> (Filter<TimeLimited>, Micros) {
    let options = Options::new().durability(Durability::Never).background(false);
    let (media, spec, start) = (Arc::new(Memory::new()), TimeLimited::window(WINDOW), 1 << 40);
    let filter = Filter::create_on(media, spec, options).expect("a filter");
    assert!(insert(&filter, 0, start));
    (filter, start)
}

fn insert(filter: &Filter<TimeLimited>, key: u64, time: Micros) -> bool {
    let call = filter.call().time(Timestamp::from_unix_micros(time));
    call.insert(key.to_le_bytes()).expect("no error")
}

/// Inserts key 1, two graces later, while another thread holds stripe 0 and runs `act`. The
/// other thread found at the start that a step is due.
fn insert_beside(
    filter: &Filter<TimeLimited>,
    start: Micros,
    act: impl FnOnce(&mut StripeGuard<'_, Local>, Event, Stamp),
) -> Result<bool> {
    let (engine, stamp) = (&filter.engine(), Stamp { time: start, stream: true });
    let later = Timestamp::from_unix_micros(start + 2 * engine.shared.grace);
    std::thread::scope(|scope| {
        let mut events = engine.stripes.acquire(0, Wait::Always).expect("a stripe");
        let (state, moment) = (engine.header().state(), engine.time.moment(stamp));
        let step = engine.shared.kind().step(&state, &moment).expect("it has steps") + 1;
        let inserting = scope.spawn(|| filter.call().time(later).insert(1_u64.to_le_bytes()));
        (0..10).take_while(|_| !inserting.is_finished()).for_each(|_| sleep(WINDOW / 6400));
        act(&mut events, Event::Step { step, time: start, word: 0 }, stamp);
        drop(events); // the insert should have waited for it
        inserting.join().expect("no panic")
    })
}

#[test]
fn a_key_that_comes_while_an_earlier_event_is_decided_stays_for_its_whole_window() {
    let (filter, start) = made();
    let inserted = insert_beside(&filter, start, |events, event, stamp| {
        let (shared, record) = (&filter.engine().shared, event::to_record(&event, stamp.stream));
        let lsn =
            filter.engine().writer.log_writer.append(&mut events.segment, &record).expect("room");
        apply_record::apply_event(&shared.image, shared.kind(), lsn, &event);
        events.entry().note(lsn, stamp.word());
    });
    assert!(inserted.expect("no error"));
    let (window, later) = (WINDOW.as_micros() as Micros, start + 2 * filter.engine().shared.grace);
    let at = |time| filter.call().time(Timestamp::from_unix_micros(time));
    let there = |time| at(time).contains(1_u64.to_le_bytes()).expect("no error");
    assert!(there(later + window - 1), "in its window");
    assert!(!there(later + 2 * window), "long after it");
}

/// Inserts these keys, evenly over four windows from `start` on. Returns when they end.
fn insert_many(engine: &Engine, keys: std::ops::Range<u64>, start: Micros) -> Micros {
    let (first, count) = (keys.start, keys.end - keys.start);
    let end = start + 4 * WINDOW.as_micros() as Micros;
    for key in keys {
        let time = Some(start + (key - first) * (end - start) / count);
        let hash = ebbtide_core::hash::mix(key);
        let request = Request::new(hash, time, 1, Precondition::Nothing, Waits::Always);
        write(&engine.writer, &request).expect("an insert");
    }
    end
}

#[test]
fn banks_whose_numbers_outgrow_the_argument_of_a_record_are_replayed() {
    let memory = Memory::new();
    let options = || Options::new().durability(Durability::Never).background(false);
    let window = crate::Parameters::new().with("window", WINDOW.as_micros());
    let kind = ebbtide_core::kinds::registry::build("time-limited", &window).expect("a kind");
    let mut engine = open::create(Arc::new(memory.clone()), kind, options()).expect("a filter");
    let mut time = insert_many(&engine, 0..10, 1 << 40);
    // As if that many banks had been opened and closed before.
    let before = ARGUMENT_MAX - 1;
    let state_block = engine.header().state_block();
    state_block.change(state_block.current().lsn(), |state| {
        let geometry = state.banks().next().expect("a bank").geometry;
        state.apply_banks(&Event::OpenBank { id: before, geometry, since: 0, time: 0 });
        state.apply_banks(&Event::CloseBank { id: before, time: 0 });
    });
    engine.checkpoints.checkpoint().expect("a checkpoint");
    let next = |engine: &Engine| engine.header().state().next_bank();
    assert_eq!(next(&engine), ARGUMENT_MAX);
    // The rate rises, so larger banks replace smaller ones.
    for (round, count) in (1..).zip([2000_u64, 20_000, 200_000, 1_000_000]) {
        let first = round << 20;
        time = insert_many(&engine, first..first + count, time);
        let (found, banks) = (engine.digest().expect("a digest"), next(&engine));
        drop(engine);
        engine = open::open(Arc::new(memory.clone()), options(), &|_| Ok(())).expect("it opens");
        let again = engine.digest().expect("a digest");
        assert_eq!((again.value, again.inserts), (found.value, found.inserts), "{round}");
        assert_eq!(next(&engine), banks);
        let there = |key| {
            engine
                .queries
                .contains(ebbtide_core::hash::mix(key), Given::default())
                .expect("an answer")
        };
        assert!((first + count - count / 8..first + count).all(there), "{round}: in the window");
    }
    let banks: Vec<_> = engine.header().state().banks().collect();
    assert!(banks.iter().any(|bank| bank.id > ARGUMENT_MAX), "{banks:?}");
    assert!(banks.iter().all(|bank| bank.id >= ARGUMENT_MAX), "older ones were closed: {banks:?}");
    let names = crate::media::Media::list(&memory).expect("a list");
    assert!(names.iter().any(|name| name.starts_with("live-") && name.contains("-16777")));
}

#[test]
fn an_insert_that_waits_for_stripe_0_is_refused_if_what_it_finds_there_could_not_be_repaired() {
    let (filter, start) = made();
    let inserted = insert_beside(&filter, start, |events, event, _| {
        let record = event::to_record(&event, true);
        // For recovery the key's generation ends then.
        filter.engine().writer.log_writer.append(&mut events.segment, &record).expect("room");
        filter.engine().shared.poison("too many open files".to_owned());
    });
    assert!(matches!(inserted, Err(crate::Error::Poisoned { .. })), "{inserted:?}");
}

#[test]
fn the_time_is_recorded_once_a_grace_and_not_with_every_key() {
    let (filter, start) = made();
    let grace = filter.engine().shared.grace;
    let tail = || filter.engine().header().tail().hint();
    let before = tail();
    let mut times = (0..=grace).step_by(grace as usize / 100);
    assert!(times.all(|at| insert(&filter, at, start + at)));
    assert_eq!(tail() - before, 101, "inserts alone");
    assert!(insert(&filter, 1, start + grace + 1));
    assert_eq!(tail() - before, 103, "the time and an insert");
}
