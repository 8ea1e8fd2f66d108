//! All lookups of a filter.

use ebbtide::inference::Stream;
use ebbtide::{Filter, Form, Penalty, Reader, Timestamp, Within};

/// Runs all lookups of a key at a time. Answers are within bounds for any cells; errors are typed.
pub fn ask(filter: &Filter, key: u8, now: u64) {
    let call = filter.call().time(Timestamp::from_unix_micros(now));
    let _ = call.contains([key]);
    let _ = call.contains_all(&[[key], [!key]]);
    if let Ok(estimate) = call.estimate([key]) {
        assert!(estimate.count >= 0.0, "{estimate:?}");
    }
    let _ = call.frequency([key]);
    let _ = call.age([key]);
    for width in [0, u64::from(key), u64::MAX] {
        let _ = call.seen_within([key], Within::Items(width));
        let _ = call.seen_within([key], Within::micros(width));
    }
}

/// Computes the posteriors of a key.
pub fn infer(filter: &Filter, key: u8, now: u64) {
    let prior = Stream::uniform(100).expect("a universe").rate(50.0);
    let call = filter.call().time(Timestamp::from_unix_micros(now));
    for form in [Form::default(), Form::Paper] {
        if let Ok(probability) = call.form(form).posterior([key], &prior) {
            assert!((0.0..=1.0).contains(&probability), "{probability}");
        }
    }
    let _ = call.window(Within::Items(key.into())).posterior([key], &prior);
    let _ = call.window(Within::micros(key.into())).posterior([key], &prior);
    let penalty = Penalty { false_positive: 1.0, false_negative: 2.0 };
    let _ = call.contains_with([key], &prior, penalty);
    if let Ok(age) = call.age_posterior([key], &prior) {
        for probability in [age.never(), age.within(key.into()), age.of(key.into())] {
            assert!((0.0..=1.0).contains(&probability), "{probability}");
        }
        let _ = (age.most_likely(), age.expected());
    }
}

/// Queries a reader.
pub fn read(reader: &Reader, key: u8, now: u64) {
    let call = reader.call().time(Timestamp::from_unix_micros(now));
    let _ = call.contains([key]);
    let _ = call.estimate([key]);
    let _ = call.age([key]);
    let _ = reader.stat();
    let _ = reader.digest();
}
