//! The filter that a key had before its alteration, beside the one that it has now.
//!
//! A server keeps no log of items, so the current filter begins empty. Until its window is *whole*,
//! that is, until it has existed for one window, questions are answered by both filters. An item
//! counts as seen if the current filter has it, or if the former one has it within the current
//! window. Nothing that lies in both windows is missed.
//!
//! Everything here is a function of the two filters and their records, except for questions, which
//! have the time of the server that is asked. So the former filter is dropped at the same record on
//! a replica, and when an append-only file is loaded.

use ebbtide_core::identity::Identity;
use ebbtide_core::kind::{Kind, Micros, Within};
use ebbtide_core::log_record::Op;
use ebbtide_core::machine::{Logged, Machine};
use ebbtide_core::{Age, Result as Decided};
use std::time::Duration;

/// Bytes of a record.
const RECORD: usize = 32;

/// Returns the window of a kind; `None` for kinds that have none.
pub fn window(kind: &dyn Kind) -> Option<Within> {
    let parameters = kind.parameters();
    let number = |name| parameters.get(name).and_then(|value| value.parse::<u64>().ok());
    let items = number("window-items").map(Within::Items);
    items.or_else(|| number("window").map(Within::micros))
}

/// Checks that a filter may follow another one in the same key.
///
/// # Errors
/// Why not.
pub fn may_follow(current: &Identity, former: &Identity) -> Result<(), &'static str> {
    if window(&*current.kind).is_none() {
        return Err("the current filter has no window, after which the former one is dropped");
    }
    let (now, before) = (&current.hasher, &former.hasher);
    if now.function() != before.function() || now.secret() != before.secret() {
        return Err("the current filter hashes items in another way than the former one");
    }
    if current.uuid == former.uuid {
        return Err("the current filter and the former one are the same");
    }
    Ok(())
}

/// A filter that was altered.
pub struct Former {
    machine: Machine,
    /// The window of the current filter.
    window: Within,
    /// The time of the first operation of the current filter, if its window is one of time.
    began: Option<Micros>,
    /// Whether inserts move the window of this filter.
    has_window: bool,
    /// Whether nothing was ever added to it before the alteration: there is nothing to wait for.
    /// (It is dropped with the alteration, so whoever loads the filter finds the same.)
    is_empty: bool,
    /// Whether this filter tells whether an item was seen within the current window.
    tells: bool,
}

impl Former {
    /// Creates the former filter beside the current one, whose first operation was at this time.
    ///
    /// # Errors
    /// As [`may_follow`].
    pub fn new(
        machine: Machine,
        current: &Machine,
        began: Option<Micros>,
    ) -> Result<Self, &'static str> {
        may_follow(current.as_identity(), machine.as_identity())?;
        let own = window(machine.kind());
        let window = window(current.kind()).unwrap_or(Within::Items(0));
        let is_same_unit = own.is_some_and(|own| is_time(own) == is_time(window));
        let tells = is_same_unit && machine.kind().ages().is_some();
        let is_empty = machine.content().totals().inserts == 0;
        Ok(Self { machine, window, began, has_window: own.is_some(), is_empty, tells })
    }

    /// Returns the filter.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// As [`Former::machine`], to be changed.
    pub fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Returns whether inserts move the window of this filter. One without a window is left as it
    /// is: what is inserted is in the current filter.
    pub fn has_window(&self) -> bool {
        self.has_window
    }

    /// Returns the time of the current filter's first operation, if its window is one of time.
    pub fn began(&self) -> Option<Micros> {
        self.began
    }

    /// Notes records that were applied to the current filter, from an LSN on.
    pub fn note(&mut self, current: &Machine, lsn: u64, records: &[u8]) {
        if self.began.is_some() || !is_time(self.window) {
            return;
        }
        let uuid = current.position().uuid;
        let (records, _) = records.as_chunks::<RECORD>();
        let mut decoded = (lsn..).zip(records).filter_map(|(lsn, record)| {
            let record = Logged { lsn, record: *record }.decode(uuid)?;
            // Claims have the time of leases.
            (!matches!(record.op, Op::Claim | Op::Release)).then_some(record.time)
        });
        self.began = decoded.next();
    }

    /// Returns what of the current window has passed since the current filter began: what only this
    /// filter has is older. (Of times one microsecond less, because it may be as old as that.)
    fn passed(&self, current: &Machine, now: Micros) -> u64 {
        match self.window {
            Within::Items(_) => current.content().totals().inserts,
            Within::Time(_) => {
                let now = now.max(current.latest().time);
                self.began.map_or(0, |began| now.saturating_sub(began).saturating_sub(1))
            }
        }
    }

    /// Returns what is left until the current window is whole: inserts, or microseconds.
    pub fn left(&self, current: &Machine, now: Micros) -> u64 {
        let width = if self.is_empty { 0 } else { self.window.width() };
        width.saturating_sub(self.passed(current, now))
    }

    /// Returns whether the current filter has its whole window at a time: then it knows all that
    /// this one knows of it.
    pub fn is_over(&self, current: &Machine, now: Micros) -> bool {
        self.left(current, now) == 0
    }

    /// Returns whether an item was seen within the current window, as far as this filter tells.
    fn contains(&self, hash: u64, now: Micros) -> bool {
        let within = || self.machine.seen_within(hash, now, self.window);
        let contains = || self.machine.contains(hash, now);
        if self.tells { within().unwrap_or_else(|_| contains()) } else { contains() }
    }
}

fn is_time(window: Within) -> bool {
    matches!(window, Within::Time(_))
}

/// The filters of a key at a time, for questions.
pub struct View<'a> {
    current: &'a Machine,
    now: Micros,
    /// Until the current window is whole, with the time of that filter.
    former: Option<(&'a Former, Micros)>,
}

impl<'a> View<'a> {
    /// Creates the view of filters. `time` returns the time of a question to one of them.
    #[inline]
    pub fn new(
        current: &'a Machine,
        former: Option<&'a Former>,
        time: impl Fn(&Machine) -> Micros,
    ) -> Self {
        let view = Self { current, now: time(current), former: None };
        match former {
            None => view,
            Some(former) => Self::at((current, view.now), (former, time(&former.machine))),
        }
    }

    /// Creates the view of the current and the former filter, each at a time.
    pub fn at((current, now): (&'a Machine, Micros), former: (&'a Former, Micros)) -> Self {
        let former = Some(former).filter(|(former, _)| !former.is_over(current, now));
        Self { current, now, former }
    }

    /// Returns the hash of an item.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> u64 {
        self.current.hash(item)
    }

    /// Prefetches the memory that a question about an item reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.current.prefetch(hash);
        if self.former.is_some() {
            self.prefetch_former(hash);
        }
    }

    // Out of line, as what follows: most filters have no former one.
    #[cold]
    #[inline(never)]
    fn prefetch_former(&self, hash: u64) {
        if let Some((former, _)) = self.former {
            former.machine.prefetch(hash);
        }
    }

    /// Returns whether the former filter has an item within the current window.
    #[cold]
    #[inline(never)]
    pub fn former_contains(&self, hash: u64) -> bool {
        self.former.is_some_and(|(former, now)| former.contains(hash, now))
    }

    /// Returns whether an item is in the window.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        self.current.contains(hash, self.now) || self.former.is_some() && self.former_contains(hash)
    }

    /// Returns whether an item was seen within a part of the window.
    ///
    /// # Errors
    /// As [`Machine::seen_within`] of the current filter.
    pub fn seen_within(&self, hash: u64, within: Within) -> Decided<bool> {
        if self.current.seen_within(hash, self.now, within)? {
            return Ok(true);
        }
        let Some((former, now)) = self.former else { return Ok(false) };
        // What only the former filter has is older than the current one.
        if within.width() <= former.passed(self.current, self.now) {
            return Ok(false);
        }
        if former.tells && within.width() < former.window.width() {
            return former.machine.seen_within(hash, now, within);
        }
        Ok(former.contains(hash, now))
    }

    /// Returns how long ago an item was seen, at least: by the filter that has seen it later.
    ///
    /// # Errors
    /// As [`Machine::age`] of the current filter.
    pub fn age(&self, hash: u64) -> Decided<Option<Age>> {
        let age = self.current.age(hash, self.now)?;
        let (None, Some((former, now))) = (age, self.former) else { return Ok(age) };
        if !former.contains(hash, now) {
            return Ok(None);
        }
        let own = if former.tells { former.machine.age(hash, now)? } else { None };
        // What only the former filter has is older than the current one.
        let least = former.passed(self.current, self.now).max(own.map_or(0, Age::width));
        Ok(Some(match former.window {
            Within::Items(_) => Age::Items(least),
            Within::Time(_) => Age::Time(Duration::from_micros(least)),
        }))
    }

    /// Returns how often an item was added, by the current filter.
    ///
    /// # Errors
    /// As [`Machine::estimate`].
    pub fn count(&self, hash: u64) -> Decided<f64> {
        Ok(self.current.estimate(hash, self.now)?.count)
    }
}
