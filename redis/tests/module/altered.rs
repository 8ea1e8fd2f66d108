//! Filters that are altered, against a model that knows when each item was seen.

use crate::server::{Server, ask, is_there};
use ebbtide_core::kinds::spec::{Any, Spec};
use ebbtide_core::machine::{Machine, MachineOptions};
use ebbtide_core::time::OperationTime;
use ebbtide_core::{KeyHash, Since};
use ebbtide_testkit::environment::{SEED, number, scaled};
use ebbtide_testkit::random::Random;
use redis::{Connection, Value};
use std::collections::BTreeMap;

/// Items of a stream.
const ITEMS: u64 = 60;
/// The first time, in milliseconds.
const START: u64 = 1_700_000_000_000;
/// Items that are asked for and never added.
const OTHERS: u64 = 20;

/// A window as the model knows it.
#[derive(Debug, Clone, Copy)]
struct Window {
    is_time: bool,
    /// Inserts or milliseconds; `u64::MAX` for kinds that forget nothing.
    width: u64,
    /// How much later items leave it at the latest.
    slack: u64,
    /// Whether the kind tells how long ago an item was seen.
    tells: bool,
}

impl Window {
    /// Returns the window of a kind with these parameters, as in `EB.RESERVE`.
    fn of(words: &str) -> Self {
        let all: Vec<&str> = words.split(' ').collect();
        let value = |name: &str| {
            let at = all.iter().position(|word| *word == name)?;
            let digits = all[at + 1].trim_end_matches("ms");
            Some((digits.parse::<u64>().expect(words), digits != all[at + 1]))
        };
        let found = value("last").or_else(|| value("window"));
        let (width, is_time) = found.unwrap_or((u64::MAX, false));
        let (slack, tells) = match all[0] {
            "timing" => (1, true),
            "fingerprint" | "block-timing" => (width / 4 + 20, true),
            // An item that has left it is seldom present, but for long.
            "age-partitioned" | "time-limited" => (u64::MAX, true),
            "two-buffer" | "double-buffering" => (width + 1, false),
            _ => (u64::MAX, false),
        };
        Self { is_time, width, slack, tells }
    }

    fn end(&self) -> u64 {
        self.width.saturating_add(self.slack)
    }
}

/// What the filter must know and may know of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Known {
    must: bool,
    may: bool,
}

/// When items were seen.
struct Model {
    /// The number of inserts and the time, when each item was inserted last.
    seen: BTreeMap<String, (u64, u64)>,
    inserts: u64,
    now: u64,
    current: Window,
    /// The former window, and the inserts and the time at the alteration. A filter whose window is
    /// one of inserts has no time, so that of the current one begins with its first insert.
    former: Option<(Window, u64, Option<u64>)>,
}

impl Model {
    fn insert(&mut self, item: &str) {
        self.inserts += 1;
        let now = self.now;
        if let Some((former, _, began)) = &mut self.former
            && began.is_none()
        {
            assert!(!former.is_time);
            *began = Some(now);
        }
        self.seen.insert(item.to_owned(), (self.inserts, self.now));
    }

    /// Returns the time of the filter: that of the latest insert.
    fn latest(&self) -> u64 {
        self.seen.values().map(|(_, time)| *time).max().unwrap_or(START)
    }

    fn ages(&self, item: &str) -> Option<(u64, u64)> {
        let &(insert, time) = self.seen.get(item)?;
        Some((self.inserts - insert, self.now - time))
    }

    fn in_unit(window: &Window, (inserts, time): (u64, u64)) -> u64 {
        if window.is_time { time } else { inserts }
    }

    /// Returns whether the current filter has existed for a whole window.
    fn is_whole(&self) -> bool {
        self.former.is_none_or(|(_, inserts, began)| {
            let passed = (self.inserts - inserts, began.map_or(0, |began| self.now - began));
            let passed = Self::in_unit(&self.current, passed);
            if self.current.is_time {
                passed > self.current.width
            } else {
                passed >= self.current.width
            }
        })
    }

    /// Returns what is known of an item within a reach of the current window.
    fn within(&self, item: &str, reach: u64) -> Known {
        let Some(ages) = self.ages(item) else { return Known { must: false, may: false } };
        let (current, age) = (self.current, Self::in_unit(&self.current, ages));
        let Some((former, inserts, _)) = self.former else {
            return Known { must: age < reach, may: age <= reach.saturating_add(current.slack) };
        };
        if self.seen[item].0 > inserts {
            return Known { must: age < reach, may: age <= reach.saturating_add(current.slack) };
        }
        let before = Self::in_unit(&former, ages);
        let is_same_unit = former.is_time == current.is_time;
        let may_be_old = !former.tells || !is_same_unit;
        let is_near = may_be_old || age <= reach.saturating_add(former.slack);
        Known {
            must: age < reach && before < former.width && !self.is_whole(),
            may: is_near && before <= former.end() && !self.is_whole(),
        }
    }

    fn known(&self, item: &str) -> Known {
        self.within(item, self.current.width)
    }
}

impl Known {
    fn check(self, found: bool, what: &str) {
        assert!(found || !self.must, "{what}: it is missing");
        assert!(!found || self.may, "{what}: it is not known any more");
    }
}

/// A filter of a server that is altered, with its model.
struct Stream {
    connection: Connection,
    random: Random,
    model: Model,
    /// What `EB.RESERVE` or `EB.ALTER` was given last.
    words: String,
    /// Inserts since the alteration: items and times.
    since: Vec<(String, u64)>,
}

impl Stream {
    fn new(server: &Server, words: &str, seed: u64) -> Self {
        let mut connection = server.connect();
        let () = ask(&mut connection, "FLUSHALL");
        let reserve = format!("EB.RESERVE seen {words} HASH fast SEED 7");
        let () = ask(&mut connection, &reserve);
        let (current, seen) = (Window::of(words), BTreeMap::new());
        let model = Model { seen, inserts: 0, now: START, current, former: None };
        let (random, words) = (Random::new(seed), words.to_owned());
        Self { connection, random, model, words, since: Vec::new() }
    }

    fn alter(&mut self, words: &str) {
        let () = ask(&mut self.connection, &format!("EB.ALTER seen {words}"));
        let (former, model) = (self.model.current, &mut self.model);
        model.now = model.latest();
        model.former = Some((former, model.inserts, former.is_time.then_some(model.now)));
        model.current = Window::of(words);
        words.clone_into(&mut self.words);
        self.since.clear();
    }

    fn item(&mut self) -> String {
        format!("item-{}", self.random.below(ITEMS))
    }

    fn insert(&mut self, item: &str) {
        self.model.insert(item);
        self.since.push((item.to_owned(), self.model.now));
    }

    /// Adds an item with the time of the stream, or claims and confirms it.
    fn step(&mut self) {
        let item = self.item();
        // A filter without a time takes that of the clock.
        if self.random.below(6) == 0 && !self.since.is_empty() {
            return self.claim(&item);
        }
        self.model.now = self.model.latest() + self.random.below(9);
        let (known, now) = (self.model.known(&item), self.model.now);
        let nx = self.random.below(2) == 0;
        let times = if self.random.below(2) == 0 {
            format!("AT {now} ITEMS {item}")
        } else {
            format!("TIMED {now} {item}")
        };
        let words = format!("EB.INSERT seen {}{times}", if nx { "NX " } else { "" });
        let [reply]: [i64; 1] = ask(&mut self.connection, &words);
        assert!([0, 1].contains(&reply), "{words}: {reply}");
        known.check(reply == 0, &words);
        if !nx || reply == 1 {
            self.insert(&item);
        }
    }

    /// Claims an item, and confirms it, at the filter's time.
    fn claim(&mut self, item: &str) {
        self.model.now = self.model.latest();
        let known = self.model.known(item);
        let words = format!("EB.CLAIM seen {item} 60000");
        let (word, token): (String, u64) = ask(&mut self.connection, &words);
        known.check(word == "SEEN", &words);
        if word == "YOURS" {
            let () = ask(&mut self.connection, &format!("EB.CONFIRM seen {item} {token}"));
            self.insert(item);
        }
    }

    /// Asks for all items, and for some that were never added.
    fn check(&mut self) {
        self.model.now = self.model.latest();
        let items: Vec<String> = (0..ITEMS + OTHERS).map(|item| format!("item-{item}")).collect();
        let what = |item: &str| format!("{} {item}", self.words);
        let mut exist = redis::cmd("EB.MEXISTS");
        let found: Vec<i64> =
            exist.arg("seen").arg(&items).query(&mut self.connection).expect("answers");
        for (item, found) in items.iter().zip(&found) {
            self.model.known(item).check(*found == 1, &what(item));
        }
        if !self.model.current.tells {
            return;
        }
        let current = self.model.current;
        let reach = 1 + self.random.below(current.width);
        let unit = if current.is_time { "ms" } else { "" };
        let mut within = redis::cmd("EB.WITHIN");
        within.arg("seen").arg(format!("{reach}{unit}")).arg(&items);
        let found: Vec<i64> = within.query(&mut self.connection).expect("answers");
        for (item, found) in items.iter().zip(&found) {
            let what = format!("{} within {reach}", what(item));
            self.model.within(item, reach).check(*found == 1, &what);
        }
        let mut age = redis::cmd("EB.AGE");
        let ages: Vec<Option<u64>> =
            age.arg("seen").arg(&items).query(&mut self.connection).expect("ages");
        for (item, age) in items.iter().zip(ages) {
            self.model.known(item).check(age.is_some(), &what(item));
            if let Some(age) = age {
                let true_age = self.model.ages(item).map(|ages| Model::in_unit(&current, ages));
                assert!(Some(age) <= true_age, "{}: {age}, in truth {true_age:?}", what(item));
            }
        }
    }

    fn run(&mut self, count: u64) {
        for _ in 0..count {
            self.step();
            if self.random.below(4) == 0 {
                self.check();
            }
        }
    }

    fn former(&mut self) -> String {
        ask(&mut self.connection, "EB.INFO seen former")
    }

    /// Asserts that the filter is what one with these parameters is that got the same since.
    fn assert_is_one_that_began_at_the_alteration(&mut self) {
        let spec = self.words.replacen("last ", "window-items=", 1);
        let words: Vec<&str> = spec.split(' ').collect();
        let mut text = words[0].to_owned();
        let mut rest = words[1..].iter();
        while let Some(word) = rest.next() {
            let is_pair = word.contains('=');
            text += &if is_pair {
                format!(" {word}")
            } else {
                format!(" {word}={}", rest.next().expect("a value"))
            };
        }
        if text.contains("window=") {
            text += &format!(" max-memory={}", 256 << 20);
        }
        let spec: Any = text.parse().expect("a kind");
        let options = MachineOptions::new().key_hash(KeyHash::Fast);
        let kind = spec.kind().expect("a kind");
        let mut twin = Machine::create(kind, &options, 7, 1).expect("a machine");
        let log = &mut |_| {};
        let (former, _, began) = self.model.former.expect("it was altered");
        if let (true, Some(began), true) = (former.is_time, began, twin.kind().uses_time()) {
            twin.clear(OperationTime { time: began * 1000, stream: true }, log);
        }
        for (item, time) in &self.since {
            let time = OperationTime { time: time * 1000, stream: true };
            let (hash, since) = (twin.hash(item.as_bytes()), Since::LastSeen);
            twin.check_and_insert(hash, since, time, log).expect("an insert");
        }
        let figures = ["inserts", "step", "fill"]
            .map(|field| ask::<Value>(&mut self.connection, &format!("EB.INFO seen {field}")));
        let stat = twin.stat(twin.latest().time, 64);
        assert_eq!(figures[0], Value::Int(stat.inserts as i64), "{}", self.words);
        assert_eq!(figures[1], Value::Int(stat.step.unwrap_or(0) as i64), "{}", self.words);
        let fill: f64 = redis::from_redis_value(figures[2].clone()).expect("a number");
        assert!((fill - stat.fill).abs() < 1e-9, "{}: {fill}, {}", self.words, stat.fill);
    }
}

/// Pairs of filters, before and after.
pub const ALTERATIONS: [(&str, &str); 22] = [
    ("fingerprint last 200 fpr 1e-9", "fingerprint last 70 fpr 1e-9"),
    ("fingerprint last 70 fpr 1e-9", "fingerprint last 200 fpr 1e-9"),
    ("fingerprint last 100 fpr 1e-9", "fingerprint last 100 fpr 1e-7"),
    ("timing last 150 fpr 1e-9", "timing last 40 fpr 1e-9"),
    ("timing last 40 fpr 1e-9", "timing last 150 fpr 1e-9"),
    ("timing last 100 fpr 1e-9", "fingerprint last 60 fpr 1e-9"),
    ("two-buffer last 100 fpr 1e-9", "timing last 60 fpr 1e-9"),
    ("timing last 100 fpr 1e-9", "double-buffering last 60 fpr 1e-9"),
    ("age-partitioned last 90 fpr 1e-9", "block-timing last 120 fpr 1e-9 block-size 10"),
    ("block-timing last 120 fpr 1e-9 block-size 10", "age-partitioned last 90 fpr 1e-9"),
    ("bloom capacity 1000 fpr 1e-9", "fingerprint last 90 fpr 1e-9"),
    ("counting capacity 1000 fpr 1e-9", "timing last 90 fpr 1e-9"),
    ("decaying capacity 1000 fpr 1e-9 lambda 0.99 epoch 1h", "timing last 90 fpr 1e-9"),
    ("fingerprint window 900ms fpr 1e-9", "fingerprint window 300ms fpr 1e-9"),
    ("fingerprint window 300ms fpr 1e-9", "fingerprint window 900ms fpr 1e-9"),
    ("time-limited window 300ms fpr 1e-9", "fingerprint window 600ms fpr 1e-9"),
    ("fingerprint window 600ms fpr 1e-9", "time-limited window 300ms fpr 1e-9"),
    ("time-limited window 600ms fpr 1e-9", "time-limited window 300ms fpr 1e-7"),
    ("fingerprint last 100 fpr 1e-9", "fingerprint window 400ms fpr 1e-9"),
    ("fingerprint window 400ms fpr 1e-9", "fingerprint last 100 fpr 1e-9"),
    ("timing last 60 fpr 1e-9", "time-limited window 500ms fpr 1e-9"),
    ("bloom capacity 1000 fpr 1e-9", "fingerprint window 400ms fpr 1e-9"),
];

#[test]
fn nothing_that_lies_in_both_windows_is_missed_and_the_replica_is_the_same_throughout() {
    if !is_there() {
        return;
    }
    let primary = Server::start("");
    let replica = Server::replica(&primary, "");
    let seed = number("EBBTIDE_SEED").unwrap_or(SEED);
    for round in 0..scaled(100).div_ceil(100) {
        for (at, (before, after)) in ALTERATIONS.iter().enumerate() {
            let mut stream = Stream::new(&primary, before, seed + round * 100 + at as u64);
            stream.run(60 + round % 7 * 20);
            stream.alter(after);
            assert!(stream.former().starts_with(before.split(' ').next().expect("a kind")));
            let (mut steps, mut same) = (0, 0);
            while !stream.former().is_empty() {
                stream.run(5);
                steps += 1;
                assert!(steps < 400, "{before}, {after}: the former filter stays");
                if steps % 8 == 1 {
                    primary.settle(&[&replica]);
                    assert_eq!(replica.digest("seen"), primary.digest("seen"), "{before}, {after}");
                    same += 1;
                }
            }
            assert!(stream.model.is_whole() && same > 0, "{before}, {after}");
            stream.assert_is_one_that_began_at_the_alteration();
            stream.run(40);
            stream.assert_is_one_that_began_at_the_alteration();
            primary.settle(&[&replica]);
            assert_eq!(replica.ask::<String>("EB.INFO seen former"), "", "{before}, {after}");
            assert_eq!(replica.digest("seen"), primary.digest("seen"), "{before}, {after}");
        }
    }
    assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
    assert_eq!(replica.info("ebbtide", "ebbtide_diverged"), "0");
}
