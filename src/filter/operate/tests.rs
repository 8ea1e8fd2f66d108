//! What an insert does beside an event of somebody else.

use super::*;
use crate::media::Memory;
use crate::{Filter, Options, TimeLimited, Timestamp};
use std::{thread::sleep, time::Duration};

const WINDOW: Duration = Duration::from_secs(64);

/// A time-limited filter, and the time of its first keys.
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

/// Inserts key 1, two graces later, while somebody in stripe 0, who found at the start that a step is due, does this.
fn insert_beside(
    filter: &Filter<TimeLimited>,
    start: Micros,
    act: impl FnOnce(&mut StripeGuard<'_, Local>, Event, Stamp),
) -> Result<bool> {
    let (engine, stamp) = (&filter.engine, Stamp { time: start, stream: true });
    let later = Timestamp::from_unix_micros(start + 2 * engine.grace);
    std::thread::scope(|scope| {
        let mut events = engine.lock(0);
        let (state, moment) = (engine.image.header().state(), engine.moment(stamp));
        let step = engine.meta.kind.step(&state, &moment).expect("it has steps") + 1;
        let inserting = scope.spawn(|| filter.call().time(later).insert(1_u64.to_le_bytes()));
        (0..10).take_while(|_| !inserting.is_finished()).for_each(|_| sleep(WINDOW / 6400));
        act(&mut events, Event::Step { step, time: start, word: 0 }, stamp);
        drop(events); // which it should have waited for
        inserting.join().expect("no panic")
    })
}

#[test]
fn a_key_that_comes_while_an_earlier_event_is_decided_stays_for_its_whole_window() {
    let (filter, start) = made();
    let inserted = insert_beside(&filter, start, |events, event, stamp| {
        let applied = filter.engine.apply_event(events, &event, stamp).expect("no error");
        assert!(matches!(applied, Stepped::Applied));
    });
    assert!(inserted.expect("no error"));
    let (window, later) = (WINDOW.as_micros() as Micros, start + 2 * filter.engine.grace);
    let at = |time| filter.call().time(Timestamp::from_unix_micros(time));
    let there = |time| at(time).contains(1_u64.to_le_bytes()).expect("no error");
    assert!(there(later + window - 1), "in its window");
    assert!(!there(later + 2 * window), "long after it");
}

#[test]
fn an_insert_that_waits_for_stripe_0_is_refused_if_what_it_finds_there_could_not_be_repaired() {
    let (filter, start) = made();
    let inserted = insert_beside(&filter, start, |events, event, _| {
        let record = event::to_record(&event, true);
        // For recovery the key's generation ends then.
        filter.engine.append_for_stripe_0(events, &record).expect("room");
        filter.engine.poison("too many open files".to_owned());
    });
    assert!(matches!(inserted, Err(crate::Error::Poisoned { .. })), "{inserted:?}");
}

#[test]
fn the_time_is_told_once_a_grace_and_not_with_every_key() {
    let (filter, start) = made();
    let grace = filter.engine.grace;
    let tail = || filter.engine.image.header().tail().load(Ordering::Relaxed);
    let before = tail();
    let mut times = (0..=grace).step_by(grace as usize / 100);
    assert!(times.all(|at| insert(&filter, at, start + at)));
    assert_eq!(tail() - before, 101, "inserts alone");
    assert!(insert(&filter, 1, start + grace + 1));
    assert_eq!(tail() - before, 103, "the time and an insert");
}
