//! What was asked for and what came of it, and whether a filter agrees.

use ebbtide::{Any, Checked, Filter, Timestamp};
use std::collections::BTreeMap;

/// What a kind promises of a key.
#[derive(Debug, Clone, Copy)]
pub enum Promise {
    /// It is there for ever.
    Kept,
    /// It is there as often as it was inserted.
    Counted,
    /// It is there until so many more have been inserted.
    Last(u64),
    /// It is there until so many microseconds are over.
    Within(u64),
}

#[derive(Debug, Default)]
struct OfKey {
    /// How often it may have been inserted.
    begun: u64,
    /// How often it was inserted for certain.
    inserted: u64,
    /// How often it was found new by those who insert new keys only.
    new: u64,
    /// Somebody inserted it in any other way.
    plain: bool,
    /// Of the latest insert: how many had returned when it began, and its time.
    latest: Option<(u64, u64)>,
}

/// The inserts of a schedule. No more than one a key and thread is under way.
#[derive(Debug)]
pub struct History {
    promise: Promise,
    begun: u64,
    inserted: u64,
    /// Those that returned without having inserted anything.
    idle: u64,
    time: u64,
    keys: BTreeMap<u64, OfKey>,
}

/// An insert that was begun.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    pub key: u64,
    pub time: u64,
    returned: u64,
}

impl Begun {
    /// The same at another time.
    pub fn at(self, time: u64) -> Self {
        Self { time, ..self }
    }
}

impl History {
    pub fn new(promise: Promise) -> Self {
        Self { promise, begun: 0, inserted: 0, idle: 0, time: 0, keys: BTreeMap::new() }
    }

    pub fn begin(&mut self, key: u64, time: u64, plain: bool) -> Begun {
        let of_key = self.keys.entry(key).or_default();
        of_key.begun += 1;
        of_key.plain |= plain;
        self.begun += 1;
        self.time = self.time.max(time);
        Begun { key, time, returned: self.inserted + self.idle }
    }

    /// It returned; `checked` is what a check said. New keys only are inserted with a check.
    pub fn end(&mut self, begun: Begun, checked: Option<Checked>) {
        let of_key = self.keys.entry(begun.key).or_default();
        of_key.new += u64::from(checked == Some(Checked::New));
        if matches!(checked, None | Some(Checked::New)) {
            of_key.inserted += 1;
            self.inserted += 1;
            of_key.latest = Some((begun.returned, begun.time)).max(of_key.latest);
        } else {
            of_key.begun -= 1;
            self.idle += 1;
        }
    }

    /// Whether keys leave the filter after a while.
    pub fn forgets(&self) -> bool {
        matches!(self.promise, Promise::Last(_) | Promise::Within(_))
    }

    /// How many were begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// The keys that must be there whatever is under way.
    pub fn certain(&self) -> Vec<u64> {
        let keys = self.keys.iter();
        keys.filter(|(_, of_key)| self.is_certain(of_key)).map(|(&key, _)| key).collect()
    }

    fn is_certain(&self, of_key: &OfKey) -> bool {
        let Some((returned, time)) = of_key.latest else { return false };
        match self.promise {
            Promise::Kept | Promise::Counted => true,
            Promise::Last(window) => self.begun - returned <= window,
            Promise::Within(window) => self.time <= time + window,
        }
    }

    /// Holds a filter that nobody works on against what was asked for. `before` had been inserted before all that.
    pub fn check(&self, filter: &Filter<Any>, before: u64) -> Result<(), String> {
        let text = |error: ebbtide::Error| error.to_string();
        let inserts = filter.stat().map_err(text)?.inserts - before;
        let most = self.begun - self.idle;
        if !(self.inserted..=most).contains(&inserts) {
            let least = self.inserted;
            return Err(format!("{inserts} inserts, and should be {least} to {most}"));
        }
        for (key, of_key) in &self.keys {
            let there = match (self.promise, of_key.latest) {
                // At the last moment of its own window.
                (Promise::Within(window), Some((_, time))) => {
                    let last = Timestamp::from_unix_micros(time + window - 1);
                    filter.call().time(last).contains(key.to_le_bytes())
                }
                _ => filter.contains(key.to_le_bytes()),
            };
            if self.is_certain(of_key) && !there.map_err(text)? {
                return Err(format!("key {key} is gone"));
            }
            if !self.forgets() && !of_key.plain && of_key.new > 1 {
                return Err(format!("key {key} was new {} times", of_key.new));
            }
            if let Promise::Counted = self.promise {
                let count = filter.estimate(key.to_le_bytes()).map_err(text)?.count as u64;
                if !(of_key.inserted..=of_key.begun).contains(&count) {
                    let (least, most) = (of_key.inserted, of_key.begun);
                    return Err(format!(
                        "key {key} {count} times, and should be {least} to {most}"
                    ));
                }
            }
        }
        Ok(())
    }
}
