//! Options out of bounds, and keys and times at their extremes.

use super::states::{kinds, options, place};
use ebbtide::{
    Age, Any, Clock, Downtime, Durability, Error, Filter, Keep, KeyHash, Options, Parameters,
    Reader, Timestamp, Within, inspect,
};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

fn parameters() -> Parameters {
    Parameters::new().with("capacity", 1000)
}

#[test]
fn options_out_of_bounds_are_refused_and_create_no_files() {
    let place = place();
    let home = place.path().join("filter");
    let interval = |interval| Options::new().durability(Durability::Interval(interval));
    for (name, options) in [
        ("stripes", Options::new().stripes(0)),
        ("stripes", Options::new().stripes(4097)),
        ("stripes", Options::new().stripes(u32::MAX)),
        ("block-bytes", Options::new().block_bytes(0)),
        ("block-bytes", Options::new().block_bytes(511)),
        ("block-bytes", Options::new().block_bytes((64 << 10) + 1)),
        ("block-bytes", Options::new().block_bytes(u64::MAX)),
        ("segment-bytes", Options::new().segment_bytes(0)),
        ("segment-bytes", Options::new().segment_bytes(4095)),
        ("segment-bytes", Options::new().segment_bytes((1 << 30) + 1)),
        ("segment-bytes", Options::new().segment_bytes(u64::MAX)),
        ("durability", interval(Duration::ZERO)),
        ("durability", interval(Duration::from_nanos(999))),
        ("durability", interval(Duration::from_secs(86_401))),
        ("durability", interval(Duration::MAX)),
        ("max-lead", Options::new().max_lead(Duration::MAX)),
    ] {
        let spec = Any::new("bloom", parameters());
        let errors = [
            Filter::create(&home, spec, options.clone()).map(drop),
            inspect::plan("bloom", &parameters(), &options).map(drop),
        ];
        for error in errors {
            match error.expect_err(name) {
                Error::Parameter { name: found, .. } => assert_eq!(found, name),
                other => panic!("{name}: {other}"),
            }
        }
        assert!(!home.exists(), "{name} left files behind");
    }
}

#[test]
fn filters_with_options_at_their_bounds_open_again() {
    let place = place();
    for (at, options) in [
        Options::new().stripes(1).block_bytes(512).segment_bytes(4096),
        Options::new().stripes(4096).block_bytes(64 << 10).segment_bytes(4099),
        Options::new().durability(Durability::Interval(Duration::from_micros(1))),
        Options::new().durability(Durability::Interval(Duration::from_secs(86_400))),
        Options::new().max_lead(Duration::ZERO),
        Options::new().max_lead(Duration::from_micros(u64::MAX)),
        Options::new().max_lead(Duration::from_nanos(1_500_999)),
        Options::new().keep_log(Keep::For(Duration::from_millis(500))),
        Options::new().keep_log(Keep::For(Duration::MAX)),
        Options::new().checkpoint_bytes(0),
        Options::new().checkpoint_bytes(u64::MAX),
        Options::new().hash_seed(u64::MAX),
    ]
    .into_iter()
    .enumerate()
    {
        let home = place.path().join(at.to_string());
        let spec = Any::new("bloom", parameters());
        let filter = Filter::create(&home, spec, options.clone()).expect("a filter");
        for key in 0..300_u32 {
            filter.insert(key.to_le_bytes()).expect("an insert");
        }
        let before = filter.digest().expect("a digest");
        filter.close().expect("a clean end");
        let filter: Filter = Filter::open(&home, options).expect("the same filter");
        assert_eq!(filter.digest().expect("a digest").value, before.value, "row {at}");
    }
}

#[test]
fn keys_may_have_any_length() {
    let place = place();
    for (at, kind) in kinds().into_iter().enumerate() {
        let home = place.path().join(at.to_string());
        let filter = Filter::create(&home, kind, options()).expect("a filter");
        let long = vec![7_u8; 1 << 20];
        let longer = vec![7_u8; (1 << 20) + 1];
        for key in [&b""[..], b"\0", &long] {
            assert!(!filter.contains(key).expect("an answer"), "{} bytes", key.len());
            assert!(filter.insert(key).expect("an insert"));
            assert!(filter.contains(key).expect("an answer"), "{} bytes", key.len());
        }
        assert!(!filter.contains(&longer).expect("an answer"), "another key");
    }
}

#[test]
fn a_time_beyond_the_lead_is_refused_and_a_lookup_at_any_time_is_answered() {
    let place = place();
    let limit = 1_000_000_000 + 3_600_000_000;
    for (at, kind) in kinds().into_iter().enumerate() {
        let home = place.path().join(at.to_string());
        let filter = Filter::create(&home, kind, options()).expect("a filter");
        filter.insert("early").expect("an insert");
        let before = filter.digest().expect("a digest");
        for time in [limit + 1, u64::MAX / 2 + 1, u64::MAX] {
            let call = filter.call().time(Timestamp::from_unix_micros(time));
            match call.insert("key").expect_err("too far ahead") {
                Error::TimeAhead { time: found, limit: named } => {
                    assert_eq!((found, named), (time, limit));
                }
                other => panic!("{other}"),
            }
            for width in [0, u64::MAX] {
                let withins = [Within::Items(width), Within::micros(width)];
                let answers = withins.map(|within| call.seen_within("early", within).is_ok());
                assert!(answers[0] != answers[1], "one of the units is the window's: {answers:?}");
            }
            call.contains("early").expect("an answer");
            call.age("early").expect("an answer");
        }
        assert_eq!(filter.digest().expect("a digest"), before, "nothing was changed");
        let call = filter.call().time(Timestamp::from_unix_micros(limit));
        assert!(call.insert("key").expect("just in time"));
    }
}

#[test]
fn stream_time_at_its_maximum_does_no_harm() {
    let place = place();
    let options = options().clock(Clock::stream());
    for (at, kind) in kinds().into_iter().enumerate() {
        let home = place.path().join(at.to_string());
        let filter = Filter::create(&home, kind, options.clone()).expect("a filter");
        for time in [0, 1, 1 << 62, u64::MAX / 2] {
            let call = filter.call().time(Timestamp::from_unix_micros(time));
            for key in 0..200_u32 {
                assert!(call.insert(key.to_le_bytes()).expect("an insert"));
                assert!(call.contains(key.to_le_bytes()).expect("an answer"));
            }
        }
        let late = filter.call().time(Timestamp::from_unix_micros(u64::MAX));
        late.insert("key").expect_err("no such time");
        assert!(late.age("key").is_ok_and(|age| age.is_none_or(|age| age != Age::Items(u64::MAX))));
        filter.stat().expect("figures");
        let before = filter.digest().expect("a digest");
        filter.close().expect("a clean end");
        let filter: Filter = Filter::open(&home, options.clone()).expect("the same filter");
        assert_eq!(filter.digest().expect("a digest").value, before.value);
    }
}

/// Every option that is fixed at creation, with the value of a filter and another.
fn fixed() -> Vec<(&'static str, Options, Options)> {
    let new = Options::new;
    vec![
        ("hash", new().key_hash(KeyHash::Fast), new().key_hash(KeyHash::Keyed)),
        ("hash-seed", new().hash_seed(1), new().hash_seed(2)),
        ("stripes", new().stripes(4), new().stripes(5)),
        ("block-bytes", new().block_bytes(1024), new().block_bytes(16 << 10)),
        ("segment-bytes", new().segment_bytes(1 << 20), new().segment_bytes(2 << 20)),
        ("downtime", new().downtime(Downtime::Freeze), new().downtime(Downtime::Age)),
        (
            "max-lead",
            new().max_lead(Duration::from_secs(60)),
            new().max_lead(Duration::from_secs(3600)),
        ),
        ("mode", new().mode(0o660), new().mode(0o600)),
    ]
}

#[test]
fn an_option_that_an_existing_filter_does_not_have_is_a_mismatch_in_whatever_way_it_is_opened() {
    let place = place();
    for (name, own, other) in fixed() {
        let home = place.path().join(name);
        let spec = || Any::new("bloom", parameters());
        let filter = Filter::create(&home, spec(), own.clone()).expect("a filter");
        filter.insert("a").expect("an insert");
        let check = |when: &str| {
            let refused = [
                Filter::<Any>::open(&home, other.clone()).map(drop),
                Filter::open_or_create(&home, spec(), other.clone()).map(drop),
                Reader::<Any>::open(&home, other.clone()).map(drop),
            ];
            for refused in refused {
                match refused {
                    Err(Error::Mismatch { what, expected, found, .. }) => {
                        assert_eq!(what, name, "{when}");
                        assert_ne!(expected, found, "{name}, {when}");
                    }
                    other => panic!("{name}, {when}: {other:?}"),
                }
            }
            for options in [own.clone(), Options::new()] {
                let opened = Filter::open_or_create(&home, spec(), options.clone());
                let opened = opened.unwrap_or_else(|error| panic!("{name}, {when}: {error}"));
                assert!(opened.contains("a").expect("an answer"), "{name}, {when}");
                Reader::<Any>::open(&home, options).expect(name);
            }
        };
        check("beside another handle");
        drop(filter);
        check("alone");
    }
}

#[test]
fn options_of_a_handle_are_no_mismatch() {
    let place = place();
    let home = place.path().join("filter");
    let spec = || Any::new("bloom", parameters());
    drop(Filter::create(&home, spec(), Options::new()).expect("a filter"));
    for options in [
        Options::new().durability(Durability::Always),
        Options::new().durability(Durability::Never),
        Options::new().checkpoint_bytes(1 << 20),
        Options::new().background(false),
        Options::new().clock(Clock::stream()),
    ] {
        let filter = Filter::open_or_create(&home, spec(), options).expect("the filter");
        filter.close().expect("a clean end");
    }
}

#[test]
fn a_part_of_a_second_of_kept_log_is_stored_as_a_second_once() {
    let place = place();
    let home = place.path().join("filter");
    let keeping = |millis| options().keep_log(Keep::For(Duration::from_millis(millis)));
    let spec = Any::new("bloom", parameters());
    Filter::create(&home, spec, keeping(500)).and_then(|filter| filter.close()).expect("a filter");
    let written = || std::fs::metadata(home.join("keep")).expect("a file").ino();
    let before = written();
    for (millis, seconds, is_same) in [(500, 1, true), (1000, 1, true), (1001, 2, false)] {
        let filter: Filter = Filter::open(&home, keeping(millis)).expect("a filter");
        let keeps = filter.stat().expect("figures").keep_log;
        assert_eq!(keeps, Keep::For(Duration::from_secs(seconds)), "{millis} ms");
        assert_eq!(keeps.to_string(), Keep::For(Duration::from_millis(millis)).to_string());
        assert_eq!(written() == before, is_same, "{millis} ms");
        filter.close().expect("closed");
    }
}
