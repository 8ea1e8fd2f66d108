//! A small filter of every kind, and random commands for it.

use ebbtide_testkit::random::Random;
pub use ebbtide_testkit::samples::{SAMPLES, Sample};
use redis::Cmd;

/// Keys of a stream: few, so that they repeat.
const ITEMS: u64 = 300;
/// The first time of every stream, in milliseconds.
pub const START: u64 = 1_700_000_000_000;

/// Returns the arguments of `EB.RESERVE` after the key.
pub fn reserve(sample: &Sample) -> Vec<String> {
    let mut words = vec![sample.kind.to_owned()];
    for &(name, value) in sample.parameters {
        let unit = if ["window", "epoch"].contains(&name) { "us" } else { "" };
        words.extend([name.to_owned(), format!("{value}{unit}")]);
    }
    words
}

/// A source of random commands for one key.
pub struct Commands<'a> {
    pub sample: &'a Sample,
    pub key: String,
    /// The time of the stream, in milliseconds; `None` leaves it to the server's clock.
    pub now: Option<u64>,
    pub random: Random,
}

impl<'a> Commands<'a> {
    /// Creates a source for a sample's key.
    pub fn new(sample: &'a Sample, key: String, timed: bool, seed: u64) -> Self {
        Self { sample, key, now: timed.then_some(START), random: Random::new(seed) }
    }

    /// Returns the command that creates the filter.
    pub fn reserve(&self) -> Cmd {
        let mut command = redis::cmd("EB.RESERVE");
        command.arg(&self.key).arg(reserve(self.sample)).arg(&["SEED", "7"]);
        command.arg(&["STRIPES", "2", "BLOCK", "2048"]);
        command
    }

    fn item(&mut self) -> String {
        format!("item {}", self.random.below(ITEMS))
    }

    /// Returns the words that say when, and how much an item weighs.
    fn settings(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(now) = &mut self.now {
            *now += self.random.below(6);
            // Every fifth is late.
            let late = if self.random.below(5) == 0 { self.random.below(300) } else { 0 };
            words.extend(["AT".to_owned(), (*now - late).to_string()]);
        }
        if self.sample.heaviest > 1 && self.random.below(2) == 0 {
            let is_count = !self.sample.kind.starts_with("importance");
            let word = if is_count { "TIMES" } else { "IMPORTANCE" };
            let weight = 1 + self.random.below(self.sample.heaviest);
            // The scale of importance ends at 1 unless the filter says otherwise.
            let weight = if is_count { weight as f64 } else { weight as f64 / 10.0 };
            words.extend([word.to_owned(), weight.to_string()]);
        }
        words
    }

    /// Returns the next command, which changes the filter or leaves it as it is.
    pub fn next(&mut self) -> Cmd {
        let choice = self.random.below(if self.sample.removes { 8 } else { 7 });
        let name = match choice {
            7 => "EB.DEL",
            0 if self.now.is_none() => "EB.ADD",
            1 if self.now.is_none() => "EB.ADDNX",
            2 if self.now.is_none() => "EB.MADD",
            3 if self.now.is_none() => "EB.MADDNX",
            _ => "EB.INSERT",
        };
        let mut command = redis::cmd(name);
        command.arg(&self.key);
        match name {
            "EB.DEL" | "EB.ADD" | "EB.ADDNX" => {
                command.arg(self.item());
            }
            "EB.INSERT" => {
                if self.random.below(2) == 0 {
                    command.arg("NX");
                }
                command.arg(self.settings()).arg("ITEMS");
                (0..1 + self.random.below(3)).for_each(|_| {
                    command.arg(self.item());
                });
            }
            _ => (0..1 + self.random.below(5)).for_each(|_| {
                command.arg(self.item());
            }),
        }
        command
    }
}
