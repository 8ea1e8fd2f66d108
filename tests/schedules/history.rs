//! The requested operations and their results, and the comparison with a filter.

use ebbtide::{Any, Checked, Filter, Timestamp};
use std::collections::BTreeMap;

/// The promise of a kind about a key.
#[derive(Debug, Clone, Copy)]
pub enum Promise {
    /// The key stays permanently.
    Kept,
    /// The key is counted as often as it was inserted.
    Counted,
    /// The key stays until this many more keys have been inserted.
    Last(u64),
    /// The key stays until this many microseconds have passed.
    Within(u64),
}

#[derive(Debug, Default)]
struct OfKey {
    /// How often the key may have been inserted.
    begun: u64,
    /// How often the key was certainly inserted.
    inserted: u64,
    /// How often inserts of new keys only found the key new.
    new: u64,
    /// Whether the key was inserted in any other way.
    plain: bool,
    /// Of the latest insert: how many had returned when it began, and its time.
    latest: Option<(u64, u64)>,
}

/// Threads, each of which may die between the record of a claim and the answer.
const MOST_UNKNOWN: usize = 8;

/// The inserts of a schedule. At most one per key and thread is in progress.
#[derive(Debug)]
pub struct History {
    promise: Promise,
    begun: u64,
    inserted: u64,
    /// The number of inserts that returned without having inserted anything.
    idle: u64,
    time: u64,
    keys: BTreeMap<u64, OfKey>,
    /// The first key of each batch, and whether its commit has returned.
    batches: BTreeMap<u64, bool>,
    /// What is known of keys that were claimed.
    claimed: BTreeMap<u64, Claimed>,
}

/// What is known of a key that was claimed. No lease ends by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// Somebody has it, by this token.
    Held(u64),
    /// Its holder began to confirm it.
    Confirming(u64),
    /// Its holder began to release it.
    Releasing(u64),
    /// It is in the window.
    Confirmed,
    /// Nobody has it.
    Free,
}

/// The new keys of a batch; its position is the key after the last of them.
pub const BATCH: u64 = 3;

/// An insert that was begun.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    pub key: u64,
    pub time: u64,
    returned: u64,
}

impl Begun {
    /// Returns the same insert at another time.
    pub fn at(self, time: u64) -> Self {
        Self { time, ..self }
    }
}

impl History {
    pub fn new(promise: Promise) -> Self {
        let (keys, batches, claimed) = Default::default();
        Self { promise, begun: 0, inserted: 0, idle: 0, time: 0, keys, batches, claimed }
    }

    /// Records that a key was given to a claimant: nobody else may have had it.
    pub fn give(&mut self, key: u64, token: u64) -> Result<(), String> {
        match self.claimed.insert(key, Claimed::Held(token)) {
            None | Some(Claimed::Free) => Ok(()),
            Some(Claimed::Releasing(before)) if before < token => Ok(()),
            Some(Claimed::Confirming(_) | Claimed::Confirmed) if self.has_left(key) => Ok(()),
            Some(before) => Err(format!("key {key} was given by token {token}, but is {before:?}")),
        }
    }

    /// Records that a release has returned. The key may be somebody else's by now.
    pub fn end_release(&mut self, key: u64, token: u64) {
        if self.claimed.get(&key) == Some(&Claimed::Releasing(token)) {
            self.claimed.insert(key, Claimed::Free);
        }
    }

    /// Records what its holder does with a key.
    pub fn set_claim(&mut self, key: u64, claimed: Claimed) {
        self.claimed.insert(key, claimed);
    }

    /// Checks the answer that a key has been seen: somebody began to confirm it.
    pub fn check_seen(&self, key: u64) -> Result<(), String> {
        match self.claimed.get(&key) {
            Some(Claimed::Confirming(_) | Claimed::Confirmed) => Ok(()),
            claimed => Err(format!("key {key} is seen, and is {claimed:?}")),
        }
    }

    /// Checks that claims are there that were not ended, and no others.
    fn check_claims(&self, filter: &Filter<Any>) -> Result<(), String> {
        let text = |error: ebbtide::Error| error.to_string();
        let open: Vec<u64> = filter.claims().map_err(text)?.iter().map(|open| open.token).collect();
        let mut most = 0;
        for (key, claimed) in &self.claimed {
            let is_seen = filter.contains(key.to_le_bytes()).map_err(text)?;
            let has = |token| open.contains(token);
            let is_right = match claimed {
                Claimed::Held(token) => has(token) && !is_seen,
                Claimed::Releasing(_) => !is_seen,
                Claimed::Confirming(token) => has(token) != is_seen || (self.forgets() && !is_seen),
                Claimed::Confirmed => is_seen || self.forgets(),
                Claimed::Free => !is_seen,
            };
            if !is_right {
                return Err(format!("key {key} is {claimed:?}, seen: {is_seen}, open: {open:?}"));
            }
            most += usize::from(!matches!(claimed, Claimed::Confirmed | Claimed::Free));
        }
        // A process may have died with a key that nobody knows that it had.
        if open.len() > most + MOST_UNKNOWN { Err(format!("open: {open:?}")) } else { Ok(()) }
    }

    pub fn begin_batch(&mut self, first: u64) {
        self.batches.insert(first, false);
    }

    /// Records that the commit of a batch returned, without a conflict.
    pub fn end_batch(&mut self, first: u64) {
        self.batches.insert(first, true);
    }

    /// Returns whether keys expire with time.
    pub fn expires_by_time(&self) -> bool {
        matches!(self.promise, Promise::Within(_))
    }

    /// Checks that each batch counts as a whole or not at all.
    fn check_batches(&self, filter: &Filter<Any>) -> Result<(), String> {
        for (&first, &has_returned) in &self.batches {
            let position = filter.position(first).map_err(|error| error.to_string())?;
            if !(position == Some(first + BATCH) || (position.is_none() && !has_returned)) {
                return Err(format!("batch {first} (returned: {has_returned}) has {position:?}"));
            }
            for key in (first..first + BATCH).filter(|_| position.is_some() && !self.forgets()) {
                if !filter.contains(key.to_le_bytes()).map_err(|error| error.to_string())? {
                    return Err(format!("key {key} of batch {first} is missing"));
                }
            }
        }
        Ok(())
    }

    pub fn begin(&mut self, key: u64, time: u64, plain: bool) -> Begun {
        let of_key = self.keys.entry(key).or_default();
        of_key.begun += 1;
        of_key.plain |= plain;
        self.begun += 1;
        self.time = self.time.max(time);
        Begun { key, time, returned: self.inserted + self.idle }
    }

    /// Records that an insert returned; `checked` is the result of a check. Only new keys are
    /// inserted with a check.
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

    /// Returns whether keys expire.
    pub fn forgets(&self) -> bool {
        matches!(self.promise, Promise::Last(_) | Promise::Within(_))
    }

    /// Returns how many inserts were begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns the keys that must be present whatever operations are in progress.
    pub fn certain(&self) -> Vec<u64> {
        let keys = self.keys.iter();
        keys.filter(|(_, of_key)| self.is_certain(of_key)).map(|(&key, _)| key).collect()
    }

    /// Returns whether a key may have left a window of inserts.
    fn has_left(&self, key: u64) -> bool {
        let latest = self.keys.get(&key).and_then(|of_key| of_key.latest);
        let returned = latest.map_or(0, |(returned, _)| returned);
        matches!(self.promise, Promise::Last(window) if self.begun - returned > window)
    }

    fn is_certain(&self, of_key: &OfKey) -> bool {
        let Some((returned, time)) = of_key.latest else { return false };
        match self.promise {
            Promise::Kept | Promise::Counted => true,
            Promise::Last(window) => self.begun - returned <= window,
            Promise::Within(window) => self.time <= time + window,
        }
    }

    /// Compares an idle filter with the requested operations. `before` is the number of inserts
    /// before the schedule.
    pub fn check(&self, filter: &Filter<Any>, before: u64) -> Result<(), String> {
        let text = |error: ebbtide::Error| error.to_string();
        let inserts = filter.stat().map_err(text)?.inserts - before;
        let most = self.begun - self.idle;
        if !(self.inserted..=most).contains(&inserts) {
            let least = self.inserted;
            return Err(format!("{inserts} inserts, expected {least} to {most}"));
        }
        self.check_batches(filter)?;
        self.check_claims(filter)?;
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
                return Err(format!("key {key} is missing"));
            }
            if !self.forgets() && !of_key.plain && of_key.new > 1 {
                return Err(format!("key {key} was new {} times", of_key.new));
            }
            if let Promise::Counted = self.promise {
                let count = filter.estimate(key.to_le_bytes()).map_err(text)?.count as u64;
                if !(of_key.inserted..=of_key.begun).contains(&count) {
                    let (least, most) = (of_key.inserted, of_key.begun);
                    return Err(format!("key {key} {count} times, expected {least} to {most}"));
                }
            }
        }
        Ok(())
    }
}
