//! Runs every command on every kind of the registry, with the options of the contract: the command
//! answers, or reports in one sentence that the kind does not support the operation.

use crate::support::{Place, ok, refused};
use ebbtide::kinds::registry::REGISTRY;
use serde_json::Value;

/// The time of the keys: far in the past, in the middle of an epoch.
pub const TIME: u64 = 1_700_000_000_000;

/// A kind and the operations that it supports.
pub struct Row {
    pub kind: &'static str,
    pub options: &'static [&'static str],
    pub counts: bool,
    removes: bool,
    decays: bool,
    /// The sum of the decay function, and the share by which it may count too much.
    decay: (f64, f64),
    weighs: bool,
    /// The member of an age in JSON.
    pub age: Option<&'static str>,
}

const fn row(kind: &'static str, options: &'static [&'static str]) -> Row {
    Row {
        kind,
        options,
        counts: false,
        removes: false,
        decays: false,
        decay: (1.0, 0.0),
        weighs: false,
        age: None,
    }
}

const fn counter(kind: &'static str, options: &'static [&'static str]) -> Row {
    Row { counts: true, removes: true, weighs: true, ..row(kind, options) }
}

const fn decaying(kind: &'static str) -> Row {
    const OPTIONS: &[&str] =
        &["--capacity", "1000", "--fpr", "0.001", "--lambda", "0.9", "--epoch", "60s"];
    // Fractions are rounded up, by less than one unit of 2^-8 an insert.
    let decay = (10.0, 1.0 / 256.0);
    Row { removes: false, decays: true, decay, ..counter(kind, OPTIONS) }
}

const fn window(kind: &'static str, options: &'static [&'static str]) -> Row {
    Row { age: Some("age_items"), ..row(kind, options) }
}

const KEYS: &[&str] = &["--capacity", "1000", "--fpr", "0.001"];
const POLYNOMIAL: &[&str] = &[
    "--capacity",
    "1000",
    "--decay",
    "polynomial",
    "--exponent",
    "1",
    "--horizon",
    "100",
    "--epoch",
    "60s",
];
const TABLE: &[&str] =
    &["--capacity", "1000", "--decay", "weights", "--weights", "1,0.5,0.25", "--epoch", "60s"];
const ITEMS: &[&str] = &["--window-items", "1000", "--fpr", "0.001"];
const CELLS: &[&str] = &["--cells", "100000", "--max", "7", "-K", "5", "-P", "100"];
const GRADED: &[&str] =
    &["--cells", "100000", "--max", "7", "-K", "5", "-P", "100", "--importance-max", "100"];
/// Parameters with which draws hardly ever meet a zero, for the last kind.
const SPARED: &[&str] =
    &["--cells", "100000", "--max", "7", "-K", "5", "-P", "17", "--importance-max", "100"];

pub const ROWS: &[Row] = &[
    row("bloom", KEYS),
    counter("counting", KEYS),
    counter("spectral", KEYS),
    counter("spectral", &["--capacity", "1000", "--fpr", "0.001", "--policy", "ms"]),
    Row {
        removes: false,
        ..counter("spectral", &["--capacity", "1000", "--fpr", "0.001", "--policy", "mi"])
    },
    counter("spectral", &["--capacity", "1000", "--fpr", "0.001", "--policy", "rm"]),
    counter("dynamic-count", &["--capacity", "1000", "--fpr", "0.001", "--mean-count", "4"]),
    decaying("decaying"),
    // 1 + 1/2 + ... + 1/101.
    Row { options: POLYNOMIAL, decay: (5.197278507738631, 0.03), ..decaying("decaying") },
    Row { options: TABLE, decay: (1.75, 0.0), ..decaying("decaying") },
    decaying("decaying-optimized"),
    window("timing", ITEMS),
    window("block-timing", ITEMS),
    window("block-timing", &["--window-items", "1000", "--fpr", "0.001", "--block-size", "16"]),
    window("age-partitioned", ITEMS),
    window(
        "age-partitioned",
        &["--window-items", "1000", "--fpr", "0.001", "--k", "15", "--l", "49"],
    ),
    window("fingerprint", ITEMS),
    window("fingerprint", &["--window-items", "1000", "--fpr", "0.000001"]),
    Row {
        age: Some("age_seconds"),
        ..row("fingerprint", &["--window", "60s", "--fpr", "0.001", "--rate", "100"])
    },
    Row {
        age: Some("age_seconds"),
        ..row("time-limited", &["--window", "60s", "--fpr", "0.001", "--rate", "100"])
    },
    row("stable", CELLS),
    Row { weighs: true, ..row("importance-2c", CELLS) },
    Row { weighs: true, ..row("importance-2c", GRADED) },
    Row { weighs: true, ..row("importance-mc", GRADED) },
    Row { weighs: true, ..row("importance-h", SPARED) },
    row("double-buffering", ITEMS),
    row("two-buffer", ITEMS),
];

impl Row {
    /// Creates a filter that is the same every time.
    pub fn create(&self, place: &Place) -> String {
        let dir = place.at("filter");
        let settings = ["create", &dir, "--hash-seed", "7", "--kind", self.kind];
        ok(&[&settings, self.options].concat(), b"");
        dir
    }

    fn what(&self) -> String {
        format!("{} {:?}", self.kind, self.options)
    }

    fn can(&self, operation: &str) -> bool {
        match operation {
            "estimate" => self.counts,
            "frequency" => self.decays,
            "remove" => self.removes,
            "age" => self.age.is_some(),
            "a weight" => self.weighs,
            _ => panic!("{operation}"),
        }
    }

    /// Returns the answers of a command, after checking the error if the kind does not support the
    /// operation.
    fn answers(&self, has: bool, command: &[&str], operation: &str, keys: &[&str]) -> Vec<String> {
        let input = timed(keys);
        let command = [command, &["--event-time"]].concat();
        if has {
            return ok(&command, &input).text().lines().map(str::to_owned).collect();
        }
        let sentence = refused(&command, &input);
        let expected = match operation {
            "a weight" => format!("kind {} takes no weights", self.kind),
            operation => format!("kind {} has no operation `{operation}`", self.kind),
        };
        let (_, told) = sentence.split_once(&expected).unwrap_or_else(|| panic!("{sentence}"));
        // The sentence names those that have it, and no others.
        for row in ROWS {
            let has = ROWS.iter().any(|other| other.kind == row.kind && other.can(operation));
            let words = told.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
            assert_eq!(
                words.filter(|&word| word == row.kind).count(),
                usize::from(has),
                "{sentence}"
            );
        }
        Vec::new()
    }
}

/// Returns lines of keys that all have the same time.
pub fn timed(keys: &[&str]) -> Vec<u8> {
    keys.iter().map(|key| format!("{TIME}\t{key}\n")).collect::<String>().into_bytes()
}

fn json(command: &str, dir: &str) -> Value {
    ok(&[command, dir, "--json"], b"").json().remove(0)
}

#[test]
fn every_kind_of_the_registry_has_a_row() {
    for entry in REGISTRY {
        assert!(ROWS.iter().any(|row| row.kind == entry.name), "{}", entry.name);
    }
}

#[test]
fn every_kind_answers_what_it_can_and_refuses_the_rest_by_name() {
    for row in ROWS {
        let place = Place::new();
        let dir = row.create(&place);
        let what = row.what();
        let ask = |command: &[&str], keys: &[&str]| {
            let all = [&command[..1], &[dir.as_str()], &command[1..]].concat();
            row.answers(true, &all, "", keys)
        };
        assert_eq!(ask(&["insert"], &["a", "b", "c"]), [""; 0], "{what}");
        assert_eq!(ask(&["contains"], &["b", "x", "a", "", "c"]), ["1", "0", "1", "0", "1"]);
        assert_eq!(ask(&["check"], &["x", "x", "a"]), ["0", "1", "1"], "{what}");
        assert_eq!(ask(&["check", "--since", "accepted"], &["x", "y"]), ["1", "0"], "{what}");

        let command = ["estimate", &dir];
        let estimates = row.answers(row.counts, &command, "estimate", &["a", "x", "b", "z"]);
        let (sum, above) = row.decay;
        let near = |text: &String, count: f64| {
            let estimate: f64 = text.parse().expect("a number");
            let more = count * above;
            assert!((count..=count + more).contains(&estimate), "{what}: {estimate} for {count}");
        };
        estimates.iter().zip([2.0, 2.0, 1.0, 0.0]).for_each(|(text, count)| near(text, count));
        let command = ["estimate", &dir, "--normalised"];
        let frequencies = row.answers(row.decays, &command, "frequency", &["a", "x", "b", "z"]);
        for (frequency, estimate) in frequencies.iter().zip(&estimates) {
            let of = |text: &String| text.parse::<f64>().expect("a number");
            assert!((of(frequency) - of(estimate) / sum).abs() < 1e-9, "{what}: {frequency}");
        }

        let removed = row.answers(row.removes, &["remove", &dir], "remove", &["a", "a", "a", "z"]);
        if row.removes {
            assert_eq!(removed, ["1", "1", "0", "0"], "{what}");
            assert_eq!(ask(&["contains"], &["a", "b"]), ["0", "1"], "{what}");
        }
        ages(row, &dir);
    }
}

/// Checks the ages of `c`, inserted before five others, of `y`, the last, and of an absent key.
fn ages(row: &Row, dir: &str) {
    let ages = row.answers(row.age.is_some(), &["age", dir], "age", &["c", "y", "z"]);
    let Some(member) = row.age else {
        return;
    };
    assert_eq!(ages[2], "-", "{}", row.what());
    // Ages count later inserts; as times, all are equal.
    for (age, most) in ages.iter().zip([6.0, 1.0]) {
        let age: f64 = age.parse().expect("a number");
        assert!((0.0..=most).contains(&age), "{}: {ages:?}", row.what());
    }
    let command = ["age", dir, "--event-time", "--json"];
    let answers = ok(&command, &timed(&["c", "z"])).json();
    assert!(answers[0][member].is_number(), "{answers:?}");
    assert!(answers[1]["age"].is_null(), "{answers:?}");
}

#[test]
fn plan_stat_verify_and_digest_work_for_every_kind() {
    for row in ROWS {
        let place = Place::new();
        let dir = row.create(&place);
        let what = row.what();
        let plan = [&["plan", "--json", "--kind", row.kind], row.options].concat();
        let plan = ok(&plan, b"").json().remove(0);
        let stat = json("stat", &dir);
        for member in ["kind", "parameters", "blocks", "stripes"] {
            assert_eq!(plan[member], stat[member], "{what}");
        }
        assert!(plan["memory_bytes"].as_u64() >= stat["memory_bytes"].as_u64(), "{what}: {plan}");
        let fpr = plan["fpr"].as_f64().expect("a rate");
        assert!(fpr > 0.0 && fpr < 0.01, "{what}: {fpr}");

        let keys: Vec<_> = (0..200).map(|number| format!("key {number}")).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        ok(&["insert", &dir, "--event-time"], &timed(&keys));
        let stat = json("stat", &dir);
        assert_eq!(stat["inserts"], 200, "{what}");
        assert_eq!(stat["operations"], 200, "{what}");
        assert!(stat["fill"].as_f64() > Some(0.0), "{what}: {stat}");
        let fpr = stat["estimated_fpr"].as_f64().expect("a rate");
        assert!((0.0..0.01).contains(&fpr), "{what}: {fpr}");
        assert!(stat["figures"].is_object(), "{what}: {stat}");
        ok(&["stat", &dir], b"");

        let before = json("digest", &dir);
        assert_eq!(before["inserts"], 200, "{what}");
        let logged = ok(&["wal", &dir, "--json"], b"").json();
        let inserts = logged.iter().filter(|entry| entry["operation"] == "insert");
        assert_eq!(inserts.count(), 200, "{what}");
        ok(&["snapshot", &dir], b"");
        let (copy, again) = (place.at("copy"), place.at("again"));
        ok(&["backup", &dir, &copy], b"");
        ok(&["restore", &copy, &again], b"");
        assert_eq!(json("digest", &again)["digest"], before["digest"], "{what}");
        ok(&["verify", &dir], b"");
    }
}

#[test]
fn weights_are_accepted_by_kinds_that_use_them() {
    for row in ROWS {
        let place = Place::new();
        let dir = row.create(&place);
        let insert = ["insert", &dir, "--weight"];
        row.answers(row.weighs, &insert, "a weight", &["a\t3", "b\t1"]);
        let keys = ["a\t1", "b\t1"];
        if row.counts {
            let command = ["estimate", &dir, "--weight"];
            let estimates = row.answers(true, &command, "", &keys);
            let numbers = estimates.iter().map(|text| text.parse::<f64>().expect("a number"));
            assert_eq!(numbers.map(f64::floor).collect::<Vec<_>>(), [3.0, 1.0], "{}", row.what());
        }
        let logged = ok(&["wal", &dir, "--json"], b"").json();
        let weights = logged.iter().filter_map(|entry| entry["weight"].as_u64());
        let weights: Vec<_> = weights.collect();
        let expected: &[u64] =
            match (row.counts, row.weighs, row.options.contains(&"--importance-max")) {
                (_, false, _) => &[],
                // The first of 7 levels up to 100.
                (false, true, true) => &[1, 1],
                _ => &[3, 1],
            };
        assert_eq!(weights, expected, "{}", row.what());
    }
}
