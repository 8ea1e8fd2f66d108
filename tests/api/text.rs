//! Specs as text: what is written reads back.

use ebbtide::history::History;
use ebbtide::units::micros_text;
use ebbtide::{Any, Error, Filter, Fingerprint, Options, Parameters, Reader, Spec};
use ebbtide_testkit::samples::SAMPLES;
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn the_text_of_every_kind_reads_back() {
    for sample in SAMPLES {
        let spec = sample.spec();
        let text = spec.to_string();
        assert_eq!(text.parse::<Any>().expect(&text), spec, "{text}");
        // All parameters, completed as `meta` stores them.
        let complete = Any::new(sample.kind, spec.kind().expect("a sample").parameters());
        let text = complete.to_string();
        assert_eq!(text.parse::<Any>().expect(&text), complete, "{text}");
    }
}

proptest! {
    #[test]
    fn a_spec_of_any_numbers_reads_back(
        sample in 0..SAMPLES.len(),
        numbers in prop::collection::vec(any::<u64>(), 8),
        fraction in any::<f64>().prop_filter("a number", |number| number.is_finite()),
    ) {
        let sample = &SAMPLES[sample];
        let mut parameters = Parameters::new().with("fpr", fraction);
        for ((name, _), number) in sample.parameters.iter().zip(numbers) {
            if *name != "fpr" {
                parameters.set(name, number);
            }
        }
        let spec = Any::new(sample.kind, parameters);
        prop_assert_eq!(spec.to_string().parse::<Any>().expect("its text"), spec);
    }

    #[test]
    fn no_text_causes_a_panic(text in "\\PC{0,40}") {
        let _ = text.parse::<Any>().map(|spec| spec.kind().is_ok());
        let _ = text.parse::<Options>();
        let _ = ebbtide::units::parse_duration(&text);
        let _ = ebbtide::units::parse_count(&text);
        let _ = ebbtide::units::parse_size(&text);
    }

    #[test]
    fn every_duration_reads_back(micros in any::<u64>()) {
        let read = ebbtide::units::parse_duration(&micros_text(micros)).expect("its text");
        prop_assert_eq!(read.as_micros(), u128::from(micros));
    }
}

#[test]
fn a_filter_is_created_from_text_and_opened_by_the_same() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("seen");
    let text = "fingerprint last=1M fpr=0.01";
    for _ in 0..2 {
        let spec: Any = text.parse().expect(text);
        let options: Options = "durability=never stripes=4".parse().expect("options");
        let seen = Filter::open_or_create(&dir, spec, options).expect("a filter");
        assert_eq!(seen.parameters().get("window-items"), Some("1000000"));
        assert_eq!(seen.stat().expect("statistics").stripes, 4);
        seen.close().expect("a clean end");
    }
}

#[test]
fn wrong_specs_are_refused_with_a_sentence() {
    for (text, part) in [
        ("", "a kind and its parameters"),
        ("window=10m", "a kind and its parameters"),
        ("time-limited window", "name=value"),
        ("time-limited window=", "name=value"),
        ("time-limited =10m", "name=value"),
        ("time-limited window=10", "a unit after 10"),
        ("time-limited window=10m window=5m", "window once"),
        ("fingerprint last=1 window-items=2", "window-items once"),
    ] {
        let error = Error::from(text.parse::<Any>().expect_err(text));
        assert!(matches!(error, Error::Parameter { name: "spec", .. }), "{error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
    for text in ["no-such-kind last=5", "fingerprint lsat=5", "fingerprint last=many"] {
        let spec: Any = text.parse().expect("well formed");
        assert!(spec.kind().is_err(), "{text}");
    }
}

#[test]
fn the_debug_text_of_a_handle_names_the_filter_and_shows_no_internals() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("seen");
    let options = Options::new().keep_log("1h".parse().expect("a time"));
    let seen = Filter::create(&dir, Fingerprint::last(1000), options).expect("a filter");
    let path = format!("{dir:?}");
    let mut batch = seen.batch();
    batch.insert("a").expect("inserted");
    let shown = format!("{batch:?}");
    let is_whole = shown.contains(&path) && shown.contains("operations: 1");
    assert!(is_whole && shown.len() < 300 + path.len(), "{shown}");
    batch.commit().expect("committed");
    let ticket = seen.issue(|call| call.insert("b")).expect("inserted");
    let lsn = ticket.lsn();
    assert_eq!(format!("{ticket:?}"), format!("Ticket {{ lsn: {lsn}, answer: Some(true), .. }}"));
    let history = History::open(&dir).expect("a history");
    assert_eq!(format!("{history:?}"), format!("History {{ path: {path}, next_lsn: 1, .. }}"));
    let handle = format!("{{ path: {path}, kind: \"fingerprint\", .. }}");
    assert_eq!(format!("{seen:?}"), format!("Filter {handle}"));
    let reader = Reader::<Fingerprint>::open(&dir, Options::new()).expect("a reader");
    assert_eq!(format!("{reader:?}"), format!("Reader {handle}"));
    let window = Fingerprint::window(Duration::from_secs(600));
    assert_eq!(format!("{window:?}"), "Fingerprint({\"window\": \"10m\"})");
}
