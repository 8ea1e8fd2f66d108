//! The serialised form of the public types with the feature `serde`: names and units are stable.

use ebbtide::{
    Age, Checked, Clock, Counting, Digest, Downtime, Durability, Estimate, Filter, Form, Keep,
    KeyHash, Options, Parameters, Policy, Since, Timestamp, Within,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json, to_value};
use std::time::Duration;

fn reads_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    value: &T,
    as_json: Value,
) {
    assert_eq!(to_value(value).expect("it serialises"), as_json);
    assert_eq!(&from_value::<T>(as_json).expect("it deserialises"), value);
}

#[test]
fn values_have_stable_names_and_units_and_read_back() {
    reads_back(&Timestamp::from_unix_millis(1500), json!(1_500_000));
    reads_back(
        &[Checked::New, Checked::Present, Checked::TooLate],
        json!(["new", "present", "too-late"]),
    );
    reads_back(&[Since::LastSeen, Since::LastAccepted], json!(["last-seen", "last-accepted"]));
    reads_back(&Age::Items(7), json!({"items": 7}));
    reads_back(&Age::micros(7), json!({"time": 7}));
    reads_back(&Within::micros(1_000_000), json!({"time": 1_000_000}));
    reads_back(&Estimate { count: 2.5, at_least: true }, json!({"count": 2.5, "at_least": true}));
    reads_back(&Durability::Interval(Duration::from_secs(1)), json!("interval 1s"));
    reads_back(&[Durability::Always, Durability::Never], json!(["always", "never"]));
    reads_back(&[Downtime::Age, Downtime::Freeze], json!(["age", "freeze"]));
    let keeps = [Keep::Nothing, Keep::For(Duration::from_secs(3600)), Keep::Bytes(24)];
    reads_back(&keeps, json!(["nothing", "3600s", "24B"]));
    let before = from_value::<Keep>(json!("1073741824")).expect("as earlier versions wrote it");
    assert_eq!(before, Keep::Bytes(1 << 30));
    reads_back(&[KeyHash::Fast, KeyHash::Keyed], json!(["fast", "keyed"]));
    reads_back(&[Form::Refined, Form::Paper], json!(["refined", "paper"]));
    reads_back(&Policy::MinimalIncrease, json!("minimal-increase"));
    let parameters = Parameters::new().with("window-items", 7).with("fpr", 0.5);
    reads_back(&parameters, json!({"fpr": "0.5", "window-items": "7"}));
    let digest = Digest { value: 0xab, lsn: 3, inserts: 2 };
    let hexadecimal = "000000000000000000000000000000ab";
    reads_back(&digest, json!({"value": hexadecimal, "lsn": 3, "inserts": 2}));
}

#[test]
fn a_malformed_value_is_refused_with_the_expected_form() {
    let error = from_value::<Durability>(json!("interval 1")).expect_err("no unit");
    assert!(error.to_string().contains("interval 1s"), "{error}");
    for wrong in ["ab", "zz0000000000000000000000000000ab", "+00000000000000000000000000000000ab"] {
        let shown = json!({"value": wrong, "lsn": 3, "inserts": 2});
        assert!(from_value::<Digest>(shown).is_err(), "{wrong}");
    }
}

#[test]
fn the_figures_of_a_filter_serialise() {
    let home = tempfile::TempDir::new().expect("a directory");
    let options = Options::new().hash_seed(7).clock(Clock::stream()).background(false);
    let dir = home.path().join("filter");
    let filter = Filter::create(dir, Counting::capacity(1000), options).expect("a filter");
    let call = filter.call().time(Timestamp::from_unix_millis(1_700_000_000_000));
    let admission = call.insert_up_to("a", 3.0).expect("an insert");
    let shown = to_value(admission).expect("it serialises");
    assert_eq!(shown, json!({"admitted": true, "estimate": {"count": 1.0, "at_least": false}}));
    let stat = to_value(filter.stat().expect("figures")).expect("it serialises");
    assert_eq!((&stat["kind"], &stat["inserts"]), (&json!("counting"), &json!(1)));
    assert_eq!(stat["time"], json!(1_700_000_000_000_000_u64));
    assert_eq!(stat["durability"], json!("interval 1s"));
    assert_eq!(stat["parameters"]["capacity"], json!("1000"));
    assert!(stat["figures"].is_object(), "{stat}");
}
